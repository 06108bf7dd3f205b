import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.context._hostile import hostile, hostile_texts, storable
from tests.rows import each_row

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    SystemMemory,
    ToolMemory,
    count_tokens,
    from_messages,
    validate,
)
from orbiter.memory.context import Context, ContextManager, prompt_fence
from orbiter.memory.context._rounds import fit_rounds
from orbiter.memory.context.entries import shorten
from orbiter.memory.context.prompt_fence import Entry, parse
from orbiter.memory.conversation import estimate_tokens, tokens
from orbiter.memory.conversation.tokens import TokenCounter
from orbiter.memory.episodic import EpisodicMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import Format
from orbiter.memory.model.items import calls_of, result_id
from orbiter.memory.testing.histories import random_history

PERSONA = "You are Nova.\n\nVoice: dry\n\nYou watch the sky."


def whole_or_not(_unit: object, _room: int) -> None:
    """Shorten nothing."""


def uneven(text: str) -> int:
    """Count so that a whole costs more than its parts."""
    return len(text) // 3 + len(text) ** 2 // 20_000


COUNTERS: list[TokenCounter] = [
    estimate_tokens,
    len,
    uneven,
    lambda text: len(text.split()),
    lambda text: len(text.encode()) // 4,
]


def words(count: int, word: str = "word") -> str:
    return " ".join([word] * count)


START = datetime(2026, 11, 15, 9, tzinfo=UTC)


def dialogue(rounds: int, length: int = 20) -> list[MemoryItem]:
    items: list[MemoryItem] = []
    for number in range(rounds):
        at = START + timedelta(minutes=number)
        items.append(HumanMemory(content=f"question {number} {words(length)}", created_at=at))
        items.append(AIMemory(content=f"answer {number} {words(length)}", created_at=at))
    return items


def cost(context: Context, counter: TokenCounter = estimate_tokens) -> int:
    """Return what the dearest form of a context costs, counted from outside."""
    as_text = count_tokens([HumanMemory(content=context.text)], counter=counter)
    sent = context.messages()
    read = from_messages(sent.messages, sent.format, system=sent.system)
    as_messages = count_tokens(read, counter=counter)
    if sent.format == "gemini":  # calls have no ids there, the reader makes them up
        as_messages -= sum(counter(call["id"]) for item in read for call in calls_of(item))
        as_messages -= sum(counter(result_id(item)) for item in read)
    return max(as_text, as_messages)


@pytest.mark.slow
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(seed=st.integers(0, 2**32), data=st.data())
async def test_a_context_is_never_over_its_budget(
    soul: Path, seed: int, data: st.DataObject
) -> None:
    rng = random.Random(seed)
    counter = data.draw(st.sampled_from(COUNTERS))
    order = data.draw(st.permutations(["memories", "recent", "conversation"]))
    manager = ContextManager(soul, count_tokens=counter, priority=order)
    memories = [
        storable(hostile(rng)) * rng.choice((1, 1, 40, 4000)) for _ in range(rng.randint(0, 6))
    ]
    recent = [
        EpisodicMemory(interaction_type="said", content=storable(hostile(rng)))
        for _ in range(rng.randint(0, 6))
    ]
    history = random_history(rng, max_turns=rng.choice((0, 8, 40)))
    least = (await manager.assemble("Do it.")).tokens
    budget = least + data.draw(st.integers(0, 60) | st.integers(0, 5000))

    context = await manager.assemble(
        "Do it.", conversation=history, recent=recent, memories=memories, budget=budget
    )

    assert context.tokens <= budget
    assert cost(context, counter) <= budget
    assert context.text.startswith(PERSONA)
    assert context.text.endswith("## Task\nDo it.")
    for format in get_args(Format):
        assert validate(context.messages(format).messages, format) == []
    shown = {mark for mark in context.marks if mark in context.text}
    assert all(parse(context.text, mark=mark) for mark in shown)


@pytest.mark.slow
async def test_everything_fits_where_there_is_no_budget(soul: Path) -> None:
    context = await ContextManager(soul).assemble(
        "Go", conversation=dialogue(50), memories=[words(50_000)] * 3
    )

    assert context.dropped == ()
    assert len(context.text) > 750_000
    assert context.budget is None


@pytest.mark.slow
async def test_one_huge_memory_is_shortened_and_says_by_how_much(soul: Path) -> None:
    huge = HumanMemory(content=words(200_000))

    context = await ContextManager(soul, budget=600).assemble("Go", memories=[huge])
    (entry,) = parse(context.text, mark=context.marks[1])

    shown, _, rest = entry.content.partition("… [")
    assert huge.content.startswith(shown)
    assert rest == f"{len(huge.content) - len(shown):,} more characters]"
    assert 500 < context.tokens <= 600
    (left,) = context.dropped
    assert (left.section, left.reason, left.id) == ("memories", "shortened", huge.id)
    assert left.tokens > 190_000


@pytest.mark.parametrize("budget", range(160, 400, 8))
async def test_a_short_memory_is_whole_or_the_only_one(soul: Path, budget: int) -> None:
    memories = [f"{name} {words(18, name)}" for name in ("first", "second", "third")]

    context = await ContextManager(soul, budget=budget).assemble("Go", memories=memories)

    shown = [entry.content for entry in parse(context.text, mark=context.marks[1])]
    assert set(shown) <= set(memories) or len(shown) == 1


@pytest.mark.parametrize("budget", range(160, 260, 4))
async def test_where_there_is_room_for_one_memory_it_is_the_first(soul: Path, budget: int) -> None:
    memories = [f"{name} {words(18, name)}" for name in ("first", "second", "third")]

    context = await ContextManager(soul, budget=budget).assemble("Go", memories=memories)

    shown = [entry.content for entry in parse(context.text, mark=context.marks[1])]
    assert [each.split()[0] for each in shown] == ["first", "second", "third"][: len(shown)]


async def test_a_huge_memory_starves_neither_its_neighbours_nor_other_sections(soul: Path) -> None:
    context = await ContextManager(soul, budget=1500).assemble(
        "Go",
        conversation=dialogue(100),
        recent=[EpisodicMemory(interaction_type="said", content=words(5000, "recent"))],
        memories=[words(100_000), "short one", words(100_000), "short two"],
    )

    found = [entry.content for entry in parse(context.text, mark=context.marks[1])]
    assert "short one" in found
    assert "short two" in found
    assert any(content.startswith("recent") for content in found)
    assert "answer 99" in context.text
    assert context.tokens <= 1500


async def test_what_comes_first_matters_most_and_what_is_left_out_is_reported(soul: Path) -> None:
    manager = ContextManager(soul)
    memories = [f"memory {number} {words(30)}" for number in range(10)]
    whole = await manager.assemble("Go", memories=memories)

    context = await manager.assemble("Go", memories=memories, budget=whole.tokens - 100)

    found = [entry.content for entry in parse(context.text, mark=context.marks[1])]
    assert found == memories[: len(found)]
    assert 0 < len(found) < 10
    assert [left.reason for left in context.dropped] == ["budget"] * (10 - len(found))
    assert all(35 < left.tokens < 70 for left in context.dropped)


@pytest.mark.parametrize("first", ["memories", "recent", "conversation"])
async def test_the_first_of_the_priority_is_kept_longest(soul: Path, first: str) -> None:
    others = [name for name in ("memories", "recent", "conversation") if name != first]
    manager = ContextManager(soul, priority=[first, *others])
    texts = [f"number {number} {words(40)}" for number in range(8)]
    many = {"conversation": dialogue(20), "recent": texts, "memories": texts}

    context = await manager.assemble("Go", **many, budget=900)  # type: ignore[arg-type]

    kept = {section.name: section.tokens for section in context.sections}
    assert all(kept[first] >= kept.get(name, 0) for name in others)
    assert kept[first] > 250


async def test_a_section_may_take_all_that_the_others_do_not_want(soul: Path) -> None:
    manager = ContextManager(soul)
    arguments = {"conversation": dialogue(2), "memories": [words(600)]}
    whole = await manager.assemble("Go", **arguments)  # type: ignore[arg-type]

    context = await manager.assemble("Go", **arguments, budget=whole.tokens + 40)  # type: ignore[arg-type]

    assert context.dropped == ()


@pytest.mark.parametrize("length", [10, 1000])
async def test_persona_and_task_are_never_cut(soul: Path, length: int) -> None:
    task = words(length)
    manager = ContextManager(soul, budget=120)
    needed = (await ContextManager(soul).assemble(task)).tokens

    if needed <= 120:
        context = await manager.assemble(task, memories=[words(900)])
        assert context.text.startswith(PERSONA)
        assert context.text.endswith(task)
    else:
        with pytest.raises(QueryError, match=rf"need {needed:,} tokens, the budget is 120; raise"):
            await manager.assemble(task)


async def test_a_budget_that_holds_persona_and_task_exactly_is_enough(soul: Path) -> None:
    least = (await ContextManager(soul).assemble("Go")).tokens

    context = await ContextManager(soul, budget=least).assemble("Go", memories=["x"])

    assert context.tokens == least
    assert [left.reason for left in context.dropped] == ["budget"]
    with pytest.raises(QueryError):
        await ContextManager(soul, budget=least - 1).assemble("Go")


@pytest.mark.slow
async def test_a_tool_group_is_whole_or_absent(soul: Path) -> None:
    history: list[MemoryItem] = [HumanMemory(content="Look it up")]
    for number in range(30):
        call = {"id": f"c{number}", "name": "search", "arguments": {"q": words(20)}}
        history.append(AIMemory(content="", tool_calls=[call]))
        history.append(ToolMemory(content=words(40), tool_call_id=f"c{number}"))

    for budget in range(150, 1500, 50):
        context = await ContextManager(soul, budget=budget).assemble("Go", conversation=history)

        text, messages = context.text, context.messages().messages
        assert text.count("| assistant calls search |") == text.count("| tool |")
        assert validate(messages, "openai") == []


async def test_a_memory_that_the_conversation_shows_is_not_shown_again(soul: Path) -> None:
    history = dialogue(40)

    context = await ContextManager(soul, budget=1200).assemble(
        "Go", conversation=history, memories=[history[0], history[-1]]
    )

    assert context.text.count("question 0 ") == 1  # recalled, because the window has lost it
    assert context.text.count("answer 39 ") == 1
    assert [left.id for left in context.dropped if left.reason == "duplicate"] == [history[-1].id]


@each_row(
    "character",
    [
        "👩‍❤️‍👨",
        "🇳🇴",
        "👍🏽",
        "e\u0301\u0302",
        "नि",
        "\r\n",
        "🏴\U000e0067\U000e0062\U000e007f",
        "क्‍ष",
        "❤️",
    ],
)
@each_row("room", range(30, 50))
def test_shortening_cuts_no_character(character: str, room: int) -> None:
    entry = Entry(character * 200)

    short = shorten(entry, room, cost=lambda entry: len(entry.content))

    if short is not None:
        shown = short.content.partition("…")[0]
        assert len(short.content) <= room
        assert shown == character * (len(shown) // len(character))
    assert room < 45 or short is not None


@given(st.text(min_size=30), st.integers(0, 200), st.sampled_from(COUNTERS))
def test_a_shortened_entry_fits_and_is_a_beginning(
    text: str, room: int, counter: TokenCounter
) -> None:
    short = shorten(Entry(text), room, cost=lambda entry: counter(entry.content))

    if short is not None:
        assert counter(short.content) <= room
        assert text.startswith(short.content.rpartition("… [")[0])


def test_a_window_starts_at_the_same_round_for_many_turns() -> None:
    items = dialogue(300)
    starts = []
    for turn in range(1, 301):
        units = [[item] for item in items[: 2 * turn]]
        kept = fit_rounds(units, 400, cost=lambda item: 10, shorten=whole_or_not)
        assert len(kept) * 10 <= 400
        assert turn < 20 or len(kept) * 10 >= 200
        starts.append(kept[0].id)

    changes = sum(one != two for one, two in pairwise(starts))
    assert changes <= 300 / 8


@each_row("room", range(60, 400, 10))
def test_system_messages_before_a_window_stay_and_are_paid_for(room: int) -> None:
    systems = [SystemMemory(content="Be kind."), SystemMemory(content="Be brief.")]
    items = [*systems, *dialogue(50)]

    kept = fit_rounds([[item] for item in items], room, cost=lambda item: 10, shorten=whole_or_not)

    assert len(kept) * 10 <= room
    assert kept[:2] == systems
    assert kept[2:] == items[-len(kept) + 2 :]


async def test_a_long_conversation_is_counted_once(soul: Path) -> None:
    counted: list[str] = []

    def counter(text: str) -> int:
        counted.append(text)
        return estimate_tokens(text)

    manager = ContextManager(soul, budget=2000, count_tokens=counter)
    history = dialogue(500)
    await manager.assemble("Go", conversation=history)
    first = len(counted)

    await manager.assemble("Go", conversation=[*history, *dialogue(1)])

    assert len(counted) - first < first / 5


def count_by_lines(text: str) -> int:
    """Count as the estimate does, though nobody knows that its lines add up."""
    return estimate_tokens(text)


@pytest.mark.slow
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(seed=st.integers(0, 2**32), data=st.data())
async def test_a_context_counted_by_lines_is_the_one_counted_as_a_whole(
    soul: Path, seed: int, data: st.DataObject
) -> None:
    texts = hostile_texts().map(storable)
    history = random_history(random.Random(seed))
    history += [HumanMemory(content=text) for text in data.draw(st.lists(texts, max_size=3))]
    memories = data.draw(st.lists(texts, max_size=5))
    budget = data.draw(st.none() | st.integers(2_000, 5_000))
    task = data.draw(texts.filter(str.strip))
    given = {"conversation": history, "memories": memories, "summary": "Tea was bought."}

    found = []
    for counter in (estimate_tokens, count_by_lines):
        manager = ContextManager(soul, count_tokens=counter, secret=b"one")
        context = await manager.assemble(task, budget=budget, **given)  # type: ignore[arg-type]
        lengths = [(section.name, section.tokens) for section in context.sections]
        found.append((context.tokens, context.prefix_tokens, lengths, context.dropped))

    assert found[0] == found[1]


@pytest.mark.parametrize("budget", [None, 1_000, 1_000_000])
async def test_a_context_counts_each_text_once(
    budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    count = tokens._estimate

    def noted(text: str) -> int:
        counted.append(text)
        return count(text)

    monkeypatch.setattr(tokens, "_estimate", noted)
    said, memories = dialogue(100, 50), [f"{n} {words(100, 'note')}" for n in range(20)]

    await ContextManager(None).assemble(
        "Go on", conversation=said, memories=memories, budget=budget
    )

    assert sum(text.count("word word") for text in counted) <= 200 * 25
    assert sum(text.count("note note") for text in counted) <= 20 * 50


@pytest.mark.parametrize("budget", [None, 1_000_000])
async def test_a_context_escapes_each_text_once(
    budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped: list[str] = []
    escape = prompt_fence.escape

    def noted(text: str, **given: Any) -> str:
        escaped.append(text)
        return escape(text, **given)

    monkeypatch.setattr(prompt_fence, "escape", noted)
    said = dialogue(100)

    await ContextManager(None).assemble("Go on", conversation=said, budget=budget)

    assert sorted(text for text in escaped if " " in text) == sorted(i.content for i in said)


@each_row("room", range(0, 60, 5))
def test_a_small_window_has_no_half_of_an_answered_round(room: int) -> None:
    question, answer = dialogue(1)
    cost = {question.id: 10, answer.id: 30}
    system = SystemMemory(content="Be kind.")

    for costs in (cost, {question.id: 30, answer.id: 10}):
        prices = {**costs, system.id: 5}
        units: list[list[MemoryItem]] = [[system], [question], [answer]]
        kept = fit_rounds(units, room, cost=lambda item: prices[item.id], shorten=whole_or_not)  # noqa: B023

        spoken = [item for item in kept if item is not system]
        assert spoken in ([], [question, answer])
        assert room < 45 or len(kept) == 3
