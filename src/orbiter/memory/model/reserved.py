"""Reserved keys of `metadata.extra`: those that the library writes itself, and their shapes.

What comes from outside may not name them as labels; an item that brings one along, such as one that
was read before, must hold it in its shape. What was stored before that was checked may hold
anything there: whoever reads one of these keys ignores another shape.
"""

from collections.abc import Callable, Mapping

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import INDEXED_BY, QUOTES, SCRIPTED

__all__ = ["RESERVED_KEYS", "check_shapes", "refuse_reserved"]


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


RESERVED_KEYS: Mapping[str, Callable[[object], bool]] = {
    "edited": _is_bool,
    "extraction": _is_text,
    "fact": _is_text,
    "fact_op": lambda value: value in ("add", "remove"),
    "forked_from": _is_text,
    "imported": _is_text,
    INDEXED_BY: lambda value: isinstance(value, bool) or _is_texts(value),
    "langgraph_key": lambda value: isinstance(value, str),
    "langgraph_namespaces": _is_texts,
    QUOTES: _is_bool,
    SCRIPTED: _is_bool,
}
"""The keys, each with the test of its shape."""


def refuse_reserved(extra: Mapping[str, object]) -> None:
    """Raise `QueryError` if labels from outside have a key of ours."""
    for name in RESERVED_KEYS:
        if name in extra:
            way = "give `index=`" if name == INDEXED_BY else "choose another name"
            raise QueryError(f"`{name}` in `extra` is a key of orbiter-memory's own; {way}")


def check_shapes(extra: Mapping[str, object]) -> None:
    """Raise `QueryError` if an item has a key of ours in another shape than we write it."""
    for name, is_sound in RESERVED_KEYS.items():
        if name in extra and not is_sound(extra[name]):
            raise QueryError(
                f"`{name}` in the item's `metadata.extra` is a key of orbiter-memory's own, and "
                "holds something else than it writes there; leave it out, or choose another name"
            )
