"""Many tasks at once, and tasks that are cancelled at any moment."""

import asyncio
from typing import Any

from orbiter.memory.model.items import HumanMemory, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import DEADLINE, Contract

__all__ = ["ConcurrencyContract"]


class ConcurrencyContract(Contract):
    """Nothing acknowledged is lost, torn or counted twice; nothing hangs."""

    async def test_concurrent_adds_are_all_kept(self, store: MemoryStore) -> None:
        items = [HumanMemory(content=str(number)) for number in range(200)]

        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*(store.add(item) for item in items))

        kept = await store.search(limit=1000)
        assert {item.id for item in kept} == {item.id for item in items}

    async def test_concurrent_updates_each_count(self, store: MemoryStore) -> None:
        versions = [HumanMemory(id="one", content=str(number)) for number in range(60)]

        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*(store.add(item) for item in versions))

        current = await store.get("one")
        assert current is not None
        assert current.version == 60
        assert len(await store.search()) == 1

    async def test_readers_see_whole_items_while_others_write(self, store: MemoryStore) -> None:
        async def write(number: int) -> None:
            who = MemoryMetadata(user_id=f"u{number % 3}", extra={"n": number})
            await store.add(HumanMemory(id=f"i{number % 5}", content=f"n{number}", metadata=who))

        async def read(number: int) -> None:
            who = MemoryMetadata(user_id=f"u{number % 3}")
            for item in await store.search(metadata=who):
                assert item.metadata.user_id == who.user_id
                assert item.content == f"n{item.metadata.extra['n']}"

        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*(work(n) for n in range(60) for work in (write, read)))

    async def test_a_cancelled_add_leaves_the_item_whole_or_absent(
        self, store: MemoryStore
    ) -> None:
        acknowledged = set()
        items = [HumanMemory(content=f"n{number}") for number in range(40)]
        async with asyncio.timeout(DEADLINE):
            for steps, item in enumerate(items):
                task = asyncio.create_task(store.add(item))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                if (await asyncio.gather(task, return_exceptions=True))[0] is None:
                    acknowledged.add(item.id)
                after = HumanMemory(content="after")
                await store.add(after)
                assert await store.get(after.id) == after

        for item in items:
            kept = await store.get(item.id)
            assert kept == item if item.id in acknowledged else kept in (None, item)
        listed = {item.id for item in await store.search(limit=1000) if item.content != "after"}
        assert listed == {item.id for item in items if await store.get(item.id)}

    async def test_a_cancelled_update_leaves_the_old_item_or_the_new(
        self, store: MemoryStore
    ) -> None:
        await store.add(HumanMemory(id="one", content="n0"))
        async with asyncio.timeout(DEADLINE):
            for number in range(1, 30):
                task = asyncio.create_task(store.add(HumanMemory(id="one", content=f"n{number}")))
                for _ in range(number % 10):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await store.search()

        # A server may still carry out what was cancelled; in the end both reads agree.
        for _ in range(100):
            item = await store.get("one")
            assert item is not None
            if await store.search(query=item.content) == [item]:
                break
            await asyncio.sleep(0.02)
        else:
            raise AssertionError("`get` and `search` do not agree on the item")
        assert len(await store.search()) == 1

    @needs(batch=True)
    async def test_a_cancelled_batch_is_kept_whole_or_not_at_all(self, store: Any) -> None:
        async with asyncio.timeout(DEADLINE):
            for steps in range(20):
                await store.clear()
                batch = [HumanMemory(content=str(number)) for number in range(20)]
                task = asyncio.create_task(store.add_many(batch))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await store.add(HumanMemory(content="after"))

                assert len(await store.search(limit=1000)) in (1, 21)
