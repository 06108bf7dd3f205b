"""Messages larger than their part of the budget are shortened: beginning, marker, end."""

import random
import re
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.context._hostile import hostile, storable
from tests.context.test_budget import COUNTERS, cost, dialogue, words
from tests.rows import each_row

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, ToolMemory, validate
from orbiter.memory.context import Context, ContextManager
from orbiter.memory.context.entries import shorten_text
from orbiter.memory.conversation import estimate_tokens, tokens
from orbiter.memory.conversation.tokens import TokenCounter
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import Format
from orbiter.memory.testing.histories import random_history

REPORT = "revenue rose in the north and fell in the south " * 600
MARKER = re.compile(r"\[… ([\d,]+) of ([\d,]+) tokens left out …\]")


def numbered(count: int, name: str = "line") -> str:
    return "\n".join(f"{name} {number} of the report" for number in range(count))


def step(*results: str, first: str = "c", said: str = "") -> list[MemoryItem]:
    """Return a turn of the model with one call per result."""
    calls: list[dict[str, Any]] = [
        {"id": f"{first}{n}", "name": "look", "arguments": {}} for n in range(len(results))
    ]
    answers = [
        ToolMemory(content=text, tool_call_id=f"{first}{n}", tool_name="look")
        for n, text in enumerate(results)
    ]
    return [AIMemory(content=said, tool_calls=calls), *answers]


def roles(context: Context) -> list[str]:
    return [message["role"] for message in context.messages("openai")]


def contents(context: Context, role: str) -> list[str]:
    return [m["content"] for m in context.messages("openai") if m["role"] == role]


def shortened(context: Context) -> dict[str | None, int]:
    return {each.id: each.tokens for each in context.dropped if each.reason == "shortened"}


@each_row("format", get_args(Format))
@each_row("budget", [300, 400, 4_000])
async def test_a_result_larger_than_the_budget_stays_with_its_call(
    budget: int, format: Format
) -> None:
    asked = HumanMemory(content="How is the revenue?")
    call, result = step(REPORT)

    context = await ContextManager(None).assemble(
        asked.content, conversation=[asked, call, result], budget=budget, format=format
    )

    assert roles(context) == ["user", "assistant", "tool"]
    (text,) = contents(context, "tool")
    marker = MARKER.search(text)
    assert marker is not None
    before, after = text[: marker.start()].strip(), text[marker.end() :].strip()
    assert REPORT.startswith(before)
    assert REPORT.strip().endswith(after)
    left, total = (int(number.replace(",", "")) for number in marker.groups())
    assert total == pytest.approx(estimate_tokens(REPORT), rel=0.05)
    assert total - left == pytest.approx(estimate_tokens(before + after), rel=0.1, abs=4)
    assert shortened(context) == {result.id: pytest.approx(left, rel=0.05)}
    assert budget / 3 < context.tokens <= budget
    assert validate(context.messages().messages, format) == []
    assert result.content == REPORT


async def test_results_of_one_turn_share_the_room_and_small_ones_are_whole() -> None:
    asked = HumanMemory(content="How is the revenue?")
    items = [asked, *step(REPORT, "rain", REPORT * 4, "snow")]

    context = await ContextManager(None).assemble(asked.content, conversation=items, budget=2_000)

    first, rain, second, snow = contents(context, "tool")
    assert (rain, snow) == ("rain", "snow")
    assert estimate_tokens(first) == pytest.approx(estimate_tokens(second), rel=0.1)
    assert 1_000 < context.tokens <= 2_000


async def test_of_several_large_results_each_is_shown_and_the_newest_most() -> None:
    asked = HumanMemory(content="How is the revenue?")
    items: list[MemoryItem] = [asked]
    for number in range(4):
        items += step(numbered(4_000, f"page {number} line"), first=f"c{number}-")

    context = await ContextManager(None).assemble(asked.content, conversation=items, budget=8_000)

    assert roles(context) == ["user", *["assistant", "tool"] * 4]
    sizes = [estimate_tokens(text) for text in contents(context, "tool")]
    assert sizes[-1] == max(sizes)
    assert all(size > 300 for size in sizes)
    assert len(shortened(context)) == 4
    assert context.tokens <= 8_000


async def test_a_large_result_before_small_steps_leaves_them_whole_and_stays_the_same() -> None:
    asked = HumanMemory(content="How is the revenue?")
    items: list[MemoryItem] = [asked, *step(REPORT)]
    shown = set()

    for number in range(6):
        context = await ContextManager(None).assemble(
            asked.content, conversation=items, budget=4_000
        )
        large, *small = contents(context, "tool")
        shown.add(large)
        assert small == [f"result {n}" for n in range(number)]
        items += step(f"result {number}", first=f"s{number}-")

    assert len(shown) <= 2  # or the provider's cache would be of no use


async def test_a_pasted_text_does_not_remove_the_rounds_before_it() -> None:
    pasted = [HumanMemory(content=words(15_000)), AIMemory(content="Two are of note.")]
    early = dialogue(6)
    task = HumanMemory(content="Thanks. Which of both did you mean?")

    context = await ContextManager(None).assemble(
        task.content, conversation=[*early, *pasted, task], budget=4_000
    )

    said = contents(context, "user") + contents(context, "assistant")
    assert [item.content in said for item in early] == [True] * 12
    assert "Two are of note." in said
    assert list(shortened(context)) == [pasted[0].id]
    assert 2_000 < context.tokens <= 4_000


async def test_a_pasted_text_is_still_shown_in_the_rounds_after_it() -> None:
    pasted = [HumanMemory(content=words(15_000)), AIMemory(content="Two are of note.")]
    items = [*dialogue(6), *pasted]

    for number in range(4):
        task = HumanMemory(content=f"And number {number}?")
        items.append(task)
        context = await ContextManager(None).assemble(
            task.content, conversation=items, budget=4_000
        )
        assert len(roles(context)) == len(items)
        items.append(AIMemory(content=f"That is {number}."))


async def test_a_long_answer_is_shortened_beside_its_question() -> None:
    items = [HumanMemory(content="Tell me all"), AIMemory(content=numbered(3_000))]

    context = await ContextManager(None).assemble("Go on", conversation=items, budget=1_000)

    assert roles(context) == ["user", "assistant", "user"]
    assert list(shortened(context)) == [items[1].id]


async def test_ordinary_rounds_that_are_too_old_are_left_out_whole() -> None:
    context = await ContextManager(None).assemble("Go on", conversation=dialogue(100), budget=1_000)

    assert {each.reason for each in context.dropped} == {"budget"}


@pytest.mark.parametrize("format", get_args(Format))
async def test_a_newest_message_larger_than_the_budget_is_shortened(format: Format) -> None:
    asked = HumanMemory(content=f"What is wrong here?\n{numbered(3_000)}\nPlease help.")

    context = await ContextManager(None).assemble(
        asked.content, conversation=[*dialogue(3), asked], budget=2_000, format=format
    )

    text = contents(context, "user")[-1]
    assert text.startswith("What is wrong here?")
    assert text.endswith("Please help.")
    assert MARKER.search(text)
    assert contents(context, "assistant") == [item.content for item in dialogue(3)[1::2]]
    (left,) = context.dropped
    assert (left.section, left.source, left.reason, left.id) == (
        "task", "user", "shortened", asked.id
    )  # fmt: skip
    assert 1_500 < context.tokens <= 2_000
    assert validate(context.messages().messages, format) == []


async def test_tools_that_answer_a_shortened_question_stay_behind_it() -> None:
    asked = HumanMemory(content=f"What is wrong here?\n{numbered(3_000)}\nPlease help.")
    items = [asked, *step(REPORT), *step("fine", first="d")]

    context = await ContextManager(None).assemble(asked.content, conversation=items, budget=2_000)

    assert roles(context) == ["user", "assistant", "tool", "assistant", "tool"]
    assert contents(context, "user")[0].startswith("What is wrong here?")
    assert set(shortened(context)) == {asked.id, items[2].id}
    assert context.tokens <= 2_000


async def test_a_task_of_your_own_is_never_shortened_and_the_marker_needs_room() -> None:
    asked = HumanMemory(content=numbered(3_000))
    manager = ContextManager(None)

    with pytest.raises(QueryError, match="raise `budget`, or shorten the task"):
        await manager.assemble(asked.content, budget=2_000)
    with pytest.raises(QueryError, match="the budget is 20"):
        await manager.assemble(asked.content, conversation=[asked], budget=20)


PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/sky.png"}}


def with_picture(text: str, picture: dict[str, Any] = PICTURE) -> HumanMemory:
    parts = [{"type": "text", "text": text}, picture]
    return HumanMemory(content=text, native={"openai": {"content": parts}})


@each_row("budget", [4_000, 6_200, 8_000, 12_000, 20_000])
async def test_a_long_question_keeps_its_picture_and_the_rounds_before_it(budget: int) -> None:
    early = dialogue(6)
    asked = with_picture(REPORT)

    context = await ContextManager(None).assemble(
        asked.content, conversation=[*early, asked], budget=budget
    )

    sent = str(context.messages("openai").messages)
    assert "sky.png" in sent
    assert all(item.content in sent for item in early)
    assert context.tokens <= budget
    assert {each.section for each in context.dropped} == ({"task"} if budget < 13_000 else set())


async def test_a_long_question_in_blocks_is_asked_whole_behind_the_rounds_before_it() -> None:
    early = dialogue(6)
    blocks = [{"type": "text", "text": REPORT}]
    asked = HumanMemory(content=REPORT, native={"anthropic": blocks})

    context = await ContextManager(None).assemble(
        REPORT, conversation=[*early, asked], budget=8_000, format="anthropic"
    )

    texts = contents(context, "user") + contents(context, "assistant")
    assert [item.content in texts for item in early] == [True] * 12
    assert texts.count(REPORT) == 1


async def test_a_picture_without_room_does_not_remove_the_rounds_before_it() -> None:
    early = dialogue(6)
    data = {"type": "image_url", "image_url": {"url": "https://example.org/" + "sky" * 20_000}}
    asked = with_picture("What is this?", data)

    context = await ContextManager(None).assemble(
        asked.content, conversation=[*early, asked], budget=2_000
    )

    texts = contents(context, "user") + contents(context, "assistant")
    assert [item.content in texts for item in early] == [True] * 12
    assert texts.count("What is this?") == 1
    assert [(each.id, each.reason) for each in context.dropped] == [(asked.id, "budget")]


async def test_a_task_of_one_letter_needs_room_too() -> None:
    asked = HumanMemory(content="?")

    with pytest.raises(QueryError, match="raise `budget`"):
        await ContextManager(None).assemble("?", conversation=[asked], budget=10)


async def test_pictures_stay_beside_a_shortened_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/sky.png"}}
    native = {"openai": {"content": [{"type": "text", "text": REPORT}, picture]}}
    seen = HumanMemory(content=REPORT, native=native)
    blocks = [{"type": "text", "text": REPORT}, {"type": "image", "source": {
        "type": "url", "url": "https://example.org/sea.png"}}]  # fmt: skip
    call, result = step(REPORT)
    result.native["anthropic"] = {"content": blocks}
    items = [seen, AIMemory(content="A sky."), HumanMemory(content="And now?"), call, result]

    context = await ContextManager(None).assemble("And now?", conversation=items, budget=6_000)

    assert len(shortened(context)) == 2
    for format in get_args(Format):
        sent = context.messages(format).messages
        assert validate(sent, format) == []
        assert "sky.png" in str(sent)
        assert ("sea.png" in str(sent)) or format in ("openai", "gemini")
    assert "[image: https://example.org/sea.png]" in str(context.messages("openai"))


@given(st.text(min_size=30), st.integers(0, 200), st.sampled_from(COUNTERS))
def test_a_shortened_text_fits_and_is_a_beginning_and_an_end(
    text: str, room: int, counter: TokenCounter
) -> None:
    short = shorten_text(text, room, counter=counter, total=counter(text))

    assert counter(text) > room or short == text
    if short is not None:
        assert counter(short) <= room
    if short is not None and short != text and "[…" not in text:
        marker = MARKER.search(short)
        assert marker is not None
        assert text.startswith(short[: marker.start() - 1])
        assert text.endswith(short[marker.end() + 1 :])


@pytest.mark.parametrize("room", [60, 100, 400])
def test_a_text_is_cut_between_words(room: int) -> None:
    text = " ".join(str(10_000 + number) for number in range(5_000))

    short = shorten_text(text, room, counter=estimate_tokens, total=estimate_tokens(text))

    assert short is not None
    numbers = MARKER.sub("", short).split()
    assert all(len(number) == 5 for number in numbers)
    assert room * 0.75 < estimate_tokens(short) <= room


@pytest.mark.slow
@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(seed=st.integers(0, 2**32), data=st.data())
async def test_long_messages_are_legal_and_within_the_budget(
    seed: int, data: st.DataObject
) -> None:
    rng = random.Random(seed)
    counter = data.draw(st.sampled_from(COUNTERS))
    manager = ContextManager(None, count_tokens=counter)
    history = random_history(rng, max_turns=rng.choice((2, 8, 20)))
    for item in rng.sample(history, min(len(history), rng.randint(1, 4))):
        item.content = storable(hostile(rng)) * rng.choice((40, 400)) + "x"
    humans = [item for item in history if isinstance(item, HumanMemory)]
    task = humans[-1].content if humans and humans[-1].content.strip() else "Do it."
    least = (await manager.assemble("Do it.")).tokens
    budget = least + data.draw(st.integers(100, 400) | st.integers(0, 5_000))

    for format in get_args(Format):
        try:
            context = await manager.assemble(
                task, conversation=history, budget=budget, format=format
            )
        except QueryError:
            continue

        assert context.tokens <= budget
        assert cost(context, counter) <= budget
        for other in get_args(Format):
            assert validate(context.messages(other).messages, other) == []


async def test_a_chat_that_fits_is_counted_no_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    count = tokens._estimate

    def noted(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return count(text)

    monkeypatch.setattr(tokens, "_estimate", noted)
    items = dialogue(100, 50)

    for budget in (1_000, 5_000, 100_000):
        await ContextManager(None).assemble("Go on", conversation=items, budget=budget)

    assert counted <= 3 * sum(len(item.content) for item in items) * 1.5
