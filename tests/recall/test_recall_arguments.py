"""What may be asked of recall, and what it says if it cannot answer."""

import gc
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.recall.conftest import MODELS, Opening
from tests.recall.pools import NOW
from tests.timing import scaled

from orbiter.memory import (
    HumanMemory,
    MemoryMetadata,
    ShortTermMemory,
    SQLiteMemoryStore,
    VectorMemoryStore,
)
from orbiter.memory.errors import QueryError
from orbiter.memory.recall import _candidates, _modes, recall
from orbiter.memory.sync import AgentMemory as BlockingMemory
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.text.ranking import ANSWERED

ANN = MemoryMetadata(user_id="ann")


class Broken(HashEmbeddings):
    """Embeddings that fail while they are told to."""

    is_broken = False

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        if self.is_broken:
            raise ConnectionError("the model cannot be reached")
        return await super().aembed_many(texts)


@pytest.fixture
async def store() -> Any:
    async with SQLiteMemoryStore(":memory:") as opened:
        for n in range(30):
            await opened.add(HumanMemory(content=f"note {n} on tea", metadata=ANN))
        yield opened


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"query": 5}, "query"),
        ({"query": None}, "query"),
        ({"query": "a\0b"}, "query"),
        ({"query": "\ud800"}, "query"),
        ({"k": -1}, "`k`"),
        ({"k": 1.5}, "`k`"),
        ({"k": True}, "`k`"),
        ({"k": "5"}, "`k`"),
        ({"scope": "ann"}, r"`scope`.*MemoryMetadata\(user_id="),
        ({"scope": {"user_id": "ann"}}, "`scope`"),
        ({"scope": MemoryMetadata()}, "`scope=None`"),
        ({"scope": MemoryMetadata(extra={"x": 1})}, "`scope=None`"),
        ({"scope": MemoryMetadata(user_id="ann", extra={"x": 1})}, r"`where=\{'x': 1\}`"),
        ({"status": "lost"}, "lost"),
        ({"memory_type": 5}, "memory_type"),
        ({"since": "yesterday"}, "since"),
        ({"until": 5}, "until"),
        ({"where": "x"}, "where"),
        ({"where": {"x": [1]}}, "where"),
        ({"now": "now"}, "now"),
        ({"recency_weight": "much"}, "recency_weight"),
        ({"recency_weight": float("nan")}, "recency_weight"),
        ({"importance_weight": None}, "importance_weight"),
        ({"half_life_hours": "day"}, "half_life_hours"),
        ({"half_life_hours": 0, "recency_weight": 1.0}, "half_life_hours"),
    ],
)
async def test_what_means_nothing_is_refused_by_its_name(
    store: Any, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(QueryError, match=named):
        await recall(store, **{"query": "tea", "scope": ANN, **arguments})


async def test_k_bounds_the_hits(store: Any) -> None:
    assert await recall(store, "tea", scope=ANN, k=0) == []
    assert len(await recall(store, "tea", scope=ANN, k=3)) == 3
    assert len(await recall(store, "tea", scope=ANN, k=10_000)) == 30


@MODELS
async def test_a_question_that_says_nothing_recalls_nothing(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add(HumanMemory(id="a", content="tea", metadata=ANN))

        await store.add(HumanMemory(id="b", content="🎉👍 ???", metadata=ANN))

        for query in ("", "  \n", "?", "?!...", "🎉👍", "\x07", "the of and", "zzz", "日"):
            found = await recall(store, query, scope=ANN)
            assert all(hit.relevance < ANSWERED for hit in found)


async def test_an_empty_store_recalls_nothing(opened: Opening) -> None:
    async with opened(HashEmbeddings(16)) as store:
        assert await recall(store, "tea", scope=ANN) == []
        assert await recall(store, "", scope=None) == []


@pytest.mark.timeout(scaled(30))
async def test_a_very_long_query_is_answered_by_its_ends(opened: Opening) -> None:
    paste = " ".join(f"word{n}" for n in range(12_000))
    async with opened(HashEmbeddings(16)) as store:
        await store.add(HumanMemory(id="b", content="coffee", metadata=ANN))
        await store.add(HumanMemory(id="a", content="my door code", metadata=ANN))
        await store.add(HumanMemory(id="c", content="tea", metadata=ANN))

        for query in (f"Which door code? {paste}", f"{paste} Which door code?"):
            found = await recall(store, query, scope=ANN, min_relevance=0)
            assert found[0].item.id == "a"


async def test_a_longer_query_than_any_text_is_refused(store: Any) -> None:
    with pytest.raises(QueryError, match="query"):
        await recall(store, "x" * (HumanMemory.max_content_bytes + 1), scope=ANN)


async def test_a_time_without_a_zone_is_utc(store: Any) -> None:
    naive = datetime(2024, 6, 15, 12)  # noqa: DTZ001 - that is the case

    one = await recall(store, "tea yesterday", scope=ANN, now=naive)

    assert one == await recall(store, "tea yesterday", scope=ANN, now=NOW)


async def test_a_store_that_cannot_find_is_named_with_the_way_out() -> None:
    with pytest.raises(QueryError, match=r"ShortTermMemory.*`SQLiteMemoryStore`"):
        await recall(ShortTermMemory(), "tea", scope=ANN)


async def test_without_a_model_it_says_so_once_and_names_the_cure(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_modes, "_warned", set())

    with pytest.warns(UserWarning, match=r"orbiter-memory\[local\].*`LocalEmbeddings") as told:
        await recall(store, "tea", scope=ANN)
    await recall(store, "tea", scope=ANN)

    assert [warning.filename for warning in told] == [__file__]


def test_a_blocking_call_is_named_by_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_modes, "_warned", set())
    model = Broken(16)
    with BlockingMemory("memory://", embeddings=model) as memory:
        memory.scope("ann").remember("my door code")
        memory.flush()
        model.is_broken = True

        with pytest.warns(UserWarning, match="could not embed the question") as told:
            memory.scope("ann").recall("door code")

    here = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert [warning.filename for warning in told] == [__file__]
    assert ".recall(" in here[told[0].lineno - 1]


async def test_with_a_model_it_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_modes, "_warned", set())
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings()) as store:
        await store.add(HumanMemory(content="tea", metadata=ANN))

        assert await recall(store, "tea", scope=ANN)


async def test_while_the_model_fails_words_still_answer_and_it_says_so_once(
    opened: Opening, recwarn: pytest.WarningsRecorder
) -> None:
    model = Broken(16)
    async with opened(model) as store:
        await store.add(HumanMemory(id="a", content="my door code", metadata=ANN))
        await store.add(HumanMemory(id="b", content="tea", metadata=ANN))
        await store.catch_up()
        model.is_broken = True

        with pytest.warns(UserWarning, match="ConnectionError: the model cannot be") as told:
            first = await recall(store, "door code", scope=ANN)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            second = await recall(store, "door code", scope=ANN)
        model.is_broken = False
        sound = await recall(store, "door code", scope=ANN)

    assert [warning.filename for warning in told] == [__file__]
    assert first == second
    assert first[0].item.id == sound[0].item.id == "a"
    assert "meaning" not in {reason.part for reason in first[0].why}


@dataclass
class Counting(Broken):
    """Embeddings that count the questions; as a dataclass they cannot be hashed."""

    asked: int = 0

    def __post_init__(self) -> None:
        super().__init__(16)

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        self.asked += 1
        return await super().aembed_details(texts)


async def test_a_model_that_failed_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_modes, "_warned", {"no vector"})
    model, other = Counting(), Counting()
    async with SQLiteMemoryStore(":memory:", embeddings=model) as store:
        await store.add(HumanMemory(content="my door code", metadata=ANN))
        await store.catch_up()
        before = model.asked
        model.is_broken = True
        for _ in range(3):
            assert await recall(store, "door code", scope=ANN)
        model.is_broken = False
        assert model.asked == before + 1
        assert id(other) not in _candidates._failed

        _candidates._failed[id(model)] = time.monotonic() - 1.0
        (hit,) = await recall(store, "door code", scope=ANN)

    assert model.asked == before + 2
    assert "reader" in {reason.part for reason in hit.why}


async def test_a_model_that_failed_is_forgotten_when_it_is_gone() -> None:
    model = Counting()
    model.is_broken = True

    with pytest.warns(UserWarning, match="ConnectionError"):
        assert await _candidates._embedded(model, "tea") is None
    key = id(model)
    assert key in _candidates._failed
    del model
    gc.collect()

    assert key not in _candidates._failed


async def test_a_store_of_vectors_alone_is_recalled_from_by_meaning() -> None:
    store = VectorMemoryStore(embeddings=HashEmbeddings(256))
    await store.add(
        HumanMemory(
            id="a", content="my door code", metadata=MemoryMetadata(user_id="ann", extra={"n": 1})
        )
    )
    await store.add(HumanMemory(id="b", content="green tea", metadata=ANN))
    await store.add(
        HumanMemory(id="c", content="door code", metadata=MemoryMetadata(user_id="bob"))
    )

    since = datetime.min  # noqa: DTZ901 - that is the case
    found = await recall(store, "door code yesterday", scope=ANN, since=since, min_relevance=0)
    narrow = await recall(store, "my green door", scope=ANN, where={"n": 1}, min_relevance=0)

    assert [hit.item.id for hit in found] == ["a", "b"]  # both are of the last two days
    assert [hit.item.id for hit in narrow] == ["a"]
