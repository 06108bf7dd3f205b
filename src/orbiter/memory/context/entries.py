"""Entries of a context: what is remembered, who said it, when, how far to trust it."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.context.prompt_fence import Entry, Trust
from orbiter.memory.errors import QueryError
from orbiter.memory.model.episode import EpisodicMemory
from orbiter.memory.model.facts import FactMemory, dated
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    calls_of,
    role_of,
)
from orbiter.memory.model.tool_calls import call_arguments, call_name
from orbiter.memory.model.validation import StructuralMeta

__all__ = [
    "PLAIN_SPEAKERS",
    "Candidate",
    "Interaction",
    "Memory",
    "Reason",
    "TrustRule",
    "candidate",
    "check_memories",
    "default_trust",
    "fit_lines",
    "memory_entry",
    "message_entries",
    "speaker",
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
message. `incomplete`: its tool group lacks a result, or its call.
"""

_SPEAKERS = {"human": "user", "ai": "assistant", "system": "system"}
PLAIN_SPEAKERS: dict[type, Literal["user", "assistant", "system"]] = {
    HumanMemory: "user",
    AIMemory: "assistant",
    SystemMemory: "system",
}
"""Who says what a message holds, by its class, which need not be asked further."""
_INSIDE = frozenset(("user", "agent", "system"))
_OUTSIDE = frozenset(("tool", "web", "import"))
"""What `metadata.extra["source"]` may say of an item that comes from the world outside."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that wants to be shown, or why it may not, and the id of what it came from."""

    entry: Entry
    id: str | None = None
    refused: Reason | None = None


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


def memory_entry(memory: Memory, trust: TrustRule) -> Entry:
    """Return *memory* as one entry."""
    if isinstance(memory, Entry):
        return memory
    if isinstance(memory, str):
        return Entry(memory)
    if isinstance(memory, Interaction):
        return _interaction_entry(memory, trust)
    if not isinstance(memory, MemoryItem):
        raise QueryError(
            f"`{type(memory).__name__}` cannot be shown as a memory; "
            "use an item, an `EpisodicMemory` or what is like it, an `Entry` or text"
        )
    entries = list(message_entries(memory, trust))
    if len(entries) == 1:
        return entries[0]
    calls = (f"{entry.source}: {entry.content}" for entry in entries[1:])
    return Entry(
        "\n".join([entries[0].content, *calls]),
        entries[0].source,
        entries[0].time,
        entries[0].trust,
    )


def _interaction_entry(memory: Interaction, trust: TrustRule) -> Entry:
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
    return Entry(memory.content, source, _minute(time), trusted)


def _unfit(memory: object, name: str, value: object) -> QueryError:
    return QueryError(
        f"`{type(memory).__name__}` cannot be shown as an interaction: its `{name}` is {value!r}"
    )


def message_entries(item: MemoryItem, trust: TrustRule) -> Iterator[Entry]:
    """Yield what *item* says as a message: its text, then each tool it calls."""
    who, time, trusted = speaker(item), _minute(item.created_at), trust(item)
    calls: Sequence[dict[str, object]] = calls_of(item)
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


def candidate(memory: Memory, trust: TrustRule, *, refused: Reason | None = None) -> Candidate:
    """Return *memory* as it wants to be shown; only accepted items may be."""
    entry = memory_entry(memory, trust)
    if not isinstance(memory, MemoryItem | EpisodicMemory):
        return Candidate(entry)
    if isinstance(memory, MemoryItem) and memory.status is not MemoryStatus.ACCEPTED:
        refused = refused or "status"
    return Candidate(entry, memory.id, refused)


def _minute(time: datetime) -> datetime:
    # Nobody needs the microseconds, and each digit costs.
    return time.replace(second=0, microsecond=0)
