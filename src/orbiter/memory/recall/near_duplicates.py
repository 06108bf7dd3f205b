"""Near-duplicates: items that say the same, and floods of them. Pure functions.

Two texts say the same if they have the same words, numbers and signs in the same order; case,
plain punctuation and articles aside. Texts that differ in their numbers are facts of their own,
such as tickets, prices and dates. Many of them are a series: it may take half of the places, and
is never hidden. Items of different users never repeat each other.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from string import digits, whitespace

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.items import INDEXED_BY, MemoryItem
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.recall._candidate_pool import Clusters, speaker_of
from orbiter.memory.tasks.offload import cut_at_spaces, find_words
from orbiter.memory.text.text_caches import WordCache, text_cache

__all__ = [
    "CLUSTER",
    "SERIES",
    "Clusters",
    "DuplicateIndex",
    "find_clusters",
    "said_again",
    "text_tokens",
    "who_says",
    "without_numbers",
]

CLUSTER = 20
"""How many texts may say the same before they are a flood."""
SERIES = 50
"""How many may differ in their numbers alone before they are a series."""

_MAX_BYTES = 16 * 2**20
"""How much is remembered of the texts that one function was asked about."""

_SAID = lazy_pattern(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*|[-+\u2212]?\d+(?:[.,:/-]\d+)*|[^\w\s]")
_PLAIN = frozenset(".,!?;:'\"()\u2026\u2018\u2019\u201c\u201d-\u2013\u2014")
_FILLERS = frozenset(("a", "an", "the"))
_NUMBER_OR_WORD = lazy_pattern(r"[a-z_]{0,32}+\d[a-z0-9_.:/+-]*|[^\W\d_]+")
"""A number, a time or an id, such as `10:32:07` and `req_8f3a`, or else a word."""
_COPY_NUMBER = lazy_pattern(r"\s*(?:\(\d+\)|\[\d+\])[\s.!?]*$")
_LONGEST_COPY_NUMBER = 40

_Who = tuple[str | None, ...]


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


@WordCache
def _token(word: str) -> str:
    """Return what a word, number or sign says; nothing for plain punctuation and articles."""
    plain = word.casefold()
    token = plain if word in (plain, word.upper(), word.capitalize()) else word
    return "" if token in _PLAIN or token in _FILLERS else token


@text_cache(max_bytes=_MAX_BYTES, size_of=lambda said: 64 + 72 * len(said) + sum(map(len, said)))
def text_tokens(content: str) -> tuple[str, ...]:
    """Return what a text says, in order: its words, numbers and signs.

    Letters of either case are the same, but for a word like `hunteR`, where case means something.
    """
    return tuple(filter(None, map(_token.__getitem__, find_words(_SAID, content, reach=2))))


@text_cache(max_bytes=_MAX_BYTES)
def without_numbers(content: str) -> str:
    """Return the words of a text in lower case, without its numbers, times and ids.

    If it has no words, what is left of it without the digits around it.
    """
    text = content.casefold()
    found = find_words(_NUMBER_OR_WORD, text, reach=1)
    return " ".join(filter(str.isalpha, found)) or text.strip(digits + whitespace)


def said_again(item: MemoryItem, others: Iterable[MemoryItem]) -> list[MemoryItem]:
    """Return those of *others* that say what *item* says, in its words, by the same one.

    Of a flood, others are alike, and still say something else: nobody may lose these by mistake.
    """
    said = who_says(item), text_tokens(item.content)
    return [each for each in others if (who_says(each), text_tokens(each.content)) == said]


def find_clusters(items: Iterable[MemoryItem]) -> Clusters:
    """Return the floods and the series among *items*, numbered; most often there are none.

    A flood is more than `CLUSTER` items of one speaker that say the same, in upper or lower case,
    and numbered as copies or not, as in "Bring milk (17)". A series is more than `SERIES` others
    that differ in their numbers alone. No number is that of both a flood and a series.
    """
    listed = list(items)
    texts = without_numbers.of_all([item.content for item in listed])
    counts = Counter(texts)
    common = {text for text, count in counts.items() if count > CLUSTER}
    if not common:
        return Clusters()
    alike = [item for item, text in zip(listed, texts, strict=True) if text in common]
    floods = _clusters(alike, _folded, max_count=CLUSTER)
    copies = {item.id: number for number, flood in enumerate(floods) for item in flood}
    others = [item for item in alike if item.id not in copies]
    all_series = _clusters(others, without_numbers, max_count=SERIES)
    series = {item.id: len(floods) + n for n, each in enumerate(all_series) for item in each}
    return Clusters(copies, series)


def _clusters(
    items: Sequence[MemoryItem], text_of: Callable[[str], str], *, max_count: int
) -> list[list[MemoryItem]]:
    """Return groups of more than *max_count* items of one speaker with the same *text_of*."""
    groups: dict[tuple[_Who, str], list[MemoryItem]] = {}
    for item in items:
        groups.setdefault((who_says(item), text_of(item.content)), []).append(item)
    return [group for group in groups.values() if len(group) > max_count]


def _folded(content: str) -> str:
    """Return what a text says, in lower case and without the number of a copy at its end."""
    mark = _COPY_NUMBER.search(content, max(0, len(content) - _LONGEST_COPY_NUMBER))
    said = content if mark is None else content[: mark.start()]
    return " ".join(text_tokens(said.casefold()))


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
