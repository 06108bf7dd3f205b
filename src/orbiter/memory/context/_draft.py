"""Laying out a context: sections in order, each with its room, the whole counted before it leaves.

Stable parts first: persona, notice, conversation; then what was recalled for this call alone; the
task last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orbiter.memory.context._budget import Dropped, drop, fit_entries, fit_rounds
from orbiter.memory.context._entries import Candidate, Reason, TrustRule, message_entries, speaker
from orbiter.memory.conversation import Unit, newest_first, walk_units
from orbiter.memory.copies import copy_item
from orbiter.memory.errors import QueryError
from orbiter.memory.fencing import (
    NOTICE,
    Entry,
    closing_line,
    derive_mark,
    entry_line,
    new_mark,
    render,
)
from orbiter.memory.items import HumanMemory, MemoryItem, MemoryStatus, SystemMemory, role_of
from orbiter.memory.tokens import TokenCounter, count_tokens, item_tokens

PRIORITY = ("memories", "recent", "conversation")
"""The sections that may shrink, the one kept longest first; persona and task are never cut.

Each takes what it wants if the ones behind it still get all they want, otherwise at most half of
what is left, so none can starve the others; the last one takes the rest.
"""

Costs = dict[tuple[str, datetime, int], int]
"""What messages cost, by id, time of change and length: a long conversation is counted once.

An item that changed unseen is found out when the whole is counted.
"""

_TITLES = {
    "conversation": "## Conversation",
    "recent": "## Recent activity",
    "memories": "## Relevant memories",
    "task": "## Task",
}
_SLACK = 8  # a heading and a message that appear only beside other sections


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a context: its name, its text, and the tokens it was counted with."""

    name: str
    text: str = field(repr=False)
    tokens: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What a context is made of, before anything is cut."""

    persona: str
    task: str
    history: list[MemoryItem]
    foreign: list[MemoryItem]
    """What the conversation holds of others, and is not shown."""
    remembered: Mapping[str, list[Candidate]]
    """What to show in the sections `recent` and `memories`."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A context as laid out for some room."""

    sections: tuple[Section, ...]
    prefix: str
    items: tuple[MemoryItem, ...]
    dropped: tuple[Dropped, ...]
    marks: tuple[str, str]
    text: str
    tokens: int


def compose(
    parts: Parts,
    *,
    budget: int | None,
    counter: TokenCounter,
    priority: Sequence[str],
    trust: TrustRule,
    secret: bytes,
    costs: Costs,
) -> Draft:
    """Return the fullest draft within *budget*; `QueryError` if persona and task do not fit."""
    layout = _Layout(
        parts, counter=counter, priority=priority, trust=trust, secret=secret, costs=costs
    )
    if budget is None:
        return layout.draft(None)
    least = layout.draft(-1)
    if least.tokens > budget:
        raise QueryError(
            f"the persona ({counter(parts.persona):,} tokens), the task ({counter(parts.task):,}) "
            f"and what always comes with them need {least.tokens:,} tokens, the budget is "
            f"{budget:,}; raise `budget`, or shorten the persona or the task"
        )
    room = budget - least.tokens - _SLACK
    while room > 0:
        draft = layout.draft(room)
        over = draft.tokens - budget
        if over <= 0:
            return draft
        # A counter may find the whole longer than its parts; an eighth ends that soon.
        room -= max(over, room // 8, 1)
    return least


class _Layout:
    """The parts that may be shown, what each costs, and how they are laid out."""

    def __init__(
        self,
        parts: Parts,
        *,
        counter: TokenCounter,
        priority: Sequence[str],
        trust: TrustRule,
        secret: bytes,
        costs: Costs,
    ) -> None:
        self._parts = parts
        self._count = counter
        self._priority = priority
        self._trust = trust
        around = (parts.persona, NOTICE, parts.task)
        first = parts.history[0].id if parts.history else ""
        # The conversation's fence is part of what stays the same from turn to turn.
        self._stable = derive_mark(secret, first, avoid=around)
        said = (item.content for item in parts.history)
        self._volatile = new_mark(avoid=(*around, *said))
        self._costs = costs
        self._lines: dict[Entry, int] = {}
        self._refused: list[Dropped] = []
        self._refused += [self._drop_item(item, "scope") for item in parts.foreign]
        self._question = _open_question(parts)
        self._units = self._sift_history()
        self._found = self._sift_remembered()

    def draft(self, room: int | None) -> Draft:
        """Return the layout with *room* tokens for all that may shrink; none if it is negative."""
        items, found, dropped = self._fit(room)
        stable = [self._section("persona", self._parts.persona), self._section("notice", NOTICE)]
        system = _join(stable)
        prefix = system + "\n\n"
        if items:
            lines = [entry for item in items for entry in message_entries(item, self._trust)]
            stable.append(self._section("conversation", self._block("conversation", lines)))
            prefix += stable[-1].text.removesuffix(closing_line(self._stable))
        volatile = [
            self._section(name, self._block(name, [each.entry for each in found[name]]))
            for name in ("recent", "memories")
            if found[name]
        ]
        task = self._section("task", f"{_TITLES['task']}\n{self._parts.task}")
        text = _join([*stable, *volatile, task])
        # Made without checks: the parts were checked, and no limit on one memory holds for all.
        sent = [SystemMemory.model_construct(content=system), *map(copy_item, items)]
        is_asked = any(item is self._question for item in items)
        if volatile or not is_asked:
            ending = _join(volatile if is_asked else [*volatile, task])
            last = ending if volatile else self._parts.task
            sent.append(HumanMemory.model_construct(content=last))
        as_text = [HumanMemory.model_construct(content=text)]
        return Draft(
            sections=(*stable, *volatile, task),
            prefix=prefix,
            items=tuple(sent),
            dropped=(*self._refused, *dropped),
            marks=(self._stable, self._volatile),
            text=text,
            tokens=max(count_tokens(form, counter=self._count) for form in (sent, as_text)),
        )

    def _fit(
        self, room: int | None
    ) -> tuple[list[MemoryItem], dict[str, list[Candidate]], list[Dropped]]:
        """Share *room* by priority."""
        items: list[MemoryItem] = []
        found: dict[str, list[Candidate]] = {}
        dropped: list[Dropped] = []
        for place, name in enumerate(self._priority):
            share = None
            if room is not None:
                share = self._share(room, name, self._priority[place + 1 :]) - self._frame(name)
            if name == "conversation":
                items, lost = self._fit_conversation(share)
            else:
                found[name], lost = fit_entries(name, self._found[name], share, cost=self._cost)
            dropped += lost
            if room is not None:
                taken = [self._cost(each.entry) for each in found.get(name, ())]
                taken += map(self._item_cost, items if name == "conversation" else ())
                room -= sum(taken) + (self._frame(name) if taken else 0)
        shown = {item.id for item in items}
        for name, kept in found.items():
            twice = [each for each in kept if each.id in shown]
            dropped += [drop(name, each, "duplicate", self._cost(each.entry)) for each in twice]
            found[name] = [each for each in kept if each.id not in shown]
        return items, found, dropped

    def _share(self, room: int, name: str, behind: Sequence[str]) -> int:
        most = room // 2 if behind else room
        # What the others want is asked only when it matters: it counts the whole conversation.
        if self._want(name) > most:
            most = max(most, room - sum(map(self._want, behind)))
        return most

    def _want(self, name: str) -> int:
        if name == "conversation":
            wants = [self._item_cost(item) for unit in self._units for item in unit]
        else:
            wants = [self._cost(each.entry) for each in self._found[name]]
        return sum(wants) + self._frame(name) if wants else 0

    def _fit_conversation(self, room: int | None) -> tuple[list[MemoryItem], list[Dropped]]:
        items = [item for unit in self._units for item in unit]
        if room is None:
            return items, []
        kept = fit_rounds(self._units, room, cost=self._item_cost) if room >= 0 else []
        held = {id(item) for item in kept}
        lost = [item for item in items if id(item) not in held]
        return kept, [self._drop_item(item, "budget") for item in lost]

    def _sift_history(self) -> list[Unit]:
        """Return the conversation's whole units, without the task if it ends with it."""
        history = list(self._parts.history)
        last = history[-1] if history else None
        if last and role_of(last) == "human" and last.content == self._parts.task:
            history = history[:-1] if not last.native else history
        accepted = [item for item in history if item.status is MemoryStatus.ACCEPTED]
        messages = [item for item in accepted if role_of(item) is not None]
        units = [unit for _, unit in walk_units(newest_first(messages))][::-1]
        whole = {id(item) for unit in units for item in unit}
        for item in history:
            if id(item) not in whole:
                is_accepted = item.status is MemoryStatus.ACCEPTED
                kind: Reason = "incomplete" if role_of(item) else "kind"
                self._refused.append(self._drop_item(item, kind if is_accepted else "status"))
        return units

    def _sift_remembered(self) -> dict[str, list[Candidate]]:
        seen: set[str] = set()
        sifted: dict[str, list[Candidate]] = {}
        for name, candidates in self._parts.remembered.items():
            sifted[name] = []
            for each in candidates:
                reason = each.refused or ("duplicate" if each.id in seen else None)
                if reason:
                    self._refused.append(drop(name, each, reason, self._cost(each.entry)))
                    continue
                sifted[name].append(each)
                if each.id is not None:
                    seen.add(each.id)
        return sifted

    def _drop_item(self, item: MemoryItem, reason: Reason) -> Dropped:
        return Dropped("conversation", speaker(item), reason, self._item_cost(item), item.id)

    def _item_cost(self, item: MemoryItem) -> int:
        """Return what a message costs in the form in which it costs more."""
        key = (item.id, item.updated_at, len(item.content))
        cost = self._costs.get(key)
        if cost is None:
            lines = sum(map(self._cost, message_entries(item, self._trust)))
            cost = self._costs[key] = max(lines, item_tokens(item, counter=self._count))
        return cost

    def _cost(self, entry: Entry) -> int:
        cost = self._lines.get(entry)
        if cost is None:
            line = entry_line(entry, marks=(self._volatile, self._stable))
            cost = self._lines[entry] = self._count(line + "\n")
        return cost

    def _frame(self, name: str) -> int:
        return self._count(self._block(name, []) + "\n\n")

    def _block(self, name: str, entries: Sequence[Entry]) -> str:
        marks = (self._stable, self._volatile)
        mark, other = marks if name == "conversation" else marks[::-1]
        return f"{_TITLES[name]}\n{render(entries, mark=mark, others=[other])}"

    def _section(self, name: str, text: str) -> Section:
        return Section(name, text, self._count(text))


def _open_question(parts: Parts) -> MemoryItem | None:
    """Return the message that asks the task, if tools have answered since and the model has not.

    A model that is asked the same again after its tools' results may well call them again. In the
    text the task stays: there, the conversation is data.
    """
    if not parts.history or role_of(parts.history[-1]) != "tool":
        return None
    for item in reversed(parts.history):
        if role_of(item) == "human":
            return item if item.content == parts.task else None
    return None


def _join(sections: Sequence[Section]) -> str:
    return "\n\n".join(section.text for section in sections)
