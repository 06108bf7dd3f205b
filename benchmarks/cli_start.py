"""What starting `orbiter-memory` costs, against starting Python at all.

CPU time of fresh processes, taking turns, with bytecode already compiled; the store holds a
hundred memories, already indexed. The model is loaded only where the table says so.

    python -m benchmarks.cli_start
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks._timing import Table, duration, exit_code

from orbiter.memory import AgentMemory

BAR = 15.0
REPEATS = 15
MEMORIES = 100

BARE = ("-c", "pass")
COMMAND = ("-m", "orbiter.memory.cli")
CALLS: dict[str, tuple[str, ...]] = {
    "--help": ("--help",),
    "recall --help": ("recall", "--help"),
    "list": ("list",),
    "remember": ("remember", "one more", "--model", "none"),
    "recall, words": ("recall", "the sea", "--model", "none"),
    "recall, with the model": ("recall", "the sea"),
}


def cpu_seconds(args: Sequence[str], env: dict[str, str]) -> float:
    """Return the CPU time of Python with *args*; what it prints goes nowhere."""
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    pid = os.posix_spawn(sys.executable, [sys.executable, *args], env, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"`{' '.join(args)}` failed")
    return usage.ru_utime + usage.ru_stime


async def fill(path: Path) -> None:
    """Make a store with some memories."""
    async with AgentMemory(path) as memory:
        texts = [f"day {n}: the sea was {n % 7} meters away" for n in range(MEMORIES)]
        await memory.scope(user_id="bench").remember_many(texts)
        await memory.store.catch_up()  # type: ignore[attr-defined]  # a path is SQLite, which has it


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        asyncio.run(fill(path))
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {
            "PYTHONPYCACHEPREFIX": str(Path(folder) / "cache"),
            "ORBITER_MEMORY_URL": str(path),
            "ORBITER_MEMORY_USER": "bench",
        }
        calls = {"": BARE} | {name: (*COMMAND, *args) for name, args in CALLS.items()}
        for args in calls.values():
            cpu_seconds(args, env)
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(REPEATS):
            for name, args in calls.items():
                taken[name].append(cpu_seconds(args, env))
    bare = median(taken.pop(""))
    table = Table("Command line: CPU time against `python -c pass`", "orbiter-memory", "CPU")
    for name, samples in taken.items():
        ratio = median(samples) / bare
        cells = (name, duration(median(samples)))
        if name == "--help":
            table.add(*cells, measured=f"{ratio:.1f}x", bar=f"<= {BAR:.0f}x", ok=ratio <= BAR)
        else:
            table.add(*cells, measured=f"{ratio:.1f}x")
    return exit_code(table)


if __name__ == "__main__":
    sys.exit(main())
