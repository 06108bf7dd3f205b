"""Facts in recall, at the time that a question is about: then, now, or not yet."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.recall.test_current_facts import (
    ANN,
    BERLIN,
    LIMA,
    NOW,
    PARIS,
    _day,
    _fact,
    _of,
    _values,
)

from orbiter.memory import SQLiteMemoryStore
from orbiter.memory.context import ContextManager
from orbiter.memory.model.facts import dated
from orbiter.memory.recall import BoundRecall, RecallMode, recall
from orbiter.memory.testing import HashEmbeddings

OSLO = _fact("Oslo", _day(2029), recorded_at=_day(2025), created_at=_day(2025))


@pytest.mark.parametrize("mode", ["hybrid", "words", "meaning"])
async def test_what_held_at_the_time_asked_about_comes_first(mode: RecallMode) -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(256)) as store:
        await store.add_many([PARIS, LIMA, BERLIN, OSLO])

        then = await recall(store, "my home city in 2021", scope=ANN, mode=mode, now=NOW)
        moved = await recall(store, "my home city in 2024", scope=ANN, mode=mode, now=NOW)
        this = await recall(store, "my home city this year", scope=ANN, mode=mode, now=NOW)
        coming = await recall(store, "my home city in 2030", scope=ANN, mode=mode, now=NOW)
        before = await recall(store, "my home city in 1990", scope=ANN, mode=mode, now=NOW)

    assert _values(then)[0] == "Lima"
    assert set(_values(then)) == {"Lima", "Paris", "Berlin", "Oslo"}
    assert _values(moved)[:2] == ["Berlin", "Lima"]  # ten months of it, then two
    assert _values(this)[0] == "Berlin"
    assert _values(coming)[0] == "Oslo"
    assert _values(before)[0] == "Berlin"


ENDED = _fact("", _day(2025, 1), is_end=True)


@pytest.mark.parametrize("mode", ["hybrid", "words", "meaning"])
async def test_what_has_ended_hardly_answers_about_now_newest_first(mode: RecallMode) -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(256)) as store:
        await store.add_many([BERLIN, LIMA, PARIS, ENDED])

        now = await recall(store, "What is my home city?", scope=ANN, mode=mode, now=NOW)
        today = await recall(store, "my home city today", scope=ANN, mode=mode, now=NOW)
        past = await recall(store, "Which was my home city?", scope=ANN, mode=mode, now=NOW)
        then = await recall(store, "my home city in 2021", scope=ANN, mode=mode, now=NOW)

    assert _values(now) == sorted([LIMA.value, PARIS.value, BERLIN.value], key=_begins)
    assert max(hit.relevance for hit in [*now, *today]) <= 0.3
    assert all(", ended (" in hit.passage for hit in now)
    assert all(hit.shown.content.endswith(", ended") for hit in now)
    assert max(hit.relevance for hit in past) > 0.3
    assert _values(then)[0] == "Lima"
    assert then[0].relevance > 0.3


def _begins(value: object) -> float:
    """Return by what values are the newest first."""
    begun = {fact.value: fact.valid_from.timestamp() for fact in (LIMA, PARIS, BERLIN)}
    return -begun[str(value)]


async def test_what_held_then_is_brought_in_if_only_another_value_was_found() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([PARIS, LIMA, BERLIN])

        found = await recall(store, "before Paris in 2021", scope=ANN, mode="words", now=NOW)

    assert _values(found)[0] == "Lima"
    assert "held 2020 to 1 Mar 2024" in str(found[0].why)


@pytest.mark.parametrize("mode", ["hybrid", "words", "meaning"])
async def test_every_hit_tells_its_time_in_short(mode: RecallMode) -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(256)) as store:
        await store.add_many([PARIS, LIMA, BERLIN, OSLO])

        found = await recall(
            store,
            "What is my home city?",
            scope=ANN,
            mode=mode,
            now=NOW,
            explain=True,
            min_relevance=0,
        )

    assert _values(found)[0] == "Berlin"
    assert set(_values(found)) == {"Berlin", "Lima", "Oslo"}
    assert "holds 1 Mar 2024 to 2029" in str(_of(found, "Berlin").why)
    assert "held 2020 to 1 Mar 2024" in str(_of(found, "Lima").why)
    assert "will hold from 1 Jan 2029" in str(_of(found, "Oslo").why)
    assert _of(found, "Oslo").passage == "home city: Oslo (from 1 Jan 2029)"
    assert all(len(str(hit.why)) <= 100 for hit in found)
    [left] = [one for one in found.left_out if one.item.id == PARIS.id]
    assert "held 2015 to 2020" in left.told


async def test_a_value_that_the_question_names_is_kept_beside_two_others() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([PARIS, LIMA, BERLIN, OSLO])

        found = await recall(store, "Was Paris my home city?", scope=ANN, mode="words", now=NOW)

    assert set(_values(found)) == {"Paris", "Lima", "Berlin", "Oslo"}


async def test_what_is_not_yet_true_is_never_told_as_true() -> None:
    alone = _fact("Rome", _day(2030), key="office", recorded_at=_day(2025), created_at=_day(2025))
    guest = _fact("Bern", _day(2029), valid_to=_day(2030), recorded_at=_day(2025))
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([alone, guest, BERLIN])

        found = await recall(store, "office", scope=ANN, mode="words", now=NOW)
        home = await recall(store, "home city Berlin", scope=ANN, mode="words", now=NOW)

    assert found[0].passage == "office: Rome (from 1 Jan 2030)"
    assert str(found[0].why).startswith("will hold from 1 Jan 2030")
    assert _of(home, "Berlin").passage == "home city: Berlin (1 Mar 2024 to 2029)"  # the first time


@pytest.mark.parametrize("is_bound", [True, False], ids=["recall", "plain store"])
async def test_a_context_does_not_show_what_will_be_as_what_is(is_bound: bool) -> None:
    later = datetime.now(UTC).replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
    later += timedelta(days=3 * 366)
    coming = _fact("Oslo", later, recorded_at=_day(2025), created_at=_day(2025))
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many([coming, BERLIN])
        context = await ContextManager(None).assemble(
            "What is my home city?",
            long_term=BoundRecall(store, ANN) if is_bound else store,
            scope=ANN,
        )

    assert "home city: Berlin (" in context.text
    assert "Oslo (since" not in context.text
    assert ("home city: Oslo (from " in context.text) is is_bound


def test_dates_are_told_as_seen_from_a_moment() -> None:
    assert dated(OSLO) == "since 2029"
    assert dated(OSLO, now=NOW) == "from 1 Jan 2029"
    assert dated(LIMA, now=NOW) == "since 2020"
