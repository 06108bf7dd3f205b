"""Near-duplicates: items that say the same, and clusters of many copies. Pure functions.

Two texts repeat each other if they have the same words in the same order; case, plain punctuation
and articles aside. Who owes whom, a sign or a single other word makes them two. Only among more
than `SERIES` that are nearly alike does each say hardly more than the others: a running word may
not buy a place for every copy. Texts that differ in their numbers are facts of their own, such as
tickets, prices and dates; many of them are a series, which may take half of the places, and is
never hidden. A bare number in brackets at the end is no fact: it only numbers copies. Items of
different users never repeat each other.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from hashlib import blake2b
from itertools import chain
from operator import or_
from typing import NamedTuple
from zlib import crc32

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.items import INDEXED_BY, MemoryItem
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.recall._candidate_pool import Clusters, speaker_of
from orbiter.memory.tasks.offload import SLICE, cut_at_spaces, find_words, replace_all
from orbiter.memory.text import words
from orbiter.memory.text.text_caches import WordCache, text_cache

__all__ = [
    "SERIES",
    "Clusters",
    "DuplicateIndex",
    "find_clusters",
    "said_again",
    "text_tokens",
    "who_says",
    "without_digits",
    "without_numbers",
]

_MAX_BYTES = 16 * 2**20
"""How much is remembered of the texts that one function was asked about."""

CLUSTER = 20
"""How many texts may say the same before they are a flood."""
SERIES = 100
"""How many may do so whose numbers are different each time, as those of a diary are."""

_ALIKE = 0.9
"""Share of terms in common from which two items nearly say the same."""
_VARIED = 0.75
"""The same for texts of a flood in which a word is another each time."""
_SAID = lazy_pattern(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*|[-+\u2212]?\d+(?:[.,:/-]\d+)*|[^\w\s]")
_PLAIN = frozenset(".,!?;:'\"()\u2026\u2018\u2019\u201c\u201d-\u2013\u2014")
_FILLERS = frozenset(("a", "an", "the"))
_SKETCHES = 3
_MIXED = 0x9E3779B1
"""Odd, so that multiplying by it only changes the order."""
_DENIALS = frozenset(("cannot", "never", "no", "none", "nobody", "nor", "not", "nothing"))
_SKETCHED = 200
"""Characters of a text that are enough to see that two may be alike."""
_MAX_KINDS = 64
"""Different texts of one sketch that others are compared with."""
_CENTRES = 3
"""How many of them are tried as the middle of a flood of words that vary."""
_LONG_WORDS = lazy_pattern(r"[a-z]{4,}")
_DIGITS = lazy_pattern(r"\d+")
_COPY_NUMBER = lazy_pattern(r"\s*(?:\(\d+\)|\[\d+\])[\s.!?]*$")
_LONGEST_MARK = 40
_LETTERS = lazy_pattern(r"[^\W\d_]+")
_MARKS = 512
_ROUNDING = 1e-6
_ROOM = (1 - _ALIKE) / (1 + _ALIKE)
"""Share of the terms of two texts that only one of them may have."""

_VARIED_ROOM = (1 - _VARIED) / (1 + _VARIED) + _ROUNDING
_RARE = (CLUSTER + 1) / (CLUSTER + 1 - CLUSTER // 2) * (1 - _ALIKE) / _ALIKE + _ROUNDING
"""Share of the terms of a flood's text that at most half of `CLUSTER` others may have."""

_Who = tuple[str | None, ...]
_NO_CLUSTERS = Clusters()


def who_says(item: MemoryItem) -> _Who:
    """Return whose words these are: only what the same one says can be a repeat.

    What is not indexed repeats nothing that is: the one that is left would be another's answer.
    Nor does what is indexed by texts of its own, whatever these say. A note and what the user said
    in a chat are one's words, the assistant's another's.
    """
    by = item.metadata.extra.get(INDEXED_BY)
    other = "not indexed" if by is False else item.id if isinstance(by, list) else None
    kind = "item" if item.memory_type == "human" else item.memory_type
    return kind, speaker_of(item), item.metadata.user_id, other


def _are_alike(one: str, other: str, share: float) -> bool:
    """Tell whether texts of these terms have nearly all of them in common."""
    terms, others = frozenset(one.split()), frozenset(other.split())
    both = len(terms & others)
    return bool(both) and both >= share * (len(terms) + len(others) - both)


class _WordWording(NamedTuple):
    """What a word gives to the wording of its text."""

    terms: tuple[str, ...]
    """Its terms without digits."""
    marks: int
    """A bit for each of them."""
    hinge: str
    """What turns round or tells apart texts of the same terms: a denial, or a number."""


@WordCache
def _word_wording(word: str) -> _WordWording:
    terms = tuple(term for term in words.terms_of((word,)) if not _has_digit(term))
    marks = 0
    for term in terms:
        marks |= 1 << hash(term) % _MARKS
    return _WordWording(terms, marks, _hinge(word))


def _hinges(tokens: Iterable[str]) -> list[str]:
    """Return the hinges of a text, in order."""
    return [hinge for word in tokens if (hinge := _word_wording[word].hinge)]


def _hinge(word: str) -> str:
    if word in _DENIALS or word.endswith("n't"):
        return "not"
    return word if _has_digit(word) else ""


def _has_digit(word: str) -> bool:
    if word.isalpha():
        return False
    if len(word) <= SLICE:
        return any(map(str.isdigit, word))
    return any(any(map(str.isdigit, word[at : at + SLICE])) for at in range(0, len(word), SLICE))


@text_cache(max_bytes=_MAX_BYTES, size_of=lambda said: 64 + 72 * len(said) + sum(map(len, said)))
def text_tokens(content: str) -> tuple[str, ...]:
    """Return what a text says, in order: its words, numbers and signs.

    Letters of either case are the same, but for a word like `hunteR`, where case means something.
    """
    tokens = []
    for word in find_words(_SAID, content, reach=2):
        plain = word.casefold()
        is_ordinary = word in (plain, word.upper(), word.capitalize())
        token = plain if is_ordinary else word
        if token not in _PLAIN and token not in _FILLERS:
            tokens.append(token)
    return tuple(tokens)


def said_again(item: MemoryItem, others: Iterable[MemoryItem]) -> list[MemoryItem]:
    """Return those of *others* that say what *item* says, in its words, by the same one.

    Of a flood, others are alike, and still say something else: nobody may lose these by mistake.
    """
    said = who_says(item), text_tokens(item.content)
    return [each for each in others if (who_says(each), text_tokens(each.content)) == said]


def find_clusters(items: Iterable[MemoryItem]) -> Clusters:
    """Return the floods among *items*, numbered; most often there are none."""
    left = list(items)
    sketches = _sketches.of_all([item.content for item in left])
    numbers: dict[str, int] = {}
    series: dict[str, int] = {}
    known: list[tuple[_Who, _Wording]] = []
    for place in range(_SKETCHES):
        many = _that_share(left, [each[place] for each in sketches])
        claims = [_by_numbers(same) for alike in many for same in _same_words(alike)]
        clusters = [cluster for copies, _ in claims for cluster in copies]
        for one in (each for _, others in claims for each in others):
            number = len(series)  # unique, as each has an item or more
            series |= {item.id: number for item in one if item.id not in series}
        taken = {item.id for cluster in clusters for item in cluster} | series.keys()
        rest = left if place or not taken else [item for item in left if item.id not in taken]
        if len(rest) > SERIES and not place:
            many.sort(key=len, reverse=True)
            heads = (next((i for i in alike if i.id not in taken), None) for alike in many)
            clusters += _varied(rest, [head for head in heads if head is not None])
        for cluster in clusters:
            numbers |= dict.fromkeys((item.id for item in cluster), _numbered(cluster[0], known))
        if not many:
            break
        if numbers or series:
            left = [item for item in left if item.id not in numbers and item.id not in series]
            sketches = _sketches.of_all([item.content for item in left])
    return Clusters(numbers, series) if numbers or series else _NO_CLUSTERS


def _that_share(items: Sequence[MemoryItem], sketches: Sequence[int]) -> list[list[MemoryItem]]:
    """Return the items of each sketch that more than `CLUSTER` share."""
    counts = Counter(sketches)
    many: dict[int, list[MemoryItem]] = {
        sketch: [] for sketch, count in counts.items() if count > CLUSTER
    }
    if many:
        for item, sketch in zip(items, sketches, strict=True):
            if sketch in many:
                many[sketch].append(item)
    return list(many.values())


def _numbered(item: MemoryItem, known: "list[tuple[_Who, _Wording]]") -> int:
    """Return the number of a flood: that of one that another sketch has shown, or a new one."""
    who, wording = who_says(item), _wording(item.content)
    for number, (other_who, other) in enumerate(known):
        if (
            other_who == who
            and other.numbers == wording.numbers
            and other.is_like(wording, _VARIED)
        ):
            return number
    known.append((who, wording))
    return len(known) - 1


@text_cache(max_bytes=_MAX_BYTES, size_of=lambda _: 160)
def _sketches(content: str) -> tuple[int, ...]:
    """Return marks, each of which nearly all copies of a text share, and few other texts do.

    Another word more or less changes few of them, and hardly ever all. It must cost next to
    nothing, as it is asked of every candidate of every question.
    """
    start = content[:_SKETCHED].lower()
    long_words = _LONG_WORDS.findall(start) or _LETTERS.findall(start) or [content.strip()]
    marks = list(map(_word_mark.__getitem__, long_words))
    return min(marks), max(marks), min([mark * _MIXED & 0xFFFFFFFF for mark in marks])


@WordCache
def _word_mark(word: str) -> int:
    return crc32(word.encode())


def _may_be_flood(wordings: Sequence["_Wording"]) -> bool:
    """Tell whether a text may have more than `CLUSTER` like it, by how common its terms are.

    Each of these lacks at most a ninth of its terms, or it would not be alike. A term that is rare
    among *wordings* is lacking in more than half of them: so few of its terms can be rare.
    """
    common = _common_marks(wordings)
    without = 0
    for each in wordings:
        if not each.size:
            without += 1
        elif (each.marks & ~common).bit_count() <= _RARE * each.size:
            return True
    return without > CLUSTER


def _common_marks(wordings: Sequence["_Wording"]) -> int:
    """Return the marks that more than ten wordings have, half of `CLUSTER`.

    Every mark is counted at once: each number holds one digit of the counts of all of them.
    """
    ones = twos = fours = eights = more = 0
    for each in wordings:
        carry = each.marks
        ones, carry = ones ^ carry, ones & carry
        twos, carry = twos ^ carry, twos & carry
        fours, carry = fours ^ carry, fours & carry
        eights, carry = eights ^ carry, eights & carry
        more |= carry
    return more | eights & (fours | twos & ones)


def _same_words(items: Sequence[MemoryItem]) -> list[list[MemoryItem]]:
    """Return items of one sketch in groups that are a flood if the numbers do not matter."""
    if not _may_be_flood(_wording.of_all([item.content for item in items])):
        return []
    kinds: list[tuple[int, int, _Who, _Wording, list[MemoryItem]]] = []
    exact: dict[tuple[_Who, str], list[MemoryItem]] = {}
    for item in items:
        who = who_says(item)
        copies = who, item.content
        if copies not in exact:
            wording = _wording(item.content)
            marks, size = wording.marks, wording.size
            # `is_like` begins with the same: here it saves nearly all calls of it.
            like = (
                each
                for other, others, by, known, each in kinds
                if (marks ^ other).bit_count() <= (size + others) * _ROOM + _ROUNDING
                and by == who
                and known.is_like(wording)
            )
            exact[copies] = next(like, [])
            if not exact[copies] and len(kinds) < _MAX_KINDS:
                kinds.append((marks, size, who, wording, exact[copies]))
        exact[copies].append(item)
    return [group for *_, group in kinds if len(group) > CLUSTER]


def _varied(items: Sequence[MemoryItem], centres: Sequence[MemoryItem]) -> list[list[MemoryItem]]:
    """Return floods in which a word is another each time: more than `SERIES` round one text."""
    clusters: list[list[MemoryItem]] = []
    if not centres:
        return clusters
    left = items
    for centre in centres[:_CENTRES]:
        who, about = who_says(centre), _wording(centre.content)
        cluster = [
            item
            for item, wording in _near(left, about)
            if about.is_like(wording, _VARIED)
            and wording.numbers == about.numbers
            and who_says(item) == who
        ]
        if len(cluster) > SERIES:
            clusters.append(cluster)
            gone = {item.id for item in cluster}
            left = [item for item in left if item.id not in gone]
    return clusters


def _near(items: Sequence[MemoryItem], about: "_Wording") -> "list[tuple[MemoryItem, _Wording]]":
    """Return the items that may be like *about*; none if they are too few to be a flood.

    `is_like` begins with the same. Most often so many are not near that the others are not read.
    """
    near: list[tuple[MemoryItem, _Wording]] = []
    marks, size, others = about.marks, about.size, len(items) - SERIES
    for item in items:
        wording = _wording(item.content)
        if (marks ^ wording.marks).bit_count() <= (size + wording.size) * _VARIED_ROOM:
            near.append((item, wording))
            continue
        others -= 1
        if others <= 0:
            return []
    return near


class _Wording(NamedTuple):
    """What a text says but for its numbers, and these."""

    terms: str
    """Its terms without digits, in order, as one text: a set takes twenty times the room."""
    size: int
    """How many these are."""
    rest: str
    """The text itself, where it has no terms to compare."""
    noes: int
    numbers: tuple[str, ...]
    marks: int
    """A bit for each term, several for one: most texts differ in so many of them that their terms
    need not be compared."""

    def is_like(self, other: "_Wording", share: float = _ALIKE) -> bool:
        """Tell whether both say the same, but for their numbers."""
        # Each bit that only one has is a term that only one has; more of these than so many, and
        # the share is too small.
        room = (self.size + other.size) * (1 - share) / (1 + share) + _ROUNDING
        if (self.marks ^ other.marks).bit_count() > room:
            return False
        if self.rest != other.rest or self.noes != other.noes:
            return False
        return self.terms == other.terms or _are_alike(self.terms, other.terms, share)


@text_cache(
    max_bytes=_MAX_BYTES,
    size_of=lambda one: 400 + 4 * len(one.terms) + 4 * len(one.rest) + 72 * len(one.numbers),
)
def _wording(content: str) -> _Wording:
    text = content.casefold()
    tokens = words.tokens(text)
    by_word = list(map(_word_wording.__getitem__, tokens))
    terms, marks, by_hinge = zip(*by_word, strict=True) if by_word else ((), (), ())
    different = set(chain.from_iterable(terms))
    hinges: list[str] = list(filter(None, by_hinge))
    rest, noes = "" if different else without_numbers(text), hinges.count("not")
    if hinges and (mark := _COPY_NUMBER.search(text, max(0, len(text) - _LONGEST_MARK))):
        hinges = _hinges(words.tokens(text[: mark.start()]))
    numbers = tuple(each for each in hinges if each != "not")
    every_mark = reduce(or_, marks, 0)
    return _Wording(" ".join(sorted(different)), len(different), rest, noes, numbers, every_mark)


def _by_numbers(
    items: list[MemoryItem],
) -> tuple[list[list[MemoryItem]], list[list[MemoryItem]]]:
    """Return the floods of copies and the series among items of the same words.

    So many with the very same numbers are copies. A series are those that have one number in
    common, such as `ticket 1041, floor 2`, or in which every number is another each time.
    """
    copies: list[list[MemoryItem]] = []
    series: list[list[MemoryItem]] = []
    by_numbers: dict[tuple[str, ...], list[MemoryItem]] = {}
    for item in items:
        by_numbers.setdefault(_numbers(item.content), []).append(item)
    rest: dict[int, list[MemoryItem]] = {}
    for numbers, same in by_numbers.items():
        if len(same) > CLUSTER:
            copies.append(same)
        else:
            rest.setdefault(len(numbers), []).extend(same)
    for left in rest.values():
        while len(left) > CLUSTER:
            counts = Counter(at for item in left for at in enumerate(_numbers(item.content)))
            max_copies = max(counts.items(), key=lambda each: (each[1], each[0]), default=None)
            if max_copies is None or max_copies[1] <= CLUSTER:
                series += [left] if len(left) > SERIES else []
                break
            place, value = max_copies[0]
            series.append([item for item in left if _numbers(item.content)[place] == value])
            left = [item for item in left if _numbers(item.content)[place] != value]  # noqa: PLW2901
    return copies, series


def without_numbers(content: str) -> str:
    """Return a text in lower case, without its numbers."""
    return without_digits(content.casefold()).strip()


def without_digits(text: str) -> str:
    """Return *text* without its digits."""
    return replace_all(_DIGITS, lambda _: "", text, reach=0)


def _numbers(content: str) -> tuple[str, ...]:
    return _wording(content).numbers


class DuplicateIndex:
    """Groups the items of a scope that say the same; it holds digests, and no text.

    With *exact*, only texts that are equal but for white space are the same: what one of them may
    be given up for.
    """

    def __init__(self, *, exact: bool = False) -> None:
        self._is_exact = exact
        self._groups: dict[tuple[object, ...], list[str]] = {}

    def add(self, item: MemoryItem) -> None:
        """Put an item into its group, or begin one."""
        text = " ".join(word for piece in cut_at_spaces(item.content) for word in piece.split())
        if not text:
            return
        what = text if self._is_exact else "\0".join(text_tokens(text)) or text
        scope_ids = (*(getattr(item.metadata, name) for name in SCOPE_FIELDS), *who_says(item))
        key = (scope_ids, item.memory_type, blake2b(what.encode(), digest_size=16).digest())
        self._groups.setdefault(key, []).append(item.id)

    def add_all(self, items: Iterable[MemoryItem]) -> None:
        """Put each of *items* into its group."""
        for item in items:
            self.add(item)

    def groups(self) -> list[list[str]]:
        """Return the ids of each group of more than one, in the order in which they were added."""
        return [group for group in self._groups.values() if len(group) > 1]
