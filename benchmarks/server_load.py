"""A server under 200 clients that write and recall at once, beside a bare app that only echoes.

`orbiter-memory serve` runs as users run it: a process of its own, keys, a SQLite file and the local
model. Every client has one connection and waits for each answer; half of what it sends stores a
memory, half recalls. Then all of them only write, and all only recall, for a quarter of the time
each, and every acknowledged memory is looked for. The bare app is Starlette on the same uvicorn,
which reads a body and sends it back, in pure Python as it comes without extras.

Then one key is hostile: it sends the most expensive requests that we know, and holds a thousand
connections, while another key asks for `/healthz` all the time. What that one waits is measured.

    python -m benchmarks.server_load [--seconds 60] [--clients 200] [--model auto | none]
                                     [--only load | neighbours | workers]

`--only workers` compares one process with two (`serve --workers 2`). The clients need a core of
their own: on a machine with two, the second worker has what they leave.

`--model none` leaves the embedding out: recalls by words.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from benchmarks._neighbours import NEIGHBOURS, hold_connections, wait_alone, wait_beside
from benchmarks._timing import Table, duration, exit_code

from orbiter.memory import AgentMemory, LocalEmbeddings
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryMetadata

USERS = 20
GROWTH = 60_000_000
"""Bytes that the server may grow by from half time on: its caches fill, a leak does not stop."""

LONGEST_WAIT = 0.1
"""Seconds that nobody may wait beside one request of another key."""

LONGEST_STOP = 180.0
"""Seconds after which a server that was asked to stop counts as hung."""

CONNECTIONS = 1_000
BOTH, WRITES, RECALLS, BARE = "writes and recalls", "writes alone", "recalls alone", "echo"
SPEED = 0.2
"""Writes and recalls in turn, against echoes: 800 a second on two quiet cores, which echo 4,100."""

SLOWEST_RECALL = 1.0
"""Seconds within which 99 of 100 recalls are answered."""

WORDS = [
    "tea",
    "coffee",
    "harbour",
    "invoice",
    "garden",
    "ticket",
    "Vienna",
    "Lisbon",
    "train",
    "peanut",
    "review",
    "deploy",
    "budget",
    "swim",
    "guitar",
    "passport",
    "dentist",
    "winter",
    "market",
    "bridge",
    "lantern",
    "river",
    "cedar",
    "copper",
    "window",
]


ECHO = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")

app = Starlette(routes=[Route("/{rest:path}", echo, methods=["GET", "POST"])])
uvicorn.run(
    app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False,
    http="h11", loop="asyncio",
)
"""
"""As uvicorn comes without its extras, whatever else is installed: the bars were set beside it."""


@dataclass
class Tally:
    """What the clients saw."""

    seconds: float
    taken: dict[str, list[float]] = field(default_factory=lambda: {"write": [], "recall": []})
    stored: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def count(self) -> int:
        return sum(map(len, self.taken.values()))

    def speed(self) -> float:
        """Return the requests of a second."""
        return self.count() / self.seconds

    def slow(self, name: str, part: float) -> float:
        found = sorted(self.taken[name])
        return found[min(len(found) - 1, int(len(found) * part))] if found else 0.0


class Connection:
    """HTTP/1.1 with keep-alive in a few lines: a full client costs more than the server."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"

    async def open(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def ask(self, verb: str, path: str, body: object = None) -> tuple[int, bytes]:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{verb} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n"
        self._writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + data)
        await self._writer.drain()
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(answer.split(" ", 2)[1])
        lines = answer.lower().split("\r\n")
        sizes = [int(line.split(":")[1]) for line in lines if line.startswith("content-length:")]
        return status, await self._reader.readexactly(sizes[0]) if sizes else b""

    async def close(self) -> None:
        self._writer.close()


async def client(
    number: int, port: int, key: str, until: float, tally: Tally, *, writes: float
) -> None:
    dice = random.Random(number)
    connection = await Connection(port, key).open()
    turn = 0
    while perf_counter() < until:
        turn += 1
        words = " ".join(dice.choices(WORDS, k=8))
        is_write = dice.random() < writes
        path = "/v1/memories" if is_write else "/v1/recall"
        body = {"what": f"{number}.{turn}: {words}"} if is_write else {"query": words, "k": 5}
        began = perf_counter()
        status, answer = await connection.ask("POST", path, body)
        tally.taken["write" if is_write else "recall"].append(perf_counter() - began)
        if status not in (200, 201):
            tally.errors.append(f"{status} {answer[:120]!r}")
        elif is_write:
            tally.stored.append((key, json.loads(answer).get("id", "")))
    await connection.close()


async def load(
    port: int, keys: Sequence[str], pid: int, *, clients: int, seconds: float, writes: float = 0.5
) -> Tally:
    """Have all clients send requests, of which the part *writes* store something."""
    tally = Tally(seconds)
    began = perf_counter()
    until = began + seconds

    async def watch() -> None:
        while perf_counter() < until:
            await asyncio.sleep(1)
            tally.sizes.append(resident(pid))
            left = int(until - perf_counter())
            sys.stderr.write(f"\r    {tally.count():,} requests, {max(left, 0)} s left ")

    work = [
        client(n, port, keys[n % len(keys)], until, tally, writes=writes) for n in range(clients)
    ]
    await asyncio.gather(watch(), *work)
    sys.stderr.write("\r" + " " * 60 + "\r")
    return tally


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def handles_of(pid: int) -> int:
    """Return how many files and sockets a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def missing(port: int, stored: Sequence[tuple[str, str]]) -> int:
    """Return how many acknowledged memories are not there."""
    lost = 0
    by_key: dict[str, list[str]] = {}
    for key, item_id in stored:
        by_key.setdefault(key, []).append(item_id)
    for key, item_ids in by_key.items():
        connection = await Connection(port, key).open()
        found: set[str] = set()
        cursor = ""
        while True:
            status, answer = await connection.ask("GET", f"/v1/memories?limit=1000{cursor}")
            assert status == 200, answer
            page = json.loads(answer)
            found |= {item["id"] for item in page["items"]}
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        await connection.close()
        lost += len(set(item_ids) - found)
    return lost


@asynccontextmanager
async def running(*args: str, port: int) -> AsyncIterator[int]:
    """Run Python with *args* until it listens; end it afterwards."""
    child = await asyncio.create_subprocess_exec(sys.executable, *args)
    try:
        for _ in range(600):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                break
        yield child.pid
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(child.wait(), LONGEST_STOP)
        except TimeoutError:
            child.kill()
            await child.wait()
            raise TimeoutError(f"process {child.pid} did not stop in {LONGEST_STOP:g} s") from None


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def measure(given: argparse.Namespace, folder: Path) -> tuple[dict[str, Tally], int]:
    """Return what the clients saw of the server and of the echo, and how much is lost."""
    path, port = folder / "agent.db", free_port()
    async with AgentMemory(path, embeddings=None):
        pass  # the file is there before the server
    kept = KeyFile(folder / "keys.json")
    keys = [
        kept.create(scope=MemoryMetadata(user_id=f"user-{n}"), role="write")[1]
        for n in range(USERS)
    ]
    serve = ("-m", "orbiter.memory.cli", "serve", "--url", str(path), "--port", str(port))
    more = ("--keys", str(folder / "keys.json"), "--rate", "100000", "--model", given.model)
    found: dict[str, Tally] = {}
    count, part = given.clients, given.seconds / 4
    async with running(*serve, *more, port=port) as pid:
        found[BOTH] = await load(port, keys, pid, clients=count, seconds=given.seconds)
        for name, writes in ((WRITES, 1.0), (RECALLS, 0.0)):
            found[name] = await load(port, keys, pid, clients=count, seconds=part, writes=writes)
        lost = await missing(port, [each for tally in found.values() for each in tally.stored])
    port = free_port()
    async with running("-c", ECHO, str(port), port=port) as pid:
        found[BARE] = await load(port, keys, pid, clients=count, seconds=part)
    return found, lost


def model_speed(seconds: float) -> float:
    """Return how many such texts the model alone embeds in a second, on all cores."""
    embeddings, dice = LocalEmbeddings(), random.Random(0)
    embeddings.embed("loads it")
    until = perf_counter() + seconds

    def work(_: int) -> int:
        count = 0
        while perf_counter() < until:
            embeddings.embed(" ".join(dice.choices(WORDS, k=8)))
            count += 1
        return count

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as threads:
        return sum(threads.map(work, range(cores))) / seconds


async def measure_workers(given: argparse.Namespace, folder: Path) -> Table:
    """Return how many requests a second one process answers, and two."""
    speeds: dict[int, dict[str, float]] = {}
    sizes: dict[int, int] = {}
    for workers in (1, 2):
        port, place = free_port(), folder / f"{workers}"
        place.mkdir()
        keys_file = KeyFile(place / "keys.json")
        keys = [
            keys_file.create(scope=MemoryMetadata(user_id=f"user-{n}"), role="write")[1]
            for n in range(USERS)
        ]
        serve = ("-m", "orbiter.memory.cli", "serve", "--url", str(place / "agent.db"))
        more = ("--port", str(port), "--keys", str(place / "keys.json"), "--model", given.model)
        async with running(
            *serve, *more, "--rate", "100000", "--workers", str(workers), port=port
        ) as pid:
            await asyncio.sleep(10)  # until the second one serves, too
            count, part = given.clients, given.seconds / 4
            speeds[workers] = {
                name: (
                    await load(port, keys, pid, clients=count, seconds=part, writes=writes)
                ).speed()
                for name, writes in ((BOTH, 0.5), (WRITES, 1.0), (RECALLS, 0.0))
            }
            sizes[workers] = resident(pid) + sum(map(resident, children(pid)))
    table = Table("Server: one process and two", "requests a second", "1 worker", "2 workers")
    for name in speeds[1]:
        one, two = speeds[1][name], speeds[2][name]
        table.add(name, f"{one:,.0f}", f"{two:,.0f}", measured=f"{two / one:.2f}")
    table.add("memory of all processes, MB", *(f"{size / 1e6:,.0f}" for size in sizes.values()))
    return table


def children(pid: int) -> list[int]:
    """Return the processes that a process has begun."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(each) for each in text.split()]


async def measure_neighbours(folder: Path) -> Table:
    path, port = folder / "agent.db", free_port()
    async with AgentMemory(path, embeddings=None):
        pass
    kept = KeyFile(folder / "keys.json")
    hostile, victim_key, *others = [
        kept.create(scope=MemoryMetadata(user_id=f"user-{n}"), role="write")[1] for n in range(12)
    ]
    serve = ("-m", "orbiter.memory.cli", "serve", "--url", str(path), "--port", str(port))
    more = ("--keys", str(folder / "keys.json"), "--rate", "100000")
    table = Table("Server: a hostile neighbour", "what its key sends", "answer", "took")
    async with running(*serve, *more, port=port) as pid:
        mine, theirs = await hold_connections(
            lambda key: Connection(port, key), hostile, others, count=CONNECTIONS
        )
        victim = await Connection(port, victim_key).open()
        await victim.ask("POST", "/v1/recall", {"query": "tea"})  # loads the model
        alone = await wait_alone(victim)
        table.add("nothing", "", "", measured=duration(alone))
        for each in NEIGHBOURS:
            sys.stderr.write(f"\r    {each.name:40} ")
            found = await wait_beside(each, port=port, key=hostile, victim=victim, runs=3)
            table.add(
                each.name,
                str(found.status),
                duration(found.took),
                measured=duration(found.longest),
                bar=f"<= {duration(LONGEST_WAIT)}",
                ok=found.longest <= LONGEST_WAIT,
            )
        size = resident(pid)
    sys.stderr.write("\r" + " " * 60 + "\r")
    table.add(
        f"{CONNECTIONS:,} connections: others let in",
        f"{mine.count(200)} x 200",
        f"{mine.count(429)} x 429",
        measured=f"{theirs.count(200)} of {len(others)}",
        bar=f"{len(others)}",
        ok=theirs.count(200) == len(others),
    )
    table.add("memory of the server after all", "", "", measured=f"{size / 1e6:,.0f} MB")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--only", choices=("load", "neighbours", "workers"))
    parser.add_argument("--model", choices=("auto", "none"), default="auto")
    given = parser.parse_args()
    codes = []
    if given.only in (None, "load"):
        codes.append(exit_code(load_table(given)))
    if given.only in (None, "neighbours"):
        with tempfile.TemporaryDirectory() as folder:
            codes.append(exit_code(asyncio.run(measure_neighbours(Path(folder)))))
    if given.only in (None, "workers"):
        with tempfile.TemporaryDirectory() as folder:
            codes.append(exit_code(asyncio.run(measure_workers(given, Path(folder)))))
    return max(codes)


def load_table(given: argparse.Namespace) -> Table:
    with tempfile.TemporaryDirectory() as folder:
        found, lost = asyncio.run(measure(given, Path(folder)))
    ours, bare = found[BOTH], found[BARE]
    model = model_speed(given.seconds / 8) if given.model != "none" else 0.0
    table = Table(
        f"Server: {given.clients} clients, {given.seconds:.0f} s"
        + (", without a model" if given.model == "none" else ""),
        "what",
        "server",
        "echo",
    )
    for name in (BOTH, WRITES, RECALLS):
        speeds = [found[name].speed(), bare.speed()]
        ratio, has_bar = speeds[0] / speeds[1], name == BOTH
        table.add(
            f"requests a second, {name}",
            *(f"{speed:,.0f}" for speed in speeds),
            measured=f"{ratio:.2f}x",
            bar=f">= {SPEED}x" if has_bar else "",
            ok=ratio >= SPEED if has_bar else None,
        )
    if model:  # each write and each recall needs one run of it
        table.add(
            "requests a second, the model alone",
            f"{model:,.0f}",
            f"{bare.speed():,.0f}",
            measured=f"{model / bare.speed():.2f}x",
        )
    for name in ("write", "recall"):
        for part in (0.5, 0.99):
            pair = [each.slow(name, part) for each in (ours, bare)]
            has_bar = (name, part) == ("recall", 0.99)
            table.add(
                f"{name}, p{part * 100:.0f}",
                *map(duration, pair),
                measured=f"{pair[0] / pair[1]:.1f}x",
                bar=f"<= {duration(SLOWEST_RECALL)}" if has_bar else "",
                ok=pair[0] <= SLOWEST_RECALL if has_bar else None,
            )
    errors = [error for tally in found.values() for error in tally.errors]
    stored = sum(len(tally.stored) for name, tally in found.items() if name != BARE)
    table.add("errors", "", "", measured=str(len(errors)), bar="0", ok=not errors)
    table.add(f"lost of {stored:,} writes", "", "", measured=str(lost), bar="0", ok=not lost)
    half = ours.sizes[len(ours.sizes) // 2 :]
    grown = half[-1] - half[0]
    table.add(
        "growth in the second half",
        f"{half[-1] / 1e6:,.0f} MB",
        "",
        measured=f"{grown / 1e6:+.0f} MB",
        bar=f"<= {GROWTH / 1e6:.0f} MB",
        ok=grown <= GROWTH,
    )
    for error in errors[:3]:
        print(error, file=sys.stderr)
    return table


if __name__ == "__main__":
    sys.exit(main())
