"""Vectors as a SQL store gives them back, as for a map of its items."""

from array import array

import pytest
from tests.stores.postgres_recall import role_dsn
from tests.stores.test_recall_details import LONG, Place, item, place

from orbiter.memory import RedisMemoryStore
from orbiter.memory.backends.postgres import models
from orbiter.memory.model.protocols import DetailStore
from orbiter.memory.testing import HashEmbeddings

__all__ = ["place", "role_dsn"]

# Not a multiple of 16, to which pgvector's are filled up with zeros.
EMBEDDINGS = HashEmbeddings(20)


def numbers(vector: bytes) -> list[float]:
    return array("f", vector).tolist()


async def test_vectors_are_read_as_they_were_made_passage_by_passage(place: Place) -> None:
    async with place.open(EMBEDDINGS) as store:
        await store.add_many([item("a", "green harbour"), item("b", LONG), item("c", "")])
        await store.catch_up()

        found = await store.vectors(["b", "a", "nobody", "c", "a"])

    assert isinstance(store, DetailStore)
    assert found.keys() == {"a", "b"}
    assert numbers(found["a"]) == pytest.approx(EMBEDDINGS.embed("green harbour"), abs=1e-6)
    assert len(found["b"]) > 3 * 4 * 20
    assert len(found["b"]) % (4 * 20) == 0


async def test_vectors_without_pgvector_are_the_same(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orbiter.memory import PostgresMemoryStore  # noqa: PLC0415

    monkeypatch.setattr(models, "LONGEST_VECTOR", 1)  # longer ones are kept as bytes
    async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS) as store:
        await store.add_many([item("a", "green harbour"), item("b", LONG)])
        await store.catch_up()

        found = await store.vectors(["a", "b"])

    assert not store._kind.is_vector
    assert numbers(found["a"]) == pytest.approx(EMBEDDINGS.embed("green harbour"), abs=1e-6)
    assert len(found["b"]) > 3 * 4 * 20


async def test_only_what_is_there_and_as_it_is_has_vectors(place: Place) -> None:
    async with place.open(EMBEDDINGS) as store, place.open() as other:
        await store.add_many([item(name, f"green {name}") for name in "abc"])
        await store.catch_up()
        await store.delete("a")
        await store._embedder.close()

        await other.add(item("b", "quiet mountain lake"))

        assert (await store.vectors([*"abc"])).keys() == {"c"}
        assert await other.vectors([*"abc"]) == {}


def test_a_store_without_vectors_says_so() -> None:
    assert not isinstance(RedisMemoryStore("redis://localhost"), DetailStore)
