"""Questions for a sequence or a summary: hits that cover the matter over time, oldest first."""

from datetime import UTC, datetime, timedelta
from statistics import fmean

import pytest
from benchmarks import recall_spread
from benchmarks._matters import matters
from tests.recall.conftest import MODELS, Opening
from tests.rows import each_row

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.errors import QueryError
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.recall import recall
from orbiter.memory.recall._query_analysis import matter_of
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
START = datetime(2026, 1, 5, tzinfo=UTC)
ORDER = "In which order did I build the boat?"


def _told(day: int, text: str) -> MemoryItem:
    return HumanMemory(content=text, metadata=ANN, created_at=START + timedelta(days=day))


BUILT = [_told(10 * part, f"The boat gets its {name}") for part, name in enumerate(
    ("keel", "ribs", "planks", "mast", "sail")
)]  # fmt: skip
PEAK = [_told(22, f"Which {colour} paint would the boat that I build need?") for colour in (
    "red", "blue", "green", "grey"
)]  # fmt: skip


@MODELS
async def test_a_sequence_is_covered_over_time_and_told_in_its_order(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many([*BUILT, *PEAK])

        found = await recall(store, ORDER, scope=ANN, k=5)
        plain = await recall(store, ORDER, scope=ANN, k=5, spread=False)
        by_hand = await recall(store, "boat", scope=ANN, k=5, spread=True)

    for hits in (found, by_hand):
        times = [hit.item.created_at for hit in hits]
        assert times == sorted(times)
        assert hits.spread
        assert "over time, oldest first" in hits.question
        assert sum(hit.item.content in {item.content for item in BUILT} for hit in hits) >= 4
    assert not plain.spread
    scores = [hit.score for hit in plain]
    assert scores == sorted(scores, reverse=True)
    for hit in found:
        assert hit.score == pytest.approx(sum(reason.points for reason in hit.why))


@each_row(
    ("question", "matter"),
    [
        ("In which order did I repair the bike?", "did I repair the bike?"),
        ("Can you summarise how my thesis developed?", "how my thesis ?"),
        ("Walk me through the history of the garden", "the history of the garden"),
        ("Give me an overview of my moves", "my moves"),
        ("List my jobs in chronological order.", "my jobs ."),
        ("How did my garden evolve?", "my garden ?"),
        ("In what order?", "In what order?"),
    ],
)
def test_the_words_that_ask_for_order_or_sum_are_not_searched_for(
    question: str, matter: str
) -> None:
    found = matter_of(question)

    assert found is not None
    assert found.split() == matter.split()


@each_row(
    "question",
    [
        "What did I order at the restaurant?",
        "Which event happened first, the wedding or the move?",
        "What do I need in order to renew my passport?",
        "Where do I live?",
        "How did I get home?",
    ],
)
def test_other_questions_are_answered_best_first(question: str) -> None:
    assert matter_of(question) is None


async def test_the_newest_first_stay_so_and_nothing_but_yes_no_or_none_is_taken() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many(BUILT)

        newest = await recall(store, ORDER, scope=ANN, mode="recent", spread=True)
        with pytest.raises(QueryError, match="`spread` must be True, False or None"):
            await recall(store, ORDER, scope=ANN, spread="yes")  # type: ignore[arg-type]

    assert not newest.spread
    assert [hit.item.id for hit in newest] == [item.id for item in reversed(BUILT)]


async def test_a_handle_takes_it_too() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        for item in BUILT:
            await ann.remember(item.content, created_at=item.created_at)

        found = await ann.recall("boat", spread=True)

    assert [hit.item.content for hit in found] == [item.content for item in BUILT]


@pytest.mark.parametrize(
    ("model", "most"),
    [(None, 0.6), (LocalEmbeddings(), 0.8)],
    ids=["by words", "with the model"],
)
async def test_more_of_a_long_matter_is_found_than_without(
    opened: Opening, model: Embeddings | None, most: float
) -> None:
    async with opened(model) as store:
        await recall_spread.fill(store)
        shares = {}
        for spread in (None, False):
            rows = await recall_spread.judge(store, matters(), k=10, spread=spread)
            shares[spread] = fmean(row.share for row in rows)
            assert all(row.is_in_order for row in rows) is (spread is None)

        twice = await recall_spread.judge(store, matters(), k=20, spread=None)

    assert shares[None] >= shares[False] + 0.2
    # Most messages do not name the matter; what was said around them does.
    assert fmean(row.share for row in twice) >= most


async def test_a_context_takes_its_memories_from_all_of_a_matter() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        for item in [*BUILT, *PEAK]:
            await ann.remember(item.content, created_at=item.created_at)
        chat = ann.chat("today")
        await chat.add([{"role": "user", "content": "Hello"}])

        told = [
            await chat.context("Walk me through the boat that I build", memory_limit=6),
            await chat.context("the boat that I build", memory_limit=6, spread=True),
        ]

    for context in told:
        assert sum(item.content in context.text for item in BUILT) >= 4
        assert "Hello" in context.text
