"""Vector search in Postgres: how the nearest items are found.

A filter never loses a row to nearer ones that it rejects: a scope of few items is compared one by
one, and an index is walked until enough items passed. Cosines are computed from the vectors as
they are kept, in float32.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from orbiter.memory.backends.postgres.derived_tables import NO_VECTORS, columns
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.embedding import written
from orbiter.memory.backends.postgres.models import Kind
from orbiter.memory.backends.postgres.term_index import is_pending
from orbiter.memory.backends.sql.dialect import Args, Filter, Rows, Statement, Steps
from orbiter.memory.backends.sql.embedder import Model
from orbiter.memory.backends.sql.operations import MAX_LIMIT, Operations
from orbiter.memory.backends.sql.recall import check_vector
from orbiter.memory.backends.sql.rows import READ
from orbiter.memory.model.query import CosineQuery, Query

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

__all__ = [
    "BREADTH",
    "CHUNK",
    "FEW",
    "SPARE",
    "Cosines",
    "Nearest",
    "ScopeSizes",
    "has_model",
    "parts",
    "read_details",
    "read_vectors",
    "similarities",
]

FEW = 4000
"""Items of a scope up to which comparing each is cheaper than walking an index."""

SPARE = 3
"""Passages read from an index for each item that is wanted: several may be of one item."""

BREADTH = 200
"""How many of an index's nearest vectors are kept in view at a time: more find more of the best."""

CHUNK = 4096
"""Vectors read at a time where the server cannot compare them."""


class ScopeSizes:
    """Which scopes had few items a while ago: those are compared without counting them again.

    If one has become large meanwhile, that takes longer, and finds the same.
    """

    def __init__(self) -> None:
        self._small: dict[tuple[str, str], float] = {}

    def is_small(self, where: str, args: Sequence[Any]) -> bool:
        """Tell whether so few items matched a filter that comparing each is cheap."""
        return monotonic() < self._small.get((where, repr(args)), 0.0)

    def note(self, where: str, args: Sequence[Any], size: int) -> None:
        """Remember how many items match."""
        self._small.pop((where, repr(args)), None)
        if size <= FEW // 2:
            self._small[where, repr(args)] = monotonic() + _REMEMBERED
        while len(self._small) > _SCOPES:
            del self._small[next(iter(self._small))]


_REMEMBERED, _SCOPES = 60.0, 1024
"""Seconds for which a size is remembered, and of how many scopes."""


class Nearest:
    """Finds what is nearest to one vector, among what is asked for."""

    def __init__(
        self,
        operations: Operations,
        kind: Kind,
        model: Model,
        towards: "Floats",
        query: Query,
        owner: str | None,
        sizes: ScopeSizes | None = None,
    ) -> None:
        dialect = operations.dialect
        self._sizes = ScopeSizes() if sizes is None else sizes
        assert isinstance(dialect, PostgresDialect)  # noqa: S101 - there is no other here
        self._operations, self._dialect = operations, dialect
        self._kind, self._model, self._towards = kind, model, towards
        self._query, self._owner = query, owner
        self._limit = min(query.limit, MAX_LIMIT)
        self.is_large = False
        """Whether an index is to be asked, by `walk`, what `find` did not."""
        self.waits = True
        """Whether what waits is to be indexed first: some vectors may be of what an item was."""
        self.is_behind = False
        """Whether something waits, so that nothing was looked for."""

    def find(self) -> Steps[list[tuple[Sequence[Any], float]] | None]:
        """Return rows and cosines, nearest first; `None` if the model is no longer there."""
        compiled = yield from self._operations.compile(self._query)
        where = " AND ".join([*compiled.scope, *compiled.rest])
        if self._kind.is_vector and self._limit and self._sizes.is_small(where, compiled.args):
            rows = yield self._exact(compiled, where)
            if rows:
                return self._checked(rows)
        return (yield from self._find_counted(compiled, where))

    def _find_counted(
        self, compiled: Filter, where: str
    ) -> Steps[list[tuple[Sequence[Any], float]] | None]:
        """Find what is near by what is best for as many items as there are."""
        args = Args(self._dialect, compiled.args)
        number = args.bind(self._model.key)
        owner = None if self._owner is None else args.bind(self._owner)
        ((is_there, is_behind, size),) = yield Statement(
            f"SELECT EXISTS (SELECT 1 FROM memory_models WHERE number = {number}),"
            f" {is_pending(owner)}, (SELECT count(*) FROM (SELECT 1 FROM memory_items"
            f" WHERE {where} LIMIT {FEW + 1}) AS counted)",
            args,
        )
        self.is_behind = self.waits and is_behind
        if not is_there:
            return None
        if self.is_behind or not self._limit or not size:
            return []
        self._sizes.note(where, compiled.args, size)
        if not self._kind.is_vector:
            return (yield from self._compare_here(compiled, where))
        # Of so many an index would not be quicker.
        self.is_large = (
            size > FEW
            and self._limit * SPARE <= 1000
            and self._kind.near(self._model.dimension) is not None
        )
        if self.is_large:
            return []
        rows = yield self._exact(compiled, where)
        if not rows and not (yield from has_model(self._model)):
            return None
        return self._checked(rows)

    def _checked(self, rows: Rows) -> list[tuple[Sequence[Any], float]] | None:
        """Return rows of `_exact`, unless the model is gone, or something waits."""
        if any(not row[len(READ)] for row in rows[:1]):
            return None
        self.is_behind = self.waits and any(row[len(READ) + 1] for row in rows[:1])
        return [] if self.is_behind else [(row[: len(READ)], row[-1]) for row in rows]

    def walk(self) -> Steps[list[tuple[Sequence[Any], float]] | None]:
        """Ask the index; the settings that this needs last until the transaction ends."""
        compiled = yield from self._operations.compile(self._query)
        where = " AND ".join([*compiled.scope, *compiled.rest])
        rows = yield from self._walk(compiled, where)
        if len(rows) < self._limit:
            rows = yield self._exact(compiled, where)
        if len(rows) < self._limit and not (yield from has_model(self._model)):
            return None
        return [(row[: len(READ)], row[-1]) for row in rows]

    def _cosine(self, to: str) -> str:
        return f"1 - ({self._kind.vector(self._model.dimension)} <=> {to})"

    def _bound(self, args: Args) -> str:
        # As a subquery it is read once, and not for every row once the plan is kept.
        return f"(SELECT {args.bind(written(self._towards, self._kind))}::text::vector)"

    def _own(self, args: Args) -> str:
        return "" if self._owner is None else f" AND user_key = {args.bind(self._owner)}"

    def _cut(self, table: str, args: Args) -> str:
        return "" if self._owner is None else self._dialect.cut(table, args, self._owner)

    def _exact(self, compiled: Filter, where: str) -> Statement:
        """Compare every vector of the scope, and look whether all that is asked is there."""
        args = Args(self._dialect, compiled.args)
        owner = None if self._owner is None else args.bind(self._owner)
        number = self._model.key
        is_there = f"EXISTS (SELECT 1 FROM memory_models WHERE number = {number})"
        looks = f"{is_there}, {is_pending(owner)}, "
        cosine = self._cosine(self._bound(args))
        own = self._cut("v", args)
        # Item by item, fenced off by OFFSET: of a user who is new, statistics know nothing, and a
        # plan for no rows takes forever for thousands.
        near = (
            f"SELECT m.user_key, m.id, max({cosine}) AS cosine FROM (SELECT id,"
            f" {self._dialect.owner} AS user_key FROM memory_items WHERE {where} OFFSET 0) AS m,"
            " LATERAL (SELECT embedding FROM memory_vectors AS v WHERE v.user_key = m.user_key"
            f" AND v.id = m.id AND v.model = {self._model.key}{own} OFFSET 0) AS v"
            " GROUP BY m.user_key, m.id"
        )
        return self._ranked(near, where, args, looks)

    def _walk(self, compiled: Filter, where: str) -> Steps[Rows]:
        """Walk the index from the nearest vector on, until enough of them are in the scope."""
        wanted = self._limit * SPARE
        # Of the walk only the order is approximate; it is ranked by what the vectors say.
        yield Statement(
            "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),"
            " set_config('hnsw.ef_search', $1, true), set_config('enable_seqscan', 'off', true),"
            " set_config('enable_sort', 'off', true)",
            [f"{min(1000, max(BREADTH, 2 * wanted))}"],
        )
        args = Args(self._dialect, compiled.args)
        to = self._bound(args)
        near = self._kind.near(self._model.dimension)
        assert near is not None  # noqa: S101 - see `find`
        is_item = self._dialect.is_item("v.owner", "v.item", "i") + self._cut("i", args)
        hits = (
            "SELECT owner, item, embedding FROM (SELECT user_key AS owner, id AS item, embedding"
            f" FROM memory_vectors WHERE model = {self._model.key}{self._own(args)}) AS v,"
            f" LATERAL (SELECT * FROM memory_items AS i WHERE {is_item} OFFSET 0) AS memory_items"
            f" WHERE {where} ORDER BY {near} <=> {to} LIMIT {wanted}"
        )
        near = (
            f"SELECT owner AS user_key, item AS id, max({self._cosine(to)}) AS cosine"
            f" FROM ({hits}) AS hits GROUP BY owner, item"
        )
        return (yield self._ranked(near, where, args))

    def _ranked(self, near: str, where: str, args: Args, looks: str = "") -> Statement:
        rows = self._dialect.rows_of("b", args, self._owner)
        return Statement(
            f"WITH near AS MATERIALIZED ({near}), best AS MATERIALIZED (SELECT * FROM near"
            f" ORDER BY cosine DESC FETCH FIRST {self._limit} ROWS WITH TIES)"
            f" SELECT {self._dialect.columns}, {looks}cosine FROM (SELECT m.*, cosine"
            f" FROM best AS b, {rows} AS m) AS memory_items"
            f" WHERE {where} ORDER BY cosine DESC, created_at DESC, seq DESC LIMIT {self._limit}",
            args,
        )

    # Without pgvector

    def _compare_here(
        self, compiled: Filter, where: str
    ) -> Steps[list[tuple[Sequence[Any], float]] | None]:
        """Read every vector of the scope and compare it in this process."""
        import numpy as np  # noqa: PLC0415 - nobody needs it before there are vectors

        from orbiter.memory.backends.vector.top_k import product  # noqa: PLC0415 - needs numpy

        best: dict[tuple[str, str], tuple[float, Any, int]] = {}
        last: tuple[str, str, int] = ("", "", -1)
        while True:
            args = Args(self._dialect, compiled.args)
            after = ", ".join(args.bind(value) for value in last)
            rows = yield Statement(
                f"SELECT user_key, id, passage, created_at, seq, embedding FROM (SELECT id,"
                f" {self._dialect.owner} AS user_key, created_at, seq FROM memory_items"
                f" WHERE {where}) AS m JOIN memory_vectors USING (user_key, id)"
                f" WHERE model = {self._model.key} AND (user_key, id, passage) > ({after})"
                f" ORDER BY user_key, id, passage LIMIT {CHUNK}",
                args,
            )
            if not rows:
                break
            matrix = np.frombuffer(b"".join(row[5] for row in rows), "<f4")
            cosines = product(matrix.reshape(len(rows), -1), self._towards)
            for row, cosine in zip(rows, cosines.tolist(), strict=True):
                key = (row[0], row[1])
                if key not in best or cosine > best[key][0]:
                    best[key] = (cosine, row[3], row[4])
            last = (rows[-1][0], rows[-1][1], rows[-1][2])
        if not (yield from has_model(self._model)):
            return None
        ranked = sorted(best, key=best.__getitem__, reverse=True)[: self._limit]
        return (yield from self._rows({key[1]: best[key][0] for key in ranked}, ranked))

    def _rows(
        self, cosines: dict[str, float], keys: Sequence[tuple[str, str]]
    ) -> Steps[list[tuple[Sequence[Any], float]]]:
        rows = yield Statement(
            f"SELECT {self._dialect.columns} FROM (SELECT m.* FROM unnest($1::text[], $2::text[])"
            f" AS b (user_key, id) JOIN memory_items AS m ON {self._dialect.beside('b', 'm')})"
            f" AS memory_items WHERE deleted = 0 AND {self._dialect.not_expired()}",
            columns(keys, 2),
        )
        by_id = {row[0]: row for row in rows}
        return [(by_id[name], cosine) for name, cosine in cosines.items() if name in by_id]


def similarities(
    dialect: PostgresDialect, kind: Kind, model: Model, towards: "Floats", item_ids: Sequence[str]
) -> Steps[dict[str, float] | None]:
    """Return the cosine of each item that has vectors; `None` if the model is not there."""
    value = "embedding"
    args: list[Any] = [list(item_ids)]
    if kind.is_vector:
        value = f"1 - ({kind.vector(model.dimension)} <=> (SELECT $2::text::vector))"
        args.append(written(towards, kind))
    cosines: dict[str, float] = {}
    is_sure = True
    for part in parts(item_ids):
        # A vector of what the item was before it changed does not count.
        rows = yield Statement(
            f"SELECT id, {value} FROM (SELECT id, {dialect.owner} AS user_key"
            f" FROM {dialect.everything} WHERE id = ANY($1::text[]) AND deleted = 0"
            f" AND {dialect.not_expired()}) AS m"
            f" JOIN memory_vectors USING (user_key, id) WHERE model = {model.key}"
            f" AND EXISTS (SELECT 1 FROM memory_models WHERE number = {model.key})"
            " AND NOT EXISTS (SELECT 1 FROM memory_pending AS p"
            " WHERE p.user_key = m.user_key AND p.id = m.id)",
            [list(part), *args[1:]],
        )
        is_sure = is_sure and bool(rows)
        for item_id, near in rows:
            cosine = near if kind.is_vector else _product(near, towards)
            cosines[item_id] = max(cosine, cosines.get(item_id, cosine))
    return cosines if is_sure or (yield from has_model(model)) else None


class Cosines:
    """The cosines of items that a statement finds, in that same statement."""

    def __init__(self, kind: Kind, model: Model, query: CosineQuery) -> None:
        self._kind, self.model, self.query = kind, model, query
        self._towards = check_vector(query.vector, model.dimension)

    def statement(self, dialect: PostgresDialect, items: str, args: list[Any]) -> str:
        """Return what selects the id and the value of each item that *items* selects, or others.

        What is bound is added to *args*. Each item is looked up by its key, fenced off by OFFSET:
        no plan reads the whole table.
        """
        args += [list(self.query.others), list(self.query.known)]
        others, known = len(args) - 1, len(args)
        value = "array_agg(v.embedding)"
        if self._kind.is_vector:
            args.append(written(self._towards, self._kind))
            cosine = f"1 - ({self._kind.vector(self.model.dimension)} <=> "
            value = f"max({cosine}(SELECT ${len(args)}::text::vector)))"
        return (
            f"SELECT w.id, {value} AS value FROM (SELECT user_key, id FROM ({items} UNION"
            f" SELECT {dialect.owner} AS user_key, id FROM {dialect.everything}"
            f" WHERE id = ANY(${others}::text[]) AND deleted = 0 AND {dialect.not_expired()})"
            f" AS w WHERE NOT EXISTS (SELECT 1 FROM unnest(${known}::text[]) AS k (id)"
            " WHERE k.id = w.id) AND NOT EXISTS (SELECT 1 FROM memory_pending AS p"
            " WHERE p.user_key = w.user_key AND p.id = w.id) OFFSET 0) AS w,"
            " LATERAL (SELECT embedding FROM memory_vectors AS v WHERE v.user_key = w.user_key"
            f" AND v.id = w.id AND v.model = {self.model.key} OFFSET 0) AS v"
            f" WHERE EXISTS (SELECT 1 FROM memory_models WHERE number = {self.model.key})"
            " GROUP BY w.id"
        )

    def read(self, rows: Iterable[tuple[str, Any]]) -> dict[str, float]:
        """Return the cosine of each item from what was selected."""
        if self._kind.is_vector:
            return dict(rows)
        return {
            item_id: max(_product(vector, self._towards) for vector in vectors)
            for item_id, vectors in rows
        }


def has_model(model: Model) -> Steps[bool]:
    """Tell whether what was read before was all: the vectors of a model go after the model."""
    rows = yield Statement("SELECT 1 FROM memory_models WHERE number = $1", [model.key])
    return bool(rows)


def parts(item_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (item_ids[at : at + CHUNK] for at in range(0, len(item_ids), CHUNK))


def _product(stored: bytes, towards: "Floats") -> float:
    import numpy as np  # noqa: PLC0415 - nobody needs it before there are vectors

    return float(np.frombuffer(stored, "<f4") @ towards)


def read_vectors(
    dialect: PostgresDialect, kind: Kind, model: Model, item_ids: Sequence[str]
) -> Steps[dict[str, bytes] | None]:
    """Return the vectors of each item that has any; `None` if the model is not there."""
    # As pgvector sends them: as bytes they are read many times as fast as text or numbers.
    value = "vector_send(embedding)" if kind.is_vector else "embedding"
    vectors: dict[str, bytes] = {}
    for part in parts(item_ids):
        rows = yield Statement(
            f"SELECT id, {value} FROM (SELECT id, {dialect.owner} AS user_key"
            f" FROM {dialect.everything} WHERE id = ANY($1::text[]) AND deleted = 0"
            f" AND {dialect.not_expired()}) AS m"
            f" JOIN memory_vectors USING (user_key, id) WHERE model = {model.key}"
            " AND NOT EXISTS (SELECT 1 FROM memory_pending AS p"
            " WHERE p.user_key = m.user_key AND p.id = m.id) ORDER BY id, passage",
            [list(part)],
        )
        for item_id, sent in rows:
            vector = _received(sent, model.dimension) if kind.is_vector else sent
            vectors[item_id] = vectors.get(item_id, b"") + vector
    return vectors if (yield from has_model(model)) else None


def _received(sent: bytes, dimension: int) -> bytes:
    """Return a vector as pgvector sends it: big-endian, after its length, with zeros behind."""
    numbers = array("f", sent[4 : 4 + 4 * dimension])
    numbers.byteswap()
    return numbers.tobytes()


def read_details(
    dialect: PostgresDialect, model: Model, item_ids: Sequence[str]
) -> Steps[dict[str, list[bytes]] | None]:
    """Return the details of each item that has them; `None` if the model is not there."""
    # Item by item, fenced off by OFFSET: no plan reads the whole table. What an item was before it
    # changed does not count.
    rows = yield Statement(
        f"SELECT m.id, d.details FROM (SELECT id, {dialect.owner} AS user_key"
        f" FROM {dialect.everything} WHERE id = ANY($1::text[]) AND deleted = 0"
        f" AND {dialect.not_expired()} OFFSET 0) AS m,"
        " LATERAL (SELECT passage, details FROM memory_details AS d WHERE d.user_key = m.user_key"
        f" AND d.id = m.id AND d.model = $2 AND d.passage <> {NO_VECTORS} OFFSET 0) AS d"
        " WHERE EXISTS (SELECT 1 FROM memory_models WHERE number = $2)"
        " AND NOT EXISTS (SELECT 1 FROM memory_pending AS p"
        " WHERE p.user_key = m.user_key AND p.id = m.id) ORDER BY m.id, d.passage",
        [list(item_ids), model.key],
    )
    if not rows:
        there = yield Statement("SELECT 1 FROM memory_models WHERE number = $1", [model.key])
        return {} if there else None
    by_item: dict[str, list[bytes]] = {}
    for item_id, details in rows:
        by_item.setdefault(item_id, []).append(details)
    return by_item
