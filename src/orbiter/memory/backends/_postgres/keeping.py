"""How Postgres writes records exactly: by the thousand, past the trigger that notes arrivals."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from orbiter.memory.backends._postgres.schema import DIGEST
from orbiter.memory.backends._rows import Row
from orbiter.memory.backends._sql import Args, Statement, Steps
from orbiter.memory.backends._sql_records import Keeping
from orbiter.memory.backends._stored_records import Kept, KeptVersion, Note, moment
from orbiter.memory.errors import AccessError

_Row = TypeVar("_Row", bound=tuple[Any, ...])

BATCH = 2000
"""Rows in one statement."""

MOST_TEXT = 4 * 2**20
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
    "folded": "text",
}
_GIVEN = (
    "SELECT * FROM unnest("
    + ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_KINDS.values(), 1))
    + f") WITH ORDINALITY AS given ({', '.join(_KINDS)}, n)"
)
_COLUMNS = ", ".join((*Row._fields, "deleted", "version"))
_NUMBERED = (
    "numbered AS MATERIALIZED (SELECT *, coalesce(place, nextval('memory_items_seq')) AS seq"
    " FROM (SELECT * FROM given ORDER BY n) AS ordered)"
)
_FOLD = (
    "folding AS (INSERT INTO memory_folded (id, digest, folded)"
    f" SELECT id, {DIGEST}, folded FROM given WHERE folded IS NOT NULL ON CONFLICT (id)"
    " DO UPDATE SET digest = excluded.digest, folded = excluded.folded)"
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


class PostgresKeeping(Keeping):
    """Whole tables."""

    _insert = (
        f"WITH given AS ({_GIVEN}), {_NUMBERED}, put AS (INSERT INTO memory_items"
        f" ({_COLUMNS}, seq) SELECT {_VALUES}, seq FROM numbered ORDER BY id"
        f" ON CONFLICT (id) DO NOTHING RETURNING id), {_FOLD} SELECT id FROM put"
    )

    def versions_of(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks versions."""
        return f"id = ANY ({args.bind(list(item_ids))}::text[])"

    def insert(self, kept: Sequence[Kept]) -> Steps[None]:
        """Write new rows by the thousand."""
        yield from self._put(kept, {})

    def replace(self, kept: Sequence[Kept]) -> Steps[None]:
        """Remove the rows, and all that is derived with them, and write them at their places."""
        ids = [each.id for each in kept]
        gone = yield Statement(
            "DELETE FROM memory_items WHERE id = ANY ($1::text[]) RETURNING id, seq", [ids]
        )
        yield from self._put(kept, {row[0]: row[1] for row in gone})

    def _put(self, kept: Sequence[Kept], places: dict[str, int]) -> Steps[None]:
        from orbiter.memory.backends._postgres.dialect import folded  # noqa: PLC0415 - a circle

        yield Statement(MOVING)
        for batch in _cut(kept):
            values = [
                (
                    *each[:6],
                    moment(each.created_at),
                    moment(each.updated_at),
                    each.deleted,
                    each.version,
                    places.get(each.id),
                    folded(each.content),
                )
                for each in batch
            ]
            there = yield Statement(self._insert, list(zip(*values, strict=True)))
            if len(there) < len(batch):  # row-level security hides it, or it was just written
                written = {row[0] for row in there}
                taken = next(each.id for each in batch if each.id not in written)
                raise AccessError(f"the id `{taken}` is taken; nothing was written")

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
            yield Statement(_INSERT_NOTES, list(zip(*several, strict=True)))


class PartitionedKeeping(PostgresKeeping):
    """Tables cut by user: `memory_ids` says where an id is."""

    _insert = (
        f"WITH given AS (SELECT *, coalesce(metadata::jsonb->>'user_id', '') AS user_key"
        f" FROM ({_GIVEN}) AS given), {_NUMBERED},"
        " own AS (INSERT INTO memory_ids (id, user_key) SELECT id, user_key FROM given"
        " ORDER BY id ON CONFLICT (id) DO NOTHING RETURNING id),"
        f" put AS (INSERT INTO memory_items ({_COLUMNS}, seq, user_key)"
        f" SELECT {_VALUES}, seq, user_key FROM numbered JOIN own USING (id) ORDER BY id"
        f" RETURNING id), {_FOLD} SELECT id FROM put"
    )


def _cut(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Cut *rows* where a statement would become too long, in rows or in characters."""
    batch: list[_Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if type(value) is str)
        if len(batch) >= BATCH or size >= MOST_TEXT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
