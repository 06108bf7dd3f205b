"""Sections of a context: what may be shown at all, what that looks like, and what it costs."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import chain

from orbiter.memory.context.entries import (
    PLAIN_SPEAKERS,
    Candidate,
    Reason,
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
from orbiter.memory.conversation.windows import Unit, newest_first, stands_alone, walk_units
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem, MemoryStatus, role_of
from orbiter.memory.model.validation import to_utc


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
    candidates: dict[str, list[Candidate]]
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
    candidates, refused = _sift_remembered(parts.remembered)
    # A summary is derived from all that was said, and no more reliable than the least of it.
    summary = Candidate(Entry(parts.summary, "summary", trust="low"))
    candidates["summary"] = [summary] if parts.summary else []
    return Visible(units, question, candidates, refused_items, refused)


def _sift_history(parts: Parts) -> tuple[list[Unit], list[tuple[MemoryItem, Reason]]]:
    refused: list[tuple[MemoryItem, Reason]] = [(item, "scope") for item in parts.foreign]
    accepted = [item for item in parts.history if item.status is MemoryStatus.ACCEPTED]
    if len(accepted) == len(parts.history) and all(map(stands_alone, accepted)):  # as most do
        return [[item] for item in accepted], refused
    messages = [item for item in accepted if role_of(item) is not None]
    units = [unit for _, unit in walk_units(newest_first(messages))][::-1]
    whole = {id(item) for unit in units for item in unit}
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
    candidates: dict[str, list[Candidate]] = {}
    refused: list[tuple[str, Candidate, Reason]] = []
    for name, listed in remembered.items():
        candidates[name] = []
        for each in listed:
            reason = each.refused or ("duplicate" if each.id in seen else None)
            if reason:
                refused.append((name, each, reason))
                continue
            candidates[name].append(each)
            if each.id is not None:
                seen.add(each.id)
    return candidates, refused


def _open_question(units: Sequence[Unit], task: str) -> MemoryItem | None:
    """Return the newest message of a person if it asks the task and only tools have spoken since.

    A model that is asked the same again after its tools' results may well call them again. In the
    text the task stays: there, the conversation is data.
    """
    spoken = (unit for unit in reversed(units) if role_of(unit[0]) != "system")
    last = next(spoken, None)
    if last is None or role_of(last[-1]) not in ("human", "tool"):
        return None
    question = next(
        (unit[0] for unit in chain([last], spoken) if role_of(unit[0]) == "human"), None
    )
    return question if question is not None and question.content == task else None


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
        self._messages: dict[int, tuple[str, int | None]] = {}
        self._heads: dict[str, int] = {}
        self._frames: dict[str, int] = {}
        self._parts = parts
        self._lines: dict[tuple[Entry, int | None], str] = {}
        self._prices: dict[tuple[Entry, int | None], int] = {}
        self._originals: dict[int, tuple[MemoryItem, MemoryItem]] = {}
        """Copies with another text, and what they are copies of: by ids, so they live as long."""
        self._shortened: dict[tuple[int, int], MemoryItem | None] = {}
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
        cost = self._own.get(id(item))
        if cost is not None:
            return cost
        key = (item.id, item.version, item.updated_at.microsecond, hash(item.content))
        cost = self._costs.get(key)
        if cost is None:
            lines = self._message_cost(item)
            cost = self._costs[key] = max(lines, item_tokens(item, counter=self.count))
        self._own[id(item)] = cost
        return cost

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
        key = id(item), room
        if key not in self._shortened:
            total = self.item(item) - self._bare_cost(item)
            text = shorten_text(item.content, room, counter=self.text, total=total)
            self._shortened[key] = None if text is None else self._with_text(item, text)
        return self._shortened[key]

    def original(self, item: MemoryItem) -> MemoryItem:
        """Return the item that *item* is a shortened copy of, or itself."""
        return self._originals.get(id(item), (item, item))[1]

    def _with_text(self, item: MemoryItem, text: str) -> MemoryItem:
        copy = copy_item(item).model_copy(update={"content": text})
        self._originals[id(copy)] = copy, item
        return copy

    def _bare_cost(self, item: MemoryItem) -> int:
        """Return what a message costs besides its text."""
        if len(item.content) <= 1:
            return self.item(item)
        key = id(item), -1
        bare = self._shortened.get(key)
        if bare is None:
            bare = self._shortened[key] = self._with_text(item, "x")
        return min(self.item(bare) - self.count("x"), self.item(item))

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
        lines = map(self._message_lines, items)
        text = enclose(lines, mark=self.stable, title=title, year=self._said_in)
        if self._adds_up:
            total = sum(map(self._message_cost, items))
        frame = enclose((), mark=self.stable, title=title, year=self._said_in)
        return Block("conversation", text, frame, total)

    def _message_lines(self, item: MemoryItem) -> str:
        return self._message(item)[0]

    def _message_cost(self, item: MemoryItem) -> int:
        """Return what a message costs as lines."""
        lines, cost = self._message(item)
        if cost is None and "\n" in lines:
            entries = message_entries(item, self._trust)
            return sum(self._line_cost(each, self._said_in) for each in entries)
        return self._count_once(lines + "\n") if cost is None else cost

    def _message(self, item: MemoryItem) -> tuple[str, int | None]:
        """Return the lines of a message, and what they cost if that is known already."""
        message = self._messages.get(id(item)) or self._plain_message(item)
        if message is None:
            entries = message_entries(item, self._trust)
            message = "\n".join(self._line(each, self._said_in) for each in entries), None
        self._messages[id(item)] = message
        return message

    def _plain_message(self, item: MemoryItem) -> tuple[str, int | None] | None:
        """Return the same of a message that is a text and nothing else, without an `Entry`."""
        if not stands_alone(item) or item.created_at.tzinfo is not UTC:
            return None
        trust, text = self._trust(item), item.content
        if trust not in ("high", "medium", "low"):  # an `Entry` says so
            return None
        who = PLAIN_SPEAKERS[item.__class__]
        head, escaped = message_line(
            text, who, item.created_at, trust, marks=self.marks, year=self._said_in
        )
        if not self._adds_up or escaped is not text or not text[:1].isalpha():
            return head + escaped, None
        return head + text, self._head_cost(head) + self.count(text)

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


Shorten = Callable[[Unit, int], Unit | None]
"""Returns a unit whose long texts are shortened to fit in so many tokens; `None` if none can be."""


def spoken_cost(units: Sequence[Unit], cost: Callable[[MemoryItem], int]) -> int:
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


def shortened_round(
    rounds: Sequence[Sequence[Unit]],
    number: int,
    room: int,
    *,
    cost: Callable[[MemoryItem], int],
    shorten: Shorten,
) -> list[Unit] | None:
    """Return a round shortened to fit in *room*, of which earlier ones may want their share.

    `None` if next to nothing would be left of it, or only half of an answered round.
    """
    spoken = [unit for unit in rounds[number] if role_of(unit[0]) != "system"]
    before = (spoken_cost(each, cost) for each in reversed(rounds[:number]))
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
    spoken: Sequence[Unit], room: int, *, cost: Callable[[MemoryItem], int], shorten: Shorten
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
