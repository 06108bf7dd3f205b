"""The current state of a store, as exports to other programs show it.

What waits for a review or did not pass it, facts that do not hold now, and what we note for
ourselves are left out; the native format has all of it.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from orbiter.memory.agent.runtime import Store
from orbiter.memory.model.facts import ALWAYS, FactMemory, FactSpan, by_key, current, dated, span_of
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.reports import ConversationInfo
from orbiter.memory.model.serialization import dump_item
from orbiter.memory.transfer.native import MovableStore, pages_of

__all__ = ["CurrentState", "RecordStore", "conversations", "current_states", "merged"]

_PAGE = 1_000
_MANY = 10**6
_BOOKKEEPING = ("extraction", "summary")
"""The types of what we note for ourselves, and can make anew."""
_SAID_OTHERWISE = {"key", "value", "valid_from", "valid_to", "retracted_at", "is_end"}
"""Of a fact: what its span tells, or what is so of every fact that holds."""


class RecordStore(Store, MovableStore, Protocol):
    """A store whose items can be walked in the order in which they came."""


@dataclass(frozen=True, slots=True)
class CurrentState:
    """One memory as it is now; a fact with the time for which it holds."""

    item: MemoryItem
    span: FactSpan | None = None

    @property
    def text(self) -> str:
        """What it says; a fact says since when."""
        when = dated(self.span) if self.span else ""
        return f"{self.item.content} ({when})" if when else self.item.content

    @property
    def labels(self) -> Mapping[str, object]:
        """What was noted beside it; not its source, nor a fact's key, which are told by name."""
        hidden = ("source", "trust", "fact") if self.span else ("source", "trust")
        extra = self.item.metadata.extra
        return {name: value for name, value in extra.items() if name not in hidden}

    @property
    def fact(self) -> dict[str, object]:
        """What a fact says: key, value and the ends of its time, if it has any."""
        if self.span is None:
            return {}
        fact, start, end = self.span.fact, self.span.start, self.span.end
        told: dict[str, object] = {"key": fact.key, "value": fact.value}
        told |= {} if start == ALWAYS else {"valid_from": start.isoformat()}
        return told if end is None else {**told, "valid_to": end.isoformat()}

    @property
    def own_fields(self) -> dict[str, object]:
        """What only items of its kind have, such as tool calls, as JSON; nothing that is empty."""
        hidden = MemoryItem.model_fields.keys() | (_SAID_OTHERWISE if self.span else set())
        fields = dump_item(self.item).items()
        return {
            name: value
            for name, value in fields
            if name not in hidden and value not in (None, "", [], {})
        }


async def current_states(
    store: RecordStore, scope: MemoryMetadata | None
) -> AsyncIterator[CurrentState]:
    """Yield what is remembered now, in the order in which it came."""
    spans = await _holding(store, scope)
    async for page in pages_of(store, metadata=scope):
        for record in page:
            item = record.item
            if record.deleted or not _is_shown(item):
                continue
            if not isinstance(item, FactMemory):
                yield CurrentState(item)
            elif item.id in spans:
                yield CurrentState(item, spans[item.id])


def _is_shown(item: MemoryItem) -> bool:
    return item.status is MemoryStatus.ACCEPTED and item.memory_type not in _BOOKKEEPING


async def _holding(store: RecordStore, scope: MemoryMetadata | None) -> dict[str, FactSpan]:
    """Return the facts that hold now, by id, each with its time; as `facts.all()` tells it."""
    scopes: dict[tuple[str | None, ...], list[FactMemory]] = {}
    before: MemoryItem | None = None
    while True:
        page = await store.search(
            metadata=scope,
            memory_type="fact",
            status=MemoryStatus.ACCEPTED,
            limit=_PAGE,
            before=before,
        )
        for item in page:
            if isinstance(item, FactMemory):
                # Those of a session are no facts of its user's: each scope speaks for itself.
                whose = tuple(getattr(item.metadata, name) for name in SCOPE_FIELDS)
                scopes.setdefault(whose, []).append(item)
        if len(page) < _PAGE:
            break
        before = page[-1]
    return {span.fact.id: span for facts in scopes.values() for span in _spans(facts)}


def _spans(facts: list[FactMemory]) -> Iterable[FactSpan]:
    known = datetime.max.replace(tzinfo=UTC)
    # What is recorded has happened, even by a clock that is ahead of this one.
    last = max((fact.recorded_at for fact in facts if fact.is_known(known)), default=ALWAYS)
    now = max(datetime.now(UTC), last)
    grouped = by_key(facts)
    for key, fact in current(facts, as_of=now, known_at=known).items():
        yield span_of(fact, grouped[key], as_of=now, known_at=known)


async def conversations(store: RecordStore, scope: MemoryMetadata | None) -> list[ConversationInfo]:
    """Return the conversations, the one that ended first first."""
    found = await store.conversations(metadata=scope, limit=_MANY)
    return found[::-1]


def merged(
    ours: Mapping[str, object], labels: Mapping[str, object], *, reserved: Iterable[str] = ()
) -> dict[str, object]:
    """Return *ours* with a caller's labels beside it.

    One that has a name of ours, or one that is *reserved*, stands under `extra`.
    """
    taken = {*ours, *reserved, "extra"}
    clashing = {name: value for name, value in labels.items() if name in taken}
    beside = {name: value for name, value in labels.items() if name not in taken}
    return {**ours, **beside, **({"extra": clashing} if clashing else {})}
