"""Files to and from a server: what is read and written lies here, the memories lie there."""

import asyncio
import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from orbiter.memory.client._link import Link, Request
from orbiter.memory.errors import MemoryConnectionError, TransferError
from orbiter.memory.transfer import Exported, Imported, Problem
from orbiter.memory.transfer._target import new_file, new_folder
from orbiter.memory.wire import load_error

__all__ = ["export_there", "import_there"]

_PIECE = 2**18
_RECORDS = "X-Orbiter-Records"
"""How many memories a server has written, where the file does not say it."""

Progress = Callable[[int, int], None]


# In


async def import_there(
    link: Link,
    asked: Mapping[str, str],
    path: str | os.PathLike[str],
    *,
    progress: Progress | None,
) -> Imported:
    """Send the file, folder or archive at *path*; return what became of it."""
    given = Path(path)
    with tempfile.TemporaryDirectory(prefix="orbiter-memory-") as folder:
        file = await asyncio.to_thread(_one_file, given, Path(folder))
        request = Request(
            "POST",
            "/v1/import",
            {**asked, "name": file.name},
            {
                "Content-Type": "application/octet-stream",
                "Content-Length": str(file.stat().st_size),
            },
        )
        async with link.stream(request, content=_pieces(file)) as answer:
            async for line in answer.aiter_lines():
                said = json.loads(line)
                if "report" in said:
                    return _report(said["report"])
                if "error" in said:
                    raise load_error(int(said["error"]["status"]), said["error"])
                if progress is not None:
                    progress(int(said["read"]), int(said["of"]))
    raise MemoryConnectionError(
        f"`{link.address.url}` broke off while it read `{path}`; importing it again goes on"
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
        what = "is no file and no folder" if path.exists() else "is not there"
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


def _report(said: Mapping[str, Any]) -> Imported:
    problems = tuple(Problem(each["place"], each["why"]) for each in said["problems"])
    return Imported(**{**said, "problems": problems})


# Out


async def export_there(
    link: Link,
    asked: Mapping[str, str],
    target: str | os.PathLike[str] | IO[bytes],
    *,
    progress: Progress | None,
) -> Exported:
    """Write what the server sends to *target*, which appears when it is complete."""
    path = Path(target) if isinstance(target, str | os.PathLike) else None
    request = Request("GET", "/v1/export", asked)
    with _opened(path, target, is_folder=asked["format"] == "markdown") as file:
        async with link.stream(request) as answer:
            lines = _Lines(is_ours=asked["format"] == "jsonl")
            async for piece in answer.aiter_bytes():
                lines.read(piece)
                file.write(piece)
            told = answer.headers.get(_RECORDS)
        records = lines.end(link.address.url) if lines.is_ours else int(told or 0)
    if progress is not None:
        progress(records, records)
    return Exported(records, lines.versions, lines.digest, path)


@contextmanager
def _opened(path: Path | None, target: object, *, is_folder: bool) -> Iterator[IO[bytes]]:
    if path is None:
        file = cast("IO[bytes]", target)
        yield file
        file.flush()
    elif is_folder:
        with new_folder(path) as folder, tempfile.TemporaryFile() as packed:
            yield packed
            with zipfile.ZipFile(packed) as sent:
                sent.extractall(folder)  # which leaves no name that leads out of it
    else:
        with new_file(path, may_pack=True) as file:
            yield file


class _Lines:
    """Reads along: whether our own file is whole, and how much it holds."""

    def __init__(self, *, is_ours: bool) -> None:
        self.is_ours = is_ours
        self.versions = 0
        self.digest = ""
        self._count = -1  # the first line says what the file is
        self._hash = hashlib.sha256()
        self._rest = b""
        self._last: dict[str, Any] = {}

    def read(self, piece: bytes) -> None:
        """Take the next bytes of the file."""
        if not self.is_ours:
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._last = json.loads(line)
            if "end" not in self._last:
                self._hash.update(line + b"\n")
                self._count += 1
                self.versions += len(self._last.get("versions", ()))

    def end(self, where: str) -> int:
        """Return how many memories there are, or raise `MemoryConnectionError` if some lack."""
        said = self._last.get("end") or {}
        self.digest = self._hash.hexdigest()
        if said.get("sha256") != self.digest or said.get("records") != self._count:
            raise MemoryConnectionError(f"`{where}` broke off before the export was whole")
        return self._count
