"""Looking at files before a store is opened for them: what cannot be read must not make one."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.records import Record
from orbiter.memory.transfer import ImportResult
from orbiter.memory.transfer.formats.importer import Columns
from orbiter.memory.transfer.formats.registry import AUTO, NATIVE, recognised
from orbiter.memory.transfer.io.open_source import open_source
from orbiter.memory.transfer.native import is_native, store_records
from orbiter.memory.transfer.reader import Reader, refuse_columns
from orbiter.memory.transfer.report import Report

__all__ = ["Looked", "is_ours", "kind_of", "look"]


class Looked(NamedTuple):
    """What was seen of a file."""

    result: ImportResult
    """All there is, if there is no more."""
    has_more: bool
    """Whether it holds something to store."""


def is_ours(path: Path) -> bool:
    """Tell whether *path* is what `export` wrote."""
    with open_source(path, complain=lambda _place, _why: None, limits=None) as source:
        return is_native(source.head())


def kind_of(path: Path) -> str | None:
    """Return the format that *path* looks like, by what it begins with, if it looks like any."""
    with open_source(path, complain=lambda _place, _why: None, limits=None) as source:
        return NATIVE if is_native(source.head()) else recognised(source)


async def look(
    path: Path,
    scope: Mapping[str, str] | None,
    *,
    format: str,
    owner: str | None,
    columns: Columns,
) -> Looked:
    """Read the beginning of a file, and an export whole; `TransferError` if it cannot be."""
    names = MemoryMetadata(**(scope or {}))
    has_our_name = is_ours(path)  # or `TransferError`, if it is not there
    if format == NATIVE or (format == AUTO and has_our_name):
        refuse_columns(columns, NATIVE, str(path))
        result = await store_records(_Nowhere(), path, scope=names if scope else None, owner=owner)
        return Looked(result, has_more=bool(result.found))
    return await asyncio.to_thread(_beginning, path, names, format, owner, columns)


def _beginning(
    path: Path, names: MemoryMetadata, format: str, owner: str | None, columns: Columns
) -> Looked:
    report = Report()
    reader = Reader(
        path,
        names,
        format=format,
        owner=owner,
        limits=None,
        report=report,
        columns=columns,
        needs_owner=names == MemoryMetadata(),
    )
    try:
        reader.open()
        batch = reader.batch()
    finally:
        reader.close()
    return Looked(report.finished(), has_more=bool(batch))


class _Nowhere:
    """A store that keeps nothing, for whom a file is read through."""

    async def records(
        self,
        *,
        after: str | None = None,
        limit: int = 1000,
        metadata: MemoryMetadata | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> list[Record]:
        """Return nothing."""
        del after, limit, metadata, item_ids
        return []

    async def put_records(
        self,
        records: Sequence[Record],
        *,
        within: MemoryMetadata | None = None,
        overwrite: bool = False,
    ) -> int:
        """Write nothing."""
        del records, within, overwrite
        return 0
