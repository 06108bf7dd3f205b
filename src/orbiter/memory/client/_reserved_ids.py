"""Names that nothing can have: what a call answers that gives one, as it would without a server.

An id that no store takes, or that is too long for an address, is nobody's. It is not sent.
"""

from collections.abc import Mapping
from typing import Any

from orbiter.memory.agent.inputs import RESERVED
from orbiter.memory.backends.arguments import is_item_id
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.wire import Operation

__all__ = ["NOBODYS", "is_nobodys_key", "nobodys_id"]

NOBODYS = RESERVED
"""What is sent in the place of an id that cannot be: it is the id of nothing, too."""

_IDS = ("item_id", "fact_id", "item")
_LONGEST_KEY = 200
_FOR_NOTHING = ("get", "history", "end", "revert")


def nobodys_id(operation: Operation, given: Mapping[str, Any]) -> str | None:
    """Return the name of the argument that is an id that nothing can have, if one is.

    `QueryError` for what is no id at all.
    """
    if operation.target == "audit":
        return None
    names = ("at",) if operation.id == "chat.fork" else _IDS
    for name in names:
        value = given.get(name)
        if value is not None and not isinstance(value, MemoryItem) and not is_item_id(value):
            return name
    return None


def is_nobodys_key(operation: Operation, given: Mapping[str, Any]) -> bool:
    """Tell whether a call asks for a fact under a key that none can have; none can be put there."""
    key = given.get("key")
    if not isinstance(key, str) or len(key) <= _LONGEST_KEY:
        return False
    if operation.name in _FOR_NOTHING:
        return True
    raise QueryError(f"`key`: {len(key):,} characters, at most {_LONGEST_KEY} are allowed")
