"""One JSON value from bytes, and nothing that Python's own parser would let through.

Every refusal is a `ValueError` that says why in one line.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NoReturn

from orbiter.memory.transfer._limits import Limits

__all__ = ["OPEN_OR_CLOSED", "MoreFollowsError", "json_value"]

OPEN_OR_CLOSED = re.compile(rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""Everything up to the next bracket that stands in no string, or to a string that has no end."""

_UNSTORABLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_BAD_CHARACTERS = re.compile("[\0\ud800-\udfff]")
_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_SHOWN = 40


class MoreFollowsError(ValueError):
    """There is a value, and something behind it."""


def json_value(raw: bytes, limits: Limits, replaced: Callable[[int], None]) -> object:
    """Return the value that *raw* is; a `ValueError` says why it is none.

    Characters that no store can hold, U+0000 and halves of surrogate pairs, become U+FFFD;
    *replaced* is told how many there were.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as exc:
        raise ValueError(
            f"it is not UTF-8: byte 0x{raw[exc.start]:02x} at position {exc.start}"
        ) from None
    # Before the parser, whose own stack is the next limit.
    if raw.count(b"[") + raw.count(b"{") > limits.depth and depth_of(raw) > limits.depth:
        raise ValueError(f"it nests deeper than {limits.depth} levels")
    try:
        value: object = _decoder(limits.digits).decode(text)
    except json.JSONDecodeError as exc:
        kind = MoreFollowsError if exc.msg == "Extra data" else ValueError
        raise kind(f"it is no JSON, at position {exc.pos}: {exc.msg}") from None
    if _UNSTORABLE.search(raw):
        count = [0]
        value = _storable(value, count)
        if count[0]:
            replaced(count[0])
    return value


def depth_of(raw: bytes) -> int:
    """Return how deep the brackets of *raw* nest."""
    deepest = depth = at = 0
    while (at := _end(OPEN_OR_CLOSED, raw, at)) < len(raw):
        depth += 1 if raw[at] in b"[{" else -1
        deepest = max(depth, deepest)
        at += 1
    return deepest


def _end(pattern: re.Pattern[bytes], raw: bytes, at: int) -> int:
    found = pattern.match(raw, at)
    return found.end() if found else len(raw)


def _decoder(digits: int) -> json.JSONDecoder:
    decoder = _decoders.get(digits)
    if decoder is None:

        def integer(text: str) -> int:
            # Reading takes time with the square of the length.
            if len(text) > digits:
                raise ValueError(f"a number of {len(text):,} digits; at most {digits} are read")
            return int(text)

        def number(text: str) -> float:
            if len(text) > digits:
                raise ValueError(f"a number of {len(text):,} digits; at most {digits} are read")
            found = float(text)
            if not math.isfinite(found):
                raise ValueError(f"`{text[:_SHOWN]}` is beyond what a number can be")
            return found

        decoder = _decoders[digits] = json.JSONDecoder(
            parse_int=integer,
            parse_float=number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object,
        )
    return decoder


_decoders: dict[int, json.JSONDecoder] = {}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is no JSON")


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:_SHOWN]!r} stands twice in one object")
    return found


def _storable(value: object, count: list[int]) -> object:
    if isinstance(value, str):
        clean, found = _BAD_CHARACTERS.subn(_INSTEAD, value)
        count[0] += found
        return clean
    if isinstance(value, list):
        return [_storable(each, count) for each in value]
    if isinstance(value, dict):
        return {_storable(name, count): _storable(each, count) for name, each in value.items()}
    return value
