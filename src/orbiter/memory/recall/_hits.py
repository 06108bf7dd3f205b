"""Results of recall: hits, what was left out, and both as text for a terminal. Values only."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.display import Sheet, TableList, not_a_dict, printable, shortened
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, item_row
from orbiter.memory.recall._explanation import (
    ENDED,
    FACT,
    REPLACED,
    REPLACES,
    UNTOLD,
    Explanation,
)
from orbiter.memory.recall._modes import RecallMode
from orbiter.memory.recall._signals import who_said

if TYPE_CHECKING:
    from orbiter.memory.model.facts import FactSpan

__all__ = ["Excluded", "ExcludedReason", "Hit", "RecallResult", "Reranking"]

ExcludedReason = Literal["rank", "no evidence", "repeat", "relevance"]
"""Why a candidate is not a hit: others rank higher, no evidence, a hit says the same, or it is not
relevant enough."""

_LONGEST = 100
_MIN_POINTS = 0.005
_REASON_TEXTS: dict[ExcludedReason, str] = {
    "rank": "others rank higher",
    "no evidence": "not relevant enough",
    "repeat": "a hit says the same",
    "relevance": "less relevant than asked for",
}

_MEANT = {
    "content": ("document", "memory", "message", "page_content", "text", "value"),
    "relevance": ("confidence", "probability", "similarity"),
    "metadata": ("extra", "tags"),
    "why": ("explanation", "reason", "reasons"),
    "created_at": ("date", "time", "timestamp"),
}
"""What else people call a field of a hit."""


@dataclass(frozen=True, slots=True, repr=False)
class Hit:
    """A recalled item.

    Its relevance means the same in every store and for every question. Its score is the sum of its
    reasons' points: the log-odds that it answers, before what is replaced or over counts less, and
    with what the caller weighs. With the modes `meaning` and `recent`
    it is the cosine, and how recent the item is, from 0 to 1.
    """

    item: MemoryItem
    score: float
    why: Explanation
    """The strongest first; as text, a short sentence. How often it was said is in `repeats`."""
    repeats: tuple[MemoryItem, ...] = ()
    """Others that say the same, and were given no place of their own."""
    passage: str = ""
    """The part of a long item that holds most of the question; all of a short one. A fact has its
    dates with it. Of an item that is indexed by texts of its own, what of these answers best."""
    span: "FactSpan | None" = None
    """From when to when a fact holds, or held; nothing for other items."""
    replaced_by: str | None = None
    """The id of a newer memory that says what holds now; its text is among the reasons."""
    relevance: float = 0.0
    """The probability that it answers the question, from 0 to 1: the same in every store."""

    @property
    def id(self) -> str:
        """The id of the item."""
        return self.item.id

    @property
    def content(self) -> str:
        """The text of the item, as it was remembered."""
        return self.item.content

    @property
    def metadata(self) -> MemoryMetadata:
        """Whose the item is, and its labels as `metadata.extra`."""
        return self.item.metadata

    @property
    def created_at(self) -> datetime:
        """When the item was said."""
        return self.item.created_at

    @property
    def shown(self) -> MemoryItem:
        """The item as a model should see it: what does not hold any more says so."""
        if self.span is None:
            if self.replaced_by is None:
                return self.item
            outdated = copy_item(self.item)
            outdated.content = f"{outdated.content} (replaced since)"
            return outdated
        dated = copy_item(self.item)
        end = self.span.end
        if end is not None and self.replaced_by is None and end <= datetime.now(UTC):
            dated.__dict__.update(content=dated.content + ENDED)
        dated.__dict__.update(valid_from=self.span.start, valid_to=end)  # a copy
        return dated

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", Explanation(self.why))  # a plain tuple will do

    if not TYPE_CHECKING:  # else every misspelt name would have the type `Any`

        def __getattr__(self, name: str) -> object:
            own = next((each for each, others in _MEANT.items() if name in others), None)
            way = f"; did you mean `{own}`?" if own else ""
            raise AttributeError(f"'Hit' object has no attribute {name!r}{way}")

        def __getitem__(self, key: object) -> object:
            raise not_a_dict(self, key)

    def __repr__(self) -> str:
        text, why = shortened(self.passage or self.item.content), shortened(str(self.why))
        return f"Hit({self.relevance:.2f}, {text!r}, why={why!r}, id={self.item.id!r})"

    def _repr_html_(self) -> str:
        return RecallResult([self])._repr_html_()

    def __str__(self) -> str:
        """Return the item and its reasons, one to a line."""
        lines = [_head(self.item, self.relevance, self.passage), f"    {self.score:.2f} points"]
        lines += [
            f"    {printable(str(one))}"
            for one in self.why
            if abs(one.points) >= _MIN_POINTS or one.part in (REPLACED, REPLACES)
        ]
        return "\n".join(lines + _repeated(self))


@dataclass(frozen=True, slots=True)
class Excluded:
    """A candidate that is not a hit."""

    item: MemoryItem
    score: float
    reason: ExcludedReason
    why: Explanation
    """What speaks for it and against it, the strongest first."""
    relevance: float = 0.0
    """The probability that it answers the question, from 0 to 1."""

    @property
    def told(self) -> str:
        """Why it was left out, and what speaks for it, or most against it, in a sentence."""
        why = str(self.why)
        if self.reason == "no evidence":
            against = [one for one in self.why if one.points < 0 and one.part not in UNTOLD]
            against.sort(key=lambda one: one.part != FACT)  # that it is over says most
            why = against[0].text if against else ""
        text = _REASON_TEXTS[self.reason]
        return f"{text}: {printable(why)}" if why else text

    def __str__(self) -> str:
        """Return the item and why it was left out."""
        return f"{_head(self.item, self.relevance)}\n    {self.told}"


@dataclass(frozen=True, slots=True)
class Reranking:
    """What a reranker was asked, what that cost, and why it did not count, if it did not."""

    name: str
    """How it is called."""
    texts: int
    """How many it read."""
    seconds: float
    error: str | None = None
    """Why the order is the one without it."""

    def __str__(self) -> str:
        """Return the same for a person."""
        if self.error is not None:
            return f"not reranked: {printable(self.error)}"
        count = "1 text" if self.texts == 1 else f"{self.texts} texts"
        return f"{printable(self.name)} read {count} in {self.seconds:.2f} s"


class RecallResult(TableList[Hit]):
    """The hits, best first or in time, and how they came about; equal to a list of them."""

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        *,
        mode: RecallMode = "hybrid",
        considered: int = 0,
        left_out: tuple[Excluded, ...] = (),
        question: str = "",
        spread: bool = False,
        reranking: Reranking | None = None,
        unembedded: int | None = None,
    ) -> None:
        super().__init__(hits)
        self.mode = mode
        self.considered = considered
        """How many candidates were weighed."""
        self.left_out = left_out
        """The next best of them, if an explanation was asked for."""
        self.question = question
        """How the question was read."""
        self.spread = spread
        """Whether the hits cover a matter over time; they are the oldest first, then."""
        self.reranking = reranking
        """What a reranker was asked, if there is one."""
        self.unembedded = unembedded
        """How many memories of the whole store had no vector yet, and were looked for by their
        words only. `None` if vectors were not needed, or a server answered: it is not for every
        key; `stats` of the memory knows it there."""

    @property
    def order(self) -> str:
        """How the hits are ordered, in a few words."""
        if self.spread:
            return "oldest first"
        if self.mode == "recent":
            return "newest first"
        if self.mode == "meaning":
            return "by the cosine of the vectors"
        return "best first"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return relevance, reasons and score of each hit, and the fields of its item."""
        return [
            {
                "relevance": hit.relevance,
                **item_row(hit.item),
                "why": str(hit.why),
                "passage": hit.passage,
                "score": hit.score,
            }
            for hit in self
        ]

    def _columns(self) -> list[str]:
        return ["relevance", *item_row(MemoryItem(content="")), "why", "passage", "score"]

    def _sheet(self) -> Sheet:
        columns = ("relevance", "score", "memory", "why", "who", "created")
        rows = [
            (
                f"{hit.relevance:.2f}",
                f"{hit.score:.2f}",
                hit.passage or hit.item.content,
                "; ".join([str(hit.why), *_times(hit)]),
                who_said(hit.item),
                f"{hit.item.created_at:%Y-%m-%d}",
            )
            for hit in self
        ]
        rows += [
            (
                f"{each.relevance:.2f}",
                f"{each.score:.2f}",
                each.item.content,
                f"left out: {each.told}",
                "",
                "",
            )
            for each in self.left_out
        ]
        count = f"{len(self)} hits" if len(self) != 1 else "1 hit"
        title = f"{count} of {_candidates(self.considered)}" if self.considered else count
        if len(self) > 1:
            title += f", {self.order}"
        if self.unembedded:
            title += f"; {_waiting(self.unembedded)}"
        users = [each.item.metadata.user_id for each in (*self, *self.left_out)]
        return Sheet(columns, rows, title, users)

    def __str__(self) -> str:
        """Return a paragraph for each hit, and one for each candidate that was left out."""
        count = f"{len(self)} of {_candidates(self.considered)}" if self else "nothing found"
        parts = [f"{count}, mode {self.mode}: {printable(self.question)}"]
        if self.reranking is not None:
            parts[0] += f"\n{self.reranking}"
        if self.unembedded:
            parts[0] += f"\n{_waiting(self.unembedded)}"
        if self.left_out:
            parts += map(str, self)
            parts.append(f"left out, {len(self.left_out)} next best:")
            parts += map(str, self.left_out)
        else:
            parts += ["\n".join([*_short(hit), *_repeated(hit)]) for hit in self]
        return "\n\n".join(parts)


def _candidates(count: int) -> str:
    return "1 candidate" if count == 1 else f"{count} candidates"


def _waiting(count: int) -> str:
    memories = "1 memory has" if count == 1 else f"{count:,} memories have"
    return f"{memories} no vector yet: `flush()` of the memory waits for it"


def _short(hit: Hit) -> list[str]:
    return [_head(hit.item, hit.relevance, hit.passage), f"    {printable(str(hit.why))}"]


def _repeated(hit: Hit) -> list[str]:
    return [f"    {times}" for times in _times(hit)]


def _times(hit: Hit) -> list[str]:
    return [f"said {len(hit.repeats) + 1} times"] if hit.repeats else []


def _head(item: MemoryItem, relevance: float, passage: str = "") -> str:
    day = f"{item.created_at.day} {item.created_at:%b %Y}"
    text = printable(" ".join((passage or item.content).split()))
    short_text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return f"{relevance:.2f}  [{printable(who_said(item))}, {day}] {short_text}"
