"""`RemoteMemory`: an `AgentMemory` whose store is behind a server."""

import os
from typing import TYPE_CHECKING, NoReturn

from orbiter.memory.agent import AgentMemory, EventStream
from orbiter.memory.agent.interface import MemoryEngine
from orbiter.memory.agent.telemetry import traced
from orbiter.memory.backends.registry import default_url
from orbiter.memory.client._remote_calls import Caller, called_by
from orbiter.memory.client._remote_events import RemoteEvents
from orbiter.memory.client._remote_scope import RemoteAudit, RemoteScope
from orbiter.memory.client._server_url import read_address
from orbiter.memory.client._transport import HTTPTransport, Request, RetryPolicy
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.items import MemoryMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RemoteEngine", "RemoteMemory"]

_MEETING = 2.0
"""Seconds to wait for a server that is coming up; then the address is more likely wrong."""

_LEFT_TO_SERVER = {
    "store": None,
    "embeddings": "auto",
    "episodic": None,
    "persona": None,
    "summarizer": None,
    "summaries": "auto",
    "count_tokens": None,
    "secret": None,
    "row_security": False,
    "audit": None,
}
"""What a server was started with; here it must be left as it is."""


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
        **others: object,
    ) -> None:
        _check_left(others)
        address = read_address(
            str(default_url() if url is None else url), token=token, insecure=insecure
        )
        patience = RetryPolicy() if timeout is None else RetryPolicy(timeout=timeout)
        link = HTTPTransport(address, patience=patience)
        self._engine = RemoteEngine(link)  # type: ignore[abstract]  # the table has the rest


@called_by("memory")
class RemoteEngine(Caller, MemoryEngine):
    """Carries out the calls of an `AgentMemory` by asking a server."""

    def __init__(self, link: HTTPTransport) -> None:
        self._link = link
        self._is_met = False

    def __repr__(self) -> str:
        return f"AgentMemory({self.url!r})"

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._link.address.url

    @property
    def core(self) -> NoReturn:
        """Refuse: what works below a handle does so where the store is."""
        raise self._link.not_here("this")

    @property
    def chats(self) -> NoReturn:
        """Refuse: what works below a handle does so where the store is."""
        raise self._link.not_here("this")

    @property
    def store(self) -> NoReturn:
        """Refuse: the store is the server's."""
        raise self._link.not_here("`store`")

    @property
    def audit(self) -> RemoteAudit:
        """What was done in this memory; the key must be an administrator's."""
        return RemoteAudit(self._link)

    def handle(self, scope: MemoryMetadata, by: str | None) -> RemoteScope:
        """Return a handle whose calls are sent."""
        return RemoteScope(self._link, scope, by=by)

    def events(self) -> EventStream:
        """Return everything that happens on the server from now on, for `async for`."""
        return RemoteEvents(
            self._link, Request("GET", "/v1/events", {"everyone": "true"}), MemoryMetadata()
        )

    # Opening and closing

    @traced("store.init")
    async def init(self) -> None:
        """See whether the server is there and takes the key. May be repeated, and need not be.

        Where nobody is, this says so after two seconds; a call waits for its whole time.
        """
        if self._is_met:
            return
        try:
            await self._link.send(Request("GET", "/healthz", meeting=_MEETING))
        except BaseException:  # cancellation included: nothing is left open
            await self._link.close()
            raise
        self._is_met = True

    @traced("store.close")
    async def close(self) -> None:
        """Close the connections, and end all streams; the next use opens others."""
        self._is_met = False
        await self._link.close()

    async def backup(
        self,
        path: str | os.PathLike[str],
        *,
        progress: "Callable[[int, int], None] | None" = None,
    ) -> NoReturn:
        """Refuse: a server does not hand out its file; `export_file` writes one."""
        del path, progress
        raise UnsupportedError(
            f"{self!r} is on a server, which does not hand out its file; run "
            "`orbiter-memory backup` there, or write everything here with "
            "`export_file(memory.unscoped(), …)`"
        )

    async def restore(
        self,
        path: str | os.PathLike[str],
        *,
        progress: "Callable[[int, int], None] | None" = None,
    ) -> NoReturn:
        """Refuse: a server's file is replaced where it is, while the server is stopped."""
        del path, progress
        raise UnsupportedError(
            f"{self!r} is on a server, whose file cannot be replaced while it is served; stop the "
            "server, run `orbiter-memory restore FILE` there, and start it again"
        )


def _check_left(options: dict[str, object]) -> None:
    """Refuse what only the server decides, and what there is not at all."""
    for name, value in options.items():
        if name not in _LEFT_TO_SERVER:
            raise TypeError(f"AgentMemory() got an unexpected keyword argument {name!r}")
        if value != _LEFT_TO_SERVER[name]:
            raise QueryError(
                f"`{name}` is decided where the store is: give it to the server's own "
                "`AgentMemory`, and leave it out here"
            )
