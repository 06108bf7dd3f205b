"""Who may connect: every socket is counted from the moment it is there, before it says a word.

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

from starlette.types import Scope

from orbiter.memory.server.http.error_responses import Refused

__all__ = ["KNOWN", "Gate", "Lobby", "Visitor", "most_connections", "welcome"]

KNOWN = "orbiter_known"
"""Where the state of a request holds what is to be called once it has shown a right key."""

_LOG = logging.getLogger(__name__)
_RESERVE = 128
"""Files that connections leave to the store, its indexes and transfers."""

_PAUSE = 0.1
"""Seconds until the next try, when the system has no room for one more socket."""

_OFTEN = 60.0
"""Seconds between two lines of the log about that."""

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Visitor(asyncio.BaseProtocol, ABC):
    """What a lobby holds: a connection, perhaps one that has not begun yet."""

    greeting: asyncio.Task[object] | None = None

    @abstractmethod
    def turn_away(self) -> None:
        """End the connection for somebody else's sake, whatever it has come to."""


class Lobby:
    """The connections of one server: at most *most*, and *most_per_key* of one key."""

    def __init__(self, *, most: int, most_per_key: int | None = None) -> None:
        self._most = most
        # Half of all places are always left to others.
        self._most_per_key = max(1, min(most if most_per_key is None else most_per_key, most // 2))
        self._strangers: dict[Visitor, None] = {}  # the oldest first
        self._known: dict[Visitor, str | None] = {}
        self._by_key: Counter[str] = Counter()

    def enter(self, visitor: Visitor) -> bool:
        """Count *visitor*; `False` if there is no room, as everybody here has shown a key."""
        if len(self._strangers) + len(self._known) >= self._most and not self.make_room():
            return False
        self._strangers[visitor] = None
        return True

    def make_room(self) -> bool:
        """Turn away who has been here for longest without a key; `False` if there is nobody."""
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.turn_away()
        return True

    def know(self, visitor: Visitor, key_id: str | None) -> bool:
        """Note that *visitor* has shown a right key; `False` if the key has too many connections.

        Then it stays a stranger, and is the first to make room. Without keys, all places are for
        this computer.
        """
        if visitor not in self._strangers and visitor not in self._known:
            return True  # it was turned away meanwhile
        if visitor in self._known and self._known[visitor] == key_id:
            return True
        self.leave(visitor)
        if key_id is not None and self._by_key[key_id] >= self._most_per_key:
            self._strangers[visitor] = None
            return False
        self._known[visitor] = key_id
        if key_id is not None:
            self._by_key[key_id] += 1
        return True

    def leave(self, visitor: Visitor) -> None:
        """Forget a visitor, perhaps once more."""
        self._strangers.pop(visitor, None)
        key_id = self._known.pop(visitor, None)
        if key_id is not None:
            self._by_key[key_id] -= 1
            if not self._by_key[key_id]:
                del self._by_key[key_id]


def welcome(scope: Scope, key_id: str | None) -> None:
    """Note that a request has shown a right key; `Refused` if that has too many connections.

    Under another server there is nobody to tell.
    """
    know: Callable[[str | None], bool] | None = scope.get("state", {}).get(KNOWN)
    if know is not None and not know(key_id):
        raise Refused(
            429,
            "this key has too many connections; use those that it has again",
            headers={"Retry-After": "1"},
        )


class Gate:
    """Takes the connections of a socket, and gives each to a visitor that *make* makes."""

    def __init__(
        self,
        lobby: Lobby,
        make: Callable[[], Visitor],
        *,
        patience: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._lobby = lobby
        self._make = make
        # Both are refused without TLS.
        self._times = {"ssl_handshake_timeout": patience, "ssl_shutdown_timeout": patience}
        self._tls = tls
        self._greetings: set[asyncio.Task[object]] = set()
        self._told_at = -math.inf

    async def run(self, bound: socket.socket) -> None:
        """Take one connection after the other, until it is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    taken, _ = await loop.sock_accept(bound)
                except OSError as exc:  # of one connection, or of all
                    is_full = exc.errno in _NO_ROOM
                    if is_full:
                        self._tell(exc, loop.time())
                        self._lobby.make_room()
                    await asyncio.sleep(_PAUSE if is_full else 0)
                else:
                    self._take(taken, loop)
                    await asyncio.sleep(0)  # many who come at once do not keep others from talking
        finally:
            for greeting in self._greetings:
                greeting.cancel()

    def _take(self, taken: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        visitor = self._make()
        if not self._lobby.enter(visitor):
            taken.close()
            return
        times = self._times if self._tls is not None else {}
        greeting: asyncio.Task[object] = loop.create_task(
            loop.connect_accepted_socket(lambda: visitor, taken, ssl=self._tls, **times)
        )
        visitor.greeting = greeting
        self._greetings.add(greeting)

        def over(_: object) -> None:
            self._greetings.discard(greeting)
            visitor.greeting = None  # they would hold each other
            if greeting.cancelled() or greeting.exception() is not None:  # whose fault it ever is
                self._lobby.leave(visitor)
                taken.close()

        greeting.add_done_callback(over)

    def _tell(self, error: OSError, now: float) -> None:
        if now - self._told_at >= _OFTEN:
            self._told_at = now
            _LOG.error("the system has no room for more connections: %s", error.strerror)


def most_connections(wanted: int) -> int:
    """Return how many connections there may be: *wanted*, if this process may open as many."""
    try:
        import resource  # noqa: PLC0415 - not on Windows, where there is no such limit
    except ImportError:
        return wanted
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _RESERVE))
