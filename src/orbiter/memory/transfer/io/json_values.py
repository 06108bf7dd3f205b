"""JSON of untrusted files, read by Python's own parser under limits.

An array is read element by element, so that a large export is never in memory as a whole; any
other document is, and must be within `Limits.value`. What is too deep, too much, or not JSON
(`NaN`, a key that appears twice in one object) is refused by a `ValueError` that says why in one
line. `docs/architecture.md` says why no library does this.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.report import ReportProblem

__all__ = ["JsonReader", "TooManyError", "check_shape", "too_long"]

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_UNSTORABLE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_BAD_CHARACTERS = re.compile("[\0\ud800-\udfff]")
_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_SPACE = re.compile(r"[ \t\r\n]*+")
_CHUNK = 2**18
_LONGEST_ESCAPE = 16
"""How far before the end the parser stops at most if only the end is missing: `\\ud83c\\udf7`."""
_MAX_QUOTE = 40


class TooManyError(ValueError):
    """One JSON value holds more values than are made at a time."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(
            f"it holds more than {limits.nodes:,} values; "
            "if you trust the file, raise the limit with `Limits(nodes=…)`"
        )


def check_shape(raw: bytes, limits: Limits) -> None:
    """Raise `ValueError` for JSON that would take more than it weighs: too deep, or of too many.

    That is seen before the parser, which makes every value.
    """
    bare = raw
    if _nodes(raw) > limits.nodes and _nodes(bare := _STRING.sub(b"", raw)) > limits.nodes:
        raise TooManyError(limits)
    if bare.count(b"[") + bare.count(b"{") > limits.depth and _depth(bare) > limits.depth:
        raise ValueError(f"it is nested deeper than {limits.depth} levels")


def _nodes(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _depth(raw: bytes) -> int:
    steps = _STRING.sub(b"", raw).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def too_long(what: str, limits: Limits) -> str:
    """Return what is said of a value that is beyond the limit."""
    return (
        f"{what} is longer than {limits.value:,} bytes; "
        "if you trust the file, raise the limit with `Limits(value=…)`"
    )


class JsonReader:
    """Reads the JSON of one file, and reports characters that no store can hold."""

    def __init__(self, limits: Limits, complain: ReportProblem) -> None:
        self._limits = limits
        self._complain = complain
        self._problems: list[str] = []
        """Of the value that was parsed last: what a parser should not have let through."""
        self._decoder = json.JSONDecoder(
            parse_float=self._number, parse_constant=self._constant, object_pairs_hook=self._object
        )

    def value(self, raw: bytes, place: str) -> object:
        """Return the one value that *raw* is."""
        values = list(self.values(raw, place))
        if len(values) != 1:
            raise ValueError(f"it is not valid JSON: {len(values) or 'no'} values stand in it")
        return values[0]

    def values(self, raw: bytes, place: str) -> Iterator[object]:
        """Yield the values that stand in *raw*, one after the other."""
        try:
            text = raw.decode()
        except UnicodeDecodeError as exc:
            why = f"it is not UTF-8: byte 0x{raw[exc.start]:02x} at position {exc.start}"
            raise ValueError(why) from None
        check_shape(raw, self._limits)
        at = _end_of_space(text, 0)
        while at < len(text):
            try:
                value, end = self._parse(text, at)
            except json.JSONDecodeError as exc:
                raise _invalid(exc, 0) from None
            yield self._accepted(value, text[at:end], place)
            at = _end_of_space(text, end)

    def elements(self, chunks: Iterator[str]) -> Iterator[object]:
        """Yield the elements of an array; after a broken one the next cannot be found."""
        text, number = _Window(chunks, self._limits), 0
        text.skip("[")
        try:
            while not text.skip("]"):
                number += 1
                text.peek()
                place = f"element {number}, line {text.line}"
                value, raw = self._element(text, place)
                try:
                    check_shape(raw.encode(), self._limits)
                    accepted = self._accepted(value, raw, place)
                except ValueError as exc:
                    self._complain(place, str(exc))
                else:
                    yield accepted
                if not text.skip(",") and text.peek() != "]":
                    why = f"`,` or `]` is missing after element {number}; what follows was not read"
                    self._complain(f"line {text.line}", why)
                    return
            if text.peek():
                self._complain(f"line {text.line}", "there is text after the array")
        except _BrokenError as exc:
            self._complain(exc.place, f"{exc}; what follows was not read")

    def _element(self, window: "_Window", place: str) -> tuple[object, str]:
        """Return the value that comes next, and its text."""
        while True:
            text, at = window.text, window.at
            held = len(text) - at
            try:
                value, end = self._parse(text, at)
            except json.JSONDecodeError as exc:
                is_cut = exc.msg.startswith("Unterminated") or exc.pos > len(text) - _LONGEST_ESCAPE
                if is_cut and held > self._limits.value:
                    raise _BrokenError(place, too_long("it", self._limits)) from None
                if not is_cut or not window.grow(place):
                    raise _BrokenError(place, str(_invalid(exc, at))) from None
            except (ValueError, RecursionError) as exc:  # of too many digits, or levels
                raise _BrokenError(place, str(exc)) from None
            else:
                # A number may go on: of `1.5e3`, all of `1`, `1.5` and `1.5e` could be held.
                if len(text) - end < _LONGEST_ESCAPE and window.grow(place):
                    continue
                window.go(end)
                if len(raw := text[at:end]) > self._limits.value:
                    self._problems.append(too_long("it", self._limits))
                return value, raw

    def _parse(self, text: str, at: int) -> tuple[object, int]:
        self._problems.clear()
        return self._decoder.raw_decode(text, at)

    def _accepted(self, value: object, text: str, place: str) -> object:
        """Return what was parsed of *text* as a store can hold it."""
        if self._problems:
            raise ValueError(self._problems[0])
        if not _UNSTORABLE.search(text):
            return value
        count = [0]
        value = _storable(value, count)
        if count[0]:
            what = "character" if count[0] == 1 else "characters"
            why = f"{count[0]} {what} that no store can hold, replaced by U+FFFD"
            self._complain(place, why)
        return value

    def _number(self, text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            self._problems.append(f"`{text[:_MAX_QUOTE]}` is out of range for a number")
        return value

    def _constant(self, name: str) -> None:
        self._problems.append(f"`{name}` is not valid JSON")

    def _object(self, pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            self._problems.append(f"the key {twice[:_MAX_QUOTE]!r} appears twice in one object")
        return members


class _BrokenError(ValueError):
    """What follows in an array cannot be found any more."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(why)
        self.place = place


class _Window:
    """The part of a text that is in memory; `line` is where it is read."""

    def __init__(self, chunks: Iterator[str], limits: Limits) -> None:
        self._chunks = chunks
        self._limits = limits
        self.text = ""
        self.at = 0
        self.line = 1

    def go(self, to: int) -> None:
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def peek(self) -> str:
        """Return the next character that is no space, and stay before it; empty at the end."""
        while True:
            self.go(_end_of_space(self.text, self.at))
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.grow(f"line {self.line}"):
                return ""

    def skip(self, wanted: str) -> bool:
        """Step over a character if it comes next; tell whether it did."""
        is_next = self.peek() == wanted
        if is_next:
            self.go(self.at + 1)
        return is_next

    def grow(self, place: str) -> bool:
        """Hold half as much again; chunk by chunk, a long value would be parsed too often."""
        parts, more, wanted = [self.text[self.at :]], 0, max(_CHUNK, len(self.text) // 2)
        while more < wanted and (chunk := next(self._chunks, "")):
            parts.append(chunk)
            more += len(chunk)
        if not more:
            return False
        self.text, self.at = "".join(parts), 0
        raw = self.text.encode()
        most = 2 * self._limits.nodes  # more than one value may stand in it
        if _nodes(raw) > most and _nodes(_STRING.sub(b"", raw)) > most:
            raise _BrokenError(place, str(TooManyError(self._limits)))
        return True


def _end_of_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _invalid(error: json.JSONDecodeError, start: int) -> ValueError:
    return ValueError(f"it is not valid JSON, at position {error.pos - start}: {error.msg}")


def _storable(value: object, count: list[int]) -> object:
    if isinstance(value, str):
        clean, replaced = _BAD_CHARACTERS.subn(_INSTEAD, value)
        count[0] += replaced
        return clean
    if isinstance(value, list):
        return [_storable(each, count) for each in value]
    if isinstance(value, dict):
        return {_storable(name, count): _storable(each, count) for name, each in value.items()}
    return value
