"""Import of a file into one scope: what it is given, and what is new, changed or forgotten.

Reading happens in a thread, so that the loop stays free, one batch ahead of the storing. What is
new in a batch is stored as one step; what is stored stays when a later one fails, and is found
again.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.agent import AgentMemory, ScopedMemory
from orbiter.memory.agent.interface import ScopeSession, session_of
from orbiter.memory.agent.runtime import Core, Store, keeps_versions
from orbiter.memory.errors import QueryError, VersionConflict
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query, require_text
from orbiter.memory.tasks.event_loop import to_end
from orbiter.memory.tasks.worker_threads import FileThread
from orbiter.memory.transfer.formats.importer import Columns
from orbiter.memory.transfer.formats.registry import NATIVE
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.open_source import open_source
from orbiter.memory.transfer.native import is_native, store_records
from orbiter.memory.transfer.reader import IMPORTED, Reader, ReadItem, refuse_columns
from orbiter.memory.transfer.report import ImportResult, Report, note_stored

if TYPE_CHECKING:
    from orbiter.memory.transfer.native import ExportResult
    from orbiter.memory.transfer.native_rewrite import NativeRewrite, Sender
__all__ = ["FileEngine", "check_path", "import_into", "session_for"]

Changed = Callable[[Store, Sequence[MemoryItem]], Awaitable[None]]


async def import_into(  # noqa: PLR0913 - what a file is, and whose
    core: Core,
    scope: MemoryMetadata,
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    owner: str | None = None,
    columns: Columns | None = None,
    progress: Callable[[int, int], None] | None = None,
    limits: Limits | None = None,
    changed: Changed | None = None,
    sender: "Sender | None" = None,
) -> ImportResult:
    """Store what the file, folder or archive at *path* holds as memories of *scope*.

    *owner* says whose memories are taken of a file that holds those of several, *columns* what
    those of a table are. Importing the same
    again stores nothing; what has changed in the file is updated, and what was forgotten here stays
    forgotten. *progress* is told how many bytes of how many are read, *changed* which messages are
    not what they were. What a *sender* says of ids and of who did what is not simply believed.
    """
    path = check_path(path)
    if owner is not None:
        require_text("owner", owner)
    store = await core.opened(scope)
    report = Report()
    own = scope if Query(metadata=scope).wanted else None
    columns = columns or Columns()
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
        if format == NATIVE or (format == "auto" and await aside.run(_is_ours, path, limits)):
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
                written, updated = await to_end(_store(store, scope, batch, report))
            if updated and changed is not None:
                await changed(store, updated)
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
    with open_source(path, complain=lambda _place, _why: None, limits=limits) as source:
        return is_native(source.head())


def _rewriter(
    store: Store, scope: MemoryMetadata, sender: "Sender | None", owner: str | None
) -> "NativeRewrite | None":
    other = None if scope.user_id in (None, owner) else owner  # its own memories stay as they are
    if sender is None and other is None:
        return None
    from orbiter.memory.transfer.native_rewrite import NativeRewrite  # noqa: PLC0415 - seldom needed

    return NativeRewrite(store, scope, sender=sender, owner=other)


@dataclass
class _Plan:
    """What becomes of the things of a batch, by what the store holds."""

    new: dict[str, ReadItem] = field(default_factory=dict)
    changed: list[tuple[ReadItem, MemoryItem]] = field(default_factory=list)
    """With what is there of each."""
    unchanged: int = 0
    forgotten: int = 0
    twice: list[ReadItem] = field(default_factory=list)
    """What stands under a name that something else in the batch has."""


async def _store(
    store: Store, scope: MemoryMetadata, batch: Sequence[ReadItem], report: Report
) -> tuple[list[MemoryItem], list[MemoryItem]]:
    """Store what is new or changed; return all that was written, and what was there before.

    What is new is one step, and only if it is new: who imports the same at once writes no second
    version. What has changed is written over what was looked at.
    """
    own = scope if Query(metadata=scope).wanted else None
    plan = await _plan(store, own, batch)
    while plan.new and not await store.insert([one.item for one in plan.new.values()]):
        before, plan = plan.new.keys(), await _plan(store, own, batch)
        if plan.new.keys() == before:  # no one of ours has come: an id is another's
            await store.add_many([one.item for one in plan.new.values()], within=own)
            break
    are_ours = await asyncio.gather(
        *(_update(store, own, one, there) for one, there in plan.changed)
    )
    updated = [
        one.item for (one, _), is_ours in zip(plan.changed, are_ours, strict=True) if is_ours
    ]
    written = [*(one.item for one in plan.new.values()), *updated]
    report.stored += len(plan.new)
    report.updated += len(updated)
    report.unchanged += plan.unchanged + len(plan.changed) - len(updated)
    report.skipped += plan.forgotten + len(plan.twice)
    report.forgotten += plan.forgotten
    for one in plan.twice:
        report.complain(one.place, "another memory has the same name")
    return written, updated


async def _plan(store: Store, own: MemoryMetadata | None, batch: Sequence[ReadItem]) -> _Plan:
    """Tell what is new in a batch, what has changed, and what stays as it is."""
    ids = list({one.item.id for one in batch})
    wanted = {"id": {"$in": ids}}
    # First: what another stores meanwhile is then found, and not taken for forgotten.
    used = set() if keeps_versions(store) else await store.used_ids(ids)
    stored = await store.search(metadata=own, where=wanted, limit=len(batch))
    there = {item.id: item for item in stored}
    forgotten = used - there.keys()
    if keeps_versions(store):
        gone = await store.search(metadata=own, where=wanted, limit=len(batch), deleted=True)
        forgotten = {item.id for item in gone}
    plan, seen = _Plan(), dict[str, str]()
    for one in batch:
        item_id, before = one.item.id, there.get(one.item.id)
        if item_id in seen:
            if seen[item_id] == one.digest:
                plan.unchanged += 1
            else:
                plan.twice.append(one)
        elif before is not None and before.metadata.extra.get(IMPORTED) == one.digest:
            plan.unchanged += 1
        elif item_id in forgotten:
            plan.forgotten += 1
        else:
            seen[item_id] = one.digest
            if before is None:
                plan.new[item_id] = one
            else:
                plan.changed.append((one, before))
    return plan


async def _update(
    store: Store, own: MemoryMetadata | None, one: ReadItem, there: MemoryItem | None
) -> bool:
    """Write what a file says over what is there; tell whether nobody else has."""
    while there is not None and there.metadata.extra.get(IMPORTED) != one.digest:
        # The rest is the file's; `created_at` is kept by the store.
        one.item.__dict__["status"] = there.status
        one.item.__dict__["updated_at"] = datetime.now(UTC)
        try:
            await store.add(one.item, expected_version=there.version, within=own)
        except VersionConflict:
            there = await store.get(one.item.id)
        else:
            return True
    return False


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
    ) -> "ImportResult":
        """Send the file, and return what became of it."""
        ...

    async def export_file(
        self,
        session: ScopeSession,
        target: str | os.PathLike[str] | IO[bytes],
        *,
        format: str,
        progress: Callable[[int, int], None] | None,
    ) -> "ExportResult":
        """Write what the server sends."""
        ...


def session_for(handle: object, *, call: str) -> ScopeSession:
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


def check_path(path: object) -> str:
    """Return the name of a file, with the user's home for `~`; `QueryError` for anything else."""
    if isinstance(path, dict | list):
        raise QueryError(
            f"`import_file` reads files, not a `{type(path).__name__}`; write it to one first: "
            '`json.dump(found, open("found.json", "w"), default=str)`'
        )
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise QueryError(f"`import_file` takes the path of a file or a folder, not {path!r}")
    return os.path.expanduser(path)  # noqa: PTH111 - it stays a text
