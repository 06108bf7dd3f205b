"""The candidates of one question, with the conversation around them. Values only."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.copying import copy_item, unfenced
from orbiter.memory.model.items import (
    INDEXED_BY,
    AIMemory,
    HumanMemory,
    MemoryItem,
    index_texts,
    role_of,
)
from orbiter.memory.tasks.offload import is_much_text
from orbiter.memory.text.first_person import in_first_person

__all__ = [
    "Clusters",
    "Pool",
    "are_many",
    "as_indexed",
    "as_read",
    "as_shown",
    "as_stored",
    "is_spoken",
    "is_talk",
    "name_before_colon",
    "names_in",
    "speaker_of",
    "told_names",
]

_TELLS_NAME = lazy_pattern(
    r"\b(?:(?:[Mm]y|[Uu]ser['’]s)(?: \w+)? name(?: is|['’]s)|Name is|[Nn]ame:|[Cc]all me"
    r"|(?<!\w)I(?:['’]m| am)(?: called)?"
    r"|[Uu]ser is (?:called|named))\s+(?P<name>[^\W\d_a-z][\w-]+)"
)
_EMPTY: Mapping[str, int] = MappingProxyType({})
_STORED, _SHOWN = "stored", "shown"
_LONGEST_READ = 2_000
"""Characters of a text that is read in the first person; what is longer is a document."""
_MANY = 40
"""Candidates that are weighed in a millisecond or two; more are not for the event loop's thread."""


def as_indexed(item: MemoryItem) -> MemoryItem:
    """Return what recall reads of *item*: a copy with the texts that it is indexed by, if any.

    What it quotes of memories, behind a fence, is in no copy, nor in the item that is returned.
    """
    item = unfenced(item)
    texts = item.metadata.extra.get(INDEXED_BY)
    if not isinstance(texts, list) or as_stored(item) is not item:
        return item
    copy = copy_item(item)
    copy.__dict__["content"] = "\n\n".join(index_texts(item.content, texts))
    object.__setattr__(copy, "__pydantic_private__", {_STORED: item})
    return copy


def as_read(item: MemoryItem, names: Sequence[str] | None) -> MemoryItem:
    """Return *item* as the user of these names would say it: a copy, if that is another text.

    What an assistant or a named speaker said stays: they tell of the user in their own words. So
    does everything where *names* are `None`, as nobody asks about the user.
    """
    if names is None or not _is_told(item):
        return item
    said = in_first_person(item.content, names)
    if said == item.content:
        return item
    copy = copy_item(item)
    copy.__dict__["content"] = said
    private = {_STORED: as_stored(item), _SHOWN: item}
    object.__setattr__(copy, "__pydantic_private__", private)
    return copy


def _is_told(item: MemoryItem) -> bool:
    is_short = len(item.content) <= _LONGEST_READ
    return is_short and not isinstance(item, AIMemory) and speaker_of(item) is None


def as_shown(item: MemoryItem) -> MemoryItem:
    """Return the item whose text is shown for *item*: itself, but of a copy by `as_read`."""
    private = item.__pydantic_private__
    return private.get(_SHOWN, item) if private else item


def as_stored(item: MemoryItem) -> MemoryItem:
    """Return the item that *item* is read for: itself, but of a copy."""
    private = item.__pydantic_private__
    return private.get(_STORED, item) if private else item


def are_many(items: Iterable[MemoryItem]) -> bool:
    """Tell whether *items* are so many or so long that they are weighed in a thread."""
    return is_much_text(items, many=_MANY)


_BEFORE_COLON = lazy_pattern(r"\s*([^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){0,2}):\s+\S")
_LABELS = frozenset(
    """
    action actions added address agenda ai answer assistant bot bug confirmed correction date
    decision done email error example fact fixed goal great hint home human idea ideas important
    info input item items link list location logged meeting name note noted notes okay output
    perfect phone plan problem project ps question reason remember reminder request result results
    rule saved shopping solution source status step subject summary sure system task tasks thanks
    time tip title to-do todo tool topic understood update updated url user warning work yes
    """.split()  # noqa: SIM905 - read by people
)
"""Words before a colon that are nobody's name."""
_LONGEST_NAME = 80
"""Characters in which a name, its colon and what follows begin."""
_OFTEN = 2
"""How many texts of one person, and of how many people, make a conversation."""


def names_in(items: Sequence[MemoryItem]) -> frozenset[str]:
    """Return the names before a colon by which texts say who speaks, as in "Ann: I am home".

    One text alone may have anything there, such as "Groceries: milk". It is talk where several
    speak more than once, and where no text writes such a name like any other word.
    """
    counts = Counter(filter(None, (name_before_colon(item.content) for item in items)))
    names = {name for name, count in counts.items() if count >= _OFTEN}
    if len(names) < _OFTEN:
        return frozenset()
    used = {word for item in items for word in item.content.split() if word[:1].islower()}
    written = {word.rstrip(".,:;!?'’s") for word in used} | used
    proper = frozenset(name for name in names if name.lower() not in written)
    return proper if len(proper) >= _OFTEN else frozenset()


def name_before_colon(content: str) -> str | None:
    """Return what stands before a colon at the start of a text, if it could be a name."""
    if content.find(":", 0, _LONGEST_NAME) < 0:  # as most texts, which need no pattern
        return None
    match = _BEFORE_COLON.match(content, 0, _LONGEST_NAME)
    if match is None:
        return None
    parts = match[1].split(" ")
    is_name = all(part[0].isupper() and part.lower() not in _LABELS for part in parts)
    return match[1] if is_name else None


def speaker_of(item: MemoryItem, names: frozenset[str] = frozenset()) -> str | None:
    """Return the name of who spoke, from `metadata.extra["speaker"]`; `None` without one.

    If it is one of *names*, also what stands before a colon in the text.
    """
    extra = item.metadata.extra
    name = extra.get("speaker") if extra else None
    if isinstance(name, str) and name.strip():
        return name.strip()
    if names and (before := name_before_colon(item.content)) in names:
        return before
    return None


_MESSAGES: frozenset[type] = frozenset((HumanMemory, AIMemory))


def is_spoken(item: MemoryItem) -> bool:
    """Tell whether somebody said it; what nobody did was put here for itself."""
    return role_of(item) is not None or speaker_of(item) is not None


def is_talk(item: MemoryItem, names: frozenset[str] = frozenset()) -> bool:
    """Tell whether it is part of a conversation, so that what stands around it belongs to it.

    What one of *names* says is so without a session, too.
    """
    if item.metadata.session_id is not None:
        if item.__class__ in _MESSAGES:  # as most are
            return True
        return is_spoken(item) or bool(names and speaker_of(item, names))
    return bool(names) and name_before_colon(item.content) in names


class Clusters(NamedTuple):
    """The ids of items that belong to a flood or to a series, each with the number of that."""

    copies: Mapping[str, int] = _EMPTY
    """Items that say the same: one of them is enough."""
    series: Mapping[str, int] = _EMPTY
    """Items that differ in nothing but their numbers: each is a fact."""

    def __bool__(self) -> bool:
        return bool(self.copies or self.series)


class Pool(NamedTuple):
    """Items to choose from; those that do not match the filters only lend their context."""

    windows: Sequence[Sequence[MemoryItem]]
    """Each a piece of one conversation, in the order of time."""
    eligible: frozenset[str]
    """Ids of those that may be returned."""
    frequency: Mapping[str, int] = _EMPTY
    passages: int = 0
    similarity: Mapping[str, float] | None = None
    """The cosine of each item that has a vector; `None` when no model is in use."""
    query_token_vectors: bytes = b""
    """The vectors of the question's words, where the model gives them."""
    token_dimension: int = 0
    coverage: float = 1.0
    """How well the model knows the language of the question, from 0 to 1."""
    clusters: Clusters = Clusters()
    """Items that are copies of many others, or differ from them in their numbers alone."""
    names: frozenset[str] = frozenset()
    """Names before a colon in the texts of those who speak."""

    @property
    def items(self) -> list[MemoryItem]:
        """Every item, stretch by stretch."""
        return [item for window in self.windows for item in window]


def told_names(item: MemoryItem, content: str) -> list[str]:
    """Return by which names the user goes who wrote *content* in an item, as in "I'm Joana"."""
    if isinstance(item, AIMemory) or speaker_of(item) is not None:
        return []
    return [match["name"] for match in _TELLS_NAME.finditer(content)]
