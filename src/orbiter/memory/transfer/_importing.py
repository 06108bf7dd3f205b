"""What another program wrote becomes memories of one scope.

Reading happens in a thread, so that the loop stays free, one batch ahead of the storing. Each
batch is stored as one step; what is stored stays when a later one fails, and is found again.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orbiter.memory.agent._core import Core, Store, keeps_versions
from orbiter.memory.agent._reading import check_given
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.items import MemoryItem, MemoryMetadata
from orbiter.memory.query import Query
from orbiter.memory.transfer._aside import Aside
from orbiter.memory.transfer._extras import IMPORTED
from orbiter.memory.transfer._given import check_path
from orbiter.memory.transfer._known import NATIVE
from orbiter.memory.transfer._limits import Limits
from orbiter.memory.transfer._native import MovableStore, is_native, take_in
from orbiter.memory.transfer._reading import Reader, Ready
from orbiter.memory.transfer._report import Imported, Report
from orbiter.memory.transfer._source import open_source

if TYPE_CHECKING:
    from orbiter.memory.transfer._adopting import Adopting, SentBy

__all__ = ["import_into"]

Changed = Callable[[Store, Sequence[MemoryItem]], Awaitable[None]]


async def import_into(  # noqa: PLR0913 - what a file is, and whose
    core: Core,
    scope: MemoryMetadata,
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    owner: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    limits: Limits | None = None,
    changed: Changed | None = None,
    sender: "SentBy | None" = None,
) -> Imported:
    """Store what the file, folder or archive at *path* holds as memories of *scope*.

    *owner* says whose memories are taken of a file that holds those of several. Importing the same
    again stores nothing; what has changed in the file is updated, and what was forgotten here stays
    forgotten. *progress* is told how many bytes of how many are read, *changed* which messages are
    not what they were. What a *sender* says of ids and of who did what is not simply believed.
    """
    check_path(path)
    if owner is not None:
        check_given("owner", owner)
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
        needs_owner=own is None,
    )
    aside = Aside()
    try:
        if format == NATIVE or (format == "auto" and await aside.run(_is_ours, path, limits)):
            movable = _movable(store)
            return await take_in(
                movable,
                Path(path),
                scope=own,
                progress=progress,
                limits=limits,
                adopting=_adopting(movable, scope, sender),
            )
        await aside.run(reader.open)
        coming = aside.run(reader.batch)
        while batch := await coming:
            coming = aside.run(reader.batch)
            written, updated = await _store(store, scope, batch, report)
            if updated and changed is not None:
                await changed(store, updated)
            if written:
                core.events.tell_of("remembered", written)
            if progress is not None:
                progress(reader.tally.done, reader.tally.total)
    finally:
        reader.tally.is_stopped = True
        await aside.leave(reader.close)
    if progress is not None:
        progress(reader.tally.total, reader.tally.total)
    return report.finished()


def _is_ours(path: str | os.PathLike[str], limits: Limits | None) -> bool:
    with open_source(path, complain=lambda _place, _why: None, limits=limits) as source:
        return is_native(source.head())


def _adopting(
    store: MovableStore, scope: MemoryMetadata, sender: "SentBy | None"
) -> "Adopting | None":
    if sender is None:
        return None
    from orbiter.memory.transfer._adopting import Adopting  # noqa: PLC0415 - a server's only

    return Adopting(store, scope, sender)


def _movable(store: Store) -> MovableStore:
    if hasattr(store, "put_records"):
        return cast("MovableStore", store)
    kind = type(store).__name__
    raise UnsupportedError(f"a `{kind}` cannot take in records; SQLite, Postgres and Redis can")


async def _store(
    store: Store, scope: MemoryMetadata, batch: Sequence[Ready], report: Report
) -> tuple[list[MemoryItem], list[MemoryItem]]:
    """Store what is new or changed; return all that was written, and what was there before."""
    own = scope if Query(metadata=scope).wanted else None
    wanted = {"id": {"$in": list({one.item.id for one in batch})}}
    found = await store.search(metadata=own, where=wanted, limit=len(batch))
    there = {item.id: item for item in found}
    forgotten: set[str] = set()
    if keeps_versions(store):
        gone = await store.search(metadata=own, where=wanted, limit=len(batch), deleted=True)
        forgotten = {item.id for item in gone}
    written: dict[str, MemoryItem] = {}
    updated: list[MemoryItem] = []
    for one in batch:
        item = one.item
        before = written.get(item.id) or there.get(item.id)
        if before is not None and before.metadata.extra.get(IMPORTED) == one.digest:
            report.unchanged += 1
        elif item.id in written:
            report.skipped += 1
            report.complain(f"`{one.key}`", "something else stands under the same name")
        elif item.id in forgotten:
            report.skipped += 1
            report.forgotten += 1
        else:
            if before is not None:
                # The rest is the file's; `created_at` is kept by the store.
                item.__dict__["status"] = before.status
                item.__dict__["updated_at"] = datetime.now(UTC)
                updated.append(item)
            written[item.id] = item
    if written:
        await store.add_many(list(written.values()), within=own)
        report.updated += len(updated)
        report.stored += len(written) - len(updated)
    return list(written.values()), updated
