"""Files to and from a server: what is read and written lies here, the memories lie there."""

import asyncio
import hashlib
import os
import re
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from orbiter.memory.client._read_response import MAX_BYTES, UNREADABLE, lines_of, loaded
from orbiter.memory.client._transport import HTTPTransport, Request
from orbiter.memory.errors import MemoryConnectionError, MemoryError, TransferError
from orbiter.memory.transfer import ExportResult, ImportResult, Limits, Problem
from orbiter.memory.transfer.io.archives import zip_chunks, zip_members
from orbiter.memory.transfer.io.output_file import new_file, new_folder
from orbiter.memory.wire import load_error

__all__ = ["export_there", "import_there"]

_PIECE = 2**18
_RECORDS = "X-Orbiter-Records"
"""How many memories a server has written, where the file does not say it."""
_COUNT = re.compile(r"[0-9]{1,15}")

Progress = Callable[[int, int], None]


# In


async def import_there(
    link: HTTPTransport,
    params: Mapping[str, str],
    path: str | os.PathLike[str],
    *,
    progress: Progress | None,
) -> ImportResult:
    """Send the file, folder or archive at *path*; return what became of it."""
    source = Path(path)
    with tempfile.TemporaryDirectory(prefix="orbiter-memory-") as folder:
        file = await asyncio.to_thread(_one_file, source, Path(folder))
        request = Request(
            "POST",
            "/v1/import",
            {**params, "name": file.name},
            {
                "Content-Type": "application/octet-stream",
                "Content-Length": str(file.stat().st_size),
            },
        )
        async with link.stream(request, content=_pieces(file)) as answer:
            async for line in lines_of(answer):
                said = _said(line, link.address.url)
                if isinstance(said, ImportResult):
                    return said
                if isinstance(said, Exception):
                    raise said
                if progress is not None:
                    progress(*said)
    raise MemoryConnectionError(
        f"`{link.address.url}` closed the connection while it read `{path}`; import it again to "
        "resume"
    )


def _one_file(path: Path, folder: Path) -> Path:
    """Return what can be sent: a file as it is, a folder as a zip in *folder*."""
    if path.is_dir():
        made = folder / f"{path.resolve().name}.zip"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in _files_in(path):
                packed.write(file, file.relative_to(path))
        return made
    if not path.is_file():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise TransferError(f"`{path}` {what}; give the path of an export")
    return path


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder; links are not followed, as they may lead anywhere."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            file = Path(place, name)
            if file.is_file() and not file.is_symlink():
                yield file


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := await asyncio.to_thread(opened.read, _PIECE):
            yield piece


def _said(line: bytes, where: str) -> ImportResult | Exception | tuple[int, int]:
    """Return what a line says: what became of the import, what went wrong, or how far it is."""
    try:
        said = loaded(line)
        if "report" in said:
            return _report(said["report"])
        if "error" in said:
            error = load_error(int(said["error"]["status"]), said["error"])
            for note in said.get("notes", ()):
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(str(note))
            return error
        return int(said["read"]), int(said["of"])
    except UNREADABLE as exc:
        raise MemoryConnectionError(
            f"`{where}` sent a report of the import that cannot be read ({type(exc).__name__}); "
            "is it of another version?"
        ) from exc


def _report(said: Mapping[str, Any]) -> ImportResult:
    problems = tuple(Problem(str(each["place"]), str(each["why"])) for each in said["problems"])
    notes = tuple(str(each) for each in said.get("notes", ()))
    return ImportResult(**{**said, "problems": problems, "notes": notes})


# Out


async def export_there(
    link: HTTPTransport,
    params: Mapping[str, str],
    target: str | os.PathLike[str] | IO[bytes],
    *,
    progress: Progress | None,
) -> ExportResult:
    """Write what the server sends to *target*, which appears when it is complete."""
    path = Path(target) if isinstance(target, str | os.PathLike) else None
    request = Request("GET", "/v1/export", params)
    lines = _Lines(link.address.url, is_ours=params["format"] == "jsonl")
    failed: MemoryError | None = None
    try:
        with _opened(path, target, is_folder=params["format"] == "markdown") as file:
            try:
                async with link.stream(request) as answer:
                    async for piece in answer.aiter_bytes():
                        lines.read(piece)
                        file.write(piece)
                    header = answer.headers.get(_RECORDS, "")
                count = int(header) if _COUNT.fullmatch(header) else 0
                records = lines.end() if lines.is_ours else count
            except MemoryError as exc:
                failed = exc
                raise
    except TransferError:
        if failed is not None:  # it was not the file: the server is away, or refuses
            raise failed from None
        raise
    if progress is not None:
        progress(records, records)
    return ExportResult(records, lines.versions, lines.digest, path, lines.entries)


@contextmanager
def _opened(path: Path | None, target: object, *, is_folder: bool) -> Iterator[IO[bytes]]:
    if path is None:
        file = cast("IO[bytes]", target)
        yield file
        file.flush()
    elif is_folder:
        with new_folder(path) as folder, tempfile.TemporaryDirectory() as aside:
            sent = Path(aside, f"{path.name}.zip")
            with sent.open("wb") as packed:
                yield packed
            _unpack(sent, folder)
    else:
        with new_file(path, may_pack=True) as file:
            yield file


def _unpack(packed: Path, folder: Path) -> None:
    """Write what a zip holds into *folder*, no more of it than an import would read."""
    for member in zip_members(packed, Limits()):
        file = folder / member.filename
        file.parent.mkdir(parents=True, exist_ok=True)
        left = member.file_size
        with file.open("xb") as opened:
            for piece in zip_chunks(packed, member.filename, lambda _: None):
                left -= len(piece)
                if left < 0:
                    raise TransferError(f"`{packed.name}` contains more than it declares")
                opened.write(piece)


class _Lines:
    """Reads along: whether our own file is whole, and how much it holds."""

    def __init__(self, where: str, *, is_ours: bool) -> None:
        self.is_ours = is_ours
        self._where = where
        self.versions = self.entries = 0
        self.digest = ""
        self._count = -1  # the first line says what the file is
        self._hash = hashlib.sha256()
        self._rest = bytearray()
        self._last: dict[str, Any] = {}

    def read(self, piece: bytes) -> None:
        """Take the next bytes of the file."""
        if not self.is_ours:
            return
        *lines, last = piece.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += last
        if len(self._rest) > MAX_BYTES:
            raise self._not_ours("a line without end")
        for line in lines:
            self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        try:
            self._last = dict(loaded(line))
            versions = len(self._last.get("versions", ()))
        except UNREADABLE as exc:
            raise self._not_ours(type(exc).__name__) from exc
        if "end" not in self._last:
            self._hash.update(line + b"\n")
            is_entry = line.startswith(b'{"entry":')
            self._count += not is_entry
            self.entries += is_entry
            self.versions += versions

    def _not_ours(self, why: str) -> MemoryConnectionError:
        return MemoryConnectionError(
            f"`{self._where}` did not send a valid export ({why}); is it of another version?"
        )

    def end(self) -> int:
        """Return how many memories there are, or raise `MemoryConnectionError` if some lack."""
        end = self._last.get("end")
        said = end if isinstance(end, dict) else {}
        self.digest = self._hash.hexdigest()
        counts = (said.get("records"), said.get("entries", 0))
        if said.get("sha256") != self.digest or counts != (self._count, self.entries):
            raise MemoryConnectionError(
                f"`{self._where}` closed the connection before the export was complete"
            )
        return self._count
