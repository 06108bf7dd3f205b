"""`RemoteEngine`: the engine of an `AgentMemory` whose store is behind a server."""

import inspect
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl

from orbiter.memory.agent import AgentMemory, EventStream
from orbiter.memory.agent.chat_service import CLIENT_SETTINGS, MemorySettings
from orbiter.memory.agent.interface import (
    Handle,
    MemoryEngine,
    ScopedHandle,
    ScopeSession,
    session_of,
)
from orbiter.memory.agent.telemetry import traced
from orbiter.memory.backends.registry import default_url
from orbiter.memory.client._remote_calls import Caller
from orbiter.memory.client._remote_events import RemoteEvents
from orbiter.memory.client._server_url import read_address
from orbiter.memory.client._transport import HTTPTransport, Request, RetryPolicy
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.audit import actor
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.wire.calls import HELD_SCOPE
from orbiter.memory.wire.operations import operations_of

if TYPE_CHECKING:
    from orbiter.memory.transfer import ExportResult, ImportResult
    from orbiter.memory.transfer.formats.importer import Columns

__all__ = ["RemoteEngine", "RemoteMemory"]

_MEETING = 2.0
"""Seconds to wait for a server that is coming up; then the address is more likely wrong."""

_ONLY_THERE = {
    "backup": (
        "which does not hand out its file; run `orbiter-memory backup` there, or write everything "
        "here with `export_file(memory.unscoped(), …)`"
    ),
    "restore": (
        "whose file cannot be replaced while it is served; stop the server, run "
        "`orbiter-memory restore FILE` there, and start it again"
    ),
}
"""Calls that no server takes, and why."""


class RemoteMemory(AgentMemory):
    """Memory for agents on the server at *url*, as `AgentMemory("http://…")` is.

    *token* is a key of the server, by default that in `ORBITER_MEMORY_TOKEN`. A call may take
    *timeout* seconds with all its tries, by default 60. Over plain `http` a key goes to this
    computer alone; *insecure* sends it to others, too. All other options of `AgentMemory` are the
    server's.
    """

    _engine: "RemoteEngine"

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        token: str | None = None,
        timeout: float | None = None,
        insecure: bool = False,
        **others: Any,
    ) -> None:
        settings = MemorySettings(token=token, timeout=timeout, insecure=insecure, **others)
        self._engine = RemoteEngine(url, settings)


class RemoteEngine(MemoryEngine):
    """Carries out the calls of a memory by asking a server."""

    def __init__(self, url: str | os.PathLike[str] | None, settings: MemorySettings) -> None:
        _check_left(settings)
        address = read_address(
            str(default_url() if url is None else url),
            token=settings.token,
            insecure=settings.insecure,
        )
        timeout = settings.timeout
        patience = RetryPolicy() if timeout is None else RetryPolicy(timeout=timeout)
        self._link = HTTPTransport(address, patience=patience)
        self._is_met = False

    def __repr__(self) -> str:
        return f"AgentMemory({self.url!r})"

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._link.address.url

    @property
    def chats(self) -> NoReturn:
        """Refuse: what works below a handle does so where the store is."""
        raise self._link.not_here("this call")

    def core_for(self, name: str) -> NoReturn:
        """Refuse, and say what needs the store."""
        raise self._link.not_here(f"`{name}`")

    def events(self, session: ScopeSession) -> EventStream:
        """Return what happens on the server from now on, for `async for`."""
        return RemoteEvents(
            self._link, Request("GET", "/v1/events", self._scope_query(session)), session.scope
        )

    @traced("store.init")
    async def init(self) -> None:
        """See whether the server is there and takes the key. May be repeated, and need not be.

        Where nobody is, this says so after two seconds; a call waits for its whole time.
        """
        if self._is_met:
            return
        # Short, for any key, and of no store: a server whose disk is full can still be read.
        headers = {} if self._link.address.token else {"Authorization": "Bearer"}
        try:
            request = Request("GET", "/v1/jobs", headers=headers, meeting=_MEETING)
            answer = await self._link.send(request)
        except BaseException:  # cancellation included: nothing is left open
            await self._link.close()
            raise
        self.held = dict(parse_qsl(answer.headers.get(HELD_SCOPE, "")))
        self._is_met = True

    @traced("store.close")
    async def close(self) -> None:
        """Close the connections, and end all streams; the next use opens others."""
        self._is_met = False
        await self._link.close()

    async def perform(
        self,
        handle: Handle,
        name: str,
        method: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Send a call; return or raise what the server does."""
        target, names = handle._address()  # noqa: SLF001 - for the engine alone
        operation = operations_of(target).get(name)
        if operation is None:
            if name in _ONLY_THERE:
                raise UnsupportedError(f"{self!r} is on a server, {_ONLY_THERE[name]}")
            raise self._link.not_here(f"`{name}`")
        arguments = inspect.signature(method).bind(handle, *args, **kwargs).arguments
        del arguments["self"]
        query = self._scope_query(session_of(handle)) if isinstance(handle, ScopedHandle) else {}
        return await Caller(self._link, query, names).call(operation, arguments)

    # Files, which `import_file` and `export_file` leave to the engine

    async def import_file(
        self,
        session: ScopeSession,
        path: str | os.PathLike[str],
        *,
        format: str,
        owner: str | None,
        columns: "Columns",
        progress: Callable[[int, int], None] | None,
    ) -> "ImportResult":
        """Send a file to the server, which stores what it holds."""
        from orbiter.memory.client._file_transfers import import_there  # noqa: PLC0415 - seldom needed

        fields = {"format": format, "owner": owner, **asdict(columns)}
        query = self._scope_query(session) | {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in fields.items()
            if value is not None
        }
        return await import_there(self._link, query, path, progress=progress)

    async def export_file(
        self,
        session: ScopeSession,
        target: str | os.PathLike[str] | IO[bytes],
        *,
        format: str,
        progress: Callable[[int, int], None] | None,
    ) -> "ExportResult":
        """Write what the server sends."""
        from orbiter.memory.client._file_transfers import export_there  # noqa: PLC0415

        query = {**self._scope_query(session), "format": format}
        return await export_there(self._link, query, target, progress=progress)

    def _scope_query(self, session: ScopeSession) -> dict[str, str]:
        """Return what a request says of whose memories it is about, and who acts."""
        left_out = self.held if self.leaves_scope_to_key else {}
        named: dict[str, str] = {
            name: value
            for name in SCOPE_FIELDS
            if name not in left_out and (value := getattr(session.scope, name))
        }
        by = actor(session.by)
        source = {} if session.read_from == "primary" else {"read_from": session.read_from}
        named = named or {"everyone": "true"}
        if session.name is not None:
            named["name"] = session.name
        return named | ({} if by is None else {"by": by}) | source


def _check_left(settings: MemorySettings) -> None:
    """Refuse what only the server decides."""
    for name in settings.chosen():
        if name not in CLIENT_SETTINGS:
            raise QueryError(
                f"`{name}` is decided where the store is: give it to the server's own "
                "`AgentMemory`, and leave it out here"
            )
