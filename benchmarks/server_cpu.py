"""What a request costs the server in CPU time, beside a bare app that only echoes.

`orbiter-memory serve` runs in a process of its own, with keys and a SQLite file of 1,000 memories
of one user. One connection sends one request after the other; what counts is the CPU time of the
process, all threads together, so others on the machine change it less. The echo, Starlette on the
same uvicorn, takes turns with it: the bars are multiples of the echo.

Then the same with the time that each callback of the event loop takes, in CPU time of its thread:
nobody else is served meanwhile.

    python -m benchmarks.server_cpu [--requests 100] [--rounds 10] [--model none | auto]

Without `--model`, both: without a model, and with the local one.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._sql_data import texts
from benchmarks._timing import Table, duration, exit_code
from benchmarks.recall_speed import questions
from benchmarks.server_load import ECHO, Connection, free_port, running

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryMetadata

MEMORIES = 1_000
LONGEST_TURN = 0.005
"""Seconds of CPU time that one callback may keep the event loop."""

TIMED = """
import asyncio, sys
from time import thread_time
from pathlib import Path

sys.modules["uvloop"] = None  # its callbacks cannot be timed from here
place = Path(sys.argv.pop(1))
run = asyncio.events.Handle._run

def timed(handle):
    began = thread_time()
    run(handle)
    took = thread_time() - began
    if took > 0.001:
        with place.open("a") as file:
            file.write(f"{took}\\n")

asyncio.events.Handle._run = timed
from orbiter.memory.cli import main
main()
"""


@dataclass(frozen=True)
class Kind:
    """A request, and how many times the CPU time of an echo it may take."""

    name: str
    verb: str
    path: str
    body: Callable[[int], object] = lambda _: None
    bar: float | None = None
    share: float = 1.0
    """Of all requests, how many are of this kind: what takes long need not be repeated as often."""


class Spent(NamedTuple):
    """CPU seconds of one request: of all threads, of the loop's, and of an echo beside it."""

    cpu: float
    loop_cpu: float
    echo: float


def kinds(item_id: str, *, model: bool) -> list[Kind]:
    asked, said = questions(1_000), list(texts(1_000))
    return [
        Kind("healthz", "GET", "/healthz"),
        Kind("get", "GET", f"/v1/memories/{item_id}", bar=3.1),
        Kind(
            "write, and its vector" if model else "write",
            "POST",
            "/v1/memories",
            lambda n: {"what": said[n % 1_000]},
            bar=None if model else 4.6,
        ),
        Kind("list of 20", "GET", "/v1/memories?limit=20"),
        Kind(
            "recall, k=5",
            "POST",
            "/v1/recall",
            lambda n: {"query": asked[n % 1_000], "k": 5},
            bar=38.0 if model else 15.0,
            share=0.2,
        ),
        Kind(
            "context",
            "POST",
            "/v1/context",
            lambda n: {"task": asked[n % 1_000], "budget": 2_000},
            share=0.2,
        ),
    ]


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU time that a process has taken, to the nanosecond."""
    return time.clock_gettime(((~pid) << 3) | 2)  # the kernel's name of another's clock


def cpu_of_loop(pid: int) -> float:
    """Return the seconds that its first thread has taken, which runs the event loop."""
    found = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii")
    return int(found.split()[0]) / 1e9


async def ask(port: int, key: str, kind: Kind, count: int, first: int) -> None:
    connection = await Connection(port, key).open()  # one that rests too long is closed
    for number in range(first, first + count):
        status, answer = await connection.ask(kind.verb, kind.path, kind.body(number))
        assert status in (200, 201), answer
    await connection.close()


@asynccontextmanager
async def serving(folder: Path, model: str, *before: str) -> AsyncIterator[tuple[int, int]]:
    """Run the server; give its process and its port."""
    port = free_port()
    start = before or ("-m", "orbiter.memory.cli")
    serve = ("serve", "--url", str(folder / "agent.db"), "--port", str(port), "--model", model)
    more = ("--keys", str(folder / "keys.json"), "--rate", "100000")
    async with running(*start, *serve, *more, port=port) as pid:
        yield pid, port


async def fill(folder: Path, model: str) -> tuple[str, str]:
    """Return the key of a user with many memories, and the id of one of these."""
    settings = {"embeddings": None} if model == "none" else {}
    async with AgentMemory(folder / "agent.db", **settings) as memory:  # type: ignore[arg-type]
        user = memory.scope(user_id="ann")
        said = list(texts(MEMORIES))
        found = [
            await user.remember_many(said[at : at + 100], tags=["note"])
            for at in range(0, MEMORIES, 100)
        ]
        await memory.flush()
    keys = KeyFile(folder / "keys.json")
    return keys.create(scope=MemoryMetadata(user_id="ann"), role="write")[1], found[0][0].id


async def measure(
    given: argparse.Namespace, folder: Path, key: str, asked: Sequence[Kind]
) -> dict[str, list[Spent]]:
    """Return what each kind took in each round, right behind an echo."""
    found: dict[str, list[Spent]] = {kind.name: [] for kind in asked}
    bare = free_port()
    async with (
        running("-c", ECHO, str(bare), port=bare) as echo_pid,
        serving(folder, given.model) as (pid, ours),
    ):
        body = {"what": "An echo of some twenty words, which is about what a memory has to say."}
        echo = Kind("echo", "POST", "/v1/memories", lambda _: body)
        for turn in range(given.rounds + 1):
            for kind in asked:
                sys.stderr.write(f"\r    round {turn} of {given.rounds}, {kind.name:20} ")
                count = max(1, int(given.requests * kind.share))
                before = cpu_of(echo_pid)
                await ask(bare, key, echo, given.requests, 0)
                bare_cpu = (cpu_of(echo_pid) - before) / given.requests
                before, of_loop = cpu_of(pid), cpu_of_loop(pid)
                await ask(ours, key, kind, count, turn * count)
                cpu, loop_cpu = cpu_of(pid) - before, cpu_of_loop(pid) - of_loop
                if turn:  # the first round warms up
                    found[kind.name].append(Spent(cpu / count, loop_cpu / count, bare_cpu))
    sys.stderr.write("\r" + " " * 60 + "\r")
    return found


async def longest_turns(
    given: argparse.Namespace, folder: Path, key: str, asked: Sequence[Kind]
) -> dict[str, float]:
    """Return for each kind the longest that one callback kept the event loop, in CPU seconds."""
    place = folder / "turns"
    found = {}
    async with serving(folder, given.model, "-c", TIMED, str(place)) as (_, port):
        for kind in asked:
            count = max(1, int(given.requests * kind.share))
            await ask(port, key, kind, 5, 0)
            place.write_text("", encoding="ascii")
            await ask(port, key, kind, count, count)
            found[kind.name] = max(map(float, place.read_text("ascii").split()), default=0.001)
    return found


async def tables(given: argparse.Namespace, folder: Path) -> list[Table]:
    key, item_id = await fill(folder, given.model)
    asked = kinds(item_id, model=given.model != "none")
    spent = await measure(given, folder, key, asked)
    turns = await longest_turns(given, folder, key, asked)
    which = "without a model" if given.model == "none" else "with the model"
    table = Table(
        f"Server: CPU time of a request, {which}", "request", "all threads", "the loop's", "an echo"
    )
    for kind in asked:
        rounds = spent[kind.name]
        # A busy machine slows a whole round, and can only add to what a request takes.
        ratio = median(each.cpu / each.echo for each in rounds)
        table.add(
            kind.name,
            *(duration(min(column)) for column in zip(*rounds, strict=True)),
            measured=f"{ratio:.1f}x",
            bar=f"<= {kind.bar:.1f}x" if kind.bar else "",
            ok=ratio <= kind.bar if kind.bar else None,
        )
    longest = Table(f"Server: longest callback of the event loop, {which}", "request")
    for name, took in turns.items():
        longest.add(
            name,
            measured=duration(took),
            bar=f"<= {duration(LONGEST_TURN)}",
            ok=took <= LONGEST_TURN,
        )
    return [table, longest]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--model", choices=("none", "auto"))
    given = parser.parse_args()
    codes = []
    for model in (given.model,) if given.model else ("none", "auto"):
        with tempfile.TemporaryDirectory() as folder:
            measured = argparse.Namespace(**{**vars(given), "model": model})
            codes.append(exit_code(*asyncio.run(tables(measured, Path(folder)))))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
