"""A sliding window of plain conversation entries.

The names, constructors and reprs are `synaptic.core.base.memory`'s, kept to the letter.
"""

from collections.abc import Sequence

from orbiter.memory.conversation import history_items
from orbiter.memory.conversation.history_entries import Memory, ResponseMem, UserMem
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import check_size
from orbiter.memory.model.tool_calls import ToolCall

__all__ = ["History", "Memory", "ResponseMem", "ToolCall", "UserMem"]


class History:
    """Keeps the newest `size` entries, oldest first.

    A response holds its tool calls and their results in one entry, so the window never splits
    a tool group.
    """

    def __init__(self, memoryList: list[Memory] | None = None, size: int = 10) -> None:
        self.MemoryList: list[Memory] = list(memoryList or ())
        self.size = check_size("size", size)
        self._size_update()

    def __len__(self) -> int:
        return len(self.MemoryList)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return (self.MemoryList, self.size) == (other.MemoryList, other.size)

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"History({self.MemoryList!r}, size={self.size})"

    def _size_update(self) -> None:
        del self.MemoryList[: max(0, len(self.MemoryList) - self.size)]

    def window(self, size: int) -> list[Memory]:
        """Set how many entries are kept, drop the oldest beyond that, and return the rest."""
        self.size = check_size("size", size)
        self._size_update()
        return self.MemoryList

    def add(self, memory: Memory) -> None:
        """Append an entry and drop the oldest beyond `size`."""
        self.MemoryList.append(memory)
        self._size_update()

    def to_items(self, *, metadata: MemoryMetadata | None = None) -> list[MemoryItem]:
        """Return the entries as memory items; `from_items` brings back equal entries.

        *metadata* is given to entries that did not come from items themselves.
        """
        return history_items.to_items(self.MemoryList, metadata or MemoryMetadata())

    @classmethod
    def from_items(cls, items: Sequence[MemoryItem], *, size: int | None = None) -> "History":
        """Return a history of *items*; by default it is large enough for all of them.

        As long as an entry is not changed, `to_items` gives its items back as they were.
        """
        entries = history_items.from_items(items)
        return cls(entries, size=max(10, len(entries)) if size is None else size)
