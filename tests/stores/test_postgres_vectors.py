"""Vectors in Postgres: with pgvector and without, who makes them, and of which model."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres_recall import (
    EMBEDDINGS,
    Renamed,
    item,
    near,
    of,
    role_dsn,
    run,
    store,
    texts,
)
from tests.timing import HANG, until

from orbiter.memory import MemoryItem, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.backends.postgres import embedding, models, vectors
from orbiter.memory.backends.sql import embedder
from orbiter.memory.backends.sql.dialect import Statement
from orbiter.memory.backends.sql.embedder import Embedded
from orbiter.memory.errors import EmbeddingsMismatchError
from orbiter.memory.model.query import Query
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.text import words

__all__ = ["role_dsn", "store"]

# Vectors


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def expect_nearest(store: PostgresMemoryStore, items: Sequence[MemoryItem]) -> None:
    for text in texts(4, seed=9):
        for asked in (of("ann", 5), of("bob", 100), of("ann", 8, until=items[-20].created_at)):
            found = await store.nearest(near(text), asked)

            wanted = sorted(
                (cosine(near(text), near(each.content)) for each in items if asked.matches(each)),
                reverse=True,
            )
            assert [near for _, near in found] == pytest.approx(wanted[: asked.limit], abs=1e-5)
            ids = [each.id for each, _ in found]
            alone = await store.similarities(near(text), ids)
            assert [alone[name] for name in ids] == pytest.approx(
                [near for _, near in found], abs=1e-6
            )


@pytest.mark.parametrize("few", [0, 4000], ids=["by index", "one by one"])
async def test_nearest_is_exact_with_pgvector(
    store: PostgresMemoryStore, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(vectors, "FEW", few)
    items = [item(f"i{n}", text, "ann" if n % 3 else "bob") for n, text in enumerate(texts(120))]
    await store.add_many(items)

    assert await store.catch_up() == 0
    assert store._kind.is_vector

    await expect_nearest(store, items)


async def test_nearest_is_exact_without_pgvector(
    postgres_dsn: str, role_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "CHUNK", 50)
    items = [item(f"i{n}", text, "ann" if n % 3 else "bob") for n, text in enumerate(texts(120))]

    async with PostgresMemoryStore(role_dsn, embeddings=EMBEDDINGS) as store:
        await store.add_many(items)
        assert await store.catch_up() == 0

        assert not store._kind.is_vector
        await expect_nearest(store, items)
    extensions = await run(postgres_dsn, "SELECT extname FROM pg_extension")
    assert ("vector",) not in extensions


async def idle(store: PostgresMemoryStore) -> None:
    """Stop embedding in the background."""
    assert store._embedder is not None
    await store._embedder.close()


async def explained(store: PostgresMemoryStore, dsn: str, asked: Query) -> str:
    """Return the plans of all statements by which `nearest` answers."""
    model = store._model
    assert model is not None
    towards = vectors_of("number 3")
    question = vectors.Nearest(
        store._operations, store._kind, model, towards, asked, asked.wanted.get("user_id")
    )
    lines: list[str] = []
    connection = await asyncpg.connect(dsn)
    for steps in (question.find, question.walk):
        if steps == question.walk and not question.is_large:
            break
        async with connection.transaction():
            lines += await _plans(connection, steps)
    await connection.close()
    return "\n".join(lines)


async def _plans(connection: Any, make: Callable[[], Any]) -> list[str]:
    lines: list[str] = []
    steps = make()
    try:
        statement: Statement = next(steps)
        while True:
            plan = await connection.fetch(f"EXPLAIN {statement.sql}", *statement.args)
            lines += [row[0] for row in plan]
            rows = await connection.fetch(statement.sql, *statement.args)
            statement = steps.send(rows)
    except StopIteration:
        return lines


def vectors_of(text: str) -> Any:
    from orbiter.memory.backends.vector.normalize import direction  # noqa: PLC0415 - an extra

    return direction(near(text), EMBEDDINGS.dimension)


async def test_an_index_is_walked_for_many_items_and_few_are_compared(
    store: PostgresMemoryStore, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "FEW", 50)
    items = [item(f"a{n}", f"number {n}") for n in range(200)]
    items += [item(f"b{n}", f"number {n}", "bob") for n in range(20)]
    await store.add_many(items)
    await store.catch_up()

    large = await explained(store, postgres_dsn, of("ann"))
    small = await explained(store, postgres_dsn, of("bob"))

    # Those of partitions have names that the server made.
    names = ("memory_vectors_near_1", "_embedding_idx")
    assert any(name in large for name in names), large
    assert not any(name in small for name in names), small
    for plan in (large, small):
        assert "Seq Scan on memory_items" not in plan, plan


@pytest.mark.parametrize("few", [0, 4000], ids=["by index", "one by one"])
async def test_a_filter_loses_no_row_to_others_that_are_nearer(
    store: PostgresMemoryStore, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(vectors, "FEW", few)
    crowd = [item(f"b{n}", "harbour at dawn", "bob") for n in range(300)]
    crowd += [item(f"a{n}", "harbour at dawn", "ann", "other") for n in range(300)]
    far = [item(f"f{n}", f"something else {n}") for n in range(3)]
    await store.add_many([*crowd[:150], *far, *crowd[150:]])
    await store.catch_up()

    who = MemoryMetadata(user_id="ann", session_id="s")
    found = await store.nearest(near("harbour at dawn"), Query(metadata=who, limit=3))

    assert {each.id for each, _ in found} == {"f0", "f1", "f2"}


async def test_an_item_counts_by_its_nearest_passage(store: PostgresMemoryStore) -> None:
    filling = ". ".join(texts(60))
    await store.add_many([item("long", f"{filling}. The lost umbrella."), item("short", "nothing")])
    await store.catch_up()

    (first, _) = await store.nearest(near("The lost umbrella."), of("ann"))

    assert first[0].id == "long"
    assert len(words.passages(first[0].content)) > 2


async def test_what_has_changed_is_not_found_by_what_it_was(store: PostgresMemoryStore) -> None:
    await store.add(item("1", "red boat"))
    await store.catch_up()
    await idle(store)

    await store.add(item("1", "blue car"))

    assert await store.similarities(near("red boat"), ["1"]) == {}
    assert await store.nearest(near("red boat"), of("ann")) == []


async def test_vectors_of_a_text_that_changed_meanwhile_are_not_kept(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    await idle(store)
    await store.add_many([item("1", "red boat"), item("2", "gone"), item("3", "same")])
    model = store._model
    assert model is not None
    taken = await store._take_waiting(model, 10) or []
    await store.add(item("1", "blue car"))
    await store.delete("2")

    await store._keep_vectors(
        model,
        [(each, Embedded(vectors_of(each.content)[None], [b"details"])) for each in taken],
    )

    assert len(taken) == 3
    for table in ("memory_vectors", "memory_details"):
        assert await run(postgres_dsn, f"SELECT id FROM {table}") == [("3",)]
    assert await store._count_waiting(model) == 1


async def test_the_dimension_decides_on_the_index() -> None:
    kind = models.Kind(is_vector=True, can_walk=True)

    assert kind.near(2000) == "(embedding::vector(2000))"
    assert kind.near(24) == "(embedding::vector(32))"
    assert kind.near(2001) is None
    assert models.Kind(is_vector=True).near(64) is None


async def test_vectors_too_long_for_an_index_are_compared_one_by_one(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "FEW", 0)
    long = HashEmbeddings(2500)
    async with PostgresMemoryStore(postgres_dsn, embeddings=long) as store:
        await store.add_many([item(f"{n}", f"number {n}") for n in range(40)])
        await store.catch_up()

        found = await store.nearest(long.embed("number 7"), of("ann", 3))

    assert found[0][0].id == "7"
    assert found[0][1] == pytest.approx(1, abs=1e-5)


# Several at work


class Counting(HashEmbeddings):
    """Counts the texts it embeds, and takes a while for them."""

    name = "counting"

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        await asyncio.sleep(0.01)
        return [self.embed(text) for text in texts]


async def test_two_processes_share_the_work(postgres_dsn: str) -> None:
    async with PostgresMemoryStore(postgres_dsn) as plain:
        await plain.add_many([item(f"{n}", f"number {n}") for n in range(500)])
    embeddings = Counting()
    one, other = (PostgresMemoryStore(postgres_dsn, embeddings=embeddings) for _ in "12")

    async with one, other:
        left = await asyncio.gather(one.catch_up(), other.catch_up())

        assert sum(left) == 0
        assert sorted(embeddings.texts) == sorted({*embeddings.texts})
        assert len(embeddings.texts) == 500
        assert len(await one.nearest(embeddings.embed("number"), of("ann", 1000))) == 500


async def test_a_connection_that_drops_while_embedding_loses_nothing(postgres_dsn: str) -> None:
    class Dropping(Counting):
        async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
            await run(
                postgres_dsn,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()",
            )
            return await super().aembed_many(texts)

    async with PostgresMemoryStore(postgres_dsn, embeddings=Dropping()) as store:
        await store.add_many([item(f"{n}", f"number {n}") for n in range(150)])

        assert await store.catch_up() == 0
        assert len(await store.nearest(near("number"), of("ann", 1000))) == 150


async def test_what_was_taken_by_someone_who_is_gone_is_taken_again(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "LEASE", 0.3)
    async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS) as gone:
        await idle(gone)
        await gone.add_many([item(f"{n}", f"number {n}") for n in range(10)])
        assert gone._model is not None
        assert len(await gone._take_waiting(gone._model, 10) or ()) == 10
        gone._has_taken = False  # as if it had been killed

        async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS) as store:
            assert await store.catch_up() == 0


# Models


async def test_items_that_were_there_before_a_model_are_embedded(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.backends.postgres.recall.WALK", 7)
    async with PostgresMemoryStore(postgres_dsn) as plain:
        await plain.add_many([item(f"{n}", f"number {n}", f"u{n % 3}") for n in range(30)])
        await plain.catch_up()
        assert await plain.nearest(near("number"), of("u1")) == []

        async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS) as store:
            await plain.add(item("new", "number new", "u1"))
            assert await store.catch_up() == 0
            assert len(await store.nearest(near("number"), of(None, 100))) == 31


async def test_another_model_is_refused_until_everything_is_embedded_anew(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    await store.add_many([item(f"{n}", f"number {n}") for n in range(70)])
    await store.catch_up()
    new = PostgresMemoryStore(postgres_dsn, embeddings=Renamed(32))
    with pytest.raises(EmbeddingsMismatchError, match=r"HashEmbeddings.*64.*renamed.*32"):
        await new.init()
    seen: list[tuple[int, int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total, 0))

    done = await new.reindex(progress=progress)

    assert done == 70
    assert seen[-1][:2] == (70, 70)
    assert len(await new.nearest(Renamed(32).embed("number"), of("ann", 100))) == 70
    with pytest.raises(EmbeddingsMismatchError):
        await store.nearest(near("number"), of("ann"))
    assert await run(postgres_dsn, "SELECT DISTINCT model FROM memory_vectors") == [(2,)]
    await new.close()


async def test_others_read_the_old_vectors_while_new_ones_are_made(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    await store.add_many([item(f"{n}", f"number {n}") for n in range(200)])
    await store.catch_up()

    class Watching(Renamed):
        found = 0
        fails = True

        async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
            found = await store.nearest(near("number 7"), of("ann", 1))
            assert found[0][1] == pytest.approx(1, abs=1e-5)
            Watching.found += 1
            if Watching.found > 2 and Watching.fails:
                raise ConnectionError("no model today")
            return await super().aembed_many(texts)

    new = PostgresMemoryStore(postgres_dsn, embeddings=Watching())
    with pytest.raises(ConnectionError):
        await new.reindex()
    await new.close()
    (before,) = await run(postgres_dsn, "SELECT count(*) FROM memory_vectors WHERE model = 2")
    Watching.fails = False
    await store.add(item("late", "number late"))

    done = await new.reindex()

    assert 0 < before[0] < 200
    assert done == 201 - before[0]
    assert len(await new.nearest(near("number"), of("ann", 1000))) == 201
    await new.close()


# Damage

_SET = "UPDATE memory_vectors SET embedding ="
_DAMAGE = [
    "DELETE FROM memory_vectors WHERE id = 'long' AND passage = 0",
    "DELETE FROM memory_vectors WHERE id = 'long' AND passage = 1",
    "DELETE FROM memory_vectors WHERE id = 'i3'",
    "DELETE FROM memory_vectors",
]
_LONG = " ".join(texts(60, seed=4))


async def _filled(store: PostgresMemoryStore) -> list[MemoryItem]:
    items = [item(f"i{n}", text, "ann" if n % 3 else "bob") for n, text in enumerate(texts(8))]
    await store.add_many([*items, item("long", _LONG)])
    assert await store.catch_up() == 0
    assert await store.verify()
    assert len(words.passages(_LONG)) > 1
    return [*items, item("long", _LONG)]


async def _all_vectors(store: PostgresMemoryStore) -> dict[str, bytes]:
    return {key: bytes(each) for key, each in (await store.vectors([*_IDS])).items()}


_IDS = ("long", *(f"i{n}" for n in range(8)))


@pytest.mark.parametrize(
    "damage",
    [
        *_DAMAGE,
        f"{_SET} array_fill(0, ARRAY[64])::vector WHERE id = 'i2'",
        "UPDATE memory_vectors SET embedding = embedding + embedding WHERE id = 'i2'",
    ],
)
async def test_lost_and_damaged_vectors_are_found_and_made_again(
    store: PostgresMemoryStore, postgres_dsn: str, damage: str
) -> None:
    await _filled(store)

    await _check_repaired(store, postgres_dsn, damage)


@pytest.mark.parametrize(
    "damage",
    [
        *_DAMAGE,
        "UPDATE memory_vectors SET embedding = 'four' WHERE id = 'i2'",
        f"{_SET} decode(repeat('00', 256), 'hex') WHERE id = 'i2'",
        f"{_SET} decode(repeat('ff', 256), 'hex') WHERE id = 'i2'",
    ],
)
async def test_vectors_kept_as_bytes_are_made_again_too(role_dsn: str, damage: str) -> None:
    async with PostgresMemoryStore(role_dsn, embeddings=EMBEDDINGS) as store:
        await _filled(store)
        assert not store._kind.is_vector

        await _check_repaired(store, role_dsn, damage)


async def _check_repaired(store: PostgresMemoryStore, dsn: str, damage: str) -> None:
    """Do the damage, and see that it is found and all vectors are as before."""
    before = await _all_vectors(store)
    await run(dsn, damage)
    assert not await store.verify()

    assert await store.verify(repair=True)

    assert await store.catch_up() == 0
    assert await _all_vectors(store) == before
    assert await store.verify()


@pytest.mark.parametrize(
    ("partitions", "lost"),
    [(1, "memory_vectors"), (3, "memory_vectors"), (3, "memory_vectors_p1")],
)
async def test_a_table_of_vectors_that_a_restore_left_out_is_made_again(
    postgres_dsn: str, partitions: int, lost: str
) -> None:
    async with PostgresMemoryStore(
        f"{postgres_dsn}&partitions={partitions}", embeddings=EMBEDDINGS
    ) as store:
        items = await _filled(store)
        await run(postgres_dsn, f"DROP TABLE {lost}")
    async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS) as store:
        (problem,) = (await store.verify()).problems
        assert "`memory_vectors`, or a part of it, is missing" in problem

        assert await store.verify(repair=True)

        assert await store.catch_up() == 0
        assert await store.verify()
        assert store._kind.is_vector
        found = await run(
            postgres_dsn, "SELECT indexname FROM pg_indexes WHERE tablename = 'memory_vectors'"
        )
        assert "memory_vectors_near_1" in {row[0] for row in found}
        assert (await store.vectors([each.id for each in items])).keys() == set(_IDS)


class Gaps(HashEmbeddings):
    """Makes a vector of zeros of the passages that hold a word."""

    def embed(self, text: str) -> list[float]:
        return [0.0] * self.dimension if "void" in text else super().embed(text)


async def test_an_item_of_which_one_passage_has_no_vector_is_whole(postgres_dsn: str) -> None:
    text = f"{_LONG} {'void ' * 400}"
    async with PostgresMemoryStore(postgres_dsn, embeddings=Gaps()) as store:
        await store.add(item("long", text))
        assert await store.catch_up() == 0

        ((kept,),) = await run(postgres_dsn, "SELECT count(*) FROM memory_vectors")
        assert 0 < kept < len(words.passages(text))
        assert await store.verify()
        await run(postgres_dsn, "DELETE FROM memory_vectors WHERE passage = 0")
        assert not await store.verify()


async def test_a_table_of_vectors_that_is_made_again_is_filled_at_once(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked for before it was there: that does not count any more."""
    monkeypatch.setattr(embedder, "FIRST_PAUSE", 60.0)
    async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS):
        pass  # the model is registered
    async with PostgresMemoryStore(postgres_dsn) as bare:
        await bare.add(item("one", "tea", "ann"))
    await run(postgres_dsn, "DROP TABLE memory_vectors", "SELECT 1")

    async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS) as store:
        await until(lambda: store._embedder is not None and store._embedder.error is not None)
        assert await store.verify(repair=True)

        assert await store.catch_up(within=HANG) == 0
        assert (await store.stats()).embedding_error is None
