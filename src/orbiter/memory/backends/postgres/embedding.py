"""Embedding: which items wait for their vectors, and how these get beside the items.

Several processes share the work: what one has taken is left alone by the others for a while, and
then taken again, as whoever took it may be gone.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbiter.memory.backends.postgres.derived_tables import LOCKED, NO_VECTORS, columns
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.models import Kind, padded
from orbiter.memory.backends.postgres.term_index import indexing, is_pending, read_indexed_by
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.backends.sql.embedder import Embedded, Model, PendingItem

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

__all__ = ["LEASE", "count", "give_back", "keep", "take", "waiting", "written"]

LEASE = 30.0
"""Seconds for which items that one process embeds are left alone by the others."""


def take(
    dialect: PostgresDialect, model: Model, count: int, taker: str, lease: float
) -> Steps[tuple[list[PendingItem], bool] | None]:
    """Take the next items that wait for a model; also tell whether any wait with others.

    Those that were put off are taken when there are no others. `None` if the model is gone.
    """
    rows = yield from _take(dialect, "= 0", [model.key, taker, count, lease])
    if not rows:
        rows = yield from _take(dialect, "> 0", [model.key, taker, count, lease])
    if rows:
        return [
            PendingItem(tuple(row)[:4], row[4], row[5] > 0, read_indexed_by(row[6])) for row in rows
        ], False
    ((is_there, is_left),) = yield Statement(
        "SELECT EXISTS (SELECT 1 FROM memory_models WHERE number = $1),"
        " EXISTS (SELECT 1 FROM memory_unembedded WHERE model = $1)",
        [model.key],
    )
    return ([], is_left) if is_there else None


def _take(dialect: PostgresDialect, put_off: str, args: list[object]) -> Steps[Rows]:
    # What is left behind by a model that is gone waits for nothing.
    return (
        yield Statement(
            "WITH turn AS MATERIALIZED (SELECT user_key, id FROM memory_unembedded WHERE model = $1"
            " AND (taken_until < clock_timestamp() OR taken_by = $2)"
            f" AND put_off {put_off} AND EXISTS (SELECT 1 FROM memory_models WHERE number = $1)"
            " ORDER BY put_off, place"
            " LIMIT $3 FOR UPDATE SKIP LOCKED), taken AS (UPDATE memory_unembedded AS u"
            " SET taken_by = $2, taken_until = clock_timestamp() + make_interval(secs => $4)"
            " FROM turn AS t WHERE u.model = $1 AND u.user_key = t.user_key AND u.id = t.id"
            " RETURNING u.user_key, u.id, u.put_off, u.place)"
            " SELECT t.user_key, t.id, i.version, i.seq, i.content, t.put_off,"
            f" {indexing('i')} FROM taken AS t"
            f" JOIN memory_items AS i ON {dialect.beside('t', 'i')} WHERE i.deleted = 0"
            " ORDER BY t.put_off, t.place",
            args,
        )
    )


def waiting(dialect: PostgresDialect, model: Model) -> str:
    """Return how one row tells how many items wait for a model, and whether the model is there.

    Those are included that are still to be queued; the last column is whether any wait for the
    index of terms.
    """
    is_there = f"EXISTS (SELECT 1 FROM memory_items AS i WHERE {dialect.beside('p', 'i')}"
    is_there += " AND i.deleted = 0)"
    number = model.key
    return (
        f"SELECT count(*), EXISTS (SELECT 1 FROM memory_models WHERE number = {number}),"
        f" {is_pending(None)}"
        f" FROM (SELECT user_key, id FROM memory_unembedded WHERE model = {number}"
        f" EXCEPT SELECT p.user_key, p.id FROM memory_pending AS p WHERE NOT {is_there}"
        " UNION SELECT p.user_key, p.id FROM memory_pending AS p, memory_models AS m"
        f" WHERE m.number = {number} AND {is_there}"
        " UNION SELECT p.user_key, p.id FROM memory_passages AS p, memory_models AS m"
        f" WHERE m.number = {number} AND NOT m.is_walked"
        " AND (p.user_key, p.id) > (m.last_user, m.last_id) AND NOT EXISTS (SELECT 1"
        " FROM memory_vectors AS v WHERE v.user_key = p.user_key AND v.id = p.id"
        f" AND v.model = {number})) AS waiting"
    )


def count(dialect: PostgresDialect, model: Model) -> Steps[tuple[int | None, bool]]:
    """Return how many items wait for a model, and whether any wait for the index of terms.

    `None` if the model is gone.
    """
    ((count, is_there, is_behind),) = yield Statement(waiting(dialect, model))
    return int(count) if is_there else None, bool(is_behind)


def keep(
    dialect: PostgresDialect,
    kind: Kind,
    model: Model,
    done: Sequence[tuple[PendingItem, Embedded | None]],
) -> Steps[None]:
    """Write what was made of items that are as they were read, and let the others wait on."""
    yield Statement(LOCKED, [sorted({item.key[0] for item, _ in done})])
    made = {item.key[:2]: each for item, each in done if each is not None}
    fresh = yield Statement(
        "WITH seen AS (SELECT * FROM unnest($2::text[], $3::text[], $4::int[], $5::bigint[])"
        " AS s (user_key, id, version, seq)), fresh AS MATERIALIZED (SELECT s.user_key, s.id"
        f" FROM seen AS s JOIN memory_items AS i ON {dialect.beside('s', 'i')}"
        " AND i.deleted = 0 WHERE i.version = s.version AND i.seq = s.seq"
        " AND EXISTS (SELECT 1 FROM memory_models WHERE number = $1)),"
        " old AS (DELETE FROM memory_vectors AS v USING fresh AS f WHERE v.model = $1"
        " AND v.user_key = f.user_key AND v.id = f.id),"
        " old_details AS (DELETE FROM memory_details AS d USING fresh AS f WHERE d.model = $1"
        " AND d.user_key = f.user_key AND d.id = f.id),"
        " done AS (DELETE FROM memory_unembedded AS u USING fresh AS f WHERE u.model = $1"
        " AND u.user_key = f.user_key AND u.id = f.id) SELECT user_key, id FROM fresh",
        [model.key, *columns([item.key for item, each in done if each is not None], 4)],
    )
    good = {(owner, item_id) for owner, item_id in fresh}
    values = [
        (*key, number, written(vector, kind))
        for key, each in made.items()
        if key in good
        for number, vector in enumerate(each.vectors)
    ]
    if values:
        array_type = "text[]" if kind.is_vector else "bytea[]"
        yield Statement(
            "INSERT INTO memory_vectors (model, user_key, id, passage, embedding)"
            f" SELECT $1, user_key, id, passage, embedding{'::vector' if kind.is_vector else ''}"
            f" FROM unnest($2::text[], $3::text[], $4::int[], $5::{array_type})"
            " AS v (user_key, id, passage, embedding) ON CONFLICT DO NOTHING",
            [model.key, *columns(values, 4)],
        )
    details = [
        (*key, number, row)
        for key, each in made.items()
        if key in good
        for number, row in _numbered(each)
    ]
    if details:
        yield Statement(
            "INSERT INTO memory_details (model, user_key, id, passage, details)"
            " SELECT $1, * FROM unnest($2::text[], $3::text[], $4::int[], $5::bytea[])"
            " ON CONFLICT DO NOTHING",
            [model.key, *columns(details, 4)],
        )
    rest = [(*item.key[:2], each is None) for item, each in done if item.key[:2] not in good]
    if rest:
        yield Statement(
            "UPDATE memory_unembedded AS u SET taken_until = '-infinity',"
            " put_off = u.put_off + r.put_off::int"
            " FROM unnest($2::text[], $3::text[], $4::bool[]) AS r (user_key, id, put_off)"
            " WHERE u.model = $1 AND u.user_key = r.user_key AND u.id = r.id",
            [model.key, *columns(rest, 3)],
        )


def _numbered(made: Embedded) -> list[tuple[int, bytes]]:
    """Return the details of each passage, and the mark of an item that lacks vectors for good."""
    kept = list(enumerate(made.details or ())) if len(made.vectors) else []
    return kept if made.is_whole else [*kept, (NO_VECTORS, b"")]


def give_back(taker: str) -> Steps[None]:
    """Leave what was taken and not embedded to the others."""
    yield Statement(
        "UPDATE memory_unembedded SET taken_until = '-infinity' WHERE taken_by = $1"
        " AND taken_until > clock_timestamp()",
        [taker],
    )


def written(vector: "Floats", kind: Kind) -> object:
    """Return a vector as it is bound. Nine digits tell a float32 from every other."""
    if kind.is_vector:
        numbers = [f"{value:.9g}" for value in vector.tolist()]
        return f"[{','.join(numbers + ['0'] * (padded(len(numbers)) - len(numbers)))}]"
    return vector.astype("<f4").tobytes()
