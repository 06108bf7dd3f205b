"""One HNSW index for all users: how many of a user's own neighbours a search of that user finds.

    python -m benchmarks.pgvector_users [--vectors 15000]

A store of Postgres has the vectors of one large user and of some others, 384 numbers each and in
clusters. Some users speak of what the large one speaks of, one of something else. All questions are
about what the large one speaks of, so its vectors are in the way. Recall@10 is the share of a
user's ten nearest that is found: by the store, and by the index alone, where rows of others are
filtered out, without and with pgvector's iterative scan. Recall@200 is as a recall asks a store.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from statistics import median

import asyncpg
import numpy as np
import numpy.typing as npt
from benchmarks._timing import Table, duration
from tests.servers.databases import PostgresServer

from orbiter.memory import HumanMemory, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.backends.postgres.vectors import BREADTH, FEW
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query

Floats = npt.NDArray[np.float32]

DIMENSION, CLUSTERS = 384, 100
VECTORS, QUESTIONS, NEAREST, CHUNK = 15_000, 50, 10, 1_000
RECALLED = 200
"""How many of the nearest a recall asks for."""
USERS = {
    "speaks of the same, 5,000": (5_000, "same"),
    "speaks of something else, 5,000": (5_000, "else"),
    "speaks of the same, 500": (500, "same"),
    "speaks of something else, 500": (500, "else"),
    "speaks of the same, 20": (20, "same"),
}
SCANS = {
    "off": f"SET LOCAL hnsw.iterative_scan = off; SET LOCAL hnsw.ef_search = {BREADTH}",
    "iterative": f"""SET LOCAL hnsw.iterative_scan = relaxed_order;
        SET LOCAL hnsw.ef_search = {BREADTH}""",
}
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "jit": "off"}


class Prepared(Embeddings):
    """Vectors made beforehand, so that only the search is measured."""

    def __init__(self) -> None:
        self.vectors: dict[str, Floats] = {}

    @property
    def dimension(self) -> int:
        return DIMENSION

    def embed(self, text: str) -> list[float]:
        made: list[float] = self.vectors[text].tolist()
        return made

    async def aembed(self, text: str) -> list[float]:
        return self.embed(text)


def unit_vectors(count: int, seed: int, about: str) -> Floats:
    """Return vectors in clusters, which are others for what else is spoken about."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng({"same": 0, "else": 1}[about]).standard_normal(
        (CLUSTERS, DIMENSION), dtype=np.float32
    )
    made = centres[rng.integers(0, CLUSTERS, count)]
    made += 0.8 * rng.standard_normal(made.shape, dtype=np.float32)
    made /= np.linalg.norm(made, axis=1)[:, None]
    return made


def exact(vectors: Floats, questions: Floats, limit: int) -> list[set[int]]:
    """Return the places of the nearest of every question, by comparing all."""
    nearest = np.argsort(-(questions @ vectors.T), axis=1)[:, :limit]
    return [set(row.tolist()) for row in nearest]


def share(right: Sequence[set[int]], answers: Sequence[set[int]]) -> float:
    """Return which share of what is right was found."""
    return sum(len(a & b) for a, b in zip(right, answers, strict=True)) / sum(map(len, right))


async def fill(store: PostgresMemoryStore, prepared: Prepared, name: str, vectors: Floats) -> None:
    """Add a memory for each vector, and have them embedded."""
    owner = MemoryMetadata(user_id=name)
    for start in range(0, len(vectors), CHUNK):
        items = []
        for place, vector in enumerate(vectors[start : start + CHUNK], start):
            text = f"{name} {place}"
            prepared.vectors[text] = vector
            items.append(HumanMemory(id=text, content=text, metadata=owner))
        await store.add_many(items)
        await store.catch_up()


async def by_store(
    store: PostgresMemoryStore, name: str, questions: Floats, limit: int
) -> tuple[list[set[int]], float]:
    """Return what the store finds of a user's, and what one question takes."""
    query = Query(metadata=MemoryMetadata(user_id=name), limit=limit)
    answers, times = [], []
    for towards in questions:
        began = time.perf_counter()
        near = await store.nearest(towards.tolist(), query)
        times.append(time.perf_counter() - began)
        answers.append({int(item.id.rpartition(" ")[2]) for item, _ in near})
    return answers, median(times)


async def by_index(dsn: str, scan: str, name: str, questions: Floats) -> list[set[int]]:
    """Return what the index finds of a user's, if it is scanned like that."""
    answers = []
    connection = await asyncpg.connect(dsn)
    for towards in questions:
        async with connection.transaction():
            await connection.execute(f"{scan}; SET LOCAL enable_seqscan = off")
            await connection.execute(
                "SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off"
            )
            rows = await connection.fetch(
                f"""SELECT id FROM memory_vectors WHERE model = 1 AND user_key = $1
                    ORDER BY (embedding::vector({DIMENSION})) <=> $2::text::vector
                    LIMIT {NEAREST}""",
                *(name, str(towards.tolist())),
            )
        answers.append({int(row["id"].rpartition(" ")[2]) for row in rows})
    await connection.close()
    return answers


async def measure(dsn: str, size: int) -> None:
    """Fill a store, and ask it and its index about every user."""
    users = {f"the large one, {size:,}": (size, "same"), **USERS}
    questions = unit_vectors(QUESTIONS, 2, "same")
    vectors = {
        name: unit_vectors(count, seed, about)
        for seed, (name, (count, about)) in enumerate(users.items(), 10)
    }
    prepared = Prepared()
    table = Table(
        f"The nearest {NEAREST} of each user, of {sum(map(len, vectors.values())):,} x {DIMENSION}",
        *("user", "store asks", "recall@10", "time", "recall@200", "time"),
        *("index alone", "iterative"),
    )
    async with PostgresMemoryStore(dsn, embeddings=prepared) as store:
        for name, own in vectors.items():
            began = time.perf_counter()
            await fill(store, prepared, name, own)
            print(f"{name}: filled in {time.perf_counter() - began:.0f} s", flush=True)
        for name, own in vectors.items():
            cells = ["the index" if len(own) > FEW else "each vector"]
            for limit in (NEAREST, RECALLED):
                right = exact(own, questions, limit)
                answers, seconds = await by_store(store, name, questions, limit)
                cells += [f"{share(right, answers):.3f}", duration(seconds)]
            right = exact(own, questions, NEAREST)
            for scan in SCANS.values():
                cells.append(f"{share(right, await by_index(dsn, scan, name, questions)):.3f}")
            table.add(name, *cells)
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=int, default=VECTORS, help="of the large user")
    options = parser.parse_args()
    with PostgresServer.start(settings=SETTINGS) as server:
        asyncio.run(measure(server.create_database(), options.vectors))


if __name__ == "__main__":
    main()
