"""`RedisKeyValue`: key-value entries in Redis; `entry_scripts.py` says which keys there are."""

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from orbiter.memory.backends.redis.commands import Word
from orbiter.memory.backends.redis.entry_scripts import (
    APPEND,
    CLEAR,
    COUNT,
    GET,
    LIST,
    LOAD,
    PATHS,
    POP,
    SCOPES,
    TOUCH,
    TTLS,
    WRITE,
)
from orbiter.memory.backends.redis.items import RedisItems
from orbiter.memory.errors import QueryError, VersionConflict
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.key_value import (
    Delete,
    Entry,
    EntryPath,
    Put,
    StoredEntry,
    appended_key,
    check_changes,
    check_contains,
    check_entry_path,
    check_names,
    check_order,
    check_ttl,
    check_value,
    instant_of,
    joined_path,
    last_changes,
    micros_of,
    owner_of,
    path_span,
    split_path,
)
from orbiter.memory.model.query import Query, check_size
from orbiter.memory.model.value_counts import UserInfo

__all__ = ["CHUNK", "RedisKeyValue"]

CHUNK = 200
"""Entries that one call reads or removes."""


class RedisKeyValue:
    """The entries of a Redis store; see `KeyValueStore`. Every call of a script is one step."""

    def __init__(self, items: RedisItems) -> None:
        self._items = items

    async def write(self, changes: Sequence[Put | Delete], *, scope: MemoryMetadata) -> list[int]:
        """Make all changes, or none; return the version of each, 0 for what was not there."""
        checked = check_changes(changes)
        self._items.check()
        last = last_changes(checked)
        if not last:
            return []
        args: list[Any] = list(owner_of(scope))
        for name, change in last.items():
            expected = -1 if change.expected_version is None else change.expected_version
            ttl, value = (change.ttl, change.value) if isinstance(change, Put) else (None, b"")
            kind = "p" if isinstance(change, Put) else "d"
            args += (kind, "\0".join(name), expected, _micros(ttl), value)
        answer: bytes = await self._items.run_once(WRITE, args)
        if answer.startswith(b"!"):
            place, version = answer[1:].split()
            wrong = list(last.values())[int(place)]
            raise VersionConflict(
                "/".join([*wrong.path, wrong.key]),
                expected=wrong.expected_version or 0,
                found=int(version),
            )
        versions = dict(zip(last, map(int, answer.split()), strict=True))
        return [versions[joined_path(each.path), each.key] for each in checked]

    async def get(
        self, names: Sequence[tuple[EntryPath, str]], *, scope: MemoryMetadata
    ) -> list[Entry | None]:
        """Return the entries of these paths and keys, in the order given."""
        wanted = ["\0".join(name) for name in check_names(names)]
        rows = await self._items.run(GET, [owner_of(scope)[0], *wanted])
        return [_entry(row) if row else None for row in rows]

    async def touch(self, names: Sequence[tuple[EntryPath, str]], *, scope: MemoryMetadata) -> int:
        """Have the time of entries with an end begin again; return how many there are of these."""
        wanted = {"\0".join(name) for name in check_names(names)}
        return int(await self._items.run(TOUCH, [owner_of(scope)[0], *wanted]))

    async def entries(
        self,
        path: EntryPath,
        *,
        scope: MemoryMetadata,
        is_deep: bool = True,
        reverse: bool = False,
        newest: bool = False,
        after: tuple[EntryPath, str] | None = None,
        contains: str = "",
        limit: int = 100,
    ) -> list[Entry]:
        """Return entries at a path and, if *is_deep*, below it, by path and key.

        For the *newest*, and for those whose names hold a text, all of them are read.
        """
        text = check_contains(contains)
        low, high = _span(path, is_deep=is_deep)
        check_order(newest=newest, reverse=reverse, after=after)
        check_size("limit", limit)
        if newest:
            every = await self.entries(
                path, scope=scope, is_deep=is_deep, contains=text, limit=sys.maxsize
            )
            return sorted(every, key=lambda each: each.updated_at, reverse=True)[:limit]
        if after is not None:
            last = b"(" + "\0".join(check_names([after])[0]).encode()
            if reverse:
                high = last if high == b"+" or last[1:] < high[1:] else high
            else:
                low = _later(low, last)
        entries: list[Entry] = []
        while len(entries) < limit:
            left = CHUNK if text else min(limit - len(entries), CHUNK)
            args: list[Word] = [owner_of(scope)[0], low, high, int(not reverse), left]
            rows = await self._items.run(LIST, args)
            entries += (
                entry
                for entry in map(_entry, rows)
                if any(text in part for part in (*entry.path, entry.key))
            )
            if not rows:
                break
            low, high = (low, b"(" + rows[-1][0]) if reverse else (b"(" + rows[-1][0], high)
        return entries[:limit]

    async def paths(
        self,
        path: EntryPath,
        *,
        scope: MemoryMetadata,
        after: EntryPath | None = None,
        limit: int = 100,
    ) -> list[EntryPath]:
        """Return the different paths of entries at and below a path, in order."""
        low, high = _span(path, is_deep=True)
        check_size("limit", limit)
        if after is not None:
            behind = joined_path(check_entry_path(after)).encode() + b"\0\xff"
            low = _later(low, b"(" + behind)
        paths = await self._items.run(PATHS, [owner_of(scope)[0], low, high, limit])
        return [split_path(each.decode()) for each in paths]

    async def append(
        self,
        path: EntryPath,
        values: Sequence[bytes],
        *,
        scope: MemoryMetadata,
        ttl: float | None = None,
    ) -> list[str]:
        """Put values behind the last key of a path, in order, all or none; return their keys."""
        place, seconds = joined_path(check_entry_path(path)), check_ttl(ttl)
        checked = [check_value(value) for value in values]
        self._items.check()
        if not checked:
            return []
        args: list[Word] = [*owner_of(scope), place, appended_key(0), _micros(seconds)]
        args += checked
        answer: bytes = await self._items.run_once(APPEND, args)
        if answer.startswith(b"!"):
            raise QueryError(
                f"the path {path!r} has the key `{answer[1:].decode()}`, which `append` did not "
                "make; give a log a path of its own"
            )
        return [appended_key(int(answer) + number) for number in range(len(checked))]

    async def pop(self, path: EntryPath, *, scope: MemoryMetadata) -> Entry | None:
        """Remove the last entry of a path, and return it."""
        place = joined_path(check_entry_path(path))
        answer: bytes = await self._items.run_once(POP, [owner_of(scope)[0], place])
        return _popped(answer) if answer else None

    async def clear(self, path: EntryPath, *, scope: MemoryMetadata) -> int:
        """Remove all entries at and below a path for good; return how many.

        They go a few hundred at a time.
        """
        return await self._clear(owner_of(scope)[0], *_span(path, is_deep=True))

    async def _clear(self, scope: str, low: bytes, high: bytes) -> int:
        removed = 0
        while True:
            args: list[Word] = [scope, low, high, CHUNK]
            count, size = (await self._items.run_once(CLEAR, args)).split()
            removed += int(count)
            if int(size) < CHUNK:
                return removed

    async def dump(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        after: StoredEntry | None = None,
        limit: int = 100,
    ) -> list[StoredEntry]:
        """Return entries of every scope that matches *metadata*, in an order that stays."""
        wanted = Query(metadata=metadata).wanted
        check_size("limit", limit)
        last = "" if after is None else owner_of(after.scope)[0]
        stored: list[StoredEntry] = []
        for owner, scope in sorted(await self._scopes(wanted)):
            if len(stored) < limit and owner >= last:
                name = (after.entry.path, after.entry.key) if after and owner == last else None
                entries = await self.entries((), scope=scope, after=name, limit=limit - len(stored))
                ttls = await self._ttls(owner, entries)
                stored += (StoredEntry(scope, *each) for each in zip(entries, ttls, strict=True))
        return stored

    async def count(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Return how many entries the scopes that match *metadata* have."""
        total = 0
        for owner, _ in await self._scopes(Query(metadata=metadata).wanted):
            async for count, *_ in self._counts(owner):
                total += count
        return total

    async def users(self) -> list[UserInfo]:
        """Return whose entries there are, a user once for each of their scopes."""
        return [
            UserInfo(scope.user_id, 0, 0, instant_of(int(first)), instant_of(int(last)), count)
            for owner, scope in await self._scopes({})
            if scope.user_id is not None
            async for count, first, last in self._counts(owner)
            if count
        ]

    async def _counts(self, owner: str) -> AsyncIterator[tuple[int, bytes, bytes]]:
        """Yield how many entries of a scope are not over, first created, and last put."""
        low, size = b"-", CHUNK
        while size == CHUNK:
            count, size, end, *times = await self._items.run(COUNT, [owner, low, CHUNK])
            yield int(count), *times
            low = b"(" + end

    async def _scopes(self, wanted: Mapping[Any, str]) -> list[tuple[str, MemoryMetadata]]:
        """Return all scopes of entries that have what is *wanted*."""
        flat = await self._items.run(SCOPES, [])
        every = (
            (owner.decode(), MemoryMetadata(**json.loads(scope)))
            for owner, scope in zip(flat[::2], flat[1::2], strict=True)
        )
        return [
            (owner, scope)
            for owner, scope in every
            if all(getattr(scope, name) == value for name, value in wanted.items())
        ]

    async def _ttls(self, owner: str, entries: Sequence[Entry]) -> list[float | None]:
        names = ["\0".join((joined_path(each.path), each.key)) for each in entries]
        ttls = await self._items.run(TTLS, [owner, *names])
        return [float(ttl) / 1_000_000 if ttl else None for ttl in ttls]

    async def load(self, entries: Sequence[StoredEntry], *, overwrite: bool = False) -> list[bool]:
        """Store entries as they were dumped; tell of each whether it was written."""
        args: list[Any] = [int(overwrite)]
        for stored in entries:
            entry, end = stored.entry, stored.entry.expires_at
            args += (*owner_of(stored.scope), "\0".join((joined_path(entry.path), entry.key)))
            args += (entry.value, entry.version, micros_of(entry.created_at))
            args += (micros_of(entry.updated_at), _micros(stored.ttl))
            args.append("" if end is None else micros_of(end))
        answer: bytes = await self._items.run_once(LOAD, args)
        return [sign == "1" for sign in answer.decode()]

    async def erase(self, wanted: Mapping[Any, str]) -> int:
        """Remove the entries of all scopes that have what is wanted; return how many."""
        removed = 0
        for owner, _ in await self._scopes(wanted):
            removed += await self._clear(owner, b"-", b"+")
        return removed


def _span(path: EntryPath, *, is_deep: bool) -> tuple[bytes, bytes]:
    """Return from where to where names at a path, and below it, reach, as Redis takes it."""
    text = joined_path(check_entry_path(path))
    if not is_deep:
        own = text.encode()
        return b"[" + own + b"\0", b"(" + own + b"\0\xff"
    if not text:
        return b"-", b"+"
    first, end = path_span(text)
    return b"[" + first.encode(), b"(" + end.encode()


def _later(low: bytes, last: bytes) -> bytes:
    """Return where to begin: at *low*, or behind the name of *last* if that is later."""
    return last if low == b"-" or last[1:] >= low[1:] else low


def _micros(ttl: object) -> str:
    return "" if not isinstance(ttl, float) else str(round(ttl * 1_000_000))


def _entry(row: Sequence[bytes]) -> Entry:
    name, value, version, created_at, updated_at, expires_at = row
    path, _, key = name.decode().partition("\0")
    return Entry(
        split_path(path),
        key,
        value,
        int(version),
        instant_of(int(created_at)),
        instant_of(int(updated_at)),
        instant_of(int(expires_at)) if expires_at else None,
    )


def _popped(answer: bytes) -> Entry:
    head, _, rest = answer.partition(b"\n")
    size, *numbers = head.split(b" ")
    return _entry([rest[: int(size)], rest[int(size) :], *numbers])
