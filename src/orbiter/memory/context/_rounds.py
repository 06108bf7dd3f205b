"""Which rounds of a conversation fit in a context, and where its window begins.

The window begins at the same message for many turns, so that a provider's cache can be used again.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain

from orbiter.memory.conversation.tokens import CONVERSATION_TOKENS
from orbiter.memory.conversation.windows import Room, Unit, newest_first, trim_units
from orbiter.memory.model.items import MemoryItem, role_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Cost = Callable[[MemoryItem], int]
"""Returns what a message costs, in tokens."""

Shorten = Callable[[Unit, int], Unit | None]
"""Returns a unit whose long texts are shortened to fit in so many tokens; `None` if none can be."""


def fit_rounds(
    units: Sequence[Unit],
    room: int,
    *,
    cost: Cost,
    shorten: Shorten,
) -> list[MemoryItem]:
    """Return the newest rounds that fit in *room* tokens, oldest first, system messages included.

    A window that loses one round with every turn begins differently each time, and no provider's
    cache can use it again. So of the rounds that keep at least half of the room filled, the window
    starts at the one that begins at the *roundest* moment: the same start serves for many turns,
    whoever asks, however much of the conversation was read, and nothing is remembered for it.

    A round that would not fit even alone is shortened, if more than half of the room would stay
    empty without it.
    """
    items = [item for unit in units for item in unit]
    systems = [item for item in items if role_of(item) == "system"]
    left = room - sum(map(cost, systems))
    rounds = list(_rounds(units))
    starts: dict[int, int] = {}
    total = 0
    for number in range(len(rounds) - 1, -1, -1):
        first = rounds[number][0]
        tokens = _spoken_cost(rounds[number], cost)
        if tokens > left and 2 * total < left:
            short = _shortened_round(rounds, number, left - total, cost=cost, shorten=shorten)
            rounds[number] = short or rounds[number]
            tokens = _spoken_cost(rounds[number], cost)
        total += tokens
        if total > left:
            break
        starts[number] = total
        if role_of(rounds[number][0][0]) != role_of(first[0]):
            break  # an older question would pass for the one that is left out
    if rounds and not starts:  # not even the newest round fits
        return _without_half(_trimmed(items, room, cost), flat(rounds[-1]))
    filled = [number for number, kept in starts.items() if kept * 2 >= left]
    start = min(starts, default=0)
    if filled and start:  # else all of it fits
        heads = [each[0][0] for each in rounds]
        start = max(filled, key=lambda number: _roundness(heads[number - 1], heads[number]))
    before_it = [item for item in flat(chain(*rounds[:start])) if role_of(item) == "system"]
    return before_it + flat(chain(*rounds[start:]))


def flat(units: Iterable[Unit]) -> list[MemoryItem]:
    return [item for unit in units for item in unit]


def _without_half(kept: list[MemoryItem], newest: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return *kept* without a question whose answer was left out, or the other way round.

    A model would answer the one again, and could not tell what the other is about. What only tools
    have answered so far is kept: the model is to go on from there.
    """
    spoken = [item for item in newest if role_of(item) != "system"]
    held = {id(item) for item in kept}
    is_answered = len(spoken) > 1 and role_of(spoken[0]) == "human" and role_of(spoken[-1]) == "ai"
    if not is_answered or {id(spoken[0]), id(spoken[-1])} <= held:
        return kept
    return [item for item in kept if role_of(item) == "system"]


def _roundness(before: MemoryItem, item: MemoryItem) -> tuple[int, int]:
    """Return how round the moment between two messages is: the largest power of two it passes.

    After a pause that is likely to be large, so a window likes to begin where a talk did. Where
    moments are equal, as after an import, a checksum of the text decides.
    """
    passed = _microseconds(before) ^ _microseconds(item)
    return passed.bit_length(), zlib.crc32(item.content.encode("utf-8", "surrogatepass"))


def _microseconds(item: MemoryItem) -> int:
    return (item.created_at - _EPOCH) // timedelta(microseconds=1)


def _rounds(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    held: list[Unit] = []
    for unit in units:
        if role_of(unit[0]) == "human" and held:
            yield held
            held = []
        held.append(unit)
    if held:
        yield held


def _trimmed(items: list[MemoryItem], room: int, cost: Cost) -> list[MemoryItem]:
    humans = (index for index, item in newest_first(items) if role_of(item) == "human")
    return trim_units(
        items,
        newest_first(items),
        systems=[index for index, item in enumerate(items) if role_of(item) == "system"],
        human=next(humans, None),
        room=Room(None, max(room, 0) + CONVERSATION_TOKENS, cost),
        open_group="drop",
    )


def _spoken_cost(units: Sequence[Unit], cost: Cost) -> int:
    """Return what a round costs without the system's messages, which are paid for already."""
    return sum(cost(item) for unit in units for item in unit if role_of(item) != "system")


def share_of(room: int, others: Iterable[int]) -> int:
    """Return what one may take of *room*: half of it, or all that the *others* do not want."""
    most = room
    for want in others:
        most -= want
        if most <= room // 2:
            return room // 2
    return most


def _shortened_round(
    rounds: Sequence[Sequence[Unit]],
    number: int,
    room: int,
    *,
    cost: Cost,
    shorten: Shorten,
) -> list[Unit] | None:
    """Return a round shortened to fit in *room*, of which earlier ones may want their share.

    `None` if next to nothing would be left of it, or only half of an answered round.
    """
    spoken = [unit for unit in rounds[number] if role_of(unit[0]) != "system"]
    before = (_spoken_cost(each, cost) for each in reversed(rounds[:number]))
    kept = _fit_steps(spoken, share_of(room, before), cost=cost, shorten=shorten)
    is_newest = number == len(rounds) - 1
    if is_newest and len(kept) < len(spoken):  # what was said before takes the place of no step
        kept = _fit_steps(spoken, room, cost=cost, shorten=shorten)
    is_open = is_newest and role_of(spoken[-1][-1]) == "tool"
    if not kept or not (is_open or {id(spoken[0]), id(spoken[-1])} <= kept.keys()):
        return None
    return [
        kept.get(id(unit), unit)
        for unit in rounds[number]
        if id(unit) in kept or role_of(unit[0]) == "system"
    ]


def _fit_steps(
    spoken: Sequence[Unit], room: int, *, cost: Cost, shorten: Shorten
) -> dict[int, Unit]:
    """Return what fits in *room* of a round, by the id of the unit: its question, its newest steps.

    Each may take half of what is left, or all that those behind it do not want.
    """
    pinned = int(role_of(spoken[0][0]) == "human")
    steps = [*spoken[:pinned], *spoken[pinned:][::-1]]
    wants = [sum(map(cost, unit)) for unit in steps]
    others = sum(wants)
    kept: dict[int, Unit] = {}
    for place, (unit, want) in enumerate(zip(steps, wants, strict=True)):
        others -= want
        share = max(room // 2, room - others)
        short = unit if want <= share else shorten(unit, share)
        if short is None and place >= pinned:
            short = unit if want <= room else shorten(unit, room)
            if short is None:
                break
        if short is not None:
            kept[id(unit)] = short
            room -= sum(map(cost, short))
    return kept
