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
import math
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import httptools
from starlette.applications import Starlette
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from orbiter.memory.errors import QueryError
from orbiter.memory.server.http.browser_security import (
    REFUSAL,
    is_local_name,
    is_loopback,
)
from orbiter.memory.server.http.connection_limit import (
    AUTHENTICATE,
    Acceptor,
    ConnectionLimiter,
    TrackedConnection,
    max_open_connections,
)
from orbiter.memory.server.http.limits import LONGEST_HEAD
from orbiter.memory.server.http.listen_socket import bind_address, find_addresses, url_of
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.state import ServerState

__all__ = [
    "protocol_for",
    "serving",
]

_NO_HTTP = "Invalid HTTP request received."
_FRAMING = (b"content-length", b"transfer-encoding")


class _AnswerTransport:
    """The transport of one answer: its head waits for what follows, so that both are one packet.

    It is sent without if nothing follows in the same turn of the event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: bytes | None = None
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send *data*, or hold it if it is the first."""
        if self._held is None:
            self._held = data
            self._loop.call_soon(self._send_held)
        else:
            held, self._held = self._held, b""
            self._transport.write(held + data if held else data)

    def close(self) -> None:
        """End the connection once everything is sent."""
        self._send_held()
        self._transport.close()

    def _send_held(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)


class _BoundedProtocol(HttpToolsProtocol, TrackedConnection):
    patience: float
    limiter: ConnectionLimiter
    linger: float
    """Seconds for the first request of a connection when the server stops."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app_state = {**self.app_state, AUTHENTICATE: self._authenticate}
        self.access_log = False  # it would write whole addresses to any log that listens
        self._until_read: asyncio.TimerHandle | None = None
        self._until_written: asyncio.TimerHandle | None = None
        self._in_head = True
        self._is_reread = False
        self._unread = 0
        self._refusal = ""
        self._is_leaving = False

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
        self._unread += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self._read_on(data[exc.args[0] :])
            return
        except httptools.HttpParserError:
            self.send_400_response(_NO_HTTP)
        if self._unread > LONGEST_HEAD:  # a head, the head of a chunk, or what follows the last
            self.send_400_response(_NO_HTTP)
        self._watch()

    def _read_on(self, data: bytes) -> None:
        """Go on in HTTP/1.1 behind a head that offers another protocol, as anybody may.

        The parser takes all that follows for that protocol's. So another one reads on, which knows
        of this head only how long the body is.
        """
        framing = [each for each in self.headers if each[0] in _FRAMING]
        head = b"".join(b"%s: %s\r\n" % each for each in framing)
        self.parser = httptools.HttpRequestParser(self)
        self._is_reread = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % head)
        self._is_reread = False
        self.data_received(data)

    # What the parser has read

    def on_message_begin(self) -> None:
        if not self._is_reread:
            self._in_head = True
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_reread:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # one behind the body would pass for one that was checked
            super().on_header(name, value.rstrip(b" \t"))  # the parser strips the left alone

    def on_headers_complete(self) -> None:
        if self._is_reread:
            return
        self._unread, self._in_head = 0, False
        super().on_headers_complete()
        if self._is_leaving:
            self.cycle.keep_alive = False
        self.cycle.transport = _AnswerTransport(self.transport, self.loop)  # type: ignore[assignment]  # as much as it uses

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        if not self.parser.should_upgrade():  # else it is only the end of the head
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refusal and self.is_idle:
            self.send_400_response(self._refusal)

    def shutdown(self) -> None:
        """End when what is under way is answered; who has just come may ask once.

        So may who has asked before, for a quarter of the time: a request may be on its way.
        """
        cycle: RequestResponseCycle | None = self.cycle  # which is `None` before the first request
        if self.is_idle:
            self._is_leaving = True
            if cycle is None:
                self.loop.call_later(self.linger, self._give_up)
            else:
                self.loop.call_later(self.linger / 4, self._close_idle)
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, after the requests before it; the application never sees it."""
        if self.transport.is_closing():
            return
        if not self.is_idle and not self.cycle.more_body:
            self._refusal = msg
            self.flow.pause_reading()
            return
        headers = {"content-type": "text/plain", "content-length": str(len(msg)), **REFUSAL}
        lines = [f"{name}: {value}" for name, value in {**headers, "connection": "close"}.items()]
        text = "\r\n".join(["HTTP/1.1 400 Bad Request", *lines, "", msg])
        self.transport.write(text.encode("ascii"))
        self.transport.close()

    def _watch(self) -> None:
        """Give a client that has no request under way some time to send one whole.

        Before the first byte of its next request, uvicorn's own timer does so.
        """
        is_waiting = self.is_idle
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

    def _give_up(self) -> None:
        self._until_read = None
        if self.is_idle:
            self.transport.abort()

    def _close_idle(self) -> None:
        if self.is_idle:
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # which is `None` before the first request
        return cycle is None or cycle.response_complete


def protocol_for(
    *, patience: float, limiter: ConnectionLimiter, linger: float = 1.0
) -> type[_BoundedProtocol]:
    """Return a protocol that waits *patience* seconds, for the connections of *limiter*."""
    fields = {"patience": patience, "limiter": limiter, "linger": linger}
    return type("Protocol", (_BoundedProtocol,), fields)


@asynccontextmanager
async def serving(app: Starlette, *, settings: Settings) -> AsyncIterator[str]:
    """Serve *app* while the block runs; give its address, as `http://127.0.0.1:8765`.

    A server without keys serves addresses and names of this computer alone; any other is a
    `QueryError`.
    """
    try:
        bound = await _bind(settings, _state(app))
    except BaseException:  # the lifespan, which would do so, has not begun
        await _state(app).close_keys()
        raise
    app.state.port = bound.getsockname()[1]
    ready: asyncio.Future[_EmbeddedServer] = asyncio.get_running_loop().create_future()
    # One task from beginning to end: what a lifespan enters, it must leave in the same one.
    running = asyncio.create_task(_run(app, settings, bound, ready))
    try:
        begun: set[asyncio.Future[object]] = {running, ready}  # type: ignore[arg-type]  # either
        await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            try:
                await running  # which raises what went wrong
            except BaseExceptionGroup as group:  # its own text names no cause
                raise _cause(group) from None
        yield url_of(settings, bound)
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


def _cause(error: BaseException) -> BaseException:
    """Return what a task group, such as those of MCP, has wrapped because it was alone in it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _run(
    app: Starlette,
    settings: Settings,
    bound: socket.socket,
    ready: "asyncio.Future[_EmbeddedServer]",
) -> None:
    link = _state(app).link
    limiter = ConnectionLimiter(
        # Each worker has its part of all places, and turns its own away when it is full.
        max_total=max_open_connections(math.ceil(settings.max_connections / link.workers)),
        max_per_key=min(settings.max_connections_per_key, max(1, settings.max_connections // 2)),
        limits=link.limits,
    )
    config = Config(
        app,
        http=protocol_for(
            patience=settings.patience,
            limiter=limiter,
            linger=min(settings.patience, settings.drain / 3),
        ),
        ws="none",
        lifespan="off",  # entered here, so that what it raises reaches the caller
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=settings.drain,  # type: ignore[arg-type]  # any time will do
        timeout_keep_alive=settings.idle,  # type: ignore[arg-type]  # any time will do
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
        is_shared = link.bound is not None
        server = _EmbeddedServer(config, ready, limiter, settings.patience, is_shared=is_shared)
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
        *,
        is_shared: bool,
    ) -> None:
        super().__init__(config)
        self.servers = []
        self._ready = ready
        self._acceptor = Acceptor(
            limiter, self._connection, patience=patience, tls=config.ssl, is_shared=is_shared
        )
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
    state: ServerState = app.state.orbiter
    return state


async def _bind(settings: Settings, server: ServerState) -> socket.socket:
    """Return a socket that is bound to the address, which others may reach only with keys."""
    addresses = await find_addresses(settings)
    if not await server.needs_key():
        # A name may have several: every one of them must be harmless, whichever is taken.
        if not all(is_loopback(str(each[4][0])) for each in addresses):
            raise QueryError(
                f"`{settings.host}` can be reached from other computers, and this server has no "
                f"keys; make one with `{server.key_command()}`, or serve `127.0.0.1`"
            )
        # Requests by such a name come through a proxy, and each of them seems to be local.
        for name in settings.allowed_hosts:
            if not is_local_name(name):
                raise QueryError(
                    f"`{name}`, an allowed host, is not a name of this computer, and this server "
                    f"has no keys: a proxy would make everybody an administrator; make a key with "
                    f"`{server.key_command()}`, or leave `--allow-host` out"
                )
    return bind_address(settings, addresses) if server.link.bound is None else server.link.bound
