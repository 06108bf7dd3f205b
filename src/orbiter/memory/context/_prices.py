"""Prices: the sections of a context as text behind their fences, and what they cost.

A text is escaped once and counted once for each context, however often it is asked for.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import chain

from orbiter.memory.context._visible import Parts
from orbiter.memory.context.entries import (
    PLAIN_SPEAKERS,
    TrustRule,
    message_entries,
    round_down,
    shorten_text,
)
from orbiter.memory.context.prompt_fence import (
    Entry,
    common_year,
    derive_mark,
    enclose,
    entry_line,
    escape,
    message_line,
)
from orbiter.memory.conversation.tokens import (
    MESSAGE_TOKENS,
    TokenCounter,
    adds_up,
    item_tokens,
    split_budget,
)
from orbiter.memory.conversation.windows import Unit, stands_alone
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.validation import to_utc

Costs = dict[tuple[str, int, int, int], int]
"""What messages cost, by id, version, time of change and text: a conversation is counted once.

Of the time it is the microsecond, and of the text its hash; to hash a time takes longer than all
else. An item that changed unseen is found out when the whole is counted.
"""

TITLES = {
    "summary": "Earlier in this conversation",
    "conversation": "Conversation",
    "recent": "Recent activity",
    "memories": "Memories",
}
"""What the opening lines of the fences say that they hold."""
TASK = "## Task"
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
    """A section before it is counted: its text, and what the entries that stand in it cost."""

    name: str
    text: str
    frame: str
    """The text without its entries; all of it where it has none."""
    cost: int = 0
    """What the entries cost as lines."""

    def without_end(self, ending: str) -> "Block":
        """Return the same without its last line, *ending*."""
        text, frame = self.text.removesuffix(ending), self.frame.removesuffix(ending)
        return Block(self.name, text, frame, self.cost)


def join(texts: Iterable[str]) -> str:
    """Return sections as one text."""
    return "\n\n".join(texts)


@dataclass(slots=True)
class _Message:
    """What is known of one message of a context; it keeps the message, and so its `id`, alive."""

    item: MemoryItem
    original: MemoryItem
    """What the message is a shortened copy of, or the message itself."""
    cost: int | None = None
    """What it costs in the form in which it costs more."""
    bare: int | None = None
    """What it costs besides its text."""
    lines: str | None = None
    lines_cost: int | None = None
    """What the lines cost, if that is known."""
    copies: dict[int, MemoryItem | None] = field(default_factory=dict)
    """Its copies by the room that their text was shortened to; `None` where there can be none."""


class Prices:
    """The fences of one context, and what goes into them costs."""

    def __init__(
        self, parts: Parts, *, counter: TokenCounter, trust: TrustRule, secret: bytes, costs: Costs
    ) -> None:
        self._counts = _Counts(counter)
        self.count: TokenCounter = self._counts.__getitem__
        self._count_once = counter
        self._adds_up = adds_up(counter)
        self._trust = trust
        self._costs = costs
        self._messages: dict[int, _Message] = {}
        """What is known of each message, by its `id`."""
        self._heads: dict[str, int] = {}
        self._frames: dict[str, int] = {}
        self._parts = parts
        self._lines: dict[tuple[Entry, int | None], str] = {}
        self._prices: dict[tuple[Entry, int | None], int] = {}
        self.stable, volatile = _marks(parts, secret)
        self.marks = (self.stable, volatile)
        self._said_in, self._year = _years(parts)

    def entry(self, entry: Entry) -> int:
        """Return what *entry* costs as a line of what is remembered."""
        return self._line_cost(entry, self._year)

    def _line_cost(self, entry: Entry, year: int | None) -> int:
        cost = self._prices.get((entry, year))
        if cost is None:
            cost = self._prices[entry, year] = self._count_line(entry, year)
        return cost

    def _count_line(self, entry: Entry, year: int | None) -> int:
        line, text = self._line(entry, year), entry.content
        if not self._adds_up or not line.endswith(text) or not text[:1].isalpha():
            return self._count_once(line + "\n")
        return self._head_cost(line.removesuffix(text)) + self.count(text)

    def _line(self, entry: Entry, year: int | None) -> str:
        line = self._lines.get((entry, year))
        if line is None:
            line = self._lines[entry, year] = entry_line(entry, marks=self.marks, year=year)
        return line

    def item(self, item: MemoryItem) -> int:
        """Return what a message costs in the form in which it costs more."""
        message = self._message(item)
        if message.cost is None:
            key = (item.id, item.version, item.updated_at.microsecond, hash(item.content))
            cost = self._costs.get(key)
            if cost is None:
                lines = self._lines_cost(message)
                cost = self._costs[key] = max(lines, item_tokens(item, counter=self.count))
            message.cost = cost
        return message.cost

    def _message(self, item: MemoryItem) -> _Message:
        message = self._messages.get(id(item))
        if message is None:
            message = self._messages[id(item)] = _Message(item, item)
        return message

    def shortened(self, unit: Unit, room: int) -> Unit | None:
        """Return *unit* with its longest texts shortened to fit in *room*; `None` if none can be.

        All else stays as it is: calls, pictures, and texts that need less than their share.
        """
        bare = [self._bare_cost(item) for item in unit]
        wants = {str(place): self.item(item) - bare[place] for place, item in enumerate(unit)}
        if sum(bare) > room:
            return None
        shares = split_budget(room - sum(bare), wants)
        short: Unit = []
        for (place, share), item in zip(shares.items(), unit, strict=True):
            is_whole = share >= wants[place]
            copy = item if is_whole else self.shortened_item(item, round_down(share))
            if copy is None:
                return None
            short.append(copy)
        return short

    def shortened_item(self, item: MemoryItem, room: int) -> MemoryItem | None:
        """Return a copy of *item* whose text fits in *room*, or `None`; the same each time."""
        copies = self._message(item).copies
        if room not in copies:
            total = self.item(item) - self._bare_cost(item)
            text = shorten_text(item.content, room, counter=self.text, total=total)
            copies[room] = None if text is None else self._with_text(item, text)
        return copies[room]

    def original(self, item: MemoryItem) -> MemoryItem:
        """Return the item that *item* is a shortened copy of, or itself."""
        return self._message(item).original

    def _with_text(self, item: MemoryItem, text: str) -> MemoryItem:
        copy = copy_item(item).model_copy(update={"content": text})
        self._messages[id(copy)] = _Message(copy, item)
        return copy

    def _bare_cost(self, item: MemoryItem) -> int:
        """Return what a message costs besides its text."""
        if len(item.content) <= 1:
            return self.item(item)
        message = self._message(item)
        if message.bare is None:
            bare = self.item(self._with_text(item, "x")) - self.count("x")
            message.bare = min(bare, self.item(item))
        return message.bare

    def text(self, text: str) -> int:
        """Return what a text costs in the form in which it costs more, on its own."""
        escaped = escape(text, marks=self.marks)
        cost = self._count_once(text)
        return cost if escaped is text else max(cost, self._count_once(escaped))

    def frame(self, name: str) -> int:
        """Return what a section costs besides its entries."""
        cost = self._frames.get(name)
        if cost is None:
            text = self.block(name, []).text
            cost = self.count(text + "\n\n")
            if name == "summary":  # a message of its own
                cost = max(cost, MESSAGE_TOKENS + self.count(text))
            self._frames[name] = cost
        return cost

    def block(self, name: str, entries: Sequence[Entry]) -> Block:
        """Return a section: its entries behind their fence; without any, the longest fence."""
        mark = self.stable if name in _STABLE else self.marks[1]
        year = self._year
        if name == "summary" or (entries and common_year(each.time for each in entries) is None):
            year = None
        lines = [self._line(each, year) for each in entries]
        text = enclose(lines, mark=mark, title=TITLES[name], year=year)
        frame = enclose((), mark=mark, title=TITLES[name], year=year) if entries else text
        cost = sum(self._line_cost(each, year) for each in entries) if self._adds_up else 0
        return Block(name, text, frame, cost)

    def conversation(self, items: Sequence[MemoryItem]) -> Block:
        """Return the section of messages."""
        title, total = TITLES["conversation"], 0
        messages = [self._message(item) for item in items]
        lines = map(self._lines_of, messages)
        text = enclose(lines, mark=self.stable, title=title, year=self._said_in)
        if self._adds_up:
            total = sum(map(self._lines_cost, messages))
        frame = enclose((), mark=self.stable, title=title, year=self._said_in)
        return Block("conversation", text, frame, total)

    def _lines_of(self, message: _Message) -> str:
        if message.lines is None and not self._has_plain_line(message):
            entries = message_entries(message.item, self._trust)
            message.lines = "\n".join(self._line(each, self._said_in) for each in entries)
        return message.lines or ""

    def _lines_cost(self, message: _Message) -> int:
        """Return what a message costs as lines."""
        lines = self._lines_of(message)
        if message.lines_cost is not None:
            return message.lines_cost
        if "\n" in lines:
            entries = message_entries(message.item, self._trust)
            return sum(self._line_cost(each, self._said_in) for each in entries)
        return self._count_once(lines + "\n")

    def _has_plain_line(self, message: _Message) -> bool:
        """Write the line of a message that is a text and nothing else, without an `Entry`."""
        item = message.item
        if not stands_alone(item) or item.created_at.tzinfo is not UTC:
            return False
        trust, text = self._trust(item), item.content
        if trust not in ("high", "medium", "low"):  # an `Entry` says so
            return False
        who = PLAIN_SPEAKERS[item.__class__]
        head, escaped = message_line(
            text, who, item.created_at, trust, marks=self.marks, year=self._said_in
        )
        message.lines = head + escaped
        if self._adds_up and escaped is text and text[:1].isalpha():
            message.lines_cost = self._head_cost(head) + self.count(text)
        return True

    def _head_cost(self, head: str) -> int:
        """Return what the beginning of a line costs, and its end, where a text adds to that."""
        cost = self._heads.get(head)
        if cost is None:
            # The text is no part of the last word of the head, and may be known from a message.
            cost = self._heads[head] = self._count_once(head + "x\n") - 1
        return cost

    def section(self, block: Block) -> Section:
        """Return a section, counted."""
        return Section(block.name, block.text, self.tokens(block.text, [block]))

    def tokens(self, text: str, blocks: Sequence[Block]) -> int:
        """Return how many tokens *text* has, which *blocks* make up."""
        if self._adds_up and text not in self._counts:
            frame = self._count_once(join(block.frame for block in blocks))
            self._counts[text] = frame + sum(block.cost for block in blocks)
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
    """Return the mark that stays the same from turn to turn, and the one of this task alone.

    The latter is the same for as long as a model calls tools, so that what it was sent before can
    be used again.
    """
    around = (parts.persona, parts.task)
    said = [item.content for item in parts.history]
    if parts.summary:
        # Made from the summary: it is the same as long as that is, whatever is said after it. As
        # messages, what is said stands unescaped beside this fence, and may not hold its mark.
        stable = derive_mark(secret, f"summary\0{parts.summary}", avoid=(*around, *said))
    else:
        stable = derive_mark(secret, _name(parts.history), avoid=around)
    name = f"recalled\0{_name(parts.history)}\0{parts.task}"
    return stable, derive_mark(secret, name, avoid=(*around, *said, parts.summary, stable))


def _years(parts: Parts) -> tuple[int | None, int | None]:
    """Return the year that the conversation's dates leave out, and that of what is remembered.

    That of the conversation is the one of its end: it is the same whatever part of it is shown.
    """
    said_in = to_utc(parts.history[-1].created_at).year if parts.history else None
    remembered = chain.from_iterable(parts.remembered.values())
    return said_in, common_year(each.entry.time for each in remembered)


def _name(history: Sequence[MemoryItem]) -> str:
    """Return what names a conversation, whatever part of it was read: its scope, or its first item.

    A long conversation is read from another message with every turn.
    """
    if not history:
        return ""
    scope = history[0].metadata
    if scope.session_id is None:
        return history[0].id
    return json.dumps([scope.user_id, scope.agent_id, scope.session_id])
