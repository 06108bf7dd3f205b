"""Redis as it is run in production: a cluster, a master under sentinels, and TLS in front.

```python
# conftest.py
from tests.servers.redis_topologies import redis_cluster, redis_sentinel, redis_tls
```

Every server is a `RedisServer` of our own on loopback and ends with this process. A test may break
a topology; `repair()` makes it whole for the next one.
"""

import asyncio
import contextlib
import functools
import secrets
import ssl
from abc import ABC, abstractmethod
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit

import pytest
from tests.servers import processes
from tests.servers.databases import RedisServer, require_or_skip
from tests.servers.processes import imported, wait_until

__all__ = [
    "RedisCluster",
    "RedisSentinel",
    "TLSFront",
    "redis_cluster",
    "redis_sentinel",
    "redis_tls",
]

_Started = TypeVar("_Started")
_SLOTS = 16_384
_MASTER = "mymaster"
# Milliseconds. By default a master that came back is demoted after 8 s, and a busy computer makes
# a sentinel rest for 30 s. A failover looks at the replica once a second: five pings must take
# longer, or it is unfit for promotion, and four publications too, or other sentinels demote it.
_SENTINEL_PERIODS = "info-period 100 ping-period 300 ask-period 50 publish-period 600"
_SENTINEL_PERIODS += " tilt-trigger 5000 tilt-period 1000"


class _Topology(ABC):
    """What cluster and sentinels share: several servers with one life."""

    def __init__(self, *nodes: RedisServer, sentinels: Sequence[RedisServer] = ()) -> None:
        self.nodes, self.sentinels = list(nodes), list(sentinels)

    @property
    def password(self) -> str:
        """The password of every server that holds data."""
        return urlsplit(self.nodes[0].url()).password or ""

    @abstractmethod
    def is_whole(self) -> bool:
        """Tell whether every server is up and at its work."""

    def repair(self) -> None:
        """Start what is down and return when `is_whole()`. Data and ports are kept."""
        for server in (*self.nodes, *self.sentinels):
            server.start_again()
        wait_until(self.is_whole, what=f"a whole {type(self).__name__}")

    def close(self) -> None:
        """Stop every server and delete its data. Idempotent."""
        for server in (*self.nodes, *self.sentinels):
            server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RedisCluster(_Topology):
    """Masters that share the slots evenly: `with RedisCluster.start() as cluster: ...`.

    Their replicas, if there are some, stand behind them in `nodes`, in the same order.
    A node stops and starts by itself: `cluster.nodes[1].stop(mode="immediate")`; the slots of the
    others go on being served. Needs the package `redis`.
    """

    @classmethod
    def start(cls, nodes: int = 3, *, replicas: int = 0, settings: Mapping[str, str] = {}) -> Self:
        """Start *nodes* masters and return when each of them says `cluster_state:ok`.

        Each has *replicas*, and a replica takes over from a master that is down.
        It takes two seconds: so long a master waits before it serves. *settings* are lines of
        `valkey.conf`. Raises what `RedisServer.start` raises.
        """
        imported("redis", for_tests_with="Redis")
        password = secrets.token_hex(16)
        merged = {
            "requirepass": password,
            "masterauth": password,
            "repl-diskless-sync-delay": "0",
            "cluster-enabled": "yes",
            "cluster-announce-ip": "127.0.0.1",
            "cluster-node-timeout": "1000",
            "cluster-require-full-coverage": "no",  # else one stopped node stops them all
            **settings,
        }
        with contextlib.ExitStack() as undo:
            servers: list[RedisServer] = []
            for index in range(nodes):
                # The usual bus port, 10,000 above, may be one that the system lent to a client.
                bus = processes.free_port()
                node = RedisServer.start(settings={"cluster-port": str(bus), **merged})
                servers.append(undo.enter_context(node))
                # Epochs that differ from the start spare the nodes a round of conflicts.
                _ask(node, "CLUSTER", "SET-CONFIG-EPOCH", index + 1)
                begin, end = (_SLOTS * i // nodes for i in (index, index + 1))
                _ask(node, "CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
                _ask(servers[0], "CLUSTER", "MEET", "127.0.0.1", node.port, bus)
            masters = [(node, _ask(node, "CLUSTER", "MYID")) for node in servers]
            for master, name in masters * replicas:
                bus = processes.free_port()
                node = RedisServer.start(settings={"cluster-port": str(bus), **merged})
                servers.append(undo.enter_context(node))
                _ask(servers[0], "CLUSTER", "MEET", "127.0.0.1", node.port, bus)
                what = f"a replica that knows the master on port {master.port}"
                wait_until(functools.partial(_replicates, node, name), what=what)
            cluster = cls(*servers)
            cluster.repair()
            undo.pop_all()
        return cluster

    def url(self) -> str:
        """Return `redis+cluster://:password@host:port,host:port,...` with every node."""
        return f"redis+cluster://:{self.password}@{_hosts(self.nodes)}"

    def is_whole(self) -> bool:
        """Tell whether every node is up, knows all others and takes every slot for served."""
        wanted = {"cluster_state": "ok", "cluster_slots_ok": str(_SLOTS)}
        wanted["cluster_known_nodes"] = str(len(self.nodes))
        roles = [_ask(node, "ROLE") for node in self.nodes]
        return all(
            wanted.items() <= _ask(node, "CLUSTER INFO").items() for node in self.nodes
        ) and all(role[0] == "master" or role[3] == "connected" for role in roles)

    def owner_of(self, slot: int) -> int:
        """Return the index of the node that serves *slot*, as the first running node sees it."""
        slots = _ask(next(filter(_is_up, self.nodes)), "CLUSTER", "SLOTS")
        for begin, end, (_host, port, *_), *_replicas in slots:
            if begin <= slot <= end:
                return [node.port for node in self.nodes].index(port)
        raise LookupError(f"no node serves slot {slot}")

    def move_slot(self, slot: int, *, to: int, batch: int = 10) -> None:
        """Give *slot* with its keys to the node with index *to*, while clients read and write."""
        with self.moving_slot(slot, to=to) as move_keys:
            while move_keys(batch):
                pass

    @contextlib.contextmanager
    def moving_slot(self, slot: int, *, to: int) -> Iterator[Callable[[int], int]]:
        """Hold *slot* on its way to the node with index *to*: its owner answers `ASK`.

        Yields a function that moves at most so many keys and returns how many. On exit the others
        follow and every node learns of the new owner; an error leaves the slot halfway.
        """
        source, target = self.nodes[self.owner_of(slot)], self.nodes[to]
        if source is target:
            raise ValueError(f"slot {slot} is already with node {to}")
        source_id, target_id = (_ask(node, "CLUSTER", "MYID") for node in (source, target))

        def move_keys(count: int) -> int:
            keys = _ask(source, "CLUSTER", "GETKEYSINSLOT", slot, count)
            if keys:
                destination = ("127.0.0.1", target.port, "", 0, 5_000, "AUTH", self.password)
                _ask(source, "MIGRATE", *destination, "KEYS", *keys)
            return len(keys)

        # The target first: it must take whom the source sends on.
        _ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        _ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        yield move_keys
        while move_keys(100):
            pass
        # A source without keys gets no new ones: it sends their writers on.
        masters = [
            node for node in self.nodes if _is_up(node) and _ask(node, "ROLE")[0] == "master"
        ]
        for node in (target, source, *masters):
            _ask(node, "CLUSTER", "SETSLOT", slot, "NODE", target_id)


class _Sentinel(RedisServer):
    """A Valkey that keeps no data but an eye on those that do."""

    _arguments: ClassVar = ("--sentinel",)

    def start_again(self) -> None:
        super().start_again()
        _ask(self, "SENTINEL", "DEBUG", *_SENTINEL_PERIODS.split())


class RedisSentinel(_Topology):
    """A master, its replica and three sentinels: `with RedisSentinel.start() as sentinel: ...`.

    A write that only the master has is lost when it is killed, as everywhere; a test that counts
    writes sends `WAIT 1` after them. Needs the package `redis`.
    """

    @classmethod
    def start(cls, *, sentinel_password: bool = False) -> Self:
        """Start them and return when the replica follows and the sentinels know each other.

        With *sentinel_password* the sentinels too ask for the password, and `url()` says so. Raises
        what `RedisServer.start` raises.
        """
        imported("redis", for_tests_with="Redis")
        password = secrets.token_hex(16)
        data = {"requirepass": password, "masterauth": password, "repl-diskless-sync-delay": "0"}
        with contextlib.ExitStack() as undo:
            master = undo.enter_context(RedisServer.start(settings=data))
            data["replicaof"] = f"127.0.0.1 {master.port}"
            replica = undo.enter_context(RedisServer.start(settings=data))
            watch = {
                "requirepass": password if sentinel_password else "",
                "sentinel sentinel-pass": password if sentinel_password else "",
                "sentinel monitor": f"{_MASTER} 127.0.0.1 {master.port} 2",
                "sentinel auth-pass": f"{_MASTER} {password}",
                "sentinel down-after-milliseconds": f"{_MASTER} 500",
                "sentinel failover-timeout": f"{_MASTER} 3000",
            }
            sentinels = [undo.enter_context(_Sentinel.start(settings=watch)) for _ in range(3)]
            topology = cls(master, replica, sentinels=sentinels)
            topology.repair()
            undo.pop_all()
        return topology

    @property
    def master(self) -> RedisServer:
        """The master, as the first running sentinel names it."""
        return self._named_by(next(filter(_is_up, self.sentinels)))

    def url(self, db: int = 0) -> str:
        """Return `redis+sentinel://:password@host:port,.../mymaster/db` with every sentinel."""
        address = f"redis+sentinel://:{self.password}@{_hosts(self.sentinels)}/{_MASTER}/{db}"
        is_asked = "@" in self.sentinels[0].url()
        return f"{address}?sentinel_password={self.password}" if is_asked else address

    def is_whole(self) -> bool:
        """Tell whether all agree on the master, the replica follows and the sentinels watch."""
        for sentinel in self.sentinels:
            seen = _ask(sentinel, "SENTINEL", "MASTER", _MASTER)
            followers = _ask(sentinel, "SENTINEL", "REPLICAS", _MASTER)
            states = [(each["flags"], each["master-link-status"]) for each in followers]
            knows = (seen["flags"], seen["num-other-sentinels"], states)
            if knows != ("master", "2", [("slave", "ok")]):
                return False
        master, *others = {self._named_by(sentinel) for sentinel in self.sentinels}
        (replica,) = (node for node in self.nodes if node is not master)
        return (
            not others
            and _ask(master, "ROLE")[0] == "master"
            and _ask(replica, "ROLE")[:4] == ["slave", "127.0.0.1", master.port, "connected"]
        )

    def fail_over(self, *, gently: bool = False) -> RedisServer:
        """Make the replica the master; return it when every running sentinel names it.

        The old master is killed and stays down until `repair()`; *gently*, it waits for the
        replica and changes places with it, so that no write is lost. `repair()` between two.
        """
        old, watchers = self.master, list(filter(_is_up, self.sentinels))

        def is_over() -> bool:
            return old not in map(self._named_by, watchers)

        if not gently:
            old.stop(mode="immediate")
        for _ in range(4 if gently else 0):
            # On a busy computer the two now and then do not agree in time, and all stays as it was.
            with contextlib.suppress(Exception):  # one that is under way is not asked for twice
                _ask(watchers[0], "SENTINEL", "FAILOVER", _MASTER, "COORDINATED")
            with contextlib.suppress(RuntimeError):
                wait_until(is_over, what="a new master", seconds=8.0)
                break
        wait_until(is_over, what="a new master")
        return self.master

    def _named_by(self, sentinel: RedisServer) -> RedisServer:
        _, port = _ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", _MASTER)
        return next(node for node in self.nodes if node.port == int(port))


class TLSFront:
    """TLS before a `RedisServer` that speaks none: `with TLSFront.start(server) as front: ...`.

    It runs in a thread of its own and leaves the server to its owner. `ca_file` is for clients to
    trust, `client_file` a key with a certificate to show. Needs the package `trustme`.
    """

    def __init__(self, server: RedisServer, *, folder: Path, context: ssl.SSLContext) -> None:
        self.ca_file, self.client_file = folder / "ca.pem", folder / "client.pem"
        self.port = 0
        self._server, self._folder, self._is_up = server, folder, Event()
        # A daemon, for a front that nobody closes must not keep the program from its end.
        self._thread = Thread(target=lambda: asyncio.run(self._run(context)), daemon=True)

    @classmethod
    def start(
        cls,
        server: RedisServer,
        *,
        host_names: Sequence[str] = ("127.0.0.1", "localhost"),
        is_trusted: bool = True,
        wants_certificate: bool = False,
    ) -> Self:
        """Listen on a free port with a certificate for *host_names*.

        It is signed by the authority in `ca_file`, or by another one if not *is_trusted*. With
        *wants_certificate* clients must show one of that authority, such as `client_file`.
        """
        trustme = imported("trustme", for_tests_with="TLS")
        authority = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        (authority if is_trusted else trustme.CA()).issue_cert(*host_names).configure_cert(context)
        if wants_certificate:
            authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        front = cls(server, folder=processes.private_folder(), context=context)
        authority.cert_pem.write_to_path(front.ca_file)
        client = authority.issue_cert("client.example")
        client.private_key_and_cert_chain_pem.write_to_path(front.client_file)
        front._thread.start()
        front._is_up.wait(10.0)
        return front

    def url(self, db: int = 0) -> str:
        """Return the address of database *db* with the server's password in it."""
        parts = urlsplit(self._server.url(db))
        netloc = parts.netloc.replace(f":{self._server.port}", f":{self.port}")
        return parts._replace(scheme="rediss", netloc=netloc).geturl()

    def close(self) -> None:
        """Hang up on every client and remove the certificates. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
            processes.remove_folder(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _run(self, context: ssl.SSLContext) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = listener.sockets[0].getsockname()[1]
        self._is_up.set()
        await self._end.wait()
        listener.close()  # and `asyncio.run` cancels the connections

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        writers = [writer]
        try:
            answers, inner = await asyncio.open_connection("127.0.0.1", self._server.port)
            writers.append(inner)
            await asyncio.gather(_pass_on(reader, inner), _pass_on(answers, writer))
        except (OSError, asyncio.CancelledError):  # the server is down, or we are to end
            for end in writers:
                end.transport.abort()  # a farewell would wait for the client's


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """One cluster of three for the run; without the packages, tests skip."""
    with _started(RedisCluster.start) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def redis_sentinel() -> Iterator[RedisSentinel]:
    """One master with replica and sentinels for the run; without the packages, tests skip."""
    with _started(RedisSentinel.start) as sentinel:
        yield sentinel


@pytest.fixture(scope="session")
def redis_tls() -> Iterator[TLSFront]:
    """One Redis behind TLS for the run; without the packages, tests skip."""
    with _started(RedisServer.start) as server, _started(lambda: TLSFront.start(server)) as front:
        yield front


def _started(start: Callable[[], _Started]) -> _Started:
    try:
        return start()
    except ModuleNotFoundError as exc:
        require_or_skip(str(exc))


def _ask(server: RedisServer, *words: str | int) -> Any:
    driver = imported("redis", for_tests_with="Redis")
    # In protocol 2 some answers are lists where here they are mappings; a key may be any bytes.
    options = {"protocol": 3, "decode_responses": True, "encoding_errors": "surrogateescape"}
    with driver.Redis.from_url(server.url(), socket_timeout=10.0, **options) as client:
        return client.execute_command(*words)


def _replicates(node: RedisServer, name: str) -> bool:
    """Make *node* a replica of the master of that name; tell whether it knows it by now."""
    with contextlib.suppress(Exception):  # `Unknown node`, until the two have met
        return bool(_ask(node, "CLUSTER", "REPLICATE", name))
    return False


async def _pass_on(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


def _hosts(servers: Sequence[RedisServer]) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in servers)


def _is_up(server: RedisServer) -> bool:
    return server.pid is not None
