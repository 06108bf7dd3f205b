"""Details of passages in the SQL stores: they stand beside the vectors, and go with them."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest
from tests.stores.postgres_recall import role_dsn, run
from tests.stores.recall_reference import Detailed, check_details

from orbiter.memory import (
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    PostgresMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.backends.postgres import models as postgres_models
from orbiter.memory.backends.sql import embedder
from orbiter.memory.errors import EmbeddingError
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query
from orbiter.memory.testing import HashEmbeddings

__all__ = ["role_dsn"]

EMBEDDINGS = Detailed(16)
LONG = " ".join(["the harbour sleeps at dawn."] * 60 + ["of."] * 400 + ["ships return."] * 60)


def item(item_id: str, content: str, user: str = "ann") -> MemoryItem:
    return HumanMemory(id=item_id, content=content, metadata=MemoryMetadata(user_id=user))


class Place(NamedTuple):
    """Where a store is."""

    open: Callable[..., Any]
    ask: Callable[[str], Any]


@pytest.fixture(params=["sqlite", "postgres", "postgres in parts"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return what opens the same store again and again, and reads its tables."""
    if request.param == "sqlite":
        path = tmp_path / "m.db"

        async def ask(sql: str) -> list[Any]:
            with closing(sqlite3.connect(path)) as connection, connection:
                return connection.execute(sql).fetchall()

        return Place(lambda made=None: SQLiteMemoryStore(path, embeddings=made), ask)
    dsn = request.getfixturevalue("postgres_dsn")
    if "parts" in request.param:
        asyncio.run(_cut(dsn))
    return Place(
        lambda made=None: PostgresMemoryStore(dsn, embeddings=made), lambda sql: run(dsn, sql)
    )


async def _cut(dsn: str) -> None:
    store = PostgresMemoryStore(dsn)
    await store.init(partitions=3)
    await store.close()


async def test_details_are_read_as_they_were_made_passage_by_passage(place: Place) -> None:
    items = [item("long", LONG), item("short", "the harbour"), item("dull", "of the")]
    async with place.open(EMBEDDINGS) as store:
        await store.add_many(items)
        assert await store.catch_up() == 0

        found = await store.details(["short", "nobody", "long", "dull", "short"])

    assert found == EMBEDDINGS.expected(items)
    assert found["short"] == [EMBEDDINGS.rows("harbour")]
    assert len(found["long"]) > 3
    assert found["long"][0]
    assert found["long"][-1]
    assert b"" in found["long"]


async def test_details_are_those_of_the_present_text(place: Place) -> None:
    async with place.open(EMBEDDINGS) as store, place.open() as other:
        await store.add_many([item("a", "green harbour"), item("b", "green boats")])
        await store.catch_up()
        await store._embedder.close()

        await other.add(item("a", "quiet mountain lake"))

        assert await store.details(["a", "b"]) == {"b": [EMBEDDINGS.rows("green boats")]}
        await other.catch_up()  # makes the new terms, and no vectors
        assert await store.details(["a", "b"]) == {"b": [EMBEDDINGS.rows("green boats")]}
    async with place.open(EMBEDDINGS) as store:
        assert await store.catch_up() == 0
        assert await store.details(["a"]) == {"a": [EMBEDDINGS.rows("quiet mountain lake")]}
        await store.add(item("a", "as is"))
        assert await store.catch_up() == 0
        assert await store.details(["a"]) == {}
        assert await store.verify()


async def test_what_is_deleted_has_no_details_and_what_is_purged_leaves_none(place: Place) -> None:
    async with place.open(EMBEDDINGS) as store:
        await store.add_many([item("a", "green harbour"), item("b", LONG), item("c", "boats")])
        await store.catch_up()
        await store.delete("a")
        await store.delete("b")
        assert (await store.details(["a", "b", "c"])).keys() == {"c"}
        await store.restore("a")
        assert await store.catch_up() == 0
        assert (await store.details(["a", "b", "c"])).keys() == {"a", "c"}

        await store.delete("a")
        await store.purge()

        assert await place.ask("SELECT details FROM memory_details") == [
            (EMBEDDINGS.rows("boats"),)
        ]


@pytest.mark.parametrize("embeddings", [None, HashEmbeddings(16)], ids=["none", "plain"])
async def test_without_embeddings_that_make_them_there_are_no_details(
    place: Place, embeddings: Embeddings | None
) -> None:
    async with place.open(embeddings) as store:
        await store.add(item("a", "green harbour"))
        await store.catch_up()

        assert await store.details(["a"]) == {}
        assert await place.ask("SELECT * FROM memory_details") == []


class Odd(Detailed):
    """Makes details of another kind of a text that says so."""

    def __init__(self, answer: Any) -> None:
        super().__init__(16)
        self.answer = answer

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        made = await super().aembed_details(texts)
        return [
            (vector, self.answer if "poison" in text else rows)
            for text, (vector, rows) in zip(texts, made, strict=True)
        ]


@pytest.mark.parametrize("answer", [b"12345", b"1", [1, 2, 3, 4], None, "1234"])
async def test_details_that_are_no_rows_are_refused_and_keep_nothing_else_waiting(
    place: Place, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(embedder, "LONGEST_PAUSE", 0.02)
    embeddings = Odd(answer)
    async with place.open(embeddings) as store:
        await store.add_many([item(f"{n}", f"number {n}") for n in range(5)])
        await store.add(item("p", "green poison"))
        while await store.catch_up(within=0.05) > 1:
            pass
        with pytest.raises(EmbeddingError, match="rows of 4 bytes"):
            await store.catch_up()

        stats = await store.stats()
        assert stats.unembedded == 1
        assert "rows of 4 bytes" in (stats.embedding_error or "")
        assert len(await store.nearest(EMBEDDINGS.embed("number"), Query(limit=9))) == 5
        assert len(await store.details([*"01234p"])) == 5
        await store.add(item("p", "green remedy"))
        assert await store.catch_up(within=30) == 0  # the old text may be tried once more
        assert await store.details(["p"]) == {"p": [EMBEDDINGS.rows("green remedy")]}


class Renamed(Detailed):
    """Another model with details."""

    name = "renamed"

    def rows(self, text: str) -> bytes:
        return super().rows(text)[::-1]


async def test_details_change_with_the_model(place: Place) -> None:
    items = [item(f"{n}", f"number {n} of many") for n in range(70)]
    ids = [each.id for each in items]
    async with place.open(HashEmbeddings(16)) as store:
        await store.add_many(items)
        await store.catch_up()
    for embeddings in (EMBEDDINGS, Renamed(16), EMBEDDINGS):
        store = place.open(embeddings)
        assert await store.reindex() == 70
        assert await store.details(ids) == embeddings.expected(items)
        assert await store.verify()
        await store.optimize()
        assert await place.ask("SELECT count(*) FROM memory_details") == [(70,)]
        await store.close()
    store = place.open(HashEmbeddings(16))
    await store.reindex()
    await store.optimize()

    assert await store.details(ids) == {}
    assert await place.ask("SELECT * FROM memory_details") == []
    await store.close()


async def test_others_read_the_old_details_while_new_ones_are_made(place: Place) -> None:
    items = [item(f"{n}", f"number {n} of many") for n in range(150)]
    seen = []
    async with place.open(EMBEDDINGS) as reader:
        await reader.add_many(items)
        await reader.catch_up()

        class Watched(Renamed):
            async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
                seen.append(await reader.details([each.id for each in items]))
                return await super().aembed_details(texts)

        store = place.open(Watched(16))
        await store.reindex()
        await store.close()

    assert seen == [EMBEDDINGS.expected(items)] * 3


async def test_details_are_found_after_another_process_made_them_anew(place: Place) -> None:
    async with place.open(EMBEDDINGS) as store, place.open(EMBEDDINGS) as other:
        await store.add(item("a", "green harbour"))
        await store.catch_up()
        await other.reindex()

        await check_details(store, EMBEDDINGS)


async def test_details_beside_no_vectors_are_found_and_removed(place: Place) -> None:
    async with place.open(EMBEDDINGS) as store:
        await store.add_many([item("a", "green harbour"), item("b", "blue boats")])
        await store.catch_up()
        if isinstance(store, SQLiteMemoryStore):
            await place.ask("INSERT INTO memory_details VALUES (99, '[4]', x'00000000')")
        else:
            await place.ask("INSERT INTO memory_details VALUES ('ann', 'a', 7, 1, 'four')")
        assert len((await store.verify()).problems) == 1

        assert await store.verify(repair=True)

        assert await store.catch_up() == 0
        assert await store.verify()
        assert await place.ask("SELECT count(*) FROM memory_details") == [(2,)]
        await check_details(store, EMBEDDINGS)


class Void(Detailed):
    """Makes a vector of zeros, and details, of a text that holds a word."""

    def __init__(self, word: str) -> None:
        super().__init__(16)
        self.word = word

    @property
    def name(self) -> str:
        return f"void of {self.word}"

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        made = await super().aembed_details(texts)
        return [
            ([0.0] * 16 if self.word in text else vector, rows)
            for text, (vector, rows) in zip(texts, made, strict=True)
        ]


@pytest.mark.parametrize("longest", [16_000, 1], ids=["pgvector", "bytes"])
async def test_an_item_whose_vector_is_zero_is_whole_and_stays_so(
    place: Place, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_models, "LONGEST_VECTOR", longest)  # longer ones are bytes
    items = [item("g", "green harbour"), item("b", "blue boats"), item("none", " ")]

    async def check(store: Any, near: set[str]) -> None:
        assert await store.catch_up() == 0
        assert await store.verify()
        assert (await store.details(["g", "b", "none"])).keys() == near
        assert (await store.vectors(["g", "b", "none"])).keys() == near

    async with place.open(Void("green")) as store:
        await store.add_many(items)
        await check(store, {"b"})
        await store.reindex()
        await check(store, {"b"})
        await store.add(item("b", "green boats"))
        await check(store, set())
        await store.add_many(items[:2])
        await store.delete("g")
        await check(store, {"b"})
        await store.restore("g")
        await check(store, {"b"})
    other = place.open(Void("blue"))
    await other.reindex()
    await check(other, {"g"})
    await other.delete("b")
    await other.purge()
    assert await other.verify()
    await other.close()


async def test_an_item_that_lost_the_mark_of_a_zero_vector_is_mended_for_good(
    place: Place,
) -> None:
    async with place.open(Void("green")) as store:
        await store.add_many([item("g", "green harbour"), item("b", "blue boats")])
        await store.catch_up()
        await place.ask("DELETE FROM memory_vectors")
        await place.ask("DELETE FROM memory_details")
        assert not await store.verify()

        await store.verify(repair=True)

        assert await store.catch_up() == 0
        assert await store.verify()


async def test_a_mark_of_a_zero_vector_without_its_item_is_found_and_removed(
    place: Place,
) -> None:
    async with place.open(Void("green")) as store:
        await store.add(item("b", "blue boats"))
        await store.catch_up()
        if isinstance(store, SQLiteMemoryStore):
            await place.ask("INSERT INTO memory_vectors VALUES (99, 1, 99, x'', x'')")
        else:
            await place.ask("INSERT INTO memory_details VALUES ('ann', 'gone', -1, 1, '')")
        assert len((await store.verify()).problems) == 1

        await store.verify(repair=True)

        assert await store.catch_up() == 0
        assert await store.verify()


@pytest.mark.parametrize("partitions", [None, 3], ids=["whole", "partitioned"])
async def test_nobody_sees_anothers_details(role_dsn: str, partitions: int | None) -> None:
    store = PostgresMemoryStore(role_dsn, embeddings=EMBEDDINGS)
    await store.init(partitions=partitions, row_security=True)
    ids = [f"{user}{n}" for user in ("ann", "bob") for n in range(3)]
    for user in ("ann", "bob"):
        bound = store.acting_for(user)
        await bound.add_many([item(f"{user}{n}", f"door code {n}", user) for n in range(3)])
        assert await bound.catch_up() == 0

    for user in ("ann", "bob"):
        found = await store.acting_for(user).details(ids)
        assert found == {f"{user}{n}": [EMBEDDINGS.rows("door code")] for n in range(3)}
    assert await store.acting_for("carl").details(ids) == {}
    assert await store.details(ids) == {}
    await store.close()
    await _check_tables(role_dsn, partitions or 0)


async def _check_tables(dsn: str, partitions: int) -> None:
    """Read as ann what no store would ask for."""
    connection = await asyncpg.connect(dsn)
    async with connection.transaction():
        await connection.execute("SET LOCAL orbiter.user_id = 'ann'")
        seen = await connection.fetch("SELECT DISTINCT user_key FROM memory_details")
        assert [tuple(row) for row in seen] == [("ann",)]
        for part in range(partitions):
            assert await connection.fetch(f"SELECT 1 FROM memory_details_p{part}") == []
        assert await connection.execute("UPDATE memory_details SET details = ''") == "UPDATE 3"
        assert await connection.execute("DELETE FROM memory_details") == "DELETE 3"
    await connection.close()
