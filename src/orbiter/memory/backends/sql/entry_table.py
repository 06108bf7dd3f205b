"""`SQLKeyValue`: key-value entries in a table beside the items, the same in both databases."""

# ruff: noqa: SLF001 - a part of the store

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from orbiter.memory.backends.sql.audit import SQLAudit
from orbiter.memory.backends.sql.dialect import Args, Dialect, Rows, Statement, Steps
from orbiter.memory.errors import QueryError, VersionConflict
from orbiter.memory.model.audit import common_scope
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.key_value import (
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
    count_changes,
    instant_of,
    joined_path,
    last_changes,
    micros_of,
    owner_of,
    path_span,
    split_path,
)
from orbiter.memory.model.query import Query, check_size

__all__ = ["SQLKeyValue"]

SWEPT = 20
"""Entries that are over, and are removed by a call that writes one with an end."""

_COLUMNS = "path, key, value, version, created_at, updated_at, expires_at"

_LOADED = (
    "scope", "path", "key", "value", "metadata", "version", "created_at", "updated_at", "ttl",
    "expires_at",
)  # fmt: skip

Name = tuple[str, str]
"""A path as text, and a key."""


class SQLKeyValue:
    """The entries of a SQL store; see `KeyValueStore`. Every call is one transaction."""

    def __init__(self, database: SQLAudit) -> None:
        self._database = database
        self._write = database._write_entries

    async def write(self, changes: Sequence[Any], *, scope: MemoryMetadata) -> list[int]:
        """Make all changes, or none; return the version of each, 0 for what was not there."""
        checked = check_changes(changes)
        steps = partial(self._steps(scope).write, checked)
        return await self._write(steps, scope, "kv.write", partial(count_changes, checked))

    async def get(
        self, names: Sequence[tuple[EntryPath, str]], *, scope: MemoryMetadata
    ) -> list[Entry | None]:
        """Return the entries of these paths and keys, in the order given."""
        wanted = check_names(names)
        rows = await self._database._read(lambda: self._steps(scope).get(wanted), alone=True)
        by_name = {(row[0], row[1]): _entry(row) for row in rows}
        return [by_name.get(name) for name in wanted]

    async def touch(self, names: Sequence[tuple[EntryPath, str]], *, scope: MemoryMetadata) -> int:
        """Have the time of entries with an end begin again; return how many there are of these."""
        wanted = sorted(set(check_names(names)))
        return await self._database._write(lambda: self._steps(scope).touch(wanted))

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
        """Return entries at a path and, if *is_deep*, below it, by path and key."""
        text = check_contains(contains)
        place = joined_path(check_entry_path(path))
        check_order(newest=newest, reverse=reverse, after=after)
        last = None if after is None else check_names([after])[0]
        check_size("limit", limit)
        rows = await self._database._read(
            lambda: self._steps(scope).entries(
                place,
                is_deep=is_deep,
                reverse=reverse,
                newest=newest,
                after=last,
                contains=text,
                limit=limit,
            ),
            alone=True,
        )
        return [_entry(row) for row in rows]

    async def paths(
        self,
        path: EntryPath,
        *,
        scope: MemoryMetadata,
        after: EntryPath | None = None,
        limit: int = 100,
    ) -> list[EntryPath]:
        """Return the different paths of entries at and below a path, in order."""
        place = joined_path(check_entry_path(path))
        last = None if after is None else joined_path(check_entry_path(after))
        check_size("limit", limit)
        return await self._database._read(
            lambda: self._steps(scope).paths(place, last, limit), alone=True
        )

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
        steps = partial(self._steps(scope).append, place, checked, seconds)
        return await self._write(steps, scope, "kv.append", lambda keys: {"stored": len(keys)})

    async def pop(self, path: EntryPath, *, scope: MemoryMetadata) -> Entry | None:
        """Remove the last entry of a path, and return it."""
        place = joined_path(check_entry_path(path))
        steps = partial(self._steps(scope).pop, place)
        rows = await self._write(steps, scope, "kv.pop", lambda rows: {"removed": len(rows)})
        return _entry(rows[0]) if rows else None

    async def clear(self, path: EntryPath, *, scope: MemoryMetadata) -> int:
        """Remove all entries at and below a path for good; return how many."""
        place = joined_path(check_entry_path(path))
        steps = partial(self._steps(scope).clear, place)
        return await self._write(steps, scope, "kv.clear", lambda count: {"removed": count})

    async def dump(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        after: StoredEntry | None = None,
        limit: int = 100,
    ) -> list[StoredEntry]:
        """Return entries of every scope that matches *metadata*, in an order that stays."""
        wanted, dialect = Query(metadata=metadata).wanted, self._database._operations.dialect
        check_size("limit", limit)
        rows = await self._database._read(lambda: _dump(dialect, wanted, after, limit), alone=True)
        return [
            StoredEntry(MemoryMetadata(**json.loads(scope)), _entry(row), ttl)
            for scope, ttl, *row in rows
        ]

    async def count(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Return how many entries the scopes that match *metadata* have."""
        wanted, dialect = Query(metadata=metadata).wanted, self._database._operations.dialect
        rows = await self._database._read(lambda: _count(dialect, wanted), alone=True)
        return int(rows[0][0])

    async def load(self, entries: Sequence[StoredEntry], *, overwrite: bool = False) -> list[bool]:
        """Store entries as they were dumped; tell of each whether it was written."""
        dialect = self._database._operations.dialect
        in_order = sorted(entries, key=_stored_name)  # as everybody locks
        shared = common_scope(dict(Query(metadata=each.scope).wanted) for each in in_order)  # type: ignore[arg-type]  # names of fields
        steps = partial(_load, dialect, in_order, overwrite=overwrite)
        written = await self._write(
            steps,
            MemoryMetadata(**shared),
            "import",
            lambda written: {"stored": sum(written.values())},
        )
        return [written[_stored_name(stored)] for stored in entries]

    def _steps(self, scope: MemoryMetadata) -> "_Steps":
        return _Steps(self._database._operations.dialect, scope)


class _Steps:
    """The operations on the entries of one scope, as steps."""

    def __init__(self, dialect: Dialect, scope: MemoryMetadata) -> None:
        self._dialect = dialect
        self._scope, self._metadata = owner_of(scope)

    def write(self, changes: Sequence[Any]) -> Steps[list[int]]:
        """Make changes, in an order in which no two callers wait for each other."""
        last = last_changes(changes)
        expected = {
            name: change.expected_version
            for name, change in last.items()
            if change.expected_version is not None
        }
        yield from self._check_versions(expected)
        puts = [(name, each) for name, each in sorted(last.items()) if isinstance(each, Put)]
        gone = sorted(name for name, each in last.items() if not isinstance(each, Put))
        there = yield from self._versions(gone)
        if gone:
            args = Args(self._dialect)
            yield Statement(f"DELETE FROM memory_entries WHERE {self._named(args, gone)}", args)
        yield from self._put([(*name, each.value, check_ttl(each.ttl)) for name, each in puts])
        made = yield from self._versions([name for name, _ in puts])
        for name, version in expected.items():
            if version == 0 and made.get(name, 0) > 1:  # put by another while there was none
                raise _conflict(name, 0, made[name] - 1)
        versions = {**there, **made}
        return [versions.get((joined_path(each.path), each.key), 0) for each in changes]

    def _check_versions(self, expected: dict[Name, int]) -> Steps[None]:
        stored = yield from self._versions(sorted(expected), lock=True)
        for name, version in expected.items():
            if stored.get(name, 0) != version:
                raise _conflict(name, version, stored.get(name, 0))

    def _versions(self, names: Sequence[Name], *, lock: bool = False) -> Steps[dict[Name, int]]:
        if not names:
            return {}
        args = Args(self._dialect)
        where = f"{self._named(args, names)} AND {self._alive(args)}"
        sql = f"SELECT path, key, version FROM memory_entries WHERE {where}"
        if lock:
            sql += f" ORDER BY path, key{self._dialect.for_update}"
        rows = yield Statement(sql, args)
        return {(path, key): version for path, key, version in rows}

    def _put(self, rows: Sequence[tuple[str, str, bytes, float | None]]) -> Steps[None]:
        if not rows:
            return
        if any(ttl is not None for *_, ttl in rows):
            yield from self._sweep()
        values = [self._dialect.parameter(number) for number in range(1, 7)]
        now = f"CAST({self._dialect.parameter(7)} AS BIGINT)"
        clock = Args(self._dialect)
        ((micros,),) = yield Statement(f"SELECT {self._dialect.micros(clock)}", clock)
        over = f"memory_entries.expires_at <= {now}"
        seconds = f"CAST({values[5]} AS DOUBLE PRECISION)"
        yield Statement(
            "INSERT INTO memory_entries (scope, path, key, value, metadata, version, created_at,"
            " updated_at, ttl, expires_at)"
            f" VALUES ({', '.join(values[:4])}, {values[4]}{self._dialect.to_json}, 1, {now},"
            f" {now}, {seconds}, {now} + CAST({seconds} * 1000000 AS BIGINT))"
            " ON CONFLICT (scope, path, key) DO UPDATE SET value = excluded.value,"
            f" version = CASE WHEN {over} THEN 1 ELSE memory_entries.version + 1 END,"
            f" created_at = CASE WHEN {over} THEN excluded.created_at"
            " ELSE memory_entries.created_at END,"
            " updated_at = excluded.updated_at, ttl = excluded.ttl,"
            " expires_at = excluded.expires_at",
            [
                (self._scope, path, key, value, self._metadata, ttl, micros)
                for path, key, value, ttl in rows
            ],
            many=True,
        )

    def _sweep(self) -> Steps[None]:
        """Remove a few entries that are over, whosever they are, and that nobody else is at."""
        args = Args(self._dialect)
        skipping = f"{self._dialect.for_update} SKIP LOCKED" if self._dialect.for_update else ""
        over = (
            f"SELECT scope, path, key FROM memory_entries WHERE expires_at <="
            f" {self._dialect.micros(args)} LIMIT {SWEPT}{skipping}"
        )
        yield Statement(f"DELETE FROM memory_entries WHERE (scope, path, key) IN ({over})", args)

    def get(self, names: Sequence[Name]) -> Steps[Rows]:
        """Return the rows of names."""
        if not names:
            return []
        args = Args(self._dialect)
        where = f"{self._named(args, names)} AND {self._alive(args)}"
        return (yield Statement(f"SELECT {_COLUMNS} FROM memory_entries WHERE {where}", args))

    def touch(self, names: Sequence[Name]) -> Steps[int]:
        """Have the time of entries begin again; return how many."""
        if not names:
            return 0
        yield from self._versions(names, lock=True)  # in the order in which everybody locks
        args = Args(self._dialect)
        end = f"{self._dialect.micros(args)} + CAST(ttl * 1000000 AS BIGINT)"
        where = f"{self._named(args, names)} AND ttl IS NOT NULL AND {self._alive(args)}"
        sql = f"UPDATE memory_entries SET expires_at = {end} WHERE {where}"
        return (yield from self._dialect.changes(sql, args))

    def entries(
        self,
        place: str,
        *,
        is_deep: bool,
        reverse: bool,
        newest: bool = False,
        after: Name | None = None,
        contains: str = "",
        limit: int,
    ) -> Steps[Rows]:
        """Return the rows at a path, and below it."""
        args = Args(self._dialect)
        where = [f"scope = {args.bind(self._scope)}", self._alive(args)]
        where += self._span(args, place, after, is_deep=is_deep, reverse=reverse)
        if contains:  # by `replace`, which both databases have, and which knows no wildcards
            text = args.bind(contains)
            where.append(f"(replace(key, {text}, '') <> key OR replace(path, {text}, '') <> path)")
        way = " DESC" if reverse else ""
        order = "updated_at DESC, path, key" if newest else f"path{way}, key{way}"
        which = " AND ".join(where)
        if newest:  # names are put in order, and only then values are read
            names = f"SELECT scope, path, key FROM memory_entries WHERE {which}"
            which = f"(scope, path, key) IN ({names} ORDER BY {order} LIMIT {limit})"
        return (
            yield Statement(
                f"SELECT {_COLUMNS} FROM memory_entries WHERE {which}"
                f" ORDER BY {order} LIMIT {limit}",
                args,
            )
        )

    def paths(self, place: str, last: str | None, limit: int) -> Steps[list[EntryPath]]:
        """Return different paths: each is looked up in the index, and its entries are not read."""
        args = Args(self._dialect)
        begin, end = path_span(place)
        inside = [f"scope = {args.bind(self._scope)}", self._alive(args)]
        inside += [f"path < {args.bind(end)}"] if place else []
        start = f"path >= {args.bind(begin)}" if last is None else f"path > {args.bind(last)}"
        # One lower bound each: of two, SQLite may begin at the lower one, and read all up to here.
        first, further = " AND ".join([*inside, start]), " AND ".join([*inside, "path > each.path"])
        head, one = "SELECT path FROM memory_entries WHERE", "ORDER BY path LIMIT 1"
        rows = yield Statement(
            f"WITH RECURSIVE each (path) AS (SELECT ({head} {first} {one}) UNION ALL"
            f" SELECT ({head} {further} {one}) FROM each"
            " WHERE each.path IS NOT NULL)"
            f" SELECT path FROM each WHERE path IS NOT NULL LIMIT {limit}",
            args,
        )
        return [split_path(path) for (path,) in rows]

    def append(self, place: str, values: Sequence[bytes], ttl: float | None) -> Steps[list[str]]:
        """Put values behind the last key of a path, which nobody else may meanwhile."""
        yield from self._dialect.reserve([self._scope + place])
        args = Args(self._dialect)
        where = f"scope = {args.bind(self._scope)} AND path = {args.bind(place)}"
        rows = yield Statement(f"SELECT max(key) FROM memory_entries WHERE {where}", args)
        last = rows[0][0] or appended_key(0)
        if not last.isdecimal() or len(last) != len(appended_key(0)):
            raise QueryError(
                f"the path {split_path(place)!r} has the key `{last}`, which `append` did not "
                "make; give a log a path of its own"
            )
        keys = [appended_key(int(last) + number) for number in range(1, len(values) + 1)]
        yield from self._put(
            [(place, key, value, ttl) for key, value in zip(keys, values, strict=True)]
        )
        return keys

    def pop(self, place: str) -> Steps[Rows]:
        """Remove the last entry of a path; return its row."""
        yield from self._dialect.reserve([self._scope + place])
        rows = yield from self.entries(place, is_deep=False, reverse=True, limit=1)
        if rows:
            args = Args(self._dialect)
            where = self._named(args, [(rows[0][0], rows[0][1])])
            yield Statement(f"DELETE FROM memory_entries WHERE {where}", args)
        return rows

    def clear(self, place: str) -> Steps[int]:
        """Remove what is at a path and below it; return how many."""
        args = Args(self._dialect)
        where = " AND ".join([f"scope = {args.bind(self._scope)}", *self._below(args, place)])
        return (yield from self._dialect.changes(f"DELETE FROM memory_entries WHERE {where}", args))

    def _span(
        self, args: Args, place: str, after: Name | None, *, is_deep: bool, reverse: bool
    ) -> list[str]:
        """Return the conditions of a page at a path, or also below it, behind *after*.

        One bound on each side: of two, SQLite may begin at the wider one, and read all up to here.
        """
        sign = "<" if reverse else ">"
        if not is_deep and after is not None and after[0] == place:
            return [f"path = {args.bind(place)}", f"key {sign} {args.bind(after[1])}"]
        if not is_deep or after is None:
            span = self._below(args, place) if is_deep else [f"path = {args.bind(place)}"]
        elif not place:
            span = []
        else:
            begin, end = path_span(place)
            span = [f"path >= {args.bind(begin)}"] if reverse or after[0] < begin else []
            span += [f"path < {args.bind(end)}"] if not reverse or after[0] >= end else []
        if after is not None:
            span.append(f"(path, key) {sign} ({args.bind(after[0])}, {args.bind(after[1])})")
        return span

    def _below(self, args: Args, place: str) -> list[str]:
        if not place:
            return []
        first, end = path_span(place)
        return [f"path >= {args.bind(first)}", f"path < {args.bind(end)}"]

    def _alive(self, args: Args) -> str:
        return f"(expires_at IS NULL OR expires_at > {self._dialect.micros(args)})"

    def _named(self, args: Args, names: Sequence[Name]) -> str:
        scope = f"scope = {args.bind(self._scope)}"
        if len(names) == 1:
            return f"{scope} AND path = {args.bind(names[0][0])} AND key = {args.bind(names[0][1])}"
        return f"{scope} AND (path, key) IN ({self._dialect.pairs(args, names)})"


def _stored_name(stored: StoredEntry) -> tuple[str, str, str]:
    return owner_of(stored.scope)[0], joined_path(stored.entry.path), stored.entry.key


def _within(dialect: Dialect, wanted: Mapping[Any, str], args: Args) -> list[str]:
    """Return the conditions that an entry is not over, and of a scope that has what is wanted."""
    where = [f"(expires_at IS NULL OR expires_at > {dialect.micros(args)})"]
    return where + [f"{dialect.value(name)} = {args.bind(each)}" for name, each in wanted.items()]


def _count(dialect: Dialect, wanted: Mapping[Any, str]) -> Steps[Rows]:
    args = Args(dialect)
    which = " AND ".join(_within(dialect, wanted, args))
    return (yield Statement(f"SELECT count(*) FROM memory_entries WHERE {which}", args))


def _dump(
    dialect: Dialect, wanted: Mapping[Any, str], after: StoredEntry | None, limit: int
) -> Steps[Rows]:
    args = Args(dialect)
    where = _within(dialect, wanted, args)
    if after is not None:
        last = ", ".join(args.bind(part) for part in _stored_name(after))
        where.append(f"(scope, path, key) > ({last})")
    return (
        yield Statement(
            f"SELECT CAST(metadata AS TEXT), ttl, {_COLUMNS} FROM memory_entries"
            f" WHERE {' AND '.join(where)} ORDER BY scope, path, key LIMIT {limit}",
            args,
        )
    )


def _load(
    dialect: Dialect, entries: Sequence[StoredEntry], *, overwrite: bool
) -> Steps[dict[tuple[str, str, str], bool]]:
    values = [dialect.parameter(number) for number in range(1, 11)]
    values[4] += dialect.to_json
    changed = ", ".join(f"{name} = excluded.{name}" for name in _LOADED[3:])
    written = {}
    for stored in entries:
        entry, (scope, path, key) = stored.entry, _stored_name(stored)
        times = map(micros_of, (entry.created_at, entry.updated_at))
        end = None if entry.expires_at is None else micros_of(entry.expires_at)
        args = Args(dialect, [scope, path, key, entry.value, owner_of(stored.scope)[1]])
        args += [entry.version, *times, stored.ttl, end]
        over = f" WHERE memory_entries.expires_at <= {dialect.micros(args)}"
        count = yield from dialect.changes(
            f"INSERT INTO memory_entries ({', '.join(_LOADED)}) VALUES ({', '.join(values)})"
            f" ON CONFLICT (scope, path, key) DO UPDATE SET {changed}{'' if overwrite else over}",
            args[: len(values)] if overwrite else args,
        )
        written[scope, path, key] = bool(count)
    return written


def _conflict(name: Name, expected: int, stored: int) -> VersionConflict:
    return VersionConflict(
        "/".join([*split_path(name[0]), name[1]]), expected=expected, found=stored
    )


def _entry(row: Sequence[Any]) -> Entry:
    path, key, value, version, created_at, updated_at, expires_at = row
    return Entry(
        split_path(path),
        key,
        bytes(value),
        version,
        instant_of(created_at),
        instant_of(updated_at),
        None if expires_at is None else instant_of(expires_at),
    )
