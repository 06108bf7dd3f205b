"""Conversation windows: pure functions over a sequence of items, no I/O.

A *unit* is what must stand or fall together: a tool group (an AI message with calls, directly
followed by one result per call), or any other single item. A turn of the model that came in
several messages is one unit: its messages, then all results. Everything here is one backward walk
over units, so a window costs what the window holds, not what the history holds.

OpenAI's Responses give a turn as several entries: reasoning, a text, calls. Added one at a time,
each is an item; a provider wants them back together, before all outputs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

from orbiter.memory.conversation.tokens import (
    CONVERSATION_TOKENS,
    TokenCounter,
    estimate_tokens,
    item_tokens,
)
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    SystemMemory,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.model.query import check_size
from orbiter.memory.model.tool_calls import are_answerable, call_id, call_name

__all__ = [
    "RESPONSES",
    "OpenGroup",
    "complete_tool_groups",
    "is_one_turn",
    "is_thought",
    "last_rounds",
    "may_follow",
    "rounds",
    "speaks",
    "trim_to_budget",
]

OpenGroup = Literal["drop", "keep", "complete"]
"""What becomes of a tool group that lacks results.

`drop` leaves it out; `keep` keeps it while it is the open last turn, for an agent that waits for
its tools; `complete` adds an error result for each missing one.
"""

Unit = list[MemoryItem]
Indexed = Iterable[tuple[int, MemoryItem]]
_Part = tuple[int, MemoryItem, list[tuple[int, MemoryItem]] | None]
"""A message with its index and the results of its calls; `None` if it must be left out."""

_LAST = 2**62
"""The index of a result that is made up: behind all others."""

_MISSING = "No result was recorded for this tool call."


def check_open_group(policy: str) -> None:
    """Raise `QueryError` unless *policy* is an `OpenGroup`."""
    if policy not in ("drop", "keep", "complete"):
        raise QueryError(f"unknown policy `{policy}`; use `drop`, `keep` or `complete`")


def newest_first(items: Sequence[MemoryItem]) -> Iterator[tuple[int, MemoryItem]]:
    """Yield each item with its index, the last one first."""
    for index in range(len(items) - 1, -1, -1):
        yield index, items[index]


def walk_units(newest: Indexed, open_group: OpenGroup = "drop") -> Iterator[tuple[int, Unit]]:
    """Yield whole units, newest first, each with the index of its first item.

    Results stand directly behind their call, also those that came late; a result without its
    call, or a second one for the same call, is left out. Reads only as far as it is consumed, and
    one item further where that may belong to the same turn.
    """
    check_open_group(open_group)
    waiting: dict[str, tuple[int, MemoryItem]] = {}
    held: list[_Part] = []
    newer: MemoryItem | None = None
    is_lost, is_last_turn, is_first = False, True, True
    for index, item in newest:
        role = role_of(item)
        if role == "tool":
            # Walking back, the first answer comes last and replaces later ones: the model saw it.
            waiting[result_id(item)] = (index, item)
            newer = None
            continue
        calls = role == "ai" and calls_of(item)
        goes_on = newer is not None and is_one_turn(item, newer)
        is_last_turn = is_last_turn and (is_first or goes_on)
        newer, is_first = item, False
        if held and not goes_on:
            yield _one_turn(held)
            held = []
        may_go_on = may_follow(item)
        if not calls and not may_go_on:  # as most are
            is_lost = False
            yield index, [item]
            continue
        results: list[tuple[int, MemoryItem]] | None = []
        if calls:
            results = _results(item, waiting, open_group, is_last_turn=is_last_turn)
        # A thought is of no use without what it led to.
        is_lost = results is None or (goes_on and is_lost and is_thought(item))
        if not is_lost:
            held.append((index, item, results))
        if held and not may_go_on:
            yield _one_turn(held)
            held = []
    if held:
        yield _one_turn(held)


def _one_turn(parts: Sequence[_Part]) -> tuple[int, Unit]:
    """Return the parts of a turn, newest first, as one unit: its messages, then all results."""
    heads = [item for _, item, _ in reversed(parts)]
    results = [pair for _, _, pairs in reversed(parts) for pair in pairs or ()]
    results.sort(key=lambda pair: pair[0])
    return parts[-1][0], heads + [item for _, item in results]


def _results(
    item: MemoryItem,
    waiting: dict[str, tuple[int, MemoryItem]],
    open_group: OpenGroup,
    *,
    is_last_turn: bool,
) -> list[tuple[int, MemoryItem]] | None:
    """Return the results of a message's calls, with their index; `None` if it must be left out."""
    calls = calls_of(item)
    results = {id: waiting.pop(id) for id in map(call_id, calls) if id in waiting}
    if not are_answerable(calls):
        return None
    missing = [call for call in calls if call_id(call) not in results]
    if missing and open_group == "complete":
        made = (_error_result(item, call_id(call), call_name(call)) for call in missing)
        return [*results.values(), *((_LAST, result) for result in made)]
    if missing and not (open_group == "keep" and is_last_turn):
        return None
    return list(results.values())


def _error_result(call_item: MemoryItem, id: str, name: str) -> ToolMemory:
    """Return the same stand-in each time, so that completing twice changes nothing."""
    digest = blake2b(f"{call_item.id}\0{id}".encode(), digest_size=16).hexdigest()
    return ToolMemory(
        id=digest,
        content=_MISSING,
        tool_call_id=id,
        tool_name=name,
        is_error=True,
        metadata=call_item.metadata,
        created_at=call_item.created_at,
    )


def complete_tool_groups(
    items: Sequence[MemoryItem], *, open_group: OpenGroup = "drop"
) -> list[MemoryItem]:
    """Return *items* with every tool group whole or absent, oldest first.

    Results are placed directly behind their call, the only order providers accept; all else
    keeps its place.
    """
    check_open_group(open_group)
    if all(map(stands_alone, items)):
        return list(items)
    return _flatten(walk_units(newest_first(items), open_group))


def stands_alone(item: MemoryItem) -> bool:
    """Tell whether *item* is a unit of its own whatever stands around it, as most are."""
    kind = item.__class__
    if kind is AIMemory:
        return not (item.tool_calls or item.native)  # type: ignore[attr-defined]  # told above
    return kind is HumanMemory or kind is SystemMemory


def rounds(items: Iterable[MemoryItem]) -> list[list[MemoryItem]]:
    """Split *items* into rounds, oldest first.

    A round starts at a human message. What stands before the first one is a list of its own, so
    joining the lists gives *items* again.
    """
    split: list[list[MemoryItem]] = []
    for item in items:
        if role_of(item) == "human" or not split:
            split.append([])
        split[-1].append(item)
    return split


def last_rounds(items: Sequence[MemoryItem], count: int) -> list[MemoryItem]:
    """Return the newest *count* rounds, oldest first.

    A round starts at a human message. System messages before the window are
    kept. ``count == 0`` means no limit.
    """
    check_size("count", count)
    start, left = 0, count
    for index in range(len(items) - 1, -1, -1) if count else ():
        if role_of(items[index]) == "human":
            left -= 1
            if not left:
                start = index
                break
    return [*(item for item in items[:start] if role_of(item) == "system"), *items[start:]]


def take_units(units: Iterable[tuple[int, Unit]], limit: int) -> Iterator[tuple[int, Unit]]:
    """Yield units while they fit in *limit* items; stop at the first that does not."""
    room = limit
    for index, unit in units:
        room -= len(unit)
        if room < 0:
            return
        yield index, unit


def trim_to_budget(
    items: Sequence[MemoryItem],
    *,
    max_items: int | None = None,
    budget: int | None = None,
    counter: TokenCounter = estimate_tokens,
    open_group: OpenGroup = "drop",
) -> list[MemoryItem]:
    """Return what of *items* fits in so many items and tokens, oldest first, groups whole.

    What is kept, in this order while there is room: the newest round, if it fits; the system
    messages, oldest first; earlier rounds, each whole or not at all. Of a newest round that does
    not fit, its human message is kept, then the system messages, then its newest units: the model
    still sees what it was asked. Trimming the result again changes nothing.
    """
    if max_items is None and budget is None:  # there is room for all
        return complete_tool_groups(items, open_group=open_group)
    return trim_units(
        items,
        newest_first(items),
        systems=[index for index, item in enumerate(items) if role_of(item) == "system"],
        human=next((i for i, item in newest_first(items) if role_of(item) == "human"), None),
        room=Room(max_items, budget, lambda item: item_tokens(item, counter=counter)),
        open_group=open_group,
    )


def trim_units(
    items: Sequence[MemoryItem],
    newest: Indexed,
    *,
    systems: Iterable[int],
    human: int | None,
    room: "Room",
    open_group: OpenGroup,
) -> list[MemoryItem]:
    """Do the work of `trim_to_budget` for a caller that knows where the pinned messages stand."""
    units = ((i, u) for i, u in walk_units(newest, open_group) if role_of(u[0]) != "system")
    kept: dict[int, Unit] = {}
    if human is not None and room.take([items[human]]):
        kept[human] = [items[human]]
    newest_round, fits = _newest_round(units, human, room)
    is_whole = fits and (human is None or human in kept)
    if is_whole:
        room.take([item for _, unit in newest_round for item in unit])
        kept.update(newest_round)
        newest_round = []
    for index in systems:
        if room.take([items[index]]):
            kept[index] = [items[index]]
    for index, unit in newest_round:  # of a round that is too long, the newest
        if not room.take(unit):
            break
        kept[index] = unit
    if is_whole:  # without it, an older question would pass for the newest
        kept.update(_earlier_rounds(units, room))
    return [item for index in sorted(kept) for item in kept[index]]


def _newest_round(
    units: Iterator[tuple[int, Unit]], human: int | None, room: "Room"
) -> tuple[list[tuple[int, Unit]], bool]:
    """Return the units after the human message, newest first, and whether all of them fit.

    Reads no further than what could fit.
    """
    probe = room.copy()
    newest: list[tuple[int, Unit]] = []
    for index, unit in units:
        if index == human:
            return newest, True
        newest.append((index, unit))
        if not probe.take(unit):
            return newest, False
    return newest, True


def _earlier_rounds(units: Iterator[tuple[int, Unit]], room: "Room") -> dict[int, Unit]:
    """Return the rounds before the newest that fit, each whole; what precedes them comes last."""
    kept: dict[int, Unit] = {}
    pending: dict[int, Unit] = {}
    for index, unit in units:
        pending[index] = unit
        if role_of(unit[0]) == "human":
            if not room.take([item for part in pending.values() for item in part]):
                return kept
            kept |= pending
            pending = {}
    if room.take([item for part in pending.values() for item in part]):
        kept |= pending
    return kept


class Room:
    """What is left of a limit on items and tokens."""

    def __init__(
        self, max_items: int | None, budget: int | None, cost: Callable[[MemoryItem], int]
    ) -> None:
        self._items = None if max_items is None else check_size("max_items", max_items)
        self._tokens = None if budget is None else check_size("budget", budget)
        self._cost = cost
        if self._tokens is not None:
            self._tokens -= CONVERSATION_TOKENS

    def copy(self) -> "Room":
        """Return another with as much left, to try things out."""
        twin = Room(None, None, self._cost)
        twin._items, twin._tokens = self._items, self._tokens
        return twin

    def take(self, unit: Sequence[MemoryItem]) -> bool:
        """Take room for *unit* if there is enough; take none otherwise."""
        items, tokens = self._items, self._tokens
        if items is not None:
            items -= len(unit)
            if items < 0:
                return False
        if tokens is not None:
            for item in unit:
                tokens -= self._cost(item)
                if tokens < 0:
                    return False
        self._items, self._tokens = items, tokens
        return True

    def take_counted(self, count: int, tokens: Callable[[], int]) -> bool:
        """Take room for *count* items that cost *tokens*, which is asked only if it matters."""
        items_left = None if self._items is None else self._items - count
        tokens_left = None if self._tokens is None else self._tokens - tokens()
        if min(items_left or 0, tokens_left or 0) < 0:
            return False
        self._items, self._tokens = items_left, tokens_left
        return True


def _flatten(units: Iterable[tuple[int, Unit]]) -> list[MemoryItem]:
    return [item for _, unit in reversed(list(units)) for item in unit]


RESPONSES = "openai-responses"


def may_follow(item: MemoryItem) -> bool:
    """Tell whether *item* could go on with a turn that an older one began."""
    native = item.native
    return bool(native) and isinstance(item, AIMemory) and isinstance(native.get(RESPONSES), list)


def is_thought(item: MemoryItem) -> bool:
    """Tell whether the model neither says nor calls anything in *item*."""
    return not item.content and not calls_of(item)


def is_one_turn(older: MemoryItem, newer: MemoryItem) -> bool:
    """Tell whether *newer*, which stands directly behind *older*, goes on with its turn.

    Within one turn the model thinks, speaks at most once, then calls.
    """
    if not may_follow(older) or not may_follow(newer):
        return False
    last, first = _kind(older, -1), _kind(newer, 0)
    if last == first == "reasoning":  # it led nowhere: what followed it was never kept
        return False
    if speaks(older) and speaks(newer):
        return False
    if calls_of(older):
        return bool(calls_of(newer)) or is_thought(newer)
    return not speaks(older) or first.endswith("_call")


def speaks(item: MemoryItem) -> bool:
    """Tell whether the model says something in a part of a turn, be it an empty text."""
    entries: Any = item.native[RESPONSES]
    kinds = [entry.get("type") for entry in entries if isinstance(entry, Mapping)]
    return bool(item.content) or None in kinds or "message" in kinds


def _kind(item: MemoryItem, place: int) -> str:
    entries: Any = item.native[RESPONSES]
    entry = entries[place] if entries else None
    kind = entry.get("type") if isinstance(entry, Mapping) else None
    return kind if isinstance(kind, str) else ""
