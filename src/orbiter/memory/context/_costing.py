"""What the parts of a context look like, and what each costs: marks, blocks, counted once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orbiter.memory.context._sections import Parts
from orbiter.memory.context.entries import TrustRule, message_entries
from orbiter.memory.context.prompt_fence import (
    NOTICE,
    Entry,
    derive_mark,
    entry_line,
    new_mark,
    render,
)
from orbiter.memory.conversation.tokens import TokenCounter, item_tokens
from orbiter.memory.model.items import HumanMemory, MemoryItem

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


class Prices:
    """The fences of one context, and what goes into them costs."""

    def __init__(
        self, parts: Parts, *, counter: TokenCounter, trust: TrustRule, secret: bytes, costs: Costs
    ) -> None:
        self._count = counter
        self._trust = trust
        self._costs = costs
        self._lines: dict[Entry, int] = {}
        self.stable, volatile = _marks(parts, secret)
        self.marks = (self.stable, volatile)

    def entry(self, entry: Entry) -> int:
        """Return what *entry* costs as a line."""
        cost = self._lines.get(entry)
        if cost is None:
            line = entry_line(entry, marks=self.marks)
            cost = self._lines[entry] = self._count(line + "\n")
        return cost

    def item(self, item: MemoryItem) -> int:
        """Return what a message costs in the form in which it costs more."""
        key = (item.id, item.updated_at, len(item.content))
        cost = self._costs.get(key)
        if cost is None:
            lines = sum(map(self.entry, message_entries(item, self._trust)))
            cost = self._costs[key] = max(lines, item_tokens(item, counter=self._count))
        return cost

    def frame(self, name: str) -> int:
        """Return what a section costs besides its entries."""
        block = self.block(name, [])
        cost = self._count(block + "\n\n")
        if name == "summary":  # a message of its own
            message = HumanMemory.model_construct(content=block)
            cost = max(cost, item_tokens(message, counter=self._count))
        return cost

    def block(self, name: str, entries: Sequence[Entry]) -> str:
        """Return the text of a section: its heading, and its entries behind their fence."""
        mark, other = self.marks if name in _STABLE else self.marks[::-1]
        return f"{TITLES[name]}\n{render(entries, mark=mark, others=[other])}"

    def section(self, name: str, text: str) -> Section:
        """Return the section of that *text*, counted."""
        return Section(name, text, self._count(text))


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
