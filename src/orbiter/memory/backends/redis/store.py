"""`RedisMemoryStore`: short-term memory that agents on many machines share.

`_redis/scripts.py` says which keys there are and what happens at the server,
`_redis/items.py` what is sent there, and `connection.py` how it gets there.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from orbiter.memory._lazy import missing_extra
from orbiter.memory.backends.arguments import (
    check_cursor,
    check_different,
    check_several,
    check_several_ids,
    cursor_id,
    is_item_id,
)
from orbiter.memory.backends.sql.rows import Row, encode_all
from orbiter.memory.backends.urls import redacted
from orbiter.memory.errors import EmptyFilterError, InvalidItemError
from orbiter.memory.model.agent_store import AsyncContextStore
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import Cursor, Order, Query, check_order, check_size
from orbiter.memory.model.records import Record, Written
from orbiter.memory.model.reports import ConversationInfo, Erasure
from orbiter.memory.model.validation import check_positive, check_tag
from orbiter.memory.model.value_counts import (
    UserInfo,
    UserQuery,
    ValueCount,
    count_conversation,
    count_values,
    list_users,
)
from orbiter.memory.text.text_caches import clear_all

if TYPE_CHECKING:
    from orbiter.memory.model.key_value import KeyValueStore

__all__ = ["MAX_BATCH", "RedisMemoryStore"]

MAX_BATCH = 100_000
"""Most items that `add_many` takes: Redis refuses a command of more than a million words."""


class RedisMemoryStore(AsyncContextStore):
    """Keeps items in Redis; all stores of one *name*, anywhere, are one store.

    With *ttl_hours*, which may be a fraction, an item is gone so long after it was last written;
    without, it is kept until it is removed. Stores of one name should agree on it. An item that
    has an `expires_at` is gone then, if that is earlier.

    *redis_url* is `redis://`, `rediss://`, `redis+sentinel://` or `redis+cluster://`. A call that
    is not answered is sent again until *deadline* seconds have passed, and counts once. What is
    acknowledged is as durable as the server is set up to be: set `appendonly yes`, and
    `maxmemory-policy noeviction`, or a full server forgets what it likes.
    """

    def __init__(
        self,
        redis_url: str = "redis://localhost:6379/0",
        *,
        name: str = "default",
        ttl_hours: float | None = None,
        deadline: float = 10.0,
    ) -> None:
        check_positive(deadline=deadline)
        self.name = check_tag("name", name)
        self._url = _check_url(redis_url)
        try:  # here and not above: without redis-py, this module can be imported all the same
            from orbiter.memory.backends.redis.items import RedisItems  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise missing_extra("RedisMemoryStore needs redis-py", "redis") from exc
        self._items = RedisItems(
            redis_url,
            name,
            owner=repr(self),
            ttl_ms=_milliseconds(ttl_hours),
            deadline=deadline,
        )

    def __repr__(self) -> str:
        return f"RedisMemoryStore({redacted(self._url)!r}, name={self.name!r})"

    @property
    def url(self) -> str:
        """The URL of the server, without a password."""
        return redacted(self._url)

    @property
    def is_open(self) -> bool:
        """Whether `init` has connected it."""
        return self._items.is_open

    @cached_property
    def key_value(self) -> "KeyValueStore":
        """Entries of key and value, beside the items; `ttl_hours` is not for them."""
        from orbiter.memory.backends.redis.key_values import RedisKeyValue  # noqa: PLC0415

        return RedisKeyValue(self._items)

    # Opening and closing

    async def init(self) -> None:
        """Connect; a server that cannot be reached is a `MemoryConnectionError`. Idempotent."""
        await self._items.open()

    async def close(self) -> None:
        """Finish what is under way and close the connections; `init` opens them again."""
        await self._items.close()

    # Writing

    async def add(
        self,
        item: MemoryItem,
        *,
        expected_version: int | None = None,
        within: MemoryMetadata | None = None,
    ) -> None:
        """Store *item*, or update the one with its id; return once the server has it.

        With *expected_version* it is written only over that version, 0 meaning that there is no
        such item yet; else `VersionConflict` is raised and nothing is written. With *within*, an
        item that does not match it is not replaced: that is an `AccessError`.
        """
        if expected_version is not None:
            check_size("expected_version", expected_version)
        wanted = Query(metadata=within).wanted
        rows = await encode_all([item])
        await self._items.put(rows, expected=expected_version, wanted=wanted)

    async def add_many(
        self, items: Sequence[MemoryItem], *, within: MemoryMetadata | None = None
    ) -> None:
        """Store or update every item of *items*, in order, all or none; *within* as for `add`.

        The server does nothing else meanwhile, some 30 ms for a thousand items; more than
        `MAX_BATCH` are refused.
        """
        rows = await self._encode(items)
        if rows:
            await self._items.put(rows, wanted=Query(metadata=within).wanted)

    async def insert(self, items: Sequence[MemoryItem]) -> bool:
        """Store every item of *items* if none of their ids is used, in one step; tell whether.

        An id is used while its item is there, and for 30 days after an item that was stored in
        this way is deleted.
        """
        rows = await self._encode(items)
        check_different([row.id for row in rows])
        return not rows or await self._items.insert(rows)

    async def used_ids(self, item_ids: Sequence[str]) -> set[str]:
        """Return those of *item_ids* that are used, as `insert` means it."""
        return await self._items.used(check_several_ids(item_ids))

    async def _encode(self, items: Sequence[MemoryItem]) -> list[Row]:
        check_several(items)
        batch = tuple(items)
        if len(batch) > MAX_BATCH:
            raise InvalidItemError(
                f"{len(batch):,} items in one step, at most {MAX_BATCH:,} are allowed; split them"
            )
        rows = await encode_all(batch)
        self._items.check()  # a closed store says so for an empty batch, too
        return rows

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Remove what matches, or everything; return how many.

        Items go a few hundred at a time, so others may see some gone and some not yet. What is
        written after the call began stays.
        """
        wanted = Query(metadata=metadata).wanted
        if metadata is not None and not wanted:
            raise EmptyFilterError()
        return await self._items.clear(wanted)

    async def delete(self, item_id: str) -> bool:
        """Remove one item for good; tell whether it was there."""
        self._items.check()
        return is_item_id(item_id) and bool(await self._items.delete([item_id]))

    async def delete_many(self, item_ids: Sequence[str], *, by: str | None = None) -> int:  # noqa: ARG002
        """Remove the items of these ids for good; return how many were there.

        They go a few hundred at a time. There is no history, so *by* is not remembered.
        """
        ids = check_several_ids(item_ids)
        self._items.check()
        return await self._items.delete(ids)

    async def erase(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        by: str | None = None,  # noqa: ARG002 - there is no history
        item_ids: Sequence[str] | None = None,
    ) -> Erasure:
        """Remove for good all that *metadata* names, and what names it; return what was done.

        With *item_ids*, only the items of these ids that it names; without *metadata*, any.
        What is written for this scope after the call began may stay. A server may still have it in
        its own files until it rewrites them, see `docs/forgetting.md`.
        """
        query = Query(metadata=metadata)
        if not query.wanted and item_ids is None:
            raise EmptyFilterError()
        from orbiter.memory.backends.redis.erase import erase, erase_ids  # noqa: PLC0415 - seldom

        clear_all()
        if item_ids is not None:
            return await erase_ids(self._items, query, check_several_ids(item_ids))
        return await erase(self._items, query)

    # Moving

    async def records(
        self,
        *,
        after: str | None = None,
        limit: int = 1000,
        metadata: MemoryMetadata | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> list[Record]:
        """Return items as records, in the order in which they came.

        There are no versions of them. *after* is the id of the last record of the page before.
        With *metadata*, only those that match it; with *item_ids*, only those of these ids.
        """
        from orbiter.memory.backends.redis import records  # noqa: PLC0415

        wanted, last = Query(metadata=metadata).wanted, cursor_id("after", after)
        check_size("limit", limit)
        self._items.check()
        if item_ids is not None:
            ids = check_several_ids(item_ids)
            return (await records.read_some(self._items, wanted, ids))[:limit]
        return await records.read(self._items, wanted, last, limit)

    async def put_records(
        self,
        records: Sequence[Record],
        *,
        within: MemoryMetadata | None = None,
        overwrite: bool = False,
    ) -> Written:
        """Write the present items of records; return how many were not there so.

        Versions are not kept, only how many there were; the item of a soft-deleted record is
        removed. What is identical is left alone. What is there and is an earlier version of a
        record is replaced; anything else that has changed here stays, unless *overwrite*, and the
        answer names it among its `conflicts`. *within* as for `add`.
        """
        from orbiter.memory.backends.redis import records as redis_records  # noqa: PLC0415
        from orbiter.memory.backends.sql.records import check_records  # noqa: PLC0415

        checked = check_records(records)
        if len(checked) > MAX_BATCH:
            raise InvalidItemError(
                f"{len(checked):,} records in one step, at most {MAX_BATCH:,} are allowed; split "
                "them"
            )
        self._items.check()
        wanted = Query(metadata=within).wanted
        return await redis_records.put(self._items, checked, wanted, overwrite=overwrite)

    # Reading

    async def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None` if there is none or its time is over."""
        self._items.check()
        return await self._items.get(item_id) if is_item_id(item_id) else None

    async def search(  # noqa: PLR0913 - the seed's filters and the paging
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
        """Return at most *limit* items that match every given filter, newest first.

        *query* is a literal substring in any case. *since* and *until* bound `created_at`, the
        second excluded. *where* says what must hold of fields and of keys of `metadata.extra`: see
        `docs/backends.md#where`. *before* and *after* are an item, or its id: pass the last item
        of a page as *before* to get the page of older ones, the first as *after* to get the one of
        newer ones; the item may be gone by then. An id alone must still be stored. *order*
        `insertion` is that of a conversation, whose `session_id` or `task_id` *metadata* must name:
        what was added last comes first, whatever `created_at` says; a cursor must then still be
        stored.

        The scope that fewest items have is read from its newest item on, so the cost of a *query*,
        *memory_type*, *status* or *where* that few of them match grows with their number.
        """
        filters = Query(
            query, metadata, memory_type, status, limit, since=since, until=until, where=where
        )
        check_order(order, filters)
        older, newer = check_cursor("before", before), check_cursor("after", after)
        return await self._items.search(filters, before=older, after=newer, order=order)

    async def count(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Return how many items there are, or how many match *metadata*."""
        return await self._items.count(Query(metadata=metadata).wanted)

    async def conversations(
        self, *, metadata: MemoryMetadata | None = None, limit: int = 50
    ) -> list[ConversationInfo]:
        """Return at most *limit* conversations that match *metadata*, most recent first.

        Messages of people, models, tools and the system that name the same user, session, task
        and agent are one; what names neither a session nor a task is none. Everything that
        matches is read for it.
        """
        query = Query(metadata=metadata, limit=limit)
        self._items.check()
        infos: dict[tuple[str | None, ...], ConversationInfo] = {}
        async for page in self._items.pages(query):
            for item in page:
                count_conversation(item, infos)
        return list(infos.values())[:limit]

    async def users(self, query: UserQuery) -> list[UserInfo]:
        """Return the users who have memories or entries; everything is read for it."""
        from orbiter.memory.backends.redis.key_values import RedisKeyValue  # noqa: PLC0415

        items = await self._all(Query())
        return list_users(items, query, await RedisKeyValue(self._items).users())

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
        """Return the most frequent values of *field*, with their counts.

        Everything that *metadata* names is read for it.
        """
        query = Query("", metadata, memory_type, since=since, until=until, where=where)
        check_size("limit", limit)
        return count_values(await self._all(query), field, limit)

    async def _all(self, query: Query) -> list[MemoryItem]:
        self._items.check()
        return [item async for page in self._items.pages(query) for item in page]


def _check_url(url: object) -> str:
    if not isinstance(url, str) or not url:
        raise ValueError(f"`redis_url` must be like `redis://localhost:6379/0`, not {url!r}")
    return url


def _milliseconds(ttl_hours: float | None) -> int:
    """Return a lifetime in milliseconds, 0 for none."""
    if ttl_hours is None:
        return 0
    check_positive(ttl_hours=ttl_hours)
    if ttl_hours > 24 * 366 * 1000:
        raise ValueError(f"`ttl_hours` must be less than a thousand years, not {ttl_hours}")
    return max(1, round(ttl_hours * 3_600_000))
