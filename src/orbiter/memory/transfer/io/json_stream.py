"""The JSON values of a stream of bytes, one at a time; what is wrong with one is complained of."""

import json
from collections.abc import Callable, Generator, Iterator

from orbiter.memory.transfer.formats.protocol import Complain
from orbiter.memory.transfer.io.file_limits import Limits
from orbiter.memory.transfer.io.json_scanner import BrokenError, Scanner
from orbiter.memory.transfer.io.json_values import json_value

__all__ = ["JsonStream", "parsed", "parsed_text", "too_long"]


def too_long(what: str, limits: Limits) -> str:
    """Return what is said of a value that is beyond the limit."""
    return (
        f"{what} is longer than {limits.value:,} bytes; "
        "if you trust the file, raise the limit with `Limits(value=…)`"
    )


def parsed(raw: bytes, place: str, *, limits: Limits, complain: Complain) -> object:
    """Return the value that *raw* is, or raise `ValueError`; complain of what was replaced."""

    def replaced(count: int) -> None:
        what = "character" if count == 1 else "characters"
        complain(place, f"{count} {what} that no store can hold, replaced by U+FFFD")

    return json_value(raw, limits, replaced)


def parsed_text(text: object, place: str, limits: Limits, complain: Complain) -> object:
    """Return the value that a text in another file is, under the same rules."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    return parsed(raw if isinstance(raw, bytes) else b"", place, limits=limits, complain=complain)


class JsonStream:
    """Reads values that stand one after the other, or as the elements of an array."""

    def __init__(
        self, chunks: Iterator[bytes], *, limits: Limits, complain: Complain, line: int = 1
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
        except BrokenError as exc:
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
                    self._complain(f"line {scanner.line}", "something stands behind the array")
            elif first == b"{" and keys:
                if not (yield from self._under(keys)) and document is not None:
                    yield document()
            elif first and document is not None:
                yield document()
        except BrokenError as exc:
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
                self._complain(f"line {line}", f"the key `{name}` stands twice in one object")
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
                raise BrokenError(scanner.line, "`,` or `}` is missing")
        return is_found

    def _key(self) -> str:
        scanner = self._scanner
        line = scanner.line
        raw = scanner.take() if scanner.peek() == b'"' else None
        try:
            name = json.loads(raw or b"")
        except ValueError:
            raise BrokenError(line, "a key is missing") from None
        if not scanner.skip(b":"):
            raise BrokenError(line, "`:` is missing")
        return str(name)

    def _array(self) -> Iterator[object]:
        number, scanner = 0, self._scanner
        scanner.skip(b"[")
        while not scanner.skip(b"]"):
            number += 1
            scanner.peek()
            yield from self._next(f"element {number}, line {scanner.line}")
            if not scanner.skip(b",") and scanner.peek() != b"]":
                raise BrokenError(scanner.line, f"`,` or `]` is missing after element {number}")

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
