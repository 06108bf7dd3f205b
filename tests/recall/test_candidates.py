"""Candidates: what answers comes into the pool, however much else was said of the same matter."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from tests.recall.conftest import MODELS, Opening
from tests.recall.pools import turn

from orbiter.memory import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query
from orbiter.memory.recall._candidates import gather
from orbiter.memory.testing import HashEmbeddings

ANN = Query("", MemoryMetadata(user_id="ann"), limit=10)
NOW = datetime(2024, 8, 1, tzinfo=UTC)
MAY = datetime(2024, 5, 1, tzinfo=UTC)


def _noise(dice: random.Random, count: int = 12) -> str:
    """Return words that no other text has: what is alike would count as one."""
    return " ".join("".join(dice.choices("bdfgklmnprtv", k=6)) for _ in range(count))


@MODELS
async def test_a_named_month_gives_candidates_of_all_its_days(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    dice = random.Random(3)
    chatter = [
        turn(f"late-{n}", _noise(dice), session=f"late-{n}", at=MAY + timedelta(days=27, minutes=n))
        for n in range(300)
    ]
    answer = turn("early", "I ran forty two kilometres", session="a", at=MAY + timedelta(days=3))

    async with opened(model) as store:
        await store.add_many([*chatter, answer])
        await store.catch_up()
        asked = "Which feat was accomplished in May 2024?"
        question, pool = await gather(store, asked, ANN, now=NOW)

    assert question.times
    assert "early" in {item.id for item in pool.items}


@MODELS
@pytest.mark.parametrize(
    "text", ["What happened between 1 and 10 May?", "What happened on May 4th?", "… since 2 May?"]
)
async def test_a_time_without_a_year_is_that_of_the_last_one(
    opened: Opening, model: HashEmbeddings | None, text: str
) -> None:
    dice = random.Random(5)
    chatter = [
        turn(f"late-{n}", _noise(dice), session=f"late-{n}", at=MAY + timedelta(days=60, hours=n))
        for n in range(300)
    ]
    answer = turn("then", "I ran forty two kilometres", session="a", at=MAY + timedelta(days=3))

    async with opened(model) as store:
        await store.add_many([*chatter, answer])
        await store.catch_up()
        _, pool = await gather(store, text, ANN, now=MAY + timedelta(days=100))

    assert "then" in {item.id for item in pool.items}


@MODELS
async def test_a_named_month_gives_what_fits_the_question(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    dice = random.Random(4)

    def about_tea(n: int, at: datetime) -> MemoryItem:
        return turn(f"tea-{n}", f"tea {_noise(dice)}", session=f"tea-{n}", at=at)

    # As much fits that was said later, and the month has more than can be weighed.
    others = [about_tea(n, MAY + timedelta(days=60, minutes=n)) for n in range(300)]
    chatter = [
        turn(f"may-{n}", _noise(dice), session=f"may-{n}", at=MAY + timedelta(hours=n))
        for n in range(600)
    ]
    answer = turn("wanted", f"{_noise(dice)} tea", session="a", at=MAY + timedelta(days=11))

    async with opened(model) as store:
        await store.add_many([answer, *chatter, *others])
        await store.catch_up()
        _, pool = await gather(store, "Which tea was it in May 2024?", ANN, now=NOW)

    assert "wanted" in {item.id for item in pool.items}


@pytest.mark.parametrize("is_named", [False, True], ids=["assistant", "people"])
async def test_who_is_asked_about_is_not_crowded_out_by_others(
    opened: Opening, is_named: bool
) -> None:
    dice = random.Random(5)
    others = [
        turn(
            f"other-{n}",
            f"bike {_noise(dice, 2)} bike {_noise(dice, 2)}",
            session=f"other-{n}",
            speaker="Ben" if is_named else None,
            assistant=not is_named,
        )
        for n in range(75)
    ]
    chatter = [turn(f"far-{n}", _noise(dice), session=f"far-{n}") for n in range(400)]
    text = f"{_noise(dice)} the bike cost 40 dollars {_noise(dice)}"
    answer = turn("wanted", text, session="a", speaker="Ann" if is_named else None)

    async with opened() as store:
        await store.add_many([answer, *chatter, *others])
        asked = "How much was Ann's bike?" if is_named else "How much was my bike?"
        _, pool = await gather(store, asked, ANN, now=NOW, by_meaning=False)

    assert "wanted" in {item.id for item in pool.items}
