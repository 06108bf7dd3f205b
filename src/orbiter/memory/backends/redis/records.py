"""Items as records, out of Redis and into it: the present item, as Redis keeps no versions.

What a record tells of the past is left out, and a soft-deleted one is not kept at all: if there is
an item of its id, that goes. The number of versions stays.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from orbiter.memory.backends.redis.items import RedisItems
from orbiter.memory.backends.sql.merge import is_expired, joined
from orbiter.memory.backends.sql.rows import Row, encode
from orbiter.memory.backends.sql.stored_records import StoredRecord
from orbiter.memory.errors import AccessError, StorageError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.records import Record, Written

__all__ = ["CHUNK", "ROUNDS", "put", "read", "read_some"]

CHUNK = 500
"""Items that one call reads, some milliseconds of the server's time."""

ROUNDS = 20
"""How often what others write meanwhile is looked at again."""


async def read(
    items: RedisItems, wanted: Mapping[Any, str], after: str | None, limit: int
) -> list[Record]:
    """Return the next records in the order of insertion."""
    records: list[Record] = []
    last = after
    while len(records) < limit:
        size = min(CHUNK, limit - len(records))
        rows = await items.rows_after(dict(wanted), last, size)
        records += _records(rows)
        if not rows:
            break
        last = rows[-1][0]
    return records


async def read_some(
    items: RedisItems, wanted: Mapping[Any, str], item_ids: Sequence[str]
) -> list[Record]:
    """Return the records of ids that are there."""
    records: list[Record] = []
    for start in range(0, len(item_ids), CHUNK):
        records += _records(await items.rows_of(item_ids[start : start + CHUNK]))
    return [record for record in records if _is_as(record.item, wanted)]


def _records(rows: Sequence[list[Any]]) -> list[Record]:
    records = (StoredRecord((*row, 0)) for row in rows)
    return [record for record in records if not is_expired(record)]


def _is_as(item: MemoryItem, wanted: Mapping[Any, str]) -> bool:
    return all(getattr(item.metadata, name) == value for name, value in wanted.items())


async def put(
    items: RedisItems, records: Sequence[Record], wanted: Mapping[Any, str], *, overwrite: bool
) -> Written:
    """Write the present items of records; return how many were not there so.

    What is decided of an item holds while nobody writes it: else it is looked at again.
    """
    pending = {record.id: record for record in records}
    written, conflicts = 0, []
    for _ in range(ROUNDS):
        there = await _stamped(items, list(pending))
        for record in (*pending.values(), *(old for old, _ in there.values())) if wanted else ():
            if not _is_as(record.item, wanted):
                raise AccessError(f"`{record.id}` belongs to somebody else; nothing was written")
        moved: list[tuple[Row, str, int]] = []
        for record in pending.values():
            old, stamp = there.get(record.id, (None, ""))
            if _is_held(record, old):
                continue
            if overwrite or _continues(record, old):
                version = 0 if record.deleted else record.item.version
                moved.append((encode(record.item), stamp, version))
            else:
                conflicts.append(record.id)
        if not moved:
            return Written(written, conflicts)
        met = await items.move(moved, wanted)
        written += len(moved) - len(met)
        pending = {item_id: pending[item_id] for item_id in pending if item_id in met}
        if not pending:
            return Written(written, conflicts)
    raise StorageError("a memory is changed by others all the time; try again later")


async def _stamped(
    items: RedisItems, item_ids: Sequence[str]
) -> dict[str, tuple[StoredRecord, str]]:
    stamped: dict[str, tuple[StoredRecord, str]] = {}
    for start in range(0, len(item_ids), CHUNK):
        for row, stamp in await items.stamped_rows_of(item_ids[start : start + CHUNK]):
            stamped[row[0]] = StoredRecord((*row, 0)), stamp
    return stamped


def _continues(record: Record, old: Record | None) -> bool:
    if old is None or is_expired(old):
        return True
    return joined(old, record, keeps_versions=False) is not None


def _is_held(record: Record, old: Record | None) -> bool:
    """Tell whether there is nothing to be written of a record."""
    return old is None if record.deleted else old == record.present
