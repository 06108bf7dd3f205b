"""Does the leak test find leaks? Each store below confuses something; it must be told what."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.journal_store import JournalStore

from orbiter.memory import MemoryItem, MemoryMetadata
from orbiter.memory.testing import Capabilities, hostile_pairs_leak_nothing

ABLE = Capabilities(shared=False, where=True)


def _changed(metadata: MemoryMetadata, change: Any) -> MemoryMetadata:
    given = {name: value for name, value in metadata.model_dump().items() if isinstance(value, str)}
    return MemoryMetadata.model_validate({name: change(value) for name, value in given.items()})


class Confused(JournalStore):
    """Takes two ids for the same when *change* makes them so."""

    change: Any = None
    clears_more = False
    forgets = ""

    async def search(self, *, metadata: Any = None, **asked: Any) -> list[MemoryItem]:
        if self.change is None or metadata is None:
            found = await super().search(metadata=metadata, **asked)
        else:
            wanted = _changed(metadata, self.change).model_dump(exclude={"extra"})
            everything = await super().search(**asked)
            found = [
                item
                for item in everything
                if all(
                    value is None or getattr(_changed(item.metadata, self.change), name) == value
                    for name, value in wanted.items()
                )
            ]
        return [item for item in found if not self.forgets or self.forgets not in item.content]

    async def clear(self, *, metadata: Any = None) -> int:
        if self.clears_more and metadata is not None:
            for item in [*self._items.values()]:
                if item.metadata.user_id == "alice ":
                    self._items.pop(item.id)
        return await super().clear(metadata=metadata)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Confused]:
    store = Confused(str(tmp_path / "journal"))
    await store.init()
    yield store
    await store.close()


async def test_a_store_that_confuses_nothing_passes(store: Confused) -> None:
    judged = await hostile_pairs_leak_nothing(store, pairs=40_000, capabilities=ABLE)

    assert judged >= 40_000


@pytest.mark.parametrize(
    "change",
    [str.casefold, str.strip, lambda text: text[:255], lambda text: text.lstrip("0") or "0"],
    ids=["case", "blanks", "length", "zeros"],
)
async def test_a_foreign_row_is_named(store: Confused, change: Any) -> None:
    store.change = change

    with pytest.raises(AssertionError, match="a foreign row: Query.* found `.*MemoryMetadata"):
        await hostile_pairs_leak_nothing(store, pairs=90_000, capabilities=ABLE)


async def test_a_missing_row_is_named(store: Confused) -> None:
    store.forgets = "NULL"

    with pytest.raises(AssertionError, match="a row is missing: Query.* did not find `"):
        await hostile_pairs_leak_nothing(store, pairs=40_000, capabilities=ABLE)


async def test_a_row_that_goes_with_others_is_noticed(store: Confused) -> None:
    store.clears_more = True

    with pytest.raises(AssertionError, match="a row is missing|removed"):
        await hostile_pairs_leak_nothing(store, pairs=40_000, capabilities=ABLE)


async def test_a_store_that_is_not_empty_is_refused(store: Confused) -> None:
    await store.add(MemoryItem(content="here"))

    with pytest.raises(ValueError, match="is not empty; give one that is"):
        await hostile_pairs_leak_nothing(store, pairs=100, capabilities=ABLE)
