"""The advisory locks under which messages come into conversations one after the other."""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from orbiter.memory.backends.sql.rows import Row
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = ["MOST", "conversation_locks"]

MOST = 500
"""Conversations whose locks a write takes; one to more is a bulk load, and no turn of any."""


def conversation_locks(rows: Sequence[Row]) -> list[int]:
    """Return the locks of the conversations of *rows*, in an order that is the same for all."""
    found = {row.metadata for row in rows if '_id":' in row.metadata}
    locks = {_lock(json.loads(metadata)) for metadata in found}
    locks.discard(None)
    return sorted(lock for lock in locks if lock is not None) if len(locks) <= MOST else []


def _lock(metadata: dict[str, Any]) -> int | None:
    if metadata.get("session_id") is None and metadata.get("task_id") is None:
        return None
    whose = json.dumps([metadata.get(name) for name in SCOPE_FIELDS]).encode()
    return int.from_bytes(blake2b(whose, digest_size=8).digest(), "big", signed=True)
