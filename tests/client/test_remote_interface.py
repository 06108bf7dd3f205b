"""Every call of a handle is made by its engine: sent where there is no store, or refused."""

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from orbiter.memory.agent import (
    AgentMemory,
    AuditLog,
    Chat,
    Facts,
    FactsView,
    KeyValue,
    PastMemory,
    ScopedMemory,
)
from orbiter.memory.agent.interface import Handle, MemoryEngine, ScopedHandle, operation
from orbiter.memory.client import RemoteMemory
from orbiter.memory.client._remote_memory import RemoteEngine
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.wire import OPERATIONS, Operation


class Recorder(RemoteEngine):
    """Sends nothing, and notes what it would."""

    calls: list[tuple[str, str]]

    async def perform(
        self,
        handle: Handle,
        name: str,
        method: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        inspect.signature(method).bind(handle, *args, **kwargs)
        self.calls.append((handle._address()[0], name))
        return "a name"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> RemoteMemory:
    made = RemoteMemory("http://127.0.0.1:1")
    monkeypatch.setattr(made._engine, "__class__", Recorder)
    monkeypatch.setattr(made._engine, "calls", [], raising=False)
    return made


def handles(memory: AgentMemory) -> Iterator[tuple[str, type, Handle]]:
    alice = memory.scope(user_id="alice")
    past = alice.as_of(datetime.now(UTC))
    yield "memory", AgentMemory, memory
    yield "scope", ScopedMemory, alice
    yield "chat", Chat, alice.chat("c")
    yield "facts", Facts, alice.facts
    yield "past", PastMemory, past
    yield "past_facts", FactsView, past.facts
    yield "audit", AuditLog, memory.audit
    yield "kv", KeyValue, alice.kv


async def test_every_operation_is_a_call_of_its_object(memory: RemoteMemory) -> None:
    objects = {target: handle for target, _, handle in handles(memory)}
    for each in OPERATIONS:
        await getattr(objects[each.target], each.name)(**_needed(each))

    assert memory._engine.calls == [(each.target, each.name) for each in OPERATIONS]  # type: ignore[attr-defined]


def _needed(operation: Operation) -> dict[str, str]:
    return {each.name: "x" for each in operation.params if each.default is not None}


def test_a_handle_on_a_server_looks_like_any_other() -> None:
    remote, local = AgentMemory("http://127.0.0.1:1"), AgentMemory("memory://", embeddings=None)
    pairs = list(zip(handles(remote), handles(local), strict=True))

    assert [type(ours) for (*_, ours), _ in pairs] == [type(theirs) for _, (*_, theirs) in pairs]
    for (target, _, ours), (*_, theirs) in pairs:
        if target not in ("memory", "past", "past_facts", "audit"):  # these show an address, a time
            assert repr(ours) == repr(theirs)


class Careless(ScopedHandle):
    """A handle whose calls were written without a thought of servers."""

    def _address(self) -> tuple[str, dict[str, object]]:
        return "scope", {}

    @operation("peek")
    async def peek(self) -> int:
        """Look at the store, as an operation that no server has."""
        return await (await self._store()).count()

    async def look(self) -> int:
        """Look at the store, as no operation at all."""
        return await (await self._store()).count()

    async def walk(self) -> Any:
        """Look at the store step by step."""
        yield await (await self._store()).count()

    @property
    def counter(self) -> object:
        """Look at what stands beside the store."""
        return self._chats.count_tokens


async def test_what_nobody_made_a_call_of_refuses_without_a_store() -> None:
    handle = Careless(AgentMemory("http://127.0.0.1:1").scope(user_id="alice")._session)

    with pytest.raises(UnsupportedError, match="`peek` needs the store itself"):
        await handle.peek()
    with pytest.raises(UnsupportedError, match="needs the store itself"):
        await handle.look()
    with pytest.raises(UnsupportedError, match="needs the store itself"):
        await anext(handle.walk())
    with pytest.raises(UnsupportedError, match="needs the store itself"):
        _ = handle.counter


def test_an_engine_that_lacks_something_cannot_be_made() -> None:
    class Half(MemoryEngine):
        """Has an address, and nothing else."""

        url = "nowhere://"

    with pytest.raises(TypeError, match="perform"):
        Half()  # type: ignore[abstract]
