"""Reasons a person can read: each part of a score, in words, with the points it gave."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from orbiter.memory import words
from orbiter.memory.items import MemoryItem
from orbiter.memory.recall._features import Table
from orbiter.memory.recall._pool import Pool, speaker_of
from orbiter.memory.recall._question import Question
from orbiter.memory.recall._ranking import Scored

__all__ = ["Hit", "Reason", "passage_of", "reasons"]


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
    """A recalled item.

    Its score is the sum of its reasons' points, and compares it with the other candidates of the
    same recall: above 0 is better than most, and no number means the same in another recall.
    """

    item: MemoryItem
    score: float
    why: tuple[Reason, ...]
    """The strongest first."""
    repeats: tuple[MemoryItem, ...] = ()
    """Others that say the same, and were given no place of their own."""
    passage: str = ""
    """The part of a long item that holds most of the question; all of a short one."""

    def __str__(self) -> str:
        """Return the item and its reasons, one to a line."""
        day = f"{self.item.created_at.day} {self.item.created_at:%b %Y}"
        head = f"{self.score:.2f}  [{_who(self.item)}, {day}]"
        lines = [f"{head} {_shortened(self.passage or self.item.content)}"]
        lines += [f"    {reason}" for reason in self.why if abs(reason.points) >= _SHOWN]
        if self.repeats:
            lines.append(f"    said {len(self.repeats) + 1} times")
        return "\n".join(lines)


_LONGEST = 100
_SHOWN = 0.005
_ROLES = {"human": "user", "ai": "assistant"}


_OF_WORDS = ("words", "reach", "talk", "session")


def reasons(question: Question, pool: Pool, table: Table, one: Scored) -> tuple[Reason, ...]:
    """Return why *one* was recalled, the strongest part first."""
    points = dict(one.points)
    if one.item.metadata.session_id is None:
        # Nothing was said around it, so these are all about its own words.
        together = sum(points.pop(part, 0.0) for part in _OF_WORDS)
        points = {"words": together, **points}
    told = _texts(question, pool, table, one)
    found = [
        Reason(part, value, told.get(part, (part, part))[value < 0])
        for part, value in points.items()
        if value
    ]
    return tuple(sorted(found, key=lambda reason: -abs(reason.points)))


def passage_of(question: Question, item: MemoryItem) -> str:
    """Return the passage of an item that holds most of the question, or all of a short item."""
    cut = words.passages(item.content)
    if len(cut) == 1:
        return item.content
    asked = frozenset(question.terms)
    return max(cut, key=lambda each: len(asked.intersection(words.terms(each))))


def _texts(question: Question, pool: Pool, table: Table, one: Scored) -> dict[str, tuple[str, str]]:
    """Return what each part says for an item, and what it says against it."""
    item, place = one.item, one.place
    own = _listed(question, table, [place])
    before = table.before[place]
    with_before = _listed(question, table, [place] if before is None else [place, before])
    cosine = None if pool.similarity is None else pool.similarity.get(item.id)
    more = ", others more" if table.found[place] else ""
    near = "" if cosine is None else f" ({cosine:.2f})"
    who, count = _who(item), len(item.content.split())
    size = f"{count} word" if count == 1 else f"{count} words"
    day = f"{item.created_at.day} {item.created_at:%B %Y}"
    return {
        "words": (f"holds {own}", f"holds {own}{more}"),
        "reach": (
            f"with what was said just before, it holds {with_before}",
            f"even with what was said just before, it holds {with_before}{more}",
        ),
        "talk": ("the talk around it is about it", "the talk around it is about other things"),
        "session": ("its session is about it", "its session is about other things"),
        "meaning": (f"means nearly that{near}", f"means something else{near}"),
        "gist": ("the talk around it means nearly that", "the talk around it means other things"),
        "session_gist": ("its session means nearly that", "its session means other things"),
        "detail": (
            "has words that mean what the question's words mean",
            "has few words that mean what the question's words mean",
        ),
        "detail_talk": (
            "with what was said around it, every word of the question is met",
            "what was said around it leaves words of the question unmet",
        ),
        "speaker": (f"said by {who}, who is asked about", f"said by {who}, who is not asked about"),
        "user": (f"said by {who}", f"said by {who}"),
        "assistant": ("the assistant is asked", "the assistant is asked"),
        "date": (f"said on {day}, near the time asked about", f"said on {day}"),
        "when": ("says when", "says when"),
        "question": ("is a question", "is a question itself"),
        "echo": ("asks the same", "asks the same, and so is no answer"),
        "length": (f"its length, {size}, counts for it", f"its length, {size}, counts against it"),
        "recency": (f"is recent, from {day}", f"is recent, from {day}"),
        "importance": ("is marked as important", "is marked as important"),
    }


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
    return name if name is not None else _ROLES.get(item.memory_type, item.memory_type)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
