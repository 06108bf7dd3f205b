from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Open
from tests.transfer._import import assert_legal, everything, lines, places, said, take

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import AIMemory, ToolMemory


@pytest.fixture
def memory(tmp_path: Path, open_memory: Open) -> AgentMemory:
    return open_memory(f"sqlite:///{tmp_path}/m.db")


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


def _call(id: str, name: str) -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}


async def test_a_line_of_a_training_file_is_a_conversation(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    first = [
        said("system", "Be kind."),
        said("user", "Weather in Rome and Oslo?"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [_call("a", "now"), _call("b", "now")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sun"},
        {"role": "tool", "tool_call_id": "b", "content": "snow"},
        {"role": "assistant", "content": "Sun and snow.", "weight": 0},
    ]
    second = [said("developer", "Be brief."), said("user", "Hi"), said("assistant", "Hi.")]
    path = lines(tmp_path / "t.jsonl", [{"messages": first, "tools": []}, {"messages": second}])

    report = await take(memory, alice, path)

    assert (report.stored, report.problems) == (9, ())
    assert len(await alice.chats()) == 2
    await assert_legal(alice)
    results = [item for item in await everything(alice) if isinstance(item, ToolMemory)]
    assert [(item.tool_call_id, item.tool_name) for item in results] == [("a", "now"), ("b", "now")]
    assert all("weight" not in item.native.get("openai", {}) for item in await everything(alice))
    assert (await take(memory, alice, path)).stored == 0


async def test_messages_keep_the_order_of_the_file_and_their_own_times(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    times = [100, 98, 98, 99]  # a clock that was set back in the middle of a tool call
    messages: list[dict[str, Any]] = [
        said("user", "Weather?"),
        {"role": "assistant", "content": None, "tool_calls": [_call("a", "now")]},
        {"role": "tool", "tool_call_id": "a", "content": "sun"},
        said("assistant", "Sun."),
    ]
    dated = [{**each, "created_at": at} for each, at in zip(messages, times, strict=True)]

    await take(memory, alice, lines(tmp_path / "t.jsonl", [{"id": "c", "messages": dated}]))

    items = await alice.chat("openai:c").items()
    assert [item.content for item in items] == ["Weather?", "", "sun", "Sun."]
    assert [item.created_at.timestamp() for item in items] == times
    await assert_legal(alice)


async def test_the_same_conversation_is_the_same_wherever_it_stands(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    one = {"messages": [said("user", "one")]}
    await take(memory, alice, lines(tmp_path / "a.jsonl", [one]))

    two = {"messages": [said("user", "two")]}
    report = await take(memory, alice, lines(tmp_path / "b.jsonl", [two, one]))

    assert (report.stored, report.unchanged) == (1, 1)


async def test_a_conversation_with_an_id_grows(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    line = {"conversation_id": "c1", "title": "Tea", "messages": [said("user", "one")]}
    await take(memory, alice, lines(tmp_path / "a.jsonl", [line]))
    line["messages"] = [said("user", "one"), said("assistant", "two")]

    report = await take(memory, alice, lines(tmp_path / "a.jsonl", [line]))

    assert (report.stored, report.unchanged) == (1, 1)
    items = await alice.chat("openai:c1").items()
    assert [item.content for item in items] == ["one", "two"]
    assert items[0].metadata.extra["title"] == "Tea"


async def test_messages_in_lines_are_one_conversation_also_two_on_a_line(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    dated = {"role": "assistant", "content": "c", "created_at": "2024-05-01T10:00:00Z"}
    path = lines(
        tmp_path / "chat.jsonl",
        [
            {**said("user", "a"), "timestamp": 1_700_000_000},
            b"",
            dated,
            b'{"role":"user","content":"d"} {"role":"assistant","content":"e"}',
        ],
    )

    report = await take(memory, alice, path)

    assert report.stored == 4
    (chat,) = await alice.chats()
    assert (chat.metadata.session_id or "").startswith("openai:chat-")
    items = await everything(alice)
    assert [item.content for item in items] == ["a", "c", "d", "e"]
    assert items[1].created_at == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert (await take(memory, alice, path)).unchanged == 4


async def test_parts_are_text_and_the_rest_is_kept(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/tea.png"}},
    ]
    path = lines(tmp_path / "a.jsonl", [{"messages": [{"role": "user", "content": parts}]}])

    await take(memory, alice, path)

    (item,) = await everything(alice)
    assert item.content == "What is this?"
    sent = await alice.chat(item.metadata.session_id or "").messages()
    assert sent.messages == [{"role": "user", "content": parts}]


async def test_functions_of_old_files_are_tools(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    called = {"name": "now", "arguments": '{"at":"Rome"}'}
    messages = [
        said("user", "Weather?"),
        {"role": "assistant", "content": None, "function_call": called},
        {"role": "function", "name": "now", "content": "sun"},
        said("assistant", "Sun."),
    ]

    await take(memory, alice, lines(tmp_path / "a.jsonl", [{"messages": messages}]))

    _, call, result, _ = await everything(alice)
    assert isinstance(call, AIMemory)
    assert isinstance(result, ToolMemory)
    assert call.calls[0].id == result.tool_call_id
    assert (result.tool_name, call.calls[0].args) == ("now", {"at": "Rome"})
    await assert_legal(alice)
    (chat,) = await alice.chats()
    assert len((await alice.chat(chat.metadata.session_id or "").messages()).messages) == 4


async def test_messages_that_are_none_are_told_by_their_lines(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        [
            {"messages": [said("user", "good"), said("pirate", "arr"), "text"]},
            {"what": 1},
            {"messages": "none"},
            {"messages": [{"role": "user", "content": 5}]},
            7,
        ],
    )

    report = await take(memory, alice, path)

    assert [item.content for item in await everything(alice)] == ["good"]
    assert places(report) == [
        "line 1, message 2",
        "line 1, message 3",
        "line 2",
        "line 3",
        "line 4, message 1",
        "line 5",
    ]
    assert "unknown role 'pirate'" in report.problems[0].why


async def test_a_result_of_no_name_is_read(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.jsonl", [said("user", "Hi"), said("function", "4")])

    report = await take(memory, alice, path)

    assert (report.stored, report.problems) == (2, ())


@pytest.mark.parametrize("is_loose", [False, True], ids=["a line each", "a message a line"])
async def test_calls_and_results_without_ids_find_each_other(
    is_loose: bool, memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    call = {"function": {"name": "now", "arguments": {"in": "Rome"}}}
    step = [
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "tool_name": "now", "content": "sun"},
        {"role": "tool", "content": "snow"},
    ]
    messages = [said("user", "Weather?"), *step, *step, said("assistant", "Mixed.")]
    path = lines(tmp_path / "t.jsonl", messages if is_loose else [{"messages": messages}])

    report = await take(memory, alice, path)

    assert (report.stored, report.problems) == (8, ())
    await assert_legal(alice)
    found = await everything(alice)
    calls = [call["id"] for item in found if isinstance(item, AIMemory) for call in item.tool_calls]
    assert len(set(calls)) == 4
    results = [(i.tool_call_id, i.tool_name) for i in found if isinstance(i, ToolMemory)]
    assert results == [(id, "now") for id in calls]
    assert (await take(memory, alice, path)).unchanged == 8
