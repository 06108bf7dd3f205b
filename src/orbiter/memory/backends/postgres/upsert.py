"""Upsert of Postgres: the statement that writes rows, and what it must know first.

How rows are cut into batches, which texts need a case-folded copy, and the advisory locks under
which messages come into conversations one after the other.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from orbiter.memory.backends.postgres.schema import DIGEST
from orbiter.memory.backends.postgres.where import not_expired
from orbiter.memory.backends.sql.rows import Row
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = [
    "BATCH",
    "CHANGED",
    "COLUMNS",
    "CREATED",
    "FOLD",
    "FOLD_APART",
    "MAX_CONVERSATIONS",
    "MAX_TEXT",
    "MOVED_TO",
    "ONE_IN_TURN",
    "TYPES",
    "USER_KEY",
    "VALUES",
    "bound_rows",
    "conversation_locks",
    "folded",
    "numbered",
    "or_update",
    "partitioned_upsert",
    "placed",
    "waves",
]

COLUMNS = ", ".join(Row._fields)
VALUES = COLUMNS.replace("metadata", "metadata::jsonb")
TYPES = dict.fromkeys(Row._fields, "text")
TYPES |= {"created_at": "timestamptz", "updated_at": "timestamptz"}
"""What is bound for a row, and as what; its folded text comes last, if it has one."""
CHANGED = ("content", "memory_type", "status", "metadata", "extra_json", "updated_at")

BATCH = 2000
"""Rows in one statement of `add_many`."""

MAX_TEXT = 4 * 2**20
"""Characters in one statement of `add_many`."""

_LIVES = not_expired("m.")
_NEXT = f"CASE WHEN m.deleted = 1 OR NOT {_LIVES} THEN <next> ELSE m.seq END"
MOVED_TO = _NEXT.replace("<next>", "nextval('memory_items_seq')")
CREATED = f"CASE WHEN {_LIVES} THEN m.created_at ELSE <given>.created_at END"
# Rows are numbered in the order they were given and written in that of their ids: two batches
# that lock the same rows then wait for each other, and never in a circle.
_NUMBERED = (
    "numbered AS MATERIALIZED (SELECT *, nextval('memory_items_seq') AS seq"
    " FROM (SELECT * FROM given ORDER BY n) AS ordered)"
)
# Numbers come in the order in which they are asked for, rows in that of commits. Who holds the
# lock of a conversation from before its number on until its commit makes the two the same.
_IN_TURN = (
    "held AS MATERIALIZED (SELECT pg_advisory_xact_lock(key) FROM unnest(<locks>::bigint[]) AS t"
    " (key)), numbered AS MATERIALIZED (SELECT *, nextval('memory_items_seq') AS seq FROM (SELECT"
    " given.* FROM given, (SELECT count(*) FROM held) AS h ORDER BY n) AS ordered)"
)
_UPDATE = (
    ", ".join(f"{name} = excluded.{name}" for name in CHANGED)
    + ", deleted = 0, version = m.version + 1,"
    f" created_at = {CREATED.replace('<given>', 'excluded')},"
    f" seq = {_NEXT.replace('<next>', 'excluded.seq')}"
)
_UNLESS_STORED = " WHERE m.deleted = 1 OR " + " OR ".join(
    f"m.{name} IS DISTINCT FROM excluded.{name}" for name in CHANGED
)
FOLD = (
    f", folding AS (INSERT INTO memory_folded (id, digest, folded) SELECT id, {DIGEST}, folded"
    " FROM put JOIN given USING (id) WHERE folded IS NOT NULL ON CONFLICT (id)"
    " DO UPDATE SET digest = excluded.digest, folded = excluded.folded)"
)
"""Writes the folded copies of what was put."""
FOLD_APART = (
    f"INSERT INTO memory_folded (id, digest, folded) SELECT $1, {DIGEST}, $3"
    " FROM (SELECT $2::text AS content) AS given ON CONFLICT (id)"
    " DO UPDATE SET digest = excluded.digest, folded = excluded.folded"
)
USER_KEY = "coalesce(metadata::jsonb->>'user_id', '')"


# The same for one row: what is selected from is there before the number is asked for.
ONE_IN_TURN = (
    ", nextval('memory_items_seq') FROM (SELECT pg_advisory_xact_lock(key) FROM"
    f" unnest(${len(TYPES) + 1}::bigint[]) AS t (key) OFFSET 0) AS held"
)


def numbered(in_turn: bool, fold: bool) -> str:  # noqa: FBT001
    last = len(TYPES) + (2 if fold else 1)
    return _IN_TURN.replace("<locks>", f"${last}") if in_turn else _NUMBERED


def or_update(key: str, again: bool) -> str:  # noqa: FBT001
    return f"ON CONFLICT ({key}) DO UPDATE SET {_UPDATE}{_UNLESS_STORED if again else ''}"


def placed(types: dict[str, str], suffix: str = "") -> str:
    return ", ".join(f"${n}::{kind}{suffix}" for n, kind in enumerate(types.values(), 1))


def bound_rows(*, many: bool, fold: bool) -> str:
    """Return a SELECT of what is bound, with `n` for the order."""
    types = {**TYPES, "folded": "text"} if fold else TYPES
    if many:
        names = ", ".join(types)
        rows = f"unnest({placed(types, '[]')}) WITH ORDINALITY AS given ({names}, n)"
        return f"SELECT * FROM {rows}"
    named = (f"${n}::{kind} AS {name}" for n, (name, kind) in enumerate(types.items(), 1))
    return f"SELECT {', '.join(named)}, 1 AS n"


def waves(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Cut *rows* into batches in which no id comes twice, each id's rows in their order."""
    for batch in _cut(rows):
        pending = batch
        while pending:
            wave: dict[str, Row] = {}
            pending = [row for row in pending if wave.setdefault(row.id, row) is not row]
            yield list(wave.values())


def _cut(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Cut *rows* where a statement would become too long, in rows or in characters."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.content) + len(row.extra_json) + len(row.metadata)
        if len(batch) >= BATCH or size >= MAX_TEXT:
            yield batch
            batch, size = [], 0
    yield batch


def folded(content: str) -> str | None:
    """Return the case-folded text, unless ASCII's lower case is the same."""
    if content.isascii():
        return None
    text = content.casefold()
    # Bytes know no letters beyond ASCII.
    return None if text.encode() == content.encode().lower() else text


MAX_CONVERSATIONS = 500
"""Conversations whose locks a write takes; one to more is a bulk load, and no turn of any."""


def conversation_locks(rows: Sequence[Row]) -> list[int]:
    """Return the locks of the conversations of *rows*, in an order that is the same for all."""
    locks = {_lock(row.metadata) for row in rows if '_id":' in row.metadata}
    locks.discard(None)
    return (
        sorted(lock for lock in locks if lock is not None)
        if len(locks) <= MAX_CONVERSATIONS
        else []
    )


def _lock(metadata: str) -> int | None:
    # Long metadata is seldom the same twice, and would only fill the cache.
    return _known_lock(metadata) if len(metadata) < 512 else _new_lock(metadata)


def _new_lock(metadata: str) -> int | None:
    scope: dict[str, Any] = json.loads(metadata)
    if scope.get("session_id") is None and scope.get("task_id") is None:
        return None
    key = json.dumps([scope.get(name) for name in SCOPE_FIELDS]).encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


_known_lock = lru_cache(maxsize=1024)(_new_lock)


def partitioned_upsert(*, many: bool, fold: bool, again: bool, in_turn: bool) -> str:
    """Return the upsert of tables that are cut by user, which keeps ids unique across them.

    Whoever has an id keeps it locked until the row is written. An id of another user's is left
    out: the row has to move.
    """
    return (
        f"WITH given AS (SELECT *, {USER_KEY} AS user_key"
        f" FROM ({bound_rows(many=many, fold=fold)}) AS given), {numbered(in_turn, fold)},"
        " own AS (INSERT INTO memory_ids AS i (id, user_key) SELECT id, user_key FROM numbered"
        " ORDER BY id ON CONFLICT (id) DO UPDATE SET user_key = i.user_key"
        " WHERE i.user_key = excluded.user_key RETURNING i.id),"
        f" put AS (INSERT INTO memory_items AS m ({COLUMNS}, seq, user_key)"
        f" SELECT {VALUES}, seq, user_key FROM numbered JOIN own USING (id) ORDER BY id"
        f" {or_update('user_key, id', again)} RETURNING m.id, m.version)"
        f"{FOLD if fold else ''} SELECT id, version FROM put"
    )
