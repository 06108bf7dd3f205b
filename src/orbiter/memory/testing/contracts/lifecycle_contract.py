"""Opening and closing: both may be repeated, by anyone, at any time, and nothing is left open."""

import asyncio
import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import HumanMemory
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import Contract, contents, person

__all__ = ["DESCRIPTORS", "LifecycleContract"]

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
            found = contents(await store.search())
            await store.close()

        assert found == self._ordered("n0", "n1", "n2", "n3", "n4")


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
