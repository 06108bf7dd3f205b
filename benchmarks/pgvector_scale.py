"""HNSW of pgvector from 100,000 to ten million vectors: recall of the neighbours, time, size.

    python -m benchmarks.pgvector_scale [--vectors 100000] [--partitions 1] [--halfvec] [--dsn URL]

The index is that of a store (`vector`, cosine, iterative scan), over clustered vectors of 384
numbers. Recall@10 is the share of the ten nearest, by comparing all in the server, that the index
finds: of all vectors, and of one partition, which is what a question about one user reads.

A million take half an hour, ten million hours. With `--dsn`, a server of your own keeps what is
built, and the next run goes on with the partition that this one did not finish. `--halfvec` indexes
16-bit numbers, which stores do not use: some builds of pgvector end the server there.
"""

import argparse
import asyncio
import struct
import time
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import asyncpg
import numpy as np
import numpy.typing as npt
from benchmarks._timing import Table, duration
from tests.servers.databases import PostgresServer

Floats = npt.NDArray[np.float32]
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

DIMENSION = 384
VECTORS = 100_000
QUESTIONS, NEAREST, CHUNK = 50, 10, 10_000
BREADTHS = (40, 100, 200, 400)
SETTINGS = {
    "shared_buffers": "2GB",
    "maintenance_work_mem": "4GB",
    "max_parallel_maintenance_workers": "0",
    "max_wal_size": "8GB",
    "jit": "off",
}


@dataclass(frozen=True)
class Layout:
    """How many vectors there are, in how many partitions, indexed as what."""

    vectors: int
    partitions: int
    halfvec: bool

    @property
    def kind(self) -> str:
        """The type that is indexed."""
        return f"{'halfvec' if self.halfvec else 'vector'}({DIMENSION})"

    @property
    def near(self) -> str:
        """The indexed expression."""
        return f"(embedding::{self.kind})"

    def rows(self, partition: int) -> range:
        """Return the ids of a partition."""
        size = self.vectors // self.partitions
        return range(partition * size, (partition + 1) * size)


def unit_vectors(count: int, seed: int) -> Floats:
    """Return vectors that lie in clusters, as those of texts do."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((1_000, DIMENSION), dtype=np.float32)
    made = centres[rng.integers(0, len(centres), count)]
    made += 0.8 * rng.standard_normal(made.shape, dtype=np.float32)
    made /= np.linalg.norm(made, axis=1)[:, None]
    return made


def encoded(vector: Floats) -> bytes:
    """Return a vector as pgvector reads it: its length, two bytes for later, big-endian numbers."""
    return struct.pack(">HH", len(vector), 0) + vector.astype(">f4").tobytes()


def _refuse(_: bytes) -> Floats:
    raise NotImplementedError("no vector is read here")  # a codec needs both ways; only one is used


async def connect(dsn: str) -> Connection:
    """Return a connection that knows vectors, and make the empty tables where there are none."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        f"""
        CREATE EXTENSION IF NOT EXISTS vector;
        CREATE TABLE IF NOT EXISTS v (id int, part int, embedding vector({DIMENSION}))
            PARTITION BY LIST (part);
        CREATE TABLE IF NOT EXISTS v_built
            (part int PRIMARY KEY, seconds float8, bytes bigint, compared float8);
        CREATE TABLE IF NOT EXISTS v_exact (part int, question int, id int, distance float8);
        """
    )
    await connection.set_type_codec(
        "vector", schema="public", format="binary", encoder=encoded, decoder=_refuse
    )
    return connection


async def build(connection: Connection, layout: Layout, part: int) -> None:
    """Make one partition in one transaction: its vectors, the exact answers, its index."""
    name, ids = f"v_{part}", layout.rows(part)
    operators = f"{layout.kind.partition('(')[0]}_cosine_ops"
    async with connection.transaction():
        await connection.execute(
            f"""
            CREATE TABLE {name} (LIKE v, CHECK (part = {part}));
            ALTER TABLE {name} ALTER embedding SET STORAGE PLAIN;
            """
        )
        for start in range(ids.start, ids.stop, CHUNK):
            several = unit_vectors(min(CHUNK, ids.stop - start), 100 + start)
            rows = [(start + n, part, each) for n, each in enumerate(several)]
            await connection.copy_records_to_table(name, records=rows)
        times = []
        for number, towards in enumerate(unit_vectors(QUESTIONS, 2)):
            began = time.perf_counter()
            await connection.execute(
                f"""INSERT INTO v_exact SELECT {part}, {number}, id, embedding <=> $1 FROM {name}
                    ORDER BY embedding <=> $1 LIMIT {NEAREST}""",
                towards,
            )
            times.append(time.perf_counter() - began)
        began = time.perf_counter()
        await connection.execute(f"CREATE INDEX ON {name} USING hnsw ({layout.near} {operators})")
        seconds = time.perf_counter() - began
        await connection.execute(f"ALTER TABLE v ATTACH PARTITION {name} FOR VALUES IN ({part})")
        await connection.execute(
            "INSERT INTO v_built VALUES ($1, $2, pg_indexes_size($3::regclass), $4)",
            *(part, seconds, name, median(times)),
        )


async def build_missing(dsn: str, layout: Layout, at_once: int) -> None:
    """Build the partitions that are not there, several at once, and tell how far it is."""
    connection = await connect(dsn)
    built = {row["part"] for row in await connection.fetch("SELECT part FROM v_built")}
    await connection.close()
    waiting = [part for part in range(layout.partitions) if part not in built]

    async def work() -> None:
        own = await connect(dsn)
        while waiting:
            part = waiting.pop(0)
            began = time.perf_counter()
            await build(own, layout, part)
            took = time.perf_counter() - began
            print(f"partition {part} of {layout.partitions} in {took:.0f} s", flush=True)
        await own.close()

    await asyncio.gather(*(work() for _ in range(at_once)))


async def ask(
    connection: Connection, layout: Layout, breadth: int, table: str
) -> tuple[list[set[int]], float]:
    """Return the nearest of every question by the index, and what one takes."""
    answers, times = [], []
    for towards in unit_vectors(QUESTIONS, 2):
        async with connection.transaction():
            await connection.execute(
                f"""SET LOCAL hnsw.ef_search = {breadth}; SET LOCAL enable_seqscan = off;
                    SET LOCAL hnsw.iterative_scan = relaxed_order"""
            )
            began = time.perf_counter()
            rows = await connection.fetch(
                f"""SELECT id FROM {table} ORDER BY {layout.near} <=> $1::vector::{layout.kind}
                    LIMIT {NEAREST}""",
                towards,
            )
            times.append(time.perf_counter() - began)
        answers.append({row["id"] for row in rows})
    return answers, median(times)


async def exact(connection: Connection, parts: range) -> list[set[int]]:
    """Return the nearest of every question among these partitions, found by comparing all."""
    rows = await connection.fetch(
        f"""SELECT question, id FROM (
                SELECT question, id, row_number() OVER (PARTITION BY question ORDER BY distance)
                FROM v_exact WHERE part = ANY($1)
            ) AS ranked WHERE row_number <= {NEAREST}""",
        list(parts),
    )
    answers: list[set[int]] = [set() for _ in range(QUESTIONS)]
    for row in rows:
        answers[row["question"]].add(row["id"])
    return answers


async def measure(dsn: str, layout: Layout, at_once: int) -> None:
    """Build what is missing, and compare the index with exact search."""
    await build_missing(dsn, layout, at_once)
    connection = await connect(dsn)
    await connection.execute("ANALYZE v")
    built = await connection.fetch("SELECT seconds, bytes, compared FROM v_built ORDER BY part")
    seconds, size = sum(row["seconds"] for row in built), sum(row["bytes"] for row in built)
    choices = {"v": range(layout.partitions), "v_0": range(1)}
    for table, parts in list(choices.items())[: layout.partitions]:
        count = layout.vectors * len(parts) // layout.partitions
        exactly = sum(built[part]["compared"] for part in parts)
        shown = Table(
            f"{count:,} x {DIMENSION} in {len(parts)} partitions, {layout.kind}; all built in"
            f" {seconds:.0f} s, {size / layout.vectors:,.0f} bytes each",
            *("search", "recall@10", "typical", "ratio to exact"),
        )
        shown.add("exact", "1.000", duration(exactly), "1.00")
        right = await exact(connection, parts)
        for breadth in BREADTHS:
            answers, typical = await ask(connection, layout, breadth, table)
            share = np.mean([len(a & b) / NEAREST for a, b in zip(right, answers, strict=True)])
            ratio = f"{typical / exactly:.4f}"
            shown.add(f"index, ef_search {breadth}", f"{share:.3f}", duration(typical), ratio)
        shown.show()
    await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=int, default=VECTORS, help="100,000 by default")
    parser.add_argument("--partitions", type=int, default=1, help="an index for each")
    parser.add_argument("--at-once", type=int, default=1, help="partitions built at once")
    parser.add_argument("--halfvec", action="store_true", help="an index of 16-bit numbers")
    parser.add_argument("--dsn", help="an empty database, or that of a run to go on with")
    options = parser.parse_args()
    layout = Layout(options.vectors, options.partitions, options.halfvec)
    own = nullcontext() if options.dsn else PostgresServer.start(settings=SETTINGS)
    with own as server:
        dsn = server.create_database() if server else options.dsn
        asyncio.run(measure(dsn, layout, options.at_once))


if __name__ == "__main__":
    main()
