"""Seed 000, line by line: `orbiter.memory.short_term`."""

import inspect

import pytest
from tests.seeds._examples import printed_by

import orbiter.memory
from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryError,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    MemoryStore,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.short_term import ShortTermMemory

EXAMPLE = """\
import asyncio
from orbiter.memory import (
    ShortTermMemory, HumanMemory, AIMemory,
    SystemMemory, MemoryMetadata,
)

async def main():
    memory = ShortTermMemory(scope="session", max_rounds=5)
    meta = MemoryMetadata(user_id="u1", session_id="s1")

    # Add conversation
    await memory.add(SystemMemory(content="You are helpful.", metadata=meta))
    await memory.add(HumanMemory(content="Hello!", metadata=meta))
    await memory.add(AIMemory(content="Hi there!", metadata=meta))
    await memory.add(HumanMemory(content="What is Python?", metadata=meta))
    await memory.add(AIMemory(content="Python is a language.", metadata=meta))

    # Search with scope filtering
    results = await memory.search(metadata=meta)
    print(len(results))  # 5

    # Keyword search
    results = await memory.search(query="Python", metadata=meta)
    print(len(results))  # 2 (question + answer about Python)

    # Clear by session
    removed = await memory.clear(metadata=meta)
    print(removed)  # 5

asyncio.run(main())
"""


def test_the_example_prints_what_it_says() -> None:
    assert printed_by(EXAMPLE) == ["5", "2", "5"]


def test_the_package_exports_the_same_class() -> None:
    assert orbiter.memory.ShortTermMemory is ShortTermMemory


def test_the_constructor_has_the_seeds_parameters() -> None:
    parameters = inspect.signature(ShortTermMemory).parameters

    assert {name: p.default for name, p in parameters.items()} == {"scope": "task", "max_rounds": 0}
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {name: p.annotation for name, p in parameters.items()} == {
        "scope": str,
        "max_rounds": int,
    }


@pytest.mark.parametrize(
    ("method", "parameters", "returns"),
    [
        ("add", "(self, item: MemoryItem)", None),
        ("get", "(self, item_id: str)", MemoryItem | None),
        (
            "search",
            (
                "(self, *, query: str = '', metadata: MemoryMetadata | None = None, "
                "memory_type: str | None = None, status: MemoryStatus | None = None, "
                "limit: int = 10)"
            ),
            list[MemoryItem],
        ),
        ("clear", "(self, *, metadata: MemoryMetadata | None = None)", int),
    ],
)
def test_a_method_has_the_seeds_signature(method: str, parameters: str, returns: object) -> None:
    function = getattr(ShortTermMemory, method)
    signature = inspect.signature(function)
    shown = str(signature.replace(return_annotation=inspect.Signature.empty))

    assert inspect.iscoroutinefunction(function)
    assert shown.replace("orbiter.memory.model.items.", "") == parameters
    assert signature.return_annotation == returns


@pytest.mark.parametrize("scope", ["", "User", "agent", "tasks"])
def test_an_unknown_scope_raises_a_memory_error(scope: str) -> None:
    with pytest.raises(MemoryError, match=f"`{scope}`.*`user`, `session` or `task`"):
        ShortTermMemory(scope=scope)


def test_the_attributes_are_those_given() -> None:
    memory = ShortTermMemory(scope="user", max_rounds=3)

    assert (memory.scope, memory.max_rounds) == ("user", 3)


def test_it_is_a_memory_store() -> None:
    assert isinstance(ShortTermMemory(), MemoryStore)


async def test_length_and_repr_tell_the_number_of_items() -> None:
    memory = ShortTermMemory(scope="task", max_rounds=10)
    for number in range(5):
        await memory.add(HumanMemory(content=str(number)))

    assert len(memory) == 5
    assert repr(memory) == "ShortTermMemory(scope='task', max_rounds=10, items=5)"


async def test_get_returns_the_item_or_none() -> None:
    memory = ShortTermMemory()
    item = HumanMemory(content="hi")
    await memory.add(item)

    assert await memory.get(item.id) == item
    assert await memory.get("unknown") is None


@pytest.mark.parametrize(
    ("scope", "fields"),
    [
        ("user", {"user_id", "agent_id"}),
        ("session", {"user_id", "session_id", "agent_id"}),
        ("task", {"user_id", "session_id", "task_id", "agent_id"}),
    ],
)
async def test_a_scope_matches_on_its_fields_only(scope: str, fields: set[str]) -> None:
    everything = {"user_id": "u", "session_id": "s", "task_id": "t", "agent_id": "a"}
    memory = ShortTermMemory(scope=scope)
    await memory.add(HumanMemory(content="hi", metadata=MemoryMetadata(**everything)))

    matters = {
        name
        for name in everything
        if not await memory.search(metadata=MemoryMetadata(**{**everything, name: "other"}))
    }

    assert matters == fields


async def test_a_scope_decides_what_clear_removes() -> None:
    memory = ShortTermMemory(scope="user")
    for session in ("s1", "s2"):
        who = MemoryMetadata(user_id="u", session_id=session)
        await memory.add(HumanMemory(content="hi", metadata=who))

    assert await memory.clear(metadata=MemoryMetadata(user_id="u", session_id="s1")) == 2


async def test_a_filter_outside_the_scope_does_not_clear_everyone() -> None:
    memory = ShortTermMemory(scope="user")
    await memory.add(HumanMemory(content="hi", metadata=MemoryMetadata(user_id="u")))

    with pytest.raises(MemoryError, match="`user_id`, `agent_id`"):
        await memory.clear(metadata=MemoryMetadata(session_id="s1"))

    assert len(memory) == 1


async def test_the_order_is_filters_keyword_window_integrity_limit() -> None:
    memory = ShortTermMemory(max_rounds=1)
    for item in (
        HumanMemory(content="apple one"),
        AIMemory(content="apple two"),
        HumanMemory(content="pear"),
        AIMemory(content="apple three"),
    ):
        await memory.add(item)

    # The keyword goes first: the last round among what matches starts at "apple one".
    found = await memory.search(query="APPLE")

    assert [item.content for item in found] == ["apple one", "apple two", "apple three"]
    assert [i.content for i in await memory.search()] == ["pear", "apple three"]
    assert [i.content for i in await memory.search(query="apple", limit=1)] == ["apple three"]
    assert await memory.search(query="apple", status=MemoryStatus.DRAFT) == []


async def test_max_rounds_keeps_the_last_rounds_and_every_system_message() -> None:
    memory = ShortTermMemory(max_rounds=2)
    for item in (
        SystemMemory(content="rules"),
        HumanMemory(content="q1"),
        SystemMemory(content="more rules"),
        AIMemory(content="a1"),
        HumanMemory(content="q2"),
        AIMemory(content="a2"),
        HumanMemory(content="q3"),
    ):
        await memory.add(item)

    found = await memory.search()

    assert [item.content for item in found] == ["rules", "more rules", "q2", "a2", "q3"]
    assert len(memory) == 7  # a window limits what is read, never what is kept


async def test_dangling_calls_and_results_are_removed() -> None:
    memory = ShortTermMemory()
    for item in (
        ToolMemory(content="whose?", tool_call_id="x"),
        HumanMemory(content="weather?"),
        AIMemory(content="", tool_calls=[{"id": "c1", "name": "weather", "arguments": {}}]),
        ToolMemory(content="sunny", tool_call_id="c1"),
        AIMemory(content="It is sunny."),
        AIMemory(content="wait", tool_calls=[{"id": "c2", "name": "weather", "arguments": {}}]),
    ):
        await memory.add(item)

    found = await memory.search()

    assert [item.content for item in found] == ["weather?", "", "sunny", "It is sunny."]
