"""Rankings of today are those that were recorded: what makes recall faster may not change them.

`recorded_rankings.json` has the hits and scores of each question, by words and by meaning. The
vectors are those of hashes, as a model's differ a little from processor to processor, and so does
what the reader of hybrid recall says. To record
them again, after a change that is meant to change them:

    python -m tests.recall.test_recorded_ranking
"""

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.backends.sqlite import SQLiteMemoryStore
from orbiter.memory.recall import RecallMode, recall
from orbiter.memory.testing import HashEmbeddings

FILE = Path(__file__).with_name("recorded_rankings.json")
START = datetime(2026, 3, 2, 9, tzinfo=UTC)
NOW = START + timedelta(days=90)
MODES: list[RecallMode] = ["words", "meaning"]

THINGS = ("tea", "the harbour", "an invoice", "her garden", "a train to Lisbon", "the guitar")
PLACES = ("at the market", "in Vienna", "by the river", "at work", "near the bridge", "at home")
DEEDS = ("talked about", "bought", "painted", "lost", "was looking for", "did not like", "fixed")
QUESTIONS = (
    "What did Ann buy at the market?",
    "Where is the harbour?",
    "Which invoice was lost, and when?",
    "Ben",
    "What did you say about the guitar?",
    "tickets for the train to Lisbon on floor 2",
    "What happened in April?",
    "What did we do last week?",
    "Who does not like tea?",
    "Is there a document on copper lanterns and cedar windows?",
    "the",
    "flights to Mars",
    "tea harbour garden " * 100,
)


def corpus() -> list[MemoryItem]:
    """Return talk of people, talk with an assistant, notes, a series, copies and long texts."""
    dice = random.Random(7)

    def sentence(name: str) -> str:
        return f"{name} {dice.choice(DEEDS)} {dice.choice(THINGS)} {dice.choice(PLACES)}."

    def said(kind: type[MemoryItem], text: str, session: str, **extra: Any) -> MemoryItem:
        metadata = MemoryMetadata(user_id="ann", session_id=session, extra=extra)
        return kind(content=text, metadata=metadata)

    items: list[MemoryItem] = []
    for number in range(120):
        name = dice.choice(("Ann", "Ben"))
        text = f"{sentence('I')} {sentence('She')}" if number % 7 else "Did you like the garden?"
        items.append(said(HumanMemory, text, f"talk-{number // 12}", speaker=name))
    for number in range(60):
        kind = HumanMemory if number % 2 else AIMemory
        text = " ".join(sentence(dice.choice(("You", "Ann"))) for _ in range(dice.randint(1, 30)))
        items.append(said(kind, text, f"chat-{number // 20}"))
    notes = [sentence("Ann") for _ in range(60)]
    notes += [f"Ticket {number} for the train, floor {number % 3}." for number in range(130)]
    notes += [f"Buy tea at the market! ({number})" for number in range(40)]
    words = [
        "tea",
        "coffee",
        "harbour",
        "invoice",
        "garden",
        "copper",
        "lantern",
        "cedar",
        "window",
    ]
    notes.append(" ".join(dice.choice(words) for _ in range(4_000)))
    notes.append("\n\n".join(" ".join(sentence("Cid") for _ in range(9)) for _ in range(30)))
    notes += [
        "茶水港口は東京にあります。" * 40,
        "x7f3" * 500,
        "It isn't in Vienna.\tNo 12\r\nNo 13",
    ]
    items += [MemoryItem(content=text, metadata=MemoryMetadata(user_id="ann")) for text in notes]
    for number, item in enumerate(items):
        item.__dict__.update(id=f"{number:04}", created_at=START + timedelta(hours=5 * number))
    return items


async def rankings() -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Return the hits of each question with their scores, by mode."""
    found: dict[str, dict[str, list[tuple[str, float]]]] = {}
    ann = MemoryMetadata(user_id="ann")
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings()) as store:
        await store.add_many(corpus())
        await store.catch_up()
        for mode in MODES:
            for question in QUESTIONS:
                hits = await recall(
                    store, question, scope=ann, k=30, mode=mode, now=NOW, min_relevance=0
                )
                pairs = [(hit.item.id, round(hit.score, 6)) for hit in hits]
                found.setdefault(mode, {})[question[:60]] = pairs
    return found


def check_same(
    found: list[tuple[str, float]], recorded: list[tuple[str, float]], which: tuple[str, str]
) -> None:
    """Fail unless both are the same up to rounding, which differs between processors.

    So hits with the same score may have changed places, and of those at the end one may be another.
    """
    known, last = dict(recorded), recorded[-1][1] if recorded else 0.0
    assert len(found) == len(recorded), which
    for (name, score), (expected, at) in zip(found, recorded, strict=True):
        assert score == pytest.approx(at, abs=1e-4), which
        assert name == expected or known.get(name, last) == pytest.approx(at, abs=2e-6), which


@pytest.mark.slow
async def test_every_ranking_is_the_recorded_one() -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))

    found = await rankings()

    for mode, by_question in recorded.items():
        for question, hits in by_question.items():
            check_same(found[mode][question], hits, (mode, question))


if __name__ == "__main__":
    FILE.write_text(json.dumps(asyncio.run(rankings())) + "\n", encoding="utf-8")
