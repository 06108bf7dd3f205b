"""HNSW of pgvector at 100,000 and a million vectors: recall of the neighbours, time, size.

    python -m benchmarks.pgvector_scale [--vectors 100000] [--halfvec] [--full]

The table and the index are those of a store (`vector`, cosine, iterative scan), filled with
clustered vectors of 384 numbers. Recall@10 is the share of the ten nearest, by comparing all in
the server, that the index finds. `--halfvec` indexes 16-bit numbers instead, which stores do not
use: some builds of pgvector end the server there. `--full` takes a million vectors; the index alone
takes longer than half an hour on two cores.
"""

import argparse
import asyncio
import struct
import time
from statistics import median

import asyncpg
import numpy as np
import numpy.typing as npt
from benchmarks._timing import Table, duration
from tests.servers.databases import PostgresServer

Floats = npt.NDArray[np.float32]

DIMENSION = 384
VECTORS, FULL = 100_000, 1_000_000
QUESTIONS, NEAREST, CHUNK = 50, 10, 10_000
BREADTHS = (40, 100, 200, 400)
SETTINGS = {
    "shared_buffers": "2GB",
    "maintenance_work_mem": "4GB",
    "max_parallel_maintenance_workers": "0",
    "max_wal_size": "8GB",
    "jit": "off",
}


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


async def fill(connection: "asyncpg.Connection[asyncpg.Record]", count: int) -> None:
    """Write the vectors."""
    await connection.execute("CREATE EXTENSION vector")
    await connection.set_type_codec(
        "vector", schema="public", format="binary", encoder=encoded, decoder=_refuse
    )
    await connection.execute(f"CREATE UNLOGGED TABLE v (id int, embedding vector({DIMENSION}))")
    await connection.execute("ALTER TABLE v ALTER embedding SET STORAGE PLAIN")
    for start in range(0, count, CHUNK):
        several = unit_vectors(min(CHUNK, count - start), 100 + start)
        rows = [(start + n, each) for n, each in enumerate(several)]
        await connection.copy_records_to_table("v", records=rows)
    await connection.execute("ANALYZE v")


async def ask(
    connection: "asyncpg.Connection[asyncpg.Record]", near: str, kind: str, settings: str
) -> tuple[list[set[int]], float]:
    """Return the nearest of every question, and what one takes."""
    found, times = [], []
    for towards in unit_vectors(QUESTIONS, 2):
        async with connection.transaction():
            await connection.execute(settings)
            began = time.perf_counter()
            rows = await connection.fetch(
                f"SELECT id FROM v ORDER BY {near} <=> $1::vector::{kind} LIMIT {NEAREST}",
                towards,
            )
            times.append(time.perf_counter() - began)
        found.append({row["id"] for row in rows})
    return found, median(times)


async def measure(dsn: str, count: int, *, halfvec: bool) -> None:
    """Fill the table, build the index, and compare it with exact search."""
    connection = await asyncpg.connect(dsn)
    began = time.perf_counter()
    await fill(connection, count)
    print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
    plain = f"vector({DIMENSION})"
    exact, exactly = await ask(connection, "embedding", plain, "SET LOCAL enable_indexscan = off")
    kind = f"halfvec({DIMENSION})" if halfvec else plain
    near = f"(embedding::{kind})"
    operators = "halfvec_cosine_ops" if halfvec else "vector_cosine_ops"
    began = time.perf_counter()
    await connection.execute(f"CREATE INDEX v_near ON v USING hnsw ({near} {operators})")
    built = time.perf_counter() - began
    size = await connection.fetchval("SELECT pg_relation_size('v_near')")
    table = Table(
        f"{count:,} x {DIMENSION}, {kind}: built in {built:.0f} s, {size / count:,.0f} bytes each",
        *("search", "recall@10", "typical", "ratio to exact"),
    )
    table.add("exact", "1.000", duration(exactly), "1.00")
    for breadth in BREADTHS:
        settings = (
            f"SET LOCAL hnsw.ef_search = {breadth}; SET LOCAL enable_seqscan = off;"
            " SET LOCAL hnsw.iterative_scan = relaxed_order"
        )
        found, typical = await ask(connection, near, kind, settings)
        share = np.mean([len(a & b) / NEAREST for a, b in zip(exact, found, strict=True)])
        ratio = f"{typical / exactly:.3f}"
        table.add(f"index, ef_search {breadth}", f"{share:.3f}", duration(typical), ratio)
    table.show()
    await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=int, default=VECTORS, help="100,000 by default")
    parser.add_argument("--halfvec", action="store_true", help="an index of 16-bit numbers")
    parser.add_argument("--full", action="store_true", help="a million")
    options = parser.parse_args()
    count = FULL if options.full else options.vectors
    with PostgresServer.start(settings=SETTINGS) as server:
        asyncio.run(measure(server.create_database(), count, halfvec=options.halfvec))


if __name__ == "__main__":
    main()
