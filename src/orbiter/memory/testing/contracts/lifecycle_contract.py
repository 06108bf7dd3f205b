"""Opening, closing, surviving `kill -9`, and sharing the same data."""

import asyncio
import gc
import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import AIMemory, HumanMemory
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.serialization import load_item
from orbiter.memory.testing.capabilities import Recipe, needs
from orbiter.memory.testing.contracts.base_contract import (
    DEADLINE,
    Contract,
    KitNote,
    contents,
    of,
    person,
    written,
)
from orbiter.memory.testing.contracts.fidelity_contract import KINDS

__all__ = [
    "DESCRIPTORS",
    "KILLS",
    "DurabilityContract",
    "LifecycleContract",
]

DESCRIPTORS = Path("/dev/fd")
"""Where Unix lists the open files and sockets of a process; Windows has no such place."""


class LifecycleContract(Contract):
    """`init` and `close`."""

    @needs(lifecycle=True)
    async def test_init_and_close_may_be_repeated(self, store: Any) -> None:
        await store.add(HumanMemory(content="hi"))
        await store.init()
        await asyncio.gather(store.init(), store.init())
        assert len(await store.search()) == 1

        await store.close()
        await store.close()
        await asyncio.gather(store.close(), store.close())

    @needs(lifecycle=True)
    async def test_a_closed_store_says_so(self, store: Any) -> None:
        await store.close()

        for method, arguments in (
            (store.add, [HumanMemory(content="hi")]),
            (store.get, ["x"]),
            (store.search, []),
            (store.clear, []),
        ):
            with pytest.raises(RuntimeError, match="not initialized") as caught:
                await method(*arguments)
            assert isinstance(caught.value, MemoryError)

    @needs(lifecycle=True, batch=True)
    async def test_a_closed_store_takes_no_batch(self, store: Any) -> None:
        await store.close()

        with pytest.raises(RuntimeError, match="not initialized") as caught:
            await store.add_many([HumanMemory(content="hi")])
        assert isinstance(caught.value, MemoryError)

    @needs(lifecycle=True)
    async def test_a_closed_store_can_be_opened_again(self, store: Any) -> None:
        for number in range(3):
            await store.close()
            await store.init()
            item = person(f"n{number}")
            await store.add(item)
            assert await store.get(item.id) == item

    @needs(lifecycle=True, durable=True)
    async def test_a_store_opened_again_has_its_data(self, store: Any) -> None:
        for number in range(3):
            await store.add(person(f"n{number}", number))
            await store.close()
            await store.init()

        assert contents(await store.search()) == self._ordered("n0", "n1", "n2")

    @needs(lifecycle=True)
    async def test_callers_who_open_at_once_share_one_opening(self, store: Any) -> None:
        async def open_and_write(number: int) -> None:
            await store.init()
            await store.add(person(f"n{number}", number))

        await store.close()
        with _nothing_left_open():
            await asyncio.gather(*(open_and_write(number) for number in range(5)))
            texts = contents(await store.search())
            await store.close()

        assert texts == self._ordered("n0", "n1", "n2", "n3", "n4")


def _open_files() -> int:
    return len(os.listdir(DESCRIPTORS)) if DESCRIPTORS.exists() else 0  # noqa: PTH208 - a count


@contextmanager
def _nothing_left_open() -> Iterator[None]:
    """Fail if what was opened meanwhile is still open, or was left for the collector to close."""
    gc.collect()
    before = _open_files()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    forgotten = [str(each.message) for each in caught if each.category is ResourceWarning]
    assert forgotten == [], "opened more than once"
    assert _open_files() <= before, "closed less often than opened"


KILLS = 3


class DurabilityContract(Contract):
    """What is acknowledged is there, whatever happens to the process."""

    if TYPE_CHECKING:  # `StoreConformance` has it, and says what to do when it is missing

        def recipe(self, store: MemoryStore) -> Recipe: ...

    @needs(durable=True)
    async def test_a_reopened_store_has_everything_as_it_was(self, store: Any) -> None:
        note = KitNote(content="buy milk", mood="calm")
        await store.add(HumanMemory(content="old", id="one"))
        await store.add(HumanMemory(content="new", id="one", metadata=of("u")))
        await store.add(HumanMemory(content="gone", metadata=of("bob")))
        await store.add(note)
        await store.clear(metadata=of("bob"))
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

    @needs(durable=True)
    async def test_a_reopened_store_has_every_field_and_the_same_order(self, store: Any) -> None:
        unheard_of = {"memory_type": "orbiter.kit-unheard-of", "content": "soup", "salt": [1.0]}
        items = [
            *(full.model_copy(update={"id": f"full {n}"}) for n, (full, _) in enumerate(KINDS)),
            *(bare.model_copy(update={"id": f"bare {n}"}) for n, (_, bare) in enumerate(KINDS)),
            load_item(unheard_of),
        ]
        ties = [person(str(number), id=f"tie {number}", metadata=of("ties")) for number in range(4)]
        for item in (*items, *ties, ties[1]):
            await store.add(item)
        await store.close()

        again: Any = self.recipe(store).make()
        await again.init()
        try:
            assert [written(await again.get(item.id)) for item in items] == list(
                map(written, items)
            )
            texts = [item.content for item in await again.search(metadata=of("ties"))]
            assert texts == self._ordered("0", "1", "2", "3")
            await again.add(person("4", metadata=of("ties")))
            texts = [item.content for item in await again.search(metadata=of("ties"))]
            assert texts == self._ordered("0", "1", "2", "3", "4")
        finally:
            await again.close()

    @needs(durable=True)
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
                kept = await again.get(item_id)
                assert kept is not None, f"acknowledged and lost: {item_id}"
                assert kept.content == f"content of {item_id}"
            listed = {item.id for item in await again.search(limit=100_000)}
            assert listed >= set(acknowledged)
            if self.capabilities.key_value:
                log = await again.key_value.entries(("log",), scope=of("writer"), limit=100_000)
                logged = [entry.value.decode() for entry in log]
                assert [each for each in logged if each in set(acknowledged)] == acknowledged
        finally:
            await again.close()

    @needs(shared=True)
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

    @needs(shared=True)
    async def test_what_one_store_writes_the_other_sees_at_once(self, store: Any) -> None:
        other: Any = self.recipe(store).make()
        await other.init()
        try:
            item = AIMemory(content="hi", metadata=of("ann"))
            await store.add(item)
            assert await other.search(metadata=of("ann")) == [item]
            await other.add(AIMemory(id=item.id, content="ho"))
            assert await store.search(metadata=of("ann")) == []
            assert [each.content for each in await store.search()] == ["ho"]
            assert await store.clear() == 1
            assert await other.get(item.id) is None
            assert await other.clear() == 0
        finally:
            await other.close()


async def _write_until_killed(recipe: Recipe, acks: int) -> list[str]:
    """Return the ids a child process acknowledged before it was killed in mid-write."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(Path(__file__).with_name("writer_process.py")),
        recipe.target,
        json.dumps(recipe.args),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdout is not None
    try:
        lines = [await asyncio.wait_for(child.stdout.readline(), DEADLINE) for _ in range(acks)]
    finally:
        child.kill()
    lines += (await child.stdout.read()).splitlines(keepends=True)
    await child.wait()
    seen = [line.decode().strip() for line in lines if line.endswith(b"\n")]
    assert len(seen) >= acks, "the child process ended by itself; see its error output"
    return seen
