"""`PostgresRecall`: the SQL behind `SQLRecall` on Postgres."""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TypeVar

from orbiter.memory.backends.postgres import (
    embedding,
    maintenance,
    models,
    schema,
    term_index,
    term_search,
    vectors,
)
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.replicas import PostgresRunner
from orbiter.memory.backends.postgres.where import is_expired
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.backends.sql.embedder import Embedded, Model, PendingItem
from orbiter.memory.backends.sql.neighbours import merge
from orbiter.memory.backends.sql.recall import SQLRecall, check_vector
from orbiter.memory.backends.sql.rows import READ, decode_all
from orbiter.memory.errors import AccessError, MemoryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import CosineQuery, Query, check_instant
from orbiter.memory.tasks.read_from import may_read_replica, reading_from

__all__ = [
    "PATIENCE",
    "PROMPTLY",
    "SWEEP_EVERY",
    "SWEPT",
    "WALK",
    "PostgresRecall",
    "around",
]

_T = TypeVar("_T")

WALK = 20_000
"""Items put among those that wait for a model at a time."""

SWEPT = 500
"""Items that are removed at a time because they are over."""

SWEEP_EVERY = 60.0
"""Seconds after which a process that writes removes some of them."""

PROMPTLY = 1.0
"""Seconds that closing a store may take to leave to others what it was embedding."""

PATIENCE = 0.25
"""Seconds between two looks at items that another process is embedding."""


class PostgresRecall(PostgresRunner, SQLRecall):
    """The part of the store that finds by words, by meaning, and around an item."""

    _layout: schema.Layout
    _dialect: PostgresDialect
    _principal: str | None
    _kind = models.Kind()

    def _begin_recall(self) -> None:
        self._swept = monotonic()
        self._taker = secrets.token_hex(8)
        self._has_taken = False
        self._walked: set[int] = set()
        self._sizes = vectors.ScopeSizes()

    def _owner(self, query: Query | None) -> str | None:
        """Return whose items are asked for, if they are one user's."""
        if query is not None and "user_id" in query.wanted:
            return query.wanted["user_id"]
        return self._principal

    # Words

    async def _index_words(self, query: Query | None = None) -> None:
        with reading_from("primary"):  # a replica cannot, and the primary knows what waits
            await self._index_words_of(self._owner(query))

    async def _index_words_of(self, owner: str | None) -> None:
        dialect = self._dialect
        while rows := await self._read(lambda: term_index.pending(dialect, owner)):
            if len(rows) < 8:
                seen = term_index.derive(rows)
            else:
                seen = await asyncio.to_thread(term_index.derive, rows)
            is_all = await self._together(lambda: term_index.settle(dialect, seen))  # noqa: B023
            if is_all and len(rows) < term_index.CHUNK:
                return

    async def _index_own(self, query: Query) -> None:
        """Before a replica is asked: have what this process wrote indexed by the primary."""
        replicas = self._replicas if may_read_replica() else None
        if replicas is not None and replicas.is_to_index(self._owner(query)):
            await self._index_words(query)

    async def _match_words(
        self, terms: Sequence[str], query: Query
    ) -> tuple[list[MemoryItem], dict[str, int], int]:
        owner, held = self._owner(query), self._layout.is_held
        done: list[term_search.Unfinished] = []
        look, writes = self._look(), self._writes

        def ask() -> Steps[tuple[Rows, dict[str, int], int] | term_search.Unfinished]:
            return term_search.match(
                self._operations, terms, query, owner, held=held, done=done, look=look
            )

        await self._index_own(query)
        while isinstance(answer := await self._read(ask), str):
            done.append(answer)
            if answer == "indexing":
                await self._index_words(query)
                continue
            with suppress(MemoryError):  # else what is over is counted, but not found
                await self.sweep()
        if look is not None:
            self._saw_waiting(look.waiting, writes=writes)
        rows, frequency, passages = answer
        return await decode_all(rows), frequency, passages

    async def sweep(self) -> int:
        """Remove items that are over for good, with their history; return how many.

        It need not be called: nobody finds them, and stores that write remove them now and then.
        Under row-level security a store removes what it sees.
        """
        removed = 0
        while some := await self._together(lambda: self._dialect.sweep(SWEPT)):
            removed += some
        self._swept = monotonic()
        return removed

    async def count_removable(self, *, deleted_before: datetime | None = None) -> tuple[int, int]:
        """Return how many items `sweep` would remove, and how many `purge(deleted_before=…)`."""
        if deleted_before is not None:
            deleted_before = check_instant("deleted_before", deleted_before)
        expired = f"SELECT 1 FROM memory_items WHERE {is_expired()}"
        return await self._read(lambda: self._operations.count_removable(expired, deleted_before))

    async def _sweep_now_and_then(self) -> None:
        if monotonic() - self._swept < SWEEP_EVERY:
            return
        self._swept = monotonic()
        with suppress(MemoryError):  # what was asked for is done
            await self._together(lambda: self._dialect.sweep(SWEPT))

    # Models

    async def _start_embedding(self) -> None:
        if self._embeddings is not None:
            # Of processes that open an empty store at once, one registers its model.
            await self._register(self._embeddings.name, self._embeddings.dimension, rebuild=False)
        await super()._start_embedding()

    async def _register(self, name: str, dimension: int, *, rebuild: bool) -> None:
        known = await self._models()
        if known and not rebuild:
            return
        pool = self._opened()
        await self._driver.retry(
            lambda: models.register(
                self._driver, pool, self._layout, (name, dimension), rebuild=rebuild
            )
        )

    async def _models(self) -> list[Model]:
        known, self._kind = await self._read(models.models)
        return known

    async def _missing_extension(self) -> str | None:
        model = self._embeddings
        if model is None or model.dimension > models.LONGEST_VECTOR:
            return None
        await self._models()
        return None if self._kind.is_vector else "vector"

    async def _begin_model(self, name: str, dimension: int) -> Model:
        if self._layout.is_held:
            raise AccessError(
                f"{self!r} does not see everybody's items; embed them again as a role that "
                "bypasses row-level security"
            )
        await self._register(name, dimension, rebuild=True)
        known = await self._models()
        return next(
            model
            for model in known
            if (model.name, model.dimension) == (name, dimension)
            and (not model.is_current or len(known) == 1)
        )

    async def _finish_model(self, model: Model) -> None:
        pool = self._opened()
        await self._driver.retry(lambda: models.take_over(self._driver, pool, model.key))
        await self._drop_left_behind()

    async def _drop_left_behind(self) -> None:
        async def attempt() -> None:
            async with self._driver.lease(self._opened()) as connection:
                for script in models.LEFT_BEHIND:
                    await connection.execute(script)  # takes as long as it takes

        await self._driver.retry(attempt)

    # Vectors

    async def _take_waiting(self, model: Model, count: int) -> list[PendingItem] | None:
        while True:
            await self._queue(model)
            self._has_taken = True
            with reading_from("primary"):  # it writes who has taken them
                taken = await self._read(
                    lambda: embedding.take(
                        self._dialect, model, count, self._taker, embedding.LEASE
                    )
                )
            self._has_taken = taken is not None and bool(taken[0])
            if taken is None:
                return None
            items, is_left = taken
            if items or not is_left:
                return items
            await asyncio.sleep(PATIENCE)

    async def _queue(self, model: Model) -> None:
        """Have every item that needs a vector wait for it."""
        await self._index_words()
        while model.key not in self._walked:
            rows = await self._together(lambda: _walk(model))
            if not rows or not rows[0][0]:
                self._walked.add(model.key)

    async def _keep_vectors(
        self, model: Model, done: Sequence[tuple[PendingItem, Embedded | None]]
    ) -> None:
        if done:
            await self._together(lambda: embedding.keep(self._dialect, self._kind, model, done))
        self._has_taken = False

    async def _count_waiting(self, model: Model) -> int | None:
        return (await self._read(lambda: embedding.count(self._dialect, model)))[0]

    def _look(self) -> term_search.Look | None:
        if self._model is None:
            return None
        waiting = embedding.waiting(self._dialect, self._model)
        return term_search.Look(
            "SELECT waiting + is_behind::int + (NOT is_there)::int"
            f" FROM ({waiting}) AS look (waiting, is_there, is_behind)"
        )

    async def _what_waits(self) -> tuple[int, bool]:
        model = self._model
        if model is None:
            return 0, True
        waiting, are_words_due = await self._read(lambda: embedding.count(self._dialect, model))
        return await self._unembedded() if waiting is None else waiting, are_words_due

    def _wrote(self, *, is_news: bool = True) -> None:
        super()._wrote(is_news=is_news)
        embedder = self._embedder
        if self._principal is None or embedder is None:
            return
        task = embedder._task  # noqa: SLF001 - a part of the store
        if task is not None and not task.done():
            # Whoever acts for a user does so for one call, and may be gone before it is embedded.
            task.add_done_callback(partial(_let_go, self))

    async def _stop_embedding(self) -> None:
        await super()._stop_embedding()
        if self._has_taken:  # it was stopped halfway
            self._has_taken = False
            # A server that does not answer must not hold up whoever closes: others then only wait
            # until what was taken may be taken again.
            with suppress(MemoryError, *self._driver.failures):
                async with (
                    asyncio.timeout(PROMPTLY),
                    self._driver.lease(self._opened()) as connection,
                ):
                    await self._driver.run_in_transaction(
                        connection, embedding.give_back(self._taker), principal=self._acts_for
                    )

    async def _nearest(
        self, model: Model, vector: Sequence[float], query: Query
    ) -> list[tuple[MemoryItem, float]] | None:
        towards = check_vector(vector, model.dimension)
        question = vectors.Nearest(
            self._operations, self._kind, model, towards, query, self._owner(query), self._sizes
        )
        await self._index_own(query)
        near = await self._read(question.find)
        if question.is_behind:
            question.waits = False
            await self._index_words(query)  # what has changed is no longer as near as it was
            near = await self._read(question.find)
        if question.is_large:
            near = await self._together(question.walk, writes=False)
        if near is None:
            return None
        items = await decode_all([row for row, _ in near])
        return [(item, cosine) for item, (_, cosine) in zip(items, near, strict=True)]

    async def _similarities(
        self, model: Model, vector: Sequence[float], item_ids: Sequence[str]
    ) -> dict[str, float] | None:
        towards = check_vector(vector, model.dimension)
        return await self._read(
            lambda: vectors.similarities(self._dialect, self._kind, model, towards, item_ids)
        )

    async def _vectors(self, model: Model, item_ids: Sequence[str]) -> dict[str, bytes] | None:
        return await self._read(
            lambda: vectors.read_vectors(self._dialect, self._kind, model, item_ids)
        )

    async def _details(
        self, model: Model, item_ids: Sequence[str]
    ) -> dict[str, list[bytes]] | None:
        return await self._read(lambda: vectors.read_details(self._dialect, model, item_ids))

    # Looking after it

    async def _lost_vectors(self, *, repair: bool) -> list[str]:
        """Tell whether the table of vectors is lost; with *repair*, make it again."""
        if await self._read(lambda: models.has_vectors(self._layout)):
            return []
        if not repair:
            return ["the table `memory_vectors`, or a part of it, is missing"]
        pool, embedder = self._opened(), self._embedder
        if embedder is not None:
            await embedder.hold()  # it has failed without the table, and would rest
        try:
            await self._driver.retry(
                lambda: models.make_lost_vectors(self._driver, pool, self._layout)
            )
            await self._models()  # vectors may be kept in another way now
        finally:
            if embedder is not None:
                embedder.release()
        return []

    async def _check_derived(self, *, repair: bool) -> list[str]:
        """Return what is wrong with terms and vectors; with *repair*, have them rebuilt."""
        await self._index_words()
        wrong: list[maintenance.Wrong] = await self._read(
            lambda: maintenance.orphans(self._dialect)
        )
        last = ""
        while rows := await self._read(
            lambda: maintenance.some_items(self._dialect, self._kind, last)  # noqa: B023
        ):
            wrong += await asyncio.to_thread(maintenance.compare, rows)
            last = rows[-1][1]
        if repair:
            await self._together(lambda: maintenance.rebuild(wrong))
            await self._together(maintenance.recount)
            await self._index_words()
            self._wrote()
            return []
        counts = await self._read(maintenance.miscounts)
        return [f"item `{item_id}` {what}" for _, item_id, what in wrong] + [
            f"the terms of user `{owner}` are counted wrongly" for (owner,) in counts
        ]

    # Conversations

    async def _around(
        self, item_ids: Sequence[str], span: int, scored: tuple[Model, CosineQuery] | None = None
    ) -> tuple[list[list[MemoryItem]], dict[str, float]] | None:
        if not item_ids and (scored is None or not scored[1].others):
            self._opened()  # a closed store says so
            return [], {}
        near = None if scored is None else vectors.Cosines(self._kind, *scored)
        both = await self._read(lambda: around(self._dialect, item_ids, span, near))
        if both is None:
            return None
        stretches, cosines = both
        items = iter(await decode_all([row[: len(READ)] for rows in stretches for row in rows]))
        return [[next(items) for _ in rows] for rows in stretches], cosines


def _let_go(_: object, __: object) -> None:
    """Stand for a reference that lasts as long as a task."""


def _walk(model: Model) -> Steps[Rows]:
    return (yield Statement(models.WALK, [model.key, WALK]))


def around(
    dialect: PostgresDialect,
    item_ids: Sequence[str],
    span: int,
    near: vectors.Cosines | None = None,
) -> Steps[tuple[list[Rows], dict[str, float]] | None]:
    """Return each item's row with *span* before and after it, overlaps made one, in order.

    The cosines that *near* asks for come with them; `None` if its model is not there.
    """
    args: list[object] = [list(item_ids), span]
    sql = f"SELECT * FROM ({_stretches(dialect)}) AS around ORDER BY n"
    if near is not None:
        sql = (
            f"WITH around AS MATERIALIZED ({_stretches(dialect)}), near AS"
            f" ({near.statement(dialect, 'SELECT user_key, id FROM around', args)})"
            " SELECT around.*, near.id, near.value"
            " FROM around FULL JOIN near ON near.id = around.id ORDER BY n"
        )
    rows = yield Statement(sql, args)
    stretches: dict[int, list[Sequence[object]]] = {}
    for row in rows:
        if row[0] is not None:
            stretches.setdefault(row[0], []).append(tuple(row)[2 : len(READ) + 3])
    cosines: dict[str, float] = {}
    if near is not None:
        cosines = near.read((row[-2], row[-1]) for row in rows if row[-2] is not None)
        ids = near.query.unknown(str(row[0]) for some in stretches.values() for row in some)
        if ids and not cosines and not (yield from vectors.has_model(near.model)):
            return None
    return merge(list(stretches.values())), cosines


def _stretches(dialect: PostgresDialect) -> str:
    """Return what reads the rows of stretches: which item's each is, whose, and its columns."""
    columns = f"{dialect.columns}, {dialect.place}"
    sides = [f"SELECT {columns} FROM memory_items AS m WHERE {dialect.beside('h', 'm')}"]
    for sign, way in (("<", "DESC"), (">", "ASC")):
        # Four ways to be one conversation: with and without a user, with and without a session.
        # Each is an index of its own, and only one of them is read.
        sides += [
            f"(SELECT {columns} FROM memory_items AS m WHERE {condition} AND m.deleted = 0"
            f" AND {dialect.not_expired('m')} AND {_beyond(sign, is_talk)}"
            f" ORDER BY {_order(way, is_talk)} LIMIT $2)"
            for condition, is_talk in _ways(dialect)
        ]
    return (
        f"SELECT h.n, h.user_key, around.* FROM (SELECT n, id, {dialect.owner} AS user_key,"
        " metadata->>'user_id' AS user_id, metadata->>'session_id' AS session_id, created_at, seq"
        f" FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, n)"
        f" JOIN {dialect.everything} USING (id)"
        f" WHERE deleted = 0 AND {dialect.not_expired()}) AS h,"
        f" LATERAL ({' UNION ALL '.join(sides)}) AS around"
    )


def _beyond(sign: str, is_talk: bool) -> str:  # noqa: FBT001
    if is_talk:
        return f"m.seq {sign} h.seq"
    return (
        f"m.created_at {sign}= h.created_at AND (m.created_at, m.seq) {sign} (h.created_at, h.seq)"
    )


def _order(way: str, is_talk: bool) -> str:  # noqa: FBT001
    # By the user first, as the index is: that there is none does not tell it to the planner.
    first = "m.metadata->>'user_id'" if is_talk else "m.created_at"
    return f"{first} {way}, m.seq {way}"


def _ways(dialect: PostgresDialect) -> list[tuple[str, bool]]:
    """Return the ways in which `h` and `m` can be of one conversation, of which one applies.

    Each is a condition, and whether there is a session.
    """
    cut = "m.user_key = h.user_key AND " if dialect.owner == "user_key" else ""
    ways: list[tuple[str, bool]] = []
    for user in (True, False):
        for session in (True, False):
            same = [
                f"m.metadata->>'{name}' = h.{name}"
                if is_set
                else f"h.{name} IS NULL AND m.metadata->>'{name}' IS NULL"
                for name, is_set in (("user_id", user), ("session_id", session))
            ]
            ways.append((cut + " AND ".join(same), session))
    return ways
