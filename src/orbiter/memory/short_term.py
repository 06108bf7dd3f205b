"""Short-term memory: conversations in this process, read by scope and window.

Items are copied on the way in and on the way out, so nothing a caller holds can change what is
kept. No method awaits while it works: each call is one step for every task of the event loop.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, islice

from orbiter.memory.conversation.tokens import TokenCounter, estimate_tokens, item_tokens
from orbiter.memory.conversation.windows import (
    OpenGroup,
    Room,
    Unit,
    newest_first,
    take_units,
    trim_units,
    walk_units,
)
from orbiter.memory.errors import EmptyFilterError, ScopeError
from orbiter.memory.model.copying import copy_item, validated_copy
from orbiter.memory.model.expiry_heap import ExpiryHeap
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus, role_of
from orbiter.memory.model.query import Query, ScopeField, check_size

__all__ = ["ShortTermMemory"]

_FIELDS: dict[str, tuple[ScopeField, ...]] = {
    "user": ("user_id", "agent_id"),
    "session": ("user_id", "session_id", "agent_id"),
    "task": ("user_id", "session_id", "task_id", "agent_id"),
}

_COUNTERS = 4
"""For how many token counters the counts are remembered."""

Filter = tuple[tuple[ScopeField, str], ...]


@dataclass(slots=True)
class _Shelf:
    """The items one filter finds, in order, and where the pinned kinds among them are."""

    items: list[MemoryItem] = field(default_factory=list)
    systems: list[MemoryItem] = field(default_factory=list)
    humans: list[MemoryItem] = field(default_factory=list)

    def lists_for(self, item: MemoryItem) -> Iterator[list[MemoryItem]]:
        yield self.items
        role = role_of(item)
        if role == "system":
            yield self.systems
        elif role == "human":
            yield self.humans


def _is_accepted(item: MemoryItem) -> bool:
    return item.status is MemoryStatus.ACCEPTED


def _accepted(items: Sequence[MemoryItem], cut: int) -> Iterator[tuple[int, MemoryItem]]:
    """Yield each item that counts with its index, the last first, down to the index *cut*."""
    for index in range(len(items) - 1, cut - 1, -1):
        if _is_accepted(items[index]):
            yield index, items[index]


class ShortTermMemory:
    """In-memory conversation store with scope filtering and windowing.

    `scope` names the metadata fields that filter: `user`, `session` or `task`. `max_rounds`
    limits what is read, never what is kept; 0 means no limit. Without a `memory_type`, what
    `search` returns is a legal conversation, in the order in which it was added, whatever the
    clocks of those who made the items said.
    """

    def __init__(self, *, scope: str = "task", max_rounds: int = 0) -> None:
        if scope not in tuple(_FIELDS):  # whatever it is, hashable or not
            raise ScopeError(scope)
        self._scope = scope
        self.max_rounds = max_rounds
        self._items: dict[str, MemoryItem] = {}
        self._arrival: dict[str, int] = {}
        self._arrivals = 0
        # Each item stands on the shelf of every filter that finds it (at most 16), so a read
        # looks up one shelf and touches nothing but its window.
        self._shelves: dict[Filter, _Shelf] = {}
        self._counts: dict[TokenCounter, dict[str, int]] = {}
        self._expiry = ExpiryHeap()

    @property
    def scope(self) -> str:
        """Which metadata fields filter; fixed, because items are filed by it."""
        return self._scope

    @property
    def max_rounds(self) -> int:
        """How many rounds are read; 0 means all. It may be changed at any time."""
        return self._max_rounds

    @max_rounds.setter
    def max_rounds(self, count: int) -> None:
        self._max_rounds = check_size("max_rounds", count)

    async def add(self, item: MemoryItem) -> None:
        """Keep *item*, or update the one with its id, which keeps its `created_at` and place."""
        self._keep(validated_copy(item))

    async def add_many(self, items: Sequence[MemoryItem]) -> None:
        """Keep every item of *items*, in order; if one is refused, none is kept."""
        for item in [validated_copy(item) for item in items]:
            self._keep(item)

    async def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None`."""
        self._sweep()
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
    ) -> list[MemoryItem]:
        """Return the *limit* matching items that were added last, in the order they were added.

        Filters, then the text, then `max_rounds`, then whole tool groups, then the limit. With a
        `memory_type`, single items are meant: an item is found if its tool group is whole in the
        stored conversation. A filter that sets only fields which the scope ignores is an
        `EmptyFilterError`: it would find everyone's items.
        """
        asked = Query(
            text=query,
            metadata=metadata,
            memory_type=memory_type,
            status=status,
            limit=limit,
            fields=_FIELDS[self.scope],
        )
        self._sweep()
        shelf = self._shelf(asked)
        if asked.memory_type is not None:
            units = self._windowed(newest_first(shelf.items), shelf.systems)
            singles = ((i, [item]) for i, unit in units for item in reversed(unit))
            found = take_units((one for one in singles if asked.matches(one[1][0])), limit)
        else:
            newest = newest_first(shelf.items)
            systems = shelf.systems
            if asked.text or asked.status is not None:
                newest = ((i, item) for i, item in newest if asked.matches(item))
                systems = [item for item in systems if asked.matches(item)]
            found = take_units(self._windowed(newest, systems), limit)
        return [copy_item(item) for _, unit in reversed(list(found)) for item in unit]

    async def items(self, *, metadata: MemoryMetadata | None = None) -> list[MemoryItem]:
        """Return every item that matches *metadata*, as it was added, whole tool group or not.

        All fields of *metadata* count, whatever the scope.
        """
        self._sweep()
        query = Query(metadata=metadata)
        return [copy_item(item) for item in self._items.values() if query.matches(item)]

    async def window(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        max_items: int | None = None,
        budget: int | None = None,
        counter: TokenCounter = estimate_tokens,
        open_group: OpenGroup = "drop",
    ) -> list[MemoryItem]:
        """Return the conversation a model should see, as it was added, within *budget* tokens.

        Only accepted items take part; drafts and discarded ones are for `search`.
        What is kept first when room is short is told by `trim_to_budget`.
        The cost is that of the window and of the system messages, however long the conversation.
        """
        self._sweep()
        shelf = self._shelf(Query(metadata=metadata, fields=_FIELDS[self.scope]))
        items = shelf.items
        humans = filter(_is_accepted, reversed(shelf.humans))
        starts = [self._place(items, item) for item in islice(humans, self.max_rounds or 1)]
        cut = starts[-1] if self.max_rounds and len(starts) == self.max_rounds else 0
        kept = trim_units(
            items,
            _accepted(items, cut),
            systems=[self._place(items, item) for item in filter(_is_accepted, shelf.systems)],
            human=starts[0] if starts else None,
            room=Room(max_items, budget, partial(self._cost, counter)),
            open_group=open_group,
        )
        return [copy_item(item) for item in kept]

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Remove what matches, or everything without a filter; return how many."""
        self._sweep()
        if metadata is None:
            removed = len(self._items)
            for held in (self._items, self._arrival, self._shelves, self._counts):
                held.clear()
            self._expiry = ExpiryHeap()
            return removed
        asked = Query(metadata=metadata, fields=_FIELDS[self.scope])
        if not asked.wanted:
            raise EmptyFilterError(_FIELDS[self.scope])
        gone = {item.id: item for item in self._shelf(asked).items}
        self._remove(gone)
        return len(gone)

    async def delete(self, item_id: str) -> bool:
        """Remove one item for good; tell whether it was there."""
        self._sweep()
        item = self._items.get(item_id)
        if item is not None:
            self._remove({item_id: item})
        return item is not None

    def __len__(self) -> int:
        self._sweep()
        return len(self._items)

    def __repr__(self) -> str:
        return (
            f"ShortTermMemory(scope={self.scope!r}, max_rounds={self.max_rounds}, "
            f"items={len(self)})"
        )

    def _sweep(self) -> None:
        """Remove what is over."""
        gone = {item_id: self._items[item_id] for item_id in self._expiry.expired()}
        if gone:
            self._remove(gone)

    def _remove(self, gone: dict[str, MemoryItem]) -> None:
        self._unshelve(gone)
        for item_id in gone:
            del self._items[item_id], self._arrival[item_id]
            self._expiry.note(item_id, None)
            self._uncount(item_id)

    def _keep(self, item: MemoryItem) -> None:
        self._sweep()
        old = self._items.get(item.id)
        if old is None:
            item.__dict__["version"] = 1
            self._arrivals += 1
            self._arrival[item.id] = self._arrivals
        else:
            item.__dict__.update(version=old.version + 1, created_at=old.created_at)
            self._unshelve({item.id: old})
            self._uncount(item.id)
        self._items[item.id] = item
        self._expiry.note(item.id, item.expires_at)
        order = self._order(item)
        for key in self._filters(item):
            for held in self._shelves.setdefault(key, _Shelf()).lists_for(item):
                if not held or self._order(held[-1]) <= order:
                    held.append(item)
                else:
                    insort(held, item, key=self._order)

    def _unshelve(self, gone: dict[str, MemoryItem]) -> None:
        """Take items off every shelf; a few are looked up, many are swept out."""
        touched: dict[Filter, list[MemoryItem]] = {}
        for item in gone.values():
            for key in self._filters(item):
                touched.setdefault(key, []).append(item)
        for key, items in touched.items():
            shelf = self._shelves[key]
            if len(items) == len(shelf.items):
                del self._shelves[key]
            elif len(items) == 1:
                for held in shelf.lists_for(items[0]):
                    del held[self._place(held, items[0])]
            else:
                for held in (shelf.items, shelf.systems, shelf.humans):
                    held[:] = [item for item in held if item.id not in gone]

    def _filters(self, item: MemoryItem) -> Iterator[Filter]:
        set_fields = [
            (name, value)
            for name in _FIELDS[self.scope]
            if (value := getattr(item.metadata, name)) is not None
        ]
        for size in range(len(set_fields) + 1):
            yield from combinations(set_fields, size)

    def _shelf(self, asked: Query) -> _Shelf:
        if asked.names_only_ignored_fields:
            raise EmptyFilterError(asked.fields, verb="find")
        return self._shelves.get(tuple(asked.wanted.items()), _Shelf())

    def _windowed(
        self, newest: Iterable[tuple[int, MemoryItem]], systems: Sequence[MemoryItem]
    ) -> Iterator[tuple[int, Unit]]:
        """Yield units newest first, down to the window's start, then the system ones before it."""
        left = self.max_rounds
        for index, unit in walk_units(newest):
            yield index, unit
            if left and role_of(unit[0]) == "human":
                left -= 1
                if not left:
                    start = self._order(unit[0])
                    before = [item for item in systems if self._order(item) < start]
                    yield from ((-1, [item]) for item in reversed(before))
                    return

    def _order(self, item: MemoryItem) -> int:
        return self._arrival[item.id]

    def _place(self, held: Sequence[MemoryItem], item: MemoryItem) -> int:
        return bisect_left(held, self._order(item), key=self._order)

    def _cost(self, counter: TokenCounter, item: MemoryItem) -> int:
        try:
            counts = self._counts.get(counter)
        except TypeError:  # not hashable: counted each time
            return item_tokens(item, counter=counter)
        if counts is None:
            if len(self._counts) >= _COUNTERS:  # a new lambda for each call must not pile up
                del self._counts[next(iter(self._counts))]
            counts = self._counts[counter] = {}
        tokens = counts.get(item.id)
        if tokens is None:
            tokens = counts[item.id] = item_tokens(item, counter=counter)
        return tokens

    def _uncount(self, item_id: str) -> None:
        for counts in self._counts.values():
            counts.pop(item_id, None)
