"""Calls as HTTP requests, and back: the path, the query, headers and body."""

import json
import json.scanner
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from orbiter.memory.errors import MemoryError, QueryError
from orbiter.memory.wire.operations import REQUIRED, TARGET_PARAMS, Operation, Param
from orbiter.memory.wire.plain_values import short_repr

__all__ = [
    "HELD_SCOPE",
    "MAX_LIST",
    "Call",
    "dump_text",
    "load_param",
    "load_text",
    "parse",
    "write_call",
]

MAX_DEPTH = 64
"""How deep JSON may nest: what a memory may hold, and what stands around it."""

HELD_SCOPE = "Memory-Scope"
"""The header that says to whose memories a key is held: `user_id=ann`."""

MAX_LIST = 1_000
"""Most entries of a list that one call takes, whichever argument it is."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a client sends: everything but the scope, and who asks."""

    verb: str
    path: str
    """Below `/v1`, without a slash before it, percent-encoded."""
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    """The JSON object; `None` if the request has no body."""


def write_call(
    operation: Operation, arguments: Mapping[str, Any], *, target: Mapping[str, Any] | None = None
) -> Call:
    """Return the request that makes a call with *arguments*, of the object that *target* names.

    What is the method's own default is not sent. What cannot be sent is a `QueryError`.
    """
    places: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}, "body": {}}
    sides = ((TARGET_PARAMS[operation.target], target or {}), (operation.params, arguments))
    for params, values in sides:
        if unknown := values.keys() - {param.name for param in params}:
            raise TypeError(f"`{operation.id}` takes no `{min(unknown)}`")
        for param in params:
            value = values.get(param.name, param.default)
            if value is REQUIRED:
                raise TypeError(f"`{operation.id}` needs `{param.name}`")
            if param.default is REQUIRED or not _is_default(value, param.default):
                dumped = dump_param(param, value)
                is_body = param.place == "body"
                places[param.place][param.wire_name] = (
                    dumped if is_body else dump_text(param, dumped)
                )
    path = "/".join(_segment(part, places["path"]) for part in operation.path.split("/"))
    has_body = any(param.place == "body" for param in operation.params)
    body = places["body"] if has_body or operation.verb != "GET" else None
    return Call(operation.verb, path, places["query"], places["header"], body)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _segment(part: str, named: Mapping[str, str]) -> str:
    if not part.startswith("{"):
        return part
    name = part[1:-1]
    value = named[name]
    if not value:
        raise QueryError(f"`{name}` must be a string, not {value!r}")
    # Dots alone would be taken for a step in the path, even encoded by some.
    return quote(value, safe="") if value.strip(".") else value.replace(".", "%2E")


def dump_param(param: Param, value: Any) -> Any:
    """Return an argument as JSON; `QueryError` names it if that cannot be."""
    _check_count(param.name, value)
    try:
        return param.codec.dump(value)
    except MemoryError:
        raise
    except ValueError as exc:
        raise _named(param.name, exc) from None


def load_param(param: Param, value: Any) -> Any:
    """Return an argument from JSON; `QueryError` names it if it is not what it must be."""
    _check_count(param.wire_name, value)
    try:
        return param.codec.load(value)
    except MemoryError:
        raise
    except ValueError as exc:
        raise _named(param.wire_name, exc) from None


def _check_count(name: str, value: Any) -> None:
    """Refuse a list that is too long for one call, before anything in it is looked at."""
    if isinstance(value, list | tuple | Set) and len(value) > MAX_LIST:
        raise QueryError(
            f"`{name}` has {len(value):,} entries, and one call to a server takes at most "
            f"{MAX_LIST:,}; use several calls, or import a file"
        )


def _named(name: str, exc: ValueError) -> Exception:
    # pydantic's says itself which field is wrong.
    if type(exc) is not ValueError:
        return exc
    return QueryError(f"`{name}` {exc}")


def dump_text(param: Param, value: Any) -> str:
    """Return JSON as a path, a query or a header carries it: a text as it is, if it is one.

    Where a number is wanted, "2" must not become one on the way, nor 2 a text.
    """
    if not param.codec.is_text:
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        raise QueryError(f"`{param.wire_name}` must be a string, not {short_repr(value)}")
    return value


def load_text(param: Param, text: str) -> Any:
    """Return what a query parameter or a header carries as the argument that it is."""
    if param.codec.is_text:
        return load_param(param, text)
    try:
        return load_param(param, parse(text))
    except QueryError:
        raise
    except ValueError as exc:
        if type(exc) is not json.JSONDecodeError and type(exc) is not ValueError:
            raise
        way = param.codec.schema().get("type", "JSON")
        raise QueryError(f"`{param.wire_name}` must be {way}, not {short_repr(text)}") from None


def parse(text: str, *, in_steps: bool = False) -> Any:
    """Return what JSON says; `ValueError` for what is none, NaN, or a name that stands twice.

    What is nested so deep that nobody can mean it is refused, too. With *in_steps*, other threads
    go on meanwhile: the usual way keeps the interpreter's lock until all is read.
    """
    try:
        value = (_STEPPING if in_steps else _DECODER).decode(text)
    except RecursionError:
        raise _too_deep() from None
    if _is_too_deep(value):
        raise _too_deep()
    return value


def _too_deep() -> ValueError:
    return ValueError(f"it is nested deeper than {MAX_DEPTH} levels; flatten it")


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = [each for each in inner if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def _no_constant(name: str) -> Any:
    raise ValueError(f"`{name}` is not valid JSON")


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("an integer is beyond 64 bits; send it as a string")
    return int(digits)


def _new_decoder() -> json.JSONDecoder:
    return json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_once, parse_int=_whole)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # adds
        raise ValueError(f"`{twice[:100]}` appears in it twice")
    return members


_DECODER, _STEPPING = _new_decoder(), _new_decoder()
_STEPPING.scan_once = json.scanner.py_make_scanner(_STEPPING)  # type: ignore[attr-defined]  # typeshed has neither
