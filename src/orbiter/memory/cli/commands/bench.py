"""Benchmark of this computer: `bench`, on a store in a temporary folder."""

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._output import styled

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory

__all__ = ["app"]

app = new_app()
_THINGS = ("tea", "trains", "the sea", "old maps", "rain", "bread", "chess", "the moon")
_PLACES = ("Lisbon", "Oslo", "Kyoto", "Lima", "Accra", "Perth", "Quito", "Turin")
_BATCH = 500

_Call = Callable[[int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was timed, and how often the bare call before it fits in."""

    what: str
    seconds: float
    ratio: float | None = None


@command(app, "bench", url=False)
async def bench(
    run: CommandContext,
    *,
    size: Annotated[int, typer.Option(min=10, help="How many memories.")] = 1_000,
    repeat: Annotated[int, typer.Option(min=1, help="How many times each call is timed.")] = 30,
) -> None:
    """Benchmark this computer on a temporary store."""
    with TemporaryDirectory(prefix="orbiter-memory-") as folder:
        times = await _measure(run, Path(folder), size, repeat)
    rows = [
        Row("a bare INSERT, synced to disk", times["write"]),
        Row("remember", times["remember"], times["remember"] / times["write"]),
        Row(f"a bare LIKE over {size:,} rows", times["read"]),
        Row(f"recall by words, of {size:,}", times["words"], times["words"] / times["read"]),
        Row(f"recall, hybrid, of {size:,}", times["recall"], times["recall"] / times["read"]),
    ]
    if run.out.is_json:
        run.out.data({"memories": size, "rows": [asdict(row) for row in rows]})
        return
    for row in rows:
        told = "" if row.ratio is None else f"{row.ratio:,.1f} × of that"
        line = f"{row.what:<34}{row.seconds * 1e3:>8.2f} ms"
        run.out.show(styled(line, (f"{told:>20}", "bold cyan")))


async def _measure(run: CommandContext, folder: Path, size: int, repeat: int) -> dict[str, float]:
    """Return the median seconds of each kind of call."""
    from orbiter.memory.agent import AgentMemory  # noqa: PLC0415 - `--help` needs none of it

    texts = [
        f"{_PLACES[n % 8]} is where I learned about {_THINGS[n // 8 % 8]}, day {n}"
        for n in range(size)
    ]
    bare = _bare(folder / "bare.db", texts)
    times: dict[str, float] = {}
    try:
        with run.out.progress("measuring", unit="calls") as advance:
            async with AgentMemory(folder / "memory.db") as memory:
                one = memory.scope(user_id="bench")
                for start in range(0, size, _BATCH):
                    await one.remember_many(texts[start : start + _BATCH])
                    advance(start, size + 5 * repeat)
                await _settle(memory)
                for index, (name, call) in enumerate(_calls(bare, one, texts).items()):
                    taken = []
                    for turn in range(repeat):
                        began = perf_counter()
                        await call(turn)
                        taken.append(perf_counter() - began)
                        advance(size + index * repeat + turn, size + 5 * repeat)
                    times[name] = median(taken)
    finally:
        bare.close()
    return times


def _bare(path: Path, texts: list[str]) -> sqlite3.Connection:
    """Return a plain database with the same texts, as durable as ours."""
    bare = sqlite3.connect(path, isolation_level=None)
    bare.execute("PRAGMA journal_mode = wal")
    bare.execute("PRAGMA synchronous = full")
    bare.execute("CREATE TABLE memory (id INTEGER PRIMARY KEY, content TEXT)")
    bare.execute("BEGIN")
    bare.executemany("INSERT INTO memory (content) VALUES (?)", [(text,) for text in texts])
    bare.execute("COMMIT")
    return bare


def _calls(bare: sqlite3.Connection, one: "ScopedMemory", texts: list[str]) -> dict[str, _Call]:
    async def write(turn: int) -> None:
        bare.execute("INSERT INTO memory (content) VALUES (?)", (texts[turn % len(texts)],))

    async def read(turn: int) -> None:
        asked = (f"%{_PLACES[turn % 8]}%",)
        bare.execute("SELECT * FROM memory WHERE content LIKE ?", asked).fetchall()

    return {
        "write": write,
        "remember": lambda turn: one.remember(f"note {turn}: {texts[turn % len(texts)]}"),
        "read": read,
        "words": lambda turn: one.recall(_PLACES[turn % 8], k=5, mode="words"),
        "recall": lambda turn: one.recall(f"what of {_THINGS[turn % 8]}?", k=5),
    }


async def _settle(memory: "AgentMemory") -> None:
    """Have everything indexed, so that recall is timed and not the indexing."""
    catch_up = getattr(memory.store, "catch_up", None)
    if catch_up is not None:
        await catch_up()
