"""Adapter: any `MemoryStore` as an `AgentStore`, with plain means for what the store lacks.

Paging, filters, conditional writes, counts and records are done in this process over what the
store's own `search` returns, so each costs a read of the scope. What cannot be had in this way,
removing a single item, is refused with the name of the method that is missing.
"""

import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard

from orbiter.memory.backends.arguments import (
    check_cursor,
    check_different,
    check_several,
    check_several_ids,
    cursor_id,
    is_item_id,
)
from orbiter.memory.backends.sql.merge import is_expired, joined
from orbiter.memory.errors import (
    AccessError,
    EmptyFilterError,
    QueryError,
    UnsupportedError,
    VersionConflict,
)
from orbiter.memory.model.agent_store import AgentStore, AsyncContextStore, store_label, store_name
from orbiter.memory.model.copying import validated_copy
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.protocols import (
    Embeddings,
    MemoryStore,
)
from orbiter.memory.model.query import Cursor, Order, Query, check_order, check_size
from orbiter.memory.model.records import Record, Written
from orbiter.memory.model.reports import ConversationInfo, Erasure
from orbiter.memory.model.value_counts import (
    UserInfo,
    UserQuery,
    ValueCount,
    count_values,
    list_conversations,
    list_users,
    read_users_of_entries,
)
from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.tasks.event_loop import OneLoop

__all__ = ["StoreAdapter", "as_agent_store", "page_of"]

_EVERYTHING = 2**31 - 1
_MAX_REMOVED = 100_000
"""Ids of removed items that are remembered, so that `insert` does not bring them back."""
_MAX_REPEATS = 1_000
"""Up to which version an item is moved in by writing it so often."""
_NEEDED = ("add", "get", "search", "clear")
_USED = (
    "init", "close", "add_many", "delete", "delete_many", "insert", "used_ids", "conversations",
)  # fmt: skip
_PAGING = ("before", "after", "since", "until", "where", "order")


def as_agent_store(store: object) -> AgentStore:
    """Return *store* if it is an `AgentStore`, else an adapter around it."""
    _check_store(store)
    return store if _is_agent_store(store) else StoreAdapter(store)  # type: ignore[arg-type]  # which it is


def _check_store(store: object) -> None:
    """Raise `QueryError` for what is not a `MemoryStore`, and say what it lacks."""
    if isinstance(store, type):
        name = store.__name__
        raise QueryError(f"`{name}` is a class; pass `{name}(…)`, an object of it, as the store")
    name = type(store).__name__
    missing = next((each for each in _NEEDED if not hasattr(store, each)), None)
    if missing is not None:
        raise QueryError(
            f"`{name}` is not a store: it has no `{missing}`; see `MemoryStore` for what a store "
            "needs"
        )
    for each in (*_NEEDED, *_USED):
        method = getattr(store, each, None)
        # A function is looked at; what other callables return cannot be known.
        if inspect.isroutine(method) and not inspect.iscoroutinefunction(inspect.unwrap(method)):
            raise QueryError(
                f"`{name}.{each}` is not a coroutine function; define it by `async def`, and run "
                "what blocks in it by `asyncio.to_thread`"
            )


def _is_agent_store(store: object) -> TypeGuard[AgentStore]:
    return (
        isinstance(store, AgentStore)
        and _takes(store.search, *_PAGING)
        and _takes(store.add, "expected_version", "within")
        and _takes(store.add_many, "within")
        and _takes(store.count, "metadata")
        and _takes(store.erase, "item_ids")
    )


def _takes(method: Callable[..., Any], *names: str) -> bool:
    parameters = inspect.signature(method).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return takes_any or all(name in parameters for name in names)


class StoreAdapter(AsyncContextStore):
    """An `AgentStore` over *store*, which needs no more than `MemoryStore` has.

    One process at a time may write through it: what takes a look and a write, such as `insert` and
    `expected_version`, is one step for everyone who uses this object, and for nobody else. The
    order of insertion is that of time, except in a `ShortTermMemory`, which knows it.
    """

    def __init__(self, store: MemoryStore) -> None:
        if getattr(store, "max_rounds", 0):
            raise QueryError(
                f"`{store_name(store)}` shows the newest rounds only, and the rest could not be "
                "recalled; make it with `max_rounds=0`, and limit a context by its `budget`"
            )
        self.store = store
        self._loop = OneLoop(repr(self))
        self._removed: OrderedDict[str, None] = OrderedDict()

    def __repr__(self) -> str:
        return f"StoreAdapter({store_label(self.store)})"

    @property
    def embeddings(self) -> Embeddings | None:
        """What makes the vectors of the store, if it has any."""
        model = getattr(self.store, "embeddings", None)
        return model if isinstance(model, Embeddings) else None

    def _own(self, name: str) -> Callable[..., Awaitable[Any]] | None:
        """Return the store's own method of that name, if it has one."""
        method: Callable[..., Awaitable[Any]] | None = getattr(self.store, name, None)
        return method

    async def init(self) -> None:
        """Open the store, if it is one that is opened."""
        if opens := self._own("init"):
            await opens()

    async def close(self) -> None:
        """Close the store, if it is one that is closed."""
        if closes := self._own("close"):
            await closes()

    # Writing

    async def add(
        self,
        item: MemoryItem,
        *,
        expected_version: int | None = None,
        within: MemoryMetadata | None = None,
    ) -> None:
        """Store *item*, over the expected version only, and over none that is not *within*."""
        if expected_version is None:
            await self.add_many([item], within=within)
            return
        check_size("expected_version", expected_version)
        taken = validated_copy(item)
        async with self._loop.turn:
            there = await self._check(taken, within)
            version = 0 if there is None else there.version
            if version != expected_version:
                raise VersionConflict(item.id, expected=expected_version, found=version)
            await self.store.add(taken)

    async def add_many(
        self, items: Sequence[MemoryItem], *, within: MemoryMetadata | None = None
    ) -> None:
        """Store or update every item of *items*; without `add_many`, one after the other."""
        check_several(items)
        taken = [validated_copy(item) for item in items]
        async with self._loop.turn:
            if within is not None:
                for item in taken:
                    await self._check(item, within)
            await self._write(taken)

    async def insert(self, items: Sequence[MemoryItem]) -> bool:
        """Store every item of *items* if none of their ids is used; tell whether.

        The ids of removed items are used while this object lives.
        """
        if insert := self._own("insert"):
            return bool(await insert(items))
        check_several(items)
        taken = [validated_copy(item) for item in items]
        ids = check_different([item.id for item in taken])
        async with self._loop.turn:
            if await self._used(ids):
                return False
            await self._write(taken)
            return True

    async def used_ids(self, item_ids: Sequence[str]) -> set[str]:
        """Return those of *item_ids* that are used, as `insert` means it."""
        if used_ids := self._own("used_ids"):
            return set(await used_ids(item_ids))
        return await self._used(check_several_ids(item_ids))

    async def delete_many(self, item_ids: Sequence[str]) -> int:
        """Remove the items of these ids; return how many were there."""
        ids = check_several_ids(item_ids)
        async with self._loop.turn:
            there = [item_id for item_id in ids if await self.store.get(item_id) is not None]
            await self._delete(there)
            self._note_removed(there)
        return len(there)

    def _deletes_single(self) -> bool:
        return bool(self._own("delete_many") or self._own("delete"))

    async def _delete(self, item_ids: Sequence[str]) -> None:
        if delete_many := self._own("delete_many"):
            await delete_many(item_ids)
        elif delete := self._own("delete"):
            for item_id in item_ids:
                await delete(item_id)
        elif item_ids:
            raise UnsupportedError(
                f"`{store_name(self)}` cannot remove single items; give it a "
                "`delete_many`, as `AgentStore` has"
            )

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Remove what matches, or everything; return how many."""
        gone = [item.id for item in await self._all(metadata)]
        # By their ids where that can be: `clear` of a store may know fewer fields than *metadata*.
        if metadata is not None and self._deletes_single():
            await self._delete(gone)
            removed = len(gone)
        else:
            removed = await self.store.clear(metadata=metadata)
        self._note_removed(gone)
        return removed

    async def erase(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        by: str | None = None,  # noqa: ARG002 - there is no history
        item_ids: Sequence[str] | None = None,
    ) -> Erasure:
        """Remove all that *metadata* names, or these items of it; see whether any is still found.

        What the store keeps beside its items, such as files of its own, cannot be looked at here.
        """
        if item_ids is not None:
            ids = [item.id for item in await self._of(item_ids, metadata)]
            removed = await self.delete_many(ids)
            left = len(await self._of(ids, metadata))
        elif Query(metadata=metadata).wanted:
            removed = await self.clear(metadata=metadata)
            left = len(await self._all(metadata))
        else:
            raise EmptyFilterError()
        problems = (f"{left} items are still found; repeat the erasure",) if left else ()
        return Erasure(items=removed, problems=problems)

    async def _of(self, ids: Sequence[str], scope: MemoryMetadata | None) -> list[MemoryItem]:
        items = [await self.store.get(item_id) for item_id in check_several_ids(ids)]
        return [item for item in items if item and Query(metadata=scope).matches(item)]

    async def _write(self, items: Sequence[MemoryItem]) -> None:
        if add_many := self._own("add_many"):
            await add_many(items)
        else:
            for item in items:
                await self.store.add(item)

    async def _check(self, item: MemoryItem, within: MemoryMetadata | None) -> MemoryItem | None:
        """Return what is there under the id of *item*, if it may be replaced."""
        there = await self.store.get(item.id)
        if there is not None and not Query(metadata=within).matches(there):
            raise AccessError(f"`{item.id}` belongs to somebody else; nothing was written")
        return there

    async def _used(self, item_ids: Iterable[str]) -> set[str]:
        return {
            item_id
            for item_id in item_ids
            if item_id in self._removed or await self.store.get(item_id) is not None
        }

    def _note_removed(self, item_ids: Iterable[str]) -> None:
        self._removed.update(dict.fromkeys(item_ids))
        while len(self._removed) > _MAX_REMOVED:
            self._removed.popitem(last=False)

    # Reading

    async def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None`."""
        return await self.store.get(item_id) if is_item_id(item_id) else None

    async def search(  # noqa: PLR0913 - the filters of a store
        self,
        *,
        query: str = "",
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        limit: int = 10,
        before: MemoryItem | str | Cursor | None = None,
        after: MemoryItem | str | Cursor | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Where | None = None,
        order: Order = "time",
    ) -> list[MemoryItem]:
        """Return at most *limit* items, newest first; all of the scope is read for it."""
        filters = Query(
            query, metadata, memory_type, status, limit, since=since, until=until, where=where
        )
        check_order(order, filters)
        items = await self._all(metadata, order=order)
        return page_of(items, filters, before=before, after=after)

    async def count(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Return how many items match *metadata*."""
        return len(await self._all(metadata))

    async def conversations(
        self, *, metadata: MemoryMetadata | None = None, limit: int = 50
    ) -> list[ConversationInfo]:
        """Return at most *limit* conversations that match *metadata*, most recent first."""
        if conversations := self._own("conversations"):
            return list(await conversations(metadata=metadata, limit=limit))
        check_size("limit", limit)
        return list_conversations(reversed(await self._all(metadata)))[:limit]

    async def users(self, query: UserQuery) -> list[UserInfo]:
        """Return the users who have memories or entries; everything is read for it."""
        return list_users(await self._all(None), query, await read_users_of_entries(self.store))

    async def count_by(
        self,
        field: str,
        *,
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Where | None = None,
        limit: int = 100,
    ) -> list[ValueCount]:
        """Return the most frequent values of *field*, with their counts; all is read for it."""
        query = Query("", metadata, memory_type, since=since, until=until, where=where)
        check_size("limit", limit)
        items = await self._all(metadata)
        return count_values(filter(query.matches, items), field, limit)

    async def _all(
        self, metadata: MemoryMetadata | None, *, order: Order = "time"
    ) -> list[MemoryItem]:
        """Return all that *metadata* names, oldest first, of one instant as they were added."""
        if isinstance(self.store, ShortTermMemory):  # its `search` leaves out open tool calls
            items = await self.store.items(metadata=metadata)
            return items if order == "insertion" else sorted(items, key=_created_at)
        try:
            candidates = await self.store.search(metadata=metadata, limit=_EVERYTHING)
        except EmptyFilterError:  # it filters by other fields only
            candidates = await self.store.search(limit=_EVERYTHING)
        query, now = Query(metadata=metadata), datetime.now(UTC)
        items = [item for item in candidates if query.matches(item, now=now)]
        if items and items[0].created_at >= items[-1].created_at:  # the newest first, as it should
            items.reverse()
        return sorted(items, key=_created_at)

    # Moving

    async def records(
        self,
        *,
        after: str | None = None,
        limit: int = 1000,
        metadata: MemoryMetadata | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> list[Record]:
        """Return items as records without versions, oldest first; *after* is the last one's id."""
        last = cursor_id("after", after)
        check_size("limit", limit)
        items = await self._all(metadata)
        if item_ids is not None:
            wanted = set(check_several_ids(item_ids))
            items = [item for item in items if item.id in wanted]
        elif last is not None:
            places = [place for place, item in enumerate(items) if item.id == last]
            if not places:
                raise QueryError(f"`after` names `{last}`, which is not stored")
            items = items[places[0] + 1 :]
        return [Record(item) for item in items[:limit]]

    async def put_records(
        self,
        records: Sequence[Record],
        *,
        within: MemoryMetadata | None = None,
        overwrite: bool = False,
    ) -> Written:
        """Write the present items of records; return how many were not there so.

        Versions are not kept, only how many there were: an item is written so often. What went on
        by itself here stays, unless *overwrite*, and is named among the `conflicts`.
        """
        written, conflicts = 0, []
        async with self._loop.turn:
            for record in records:
                there = await self._check(record.item, within)
                old = None if there is None else Record(there)
                if old is None if record.deleted else old == record.present:
                    continue
                if not overwrite and old is not None and _is_other(old, record):
                    conflicts.append(record.id)
                    continue
                await self._put(record, there)
                written += 1
        return Written(written, conflicts)

    async def _put(self, record: Record, there: MemoryItem | None) -> None:
        item = record.item
        restarts = there is not None and (
            there.version >= item.version or there.created_at != item.created_at or record.deleted
        )
        if restarts:
            await self._delete([item.id])
        if record.deleted:
            return
        version = 0 if there is None or restarts else there.version
        if item.version - version > _MAX_REPEATS:
            raise UnsupportedError(
                f"`{item.id}` is at version {item.version:,}, and `{store_name(self)}` "
                f"counts versions by writing; give it `put_records` to move more than "
                f"{_MAX_REPEATS:,}"
            )
        for _ in range(version, item.version):
            await self.store.add(validated_copy(item))


def page_of(
    items: Sequence[MemoryItem],
    query: Query,
    *,
    before: MemoryItem | str | Cursor | None = None,
    after: MemoryItem | str | Cursor | None = None,
) -> list[MemoryItem]:
    """Return those of *items* that are asked for, newest first, between the cursors.

    *items* are all there are, oldest first. Of a page between cursors, the items next to the
    cursor are returned: with *after* the oldest ones, else the newest.
    """
    low, high = 0, len(items)
    if (newer := check_cursor("after", after)) is not None:
        low = _place("after", newer, items)
    if (older := check_cursor("before", before)) is not None:
        high = _place("before", older, items)
    matching = [item for item in items[low:high] if query.matches(item)]
    kept = matching[: query.limit] if newer is not None else matching[len(matching) - query.limit :]
    if query.limit >= len(matching):
        kept = matching
    return kept[::-1]


def _place(name: str, cursor: Cursor, items: Sequence[MemoryItem]) -> int:
    """Return how many of *items* come before what the cursor lets through, or bounds."""
    wanted = {
        item.id: place
        for place, item in enumerate(items)
        if cursor.created_at is None or item.created_at == cursor.created_at
    }
    for each in (cursor.item_id, cursor.neighbour):
        if each in wanted:
            return wanted[each] + (name == "after")
    if cursor.created_at is None:
        raise QueryError(f"`{name}` names `{cursor.item_id}`, which is not stored")
    first = sum(1 for item in items if item.created_at < cursor.created_at)
    if name == "before":
        if cursor.takes_whole_instant:
            return first + len(wanted)
        older = [place for each, place in wanted.items() if each < cursor.item_id]
        return max(older) + 1 if older else first
    newer = [place for each, place in wanted.items() if each > cursor.item_id]
    return min(newer) if newer else first + len(wanted)


def _created_at(item: MemoryItem) -> datetime:
    return item.created_at


def _is_other(old: Record, record: Record) -> bool:
    return not is_expired(old) and joined(old, record, keeps_versions=False) is None
