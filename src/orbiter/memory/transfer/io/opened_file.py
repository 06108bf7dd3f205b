"""`OpenedFile`: the text and the JSON of one file, whatever it is packed in.

What cannot be read is complained of where it stands, and the rest goes on; only what makes the
whole unreadable is an error.
"""

import codecs
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.json_stream import (
    JsonStream,
    MoreFollowsError,
    parsed,
    raw_lines,
    too_long,
)

__all__ = ["HEAD", "OpenedFile"]

HEAD = 64 * 2**10
"""How many bytes a format may look at to recognise a file."""

_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SPREAD = (b"{", b"[", b",", b":")
"""How the first line ends of a value that is written over several lines."""


class OpenedFile:
    """One file; a folder or an archive has only members."""

    def __init__(
        self,
        name: str,
        chunks: Callable[[], Iterator[bytes]],
        *,
        limits: Limits,
        complain: ReportProblem,
        on_disk: Callable[[], Path],
        is_stopped: Callable[[], bool],
        members: "Callable[[], Iterator[OpenedFile]] | None" = None,
    ) -> None:
        self._name = name
        self._chunks = chunks
        self._limits = limits
        self._complain = complain
        self._on_disk = on_disk
        self._members = members
        self._is_stopped = is_stopped

    @property
    def name(self) -> str:
        """The file's name, or the member's path in its archive."""
        return self._name

    @property
    def path(self) -> Path:
        """A file on disk with its bytes."""
        return self._on_disk()

    @property
    def limits(self) -> Limits:
        """How much of it may be read at a time."""
        return self._limits

    @property
    def is_stopped(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._is_stopped()

    @property
    def is_container(self) -> bool:
        """Whether it is a folder or an archive."""
        return self._members is not None

    def members(self) -> Iterator[SourceFile]:
        """Yield the files of a folder or an archive, by name; a plain file yields itself."""
        yield from self.opened_members()

    def opened_members(self) -> "Iterator[OpenedFile]":
        """Yield what `members` does."""
        if self._members is None:
            yield self
        else:
            yield from self._members()

    def head(self) -> bytes:
        """Return how it begins, as UTF-8 where it is text; nothing for a folder or an archive."""
        beginning = b""
        for chunk in [] if self.is_container else self._chunks():
            beginning += chunk
            if len(beginning) >= HEAD:
                break
        beginning = beginning[:HEAD]
        for mark, encoding in _WIDE.items():
            if beginning.startswith(mark):
                return beginning.decode(encoding, "replace").encode()
        return beginning.removeprefix(codecs.BOM_UTF8)

    # Text

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines with their numbers, from 1; one that is no text is complained of."""
        for number, raw in self._raw_lines():
            try:
                text = raw.decode()
            except UnicodeDecodeError as exc:
                why = f"it is not UTF-8: byte 0x{raw[exc.start]:02x} at position {exc.start}"
                self._complain(f"line {number}", why)
                continue
            yield number, text

    def text(self) -> str:
        """Return all of it as text; `TransferError` if it is none, or too long."""
        try:
            return self._all().decode()
        except UnicodeDecodeError as exc:
            raise TransferError(
                f"`{self._name}` is not UTF-8: byte 0x{exc.object[exc.start]:02x} at position "
                f"{exc.start}; save it as UTF-8"
            ) from None

    # JSON

    def values(self) -> Iterator[tuple[int, object]]:
        """Yield the JSON values that stand one after the other, with their lines.

        Where the first one ends on its line, all must; then the lines after a bad one are read.
        """
        lines = ((number, line) for number, raw in self._raw_lines() if (line := raw.strip()))
        first = next(lines, None)
        if first is not None and first[1].endswith(_SPREAD):
            yield from self._stream().values()
            return
        for number, line in chain([first] if first else [], lines):
            try:
                value = self._parsed(line, f"line {number}")
            except MoreFollowsError:
                yield from self._stream(line, number).values()
            except ValueError as exc:
                self._complain(f"line {number}", str(exc))
            else:
                yield number, value

    def elements(self, *keys: str) -> Iterator[object]:
        """Yield the elements of the first array: the document, or what stands under *keys* in it.

        Without such an array it yields the document, or what stands there, itself.
        """
        yield from self._stream().elements(keys, self.document)

    def listed(self, key: str) -> Iterator[object]:
        """Yield the elements of the array under *key* in the document; none if there is none."""
        yield from self._stream().elements((key,), None)

    def document(self) -> object:
        """Return the one JSON value that the file is; `TransferError` if it is none."""
        try:
            return self._parsed(self._all().strip(), "the whole file")
        except ValueError as exc:
            if isinstance(exc, TransferError):
                raise
            raise TransferError(f"`{self._name}` cannot be read: {exc}") from None

    # Behind these

    def _stream(self, line: bytes | None = None, number: int = 1) -> JsonStream:
        chunks = self._text_chunks() if line is None else iter([line])
        return JsonStream(chunks, limits=self._limits, complain=self._complain, line=number)

    def _parsed(self, raw: bytes, place: str) -> object:
        return parsed(raw, place, limits=self._limits, complain=self._complain)

    def _raw_lines(self) -> Iterator[tuple[int, bytes]]:
        for number, raw in raw_lines(self._text_chunks(), most=self._limits.value):
            if raw is None:
                self._complain(f"line {number}", too_long("it", self._limits))
            else:
                yield number, raw

    def _all(self) -> bytes:
        parts, size = [], 0
        for chunk in self._text_chunks():
            size += len(chunk)
            if size > self._limits.value:
                raise TransferError(too_long(f"`{self._name}`", self._limits))
            parts.append(chunk)
        return b"".join(parts)

    def _text_chunks(self) -> Iterator[bytes]:
        """Yield the file's bytes as UTF-8 without a mark."""
        if self.is_container:
            raise TransferError(f"`{self._name}` is a folder or an archive; read its members")
        chunks, head = self._chunks(), b""
        for chunk in chunks:
            head += chunk
            if len(head) >= 4:
                break
        encoding = next((name for mark, name in _WIDE.items() if head.startswith(mark)), None)
        if encoding is None and b"\0" in head[:4]:
            raise TransferError(
                f"`{self._name}` is not UTF-8 text; if it is UTF-16, save it as UTF-8"
            )
        if encoding is None:
            yield head.removeprefix(codecs.BOM_UTF8)
            yield from chunks
            return
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            for chunk in chain([head], chunks):
                yield decoder.decode(chunk).encode()
            yield decoder.decode(b"", final=True).encode()
        except UnicodeDecodeError as exc:
            raise TransferError(f"`{self._name}` is not valid {encoding}: {exc.reason}") from None
