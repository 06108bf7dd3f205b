"""What a model gave our own tools goes with the memory that was made of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Open
from tests.agent.test_own_output import any_voice, model

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.integrations.openai_agents import OrbiterSession
from orbiter.memory.mcp.graph import Entity, Graph, Relation

__all__ = ["any_voice", "model"]

SECRET = "Alice's therapist is Dr Quillfeather"
OTHER = "Alice's dentist is Dr Frost"
FORMATS = ["openai", "openai-responses", "anthropic", "gemini"]
WAYS = ["plain", "query", "permanently"]


def calling(format: str, name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a turn in which a model calls a tool, as the provider has it."""
    text = json.dumps(arguments)
    done: dict[str, Any]
    if format == "openai":
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": text}}
        return [
            {"role": "user", "content": "Note it."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "Done.", "tool_call_id": "c"},
        ]
    if format == "openai-responses":
        call = {"type": "function_call", "id": "f", "call_id": "c", "name": name, "arguments": text}
        done = {"type": "function_call_output", "call_id": "c", "output": "Done."}
        return [{"role": "user", "content": "Note it."}, call, done]
    if format == "anthropic":
        use = {"type": "tool_use", "id": "c", "name": name, "input": arguments}
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
        return [
            {"role": "user", "content": "Note it."},
            {"role": "assistant", "content": [thought, use]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "Done."}]},
        ]  # fmt: skip
    part = {"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "YQ=="}
    done = {"functionResponse": {"name": name, "response": {"result": "Done."}}}
    return [
        {"role": "user", "parts": [{"text": "Note it."}]},
        {"role": "model", "parts": [part]},
        {"role": "user", "parts": [done]},
    ]


async def forget(handle: ScopedMemory, item_id: str, way: str) -> None:
    if way == "query":
        assert await handle.forget(query="therapist", memory_type="item")
        return
    done = await handle.forget([item_id], permanently=way == "permanently")
    assert done
    if way == "permanently":
        assert done.erasure is not None
        assert done.erasure.proven, done.erasure


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", FORMATS)
async def test_what_is_forgotten_goes_from_the_call_that_remembered_it(
    any_voice: ScopedMemory, format: Any, way: str
) -> None:
    item = await any_voice.remember(SECRET)
    chat = any_voice.chat("one")
    turn = calling(format, "remember", {"text": SECRET, "tags": ["health"]})
    await chat.add(turn, format=format)
    assert "Quillfeather" in str(await chat.messages(format=format))

    await forget(any_voice, item.id, way)

    sent = (await chat.context("And now?", format=format)).messages()
    assert "Quillfeather" not in str(sent)
    (call,) = [call for each in await chat.items() for call in getattr(each, "calls", ())]
    assert (call.name, call.args) == ("remember", {"text": "(forgotten)", "tags": ["health"]})
    after = (await chat.messages(format=format)).messages
    assert json.dumps(after) == json.dumps(turn).replace(SECRET, "(forgotten)")


@pytest.mark.parametrize("prefix", ["", "mcp__orbiter-memory__", "orbiter-memory_"])
@pytest.mark.parametrize(
    ("name", "arguments", "left"),
    [
        ("memory_add", {"texts": [SECRET, "Mia sings"]}, {"texts": ["(forgotten)", "Mia sings"]}),
        ("memory_update", {"id": "1", "text": SECRET}, {"id": "1", "text": "(forgotten)"}),
        ("memory_search", {"query": SECRET}, {"query": "(forgotten)"}),
    ],
)
async def test_it_goes_from_calls_of_the_server_under_any_name(
    any_voice: ScopedMemory, prefix: str, name: str, arguments: Any, left: Any
) -> None:
    item = await any_voice.remember(SECRET)
    await any_voice.chat("one").add(calling("openai", prefix + name, arguments))

    await forget(any_voice, item.id, "permanently")

    (call,) = [
        c for each in await any_voice.chat("one").items() for c in getattr(each, "calls", ())
    ]
    assert call.args == left


@pytest.mark.parametrize("name", ["know", "memory_know"])
@pytest.mark.parametrize("permanently", [False, True])
async def test_the_value_of_a_fact_goes_from_the_call_that_told_it(
    any_voice: ScopedMemory, name: str, permanently: bool
) -> None:
    fact = await any_voice.facts.put("gym.locker", "4711")
    await any_voice.facts.put("bike_lock", "4711")
    chat = any_voice.chat("one")
    for key in ("gym.locker", "bike_lock"):
        await chat.add(
            calling("anthropic", name, {"key": key, "value": "4711"}), format="anthropic"
        )

    done = await any_voice.forget(fact, permanently=permanently)

    calls = [call for each in await chat.items() for call in getattr(each, "calls", ())]
    assert [each.args["value"] for each in calls] == ["(forgotten)", "4711"]
    assert not permanently or (done.erasure is not None and done.erasure.proven)


async def test_what_a_graph_says_goes_from_the_calls_that_made_it(any_voice: ScopedMemory) -> None:
    graph = Graph(any_voice)
    person = {"name": "Quillfeather", "entityType": "person", "observations": ["is kind"]}
    relation = {"from": "Alice", "relationType": "sees", "to": "Quillfeather"}
    more = {"entityName": "Quillfeather", "contents": ["works on Mondays"]}
    await graph.create_entities([Entity(**person)])
    await graph.create_entities([Entity(name="Alice", entityType="person", observations=[])])
    await graph.create_relations([Relation(**relation)])
    await graph.add_observations([("Quillfeather", ["works on Mondays"])])
    chat = any_voice.chat("one")
    await chat.add(calling("openai", "create_entities", {"entities": [person]}))
    await chat.add(calling("openai", "create_relations", {"relations": [relation]}))
    await chat.add(calling("openai", "add_observations", {"observations": [more]}))

    await any_voice.forget(query="Quillfeather", memory_type="item", permanently=True)

    said = str([call for each in await chat.items() for call in getattr(each, "calls", ())])
    assert not [each for each in ("kind", "Mondays", "'to': 'Quill") if each in said]
    assert said.count("(forgotten)") == 3


def hosted(format: str) -> list[dict[str, Any]]:
    """Return a call of our server that the provider itself made."""
    arguments = {"texts": [SECRET]}
    if format == "openai-responses":
        call = {"type": "mcp_call", "id": "m", "server_label": "notes", "name": "memory_add"}
        return [{**call, "arguments": json.dumps(arguments), "output": "remembered as 1"}]
    use = {"type": "mcp_tool_use", "id": "m", "server_name": "notes", "name": "memory_add"}
    said = [{"type": "text", "text": "remembered as 1"}]
    answer = {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": False, "content": said}
    return [{"role": "assistant", "content": [{**use, "input": arguments}, answer]}]


@pytest.mark.parametrize("format", ["openai-responses", "anthropic"])
async def test_it_goes_from_calls_that_a_provider_made(
    any_voice: ScopedMemory, format: Any
) -> None:
    item = await any_voice.remember(SECRET)
    chat = any_voice.chat("one")
    await chat.add("Note it.")
    await chat.add(hosted(format), format=format)

    await forget(any_voice, item.id, "permanently")

    after = json.dumps((await chat.messages(format=format)).messages)
    assert json.dumps(hosted(format)).replace(SECRET, "(forgotten)")[1:-1] in after


async def test_calls_of_other_tools_and_other_texts_stay(any_voice: ScopedMemory) -> None:
    item = await any_voice.remember(SECRET)
    chat = any_voice.chat("one")
    turns = [
        *calling("openai", "crm__update", {"text": SECRET}),
        *calling("openai", "remember", {"text": OTHER}),
        *calling("openai", "remember", {}),
    ]
    await chat.add(turns)

    await any_voice.forget(item)

    calls = [call for each in await chat.items() for call in getattr(each, "calls", ())]
    assert [call.args.get("text") for call in calls] == [SECRET, OTHER, None]


async def test_erased_words_are_in_no_byte_and_no_version_of_a_call(
    tmp_path: Path, open_memory: Open
) -> None:
    memory = open_memory(f"sqlite:///{tmp_path}/m.db")
    alice, bob = memory.scope(user_id="alice"), memory.scope(user_id="bob")
    item = await alice.remember(SECRET)
    for each in (alice, bob):
        await each.chat("one").add(calling("openai", "remember", {"text": SECRET}))

    done = await alice.forget(item, permanently=True)

    calls = [each for each in await alice.chat("one").items() if each.memory_type == "ai"]
    assert done.erasure is not None
    assert done.erasure.proven
    assert "Quillfeather" not in str([await alice.history(each.id) for each in calls])
    assert "Quillfeather" in str([repr(each.__dict__) for each in await bob.chat("one").items()])
    await bob.forget(everything=True, permanently=True)
    await memory.close()
    assert not [each for each in tmp_path.iterdir() if b"Quillfeather" in each.read_bytes()]


async def test_an_erased_session_is_in_no_call_of_another(
    memory: AgentMemory, alice: ScopedMemory
) -> None:
    await alice.chat("health").add(SECRET)
    await alice.chat("one").add(calling("openai", "remember", {"text": SECRET}))

    done = await memory.erase(alice.scope.user_id, session_id="health")

    assert done.proven
    assert "Quillfeather" not in str((await alice.chat("one").messages(format="openai")).messages)


async def test_an_erasure_says_that_a_call_still_has_what_is_gone(
    any_voice: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_args: object, **_more: object) -> list[Any]:
        return []

    item = await any_voice.remember(SECRET)
    await any_voice.chat("one").add(calling("openai", "remember", {"text": SECRET}))
    monkeypatch.setattr("orbiter.memory.agent._erase.strike_quotations", nothing)

    done = await any_voice.forget(item, permanently=True)

    assert done.erasure is not None
    assert not done.erasure.proven


async def test_what_a_framework_logs_of_a_call_goes_and_stays_json(
    memory: AgentMemory, alice: ScopedMemory
) -> None:
    item = await alice.facts.put("gym.locker", "4711")
    session = OrbiterSession(alice, "one")
    told = json.dumps({"key": "gym.locker", "value": "4711"})
    called: Any = {"type": "function_call", "call_id": "c", "name": "know", "arguments": told}
    done: Any = {"type": "function_call_output", "call_id": "c", "output": "Done."}
    await session.add_items([{"role": "user", "content": "My locker?"}, called, done])

    gone = await alice.forget(item, permanently=True)

    assert gone.erasure is not None
    assert gone.erasure.proven
    (_, after, _) = await session.get_items()
    assert json.loads(str(after["arguments"])) == {"key": "gym.locker", "value": "(forgotten)"}  # type: ignore[typeddict-item]  # it is a call
