"""Items as records, out of Redis and into it: the present item, as Redis keeps no versions.

What a record tells of the past is left out, and a soft-deleted one is not kept at all: if there is
an item of its id, that goes. The number of versions stays.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from orbiter.memory.backends._redis.commands import Script
from orbiter.memory.backends._redis.items import RedisItems
from orbiter.memory.backends._rows import ENDS, encode
from orbiter.memory.backends._stored_records import StoredRecord
from orbiter.memory.errors import AccessError
from orbiter.memory.items import MemoryItem
from orbiter.memory.records import Record

CHUNK = 500
"""Items that one call reads or numbers, some milliseconds of the server's time."""

NUMBER = Script.of(
    """
local root = string.sub(KEYS[1], 1, -4)
for n = 1, #ARGV, 2 do
    local key = root .. 'item:' .. ARGV[n]
    if redis.call('EXISTS', key) == 1 then
        redis.call('SETRANGE', key, 41, string.format('%08x', tonumber(ARGV[n + 1])))
    end
end
return 1
"""
)
"""Arguments: for each item its id and the version that it is to have."""


async def read(
    items: RedisItems, wanted: Mapping[Any, str], after: str | None, limit: int
) -> list[Record]:
    """Return the next records in the order of `created_at`, of equals in that of insertion."""
    found: list[Record] = []
    last = after
    while len(found) < limit:
        size = min(CHUNK, limit - len(found))
        rows = await items.rows_after(dict(wanted), last, size)
        found += _records(rows)
        if not rows:
            break
        last = rows[-1][0]
    return found


async def read_some(
    items: RedisItems, wanted: Mapping[Any, str], item_ids: Sequence[str]
) -> list[Record]:
    """Return the records of ids that are there."""
    found: list[Record] = []
    for start in range(0, len(item_ids), CHUNK):
        found += _records(await items.rows_of(item_ids[start : start + CHUNK]))
    return [record for record in found if _is_as(record.item, wanted)]


def _records(rows: Sequence[list[Any]]) -> list[Record]:
    records = (StoredRecord((*row, 0)) for row in rows)
    return [record for record in records if not _is_over(record)]


def _is_over(record: StoredRecord) -> bool:
    if not record.row[5].startswith(ENDS):
        return False
    end = record.item.expires_at
    return isinstance(end, datetime) and end <= datetime.now(UTC)


def _is_as(item: MemoryItem, wanted: Mapping[Any, str]) -> bool:
    return all(getattr(item.metadata, name) == value for name, value in wanted.items())


async def put(items: RedisItems, records: Sequence[Record], wanted: Mapping[Any, str]) -> int:
    """Write the present items of records; return how many were not there so."""
    given = {record.id: record.present for record in records}
    there = {record.id: record for record in await read_some(items, {}, list(given))}
    for record in (*given.values(), *there.values()) if wanted else ():
        if not _is_as(record.item, wanted):
            raise AccessError(f"`{record.id}` is another's; nothing was written")
    gone = [key for key, record in given.items() if record.deleted and key in there]
    new = [record for record in given.values() if not record.deleted]
    new = [record for record in new if there.get(record.id) != record]
    # An update would keep the time of the item that is there.
    await items.delete([*gone, *(record.id for record in new if record.id in there)])
    if new:
        await items.put([encode(record.item) for record in new], wanted=wanted)
    numbered = [record for record in new if record.item.version > 1]
    for start in range(0, len(numbered), CHUNK):
        args: list[str] = []
        for record in numbered[start : start + CHUNK]:
            args += (record.id, str(record.item.version))
        await items.run(NUMBER, args)
    return len(gone) + len(new)
