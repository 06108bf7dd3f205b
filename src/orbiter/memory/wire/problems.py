"""Errors as RFC 9457 problems, and back: a client raises what the call would have raised here.

Nothing of an error that is not of this library's family is told but that there was one.
"""

import json
import logging
import re
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from http import HTTPStatus
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from orbiter.memory import errors
from orbiter.memory.errors import MemoryError
from orbiter.memory.wire.plain_values import short_repr

__all__ = [
    "REQUEST_ID",
    "TYPE",
    "dump_error",
    "load_error",
    "log_fault",
    "place_of",
    "problem",
    "reason_of",
    "status_of",
]


TYPE = "urn:orbiter-memory:error:"
_MAX_DETAIL = 4_000

_STATUS: dict[str, int] = {
    "StatusError": 409,
    "VersionConflict": 409,
    "ItemNotFoundError": 404,
    "ToolCallNotFoundError": 404,
    "AccessError": 403,
    "UnsupportedError": 501,
    "SummaryError": 502,
    "ExtractionError": 502,
    "EmbeddingError": 502,
    "RerankError": 502,
    "EmbeddingsMismatchError": 503,
    "SoulError": 503,
    "SoulNotFoundError": 503,
    "NotInitializedError": 503,
    "EventLoopError": 500,
    "StorageError": 503,
    "MemoryConnectionError": 503,
    "MemoryTimeoutError": 503,
    "MemoryError": 500,
}
_MISTAKE = 422
"""The status of the rest, which are all about what was asked."""

REQUEST_ID: ContextVar[str | None] = ContextVar("REQUEST_ID", default=None)
"""The id of the request that is being answered."""

_OURS = frozenset({"NotInitializedError", "EmbeddingsMismatchError", "EventLoopError"})
"""Errors whose words are ours alone."""

_OF_DRIVERS = frozenset({"StorageError", "MemoryConnectionError", "MemoryTimeoutError"})
"""Errors that may have the words of a driver, or of the system."""

_QUOTED = re.compile(r"""\n|"|(?<![a-z]{2})'|,? with args beginning""")
"""Where a driver begins to quote what it was sent; an apostrophe within a word quotes nothing."""

_FAMILY: dict[str, type[MemoryError]] = {name: getattr(errors, name) for name in errors.__all__}


def status_of(error: BaseException) -> int:
    """Return the status that tells of *error*."""
    if isinstance(error, ValidationError):
        return _MISTAKE
    name = _name(error)
    return 500 if name is None else _STATUS.get(name, _MISTAKE)


def _name(error: BaseException) -> str | None:
    """Return the name of the class of the family that *error* is of, or of the nearest one."""
    return next((k.__name__ for k in type(error).__mro__ if _FAMILY.get(k.__name__) is k), None)


def problem(status: int, detail: str, *, kind: str, **more: Any) -> dict[str, Any]:
    """Return a problem of the type *kind*, such as `Unauthorized`."""
    return {
        "type": f"{TYPE}{kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _clean(detail if len(detail) <= _MAX_DETAIL else f"{detail[:_MAX_DETAIL]}…"),
        **more,
    }


def _clean(text: str) -> str:
    """Return *text* without what no answer can carry: half of a pair of surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def dump_error(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Return the status and the problem that tell of *error*."""
    status = status_of(error)
    if isinstance(error, ValidationError):
        lines = [_dump_line(line) for line in error.errors(include_url=False)]
        where = problem(status, _first_lines(error), kind="ValidationError")
        return status, {**where, "model": error.title, "errors": lines}
    name = _name(error)
    if name is None:
        return status, problem(
            status, "internal error; the log of the server has the details", kind="InternalError"
        )
    known = {key: value for key, value in vars(error).items() if _is_json(value)}
    more = {"attributes": known} if known else {}
    return status, problem(status, str(error), kind=name, **more)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_short(value: object) -> bool:
    """Tell whether *value* may be told whole; a long one is not even written to find out."""
    left, waiting = _MAX_DETAIL, [value]
    while waiting and left > 0:
        inner = waiting.pop()
        left -= len(inner) + 2 if isinstance(inner, str | bytes) else 8
        if isinstance(inner, dict):
            waiting += [*inner, *inner.values()] if len(inner) < left else [" " * left]
        elif isinstance(inner, list | tuple):
            waiting += inner if len(inner) < left else [" " * left]
    return left > 0


def _first_lines(error: ValidationError) -> str:
    lines = [
        f"`{'.'.join(map(str, line['loc']))}`: {line['msg'].removeprefix('Value error, ')}"
        for line in error.errors(include_url=False, include_input=False)[:5]
    ]
    return "; ".join(lines)


def _dump_line(line: Any) -> dict[str, Any]:
    raw = line.get("input")
    context = {key: str(value) if isinstance(value, Exception) else value
               for key, value in line.get("ctx", {}).items()}  # fmt: skip
    return {
        "type": line["type"],
        "loc": [_clean(each) if isinstance(each, str) else each for each in line["loc"]],
        "msg": _clean(line["msg"]),
        "input": raw if _is_short(raw) and _is_json(raw) else short_repr(raw),
        "ctx": context if _is_json(context) else {},
    }


def load_error(status: int, body: Mapping[str, Any]) -> Exception:
    """Return the error that a problem tells of, of the same class, with the same words."""
    kind = str(body.get("type", "")).removeprefix(TYPE)
    detail = body.get("detail")
    words = detail if isinstance(detail, str) and detail else f"the server answered {status}"
    if kind == "ValidationError":
        return _load_validation(body, words)
    if kind in _FAMILY:
        attributes = body.get("attributes")
        return _remade(_FAMILY[kind], words, attributes if isinstance(attributes, Mapping) else {})
    return _by_status(status)(words)


def _remade(kind: type[MemoryError], words: str, attributes: Mapping[str, Any]) -> MemoryError:
    # Past the constructor, which would make its own words of other arguments.
    error = kind.__new__(kind, words)
    error.args = (words,)
    for name, value in attributes.items():
        is_tuple = isinstance(value, list) and name != "__notes__"  # `add_note` takes a list only
        error.__dict__[name] = tuple(value) if is_tuple else value
    return error


def _by_status(status: int) -> type[MemoryError]:
    if status in (401, 403, 421):
        return errors.AccessError
    if status == 504:
        return errors.MemoryTimeoutError
    if status in (429, 404) or status >= 500:
        return errors.MemoryConnectionError
    return errors.QueryError


def _load_validation(body: Mapping[str, Any], words: str) -> Exception:
    lines = body.get("errors")
    try:
        return ValidationError.from_exception_data(
            str(body.get("model", "Memory")),
            [_load_line(line) for line in lines] if isinstance(lines, list) else [],
        )
    except (KeyError, TypeError, ValueError):  # another pydantic than the server's
        return errors.InvalidItemError(words)


def _load_line(line: Mapping[str, Any]) -> InitErrorDetails:
    kind, context = line["type"], dict(line.get("ctx") or {})
    place = tuple(line["loc"])
    if kind in ("value_error", "assertion_error"):
        context = {"error": ValueError(context.get("error", ""))}
    made = InitErrorDetails(type=kind, loc=place, input=line.get("input"), ctx=context)
    try:
        ValidationError.from_exception_data("", [made])
    except (KeyError, TypeError, ValueError):
        own = PydanticCustomError(kind, "{told}", {"told": line["msg"]})
        return InitErrorDetails(type=own, loc=place, input=line.get("input"))
    return made


def place_of(error: BaseException) -> str:
    """Return the class of an error and where it came from; its text may hold what is secret."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = (f"{PurePath(each.filename).name}:{each.lineno} {each.name}" for each in frames)
    return f"{type(error).__name__} at {' < '.join(reversed(list(places)))}"


def reason_of(error: BaseException) -> str | None:
    """Return why a store failed, for a log; `None` if the text may hold what somebody said."""
    cause = error.__cause__
    while cause is not None:
        # A row or a value that could not be read, which the text may quote.
        is_value = isinstance(cause, ValueError | TypeError | LookupError | AttributeError)
        if is_value and not isinstance(cause, OSError):
            return None
        cause = cause.__cause__
    name, text = _name(error), str(error)
    if name in _OURS:
        return _clean(text)
    if name not in _OF_DRIVERS:
        return None
    quoted = _QUOTED.search(text)
    return _clean(text if quoted is None else f"{text[: quoted.start()].rstrip()} …")


def log_fault(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log that *what* failed: class, place, the reason if it can be told, and the request."""
    reason, request = reason_of(error), REQUEST_ID.get()
    why = "" if reason is None else f": {reason}"
    name = "" if request is None else f" request={request}"
    log.error("%s failed: %s%s%s", what, place_of(error), why, name, extra={"request_id": request})
