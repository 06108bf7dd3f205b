"""Records of jobs on disk: one JSON file for each, so that the next server goes on with them.

They stand beside the store, readable by this user alone. While a job is under way its record holds
what it was asked; when it has ended, only what became of it, and no word of a memory. Many servers
may share one folder: each locks a file of its own while it lives, which tells whose jobs are left.
"""

import asyncio
import json
import os
import secrets
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from orbiter.memory.agent import AgentMemory
from orbiter.memory.auth import FileKeys, KeyStore, key_file_for
from orbiter.memory.errors import QueryError, StorageError
from orbiter.memory.server.api.job_record import Beat, Job, JobStore, Record

__all__ = ["JobFiles", "JobFolder", "folder_for", "job_store"]

_MAX_BYTES = 64 * 2**20
_ENDING = ".json"
_LOCK = ".lock"
_NEW = ".new"


def folder_for(memory: AgentMemory, keys: KeyStore | None) -> Path | None:
    """Return where the jobs of a server are kept, beside its keys; `None` for a store in memory."""
    try:
        place = keys.file.path if isinstance(keys, FileKeys) else key_file_for(memory.url)
    except QueryError:  # a store in memory, whose jobs end with it
        return None
    return place.with_name(f"{place.name.removesuffix('.keys.json')}.jobs")


def job_store(memory: AgentMemory, keys: KeyStore | None) -> JobStore | None:
    """Return where the jobs of a server are kept; `None` for a store in memory.

    Over Postgres that is a table, which all servers share, else a folder beside the keys.
    """
    place = folder_for(memory, keys)
    folder = None if place is None else JobFolder(JobFiles(place))
    if folder is None or not memory.url.startswith("postgres"):
        return folder
    from orbiter.memory.server.api.job_table import JobTable  # noqa: PLC0415 - of an extra

    return JobTable(memory, instead=folder)


class JobFiles:
    """The folder at *path*; it is made when the first job comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server = secrets.token_hex(8)
        self._lock: int | None = None
        self._locking = threading.Lock()

    def write(self, record: Record) -> None:
        """Put *record* in the place of the one of its id, and wipe that; it is durable then."""
        try:
            self._lock_file()
            place = self._path / f"{record['id']}{_ENDING}"
            number = secrets.token_hex(4)
            fresh = self._path / f"{record['id']}.{number}.{self._server}{_NEW}"
            with _wiped(place):
                handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(handle, "wb") as file:  # noqa: PTH123 - of a file that is open
                    file.write(json.dumps({"format": 1, **record, "server": self._server}).encode())
                    file.flush()
                    os.fsync(handle)
                fresh.replace(place)
        except OSError as exc:
            raise StorageError(f"a job cannot be written to `{self._path}`: {exc}") from exc

    def remove(self, job_id: str) -> None:
        """Remove a record, and wipe it."""
        place = self._path / f"{job_id}{_ENDING}"
        with suppress(OSError), _wiped(place):
            place.unlink()

    def read(self, job_id: str) -> Record | None:
        """Return the record of a job; `None` if there is none, or it cannot be read."""
        try:
            with (self._path / f"{job_id}{_ENDING}").open("rb") as file:
                record = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        is_record = isinstance(record, dict) and record.get("format") == 1
        return record if is_record and record.get("id") == job_id else None

    def every(self, *, but: Container[str] = ()) -> Iterator[Record]:
        """Yield all records; those of the ids in *but* are not read."""
        with suppress(OSError):
            for place in sorted(self._path.glob(f"*{_ENDING}")):
                job_id = place.name.removesuffix(_ENDING)
                record = None if job_id in but else self.read(job_id)
                if record is not None:
                    yield record

    def prune(self, oldest: datetime, *, most: int) -> None:
        """Remove records of jobs that ended before *oldest*, and of each key all but the newest."""
        ended: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)
        for record in self.every():
            with suppress(ValueError, TypeError, OverflowError):
                if record.get("ended_at"):
                    at = datetime.fromisoformat(record["ended_at"]).astimezone(UTC)
                    ended[str(record.get("owner"))].append((at, record["id"]))
        for several in ended.values():
            for newer, (at, job_id) in enumerate(sorted(several, reverse=True)):
                if newer >= most or at < oldest:
                    self.remove(job_id)

    def reserve(self, record: Record) -> Record | None:
        """Take over a job of a server that is gone; `None` if it lives, or another was faster."""
        server = str(record.get("server"))
        if server == self._server:
            return None
        try:
            with self._other(server) as is_gone:
                current = self.read(record["id"]) if is_gone else None
                if current is None or current.get("server") != server:
                    return None
                self.write(current)
                return current
        except OSError:
            return None

    @contextmanager
    def _other(self, server: str) -> Iterator[bool]:
        """Tell whether another server is gone; while the block runs, nobody else can be told so."""
        handle = os.open(self._path / f"{server}{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield _try_lock(handle)
        finally:
            os.close(handle)

    def _lock_file(self) -> None:
        """Make the folder, and hold the lock of this server until `close`."""
        with self._locking:  # the first records may be written by several threads at once
            if self._lock is not None:
                return
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(
                self._path / f"{self._server}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600
            )
            _try_lock(self._lock)

    def sweep(self) -> None:
        """Wipe what servers had not written to its end when they were killed."""
        with suppress(OSError):
            for place in self._path.glob(f"*{_NEW}"):
                server = place.name.removesuffix(_NEW).rpartition(".")[2]
                if server == self._server:
                    continue
                with self._other(server) as is_gone:
                    if is_gone:
                        with suppress(FileNotFoundError), _wiped(place):
                            place.unlink()

    def close(self) -> None:
        """Let go of the jobs, and leave no empty folder."""
        if self._lock is None:
            return
        os.close(self._lock)
        self._lock = None
        with suppress(OSError):
            (self._path / f"{self._server}{_LOCK}").unlink()
        self._tidy()

    def _tidy(self) -> None:
        """Remove what servers left that were killed, and the folder if it is empty."""
        with suppress(OSError):
            for place in self._path.glob(f"*{_LOCK}"):
                with self._other(place.name.removesuffix(_LOCK)) as is_gone:
                    if is_gone:
                        place.unlink()
            self._path.rmdir()


class JobFolder:
    """Job files as a `JobStore`, shared by the servers of one computer."""

    is_shared = False

    def __init__(self, files: JobFiles) -> None:
        self.files = files

    async def open(self) -> Self:
        """Return itself: the folder is made when the first job comes."""
        return self

    async def begin(self, record: Record) -> None:
        """Write a new record; whoever has its `Idempotency-Key` already was asked before."""
        await self.write(record)

    async def write(self, record: Record, answer: object = None) -> bool:  # noqa: ARG002 - no file has it
        """Put a record in the place of the one before."""
        await asyncio.to_thread(self.files.write, record)
        return True

    async def answer(self, job_id: str) -> None:
        """Remove the record of a job whose report was sent."""
        await self.remove(job_id)

    async def remove(self, job_id: str) -> None:
        """Remove a record, and wipe it."""
        await asyncio.to_thread(self.files.remove, job_id)

    async def read(self, job_id: str) -> Record | None:
        """Return the record of a job; `None` if there is none, or it cannot be read."""
        return await asyncio.to_thread(self.files.read, job_id)

    async def of_owner(
        self, owner: str | None, *, but: Collection[str], everyone: bool = False
    ) -> list[Record]:
        """Return the records of a key, or of all; those of the ids in *but* are not read."""
        records = await asyncio.to_thread(lambda: list(self.files.every(but=but)))
        return [record for record in records if everyone or record.get("owner") == owner]

    async def left(self, *, but: Collection[str]) -> list[Record]:
        """Return all records, also of jobs that have ended; those in *but* are not read."""
        await asyncio.to_thread(self.files.sweep)
        return await asyncio.to_thread(lambda: list(self.files.every(but=but)))

    async def take(self, record: Record) -> bool:
        """Take over a job; not if its server lives, or another was faster."""
        return await asyncio.to_thread(self.files.reserve, record) is not None

    async def beat(self, jobs: Sequence[Job]) -> Beat:  # noqa: ARG002 - as the other has it
        """Return nothing new: the lock of a server says that it lives."""
        return Beat(set(), set(), has_left=False, has_erased=False)

    async def prune(self, *, oldest: datetime, answered: datetime, most: int) -> None:  # noqa: ARG002 - as the other has it
        """Remove what ended before *oldest*, and of each key all but the newest."""
        await asyncio.to_thread(self.files.prune, oldest, most=most)

    async def close(self) -> None:
        """Let go of the jobs, and leave no empty folder."""
        await asyncio.to_thread(self.files.close)


@contextmanager
def _wiped(place: Path) -> Iterator[None]:
    """Overwrite what a file held after the block has taken it from its place."""
    if sys.platform == "win32":  # where a file that is open keeps its place
        yield
        return
    try:
        handle = os.open(place, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        yield
        return
    try:
        yield
        size = os.fstat(handle).st_size
        os.pwrite(handle, b"\0" * size, 0)
        os.fsync(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Lock a file unless another process has; tell whether it is ours."""
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
