"""The first recall after an upgrade that reads words in another way: how long it waits.

    python -m benchmarks.word_rebuild [--memories 100000]

A SQLite file has this many short memories, half of them of one large user, the others of users with
a hundred each. It is opened by a version that makes other terms, so the whole index of words is
rebuilt. Each kind of user asks at once, each time in a file that nobody has asked since.
"""

import argparse
import asyncio
import shutil
import tempfile
import warnings
from pathlib import Path
from time import perf_counter

from benchmarks._timing import Table, duration

from orbiter.memory import HumanMemory, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.backends.sqlite import term_index
from orbiter.memory.recall import recall
from orbiter.memory.text import words

MEMORIES, SMALL, CHUNK = 100_000, 100, 1_000
THINGS = ("painting", "harbour", "invoice", "garden", "flight", "budget", "recipe", "meeting")


def item(number: int, memories: int) -> HumanMemory:
    """Return one memory, of the large user or of a small one."""
    user = "large" if number % 2 else f"small-{number // 2 % (memories // 2 // SMALL)}"
    thing, other = THINGS[number % 8], THINGS[number // 8 % 8]
    text = f"The {thing} number {number} comes before the {other}, as we said last week."
    return HumanMemory(content=text, metadata=MemoryMetadata(user_id=user))


async def fill(path: Path, memories: int) -> None:
    """Write a file whose words are indexed."""
    async with SQLiteMemoryStore(path) as store:
        for start in range(0, memories, CHUNK):
            await store.add_many([item(n, memories) for n in range(start, start + CHUNK)])
        await store.optimize()


async def ask(path: Path, user: str) -> tuple[float, float]:
    """Return the seconds of the first recall of a user, and of the second."""
    async with SQLiteMemoryStore(path) as store:
        times = []
        for _ in range(2):
            began = perf_counter()
            found = await recall(
                store, "Which garden was number 17?", scope=MemoryMetadata(user_id=user)
            )
            times.append(perf_counter() - began)
            assert found
        return times[0], times[1]


async def rebuild(path: Path) -> float:
    """Return the seconds until all words are indexed, if nobody asks."""
    began = perf_counter()
    async with SQLiteMemoryStore(path) as store:
        while await store._file.read(term_index.waits) >= term_index.CHUNK:  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.1)
        return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--memories", type=int, default=MEMORIES)
    memories = parser.parse_args().memories
    warnings.simplefilter("ignore")  # that there is no model is the point
    with tempfile.TemporaryDirectory() as folder:
        path, old = Path(folder, "agent.db"), Path(folder, "old.db")
        asyncio.run(fill(old, memories))
        words.VERSION += 1
        table = Table(
            f"A file of {memories:,} memories, of another version", "who asks", "first", "second"
        )
        for user in ("small-0", "large"):
            shutil.copy(old, path)
            first, second = asyncio.run(ask(path, user))
            table.add(user, duration(first), duration(second))
        shutil.copy(old, path)
        table.add("nobody: rebuilt in the background", duration(asyncio.run(rebuild(path))), "")
        table.show()


if __name__ == "__main__":
    main()
