"""What a model's tool forgets: one memory, or a fact with all its values.

To forget only the value that is true would make the one before it true again.
"""

from typing import TYPE_CHECKING, NamedTuple

from orbiter.memory.agent.facts import Facts
from orbiter.memory.agent.interface import session_of
from orbiter.memory.errors import ItemNotFoundError, UnsupportedError
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import SCOPE_FIELDS

if TYPE_CHECKING:
    from orbiter.memory.agent.scope import ScopedMemory

__all__ = ["Forgotten", "forget_item"]

_PAGE = 200


class Forgotten(NamedTuple):
    """What a tool has forgotten."""

    key: str | None
    """That of a fact of which nothing is left."""
    is_kept: bool
    """Whether it can be brought back."""


async def forget_item(handle: "ScopedMemory", item: MemoryItem) -> Forgotten:
    """Forget *item*, and if it is a value of a fact, all that was said of its key.

    Where another value is true now, *item* goes alone.
    """
    key = await _ended_key(item, handle)
    ids = [item.id] if key is None else [item.id, *await _said_of(handle, item, key)]
    if not await handle.forget(list(dict.fromkeys(ids))):
        raise ItemNotFoundError(item.id)
    try:
        is_kept = bool(await handle.history(item.id))
    except UnsupportedError:
        is_kept = False
    return Forgotten(key, is_kept)


async def _ended_key(item: MemoryItem, handle: "ScopedMemory") -> str | None:
    """Return the key of which nothing would be true any more without *item*."""
    if not isinstance(item, FactMemory) or item.status is not MemoryStatus.ACCEPTED:
        return None
    now = await Facts(session_of(handle)._replace(scope=_scope_of(item))).get(item.key)
    return item.key if now is None or now.id == item.id else None


async def _said_of(handle: "ScopedMemory", item: MemoryItem, key: str) -> list[str]:
    """Return the ids of all assertions of *key* in just the scope of *item*, ends and drafts, too.

    They are listed as anybody lists them: the memory may be behind a server.
    """
    ids: list[str] = []
    cursor: str | None = None
    while True:
        where = {"fact": key}
        page = await handle.list(memory_type="fact", where=where, limit=_PAGE, cursor=cursor)
        ids += (each.id for each in page if _scope_of(each) == _scope_of(item))
        cursor = page.next
        if cursor is None:
            return ids


def _scope_of(item: MemoryItem) -> MemoryMetadata:
    return MemoryMetadata(**{name: getattr(item.metadata, name) for name in SCOPE_FIELDS})
