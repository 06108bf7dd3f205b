"""The application on uvicorn, in the event loop of the caller, with limits that uvicorn lacks.

Uvicorn waits for the headers of a request as long as a client pleases, and for a client to take an
answer, too. Both are bounded here. And what it takes for a head is read as strictly as a proxy may
read it: else a request could be hidden in what one of the two takes for a body.

`Config(http=CLASS)` is uvicorn's public way to bring a protocol; a subclass of its own is the least
code for it. Its options do not do: measured with uvicorn 0.54, `timeout_keep_alive=1` and
`limit_concurrency=50`, a connection that sends nothing, one that sends half a head and one that
reads nothing of 100 MB are all open after 20 seconds, and 50 silent connections have every request
answered with 503, whatever key it shows.
"""

import asyncio
import itertools
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import h11
from starlette.applications import Starlette
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from orbiter.memory.errors import MemoryConnectionError, QueryError
from orbiter.memory.server.http.browser_security import REFUSAL, is_loopback
from orbiter.memory.server.http.connection_limit import (
    AUTHENTICATE,
    Acceptor,
    ConnectionLimiter,
    TrackedConnection,
    max_open_connections,
)
from orbiter.memory.server.http.limits import LONGEST_HEAD
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.state import ServerState

__all__ = [
    "protocol_for",
    "serving",
]

_LOOSE = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""A line that ends without a carriage return, or goes on in the next."""


class _StrictConnection(h11.Connection):
    """A connection that refuses lines of a head which others might read differently.

    The head of an answer is held until its first bytes follow, so that both are one packet;
    *on_held* is called when it is, as there may be none for long.
    """

    held = b""

    def __init__(self, *, on_held: Callable[[], object]) -> None:
        super().__init__(h11.SERVER, LONGEST_HEAD)
        self._on_held = on_held

    def send(self, event: h11.Event) -> Any:
        """Return the bytes of *event*, behind those that were held."""
        output: bytes | None = super().send(event)
        if isinstance(event, h11.Response):
            self.held = output or b""
            self._on_held()
            return b""
        if self.held and isinstance(event, h11.Data | h11.EndOfMessage):
            output = self.take_held() + (output or b"")
        return output

    def take_held(self) -> bytes:
        """Return what is held, and hold it no longer."""
        held, self.held = self.held, b""
        return held

    def next_event(self) -> Any:
        """Return what came next."""
        if self.their_state is h11.IDLE:  # a head is what comes
            head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
            if _LOOSE.search(head):
                raise h11.RemoteProtocolError("a header line must end in CRLF")
        return super().next_event()


class _BoundedProtocol(H11Protocol, TrackedConnection):
    patience: float
    limiter: ConnectionLimiter

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn: _StrictConnection = _StrictConnection(
            on_held=lambda: self.loop.call_soon(self._send_held)
        )
        self.app_state = {**self.app_state, AUTHENTICATE: self._authenticate}
        self.access_log = False  # it would write whole addresses to any log that listens
        self._until_read: asyncio.TimerHandle | None = None
        self._until_written: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._until_read, self._until_written):
            if timer is not None:
                timer.cancel()
        self.limiter.remove(self)
        self.app_state = {}  # which holds this object
        super().connection_lost(exc)

    def evict(self) -> None:
        if self.handshake is not None:
            self.handshake.cancel()
        if self.transport is not None:
            self.transport.abort()

    def _authenticate(self, key_id: str | None) -> bool:
        return self.limiter.authenticate(self, key_id)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def _send_held(self) -> None:
        """Send the head of an answer that has not gone on in the same turn of the event loop."""
        held = self.conn.take_held()
        if held and not self.transport.is_closing():
            self.transport.write(held)

    def _watch(self) -> None:
        """Give a client that has no request under way some time to send one whole.

        Before the first byte of its next request, uvicorn's own timer does so.
        """
        is_waiting = self._is_idle()
        if not is_waiting and self._until_read is not None:
            self._until_read.cancel()
            self._until_read = None
        elif is_waiting and self._until_read is None:
            self._until_read = self.loop.call_later(self.patience, self._give_up)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._until_written is None:
            self._until_written = self.loop.call_later(self.patience, self._drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._until_written is not None:
            self._until_written.cancel()
            self._until_written = None

    def _drop(self) -> None:
        """End a connection with all that waits in it, in the kernel, too."""
        bound = self.transport.get_extra_info("socket")
        if bound is not None:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; the application never sees it."""
        headers = [("content-type", "text/plain"), ("connection", "close"), *REFUSAL.items()]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=msg.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _give_up(self) -> None:
        self._until_read = None
        if self._is_idle():
            self.transport.abort()

    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # which is `None` before the first request
        return cycle is None or cycle.response_complete


def protocol_for(*, patience: float, limiter: ConnectionLimiter) -> type[_BoundedProtocol]:
    """Return a protocol that waits *patience* seconds, for the connections of *limiter*."""
    return type("Protocol", (_BoundedProtocol,), {"patience": patience, "limiter": limiter})


_WAITING = 2_048
"""Connections that the system holds until they are taken, if it lets us have as many."""

_IDLE = 5.0
"""Seconds that a connection is kept without a request, or fewer if `patience` is less."""

_LEAVE = 3
"""Seconds for requests under way when the server stops."""


@asynccontextmanager
async def serving(app: Starlette, *, settings: Settings) -> AsyncIterator[str]:
    """Serve *app* while the block runs; give its address, as `http://127.0.0.1:8765`.

    A server without keys serves an address of this computer alone; any other is a `QueryError`.
    """
    bound = await _bind(settings, _state(app))
    app.state.port = bound.getsockname()[1]
    ready: asyncio.Future[_EmbeddedServer] = asyncio.get_running_loop().create_future()
    # One task from beginning to end: what a lifespan enters, it must leave in the same one.
    running = asyncio.create_task(_run(app, settings, bound, ready))
    try:
        begun: set[asyncio.Future[object]] = {running, ready}  # type: ignore[arg-type]  # either
        await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await running  # which raises what went wrong
        yield _address(settings, bound)
    finally:
        try:
            if ready.done() and not running.done():
                _state(app).jobs.leave()
                await _state(app).live.stop()  # streams end by themselves, or they would be cut
                ready.result().stop()
            else:
                running.cancel()
            await asyncio.wait({running})
        finally:
            running.cancel()  # if whoever called could not wait for it
            bound.close()
    if not running.cancelled():
        running.result()


async def _run(
    app: Starlette,
    settings: Settings,
    bound: socket.socket,
    ready: "asyncio.Future[_EmbeddedServer]",
) -> None:
    limiter = ConnectionLimiter(
        max_total=max_open_connections(settings.max_connections),
        max_per_key=settings.max_connections_per_key,
    )
    config = Config(
        app,
        http=protocol_for(patience=settings.patience, limiter=limiter),
        ws="none",
        lifespan="off",  # entered here, so that what it raises reaches the caller
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_LEAVE,
        timeout_keep_alive=min(_IDLE, settings.patience),  # type: ignore[arg-type]  # any time will do
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    try:
        config.load()  # before the lifespan, which would wrap what it raises
    except OSError as exc:
        raise QueryError(
            f"the certificate `{settings.tls_cert}` cannot be used with the key "
            f"`{settings.tls_key}`: {exc}"
        ) from exc
    async with app.router.lifespan_context(app):
        server = _EmbeddedServer(config, ready, limiter, settings.patience)
        try:
            await server.serve(sockets=[bound])
        finally:
            await server.close()


class _EmbeddedServer(Server):
    """A server that leaves signals to whoever runs the loop, and tells when it listens.

    It accepts connections with our `Acceptor`, not by the servers of asyncio, as uvicorn would.
    """

    def __init__(
        self,
        config: Config,
        ready: "asyncio.Future[_EmbeddedServer]",
        limiter: ConnectionLimiter,
        patience: float,
    ) -> None:
        super().__init__(config)
        self.servers = []
        self._ready = ready
        self._acceptor = Acceptor(limiter, self._connection, patience=patience, tls=config.ssl)
        self._taking: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """End as soon as what is under way is answered."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Look around ten times a second, as uvicorn does, but stop without waiting for that."""
        for count in itertools.count():
            if await self.on_tick(count % 864_000):  # a day, which it counts to itself
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await self._stopping.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        (bound,) = sockets or []
        self._taking = asyncio.create_task(self._acceptor.run(bound))
        self._taking.add_done_callback(lambda _: self.stop())  # nobody is served without it
        self.started = True
        if not self._ready.done():
            self._ready.set_result(self)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.close()
        await super().shutdown(sockets)

    async def close(self) -> None:
        """Take no more connections; raise what kept the server from it, if anything did."""
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.cancel()
            with suppress(asyncio.CancelledError):
                await taking

    def _connection(self) -> TrackedConnection:
        # The class is ours; uvicorn's own word for it is any protocol.
        made: Callable[..., TrackedConnection] = self.config.http_protocol_class  # type: ignore[assignment]
        return made(config=self.config, server_state=self.server_state, app_state={})


def _state(app: Starlette) -> ServerState:
    found: ServerState = app.state.orbiter
    return found


async def _bind(settings: Settings, server: ServerState) -> socket.socket:
    """Return a socket that is bound to the address, which others may reach only with keys."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as exc:
        raise QueryError(f"there is no address `{settings.host}`: {exc}") from exc
    # A name may have several: every one of them must be harmless, whichever is taken.
    if not server.needs_key() and not all(is_loopback(str(each[4][0])) for each in found):
        raise QueryError(
            f"`{settings.host}` can be reached from other computers, and this server has no keys; "
            f"make one with `{server.key_command()}`, or serve `127.0.0.1`"
        )
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    # By its name: of a socket without, asyncio leaves Nagle's delay on, 40 ms for each answer.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_WAITING)  # a port that another program took shows here
        bound.setblocking(False)  # noqa: FBT003 - the standard library's
    except OSError as exc:
        bound.close()
        raise MemoryConnectionError(
            f"port {settings.port} of `{settings.host}` cannot be served: {exc.strerror}; "
            "choose another with `--port`, or `--port 0` for any that is free"
        ) from exc
    return bound


def _address(settings: Settings, bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 - only shown
    return f"{'https' if settings.tls_cert else 'http'}://{shown}:{port}"
