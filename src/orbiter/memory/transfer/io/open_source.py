"""Opening what somebody brought: a file, a folder, a zip or a gzip, as a `SourceFile`.

Archives in archives are not followed, nor are links in a folder; nothing is unpacked to a place
that a file names.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.io.archives import (
    GZIP,
    ZIP,
    Limits,
    gzip_chunks,
    is_archive_name,
    zip_chunks,
    zip_members,
)
from orbiter.memory.transfer.io.source_file import SourceFile, Tally
from orbiter.memory.transfer.report import ReportProblem

__all__ = ["open_source"]

_CHUNK = 2**18


@contextmanager
def open_source(
    path: str | os.PathLike[str],
    *,
    complain: ReportProblem = lambda _place, _why: None,
    limits: Limits | None = None,
    tally: Tally | None = None,
) -> Iterator[SourceFile]:
    """Open what is at *path*; what was unpacked for it is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="orbiter-memory-") as folder:
        opening = _Opening(limits or Limits(), complain, tally or Tally(), Path(folder))
        yield opening.source(Path(path))


@dataclass(frozen=True, slots=True)
class _Opening:
    """What all files of one import share."""

    limits: Limits
    complain: ReportProblem
    tally: Tally
    folder: Path
    """Where members of archives are unpacked to that must be files."""
    unpacked: dict[str, Path] = field(default_factory=dict)

    def source(self, path: Path) -> SourceFile:
        if path.is_dir():
            paths = self._walk(path)
            self.tally.total = sum(each.stat().st_size for each in paths)
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
            members = zip_members(path, self.limits)
            self.tally.total = sum(info.file_size for info in members)
            names = [info.filename for info in members]
            return self._container(path, partial(self._in_zip, path, names))
        self.tally.total = path.stat().st_size
        return self._file(path, path.name, self.complain)

    def _container(self, path: Path, files: Callable[[], Iterator[SourceFile]]) -> SourceFile:
        return SourceFile(
            path.name, self.limits, self.tally, self.complain, lambda: iter(()), lambda: path, files
        )

    def _file(self, path: Path, name: str, complain: ReportProblem) -> SourceFile:
        if _head(path).startswith(GZIP):
            chunks = partial(gzip_chunks, path, self.limits, self.tally.add)
            return self._packed(name.removesuffix(".gz"), str(path), chunks, complain)
        chunks = partial(_chunks, path, self.tally)
        return SourceFile(name, self.limits, self.tally, complain, chunks, lambda: path)

    def _packed(
        self, name: str, key: str, chunks: Callable[[], Iterator[bytes]], complain: ReportProblem
    ) -> SourceFile:
        unpacked = partial(self._unpack, key, chunks)
        return SourceFile(name, self.limits, self.tally, complain, chunks, unpacked)

    def _unpack(self, key: str, chunks: Callable[[], Iterator[bytes]]) -> Path:
        """Return a file of ours with the bytes; no part of its name is the archive's."""
        if key not in self.unpacked:
            path = self.folder / str(len(self.unpacked))
            with path.open("wb") as file:
                file.writelines(chunks())
            self.unpacked[key] = path
        return self.unpacked[key]

    def _within(self, name: str) -> ReportProblem:
        return lambda place, why: self.complain(f"{name}, {place}", why)

    def _in_zip(self, path: Path, names: list[str]) -> Iterator[SourceFile]:
        for name in names:
            if is_archive_name(name):
                self.complain(name, "an archive in an archive is not opened; unpack it")
                continue
            chunks = partial(zip_chunks, path, name, self.tally.add)
            yield self._packed(name, f"{path}\0{name}", chunks, self._within(name))

    def _in_folder(self, folder: Path, paths: list[Path]) -> Iterator[SourceFile]:
        for path in paths:
            name = path.relative_to(folder).as_posix()
            try:
                head = _head(path)
            except OSError as exc:
                self.complain(name, f"it cannot be read: {exc.strerror}")
                continue
            if head.startswith(ZIP):
                self.complain(name, "an archive in a folder is not opened; import it by itself")
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
                    self.complain(path.relative_to(folder).as_posix(), "a link is not followed")
                    continue
                paths.append(path)
                if len(paths) > self.limits.members:
                    raise TransferError(
                        f"`{folder}` holds more than {self.limits.members:,} files; give a "
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
