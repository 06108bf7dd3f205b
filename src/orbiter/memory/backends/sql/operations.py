"""Operations of a SQL store as generators: filters, order, upserts, versions, paging.

Every operation is a generator that yields statements and is sent their rows. It does no I/O, so
SQLite runs it inside one function on a connection's thread and Postgres over an async driver.
A `Dialect` spells the few things the two databases say differently.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from orbiter.memory.backends.sql.dialect import Args, Dialect, Filter, Rows, Statement, Steps
from orbiter.memory.backends.sql.rows import Row, decode
from orbiter.memory.errors import AccessError, EmptyFilterError, QueryError, VersionConflict
from orbiter.memory.model.agent_store import AsyncContextStore
from orbiter.memory.model.derived import EXTRACTION
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Cursor, Order, Query, ScopeField

__all__ = [
    "INDEXED",
    "MAX_LIMIT",
    "PROBE",
    "Operations",
    "Place",
    "SQLDatabase",
    "beyond",
    "fields_without_value",
    "place_of",
]

_T = TypeVar("_T")

PROBE = 512
"""How many of the newest rows a text search reads before it asks an index: a common word is
found among them at once, and whoever has few memories is answered from these alone."""

MAX_LIMIT = 2**62

INDEXED = ("fact", "system")
"""Kinds of items that have an index of their own: spelled out, so that a planner sees it."""


class Operations:
    """What a store can be asked, as steps in one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = self._dialect = dialect
        self._columns = dialect.columns

    # Writing

    def add(
        self,
        row: Row,
        expected_version: int | None,
        by: str | None,
        wanted: Mapping[Any, str] | None = None,
    ) -> Steps[None]:
        """Upsert a row, if it is still the expected version, and over what is as *wanted* only."""
        yield from self._dialect.lock_conversations([row])
        if wanted:
            yield from self._check_owner([row.id], wanted)
        if expected_version is not None:
            yield from self._add_expected(row, expected_version)
        else:
            yield from self._dialect.upsert(row)
        if by is not None:
            yield from self._sign(by, [row.id])

    def _add_expected(self, row: Row, expected: int) -> Steps[None]:
        dialect, args = self._dialect, Args(self._dialect)
        where = yield from dialect.by_id_to_write(args, row.id)
        rows = yield Statement(
            f"SELECT CASE WHEN {dialect.not_expired()} THEN version ELSE 0 END, deleted"
            f" FROM memory_items WHERE {where}{dialect.for_update}",
            args,
        )
        version, deleted = rows[0] if rows else (0, 0)
        current = 0 if deleted else version
        if current != expected:
            raise VersionConflict(row.id, expected=expected, found=current)
        made = yield from dialect.upsert(row)
        if made not in (None, version + 1):  # added by another while there was none to lock
            raise VersionConflict(row.id, expected=expected, found=made - 1)

    def add_many(
        self, rows: Sequence[Row], by: str | None, wanted: Mapping[Any, str] | None = None
    ) -> Steps[None]:
        """Upsert rows in order, all or none, and over what is as *wanted* only."""
        yield from self._dialect.lock_conversations(rows)
        if wanted:
            yield from self._check_owner([row.id for row in rows], wanted)
        yield from self._dialect.add_many(rows)
        if by is not None:
            yield from self._sign(by, [row.id for row in rows])

    def insert(self, rows: Sequence[Row], by: str | None) -> Steps[bool]:
        """Write rows, all or none, if none of their ids is used; tell whether they are written."""
        dialect, ids = self._dialect, [row.id for row in rows]
        yield from dialect.lock_conversations(rows)
        yield from dialect.reserve(ids)
        args = Args(dialect)
        where = dialect.by_ids(args, ids)
        lives = f"CASE WHEN {dialect.not_expired()} THEN 1 ELSE 0 END"
        there = yield Statement(f"SELECT {lives} FROM memory_items WHERE {where}", args)
        if any(row[0] for row in there):
            return False
        if there:
            args = Args(dialect)
            over = f"{dialect.by_ids(args, ids)} AND NOT {dialect.not_expired()}"
            yield from dialect.purge(over, args)
        yield from dialect.add_many(rows)
        # Who does not claim an id may have written it meanwhile.
        args = Args(dialect)
        where = f"{dialect.by_ids(args, ids)} AND version > 1"
        met = yield Statement(f"SELECT id, version FROM memory_items WHERE {where}", args)
        if met:
            raise VersionConflict(met[0][0], expected=0, found=met[0][1] - 1)
        if by is not None:
            yield from self._sign(by, ids)
        return True

    def used(self, item_ids: Sequence[str]) -> Steps[set[str]]:
        """Return the ids of items that are there or deleted, and not over."""
        args = Args(self._dialect)
        where = f"{self._dialect.by_ids(args, item_ids)} AND {self._dialect.not_expired()}"
        rows = yield Statement(f"SELECT id FROM memory_items WHERE {where}", args)
        return {row[0] for row in rows}

    def _check_owner(self, item_ids: Sequence[str], wanted: Mapping[Any, str]) -> Steps[None]:
        """Refuse ids of items, deleted ones included, whose scope fields are not as wanted."""
        yield from self._dialect.reserve(item_ids)
        args = Args(self._dialect)
        where = f"{self._dialect.by_ids(args, item_ids)} AND {self._dialect.not_expired()}"
        rows = yield self._select(where, args)
        for row in rows:
            metadata = decode(row).metadata
            if any(getattr(metadata, name) != value for name, value in wanted.items()):
                raise AccessError(f"the id `{row[0]}` is taken; leave it out to get a new one")

    def clear(self, metadata: MemoryMetadata | None, by: str | None) -> Steps[int]:
        """Soft-delete what matches; return how many."""
        args = Args(self._dialect)
        where = self._matching(metadata, 0, args)
        return (yield from self._mark(1, where, args, by))

    def delete(
        self, item_id: str, by: str | None, expected_version: int | None = None
    ) -> Steps[bool]:
        """Soft-delete one item, if it is still the expected version; tell whether it was there."""
        args = Args(self._dialect)
        where = yield from self._dialect.by_id_to_write(args, item_id)
        where += f" AND deleted = 0 AND {self._dialect.not_expired()}"
        if expected_version is not None:
            where += f" AND version = {args.bind(expected_version)}"
        if (yield from self._mark(1, where, args, by)):
            return True
        if expected_version is None:
            return False
        there = yield from self.get(item_id)
        version = decode(there[0]).version if there else 0
        raise VersionConflict(item_id, expected=expected_version, found=version)

    def delete_many(self, item_ids: Sequence[str], by: str | None) -> Steps[int]:
        """Soft-delete items; return how many were there."""
        yield from self._dialect.lock_rows(item_ids)
        args = Args(self._dialect)
        where = f"deleted = 0 AND {self._dialect.by_ids(args, item_ids)}"
        where += f" AND {self._dialect.not_expired()}"
        return (yield from self._mark(1, where, args, by))

    def restore(self, item_id: str, by: str | None) -> Steps[bool]:
        """Bring a soft-deleted item back; tell whether there was one."""
        args = Args(self._dialect)
        where = yield from self._dialect.by_id_to_write(args, item_id)
        where += f" AND deleted = 1 AND {self._dialect.not_expired()}"
        return bool((yield from self._mark(0, where, args, by)))

    def purge(self, metadata: MemoryMetadata | None, deleted_before: datetime | None) -> Steps[int]:
        """Remove soft-deleted rows for good; return how many."""
        args = Args(self._dialect)
        where = self._deleted_before(metadata, deleted_before, args)
        return (yield from self._dialect.purge(where, args))

    def count_removable(
        self, expired: str, deleted_before: datetime | None
    ) -> Steps[tuple[int, int]]:
        """Count the rows of the query *expired*, and what `purge` would remove."""
        rows = yield Statement(f"SELECT count(*) FROM ({expired}) AS o")
        if deleted_before is None:
            return rows[0][0], 0
        args = Args(self._dialect)
        where = self._deleted_before(None, deleted_before, args)
        deleted = yield Statement(f"SELECT count(*) FROM memory_items WHERE {where}", args)
        return rows[0][0], deleted[0][0]

    def _deleted_before(
        self, metadata: MemoryMetadata | None, deleted_before: datetime | None, args: Args
    ) -> str:
        where = self._matching(metadata, 1, args)
        if deleted_before is not None:
            moment = args.bind(self._dialect.instant(deleted_before))
            # What was brought here without its past was deleted when it was changed last.
            where += (
                " AND coalesce((SELECT max(v.ended_at) FROM memory_versions AS v"
                f" WHERE v.id = memory_items.id), updated_at) < {moment}"
            )
        return where

    def _matching(self, metadata: MemoryMetadata | None, deleted: int, args: Args) -> str:
        wanted = Query(metadata=metadata).wanted
        if metadata is not None and not wanted:
            raise EmptyFilterError()
        where = [f"deleted = {deleted}", *self._dialect.scope(wanted, args)]
        return " AND ".join([*where, self._dialect.none_expired()])

    def _mark(self, deleted: int, where: str, args: Args, by: str | None) -> Steps[int]:
        if by is None:
            return (yield from self._dialect.changes(self._marking(deleted, where), args))
        # Who did it is written beside each row, so the rows must be known.
        ids = yield Statement(f"{self._marking(deleted, where)} RETURNING id", args)
        if ids:
            yield from self._sign(by, [row[0] for row in ids])
        return len(ids)

    @staticmethod
    def _marking(deleted: int, where: str) -> str:
        return f"UPDATE memory_items SET deleted = {deleted}, version = version + 1 WHERE {where}"

    def _sign(self, by: str, ids: Sequence[str]) -> Steps[None]:
        """Write who made the newest version of *ids*."""
        signed, where = [], ""
        for item_id in ids:
            args = Args(self._dialect, [by])
            where = self._dialect.by_id(args, item_id)
            signed.append(tuple(args))
        yield Statement(
            "INSERT INTO memory_versions (id, version, ended_at, ended_by)"
            f" SELECT id, version - 1, {self._dialect.now}, {self._dialect.parameter(1)}"
            f" FROM memory_items WHERE {where}"
            " ON CONFLICT (id, version) DO UPDATE SET ended_by = excluded.ended_by",
            signed,
            many=True,
        )

    # Reading

    def get(self, item_id: str) -> Steps[Rows]:
        """Return the row of an item that is not deleted."""
        return (yield from self._dialect.get(item_id))

    def count(self, wanted: dict[Any, str], *, include_deleted: bool) -> Steps[int]:
        """Return how many items there are whose scope fields are as wanted."""
        args = Args(self._dialect)
        parts = [self._counting(wanted, args)]
        if include_deleted:
            parts.append(self._counting(wanted, args, "deleted = 1"))
        rows = yield Statement(f"SELECT {' + '.join(parts)}", args)
        return int(rows[0][0])

    def counts(self, wanted: dict[Any, str], *, with_jobs: bool) -> Steps[tuple[int, int]]:
        """Return how many items there are, and how many deleted ones, of one instant.

        One statement sees one snapshot: numbers from two of them may not be subtracted.
        """
        args = Args(self._dialect)
        counts = [self._counting(wanted, args), self._counting(wanted, args, "deleted = 1")]
        if not with_jobs:  # spelled out, so that a planner sees their index
            jobs = (f"deleted = {each} AND memory_type = '{EXTRACTION}'" for each in (0, 1))
            counts = [
                f"{every} - {self._counting(wanted, args, which)}"
                for every, which in zip(counts, jobs, strict=True)
            ]
        rows = yield Statement(f"SELECT {', '.join(counts)}", args)
        return int(rows[0][0]), int(rows[0][1])

    def _counting(self, wanted: dict[Any, str], args: Args, which: str = "deleted = 0") -> str:
        """Return the expression that counts *which* rows of a scope."""
        dialect = self._dialect
        kept = dialect.counting_owner(wanted, args) if which == "deleted = 0" else None
        return f"({kept or dialect.counting(' AND '.join([which, *dialect.scope(wanted, args)]))})"

    def history(self, item_id: str) -> Steps[tuple[Rows, Rows]]:
        """Return the earlier versions of an item, oldest first, and its present row."""
        columns, dialect = f"{self._columns}, deleted", self._dialect
        now = yield from dialect.one(
            item_id,
            lambda it: f"SELECT {columns} FROM memory_items WHERE {it} AND {dialect.not_expired()}",
        )
        if not now:
            return [], []
        past = yield Statement(
            f"SELECT {columns}, ended_at, ended_by FROM memory_versions"
            f" WHERE id = {self._dialect.parameter(1)} ORDER BY version",
            [item_id],
        )
        return past, now

    def every(self, start: str, count: int) -> Steps[Rows]:
        """Return the next *count* rows by id, deleted ones included."""
        return (
            yield Statement(
                f"SELECT {self._columns} FROM {self._dialect.everything}"
                f" WHERE id > {self._dialect.parameter(1)} ORDER BY id LIMIT {count}",
                [start],
            )
        )

    def search(
        self,
        query: Query,
        before: Cursor | None,
        after: Cursor | None,
        *,
        deleted: bool = False,
        order_by: Order = "time",
    ) -> Steps[Rows]:
        """Return the rows that match, the last in the order first.

        They are those that are not deleted or, with *deleted*, those that are.
        """
        if not query.limit:
            return []
        # After a cursor, the page that follows it: walking on leaves no gap.
        order = self._dialect.order(order_by, query, "DESC" if after is None else "ASC")
        tail = f"{order} LIMIT {min(query.limit, MAX_LIMIT)}"
        compiled = yield from self.compile(query, before, after, deleted=deleted, order=order_by)
        if query.needle and not deleted:
            rows = yield from self._search_text(query, compiled, order, tail)
        else:
            conditions = [*compiled.scope, *compiled.rest]
            if query.needle:  # what is deleted is seldom much, and its text is read
                conditions.append(self._dialect.contains(query.needle, compiled.args))
            rows = yield self._select(" AND ".join(conditions), compiled.args, tail)
        return rows if after is None else rows[::-1]

    def _search_text(self, query: Query, compiled: Filter, order: str, tail: str) -> Steps[Rows]:
        args, place = Args(self._dialect, compiled.args), self._dialect.place
        window = (
            f"SELECT {self._columns}, {place} AS {place} FROM memory_items"
            f" WHERE {' AND '.join(compiled.scope)} {order} LIMIT {PROBE}"
        )
        conditions = [*compiled.rest, self._dialect.contains(query.needle, args)]
        rows = yield Statement(
            f"SELECT {self._columns} FROM ({window}) AS memory_items"
            f" WHERE {' AND '.join(conditions)} {tail}",
            args,
        )
        if len(rows) >= query.limit:
            return rows
        return (yield from self._dialect.find(query.needle, compiled, tail, rows))

    def compile(
        self,
        query: Query,
        before: Cursor | None = None,
        after: Cursor | None = None,
        *,
        deleted: bool = False,
        order: Order = "time",
    ) -> Steps[Filter]:
        """Return the conditions of all that is asked, its text aside."""
        dialect, args = self._dialect, Args(self._dialect)
        scope = [f"deleted = {int(deleted)}", *dialect.scope(query.wanted, args)]
        if order == "insertion":  # said here once more, where an index is looked for
            scope += map(dialect.unset, fields_without_value(query))
        if query.since is not None:
            scope.append(f"created_at >= {args.bind(dialect.instant(query.since))}")
        if query.until is not None:
            scope.append(f"created_at < {args.bind(dialect.instant(query.until))}")
        for name, cursor, sign in (("before", before, "<"), ("after", after, ">")):
            if cursor is None:
                continue
            if order == "insertion":
                row = yield from place_of(dialect, name, Cursor(cursor.item_id), {})
                scope.append(f"{dialect.place} {sign} {args.bind(row.number)}")  # type: ignore[union-attr]  # an id alone is there
                continue
            there = yield from place_of(dialect, name, cursor, query.wanted)
            scope.append(beyond(dialect, sign, there, args))
        scope.append(dialect.none_expired())
        rest, scope_args = [], tuple(args)
        if query.memory_type in INDEXED:
            rest.append(f"memory_type = '{query.memory_type}'")
        elif query.memory_type is not None:
            rest.append(f"memory_type = {args.bind(query.memory_type)}")
        if query.status is not None:
            rest.append(f"status = {args.bind(query.status.value)}")
        if query.condition is not None:
            rest.append(dialect.fits(query.condition, args))
        return Filter(scope, rest, args, scope_args)

    def _select(self, where: str, args: Args, tail: str = "") -> Statement:
        return Statement(f"SELECT {self._columns} FROM memory_items WHERE {where} {tail}", args)


class Place(NamedTuple):
    """Where a row stands among all, as the database spells it."""

    created_at: Any
    number: Any
    """Its place among rows of that instant."""


def place_of(
    dialect: Dialect, name: str, cursor: Cursor, wanted: Mapping[Any, str]
) -> Steps[Place | Cursor]:
    """Return the place of the row that a cursor names; of one that is gone, the cursor itself.

    A cursor that is an id alone must name an item that is there. One that tells its instant comes
    from a page, so it is looked for only in the scope that is *wanted*.
    """
    args = Args(dialect)
    if cursor.created_at is None:
        conditions = [dialect.by_id(args, cursor.item_id), dialect.not_expired()]
    else:
        ids = [each for each in (cursor.item_id, cursor.neighbour) if each is not None]
        conditions = [dialect.by_ids(args, ids), *dialect.scope(dict(wanted), args)]
        conditions.append(f"created_at = {args.bind(dialect.instant(cursor.created_at))}")
    rows = yield Statement(
        f"SELECT created_at, {dialect.place}, id FROM memory_items"
        f" WHERE {' AND '.join(conditions)}",
        args,
    )
    if rows:
        own = [row for row in rows if row[2] == cursor.item_id]
        return Place(*(own or rows)[0][:2])
    if cursor.created_at is None:
        raise QueryError(
            f"`{name}` names `{cursor.item_id}`, which is not stored; start again without it"
        )
    return cursor


def beyond(dialect: Dialect, sign: str, there: Place | Cursor, args: Args) -> str:
    """Return the condition that a row is older (`<`) or newer (`>`) than a place."""
    if isinstance(there, Place):
        moment, number = args.bind(there.created_at), args.bind(there.number)
        return f"(created_at, {dialect.place}) {sign} ({moment}, {number})"
    moment = args.bind(dialect.instant(there.created_at))  # type: ignore[arg-type]  # it tells one
    if there.takes_whole_instant and sign == "<":
        return f"created_at <= {moment}"
    return f"(created_at, id) {sign} ({moment}, {args.bind(there.item_id)})"


def fields_without_value(query: Query) -> list[ScopeField]:
    """Return the scope fields of which `where` says by itself that they have no value."""
    where = query.where or {}
    return [name for name in SCOPE_FIELDS if name in where and where[name] is None]


class SQLDatabase(AsyncContextStore):
    """What a driver does; each part of a store stands on this and on nothing else."""

    _operations: Operations

    @abstractmethod
    async def _open(self) -> None:
        """Open the store and bring its tables up to date, whatever model its vectors are of."""

    @abstractmethod
    async def _read(self, steps: Callable[[], Steps[_T]], *, alone: bool = False) -> _T:
        """Run steps that change nothing; *alone* says that they are one statement."""

    @abstractmethod
    async def _write(self, steps: Callable[[], Steps[_T]]) -> _T:
        """Run steps as one transaction; return after it is durable."""

    async def _together(self, steps: Callable[[], Steps[_T]]) -> _T:
        """Run steps that may lock and change nothing, as of one moment."""
        return await self._read(steps)

    @property
    def _sees_all(self) -> bool:
        """Whether no row is hidden from this store."""
        return True

    @property
    def _is_bound(self) -> bool:
        """Whether this store acts for one user."""
        return False
