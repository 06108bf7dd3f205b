"""JSON streaming: the values of a stream of bytes, one at a time, under limits.

`Scanner` counts brackets outside of strings and leaves it to the parser to say what is wrong
inside, so that one bad element does not keep the next from being read. `json_value` lets nothing
through that is not JSON, and sees what is too deep or too much before anything is made of it. Every
refusal is a `ValueError` that says why in one line. `docs/architecture.md` says why no library does
this.
"""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from typing import NoReturn

from orbiter.memory.transfer.formats.importer import ReportProblem
from orbiter.memory.transfer.io.archives import Limits

__all__ = [
    "JsonStream",
    "MoreFollowsError",
    "check_shape",
    "depth_of",
    "json_value",
    "parsed",
    "parsed_text",
    "raw_lines",
    "too_long",
]

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_UNSTORABLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_BAD_CHARACTERS = re.compile("[\0\ud800-\udfff]")
_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_MAX_QUOTE = 40


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
        raise kind(f"it is not valid JSON, at position {exc.pos}: {exc.msg}") from None
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
        raise ValueError(f"it is nested deeper than {limits.depth} levels")


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
            value = float(text)
            if not math.isfinite(value):
                raise ValueError(f"`{text[:_MAX_QUOTE]}` is out of range for a number")
            return value

        decoder = _decoders[digits] = json.JSONDecoder(
            parse_int=integer,
            parse_float=number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object,
        )
    return decoder


_decoders: dict[int, json.JSONDecoder] = {}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is not valid JSON")


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:_MAX_QUOTE]!r} appears twice in one object")
    return members


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


_TEXT = rb'(?:[^"MARKS]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+'
_OPEN_OR_CLOSED = re.compile(_TEXT.replace(b"MARKS", rb"\[\]{}"), re.DOTALL)
"""Everything up to the next bracket that stands in no string, or to a string that has no end."""
_WHOLE_STRINGS = re.compile(_TEXT.replace(b"MARKS", b""), re.DOTALL)
_WINDOW = 2**16
_SHORT = 2**10
_MANY = 2**12
_SPACE = re.compile(rb"[ \t\r\n]*+")
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SCALAR = re.compile(rb'[^ \t\r\n,:"\[\]{}]++')
_NO_VALUE = (b"", b",", b":", b"]", b"}")
_CHUNK = 2**18


class JSONSyntaxError(ValueError):
    """What follows cannot be found any more: the text around the values is no JSON."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class Scanner:
    """Walks over JSON, value by value; `line` is where it stands."""

    def __init__(self, chunks: Iterator[bytes], *, most: int, line: int = 1) -> None:
        self._chunks = chunks
        self._most = most
        self._data = b""
        self._at = 0
        self._is_at_end = False
        self.line = line

    def peek(self) -> bytes:
        """Return the next byte that is no space, and stay before it; `b""` at the end."""
        while True:
            space = _SPACE.match(self._data, self._at)
            self._go(space.end() if space else self._at)
            if self._at < len(self._data):
                return self._data[self._at : self._at + 1]
            if not self._grow():
                return b""

    def skip(self, wanted: bytes) -> bool:
        """Step over *wanted*, one byte, if it comes next; tell whether it did."""
        if self.peek() != wanted:
            return False
        self._go(self._at + 1)
        return True

    def take(self) -> bytes | None:
        """Return the bytes of the next value, and stand behind it; `None` if they are too many."""
        return self._value(is_kept=True)

    def pass_over(self) -> None:
        """Stand behind the next value, however long it is."""
        self._value(is_kept=False)

    def _value(self, *, is_kept: bool) -> bytes | None:
        first = self.peek()
        line = self.line
        if first in _NO_VALUE:
            what = f"`{first.decode()}`" if first else "the end of the file"
            raise JSONSyntaxError(line, f"a value is missing before {what}")
        walk = _Walk(first)
        at, is_done = walk.on(self._data, self._at)
        while not is_done:
            is_kept = is_kept and at - self._at <= self._most
            if not is_kept:
                self._go(at)
            seen = at - self._at
            is_at_end = not self._grow()
            at = self._at + seen
            if is_at_end and not walk.is_scalar:
                raise JSONSyntaxError(line, "the file ends within the value that begins here")
            at, is_done = walk.on(self._data, at)
            is_done = is_done or is_at_end
        raw = self._data[self._at : at] if is_kept and at - self._at <= self._most else None
        self._go(at)
        return raw

    def _go(self, to: int) -> None:
        self.line += self._data.count(b"\n", self._at, to)
        self._at = to

    def _grow(self) -> bool:
        """Read on, as much again as is held: adding chunk to chunk would copy all each time."""
        if self._is_at_end:
            return False
        held = self._data[self._at :]
        parts, more = [held], 0
        for chunk in self._chunks:
            parts.append(chunk)
            more += len(chunk)
            if more >= max(_CHUNK, len(held)):
                break
        else:
            self._is_at_end = True
        self._data, self._at = b"".join(parts), 0
        return more > 0


class _Walk:
    """Where one value ends, over as many chunks as it takes."""

    def __init__(self, first: bytes) -> None:
        self.is_scalar = first not in (b"{", b"[", b'"')
        self._is_begun = first != b'"'
        self._is_string = False
        self._depth = 0
        self._steps = 0
        self._is_near = False

    def on(self, data: bytes, at: int) -> tuple[int, bool]:
        """Return how far it goes in *data* from *at*, and whether it ends there."""
        if self.is_scalar:
            at = _end(_SCALAR, data, at)
            return at, at < len(data)
        if not self._is_begun:
            at, self._is_begun, self._is_string = at + 1, True, True
        while at < len(data):
            if self._is_string:
                at = _end(_STRING_REST, data, at)
                if data[at : at + 1] != b'"':
                    break  # the data ends here, or behind the first half of an escape
                at, self._is_string = at + 1, False
                if not self._depth:
                    return at, True
                continue
            if self._depth:
                at = _end(_OPEN_OR_CLOSED, data, self._leap(data, at))
            if at == len(data):
                break
            mark = data[at : at + 1]
            at += 1
            if mark == b'"':
                self._is_string = True
                continue
            self._depth += 1 if mark in b"[{" else -1
            if self._depth <= 0:
                return at, True
        return at, False

    def _leap(self, data: bytes, at: int) -> int:
        """Return how far it surely goes: millions of brackets, one by one, would take a minute."""
        self._steps += 1
        if self._steps % _MANY or self._is_near:
            return at
        while (end := _end(_WHOLE_STRINGS, data, at, at + _WINDOW)) - at >= _SHORT:
            steps = bracket_steps(data[at:end])
            if min(accumulate(steps), default=0) <= -self._depth:
                self._is_near = True
                break
            self._depth += sum(steps)
            at = end
        return at


def _end(pattern: re.Pattern[bytes], data: bytes, at: int, to: int = sys.maxsize) -> int:
    match = pattern.match(data, at, to)
    return match.end() if match else at


def raw_lines(chunks: Iterator[bytes], *, most: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines with their numbers, without their ends; `None` for one that is too long."""
    number, parts, size = 1, list[bytes](), 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            size += len(piece)
            yield number, _line([*parts, piece]) if size <= most else None
            number, parts, size = number + 1, [], 0
        size += len(rest)
        if size > most:
            parts = []  # it is skipped; its length tells
        elif rest:
            parts.append(rest)
    if size:
        yield number, _line(parts) if size <= most else None


def _line(parts: list[bytes]) -> bytes:
    return b"".join(parts).removesuffix(b"\r")


def too_long(what: str, limits: Limits) -> str:
    """Return what is said of a value that is beyond the limit."""
    return (
        f"{what} is longer than {limits.value:,} bytes; "
        "if you trust the file, raise the limit with `Limits(value=…)`"
    )


def parsed(raw: bytes, place: str, *, limits: Limits, complain: ReportProblem) -> object:
    """Return the value that *raw* is, or raise `ValueError`; complain of what was replaced."""

    def replaced(count: int) -> None:
        what = "character" if count == 1 else "characters"
        complain(place, f"{count} {what} that no store can hold, replaced by U+FFFD")

    return json_value(raw, limits, replaced)


def parsed_text(text: object, place: str, limits: Limits, complain: ReportProblem) -> object:
    """Return the value that a text in another file is, under the same rules."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    return parsed(raw if isinstance(raw, bytes) else b"", place, limits=limits, complain=complain)


class JsonStream:
    """Reads values that stand one after the other, or as the elements of an array."""

    def __init__(
        self, chunks: Iterator[bytes], *, limits: Limits, complain: ReportProblem, line: int = 1
    ) -> None:
        self._scanner = Scanner(chunks, most=limits.value, line=line)
        self._limits = limits
        self._complain = complain

    def values(self) -> Iterator[tuple[int, object]]:
        """Yield every value with its line."""
        scanner = self._scanner
        try:
            while scanner.peek():
                line = scanner.line
                yield from ((line, value) for value in self._next(f"line {line}"))
        except JSONSyntaxError as exc:
            self._complain(f"line {exc.line}", f"{exc}; what follows was not read")

    def elements(
        self, keys: tuple[str, ...], document: Callable[[], object] | None
    ) -> Iterator[object]:
        """Yield the elements of the array, or of the one under *keys*; else the *document*."""
        scanner = self._scanner
        try:
            first = scanner.peek()
            if first == b"[":
                yield from self._array()
                if scanner.peek():
                    self._complain(f"line {scanner.line}", "there is text after the array")
            elif first == b"{" and keys:
                if not (yield from self._under(keys)) and document is not None:
                    yield document()
            elif first and document is not None:
                yield document()
        except JSONSyntaxError as exc:
            self._complain(f"line {exc.line}", f"{exc}; what follows was not read")

    def _under(self, keys: tuple[str, ...]) -> Generator[object, None, bool]:
        """Yield what stands under *keys* in the object that comes next; tell whether it does."""
        is_found, scanner = False, self._scanner
        scanner.skip(b"{")
        while not scanner.skip(b"}"):
            line = scanner.line
            name = self._key()
            if name != keys[0]:
                scanner.pass_over()
            elif is_found:
                self._complain(f"line {line}", f"the key `{name}` appears twice in one object")
                scanner.pass_over()
            elif len(keys) > 1 and scanner.peek() == b"{":
                is_found = yield from self._under(keys[1:])
            elif len(keys) == 1 and scanner.peek() == b"[":
                is_found = True
                yield from self._array()
            elif len(keys) == 1:
                is_found = True
                yield from self._next(f"line {line}")
            else:
                scanner.pass_over()
            if not scanner.skip(b",") and scanner.peek() != b"}":
                raise JSONSyntaxError(scanner.line, "`,` or `}` is missing")
        return is_found

    def _key(self) -> str:
        scanner = self._scanner
        line = scanner.line
        raw = scanner.take() if scanner.peek() == b'"' else None
        try:
            name = json.loads(raw or b"")
        except ValueError:
            raise JSONSyntaxError(line, "a key is missing") from None
        if not scanner.skip(b":"):
            raise JSONSyntaxError(line, "`:` is missing")
        return str(name)

    def _array(self) -> Iterator[object]:
        number, scanner = 0, self._scanner
        scanner.skip(b"[")
        while not scanner.skip(b"]"):
            number += 1
            scanner.peek()
            yield from self._next(f"element {number}, line {scanner.line}")
            if not scanner.skip(b",") and scanner.peek() != b"]":
                raise JSONSyntaxError(scanner.line, f"`,` or `]` is missing after element {number}")

    def _next(self, place: str) -> Iterator[object]:
        """Yield the next value, if it is one."""
        raw = self._scanner.take()
        if raw is None:
            self._complain(place, too_long("it", self._limits))
            return
        try:
            value = parsed(raw, place, limits=self._limits, complain=self._complain)
        except ValueError as exc:
            self._complain(place, str(exc))
        else:
            yield value
