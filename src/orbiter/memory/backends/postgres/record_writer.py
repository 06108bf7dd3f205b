"""`RecordWriter` of Postgres: by the thousand, past the trigger that notes arrivals."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from orbiter.memory.backends.postgres.derived_tables import LOCKED, OWNER, columns
from orbiter.memory.backends.postgres.schema import DIGEST
from orbiter.memory.backends.postgres.upsert import folded
from orbiter.memory.backends.sql.dialect import Args, Dialect, RecordWriter, Statement, Steps
from orbiter.memory.backends.sql.rows import READ, Row, iso
from orbiter.memory.backends.sql.stored_records import Kept, KeptVersion, Note, moment
from orbiter.memory.errors import AccessError

__all__ = ["BATCH", "MAX_TEXT", "MOVING", "PartitionedRecordWriter", "PostgresRecordWriter"]

_Row = TypeVar("_Row", bound=tuple[Any, ...])

BATCH = 2000
"""Rows in one statement."""

MAX_TEXT = 4 * 2**20
"""Characters in one statement."""

MOVING = "SELECT set_config('orbiter.moving', 'on', true)"
"""Has what is written in this transaction counted as written when it says."""

_KINDS = {
    **dict.fromkeys(Row._fields, "text"),
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
    "deleted": "integer",
    "version": "integer",
    "place": "bigint",
}
_BOUND_ROWS = (
    "SELECT * FROM unnest("
    + ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_KINDS.values(), 1))
    + f") WITH ORDINALITY AS given ({', '.join(_KINDS)}, n)"
)
_COLUMNS = ", ".join((*Row._fields, "deleted", "version"))
_NUMBERED = (
    "numbered AS MATERIALIZED (SELECT *, coalesce(place, nextval('memory_items_seq')) AS seq"
    " FROM (SELECT * FROM given ORDER BY n) AS ordered)"
)
# By itself: a policy looks for the row, which a statement that writes both does not see.
_FOLD = (
    f"INSERT INTO memory_folded (id, digest, folded) SELECT id, {DIGEST}, folded"
    " FROM unnest($1::text[], $2::text[], $3::text[]) AS given (id, content, folded)"
    " ON CONFLICT (id) DO UPDATE SET digest = excluded.digest, folded = excluded.folded"
)
_NUMBERS = (
    "SELECT number FROM (SELECT nextval('memory_items_seq') AS number"
    " FROM generate_series(1, $1)) AS numbers ORDER BY 1"
)
_VALUES = _COLUMNS.replace("metadata", "metadata::jsonb")
_VERSION_KINDS = {
    "id": "text",
    "version": "integer",
    "content": "text",
    "memory_type": "text",
    "status": "text",
    "metadata": "text",
    "extra_json": "text",
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
    "deleted": "integer",
    "ended_at": "timestamptz",
    "ended_by": "text",
}
_INSERT_VERSIONS = (
    f"INSERT INTO memory_versions ({', '.join(_VERSION_KINDS)}) SELECT "
    + ", ".join(_VERSION_KINDS).replace("metadata", "metadata::jsonb")
    + " FROM unnest("
    + ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_VERSION_KINDS.values(), 1))
    + f") AS given ({', '.join(_VERSION_KINDS)})"
)
# The owner is what row-level security asks for.
_INSERT_NOTES = (
    "INSERT INTO memory_versions (id, version, metadata, ended_at, ended_by)"
    " SELECT id, 0, jsonb_strip_nulls(jsonb_build_object('user_id', metadata::jsonb->>'user_id')),"
    " came, came_by FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[])"
    " AS given (id, metadata, came, came_by)"
)


_FIRST = iso(datetime.min.replace(tzinfo=UTC))
_LAST = iso(datetime.max.replace(tzinfo=UTC))


def _spelled(column: str) -> str:
    spelling = '\'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"\''
    # `to_char` has no word for infinity, which the driver takes the first and last instant for.
    return (
        f"CASE WHEN {column} IS NOT NULL THEN"
        f" coalesce(to_char({column} AT TIME ZONE 'UTC', {spelling}),"
        f" CASE WHEN {column} = 'infinity' THEN '{_LAST}' ELSE '{_FIRST}' END) END"
    )


class PostgresRecordWriter(RecordWriter):
    """Whole tables."""

    # One by one: else every page reads all versions, to join them at once.
    arrivals = (
        f"LEFT JOIN LATERAL (SELECT {_spelled('ended_at')} AS came, ended_by AS came_by"
        " FROM memory_versions WHERE id = i.id AND version = 0 LIMIT 1) AS b ON true"
    )

    _insert = (
        f"WITH given AS ({_BOUND_ROWS}), {_NUMBERED}, put AS (INSERT INTO memory_items"
        f" AS m ({_COLUMNS}, seq) SELECT {_VALUES}, seq FROM numbered ORDER BY id"
        " ON CONFLICT (id) DO UPDATE SET version = m.version WHERE false RETURNING m.id)"
        " SELECT id FROM put"
    )

    def columns(self, dialect: Dialect) -> str:
        """Return the columns with times as text."""
        times = ", ".join(f"{self.instant(name)} AS {name}" for name in READ[6:8])
        return dialect.columns.replace(", ".join(READ[6:8]), times)

    def instant(self, column: str) -> str:
        """Return a time as a record has it: the server spells it in a third of Python's time."""
        return _spelled(column)

    def versions_of(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks versions."""
        return f"id = ANY ({args.bind(list(item_ids))}::text[])"

    def take(
        self, dialect: Dialect, item_ids: Sequence[str], keep: Callable[[str], Kept]
    ) -> Steps[set[str]]:
        """Write those that are not there and lock the others, all in the order of ids.

        So does everybody: two who write the same ids wait for each other, and never in a circle.
        """
        args = Args(dialect)
        where = dialect.by_ids(args, item_ids)
        known = yield Statement(f"SELECT count(*) FROM memory_items WHERE {where}", args)
        if known[0][0] == len(item_ids):
            yield from dialect.lock_rows(item_ids)
            return set()
        kept = [keep(item_id) for item_id in item_ids]
        batches = list(_cut(kept))
        places: dict[str, int] = {}
        if len(batches) > 1:  # one statement numbers its rows as they were given
            numbers = yield Statement(_NUMBERS, [len(kept)])
            places = {each.id: row[0] for each, row in zip(kept, numbers, strict=True)}
            batches = list(_cut(sorted(kept, key=lambda each: each.id)))
        written: set[str] = set()
        yield Statement(MOVING)
        for batch in batches:
            written |= yield from self._write(batch, places)
        return written

    def insert(self, kept: Sequence[Kept]) -> Steps[None]:
        """Write new rows by the thousand."""
        yield from self._put(kept, {})

    def replace(self, kept: Sequence[Kept]) -> Steps[None]:
        """Remove the rows, and all that is derived with them, and write them at their places."""
        ids = [each.id for each in kept]
        held = yield Statement(
            f"SELECT {OWNER.format('')}, id, seq FROM memory_items WHERE id = ANY ($1::text[])"
            " ORDER BY id FOR UPDATE",
            [ids],
        )
        yield Statement(LOCKED, [sorted({row[0] for row in held})])
        # An item whose past alone differs is the same to the audit log, and keeps its salt.
        salts = yield Statement(
            "SELECT id, salt FROM memory_audit_salts WHERE id = ANY ($1::text[])", [ids]
        )
        yield Statement("DELETE FROM memory_items WHERE id = ANY ($1::text[])", [ids])
        yield from self._put(kept, {row[1]: row[2] for row in held})
        if salts:
            yield Statement(
                "INSERT INTO memory_audit_salts (id, salt)"
                " SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING",
                columns(salts, 2),
            )

    def _put(self, kept: Sequence[Kept], places: dict[str, int]) -> Steps[None]:
        yield Statement(MOVING)
        for batch in _cut(kept):
            written = yield from self._write(batch, places)
            if len(written) < len(batch):  # it was just written
                taken = next(each.id for each in batch if each.id not in written)
                raise AccessError(f"the id `{taken}` is taken; nothing was written")

    def _write(self, batch: Sequence[Kept], places: dict[str, int]) -> Steps[set[str]]:
        """Write those that are not there, lock the others; return the ids of the first."""
        rows = yield Statement(self._insert, _bound(batch, places))
        written = {row[0] for row in rows}
        texts = [(each.id, each.content, folded(each.content)) for each in batch]
        texts = [each for each in texts if each[2] is not None and each[0] in written]
        if texts:
            yield Statement(_FOLD, list(zip(*texts, strict=True)))
        return written

    def add_past(self, versions: Sequence[KeptVersion], notes: Sequence[Note]) -> Steps[None]:
        """Write versions and notes by the thousand."""
        for batch in _cut(versions):
            timed = [
                each._replace(
                    created_at=moment(each.created_at),
                    updated_at=moment(each.updated_at),
                    ended_at=moment(each.ended_at),
                )
                for each in batch
            ]
            yield Statement(_INSERT_VERSIONS, list(zip(*timed, strict=True)))
        for several in _cut(notes):
            dated = [each._replace(came=moment(each.came)) for each in several]
            yield Statement(_INSERT_NOTES, list(zip(*dated, strict=True)))


class PartitionedRecordWriter(PostgresRecordWriter):
    """Tables cut by user: `memory_ids` says where an id is."""

    _insert = (
        f"WITH given AS (SELECT *, coalesce(metadata::jsonb->>'user_id', '') AS user_key"
        f" FROM ({_BOUND_ROWS}) AS given), {_NUMBERED},"
        " own AS (INSERT INTO memory_ids AS i (id, user_key) SELECT id, user_key FROM given"
        " ORDER BY id ON CONFLICT (id) DO UPDATE SET user_key = i.user_key WHERE false"
        " RETURNING i.id),"
        f" put AS (INSERT INTO memory_items ({_COLUMNS}, seq, user_key)"
        f" SELECT {_VALUES}, seq, user_key FROM numbered JOIN own USING (id) ORDER BY id"
        " RETURNING id) SELECT id FROM put"
    )


def _bound(batch: Sequence[Kept], places: dict[str, int]) -> list[tuple[Any, ...]]:
    """Return what is bound for rows, by the column."""
    values = [
        (
            *each[:6],
            moment(each.created_at),
            moment(each.updated_at),
            each.deleted,
            each.version,
            places.get(each.id),
        )
        for each in batch
    ]
    return list(zip(*values, strict=True))


def _cut(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Cut *rows* where a statement would become too long, in rows or in characters."""
    batch: list[_Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum([len(value) for value in row if type(value) is str])
        if len(batch) >= BATCH or size >= MAX_TEXT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
