"""What an `AgentMemory` and its handles are made of: an engine, a scope, and calls.

There is one class for each handle, whether its store is in this process or behind a server. A call
of it is an `operation`, which the engine carries out: `LocalEngine` runs the method as it is
written, the client's `RemoteEngine` sends its name and arguments. What is no operation and needs
the store gets it from the engine, and one without a store refuses.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache, wraps
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    TypeVar,
)

from orbiter.memory.agent.endpoint import Endpoint
from orbiter.memory.agent.hints import unknown_attribute
from orbiter.memory.agent.keywords import (
    ArgumentReader,
    ScopeId,
    as_name,
    check_keywords_of,
)
from orbiter.memory.agent.telemetry import traced
from orbiter.memory.errors import QueryError
from orbiter.memory.model.copying import copy_metadata, scope_of_ids
from orbiter.memory.model.items import DEFAULT_USER, RESERVED, MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, require_text
from orbiter.memory.tasks.read_from import READ_SOURCES, ReadFrom
from orbiter.memory.text.redaction import Redaction

if TYPE_CHECKING:
    from orbiter.memory.agent.chat_service import Chats
    from orbiter.memory.agent.events import EventStream
    from orbiter.memory.agent.runtime import Core, Store

__all__ = [
    "DEFAULT_USER",
    "Handle",
    "MemoryEngine",
    "ScopeSession",
    "ScopedHandle",
    "check_actor",
    "check_source",
    "check_user_name",
    "endpoints_of",
    "operation",
    "scope_of",
    "session_of",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_HandleT = TypeVar("_HandleT", bound="Handle")


class MemoryEngine(ABC):
    """Carries out the calls of an `AgentMemory` and of its handles."""

    held: Mapping[str, str] = MappingProxyType({})
    """The scope to which the key of a server holds every call."""
    leaves_scope_to_key = False
    """Whether calls leave out what the key names; else a server refuses another name there."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where memories are kept, without a password."""

    @property
    @abstractmethod
    def chats(self) -> "Chats":
        """The opened store, and what conversations share; `UnsupportedError` on a server."""

    @property
    def core(self) -> "Core":
        """The opened store, and what is closed with it; `UnsupportedError` on a server."""
        return self.chats.core

    def core_for(self, name: str) -> "Core":
        """Return `core` for what users know as *name*, which an `UnsupportedError` says."""
        del name
        return self.core

    @abstractmethod
    async def init(self) -> None:
        """Open it. May be repeated."""

    @abstractmethod
    async def close(self) -> None:
        """Close it. May be repeated."""

    @abstractmethod
    def events(self, session: "ScopeSession") -> "EventStream":
        """Return what happens in a scope from now on."""

    def redacted(self, items: Sequence[MemoryItem], *, are_files: bool = False) -> list[MemoryItem]:
        """Return *items*, changed to what is stored of them, without those that are not.

        With *are_files*, they are of a transcript. What a server replaces, only the server knows.
        """
        return (Redaction().for_files() if are_files else Redaction()).apply(items)

    @abstractmethod
    def perform(
        self,
        handle: "Handle",
        name: str,
        method: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Coroutine[Any, Any, Any]:
        """Carry out the call *name* of *handle*; *method* does so where the store is."""


class ScopeSession(NamedTuple):
    """What every call of a handle needs: the memory behind it, whose memories, and who acts."""

    engine: MemoryEngine
    scope: MemoryMetadata
    by: str | None = None
    read_from: ReadFrom = "primary"
    name: str | None = None
    """What the user is called, where their id does not tell."""

    @property
    def core(self) -> "Core":
        """The memory's store, and all that belongs to it."""
        return self.engine.core

    @property
    def chats(self) -> "Chats":
        """What the conversations of the memory share."""
        return self.engine.chats

    @property
    def filter(self) -> MemoryMetadata | None:
        """The scope as stores take it: one that names nobody filters nothing.

        What the scope has beside names signs what is written, and filters nothing either.
        """
        if all(getattr(self.scope, name) is None for name in SCOPE_FIELDS):
            return None
        return self.scope.model_copy(update={"extra": {}}) if self.scope.extra else self.scope

    async def store(self) -> "Store":
        """Return the store, opened."""
        return await self.core.opened(self.scope)


class Handle(ABC):
    """An object whose calls are operations of an engine."""

    _engine: MemoryEngine

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_keywords_of(cls)

    @abstractmethod
    def _address(self) -> tuple[str, dict[str, object]]:
        """Return the kind of object this is on the wire, and what names it beside its scope."""

    @property
    def _core(self) -> "Core":
        return self._engine.core

    @property
    def _chats(self) -> "Chats":
        return self._engine.chats


class ScopedHandle(Handle):
    """A handle that is bound to a scope, and to whoever acts through it."""

    def __init__(self, session: ScopeSession) -> None:
        self._session = session
        self._engine = session.engine
        self._scope = session.scope
        self._by = session.by
        # A scope that names nobody is only made by `unscoped()`, and filters nothing.
        self._filter = session.filter

    @property
    def scope(self) -> MemoryMetadata:
        """Whose memories these are."""
        return self._scope

    async def _store(self) -> "Store":
        return await self._core.opened(self._scope)

    if not TYPE_CHECKING:  # else every misspelt name would have the type `Any`

        def __getattr__(self, name: str) -> object:
            raise unknown_attribute(self, name)


class operation(Endpoint):  # noqa: N801 - a decorator
    """Have the engine of its handle carry out the decorated method; say how a server offers it.

    *name* is that of its span; behind the last dot it is what the call is named on the wire.
    """

    def __call__(
        self, method: Callable[Concatenate[_HandleT, _P], Coroutine[Any, Any, _T]]
    ) -> Callable[Concatenate[_HandleT, _P], Coroutine[Any, Any, _T]]:
        """Return the call."""
        call = self.name.rpartition(".")[2]
        readers: list[ArgumentReader] = []  # made when it is needed: importing is to cost nothing

        @traced(self.name)
        @wraps(method)
        def perform(
            handle: _HandleT, /, *args: _P.args, **kwargs: _P.kwargs
        ) -> Coroutine[Any, Any, _T]:
            if not readers:
                readers.append(ArgumentReader(method, method.__name__))
            positional, keywords = readers[0].read(args, kwargs)
            return handle._engine.perform(handle, call, method, positional, keywords)  # noqa: SLF001 - its own module

        perform.endpoint = self  # type: ignore[attr-defined]
        return perform


def endpoints_of(handle: type) -> dict[str, tuple[Endpoint, Callable[..., Any]]]:
    """Return the calls of a class that a server offers, by what they are named on the wire."""
    found: dict[str, tuple[Endpoint, Callable[..., Any]]] = {}
    for base in handle.__mro__:
        for method in vars(base).values():
            endpoint = getattr(method, "endpoint", None)
            if isinstance(endpoint, Endpoint) and endpoint.request:
                found.setdefault(endpoint.name.rpartition(".")[2], (endpoint, method))
    return found


def session_of(handle: ScopedHandle) -> ScopeSession:
    """Return what a handle is made of, for the modules that stand above it."""
    return handle._session  # noqa: SLF001 - its own module


def scope_of(
    user_id: ScopeId | None,
    session_id: ScopeId | None,
    task_id: ScopeId | None,
    agent_id: ScopeId | None,
) -> MemoryMetadata:
    """Return the scope of these ids; `QueryError` if there is none, or one is not valid."""
    ids: list[str | None] = []
    for name, value in zip(SCOPE_FIELDS, (user_id, session_id, task_id, agent_id), strict=True):
        ids.append(None if value is None else require_text(name, as_name(value)))
    if not any(ids):
        names = "`, `".join(SCOPE_FIELDS)
        raise QueryError(
            f"a scope needs at least one of `{names}`; use `memory.unscoped()` for everyone's "
            "memories"
        )
    return copy_metadata(_checked_scope(*ids))


@lru_cache(maxsize=1024)
def _checked_scope(*ids: str | None) -> MemoryMetadata:
    """Return the scope of these ids. A server makes the same handles for every request."""
    return scope_of_ids(dict(zip(SCOPE_FIELDS, ids, strict=True)))


def check_actor(by: str | None) -> str | None:
    """Return who acts, or raise `QueryError` for a name that the library signs with itself."""
    if by is not None and require_text("by", by).startswith(RESERVED):
        raise QueryError(f"`by` must not begin with `{RESERVED}`, which is reserved: `{by}`")
    return by


def check_user_name(name: str | None) -> str | None:
    """Return what a user is called, or raise `QueryError` for what is no name."""
    if name is not None and not require_text("name", name).strip():
        raise QueryError("`name` is empty; give the name of the user, or leave `name` out")
    return name


def check_source(read_from: str | None) -> ReadFrom:
    """Return where reads may be answered, or raise `QueryError` for what is no such place."""
    if read_from is None:
        return "primary"
    for source in READ_SOURCES:
        if read_from == source:
            return source
    raise QueryError(f"`read_from` must be `primary` or `replica`, not {read_from!r}")
