"""Erasing in SQLite: what stands beside the rows, the free pages and the journal, and the proof.

Everything after the first transaction may be done again, and is done whether or not that found any
row: whoever was killed, or was kept from finishing by a reader, calls `erase` again.
"""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from orbiter.memory.backends.sql import erase
from orbiter.memory.backends.sql.dialect import Args, Statement, Steps
from orbiter.memory.backends.sql.erase import ErasureTarget, Span, scoped
from orbiter.memory.backends.sql.erase_probes import Probe, Probes, found_in
from orbiter.memory.backends.sqlite import file_checks, maintenance, schema, term_index
from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile
from orbiter.memory.backends.sqlite.dialect import SQLiteDialect
from orbiter.memory.backends.sqlite.idle_tasks import start_over
from orbiter.memory.backends.sqlite.trigram_index import merge_some
from orbiter.memory.errors import MemoryTimeoutError, StorageError
from orbiter.memory.model import episode
from orbiter.memory.model.reports import Erasure

__all__ = [
    "INDEXES",
    "MERGED",
    "PATIENCE",
    "PAUSE",
    "SOURCES",
    "ask_tables",
    "drop_owners",
    "is_written_back",
    "others_hold",
    "read_bytes",
    "remove",
    "scrub",
    "segments",
    "stray",
    "take",
    "unmerged",
]

INDEXES = ("memory_words", "memory_terms")

PATIENCE = 5.0
"""Seconds that the journal waits for readers of what was."""

SOURCES = (
    "memory_items",
    "memory_versions",
    "memory_entries",
    "memory_audit",
    "episodic_memories",
    "memory_vectors",
    "memory_details",
    "memory_models",
    "memory_meta",
)
"""Tables that hold what others said, or nobody; a trace that one of them holds proves nothing."""

_SOME = 200
_BLOCK = 2**20


def take(connection: sqlite3.Connection, target: ErasureTarget, probes: Probes) -> None:
    """Take traces of vectors, and of texts that wait to be taken out of the indexes."""
    args = Args(SQLiteDialect())
    where = scoped(args.dialect, target, args)
    rows = connection.execute(
        "SELECT vectors FROM memory_vectors WHERE place IN"
        f" (SELECT rowid FROM memory_items WHERE {where}) LIMIT {_SOME}",
        args,
    )
    for (blob,) in rows:
        probes.add_bytes(blob)
    for table, column in (("memory_unlisted", "content"), ("memory_unindexed", "indexed")):
        waiting = f"SELECT {column} FROM {table} WHERE typeof({column}) = 'text' LIMIT {_SOME}"
        for (text,) in connection.execute(waiting):
            probes.add_text(text)
    if target.ids is not None:
        return
    wanted = target.wanted
    which, values = _activity(wanted)
    rows = connection.execute(
        f"SELECT agent_id, body FROM episodic_memories WHERE {which} LIMIT {_SOME}", values
    )
    for agent_id, body in rows:
        if agent_id != wanted.get("agent_id"):
            probes.add_id(agent_id)
        probes.add_text(body)
    if "user_id" in wanted:
        probes.add_term(term_index.owner(wanted["user_id"]))


def remove(target: ErasureTarget, span: Span | None) -> Steps[Erasure]:
    """Remove the rows and versions that go; triggers note what the indexes must forget.

    With *span*, only those whose ids are within it; without, also what names the scope elsewhere.
    """
    args = Args(SQLiteDialect())
    where = scoped(args.dialect, target, args, span)
    vectors = yield Statement(
        "SELECT count(DISTINCT place) FROM memory_vectors"
        f" WHERE place IN (SELECT rowid FROM memory_items WHERE {where})",
        args,
    )
    counts = yield from erase.remove(args.dialect, target, span)
    counts = replace(counts, vectors=int(vectors[0][0]))
    if span is not None or target.ids is not None:
        return counts
    which, values = _activity(target.wanted)
    yield Statement(f"DELETE FROM episodic_memories WHERE {which}", values)
    episodes = yield Statement("SELECT changes()")
    # They name users. Who holds vectors in memory and is behind by these reads all of them again.
    yield Statement("DELETE FROM memory_changes")
    return replace(counts, episodes=int(episodes[0][0]))


def _activity(wanted: dict[Any, str]) -> tuple[str, list[str | None]]:
    """Return the condition that a row is recent activity of a scope, and what it binds."""
    return "(agent_id GLOB ?1 OR agent_id = ?2)", [
        episode.pattern_of(wanted),
        episode.own_name(wanted),
    ]


def drop_owners(connection: sqlite3.Connection) -> None:
    """Remove the tokens and names of users of whom nothing is listed."""
    # The tokens of all owners name nobody; `term_index` looks whose there are.
    connection.execute(
        "DELETE FROM memory_owners WHERE passages <= 0 AND token <> '_' AND token NOT GLOB '_all*'"
    )
    connection.execute("DELETE FROM memory_counts WHERE items <= 0")


def segments(connection: sqlite3.Connection) -> dict[str, set[int]]:
    """Return the parts that each index is made of now.

    A text that is taken out of an index leaves its words in the part where they are, and a note in
    another. When all parts are made into a new one, both are gone.
    """
    return {
        name: {row[0] for row in connection.execute(f"SELECT DISTINCT segid FROM {name}_idx")}
        for name in INDEXES
        if _has_table(connection, f"{name}_idx")
    }


def unmerged(connection: sqlite3.Connection, before: dict[str, set[int]]) -> list[str]:
    """Return what is wrong with indexes that should have been rebuilt since *before*."""
    now = segments(connection)
    problems = [
        f"the index `{name}` still has old parts; repeat the erasure"
        for name, parts in before.items()
        if len(parts & now.get(name, set())) > 1
    ]
    unreadable = [
        name
        for name in INDEXES
        if _has_table(connection, name) and not schema.has_index(connection, name)
    ]
    return problems + [
        f"this SQLite cannot read the index `{name}`, so its words stay; erase where SQLite "
        "has FTS5 with trigrams"
        for name in unreadable
    ]


def is_written_back(connection: sqlite3.Connection) -> bool:
    """Write the journal into the file and empty it; tell whether nobody reads what was before."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    # Briefly: other writes of this process wait behind it, and it is tried again.
    connection.execute("PRAGMA busy_timeout = 50")
    try:
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return not busy


# Looking for what is left


def ask_tables(
    connection: sqlite3.Connection, probes: list[Probe]
) -> tuple[int, list[tuple[str, set[Probe]]]]:
    """Return how many tables there are, and which hold traces that nobody else's rows hold."""
    names = _tables(connection)
    left = []
    for name in names:
        if _is_source(name):
            continue
        traces: set[Probe] = set()
        for block in _blocks(connection.execute(f'SELECT * FROM "{name}"')):
            traces |= found_in(block, probes)
        if traces := traces - others_hold(connection, traces):
            left.append((name, traces))
    return len(names), left


def stray(connection: sqlite3.Connection) -> list[str]:
    """Return what stands beside rows that are not there."""
    problems = []
    for table, key, owner in (
        ("memory_vectors", "place", "memory_items"),
        ("memory_unembedded", "place", "memory_items"),
        ("memory_details", "id", "memory_vectors"),
    ):
        (count,) = connection.execute(
            f"SELECT count(*) FROM {table} WHERE {key} NOT IN (SELECT rowid FROM {owner})"
        ).fetchone()
        if count:
            problems.append(f"{count} rows of `{table}` belong to nothing; call `verify`")
    return problems


def others_hold(connection: sqlite3.Connection, traces: set[Probe]) -> set[Probe]:
    """Return the traces that rows which stay hold by right: another said the same, in any case."""
    held: set[Probe] = set()
    sources = [f'SELECT * FROM "{name}"' for name in _tables(connection) if _is_source(name)]
    for sql in ["SELECT sql FROM sqlite_master", *sources] if traces else []:
        for block in _blocks(connection.execute(sql)):
            folded = block.decode(errors="replace").casefold().encode(errors="replace")
            held |= found_in(block, traces - held)
            held |= {probe for probe in traces - held if _folded(probe) in folded}
    return held | _listed(connection, traces - held)


def _folded(probe: Probe) -> bytes:
    return probe.trace.decode(errors="replace").casefold().encode(errors="replace")


def _listed(connection: sqlite3.Connection, traces: set[Probe]) -> set[Probe]:
    """Return the parts of terms that are those of rows which are listed now."""
    if not traces or not schema.has_index(connection, "memory_terms"):
        return set()
    held: set[Probe] = set()
    connection.execute(
        "CREATE VIRTUAL TABLE temp.memory_vocabulary USING fts5vocab('main', 'memory_terms', 'row')"
    )
    try:
        for block in _blocks(connection.execute("SELECT term FROM temp.memory_vocabulary")):
            held |= found_in(block, traces - held)
    finally:
        connection.execute("DROP TABLE temp.memory_vocabulary")
    return held


def _blocks(rows: Iterable[Iterable[object]]) -> Iterator[bytes]:
    """Return all values, joined into blocks: to look through few long ones is cheaper."""
    parts: list[bytes] = []
    size = 0
    for row in rows:
        for value in row:
            if isinstance(value, str | bytes):
                part = value if isinstance(value, bytes) else value.encode(errors="replace")
                parts.append(part)
                size += len(part)
        if size > _BLOCK:
            yield b"\0".join(parts)
            parts, size = [], 0
    yield b"\0".join(parts)


def read_bytes(read: Callable[[int, int], bytes], probes: list[Probe]) -> tuple[int, set[Probe]]:
    """Return how many bytes *read* gives, from 0 on, and the traces among them."""
    traces: set[Probe] = set()
    at, tail = 0, b""
    overlap = max((len(probe.trace) for probe in probes), default=1) - 1
    while block := read(_BLOCK, at):
        traces |= found_in(tail + block, [probe for probe in probes if probe not in traces])
        at += len(block)
        tail = block[len(block) - overlap :] if overlap else b""
    return at, traces


def _tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    )
    return [name for (name,) in rows]


def _is_source(name: str) -> bool:
    return name in SOURCES


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    row = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [name]).fetchone()
    return row is not None


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
            problems.append(f"{exc}; then repeat the erasure")
    tables, left = await file.read(partial(ask_tables, probes=probes))
    problems += [f"the table `{name}` holds {len(each)} traces of it" for name, each in left]
    problems += await file.read(stray)
    in_tables = Erasure(tables=tables, probes=len(probes), problems=tuple(problems))
    return in_tables if file.path == ":memory:" else in_tables + await _read_files(file, probes)


async def _clean_indexes(file: SQLiteFile, forget: Callable[[], Awaitable[None]]) -> list[str]:
    await file.read(start_over, writing=True)
    await forget()
    await file.write(drop_owners)
    parts = await file.read(segments, writing=True)
    for table in INDEXES:
        merge = partial(merge_some, table=table, pages=MERGED)
        restart = True
        while await file.read(partial(merge, restart=restart), writing=True):
            restart = False
    return await file.read(partial(unmerged, before=parts), writing=True)


async def _clean_pages(file: SQLiteFile) -> list[str]:
    # Pages are rewritten from what is there: the room of what was removed earlier, inside of
    # pages, too, is cleaned by nothing less.
    await file.read(maintenance.vacuum_only, writing=True)
    until = monotonic() + PATIENCE
    while not await file.read(is_written_back, writing=True):
        if monotonic() > until:
            message = (
                f"`{file.path}` is read by someone who began before, so what was erased is still"
            )
            return [f"{message} in it or its journal; repeat the erasure when that reader is done"]
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
                size, traces = await asyncio.to_thread(read_bytes, read, probes)
            else:
                size, traces = await asyncio.to_thread(_read_journal, name, probes)
        except FileNotFoundError:  # the last of the others has just closed it
            continue
        except OSError as exc:
            problems.append(f"`{name}` could not be read: {exc.strerror}; repeat the erasure")
            continue
        total += size
        files.append(name)
        if traces:
            traces -= await file.read(partial(others_hold, traces=traces))
        if traces:
            problems.append(f"`{name}` holds {len(traces)} traces of it; repeat the erasure")
    return Erasure(files=tuple(files), bytes_read=total, problems=tuple(problems))


def _read_journal(name: str, probes: list[Probe]) -> tuple[int, set[Probe]]:
    # SQLite locks the file and what stands in `-shm`, never this one: it may be closed.
    with Path(name).open("rb") as journal:
        return read_bytes(partial(os.pread, journal.fileno()), probes)
