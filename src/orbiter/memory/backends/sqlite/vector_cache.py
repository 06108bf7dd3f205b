"""Cache of vectors, a matrix per user: read once from the file, then kept up with its changes.

A matrix is brought to the very moment that a read transaction sees before it is asked, also with
what other processes wrote. The rows it names are read in the same transaction under the full
filter, so that nothing comes back that is deleted or another's.
"""

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from orbiter.memory.backends.sql.dialect import Args, Filter
from orbiter.memory.backends.sql.embedder import Model
from orbiter.memory.backends.sql.operations import Operations
from orbiter.memory.backends.sql.rows import READ
from orbiter.memory.backends.sqlite.migrations import FACT_FIELDS, field
from orbiter.memory.backends.sqlite.run import run
from orbiter.memory.backends.sqlite.schema import not_expired
from orbiter.memory.model.query import SCOPE_FIELDS, Query

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from orbiter.memory.backends.vector.matrix import VectorMatrix

__all__ = [
    "EMPTY",
    "Found",
    "VectorCache",
    "has_many_facts",
    "rows_at",
    "similarities",
    "surplus_values",
    "vectors_of",
]

_USER = field("user_id")
_COLUMNS = ", ".join(READ)
_IS_HERE = "SELECT 1 FROM memory_models WHERE id = ? AND state <> 'gone'"

# Crossed, so that the planner takes them in this order and never walks through all vectors.
_VECTORS_OF = f"""
SELECT i.id, v.vectors FROM (SELECT DISTINCT value FROM json_each(?2)) AS asked
CROSS JOIN memory_items AS i ON i.id = asked.value
CROSS JOIN memory_vectors AS v ON v.model = ?1 AND v.place = i.rowid
WHERE deleted = 0 AND {not_expired("i")} AND length(v.vectors) > 0
"""

Found = list[tuple[Sequence[Any], float]]


_SKETCHED_FROM = 16_384
"""Vectors from which on most are passed over by their sketches: fewer are scored in 3 ms."""

EMPTY = 2048
"""Bytes that a matrix takes beside its vectors, about."""


class _Kept:
    """A matrix, up to which change it holds the file's vectors, and who may touch it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.matrix: VectorMatrix | None = None
        self.seen = 0
        self.size = 0
        """With how many bytes it is counted."""


class VectorCache:
    """The matrices of the users who were asked about last, within *most* bytes."""

    def __init__(
        self, operations: Operations, most: int, *, approximate_from: int | None = None
    ) -> None:
        self._operations = operations
        self._most = most
        self._approximate_from = approximate_from
        self._total = 0
        self._lock = Lock()
        self._kept: OrderedDict[tuple[int, str | None], _Kept] = OrderedDict()

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
            self._total = 0

    def nearest(
        self, connection: sqlite3.Connection, model: Model, vector: Sequence[float], query: Query
    ) -> Found | None:
        """Return rows and cosines, nearest first; `None` if the model is no longer there."""
        user_id = query.wanted.get("user_id")
        kept = self._get(model, user_id)
        try:
            with kept.lock:
                return self._ask(connection, model, vector, query, kept)
        finally:
            self._count((model.key, user_id), kept)

    def _ask(
        self,
        connection: sqlite3.Connection,
        model: Model,
        vector: Sequence[float],
        query: Query,
        kept: _Kept,
    ) -> Found | None:
        # Begun under the matrix's lock: it is never ahead of what this transaction sees.
        connection.execute("BEGIN")
        try:
            if connection.execute(_IS_HERE, [model.key]).fetchone() is None:
                return None
            user_id = query.wanted.get("user_id")
            matrix = _catch_up(connection, model, user_id, kept, self._approximate_from)
            compiled = run(connection, self._operations.compile(query))
            return _search(connection, matrix, vector, compiled, query)
        finally:
            if connection.in_transaction:
                connection.execute("COMMIT")

    def _get(self, model: Model, user_id: str | None) -> _Kept:
        with self._lock:
            kept = self._kept.setdefault((model.key, user_id), _Kept())
            self._kept.move_to_end((model.key, user_id))
            return kept

    def _count(self, key: tuple[int, str | None], kept: _Kept) -> None:
        """Count a matrix as what it takes now, and make room; one without vectors is not kept."""
        with self._lock:
            if self._kept.get(key) is not kept:  # evicted meanwhile
                return
            size = _size(kept.matrix)
            self._total += size - kept.size
            kept.size = size
            if not size:
                del self._kept[key]
            while self._total > self._most and len(self._kept) > 1:
                self._total -= self._kept.popitem(last=False)[1].size


def _size(matrix: "VectorMatrix | None") -> int:
    if matrix is None or not matrix.rows:
        return 0
    return EMPTY + matrix.rows * (matrix.dimension * 4 + 64)


def _catch_up(
    connection: sqlite3.Connection,
    model: Model,
    user_id: str | None,
    kept: _Kept,
    approximate_from: int | None,
) -> "VectorMatrix":
    """Bring a matrix to the moment that the transaction sees."""
    row = connection.execute(
        "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'memory_changes'),"
        " (SELECT min(id) FROM memory_changes)"
    ).fetchone()
    now, oldest = row[0] or 0, row[1] or (row[0] or 0) + 1
    matrix, seen = kept.matrix, kept.seen
    kept.matrix = None  # half brought up to date it is of no use
    if matrix is None or not oldest - 1 <= seen <= now:
        matrix = _load(connection, model, user_id, approximate_from)
    elif seen < now:
        _apply(connection, model, user_id, matrix, seen)
    kept.matrix, kept.seen = matrix, now
    return matrix


_MINE = f"{_USER} = ?2"

# Of equally near items the newest comes first: the lowest rank, then the highest place. A time
# made by hand that is none ranks last.
_RANK = (
    "ifnull(-1000000 * CAST(strftime('%s', i.created_at) AS INTEGER)"
    " - CAST(substr(i.created_at, 21, 6) AS INTEGER), 9223372036854775807)"
)


def _load(
    connection: sqlite3.Connection,
    model: Model,
    user_id: str | None,
    approximate_from: int | None,
) -> "VectorMatrix":
    import numpy as np  # noqa: PLC0415 - where there are vectors, it is there

    from orbiter.memory.backends.vector.matrix import VectorMatrix  # noqa: PLC0415

    matrix = VectorMatrix(
        model.dimension, approximate_from=approximate_from, sketched_from=_SKETCHED_FROM
    )
    places, ranks = _ranked_places(connection, user_id)
    if not len(places):
        return matrix
    order = np.argsort(places)
    places, ranks = places[order], ranks[order]
    # As many as there may be; what is never written takes no memory.
    total = connection.execute(
        "SELECT count(*) FROM memory_vectors WHERE model = ?1", [model.key]
    ).fetchone()[0]
    matrix.make_room(total)
    # In the order of the file, if most of it is wanted.
    table, mine, args = "memory_vectors NOT INDEXED", "", [model.key]
    if total > _SCATTERED * len(places):
        table, mine = "memory_vectors", " AND place IN (SELECT value FROM json_each(?2))"
        args.append(json.dumps(places.tolist()))
    rows = connection.execute(
        f"SELECT place, vectors FROM {table} WHERE model = ?1{mine} AND length(vectors) > 0", args
    )
    while some := rows.fetchmany(1_024):
        keys = np.array([place for place, _ in some], np.int64)
        at = np.minimum(np.searchsorted(places, keys), len(places) - 1)
        is_mine = places[at] == keys
        if is_mine.all():
            _put(matrix, keys, [blob for _, blob in some], ranks[at])
        elif is_mine.any():
            blobs = [blob for (_, blob), is_one in zip(some, is_mine, strict=True) if is_one]
            _put(matrix, keys[is_mine], blobs, ranks[at[is_mine]])
    return matrix


_SCATTERED = 4
"""Of more vectors than so many times those wanted, each that is wanted is looked for."""


def _ranked_places(
    connection: sqlite3.Connection, user_id: str | None
) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]":
    """Return where a user's items are, or everyone's, and the rank of each."""
    import numpy as np  # noqa: PLC0415

    source, args = "FROM memory_items AS i WHERE deleted = 0", []
    if user_id is not None:
        source, args = f"{source} AND {_USER} = ?1", [user_id]
    # As two values: several times as fast as so many rows.
    listed, times = connection.execute(
        f"SELECT json_group_array(rowid), group_concat(created_at, '') {source}", args
    ).fetchone()
    places = np.fromstring(listed[1:-1], np.int64, sep=",")
    ranks = _ranks(times or "", len(places))
    if ranks is None:  # some are not as we write them
        rows = connection.execute(f"SELECT rowid, {_RANK} {source}", args).fetchall()
        places = np.array([place for place, _ in rows], np.int64)
        ranks = np.array([rank for _, rank in rows], np.int64)
    return places, ranks


_TIME = "0000-00-00T00:00:00.000000+00:00"


def _ranks(times: str, count: int) -> "npt.NDArray[np.int64] | None":
    """Return what `_RANK` is of *count* times, if all are as we write them."""
    import numpy as np  # noqa: PLC0415

    if len(times) != count * len(_TIME) or not times.isascii():
        return None
    letters = np.frombuffer(times.encode(), np.uint8).reshape(count, len(_TIME))
    form = np.frombuffer(_TIME.encode(), np.uint8)
    is_digit = form == ord("0")
    is_digit[-6:] = False  # of the offset, which is always the same
    digits = letters[:, is_digit] - ord("0")  # below it, unsigned numbers begin again at the top
    if (letters[:, ~is_digit] != form[~is_digit]).any() or (digits > 9).any():
        return None
    try:
        moments = np.ascontiguousarray(letters[:, :26]).view("S26")[:, 0].astype("datetime64[us]")
    except ValueError:  # a day that is none
        return None
    return -moments.astype(np.int64)


def _put(
    matrix: "VectorMatrix",
    places: "npt.NDArray[np.int64]",
    blobs: Sequence[bytes],
    ranks: "npt.NDArray[np.int64]",
) -> None:
    import numpy as np  # noqa: PLC0415

    joined = b"".join(blobs)
    width = 4 * matrix.dimension
    if len(joined) != width * len(blobs):  # some have several passages
        counts = [len(blob) // width for blob in blobs]
        places, ranks = np.repeat(places, counts), np.repeat(ranks, counts)
    vectors = np.frombuffer(joined, np.float32)
    matrix.put_many(places, vectors.reshape(-1, matrix.dimension), ranks=ranks)


def _apply(
    connection: sqlite3.Connection,
    model: Model,
    user_id: str | None,
    matrix: "VectorMatrix",
    seen: int,
) -> None:
    """Read again what was changed since *seen*."""
    import numpy as np  # noqa: PLC0415

    mine = "" if user_id is None else " AND user_id = ?3"
    is_mine = "" if user_id is None else f" AND {_USER} = ?3"
    rows = connection.execute(
        f"SELECT c.place, v.vectors, {_RANK} FROM"
        f" (SELECT DISTINCT place FROM memory_changes WHERE id > ?2{mine}) AS c"
        f" LEFT JOIN memory_items AS i ON i.rowid = c.place AND i.deleted = 0{is_mine}"
        " LEFT JOIN memory_vectors AS v ON v.model = ?1 AND v.place = i.rowid",
        [model.key, seen, *([] if user_id is None else [user_id])],
    ).fetchall()
    for place, blob, _ in rows:
        if not blob:
            matrix.remove(place)
    if some := [row for row in rows if row[1]]:
        places, blobs, ranks = zip(*some, strict=True)
        _put(matrix, np.array(places, np.int64), blobs, np.array(ranks, np.int64))


def _search(
    connection: sqlite3.Connection,
    matrix: "VectorMatrix",
    vector: Sequence[float],
    compiled: Filter,
    query: Query,
) -> Found:
    limit = query.limit
    if not limit or not len(matrix):
        return []
    # Most filters let most rows through: then looking a little further is enough.
    wide = min(limit * 2 + 32, len(matrix))
    nearest = matrix.nearest(vector, wide)
    surplus: set[int] = set()
    if has_many_facts(connection, query):
        surplus = surplus_values(connection, [place for place, _ in nearest], compiled, query)
        nearest = [each for each in nearest if each[0] not in surplus]
    rows = _rows(connection, nearest[:limit], compiled)
    if len(rows) < limit:
        rows += _rows(connection, nearest[limit:], compiled)
    if len(rows) >= limit or wide == len(matrix):
        return rows[:limit]
    where = " AND ".join([*compiled.scope, *compiled.rest])
    allowed = [
        place
        for (place,) in connection.execute(
            f"SELECT rowid FROM memory_items WHERE {where}", compiled.args
        )
        if place not in surplus
    ]
    return _rows(connection, matrix.nearest(vector, limit, among=allowed), compiled)


def _rows(
    connection: sqlite3.Connection, nearest: Sequence[tuple[int, float]], compiled: Filter
) -> Found:
    found = rows_at(connection, [place for place, _ in nearest], compiled)
    return [(found[place], cosine) for place, cosine in nearest if place in found]


def rows_at(
    connection: sqlite3.Connection,
    places: Sequence[int],
    compiled: Filter,
    columns: str = _COLUMNS,
) -> dict[int, Sequence[Any]]:
    """Return *columns* of the rows at *places* that match."""
    args = Args(compiled.args.dialect, compiled.args)
    where = " AND ".join([*compiled.scope, *compiled.rest])
    rows = connection.execute(
        f"SELECT rowid, {columns} FROM memory_items NOT INDEXED WHERE rowid IN"
        f" (SELECT value FROM json_each({args.bind(json.dumps(places))})) AND {where}",
        args,
    )
    return {row[0]: row[1:] for row in rows}


_IS_VALUE = (
    f"memory_type = 'fact' AND {FACT_FIELDS['retracted_at']} IS NULL"
    " AND NOT json_extract(extra_json, '$.is_end')"
)
_OF_FACT = " AND ".join(f"{field(name)} IS ?" for name in SCOPE_FIELDS)
_VALUES = f"""
SELECT json_group_array(rowid) FROM memory_items
WHERE deleted = 0 AND memory_type = 'fact' AND {_OF_FACT} AND {FACT_FIELDS["key"]} = ?
"""
_TRIED = 4
"""Of how many times as many of the best as are wanted of a fact it is seen that it has many."""


def has_many_facts(connection: sqlite3.Connection, query: Query) -> bool:
    """Tell whether there are so many facts that one of them may have too many values."""
    user_id, most = query.wanted.get("user_id"), query.max_per_fact
    mine, args = ("", []) if user_id is None else (f" AND {_USER} = ?", [user_id])
    rows = f"SELECT 1 FROM memory_items WHERE deleted = 0 AND memory_type = 'fact'{mine}"
    return most is not None and bool(connection.execute(f"{rows} LIMIT {most}, 1", args).fetchone())


def surplus_values(
    connection: sqlite3.Connection, places: Sequence[int], compiled: Filter, query: Query
) -> set[int]:
    """Return where facts are of which the first of *places* have more than `max_per_fact` values.

    All that they have is there, matching or not, but for the first so many that match.
    """
    most = query.max_per_fact or 0
    first = places[: _TRIED * most]
    is_value = compiled._replace(rest=[*compiled.rest, _IS_VALUE])
    rows = rows_at(connection, first, is_value, "metadata") if len(first) > most else {}
    facts = {text: _fact_of(text) for text in {text for (text,) in rows.values()}}
    values: dict[tuple[str | None, ...], list[int]] = {}
    for place in first:
        if place in rows:
            values.setdefault(facts[rows[place][0]], []).append(place)
    surplus: set[int] = set()
    for fact, each in values.items():
        if len(each) > most:
            surplus.update(each, json.loads(connection.execute(_VALUES, fact).fetchone()[0]))
            surplus.difference_update(each[:most])
    return surplus


def _fact_of(metadata: str) -> tuple[str | None, ...]:
    """Return whose fact it is, and its key."""
    fields = json.loads(metadata)
    return (*map(fields.get, SCOPE_FIELDS), fields.get("extra", {}).get("fact"))


def similarities(
    connection: sqlite3.Connection, model: Model, vector: Sequence[float], item_ids: Sequence[str]
) -> dict[str, float] | None:
    """Return the cosine of each item that has vectors; `None` if the model is not there."""
    from orbiter.memory.backends.vector.normalize import best_cosines  # noqa: PLC0415 - needs numpy

    found = vectors_of(connection, model, item_ids)
    if found is None:
        return None
    cosines = best_cosines(vector, list(found.values()), dimension=model.dimension)
    return dict(zip(found, cosines, strict=True))


def vectors_of(
    connection: sqlite3.Connection, model: Model, item_ids: Sequence[str]
) -> dict[str, bytes] | None:
    """Return the vectors of each item that has any; `None` if the model is not there."""
    connection.execute("BEGIN")
    try:
        if connection.execute(_IS_HERE, [model.key]).fetchone() is None:
            return None
        return dict(connection.execute(_VECTORS_OF, [model.key, json.dumps(item_ids)]).fetchall())
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
