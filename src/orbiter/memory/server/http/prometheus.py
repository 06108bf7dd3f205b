"""Prometheus metrics of the server, and the port that serves them alone to one without a key.

No id, no text and no name is in a label.
"""

import asyncio
import os
import socket
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import accumulate
from pathlib import Path

from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbiter.memory.agent.telemetry import request_span
from orbiter.memory.backends.pool_counts import live_pools
from orbiter.memory.errors import MemoryConnectionError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server.api.routing import BASE, TEMPLATE, resolve, segments_of
from orbiter.memory.server.http.access_log import (
    log_begin,
    log_request,
    logs_begin,
    request_id,
)
from orbiter.memory.server.http.activity import Activity
from orbiter.memory.server.http.error_responses import ConnectionCut, HTTPProblem
from orbiter.memory.server.http.worker_link import Alone
from orbiter.memory.wire.problems import REQUEST_ID

__all__ = ["Metrics", "MetricsMiddleware", "route_template", "serve_metrics"]

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_HELP = {
    "orbiter_requests_total": ("counter", "Requests, by route, method and kind of status."),
    "orbiter_request_seconds": (
        "histogram",
        "Seconds until a request was answered to its end, by route.",
    ),
    "orbiter_events_total": ("counter", "Changes of memories, by kind."),
    "orbiter_memories": ("gauge", "Memories in the store, the forgotten ones aside."),
    "orbiter_store_bytes": ("gauge", "Bytes of the store."),
    "orbiter_store_free_bytes": ("gauge", "Bytes that are free on the disk of a SQLite file."),
    "orbiter_memories_without_vector": ("gauge", "Memories that wait to be embedded."),
    "orbiter_pool_connections": (
        "gauge",
        "Connections to the database, by pool: those in use, and those that are idle.",
    ),
    "orbiter_pool_max_connections": ("gauge", "Connections that a pool may have at most."),
    "orbiter_pool_waiting": ("gauge", "Calls that wait for a connection now, by pool."),
    "orbiter_pool_acquired_total": ("counter", "Connections that calls have asked for, by pool."),
    "orbiter_pool_wait_seconds_total": (
        "counter",
        "Seconds that calls have waited for a connection, by pool.",
    ),
    "orbiter_pool_timeouts_total": (
        "counter",
        "Calls that got no connection in time, by pool.",
    ),
    "orbiter_listeners": ("gauge", "Clients that follow the changes now."),
    "orbiter_workers": ("gauge", "Processes that serve requests."),
    "orbiter_worker_restarts_total": (
        "counter",
        "Processes that ended by themselves and were replaced.",
    ),
    "process_cpu_seconds_total": (
        "counter",
        "CPU time of all workers, also of those that have ended.",
    ),
    "process_resident_memory_bytes": ("gauge", "Memory of all workers."),
    "process_open_fds": ("gauge", "Files and sockets that all workers have open."),
}
"""What every metric is, as `/metrics` tells it. Those of the process are named as everywhere."""


class Metrics:
    """Counts of one server since it began."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._took: dict[str, list[int]] = {}
        """By route, how many requests took a time between one of `_BOUNDS` and the next."""
        self._seconds: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._process: Counter[str] = Counter()
        self._pools: Counter[tuple[str, str]] = Counter()
        """By metric and labels; only in a total."""
        self.listeners = 0
        self.workers = 1
        self.restarts = 0
        self.activity = Activity()

    def note_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered with *status*; zero if it never was."""
        kind = f"{status // 100}xx" if status else "cut"
        self._requests[route, method if method in _METHODS else "other", kind] += 1
        if kind == "2xx":
            self.activity.note_request(route, method, seconds)
        self._seconds[route] += seconds  # type: ignore[assignment]  # a sum, as it were
        counts = self._took.setdefault(route, [0] * (len(_BOUNDS) + 1))
        counts[bisect_left(_BOUNDS, seconds)] += 1

    def note_event(self, kind: str, scope: MemoryMetadata) -> None:
        """Count something that happened in the memory."""
        self._events[kind] += 1
        self.activity.note_event(kind, scope)

    # Of several workers

    def share(self, link: Alone) -> None:
        """Have the other workers of a server ask for these counts; within a running loop."""

        async def answer(_: object) -> dict[str, float]:
            return self.counts()

        link.on("counts", answer)
        link.start(self.counts)

    async def total(self, link: Alone) -> "Metrics":
        """Return these counts and those of all other workers, also of those that have ended."""
        total = Metrics()
        for counts in (self.counts(), *await link.ask("counts", None)):
            total._add(counts)
        return total

    def counts(self) -> dict[str, float]:
        """Return everything as numbers that can be added; `~` begins what is there now."""
        flat: dict[str, float] = {"~listeners": self.listeners, **_of_this_process(), **_of_pools()}
        flat |= {"\t".join(("requests", *key)): n for key, n in self._requests.items()}
        flat |= {f"seconds\t{route}": n for route, n in self._seconds.items()}
        flat |= {f"events\t{kind}": n for kind, n in self._events.items()}
        for route, counts in self._took.items():
            flat |= {f"took\t{route}\t{index}": n for index, n in enumerate(counts)}
        return flat

    def _add(self, counts: Mapping[str, float]) -> None:
        for name, count in counts.items():
            kind, *key = name.split("\t")
            if kind == "requests":
                self._requests[key[0], key[1], key[2]] += int(count)
            elif kind == "took":
                took = self._took.setdefault(key[0], [0] * (len(_BOUNDS) + 1))
                took[int(key[1])] += int(count)
            elif kind == "seconds":
                self._seconds[key[0]] += count  # type: ignore[assignment]  # a sum, as it were
            elif kind == "events":
                self._events[key[0]] += int(count)
            elif kind == "~listeners":
                self.listeners += int(count)
            elif kind.removeprefix("~") == "process":
                self._process[key[0]] += count  # type: ignore[assignment]  # a sum, as it were
            elif kind.removeprefix("~") == "pool":
                self._pools[key[0], key[1]] += count  # type: ignore[assignment]  # a sum, as it were
            elif kind == "~workers":
                self.workers = int(count)
            elif kind == "restarts":
                self.restarts = int(count)

    def lines(self, store: dict[str, float]) -> list[str]:
        """Return everything, with what is known of the *store*."""
        lines = _head("orbiter_requests_total")
        totals: Counter[str] = Counter()
        for (route, method, kind), count in sorted(self._requests.items()):
            totals[route] += count
            labels = f'route="{route}",method="{method}",status="{kind}"'
            lines.append(f"orbiter_requests_total{{{labels}}} {count}")
        lines += _head("orbiter_request_seconds")
        for route, total in sorted(totals.items()):
            name = f'orbiter_request_seconds_bucket{{route="{route}",le='
            within = zip(_BOUNDS, accumulate(self._took[route]), strict=False)
            lines += [f'{name}"{bound}"}} {count}' for bound, count in within]
            lines.append(f'{name}"+Inf"}} {total}')
            lines.append(
                f'orbiter_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            )
            lines.append(f'orbiter_request_seconds_count{{route="{route}"}} {total}')
        lines += _head("orbiter_events_total")
        for kind, count in sorted(self._events.items()):
            lines.append(f'orbiter_events_total{{kind="{kind}"}} {count}')
        for name in filter(lambda name: name.startswith("orbiter_pool_"), _HELP):
            rows = sorted(
                (labels, n) for (metric, labels), n in self._pools.items() if metric == name
            )
            lines += [*_head(name), *(f"{name}{{{labels}}} {n:.15g}" for labels, n in rows)]
        numbers = {
            **{f"orbiter_{name}": value for name, value in store.items()},
            "orbiter_listeners": self.listeners,
            "orbiter_workers": self.workers,
            "orbiter_worker_restarts_total": self.restarts,
            **{f"process_{name}": value for name, value in self._process.items()},
        }
        for name, value in numbers.items():
            lines += [*_head(name), f"{name} {value:.15g}"]
        return lines


def _head(name: str) -> list[str]:
    kind, text = _HELP[name]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _of_this_process() -> dict[str, float]:
    """Return what this process costs, as far as the system tells."""
    costs = {"process\tcpu_seconds_total": round(time.process_time(), 1)}
    with suppress(OSError, ValueError):  # only Linux has these files
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        costs["~process\tresident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
        costs["~process\topen_fds"] = len(list(Path("/proc/self/fd").iterdir()))
    return costs


def _of_pools() -> Counter[str]:
    """Return the counts of the connection pools of this process; several of one name together."""
    counts: Counter[str] = Counter()
    for pool in live_pools():
        sizes, label = pool.sizes(), f'pool="{pool.name}"'
        now = {
            f'connections\t{label},state="used"': sizes.used,
            f'connections\t{label},state="idle"': sizes.idle,
            f"max_connections\t{label}": sizes.max,
            f"waiting\t{label}": pool.waiting,
        }
        ever = {
            f"acquired_total\t{label}": pool.acquired,
            f"wait_seconds_total\t{label}": round(pool.wait_seconds, 6),
            f"timeouts_total\t{label}": pool.timeouts,
        }
        counts.update({f"~pool\torbiter_pool_{name}": count for name, count in now.items()})
        counts.update({f"pool\torbiter_pool_{name}": count for name, count in ever.items()})
    return counts


class MetricsMiddleware:
    """Counts what comes and goes, refused or not, and names each request in its answer.

    With *with_log* each has a line in the log; with OpenTelemetry, each is a span.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, with_log: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._with_log = with_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, request = time.perf_counter(), 0, request_id(scope)

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", request.encode())
                message = {**message, "headers": [*message.get("headers", ()), named]}
            await send(message)

        method = scope["method"] if scope["method"] in _METHODS else "other"
        if logs_begin():
            log_begin(method=method, route=route_template(scope), request=request)
        token = REQUEST_ID.set(request)
        with request_span(method, scope["headers"]) as record:
            try:
                await self._app(scope, receive, noting)
            except ConnectionCut:
                pass  # told and logged where it was raised; the server closes the connection
            finally:
                REQUEST_ID.reset(token)
                took, route = time.perf_counter() - begun, route_template(scope)
                record(route, status, request)
                counted = "refused" if _lacks_key(scope, status) else route
                self._metrics.note_request(counted, scope["method"], status, took)
                if self._with_log:
                    named = {"method": method, "route": route, "request": request}
                    log_request(scope, status=status, seconds=took, **named)


def route_template(scope: Scope) -> str:
    """Return which route a request took, with the names of its parts and not what they were.

    Of one that was refused before, it is the route that it would have taken.
    """
    known = scope.get(TEMPLATE) or getattr(scope.get("route"), "path", None)
    if known is None and "route" not in scope:
        routes = (each for each in scope["app"].routes if hasattr(each, "path"))
        known = next((each.path for each in routes if each.matches(scope)[0] is Match.FULL), None)
    if known is None and scope["path"].startswith(f"{BASE}/"):
        with suppress(HTTPProblem):
            matched = resolve(segments_of(scope), scope["method"])
            known = None if matched == "OPTIONS" else matched.template
    return str(known) if known else "none"


def _lacks_key(scope: Scope, status: int) -> bool:
    """Tell whether a request was refused as nobody's: without a key, or with a wrong one."""
    return status in (401, 403, 429) and "principal" not in scope.get("state", {})


_PATIENCE = 5.0
"""Seconds for a client to send its request and to take the answer."""
_MAX_CLIENTS = 32
_HEAD_BYTES = 8_192


@asynccontextmanager
async def serve_metrics(
    read: Callable[[], Awaitable[str]], *, host: str, port: int, is_shared: bool
) -> AsyncIterator[int]:
    """Answer `GET /metrics` with what *read* returns while the block runs; give the port.

    It answers that one path, without a key. Workers of one server share the port, and each answers
    for all of them.
    """
    clients: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(clients) >= _MAX_CLIENTS:
            writer.transport.abort()
            return
        clients.add(task)
        try:
            async with asyncio.timeout(_PATIENCE):
                await _answer(reader, writer, read)
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass  # whoever is late, or sends no request, is cut off
        finally:
            clients.discard(task)
            writer.transport.abort()

    reuse = is_shared and hasattr(socket, "SO_REUSEPORT")
    try:
        server = await asyncio.start_server(
            accept, host, port, limit=_HEAD_BYTES, reuse_port=reuse or None
        )
    except OSError as exc:
        why = exc.strerror if exc.errno is None else os.strerror(exc.errno)
        raise MemoryConnectionError(
            f"port {port} of `{host}` cannot be served: {why}; choose another with `--metrics-port`"
        ) from exc
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in clients:
            task.cancel()
        if clients:
            await asyncio.wait(clients)
        await server.wait_closed()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, read: Callable[[], Awaitable[str]]
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    is_right = len(words) == 3 and words[0] in (b"GET", b"HEAD")
    if is_right and words[1].partition(b"?")[0] == b"/metrics":
        status, kind, text = "200 OK", "text/plain; version=0.0.4; charset=utf-8", await read()
    else:
        status, kind, text = "404 Not Found", "text/plain", "only `GET /metrics` is here\n"
    body = text.encode()
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    if words[0] != b"HEAD":
        writer.write(body)
    await writer.drain()
    writer.write_eof()
    with suppress(OSError):  # until the client has it all, and closes
        while await reader.read(_HEAD_BYTES):
            pass
