"""Uvicorn's HTTP/1.1 protocol with limits that uvicorn has no option for.

It waits for the headers of a request as long as a client pleases, and for a client to take an
answer, too. Both are bounded here. And what it takes for a head is read as strictly as a proxy may
read it: else a request could be hidden in what one of the two takes for a body.

`Config(http=CLASS)` is uvicorn's public way to bring a protocol; a subclass of its own is the least
code for it. Its options do not do: measured with uvicorn 0.54, `timeout_keep_alive=1` and
`limit_concurrency=50`, a connection that sends nothing, one that sends half a head and one that
reads nothing of 100 MB are all open after 20 seconds, and 50 silent connections have every request
answered with 503, whatever key it shows.
"""

import asyncio
import re
import socket
import struct
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from orbiter.memory.server.http.browser_security import REFUSAL
from orbiter.memory.server.http.connection_limit import (
    AUTHENTICATE,
    ConnectionLimiter,
    TrackedConnection,
)
from orbiter.memory.server.http.limits import LONGEST_HEAD

__all__ = ["protocol_for"]


_LOOSE = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""A line that ends without a carriage return, or goes on in the next."""


class _StrictConnection(h11.Connection):
    """A connection that refuses lines of a head which others might read differently."""

    def next_event(self) -> Any:
        """Return what came next."""
        if self.their_state is h11.IDLE:  # a head is what comes
            head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
            if _LOOSE.search(head):
                raise h11.RemoteProtocolError("a line of the head does not end as it must")
        return super().next_event()


class _BoundedProtocol(H11Protocol, TrackedConnection):
    patience: float
    limiter: ConnectionLimiter

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = _StrictConnection(h11.SERVER, LONGEST_HEAD)
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

    def _watch(self) -> None:
        """Give a client that has no request under way some time to send one whole."""
        is_waiting = self._is_idle()
        if not is_waiting and self._until_read is not None:
            self._until_read.cancel()
            self._until_read = None
        elif is_waiting and self._until_read is None:
            self._until_read = self.loop.call_later(self.patience, self._give_up)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

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
