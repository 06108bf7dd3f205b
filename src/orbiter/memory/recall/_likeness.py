"""Which items say the same: pairs that repeat each other, and floods of copies. Pure functions.

Two texts of the same words repeat each other, unless they differ in a number or in a no. Of more
than `SERIES` texts that differ in numbers only, each says hardly more than the others: a running
number must not buy a place for every copy. Items of different users never repeat each other.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from zlib import adler32, crc32

from orbiter.memory import words
from orbiter.memory.items import MemoryItem
from orbiter.memory.query import SCOPE_FIELDS
from orbiter.memory.recall._pool import speaker_of

__all__ = [
    "DIGITS",
    "SERIES",
    "Floods",
    "Likeness",
    "are_alike",
    "floods_in",
    "hinges",
    "who_says",
    "without_numbers",
]

FLOOD = 20
"""How many texts may say the same before they are a flood."""
SERIES = 100
"""How many may do so whose numbers are different each time, as those of a diary are."""

Floods = Mapping[str, int]
"""The ids of items that belong to a flood, and which one that is."""

_ALIKE = 0.9
"""Share of terms in common from which two items say the same."""
_DENIALS = frozenset(("cannot", "never", "no", "none", "nobody", "nor", "not", "nothing"))
_SKETCHED = 200
"""Characters of a text that are enough to see that two may be alike."""
_MOST_KINDS = 64
"""Different texts of one sketch that others are compared with."""
_LONG_WORDS = re.compile(r"[a-z]{4,}")
DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^\W\d_]+")

_Who = tuple[str | None, ...]


def who_says(item: MemoryItem) -> _Who:
    """Return whose words these are: only what the same one says can be a repeat."""
    return item.memory_type, speaker_of(item), item.metadata.user_id


def are_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Tell whether texts of these terms have nearly all of them in common."""
    if not one or not other:
        return False
    return len(one & other) >= _ALIKE * len(one | other)


@lru_cache(maxsize=4096)
def hinges(content: str) -> tuple[str, ...]:
    """Return what makes two texts differ that have all other words in common: numbers and noes."""
    return tuple(
        "not" if is_denial else word
        for word in words.tokens(content)
        if (is_denial := word in _DENIALS or word.endswith("n't")) or any(map(str.isdigit, word))
    )


def floods_in(items: Iterable[MemoryItem]) -> Floods:
    """Return the floods among *items*, numbered; most often there are none."""
    by_sketch: dict[tuple[str, str], list[MemoryItem]] = {}
    for item in items:
        by_sketch.setdefault(_sketch(item.content), []).append(item)
    found: dict[str, int] = {}
    number = 0
    for alike in by_sketch.values():
        if len(alike) <= FLOOD:
            continue
        for same in _same_words(alike):
            for flood in _same_claim(same):
                found |= dict.fromkeys((item.id for item in flood), number)
                number += 1
    return found


@lru_cache(maxsize=4096)
def _sketch(content: str) -> tuple[str, str]:
    """Return what nearly all copies of a text have in common, and few other texts: two words.

    They are the first and the last by the alphabet, so that a word more or less seldom matters.
    It must cost next to nothing, as it is asked of every candidate of every question.
    """
    start = content[:_SKETCHED].lower()
    found = _LONG_WORDS.findall(start) or _LETTERS.findall(start) or [content.strip()]
    return min(found), max(found)


def _same_words(items: Sequence[MemoryItem]) -> list[list[MemoryItem]]:
    """Return items of one sketch in groups that are a flood if the numbers do not matter."""
    kinds: list[tuple[_Wording, list[MemoryItem]]] = []
    exact: dict[tuple[_Who, str], list[MemoryItem]] = {}
    for item in items:
        copies = who_says(item), item.content.casefold()
        if copies not in exact:
            wording = _Wording(copies[0], *_wording(item.content.casefold()))
            exact[copies] = next((each for known, each in kinds if known.is_like(wording)), [])
            if not exact[copies] and len(kinds) < _MOST_KINDS:
                kinds.append((wording, exact[copies]))
        exact[copies].append(item)
    return [group for _, group in kinds if len(group) > FLOOD]


class _Wording(NamedTuple):
    """What a text says but for its numbers, and who says it."""

    who: _Who
    terms: frozenset[str]
    rest: str
    """The text itself, where it has no terms to compare."""
    noes: int

    def is_like(self, other: "_Wording") -> bool:
        """Tell whether both say the same, but for their numbers."""
        is_same = self[2:] == other[2:] and self.who == other.who
        return is_same and (self.terms == other.terms or are_alike(self.terms, other.terms))


@lru_cache(maxsize=4096)
def _wording(content: str) -> tuple[frozenset[str], str, int]:
    terms = frozenset(t for t in words.terms(content) if not any(map(str.isdigit, t)))
    noes = sum(hinge == "not" for hinge in hinges(content))
    return terms, "" if terms else without_numbers(content), noes


def _same_claim(items: list[MemoryItem]) -> list[list[MemoryItem]]:
    """Return the floods among items of the same words, by their numbers.

    So many with the very same numbers are one; so are those that have one number in common, such
    as `the code is 1234 (message 17)`; and those in which every number is another each time. One
    that contradicts a flood, `the code is 4711`, is not part of it.
    """
    floods: dict[frozenset[str], list[MemoryItem]] = {}
    for flood in _by_numbers(items):
        in_common = frozenset.intersection(*(frozenset(_numbers(i.content)) for i in flood))
        floods.setdefault(in_common, []).extend(flood)
    return list(floods.values())


def _by_numbers(items: list[MemoryItem]) -> list[list[MemoryItem]]:
    found: list[list[MemoryItem]] = []
    by_numbers: dict[tuple[str, ...], list[MemoryItem]] = {}
    for item in items:
        by_numbers.setdefault(_numbers(item.content), []).append(item)
    rest: dict[int, list[MemoryItem]] = {}
    for numbers, same in by_numbers.items():
        if len(same) > FLOOD:
            found.append(same)
        else:
            rest.setdefault(len(numbers), []).extend(same)
    for left in rest.values():
        while len(left) > FLOOD:
            counts = Counter(at for item in left for at in enumerate(_numbers(item.content)))
            most = max(counts.items(), key=lambda each: (each[1], each[0]), default=None)
            if most is None or most[1] <= FLOOD:
                found += [left] if len(left) > SERIES else []
                break
            place, value = most[0]
            flood = [item for item in left if _numbers(item.content)[place] == value]
            found.append(flood)
            left = [item for item in left if _numbers(item.content)[place] != value]  # noqa: PLW2901
    return found


def without_numbers(content: str) -> str:
    """Return a text in lower case, without its numbers."""
    return DIGITS.sub("", content.casefold()).strip()


def _numbers(content: str) -> tuple[str, ...]:
    return tuple(hinge for hinge in hinges(content.casefold()) if hinge != "not")


class Likeness:
    """Groups the items of a scope that say the same; of each it holds its terms and not its text.

    Only what is of the same scope and says the same numbers and noes is alike.
    """

    def __init__(self) -> None:
        self._groups: list[list[str]] = []
        self._terms: list[frozenset[int]] = []
        self._by_text: dict[tuple[object, ...], int] = {}
        self._by_term: dict[tuple[object, ...], list[int]] = {}

    def add(self, item: MemoryItem) -> None:
        """Put an item into its group, or begin one."""
        text = item.content.casefold().strip()
        if not text:
            return
        whose = (*(getattr(item.metadata, name) for name in SCOPE_FIELDS), *who_says(item))
        of_text = (whose, blake2b(text.encode(), digest_size=16).digest())
        place = self._by_text.get(of_text)
        if place is None:
            place = self._by_text[of_text] = self._find(text, whose)
        self._groups[place].append(item.id)

    def _find(self, text: str, whose: tuple[object, ...]) -> int:
        terms = frozenset(map(_number, set(words.terms(text))))
        # Of sets that have so much in common, the lowest few hold a number that both have.
        lowest = sorted(terms)[: len(terms) - math.ceil(_ALIKE * len(terms)) + 1]
        keys = [(whose, hinges(text), term) for term in lowest]
        for key in keys:
            for place in self._by_term.get(key, ()):
                if len(terms & self._terms[place]) >= _ALIKE * len(terms | self._terms[place]):
                    return place
        place = len(self._groups)
        self._groups.append([])
        self._terms.append(terms)
        for key in keys:
            self._by_term.setdefault(key, []).append(place)
        return place

    def groups(self) -> list[list[str]]:
        """Return the ids of each group of more than one, in the order in which they were added."""
        return [group for group in self._groups if len(group) > 1]


def _number(term: str) -> int:
    data = term.encode()
    return crc32(data) << 32 | adler32(data)
