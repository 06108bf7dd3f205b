"""The lines of our own file, read back: what is wrong with one is a `TransferError` that names it.

A file may come from anybody, so it is held to the limits of every other format.
"""

import hashlib
import json
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from orbiter.memory.errors import AccessError, InvalidItemError, TransferError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.key_value import StoredEntry
from orbiter.memory.model.query import Query
from orbiter.memory.model.records import Record
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.json_values import check_shape, too_long
from orbiter.memory.transfer.io.open_source import open_source
from orbiter.memory.transfer.io.source_file import Tally, raw_lines
from orbiter.memory.transfer.owners import LeftOut

__all__ = ["FORMAT", "FORMAT_VERSION", "MAX_LINE", "Selection", "is_native", "record_pages"]

FORMAT = "orbiter-memory records"
"""What the first line of a file calls it."""

FORMAT_VERSION = 2
"""The newest format that is read: 2 has key-value entries behind the records. A file without any is
of format 1, which earlier versions read, too."""

MAX_LINE = 256 * 2**20
"""Bytes of the longest line that is read: an item of a megabyte with some hundred versions."""

_CHUNK = 2**18


class Selection:
    """What is taken of a file: all, if it is *scope*'s; with *owner*, only what is that user's."""

    def __init__(self, scope: MemoryMetadata | None, owner: str | None) -> None:
        self.wanted: dict[str, str] = dict(Query(metadata=scope).wanted.items())
        """What the scope of each thing must be."""
        self.others = LeftOut(owner)
        self._owner = owner
        if owner is not None:
            self.wanted["user_id"] = owner

    def takes(self, users: set[str | None]) -> bool:
        """Tell whether to take what is, and was, of these users; count it, if not."""
        if self._owner is None or users == {self._owner}:
            return True
        self.others.add(next(iter(users - {self._owner})))
        return False


def is_native(head: bytes) -> bool:
    """Tell whether a file that begins with *head* is one of ours."""
    return f'"format":"{FORMAT}"'.encode() in head.partition(b"\n")[0]


def record_pages(
    source: str | Path | IO[bytes],
    path: Path | None,
    *,
    selection: Selection,
    limits: Limits | None,
    page: tuple[int, int],
    tally: Tally,
) -> Generator[list[Record | StoredEntry], None, None]:
    """Yield the records and entries of a file, so many, or so many bytes of them, at a time.

    *path* is that of a file; without, *source* is a stream. Without *limits* a line may be as long
    as `MAX_LINE`.
    """
    most, length = page
    batch: list[Record | StoredEntry] = []
    size = 0
    allowed = limits or Limits(value=MAX_LINE)
    with _chunks(source, path, allowed, tally) as chunks:
        for record, bytes_read in _records(_lines(chunks, allowed), selection, allowed):
            batch.append(record)
            size += bytes_read
            if len(batch) >= most or size > length:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def _chunks(
    source: str | Path | IO[bytes], path: Path | None, limits: Limits, tally: Tally
) -> Iterator[Iterator[bytes]]:
    if path is None:
        stream = sys.stdin.buffer if source == "-" else cast("IO[bytes]", source)
        yield _counted_chunks(stream, tally)
        return
    with open_source(path, limits=limits, tally=tally) as opened:
        if opened.is_container:
            raise TransferError(f"`{path}` is a folder or an archive; give the path of an export")
        yield opened.chunks()


def _counted_chunks(file: IO[bytes], tally: Tally) -> Iterator[bytes]:
    # A line at most: more would wait for what has not come yet.
    for chunk in iter(partial(file.readline, _CHUNK), b""):
        tally.add(len(chunk))
        yield chunk


def _lines(chunks: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    """Yield whole lines with their ends; only the last may have none."""
    for number, line in raw_lines(chunks, most=limits.value):
        if line is None:
            raise TransferError(too_long(f"line {number}", limits))
        yield line


def _not_ours(number: int, what: str, name: str, own: str | None) -> AccessError:
    """Return the error for a record of another scope; it names the scope that takes the file."""
    owner = f"no {name[:-3]}" if own is None else f"{name[:-3]} `{own[:80]}`"
    way = "" if own is None else f"; the handle with `{name}={own[:80]}` takes them"
    if own is not None and name == "user_id":
        way += f', and `owner="{own[:80]}"` copies them for the user of this one'
    return AccessError(
        f"line {number}: {what} belongs to {owner}, not to this scope; records of others are "
        f"not imported{way}"
    )


def _records(
    lines: Iterator[bytes], selection: Selection, limits: Limits
) -> Iterator[tuple[Record | StoredEntry, int]]:
    """Yield the records with their bytes; the last line must say that this is all."""
    wanted = selection.wanted
    digest, number, seen, entries = hashlib.sha256(), 0, 0, 0
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            raise TransferError(f"the file is cut off in line {number}; export it again")
        if number == 1:
            _check_header(line)
        elif line.startswith(b'{"end":'):
            _check_end(line, seen, entries, digest.hexdigest(), number)
            if next(lines, b""):
                raise TransferError(f"line {number + 1} comes after the end of the file")
            return
        elif line.startswith(b'{"entry":'):
            stored = _entry(line, number, limits)
            if selection.takes({stored.scope.user_id}):
                _check_scope(number, "an entry", stored.scope, wanted)
                yield stored, len(line)
            entries += 1
        else:
            record = _record(line, number, limits)
            if selection.takes({item.metadata.user_id for item in record.items}):
                for item in record.items if wanted else ():
                    _check_scope(number, f"`{record.id}`", item.metadata, wanted)
                yield record, len(line)
            seen += 1
        digest.update(line)
    raise TransferError(
        f"the file is cut off after line {number}; export it again" if number else "it is empty"
    )


def _check_scope(number: int, what: str, own: MemoryMetadata, wanted: dict[str, str]) -> None:
    for name, value in wanted.items():
        if getattr(own, name) != value:
            raise _not_ours(number, what, name, getattr(own, name))


def _record(line: bytes, number: int, limits: Limits) -> Record:
    try:
        check_shape(line, limits)
        return Record.from_line(line)
    except InvalidItemError as exc:
        raise TransferError(f"line {number}: {exc}") from exc
    except ValueError as exc:
        raise TransferError(f"line {number}: {exc}") from None


def _entry(line: bytes, number: int, limits: Limits) -> StoredEntry:
    try:
        check_shape(line, limits)
        return StoredEntry.from_line(line)
    except ValueError as exc:
        raise TransferError(f"line {number}: {exc}") from None


def _check_header(line: bytes) -> None:
    header = _loaded(line)
    if header.get("format") != FORMAT:
        raise TransferError(
            f"line 1 does not say `{FORMAT}`: this is not an export of orbiter-memory; other "
            "formats are read by `import_file`"
        )
    version = header.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise TransferError(
            f"the file has format {version!r}, this version of orbiter-memory knows "
            f"{FORMAT_VERSION}; upgrade with: pip install -U orbiter-memory"
        )


def _check_end(line: bytes, seen: int, entries: int, digest: str, number: int) -> None:
    stated = _loaded(line).get("end")
    if not isinstance(stated, dict):
        raise TransferError(f"line {number} is not a valid last line")
    counts = (stated.get("records"), stated.get("entries", 0))
    if counts != (seen, entries) or stated.get("sha256") != digest:
        raise TransferError(
            f"line {number}: the file was changed since it was written: it holds {seen} records, "
            f"{stated.get('records')} are stated, and the digest "
            + ("matches" if stated.get("sha256") == digest else "differs")
        )


def _loaded(line: bytes) -> dict[str, Any]:
    """Return what the first or the last line says; nothing if that is no short object."""
    try:
        value = json.loads(line) if len(line) <= _CHUNK else None
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}
