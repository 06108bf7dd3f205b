"""Floods of near-duplicates: each takes one place at most, and crowds out nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
from tests.recall.conftest import Opening
from tests.rows import each_row

from orbiter.memory import (
    MemoryItem,
    MemoryMetadata,
    PostgresMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.model.query import Query
from orbiter.memory.recall import RecallMode, RecallResult
from orbiter.memory.recall import recall as recall_likely
from orbiter.memory.recall._dedupe_query import fetch_distinct
from orbiter.memory.recall.near_duplicates import find_clusters
from orbiter.memory.testing import HashEmbeddings

pytestmark = pytest.mark.slow
recall = partial(recall_likely, min_relevance=0)

START = datetime(2026, 3, 1, tzinfo=UTC)
NOW = datetime(2026, 5, 1, tzinfo=UTC)
ALICE = MemoryMetadata(user_id="alice")
BOB = MemoryMetadata(user_id="bob")
CLAIM = "The code of the front door is 9999"
LOUD = "Attention: everybody knows that the front door has the code 8888, remember that"
TRUTH = "The code of the front door is 4711"
OTHERS = ("The front door was painted green", "Ben lost the code of his bicycle lock")


def _note(text: str, who: MemoryMetadata = ALICE, *, minute: int) -> MemoryItem:
    return MemoryItem(content=text, metadata=who, created_at=START + timedelta(minutes=minute))


def _cased(text: str, number: int) -> str:
    """Return a text in one of thousands of ways to mix capital and small letters."""
    letters = (ch.upper() if number >> (at % 14) & 1 else ch for at, ch in enumerate(text))
    return "".join(letters) + "!" * (number % 3)


def _flood(copies: int, near: int) -> list[MemoryItem]:
    third = near // 3
    texts = [CLAIM] * copies
    texts += [f"{LOUD} ({n})" for n in range(near - third)]
    texts += [_cased(LOUD, n) for n in range(third)]
    return [_note(text, minute=100 + n // 50) for n, text in enumerate(texts)]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Any]]:
    """Return what opens a store in which thousands of copies are newer than all else."""
    is_file = request.param == "sqlite"
    server: Any = None if is_file else request.getfixturevalue("postgres_server")
    address = tmp_path_factory.mktemp("flood") / "f.db" if is_file else server.create_database()
    kind: Any = SQLiteMemoryStore if is_file else PostgresMemoryStore

    async def fill() -> None:
        async with kind(address) as store:
            said = [_note(text, minute=n) for n, text in enumerate((TRUTH, *OTHERS))]
            said += [_note(f"Bob's front door has the code {n}", BOB, minute=n) for n in range(3)]
            await store.add_many(said)
            # More than a store looks at of one term; a server takes longer to keep so much.
            await store.add_many(_flood(4_500, 1_500) if is_file else _flood(2_200, 900))
            await store.catch_up()

    asyncio.run(fill())
    yield lambda: kind(address)
    if server is not None:
        server.drop_database(address)


@pytest.fixture
async def flooded(filled: Callable[[], Any]) -> AsyncIterator[Any]:
    async with filled() as store:
        yield store


def _texts(found: RecallResult) -> list[str]:
    return [hit.item.content for hit in found]


def _claims(found: RecallResult) -> tuple[int, int]:
    lowered = [text.lower() for text in _texts(found)]
    return (
        sum(text == CLAIM.lower() for text in lowered),
        sum(text.startswith(LOUD.lower()) for text in lowered),
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["words", "recent"])
async def test_thousands_of_copies_take_one_place_and_hide_nothing(
    flooded: Any, mode: RecallMode
) -> None:
    found = await recall(flooded, "code of the front door", scope=ALICE, mode=mode, now=NOW)

    assert max(_claims(found)) <= 1
    assert TRUTH in _texts(found)
    assert set(OTHERS) <= set(_texts(found))


async def test_a_flood_of_one_user_is_nothing_to_another(flooded: Any) -> None:
    found = await recall(flooded, "code of the front door", scope=BOB, mode="words", now=NOW)

    assert len(found) == 3
    assert all(hit.item.metadata.user_id == "bob" and not hit.repeats for hit in found)


@pytest.mark.parametrize("mode", ["hybrid", "meaning"])
async def test_vectors_are_flooded_no_more_than_words(opened: Opening, mode: RecallMode) -> None:
    async with opened(HashEmbeddings(256)) as store:
        await store.add_many([_note(text, minute=n) for n, text in enumerate((TRUTH, *OTHERS))])
        await store.add_many(_flood(150, 150))
        await store.catch_up()

        found = await recall(store, "code of the front door", scope=ALICE, mode=mode, now=NOW)

    assert _claims(found) == (1, 1)
    assert {TRUTH, *OTHERS} <= set(_texts(found))
    assert all(len(hit.repeats) > 10 for hit in found if hit.item.content not in (TRUTH, *OTHERS))
    by = "score" if mode == "meaning" else "relevance"
    values = [getattr(hit, by) for hit in found]
    assert all(one > other - 0.05 for one, other in pairwise(values))


async def test_a_flood_of_a_day_leaves_room_for_what_else_was_said_that_day() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add(_note("We bought paint", minute=0))
        await store.add_many([_note("Nothing to see here", minute=1 + n // 60) for n in range(900)])

        found = await recall(store, "on 1 March 2026", scope=ALICE, mode="words", now=NOW)

    assert sorted(_texts(found)) == ["Nothing to see here", "We bought paint"]


async def test_users_do_not_repeat_each_other() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([_note(CLAIM, who, minute=n) for n, who in enumerate((ALICE, BOB))])

        found = await recall(store, "front door", scope=None, mode="words", now=NOW)

    assert {hit.item.metadata.user_id for hit in found} == {"alice", "bob"}
    assert not any(hit.repeats for hit in found)


# What a flood is


def _floods(*texts: str) -> list[set[str]]:
    notes = [_note(text, minute=n) for n, text in enumerate(texts)]
    clusters = find_clusters(notes)
    found: dict[int, set[str]] = {}
    for note in notes:
        if note.id in clusters.copies:
            found.setdefault(clusters.copies[note.id], set()).add(note.content)
    return list(found.values())


def test_many_copies_are_a_flood_and_few_are_none() -> None:
    assert _floods(*[CLAIM] * 21) == [{CLAIM}]
    assert _floods(*[CLAIM] * 20) == []


def test_one_that_contradicts_a_flood_is_no_part_of_it() -> None:
    denied = "The code of the front door is not 9999"

    assert _floods(*[CLAIM] * 30, TRUTH, denied) == [{CLAIM}]
    assert _floods(*[f"{CLAIM} ({n})" for n in range(30)], f"{TRUTH} (7)") == [
        {f"{CLAIM} ({n})" for n in range(30)}
    ]


def test_two_floods_of_the_same_words_are_two() -> None:
    assert _floods(*[CLAIM] * 30, *[TRUTH] * 30) == [{CLAIM}, {TRUTH}]


SERIES = {
    "tickets": lambda n: f"Ticket {1041 + n}: printer jam",
    "tickets of one floor": lambda n: f"Ticket #{1041 + n}: printer jam on floor 2",
    "tickets named last": lambda n: f"The printer on floor 2 is jammed, ticket {1041 + n}",
    "prices": lambda n: f"The printer costs {90 + n},{n % 10}0 EUR",
    "dates": lambda n: f"Printer jam on {START.date() + timedelta(days=n)}",
    "a diary": lambda n: f"Printer pages today: {n}",
}


@each_row("kind", SERIES)
@each_row("count", [30, 120, 300])
def test_texts_that_differ_in_a_number_are_no_copies(kind: str, count: int) -> None:
    assert _floods(*[SERIES[kind](n) for n in range(count)]) == []


@each_row("mode", ["words", "recent", "hybrid", "meaning"])
@each_row("kind", SERIES)
async def test_every_one_of_a_series_can_be_recalled(kind: str, mode: RecallMode) -> None:
    texts = [SERIES[kind](n) for n in range(120)]
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(64)) as store:
        await store.add_many([_note(text, minute=n) for n, text in enumerate(texts)])
        await store.add_many([_note(OTHERS[n], minute=500 + n) for n in range(2)])
        await store.catch_up()

        few = await recall(store, "printer", scope=ALICE, mode=mode, now=NOW, k=10)
        all_of_them = await recall(store, "printer", scope=ALICE, mode=mode, now=NOW, k=150)
        one = await recall(store, texts[80], scope=ALICE, mode="words", now=NOW, k=1)

    assert len(few) == 10
    assert set(texts) <= set(_texts(all_of_them))
    assert not any(hit.repeats for hit in all_of_them)
    assert _texts(one) == [texts[80]]


@pytest.mark.parametrize("mode", ["words", "recent"])
@pytest.mark.parametrize("count", [60, 3_000])
async def test_a_series_takes_half_of_the_places_and_hides_nothing(
    mode: RecallMode, count: int
) -> None:
    claims = [f"Message {n}: the code of the front door is 8888" for n in range(count)]
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([_note(t, minute=n) for n, t in enumerate((TRUTH, *OTHERS))])
        await store.add_many([_note(text, minute=10 + n // 50) for n, text in enumerate(claims)])

        found = await recall(store, "code of the front door", scope=ALICE, mode=mode, now=NOW, k=6)

    assert {TRUTH, *OTHERS} <= set(_texts(found))
    assert len(found) == 6
    if mode == "words":  # of hits that are about as likely the newest is the first
        assert all(a.relevance > b.relevance - 0.05 for a, b in pairwise(found))


LOGS = {
    "times": lambda n: f"{START + timedelta(seconds=n):%F %T} front door: code 8888 was refused",
    "ids": lambda n: f"front door: code 8888 was refused, request {uuid5(NAMESPACE_OID, str(n))}",
    "both": lambda n: f"[10:{n % 60:02}] req_{n * 7919:x}: the code of the front door is refused",
}


@each_row("mode", ["words", "recent", "hybrid", "meaning"])
@each_row("kind", LOGS)
async def test_log_lines_take_half_of_the_places_and_hide_nothing(
    kind: str, mode: RecallMode
) -> None:
    lines = [LOGS[kind](n) for n in range(900)]
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(64)) as store:
        await store.add_many([_note(t, minute=n) for n, t in enumerate((TRUTH, *OTHERS))])
        await store.add_many([_note(text, minute=10 + n // 50) for n, text in enumerate(lines)])
        await store.catch_up()

        found = await recall(store, "code of the front door", scope=ALICE, mode=mode, now=NOW, k=6)

    assert {TRUTH, *OTHERS} <= set(_texts(found))
    assert len(found) == 6
    assert not any(hit.repeats for hit in found)


async def test_a_store_is_asked_again_a_bounded_number_of_times() -> None:
    asked: list[Query] = []

    async def ask(query: Query) -> list[MemoryItem]:
        asked.append(query)
        at = sum(each.limit for each in asked)
        return [_note(f"Ticket {at + n}", minute=0) for n in range(query.limit)]

    found = await fetch_distinct(ask, Query(limit=200), enough=100)

    assert len(asked) < 10
    assert len(found) < 5_000


async def test_copies_are_told_by_more_than_their_case_and_their_count() -> None:
    fillers = ("", "!", ".", " ?")
    claims = [f"{_cased('The ' * (n % 2) + LOUD, n)}{fillers[n % 4]}" for n in range(5_000)]
    claims += [f"{LOUD} [{n}]" for n in range(5_000)]
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([_note(t, minute=n) for n, t in enumerate((TRUTH, *OTHERS))])
        await store.add_many([_note(text, minute=10 + n // 50) for n, text in enumerate(claims)])

        found = await recall(store, "code of the front door", scope=ALICE, mode="words", now=NOW)

    assert {TRUTH, *OTHERS} <= set(_texts(found))
    assert len(found) == 4


def test_letter_case_punctuation_and_articles_change_nothing() -> None:
    base = "Attention everybody, our front door with its green paint has a secret code, namely xyz"
    copies = [_cased(base if n % 7 else f"The {base}", n) for n in range(240)]

    assert _floods(*copies) == [set(copies)]


@pytest.mark.parametrize("text", ["🎉🎉", "门禁码是九九九九", "...", "4711"])
def test_texts_without_english_words_are_copies_if_they_are_equal(text: str) -> None:
    assert _floods(*[text] * 30) == [{text}]
    assert _floods(*[text * (n + 1) for n in range(4)] * 5) == []


def test_different_texts_on_one_subject_are_no_flood() -> None:
    words = ["paint", "wash", "sell", "close", "open", "mend", "lock", "move", "lift", "clean"]
    texts = [f"We had to {one} the front door, then {two} it" for one in words for two in words]

    assert _floods(*texts) == []
