"""What is derived survives the death of whoever derives it."""

import asyncio

from tests.crash._children import Child
from tests.crash._postgres_children import embed_forever

from orbiter.memory import PostgresMemoryStore
from orbiter.memory.model.query import Query
from orbiter.memory.testing import HashEmbeddings


class Slow(HashEmbeddings):
    """The model of the process that is killed."""

    name = "slow"


async def test_what_waits_when_a_process_is_killed_is_embedded_by_another(
    postgres_dsn: str,
) -> None:
    child = await asyncio.to_thread(Child, embed_forever, postgres_dsn, 150)
    assert await asyncio.to_thread(child.receive) == "embedding"

    child.kill()
    await asyncio.to_thread(child.end)

    async with PostgresMemoryStore(postgres_dsn, embeddings=Slow()) as store:
        waiting = (await store.stats()).unembedded
        assert await store.catch_up() == 0
        found = await store.nearest(Slow().embed("note"), Query(limit=1000))
        matched = await store.match_words(["note"], Query(limit=1000))
    assert 0 < waiting <= 150
    assert len(found) == len(matched.items) == 150
