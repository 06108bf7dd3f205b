"""`import_file` and `export_file`: a handle's memories from a file, and to one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent.keywords import checked_keywords
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.transfer import export_formats
from orbiter.memory.transfer._import import FileEngine, check_path, import_into, session_for
from orbiter.memory.transfer.export_formats import format_for
from orbiter.memory.transfer.formats.importer import Columns
from orbiter.memory.transfer.formats.registry import AUTO, EXPORTS, NATIVE, WRITTEN
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.native import ExportResult, export_records
from orbiter.memory.transfer.report import ImportResult

if TYPE_CHECKING:
    from orbiter.memory.transfer.native_rewrite import Sender

__all__ = ["export_file", "import_file", "import_sent"]


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
    session = session_for(handle, call="import_file")
    columns = Columns(text, at, user_column, day_first)
    if isinstance(session.engine, FileEngine):
        path = check_path(path)
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
    sender: "Sender | None" = None,
) -> ImportResult:
    """Do what `import_file` does, here; a file of ours may be from a *sender* who may little."""
    session = session_for(handle, call="import_file")
    return await import_into(
        session.core,
        session.scope,
        path,
        format=format,
        owner=owner,
        columns=columns,
        progress=progress,
        limits=limits,
        changed=session.chats.changed,
        sender=sender,
    )


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
    session = session_for(handle, call="export_file")
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
