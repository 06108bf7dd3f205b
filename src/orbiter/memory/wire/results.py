"""Results as they cross the wire: each class as an object of its fields, with their types.

On the other side each is the same object again, with the methods and the texts that it has here.
The fields are those of the class itself; those of lists and of a few others stand below.
"""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, signature
from operator import attrgetter, methodcaller
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AfterValidator, ValidationError
from typing_extensions import TypedDict, get_original_bases

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.serialization import load_item
from orbiter.memory.wire.leaf_types import LEAVES, Memory, read_by
from orbiter.memory.wire.plain_values import dump_bytes, must_be_object

if TYPE_CHECKING:
    from orbiter.memory.model.facts import FactEntry, FactSpan
    from orbiter.memory.recall import Hit

__all__ = ["getters_of", "hints_of", "named_type", "wire_type"]

_HOMES = {
    "agent": ("Chat", "FactDict", "FactHistory", "ForgetResult", "Page", "ScopeStats", "UserPage"),
    "agent.eviction": ("EvictionResult",),
    "agent.results": ("ChatList", "ItemList", "MemoryEvent", "VersionList"),
    "context": ("Context",),
    "messages": ("Format", "ProviderMessages"),
    "model.facts": ("FactEntry", "FactMemory", "FactSpan"),
    "model.reports": ("ConversationInfo", "Erasure", "ItemVersion", "StoreStats", "Verification"),
    "model.trust": ("Trust",),
    "model.value_counts": ("UserInfo", "UserOrder", "ValueCount"),
    "recall": (
        "Excluded",
        "Explanation",
        "Hit",
        "Reason",
        "RecallMode",
        "RecallResult",
        "Reranking",
    ),
}
"""The modules of what signatures name for type checkers alone."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names}

_LISTS: dict[str, dict[str, str]] = {
    "ChatList": {"chats": "list[ConversationInfo]"},
    "FactDict": {"facts": "dict[str, FactMemory]"},
    "FactHistory": {"entries": "list[FactEntry]"},
    "ItemList": {"items": "list[MemoryItem]"},
    "Page": {"items": "list[MemoryItem]", "next": "str | None", "ended": "dict[str, str]"},
    "ProviderMessages": {
        "format": "Format",
        "messages": "list[dict[str, object]]",
        "system": "str",
    },
    "RecallResult": {
        "hits": "list[Hit]",
        "mode": "RecallMode",
        "considered": "int",
        "left_out": "tuple[Excluded, ...]",
        "question": "str",
        "spread": "bool",
        "reranking": "Reranking | None",
    },
    "UserPage": {"users": "list[UserInfo]", "next": "str | None"},
    "VersionList": {"versions": "list[ItemVersion]"},
}
"""The fields of classes that are no dataclasses, in the order in which their constructor takes
them: the first is the list or the dictionary itself."""

_COMPUTED: dict[str, dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "Context": {"messages": ("ProviderMessages", methodcaller("messages"))},
    "Erasure": {name: ("bool", attrgetter(name)) for name in ("found", "proven")},
    "Excluded": {"told": ("str", attrgetter("told"))},
    "Hit": {"told": ("str", lambda hit: str(hit.why))},
}
"""What is sent for those who have no such class, and not read."""


class _Names(dict[str, Any]):
    """Finds the classes that annotations name, and imports them then."""

    def __missing__(self, name: str) -> Any:
        return getattr(import_module(f"orbiter.memory.{_MODULES[name]}"), name)


def hints_of(annotated: Any) -> dict[str, Any]:
    """Return the annotations of a class or a function as types."""
    return get_type_hints(annotated, localns=_Names(MemoryItem=MemoryItem))


def _types_of(annotations: dict[str, str]) -> dict[str, Any]:
    return hints_of(type("", (), {"__annotations__": annotations}))


@cache
def _fields_of(kind: type) -> dict[str, Any] | None:
    """Return the fields of a class with their types; `None` if it does not cross as an object."""
    if (listed := _LISTS.get(kind.__name__)) is not None:
        return _types_of(listed)
    if not is_dataclass(kind):
        return None
    hints = hints_of(kind)
    found = {each.name: hints[each.name] for each in fields(kind)}
    if kind.__name__ == "FactSpan":
        del found["fact"]  # it stands beside its spans
    return found


def _bytes_getter(name: str) -> Callable[[Any], str]:
    return lambda value: dump_bytes(getattr(value, name))


@cache
def getters_of(kind: type) -> dict[str, Callable[[Any], Any]] | None:
    """Return what reads each field of an object of this class; `None` if it crosses otherwise."""
    own = _fields_of(kind)
    if own is None:
        return None
    getters: dict[str, Callable[[Any], Any]] = {
        name.lstrip("_"): _bytes_getter(name) if hint is bytes else attrgetter(name)
        for name, hint in own.items()
    }
    if issubclass(kind, list | dict):
        name = "messages" if kind.__name__ == "ProviderMessages" else next(iter(own))
        getters[name] = dict if issubclass(kind, dict) else list
    computed = _COMPUTED.get(kind.__name__, {})
    return getters | {name: getter for name, (_, getter) in computed.items()}


# Types


def wire_type(hint: Any) -> Any:  # noqa: PLR0911 - one for each kind of type
    """Return a type for pydantic that reads what `to_json` writes of a value of type *hint*."""
    if isinstance(hint, type) and hint.__name__ in LEAVES:
        return LEAVES[hint.__name__]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return Union[tuple(None if each is type(None) else wire_type(each) for each in inner)]  # noqa: UP007 - of any number
    if origin is tuple:
        return tuple[tuple(each if each is ... else wire_type(each) for each in inner)]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[str, wire_type(inner[1])]  # type: ignore[misc]
    if origin in (list, Sequence, Iterable):
        return list[wire_type(inner[0])]  # type: ignore[misc]
    if origin is not Literal and isinstance(hint, type):
        return _object_type(hint)
    return hint


@cache
def _object_type(kind: type) -> Any:
    own = _fields_of(kind)
    if own is None and issubclass(kind, tuple):  # such as an `Explanation`, which is of reasons
        [of] = get_original_bases(kind)
        return Annotated[wire_type(of), AfterValidator(kind)]
    if own is None:
        raise TypeError(f"nothing says how a `{kind.__name__}` crosses the wire")
    taken = signature(kind).parameters if len(own) > 1 else {}
    # What has a default may come from a server of an earlier version, which sends no such field.
    needed = {next(iter(own))} | {
        name for name in own if name in taken and taken[name].default is Parameter.empty
    }
    hinted = {name.lstrip("_"): (wire_type(hint), name in needed) for name, hint in own.items()}
    computed = {name: hint for name, (hint, _) in _COMPUTED.get(kind.__name__, {}).items()}
    hinted |= {name: (wire_type(hint), False) for name, hint in _types_of(computed).items()}
    if kind.__name__ == "Context":
        hinted["items"] = (tuple[_SentItem, ...], True)
    typed = {name: hint if needs else NotRequired[hint] for name, (hint, needs) in hinted.items()}
    shape = TypedDict(kind.__name__, typed)  # type: ignore[misc]  # named as the class
    # A server sends what is not needed to read it, too.
    shape.is_sent_whole = True  # type: ignore[attr-defined]
    return Annotated[shape, AfterValidator(partial(_make, kind))]


def _make(kind: type, values: dict[str, Any]) -> Any:
    """Return the object of *kind* that has these fields."""
    name = kind.__name__
    for computed in _COMPUTED.get(name, {}):
        values.pop(computed, None)
    if name in _MAKERS:
        return _MAKERS[name](values)
    if name in _LISTS:
        first = next(iter(_LISTS[name]))
        return kind(values.pop(first), **values)
    own = _fields_of(kind) or {}
    return kind(**{each: values[each.lstrip("_")] for each in own if each.lstrip("_") in values})


def _make_hit(values: dict[str, Any]) -> "Hit":
    from orbiter.memory.recall import Hit  # noqa: PLC0415 - as writing needs none of it

    span = values.pop("span", None)
    span = None if span is None else _make_span({"fact": values["item"], **span})
    return Hit(**values, span=span)


def _make_entry(values: dict[str, Any]) -> "FactEntry":
    from orbiter.memory.model.facts import FactEntry  # noqa: PLC0415 - few calls need it

    fact = values["fact"]
    return FactEntry(fact, tuple(_make_span({"fact": fact, **span}) for span in values["spans"]))


def _make_span(values: dict[str, Any]) -> "FactSpan":
    from orbiter.memory.model.facts import FactSpan  # noqa: PLC0415 - few calls need it

    return FactSpan(**values)


_MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "FactEntry": _make_entry,
    "FactSpan": dict,  # until its fact is known
    "Hit": _make_hit,
}


def _load_sent(value: Any) -> MemoryItem:
    """Read an item of a context, which may be longer than any that a store holds."""
    sent = must_be_object(value)
    try:
        return load_item(sent)
    except ValidationError:
        item = load_item({**sent, "content": ""})
        item.__dict__["content"] = str(sent["content"])  # past the check of its length
        return item


_SentItem = Annotated[Memory, read_by(_load_sent)]


def named_type(name: str) -> Any:
    """Return the type for pydantic of a class that is named for type checkers alone."""
    return wire_type(_Names()[name])
