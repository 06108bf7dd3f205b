"""The messages of one conversation as a store holds them: read from the newest on, page by page."""

from collections.abc import Callable, Sequence
from datetime import datetime

from orbiter.memory.agent._core import Store
from orbiter.memory.items import MemoryItem, MemoryMetadata, MemoryStatus, role_of
from orbiter.memory.query import SCOPE_FIELDS

__all__ = ["is_of", "nothing_else", "read_back", "system_messages"]

_PAGE = 100
_FIRST_PAGE = 32


def nothing_else(scope: MemoryMetadata) -> dict[str, object]:
    """Return the filter that keeps out what names more than *scope* does.

    A task of a session is another conversation than the session.
    """
    return {name: None for name in SCOPE_FIELDS if getattr(scope, name) is None}


def is_of(item: MemoryItem, scope: MemoryMetadata) -> bool:
    """Tell whether *item* is a message of just this conversation."""
    return role_of(item) is not None and all(
        getattr(item.metadata, name) == getattr(scope, name) for name in SCOPE_FIELDS
    )


async def read_back(
    store: Store,
    scope: MemoryMetadata,
    *,
    is_enough: Callable[[Sequence[MemoryItem]], bool] | None = None,
    before: MemoryItem | None = None,
    since: datetime | None = None,
) -> tuple[list[MemoryItem], bool]:
    """Return the newest messages, oldest first, and whether these are all there are.

    Reads until *is_enough* says so of what was read, newest first; without it, to the beginning,
    or to *since*.
    """
    found: list[MemoryItem] = []
    size = _FIRST_PAGE
    while True:
        page = await store.search(
            metadata=scope,
            status=MemoryStatus.ACCEPTED,
            where=nothing_else(scope) or None,
            limit=size,
            before=before,
            since=since,
        )
        found += (item for item in page if role_of(item) is not None)
        if len(page) < size:
            return found[::-1], True
        if is_enough is not None and is_enough(found):
            return found[::-1], False
        before, size = page[-1], _PAGE


async def system_messages(
    store: Store, scope: MemoryMetadata, before: MemoryItem
) -> list[MemoryItem]:
    """Return the system messages before an item, oldest first: they hold however old they are."""
    found: list[MemoryItem] = []
    while True:
        page = await store.search(
            metadata=scope,
            memory_type="system",
            status=MemoryStatus.ACCEPTED,
            where=nothing_else(scope) or None,
            limit=_PAGE,
            before=before,
        )
        found += page
        if len(page) < _PAGE:
            return found[::-1]
        before = page[-1]
