"""One JSON value from bytes, and nothing that Python's own parser would let through.

Every refusal is a `ValueError` that says why in one line.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NoReturn

from orbiter.memory.transfer.io.file_limits import Limits

__all__ = ["MoreFollowsError", "bracket_steps", "check_shape", "json_value"]

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
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
    check_shape(raw, limits)
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


def check_shape(raw: bytes, limits: Limits) -> None:
    """Raise `ValueError` for JSON that would take more than it weighs: too deep, or of too many.

    That is seen before the parser, which makes every value, and whose own stack has an end.
    """
    bare = raw
    if _nodes(raw) > limits.nodes and _nodes(bare := _STRING.sub(b"", raw)) > limits.nodes:
        raise ValueError(
            f"it holds more than {limits.nodes:,} values; "
            "if you trust the file, raise the limit with `Limits(nodes=…)`"
        )
    if bare.count(b"[") + bare.count(b"{") > limits.depth and depth_of(bare) > limits.depth:
        raise ValueError(f"it nests deeper than {limits.depth} levels")


def _nodes(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def depth_of(raw: bytes) -> int:
    """Return how deep the brackets of *raw* nest."""
    return max(accumulate(bracket_steps(raw)), default=0)


def bracket_steps(raw: bytes) -> Sequence[int]:
    """Return 1 for each bracket outside of strings that opens, -1 for each that closes."""
    return memoryview(_STRING.sub(b"", raw).translate(_STEPS, _NO_BRACKETS)).cast("b")


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
