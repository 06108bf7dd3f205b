"""Resources and prompts: what a person attaches to a conversation, or begins one with."""

import json
from typing import Any

import pytest
from mcp.types import INVALID_PARAMS
from tests.mcp.conftest import Connect
from tests.mcp.sdk_client import Client, MCPError

from orbiter.memory import AgentMemory, ScopedMemory
from orbiter.memory.context.prompt_fence import parse


async def read(client: Client, uri: str) -> Any:
    """Return the document at an address."""
    [content] = (await client.read_resource(uri)).contents
    assert content.mime_type == "application/json"
    return json.loads(content.text)  # type: ignore[union-attr]


async def prompt(client: Client, name: str, **arguments: str) -> str:
    """Return the text of a prompt."""
    [message] = (await client.get_prompt(name, arguments)).messages
    assert message.role == "user"
    return str(message.content.text)  # type: ignore[union-attr]


async def test_resources_show_what_is_recent_known_and_said(
    connect: Connect, alice: ScopedMemory, era: str
) -> None:
    item = await alice.remember("a note")
    await alice.facts.put("city", "Oslo")
    await alice.chat("trip/2").add(["where to?", {"role": "assistant", "content": "north"}])
    async with connect(mode=era) as client:
        listed = {each.uri for each in (await client.list_resources()).resources}
        templates = (await client.list_resource_templates()).resource_templates
        recent = await read(client, "memory://recent")
        profile = await read(client, "memory://profile")
        one = await read(client, f"memory://item/{item.id}")
        chat = await read(client, "memory://chat/trip%2F2")

    assert listed == {"memory://recent", "memory://profile"}
    assert {each.uri_template for each in templates} == {
        "memory://item/{id}",
        "memory://chat/{id}",
    }
    assert "a note" in {each["text"] for each in recent["memories"]}
    assert profile["facts"]["city"]["value"] == "Oslo"
    assert one["text"] == "a note"
    assert [(each["role"], each["text"]) for each in chat["messages"]] == [
        ("human", "where to?"),
        ("ai", "north"),
    ]


async def test_a_resource_that_is_not_there_or_anothers_is_refused(
    connect: Connect, memory: AgentMemory, era: str
) -> None:
    theirs = await memory.scope(user_id="bob").remember("bob's")
    await memory.scope(user_id="bob").chat("c").add("bob's words")
    async with connect(mode=era) as client:
        for uri in (f"memory://item/{theirs.id}", "memory://chat/c", "memory://x", "file:///etc"):
            with pytest.raises(MCPError) as raised:
                await client.read_resource(uri)
            assert "bob's" not in str(raised.value)
            assert "there is no" in str(raised.value)


async def test_recall_is_a_question_with_what_is_known(
    connect: Connect, alice: ScopedMemory, era: str
) -> None:
    item = await alice.remember("tea is in the left drawer")
    async with connect(mode=era) as client:
        names = {each.name for each in (await client.list_prompts()).prompts}
        text = await prompt(client, "recall", query="where is the tea?")
        nothing = await prompt(client, "recall", query="zebra")

    assert names == {"recall", "handoff"}
    assert text.startswith("Answer this question")
    mark = text.rpartition("\n")[2]
    [entry] = parse(text, mark=mark)
    assert entry.content == "tea is in the left drawer"
    assert entry.source == f"id {item.id[-8:]}"
    assert nothing.startswith("There are no memories")


async def test_a_handoff_has_the_conversation_newest_first_and_the_memories(
    connect: Connect, alice: ScopedMemory, era: str
) -> None:
    await alice.remember("deploys go out on Tuesday")
    await alice.chat("deploy").add(
        ["plan the deploy", {"role": "assistant", "content": "tests are red"}]
    )
    async with connect(mode=era) as client:
        by_chat = await prompt(client, "handoff", chat="deploy")
        by_topic = await prompt(client, "handoff", topic="deploys Tuesday")
        for wrong in ({}, {"chat": "nowhere"}):
            with pytest.raises(MCPError, match="chat|conversation"):
                await client.get_prompt("handoff", wrong)

    assert by_chat.index("tests are red") < by_chat.index("plan the deploy")
    assert "deploys go out on Tuesday" in by_topic
    assert "the next step" in by_topic


async def test_a_prompt_that_lacks_something_is_the_callers_mistake(
    connect: Connect, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[str, dict[str, str], str]] = [
        ("recall", {}, "`query` is missing"),
        ("recall", {"query": "x", "bogus": "y"}, "`bogus`"),
        ("nope", {}, "use one of `recall`, `handoff`"),
    ]
    async with connect(mode=era) as client:
        for name, given, words in asked:
            with pytest.raises(MCPError, match=words) as caught:
                await client.get_prompt(name, given)
            assert caught.value.error.code == INVALID_PARAMS

    assert not caplog.records
