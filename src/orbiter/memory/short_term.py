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
    check_open_group,
    newest_first,
    take_units,
    trim_units,
    walk_units,
)
from orbiter.memory.errors import EmptyFilterError, ScopeError
from orbiter.memory.model.copying import copy_item, copy_items, validated_copy
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
    rounds: dict[int, "_Round"] = field(default_factory=dict)
    """Rounds that were read, by the index behind them: what came before does not change."""

    def lists_for(self, item: MemoryItem) -> Iterator[list[MemoryItem]]:
        yield self.items
        role = role_of(item)
        if role == "system":
            yield self.systems
        elif role == "human":
            yield self.humans


@dataclass(slots=True)
class _Round:
    """What one shelf holds from a human message to the next, or to the end."""

    start: int
    """Its index on the shelf; 0 for what stands before the first human message."""
    first: int
    """The index of the first of `items`."""
    items: list[MemoryItem]
    """All that counts but system messages, results behind their calls."""
    is_asked: bool
    """Whether it begins with a human message."""
    is_whole: bool
    """Whether every result is there for a call of this round, and every call has its result."""
    counter: TokenCounter | None = None
    tokens: int = 0
    """What `items` cost, as `counter` counts."""


def _read_round(items: Sequence[MemoryItem], end: int) -> _Round:
    """Return the round that ends before the index *end*."""
    parts: list[tuple[int, MemoryItem]] = []
    first, spoken, is_asked = end, 0, False
    for index, item in _accepted(items, 0, end):
        role = role_of(item)
        parts.append((index, item))
        if role != "system":
            first, spoken = index, spoken + 1
        if role == "human":
            is_asked = True
            break
    units = [unit for _, unit in walk_units(parts) if role_of(unit[0]) != "system"]
    kept = [item for unit in reversed(units) for item in unit]
    return _Round(first if is_asked else 0, first, kept, is_asked, len(kept) == spoken)


def _is_accepted(item: MemoryItem) -> bool:
    return item.status is MemoryStatus.ACCEPTED


def _accepted(
    items: Sequence[MemoryItem], start: int, end: int
) -> Iterator[tuple[int, MemoryItem]]:
    """Yield each item that counts from *start* up to *end* with its index, the last first."""
    for index in range(end - 1, start - 1, -1):
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
        filters = Query(
            text=query,
            metadata=metadata,
            memory_type=memory_type,
            status=status,
            limit=limit,
            fields=_FIELDS[self.scope],
        )
        self._sweep()
        shelf = self._shelf(filters)
        if filters.memory_type is not None:
            units = self._windowed(newest_first(shelf.items), shelf.systems)
            singles = ((i, [item]) for i, unit in units for item in reversed(unit))
            newest_units = take_units((one for one in singles if filters.matches(one[1][0])), limit)
        else:
            newest = newest_first(shelf.items)
            systems = shelf.systems
            if filters.text or filters.status is not None:
                newest = ((i, item) for i, item in newest if filters.matches(item))
                systems = [item for item in systems if filters.matches(item)]
            newest_units = take_units(self._windowed(newest, systems), limit)
        return copy_items(item for _, unit in reversed(list(newest_units)) for item in unit)

    async def items(self, *, metadata: MemoryMetadata | None = None) -> list[MemoryItem]:
        """Return every item that matches *metadata*, as it was added, whole tool group or not.

        All fields of *metadata* count, whatever the scope.
        """
        self._sweep()
        query = Query(metadata=metadata)
        return copy_items(filter(query.matches, self._items.values()))

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
        check_open_group(open_group)
        room = Room(max_items, budget, partial(self._cost, counter))
        kept = self._whole_rounds(shelf, room.copy(), counter)
        return copy_items(self._trimmed(shelf, room, open_group) if kept is None else kept)

    def _whole_rounds(
        self, shelf: _Shelf, room: Room, counter: TokenCounter
    ) -> list[MemoryItem] | None:
        """Return the window by rounds that were read before, as far as that is all it takes.

        `None` where a round depends on another one, or the newest must be cut: see `_trimmed`.
        """
        rounds: list[_Round] = []
        systems: list[MemoryItem] = []
        end = len(shelf.items)
        while end and not 0 < self.max_rounds <= len(rounds):
            candidate = shelf.rounds.get(end)
            if candidate is None:
                candidate = shelf.rounds[end] = _read_round(shelf.items, end)
            if not candidate.is_whole or not (rounds or candidate.is_asked):
                return None
            if not room.take_counted(
                len(candidate.items), partial(self._round_cost, counter, candidate)
            ):
                break
            if not rounds:
                systems = [i for i in shelf.systems if _is_accepted(i) and room.take([i])]
            rounds.append(candidate)
            end = candidate.start
        if not rounds or (systems and self._place(shelf.items, systems[-1]) > rounds[-1].first):
            return None
        return systems + [item for each in reversed(rounds) for item in each.items]

    def _trimmed(self, shelf: _Shelf, room: Room, open_group: OpenGroup) -> list[MemoryItem]:
        """Return the window of any conversation, unit by unit."""
        items = shelf.items
        humans = filter(_is_accepted, reversed(shelf.humans))
        starts = [self._place(items, item) for item in islice(humans, self.max_rounds or 1)]
        cut = starts[-1] if self.max_rounds and len(starts) == self.max_rounds else 0
        return trim_units(
            items,
            _accepted(items, cut, len(items)),
            systems=[self._place(items, item) for item in filter(_is_accepted, shelf.systems)],
            human=starts[0] if starts else None,
            room=room,
            open_group=open_group,
        )

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Remove what matches, or everything without a filter; return how many."""
        self._sweep()
        if metadata is None:
            removed = len(self._items)
            for held in (self._items, self._arrival, self._shelves, self._counts):
                held.clear()
            self._expiry = ExpiryHeap()
            return removed
        filters = Query(metadata=metadata, fields=_FIELDS[self.scope])
        if not filters.wanted:
            raise EmptyFilterError(_FIELDS[self.scope])
        gone = {item.id: item for item in self._shelf(filters).items}
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
            shelf = self._shelves.setdefault(key, _Shelf())
            shelf.rounds.pop(len(shelf.items), None)  # the newest, which goes on
            for held in shelf.lists_for(item):
                if not held or self._order(held[-1]) <= order:
                    held.append(item)
                else:
                    insort(held, item, key=self._order)
                    shelf.rounds.clear()

    def _unshelve(self, gone: dict[str, MemoryItem]) -> None:
        """Take items off every shelf; a few are looked up, many are swept out."""
        touched: dict[Filter, list[MemoryItem]] = {}
        for item in gone.values():
            for key in self._filters(item):
                touched.setdefault(key, []).append(item)
        for key, items in touched.items():
            shelf = self._shelves[key]
            shelf.rounds.clear()
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

    def _shelf(self, query: Query) -> _Shelf:
        if query.names_only_ignored_fields:
            raise EmptyFilterError(query.fields, verb="find")
        return self._shelves.get(tuple(query.wanted.items()), _Shelf())

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

    def _round_cost(self, counter: TokenCounter, candidate: _Round) -> int:
        if candidate.counter is not counter:
            candidate.tokens = sum(self._cost(counter, item) for item in candidate.items)
            candidate.counter = counter
        return candidate.tokens

    def _uncount(self, item_id: str) -> None:
        for counts in self._counts.values():
            counts.pop(item_id, None)
