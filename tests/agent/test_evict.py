"""A budget for a scope: what is worth least goes, what must stay stays, and all of it is told."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orbiter.memory import (
    AgentMemory,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.agent import ScopedMemory, _updates, eviction
from orbiter.memory.errors import QueryError
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryStatus
from orbiter.memory.summary import SummaryConfig

Open = Callable[..., AgentMemory]

NOW = datetime.now(UTC)


def _aged(days: float) -> datetime:
    return NOW - timedelta(days=days)


async def _texts(handle: ScopedMemory) -> set[str]:
    return {item.content for item in await handle.list(limit=500)}


async def test_what_is_worth_least_goes_first_and_can_be_brought_back(
    any_alice: ScopedMemory,
) -> None:
    await any_alice.remember("new", created_at=_aged(1))
    await any_alice.remember("old", created_at=_aged(300))
    await any_alice.remember("old but important", importance=0.9, created_at=_aged(100))
    await any_alice.remember("pinned", importance=1, created_at=_aged(4_000))
    await any_alice.remember("new but of no use", importance=0, created_at=_aged(1))

    would = await any_alice.evict(max_items=3, dry_run=True)
    before = await _texts(any_alice)
    evicted = await any_alice.evict(max_items=3)

    assert len(before) == 5
    assert [each.text for each in would] == ["new but of no use", "old"]
    assert [each.id for each in would] == [each.id for each in evicted]
    assert [each.reason for each in would] == ["budget", "budget"]
    assert would.items[0].worth == 0
    assert would.items[1].worth == pytest.approx(0.5 * 0.5 ** (300 / 90), rel=1e-3)
    assert would.dry_run
    assert (evicted.kept, evicted.is_met) == (3, True)
    assert await _texts(any_alice) == {"new", "old but important", "pinned"}
    assert not await any_alice.evict(max_items=3)


async def test_what_is_evicted_can_be_restored(alice: ScopedMemory) -> None:
    old = await alice.remember("old", created_at=_aged(300))
    await alice.remember("new")

    await alice.evict(max_items=1)
    [*_, last] = await alice.history(old.id)
    await alice.restore(old.id)

    assert (last.change, last.by) == ("deleted", "~evict")
    assert await _texts(alice) == {"old", "new"}


async def test_bytes_are_a_budget_too(alice: ScopedMemory) -> None:
    for n in range(6):
        await alice.remember(f"{n}" * 2_000, created_at=_aged(100 - n))
    all_of_it = await alice.evict(max_bytes=10**9, dry_run=True)

    evicted = await alice.evict(max_bytes=all_of_it.kept_bytes // 2)

    assert [each.text[0] for each in evicted] == ["0", "1", "2"]
    assert evicted.kept_bytes <= all_of_it.kept_bytes // 2
    assert sum(each.bytes for each in evicted) + evicted.kept_bytes == all_of_it.kept_bytes


async def test_facts_and_what_instructs_the_model_stay(alice: ScopedMemory) -> None:
    whose = MemoryMetadata(user_id=alice.scope.user_id)

    def fact(key: str, value: str, days: float, **fields: Any) -> FactMemory:
        day = _aged(days)
        return FactMemory(
            key=key, value=value, valid_from=day, created_at=day, metadata=whose, **fields
        )

    await alice.remember_many(
        [
            fact("city", "Lima", 900),
            fact("city", "Berlin", 800),
            fact("car", "red", 900),
            fact("car", "", 700, is_end=True),  # without it the car would be back
            fact("job", "soon", -5, recorded_at=_aged(1)),
            fact("pet", "cat", 900, retracted_at=_aged(1)),  # it was known once
            fact("age", "9", 900, status=MemoryStatus.DISCARD),
            SystemMemory(content="be kind", created_at=_aged(999), metadata=whose),
            MemoryItem(content="note", metadata=whose),
        ]
    )

    evicted = await alice.evict(max_items=0)

    assert {each.text for each in evicted} == {"age: 9", "note"}
    assert not evicted.is_met
    facts = {"city: Lima", "city: Berlin", "car: red", "car: ended", "job: soon", "pet: cat"}
    assert await _texts(alice) == {*facts, "be kind"}


async def test_a_tool_group_goes_whole_or_not_at_all(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    for turn in range(3):
        calls = [{"id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(2)]
        ask = HumanMemory(content=f"ask {turn}")
        group: list[MemoryItem] = [AIMemory(content=f"call {turn}", tool_calls=calls)]
        group += [ToolMemory(content=f"{turn}.{n}", tool_call_id=f"c{n}") for n in range(2)]
        await chat.add([ask, *group, AIMemory(content=f"answer {turn}")])

    evicted = await alice.evict(max_items=12)  # of 15

    left = await _texts(alice)
    for turn in range(3):
        group_texts = {f"call {turn}", f"{turn}.0", f"{turn}.1"}
        assert group_texts <= left or not group_texts & left
    assert [each.text for each in evicted][:4] == ["ask 0", "call 0", "0.0", "0.1"]
    assert evicted.kept <= 12
    assert all(item.content in left for item in await chat.items())


async def test_an_important_result_keeps_its_call(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    pinned = MemoryMetadata(extra={"importance": 1})
    calls = [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]
    await chat.add([AIMemory(content="call", tool_calls=calls)])
    await chat.add([ToolMemory(content="result", tool_call_id="c", metadata=pinned)])

    assert not await alice.evict(max_items=0)


async def test_the_summary_of_a_chat_that_loses_messages_is_made_anew(
    alice: ScopedMemory, url: str, open_memory: Open
) -> None:
    class Counting:
        async def summarize(self, prompt: str) -> str:
            return f"of {prompt.count('message')}"

    soon = SummaryConfig(message_threshold=2, keep_recent=1)
    memory = open_memory(url, summaries=soon, summarizer=Counting())
    scope = memory.scope(user_id=f"s-{secrets.token_hex(4)}")
    chat = scope.chat("c")
    for n in range(4):
        await chat.add(f"message {n}")
    await memory.flush()
    before = await chat.summary()

    await scope.evict(max_items=3)

    assert before is not None
    assert await chat.summary() is None
    assert len(await chat.items()) == 3  # the summary does not count


async def test_the_same_memories_go_in_the_same_order(
    tmp_path: Path, open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_updates, "_PAGE", 7)
    monkeypatch.setattr(eviction, "_BATCH", 3)
    memory = open_memory(tmp_path / "m.db", embeddings=None)
    for user in ("ann", "ben"):
        numbers = range(60) if user == "ann" else reversed(range(60))
        items = [
            MemoryItem(
                id=f"{user}-{n:02}",
                content=f"note {n}",
                created_at=_aged(n % 5),
                metadata=MemoryMetadata(extra={"importance": n % 3 / 4}),
            )
            for n in numbers
        ]
        await memory.scope(user_id=user).remember_many(items)

    ann = await memory.scope(user_id="ann").evict(max_items=25)
    ben = await memory.scope(user_id="ben").evict(max_items=25, dry_run=True)

    every = await memory.scope(user_id="ben").evict(max_items=0, dry_run=True)
    assert [each.text for each in ann] == [each.text for each in ben]
    assert [each.id for each in ben] == [each.id for each in every][:35]
    assert [each.worth for each in ann] == sorted(each.worth for each in ann)
    assert len(ann) == 35
    assert len(await memory.scope(user_id="ann").list(limit=100)) == 25
    assert len(await memory.scope(user_id="ben").list(limit=100)) == 60


async def test_duplicates_are_listed_and_all_but_the_first_can_go(
    alice: ScopedMemory, bob: ScopedMemory
) -> None:
    texts = [
        "The door code is 4711, and the door is green",
        "the door code is 4711 and the door is GREEN!",
        "The door code is 9999, and the door is green",
        "The door code is not 4711, and the door is green",
        "Eva likes tea",
        "Eva likes tea",
        "Eva likes tea",
    ]
    for n, text in enumerate(texts):
        await alice.remember(text, created_at=_aged(50 - n))
    await alice.remember("Eva likes tea", importance=1)
    await bob.remember("Eva likes tea")
    chat = alice.chat("c")
    await chat.add([HumanMemory(content="yes"), AIMemory(content="no"), HumanMemory(content="yes")])

    groups = await alice.duplicates()
    evicted = await alice.evict(duplicates=True)

    assert [[item.content for item in group] for group in groups] == [
        ["Eva likes tea"] * 4,
        texts[:2],
        ["yes", "yes"],
    ]
    # Only copies to the letter: what differs in a sign may be another password.
    assert [each.text for each in evicted] == ["Eva likes tea"] * 2
    assert {each.reason for each in evicted} == {"duplicate"}
    assert len(await alice.list(limit=100)) == 9
    assert await _texts(bob) == {"Eva likes tea"}


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ({}, "`evict` needs a budget"),
        ({"max_items": -1}, "max_items"),
        ({"max_bytes": 1.5}, "max_bytes"),
        ({"max_items": 1, "half_life_hours": 0}, "half_life_hours"),
        ({"max_items": 1, "half_life_hours": True}, "half_life_hours"),
    ],
)
async def test_a_budget_that_says_nothing_is_refused(
    tmp_path: Path, open_memory: Open, budget: dict[str, Any], told: str
) -> None:
    with pytest.raises(QueryError, match=told):
        await open_memory(tmp_path / "m.db").scope(user_id="ann").evict(**budget)
