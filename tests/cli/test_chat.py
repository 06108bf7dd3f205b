"""`chat`, `context`, and new memories as `tail` prints them."""

import asyncio
import json
from pathlib import Path

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
    (chat,) = spoken.json("chat")

    assert chat["chat"] == "lisbon"
    assert chat["items"] == 9
    assert spoken.ok("chat").startswith("lisbon\t9\t")
    assert len(spoken.json("chat", "--all")) == 2
    assert spoken.ok("chat") == spoken.ok("chat")
    assert len(spoken.json("chat", "--all")) == 2


@pytest.fixture
def imported(spoken: Cli, tmp_path: Path) -> Cli:
    """Alice has brought two conversations of ChatGPT along, and one of Claude."""

    def node(text: str) -> dict[str, object]:
        message = {
            "id": "m",
            "author": {"role": "user"},
            "content": {"content_type": "text", "parts": [text]},
            "create_time": 1_700_000_000.0,
        }
        return {"a": {"id": "a", "message": message, "parent": None, "children": []}}

    talks: list[dict[str, object]] = [
        {"id": "1", "title": "Sourdough for beginners", "mapping": node("How warm is the water?")},
        {"id": "2", "title": "Tax return", "mapping": node("Which form do I need?")},
    ]
    for each in talks:
        each |= {"create_time": 1_700_000_000.0, "current_node": "a"}
    (tmp_path / "conversations.json").write_text(json.dumps(talks))
    spoken.ok("import", str(tmp_path / "conversations.json"), "--format", "chatgpt")
    claude = {
        "uuid": "3",
        "name": "Haiku about rain",
        "created_at": "2026-01-01T00:00:00Z",
        "chat_messages": [
            {
                "uuid": "4",
                "sender": "human",
                "text": "Write a haiku.",
                "created_at": "2026-01-01T00:00:00Z",
            }
        ],
    }
    (tmp_path / "claude.json").write_text(json.dumps([claude]))
    spoken.ok("import", str(tmp_path / "claude.json"), "--format", "claude-ai")
    return spoken


def test_titles_of_imported_conversations_are_listed(imported: Cli) -> None:
    titles = {chat["chat"]: chat["title"] for chat in imported.json("chat")}
    rows = [line.split("\t") for line in imported.ok("chat").splitlines()]

    assert titles == {
        "chatgpt:1": "Sourdough for beginners",
        "chatgpt:2": "Tax return",
        "claude-ai:3": "Haiku about rain",
        "lisbon": None,
    }
    assert {row[0]: row[4] for row in rows}["chatgpt:2"] == "Tax return"


def test_conversations_are_searched_by_title_and_name_within_the_scope(imported: Cli) -> None:
    def names(*args: str) -> list[str]:
        return [chat["chat"] for chat in imported.json("chat", *args)]

    assert names("--query", "sourDOUGH") == ["chatgpt:1"]
    assert names("--query", "lisbon") == ["lisbon"]
    assert names("--query", "sourdough", "--user", "bob") == []
    assert len(names("--query", "chatgpt", "-n", "1")) == 1
    assert names("--query", "nothing like it") == []


def test_a_title_stays_when_an_imported_conversation_goes_on(imported: Cli) -> None:
    async def go_on() -> None:
        async with AgentMemory(imported.url, embeddings=None) as memory:
            await memory.scope(user_id="alice").chat("chatgpt:1").add("And the salt?")

    asyncio.run(go_on())

    assert imported.json("chat")[0]["title"] == "Sourdough for beginners"


def test_a_chat_is_shown_with_its_tool_calls(spoken: Cli) -> None:
    told = spoken.ok("chat", "lisbon")

    assert 'get_weather(city="Lisbon", day="14 May")' in told
    assert "get_sea: 17 °C" in told
    assert "bob's own words" not in told
    assert len(spoken.json("chat", "lisbon", "--limit", "1")) == 5
    sent = json.loads(spoken.ok("chat", "lisbon", "--format", "anthropic"))
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


def test_a_context_without_a_task_answers_the_newest_question_or_continues(spoken: Cli) -> None:
    async def ask() -> None:
        async with AgentMemory(spoken.url, embeddings=None) as memory:
            await memory.scope(user_id="alice").chat("lisbon").add("And where do we eat?")

    answered = spoken.json("context", "lisbon")
    asyncio.run(ask())
    made = spoken.json("context", "lisbon", "--format", "gemini")

    assert answered["messages"][-1]["content"].endswith("Continue.")
    assert "And where do we eat?" in json.dumps(made["contents"])


def test_a_context_of_a_chat_where_the_user_said_nothing_asks_for_the_task(cli: Cli) -> None:
    async def begin() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            rule = {"role": "system", "content": "Be kind."}
            await memory.scope(user_id="alice").chat("new").add(rule)

    asyncio.run(begin())
    refused = cli("context", "new")

    assert refused.exit_code == 2
    assert '`orbiter-memory context new "…"`' in refused.stderr


@pytest.mark.parametrize(
    "words", [["What may Mia not eat?"], ["What", "may", "Mia", "not", "eat?"], ["peanuts?"]]
)
def test_a_question_without_a_chat_gives_a_context_of_memories(
    spoken: Cli, words: list[str]
) -> None:
    result = spoken("context", *words)
    made = spoken.json("context", *words)

    assert result.exit_code == 0
    assert "Mia is allergic to peanuts" in result.stdout
    assert made["messages"][-1]["content"].endswith(" ".join(words))
    assert "conversation" not in {section["name"] for section in made["sections"]}


@pytest.mark.parametrize("name", ["lis", "lisbno", "Lisbon"])
def test_a_name_that_no_chat_has_is_answered_with_the_nearest(spoken: Cli, name: str) -> None:
    result = spoken("chat", name)
    other = spoken("chat", name, "--user", "carol")

    assert result.exit_code == other.exit_code == 3
    assert "did you mean `lisbon`?" in result.stderr
    assert "did you mean" not in other.stderr


def test_where_there_is_no_chat_it_says_how_to_begin_one(cli: Cli) -> None:
    cli.remember("likes tea")

    empty = " ".join(in_terminal(["chat"], environment(cli.url)).stdout.split())
    other = in_terminal(["chat", "--query", "trip"], environment(cli.url)).stdout

    assert "no conversation here" in empty
    assert "`--all` shows everyone's" in empty
    assert "begins one" not in other


@pytest.mark.parametrize("args", [["chat"], ["context"]], ids=" ".join)
def test_a_chat_that_is_not_there_exits_with_3_and_names_who_was_looked_at(
    spoken: Cli, args: list[str]
) -> None:
    result = spoken(*args, "nowhere")

    assert result.exit_code == 3
    assert "there is no conversation `nowhere` of user `alice`" in result.stderr
    assert "did you mean" not in result.stderr
    assert "`orbiter-memory chat`" in result.stderr
    assert result.stdout == ""


def test_a_budget_that_is_too_small_is_told(spoken: Cli) -> None:
    result = spoken("context", "lisbon", "x", "--budget", "3")

    assert result.exit_code == 2
    assert "budget" in result.stderr
