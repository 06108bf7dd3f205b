"""`SQLGroupCounts`: which conversations, users and values a SQL store has, counted by the database.

Each is one statement. Users are found by stepping through an index from one name to the next, and
counted only if they are on the page that is asked for.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orbiter.memory.backends.sql.audit import SQLAudit
from orbiter.memory.backends.sql.dialect import Args, Dialect, Rows, Statement, Steps
from orbiter.memory.backends.sql.history import conversation, moment
from orbiter.memory.backends.sql.operations import MAX_LIMIT, Operations
from orbiter.memory.model.derived import EXTRACTION
from orbiter.memory.model.filters import MISSING, Place, Where, prefix_end
from orbiter.memory.model.items import SPOKEN, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Query, check_size

if TYPE_CHECKING:
    from orbiter.memory.model.reports import ConversationInfo
    from orbiter.memory.model.value_counts import UserInfo, UserQuery, ValueCount

__all__ = ["SQLGroupCounts"]


class SQLGroupCounts(SQLAudit):
    """What a store tells about many items at once."""

    async def conversations(
        self, *, metadata: MemoryMetadata | None = None, limit: int = 50
    ) -> "list[ConversationInfo]":
        """Return at most *limit* conversations that match *metadata*, most recent first.

        Messages of people, models, tools and the system that name the same user, session, task
        and agent are one; what names neither a session nor a task is none.
        """
        wanted, dialect = Query(metadata=metadata, limit=limit).wanted, self._operations.dialect
        rows = await self._read(lambda: _conversations(dialect, wanted, limit), alone=True)
        await self._log_count("conversations", len(rows), metadata)
        return [conversation(row) for row in rows]

    async def users(self, query: "UserQuery") -> "list[UserInfo]":
        """Return the users who have memories or entries, as asked for.

        Pending extractions and what was deleted or has expired are not counted.
        """
        from orbiter.memory.model.value_counts import UserInfo  # noqa: PLC0415 - few ask for them

        if not query.limit:
            await self._read(lambda: self._operations.get(""), alone=True)  # a closed store says so
            return []
        rows = await self._read(lambda: _users(self._operations.dialect, query), alone=True)
        await self._log_count("users", len(rows), None)
        return [
            UserInfo(str(name), items, chats, moment(first), moment(last), entries)
            for name, items, chats, first, last, entries in rows
        ]

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
    ) -> "list[ValueCount]":
        """Return the most frequent values of *field* among items that match, with their counts.

        *field* is named as in *where*: a field of the item, or a key of `metadata.extra`. A list
        counts by its elements, each once; what is null, missing or nested deeper is no value.
        """
        from orbiter.memory.model.value_counts import (  # noqa: PLC0415 - as above
            counted_place,
            most_frequent,
        )

        query = Query("", metadata, memory_type, since=since, until=until, where=where)
        place = counted_place(field)
        check_size("limit", limit)
        rows = await self._read(lambda: _values(self._operations, place, query))
        await self._log_count("count_by", sum(row[1] for row in rows), metadata)
        return most_frequent(_decoded(place, rows), limit)

    async def _log_count(self, call: str, count: int, scope: MemoryMetadata | None) -> None:
        if self._audit is not None and self._logs_reads:
            await self.log_read(call, [], scope=scope, count=count)


def _conversations(dialect: Dialect, wanted: dict[Any, str], limit: int) -> Steps[Rows]:
    """Return the scope fields, count, first and last time of conversations, newest first."""
    args = Args(dialect)
    unset = {name: dialect.unset(name) for name in SCOPE_FIELDS}
    where = [
        "deleted = 0",
        *dialect.scope(wanted, args),
        f"memory_type IN ({', '.join(map(args.bind, SPOKEN))})",
        f"NOT ({unset['session_id']} AND {unset['task_id']})",
        dialect.none_expired(),
    ]
    fields = ", ".join(map(dialect.value, SCOPE_FIELDS))
    return (
        yield Statement(
            f"SELECT {fields}, count(*), min(created_at), max(created_at) FROM memory_items"
            f" WHERE {' AND '.join(where)} GROUP BY 1, 2, 3, 4"
            f" ORDER BY max(created_at) DESC, max({dialect.place}) DESC"
            f" LIMIT {min(limit, MAX_LIMIT)}",
            args,
        )
    )


def _users(dialect: Dialect, query: "UserQuery") -> Steps[Rows]:
    """Return name, items, sessions, first and last time, and entries of users, as asked for."""
    args = Args(dialect)
    user, session = dialect.value("user_id"), dialect.value("session_id")
    name = f"name{dialect.by_code_point}"
    bounds = list(_bounds(query, name, args))
    # Where an index is ordered by code point, the walk begins and ends with what is asked for.
    within = "" if dialect.by_code_point else "".join(_bounds(query, user, args, " AND "))
    theirs = f"deleted = 0 AND {user} = name"
    # Beside what is over, nothing is read but the index and the rows at its ends.
    seen = (
        f"SELECT created_at FROM memory_items WHERE {theirs}"
        f" AND memory_type <> '{EXTRACTION}' AND {dialect.not_expired()} ORDER BY created_at"
    )
    jobs = dialect.counting(f"{theirs} AND memory_type = '{EXTRACTION}'")
    items = f"(({dialect.counting(theirs)}) - ({jobs}))"
    chats = (
        f"(SELECT count(DISTINCT {session}) FROM memory_items"
        f" WHERE {theirs} AND {session} IS NOT NULL AND {dialect.none_expired()})"
    )
    alive = f"(expires_at IS NULL OR expires_at > {dialect.micros(args)})"
    put = f"FROM memory_entries WHERE {user} = name AND {alive}"
    first, last = (
        f"(SELECT {end}(at) FROM (SELECT ({seen} {way} LIMIT 1) AS at"
        f" UNION ALL SELECT {dialect.from_micros.format(f'{end}({column})')} {put}) AS times)"
        for end, way, column in (("min", "ASC", "created_at"), ("max", "DESC", "updated_at"))
    )
    early = items if query.order == "items" else "0"
    order = {"name": name, "recent": f"last_at DESC, {name}", "items": f"early DESC, {name}"}
    size = min(query.limit, MAX_LIMIT)
    conditions = ["last_at IS NOT NULL", *_behind(query, name, args)]
    return (
        yield Statement(
            f"WITH RECURSIVE {_walk('item_names', 'memory_items', user, f'deleted = 0{within}')},"
            f" {_walk('entry_names', 'memory_entries', user, f'TRUE{within}')},"
            " names AS (SELECT name FROM item_names UNION SELECT name FROM entry_names),"
            f" seen AS (SELECT name, {last} AS last_at, {early} AS early FROM names"
            f" WHERE {' AND '.join(['name IS NOT NULL', *bounds])}),"
            f" page AS (SELECT * FROM seen WHERE {' AND '.join(conditions)}"
            f" ORDER BY {order[query.order]} LIMIT {size})"
            f" SELECT name, {items}, {chats}, {first}, last_at, (SELECT count(*) {put}) FROM page"
            f" ORDER BY {order[query.order]}",
            args,
        )
    )


def _walk(names: str, table: str, user: str, where: str) -> str:
    """Return how *names* are read: from one to the next by the index, and NULL at last."""
    read = f"SELECT min({user}) FROM {table} WHERE {where} AND {user} IS NOT NULL"
    return (
        f"{names} (name) AS ({read} UNION ALL SELECT ({read} AND {user} > {names}.name)"
        f" FROM {names} WHERE {names}.name IS NOT NULL)"
    )


def _bounds(query: "UserQuery", name: str, args: Args, start: str = "") -> Iterator[str]:
    """Yield what must hold of names, each after *start*."""
    if query.starts_with:
        yield f"{start}{name} >= {args.bind(query.starts_with)}"
        if (end := prefix_end(query.starts_with)) is not None:
            yield f"{start}{name} < {args.bind(end)}"
    if query.after is not None and query.order == "name":
        yield f"{start}{name} > {args.bind(query.after.user_id)}"


def _behind(query: "UserQuery", name: str, args: Args) -> Iterator[str]:
    """Yield what must hold of a user who comes after the last of the page before."""
    if query.after is None or query.order == "name":
        return
    is_recent, dialect = query.order == "recent", args.dialect
    column = "last_at" if is_recent else "early"
    last = args.bind(dialect.instant(query.after.last_at) if is_recent else query.after.items)
    same = args.bind(query.after.user_id)
    yield f"({column} < {last} OR ({column} = {last} AND {name} > {same}))"


def _values(operations: Operations, place: Place, query: Query) -> Steps[Rows]:
    """Return what items have at a place, as the dialect reads it, with how many have it."""
    compiled = yield from operations.compile(query)
    dialect, args = operations.dialect, compiled.args
    read = dialect.extra_value(place.name, args) if place.is_extra else _column(dialect, place.name)
    conditions = [*compiled.scope, *compiled.rest]
    return (
        yield Statement(
            f"SELECT {read}, count(*) FROM memory_items WHERE {' AND '.join(conditions)}"
            " GROUP BY 1",
            args,
        )
    )


def _column(dialect: Dialect, name: str) -> str:
    return dialect.value(name) if name in SCOPE_FIELDS else name


def _decoded(place: Place, rows: Rows) -> Iterator[tuple[object, int]]:
    for text, items in rows:
        value = text
        if place.is_extra and text is not None:
            loaded = json.loads(text)
            if isinstance(loaded, dict):
                extra = loaded.get("extra")
                value = extra.get(place.name, MISSING) if isinstance(extra, dict) else MISSING
            else:
                value = loaded[0]
        yield value, items
