"""Does a process stop growing? Its memory, and the bytes of the caches of texts, as time goes by.

    python -m benchmarks.cache_growth [--minutes N]

Fifty users remember new texts, and ask questions by words. Caches of texts are bounded:
once they are full, the memory of the process should stay as it is.
"""

import argparse
import asyncio
import random
import re
import sys
import tempfile
import warnings
from pathlib import Path
from time import monotonic

from benchmarks._sql_data import texts

from orbiter.memory import AgentMemory
from orbiter.memory.text.text_caches import TextCache

USERS, AT_ONCE, ASKED_AT_ONCE, STEP = 50, 40, 6, 20.0


def resident() -> float:
    """Return the memory of this process, in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    size = re.search(r"VmRSS:\s+(\d+)", status)
    return int(size[1]) / 1e3 if size else 0.0


def cached() -> float:
    """Return how much all caches of texts hold, in MB."""
    modules = [module for name, module in sys.modules.items() if name.startswith("orbiter.memory")]
    caches = (each for module in modules for each in vars(module).values())
    return sum(each.cache_info().bytes for each in caches if isinstance(each, TextCache)) / 1e6


async def grow(path: Path, seconds: float) -> None:
    """Remember and ask for so long, and print what the process takes."""
    dice, fresh = random.Random(1), texts(10**7)
    began, printed, rounds = monotonic(), 0.0, 0
    async with AgentMemory(path, embeddings=None) as memory:
        users = [memory.scope(user_id=f"user-{number}") for number in range(USERS)]
        while (taken := monotonic() - began) < seconds:
            notes = [f"{next(fresh)} {rounds}" for _ in range(AT_ONCE)]
            await users[rounds % USERS].remember_many(notes)
            questions = [f"{next(fresh)[:60]}?" for _ in range(ASKED_AT_ONCE)]
            await asyncio.gather(*(dice.choice(users).recall(text) for text in questions))
            rounds += 1
            if taken >= printed:
                printed += STEP
                print(
                    f"{taken:4.0f} s  {rounds * AT_ONCE:8,} texts  {resident():5.0f} MB,"
                    f" of which {cached():3.0f} MB are caches of texts",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=7.0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(grow(Path(folder) / "memory.db", arguments.minutes * 60))


if __name__ == "__main__":
    main()
