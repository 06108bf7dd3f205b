"""Reasons a person can read: each part of a score, in words, with the points it gave."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.recall._features import Table, best_passage
from orbiter.memory.recall._pool import Pool, is_spoken, is_talk, speaker_of
from orbiter.memory.recall._query_analysis import Question, written
from orbiter.memory.recall._scoring import Scored
from orbiter.memory.tasks.offload import count_words

__all__ = [
    "FACT",
    "HOLDS",
    "Reason",
    "Why",
    "is_important",
    "is_recent",
    "means",
    "passage_of",
    "reasons",
    "who_said",
]


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


class Why(tuple[Reason, ...]):
    """The reasons for an item, the strongest first; as text, what speaks for it most."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return at most three reasons for the item, in about a hundred characters.

        The first is the time of a fact, if that is told: without it, what is over would look true.
        """
        strongest = max((reason.points for reason in self), default=0.0)
        least = max(_SHOWN, _WEAK * strongest)
        told = [reason.text for reason in self if reason.part == FACT and reason.text != HOLDS]
        others = (reason for reason in self if reason.points >= least and reason.text not in told)
        for text in _kinds(others):
            if len(told) < _MOST_TOLD and len("; ".join((*told, text))) <= _LONGEST:
                told.append(text)
            elif not told:
                told.append(f"{text[: _LONGEST - 1]}…")
        return "; ".join(told) or "little speaks for it"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


FACT = "fact"
"""The part that tells for how long a fact holds."""
HOLDS = "holds"
"""What it tells of a fact without dates."""
_LONGEST = 100
_MOST_TOLD = 3
_SHOWN = 0.005
_WEAK = 0.1
"""Share of the strongest reason's points below which another is not worth the room."""
_ROLES = {"human": "user", "ai": "assistant", "item": "note"}
_OF_WORDS = ("words", "reach", "talk", "session")
_OF_DETAILS = ("detail", "detail_talk")
_KINDS = {
    **dict.fromkeys(_OF_WORDS, "words"),
    **dict.fromkeys(("meaning", "gist", "session_gist", *_OF_DETAILS), "meaning"),
}
"""Parts of one kind: the first of them that speaks for an item is enough for a sentence."""
_STRONG = 1.0
"""Deviations above the other candidates from which a meaning is nearly the same,"""
_NEAR = 0.3
"""if it is so near besides: among what has nothing to do with a question, one is nearest, too."""


def _kinds(found: Iterable[Reason]) -> list[str]:
    """Return a text for each kind of reason, the strongest kind first."""
    kinds: dict[str, list[Reason]] = {}
    for reason in sorted(found, key=lambda reason: -reason.points):
        if reason.part != "length":  # tells nothing by itself
            kinds.setdefault(_KINDS.get(reason.part, reason.part), []).append(reason)
    order = list(_KINDS)
    return [
        min(kind, key=lambda reason: order.index(reason.part) if reason.part in order else 0).text
        for kind in kinds.values()
    ]


def reasons(question: Question, pool: Pool, table: Table, one: Scored) -> Why:
    """Return why *one* was recalled, the strongest part first."""
    points = dict(one.points)
    if not is_talk(one.item):
        # Nothing was said around it, so these are all about its own words.
        for parts in (_OF_WORDS, _OF_DETAILS):
            together = sum(points.pop(part, 0.0) for part in parts)
            points = {parts[0]: together, **points}
    told = _texts(question, pool, table, one)
    found = [
        Reason(part, value, told.get(part, (part, part))[value < 0])
        for part, value in points.items()
        if value
    ]
    return Why(sorted(found, key=lambda reason: -abs(reason.points)))


def means(cosine: float | None, *, strength: float) -> str:
    """Return what a nearness in meaning says, *strength* deviations above the others."""
    near = "" if cosine is None else f" ({cosine:.2f})"
    if strength < 0:
        return f"means something else{near}"
    is_near = cosine is None or cosine >= _NEAR
    is_strong = strength >= _STRONG and is_near
    return f"means nearly that{near}" if is_strong else f"means a little of that{near}"


def is_recent(item: MemoryItem) -> str:
    """Return how recency is told."""
    return f"is recent, from {_day(item)}"


def is_important() -> str:
    """Return how importance is told."""
    return "is marked as important"


def who_said(item: MemoryItem) -> str:
    """Return who speaks in an item: a name, a role, or what kind of item it is."""
    name = speaker_of(item)
    return name if name is not None else _ROLES.get(item.memory_type, item.memory_type)


def passage_of(question: Question, item: MemoryItem) -> str:
    """Return the passage of an item that holds most of the question, or all of a short item."""
    return best_passage(item.content, frozenset(question.terms))


def _texts(question: Question, pool: Pool, table: Table, one: Scored) -> dict[str, tuple[str, str]]:
    """Return what each part says for an item, and what it says against it."""
    item, place = one.item, one.place
    own = _listed(question, table, [place])
    before = table.before[place]
    with_before = _listed(question, table, [place] if before is None else [place, before])
    cosine = None if pool.similarity is None else pool.similarity.get(item.id)
    more = ", others more" if table.found[place] else ""
    nearness = means(cosine, strength=table.columns.get("meaning", {place: 0.0})[place])
    who, count = who_said(item), count_words(item.content)
    size = f"{count} word" if count == 1 else f"{count} words"
    said = f"{'said on' if is_spoken(item) else 'is from'} {_day(item)}"
    source = f"said by {who}" if is_spoken(item) else "was remembered for itself"
    return {
        "words": (f"holds {own}", f"holds {own}{more}"),
        "reach": (
            f"with what was said just before, it holds {with_before}",
            f"even with what was said just before, it holds {with_before}{more}",
        ),
        "talk": ("the talk around it is about it", "the talk around it is about other things"),
        "session": ("its session is about it", "its session is about other things"),
        "meaning": (nearness, nearness),
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
        "user": (source, source),
        "assistant": ("the assistant is asked", "the assistant is asked"),
        "date": (f"{said}, near the time asked about", said),
        "when": ("says when", "says when"),
        "question": ("is a question", "is a question itself"),
        "echo": ("asks the same", "asks the same, and so is no answer"),
        "length": (f"its length, {size}, counts for it", f"its length, {size}, counts against it"),
        "recency": (is_recent(item), is_recent(item)),
        "importance": (is_important(), is_important()),
    }


def _listed(question: Question, table: Table, places: Sequence[int]) -> str:
    terms = {term for place in places for term in table.found[place]}
    if not terms:
        return "none of the words asked for"
    ordered = sorted(terms, key=lambda term: (-table.rarity[term], term))
    as_asked = written(question.text)
    listed = ", ".join(as_asked.get(term, term) for term in ordered)
    return f"{listed} ({len(terms)} of {len(table.rarity)})"


def _day(item: MemoryItem) -> str:
    return f"{item.created_at.day} {item.created_at:%B %Y}"
