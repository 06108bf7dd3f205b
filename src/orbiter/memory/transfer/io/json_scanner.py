"""Finding where each JSON value in a stream of bytes ends, without holding more than one.

It counts brackets outside of strings and leaves it to the parser to say what is wrong inside, so
that one bad element does not keep the next from being read.
"""

import re
import sys
from collections.abc import Iterator
from itertools import accumulate

from orbiter.memory.transfer.io.json_values import bracket_steps

__all__ = ["BrokenError", "Scanner", "raw_lines"]

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


class BrokenError(ValueError):
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
        self._is_over = False
        self.line = line

    def peek(self) -> bytes:
        """Return the next byte that is no space, and stay before it; `b""` at the end."""
        while True:
            found = _SPACE.match(self._data, self._at)
            self._go(found.end() if found else self._at)
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
            raise BrokenError(line, f"a value is missing before {what}")
        walk = _Walk(first)
        at, is_done = walk.on(self._data, self._at)
        while not is_done:
            is_kept = is_kept and at - self._at <= self._most
            if not is_kept:
                self._go(at)
            seen = at - self._at
            is_over = not self._grow()
            at = self._at + seen
            if is_over and not walk.is_scalar:
                raise BrokenError(line, "the file ends within the value that begins here")
            at, is_done = walk.on(self._data, at)
            is_done = is_done or is_over
        raw = self._data[self._at : at] if is_kept and at - self._at <= self._most else None
        self._go(at)
        return raw

    def _go(self, to: int) -> None:
        self.line += self._data.count(b"\n", self._at, to)
        self._at = to

    def _grow(self) -> bool:
        """Read on, as much again as is held: adding chunk to chunk would copy all each time."""
        if self._is_over:
            return False
        held = self._data[self._at :]
        parts, more = [held], 0
        for chunk in self._chunks:
            parts.append(chunk)
            more += len(chunk)
            if more >= max(_CHUNK, len(held)):
                break
        else:
            self._is_over = True
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
    found = pattern.match(data, at, to)
    return found.end() if found else at


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
