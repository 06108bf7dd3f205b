"""Items in Redis, as commands: which scripts are called with what, and how items are written.

`scripts.py` says which keys there are. Every write carries a token, so that the connection may
repeat it.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from orbiter.memory.backends.redis.commands import Command, Script, Word
from orbiter.memory.backends.redis.connection import connection_to
from orbiter.memory.backends.redis.scripts import (
    CLEAR,
    COUNT,
    DELETE,
    HEAD,
    MOVE,
    PAGE,
    PAGE_ADDED,
    PUT,
    USED,
)
from orbiter.memory.backends.sql.rows import Row, decode, end_of
from orbiter.memory.errors import (
    AccessError,
    NotInitializedError,
    QueryError,
    StorageError,
    VersionConflict,
)
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import SCOPE_FIELDS, Cursor, Order, Query, ScopeField

__all__ = ["CHUNK", "PROBE", "REMOVED", "RedisItems"]

CHUNK = 500
"""Items that one call reads, some milliseconds of the server's time."""

REMOVED = 200
"""Items that one call removes: the same, as each is taken out of several indexes."""

PROBE = 100
"""Items that a search which looks into them reads at first."""

_UNUSED = -2
"""Stands for an expected version: no id may be used."""

_START = datetime(1, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_STAMPED = 28
"""Characters of a place before the id: an instant and a stamp."""

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_loads = json.JSONDecoder().decode


class RedisItems:
    """The items of one name in one Redis, while it is open."""

    def __init__(self, url: str, name: str, *, owner: str, ttl_ms: int, deadline: float) -> None:
        self._connection = connection_to(url, deadline=deadline)
        self._owner = owner
        self._root = f"orbiter:{{{name}}}:"
        self._ttl_ms = ttl_ms
        self._deadline = deadline
        # A call is repeated until the deadline, and its last attempt may be a while on its way.
        self._keep_ms = int(3000 * deadline)
        self._is_open = False
        self._under_way = 0
        self._idle: list[asyncio.Future[None]] = []

    # Opening and closing

    @property
    def is_open(self) -> bool:
        return self._is_open

    async def open(self) -> None:
        if self._is_open:
            return
        try:
            await self._send(COUNT.call(self._keys({}), ["+"]))
            self._is_open = True
        finally:
            # Not to be opened, or cancelled; unless someone else is still at it.
            if not self._is_open and not self._under_way:
                await self._connection.leave(self)

    async def close(self) -> None:
        self._is_open = False
        if self._under_way:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            # No call takes longer; one that was under way in a parent process never ends.
            await asyncio.wait([idle], timeout=self._deadline)
        if not self._is_open:  # else it was opened again meanwhile
            await self._connection.leave(self)

    async def _call(self, command: Command) -> Any:
        self.check()
        return await self._send(command)

    def check(self) -> None:
        if not self._is_open:
            raise NotInitializedError(_StoreName(self._owner))

    async def _send(self, command: Command) -> Any:
        self._under_way += 1
        try:
            return await self._connection.call(self, command)
        finally:
            self._under_way -= 1
            if not self._under_way:
                waiting, self._idle = self._idle, []
                for idle in waiting:
                    if not idle.done():
                        idle.set_result(None)

    # Writing

    async def put(
        self,
        rows: Sequence[Row],
        *,
        expected: int | None = None,
        wanted: Mapping[ScopeField, str] | None = None,
    ) -> None:
        version, first = await self._put(rows, -1 if expected is None else expected, wanted or {})
        if version < -1:
            taken = rows[(-version - first) // 5].id
            raise AccessError(f"the id `{taken}` is taken; leave it out to get a new one")
        if expected is not None and version >= 0:
            raise VersionConflict(rows[0].id, expected=expected, found=version)

    async def insert(self, rows: Sequence[Row]) -> bool:
        version, _ = await self._put(rows, _UNUSED, {})
        return version == -1

    async def _put(
        self, rows: Sequence[Row], expected: int, wanted: Mapping[ScopeField, str]
    ) -> tuple[int, int]:
        """Return what the script answers, and the place of its first item among the arguments."""
        args = [*self._once(), self._ttl_ms, expected]
        args.append("\0".join(f"{name}:{value}" for name, value in wanted.items()))
        first = len(args) + 1
        for row in rows:
            args += (row.id, _digits(row.created_at), _end(row), _scopes(row), _body(row))
        return int(await self._call(PUT.call(self._keys({}), args))), first

    async def used(self, item_ids: Sequence[str]) -> set[str]:
        """Return the ids that have an item, or had one that was inserted."""
        if not item_ids:
            self.check()
            return set()
        flags = await self._call(USED.call(self._keys({}), list(item_ids)))
        return {item_id for item_id, flag in zip(item_ids, flags, strict=True) if flag}

    async def delete(self, item_ids: Sequence[str]) -> int:
        removed = 0
        for start in range(0, len(item_ids), REMOVED):
            args = [*self._once(), *item_ids[start : start + REMOVED]]
            removed += int(await self._call(DELETE.call(self._keys({}), args)))
        return removed

    async def clear(self, wanted: dict[ScopeField, str]) -> int:
        removed, horizon, high = 0, "0", "+"
        while high:
            args = [*self._once(), horizon, high, REMOVED]
            answer: bytes = await self._call(CLEAR.call(self._keys(wanted), args))
            count, horizon, high = answer.decode().split(" ", 2)
            removed += int(count)
        return removed

    # Erasing

    @property
    def root(self) -> str:
        """How all keys of the store begin."""
        return self._root

    async def run(self, script: Script, args: Sequence[Word]) -> Any:
        """Run a script on the keys of the store."""
        return await self._call(script.call(self._keys({}), args))

    async def run_once(self, script: Script, args: Sequence[Word]) -> Any:
        """Run a script that changes something; its first arguments are those of `_once`."""
        return await self.run(script, [*self._once(), *args])

    async def there(self, item_ids: Sequence[str]) -> int:
        """Return how many of these ids have a key."""
        if not item_ids:
            return 0
        keys = (f"{self._root}item:{item_id}" for item_id in item_ids)
        return int(await self._call(("EXISTS", *keys)))

    # Moving

    async def rows_after(
        self, wanted: dict[ScopeField, str], after: str | None, most: int
    ) -> list[list[Any]]:
        """Return at most *most* rows, and some if there are any, that were added after an id's."""
        low = "-inf" if after is None else f"({await self._stamp('after', Cursor(after))}"
        while low:
            args: list[str | int] = [low, "+inf", 1, most]
            last, *values = await self._call(PAGE_ADDED.call(self._keys(wanted), args))
            if values:
                return [_timed(_row(value)) for value in values]
            low = f"({last.decode()}" if last else ""
        return []

    async def rows_of(self, item_ids: Sequence[str]) -> list[list[Any]]:
        """Return the rows of those ids that are there."""
        return [row for row, _ in await self.stamped_rows_of(item_ids)]

    async def stamped_rows_of(self, item_ids: Sequence[str]) -> list[tuple[list[Any], str]]:
        """Return the rows of those ids that are there, each with the stamp of its last write."""
        if not item_ids:
            self.check()
            return []
        keys = (f"{self._root}item:{item_id}" for item_id in item_ids)
        values = await self._call(("MGET", *keys))
        there = [value for value in values if value is not None]
        return [(_timed(_row(value)), value[28:41].decode()) for value in there]

    async def move(
        self, rows: Sequence[tuple[Row, str, int]], wanted: Mapping[ScopeField, str]
    ) -> set[str]:
        """Write rows over what was last written with a stamp, with a version; 0 only removes it.

        Return the ids of those that are there with another stamp by now, and stay.
        """
        args = [*self._once(), self._ttl_ms, -1]
        args.append("\0".join(f"{name}:{value}" for name, value in wanted.items()))
        first = len(args) + 1
        for row, stamp, version in rows:
            args += (row.id, _digits(row.created_at), _end(row), _scopes(row))
            args += (_body(row) if version else "", stamp, f"{version:08x}")
        reply: bytes = await self._call(MOVE.call(self._keys({}), args))
        if not reply.startswith(b"="):
            taken = rows[(-int(reply) - first) // 7][0].id
            raise AccessError(f"`{taken}` belongs to somebody else; nothing was written")
        return set(reply[1:].decode().split("\n")) - {""}

    # Reading

    async def get(self, item_id: str) -> MemoryItem | None:
        value = await self._call(("GET", f"{self._root}item:{item_id}"))
        return None if value is None else _item(_row(value))

    async def search(
        self, query: Query, *, before: Cursor | None, after: Cursor | None, order: Order = "time"
    ) -> list[MemoryItem]:
        self.check()
        if not query.limit:
            return []
        others: tuple[object, ...] = (query.memory_type, query.status, query.condition)
        if order == "insertion":
            script = PAGE_ADDED
            low, high = "-inf", "+inf"
            if after is not None:
                low = f"({await self._stamp('after', after)}"
            if before is not None:
                high = f"({await self._stamp('before', before)}"
            others = (*others, query.since, query.until)
        else:
            script = PAGE
            low, high = await self._bounds(query, before, after)
        looks_inside = bool(query.needle) or any(each is not None for each in others)
        size = PROBE if looks_inside else CHUNK
        items: list[MemoryItem] = []
        while len(items) < query.limit:
            left = min(query.limit - len(items), CHUNK)
            most = max(left, size) if looks_inside else left
            args: list[str | int] = [low, high, int(after is not None), most]
            last, *values = await self._call(script.call(self._keys(query.wanted), args))
            items += _matching(values, query)
            if not last:
                break
            if after is None:
                high = f"({last.decode()}"
            else:
                low = f"({last.decode()}"
            size = CHUNK
        items = items[: query.limit]
        return items if after is None else items[::-1]

    async def pages(self, query: Query) -> AsyncIterator[list[MemoryItem]]:
        """Yield all that matches, newest first, some hundreds at a time; `limit` aside."""
        page = replace(query, limit=CHUNK)
        high = "+"
        while high:
            args: list[str | int] = ["-", high, 0, CHUNK]
            last, *values = await self._call(PAGE.call(self._keys(page.wanted), args))
            yield _matching(values, page)
            high = f"({last.decode()}" if last else ""

    async def count(self, wanted: dict[ScopeField, str]) -> int:
        total, high = 0, "+"
        while high:
            count, last = await self._call(COUNT.call(self._keys(wanted), [high]))
            total, high = total + count, last.decode()
        return total

    async def _bounds(
        self, query: Query, before: Cursor | None, after: Cursor | None
    ) -> tuple[str, str]:
        """Return the lowest and the highest place, as Redis takes them."""
        low, high = "-", "+"
        # A place is longer than the time it begins with, and so comes after it.
        if after is not None:
            low = f"({await self._place('after', after)}"
        if query.since is not None and (low == "-" or _digits(query.since) > low[1:]):
            low = f"[{_digits(query.since)}"
        if before is not None:
            high = f"({await self._place('before', before)}"
        if query.until is not None and (high == "+" or _digits(query.until) < high[1:]):
            high = f"({_digits(query.until)}"
        return low, high

    async def _stamp(self, name: str, cursor: Cursor) -> int:
        """Return the stamp of the first write of an item that is there."""
        return int((await self._place(name, Cursor(cursor.item_id)))[15:28], 16)

    async def _place(self, name: str, cursor: Cursor) -> str:
        if cursor.created_at is not None:
            return await self._place_at(name, cursor, _digits(cursor.created_at))
        key = f"{self._root}item:{cursor.item_id}"
        prefix: bytes = await self._call(("GETRANGE", key, 0, 27))
        if not prefix:
            raise QueryError(f"`{name}` names `{cursor.item_id}`, which is not stored")
        return prefix.decode() + cursor.item_id

    async def _place_at(self, name: str, cursor: Cursor, instant: str) -> str:
        """Return the place of an item of that instant, or what is next to where it was."""
        # All places of one instant are as long as it and a stamp, and begin with it.
        bounds = f"[{instant}", f"[{instant}g"
        members: list[bytes] = await self._call(("ZRANGEBYLEX", f"{self._root}all", *bounds))
        places = {place[_STAMPED:].decode(): place.decode() for place in members}
        for each in (cursor.item_id, cursor.neighbour):
            if each in places:
                return places[each]
        if name == "before":
            if cursor.takes_whole_instant:
                return f"{instant}g"
            older = [place for each, place in places.items() if each < cursor.item_id]
            return max(older) + "\0" if older else instant
        newer = [place for each, place in places.items() if each > cursor.item_id]
        return min(newer)[:-1] if newer else f"{instant}g"

    def _once(self) -> list[str | int]:
        return [secrets.token_urlsafe(12), self._keep_ms]

    def _keys(self, wanted: dict[ScopeField, str]) -> list[str]:
        scopes = (f"{self._root}{name}:{value}" for name, value in wanted.items())
        return [f"{self._root}all", *scopes]


class _StoreName:
    """Stands for a store in an error's text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _digits(instant: datetime) -> str:
    return f"{(instant - _START) // _MICROSECOND:015x}"


def _instant(microseconds: int) -> datetime:
    return _START + timedelta(microseconds=microseconds)


def _end(row: Row) -> str:
    """Return the millisecond of the Unix epoch in which an item is over, or nothing."""
    end = end_of(row)
    return "" if end is None else f"{max(0, (end - _EPOCH) // _MILLISECOND)}"


def _scopes(row: Row) -> str:
    who: dict[str, Any] = _loads(row.metadata)
    return "\0".join(f"{name}:{who[name]}" for name in SCOPE_FIELDS if name in who)


def _body(row: Row) -> str:
    return _dumps([*row[:6], (row.updated_at - _START) // _MICROSECOND])


def _row(value: bytes) -> list[Any]:
    """Return the columns `READ` of what is stored, the times still as numbers."""
    try:
        body = _loads(value[HEAD + int(value[HEAD - 4 : HEAD], 16) :].decode())
        return [*body[:6], int(value[:15], 16), int(body[6]), int(value[41:49], 16)]
    except (ValueError, IndexError, TypeError) as exc:
        raise StorageError(
            f"an item in Redis, of {len(value):,} bytes, cannot be read; was it written by hand?"
        ) from exc


def _item(row: list[Any]) -> MemoryItem:
    return decode(_timed(row))


def _timed(row: list[Any]) -> list[Any]:
    row[6], row[7] = _instant(row[6]), _instant(row[7])
    return row


def _matching(values: Sequence[bytes], query: Query) -> list[MemoryItem]:
    """Return the items that match; most that do not are never made."""
    items = []
    for value in values:
        row = _row(value)
        if (
            query.memory_type in (None, row[2])
            and query.status in (None, row[3])
            and (not query.needle or query.needle in row[1].casefold())
        ):
            item = _item(row)
            if query.matches(item):
                items.append(item)
    return items
