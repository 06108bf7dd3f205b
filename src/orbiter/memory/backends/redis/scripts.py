"""Items in Redis: the scripts. One call of a script is one atomic step of bounded length.

    orbiter:{name}:item:<id>         an item, see below
    orbiter:{name}:all               sorted set, every score 0: the places of all items
    orbiter:{name}:user_id:<value>   the same of one user; also session_id, task_id, agent_id
    orbiter:{name}:added:all         sorted set of ids by the stamp of their first write; also of a
                                     session or a task, as in added:session_id:<value>
    orbiter:{name}:expiry            sorted set by end of life: place, U+0000, scopes
    orbiter:{name}:seq               the last stamp that was given
    orbiter:{name}:call:<token>      what a write answered, so that its repetition changes nothing
    orbiter:{name}:used:<id>         the scopes of an item that was inserted: its id stays used for
                                     a month after it is removed
    orbiter:{name}:all:wait          for a second after a write, with `?wait_replicas=` in the URL

The name is in braces, so all keys of a store lie in one slot of a cluster. Keys are made of ids and
scopes inside the scripts; what may hold anything stands last, so no two are the same.

A *stamp* is the server's time in microseconds, or one more than the last stamp: 13 hex digits. A
*place* is `created_at` in microseconds since the year 1, 15 hex digits, the stamp of the first
write, and the id: its order as text is (created_at, insertion), exact for every year, and 60 bytes
are short enough for Redis's compact sets. An item begins with the 28 digits of its place, the
stamp of its last write, its version in 8 digits and the length of its scopes in 4; then come the
scopes, `user_id:<value>` and so on with U+0000 between them, and the body.
"""

from orbiter.memory.backends.redis.commands import Script

__all__ = ["CLEAR", "COUNT", "DELETE", "HEAD", "MOVE", "PAGE", "PAGE_ADDED", "PUT", "USED"]

HEAD = 53
"""How long the part of fixed length is."""

# The server's clock decides what is over, as it does for the keys themselves. No number passes
# through Lua's own conversion to text, which may round.
_BASE = """
local all = KEYS[1]
local root = string.sub(all, 1, -4)
-- In a slot that is halfway to another node, keys that are yet to come would pass for gone. Two
-- keys of which one is missing are refused there, before anything is done.
redis.call('EXISTS', all, root .. 'none')
local expiry = root .. 'expiry'
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local function digits(value) return string.format('%.0f', value) end

local function stamp_after(last)
    return math.max(micros, last + 1)
end
local function last_stamp()
    return tonumber(redis.call('GET', root .. 'seq') or 0)
end
local function keep_stamp(stamp)
    -- It only matters when the clock is set back, or very busy; a day is enough for that.
    redis.pcall('SET', root .. 'seq', digits(stamp), 'PX', 86400000)
end

-- Read the head of an item, however long its body is.
local function head_of(id)
    local key = root .. 'item:' .. id
    local value = redis.call('GETRANGE', key, 0, 511)
    if value == '' then return nil end
    local stop = 53 + tonumber(string.sub(value, 50, 53), 16)
    if stop > 512 then value = redis.call('GETRANGE', key, 0, stop - 1) end
    return {
        place = string.sub(value, 1, 28) .. id,
        stamp = tonumber(string.sub(value, 29, 41), 16),
        version = tonumber(string.sub(value, 42, 49), 16),
        scopes = string.sub(value, 54, stop),
    }
end

local function for_each(scopes, work)
    local start = 1
    while start <= #scopes do
        local stop = string.find(scopes, '\\0', start, true) or #scopes + 1
        work(root .. string.sub(scopes, start, stop - 1))
        start = stop + 1
    end
end
-- Return the set in which the items of a scope stand as they were added; of a user there is none.
local function added(key)
    local scope = string.sub(key, #root + 1)
    if scope == 'all' or string.find(scope, '^session_id:') or string.find(scope, '^task_id:') then
        return root .. 'added:' .. scope
    end
end
local function leave(key, place)
    redis.call('ZREM', key, place)
    local by_stamp = added(key)
    if by_stamp then redis.call('ZREM', by_stamp, string.sub(place, 29)) end
end
local function leave_scopes(place, scopes)
    for_each(scopes, function(key) leave(key, place) end)
end

-- Take items that are over out of the indexes; a bounded number, so that no call pays for all.
local function trim(most)
    local dead = redis.call('ZRANGEBYSCORE', expiry, '-inf', '(' .. digits(now), 'LIMIT', 0, most)
    for _, entry in ipairs(dead) do
        local stop = string.find(entry, '\\0', 1, true)
        local place = string.sub(entry, 1, stop - 1)
        leave(all, place)
        leave_scopes(place, string.sub(entry, stop + 1))
        redis.call('ZREM', expiry, entry)
    end
    return #dead
end

local function remove(id, head)
    leave(all, head.place)
    leave_scopes(head.place, head.scopes)
    redis.call('ZREM', expiry, head.place .. '\\0' .. head.scopes)
    redis.call('UNLINK', root .. 'item:' .. id)
end
-- The same, and remember for a month that the id was used.
local function delete(id, head)
    remove(id, head)
    redis.call('PEXPIREAT', root .. 'used:' .. id, digits(now + 2592000000))
end
"""

_ONCE = """
local call, keep = root .. 'call:' .. ARGV[1], ARGV[2]
local answered = redis.call('GET', call)
if answered then return answered end
local function answer(value)
    -- A full server takes nothing new, but what is there must still be removable.
    redis.pcall('SET', call, value, 'PX', keep)
    return value
end
"""

# KEYS: all, and the index of each scope that is asked for. The smallest is walked.
_WALK = """
local function forget(place)
    for _, key in ipairs(KEYS) do leave(key, place) end
end
-- Call visit for each place from one end on until it returns true; return where to go on, or ''.
local function walk(low, high, is_forward, most, visit)
    local key, others = KEYS[2] or all, {}
    if #KEYS > 2 then
        local least = redis.call('ZCARD', key)
        for number = 3, #KEYS do
            local size = redis.call('ZCARD', KEYS[number])
            if size < least then
                others[#others + 1] = key
                key, least = KEYS[number], size
            else
                others[#others + 1] = KEYS[number]
            end
        end
        most = 2000
    end
    local places
    if is_forward then
        places = redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, most)
    else
        places = redis.call('ZREVRANGEBYLEX', key, high, low, 'LIMIT', 0, most)
    end
    for _, place in ipairs(places) do
        local is_wanted = true
        for _, other in ipairs(others) do
            if not redis.call('ZSCORE', other, place) then
                is_wanted = false
                break
            end
        end
        if is_wanted and visit(place, string.sub(place, 29)) then return place end
    end
    return #places == most and places[most] or ''
end
"""

_PUTTING = (
    _BASE
    + _ONCE
    + """
local ttl, expected = tonumber(ARGV[3]), tonumber(ARGV[4])
trim(64)
if ARGV[5] ~= '' then
    for number = 6, #ARGV, each do
        local head = head_of(ARGV[number])
        local has = head and '\\0' .. head.scopes .. '\\0'
        for part in head and string.gmatch(ARGV[5], '[^%z]+') or function() end do
            if not string.find(has, '\\0' .. part .. '\\0', 1, true) then
                return answer(digits(-number))
            end
        end
    end
end
local is_insert = expected == -2
if is_insert then
    for number = 6, #ARGV, each do
        local id = ARGV[number]
        if redis.call('EXISTS', root .. 'item:' .. id, root .. 'used:' .. id) > 0 then
            return answer('0')
        end
    end
elseif expected >= 0 then
    local head = head_of(ARGV[6])
    local version = head and head.version or 0
    if version ~= expected then return answer(digits(version)) end
end
-- First of all changes, and not as a part of `answer`: a full server refuses here, before anything
-- is half done. Whether it is full is decided when a script starts.
redis.call('SET', call, '-1', 'PX', keep)
-- An index lives as long as its longest-lived item, and a second more: never less.
local life = {}
local function enter(key, score, member, death)
    local ends = life[key]
    if not ends then
        local left = redis.call('PTTL', key)
        ends = left == -1 and math.huge or left == -2 and 0 or now + left
    end
    redis.call('ZADD', key, score, member)
    local needed = death and death + 1000 or math.huge
    if needed > ends then
        if death then
            redis.call('PEXPIREAT', key, digits(needed))
        elseif ends > 0 then
            redis.call('PERSIST', key)
        end
        ends = needed
    end
    life[key] = ends
end
local function enter_place(key, place, death)
    enter(key, 0, place, death)
    local by_stamp = added(key)
    if by_stamp then
        local first = digits(tonumber(string.sub(place, 16, 28), 16))
        enter(by_stamp, first, string.sub(place, 29), death)
    end
end
local stamp, has_endless, first_mark = last_stamp(), false, nil
local function put(id, created, ending, scopes, body)
    local death = ttl > 0 and now + ttl
    if ending ~= '' then
        -- A key is gone after its last millisecond, an item is gone in that of its end.
        local last = tonumber(ending) - 1
        death = death and math.min(death, last) or last
    end
    stamp = stamp_after(stamp)
    local mark = string.format('%013x', stamp)
    local head = head_of(id)
    if death and death <= now then -- over already: gone at once, and what it replaces
        if head then
            remove(id, head)
            redis.call('UNLINK', root .. 'used:' .. id)
            life = {} -- an index that is empty is gone
        end
        return
    end
    local version, place = 1, created .. (first_mark or mark) .. id
    if head then
        version, place = head.version + 1, head.place
        if head.scopes ~= scopes then
            leave_scopes(place, head.scopes)
            life = {}
        end
        if head.scopes ~= scopes or not death then
            redis.call('ZREM', expiry, place .. '\\0' .. head.scopes)
            life[expiry] = nil
        end
    end
    local value = string.sub(place, 1, 28) .. mark
        .. string.format('%08x%04x', version, #scopes) .. scopes .. body
    if is_insert then redis.call('SET', root .. 'used:' .. id, scopes) end
    if death then
        redis.call('PEXPIREAT', root .. 'used:' .. id, digits(death))
    else
        redis.call('PERSIST', root .. 'used:' .. id)
    end
    if death then
        redis.call('SET', root .. 'item:' .. id, value, 'PX', digits(death - now))
        enter(expiry, digits(death), place .. '\\0' .. scopes, death)
    else
        redis.call('SET', root .. 'item:' .. id, value)
        has_endless = true
    end
    enter_place(all, place, death)
    for_each(scopes, function(key) enter_place(key, place, death) end)
end
"""
)

_PUT_DONE = """
keep_stamp(stamp)
-- Where items without an end keep the indexes alive, what is over must still be taken out.
if has_endless or redis.call('PTTL', all) == -1 then redis.call('PERSIST', expiry) end
"""

PUT = Script.of(
    "local each = 5"
    + _PUTTING
    + "for number = 6, #ARGV, each do put(unpack(ARGV, number, number + 4)) end"
    + _PUT_DONE
    + "return '-1'",
    is_write=True,
)
"""Arguments: token, ms to remember it, ms to live or 0, expected version, -1 for any or -2 if no
id may be used, the scopes that an item must have to be replaced; then for each item its id,
`created_at`, the ms at which it is over or nothing, scopes and body. Answers -1, the version that
was not expected, or the place of an id that is another's, negated."""

MOVE = Script.of(
    "local each = 7"
    + _PUTTING
    + """
local kept = {}
for number = 6, #ARGV, each do
    local id, known, version = ARGV[number], ARGV[number + 5], ARGV[number + 6]
    local head = head_of(id)
    if known == (head and string.format('%013x', head.stamp) or '') then
        first_mark = head and string.sub(head.place, 16, 28)
        if head then -- a write over it would keep its time and its number
            remove(id, head)
            life = {}
        end
        if ARGV[number + 4] ~= '' then
            put(unpack(ARGV, number, number + 4))
            if redis.call('EXISTS', root .. 'item:' .. id) == 1 then
                redis.call('SETRANGE', root .. 'item:' .. id, 41, version)
            end
        end
    else
        kept[#kept + 1] = id
    end
end
"""
    + _PUT_DONE
    + "return answer('=' .. table.concat(kept, '\\n'))",
    is_write=True,
)
"""Arguments: those of `PUT`; each item has two more: the stamp of the last write of the item that
it replaces, nothing if there is none; and its version in 8 hex digits. Without a body
it only goes. Answers with `=` and the ids of those that were written meanwhile, one a line, which
are as they were; or as `PUT` does where an id is another's."""

PAGE = Script.of(
    _BASE
    + _WALK
    + """
local low, high, is_forward, most = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
trim(500)
local answer, size = {''}, 0
answer[1] = walk(low, high, is_forward, most, function(place, id)
    local value = redis.call('GET', root .. 'item:' .. id)
    if not value or string.sub(value, 1, 28) ~= string.sub(place, 1, 28) then
        forget(place) -- evicted, or removed by hand
        return false
    end
    answer[#answer + 1] = value
    size = size + #value
    return #answer > most or size > 1000000
end)
return answer
"""
)
"""Arguments: lowest and highest place, 1 to go up, how many. Answers with the place to go on from,
or nothing, and some items."""

COUNT = Script.of(
    _BASE
    + _WALK
    + """
if trim(500) == 500 then return {0, ARGV[1]} end
if #KEYS < 3 then return {redis.call('ZCARD', KEYS[2] or all), ''} end
local count = 0
local last = walk('-', ARGV[1], false, 0, function() count = count + 1 end)
if last ~= '' then last = '(' .. last end
return {count, last}
"""
)
"""Argument: the highest place. Answers with a number to add, and the highest place to go on from,
or nothing."""

CLEAR = Script.of(
    _BASE
    + _ONCE
    + _WALK
    + """
local horizon, high, most = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
trim(500)
if horizon == 0 then
    horizon = stamp_after(last_stamp())
    keep_stamp(horizon)
end
local seen, removed = 0, 0
local last = walk('-', high, false, most, function(place, id)
    local head = head_of(id)
    seen = seen + 1
    if not head or head.place ~= place then
        forget(place)
    elseif head.stamp < horizon then
        delete(id, head)
        removed = removed + 1
    end
    return seen == most
end)
if last ~= '' then last = '(' .. last end
return answer(digits(removed) .. ' ' .. digits(horizon) .. ' ' .. last)
""",
    is_write=True,
)
"""Arguments: token, ms to remember it, the stamp from which on items stay, or 0 to take one, the
highest place, how many. Answers with a number to add, the stamp, and the highest place to go on
from, or nothing."""

DELETE = Script.of(
    _BASE
    + _ONCE
    + """
trim(64)
local gone = 0
for n = 3, #ARGV do
    local head = head_of(ARGV[n])
    if head then
        delete(ARGV[n], head)
        gone = gone + 1
    end
end
return answer(digits(gone))
""",
    is_write=True,
)
"""Arguments: token, ms to remember it, ids. Answers how many of them were there."""

PAGE_ADDED = Script.of(
    _BASE
    + """
local low, high, is_forward, most = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
trim(500)
-- The smallest of the sets that there are; one that lacks something is rebuilt. It was written
-- before there were such sets, or by somebody who does not know of them.
local key, places, least
for number = 1, #KEYS do
    local size = redis.call('ZCARD', KEYS[number])
    if added(KEYS[number]) and (not least or size < least) then
        key, places, least = added(KEYS[number]), KEYS[number], size
    end
end
if redis.call('ZCARD', key) ~= least then
    redis.call('UNLINK', key)
    for _, place in ipairs(redis.call('ZRANGE', places, 0, -1)) do
        local first = digits(tonumber(string.sub(place, 16, 28), 16))
        redis.call('ZADD', key, first, string.sub(place, 29))
    end
    local left = redis.call('PTTL', places)
    if left > 0 then redis.call('PEXPIREAT', key, digits(now + left)) end
end
local found
if is_forward then
    found = redis.call('ZRANGEBYSCORE', key, low, high, 'WITHSCORES', 'LIMIT', 0, most)
else
    found = redis.call('ZREVRANGEBYSCORE', key, high, low, 'WITHSCORES', 'LIMIT', 0, most)
end
local answer, size = {''}, 0
for number = 1, #found, 2 do
    local value = redis.call('GET', root .. 'item:' .. found[number])
    if value then -- else it was evicted, or removed by hand
        local stop = 53 + tonumber(string.sub(value, 50, 53), 16)
        local has, is_wanted = '\\0' .. string.sub(value, 54, stop) .. '\\0', true
        for each = 2, #KEYS do
            local scope = '\\0' .. string.sub(KEYS[each], #root + 1) .. '\\0'
            is_wanted = is_wanted and string.find(has, scope, 1, true)
        end
        if is_wanted then
            answer[#answer + 1] = value
            size = size + #value
        end
    end
    answer[1] = found[number + 1]
    if size > 1000000 then return answer end
end
if #found < most * 2 then answer[1] = '' end
return answer
"""
)
"""Arguments: lowest and highest stamp, 1 to go up, how many. Answers with the stamp to go on from,
or nothing, and some items as they were added."""

USED = Script.of(
    _BASE
    + """
local answer = {}
for number, id in ipairs(ARGV) do
    answer[number] = redis.call('EXISTS', root .. 'item:' .. id, root .. 'used:' .. id)
end
return answer
"""
)
"""Arguments: ids. Answers for each with a number above 0 if it is used."""
