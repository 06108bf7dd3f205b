"""The modes of recall: without a model, by vectors alone, by time alone."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.recall.conftest import Opening
from tests.recall.pools import NOW, START, turn
from tests.rows import each_row

from orbiter.memory import (
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    ShortTermMemory,
    SQLiteMemoryStore,
    VectorMemoryStore,
)
from orbiter.memory.errors import EmbeddingError, QueryError, UnsupportedError
from orbiter.memory.model.query import Query
from orbiter.memory.recall import RecallResult, _candidates, _modes, recall
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")


def _ids(found: RecallResult) -> list[str]:
    return [hit.item.id for hit in found]


class Untouchable(HashEmbeddings):
    """Embeddings that must not be asked."""

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        raise ConnectionError("asked all the same")


def _notes(count: int) -> list[MemoryItem]:
    return [
        turn(f"n{n}", f"note {n} on tea", session=None, at=START + timedelta(hours=n))
        for n in range(count)
    ]


@each_row("mode", ["best", "", None, 5, ["words"]])
async def test_an_unknown_mode_is_refused_with_the_four_there_are(mode: Any) -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        with pytest.raises(QueryError, match="`hybrid`, `words`, `meaning` or `recent`"):
            await recall(store, "tea", scope=ANN, mode=mode)


async def test_words_ask_no_model_and_say_nothing_about_it(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_modes, "_warned", set())
    async with opened() as store:
        await store.add_many(_notes(30))
        await store.add(turn("a", "The door code is 4711", session=None))
        alone = await recall(store, "door code", scope=ANN, mode="words", now=NOW)
    async with opened(Untouchable(16)) as store:
        beside = await recall(store, "door code", scope=ANN, mode="words", now=NOW)

    assert _ids(alone) == ["a"]
    assert alone == beside
    assert alone.mode == "words"
    assert _modes._warned == set()


async def test_words_are_what_hybrid_is_without_a_model(opened: Opening) -> None:
    async with opened() as store:
        await store.add_many(_notes(30))

        hybrid = await recall(store, "note 7", scope=ANN, now=NOW)

        assert hybrid == await recall(store, "note 7", scope=ANN, now=NOW, mode="words")


async def test_meaning_is_the_nearest_vectors_and_their_cosines(opened: Opening) -> None:
    model = HashEmbeddings(256)
    async with opened(model) as store:
        await store.add_many(_notes(5))
        await store.add(turn("a", "The door code is 4711", session=None))

        found = await recall(store, "the code 4711", scope=ANN, mode="meaning", min_relevance=0)
        nearest = await store.nearest(model.embed("the code 4711"), Query(metadata=ANN, limit=10))

    assert [(hit.item.id, hit.score) for hit in found] == [(item.id, c) for item, c in nearest]
    assert found[0].item.id == "a"
    for hit in found:
        (reason,) = hit.why
        assert (reason.part, reason.points) == ("meaning", hit.score)
        assert f"({hit.score:.2f})" in reason.text
    assert found[0].why[0].text.startswith("similar meaning")


class Slow(HashEmbeddings):
    """Embeddings that take their time, but for a single text."""

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0.15 if len(texts) > 1 else 0)
        return await super().aembed_many(texts)


async def test_meaning_waits_for_what_was_just_written() -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=Slow(64)) as store:
        await store.add_many(_notes(150))

        found = await recall(store, "tea", scope=ANN, mode="meaning", k=1_000)

    assert found.considered == 150


async def test_meaning_can_be_weighed_with_importance_and_recency() -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(64)) as store:
        await store.add(turn("old", "green tea", session=None, importance=1.0))
        await store.add(turn("new", "green tea leaves", session=None, at=NOW))

        async def ask(**weights: Any) -> RecallResult:
            return await recall(store, "green tea", scope=ANN, mode="meaning", now=NOW, **weights)

        important = await ask(importance_weight=5.0)
        recent = await ask(recency_weight=5.0)

    assert _ids(important)[0] == "old"
    assert _ids(recent)[0] == "new"
    for hit in (*important, *recent):
        assert sum(reason.points for reason in hit.why) == pytest.approx(hit.score)


async def test_meaning_without_a_model_says_what_to_install(opened: Opening) -> None:
    async with opened() as store:
        with pytest.raises(UnsupportedError, match=r"orbiter-memory\[local\].*`LocalEmbeddings"):
            await recall(store, "tea", scope=ANN, mode="meaning")


async def test_meaning_with_a_model_that_fails_is_an_error_and_no_empty_answer() -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=Untouchable(16)) as store:
        await store.add(HumanMemory(content="tea", metadata=ANN))

        for _ in range(2):
            with pytest.raises(EmbeddingError, match=r"asked all the same.*`words`"):
                await recall(store, "tea", scope=ANN, mode="meaning")


async def test_a_store_of_vectors_alone_knows_no_words() -> None:
    store = VectorMemoryStore(embeddings=HashEmbeddings(64))
    await store.add(turn("a", "green tea"))
    await store.add(turn("b", "door code", at=NOW))

    with pytest.raises(UnsupportedError, match="VectorMemoryStore.*`meaning`"):
        await recall(store, "tea", scope=ANN, mode="words")
    assert _ids(await recall(store, "green tea", scope=ANN, mode="meaning", k=1)) == ["a"]
    assert _ids(await recall(store, "", scope=ANN, mode="recent")) == ["b", "a"]
    assert _ids(await recall(store, "a tea", scope=ANN, mode="recent")) == ["a"]
    assert _ids(await recall(store, "", scope=ANN, mode="recent", until=NOW)) == ["a"]


@pytest.mark.parametrize("mode", ["hybrid", "words", "meaning", "recent"])
async def test_a_store_that_cannot_find_is_named_in_every_mode(mode: Any) -> None:
    with pytest.raises(QueryError, match=r"ShortTermMemory.*`InMemoryIndex`"):
        await recall(ShortTermMemory(), "tea", scope=ANN, mode=mode)


async def test_recent_is_the_newest_first_scored_by_age(opened: Opening) -> None:
    async with opened() as store:
        await store.add_many(
            [
                turn(f"d{days}", f"note of day {days}", session=None, at=NOW - timedelta(days=days))
                for days in (20, 0, 10)
            ]
        )

        found = await recall(
            store, "", scope=ANN, mode="recent", now=NOW, half_life_hours=240, importance_weight=9
        )

    assert [(hit.item.id, hit.score) for hit in found] == [("d0", 1.0), ("d10", 0.5), ("d20", 0.25)]
    assert [str(hit.why) for hit in found][:2] == [
        "is recent, from 15 June 2024",
        "is recent, from 5 June 2024",
    ]
    assert found.question == "the newest"


async def test_recent_keeps_to_the_filters_and_gives_repeats_one_place(opened: Opening) -> None:
    async with opened() as store:
        for n in range(3):
            at = START + timedelta(minutes=n)
            await store.add(turn(f"r{n}", "same words here", session=None, at=at))
        await store.add(turn("x", "green tea, please", session=None, topic="x"))
        await store.add(turn("ai", "same words here", assistant=True))
        await store.add(HumanMemory(content="bob's", metadata=MemoryMetadata(user_id="bob")))

        found = await recall(store, "", scope=ANN, mode="recent", memory_type="human")
        narrow = await recall(store, "", scope=ANN, mode="recent", where={"topic": "x"})

    assert _ids(found) == ["r2", "x"]
    assert [item.id for item in found[0].repeats] == ["r1", "r0"]
    assert _ids(narrow) == ["x"]


async def test_recent_passes_over_what_has_no_text(opened: Opening) -> None:
    async with opened() as store:
        await store.add(turn("old", "tea", at=START - timedelta(days=1)))
        await store.add_many([turn(f"e{n}", " ", assistant=True) for n in range(7)])

        assert _ids(await recall(store, "", scope=ANN, mode="recent", k=3)) == ["old"]


async def test_recent_with_words_is_the_newest_that_hold_one(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_candidates, "_PAGE", 10)
    async with opened() as store:
        items = _notes(90)
        for item in items[::3]:
            item.content = "the door"
        await store.add_many(items)

        found = await recall(store, "Which tea, or coffee?", scope=ANN, mode="recent", k=3)
        common = await recall(store, "the of and", scope=ANN, mode="recent", k=2)
        nothing = await recall(store, "zebra", scope=ANN, mode="recent")

    assert _ids(found) == ["n89", "n88", "n86"]
    assert _ids(common) == ["n89", "n88"]
    assert nothing == []
    assert found.question == "the newest; looks for tea, coffee"


async def test_recent_with_words_is_exact_when_many_are_of_one_instant(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_candidates, "_PAGE", 4)
    async with opened() as store:
        await store.add_many([turn(f"n{n:02}", f"tea {n}", session=None) for n in range(40)])
        await store.add(turn("old", "tea tea", session=None, at=START - timedelta(days=1)))

        found = await recall(store, "tea", scope=ANN, mode="recent", k=2)

    assert _ids(found) == ["n00", "n01"]
