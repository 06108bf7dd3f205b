"""Seed 002, line by line: `synaptic.core.base.memory`."""

import inspect
from datetime import UTC, datetime

import pytest
from tests.rows import each_row
from tests.seeds._examples import printed_by

from orbiter.memory import MemoryError
from orbiter.memory.conversation import history
from synaptic.core.base.memory import History, Memory, ResponseMem, ToolCall, UserMem

EXAMPLE = """\
from synaptic.core.base.memory import Memory, ResponseMem, History

h = History(size=3)
h.add(Memory("hi", created="2025-01-01T00:00:00Z", role="user"))
h.add(ResponseMem("hey", created="2025-01-01T00:00:01Z", tool_calls=[]))
print(h.MemoryList)
"""


def test_the_example_prints_the_seeds_reprs() -> None:
    assert printed_by(EXAMPLE) == [
        (
            "[<Memory role=user message='hi' created=2025-01-01T00:00:00Z>, "
            "<Memory role=assistant message='hey' created=2025-01-01T00:00:01Z "
            "tool_calls=[] tool_results=[]>]"
        )
    ]


def test_the_names_are_those_of_the_history_module() -> None:
    for name in ("History", "Memory", "ResponseMem", "ToolCall", "UserMem"):
        assert globals()[name] is getattr(history, name)


@pytest.mark.parametrize(
    ("kind", "names", "defaults"),
    [
        (Memory, ["message", "created", "role"], {}),
        (
            ResponseMem,
            ["message", "created", "tool_calls", "tool_results", "role"],
            {"tool_results": None, "role": "assistant"},
        ),
        (UserMem, ["message", "created", "role"], {"role": "user"}),
        (History, ["memoryList", "size"], {"memoryList": None, "size": 10}),
    ],
)
def test_a_constructor_has_the_seeds_parameters(
    kind: type, names: list[str], defaults: dict[str, object]
) -> None:
    # The seed's notes ask for `None` where its signature shows a shared `[]`.
    parameters = inspect.signature(kind).parameters

    assert list(parameters) == names
    assert {
        n: p.default for n, p in parameters.items() if p.default is not inspect.Parameter.empty
    } == defaults
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def test_a_memory_has_its_fields_and_repr() -> None:
    created = datetime(2025, 1, 1, tzinfo=UTC)
    memory = Memory("it's", created, "system")

    assert (memory.message, memory.created, memory.role) == ("it's", created, "system")
    assert repr(memory) == f'<Memory role=system message="it\'s" created={created}>'


def test_a_response_has_its_fields_and_repr() -> None:
    call = ToolCall("add", {"x": 1})
    response = ResponseMem("done", 1, [call], [{"name": "add", "result": 2}])

    assert isinstance(response, Memory)
    assert response.role == "assistant"
    assert response.tool_calls == [call]
    assert response.tool_results == [{"name": "add", "result": 2}]
    assert repr(response) == (
        f"<Memory role=assistant message='done' created=1 tool_calls={[call]} "
        "tool_results=[{'name': 'add', 'result': 2}]>"
    )


def test_a_user_entry_is_a_memory_of_role_user() -> None:
    entry = UserMem("hi", 0)

    assert isinstance(entry, Memory)
    assert repr(entry) == "<Memory role=user message='hi' created=0>"


def test_tool_calls_are_listed_and_found_by_name() -> None:
    first, second = ToolCall("add", {"x": 1}), ToolCall("add", {"x": 2})
    response = ResponseMem("", 0, [first, second, ToolCall("mul")])

    assert response.list_tool_calls() == ["add", "add", "mul"]
    assert response.get_tool_call("add") is first


@pytest.mark.parametrize(
    ("calls", "told"), [([], "no tool"), ([ToolCall("add"), ToolCall("mul")], "`add`, `mul`")]
)
def test_an_absent_tool_call_raises_a_clear_lookup_error(calls: list[ToolCall], told: str) -> None:
    with pytest.raises(LookupError, match=f"`sub`.*{told}") as caught:
        ResponseMem("", 0, calls).get_tool_call("sub")

    assert isinstance(caught.value, MemoryError)


def test_no_default_is_shared() -> None:
    ResponseMem("", 0, []).tool_results.append("x")
    History().add(UserMem("hi", 0))

    assert ResponseMem("", 0, []).tool_results == []
    assert History().MemoryList == []


def test_a_given_list_is_not_the_historys_own() -> None:
    given: list[Memory] = [UserMem(str(number), number) for number in range(3)]

    history = History(given, size=2)
    history.add(UserMem("3", 3))

    assert [entry.message for entry in given] == ["0", "1", "2"]
    assert [entry.message for entry in history.MemoryList] == ["2", "3"]


@each_row("size", [0, 1, 3, 10, 25])
def test_size_is_enforced_by_constructor_window_and_add(size: int) -> None:
    entries: list[Memory] = [UserMem(str(number), number) for number in range(20)]
    newest = [entry.message for entry in entries][max(0, 20 - size) :]

    made = History(entries, size=size)
    windowed = History(entries, size=20)
    grown = History(size=size)
    for entry in entries:
        grown.add(entry)

    assert [entry.message for entry in made.MemoryList] == newest
    assert [entry.message for entry in windowed.window(size)] == newest
    assert windowed.MemoryList == windowed.window(size)
    assert windowed.size == size
    assert [entry.message for entry in grown.MemoryList] == newest


@pytest.mark.parametrize("size", [-1, 1.5, True, "3"])
def test_a_senseless_size_is_refused_and_nothing_lost(size: int) -> None:
    history = History([UserMem("hi", 0)])

    with pytest.raises(ValueError, match="size"):
        history.window(size)
    with pytest.raises(ValueError, match="size"):
        History(size=size)

    assert (len(history.MemoryList), history.size) == (1, 10)


def test_the_default_window_is_ten() -> None:
    history = History()
    for number in range(12):
        history.add(UserMem(str(number), number))

    assert [entry.message for entry in history.MemoryList] == [str(n) for n in range(2, 12)]
