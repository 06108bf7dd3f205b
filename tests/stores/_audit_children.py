"""Processes that write to an audited store, and say what was acknowledged."""

import asyncio
from multiprocessing.connection import Connection

from orbiter.memory import HumanMemory, MemoryMetadata
from orbiter.memory.backends.registry import open_store


def write_audited(pipe: Connection, url: str, name: str, count: int) -> None:
    """Add *count* items, and change every third; say the number of each that is durable."""

    async def main() -> None:
        store = open_store(url, audit="writes")
        await store.init()
        try:
            for number in range(count):
                who = MemoryMetadata(user_id=name)
                item = HumanMemory(id=f"{name}-{number // 3}", content=f"{number}", metadata=who)
                await store.add(item)
                pipe.send(number)
        finally:
            await store.close()

    asyncio.run(main())
