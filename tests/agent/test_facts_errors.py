"""What `facts` says to those who err, and where a fact comes from that names an id."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError


@pytest.fixture
def here(open_memory: Callable[..., AgentMemory]) -> ScopedMemory:
    return open_memory("memory://").scope(user_id="ann")


def _year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


async def test_an_end_ends_what_holds_then_and_nothing_that_begins_later(
    here: ScopedMemory,
) -> None:
    facts = here.facts
    await facts.put("employer", "Acme", valid_from=_year(2020))
    later = await facts.put("employer", "Initech", valid_from=_year(2024))

    ended = await facts.end("employer", at=_year(2022))

    assert ended is not None
    assert await facts.get("employer", as_of=_year(2023)) is None
    assert (await facts.all())["employer"].value == "Initech"
    assert await facts.conflicts() == []
    await facts.retract(later.id)
    assert await facts.get("employer") is None


async def test_an_end_where_nothing_held_yet_says_since_when_something_does(
    here: ScopedMemory,
) -> None:
    await here.facts.put("employer", "Acme", valid_from=_year(2022))
    await here.facts.put("city", "Oslo", valid_from=_year(2999))

    with pytest.raises(QueryError, match="Acme.* since 2022.*`at`") as told:
        await here.facts.end("employer", at=_year(2020))
    with pytest.raises(QueryError, match="Oslo.* from 1 Jan 2999"):
        await here.facts.end("city")

    assert "retract" in str(told.value)
    assert (await here.facts.end("employer")) is not None
    assert await here.facts.end("employer") is None
    assert await here.facts.end("nothing") is None
    assert len(await here.facts.history("employer")) == 2


async def test_the_id_of_a_memory_is_provenance(here: ScopedMemory) -> None:
    said = await here.remember("I moved to Oslo", source="tool:crm")

    put = await here.facts.put("city", "Oslo", source=said.id)
    labelled = await here.facts.put("drink", "tea", source="phone call")

    assert put.source_ids == [said.id]
    assert put.metadata.extra["source"] == "tool:crm"
    assert labelled.source_ids == []
    assert labelled.metadata.extra["source"] == "phone call"
    for absent in ("0" * 32, "~" + "a" * 32):
        with pytest.raises(QueryError, match=absent):
            await here.facts.put("city", "Rome", source=absent)
    with pytest.raises(QueryError, match="memories"):
        await here.facts.propose("city", "Rome", source=said.id)  # type: ignore[arg-type]  # a text


@pytest.mark.parametrize(
    ("value", "told"),
    [({1}, "`set`"), (_year(2020), "`datetime`"), (float("nan"), "nan"), (b"x", "bytes")],
)
async def test_what_is_no_fact_is_refused_in_one_line(
    here: ScopedMemory, value: Any, told: str
) -> None:
    with pytest.raises(QueryError, match=told) as refused:
        await here.facts.put("key", value)

    assert "\n" not in str(refused.value)
    assert "pydantic" not in str(refused.value)


async def test_dates_the_wrong_way_round_are_refused_in_one_line(here: ScopedMemory) -> None:
    with pytest.raises(QueryError, match="`valid_to`.*must be after") as refused:
        await here.facts.put("key", 1, valid_from=_year(2021), valid_to=_year(2020))
    with pytest.raises(QueryError, match="is not a valid key"):
        await here.facts.put(" key", 1)

    assert "\n" not in str(refused.value)


async def test_tuples_are_lists(here: ScopedMemory) -> None:
    put = await here.facts.put("pets", ("Tom", {"cats": ("Rex",)}))

    assert put.value == ["Tom", {"cats": ["Rex"]}]
