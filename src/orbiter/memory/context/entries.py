"""Entries of a context: what is remembered, who said it, when, how far to trust it.

What has no room is shortened here, and nowhere else.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Literal

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.context.prompt_fence import USUAL_SOURCE, Entry, Trust
from orbiter.memory.conversation.tokens import TokenCounter
from orbiter.memory.errors import QueryError
from orbiter.memory.model.copying import unfenced
from orbiter.memory.model.episode import EpisodicMemory
from orbiter.memory.model.facts import FactMemory, dated
from orbiter.memory.model.fences import without_fences
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    calls_of,
    is_own_output,
    role_of,
)
from orbiter.memory.model.own_output import is_own_tool
from orbiter.memory.model.tool_calls import call_arguments, call_name
from orbiter.memory.model.validation import StructuralMeta, check_text, to_utc

__all__ = [
    "PLAIN_SPEAKERS",
    "Candidate",
    "Cost",
    "Dropped",
    "Interaction",
    "Memory",
    "Precision",
    "Reason",
    "TrustRule",
    "candidate",
    "check_memories",
    "check_sendable",
    "default_trust",
    "drop",
    "fit_entries",
    "fit_lines",
    "memory_entry",
    "message_entries",
    "round_down",
    "shorten",
    "shorten_text",
    "speaker",
    "with_id",
]


@runtime_checkable
class Interaction(Protocol, metaclass=StructuralMeta):
    """An interaction as any library keeps it; `EpisodicMemory` is one.

    It may also have a `platform`, where it took place.
    """

    @property
    def interaction_type(self) -> str:
        """What was done, such as `posted_tweet`."""
        ...

    @property
    def content(self) -> str:
        """What was said."""
        ...

    @property
    def timestamp(self) -> datetime:
        """When it happened; without a zone it is UTC."""
        ...


Memory = MemoryItem | EpisodicMemory | Interaction | Entry | str
"""What can be shown: an item, an interaction, plain text, or an entry as you want it."""

TrustRule = Callable[[MemoryItem | EpisodicMemory], Trust]
"""Tells how far what an item or an interaction says may be relied on."""

Precision = Literal["day", "minute"]
"""How exactly an entry says when: what was done just now by the minute, all else by the day."""

Reason = Literal[
    "budget",
    "shortened",
    "status",
    "scope",
    "relevance",
    "limit",
    "duplicate",
    "kind",
    "incomplete",
]
"""Why something was left out.

`budget`: no room. `shortened`: only a part is shown. `status`: it is a draft or was
discarded. `scope`: it is not of the asked scope. `relevance`: it was recalled, and does not answer.
`limit`: there are `memory_limit` better ones. `duplicate`: it is shown elsewhere. `kind`: it is no
message, or no memory but the answer of a tool of ours. `incomplete`: its tool group lacks a result,
or its call.
"""

_SPEAKERS = {"human": "user", "ai": "assistant", "system": "system"}
PLAIN_SPEAKERS: dict[type, Literal["user", "assistant", "system"]] = {
    HumanMemory: "user",
    AIMemory: "assistant",
    SystemMemory: "system",
}
"""Who says what a message holds, by its class, which need not be asked further."""
_USUAL = frozenset(("item", "fact", "user"))
"""Who says what need not be named among memories: the user, or whoever noted it for them."""
_INSIDE = frozenset(("user", "agent", "system"))
_OUTSIDE = frozenset(("tool", "web", "import"))
"""What `metadata.extra["source"]` may say of an item that comes from the world outside."""


_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that wants to be shown, or why it may not, and the id of what it came from."""

    entry: Entry
    id: str | None = None
    refused: Reason | None = None


_LEAST = 20
"""Characters of a shortened entry below which it is not worth showing."""
_SHORT = 80
"""Tokens of an entry that is shown whole or not at all: half a sentence answers nothing."""
_TRIES = 8
_NEAR = 64
"""Characters that a cut moves to stand between lines or words: half a number is another number."""

_TELLING = re.compile(r"\d+|(?<=[a-z,;] )(?!I\b)[A-Z]|[@#/_]|[A-Z]{2,}")
_MAX_LINES = 200
_MIN_LINES = 3


def fit_lines(entry: Entry, room: int, *, cost: Callable[[Entry], int]) -> Entry | None:
    """Return the lines of *entry* that tell most and are newest, as many as fit in *room*.

    They stay in their order, and the last line says how much is missing. `None` if there are few
    lines, or room for none.
    """
    lines = [line for line in entry.content.splitlines() if line.strip()]
    if not _MIN_LINES <= len(lines) <= _MAX_LINES:
        return None

    def worth(place: int) -> float:
        telling = min(len(_TELLING.findall(lines[place])), 4)
        return (1 + telling) * (1 + place / len(lines) / 2)

    def short(places: set[int]) -> Entry:
        kept = "\n".join(lines[place] for place in sorted(places))
        missing = len(entry.content) - len(kept)
        return replace(entry, content=f"{kept}\n… [{missing:,} more characters]")

    chosen: set[int] = set()
    for place in sorted(range(len(lines)), key=lambda each: (-worth(each), -each)):
        if cost(short(chosen | {place})) <= room:
            chosen.add(place)
    return short(chosen) if chosen else None


def default_trust(memory: MemoryItem | EpisodicMemory) -> Trust:
    """Return `medium` for what a person, the agent or the system said, `low` for all else.

    A plain item or a fact counts as said by them unless its `metadata.extra["source"]` names
    another than `user`, `agent` or `system`; a message does unless that is `tool`, `web` or
    `import`, with or without a detail such as `web:example.com`. Tools bring in the outside world,
    and nobody vouches for where an interaction's text came from. Nothing remembered is trusted
    highly unless the application says so.
    """
    if not isinstance(memory, MemoryItem):
        return "low"
    if memory.__class__ in PLAIN_SPEAKERS and not memory.metadata.extra:  # as most are
        return "medium"
    source = memory.metadata.extra.get("source")
    kind = source.partition(":")[0].strip().casefold() if isinstance(source, str) else source
    if role_of(memory) in _SPEAKERS:
        return "low" if isinstance(kind, str) and kind in _OUTSIDE else "medium"
    if role_of(memory) is None and memory.memory_type in ("item", "fact"):
        return "medium" if kind is None or (isinstance(kind, str) and kind in _INSIDE) else "low"
    return "low"


def check_memories(name: str, memories: object) -> list[Memory]:
    """Return *memories* as a list; a single text is no list of letters."""
    if isinstance(memories, list):
        return list(memories)
    if isinstance(memories, str | MemoryItem | Interaction | Entry):
        raise QueryError(f"`{name}` must be a list; write `{name}=[…]` around the one there is")
    if not isinstance(memories, Sequence):
        raise QueryError(f"`{name}` must be a list of memories, not `{type(memories).__name__}`")
    return list(memories)


def check_sendable(name: str, text: str) -> None:
    """Raise `QueryError` if no provider can be sent *text*; *name* is the argument it came in."""
    try:
        check_text(text, max_bytes=2**62)
    except ValueError as exc:
        raise QueryError(f"`{name}` cannot be sent: {exc}") from None


def memory_entry(memory: Memory, trust: TrustRule, *, precision: Precision = "day") -> Entry:
    """Return *memory* as one entry, with the time as precise as that; an `Entry` as it is."""
    if isinstance(memory, Entry):
        return memory
    if isinstance(memory, str):
        return Entry(memory)
    if isinstance(memory, Interaction):
        return _interaction_entry(memory, trust, precision)
    if not isinstance(memory, MemoryItem):
        raise QueryError(
            f"`{type(memory).__name__}` cannot be shown as a memory; "
            "use an item, an `EpisodicMemory` or what is like it, an `Entry` or text"
        )
    # Fences of other contexts would be nested here, and keep what is forgotten since.
    memory = unfenced(memory)
    first, *others = message_entries(memory, trust, own_calls=False, precision=precision)
    calls = (f"{entry.source}: {entry.content}" for entry in others)
    source = first.source
    if source in _USUAL:
        source = _outsider(memory) or USUAL_SOURCE
    return Entry("\n".join([first.content, *calls]), source, first.time, first.trust)


def _outsider(item: MemoryItem) -> str | None:
    """Return the label of who wrote *item* in the user's stead, such as `import:helpdesk`."""
    label = item.metadata.extra.get("source")
    kind, _, detail = label.partition(":") if isinstance(label, str) else ("", "", "")
    return f"{kind}:{detail[:_LONGEST_NAME]}" if detail and kind in _OUTSIDE else None


def with_id(entry: Entry, id: str) -> Entry:
    """Return *entry* with the id in its source, for a model that may change what it stands for."""
    source = f"id {id}" if entry.source == USUAL_SOURCE else f"{entry.source}, id {id}"
    return replace(entry, source=source)


def _interaction_entry(memory: Interaction, trust: TrustRule, precision: Precision) -> Entry:
    platform = getattr(memory, "platform", None)
    texts = {"interaction_type": memory.interaction_type, "content": memory.content}
    for name, value in {**texts, "platform": platform or ""}.items():
        if not isinstance(value, str):
            raise _unfit(memory, name, value)
    try:
        moment: object = memory.timestamp
        time = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        time = None
    if not isinstance(time, datetime):
        raise _unfit(memory, "timestamp", memory.timestamp)
    source = f"{memory.interaction_type} on {platform}" if platform else memory.interaction_type
    # A rule reads the same fields of an interaction, whosever class it is.
    trusted = trust(memory)  # type: ignore[arg-type]
    text = without_fences(memory.content)
    return Entry(text, source, _rounded(to_utc(time), precision), trusted)


def _unfit(memory: object, name: str, value: object) -> QueryError:
    return QueryError(
        f"`{type(memory).__name__}` cannot be shown as an interaction: its `{name}` is {value!r}"
    )


def message_entries(
    item: MemoryItem, trust: TrustRule, *, own_calls: bool = True, precision: Precision = "day"
) -> Iterator[Entry]:
    """Yield what *item* says as a message: its text, then each tool it calls.

    Without *own_calls*, tools of ours are not among them.
    """
    time = _rounded(to_utc(item.created_at), precision)
    who, trusted = speaker(item), trust(item)
    calls: Sequence[dict[str, object]] = calls_of(item)
    if not own_calls:
        calls = [call for call in calls if not is_own_tool(call_name(call))]
    if item.content or not calls:
        yield Entry(_entry_text(item), who, time, trusted)
    for call in calls:
        yield Entry(call_arguments(call), f"{who} calls {call_name(call)}", time, trusted)


def _entry_text(item: MemoryItem) -> str:
    """Return what an item says; a fact says when it holds."""
    when = dated(item, now=datetime.now(UTC)) if isinstance(item, FactMemory) else ""
    return f"{item.content} ({when})" if when else item.content


def speaker(item: MemoryItem) -> str:
    """Return who says what *item* holds."""
    if item.__class__ in PLAIN_SPEAKERS:
        return PLAIN_SPEAKERS[item.__class__]
    if isinstance(item, ToolMemory):
        return f"tool {item.tool_name}".strip() + (" (error)" if item.is_error else "")
    return _SPEAKERS.get(role_of(item) or "", item.memory_type)


def candidate(
    memory: Memory,
    trust: TrustRule,
    *,
    refused: Reason | None = None,
    precision: Precision = "day",
) -> Candidate:
    """Return *memory* as it wants to be shown; only accepted items may be."""
    entry = memory_entry(memory, trust, precision=precision)
    if not isinstance(memory, MemoryItem | EpisodicMemory):
        return Candidate(entry)
    if isinstance(memory, MemoryItem) and memory.status is not MemoryStatus.ACCEPTED:
        refused = refused or "status"
    elif isinstance(memory, MemoryItem) and is_own_output(memory):
        refused = refused or "kind"
    return Candidate(entry, memory.id, refused)


def _rounded(time: datetime, precision: Precision) -> datetime:
    # Nobody needs the microseconds, and each digit costs.
    if precision == "minute":
        return time.replace(second=0, microsecond=0)
    return time.replace(hour=0, minute=0, second=0, microsecond=0)


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
    leaves something for those behind it; if half is too little for any of it, it has all. A short
    one is shortened only if there would be none.
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
        if want > most and (want > _SHORT or (want > room and not kept)):
            half = room if place == len(candidates) else room // 2
            entry = _fitting(candidate.entry, want, half, cost) or _fitting(
                candidate.entry, want, room, cost
            )
        taken = cost(entry) if entry else 0
        if entry is None or taken > room:
            dropped.append(drop(section, candidate, "budget", want))
            continue
        room -= taken
        kept.append(replace(candidate, entry=entry))
        if entry is not candidate.entry:
            dropped.append(drop(section, candidate, "shortened", want - taken))
    return kept, dropped


def _fitting(entry: Entry, want: int, room: int, cost: Cost) -> Entry | None:
    """Return *entry*, which costs *want*, or as much of it as fits in *room*."""
    if want <= room:
        return entry
    lines = fit_lines(entry, room, cost=cost) if entry.source == "summary" else None
    return lines or shorten(entry, room, cost=cost)


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
    if room < 0:
        return None

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


def shorten_text(text: str, room: int, *, counter: TokenCounter, total: int) -> str | None:
    """Return the beginning and the end of *text*, with a line between that says what is missing.

    They have at most *room* tokens as *counter* counts; the text has *total*. `None` if next to
    nothing would be left. Only what is kept is counted, so a huge text costs no more than others.
    """
    if total <= room:
        return text
    if room <= 0:
        return None
    best, most = None, 0
    length = len(text) * room // total
    for _ in range(_TRIES):
        length = min(length, len(text) - 1)
        if length < _LEAST:
            break
        before = text[: _cut(text, length - length // 2, forward=False)]
        after = text[_cut(text, len(text) - length // 2, forward=True) :]
        missing = max(total - counter(before) - counter(after), 1)
        short = f"{before}\n[… {missing:,} of {total:,} tokens left out …]\n{after}"
        cost = max(counter(short), 1)
        if cost <= room and length > most:
            best, most = short, length
        if cost <= room and (cost * 16 >= room * 15 or length <= most // 2):
            break
        # The ends may be denser than the whole.
        fitting = length * room // cost
        length = fitting if cost <= room else min(fitting, length - length // 16 - 1)
        if best is not None and length <= most:
            break
    return best


def _cut(text: str, place: int, *, forward: bool) -> int:
    """Return the nearest end of a line before or behind *place*, or else of a word, if it is near.

    It never divides what people see as one character.
    """
    step = 1 if forward else -1
    end = min(max(place + step * _NEAR, 0), len(text))
    whole = [each for each in range(place, end, step) if not _continues(text, each)]
    lines = (each for each in whole if text[each - forward : each - forward + 1] == "\n")
    words = (each for each in whole if any(map(str.isspace, text[each - 1 : each + 1])))
    return next(chain(lines, words), whole[0] if whole else place)


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
