"""What the contracts share: a capability declaration, samples, and what it is to be the same."""

import json
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field, computed_field

from orbiter.memory.model.items import HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.serialization import dump_item
from orbiter.memory.testing.capabilities import Capabilities

__all__ = [
    "DEADLINE",
    "HOSTILE_IDS",
    "START",
    "Contract",
    "KitNote",
    "KitOrder",
    "add_all",
    "contents",
    "of",
    "person",
    "stored",
    "written",
]

START = datetime(2025, 1, 1, tzinfo=UTC)

DEADLINE = 180.0
"""Seconds after which a call counts as hung: far beyond any honest wait."""

HOSTILE_IDS = (
    "alice", "Alice", "ALICE", "alice ", " alice", "alice1", "alic", "alice\n", "alice\t",
    "a%", "%", "_", "alic_", "al%e", "*", "?", "[a]lice", "alice*",
    "alice'", "alice''", 'alice"', "alice\\", "alice;--", "' OR '1'='1", '") OR ("1"="1',
    '{"user_id":"alice"}', '"alice"', "null", "None", "NULL", "", "0", "7", "007", "7.0",
    "true", "[]", "{}", "$1", ":id", "alicе", "ａlice", "al\u200bice", "alice\u0301",
    "user_id", "a" * 256, "a" * 255 + "b", "alice/bob", "alice:bob", "alice|bob", "alice\x01",
)  # fmt: skip
"""Ids that some query language, file system or comparison takes for another one of them."""


class KitNote(MemoryItem):
    """A kind of item no store has ever heard of."""

    memory_type: str = "orbiter.kit-note"
    mood: str
    scores: list[float] = Field(default_factory=list)
    due: datetime | None = None
    # Names that a table may use for itself.
    deleted: bool = False
    extra_json: str = ""
    seq: int = 0


class KitOrder(MemoryItem):
    """A kind of item with fields that are computed from others."""

    memory_type: str = "orbiter.kit-order"
    prices: list[float] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's documentation writes it
    @property
    def total(self) -> float:
        """The sum of the prices."""
        return sum(self.prices)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def label(self) -> str:
        """A text that is kept in the object once it was read."""
        return f"{self.content}: {self.total}"


class Contract:
    """Rules that hold for every store that declares what they need."""

    capabilities: ClassVar[Capabilities]

    def _ordered(self, *oldest_first: str) -> list[str]:
        newest = self.capabilities.order == "newest"
        return list(reversed(oldest_first)) if newest else list(oldest_first)


def person(content: str, seconds: float = 0, **fields: Any) -> HumanMemory:
    """Return what someone said, some seconds after the start."""
    created_at = START + timedelta(seconds=seconds)
    return HumanMemory(content=content, created_at=created_at, **fields)


def of(value: str, name: str = "user_id") -> MemoryMetadata:
    """Return metadata with one field set."""
    return MemoryMetadata.model_validate({name: value})


def contents(items: list[MemoryItem]) -> list[str]:
    """Return the contents of *items*, in order."""
    return [item.content for item in items]


def written(item: MemoryItem | None) -> str:
    """Return all there is to an item as text; unlike `==`, it tells 1 from 1.0."""
    if item is None:
        return "nothing"
    return f"{type(item).__name__} {json.dumps(dump_item(item), sort_keys=True)}"


async def add_all(store: Any, items: list[MemoryItem]) -> None:
    """Add *items* in order, in one step where the store can."""
    if hasattr(store, "add_many"):
        await store.add_many(items)
    else:
        for item in items:
            await store.add(item)


async def stored(store: MemoryStore, item: MemoryItem) -> MemoryItem:
    """Add *item* and return what the store then has of it."""
    await store.add(item)
    kept = await store.get(item.id)
    assert kept is not None, f"added and lost: `{item.id}`"
    return kept
