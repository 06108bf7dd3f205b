"""`SourceFile`: the text and the JSON of one file, whatever it is packed in.

What cannot be read is reported with its place, and the rest goes on; only what makes the whole
unreadable is an error.
"""

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.json_values import JsonReader, TooManyError, too_long
from orbiter.memory.transfer.report import ReportProblem

__all__ = ["SourceFile", "Tally", "raw_lines"]

_HEAD = 64 * 2**10
_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SPREAD = (b"{", b"[", b",", b":")
"""How the first line ends of a value that is written over several lines."""


@dataclass(slots=True)
class Tally:
    """How many bytes of how many have been read, as far as that can be told, and which files."""

    total: int = 0
    done: int = 0
    is_stopped: bool = False
    """Set from outside, to read no further."""
    unread: dict[str, None] = field(default_factory=dict)
    """The files of a folder or an archive that nobody has looked into, in their order."""

    def add(self, count: int) -> None:
        """Count *count* bytes more; a `TransferError` if nobody waits for them any more."""
        if self.is_stopped:
            raise TransferError("the import was cancelled")
        self.done = min(self.done + count, self.total)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, or a member of an archive, read piece by piece and never beyond the limits."""

    name: str
    """The file's name, or the member's path in its archive."""
    limits: Limits
    """How much of it may be read at a time."""
    tally: Tally
    complain: ReportProblem
    chunks: Callable[[], Iterator[bytes]]
    on_disk: Callable[[], Path]
    files: "Callable[[], Iterator[SourceFile]] | None" = None
    """What it contains, if it is a folder or an archive."""

    @property
    def path(self) -> Path:
        """A file on disk with its bytes, for what a database must open itself."""
        self.tally.unread.pop(self.name, None)
        return self.on_disk()

    @property
    def is_container(self) -> bool:
        """Whether it is a folder or an archive."""
        return self.files is not None

    def members(self) -> "Iterator[SourceFile]":
        """Yield the files of a folder or an archive, by name; a plain file yields itself."""
        yield from [self] if self.files is None else self.files()

    def head(self) -> bytes:
        """Return how it begins: 64 KiB at most, as UTF-8 where it is text."""
        beginning = b""
        for chunk in self._read():
            beginning += chunk
            if len(beginning) >= _HEAD:
                break
        beginning = beginning[:_HEAD]
        encoding = _wide_encoding(beginning)
        if encoding is not None:
            return beginning.decode(encoding, "replace").encode()
        return beginning.removeprefix(codecs.BOM_UTF8)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines with their numbers, from 1; one that is no text is reported."""
        for number, raw in self._raw_lines():
            try:
                text = raw.decode()
            except UnicodeDecodeError as exc:
                self.complain(f"line {number}", f"it is not UTF-8: {_bad_byte(exc)}")
                continue
            yield number, text

    def text(self) -> str:
        """Return all of it as text; `TransferError` if it is none, or too long."""
        try:
            return self._all().decode()
        except UnicodeDecodeError as exc:
            raise self._not_utf8(exc) from None

    def values(self) -> Iterator[tuple[int, object]]:
        """Yield the JSON values that stand one after the other, with their lines.

        What is wrong with a line is reported, and the next is read. Where the first line is only
        the beginning of a value, the file is read as a whole.
        """
        reader, way = JsonReader(self.limits, self.complain), _ONE_VALUE.format(self.name)
        is_first = True
        for number, raw in self._raw_lines(way=way):
            if not (line := raw.strip()):
                continue
            is_spread, is_first = is_first and line.endswith(_SPREAD), False
            if is_spread:
                line = self._all(way=way)
            try:
                for value in reader.values(line, f"line {number}"):
                    yield number, value
            except TooManyError as exc:
                if number > 1:
                    self.complain(f"line {number}", str(exc))
                else:
                    raise TransferError(f"`{self.name}` cannot be read: {exc}{way}") from None
            except (ValueError, RecursionError) as exc:
                self.complain(f"line {number}", str(exc))
            if is_spread:
                return

    def elements(self) -> Iterator[object]:
        """Yield the elements of the JSON array that it is, one at a time.

        Anything else that it is, is yielded itself.
        """
        first = self.head().lstrip()[:1]
        if first == b"[":
            yield from JsonReader(self.limits, self.complain).elements(self._texts())
        elif first:
            yield self.document()

    def document(self) -> object:
        """Return the one JSON value that the file is; `TransferError` if it is none."""
        try:
            raw = self._all(way=_ONE_VALUE.format(self.name))
            return JsonReader(self.limits, self.complain).value(raw, "the whole file")
        except (ValueError, RecursionError) as exc:
            if isinstance(exc, TransferError):
                raise
            way = _ONE_VALUE.format(self.name) if isinstance(exc, TooManyError) else ""
            raise TransferError(f"`{self.name}` cannot be read: {exc}{way}") from None

    def parsed(self, raw: object, say: Callable[[str], None]) -> object:
        """Return the JSON value that a text in the file is; `ValueError` if it is none."""
        if isinstance(raw, str):
            raw = raw.encode(errors="replace")
        reader = JsonReader(self.limits, lambda _place, why: say(why))
        return reader.value(raw if isinstance(raw, bytes) else b"", "")

    # Behind these

    def _read(self) -> Iterator[bytes]:
        self.tally.unread.pop(self.name, None)
        return self.chunks()

    def _raw_lines(self, *, way: str = "") -> Iterator[tuple[int, bytes]]:
        """Yield the lines; with *way*, a first one that is too long is an error that says it."""
        for number, raw in raw_lines(self._utf8(), most=self.limits.value):
            if raw is None and number == 1 and way:
                raise TransferError(too_long(f"`{self.name}`", self.limits) + way)
            if raw is None:
                self.complain(f"line {number}", too_long("it", self.limits))
            else:
                yield number, raw.removesuffix(b"\n").removesuffix(b"\r")

    def _all(self, *, way: str = "") -> bytes:
        parts, size = [], 0
        for chunk in self._utf8():
            size += len(chunk)
            if size > self.limits.value:
                raise TransferError(too_long(f"`{self.name}`", self.limits) + way)
            parts.append(chunk)
        return b"".join(parts)

    def _texts(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            yield from filter(None, map(decoder.decode, self._utf8()))
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as exc:
            raise self._not_utf8(exc) from None

    def _not_utf8(self, error: UnicodeDecodeError) -> TransferError:
        return TransferError(f"`{self.name}` is not UTF-8: {_bad_byte(error)}; save it as UTF-8")

    def _utf8(self) -> Iterator[bytes]:
        """Yield the file's bytes as UTF-8 without a mark."""
        if self.is_container:
            raise TransferError(f"`{self.name}` is a folder or an archive; read its members")
        chunks, first = self._read(), b""
        for chunk in chunks:
            first += chunk
            if len(first) >= 4:
                break
        encoding = _wide_encoding(first)
        if encoding is None:
            if b"\0" in first[:4]:
                raise TransferError(
                    f"`{self.name}` is not UTF-8 text; if it is UTF-16, save it as UTF-8"
                )
            yield first.removeprefix(codecs.BOM_UTF8)
            yield from chunks
            return
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            yield decoder.decode(first).encode()
            for chunk in chunks:
                yield decoder.decode(chunk).encode()
            yield decoder.decode(b"", final=True).encode()
        except UnicodeDecodeError as exc:
            raise TransferError(f"`{self.name}` is not valid {encoding}: {exc.reason}") from None


_ONE_VALUE = (
    ". It is one JSON value, which is in memory as a whole; a list, or a record per line, is read "
    "piece by piece: `jq -c '.results[]' {} > records.jsonl` writes one, with the key that your "
    "records are under"
)


def _wide_encoding(beginning: bytes) -> str | None:
    return next((name for mark, name in _WIDE.items() if beginning.startswith(mark)), None)


def _bad_byte(error: UnicodeDecodeError) -> str:
    return f"byte 0x{error.object[error.start]:02x} at position {error.start}"


def raw_lines(chunks: Iterator[bytes], *, most: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines with their numbers and their ends; `None` for one that is too long."""
    number, parts, size = 1, list[bytes](), 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            size += len(piece)
            yield number, b"".join([*parts, piece, b"\n"]) if size <= most else None
            number, parts, size = number + 1, [], 0
        size += len(rest)
        if size > most:
            parts = []  # it is skipped; its length tells
        elif rest:
            parts.append(rest)
    if size:
        yield number, b"".join(parts) if size <= most else None
