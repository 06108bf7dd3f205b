"""What `erase` does to a SQLite file after the rows are gone, in order, and how it makes sure."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import monotonic

from orbiter.memory.backends.sql.erase_probes import Probe
from orbiter.memory.backends.sqlite import erase, file_checks, maintenance
from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile
from orbiter.memory.backends.sqlite.trigram_index import merge_some
from orbiter.memory.errors import MemoryTimeoutError, StorageError
from orbiter.memory.model.reports import Erasure

__all__ = ["MERGED", "PAUSE", "scrub"]

PAUSE = 0.02

MERGED = 16
"""Pages of an index written at a time. Many more are read for each, if most of it was erased."""


async def scrub(
    file: SQLiteFile, probes: list[Probe], forget: Callable[[], Awaitable[None]]
) -> Erasure:
    """Clean the indexes, the free pages and the journal; look for *probes* everywhere.

    *forget* takes what waits out of the indexes.
    """
    problems: list[str] = []
    for step in (partial(_clean_indexes, file, forget), partial(_clean_pages, file)):
        try:
            problems += await step()
        except (MemoryTimeoutError, StorageError) as exc:
            problems.append(f"{exc}; then call `erase` again")
    tables, left = await file.read(partial(erase.ask_tables, probes=probes))
    problems += [f"the table `{name}` holds {len(each)} traces of it" for name, each in left]
    problems += await file.read(erase.stray)
    asked = Erasure(tables=tables, probes=len(probes), problems=tuple(problems))
    return asked if file.path == ":memory:" else asked + await _read_files(file, probes)


async def _clean_indexes(file: SQLiteFile, forget: Callable[[], Awaitable[None]]) -> list[str]:
    await forget()
    await file.write(erase.drop_owners)
    parts = await file.read(erase.segments, writing=True)
    for table in erase.INDEXES:
        merge = partial(merge_some, table=table, pages=MERGED)
        anew = True
        while await file.read(partial(merge, anew=anew), writing=True):
            anew = False
    return await file.read(partial(erase.unmerged, before=parts), writing=True)


async def _clean_pages(file: SQLiteFile) -> list[str]:
    # Pages are written anew from what is there: the room of what was removed earlier, inside of
    # pages, too, is cleaned by nothing less.
    await file.read(maintenance.vacuum_only, writing=True)
    until = monotonic() + erase.PATIENCE
    while not await file.read(erase.is_written_back, writing=True):
        if monotonic() > until:
            told = f"`{file.path}` is read by someone who began before, so what was erased is still"
            return [f"{told} in it or its journal; call `erase` again when that reader is done"]
        await asyncio.sleep(PAUSE)
    return []


async def _read_files(file: SQLiteFile, probes: list[Probe]) -> Erasure:
    """Read every byte of the file and of its journals."""
    total, problems, files, path = 0, [], [], file.path
    for name in (path, f"{path}-wal", f"{path}-journal"):
        try:
            if name == path:
                number = await file.read(partial(file_checks.descriptor, path=path), writing=True)
                assert number is not None  # noqa: S101 - it is a file
                read = partial(os.pread, number)
                size, found = await asyncio.to_thread(erase.read_bytes, read, probes)
            else:
                size, found = await asyncio.to_thread(_read_journal, name, probes)
        except FileNotFoundError:  # the last of the others has just closed it
            continue
        except OSError as exc:
            problems.append(f"`{name}` could not be read: {exc.strerror}; call `erase` again")
            continue
        total += size
        files.append(name)
        if found:
            found -= await file.read(partial(erase.others_hold, found=found))
        if found:
            problems.append(f"`{name}` holds {len(found)} traces of it; call `erase` again")
    return Erasure(files=tuple(files), bytes_read=total, problems=tuple(problems))


def _read_journal(name: str, probes: list[Probe]) -> tuple[int, set[Probe]]:
    # SQLite locks the file and what stands in `-shm`, never this one: it may be closed.
    with Path(name).open("rb") as journal:
        return erase.read_bytes(partial(os.pread, journal.fileno()), probes)
