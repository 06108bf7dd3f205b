"""Where a Redis is.

- `redis://user:password@host:6379/0`: one server
- `rediss://…?ssl_ca_certs=/etc/ca.pem`: the same with TLS, its certificate verified
- `redis+sentinel://:password@host1:26379,host2/name/0`: the master that Sentinel calls `name`
- `redis+cluster://:password@host1:6379,host2:6379`: a cluster

`?wait_replicas=1&wait_ms=500` has every write confirmed by so many replicas, within so long.
"""

from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from orbiter.memory._lazy import missing_extra
from orbiter.memory.backends.pool_counts import PoolCounts, PoolSizes
from orbiter.memory.backends.urls import redacted, scrubbed

try:
    from redis import exceptions
    from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.connection import Connection, SSLConnection, parse_url
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import Sentinel
    from redis.backoff import NoBackoff
except ModuleNotFoundError as exc:
    raise missing_extra("a Redis address needs redis-py", "redis") from exc

__all__ = [
    "Client",
    "RedisAddress",
    "RedisCluster",
    "connect",
    "disconnect",
    "exceptions",  # handed on: redis-py comes in by one door, which names the cure if it is shut
    "hang_up",
    "holding",
    "parse_address",
    "pool_sizes",
]

WAIT_MS = 1000
"""Milliseconds that replicas have to confirm a write."""

_SHAPES = "`redis://`, `rediss://`, `redis+sentinel://`, `redis+cluster://`"
_LIMITS = {"wait_replicas": 100, "wait_ms": 600_000}

Client = Redis | RedisCluster


@dataclass(frozen=True)
class RedisAddress:
    """An address, read; what may hold a secret is not in its repr."""

    kind: Literal["single", "cluster", "sentinel"]
    text: str
    """As it may be printed."""
    url: str = field(repr=False)
    """The same for one host, as redis-py reads it: for login, database and options."""
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    wait_replicas: int = 0
    """Replicas that must confirm a write."""
    wait_ms: int = 0
    """How long they have for it."""

    def __str__(self) -> str:
        return self.text


def parse_address(url: str) -> RedisAddress:
    """Read *url*; a `ValueError` says what is wrong with it, and shows no password."""
    scheme, mark, _ = url.partition("://")
    plain, _, kind = scheme.partition("+")
    if not mark or plain not in ("redis", "rediss") or kind not in ("", "cluster", "sentinel"):
        raise ValueError(f"the address `{redacted(url)}` must begin with one of {_SHAPES}")
    if redacted(url) == f"{scheme}://***":
        # Half a password may well look like a host and a port, to which the rest would be sent.
        raise ValueError(
            f"the address `{redacted(url)}` cannot be read; in user and password write "
            "`%2F` for `/`, `%23` for `#`, `%3F` for `?`, `%5B` for `[` and `%5D` for `]`"
        )
    try:
        parts = urlsplit(url)
        login, at, hosts = parts.netloc.rpartition("@")
        port = 26379 if kind == "sentinel" else 6379
        addresses = tuple(_host(each, port) for each in hosts.split(","))
    except ValueError:
        raise ValueError(f"the address `{redacted(url)}` has no valid host and port") from None
    parts, wait = _without_wait(url, parts)
    if not kind:
        _check_database(url, parts.path.strip("/"))
        rest = url.partition("?")[0] + (f"?{parts.query}" if parts.query else "")
        _check_options(url, rest)
        return RedisAddress("single", redacted(url), rest, (), "", *wait)
    service, _, db = parts.path.strip("/").partition("/")
    if kind == "cluster":
        if parts.path.strip("/") not in ("", "0"):
            raise ValueError(f"`{redacted(url)}`: a cluster has database 0 only; drop the others")
        service = db = ""
    elif not service:
        raise ValueError(f"`{redacted(url)}` names no master; write `redis+sentinel://host/name`")
    _check_database(url, db)
    rest = parts._replace(scheme=plain, netloc=f"{login}{at}host", path=f"/{db}").geturl()
    _check_options(url, rest)
    shape: Literal["cluster", "sentinel"] = "cluster" if kind == "cluster" else "sentinel"
    return RedisAddress(shape, redacted(url), rest, addresses, unquote(service), *wait)


def connect(
    address: RedisAddress,
    *,
    connections: int,
    timeout: float,
    patience: float,
    counts: PoolCounts,
) -> Client:
    """Return a client that has not connected yet, and that tries each command once.

    *timeout* bounds each connect and each read, *patience* the wait for a free connection, which
    *counts* counts. It does not repeat a command: what may be repeated, and for how long, its
    caller knows.
    """
    options: dict[str, Any] = dict(parse_url(address.url))
    connections = options.pop("max_connections", connections)
    options["decode_responses"] = False  # we know what is text, and what is not
    has_tls = options.get("connection_class") is SSLConnection
    if has_tls:
        # Older redis-py verified the chain but not the name.
        options.setdefault("ssl_check_hostname", options.get("ssl_cert_reqs") != "none")
    options["retry"] = Retry(NoBackoff(), 0)
    # The answer to `WAIT` may take as long as it says.
    options.setdefault("socket_timeout", timeout + address.wait_ms / 1000)
    options.setdefault("socket_connect_timeout", timeout)
    options.setdefault("socket_keepalive", True)
    if address.kind == "single":
        pool = _CountedPool(max_connections=connections, timeout=patience, **options)
        pool.counts = counts
        return Redis.from_pool(pool)
    for name in ("connection_class", "host", "port"):
        options.pop(name, None)
    if has_tls:
        options["ssl"] = True
    if address.kind == "cluster":
        options.pop("db", None)
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        # Every fifth slot that moved, redis-py would close all connections, under way or not.
        options.setdefault("reinitialize_steps", 0)
        return RedisCluster(startup_nodes=nodes, max_connections=connections, **options)
    own = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    shared = {name: value for name, value in options.items() if name.startswith(("s", "retry"))}
    sentinel = _Sentinels(  # type: ignore[no-untyped-call]  # redis-py's
        list(address.hosts),
        sentinel_kwargs=shared | {name: value for name, value in own.items() if value},
    )
    client: Redis = sentinel.master_for(address.service, max_connections=connections, **options)
    return client


class _CountedPool(BlockingConnectionPool):
    """A pool that counts who waits for one of its connections."""

    counts: PoolCounts

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        begun = self.counts.begin()
        try:
            return await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]  # redis-py's
        except exceptions.ConnectionError as exc:
            self.counts.timeouts += isinstance(exc.__cause__, TimeoutError)
            raise
        finally:
            self.counts.end(begun)


class _Sentinels(Sentinel):
    """Knows all sentinels for good.

    redis-py puts the one that answered in the first place. Of several calls at once that do so, one
    writes over what another has moved, and a sentinel is forgotten with its connection.
    """

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        known = list(self.sentinels)
        try:
            master: tuple[str, int] = await super().discover_master(service_name)
        finally:
            self.sentinels = list(dict.fromkeys([*self.sentinels, *known]))
        return master


class _Holding(Redis):
    """Keeps one connection, which looks after itself when the event loop is gone."""

    def __del__(self, *_: object) -> None:
        pass  # redis-py's would close it in a loop that is closed, and print the error


def holding(client: Client) -> Client:
    """Return a client that keeps one of *client*'s connections to itself, where it can.

    To take one and give it back for each command takes a fifth of the command's time. But with
    Sentinel only a new connection asks who is master.
    """
    pool = getattr(client, "connection_pool", None)
    if isinstance(pool, BlockingConnectionPool) and pool.max_connections > 2:  # else none is left
        return _Holding(connection_pool=pool, single_connection_client=True)
    return client


def pool_sizes(client: Client) -> PoolSizes:
    """Return how many connections *client* has; those of each node, in a cluster.

    redis-py has no public names for them. If it calls them otherwise one day, none are counted.
    """
    pools: list[Any] = [getattr(client, "connection_pool", None)]
    names = ("_available_connections", "_in_use_connections")
    if isinstance(client, RedisCluster):
        pools, names = list(client.get_nodes()), ("_free", "_connections")
    idle, rest = (
        sum(each.is_connected for pool in pools for each in list(getattr(pool, name, ())))
        for name in names
    )
    most = sum(getattr(pool, "max_connections", 0) for pool in pools)
    used = rest - idle if isinstance(client, RedisCluster) else rest
    return PoolSizes(used, idle, most)


async def disconnect(client: Client) -> None:
    """Close what `connect` returned, and the connections it asks Sentinel with."""
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager is not None else ():
        await sentinel.aclose()


async def hang_up(client: Client) -> None:
    """Close the connections of one server that are not in use; the others are looked after."""
    if isinstance(client, Redis):
        await client.connection_pool.disconnect(inuse_connections=False)


def _without_wait(url: str, parts: SplitResult) -> tuple[SplitResult, tuple[int, int]]:
    """Return *parts* without the options that are ours, and what these say."""
    waits: dict[str, int] = {}
    rest: list[str] = []
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if name not in ("wait_replicas", "wait_ms"):
            rest.append(pair)
        elif not (value.isascii() and value.isdecimal() and 0 < int(value) <= _LIMITS[name]):
            bounds = f"a whole number from 1 to {_LIMITS[name]:,}"
            raise ValueError(f"`{redacted(url)}`: `{name}` must be {bounds}, not `{value}`")
        else:
            waits[name] = int(value)
    if "wait_ms" in waits and "wait_replicas" not in waits:
        raise ValueError(f"`{redacted(url)}`: `wait_ms` needs `wait_replicas`, as in `1`")
    if not waits:
        return parts, (0, 0)
    wait = waits["wait_replicas"], waits.get("wait_ms", WAIT_MS)
    return parts._replace(query="&".join(rest)), wait


def _host(text: str, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if parts.hostname is None:
        raise ValueError(text)
    return parts.hostname, parts.port or default


def _check_database(url: str, db: str) -> None:
    if db and not db.isdecimal():
        raise ValueError(f"`{redacted(url)}`: a database is a number, such as `/0`, not `/{db}`")


def _check_options(url: str, rest: str) -> None:
    """Raise a `ValueError` for options that no connection takes; a value may be a secret."""
    try:
        options: dict[str, Any] = dict(parse_url(rest))
        for name in ("max_connections", "sentinel_username", "sentinel_password"):
            options.pop(name, None)
        options.pop("connection_class", Connection)(**options)
    except TypeError as exc:
        name = str(exc).rpartition("argument ")[2]
        raise ValueError(
            f"`{redacted(url)}` has an option that redis-py does not know: {name}"
        ) from None
    except ValueError as exc:
        raise ValueError(f"`{redacted(url)}` cannot be read: {scrubbed(str(exc), url)}") from None
