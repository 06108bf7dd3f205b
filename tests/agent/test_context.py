"""What a model is shown of a chat: legal, under its budget, and nothing twice."""

import secrets
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_chat import CALLS, turn
from tests.servers.databases import RedisServer

from orbiter.memory import (
    AgentMemory,
    AIMemory,
    LocalEmbeddings,
    ShortTermMemoryManager,
    Soul,
    SystemMemory,
    ToolMemory,
    from_messages,
)
from orbiter.memory.agent import Chat, ScopedMemory, _chat
from orbiter.memory.context import Context
from orbiter.memory.conversation import estimate_tokens
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import FORMATS, Format, validate
from orbiter.memory.messages.costs import sent_tokens
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import ScriptedSummarizer

Open = Callable[..., AgentMemory]

SOME = SummaryConfig(message_threshold=10, keep_recent=4)


def check(context: Context, budget: int | None, format: Format) -> None:
    """Fail unless the provider accepts it and it fits."""
    assert validate(context.messages().messages, format) == []
    assert context.messages().messages
    assert budget is None or context.tokens <= budget
    assert context.format == format


async def long_chat(handle: ScopedMemory, rounds: int = 12) -> Chat:
    chat = handle.chat("long")
    await chat.add(SystemMemory(content="Be kind."))
    for number in range(rounds):
        await chat.add(turn(number))
    return chat


@pytest.mark.slow
async def test_every_budget_and_format_is_kept(url: str, open_memory: Open, who: str) -> None:
    soul = Soul(name="Ada", body="A travel agent.")
    memory = open_memory(url, persona=soul, summaries=SOME)
    alice = memory.scope(user_id=who)
    await alice.remember_many([f"question {number} was about trains" for number in range(8)])
    chat = await long_chat(alice)
    await memory.flush()
    await chat.add(["What now?", CALLS])
    assert await chat.summary() is not None
    shown = 0

    for format in FORMATS:
        for budget in (None, 40, 80, 150, 250, 400, 700, 1_500, 10_000):
            try:
                context = await chat.context(budget=budget, format=format)
            except QueryError:
                if budget is None or budget >= 150:
                    raise
                continue
            shown += 1
            check(context, budget, format)
            assert "What now?" in context.text

    assert shown >= 4 * 7


async def test_without_a_task_it_is_the_newest_question(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    with pytest.raises(QueryError, match="context"):
        await chat.context()
    await chat.add(["first", {"role": "assistant", "content": "yes"}, "second"])

    context = await chat.context(format="openai")

    said = [entry["content"] for entry in context.messages().messages]
    assert said[-3:] == ["first", "yes", "second"]
    assert said.count("second") == 1


async def test_a_task_may_be_new_and_is_not_stored(alice: ScopedMemory) -> None:
    chat = alice.chat("c")

    context = await chat.context("Plan dinner", budget=4_000)

    check(context, 4_000, "openai")
    assert "Plan dinner" in str(context.messages().messages[-1]["content"])
    assert await chat.items() == []
    for bad in ("", "  ", 7):
        with pytest.raises(QueryError):
            await chat.context(bad)  # type: ignore[arg-type]  # wrong on purpose
    for wrong in ({"budget": -1}, {"memory_limit": -1}, {"memory_limit": "5"}):
        with pytest.raises(QueryError):
            await chat.context("x", **wrong)
    with pytest.raises(ValueError, match="format"):
        await chat.context("x", format="telegraph")  # type: ignore[arg-type]  # wrong on purpose


async def test_memories_come_from_the_handles_scope_and_other_chats(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    await any_alice.remember("Carla is allergic to peanuts")
    await any_alice.chat("yesterday").add("Carla comes to dinner on Friday")
    await any_bob.remember("Carla stole the silver spoons")

    context = await any_alice.chat("today").context("What may Carla eat for dinner?", budget=2_000)

    check(context, 2_000, "openai")
    assert "allergic to peanuts" in context.text
    assert "comes to dinner on Friday" in context.text
    assert "silver spoons" not in context.text
    nothing = await any_alice.chat("today").context("Carla", memory_limit=0)
    assert "peanuts" not in nothing.text


async def test_a_handle_of_a_session_recalls_that_session_only(
    memory: AgentMemory, who: str
) -> None:
    await memory.scope(user_id=who).remember("Carla is allergic to peanuts")
    session = memory.scope(user_id=who, session_id="s")
    await session.remember("Carla likes soup")

    context = await session.chat("t").context("What does Carla eat?")

    assert "soup" in context.text
    assert "peanuts" not in context.text


async def test_what_the_conversation_shows_is_not_repeated(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    await chat.add("Carla is allergic to peanuts")
    await chat.add({"role": "assistant", "content": "Noted about Carla."})
    await chat.add("What may Carla eat?")

    context = await chat.context(budget=2_000)

    assert str(context.messages().messages).count("allergic to peanuts") == 1
    assert str(context.messages().messages).count("What may Carla eat?") == 1


async def test_a_talkative_chat_does_not_crowd_out_a_memory(any_alice: ScopedMemory) -> None:
    await any_alice.remember("Carla is allergic to peanuts and to pizza dough")
    chat = any_alice.chat("c")
    await chat.add([f"Carla wants pizza number {number}, says Carla" for number in range(60)])

    context = await chat.context("What pizza may Carla eat?")

    assert "allergic to peanuts" in context.text


async def test_the_prefix_is_the_same_from_turn_to_turn(
    url: str, open_memory: Open, who: str, tmp_path: Path
) -> None:
    (tmp_path / "SOUL.md").write_text("# Ada\n\nA travel agent.\n", encoding="utf-8")
    options = {"persona": tmp_path / "SOUL.md", "secret": b"x" * 32}
    alice = open_memory(url, **options).scope(user_id=who)
    other = open_memory(url, **options).scope(user_id=who)
    await alice.remember("I like trains")
    before: list[object] = []

    for number in range(6):
        handle = (alice, other)[number % 2]  # as after a restart
        chat = handle.chat("c")
        await chat.add(f"question about trains {number}")
        context = await chat.context(budget=5_000)
        messages: list[object] = list(context.messages().messages)
        stable = messages[:-1]
        assert stable[: len(before)] == before, number
        before = stable
        await chat.add(AIMemory(content=f"answer {number}"))

    assert len(before) >= 10


async def test_what_has_no_room_is_told_by_the_summary(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer("They spoke about zebras.")
    memory = open_memory(url, summarizer=script, summaries=SOME)
    chat = memory.scope(user_id=who).chat("c")
    said = [f"word {number}." for number in range(20)]
    await chat.add([SystemMemory(content="Be kind."), *said])
    await memory.flush()
    with_summary = 0

    for budget in range(125, 401, 25):
        context = await chat.context("go on", budget=budget, memory_limit=0)
        check(context, budget, "openai")
        messages = str(context.messages().messages)
        is_told = "summary" not in {each.section for each in context.dropped}
        for form in (context.text, messages):
            is_whole = all(text in form for text in said)
            assert ("They spoke about zebras." in form) == (is_told and not is_whole), budget
            assert said[-1] in form, budget
        assert "Be kind." in messages, budget
        with_summary += "zebras" in context.text

    assert 3 < with_summary < 12
    assert is_whole
    assert script.prompts[0].count("word 0.") == 1


async def test_an_open_tool_group_is_never_shown_half(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    items = turn(0)
    await chat.add(items[0])

    for item in items[1:4]:
        await chat.add(item)
        for format in FORMATS:
            context = await chat.context(budget=500, format=format)
            check(context, 500, format)
    assert "seen 0" in context.text
    assert "told 0" in context.text


@pytest.mark.parametrize("format", FORMATS)
async def test_a_budget_holds_for_messages_as_they_are_sent(format: Format) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        chat = memory.scope(user_id="ann").chat("c")
        for number in range(12):
            call = {"id": f"call #{number} " + "x" * 70, "name": f"tool {number}!"}
            await chat.add(
                [
                    f"question {number}",
                    AIMemory(content="", tool_calls=[call]),
                    ToolMemory(content=f"result {number}", tool_call_id=call["id"]),
                ]
            )

        for budget in range(20, 400, 37):
            sent = await chat.messages(format=format, budget=budget)
            items = from_messages(sent.messages, format)
            assert validate(sent.messages, format) == []
            # Gemini's calls have no ids: those that a reader makes up are not sent.
            made_up = 14 * len(items) if format == "gemini" else 0
            assert sent_tokens(items, format, counter=estimate_tokens) <= budget + made_up


async def test_what_happened_lately_is_shown_and_may_be_missing(
    caplog: pytest.LogCaptureFixture, redis_server: RedisServer
) -> None:
    async with AgentMemory("memory://", embeddings=None, episodic=redis_server.url()) as memory:
        ann = memory.scope(user_id=secrets.token_hex(4))
        await ann.activity.add_interaction("mention", "Bob asked about the castle")
        chat = ann.chat("c")

        assert "the castle" in (await chat.context("go on", budget=500)).text
        nowhere = ShortTermMemoryManager("redis://127.0.0.1:1", ann.activity.agent_id, deadline=0.2)
        await ann.activity.disconnect()
        memory._core._managers[ann.activity.agent_id] = nowhere
        context = await chat.context("go on", budget=500)

    assert "recent" not in context.parts
    assert "without recent activity" in caplog.text


@pytest.mark.parametrize("most_named", [1_000, 10])
async def test_what_the_conversation_shows_is_not_weighed_to_find_memories_elsewhere(
    most_named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_chat, "_MAX_NAMED", most_named)
    asked: list[int] = []

    async with AgentMemory(":memory:", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        recall = alice.recall

        async def noted(query: str = "", *, k: int = 10, **given: Any) -> Any:
            asked.append(k)
            return await recall(query, k=k, **given)

        monkeypatch.setattr(alice, "recall", noted)
        await alice.remember("Oolong is tea of some kind, as somebody said long ago.")
        await alice.chat("yesterday").add("The tea was cold.")
        chat = alice.chat("today")
        await chat.add([f"tea {name}" for name in map("word{}".format, range(300))])
        context = await chat.context("tea")

    memories = next(section for section in context.sections if section.name == "memories")
    assert "Oolong is tea" in memories.text
    assert "tea was cold" in memories.text
    assert max(asked) <= 5 + 40


async def test_much_text_is_counted_beside_the_event_loop(open_memory: Open) -> None:
    on_the_loop = 0

    def count(text: str) -> int:
        nonlocal on_the_loop
        if threading.current_thread() is threading.main_thread():
            on_the_loop += len(text)
        return len(text) // 4

    memory = open_memory("memory://", count_tokens=count)
    chat = memory.scope(user_id="alice").chat("c")
    await chat.add([f"{number} {'tea ' * 500}" for number in range(900)])
    on_the_loop = 0

    for budget in (200_000, 1_000_000):
        await chat.context("tea", budget=budget)

    assert on_the_loop < 200_000  # of 1,800,000: the first, small page of each


async def test_a_long_chat_without_summaries_keeps_its_beginning_for_many_turns(
    tmp_path: Path,
) -> None:
    async with AgentMemory(
        f"sqlite:///{tmp_path / 'm.db'}", embeddings=None, summaries=None
    ) as memory:
        chat = memory.scope(user_id="alice").chat("long")
        await chat.add([f"question {turn} " + "word " * 40 for turn in range(200)])
        starts = []
        for turn in range(60):
            await chat.add(f"another question {turn} " + "word " * 40)
            context = await chat.context("Go on?", budget=2_500, memory_limit=0)
            starts.append(context.prefix[:400])

    changes = sum(one != two for one, two in pairwise(starts))
    assert changes <= 20  # about seven, as half of thirty rounds may be left out


async def test_what_was_asked_before_does_not_take_the_places_of_what_answers() -> None:
    asked = [
        "What can I eat tonight with my allergy?",
        "Anything I can eat at the Thai place with my allergy?",
        *(f"What can I eat {where} with my allergy?" for where in (
            "for breakfast", "at the party", "for lunch today", "on Sunday", "at work"
        )),
        "What may I eat on the plane with my allergy?",
        "What can I eat with my allergy in Rome?",
        "What can I eat tomorrow with my allergy?",
    ]  # fmt: skip
    async with AgentMemory(":memory:", embeddings=LocalEmbeddings(), summaries=None) as memory:
        alice = memory.scope("alice")
        await alice.remember("alice is allergic to peanuts")
        for number, question in enumerate(asked):
            await alice.chat(f"day {number}").add(question)
        await memory.flush()
        chat = alice.chat("now")
        await chat.add("What can I eat for lunch today with my allergy?")
        context = await chat.context(budget=2_000)

    memories = next(section.text for section in context.sections if section.name == "memories")
    assert memories.index("peanuts") < memories.index("I eat")


async def test_memories_that_do_not_answer_are_named_as_left_out(open_memory: Open) -> None:
    memory = open_memory("memory://")
    alice = memory.scope(user_id="alice")
    eats = await alice.remember("Mia eats rice")
    others = [await alice.remember(each) for each in ("The car is a red Volvo", "Rent is due")]
    polite = await alice.remember("Great, thank you so much.")
    await alice.remember("Mia eats bread, too")

    context = await alice.chat("c").context("What great food does Mia eat?", memory_limit=1)

    left = {each.id: (each.section, each.reason) for each in context.dropped}
    assert eats.content in context.text or left[eats.id] == ("memories", "limit")
    assert [reason for _, reason in left.values()].count("limit") == 1
    for each in others:
        assert each.content not in context.text
        assert left.get(each.id, ("memories", "relevance")) == ("memories", "relevance")
    assert left[polite.id] == ("memories", "relevance")
    assert all(each.tokens > 0 for each in context.dropped)
