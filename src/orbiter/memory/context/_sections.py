"""Sections of a context: what may be shown at all, what that looks like, and what it costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orbiter.memory.context.entries import Candidate, Reason, TrustRule, message_entries
from orbiter.memory.context.prompt_fence import (
    NOTICE,
    Entry,
    derive_mark,
    enclose,
    entry_line,
    new_mark,
)
from orbiter.memory.conversation.tokens import (
    MESSAGE_TOKENS,
    TokenCounter,
    adds_up,
    item_tokens,
)
from orbiter.memory.conversation.windows import Unit, newest_first, walk_units
from orbiter.memory.model.items import MemoryItem, MemoryStatus, role_of


@dataclass(frozen=True, slots=True)
class Parts:
    """What a context is made of."""

    persona: str
    """Empty where the agent has none."""
    summary: str
    """What was said before `history`, in short; empty where there is nothing to say."""
    task: str
    history: list[MemoryItem]
    foreign: list[MemoryItem]
    """What the conversation holds of others, and is not shown."""
    remembered: Mapping[str, list[Candidate]]
    """What to show in the sections `recent` and `memories`."""


@dataclass(frozen=True, slots=True)
class Visible:
    """What may be shown, and what may not."""

    units: list[Unit]
    """The conversation's whole units, oldest first, without the task if nothing has followed it."""
    question: MemoryItem | None
    """The message that asks the task, if the model has not answered it."""
    found: dict[str, list[Candidate]]
    """What wants to be shown as entries, by section."""
    refused_items: list[tuple[MemoryItem, Reason]]
    refused: list[tuple[str, Candidate, Reason]]


def find_visible(parts: Parts) -> Visible:
    """Return what of *parts* may be shown."""
    units, refused_items = _sift_history(parts)
    question = _open_question(units, parts.task)
    if question is not None and not question.native:
        place = next(place for place, unit in enumerate(units) if unit[0] is question)
        # Where nobody has answered it is asked last, as the task, and not here. With a picture or
        # the like it stays where it is.
        if all(role_of(unit[0]) == "system" for unit in units[place + 1 :]):
            units.pop(place)
    found, refused = _sift_remembered(parts.remembered)
    # A summary is derived from all that was said, and no more reliable than the least of it.
    summary = Candidate(Entry(parts.summary, "summary", trust="low"))
    found["summary"] = [summary] if parts.summary else []
    return Visible(units, question, found, refused_items, refused)


def _sift_history(parts: Parts) -> tuple[list[Unit], list[tuple[MemoryItem, Reason]]]:
    accepted = [item for item in parts.history if item.status is MemoryStatus.ACCEPTED]
    messages = [item for item in accepted if role_of(item) is not None]
    units = [unit for _, unit in walk_units(newest_first(messages))][::-1]
    whole = {id(item) for unit in units for item in unit}
    refused: list[tuple[MemoryItem, Reason]] = [(item, "scope") for item in parts.foreign]
    for item in parts.history:
        if id(item) not in whole:
            kind: Reason = "incomplete" if role_of(item) else "kind"
            is_accepted = item.status is MemoryStatus.ACCEPTED
            refused.append((item, kind if is_accepted else "status"))
    return units, refused


def _sift_remembered(
    remembered: Mapping[str, list[Candidate]],
) -> tuple[dict[str, list[Candidate]], list[tuple[str, Candidate, Reason]]]:
    seen: set[str] = set()
    found: dict[str, list[Candidate]] = {}
    refused: list[tuple[str, Candidate, Reason]] = []
    for name, candidates in remembered.items():
        found[name] = []
        for each in candidates:
            reason = each.refused or ("duplicate" if each.id in seen else None)
            if reason:
                refused.append((name, each, reason))
                continue
            found[name].append(each)
            if each.id is not None:
                seen.add(each.id)
    return found, refused


def _open_question(units: Sequence[Unit], task: str) -> MemoryItem | None:
    """Return the newest message of a person if it asks the task and only tools have spoken since.

    A model that is asked the same again after its tools' results may well call them again. In the
    text the task stays: there, the conversation is data.
    """
    spoken = [unit for unit in units if role_of(unit[0]) != "system"]
    if spoken and role_of(spoken[-1][-1]) not in ("human", "tool"):
        return None
    asked = next((unit[0] for unit in reversed(spoken) if role_of(unit[0]) == "human"), None)
    return asked if asked is not None and asked.content == task else None


Costs = dict[tuple[str, datetime, int], int]
"""What messages cost, by id, time of change and length: a long conversation is counted once.

An item that changed unseen is found out when the whole is counted.
"""

TITLES = {
    "summary": "## Earlier in this conversation",
    "conversation": "## Conversation",
    "recent": "## Recent activity",
    "memories": "## Relevant memories",
    "task": "## Task",
}
_STABLE = frozenset(("summary", "conversation"))
"""The sections that the next turn repeats."""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a context: its name, its text, and the tokens it was counted with."""

    name: str
    text: str = field(repr=False)
    tokens: int


@dataclass(frozen=True, slots=True)
class Block:
    """A section before it is counted: its text, and the entries that stand in it."""

    name: str
    text: str
    frame: str
    """The text without its entries; all of it where it has none."""
    entries: Sequence[Entry] = ()

    def without_end(self, ending: str) -> "Block":
        """Return the same without its last line, *ending*."""
        text, frame = self.text.removesuffix(ending), self.frame.removesuffix(ending)
        return Block(self.name, text, frame, self.entries)


def join(texts: Iterable[str]) -> str:
    """Return sections as one text."""
    return "\n\n".join(texts)


class Prices:
    """The fences of one context, and what goes into them costs.

    A text is escaped once and counted once for each context, however often it is asked for.
    """

    def __init__(
        self, parts: Parts, *, counter: TokenCounter, trust: TrustRule, secret: bytes, costs: Costs
    ) -> None:
        self._counts = _Counts(counter)
        self.count: TokenCounter = self._counts.__getitem__
        self._count_once = counter
        self._adds_up = adds_up(counter)
        self._trust = trust
        self._costs = costs
        self._own: dict[int, int] = {}
        """What each item of these parts costs; they live as long as this does."""
        self._parts = parts
        self._lines: dict[Entry, str] = {}
        self._prices: dict[Entry, int] = {}
        self.stable, volatile = _marks(parts, secret)
        self.marks = (self.stable, volatile)

    def entry(self, entry: Entry) -> int:
        """Return what *entry* costs as a line."""
        cost = self._prices.get(entry)
        if cost is None:
            cost = self._prices[entry] = self._line_cost(entry)
        return cost

    def _line_cost(self, entry: Entry) -> int:
        line, text = self._line(entry), entry.content
        if not self._adds_up or not line.endswith(text) or not text[:1].isalpha():
            return self._count_once(line + "\n")
        # The text is no part of the last word of the head, and may be known from a message.
        return self._count_once(line.removesuffix(text) + "x\n") - 1 + self.count(text)

    def _line(self, entry: Entry) -> str:
        line = self._lines.get(entry)
        if line is None:
            line = self._lines[entry] = entry_line(entry, marks=self.marks)
        return line

    def item(self, item: MemoryItem) -> int:
        """Return what a message costs in the form in which it costs more."""
        cost = self._own.get(id(item))
        if cost is None:
            cost = self._own[id(item)] = self._item_cost(item)
        return cost

    def _item_cost(self, item: MemoryItem) -> int:
        key = (item.id, item.updated_at, len(item.content))
        cost = self._costs.get(key)
        if cost is None:
            lines = sum(map(self.entry, message_entries(item, self._trust)))
            cost = self._costs[key] = max(lines, item_tokens(item, counter=self.count))
        return cost

    def frame(self, name: str) -> int:
        """Return what a section costs besides its entries."""
        text = self.block(name, []).text
        cost = self.count(text + "\n\n")
        if name == "summary":  # a message of its own
            cost = max(cost, MESSAGE_TOKENS + self.count(text))
        return cost

    def block(self, name: str, entries: Sequence[Entry]) -> Block:
        """Return a section: its heading, and its entries behind their fence."""
        mark = self.stable if name in _STABLE else self.marks[1]
        text = f"{TITLES[name]}\n{enclose(map(self._line, entries), mark=mark)}"
        frame = f"{TITLES[name]}\n{enclose((), mark=mark)}" if entries else text
        return Block(name, text, frame, entries)

    def section(self, block: Block) -> Section:
        """Return a section, counted."""
        return Section(block.name, block.text, self.tokens(block.text, [block]))

    def tokens(self, text: str, blocks: Sequence[Block]) -> int:
        """Return how many tokens *text* has, which *blocks* make up."""
        if self._adds_up and text not in self._counts:
            entries = (entry for block in blocks for entry in block.entries)
            frame = self._count_once(join(block.frame for block in blocks))
            self._counts[text] = frame + sum(map(self.entry, entries))
        return self.count(text)


class _Counts(dict[str, int]):
    """How many tokens each text has that was asked for."""

    def __init__(self, counter: TokenCounter) -> None:
        super().__init__()
        self._counter = counter

    def __missing__(self, text: str) -> int:
        count = self[text] = self._counter(text)
        return count


def _marks(parts: Parts, secret: bytes) -> tuple[str, str]:
    """Return the mark that stays the same from turn to turn, and the one of this call alone."""
    around = (parts.persona, NOTICE, parts.task)
    said = [item.content for item in parts.history]
    if parts.summary:
        # Made from the summary: it is the same as long as that is, whatever is said after it. As
        # messages, what is said stands unescaped beside this fence, and may not hold its mark.
        stable = derive_mark(secret, f"summary\0{parts.summary}", avoid=(*around, *said))
    else:
        first = parts.history[0].id if parts.history else ""
        stable = derive_mark(secret, first, avoid=around)
    return stable, new_mark(avoid=(*around, *said, parts.summary))
