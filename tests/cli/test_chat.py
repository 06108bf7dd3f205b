"""`chat`, `context`, and new memories as `tail` prints them."""

import asyncio
import json
import sys

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal

from orbiter.memory.agent import AgentMemory
from orbiter.memory.cli._sample_data import CHAT


@pytest.fixture
def spoken(cli: Cli) -> Cli:
    """Alice and the model have talked, in one chat of hers and one of bob's."""

    async def talk() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            await memory.scope(user_id="alice").chat("lisbon").add(CHAT)
            await memory.scope(user_id="bob").chat("lisbon").add("bob's own words")
            await memory.scope(user_id="alice").remember("Mia is allergic to peanuts")

    asyncio.run(talk())
    return cli


def test_chats_are_listed_with_how_much_was_said(spoken: Cli) -> None:
    (chat,) = spoken.json("chat", "list")

    assert chat["chat"] == "lisbon"
    assert chat["items"] == 9
    assert spoken.ok("chat", "list").startswith("lisbon\t9\t")
    assert len(spoken.json("chat", "list", "--all")) == 2
    assert spoken.ok("chat") == spoken.ok("chat", "list")
    assert len(spoken.json("chat", "--all")) == 2


def test_a_chat_is_shown_with_its_tool_calls(spoken: Cli) -> None:
    told = spoken.ok("chat", "show", "lisbon")

    assert 'get_weather(city="Lisbon", day="14 May")' in told
    assert "get_sea: 17 °C" in told
    assert "bob's own words" not in told
    assert len(spoken.json("chat", "show", "lisbon", "--rounds", "1")) == 5
    sent = json.loads(spoken.ok("chat", "show", "lisbon", "--format", "anthropic"))
    assert sent["messages"][0]["role"] == "user"


def test_a_context_is_printed_under_its_budget_with_what_was_left_out(spoken: Cli) -> None:
    made = spoken.json("context", "lisbon", "What may Mia eat?", "--budget", "300")
    told = spoken.ok("context", "lisbon", "What may Mia eat?", "--budget", "300")

    assert made["tokens"] <= 300
    assert made["messages"][-1]["content"].endswith("What may Mia eat?")
    assert {"memories", "task"} <= {section["name"] for section in made["sections"]}
    assert {each["reason"] for each in made["dropped"]} >= {"budget"}
    assert "Mia is allergic to peanuts" in told
    assert "── user" in told
    assert "tokens" not in told  # the bar is for who watches, not for who reads


def test_a_context_without_a_task_answers_the_newest_question(spoken: Cli) -> None:
    async def ask() -> None:
        async with AgentMemory(spoken.url, embeddings=None) as memory:
            await memory.scope(user_id="alice").chat("lisbon").add("And where do we eat?")

    answered = spoken("context", "lisbon")
    asyncio.run(ask())
    made = spoken.json("context", "lisbon", "--format", "gemini")

    assert answered.exit_code == 2
    assert '`orbiter-memory context lisbon "…"`' in answered.stderr
    assert "And where do we eat?" in json.dumps(made["contents"])


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_a_terminal_counts_messages_in_words_that_agree(spoken: Cli) -> None:
    seen = in_terminal(["chat", "list", "--all"], environment(spoken.url, {"NO_COLOR": "1"}))

    assert "9 messages · " in seen.stdout
    assert "1 message · " in seen.stdout


@pytest.mark.parametrize("args", [["chat", "show"], ["context"]], ids=" ".join)
def test_a_chat_that_is_not_there_exits_with_3_and_names_who_was_looked_at(
    spoken: Cli, args: list[str]
) -> None:
    result = spoken(*args, "nowhere")

    assert result.exit_code == 3
    assert "there is no conversation `nowhere` of user `alice`" in result.stderr
    assert "`orbiter-memory chat list`" in result.stderr
    assert result.stdout == ""


def test_a_budget_that_is_too_small_is_told(spoken: Cli) -> None:
    result = spoken("context", "lisbon", "x", "--budget", "3")

    assert result.exit_code == 2
    assert "budget" in result.stderr


def test_tail_begins_with_the_newest_and_ends_after_count(cli: Cli) -> None:
    cli.ok("remember", "one", "two", "three")

    printed = cli.ok("tail", "-n", "2", "--count", "2", "--json")

    assert [json.loads(line)["content"] for line in printed.splitlines()] == ["two", "three"]
