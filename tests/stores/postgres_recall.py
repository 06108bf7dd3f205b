"""What the tests of recall in Postgres share."""

import random
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.model.query import Query
from orbiter.memory.testing import HashEmbeddings

EMBEDDINGS = HashEmbeddings()
DERIVED = (
    "memory_pending", "memory_passages", "memory_terms", "memory_vectors", "memory_details",
    "memory_unembedded",
)  # fmt: skip


async def run(dsn: str, *script: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        for line in script[:-1]:
            await connection.execute(line)
        return [tuple(row) for row in await connection.fetch(script[-1])]
    finally:
        await connection.close()


def item(name: str, text: str, user: str | None = "ann", session: str | None = "s") -> MemoryItem:
    who = MemoryMetadata(user_id=user, session_id=session)
    return HumanMemory(id=name, content=text, metadata=who)


def of(user: str | None, limit: int = 10, **more: Any) -> Query:
    return Query(metadata=MemoryMetadata(user_id=user) if user else None, limit=limit, **more)


def near(text: str) -> list[float]:
    return EMBEDDINGS.embed(text)


class Renamed(HashEmbeddings):
    """Another model."""

    name = "renamed"


@pytest.fixture(params=[None, 3], ids=["whole", "partitioned"])
async def store(
    postgres_dsn: str, request: pytest.FixtureRequest
) -> AsyncIterator[PostgresMemoryStore]:
    store = PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS)
    await store.init(partitions=request.param)
    yield store
    await store.close()


@pytest.fixture
async def role_dsn(postgres_dsn: str) -> AsyncIterator[str]:
    """A role that owns its tables, may make no extension, and is held by policies."""
    parts = urlsplit(postgres_dsn)
    name = "role_" + parts.path.removeprefix("/test_")
    await run(
        postgres_dsn,
        f"CREATE ROLE {name} LOGIN PASSWORD 'plain' NOBYPASSRLS",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {name}",
        "SELECT 1",
    )
    yield parts._replace(netloc=f"{name}:plain@{parts.netloc.rpartition('@')[2]}").geturl()
    await run(postgres_dsn, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}", "SELECT 1")


VOCABULARY = [f"{first}{last}" for first in "bcdfgklmnp" for last in ("abo", "ine", "uk")]


def texts(count: int, seed: int = 1) -> list[str]:
    dice = random.Random(seed)
    weights = [1 / (place + 1) for place in range(len(VOCABULARY))]
    return [" ".join(dice.choices(VOCABULARY, weights, k=8)) for _ in range(count)]
