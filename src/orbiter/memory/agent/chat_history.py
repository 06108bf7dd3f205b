"""Chat history: the messages of one conversation as stored, in the order they were added."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeGuard

from orbiter.memory.agent._updates import insert_many
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.agent.runtime import Store, as_stored, check_ids
from orbiter.memory.errors import AccessError, QueryError
from orbiter.memory.messages import OpenCalls
from orbiter.memory.model.audit import silently
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus, new_id, role_of
from orbiter.memory.model.query import SCOPE_FIELDS, require_text
from orbiter.memory.model.reports import ConversationInfo
from orbiter.memory.tasks.offload import apart, is_much_text

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.store import SQLMemoryStore

__all__ = [
    "append",
    "append_once",
    "check_messages",
    "copies_for",
    "find_calls",
    "is_known_key",
    "is_of",
    "list_chats",
    "nothing_else",
    "read_back",
    "read_on",
    "read_window",
    "seed_of",
    "system_messages",
]

_PAGE = 100
_TITLES = 200
"""Conversations whose titles are read at once."""
_ALL = 2**31
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


async def list_chats(
    store: Store, scope: MemoryMetadata | None, *, query: str, limit: int
) -> list[ConversationInfo]:
    """Return conversations with their titles, most recent first; see `ScopedMemory.chats`."""
    text = query.strip().casefold()
    chats = await store.conversations(metadata=scope, limit=_ALL if text else limit)
    titled: list[ConversationInfo] = []
    for start in range(0, len(chats), _TITLES):
        titled += await _with_titles(store, scope, chats[start : start + _TITLES])
    if not text:
        return titled
    return [each for each in titled if text in _label(each)][:limit]


def _label(chat: ConversationInfo) -> str:
    names = (chat.title, chat.metadata.session_id, chat.metadata.task_id)
    return "\n".join(name for name in names if name).casefold()


async def _with_titles(
    store: Store, scope: MemoryMetadata | None, chats: Sequence[ConversationInfo]
) -> list[ConversationInfo]:
    """Return *chats* with what importers keep with every message, so also with the first."""
    firsts = {"created_at": {"$in": [each.first_at for each in chats]}}
    with silently():  # the list is one entry of an audit log, and it is there already
        where = {**firsts, "title": {"$exists": True}}
        items = await store.search(metadata=scope, where=where, limit=_ALL)
    titles: dict[tuple[str | None, ...], str] = {}
    for item in items:
        title = item.metadata.extra.get("title")
        if role_of(item) is not None and isinstance(title, str) and title.strip():
            titles[_ids(item.metadata)] = title.strip()
    return [replace(each, title=titles.get(_ids(each.metadata))) for each in chats]


def _ids(scope: MemoryMetadata) -> tuple[str | None, ...]:
    return tuple(getattr(scope, name) for name in SCOPE_FIELDS)


async def read_back(
    store: Store,
    scope: MemoryMetadata,
    *,
    is_enough: Callable[[Sequence[MemoryItem]], bool] | None = None,
    before: MemoryItem | None = None,
    since: datetime | None = None,
    known: Sequence[MemoryItem] = (),
) -> tuple[list[MemoryItem], bool]:
    """Return the messages added last, in order, and whether these are all there are.

    Reads until *is_enough* says so of what was read, the last first; without it, to the beginning.
    With *since*, only what says that it was written then or later. What is *known*, the last
    first, was read already, and is not returned again.
    """
    items: list[MemoryItem] = []
    async for page, is_last in _pages_back(store, scope, before, known, since=since):
        items += (item for item in page if role_of(item) is not None)
        if is_last or is_enough is None:
            continue
        if await apart(is_much_text(page), is_enough, items):
            return items[::-1], False
    return items[::-1], True


async def read_window(
    store: Store,
    scope: MemoryMetadata,
    *,
    is_enough: Callable[[Sequence[MemoryItem]], bool],
    limit: int,
    rounds: int | None,
) -> list[MemoryItem]:
    """Return the messages added last, until they are enough, and the system's before these.

    A store that can is asked for both in one step: for *limit* items, or as many as *rounds* take.
    """
    if not _reads_newest(store):
        messages, is_all = await read_back(store, scope, is_enough=is_enough)
    else:
        page, systems, is_all = await store.newest_messages(scope, limit=limit, rounds=rounds)
        first = [item for item in page if role_of(item) is not None]
        if is_all or await apart(is_much_text(page), is_enough, first):
            return [*systems[::-1], *first[::-1]]
        messages, is_all = await read_back(
            store, scope, is_enough=lambda more: is_enough([*first, *more]), known=page
        )
        messages += first[::-1]
    if is_all or not messages:
        return messages
    return [*await system_messages(store, scope, messages[0]), *messages]


def _reads_newest(store: Store) -> "TypeGuard[SQLMemoryStore]":
    return getattr(store, "newest_messages", None) is not None


async def read_on(store: Store, scope: MemoryMetadata, after: str) -> list[MemoryItem] | None:
    """Return the messages that were added after the one of that id, in order.

    `None` if nobody knows any more where that one was.
    """
    items: list[MemoryItem] = []
    while True:
        try:
            page = await _search(store, scope, limit=_PAGE, after=after)
        except QueryError:
            if not items:
                return None
            after = items.pop().id  # it has just gone; go on from the one before it
            continue
        items += (item for item in reversed(page) if role_of(item) is not None)
        if len(page) < _PAGE:
            return items
        after = page[0].id


async def system_messages(
    store: Store, scope: MemoryMetadata, before: MemoryItem
) -> list[MemoryItem]:
    """Return the system messages before an item, in order: they hold however old they are."""
    items: list[MemoryItem] = []
    async for page, _ in _pages_back(store, scope, before, memory_type="system"):
        items += page
    return items[::-1]


async def _pages_back(
    store: Store,
    scope: MemoryMetadata,
    before: MemoryItem | None,
    read: Sequence[MemoryItem] = (),
    **filters: Any,
) -> AsyncIterator[tuple[list[MemoryItem], bool]]:
    """Yield pages, the last added first, and whether each is the last there is."""
    known: list[MemoryItem] = list(read) if before is None else [before]
    size = _PAGE if read else _FIRST_PAGE
    while True:
        cursor = known[-1] if known else None
        try:
            page = await _search(store, scope, limit=size, before=cursor, **filters)
        except QueryError:
            if not known or cursor is before:
                raise
            known.pop()  # it has just gone; go on from the one before it
            continue
        yield page, len(page) < size
        if len(page) < size:
            return
        known += page
        size = _PAGE


async def _search(store: Store, scope: MemoryMetadata, **filters: Any) -> list[MemoryItem]:
    return await store.search(
        metadata=scope,
        status=MemoryStatus.ACCEPTED,
        where=nothing_else(scope) or None,
        order="insertion",
        **filters,
    )


_FAR = 400
"""Messages between a call and its result, at most; providers want it in the next one."""


def seed_of(scope: MemoryMetadata, key: str | None) -> str:
    """Return what the ids of calls that have none are made from: with a key, the same each time."""
    if key is None:
        return new_id()
    return derived_id(scope, "calls", require_text("idempotency_key", key))


async def is_known_key(store: Store, scope: MemoryMetadata, key: str | None) -> bool:
    """Tell whether something was said under *key*: then nothing is read, and nothing stored."""
    return key is not None and bool(await store.used_ids([derived_id(scope, "said", key, 0)]))


async def find_calls(
    store: Store, scope: MemoryMetadata, wanted: Sequence[tuple[str, str]]
) -> list[MemoryItem]:
    """Return the newest messages, oldest first: enough to have the calls that results answer.

    *wanted* is the call's id and the tool's name of each result, either of which may be empty.
    """

    def is_enough(items: Sequence[MemoryItem]) -> bool:
        calls = OpenCalls(reversed(items))
        return len(items) >= _FAR or all(calls.knows(id, name) for id, name in wanted)

    items, _ = await read_back(store, scope, is_enough=is_enough)
    return items


def check_messages(items: Sequence[MemoryItem], scope: MemoryMetadata) -> None:
    """Refuse what is no message, or one of another conversation."""
    for item in items:
        if role_of(item) is None:
            raise QueryError(
                f"a `{item.memory_type}` is not a message; a chat stores items with a role, such "
                "as `HumanMemory`; use `remember` for other items"
            )
        for name in SCOPE_FIELDS:
            if getattr(item.metadata, name) != getattr(scope, name):
                raise AccessError(
                    f"the message names `{name}` `{getattr(item.metadata, name)}`, which is "
                    "another conversation; leave it out"
                )


async def append(
    store: Store, scope: MemoryMetadata, items: Sequence[MemoryItem], *, have_ids: bool
) -> list[MemoryItem]:
    """Store messages behind the last one, all or none; return them as stored."""
    if have_ids:
        await check_ids(store, items, scope)
        await store.add_many(items, within=scope)
        return await as_stored(store, items)
    if len(items) == 1:
        await store.add(items[0])
    else:
        await store.add_many(items)
    return list(items)


async def append_once(
    store: Store, scope: MemoryMetadata, items: Sequence[MemoryItem], key: str
) -> tuple[list[MemoryItem], bool]:
    """Store messages unless *key* stands for some already; return those, and whether it did."""
    stored, is_new = await insert_many(store, scope, "said", items, key)
    for item in stored:
        if not is_of(item, scope):
            raise AccessError(f"the id `{item.id}` is taken; use another `idempotency_key`")
    return stored, not is_new


def copies_for(scope: MemoryMetadata, items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return copies of messages for another conversation; each says what it was copied from.

    Their ids follow from their places alone, so that of two forks into one conversation a store
    takes one.
    """
    copies = []
    for place, item in enumerate(items):
        copy = copy_item(item)
        extra = {**item.metadata.extra, "forked_from": item.id}
        fields = {name: getattr(scope, name) for name in SCOPE_FIELDS}
        copy.__dict__["metadata"] = MemoryMetadata(**fields, extra=extra)
        copy.__dict__.update(id=derived_id(scope, "fork", place), version=1)
        copies.append(copy)
    return copies
