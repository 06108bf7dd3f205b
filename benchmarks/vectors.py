"""Search by meaning: what do filters, items and copies cost beside the bare product?

Exact search against numpy on rows that lie together already, `VectorMemoryStore.search` against a
loop in Python and three peers on the same vectors, the approximate search's recall, and memory.

    python -m benchmarks.vectors [--full | --graph 1000000]

`--full` builds the graph of usearch over 200,000 vectors, for some minutes. `--graph` builds one of
that many, and measures nothing else: a million take 18 minutes of a core and 6 GB.
"""

import os

# Two threads on two busy cores wait for each other; then nothing is measured but the scheduler.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import asyncio
import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks._timing import Table, duration, exit_code, finish, seconds_per_call
from benchmarks._turns import BagOfWords
from benchmarks._vector_peers import Lookup, in_chroma, in_lancedb, in_langgraph, in_python

from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.backends.vector.matrix import VectorMatrix
from orbiter.memory.backends.vector.store import VectorMemoryStore
from orbiter.memory.model.items import HumanMemory, MemoryMetadata

Floats = npt.NDArray[np.float32]

DIMENSION = 384
MATRIX = 80_000
STORE = 10_000
GRAPH, FULL_GRAPH = 20_000, 200_000
KEPT, FILED = 100_000, 5_000
MEMORY_BAR = 250_000_000
SUBSET_BAR, LOOP_BAR, RECALL_BAR = 1.3, 100.0, 0.97
ANN = MemoryMetadata(user_id="ann")


def unit_vectors(count: int, seed: int) -> Floats:
    """Return vectors that lie in clusters, as those of texts do."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((1_000, DIMENSION), dtype=np.float32)
    made = centres[rng.integers(0, len(centres), count)]
    made += 0.8 * rng.standard_normal(made.shape, dtype=np.float32)
    made /= np.linalg.norm(made, axis=1)[:, None]
    return made


def subset_table() -> Table:
    vectors, towards = unit_vectors(MATRIX, 1), unit_vectors(1, 2)[0]
    matrix = VectorMatrix(DIMENSION)
    matrix.put_many(np.arange(MATRIX), vectors)
    rng = np.random.default_rng(3)
    table = Table(
        f"Exact search among {MATRIX:,} x {DIMENSION}, against a product and a top 10 in numpy",
        *("rows", "numpy, gathered", "matrix", "first time asked"),
    )
    subsets = {
        "a whole user": None,
        "a session's stretch of 8,000": np.arange(30_000, 38_000),
        "10 % of them, scattered": np.flatnonzero(rng.random(MATRIX) < 0.1),
        "50 % of them, scattered": np.flatnonzero(rng.random(MATRIX) < 0.5),
    }
    for name, among in subsets.items():
        gathered = vectors if among is None else vectors[among]

        def plain(rows: Floats = gathered) -> list[int]:
            scores = rows @ towards
            best = np.argpartition(scores, -10)[-10:]
            found: list[int] = best[np.argsort(-scores[best])].tolist()
            return found

        def ours(among: Any = among) -> list[tuple[int, float]]:
            return matrix.nearest(towards, 10, among=among)

        keys = np.arange(MATRIX) if among is None else among
        if [key for key, _ in ours()] != keys[plain()].tolist():
            raise AssertionError("the matrix and numpy found different rows")

        def anew(ours: Callable[[], object] = ours) -> object:
            matrix._subsets._last = None
            return ours()

        taken = seconds_per_call({"plain": plain, "ours": ours}, series=9)
        first = seconds_per_call({"anew": anew}, series=3)["anew"]
        ratio = taken["ours"] / taken["plain"]
        table.add(
            *(name, duration(taken["plain"]), duration(taken["ours"])),
            f"{first / taken['plain']:.2f}x",
            measured=f"{ratio:.2f}x",
            bar=f"<= {SUBSET_BAR}x",
            ok=ratio <= SUBSET_BAR,
        )
    return table


async def store_of(vectors: dict[str, Any], texts: list[str]) -> VectorMemoryStore:
    store = VectorMemoryStore(Lookup(vectors))
    await store.add_many([HumanMemory(content=text, metadata=ANN) for text in texts])
    return store


def store_table() -> Table:
    made = unit_vectors(STORE + 20, 4).tolist()
    texts = [f"memory {number}" for number in range(STORE)]
    queries = [f"question {number}" for number in range(20)]
    vectors = dict(zip([*texts, *queries], made, strict=True))
    store = asyncio.run(store_of(vectors, texts))

    def ours(query: str) -> list[str]:
        return [item.content for item in finish(store.search(query=query, metadata=ANN))]

    with tempfile.TemporaryDirectory() as where:
        searches = {
            "VectorMemoryStore": ours,
            "a loop in Python": in_python(texts, vectors),
            "Chroma": in_chroma(texts, vectors),
            "LanceDB": in_lancedb(texts, vectors, where),
            "LangGraph InMemoryStore": in_langgraph(texts, vectors),
        }
        exact = {query: set(searches["a loop in Python"](query)) for query in queries}
        recall = {
            name: sum(len(exact[query] & set(search(query))) for query in queries) / 200
            for name, search in searches.items()
        }
        calls = {
            name: lambda search=search: search(queries[0]) for name, search in searches.items()
        }
        taken = seconds_per_call(calls)
    table = Table(
        f"The nearest 10 of {STORE:,} memories of {DIMENSION} numbers", "search", "time", "recall"
    )
    mine = taken.pop("VectorMemoryStore")
    table.add("VectorMemoryStore", duration(mine), f"{recall['VectorMemoryStore']:.3f}")
    for name, seconds in taken.items():
        bar = LOOP_BAR if "loop" in name else 1.0
        table.add(
            *(name, duration(seconds), f"{recall[name]:.3f}"),
            measured=f"{seconds / mine:.1f}x",
            bar=f"> {bar:.0f}x",
            ok=seconds / mine > bar,
        )
    return table


def graph_table(size: int) -> Table:
    vectors, queries = unit_vectors(size, 5), unit_vectors(200, 6)
    exact, near = VectorMatrix(DIMENSION), VectorMatrix(DIMENSION, approximate_from=1)
    for matrix in (exact, near):
        matrix.put_many(np.arange(size), vectors)
    before, began, worked = resident(), perf_counter(), process_time()
    near.nearest(queries[0], 10)
    built, worked, grown = perf_counter() - began, process_time() - worked, resident() - before
    hits = 0
    for query in queries:
        wanted = {key for key, _ in exact.nearest(query, 10)}
        hits += len(wanted & {key for key, _ in near.nearest(query, 10)})
    recall = hits / (10 * len(queries))
    taken = seconds_per_call(
        {
            "exact": lambda: exact.nearest(queries[0], 10),
            "approximate": lambda: near.nearest(queries[0], 10),
        }
    )
    table = Table(f"The nearest 10 of {size:,} x {DIMENSION} by usearch", "search", "time")
    table.add("exact", duration(taken["exact"]))
    table.add(
        *("approximate", duration(taken["approximate"])),
        measured=f"{taken['exact'] / taken['approximate']:.1f}x as fast",
    )
    table.add(
        *("recall of the first 10", ""),
        measured=f"{recall:.3f}",
        bar=f">= {RECALL_BAR}",
        ok=recall >= RECALL_BAR,
    )
    table.add(
        *("building the graph", duration(built)),
        measured=f"{worked / size * 1e3:.2f} ms of CPU a row",
    )
    rows = size * DIMENSION * 4
    table.add("memory of the graph", f"{grown / 1e6:,.0f} MB", measured=f"{grown / rows:.2f}x rows")
    return table


def resident() -> int:
    """Return how much memory this process has, in bytes; 0 where that is not known."""
    if not Path("/proc/self/statm").exists():
        return 0
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_table() -> Table:
    table = Table(f"Memory for {KEPT:,} memories of {DIMENSION} numbers", "what", "a memory")
    if not resident():
        return table
    texts = [f"memory {number} " + "of some length " * 6 for number in range(KEPT)]
    vectors = dict(zip(texts, unit_vectors(KEPT, 7), strict=True))
    items = [HumanMemory(content=text, metadata=ANN) for text in texts]
    gc.collect()
    before = resident()
    store = VectorMemoryStore(Lookup(vectors))
    for start in range(0, KEPT, 1_000):
        asyncio.run(store.add_many(items[start : start + 1_000]))
    gc.collect()
    used = resident() - before
    table.add(
        "vectors alone", f"{DIMENSION * 4:,} bytes", measured=f"{DIMENSION * KEPT / 2.5e5:.0f} MB"
    )
    table.add(
        "VectorMemoryStore, without the texts themselves",
        f"{used / KEPT:,.0f} bytes",
        measured=f"{used / 1e6:.0f} MB",
        bar=f"<= {MEMORY_BAR / 1e6:.0f} MB",
        ok=used <= MEMORY_BAR,
    )
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write_file(Path(folder, "agent.db"), texts[:FILED]))
        size = sum(each.stat().st_size for each in Path(folder).iterdir())
    filed = f"{size / FILED:,.0f} bytes on disk"
    table.add("SQLite file, with vectors and 28 word vectors", filed)
    return table


async def write_file(path: Path, texts: list[str]) -> None:
    """Write a SQLite file with these texts, their vectors and those of their words."""
    async with SQLiteMemoryStore(path, embeddings=BagOfWords()) as store:
        await store.add_many([HumanMemory(content=text, metadata=ANN) for text in texts])
        await store.catch_up()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="200,000 vectors in the graph")
    parser.add_argument("--graph", type=int, metavar="N", help="only a graph of so many vectors")
    given = parser.parse_args()
    if given.graph is not None:
        return exit_code(graph_table(given.graph))
    memory = memory_table()  # first: what others leave behind would be counted
    size = FULL_GRAPH if given.full else GRAPH
    return exit_code(memory, subset_table(), store_table(), graph_table(size))


if __name__ == "__main__":
    sys.exit(main())
