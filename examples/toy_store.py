"""A store in one JSON file: all that a package needs to add a scheme of its own, here `toy://`.

`register_store("toy", ToyStore)`, or an entry point in the group `orbiter_memory.stores`, and
`AgentMemory("toy:///tmp/notes.json")`, the command line and `migrate` take it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from orbiter.memory import MemoryItem, MemoryMetadata
from orbiter.memory.backends.arguments import check_several_ids
from orbiter.memory.errors import EmptyFilterError, NotInitializedError
from orbiter.memory.model.copying import copy_item, validated_copy
from orbiter.memory.model.items import MemoryStatus
from orbiter.memory.model.query import Query
from orbiter.memory.model.serialization import dump_item, load_item


class ToyStore:
    """Keeps items in the file that *url* names; a write is durable when it returns."""

    def __init__(self, url: str) -> None:
        self._path = Path(url.removeprefix("toy://")).absolute()
        self.identity = str(self._path)  # by which `serve` and `keys` find its keys
        self._items: Mapping[str, MemoryItem] | None = None

    async def init(self) -> None:
        if self._items is None:
            lines = self._path.read_text().splitlines() if self._path.exists() else []
            self._items = {item.id: item for item in (load_item(json.loads(x)) for x in lines)}

    async def close(self) -> None:
        self._items = None

    async def add(self, item: MemoryItem) -> None:
        await self.add_many([item])

    async def add_many(self, items: Sequence[MemoryItem]) -> None:
        held = self._held()
        for item in [validated_copy(each) for each in items]:
            old = held.get(item.id)
            if old is None or is_expired(old):
                item.__dict__["version"] = 1
            else:
                item.__dict__.update(version=old.version + 1, created_at=old.created_at)
            held[item.id] = item
        self._write(held)

    async def get(self, item_id: str) -> MemoryItem | None:
        item = self._held().get(item_id)
        return item and copy_item(item)

    async def search(
        self,
        *,
        query: str = "",
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        limit: int = 10,
    ) -> list[MemoryItem]:
        wanted = Query(query, metadata, memory_type, status, limit)
        by_time = sorted(filter(wanted.matches, self._held().values()), key=lambda i: i.created_at)
        return [copy_item(item) for item in by_time[::-1][:limit]]

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        wanted = Query(metadata=metadata)
        if metadata is not None and not wanted.wanted:
            raise EmptyFilterError()
        return await self.delete_many([i.id for i in self._held().values() if wanted.matches(i)])

    async def delete_many(self, item_ids: Sequence[str]) -> int:
        held = self._held()
        gone = [held.pop(item_id) for item_id in check_several_ids(item_ids) if item_id in held]
        self._write(held)
        return len(gone)

    def _held(self) -> dict[str, MemoryItem]:
        if self._items is None:
            raise NotInitializedError(self)
        return {item.id: item for item in self._items.values() if not is_expired(item)}

    def _write(self, held: Mapping[str, MemoryItem]) -> None:
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            file.writelines(json.dumps(dump_item(item)) + "\n" for item in held.values())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._items = held


def is_expired(item: MemoryItem) -> bool:
    return item.expires_at is not None and item.expires_at <= datetime.now(UTC)
