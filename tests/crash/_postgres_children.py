"""What processes do to a Postgres store at the same time as others."""

import asyncio
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection

from orbiter.memory import HumanMemory, MemoryMetadata, PostgresMemoryStore, VersionConflict
from orbiter.memory.backends.postgres import embedding
from orbiter.memory.testing import HashEmbeddings


def open_and_add(pipe: Connection, dsn: str, name: str, partitions: int | None) -> None:
    """Open at the same moment as others, add one item, and say what went wrong, or nothing."""

    async def main() -> None:
        store = PostgresMemoryStore(dsn)
        await store.init(partitions=partitions)
        await store.add(HumanMemory(id=name, content=name))
        await store.close()

    pipe.send("ready")
    pipe.recv()
    try:
        asyncio.run(main())
    except Exception as exc:  # noqa: BLE001 - told to the parent
        pipe.send(repr(exc))
    else:
        pipe.send("")


def count_up(pipe: Connection, dsn: str, tasks: int, times: int) -> None:
    """Let *tasks* add one to a shared number and to a list, each *times*; say what they added."""
    added: list[str] = []

    async def add_one(store: PostgresMemoryStore, value: str) -> None:
        while True:
            old = await store.get("shared")
            values = list(old.metadata.extra["values"]) if old is not None else []
            who = MemoryMetadata(extra={"values": [*values, value]})
            new = HumanMemory(id="shared", content="shared", metadata=who)
            try:
                await store.add(new, expected_version=old.version if old else 0)
            except VersionConflict:
                continue
            added.append(value)
            return

    async def work(store: PostgresMemoryStore, task: int) -> None:
        for number in range(times):
            await add_one(store, f"{os.getpid()}-{task}-{number}")
            await store.add(HumanMemory(id="upserts", content=f"{number}"))

    async def main() -> None:
        async with PostgresMemoryStore(dsn) as store:
            await asyncio.gather(*(work(store, task) for task in range(tasks)))

    pipe.send("ready")
    pipe.recv()
    try:
        asyncio.run(main())
    except Exception as exc:  # noqa: BLE001 - told to the parent
        pipe.send(repr(exc))
    else:
        pipe.send(added)


class _Slow(HashEmbeddings):
    """Embeds the first texts at once, says so, and then takes forever."""

    name = "slow"

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe
        self._calls = 0

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        self._calls += 1
        if self._calls > 1:
            self._pipe.send("embedding")
            await asyncio.sleep(3600)
        return [self.embed(text) for text in texts]


def embed_forever(pipe: Connection, dsn: str, count: int) -> None:
    """Add *count* items and embed them, until the parent ends it."""

    async def main() -> None:
        embedding.LEASE = 0.5  # so that the parent need not wait
        async with PostgresMemoryStore(dsn, embeddings=_Slow(pipe)) as store:
            await store.add_many(
                [HumanMemory(id=f"{n}", content=f"note {n}") for n in range(count)]
            )
            await store.catch_up()

    asyncio.run(main())
