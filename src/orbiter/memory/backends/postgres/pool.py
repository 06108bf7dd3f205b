"""Connections of an asyncpg pool, each for a while; never waited for once they stop answering.

And what a URL says of them to us, not to the server.
"""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, NamedTuple, cast, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from orbiter.memory._lazy import missing_extra
from orbiter.memory.backends.batches import Deadlines
from orbiter.memory.backends.pool_counts import PoolCounts, PoolSizes
from orbiter.memory.backends.urls import whole_url
from orbiter.memory.errors import MemoryConnectionError, MemoryError, MemoryTimeoutError

__all__ = [
    "Lease",
    "OnceToken",
    "PostgresOptions",
    "ReplicaSees",
    "check_partitions",
    "check_size",
    "import_asyncpg",
    "is_answer",
    "pool_sizes",
    "quiet_connection",
    "read_options",
]

_READ_ONLY = "25006"
_FIXED_OIDS = 10_000
"""Types below it have the same number and meaning on every server."""
_fixed_types: dict[frozenset[int], Any] = {}
_OWN = (
    "replicas",
    "replica_wait",
    "replica_sees",
    "statement_cache_size",
    "max_size",
    "partitions",
)
_MAX_PARTITIONS = 256
# asyncpg makes an object for each connection that a pool may have, before the first is opened. And
# no server has that many for one process: it allows 100 in all, unless it was configured otherwise.
_MAX_SIZE = 1000

ReplicaSees = Literal["own", "all"]
"""Whose writes a replica must have: this process's own, or everybody's who was acknowledged."""


class OnceToken:
    """One transaction, however often it is tried: by its token it is known again.

    The number of a transaction would not do: a server that crashed may give it to another.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.value: object = None

    @property
    def is_to_clean(self) -> bool:
        """Whether it is this one's turn to remove old tokens: one in 256 does."""
        return self.token.startswith("00")


class Lease:
    """A connection for a while: cut off, not waited for, when its caller is cancelled or late."""

    def __init__(
        self, pool: Any, timeout: float, store: object, deadlines: Deadlines, counts: PoolCounts
    ) -> None:
        self._pool, self._timeout, self._store = pool, timeout, store
        self._deadlines, self._counts = deadlines, counts
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        begun = self._counts.begin()
        try:
            with self._deadlines.limit(self._timeout):  # the pool would make a task to wait in
                self._connection = await self._pool.acquire()
        except TimeoutError as exc:
            self._counts.timeouts += 1
            if self._pool.get_size() < self._pool.get_max_size():
                raise MemoryConnectionError(
                    f"{self._store!r} gave no new connection within {self._timeout:g} s; check "
                    "its address, or raise `acquire_timeout`"
                ) from exc
            raise MemoryTimeoutError(
                f"{self._store!r} had no free connection for {self._timeout:g} s; raise "
                "`max_size`, also `?max_size=20` of the URL, or `acquire_timeout`"
            ) from exc
        finally:
            self._counts.end(begun)
        return self._connection

    async def __aexit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is None or is_answer(error):
            await self._pool.release(self._connection, timeout=self._timeout)
            return
        # The connection may be gone from the pool already. What happened is `error`, and nothing
        # that cleaning up raises may take its place.
        with suppress(Exception):  # see above
            self._connection.terminate()
        with suppress(Exception):  # see above
            await self._pool.release(self._connection)
        if getattr(error, "sqlstate", None) == _READ_ONLY:
            # It may have become a standby: whoever took over is found by connecting again.
            with suppress(Exception):  # see above
                await self._pool.expire_connections()


def pool_sizes(pool: Any) -> PoolSizes:
    """Return how many connections a *pool* has; none once it is closed."""
    if pool.is_closing():
        return PoolSizes(0, 0, 0)
    size, idle = pool.get_size(), pool.get_idle_size()
    return PoolSizes(size - idle, idle, pool.get_max_size())


def is_answer(error: BaseException) -> bool:
    """Tell whether a connection is good for more after *error*."""
    state = getattr(error, "sqlstate", None)
    gone = ("08", "57P", _READ_ONLY)
    return isinstance(error, MemoryError) or (state is not None and not state.startswith(gone))


def import_asyncpg() -> Any:
    try:
        import asyncpg  # noqa: PLC0415 - an extra, needed by this class alone
    except ModuleNotFoundError as exc:
        raise missing_extra("PostgresMemoryStore needs asyncpg", "postgres") from exc
    return asyncpg


class _NoStatement:
    """In the place of a statement that asked the server about types, where none was sent."""

    name = "none"


def quiet_connection(asyncpg: Any) -> Any:
    """Return a connection class that is not reset between two uses.

    We leave no session state behind, and resetting costs as much as the query itself. What an array
    of a built-in type is, one connection asks for all: for each, the server plans for 10 ms.
    """

    class Connection(asyncpg.Connection):  # type: ignore[misc]  # imported when it is needed
        def get_reset_query(self) -> str:
            return ""

        async def reset(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
            if self.is_in_transaction():
                await super().reset(timeout=timeout)

        # Not public: under an asyncpg that calls it no more, every connection asks again.
        async def _introspect_types(self, typeoids: Iterable[int], *more: Any, **named: Any) -> Any:
            oids = frozenset(typeoids)
            if oids in _fixed_types:
                return _fixed_types[oids], _NoStatement
            types, statement = await super()._introspect_types(oids, *more, **named)
            if max(oids) < _FIXED_OIDS:
                _fixed_types[oids] = types
            return types, statement

    return Connection


class PostgresOptions(NamedTuple):
    """What a URL says to us, and not to the server."""

    dsn: str
    """The URL without it."""
    replicas: tuple[str, ...] = ()
    """The URL of each replica."""
    replica_wait: float = 1.0
    replica_sees: ReplicaSees = "own"
    statement_cache_size: int | None = None
    max_size: int | None = None
    """How many connections the pool of a store may have."""
    partitions: int | None = None
    """How many parts the tables have, if they are made now."""


def read_options(dsn: str) -> PostgresOptions:
    """Return *dsn* and our options in it, apart; `ValueError` for one that cannot be used."""
    if not any(name in dsn for name in _OWN):
        return PostgresOptions(dsn)
    parts = urlsplit(dsn)
    pairs = [(pair, unquote(pair.partition("=")[0])) for pair in parts.query.split("&")]
    own = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = {name: value for name, value in own.items() if name in _OWN}
    if not own:
        return PostgresOptions(dsn)
    left = [pair for pair, name in pairs if name not in _OWN]
    plain = whole_url(parts._replace(query="&".join(left)))
    # A replica takes no writes, so what asks for a server that does would refuse it.
    single = [pair for pair, name in pairs if name not in (*_OWN, "target_session_attrs")]
    who, at, _ = parts.netloc.rpartition("@")
    replicas = [
        whole_url(parts._replace(netloc=f"{who}{at}{_host(each)}", query="&".join(single)))
        for each in own.get("replicas", "").split(",")
        if each or "replicas" in own
    ]
    sees = own.get("replica_sees", "own")
    if sees not in get_args(ReplicaSees):
        raise ValueError(f"`replica_sees` must be `own` or `all`, not `{sees}`")
    cache = own.get("statement_cache_size")
    if cache is not None and not cache.isdecimal():
        raise ValueError(f"`statement_cache_size` must be a number from 0 on, not `{cache}`")
    size = own.get("max_size")
    cut = own.get("partitions")
    return PostgresOptions(
        plain,
        tuple(replicas),
        _seconds(own.get("replica_wait", "1")),
        cast("ReplicaSees", sees),
        None if cache is None else int(cache),
        None if size is None else check_size(_whole_number(size)),
        None if cut is None else check_partitions(_whole_number(cut)),
    )


def check_size(number: object) -> int:
    """Return *number* if a pool may have so many connections; else `ValueError`."""
    if type(number) is int and 1 <= number <= _MAX_SIZE:
        return number
    raise ValueError(
        f"`max_size`, the connections of one process, must be from 1 to {_MAX_SIZE}, not "
        f"{number!r}; if more calls wait, run several processes behind pgbouncer"
    )


def check_partitions(number: object) -> int:
    """Return *number* if tables can have so many parts; else `ValueError`."""
    if type(number) is int and 1 <= number <= _MAX_PARTITIONS:
        return number
    raise ValueError(f"`partitions` must be from 1 to {_MAX_PARTITIONS}, not {number!r}")


def _whole_number(text: str) -> int | str:
    """Return the number that *text* is; *text* itself if it is none."""
    return int(text) if text.isdecimal() else text


def _host(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or "@" in text or "/" in text:
        raise ValueError(
            f"`replicas` must be like `host:port,host:port`, not `{text.rpartition('@')[2]}`; "
            "user, password and database are those of the URL"
        )
    return text


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0.0 < (seconds := float(text)) < float("inf"):
            return seconds
    raise ValueError(f"`replica_wait` must be a number of seconds above 0, not `{text}`")
