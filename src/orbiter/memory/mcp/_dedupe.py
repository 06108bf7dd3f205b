"""Deduplicated writes: the same text again is not a second memory, whoever writes it.

It stands on the `idempotency_key` of `remember`, and only chooses the key.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import MemoryItem

__all__ = ["remember_once"]

_MOST_LIVES = 64
"""How often a text may be changed and said again before it is simply stored."""


async def remember_once(
    handle: ScopedMemory,
    text: str,
    *,
    kind: str,
    tags: Sequence[str] | None = None,
    importance: float | None = None,
    source: str | None = None,
    extra: Mapping[str, object] | None = None,
) -> MemoryItem:
    """Keep *text*; where it is kept already, as it was given here, return that.

    What was forgotten since, or says something else by now, stays as it is, and this is a new
    memory. The names of all these lives follow from what was given, so that writers who meet choose
    the same.
    """
    given = json.dumps([text, sorted(tags or ()), importance, extra], sort_keys=True)
    digest = blake2b(given.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    for life in range(_MOST_LIVES):
        item = await handle.remember(
            text,
            tags=tags,
            importance=importance,
            source=source,
            extra=extra,
            idempotency_key=f"{kind}:{digest}:{life}",
        )
        # A repeated key answers with what it stored, also if that was forgotten.
        there = await handle.get(item.id)
        if there is not None and there.content == text:
            return there
    return await handle.remember(text, tags=tags, importance=importance, source=source, extra=extra)
