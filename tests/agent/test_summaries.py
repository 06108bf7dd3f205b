"""Summaries are made in the background, stored and reused; a failing one loses nothing."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.timing import HANG, until

from orbiter.memory import AgentMemory, AIMemory, HumanMemory
from orbiter.memory.agent import Chat, SummaryMemory
from orbiter.memory.agent import summaries as _summaries
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.errors import NotInitializedError, SummaryError
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import ScriptedSummarizer

Open = Callable[..., AgentMemory]

SOON = SummaryConfig(message_threshold=5, keep_recent=2)


class Hanging:
    """Never answers; says how often it was asked and given up."""

    def __init__(self) -> None:
        self.asked, self.left = 0, 0

    async def summarize(self, prompt: str) -> str:
        self.asked += 1
        try:
            await asyncio.sleep(3_600)
        finally:
            self.left += 1
        return prompt


async def say(chat: Chat, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        await chat.add(f"message {number}")


async def talk(chat: Chat, rounds: int) -> None:
    for number in range(rounds):
        await chat.add({"role": "user", "content": f"question {number}, {'for long ' * 8}"})
        await chat.add({"role": "assistant", "content": f"answer {number}, {'at length ' * 8}"})


async def texts(chat: Chat) -> list[str]:
    return [item.content for item in await chat.items()]


async def test_a_summary_is_made_when_there_is_enough(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer("the first", "the second")
    memory = open_memory(url, summarizer=script, summaries=SOON)
    chat = memory.scope(user_id=who).chat("c")

    await say(chat, 5)
    await memory.flush()
    assert await chat.summary() is None
    await say(chat, 1, start=5)
    await memory.flush()
    assert await chat.summary() == "the first"
    await say(chat, 4, start=6)
    await memory.flush()

    assert await chat.summary() == "the second"
    assert "message 3" in script.prompts[0]
    assert "message 4" not in script.prompts[0], "the newest are left as they are"
    assert "the first" in script.prompts[1]
    assert "message 3" not in script.prompts[1]
    assert "message 7" in script.prompts[1]
    assert await texts(chat) == [f"message {number}" for number in range(10)]


async def test_whoever_adds_messages_waits_for_no_summary(
    url: str, open_memory: Open, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_summaries, "_QUIET", 3_600)
    monkeypatch.setattr(_summaries, "_LATEST", 3_600)
    script = ScriptedSummarizer("of both")
    memory = open_memory(url, summarizer=script, summaries=SOON)
    chat = memory.scope(user_id=who).chat("c")

    await say(chat, 20)
    assert script.prompts == []
    await memory.flush()

    assert await chat.summary() == "of both"
    assert "message 17" in script.prompts[0], "they are summed up at once"


async def test_a_summary_is_made_once_it_is_quiet(url: str, open_memory: Open, who: str) -> None:
    memory = open_memory(url, summaries=SOON)
    chat = memory.scope(user_id=who).chat("c")

    await say(chat, 20)
    await until(chat.summary, "a summary")


async def test_a_summary_is_made_though_messages_go_on_coming(
    url: str, open_memory: Open, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_summaries, "_LATEST", 0.05)
    memory = open_memory(url, summaries=SOON)
    chat = memory.scope(user_id=who).chat("c")

    async with asyncio.timeout(HANG):
        while await chat.summary() is None:
            await say(chat, 1)


async def test_a_summary_is_reused_by_others(url: str, open_memory: Open, who: str) -> None:
    first = open_memory(url, summarizer=ScriptedSummarizer("the first"), summaries=SOON)
    await say(first.scope(user_id=who).chat("c"), 6)
    await first.flush()
    script = ScriptedSummarizer("the second")
    second = open_memory(url, summarizer=script, summaries=SOON)
    chat = second.scope(user_id=who).chat("c")

    assert await chat.summary() == "the first"
    await say(chat, 2, start=6)
    await second.flush()
    assert script.prompts == []
    await say(chat, 2, start=8)
    await second.flush()

    assert await chat.summary() == "the second"
    assert "the first" in script.prompts[0]


async def test_two_that_summarise_at_the_same_time_agree(
    url: str, open_memory: Open, who: str
) -> None:
    memories = [open_memory(url, summaries=SOON) for _ in range(2)]
    chats = [memory.scope(user_id=who).chat("c") for memory in memories]
    await say(chats[0], 6)
    await memories[0].flush()
    await say(chats[0], 3, start=6)

    made = await asyncio.gather(*(chat.summarize() for chat in chats))

    assert made[0] is not None
    assert {*made, await chats[0].summary(), await chats[1].summary()} == {made[0]}


async def test_a_summary_does_not_outlive_what_it_sums_up(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer("The code is 4711.", "They spoke.", "They spoke again.")
    memory = open_memory(url, summarizer=script, summaries=SOON)
    alice = memory.scope(user_id=who)
    chat, other = alice.chat("c"), alice.chat("d")
    (code,) = await chat.add("the code is 4711")
    await say(chat, 5)
    await memory.flush()
    await say(other, 6)
    await memory.flush()
    assert await chat.summary() == "The code is 4711."

    await alice.forget(code.id)

    assert await chat.summary() is None
    assert await other.summary() == "They spoke.", "another chat lost nothing"
    await say(chat, 1, start=5)
    await memory.flush()
    assert await chat.summary() == "They spoke again."
    assert "4711" not in script.prompts[-1]
    (first, *_) = await chat.items()
    await alice.update(first.id, "something else")
    assert await chat.summary() is None


async def test_a_message_forgotten_while_it_is_summed_up_is_not_told(
    url: str, open_memory: Open, who: str
) -> None:
    memories: list[AgentMemory] = []

    class Forgetful:
        """Answers after another process has forgotten what the answer is about."""

        async def summarize(self, prompt: str) -> str:
            await memories[1].scope(user_id=who).forget(query="4711")
            return "The code is 4711." if "4711" in prompt else "They spoke."

    memories += [open_memory(url, summarizer=Forgetful(), summaries=SOON), open_memory(url)]
    chat = memories[0].scope(user_id=who).chat("c")
    await chat.add("the code is 4711")
    await say(chat, 3)

    assert await chat.summarize() is None
    assert await chat.summary() is None
    assert await chat.summarize() == "They spoke."


async def test_whoever_makes_no_summaries_forgets_those_of_others(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer("The code is 4711.")
    maker, other = open_memory(url, summarizer=script), open_memory(url, summaries=None)
    chat = maker.scope(user_id=who).chat("c")
    await chat.add("the code is 4711")
    await say(chat, 5)
    await chat.summarize()

    await other.scope(user_id=who).forget(query="4711")

    assert await chat.summary() is None


async def test_what_was_brought_back_is_summed_up_again(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer("at first", "without it", "with it")
    memory = open_memory(url, summarizer=script, summaries=SOON)
    alice = memory.scope(user_id=who)
    chat = alice.chat("c")
    (code,) = await chat.add("the code is 4711")
    await say(chat, 5)
    await memory.flush()
    await alice.forget(code.id)
    await chat.summarize()

    await alice.restore(code.id)

    assert await chat.summary() is None
    await chat.summarize()
    assert "4711" in script.prompts[-1]


async def test_no_message_is_lost_where_a_summary_ends_among_equal_instants(
    local_url: str, open_memory: Open, who: str
) -> None:
    memory = open_memory(local_url, summarizer=ScriptedSummarizer("so far"), summaries=SOON)
    chat = memory.scope(user_id=who).chat("c")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    instants = [moment + timedelta(seconds=second) for second in (0, 1, 2, 3, 3, 3, 3)]
    await memory.init()
    said = [
        HumanMemory(content=f"message {number}", metadata=chat.scope, created_at=instant)
        for number, instant in enumerate(instants)
    ]
    await memory.store.add_many(said)

    await chat.summarize()
    context = await chat.context("go on", budget=600)
    kept = await memory.store.get(derived_id(chat.scope, "summary"))

    assert isinstance(kept, SummaryMemory)
    assert (kept.covers_id, kept.covered) == (said[4].id, 5)
    assert all(f"message {number}" in context.text for number in range(5, 7))


async def test_a_long_chat_is_summed_up_in_pieces(url: str, open_memory: Open, who: str) -> None:
    script = ScriptedSummarizer(*["so far"] * 5)
    memory = open_memory(url, summaries=None)
    chat = memory.scope(user_id=who).chat("c")
    await chat.add([f"message {number}" for number in range(100)])
    again = open_memory(url, summarizer=script, summaries=SOON).scope(user_id=who).chat("c")

    await again.summarize()

    assert len(script.prompts) == 5
    said = [
        [f"message {n}" for n in range(100) if f"]: message {n}\n" in f"{prompt}\n"]
        for prompt in script.prompts
    ]
    assert [len(each) for each in said] == [20, 20, 20, 20, 18]
    assert all("so far" in prompt for prompt in script.prompts[1:])


async def test_a_label_costs_no_summary_and_a_branch_takes_it_along(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer("so far")
    memory = open_memory(url, summarizer=script, summaries=SOON)
    alice = memory.scope(user_id=who)
    chat = alice.chat("c")
    await say(chat, 6)
    await memory.flush()
    items = await chat.items()

    await alice.update(items[0].id, tags=["seen"])
    branch = await chat.fork(items[-1])
    early = await chat.fork(items[1])

    assert await chat.summary() == "so far"
    assert await branch.summary() == "so far"
    assert await early.summary() is None
    assert len(script.prompts) == 1


async def test_the_arguments_of_tools_count(url: str, open_memory: Open, who: str) -> None:
    config = SummaryConfig(message_threshold=100, token_threshold=500, keep_recent=1)
    memory = open_memory(url, summarizer=ScriptedSummarizer("so far"), summaries=config)
    chat = memory.scope(user_id=who).chat("c")
    call = {"id": "c1", "name": "write", "arguments": {"text": "word " * 600}}

    await chat.add([AIMemory(content="", tool_calls=[call]), "thanks", "bye"])
    await chat.add({"role": "tool", "tool_call_id": "c1", "content": "done"})
    await chat.add("well then")
    await memory.flush()

    assert await chat.summary() == "so far"


async def test_a_summary_opens_no_memory_that_was_closed(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path / "m.db", embeddings=None, summaries=SOON)
    chat = memory.scope(user_id="ann").chat("c")
    await say(chat, 4)
    adding = [asyncio.ensure_future(chat.add(f"late {number}")) for number in range(10)]
    await asyncio.sleep(0)

    await memory.close()
    await asyncio.gather(*adding, return_exceptions=True)
    await asyncio.sleep(0.05)

    with pytest.raises(NotInitializedError):
        await memory.store.count()


async def test_a_summary_is_no_memory_of_its_own(url: str, open_memory: Open, who: str) -> None:
    script = ScriptedSummarizer("They spoke about zebras.")
    memory = open_memory(url, summarizer=script, summaries=SOON)
    alice = memory.scope(user_id=who)
    await say(alice.chat("c"), 6)
    await memory.flush()
    assert await alice.chat("c").summary() is not None

    assert not await alice.recall("zebras", min_relevance=0.05)
    assert len(await alice.recall(mode="recent", k=50)) == 6
    assert len(await alice.chat("c").items()) == 6
    assert len(await alice.chats()) == 1
    assert len(await alice.forget(everything=True)) == 7
    assert await alice.chat("c").summary() is None


async def check_delay(
    memory: AgentMemory, who: str, script: ScriptedSummarizer, caplog: pytest.LogCaptureFixture
) -> None:
    """Talk while the script fails once, and then does not."""
    chat = memory.scope(user_id=who).chat("c")
    stream = memory.unscoped().events()

    with caplog.at_level(logging.WARNING):
        await say(chat, 6)
        await memory.flush()
    assert len(script.prompts) == 1
    assert await chat.summary() is None
    assert "nothing is lost" in caplog.text
    assert "message" not in caplog.text
    assert "secret" not in caplog.text
    await say(chat, 1, start=6)
    await memory.flush()
    assert len(script.prompts) == 1, "it waits before it tries again"
    for tally in memory._chats.summaries._tallies.values():  # as if the pause were over
        tally.not_before = 0.0
    await say(chat, 1, start=7)
    await memory.flush()

    assert await chat.summary() == "at last"
    assert "message 0" in script.prompts[1]
    assert await texts(chat) == [f"message {number}" for number in range(8)]
    await stream.aclose()
    kinds = [event.kind async for event in stream]
    assert [kind for kind in kinds if kind.startswith("summ")] == ["summary failed", "summarized"]


PAUSE = 3600.0


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_summaries, "_FIRST_PAUSE", PAUSE)
    monkeypatch.setattr(_summaries, "_LONGEST_PAUSE", PAUSE)


@pytest.mark.usefixtures("long_pause")
async def test_a_failing_summarizer_delays_and_loses_nothing(
    local_url: str, open_memory: Open, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = ScriptedSummarizer(RuntimeError("secret words"), "at last")

    await check_delay(
        open_memory(local_url, summarizer=script, summaries=SOON), who, script, caplog
    )


@pytest.mark.usefixtures("long_pause")
@pytest.mark.parametrize("answer", ["", "  \n", "nul \0", "\ud800"])
async def test_a_summary_that_says_nothing_or_cannot_be_kept_is_a_failure(
    open_memory: Open, caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    script = ScriptedSummarizer(answer, "at last")
    memory = open_memory("memory://", embeddings=None, summarizer=script, summaries=SOON)

    await check_delay(memory, "alice", script, caplog)


async def test_what_is_said_while_a_summary_is_looked_for_counts(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer("the first")
    memory = open_memory(url, summarizer=script, summaries=SOON)
    chat = memory.scope(user_id=who).chat("c")

    await asyncio.gather(*(chat.add(f"message {number}") for number in range(6)))
    await memory.flush()

    assert await chat.summary() == "the first"


async def test_a_summary_asked_for_tells_what_failed(open_memory: Open) -> None:
    script = ScriptedSummarizer(RuntimeError("no"), "nul \0", "at last")
    memory = open_memory("memory://", summarizer=script, summaries=SummaryConfig(keep_recent=1))
    chat = memory.scope(user_id="alice").chat("c")
    assert await chat.summarize() is None
    await say(chat, 3)

    for _ in range(2):
        with pytest.raises(SummaryError):
            await chat.summarize()

    assert await chat.summarize() == "at last"
    assert await chat.summarize() == "at last", "there is nothing new"


async def test_a_hanging_summarizer_holds_nothing_up(
    local_url: str, open_memory: Open, who: str
) -> None:
    hanging = Hanging()
    memory = open_memory(local_url, summarizer=hanging, summaries=SOON)
    chat = memory.scope(user_id=who).chat("c")

    await asyncio.wait_for(say(chat, 12), HANG)
    await asyncio.sleep(0.05)
    context = await asyncio.wait_for(chat.context("go on", budget=200), HANG)
    await asyncio.wait_for(memory.close(), HANG)

    assert context.tokens <= 200
    assert (hanging.asked, hanging.left) == (1, 1)
    again = open_memory(local_url, summarizer=ScriptedSummarizer("at last"), summaries=SOON)
    chat = again.scope(user_id=who).chat("c")
    await say(chat, 1, start=12)
    await again.flush()
    assert await chat.summary() == "at last"
    assert await texts(chat) == [f"message {number}" for number in range(13)]


async def test_closing_at_once_leaves_no_task_behind(local_url: str, who: str) -> None:
    memory = AgentMemory(local_url, embeddings=None, summaries=SOON)
    chats = [memory.scope(user_id=who).chat(f"{number}") for number in range(4)]
    await asyncio.gather(*(say(chat, 7) for chat in chats))
    await memory.close()

    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert [task for task in others if "_look" in repr(task)] == []


async def test_without_summaries_nothing_is_summed_up(open_memory: Open) -> None:
    memory = open_memory("memory://", summaries=None)
    chat = memory.scope(user_id="alice").chat("c")
    await say(chat, 30)

    await memory.flush()

    assert await chat.summary() is None
    assert await chat.summarize() is None
    assert (await memory.stats()).items == 30


async def test_what_a_machine_says_whose_clock_is_behind_is_still_shown(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer("the first", "the second")
    memory = open_memory(url, summarizer=script, summaries=SOON)
    late = open_memory(url, summaries=None).scope(user_id=who).chat("c")
    chat = memory.scope(user_id=who).chat("c")
    await late.add("message from the start")
    await say(chat, 6)
    await memory.flush()
    assert await chat.summary() == "the first"

    await late.add(
        HumanMemory(content="said late", created_at=datetime.now(UTC) - timedelta(hours=1))
    )
    await chat.add("and then")

    assert (await texts(chat))[-2:] == ["said late", "and then"]
    for budget in range(250, 501, 50):
        context = await chat.context("go on", budget=budget, memory_limit=0)
        assert "said late" in context.text, budget


async def test_beside_a_summary_an_answer_keeps_its_question(
    url: str, open_memory: Open, who: str
) -> None:
    config = SummaryConfig(message_threshold=5, keep_recent=3)
    script = ScriptedSummarizer(*["what was said before"] * 20)
    memory = open_memory(url, summarizer=script, summaries=config)
    chat = memory.scope(user_id=who).chat("c")
    for number in range(12):
        await chat.add({"role": "user", "content": f"question {number}, {'for long ' * 8}"})
        await chat.add({"role": "assistant", "content": f"answer {number}, {'at length ' * 8}"})
        await memory.flush()
    assert await chat.summary() is not None

    counts = []
    for budget in range(150, 901, 50):
        context = await chat.context("go on", budget=budget, memory_limit=0)
        questions, answers = [
            [number for number in range(12) if f"{word} {number}, " in context.text]
            for word in ("question", "answer")
        ]
        assert questions == answers, budget
        sent = "".join(message["content"] for message in context.messages())
        assert all(f"question {number}, " in sent for number in answers), "behind the summary"
        assert context.tokens <= budget
        if "what was said before" in context.text:
            counts.append(len(questions))

    assert 2 in counts, "what is not summed up begins with an answer, whose question is shown"


async def test_a_summary_leaves_the_rest_of_the_budget_to_messages(
    url: str, open_memory: Open, who: str
) -> None:
    script = ScriptedSummarizer(*["what was said before"] * 40)
    memory = open_memory(url, summarizer=script, summaries=SOON)
    chat = memory.scope(user_id=who).chat("c")
    await talk(chat, 40)
    await memory.flush()
    assert await chat.summary() is not None

    budgets = [500, 1_000, 2_000]
    contexts = [await chat.context("go on", budget=each, memory_limit=0) for each in budgets]

    for context, budget in zip(contexts, budgets, strict=True):
        assert "what was said before" in context.text
        assert budget / 2 < context.tokens <= budget


async def test_a_message_without_room_in_the_conversation_may_be_a_memory(
    open_memory: Open, local_url: str, who: str
) -> None:
    memory = open_memory(local_url, summaries=None)
    chat = memory.scope(user_id=who).chat("c")
    await chat.add({"role": "user", "content": "The door code of the office is 4711"})
    await chat.add({"role": "assistant", "content": "Noted."})
    await talk(chat, 30)
    await memory.flush()

    whole = (await chat.context("What is the door code?", budget=100_000)).tokens
    for budget in range(300, whole + 100, 100):
        context = await chat.context("What is the door code?", budget=budget)
        assert context.text.count("4711") == 1, budget
