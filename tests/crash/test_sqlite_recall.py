"""`kill -9` while terms and vectors are made: what is acknowledged is found when it is over."""

import asyncio
import random
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from tests.crash._children import Child
from tests.stores.recall_reference import check_meaning, check_words

from orbiter.memory import HumanMemory, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.model.query import Query
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")


class Slow(HashEmbeddings):
    """The same vectors, a little later."""

    @property
    def name(self) -> str:
        return "slow"

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0.005)
        return self.embed_many(texts)


def write_and_ask(pipe: Connection, path: str, name: str) -> None:
    """Write, change and delete items and ask for them until killed; tell what is done."""

    async def main() -> None:
        async with SQLiteMemoryStore(path, embeddings=Slow(16)) as store:
            for number in range(10_000):
                item_id = f"{name}{number % 40}"
                await store.add(HumanMemory(id=item_id, content=f"painting {number}", metadata=ANN))
                pipe.send((item_id, f"painting {number}"))
                if not number % 5:
                    await store.match_words(["paint"], Query(metadata=ANN))
                    await store.nearest([1.0] * 16, Query(metadata=ANN))

    asyncio.run(main())


def reindex(pipe: Connection, path: str) -> None:
    """Embed everything anew and tell how far it is."""

    async def main() -> None:
        store = SQLiteMemoryStore(path, embeddings=Slow(24))
        pipe.send(await store.reindex(progress=lambda *step: pipe.send(step)))
        await store.close()

    asyncio.run(main())


async def _check(path: Path, acknowledged: dict[str, str]) -> None:
    async with SQLiteMemoryStore(path, embeddings=Slow(16)) as store:
        assert await store.catch_up() == 0
        for item_id, content in acknowledged.items():
            found = await store.get(item_id)
            assert found is not None
            assert int(found.content.split()[1]) >= int(content.split()[1])
        asked = Query(metadata=ANN, limit=1000)
        await check_words(store, ["paint", "7"], asked)
        await check_meaning(store, Slow(16), "painting 7", asked)
        assert (await store.verify()).problems == ()


async def test_killed_processes_leave_nothing_unfound(tmp_path: Path) -> None:
    path, dice = tmp_path / "m.db", random.Random(3)
    acknowledged: dict[str, str] = {}
    for number in range(3):
        children = [Child(write_and_ask, str(path), f"{number}{name}") for name in "ab"]
        for child in children:
            for _ in range(dice.randrange(5, 60)):
                item_id, content = child.receive()
                acknowledged[item_id] = content
        for child in children:
            child.kill()
            acknowledged.update(child.rest())
            child.end()

        await _check(path, acknowledged)


async def test_a_killed_reindex_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with SQLiteMemoryStore(path, embeddings=HashEmbeddings(16)) as store:
        await store.add_many(
            [HumanMemory(id=f"i{n}", content=f"painting {n}", metadata=ANN) for n in range(400)]
        )
        await store.catch_up()
    killed = Child(reindex, str(path))
    done = 0
    while done < 128:
        done, _ = killed.receive()
    killed.kill()
    for word in killed.rest():
        done = word[0]
    killed.end()

    async with SQLiteMemoryStore(path, embeddings=HashEmbeddings(16)) as store:
        await check_meaning(store, HashEmbeddings(16), "painting 7", Query(metadata=ANN))
    again = Child(reindex, str(path))
    *steps, total = again.rest()
    again.end()

    assert 0 < total <= 400 - done
    assert steps[-1] == (total, total)
    async with SQLiteMemoryStore(path, embeddings=Slow(24)) as store:
        await check_meaning(store, Slow(24), "painting 7", Query(metadata=ANN, limit=500))
        assert (await store.verify()).problems == ()
