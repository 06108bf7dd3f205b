"""SQLite and Postgres give the same answers; the long run is `tests/stores/side_by_side.py`."""

from pathlib import Path

import pytest
from tests.stores.side_by_side import compare, eager_indexes

from orbiter.memory import PostgresMemoryStore, SQLiteMemoryStore


@pytest.mark.parametrize("seed", [11, 12])
async def test_no_sequence_of_calls_tells_the_stores_apart(
    tmp_path: Path, postgres_dsn: str, seed: int
) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db", durability="normal") as file:
        server = PostgresMemoryStore(postgres_dsn)
        await server.init(partitions=3 if seed % 2 else None)
        with eager_indexes(probe=2):
            try:
                await compare([file, server], steps=400, seed=seed)
            finally:
                await server.close()
