"""JSON of requests and answers, read and written without keeping the event loop from others.

The standard library reads and writes JSON in one call that keeps the interpreter's lock, also in a
thread. So what a body holds is counted first, in slices, and an answer is written entry by entry.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.recall import Hit, RecallResult
from orbiter.memory.server.http.error_responses import HTTPProblem
from orbiter.memory.tasks.offload import has_many_values

__all__ = [
    "MAX_TEXT",
    "MAX_VALUES",
    "SMALL",
    "check_values",
    "compact_json",
    "is_small",
    "write_json",
]

MAX_VALUES = 50_000
"""Most values of a body, lists and objects and what is in them: more are no memories."""

MAX_TEXT = 2**23
"""Most bytes of one text of a body, as it is written there."""

SMALL = 16 * 1024
"""Bytes of JSON that are read or written at once: about a millisecond."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DIGITS = 1_000
_NUMBER = re.compile(rb"[0-9]{%d}" % (_DIGITS + 1))
_SLICE = 64 * 1024
_PIECE = 256 * 1024
_FEW = 20


async def check_values(body: bytes) -> None:
    """Refuse a JSON body with more values, or a longer text, than any memory has; before reading.

    A value costs up to a hundred times its one or two bytes, in time and in memory.
    """
    if len(body) <= _SLICE:
        return
    count, length, is_text, start = 0, 0, False, 0
    while start < len(body):
        piece = body[start : start + _SLICE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # an escape must not be cut in two
            piece = body[start : start + _SLICE + 1]
        start += len(piece)
        # Texts may hold commas and brackets, too: only what stands outside of quotes counts.
        parts = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__").split(b'"')
        outside = b"".join(parts[is_text::2])
        count += _count(outside)
        length += len(parts[0])
        is_too_long = is_text and length > MAX_TEXT
        is_text ^= not len(parts) % 2
        length = length if len(parts) == 1 and is_text else len(parts[-1])
        if count > MAX_VALUES:
            raise _too_large(f"contain at most {MAX_VALUES:,} JSON values, and this has more")
        if _NUMBER.search(outside):
            raise _too_large(
                f"contain numbers of at most {_DIGITS:,} digits, and this has a longer one"
            )
        if is_too_long:
            raise _too_large(
                f"contain strings of at most {MAX_TEXT:,} bytes, and this has a longer one"
            )
        await asyncio.sleep(0)


def _too_large(most: str) -> HTTPProblem:
    return HTTPProblem(413, f"a request may {most}; send it in several requests, or import a file")


def _count(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def is_small(value: object) -> bool:
    """Tell whether an answer is quickly written, as far as can be told without writing it."""
    if isinstance(value, MemoryItem):
        is_short = len(value.content) <= SMALL and not value.native
        return is_short and not has_many_values(value.metadata.extra)
    if isinstance(value, list | tuple):
        is_more = isinstance(value, RecallResult) and value.left_out
        return len(value) <= _FEW and not is_more and all(map(is_small, value))
    if isinstance(value, Hit):
        return not value.repeats and is_small(value.item)
    return value is None or isinstance(value, int)


def write_json(value: Any, *, most: int | None = None, way: str = "") -> list[bytes]:
    """Return *value* as JSON in pieces; `QueryError` with the *way* out beyond *most* bytes.

    Lists directly in an object are written entry by entry, and long texts in slices.
    """
    pieces: list[bytes] = []
    size, waiting = 0, bytearray()
    for text in _written(value):
        waiting += text.encode()
        if len(waiting) >= _PIECE:
            size += len(waiting)
            pieces.append(bytes(waiting))
            waiting.clear()
        if most is not None and size + len(waiting) > most:
            raise QueryError(f"the response has more than {most:,} bytes; {way}")
    return [*pieces, bytes(waiting)]


def _written(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        before = "{"
        for name, inner in value.items():
            yield f"{before}{compact_json(name)}:"
            before = ","
            yield from _entries(inner) if isinstance(inner, list) else _pieces(inner)
        yield "}"
    else:
        yield from _pieces(value)


def _entries(values: list[Any]) -> Iterator[str]:
    before = "["
    for each in values:
        yield before
        before = ","
        yield from _pieces(each)
    yield "]" if values else "[]"


def _pieces(value: Any) -> Iterator[str]:
    if not _has_long_text(value):
        yield compact_json(value)
    elif isinstance(value, str):
        yield '"'
        for start in range(0, len(value), SMALL):
            yield compact_json(value[start : start + SMALL])[1:-1]
        yield '"'
    elif isinstance(value, dict):
        yield from _written(value)
    else:
        yield from _entries(list(value))


def _has_long_text(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) > SMALL
    if isinstance(value, dict):
        return any(map(_has_long_text, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_long_text, value))


def compact_json(value: Any) -> str:
    """Return a value as JSON without spaces, as every answer has it."""
    return _ENCODER.encode(value)
