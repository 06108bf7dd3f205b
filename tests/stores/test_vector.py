"""What `VectorMemoryStore` does beyond the contract of every store."""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.backends.vector import Embeddings, VectorMemoryStore
from orbiter.memory.backends.vector import store as vector_module
from orbiter.memory.errors import EmbeddingError, QueryError
from orbiter.memory.model import Query
from orbiter.memory.model.protocols import VectorStore
from orbiter.memory.testing import HashEmbeddings

START = datetime(2025, 1, 1, tzinfo=UTC)


class Scripted(HashEmbeddings):
    """Remembers what it was asked; a gate in `gates` holds a text back until it is opened."""

    def __init__(self, dimension: int = 16, shape: Callable[[list[float]], Any] = list) -> None:
        super().__init__(dimension)
        self.asked: list[list[str]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.shape = shape

    async def aembed(self, text: str) -> list[float]:
        self.asked.append([text])
        made: list[float] = await self._made(text)
        return made

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        return [await self._made(text) for text in texts]

    async def _made(self, text: str) -> Any:
        if text in self.gates:
            await self.gates[text].wait()
        return self.shape(self.embed(text))


def said(content: str, **fields: Any) -> HumanMemory:
    return HumanMemory(content=content, **fields)


def texts(items: list[MemoryItem]) -> list[str]:
    return [item.content for item in items]


async def test_the_nearest_are_found_without_a_word_in_common_with_the_rest() -> None:
    store = VectorMemoryStore(HashEmbeddings())
    await store.add_many([said("red apples"), said("green pears"), said("old apples and pears")])

    assert texts(await store.search(query="apples", limit=2)) == [
        "red apples",
        "old apples and pears",
    ]


async def test_a_batch_is_embedded_in_one_call_and_equal_texts_once() -> None:
    embeddings = Scripted()
    store = VectorMemoryStore(embeddings)

    await store.add_many([said("a"), said("b"), said("a"), said("b", id="b")])

    assert embeddings.asked == [["a", "b"]]
    assert len(await store.search(query="a", limit=10)) == 4


async def test_a_text_that_is_stored_is_not_embedded_again() -> None:
    embeddings = Scripted()
    store = VectorMemoryStore(embeddings)
    await store.add_many([said("one", id="1"), said("two", id="2")])
    embeddings.asked.clear()

    await store.add(said("one", id="1", status=MemoryStatus.DISCARD))
    await store.add(said("one", id="1", metadata=MemoryMetadata(user_id="ann")))
    await store.add_many([said("two", id="2"), said("three", id="1"), said("two", id="3")])

    assert embeddings.asked == [["three"]]
    assert texts(await store.search(query="two", limit=2)) == ["two", "two"]
    assert texts(await store.search(query="three", limit=1)) == ["three"]


async def test_an_item_without_text_is_listed_but_means_nothing() -> None:
    embeddings = Scripted()
    store = VectorMemoryStore(embeddings)
    call = AIMemory(id="call", content="", tool_calls=[{"id": "c", "name": "f"}])
    await store.add_many([call, said("  ", id="blank"), said("words", id="words")])

    assert embeddings.asked == [["words"]]
    assert len(await store.search()) == 3
    assert texts(await store.search(query="words")) == ["words"]
    await store.add(said("", id="words"))
    assert await store.search(query="words") == []
    await store.add(said("words", id="call"))
    assert texts(await store.search(query="words")) == ["words"]


async def test_a_query_of_blanks_asks_nothing() -> None:
    embeddings = Scripted()
    store = VectorMemoryStore(embeddings)
    await store.add_many([said("old", created_at=START), said("new")])
    embeddings.asked.clear()

    assert texts(await store.search(query=" \n")) == ["new", "old"]
    assert embeddings.asked == []


async def test_nothing_is_embedded_for_a_search_that_finds_nothing() -> None:
    embeddings = Scripted()
    store = VectorMemoryStore(embeddings)
    assert await store.search(query="words") == []
    await store.add(said("words"))
    embeddings.asked.clear()

    assert await store.search(query="words", limit=0) == []
    with pytest.raises(QueryError):
        await store.search(query="words", limit=-1)
    assert embeddings.asked == []


@pytest.mark.parametrize(
    "shape",
    [
        tuple,
        np.array,
        lambda vector: np.array(vector, np.float16),
        lambda vector: [round(1000 * number) for number in vector],
    ],
    ids=["tuples", "float64", "float16", "ints"],
)
async def test_vectors_may_come_in_any_kind_of_numbers(shape: Any) -> None:
    store = VectorMemoryStore(Scripted(shape=shape))
    await store.add_many([said("red apples"), said("green pears")])

    assert texts(await store.search(query="pears", limit=1)) == ["green pears"]


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (lambda vector: vector[:5], "16 numbers, not 5"),
        (lambda vector: [math.nan, *vector[1:]], "NaN"),
        (lambda _vector: {"a": 1}, "16 numbers"),
    ],
)
async def test_a_vector_that_is_none_is_told_with_the_model(shape: Any, told: str) -> None:
    store = VectorMemoryStore(Scripted(shape=shape))

    with pytest.raises(EmbeddingError, match=told) as caught:
        await store.add(said("words"))

    assert "Scripted" in str(caught.value)
    assert len(store) == 0


@pytest.mark.parametrize("answer", [[], [[1.0] * 16], None])
async def test_an_answer_with_too_few_vectors_is_refused(answer: Any) -> None:
    class Short(Scripted):
        async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
            found: list[list[float]] = answer
            return found

    store = VectorMemoryStore(Short())

    with pytest.raises(EmbeddingError, match="answered 2 texts with . vectors"):
        await store.add_many([said("a"), said("b")])

    assert len(store) == 0


async def test_of_overlapping_adds_the_one_called_last_wins() -> None:
    embeddings = Scripted()
    store = VectorMemoryStore(embeddings)
    embeddings.gates = {text: asyncio.Event() for text in ("first", "second")}
    adds = []
    for text in ("first", "second", "third"):
        adds.append(asyncio.create_task(store.add(said(text, id="one"))))
        await asyncio.sleep(0)

    await adds[2]
    for text in ("second", "first"):
        embeddings.gates[text].set()
    await asyncio.gather(*adds)

    kept = await store.get("one")
    assert kept is not None
    assert (kept.content, kept.version) == ("third", 3)
    ((found, cosine),) = await store.nearest(embeddings.embed("third"), Query())
    assert found == kept
    assert cosine == pytest.approx(1.0)
    assert (store._waiting, store._latest) == ({}, {})


async def test_an_item_deleted_while_an_older_add_waits_is_added_anew() -> None:
    embeddings = Scripted()
    store = VectorMemoryStore(embeddings)
    embeddings.gates = {"slow": asyncio.Event()}
    slow = asyncio.create_task(store.add(said("slow", id="one")))
    await asyncio.sleep(0)
    await store.add(said("quick", id="one"))
    assert await store.delete("one")

    embeddings.gates["slow"].set()
    await slow

    kept = await store.get("one")
    assert kept is not None
    assert (kept.content, kept.version) == ("slow", 1)


async def test_a_change_of_text_while_the_old_one_is_confirmed_keeps_both_right() -> None:
    embeddings = Scripted()
    store = VectorMemoryStore(embeddings)
    await store.add_many([said("old", id="one"), said("other")])
    embeddings.gates = {"new": asyncio.Event()}
    # The batch knows the vector of `old` already, and waits for that of `new`.
    batch = asyncio.create_task(store.add_many([said("old", id="one"), said("new", id="two")]))
    await asyncio.sleep(0)
    await store.delete("one")

    embeddings.gates["new"].set()
    await batch

    assert texts(await store.search(query="old", limit=1)) == ["old"]


async def test_delete_removes_one_item_for_good() -> None:
    store = VectorMemoryStore(HashEmbeddings())
    await store.add_many([said("one", id="1"), said("two", id="2")])

    assert await store.delete("1") is True
    assert await store.delete("1") is False
    assert await store.delete("\0") is False
    assert texts(await store.search(query="one")) == ["two"]
    assert await store.get("1") is None


async def test_since_is_included_and_until_is_not() -> None:
    store = VectorMemoryStore(HashEmbeddings())
    for second in range(5):
        await store.add(said(f"at {second}", created_at=START + timedelta(seconds=second)))
    since, until = START + timedelta(seconds=1), START + timedelta(seconds=3)

    assert texts(await store.search(since=since, until=until)) == ["at 2", "at 1"]
    found = await store.search(query="at", since=since, until=until)
    assert sorted(texts(found)) == ["at 1", "at 2"]
    with pytest.raises(QueryError, match="since"):
        await store.search(since="yesterday")  # type: ignore[arg-type]  # the mistake under test


async def test_a_large_batch_is_checked_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_module, "_OFF_LOOP", 0)
    store = VectorMemoryStore(HashEmbeddings())

    await store.add_many([said(f"n{number}", id=f"i{number}") for number in range(2100)])

    assert len(store) == 2100
    assert texts(await store.search(query="n77", limit=1)) == ["n77"]


async def test_it_serves_recall_as_a_vector_store() -> None:
    embeddings = HashEmbeddings()
    store = VectorMemoryStore(embeddings)
    first = said("red apples", metadata=MemoryMetadata(user_id="ann", extra={"kind": "fruit"}))
    await store.add_many([first, said("red cars", metadata=MemoryMetadata(user_id="ann"))])

    assert isinstance(store, VectorStore)
    assert await store.catch_up(within=1.0) == 0
    towards = embeddings.embed("red")
    near = await store.nearest(towards, Query(where={"kind": "fruit"}, limit=5))
    assert [item for item, _ in near] == [first]
    cosines = await store.similarities(towards, [first.id, "nobody"])
    assert cosines == {first.id: near[0][1]}
    for bad in ([1.0], [math.nan] * 64, [0.0] * 64):
        with pytest.raises(QueryError, match="vector"):
            await store.nearest(bad, Query())
        with pytest.raises(QueryError, match="vector"):
            await store.similarities(bad, [first.id])


async def test_a_large_search_leaves_the_event_loop_and_sees_one_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vector_module, "_OFF_LOOP", 0)
    store = VectorMemoryStore(HashEmbeddings())
    await store.add_many([said(f"n{number}", id=f"i{number}") for number in range(50)])

    towards = store.embeddings.embed("n1 n2")
    searches = [asyncio.create_task(store.nearest(towards, Query(limit=100))) for _ in range(5)]
    await asyncio.sleep(0)
    await store.clear()
    await store.add(said("later", id="i1"))

    for found in await asyncio.gather(*searches):
        assert {item.content for item, _ in found} == {f"n{number}" for number in range(50)}
    assert texts(await store.search(query="n1")) == ["later"]


@pytest.mark.parametrize("approximate_from", [None, 1])
async def test_any_history_is_searched_as_a_plain_list_would_be(
    approximate_from: int | None,
) -> None:
    rng = random.Random(7)
    embeddings = HashEmbeddings(32)
    store = VectorMemoryStore(embeddings, approximate_from=approximate_from)
    held: dict[str, MemoryItem] = {}
    words = [f"w{number}" for number in range(25)]
    for step in range(1200):
        who = MemoryMetadata(
            user_id=rng.choice((None, "ann", "bob")),
            session_id=rng.choice((None, "s1", "s2", "s3")),
            agent_id=rng.choice((None, "a")),
        )
        chance = rng.random()
        if chance < 0.75:
            item = said(
                " ".join(rng.choices(words, k=3)),
                id=f"i{rng.randrange(300)}",
                metadata=who,
                status=rng.choice(list(MemoryStatus)),
                created_at=START + timedelta(seconds=rng.randrange(50)),
            )
            await store.add(item)
            old = held.get(item.id)
            created = old.created_at if old else item.created_at
            held[item.id] = item.model_copy(update={"created_at": created})
        elif chance < 0.99:
            item_id = f"i{rng.randrange(300)}"
            assert await store.delete(item_id) is (held.pop(item_id, None) is not None)
        elif who.model_dump(exclude_defaults=True):
            asked = Query(metadata=who)
            gone = [item_id for item_id, item in held.items() if asked.matches(item)]
            assert await store.clear(metadata=who) == len(gone)
            for item_id in gone:
                del held[item_id]
        assert len(store) == len(held)
        if step % 10 == 0:
            status = rng.choice((None, *MemoryStatus))
            filters: dict[str, Any] = {"metadata": who, "status": status, "limit": 7}
            asked = Query(**filters)
            left = [item for item in held.values() if asked.matches(item)]
            await _compare(store, left, rng.choice(words), filters, embeddings)


async def _compare(
    store: VectorMemoryStore,
    left: list[MemoryItem],
    query: str,
    filters: dict[str, Any],
    embeddings: Embeddings,
) -> None:
    towards = embeddings.embed(query)

    def cosine(item: MemoryItem) -> float:
        both = zip(embeddings.embed(item.content), towards, strict=True)
        return round(sum(a * b for a, b in both), 5)

    newest = sorted(left, key=lambda item: item.created_at)
    found = await store.search(**filters)
    assert [item.created_at for item in found] == [item.created_at for item in newest[::-1]][:7]
    found = await store.search(query=query, **filters)
    assert [cosine(item) for item in found] == sorted(map(cosine, left), reverse=True)[:7]
    if filters["limit"] >= len(left):
        assert {item.id for item in found} == {item.id for item in left}


async def test_a_search_without_a_user_looks_only_where_the_session_is() -> None:
    store = VectorMemoryStore(HashEmbeddings())
    for number in range(40):
        who = MemoryMetadata(user_id=f"u{number % 20}", session_id=f"s{number % 10}")
        await store.add(said(f"n{number}", metadata=who))

    asked = Query(metadata=MemoryMetadata(session_id="s3"))

    assert len(list(store._index._indexes_for(asked))) == 2
    assert len(await store.search(query="n3", metadata=asked.metadata)) == 4
    await store.clear(metadata=MemoryMetadata(session_id="s3"))
    assert list(store._index._indexes_for(asked)) == []
    await store.clear()
    assert (len(store), store._index._users, store._index._indexes) == (0, {}, {})


async def test_what_is_removed_is_not_held_on_to() -> None:
    store = VectorMemoryStore(HashEmbeddings())
    for number in range(2000):
        await store.add(said(f"n{number}", id=f"i{number}"))
        if number >= 20:
            assert await store.delete(f"i{number - 20}")

    (index,) = store._index._indexes.values()
    assert len(store) == 20
    assert len(index.items) < 150
    assert len(index.matrix._vectors) < 300


def test_only_embeddings_can_make_vectors() -> None:
    with pytest.raises(TypeError, match="embeddings"):
        VectorMemoryStore("text-embedding-3-small")  # type: ignore[arg-type]  # the mistake under test


async def test_what_items_share_is_never_seen_by_who_reads_them() -> None:
    store = VectorMemoryStore(HashEmbeddings())
    who = MemoryMetadata(user_id="ann", extra={"tags": ["tea"]})
    items = [
        HumanMemory(content=f"note {number}", metadata=who, native={"openai": {"a": [1]}})
        for number in range(3)
    ]
    await store.add_many(items)
    first = await store.get(items[0].id)
    assert first is not None
    first.metadata.extra["tags"].append("changed")
    first.native["openai"]["a"].append(2)
    first.content = "changed"
    assert await store.get(items[0].id) == items[0]
    assert await store.get(items[1].id) == items[1]
    assert first.model_fields_set == set(HumanMemory.model_fields)
    assert (await store.search(limit=3))[0] == items[2]
