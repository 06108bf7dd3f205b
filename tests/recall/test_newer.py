"""What somebody said later may replace what they said before: it stands first, both marked."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from orbiter.memory import (
    AgentMemory,
    AIMemory,
    HumanMemory,
    LocalEmbeddings,
    MemoryItem,
    MemoryMetadata,
    SQLiteMemoryStore,
)
from orbiter.memory.recall import Explanation, RecallResult, recall
from orbiter.memory.recall._newer import prefer_newer
from orbiter.memory.recall._query_analysis import read
from orbiter.memory.recall._scoring import Scored
from orbiter.memory.recall._select import Candidates, choose

START = datetime(2025, 1, 5, tzinfo=UTC)
ASKED = "Where do I live?"
OLDER, NEWER = "I live in Oslo", "I moved to Paris, I no longer live in Oslo"


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


def _said(
    text: str,
    *,
    day: int,
    kind: type[MemoryItem] = HumanMemory,
    user: str = "ann",
    speaker: str | None = None,
) -> MemoryItem:
    extra = {} if speaker is None else {"speaker": speaker}
    metadata = MemoryMetadata(user_id=user, extra=extra)
    return kind(content=text, metadata=metadata, created_at=START + timedelta(days=day))


async def _recalled(model: Any, *items: MemoryItem, asked: str = ASKED, **how: Any) -> RecallResult:
    async with SQLiteMemoryStore(":memory:", embeddings=model) as store:
        await store.add_many(items)
        await store.catch_up()
        return await recall(store, asked, scope=None, min_relevance=0, **how)


@pytest.mark.parametrize(
    ("older", "newer", "asked"),
    [
        (OLDER, NEWER, ASKED),
        (
            "The dentist appointment is on Monday at 9",
            "The dentist appointment was moved to Thursday at 3",
            "When is the dentist appointment?",
        ),
    ],
)
@pytest.mark.parametrize("kind", [HumanMemory, MemoryItem])
async def test_what_the_same_person_replaced_is_behind_and_marked(
    local: LocalEmbeddings, older: str, newer: str, asked: str, kind: type[MemoryItem]
) -> None:
    items = (_said(older, day=0, kind=kind), _said(newer, day=90, kind=kind))

    found = await _recalled(local, *items, _said("I like green tea", day=2), asked=asked)

    assert [hit.content for hit in found[:2]] == [newer, older]
    now, once = found[:2]
    assert (now.replaced_by, once.replaced_by) == (None, now.item.id)
    assert once.relevance < now.relevance / 2
    assert str(once.why).startswith(f'replaced by "{newer[:30]}')
    assert f'replaces "{older}"' in [reason.text for reason in now.why]
    for hit in found:
        assert sum(reason.points for reason in hit.why) == pytest.approx(hit.score)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (_said(OLDER, day=0), _said(NEWER, day=90, user="ben")),
        (_said(OLDER, day=0, speaker="Ann"), _said(NEWER, day=90, speaker="Ben")),
    ],
    ids=["of another user", "by another speaker"],
)
async def test_what_another_says_replaces_nothing(
    local: LocalEmbeddings, older: MemoryItem, newer: MemoryItem
) -> None:
    found = await _recalled(local, older, newer)

    assert {hit.content for hit in found} == {OLDER, NEWER}
    assert not any(hit.replaced_by for hit in found)


async def test_what_an_assistant_says_replaces_nothing(local: LocalEmbeddings) -> None:
    said = "You moved to Paris, you no longer live in Oslo"

    found = await _recalled(local, _said(OLDER, day=0), _said(said, day=90, kind=AIMemory))

    assert not any(hit.replaced_by for hit in found)


async def test_a_question_about_the_past_marks_nothing(local: LocalEmbeddings) -> None:
    found = await _recalled(
        local, _said(OLDER, day=0), _said(NEWER, day=90), asked="Where did I live before?"
    )

    assert not any(hit.replaced_by for hit in found)


async def test_copies_of_what_was_replaced_are_compared_too(local: LocalEmbeddings) -> None:
    copies = [_said(OLDER, day=number) for number in range(5)]

    found = await _recalled(local, *copies, _said(NEWER, day=90), k=20)

    assert found[0].content == NEWER
    assert _of(found, OLDER).relevance < found[0].relevance


@pytest.mark.parametrize("mode", ["hybrid", "meaning"])
async def test_more_statements_than_are_read_are_recalled(
    local: LocalEmbeddings, mode: Any
) -> None:
    towns = ("Oslo", "Rome", "Lima", "Bern", "Kiel", "Graz", "Porto", "Linz", "Ulm", "Bonn")
    texts = [f"I live in {town} {when}" for town in towns for when in ("now", "these days")]

    found = await _recalled(
        local, *(_said(text, day=day) for day, text in enumerate(texts)), k=40, mode=mode
    )

    assert len(found) == len(texts)


async def test_what_is_known_of_the_user_is_told_though_nothing_of_it_is_read(
    local: LocalEmbeddings,
) -> None:
    async with AgentMemory("memory://", embeddings=local) as memory:
        alice = memory.scope("alice")
        for number, text in enumerate((OLDER, NEWER)):
            await alice.remember(text, created_at=START + timedelta(days=number))
        await memory.flush()

        found = await alice.recall("What do you know about me?")

    assert {hit.content for hit in found} == {OLDER, NEWER}


@pytest.mark.parametrize(
    ("likely", "order"),
    [
        ([0.50, 0.47, 0.30], [1, 0, 2]),
        ([0.50, 0.44, 0.42], [0, 2, 1]),
        ([0.10, 0.09, 0.08], [0, 1, 2]),  # none of them answers
    ],
)
async def test_of_hits_that_are_about_as_likely_the_newer_one_is_the_first(
    likely: list[float], order: list[int]
) -> None:
    words = ("tea with mint", "a red bicycle", "the harbour at night")
    items = [_said(text, day=day) for day, text in enumerate(words)]
    scored = [Scored(item, at, {"words": likely[at]}) for at, item in enumerate(items)]
    candidates = Candidates(
        read("x", now=START),
        "",
        scored,
        lambda _: Explanation(),
        likely=lambda one: likely[one.place],
        by_relevance=True,
    )

    found = choose(candidates, k=3, mode="words", explain=False)

    assert [items.index(hit.item) for hit in found] == order


def _of(found: RecallResult, text: str) -> Any:
    return next(hit for hit in found if hit.content == text)


@pytest.mark.parametrize(
    ("first", "second"), [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (2.0, 2.0)], ids=str
)
async def test_of_notes_that_replace_each_other_in_turn_the_last_is_the_first(
    first: float, second: float
) -> None:
    a, b, c = (_said(text, day=day) for day, text in enumerate(("one", "two", "three")))
    likely = {a.id: 0.6, b.id: 0.5, c.id: 0.4}

    class Sayings:
        async def compare(self, *_: object) -> dict[tuple[str, str], float]:
            return {(a.id, b.id): first, (b.id, c.id): second}

    found = await prefer_newer(
        cast("Any", None),
        Candidates(
            read(ASKED, now=START),
            "",
            [Scored(item, place, {}) for place, item in enumerate((a, b, c))],
            lambda _: Explanation(()),
            likely=lambda one: likely[one.item.id],
        ),
        cast("Any", Sayings()),
    )
    relevance = [found.relevance(one) for one in found.scored]

    assert relevance[2] == 0.6
    assert relevance[1] <= 0.6
    assert relevance[0] <= 0.6
