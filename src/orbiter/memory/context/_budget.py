"""Making things fit: which entries and rounds are kept in so many tokens, and what is left out.

Pure functions. The sums are of parts and err high; whoever uses them counts the whole again.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from orbiter.memory.context.entries import Candidate, Reason
from orbiter.memory.context.prompt_fence import Entry
from orbiter.memory.conversation.tokens import CONVERSATION_TOKENS
from orbiter.memory.conversation.windows import Room, Unit, newest_first, trim_units
from orbiter.memory.model.items import MemoryItem, role_of

_LEAST = 20
"""Characters of a shortened entry below which it is not worth showing."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something that was left out, and the tokens it would have cost."""

    section: str
    source: str
    reason: Reason
    tokens: int
    id: str | None = None


Cost = Callable[[Entry], int]


def fit_entries(
    section: str, candidates: Sequence[Candidate], room: int | None, *, cost: Cost
) -> tuple[list[Candidate], list[Dropped]]:
    """Return what fits in *room* tokens, in order, and what was left out.

    If not all fit, the first ones matter most: each is taken if there is still room for it. One
    that wants more than half of the room is shortened to half of what is left by then, so it
    leaves something for those behind it.
    """
    if room is None:
        return list(candidates), []
    wants = [cost(candidate.entry) for candidate in candidates]
    if sum(wants) <= room:
        return list(candidates), []
    most = room // 2
    kept: list[Candidate] = []
    dropped: list[Dropped] = []
    for place, (candidate, want) in enumerate(zip(candidates, wants, strict=True), start=1):
        entry: Entry | None = candidate.entry
        if want > most:
            half = room if place == len(candidates) else room // 2
            entry = candidate.entry if want <= half else shorten(candidate.entry, half, cost=cost)
        taken = cost(entry) if entry else 0
        if entry is None or taken > room:
            dropped.append(drop(section, candidate, "budget", want))
            continue
        room -= taken
        kept.append(replace(candidate, entry=entry))
        if entry is not candidate.entry:
            dropped.append(drop(section, candidate, "shortened", want - taken))
    return kept, dropped


def round_down(room: int) -> int:
    """Return the next round number up to *room*: a power of two, or one and a half of it."""
    spare = max(room.bit_length() - 2, 0) if room > 0 else 0
    return room >> spare << spare


def drop(section: str, candidate: Candidate, reason: Reason, tokens: int) -> Dropped:
    """Return the report of a candidate that is not shown, or not whole."""
    return Dropped(section, candidate.entry.source, reason, tokens, candidate.id)


def shorten(entry: Entry, room: int, *, cost: Cost) -> Entry | None:
    """Return the longest beginning of *entry* that fits in *room* and says how much is missing.

    `None` if next to nothing would be left. No character that people see as one is cut.
    """

    def short(length: int) -> Entry:
        end = _whole_characters(entry.content, length)
        missing = len(entry.content) - end
        return replace(entry, content=f"{entry.content[:end]}… [{missing:,} more characters]")

    # From below: counting a megabyte over and over would take seconds.
    fits, length = 0, _LEAST
    while length < len(entry.content) and cost(short(length)) <= room:
        fits, length = length, length * 2
    over = min(length, len(entry.content))
    while over - fits > 1:
        middle = (fits + over) // 2
        if cost(short(middle)) <= room:
            fits = middle
        else:
            over = middle
    best = short(fits)
    # A counter need not grow with the text; what is returned fits in any case.
    return best if fits >= _LEAST and cost(best) <= room else None


def _whole_characters(text: str, end: int) -> int:
    """Return the last place up to *end* that divides no visible character."""
    for place in range(end, max(end - 64, 0), -1):
        if not _continues(text, place):
            return place
    return end


def _continues(text: str, place: int) -> bool:
    """Tell whether the character at *place* belongs to the one before it."""
    if place >= len(text):
        return False
    char, before = text[place], text[place - 1]
    if char in "\u200c\u200d" or before == "\u200d" or unicodedata.category(char)[0] == "M":
        return True
    if "\U0001f3fb" <= char <= "\U0001f3ff" or "\U000e0020" <= char <= "\U000e007f":
        return True  # skin tones, and the letters of regional flags
    if char == "\n" and before == "\r":
        return True
    if not _is_flag(char):
        return False
    flags = 0
    while flags < place and _is_flag(text[place - flags - 1]):
        flags += 1
    return flags % 2 == 1  # a flag is a pair of letters


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def fit_rounds(
    units: Sequence[Unit], room: int, *, cost: Callable[[MemoryItem], int]
) -> list[MemoryItem]:
    """Return the newest rounds that fit in *room* tokens, oldest first, system messages included.

    A window that loses one round with every turn begins differently each time, and no provider's
    cache can use it again. So the window starts at the *roundest* number among those that keep at
    least half of the room filled, the one that most powers of two divide: the same start serves
    for many turns, whoever asks, and nothing needs to be remembered for it.
    """
    items = [item for unit in units for item in unit]
    systems = [item for item in items if role_of(item) == "system"]
    left = room - sum(map(cost, systems))
    rounds = list(_rounds(units))
    starts: dict[int, int] = {}
    total = 0
    for number in range(len(rounds) - 1, -1, -1):
        total += sum(cost(item) for item in rounds[number] if role_of(item) != "system")
        if total > left:
            break
        starts[number] = total
    if rounds and not starts:  # not even the newest round fits
        return _trimmed(items, room, cost)
    filled = [number for number, kept in starts.items() if kept * 2 >= left]
    start = max(filled or [min(starts, default=0)], key=_roundness)
    before = [item for each in rounds[:start] for item in each if role_of(item) == "system"]
    return before + [item for each in rounds[start:] for item in each]


def _roundness(number: int) -> int:
    """Return the highest power of two that divides *number*; zero is the roundest of all."""
    return number & -number or 2**62


def _rounds(units: Sequence[Unit]) -> Iterator[list[MemoryItem]]:
    found: list[MemoryItem] = []
    for unit in units:
        if role_of(unit[0]) == "human" and found:
            yield found
            found = []
        found += unit
    if found:
        yield found


def _trimmed(
    items: list[MemoryItem], room: int, cost: Callable[[MemoryItem], int]
) -> list[MemoryItem]:
    humans = (index for index, item in newest_first(items) if role_of(item) == "human")
    return trim_units(
        items,
        newest_first(items),
        systems=[index for index, item in enumerate(items) if role_of(item) == "system"],
        human=next(humans, None),
        room=Room(None, max(room, 0) + CONVERSATION_TOKENS, cost),
        open_group="drop",
    )
