"""Trust: where a memory came from, and how far that is to be trusted. Pure functions.

Every item has a source. Where nobody named one, its type tells: what a person said is a user's,
what a tool answered is a tool's. So there is no memory without provenance. What the functions here
tell of an item, the filters tell of the same items in a store.
"""

from collections.abc import Iterable
from enum import IntEnum

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, SystemMemory, ToolMemory

__all__ = [
    "SOURCE_KINDS",
    "Trust",
    "from_source",
    "lowest_source",
    "parse_source",
    "read_source",
    "read_trust",
    "source_of",
    "trust_of",
    "trusted",
    "with_trust",
]


class Trust(IntEnum):
    """What a source is worth, from what anybody may have written to what the user said."""

    WEB = 1
    IMPORT = 2
    TOOL = 3
    AGENT = 4
    USER = 5


SOURCE_KINDS = tuple(level.name.lower() for level in sorted(Trust, reverse=True))
"""The kinds of sources, most trusted first; a label may say more: `web:example.com`."""

_BY_CLASS: dict[type[MemoryItem], Trust] = {AIMemory: Trust.AGENT, ToolMemory: Trust.TOOL}
"""What the kinds of items are worth that are not the user's, where no source is named."""

_EXACTLY: dict[type[MemoryItem], Trust] = {
    **_BY_CLASS,
    HumanMemory: Trust.USER,
    SystemMemory: Trust.USER,
}
"""What just these classes are worth: no need to look at all that others derive from them."""

_UNTOLD_SUMMARY = Trust.WEB
"""What a summary is worth that does not say what it was made of."""

_AFTER_COLON = chr(ord(":") + 1)
_IS_LEVEL: Where = {"trust": {"$gte": min(Trust), "$lte": max(Trust)}}
_IS_LABELLED: Where = {"source": {"$gt": ""}}


def read_source(label: object) -> str:
    """Return a label as it is kept, `kind` or `kind:detail`, or raise `QueryError`."""
    if not isinstance(label, str) or not label.strip():
        kinds = "`, `".join(SOURCE_KINDS)
        raise QueryError(
            f"`source` must be a string such as `{kinds}` or `web:example.com`, not {label!r}"
        )
    kind, colon, detail = label.partition(":")
    plain = kind.strip().lower()
    if plain not in SOURCE_KINDS:
        return label
    return f"{plain}:{detail.strip()}" if colon and detail.strip() else plain


def parse_source(label: str) -> Trust:
    """Return what a source is worth by its label, `kind` or `kind:detail`.

    A kind that is not ours is worth an import: somebody brought it along.
    """
    kind = label.partition(":")[0]
    return Trust[kind.upper()] if kind in SOURCE_KINDS else Trust.IMPORT


def read_trust(value: "Trust | str | int") -> Trust:
    """Return the level that *value* names, or raise `QueryError`."""
    if isinstance(value, str) and value in SOURCE_KINDS:
        return Trust[value.upper()]
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= max(Trust):
        return Trust(value)
    names = "`, `".join(SOURCE_KINDS)
    raise QueryError(f"`min_trust` must be one of `{names}`, not {value!r}")


def with_trust(extra: dict[str, object]) -> dict[str, object]:
    """Return *extra* with the level that its `source` is worth beside it, if it names one.

    A level that contradicts the source is a `QueryError`.
    """
    label = extra.get("source")
    if not isinstance(label, str) or not label:
        return extra
    level = parse_source(label)
    if extra.get("trust", level) != level or isinstance(extra.get("trust"), bool):
        raise QueryError(
            f"`trust` is {extra['trust']!r}, but the source `{label}` is worth {int(level)} "
            f"(`{level.name.lower()}`); leave `trust` out, or name another `source`"
        )
    return {**extra, "trust": int(level)}


def source_of(item: MemoryItem) -> str:
    """Return the label of the item's source: the one it carries, or what its type tells."""
    label = item.metadata.extra.get("source")
    return label if isinstance(label, str) and label else trust_of(item).name.lower()


def trust_of(item: MemoryItem) -> Trust:
    """Return how far *item* is to be trusted."""
    extra = item.metadata.extra
    level, label = extra.get("trust"), extra.get("source")
    if isinstance(level, int | float) and not isinstance(level, bool) and 1 <= level <= max(Trust):
        return Trust(int(level))
    if isinstance(label, str) and label:
        return parse_source(label)
    return _EXACTLY.get(type(item)) or _by_type().get(item.memory_type, Trust.USER)


def lowest_source(items: Iterable[MemoryItem]) -> tuple[str, Trust] | None:
    """Return the label and level of the least trusted of *items*; `None` without any.

    What is made of several memories is worth no more than the worst of them.
    """
    worst = min(items, key=lambda item: (trust_of(item), source_of(item)), default=None)
    return None if worst is None else (source_of(worst), trust_of(worst))


def trusted(minimum: Trust) -> Where:
    """Return the filter that keeps what is worth *minimum* or more; stores apply it before a cut.

    It keeps just what `trust_of` says is worth that.
    """
    by_label: Where = {"$or": [_named(k) for k in SOURCE_KINDS if Trust[k.upper()] >= minimum]}
    if minimum <= Trust.IMPORT:  # and kinds that are not ours
        below = [_named(k) for k in SOURCE_KINDS if Trust[k.upper()] < minimum]
        by_label = {"$not": {"$or": below}} if below else {}
    doubtful = [name for name, level in _by_type().items() if level < minimum]
    by_type: Where = {"memory_type": {"$nin": doubtful}} if doubtful else {}
    return {
        "$or": [
            {"trust": {"$gte": int(minimum), "$lte": int(max(Trust))}},
            {"$and": [{"$not": _IS_LEVEL}, _IS_LABELLED, by_label]},
            {"$and": [{"$not": _IS_LEVEL}, {"$not": _IS_LABELLED}, by_type]},
        ]
    }


def from_source(label: str) -> Where:
    """Return the filter that finds what comes from a source, as `source_of` tells it.

    A kind without a detail is all of the kind; a label with one is that alone.
    """
    if ":" in label:
        return {"source": {"$gte": label, "$lte": label}}
    if label not in SOURCE_KINDS:
        return _named(label)
    level = Trust[label.upper()]
    types = [name for name, worth in _by_type().items() if worth == level]
    of_type: Where = {"memory_type": {"$in": types}}
    if level is Trust.USER:
        of_type = {"memory_type": {"$nin": list(_by_type())}}
    next_level: Where = {"$lte": level} if level is max(Trust) else {"$lt": level + 1}
    untold: Where = {
        "$or": [
            {"trust": {"$gte": int(level), **next_level}},
            {"$and": [{"$not": _IS_LEVEL}, of_type]},
        ]
    }
    return {"$or": [_named(label), {"$and": [{"$not": _IS_LABELLED}, untold]}]}


def _named(kind: str) -> Where:
    """Return the filter for labels of one kind, with or without a detail."""
    # By order and not by equality, which a list fulfils, too, if it holds the text.
    alone: Where = {"source": {"$gte": kind, "$lte": kind}}
    return {"$or": [alone, {"source": {"$gte": f"{kind}:", "$lt": f"{kind}{_AFTER_COLON}"}}]}


def _by_type() -> dict[str, Trust]:
    """Return the types that are not the user's, those of an application's own classes, too."""
    levels = {"summary": _UNTOLD_SUMMARY}
    for base, level in _BY_CLASS.items():
        kinds = [base]
        while kinds:
            kind = kinds.pop()
            levels[kind.model_fields["memory_type"].default] = level
            kinds += kind.__subclasses__()
    return levels
