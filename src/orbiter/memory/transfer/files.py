"""`import_file` and `export_file`: a handle's memories from a file, and to one.

A file is read in a thread, so that the loop stays free, one batch ahead of the storing.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.agent import AgentMemory, ScopedMemory
from orbiter.memory.agent.interface import ScopeSession, session_of
from orbiter.memory.agent.keywords import checked_keywords
from orbiter.memory.agent.runtime import Store
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import Query, require_text
from orbiter.memory.tasks.event_loop import to_end
from orbiter.memory.tasks.worker_threads import FileThread
from orbiter.memory.transfer import export_formats
from orbiter.memory.transfer.export_formats import format_for
from orbiter.memory.transfer.formats.importer import Columns
from orbiter.memory.transfer.formats.registry import AUTO, EXPORTS, NATIVE, WRITTEN
from orbiter.memory.transfer.import_batches import store_batch
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.open_source import open_source
from orbiter.memory.transfer.native import ExportResult, export_records, is_native, store_records
from orbiter.memory.transfer.native_rewrite import NativeRewrite, Sender
from orbiter.memory.transfer.reader import Reader, ReadItem, refuse_columns
from orbiter.memory.transfer.report import ImportResult, Report, note_stored

__all__ = ["FileEngine", "export_file", "import_file", "import_sent"]


@checked_keywords("import_file")
async def import_file(  # noqa: PLR0913 - what a file is, whose, and what its columns are
    handle: ScopedMemory,
    path: str | os.PathLike[str],
    *,
    format: str = AUTO,
    owner: str | None = None,
    text: str | None = None,
    at: str | None = None,
    user_column: str | None = None,
    day_first: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
    limits: Limits | None = None,
) -> ImportResult:
    """Store what the file, folder or archive at *path* holds as memories of the handle's scope.

    *format* is one of `import_formats()`; `auto` looks at the file. *owner* says whose memories are
    taken of a file that holds those of several people, or which session of one with sessions. Of a
    file that `export_file` wrote for another user, it makes copies for the handle's user, with
    their versions, tags and times, under new ids; without it, such a file is an `AccessError`.
    Importing the same again stores nothing; what has changed in the file is updated, and what was
    forgotten here stays forgotten. What cannot be read is among the `problems` of the result, with
    its line, and the rest is stored. A handle of `unscoped()` takes only files that say whose each
    memory is, or that `export_file` wrote.
    Of a table, *text* names the column that is the memory, *at* the one that says when, and
    *user_column* the one that says whose it is; all others go to `metadata.extra`. *day_first*
    says whether `3/4/2026` is in April, if the file does not tell.
    *progress* is told how many bytes of how many are read.
    """
    session = _session_of(handle, call="import_file")
    columns = Columns(text, at, user_column, day_first)
    if isinstance(session.engine, FileEngine):
        path = _check_path(path)
        if limits is not None:
            raise UnsupportedError("`limits` are the server's; leave them out for a memory on one")
        return await session.engine.import_file(
            session, path, format=format, owner=owner, columns=columns, progress=progress
        )
    return await import_sent(
        handle,
        path,
        format=format,
        owner=owner,
        columns=columns,
        progress=progress,
        limits=limits,
    )


async def import_sent(
    handle: ScopedMemory,
    path: str | os.PathLike[str],
    *,
    format: str = AUTO,
    owner: str | None = None,
    columns: Columns | None = None,
    progress: Callable[[int, int], None] | None = None,
    limits: Limits | None = None,
    sender: Sender | None = None,
) -> ImportResult:
    """Do what `import_file` does, here; a file of ours may be from a *sender* who may little."""
    session, path = _session_of(handle, call="import_file"), _check_path(path)
    if owner is not None:
        require_text("owner", owner)
    core, scope, columns = session.core, session.scope, columns or Columns()
    store = await core.opened(scope)
    report = Report()
    own = scope if Query(metadata=scope).wanted else None
    reader = Reader(
        path,
        scope,
        format=format,
        owner=owner,
        limits=limits,
        report=report,
        columns=columns,
        needs_owner=own is None,
        redaction=core.redaction.for_files(),
    )
    aside = FileThread()
    try:
        if format == NATIVE or (format == AUTO and await aside.run(_is_ours, path, limits)):
            refuse_columns(columns, NATIVE, path)
            return await store_records(
                store,
                Path(path),
                scope=own,
                progress=progress,
                limits=limits,
                owner=owner,
                rewriter=_rewriter(store, scope, sender, owner),
            )
        await aside.run(reader.open)
        coming = aside.run(reader.batch)
        while batch := await _next(coming, report):
            coming = aside.run(reader.batch)
            # A Ctrl-C waits for it: what is stored is counted, and what is counted is stored.
            with note_stored(report.stored + report.updated):
                written, updated = await to_end(store_batch(store, scope, batch, report))
            if updated:
                await session.chats.changed(store, updated)
            if written:
                core.events.emit_items("remembered", written)
            if progress is not None:
                progress(reader.tally.done, reader.tally.total)
    finally:
        reader.tally.is_stopped = True
        await aside.leave(reader.close)
    if progress is not None:
        progress(reader.tally.total, reader.tally.total)
    return report.finished()


async def _next(coming: Awaitable[list[ReadItem]], report: Report) -> list[ReadItem]:
    with note_stored(report.stored + report.updated):
        return await coming


def _is_ours(path: str | os.PathLike[str], limits: Limits | None) -> bool:
    with open_source(path, limits=limits) as source:
        return is_native(source.head())


def _rewriter(
    store: Store, scope: MemoryMetadata, sender: Sender | None, owner: str | None
) -> NativeRewrite | None:
    other = None if scope.user_id in (None, owner) else owner  # its own memories stay as they are
    if sender is None and other is None:
        return None
    return NativeRewrite(store, scope, sender=sender, owner=other)


@checked_keywords("export_file")
async def export_file(
    handle: ScopedMemory,
    target: str | os.PathLike[str] | IO[bytes],
    *,
    format: str = AUTO,
    progress: Callable[[int, int], None] | None = None,
) -> ExportResult:
    """Write the handle's memories to a new file, which appears when it is complete.

    `jsonl` holds everything, earlier versions and forgotten memories included, and comes back
    exactly; a binary file object takes it, too. `csv`, `markdown` (a folder), `openai`
    (conversations) and `mcp` hold what is remembered now: of facts, those that hold. `auto` goes by
    the ending: `.csv` is a table, a name that ends in `/` a folder of notes, `.jsonl` or no ending
    is `jsonl`. A name that ends in `.gz` is packed. An ending that contradicts *format* is a
    `TransferError`.
    """
    format = format_for(target, format, known=WRITTEN)
    session = _session_of(handle, call="export_file")
    place = _at_home(target)
    if isinstance(session.engine, FileEngine):
        return await session.engine.export_file(session, place, format=format, progress=progress)
    store = await session.store()
    own = session.filter
    total = await store.count(metadata=own)
    if format == NATIVE or not isinstance(place, Path):  # only that takes a stream
        return await export_records(
            store,
            place,
            metadata=own,
            embedding_model=session.core.embeddings,
            total=total,
            progress=progress,
        )
    written = 0

    def on_progress() -> None:
        nonlocal written
        written += 1
        if progress is not None:
            progress(written, max(total, written))

    write = getattr(export_formats, EXPORTS[format].writer)
    await write(store, own, place, on_progress)
    if progress is not None:
        progress(written, written)  # what is left out will not come any more
    return ExportResult(written, 0, "", place)


def _at_home(target: str | os.PathLike[str] | IO[bytes]) -> Path | IO[bytes]:
    """Return where to write: a path, with the user's home for `~`, or the file object."""
    return Path(target).expanduser() if isinstance(target, str | os.PathLike) else target


@runtime_checkable
class FileEngine(Protocol):
    """An engine whose store is behind a server, which reads and writes files by itself."""

    async def import_file(
        self,
        session: ScopeSession,
        path: str | os.PathLike[str],
        *,
        format: str,
        owner: str | None,
        columns: Columns,
        progress: Callable[[int, int], None] | None,
    ) -> ImportResult:
        """Send the file, and return what became of it."""
        ...

    async def export_file(
        self,
        session: ScopeSession,
        target: str | os.PathLike[str] | IO[bytes],
        *,
        format: str,
        progress: Callable[[int, int], None] | None,
    ) -> ExportResult:
        """Write what the server sends."""
        ...


def _session_of(handle: object, *, call: str) -> ScopeSession:
    """Return what a handle is made of; `QueryError` if it is none. *call* is who asks."""
    if isinstance(handle, ScopedMemory):
        return session_of(handle)
    if isinstance(handle, AgentMemory):
        raise QueryError(
            f"`{call}` needs to know whose memories: give it `memory.scope(user_id=…)`, not the "
            "`AgentMemory`; use `memory.unscoped()` for everyone's"
        )
    if getattr(handle, "is_blocking", False):
        return session_of(handle)  # type: ignore[arg-type]  # which says who takes a blocking one
    raise QueryError(
        f"`{call}` takes a handle such as `memory.scope(user_id=…)` first, not a "
        f"`{type(handle).__name__}`"
    )


def _check_path(path: object) -> str:
    """Return the name of a file, with the user's home for `~`; `QueryError` for anything else."""
    if isinstance(path, dict | list):
        raise QueryError(
            f"`import_file` reads files, not a `{type(path).__name__}`; write it to one first: "
            '`json.dump(found, open("found.json", "w"), default=str)`'
        )
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise QueryError(f"`import_file` takes the path of a file or a folder, not {path!r}")
    return os.path.expanduser(path)  # noqa: PTH111 - it stays a text
