"""Connection limit: every socket is counted from the moment it is accepted.

asyncio's own servers have no limit, keep no hold of a socket until its TLS handshake is over, and
write a traceback whenever the system has no room for one more. Here, who has shown no key yet
makes room for who comes, and one key has only a part of all places: so nobody locks others out by
holding connections open.
"""

import asyncio
import errno
import logging
import math
import socket
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from starlette.types import Scope

from orbiter.memory.server.http.error_responses import HTTPProblem
from orbiter.memory.server.http.listen_socket import MAX_WAITING
from orbiter.memory.server.http.shared_limits import Limits, LocalLimits

__all__ = [
    "AUTHENTICATE",
    "Acceptor",
    "ConnectionLimiter",
    "TrackedConnection",
    "mark_authenticated",
    "max_open_connections",
]

AUTHENTICATE = "orbiter_known"
"""Where the state of a request holds what is to be called once it has shown a right key."""

_LOG = logging.getLogger(__name__)
_RESERVE = 128
"""Files that connections leave to the store, its indexes and transfers."""

_PAUSE = 0.1
"""Seconds until the next try, when the system has no room for one more socket."""

_HANDSHAKE = 1.0
"""Seconds for handshakes under way when no more connections are taken."""

_AT_ONCE = 16
"""Connections that are taken in one turn of the event loop."""

_OFTEN = 60.0
"""Seconds between two lines of the log about that."""

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class TrackedConnection(asyncio.BaseProtocol, ABC):
    """A connection that the limiter counts, perhaps one whose handshake is under way."""

    handshake: asyncio.Task[object] | None = None

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether no request is under way."""

    @abstractmethod
    def evict(self) -> None:
        """End the connection for somebody else's sake, whatever it has come to."""


class ConnectionLimiter:
    """The connections of one process: at most *max_total*, and *max_per_key* of one key.

    Connections of one key are counted in *limits*, over all workers of a server. In each of them,
    half of all places are always left to others.
    """

    def __init__(
        self, *, max_total: int, max_per_key: int | None = None, limits: Limits | None = None
    ) -> None:
        self._max_total = max_total
        self._limits: Limits = LocalLimits() if limits is None else limits
        """The counts by key, which all workers of one server share."""
        self._max_per_key = max(1, max_total if max_per_key is None else max_per_key)
        self._half = max(1, max_total // 2)
        self._by_key: Counter[str] = Counter()
        self._unauthenticated: dict[TrackedConnection, None] = {}  # the oldest first
        self._authenticated: dict[TrackedConnection, str | None] = {}

    def add(self, connection: TrackedConnection) -> bool:
        """Count *connection*; `False` if there is no room, as everybody here is being served."""
        if (
            len(self._unauthenticated) + len(self._authenticated) >= self._max_total
            and not self.evict_oldest()
        ):
            return False
        self._unauthenticated[connection] = None
        return True

    def evict_oldest(self) -> bool:
        """Turn away who has been here for longest without a key, or else without a request.

        `False` if there is nobody: all have shown a key, and wait for an answer.
        """
        idle = (each for each in self._authenticated if each.is_idle)
        oldest = next(iter(self._unauthenticated), None) or next(idle, None)
        if oldest is None:
            return False
        self.remove(oldest)
        oldest.evict()
        return True

    def authenticate(self, connection: TrackedConnection, key_id: str | None) -> bool:
        """Note that *connection* has shown a valid key; `False` if that has too many connections.

        Then it stays unauthenticated, and is the first to be evicted. Without keys, all places
        are for this computer.
        """
        if connection not in self._unauthenticated and connection not in self._authenticated:
            return True  # it was turned away meanwhile
        if connection in self._authenticated and self._authenticated[connection] == key_id:
            return True
        self.remove(connection)
        if key_id is not None and (
            self._by_key[key_id] >= self._half
            or not self._limits.take(_name(key_id), self._max_per_key)
        ):
            self._unauthenticated[connection] = None
            return False
        self._authenticated[connection] = key_id
        if key_id is not None:
            self._by_key[key_id] += 1
        return True

    def remove(self, connection: TrackedConnection) -> None:
        """Count *connection* no longer; it may be repeated."""
        self._unauthenticated.pop(connection, None)
        key_id = self._authenticated.pop(connection, None)
        if key_id is not None:
            self._limits.give(_name(key_id))
            self._by_key[key_id] -= 1
            if not self._by_key[key_id]:
                del self._by_key[key_id]


def _name(key_id: str) -> str:
    return f"connection:{key_id}"


def mark_authenticated(scope: Scope, key_id: str | None) -> None:
    """Note that a request has shown a right key; `HTTPProblem` if that has too many connections.

    Under another server there is nobody to tell.
    """
    authenticate: Callable[[str | None], bool] | None = scope.get("state", {}).get(AUTHENTICATE)
    if authenticate is not None and not authenticate(key_id):
        raise HTTPProblem(
            429,
            "this key has too many connections; reuse the open ones",
            headers={"Retry-After": "1"},
        )


class Acceptor:
    """Takes the connections of a socket, and gives each to a protocol that *make* makes."""

    def __init__(
        self,
        limiter: ConnectionLimiter,
        make: Callable[[], TrackedConnection],
        *,
        patience: float,
        tls: ssl.SSLContext | None,
        is_shared: bool = False,
    ) -> None:
        self._limiter = limiter
        # Of a socket that others accept from, too, each takes one, and leaves them the next.
        self._at_once = 1 if is_shared else _AT_ONCE
        self._make = make
        # Both are refused without TLS.
        self._times = {"ssl_handshake_timeout": patience, "ssl_shutdown_timeout": patience}
        self._tls = tls
        self._handshakes: set[asyncio.Task[object]] = set()
        self._told_at = -math.inf

    async def run(self, bound: socket.socket) -> None:
        """Take one connection after the other, until it is cancelled; then close the socket.

        Those that wait by then are taken, too: the system would reset them.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    taken, _ = await loop.sock_accept(bound)
                except OSError as exc:  # of one connection, or of all
                    is_full = exc.errno in _NO_ROOM
                    if is_full:
                        self._log_error(exc, loop.time())
                        self._limiter.evict_oldest()
                    await asyncio.sleep(_PAUSE if is_full else 0)
                else:
                    self._take(taken, loop)
                    self._take_more(bound, loop, self._at_once - 1)
                    await asyncio.sleep(0)  # many who come at once do not keep others from talking
        finally:
            self._take_more(bound, loop, MAX_WAITING)
            bound.close()
            if self._handshakes:  # who was taken is answered, if it is soon known
                await asyncio.wait(self._handshakes, timeout=_HANDSHAKE)
            for handshake in self._handshakes:
                handshake.cancel()

    def _take_more(
        self, bound: socket.socket, loop: asyncio.AbstractEventLoop, max_count: int
    ) -> None:
        """Take some of those who wait: on a busy server, the next turn of the loop comes late."""
        with suppress(OSError):  # nobody waits, or the next `sock_accept` says what is wrong
            for _ in range(max_count):
                taken, _ = bound.accept()
                taken.setblocking(False)  # noqa: FBT003 - the standard library's
                self._take(taken, loop)

    def _take(self, taken: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        connection = self._make()
        if not self._limiter.add(connection):
            taken.close()
            return
        times = self._times if self._tls is not None else {}
        handshake: asyncio.Task[object] = loop.create_task(
            loop.connect_accepted_socket(lambda: connection, taken, ssl=self._tls, **times)
        )
        connection.handshake = handshake
        self._handshakes.add(handshake)

        def over(_: object) -> None:
            self._handshakes.discard(handshake)
            connection.handshake = None  # they would hold each other
            if handshake.cancelled() or handshake.exception() is not None:  # whose fault it ever is
                self._limiter.remove(connection)
                taken.close()

        handshake.add_done_callback(over)

    def _log_error(self, error: OSError, now: float) -> None:
        if now - self._told_at >= _OFTEN:
            self._told_at = now
            _LOG.error("the system has no room for more connections: %s", error.strerror)


def max_open_connections(wanted: int) -> int:
    """Return how many connections there may be: *wanted*, if this process may open as many."""
    try:
        import resource  # noqa: PLC0415 - not on Windows, where there is no such limit
    except ImportError:
        return wanted
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _RESERVE))
