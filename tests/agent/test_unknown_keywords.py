"""A misspelt keyword of any public method is answered with the nearest one that it takes."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from tests.rows import each_row

from orbiter.memory import AgentMemory, agent, sync, transfer
from orbiter.memory.integrations.clients import wrap

HANDLES = (
    agent.AgentMemory,
    agent.ScopedMemory,
    agent.Chat,
    agent.Facts,
    agent.FactsView,
    agent.PastMemory,
    agent.AuditLog,
    agent.KeyValue,
)
FUNCTIONS = (transfer.export_file, transfer.import_file, transfer.migrate, wrap)
SHORTEST = 4
"""Letters of a name from which one that is missing leaves enough to tell it by."""


def named(function: Any) -> list[str]:
    """Return what a call takes by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind in kinds and each.name != "self"]


def misspelt(name: str) -> str:
    return name[:-2] + name[-1]


def methods() -> Iterator[Any]:
    for handle in HANDLES:
        for name in dir(handle):
            method = inspect.getattr_static(handle, name)
            if name.startswith("_") or not inspect.isfunction(method):
                continue
            known = [each for each in named(method) if len(each) >= SHORTEST]
            if known:
                yield pytest.param(handle, name, known, id=f"{handle.__name__}.{name}")


def handle_of(memory: Any, kind: type) -> Any:
    alice = memory.scope("alice")
    made = {
        "AgentMemory": lambda: memory,
        "ScopedMemory": lambda: alice,
        "Chat": lambda: alice.chat("c"),
        "Facts": lambda: alice.facts,
        "FactsView": lambda: alice.as_of("2026-01-01").facts,
        "PastMemory": lambda: alice.as_of("2026-01-01"),
        "AuditLog": lambda: memory.audit,
        "KeyValue": lambda: alice.kv,
    }[kind.__name__]()
    assert isinstance(sync.async_form(made), kind)
    return made


async def refusal(function: Any, name: str, wrong: str) -> str:
    """Return why a call is refused that has *wrong*, and all else that it must have."""
    needed = {
        each.name: "x"
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.name in named(function) and each.name != name
    }
    try:
        made = function(**needed, **{wrong: "x"})
        if inspect.isawaitable(made):
            await made
    except TypeError as exc:
        return str(exc)
    raise AssertionError(f"{function} takes {wrong}")


@each_row(("kind", "method", "known"), list(methods()))
async def test_every_method_names_the_nearest_keyword(
    kind: type, method: str, known: list[str]
) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        function = getattr(handle_of(memory, kind), method)
        for name in known:
            told = await refusal(function, name, misspelt(name))
            assert f"argument `{misspelt(name)}`; did you mean `{name}`?" in told


@each_row(("kind", "method", "known"), list(methods()))
def test_every_blocking_method_does_so(kind: type, method: str, known: list[str]) -> None:
    with sync.AgentMemory("memory://", embeddings=None) as memory:
        function = getattr(handle_of(memory, kind), method)
        for name in known[-1:]:
            with pytest.raises(TypeError, match=f"did you mean `{name}`"):
                function(**{misspelt(name): "x"})


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
async def test_functions_over_handles_name_it_too(function: Any) -> None:
    for name in named(function):
        if len(name) >= SHORTEST:
            told = await refusal(function, name, misspelt(name))
            assert f"`{function.__name__}` got an unexpected keyword" in told
            assert told.endswith(f"did you mean `{name}`?")


class Mine(AgentMemory):
    def greet(self, name: str, **more: Any) -> str:
        return f"{name} {more}"

    def part(self, *, evening: bool = False) -> str:
        return f"bye {evening}"


def test_a_subclass_of_a_program_keeps_what_its_methods_take() -> None:
    mine: Any = Mine("memory://", embeddings=None)

    assert mine.greet(name="Ann", mood="good") == "Ann {'mood': 'good'}"
    assert mine.part(evening=True) == "bye True"
    with pytest.raises(TypeError, match="`evning`; did you mean `evening`"):
        mine.part(evning=True)
