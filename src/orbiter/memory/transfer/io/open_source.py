"""Opening what somebody brought: a file, a folder, a zip or a gzip, as `SourceFile`s.

Archives in archives are not followed, nor are links in a folder; nothing is unpacked to a place
that a file names.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.importer import ReportProblem
from orbiter.memory.transfer.io.archives import (
    GZIP,
    ZIP,
    Limits,
    gzip_chunks,
    is_archive_name,
    zip_chunks,
    zip_members,
)
from orbiter.memory.transfer.io.opened_file import OpenedFile

__all__ = ["Tally", "open_source"]

_CHUNK = 2**18


class Tally:
    """How many bytes of how many have been read, as far as that can be told, and which files."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self.is_stopped = False
        """Set from outside, to read no further."""
        self.unread: dict[str, None] = {}
        """The files of a folder or an archive that nobody has looked into, in their order."""

    def add(self, count: int) -> None:
        """Count *count* bytes more; a `TransferError` if nobody waits for them any more."""
        if self.is_stopped:
            raise TransferError("the import was cancelled")
        self.done = min(self.done + count, self.total)


@contextmanager
def open_source(
    path: str | os.PathLike[str],
    *,
    complain: ReportProblem,
    limits: Limits | None = None,
    tally: Tally | None = None,
) -> Iterator[OpenedFile]:
    """Open what is at *path*; what was unpacked for it is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="orbiter-memory-") as folder:
        opening = _Opening(limits or Limits(), complain, tally or Tally(), Path(folder))
        yield opening.at(Path(path))


class _Opening:
    """What all files of one import share."""

    def __init__(self, limits: Limits, complain: ReportProblem, tally: Tally, folder: Path) -> None:
        self._limits = limits
        self._complain = complain
        self._tally = tally
        self._folder = folder
        self._unpacked: dict[str, Path] = {}

    def _is_stopped(self) -> bool:
        return self._tally.is_stopped

    def _looked(self, name: str, chunks: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
        self._tally.unread.pop(name, None)
        return chunks()

    def _path_on_disk(self, name: str, path: Callable[[], Path]) -> Path:
        self._tally.unread.pop(name, None)
        return path()

    def at(self, path: Path) -> OpenedFile:
        if path.is_dir():
            paths = self._walk(path)
            self._tally.total = sum(each.stat().st_size for each in paths)
            return self._container(path, partial(self._in_folder, path, paths))
        try:
            # Whether it is a file before it is opened: a pipe would wait for ever.
            head = _head(path) if path.is_file() else None
        except OSError as exc:
            raise TransferError(f"`{path}` cannot be read: {exc.strerror}") from exc
        if head is None:
            what = "is neither a file nor a folder" if path.exists() else "does not exist"
            raise TransferError(f"`{path}` {what}; give the path of an export")
        if head.startswith(ZIP):
            members = zip_members(path, self._limits)
            self._tally.total = sum(info.file_size for info in members)
            names = [info.filename for info in members]
            return self._container(path, partial(self._in_zip, path, names))
        self._tally.total = path.stat().st_size
        return self._file(path, path.name, self._complain)

    def _container(self, path: Path, members: Callable[[], Iterator[OpenedFile]]) -> OpenedFile:
        return OpenedFile(
            path.name,
            lambda: iter(()),
            limits=self._limits,
            complain=self._complain,
            on_disk=lambda: path,
            is_stopped=self._is_stopped,
            members=members,
        )

    def _file(self, path: Path, name: str, complain: ReportProblem) -> OpenedFile:
        if _head(path).startswith(GZIP):
            chunks = partial(gzip_chunks, path, self._limits, self._tally.add)
            return self._packed(name.removesuffix(".gz"), str(path), chunks, complain)
        return OpenedFile(
            name,
            partial(self._looked, name, partial(_chunks, path, self._tally)),
            limits=self._limits,
            complain=complain,
            on_disk=partial(self._path_on_disk, name, lambda: path),
            is_stopped=self._is_stopped,
        )

    def _packed(
        self, name: str, key: str, chunks: Callable[[], Iterator[bytes]], complain: ReportProblem
    ) -> OpenedFile:
        return OpenedFile(
            name,
            partial(self._looked, name, chunks),
            limits=self._limits,
            complain=complain,
            on_disk=partial(self._path_on_disk, name, partial(self._unpack, key, chunks)),
            is_stopped=self._is_stopped,
        )

    def _unpack(self, key: str, chunks: Callable[[], Iterator[bytes]]) -> Path:
        """Return a file of ours with the bytes; no part of its name is the archive's."""
        if key not in self._unpacked:
            path = self._folder / str(len(self._unpacked))
            with path.open("wb") as file:
                file.writelines(chunks())
            self._unpacked[key] = path
        return self._unpacked[key]

    def _within(self, name: str) -> ReportProblem:
        return lambda place, why: self._complain(f"{name}, {place}", why)

    def _in_zip(self, path: Path, names: list[str]) -> Iterator[OpenedFile]:
        for name in names:
            if is_archive_name(name):
                self._complain(name, "an archive in an archive is not opened; unpack it")
                continue
            chunks = partial(zip_chunks, path, name, self._tally.add)
            yield self._packed(name, f"{path}\0{name}", chunks, self._within(name))

    def _in_folder(self, folder: Path, paths: list[Path]) -> Iterator[OpenedFile]:
        for path in paths:
            name = path.relative_to(folder).as_posix()
            try:
                head = _head(path)
            except OSError as exc:
                self._complain(name, f"it cannot be read: {exc.strerror}")
                continue
            if head.startswith(ZIP):
                self._complain(name, "an archive in a folder is not opened; import it by itself")
                continue
            yield self._file(path, name, self._within(name))

    def _walk(self, folder: Path) -> list[Path]:
        paths = []
        for place, folders, files in os.walk(folder):
            # What is hidden is a program's own: `.git`, `.obsidian`.
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                path = Path(place, name)
                if name.startswith(".") or not path.is_file():
                    continue
                if path.is_symlink():
                    self._complain(path.relative_to(folder).as_posix(), "a link is not followed")
                    continue
                paths.append(path)
                if len(paths) > self._limits.members:
                    raise TransferError(
                        f"`{folder}` holds more than {self._limits.members:,} files; give a "
                        "folder below it, or raise the limit with `Limits(members=…)`"
                    )
        return sorted(paths)


def _head(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(4)


def _chunks(path: Path, tally: Tally) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            tally.add(len(chunk))
            yield chunk
