"""Statements that replace older ones: the newer first, the older behind it and marked."""

from datetime import UTC, datetime, timedelta

import pytest
from benchmarks import recall_newer
from benchmarks._replacements import pairs
from tests.recall.conftest import MODELS, Opening

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.recall import Hit, RecallResult, recall
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def _said(item_id: str, text: str, days_ago: int, **extra: object) -> MemoryItem:
    metadata = MemoryMetadata(user_id="ann", extra=extra)
    at = NOW - timedelta(days=days_ago)
    return HumanMemory(id=item_id, content=text, metadata=metadata, created_at=at)


OSLO = _said("oslo", "I live in Oslo", 300)
PARIS = _said("paris", "I moved to Paris last month, I no longer live in Oslo", 20)
TEA = _said("tea", "Green tea is what I like best", 100)


def _ids(found: RecallResult) -> list[str]:
    return [hit.item.id for hit in found]


def _of(found: RecallResult, item_id: str) -> Hit:
    return next(hit for hit in found if hit.item.id == item_id)


@MODELS
async def test_a_question_about_now_prefers_what_replaces_another(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many([OSLO, TEA, PARIS])

        found = await recall(store, "Where do I live now?", scope=ANN, now=NOW)
        newest = await recall(store, "Where do I live now?", scope=ANN, mode="recent", now=NOW)

    assert _ids(found)[:2] == ["paris", "oslo"]
    oslo = _of(found, "oslo")
    assert oslo.replaced_by == "paris"
    assert 'replaced by "I moved to Paris last month' in str(oslo.why)
    assert oslo.shown.content == "I live in Oslo (replaced since)"
    assert _of(found, "paris").replaced_by is None
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert scores == pytest.approx([sum(reason.points for reason in hit.why) for hit in found])
    assert _ids(newest) == ["paris", "oslo"]
    assert _of(newest, "oslo").replaced_by == "paris"


@pytest.mark.parametrize(
    "question",
    [
        "Where did I live before?",
        "Where did I live in March?",
        "What was my home in 2025?",
        "Where have I lived?",
        "How many times have I moved to a place like Oslo?",
    ],
)
async def test_a_question_about_the_past_is_not_turned_around(question: str) -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([OSLO, TEA, PARIS])

        found = await recall(store, question, scope=ANN, now=NOW)

    assert all(hit.replaced_by is None for hit in found)


async def test_what_replaces_is_brought_in_though_it_has_no_word_of_the_question() -> None:
    others = [_said(f"n{day}", f"The rain of day {day} was warm", day) for day in range(30, 280)]
    moved = _said("linz", "We relocated to Linz in autumn", 15)
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([OSLO, *others, moved])

        found = await recall(store, "Where do I live at the moment?", scope=ANN, now=NOW)

    assert _ids(found)[:2] == ["linz", "oslo"]
    assert 'replaces "I live in Oslo"' in str(found[0].why)
    assert found[0].relevance == found[1].relevance


@pytest.mark.parametrize(
    "newer",
    [
        _said("x", "I moved to Paris, I no longer live in Oslo", 9, source="web:example.com"),
        _said("x", "Maybe I will move to Paris, if I no longer like Oslo", 9),
        _said("x", "I moved to Paris, I no longer live in Oslo", 9, speaker="Ben"),
        _said("x", "Have I moved to Paris, do I no longer live in Oslo?", 9),
        _said("x", "I still live in Oslo, in a new flat", 9),
        _said("x", "My brother moved to Paris, he no longer lives in Oslo", 9),
    ],
    ids=["less trusted", "not done", "another speaks", "a question", "still so", "another person"],
)
async def test_what_only_looks_like_it_replaces_nothing(newer: MemoryItem) -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([OSLO, newer])

        found = await recall(store, "Where do I live now?", scope=ANN, now=NOW)

    assert _of(found, "oslo").replaced_by is None


async def test_a_fact_that_held_says_what_replaced_it() -> None:
    facts = [
        FactMemory(id=city, key="home_city", value=city, valid_from=since, recorded_at=since,
                   created_at=since, metadata=ANN)
        for city, since in (("Oslo", NOW - timedelta(900)), ("Paris", NOW - timedelta(90)))
    ]  # fmt: skip
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many(facts)

        found = await recall(store, "home city", scope=ANN, now=NOW)

    assert [(hit.item.id, hit.replaced_by) for hit in found] == [("Paris", None), ("Oslo", "Paris")]
    assert 'replaced by "home city: Paris"' in [reason.text for reason in found[1].why]


@pytest.mark.parametrize("model", [None, LocalEmbeddings()], ids=["by words", "with the model"])
async def test_nine_of_ten_pairs_are_right_and_questions_about_the_past_let_be(
    opened: Opening, model: Embeddings | None
) -> None:
    async with opened(model) as store:
        await recall_newer.fill(store)
        rows = await recall_newer.judge(store)

    now = [row for row in rows if row.kind != "past"]
    assert len(now) == len(list(pairs())) == 60
    assert sum(row.is_right for row in now) >= 54
    assert all(row.is_right for row in rows if row.kind in ("past", "look alike"))
    assert sum(row.strays for row in now) <= 1
