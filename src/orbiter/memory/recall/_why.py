"""Reasons a person can read: each part of a score, in words, with the points it gave."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from orbiter.memory import words
from orbiter.memory.items import AIMemory, MemoryItem
from orbiter.memory.recall._features import Table
from orbiter.memory.recall._pool import Pool, speaker_of
from orbiter.memory.recall._question import Question
from orbiter.memory.recall._ranking import Scored

__all__ = ["Hit", "Reason", "reasons"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One part of why an item was recalled."""

    part: str
    """What spoke for it: `words`, `meaning`, `speaker`, `date`, and so on."""
    points: float
    """What it added to the score; less than nothing if it spoke against the item."""
    text: str
    """The same for a person."""

    def __str__(self) -> str:
        return f"{self.points:+.2f}  {self.text}"


@dataclass(frozen=True, slots=True)
class Hit:
    """A recalled item. Its score is the sum of its reasons' points, comparable in one recall."""

    item: MemoryItem
    score: float
    why: tuple[Reason, ...]
    """The strongest first."""
    repeats: tuple[MemoryItem, ...] = ()
    """Others that say the same, and were given no place of their own."""

    def __str__(self) -> str:
        """Return the item and its reasons, one to a line."""
        head = f"{self.score:.2f}  [{_who(self.item)}, {self.item.created_at:%d %b %Y}]"
        lines = [f"{head} {_shortened(self.item.content)}"]
        lines += [f"    {reason}" for reason in self.why]
        if self.repeats:
            lines.append(f"    said {len(self.repeats) + 1} times")
        return "\n".join(lines)


_LONGEST = 100


def reasons(question: Question, pool: Pool, table: Table, one: Scored) -> tuple[Reason, ...]:
    """Return why *one* was recalled, the strongest part first."""
    found = [
        Reason(part, points, _text(part, question, pool, table, one))
        for part, points in one.points.items()
        if points
    ]
    return tuple(sorted(found, key=lambda reason: -abs(reason.points)))


def _text(part: str, question: Question, pool: Pool, table: Table, one: Scored) -> str:
    item, place = one.item, one.place
    own = _listed(question, table, [place])
    before = table.before[place]
    with_before = _listed(question, table, [place] if before is None else [place, before])
    cosine = None if pool.similarity is None else pool.similarity.get(item.id)
    told = {
        "words": f"holds {own}",
        "reach": f"with what was said just before, it holds {with_before}",
        "talk": "the talk around it holds words of the question",
        "session": "its whole session is about words of the question",
        "meaning": "not embedded yet" if cosine is None else f"means much the same ({cosine:.2f})",
        "gist": "the talk around it means much the same",
        "session_gist": "its session means much the same",
        "detail": "its words mean what the question's words mean",
        "detail_talk": "its words and those just before mean what the question's words mean",
        "speaker": f"said by {_who(item)}{_asked(question, item)}",
        "user": f"said by {_who(item)}",
        "assistant": "said by the assistant, who is asked",
        "date": f"said on {item.created_at:%d %B %Y}, near the time asked about",
        "when": "says when",
        "question": "is a question itself",
        "length": f"has {len(item.content.split())} words",
        "recency": f"from {item.created_at:%d %B %Y}",
        "importance": f"importance {item.metadata.extra.get('importance')}",
    }
    return told.get(part, part)


def _listed(question: Question, table: Table, places: Sequence[int]) -> str:
    terms = {term for place in places for term in table.found[place]}
    if not terms:
        return "none of the words asked for"
    ordered = sorted(terms, key=lambda term: (-table.rarity[term], term))
    written = _written(question.text)
    listed = ", ".join(written.get(term, term) for term in ordered)
    return f"{listed} ({len(terms)} of {len(table.rarity)})"


@lru_cache(maxsize=16)
def _written(text: str) -> dict[str, str]:
    """Return how each term is written in *text*: a stem is no word to show."""
    made = [(word, words.terms(word)) for word in words.tokens(text)]
    return {found[0]: word for word, found in reversed(made) if len(found) == 1}


def _who(item: MemoryItem) -> str:
    name = speaker_of(item)
    return name if name is not None else "assistant" if isinstance(item, AIMemory) else "user"


def _asked(question: Question, item: MemoryItem) -> str:
    name = speaker_of(item)
    if name is None or len(question.about) != 1:
        return ""
    return ", who is asked about" if name.casefold() in question.about else ""


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
