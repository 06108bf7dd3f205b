"""Hostile neighbours of a server: requests of one key that are as expensive as it may make them.

Each is sent by a process of its own, so that what the victim waits for is the server alone.
"""

import asyncio
import http.client
import json
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

__all__ = ["NEIGHBOURS", "Neighbour", "Waited", "hold_connections", "wait_alone", "wait_beside"]

_EVERY = 0.005
"""Seconds between two questions of the victim."""

_ENOUGH = 10.0
"""Seconds after which a hostile request is not sent once more."""

_AFTER = 0.3
"""Seconds that the victim goes on asking after the answer: what was set off may still work."""


class Connection(Protocol):
    """What the victim asks through."""

    async def open(self) -> object: ...
    async def ask(self, verb: str, path: str, body: object = None) -> tuple[int, bytes]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class Neighbour:
    """One hostile request, and what its key does before it."""

    name: str
    verb: str
    path: str
    make: Callable[[], bytes]
    prepare: Callable[[], Sequence[tuple[str, bytes]]] = tuple


@dataclass(frozen=True)
class Waited:
    """What happened beside a hostile request."""

    status: int
    longest: float
    """The longest wait of the victim, in seconds: the median of the runs."""
    took: float
    """How long the hostile request took, in seconds."""


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _nested(depth: int) -> object:
    where: object = {"a": 1}
    for _ in range(depth):
        where = {"$not": where}
    return where


def _large(count: int, size: int) -> Sequence[tuple[str, bytes]]:
    words = "tea coffee harbour invoice garden "
    text = words * (size // len(words))
    return [("/v1/memories", _json({"what": f"{n} {text}"})) for n in range(count)]


def _long_chat(count: int) -> Sequence[tuple[str, bytes]]:
    said = [{"role": "user", "content": f"{n} {'tea ' * 200}"} for n in range(count)]
    return [
        ("/v1/chats/long/messages", _json({"what": said[n : n + 500]}))
        for n in range(0, count, 500)
    ]


def _padded(fill: str, size: int = 16_000_000) -> bytes:
    """Return a body of *size* bytes that is one list of *fill*."""
    return b'{"things":[' + b",".join([fill.encode()] * (size // (len(fill) + 1))) + b"]}"


NEIGHBOURS = (
    Neighbour("100,000 small texts", "POST", "/v1/memories/batch",
              lambda: _json({"things": ["x"] * 100_000})),
    Neighbour("100,000 messages", "POST", "/v1/chats/big/messages",
              lambda: _json({"what": [{"role": "user", "content": "x"}] * 100_000})),
    Neighbour("16 MB of empty lists", "POST", "/v1/memories/batch", lambda: _padded("[]")),
    Neighbour("16 MB of empty objects", "POST", "/v1/memories/batch", lambda: _padded("{}")),
    Neighbour("16 MB of numbers", "POST", "/v1/memories/batch", lambda: _padded("1")),
    Neighbour("16 MB of escapes in a text", "POST", "/v1/memories",
              lambda: b'{"what":"' + b"a\\n" * 5_300_000 + b'"}'),
    Neighbour("8 MB of escapes in a text", "POST", "/v1/memories",
              lambda: b'{"what":"' + b"a\\n" * 2_700_000 + b'"}'),
    Neighbour("300,000 values in a filter", "POST", "/v1/recall",
              lambda: b'{"query":"x","where":{"a":[' + b",".join([b"[]"] * 300_000) + b"]}}"),
    Neighbour("1,990 values in a filter", "POST", "/v1/recall",
              lambda: _json({"query": "tea", "where": {"a": {"$in": list(range(1_990))}}})),
    Neighbour("2,500 conditions", "POST", "/v1/memories/query",
              lambda: _json({"where": {"$or": [{f"n{n}": n} for n in range(2_500)]}})),
    Neighbour("250 conditions", "POST", "/v1/memories/query",
              lambda: _json({"where": {"$or": [{f"n{n}": n} for n in range(250)]}})),
    Neighbour("a filter 60 deep", "POST", "/v1/memories/query",
              lambda: _json({"where": _nested(58)})),
    Neighbour("1,000 small texts", "POST", "/v1/memories/batch",
              lambda: _json({"things": [f"{n} tea" for n in range(1_000)]})),
    Neighbour("1,000 messages", "POST", "/v1/chats/big/messages",
              lambda: _json({"what": [{"role": "user", "content": f"{n}"} for n in range(1_000)]})),
    Neighbour("49,000 values in a memory", "POST", "/v1/memories",
              lambda: _json({"what": {"role": "user", "content": "x", "m": ["y" * 150] * 49_000}})),
    Neighbour("49,000 labels of a memory", "POST", "/v1/memories",
              lambda: _json({"what": "x", "extra": {f"k{n}": n for n in range(49_000)}})),
    Neighbour("a chat of 10,000 messages", "GET", "/v1/chats/long/messages", lambda: b"",
              lambda: _long_chat(10_000)),
    Neighbour("its items", "GET", "/v1/chats/long/items", lambda: b""),
    Neighbour("its context", "POST", "/v1/chats/long/context",
              lambda: _json({"task": "tea", "memory_limit": 1_000})),
    Neighbour("recall of 10 memories of 1 MB", "POST", "/v1/recall",
              lambda: _json({"query": "tea harbour", "k": 10}), lambda: _large(10, 1_000_000)),
    Neighbour("their context, with the largest budget", "POST", "/v1/context",
              lambda: _json({"task": "tea harbour", "budget": 1_000_000})),
    Neighbour("recall with a query of 1 MB", "POST", "/v1/recall",
              lambda: _json({"query": "tea harbour " * 80_000, "k": 1_000})),
    Neighbour("a text of 1 MB", "POST", "/v1/memories",
              lambda: _json({"what": "tea harbour " * 83_000})),
    Neighbour("a message of 300 KB", "POST", "/v1/chats/wide/messages",
              lambda: _json({"what": [{"role": "user", "content": "tea harbour " * 25_000}]})),
    Neighbour("a context for a task of 300 KB", "POST", "/v1/chats/wide/context",
              lambda: _json({"task": "tea harbour " * 25_000})),
    Neighbour("1,000 texts of 15 KB", "POST", "/v1/memories/batch",
              lambda: _json({"things": [f"{n} {'tea ' * 3_750}" for n in range(1_000)]})),
    Neighbour("a page of 40 memories of 1 MB", "GET", "/v1/memories?limit=1000", lambda: b"",
              lambda: _large(40, 1_000_000)),
    Neighbour("recall of 40 memories of 1 MB", "POST", "/v1/recall",
              lambda: _json({"query": "tea harbour", "k": 1_000, "explain": True})),
)  # fmt: skip


def _send(port: int, key: str, verb: str, path: str, body: bytes) -> tuple[int, float]:
    """Send one request, and read all of the answer; return its status and its seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    began = perf_counter()
    try:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request(verb, path, body, headers)
        answer = connection.getresponse()
        while answer.read(1 << 20):
            pass
        return answer.status, perf_counter() - began
    except OSError:
        return 0, perf_counter() - began
    finally:
        connection.close()


async def wait_beside(
    neighbour: Neighbour, *, port: int, key: str, victim: Connection, runs: int
) -> Waited:
    """Return how long *victim* waits for `/healthz` at most while *neighbour* has its request."""
    loop = asyncio.get_running_loop()
    body = neighbour.make()
    with ProcessPoolExecutor(1) as apart:
        for path, before in neighbour.prepare():
            status, _ = await loop.run_in_executor(apart, _send, port, key, "POST", path, before)
            assert status == 201, (neighbour.name, status)
        await loop.run_in_executor(apart, _send, port, key, "GET", "/healthz", b"")
        await victim.open()  # what idles is cut off
        longest: list[float] = []
        statuses: list[int] = []
        times: list[float] = []
        while len(times) < runs and sum(times) < _ENOUGH:
            asked = loop.run_in_executor(
                apart, _send, port, key, neighbour.verb, neighbour.path, body
            )
            longest.append(await _longest(victim, asked))
            status, took = await asked
            statuses.append(status)
            times.append(took)
    return Waited(statuses[-1], statistics.median(longest), statistics.median(times))


async def wait_alone(victim: Connection) -> float:
    """Return how long *victim* waits at most beside nothing: what the machine itself does."""
    return await _longest(victim, asyncio.ensure_future(asyncio.sleep(2)))


async def _longest(victim: Connection, asked: "asyncio.Future[Any]") -> float:
    """Return the longest wait until *asked* is done, and a little longer."""
    longest, until = 0.0, None
    while until is None or perf_counter() < until:
        began = perf_counter()
        status, _ = await victim.ask("GET", "/healthz")
        assert status in (200, 429), status
        longest = max(longest, perf_counter() - began)
        if until is None and asked.done():
            until = perf_counter() + _AFTER
        await asyncio.sleep(_EVERY)
    return longest


async def hold_connections(
    make: Callable[[str], Connection], key: str, others: Sequence[str], *, count: int
) -> tuple[list[int], list[int]]:
    """Have *key* hold *count* connections; return how these and those of *others* are answered.

    A connection that is refused or cut counts as 0.
    """
    held: list[Connection] = []
    mine = [await _status(make(key), held) for _ in range(count)]
    theirs = [await _status(make(each), held) for each in others]
    for connection in held:
        await connection.close()
    return mine, theirs


async def _status(connection: Connection, held: list[Connection]) -> int:
    try:
        await connection.open()
        held.append(connection)
        status, _ = await asyncio.wait_for(connection.ask("GET", "/healthz"), 10)
    except (OSError, EOFError, TimeoutError):
        return 0
    return status
