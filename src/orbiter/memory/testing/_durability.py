"""Opening, closing, and surviving `kill -9`."""

import asyncio
import json
import os
import sys
from typing import Any, ClassVar

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.items import HumanMemory, MemoryMetadata
from orbiter.memory.protocols import MemoryStore
from orbiter.memory.testing._contract import KitNote
from orbiter.memory.testing.capabilities import Capabilities, Recipe, needs

KILLS = 5


class DurabilityContract:
    """What is acknowledged is there, whatever happens to the process."""

    capabilities: ClassVar[Capabilities]

    def recipe(self, store: MemoryStore) -> Recipe:
        """Return how to make another store on the same data."""
        raise NotImplementedError

    @needs(lifecycle=True)
    async def test_init_and_close_may_be_repeated(self, store: Any) -> None:
        await store.add(HumanMemory(content="hi"))
        await store.init()
        await asyncio.gather(store.init(), store.init())
        assert len(await store.search()) == 1

        await store.close()
        await store.close()

    @needs(lifecycle=True)
    async def test_a_closed_store_says_so(self, store: Any) -> None:
        await store.close()

        for call in (
            store.add(HumanMemory(content="hi")),
            store.get("x"),
            store.search(),
            store.clear(),
        ):
            with pytest.raises(RuntimeError, match="not initialized") as caught:
                await call
            assert isinstance(caught.value, MemoryError)

    @needs(durable=True, lifecycle=True)
    async def test_a_reopened_store_has_everything_as_it_was(self, store: Any) -> None:
        note = KitNote(content="buy milk", mood="calm")
        await store.add(HumanMemory(content="old", id="one"))
        await store.add(HumanMemory(content="new", id="one", metadata=MemoryMetadata(user_id="u")))
        await store.add(HumanMemory(content="gone", metadata=MemoryMetadata(user_id="bob")))
        await store.add(note)
        await store.clear(metadata=MemoryMetadata(user_id="bob"))
        before = await store.search()
        await store.close()

        again: Any = self.recipe(store).make()
        await again.init()
        try:
            assert await again.search() == before
            assert await again.get(note.id) == note
            assert (await again.get("one")).version == 2
            await again.add(HumanMemory(content="newer", id="one"))
            assert (await again.get("one")).version == 3
        finally:
            await again.close()

    @needs(durable=True, lifecycle=True)
    async def test_kill_9_loses_nothing_acknowledged(self, store: Any) -> None:
        recipe = self.recipe(store)
        await store.close()
        acknowledged: list[str] = []
        for number in range(KILLS):
            acknowledged += await _write_until_killed(recipe, acks=1 + 7 * number)

        again: Any = recipe.make()
        await again.init()
        try:
            for item_id in acknowledged:
                found = await again.get(item_id)
                assert found is not None, f"acknowledged and lost: {item_id}"
                assert found.content == f"content of {item_id}"
            listed = {item.id for item in await again.search(limit=100_000)}
            assert listed >= set(acknowledged)
        finally:
            await again.close()

    @needs(shared=True, lifecycle=True)
    async def test_two_stores_on_the_same_data_agree(self, store: Any) -> None:
        other: Any = self.recipe(store).make()
        await other.init()
        try:
            await asyncio.gather(
                *(each.add(HumanMemory(id="one", content="x")) for each in (store, other) * 20)
            )
            mine, theirs = await store.get("one"), await other.get("one")

            assert mine == theirs
            assert mine.version == 40
        finally:
            await other.close()


async def _write_until_killed(recipe: Recipe, acks: int) -> list[str]:
    """Return the ids a child process acknowledged before it was killed in mid-write."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "orbiter.memory.testing._child",
        recipe.target,
        json.dumps(recipe.args),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdout is not None
    try:
        lines = [await asyncio.wait_for(child.stdout.readline(), 60) for _ in range(acks)]
    finally:
        child.kill()
    lines += (await child.stdout.read()).splitlines(keepends=True)
    await child.wait()
    seen = [line.decode().strip() for line in lines if line.endswith(b"\n")]
    assert len(seen) >= acks, "the child process ended by itself; see its error output"
    return seen
