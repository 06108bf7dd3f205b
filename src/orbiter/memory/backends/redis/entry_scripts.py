"""`RedisKeyValue`: key-value entries in Redis. One call of a script is one atomic step.

    orbiter:{name}:kv:scopes              hash: the metadata of each scope, by its digest
    orbiter:{name}:kv:<scope>:index       sorted set, every score 0: the names of its entries
    orbiter:{name}:kv:<scope>:entry:<entry>
                                          hash: v value, n version, c created, u updated, t ttl and
                                          x end, all times in microseconds
    orbiter:{name}:kv:expiry              sorted set by end: scope, U+0000, name

The name of an entry is its path as text, U+0000 and its key: its order as bytes is that of entries.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orbiter.memory.backends.redis.commands import Script, Word
from orbiter.memory.backends.redis.items import RedisItems
from orbiter.memory.errors import QueryError, VersionConflict
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.key_value import (
    Delete,
    Entry,
    EntryPath,
    Put,
    StoredEntry,
    appended_key,
    check_changes,
    check_entry_path,
    check_names,
    check_ttl,
    check_value,
    instant_of,
    joined_path,
    last_changes,
    micros_of,
    owner_of,
    path_span,
    split_path,
)
from orbiter.memory.model.query import Query, check_size

__all__ = ["CHUNK", "RedisKeyValue"]

CHUNK = 200
"""Entries that one call reads or removes."""

_BASE = """
local root = string.sub(KEYS[1], 1, -4) .. 'kv:'
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local function digits(value) return string.format('%.0f', value) end
local function index_of(scope) return root .. scope .. ':index' end
local function key_of(scope, name) return root .. scope .. ':entry:' .. name end
local function remove(scope, name)
    redis.call('ZREM', root .. 'expiry', scope .. '\\0' .. name)
    redis.call('ZREM', index_of(scope), name)
    redis.call('UNLINK', key_of(scope, name))
    if redis.call('EXISTS', index_of(scope)) == 0 then
        redis.call('HDEL', root .. 'scopes', scope)
    end
end
-- Return version, created, updated, end and ttl of an entry that is not over.
local function head_of(scope, name)
    local head = redis.call('HMGET', key_of(scope, name), 'n', 'c', 'u', 'x', 't')
    if not head[1] then return nil end
    if head[4] and tonumber(head[4]) <= micros then return nil end
    return head
end
local function version_of(scope, name)
    local head = head_of(scope, name)
    return head and tonumber(head[1]) or 0
end
local function trim()
    local over = redis.call(
        'ZRANGEBYSCORE', root .. 'expiry', '-inf', digits(micros), 'LIMIT', 0, 64)
    for _, member in ipairs(over) do
        local stop = string.find(member, '\\0', 1, true)
        remove(string.sub(member, 1, stop - 1), string.sub(member, stop + 1))
    end
end
local function ends(scope, name, ttl)
    local key, stop = key_of(scope, name), micros + tonumber(ttl)
    redis.call('HSET', key, 't', ttl, 'x', digits(stop))
    redis.call('PEXPIREAT', key, digits(math.ceil(stop / 1000)))
    redis.call('ZADD', root .. 'expiry', digits(stop), scope .. '\\0' .. name)
end
local function put(scope, name, value, ttl)
    local head, key = head_of(scope, name), key_of(scope, name)
    if not head then redis.call('UNLINK', key) end
    local version = head and tonumber(head[1]) + 1 or 1
    redis.call('HSET', key, 'v', value, 'n', digits(version), 'u', digits(micros),
        'c', head and head[2] or digits(micros))
    redis.call('ZADD', index_of(scope), 0, name)
    if ttl ~= '' then
        ends(scope, name, ttl)
    else
        redis.call('HDEL', key, 't', 'x')
        redis.call('PERSIST', key)
        redis.call('ZREM', root .. 'expiry', scope .. '\\0' .. name)
    end
    return version
end
-- Return the first names of a span that are not over; what is, leaves the index.
local function some(scope, low, high, is_forward, most)
    local names = {}
    while #names < most do
        local left, range = most - #names, nil
        if is_forward then
            range = redis.call('ZRANGEBYLEX', index_of(scope), low, high, 'LIMIT', 0, left)
        else
            range = redis.call('ZREVRANGEBYLEX', index_of(scope), high, low, 'LIMIT', 0, left)
        end
        for _, name in ipairs(range) do
            if head_of(scope, name) then names[#names + 1] = name end
        end
        if #range < left then break end
        if is_forward then low = '(' .. range[#range] else high = '(' .. range[#range] end
    end
    return names
end
local function row(scope, name)
    local head = head_of(scope, name)
    if not head then return false end
    local value = redis.call('HGET', key_of(scope, name), 'v')
    return {name, value, head[1], head[2], head[3], head[4] or ''}
end
"""

_ONCE = """
local call, keep = string.sub(KEYS[1], 1, -4) .. 'call:' .. ARGV[1], ARGV[2]
local answered = redis.call('GET', call)
if answered then return answered end
local function answer(value)
    redis.pcall('SET', call, value, 'PX', keep)
    return value
end
"""

_WRITE = Script.of(
    _BASE
    + _ONCE
    + """
local scope = ARGV[3]
trim()
for number = 5, #ARGV, 5 do
    local expected = tonumber(ARGV[number + 2])
    if expected >= 0 then
        local version = version_of(scope, ARGV[number + 1])
        if version ~= expected then
            return answer('!' .. digits((number - 5) / 5) .. ' ' .. digits(version))
        end
    end
end
local versions = {}
for number = 5, #ARGV, 5 do
    local kind, name = ARGV[number], ARGV[number + 1]
    if kind == 'p' then
        redis.call('HSET', root .. 'scopes', scope, ARGV[4])
        versions[#versions + 1] = digits(put(scope, name, ARGV[number + 4], ARGV[number + 3]))
    else
        versions[#versions + 1] = digits(version_of(scope, name))
        remove(scope, name)
    end
end
return answer(table.concat(versions, ' '))
"""
)
"""Arguments: token, ms to remember it, scope, its metadata; then of each change its kind, its name,
the expected version or -1, the ttl or nothing, and the value. Answers the versions, or `!`, which
change expects another version, and that which there is."""

_GET = Script.of(
    _BASE
    + """
local rows = {}
for number = 2, #ARGV do rows[number - 1] = row(ARGV[1], ARGV[number]) end
return rows
"""
)
_TOUCH = Script.of(
    _BASE
    + """
local count = 0
for number = 2, #ARGV do
    local head = head_of(ARGV[1], ARGV[number])
    if head and head[5] then
        ends(ARGV[1], ARGV[number], head[5])
        count = count + 1
    end
end
return count
"""
)
_LIST = Script.of(
    _BASE
    + """
local rows, size = {}, 0
for _, name in ipairs(some(ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', tonumber(ARGV[5]))) do
    -- The server does nothing else meanwhile: whoever reads large values comes more often.
    if size > 4000000 then break end
    rows[#rows + 1] = row(ARGV[1], name)
    size = size + #rows[#rows][2]
end
return rows
"""
)
"""Arguments: scope, the span of names, whether it is read forward, most."""
_PATHS = Script.of(
    _BASE
    + """
local paths, low, high = {}, ARGV[2], ARGV[3]
while #paths < tonumber(ARGV[4]) do
    local name = some(ARGV[1], low, high, true, 1)[1]
    if not name then break end
    local path = string.sub(name, 1, string.find(name, '\\0', 1, true) - 1)
    paths[#paths + 1] = path
    low = '(' .. path .. '\\0\\255'
end
return paths
"""
)
_APPEND = Script.of(
    _BASE
    + _ONCE
    + """
local scope, path = ARGV[3], ARGV[5]
trim()
local last = redis.call('ZREVRANGEBYLEX', index_of(scope), '(' .. path .. '\\0\\255',
    '[' .. path .. '\\0', 'LIMIT', 0, 1)[1]
local key = last and string.sub(last, #path + 2) or ARGV[6]
if #key ~= #ARGV[6] or string.find(key, '%D') then return answer('!' .. key) end
local first = tonumber(key) + 1
redis.call('HSET', root .. 'scopes', scope, ARGV[4])
for number = 8, #ARGV do
    local own = digits(first + number - 8)
    put(scope, path .. '\\0' .. string.rep('0', #ARGV[6] - #own) .. own, ARGV[number], ARGV[7])
end
return answer(digits(first))
"""
)
"""Arguments: token, ms to remember it, scope, its metadata, the path, the key before the first, the
ttl or nothing, the values. Answers the number of the first, or `!` and a key that is no number."""
_POP = Script.of(
    _BASE
    + _ONCE
    + """
local scope, path = ARGV[3], ARGV[4]
local name = some(scope, '[' .. path .. '\\0', '(' .. path .. '\\0\\255', false, 1)[1]
if not name then return answer('') end
local entry = row(scope, name)
remove(scope, name)
local head = {#name, entry[3], entry[4], entry[5], entry[6]}
return answer(table.concat(head, ' ') .. '\\n' .. name .. entry[2])
"""
)
"""Arguments: token, ms to remember it, scope, path. Answers the entry: the length of its name, its
version, times and end; after a line break, its name and value. Nothing if there is none."""
_CLEAR = Script.of(
    _BASE
    + _ONCE
    + """
local scope, count = ARGV[3], 0
local names = redis.call('ZRANGEBYLEX', index_of(scope), ARGV[4], ARGV[5], 'LIMIT', 0, ARGV[6])
for _, name in ipairs(names) do
    if head_of(scope, name) then count = count + 1 end
    remove(scope, name)
end
return answer(digits(count) .. ' ' .. #names)
"""
)
_TTLS = Script.of(
    _BASE
    + """
local ttls = {}
for number = 2, #ARGV do
    ttls[number - 1] = redis.call('HGET', key_of(ARGV[1], ARGV[number]), 't') or ''
end
return ttls
"""
)
_LOAD = Script.of(
    _BASE
    + _ONCE
    + """
local written = {}
for number = 4, #ARGV, 9 do
    local scope, name = ARGV[number], ARGV[number + 2]
    local ttl, stop = ARGV[number + 7], ARGV[number + 8]
    local key = key_of(scope, name)
    local is_over = stop ~= '' and tonumber(stop) <= micros
    if not is_over and (ARGV[3] == '1' or not head_of(scope, name)) then
        remove(scope, name)
        redis.call('HSET', root .. 'scopes', scope, ARGV[number + 1])
        redis.call('HSET', key, 'v', ARGV[number + 3], 'n', ARGV[number + 4],
            'c', ARGV[number + 5], 'u', ARGV[number + 6])
        redis.call('ZADD', index_of(scope), 0, name)
        if stop ~= '' then
            redis.call('HSET', key, 't', ttl, 'x', stop)
            redis.call('PEXPIREAT', key, digits(math.ceil(tonumber(stop) / 1000)))
            redis.call('ZADD', root .. 'expiry', stop, scope .. '\\0' .. name)
        end
        written[#written + 1] = '1'
    else
        written[#written + 1] = '0'
    end
end
return answer(table.concat(written))
"""
)
"""Arguments: token, ms to remember it, whether what is there is replaced; then of each entry its
scope, the scope's metadata, its name, value, version, times, ttl and end."""
_SCOPES = Script.of(_BASE + "return redis.call('HGETALL', root .. 'scopes')")


class RedisKeyValue:
    """The entries of a Redis store; see `KeyValueStore`. Every call of a script is one step."""

    def __init__(self, items: RedisItems) -> None:
        self._items = items

    async def write(self, changes: Sequence[Put | Delete], *, scope: MemoryMetadata) -> list[int]:
        """Make all changes, or none; return the version of each, 0 for what was not there."""
        checked = check_changes(changes)
        self._items.check()
        last = last_changes(checked)
        if not last:
            return []
        args: list[Any] = list(owner_of(scope))
        for name, change in last.items():
            expected = -1 if change.expected_version is None else change.expected_version
            ttl, value = (change.ttl, change.value) if isinstance(change, Put) else (None, b"")
            kind = "p" if isinstance(change, Put) else "d"
            args += (kind, "\0".join(name), expected, _micros(ttl), value)
        answer: bytes = await self._items.run_once(_WRITE, args)
        if answer.startswith(b"!"):
            place, version = answer[1:].split()
            wrong = list(last.values())[int(place)]
            raise VersionConflict(
                "/".join([*wrong.path, wrong.key]),
                expected=wrong.expected_version or 0,
                found=int(version),
            )
        versions = dict(zip(last, map(int, answer.split()), strict=True))
        return [versions[joined_path(each.path), each.key] for each in checked]

    async def get(
        self, names: Sequence[tuple[EntryPath, str]], *, scope: MemoryMetadata
    ) -> list[Entry | None]:
        """Return the entries of these paths and keys, in the order given."""
        wanted = ["\0".join(name) for name in check_names(names)]
        rows = await self._items.run(_GET, [owner_of(scope)[0], *wanted])
        return [_entry(row) if row else None for row in rows]

    async def touch(self, names: Sequence[tuple[EntryPath, str]], *, scope: MemoryMetadata) -> int:
        """Have the time of entries with an end begin again; return how many there are of these."""
        wanted = {"\0".join(name) for name in check_names(names)}
        return int(await self._items.run(_TOUCH, [owner_of(scope)[0], *wanted]))

    async def entries(
        self,
        path: EntryPath,
        *,
        scope: MemoryMetadata,
        is_deep: bool = True,
        reverse: bool = False,
        after: tuple[EntryPath, str] | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        """Return entries at a path and, if *is_deep*, below it, by path and key."""
        low, high = _span(path, is_deep=is_deep)
        check_size("limit", limit)
        if after is not None:
            last = b"(" + "\0".join(check_names([after])[0]).encode()
            if reverse:
                high = last if high == b"+" or last[1:] < high[1:] else high
            else:
                low = _later(low, last)
        entries: list[Entry] = []
        while len(entries) < limit:
            left = min(limit - len(entries), CHUNK)
            args: list[Word] = [owner_of(scope)[0], low, high, int(not reverse), left]
            rows = await self._items.run(_LIST, args)
            entries += map(_entry, rows)
            if not rows:
                break
            low, high = (low, b"(" + rows[-1][0]) if reverse else (b"(" + rows[-1][0], high)
        return entries

    async def paths(
        self,
        path: EntryPath,
        *,
        scope: MemoryMetadata,
        after: EntryPath | None = None,
        limit: int = 100,
    ) -> list[EntryPath]:
        """Return the different paths of entries at and below a path, in order."""
        low, high = _span(path, is_deep=True)
        check_size("limit", limit)
        if after is not None:
            behind = joined_path(check_entry_path(after)).encode() + b"\0\xff"
            low = _later(low, b"(" + behind)
        paths = await self._items.run(_PATHS, [owner_of(scope)[0], low, high, limit])
        return [split_path(each.decode()) for each in paths]

    async def append(
        self,
        path: EntryPath,
        values: Sequence[bytes],
        *,
        scope: MemoryMetadata,
        ttl: float | None = None,
    ) -> list[str]:
        """Put values behind the last key of a path, in order, all or none; return their keys."""
        place, seconds = joined_path(check_entry_path(path)), check_ttl(ttl)
        checked = [check_value(value) for value in values]
        self._items.check()
        if not checked:
            return []
        args: list[Word] = [*owner_of(scope), place, appended_key(0), _micros(seconds)]
        args += checked
        answer: bytes = await self._items.run_once(_APPEND, args)
        if answer.startswith(b"!"):
            raise QueryError(
                f"the path {path!r} has the key `{answer[1:].decode()}`, which `append` did not "
                "make; give a log a path of its own"
            )
        return [appended_key(int(answer) + number) for number in range(len(checked))]

    async def pop(self, path: EntryPath, *, scope: MemoryMetadata) -> Entry | None:
        """Remove the last entry of a path, and return it."""
        place = joined_path(check_entry_path(path))
        answer: bytes = await self._items.run_once(_POP, [owner_of(scope)[0], place])
        return _popped(answer) if answer else None

    async def clear(self, path: EntryPath, *, scope: MemoryMetadata) -> int:
        """Remove all entries at and below a path for good; return how many.

        They go a few hundred at a time.
        """
        return await self._clear(owner_of(scope)[0], *_span(path, is_deep=True))

    async def _clear(self, scope: str, low: bytes, high: bytes) -> int:
        removed = 0
        while True:
            args: list[Word] = [scope, low, high, CHUNK]
            count, size = (await self._items.run_once(_CLEAR, args)).split()
            removed += int(count)
            if int(size) < CHUNK:
                return removed

    async def dump(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        after: StoredEntry | None = None,
        limit: int = 100,
    ) -> list[StoredEntry]:
        """Return entries of every scope that matches *metadata*, in an order that stays."""
        wanted = Query(metadata=metadata).wanted
        check_size("limit", limit)
        last = "" if after is None else owner_of(after.scope)[0]
        stored: list[StoredEntry] = []
        for owner, scope in sorted(await self._scopes()):
            if len(stored) >= limit or owner < last:
                continue
            if all(getattr(scope, name) == value for name, value in wanted.items()):
                name = (after.entry.path, after.entry.key) if after and owner == last else None
                entries = await self.entries((), scope=scope, after=name, limit=limit - len(stored))
                ttls = await self._ttls(owner, entries)
                stored += (StoredEntry(scope, *each) for each in zip(entries, ttls, strict=True))
        return stored

    async def _scopes(self) -> list[tuple[str, MemoryMetadata]]:
        flat = await self._items.run(_SCOPES, [])
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return [(owner.decode(), MemoryMetadata(**json.loads(scope))) for owner, scope in pairs]

    async def _ttls(self, owner: str, entries: Sequence[Entry]) -> list[float | None]:
        names = ["\0".join((joined_path(each.path), each.key)) for each in entries]
        ttls = await self._items.run(_TTLS, [owner, *names])
        return [float(ttl) / 1_000_000 if ttl else None for ttl in ttls]

    async def load(self, entries: Sequence[StoredEntry], *, overwrite: bool = False) -> list[bool]:
        """Store entries as they were dumped; tell of each whether it was written."""
        args: list[Any] = [int(overwrite)]
        for stored in entries:
            entry, end = stored.entry, stored.entry.expires_at
            args += (*owner_of(stored.scope), "\0".join((joined_path(entry.path), entry.key)))
            args += (entry.value, entry.version, micros_of(entry.created_at))
            args += (micros_of(entry.updated_at), _micros(stored.ttl))
            args.append("" if end is None else micros_of(end))
        answer: bytes = await self._items.run_once(_LOAD, args)
        return [sign == "1" for sign in answer.decode()]

    async def erase(self, wanted: Mapping[Any, str]) -> int:
        """Remove the entries of all scopes that have what is wanted; return how many."""
        removed = 0
        for owner, scope in await self._scopes():
            if all(getattr(scope, name) == value for name, value in wanted.items()):
                removed += await self._clear(owner, b"-", b"+")
        return removed


def _span(path: EntryPath, *, is_deep: bool) -> tuple[bytes, bytes]:
    """Return from where to where names at a path, and below it, reach, as Redis takes it."""
    text = joined_path(check_entry_path(path))
    if not is_deep:
        own = text.encode()
        return b"[" + own + b"\0", b"(" + own + b"\0\xff"
    if not text:
        return b"-", b"+"
    first, end = path_span(text)
    return b"[" + first.encode(), b"(" + end.encode()


def _later(low: bytes, last: bytes) -> bytes:
    """Return where to begin: at *low*, or behind the name of *last* if that is later."""
    return last if low == b"-" or last[1:] >= low[1:] else low


def _micros(ttl: object) -> str:
    return "" if not isinstance(ttl, float) else str(round(ttl * 1_000_000))


def _entry(row: Sequence[bytes]) -> Entry:
    name, value, version, created_at, updated_at, expires_at = row
    path, _, key = name.decode().partition("\0")
    return Entry(
        split_path(path),
        key,
        value,
        int(version),
        instant_of(int(created_at)),
        instant_of(int(updated_at)),
        instant_of(int(expires_at)) if expires_at else None,
    )


def _popped(answer: bytes) -> Entry:
    head, _, rest = answer.partition(b"\n")
    size, *numbers = head.split(b" ")
    return _entry([rest[: int(size)], rest[int(size) :], *numbers])
