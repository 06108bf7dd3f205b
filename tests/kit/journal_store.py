"""A small durable store: one JSON line per write, synced before it is acknowledged.

It shows what a third party writes, and gives the kit's lifecycle and durability groups something
real to test.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from orbiter.memory import MemoryError, MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.errors import EmptyFilterError
from orbiter.memory.model import Query, dump_item, load_item
from orbiter.memory.model.copying import copy_item, validated_copy
from orbiter.memory.model.filters import Where


class NotInitializedError(MemoryError, RuntimeError):
    pass


class JournalStore:
    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file: TextIO | None = None
        self._items: dict[str, MemoryItem] = {}

    async def init(self) -> None:
        if self._file is not None:
            return
        self._items = {}
        if self._path.exists():
            whole = self._path.read_bytes().rpartition(b"\n")[0]  # the rest was never acknowledged
            for line in whole.splitlines():
                self._apply(json.loads(line))
            with self._path.open("rb+") as file:
                file.truncate(len(whole) + (1 if whole else 0))
        self._file = self._path.open("a", encoding="utf-8")

    async def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def add(self, item: MemoryItem) -> None:
        await self.add_many([item])

    async def add_many(self, items: list[MemoryItem]) -> None:
        self._opened()
        kept: dict[str, MemoryItem] = {}
        for item in map(validated_copy, items):
            old = kept.get(item.id) or self._items.get(item.id)
            if old is None or _is_expired(old):
                item.__dict__["version"] = 1
            else:
                item.__dict__.update(version=old.version + 1, created_at=old.created_at)
            kept[item.id] = item
        self._write({"add": [dump_item(item) for item in kept.values()]})

    async def get(self, item_id: str) -> MemoryItem | None:
        self._opened()
        item = self._items.get(item_id)
        return None if item is None else copy_item(item)

    async def search(
        self,
        *,
        query: str = "",
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        limit: int = 10,
        where: Where | None = None,
    ) -> list[MemoryItem]:
        self._opened()
        asked = Query(query, metadata, memory_type, status, limit, where=where)
        found = [item for item in self._items.values() if asked.matches(item)]
        found.sort(key=lambda item: item.created_at)
        return [copy_item(item) for item in found[::-1][:limit]]

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        self._opened()
        asked = Query(metadata=metadata)
        if metadata is not None and not asked.wanted:
            raise EmptyFilterError()
        gone = [item.id for item in self._items.values() if asked.matches(item)]
        self._write({"clear": gone})
        return len(gone)

    def _opened(self) -> TextIO:
        if self._file is None:
            raise NotInitializedError("the journal is not initialized; call init() first")
        for item in filter(_is_expired, list(self._items.values())):
            del self._items[item.id]
        return self._file

    def _write(self, record: dict[str, Any]) -> None:
        file = self._opened()
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())
        self._apply(record)

    def _apply(self, record: dict[str, Any]) -> None:
        for item_id in record.get("clear", ()):
            self._items.pop(item_id, None)
        for dumped in record.get("add", ()):
            item = load_item(dumped)
            self._items[item.id] = item


def _is_expired(item: MemoryItem) -> bool:
    return item.expires_at is not None and item.expires_at <= datetime.now(UTC)
