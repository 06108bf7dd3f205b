"""`SQLiteMemoryStore` keeps every contract, in memory and in a file."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from orbiter.memory import MemoryStore, SQLiteMemoryStore
from orbiter.memory.testing import Capabilities, Recipe, StoreConformance


class TestInMemory(StoreConformance):
    is_variant = True
    capabilities = Capabilities(
        durable=False,
        shared=False,
        versions=True,
        paging=True,
        where=True,
        bulk_delete=True,
        insert=True,
        insertion_order=True,
        key_value=True,
        facets=True,
        erase=True,
    )

    model_settings = settings(StoreConformance.model_settings, max_examples=10)

    @pytest.fixture
    async def store(self) -> AsyncIterator[SQLiteMemoryStore]:
        async with SQLiteMemoryStore() as store:
            yield store


@pytest.mark.slow
class TestInAFile(StoreConformance):
    capabilities = Capabilities(
        versions=True,
        paging=True,
        where=True,
        bulk_delete=True,
        insert=True,
        insertion_order=True,
        key_value=True,
        facets=True,
        erase=True,
    )
    model_settings = settings(StoreConformance.model_settings, max_examples=20)

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SQLiteMemoryStore]:
        async with SQLiteMemoryStore(str(tmp_path / "memory.db")) as store:
            yield store

    def recipe(self, store: MemoryStore) -> Recipe:
        made: Any = store
        return Recipe("orbiter.memory.backends.sqlite.store:SQLiteMemoryStore", (made.db_path,))
