"""Erasing in Redis: what stands beside the items that `clear` removes, and whether all are gone.

Keys are found by SCAN inside of a script: so they are looked for where the store's slot is, and a
server is never held up by all of its keys at once.
"""

from collections.abc import Sequence
from contextlib import suppress

from orbiter.memory.backends.redis.commands import Script
from orbiter.memory.backends.redis.items import CHUNK, RedisItems
from orbiter.memory.backends.redis.key_values import RedisKeyValue
from orbiter.memory.backends.redis.scripts import _BASE
from orbiter.memory.backends.sql.rows import decode
from orbiter.memory.errors import StorageError
from orbiter.memory.model.query import Query
from orbiter.memory.model.reports import Erasure

__all__ = ["SAMPLE", "erase", "erase_ids"]

SAMPLE = 1_000
"""Items whose keys are asked for when all should be gone."""

# What a call that removed many has answered names the item to go on from.
_TOKENS = Script.of(
    """
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500)
local gone = 0
for _, key in ipairs(found[2]) do
    local answer = redis.call('GET', key)
    if answer and string.find(answer, '(', 1, true) then
        gone = gone + redis.call('DEL', key)
    end
end
return {found[1], gone}
""",
    is_write=True,
)

# An id that was used carries the scopes of its item.
_USED = Script.of(
    """
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500)
local gone = 0
for _, key in ipairs(found[2]) do
    local has, is_wanted = '\\0' .. (redis.call('GET', key) or '') .. '\\0', true
    for part in string.gmatch(ARGV[3], '[^%z]+') do
        is_wanted = is_wanted and string.find(has, '\\0' .. part .. '\\0', 1, true)
    end
    if is_wanted then gone = gone + redis.call('DEL', key) end
end
return {found[1], gone}
""",
    is_write=True,
)

# The same of some ids, without a look at all keys.
_USED_IDS = Script.of(
    _BASE
    + """
local gone = 0
for number = 2, #ARGV do
    local key, is_wanted = root .. 'used:' .. ARGV[number], true
    local has = '\\0' .. (redis.call('GET', key) or '') .. '\\0'
    for part in string.gmatch(ARGV[1], '[^%z]+') do
        is_wanted = is_wanted and string.find(has, '\\0' .. part .. '\\0', 1, true)
    end
    if is_wanted then gone = gone + redis.call('DEL', key) end
end
return gone
""",
    is_write=True,
)

# An item that the server evicted is still noted where its end is.
_EXPIRY = Script.of(
    _BASE
    + """
local found = redis.call('ZSCAN', expiry, ARGV[1], 'COUNT', 500)
local gone = 0
for number = 1, #found[2], 2 do
    local entry = found[2][number]
    local stop = string.find(entry, '\\0', 1, true)
    local place, scopes = string.sub(entry, 1, stop - 1), string.sub(entry, stop + 1)
    local has, is_wanted = '\\0' .. scopes .. '\\0', true
    for part in string.gmatch(ARGV[2], '[^%z]+') do
        is_wanted = is_wanted and string.find(has, '\\0' .. part .. '\\0', 1, true)
    end
    local head = is_wanted and head_of(string.sub(place, 29))
    if is_wanted and (not head or head.place ~= place) then
        leave(all, place)
        leave_scopes(place, scopes)
        gone = gone + redis.call('ZREM', expiry, entry)
    end
end
return {found[1], gone}
""",
    is_write=True,
)


async def erase(items: RedisItems, query: Query) -> Erasure:
    """Remove the items of a scope with all that names them; see that they are gone."""
    sample: list[str] = []
    with suppress(StorageError):  # one that was written by hand goes all the same
        async for page in items.pages(query):
            sample += [item.id for item in page]
            if len(sample) >= SAMPLE:
                break
    await items.count(query.wanted)  # takes out of the indexes what is over
    removed = await items.clear(query.wanted)
    parts = _parts(query)
    beside = await _walk(items, _EXPIRY, parts)
    beside += await _walk(items, _TOKENS, f"{_escaped(items.root)}call:*")
    beside += await _walk(items, _USED, f"{_escaped(items.root)}used:*", parts)
    entries = await RedisKeyValue(items).erase(query.wanted)
    problems = await _problems(items, sample)
    return Erasure(
        items=removed, redis_keys=beside, entries=entries, probes=len(sample), problems=problems
    )


async def erase_ids(items: RedisItems, query: Query, item_ids: Sequence[str]) -> Erasure:
    """Remove those items of a scope that have these ids, and what names them; see `erase`."""
    removed = beside = probes = 0
    problems: tuple[str, ...] = ()
    for start in range(0, len(item_ids), CHUNK):
        some = item_ids[start : start + CHUNK]
        there = [decode(row) for row in await items.rows_of(some)]
        theirs = [item.id for item in there if query.matches(item)]
        removed += await items.delete(theirs)
        beside += int(await items.run(_USED_IDS, [_parts(query), *some]))
        probes += len(theirs)
        problems += await _problems(items, theirs)
    return Erasure(items=removed, redis_keys=beside, probes=probes, problems=problems)


def _parts(query: Query) -> str:
    return "\0".join(f"{name}:{value}" for name, value in query.wanted.items())


async def _problems(items: RedisItems, item_ids: Sequence[str]) -> tuple[str, ...]:
    left = await items.there(item_ids)
    return (f"{left} items are still there, or there again; repeat the erasure",) if left else ()


async def _walk(items: RedisItems, script: Script, *arguments: str) -> int:
    """Run a script that goes on from a cursor until it is through; return how many are gone."""
    total, cursor = 0, "0"
    while True:
        position, gone = await items.run(script, [cursor, *arguments])
        total, cursor = total + int(gone), position.decode()
        if cursor == "0":
            return total


def _escaped(text: str) -> str:
    """Return *text* as a pattern that matches nothing else."""
    return "".join(f"\\{sign}" if sign in "*?[]^\\-" else sign for sign in text)
