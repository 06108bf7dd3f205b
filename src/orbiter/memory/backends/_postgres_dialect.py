"""How Postgres spells what `_sql.py` means: whole tables, and tables partitioned by user."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar

from orbiter.memory.backends._postgres_schema import FOLDED, field
from orbiter.memory.backends._rows import READ, Row
from orbiter.memory.backends._sql import Args, Dialect, Filter, Rows, Statement, Steps

_COLUMNS = ", ".join(Row._fields)
_GIVEN = {**dict.fromkeys(Row._fields, "text"), "metadata": "jsonb", "folded": "text"}
_GIVEN |= {"created_at": "timestamptz", "updated_at": "timestamptz"}
"""What is bound for a row, and as what."""
_CHANGED = ("content", "memory_type", "status", "metadata", "extra_json", "updated_at")

BATCH = 2000
"""Rows in one statement of `add_many`."""

_UPDATE = (
    ", ".join(f"{name} = excluded.{name}" for name in _CHANGED)
    + ", deleted = 0, version = m.version + 1,"
    " seq = CASE WHEN m.deleted = 1 THEN nextval('memory_items_seq') ELSE m.seq END"
)
_UNLESS_STORED = " WHERE m.deleted = 1 OR " + " OR ".join(
    f"m.{name} IS DISTINCT FROM excluded.{name}" for name in _CHANGED
)
_ONE = ", ".join(f"${n}::{kind} AS {name}" for n, (name, kind) in enumerate(_GIVEN.items(), 1))
_MANY = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_GIVEN.values(), 1))
_GIVEN_ONE = f"SELECT {_ONE}, 1 AS n"
_GIVEN_MANY = f"SELECT * FROM unnest({_MANY}) WITH ORDINALITY AS given ({', '.join(_GIVEN)}, n)"
_USER_KEY = "coalesce(metadata->>'user_id', '')"


class PostgresDialect(Dialect):
    """Whole tables: an id is unique by the primary key."""

    place = "seq"
    now = "clock_timestamp()"
    lock = " FOR UPDATE"
    beside: ClassVar[tuple[str, ...]] = ("memory_versions", "memory_folded")

    def parameter(self, number: int) -> str:
        """Return the name of a bound value."""
        return f"${number}"

    def instant(self, value: datetime) -> object:
        """Return the time itself."""
        return value

    def scope(self, wanted: dict[Any, str], args: Args) -> list[str]:
        """Return equalities that the expression indexes serve."""
        return [f"{field(name)} = {args.bind(value)}" for name, value in wanted.items()]

    def by_id(self, args: Args, item_id: str) -> str:
        """Return the condition that picks the row of an id."""
        return f"id = {args.bind(item_id)}"

    # Text

    def contains(self, needle: str, args: Args) -> str:
        """Return a condition that looks for a folded copy only of texts beyond ASCII."""
        pattern = args.bind(_pattern(needle))
        return (
            f"({FOLDED} LIKE {pattern} OR octet_length(content) <> char_length(content) AND EXISTS"
            " (SELECT 1 FROM memory_folded AS f WHERE f.id = memory_items.id"
            f" AND f.version = memory_items.version AND f.folded LIKE {pattern}))"
        )

    def find(self, needle: str, asked: Filter, tail: str) -> Steps[Rows]:
        """Let the planner choose between the trigrams and the scope's index."""
        args = Args(self, asked.args)
        pattern = args.bind(_pattern(needle))
        where = " AND ".join([*asked.scope, *asked.rest])
        columns = ", ".join((*READ, self.place))
        # Materialized: else a plan that walks from the newest row and hopes looks cheapest.
        sql = (
            f"WITH plain AS MATERIALIZED (SELECT {columns} FROM memory_items"
            f" WHERE {where} AND {FOLDED} LIKE {pattern}),"
            f" folded AS MATERIALIZED (SELECT {columns} FROM memory_items"
            f" JOIN memory_folded USING (id, version) WHERE {where}"
            f" AND folded LIKE {pattern} AND NOT {FOLDED} LIKE {pattern})"
            f" SELECT {', '.join(READ)} FROM (SELECT * FROM plain UNION ALL SELECT * FROM folded)"
            f" AS found {tail}"
        )
        return (yield Statement(sql, args))

    # Writing

    def upsert(self, row: Row, *, again: bool = False) -> Steps[int | None]:
        """Write a row and, if it needs one, its folded copy, in one statement."""
        rows = yield Statement(self._put(_GIVEN_ONE, again=again), _values(row))
        return rows[0][1] if rows else None

    def add_many(self, rows: Sequence[Row], *, again: bool) -> Steps[None]:
        """Upsert *rows* by the thousand; those of one id one after the other."""
        for batch in _waves(rows):
            yield from self._add_batch(batch, again=again)

    def _add_batch(self, batch: Sequence[Row], *, again: bool) -> Steps[Rows]:
        columns = list(zip(*map(_values, batch), strict=True))
        return (yield Statement(self._put(_GIVEN_MANY, again=again), columns))

    def _put(self, given: str, *, again: bool) -> str:
        return (
            f"WITH given AS ({given}),"
            f" put AS (INSERT INTO memory_items AS m ({_COLUMNS})"
            f" SELECT {_COLUMNS} FROM given ORDER BY n"
            f" {self._or_update('id', again=again)}), {self._fold()}"
        )

    @staticmethod
    def _or_update(key: str, *, again: bool) -> str:
        unless = _UNLESS_STORED if again else ""
        return f"ON CONFLICT ({key}) DO UPDATE SET {_UPDATE}{unless} RETURNING m.id, m.version"

    @staticmethod
    def _fold() -> str:
        return (
            "folding AS (INSERT INTO memory_folded (id, version, folded)"
            " SELECT put.id, put.version, given.folded FROM put JOIN given USING (id)"
            " WHERE given.folded IS NOT NULL ON CONFLICT (id)"
            " DO UPDATE SET version = excluded.version, folded = excluded.folded)"
            " SELECT id, version FROM put"
        )

    def changes(self, sql: str, args: Sequence[Any]) -> Steps[int]:
        """Run a change and return how many rows it changed."""
        rows = yield Statement(
            f"WITH changed AS ({sql} RETURNING 1) SELECT count(*) FROM changed", args
        )
        return int(rows[0][0])

    def purge(self, condition: str, args: Sequence[Any]) -> Steps[int]:
        """Remove rows and all that is kept beside them, in one statement."""
        others = "".join(
            f", no_{table} AS (DELETE FROM {table} USING gone WHERE {table}.id = gone.id)"
            for table in self.beside
        )
        rows = yield Statement(
            f"WITH gone AS (DELETE FROM memory_items WHERE {condition} RETURNING id){others}"
            " SELECT count(*) FROM gone",
            args,
        )
        return int(rows[0][0])


class PartitionedDialect(PostgresDialect):
    """Tables cut by user: `memory_ids` keeps ids unique, and tells the partition of an id."""

    everything = "memory_ids JOIN memory_items USING (user_key, id)"
    beside = ("memory_versions", "memory_folded", "memory_ids")

    def scope(self, wanted: dict[Any, str], args: Args) -> list[str]:
        """Name the partition too, so that no other is looked into."""
        conditions = super().scope(wanted, args)
        if "user_id" in wanted:
            conditions.append(f"user_key = {args.bind(wanted['user_id'])}")
        return conditions

    def by_id(self, args: Args, item_id: str) -> str:
        """Ask for the partition first."""
        there = args.bind(item_id)
        return f"user_key = (SELECT user_key FROM memory_ids WHERE id = {there}) AND id = {there}"

    def _put(self, given: str, *, again: bool) -> str:
        # Whoever has an id keeps it locked until the row is written. An id of another user's is
        # left out here: the row has to move.
        return (
            f"WITH given AS (SELECT *, {_USER_KEY} AS user_key FROM ({given}) AS given),"
            " own AS (INSERT INTO memory_ids AS i (id, user_key) SELECT id, user_key FROM given"
            " ORDER BY n ON CONFLICT (id) DO UPDATE SET user_key = i.user_key"
            " WHERE i.user_key = excluded.user_key RETURNING i.id),"
            f" put AS (INSERT INTO memory_items AS m ({_COLUMNS}, user_key)"
            f" SELECT {_COLUMNS}, user_key FROM given JOIN own USING (id) ORDER BY n"
            f" {self._or_update('user_key, id', again=again)}), {self._fold()}"
        )

    def upsert(self, row: Row, *, again: bool = False) -> Steps[int | None]:
        """Write a row; if its id is another user's, move it here."""
        version = yield from super().upsert(row, again=again)
        return version if version is not None else (yield from self._move(row))

    def _add_batch(self, batch: Sequence[Row], *, again: bool) -> Steps[Rows]:
        put = yield from super()._add_batch(batch, again=again)
        if len(put) < len(batch):
            there = {item_id for item_id, _ in put}
            for row in batch:
                if row.id not in there:
                    yield from self._move(row)
        return put

    def _move(self, row: Row) -> Steps[int | None]:
        values = _values(row)
        owner = yield Statement(
            f"SELECT user_key, {_USER_KEY} FROM memory_ids, (SELECT $2::jsonb AS metadata) AS given"
            " WHERE id = $1 FOR UPDATE OF memory_ids",
            [row.id, row.metadata],
        )
        old, new = owner[0]
        if old == new:  # written already, by an attempt whose answer was lost
            return None
        yield Statement("UPDATE memory_ids SET user_key = $2 WHERE id = $1", [row.id, new])
        changed = ", ".join(f"{name} = given.{name}" for name in _CHANGED)
        rows = yield Statement(
            f"WITH given AS ({_GIVEN_ONE}), put AS (UPDATE memory_items AS m"
            f" SET {changed}, user_key = $10, deleted = 0, version = m.version + 1,"
            " seq = CASE WHEN m.deleted = 1 THEN nextval('memory_items_seq') ELSE m.seq END"
            " FROM given WHERE m.user_key = $11 AND m.id = given.id RETURNING m.id, m.version),"
            f" {self._fold()}",
            [*values, new, old],
        )
        return rows[0][1] if rows else None


def _values(row: Row) -> Sequence[Any]:
    return (*row, folded(row.content))


def folded(content: str) -> str | None:
    """Return the case-folded text, unless ASCII's lower case is the same."""
    if content.isascii():
        return None
    text = content.casefold()
    # Bytes know no letters beyond ASCII.
    return None if text.encode() == content.encode().lower() else text


def _pattern(needle: str) -> str:
    escaped = needle.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def _waves(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Cut *rows* into batches in which no id comes twice, each id's rows in their order."""
    for start in range(0, len(rows), BATCH):
        pending = rows[start : start + BATCH]
        while pending:
            wave: dict[str, Row] = {}
            rest = [row for row in pending if wave.setdefault(row.id, row) is not row]
            yield list(wave.values())
            pending = rest
