"""Key-value entries in Redis: the scripts. One call of a script is one atomic step.

    orbiter:{name}:kv:scopes              hash: the metadata of each scope, by its digest
    orbiter:{name}:kv:<scope>:index       sorted set, every score 0: the names of its entries
    orbiter:{name}:kv:<scope>:entry:<entry>
                                          hash: v value, n version, c created, u updated, t ttl and
                                          x end, all times in microseconds
    orbiter:{name}:kv:expiry              sorted set by end: scope, U+0000, name

The name of an entry is its path as text, U+0000 and its key: its order as bytes is that of entries.
"""

from orbiter.memory.backends.redis.commands import Script

__all__ = [
    "APPEND",
    "CLEAR",
    "COUNT",
    "GET",
    "LIST",
    "LOAD",
    "PATHS",
    "POP",
    "SCOPES",
    "TOUCH",
    "TTLS",
    "WRITE",
]

_BASE = """
local root = string.sub(KEYS[1], 1, -4) .. 'kv:'
redis.call('EXISTS', KEYS[1], root .. 'none') -- refused in a slot that is halfway: see scripts.py
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

WRITE = Script.of(
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
""",
    is_write=True,
)
"""Arguments: token, ms to remember it, scope, its metadata; then of each change its kind, its name,
the expected version or -1, the ttl or nothing, and the value. Answers the versions, or `!`, which
change expects another version, and that which there is."""

GET = Script.of(
    _BASE
    + """
local rows = {}
for number = 2, #ARGV do rows[number - 1] = row(ARGV[1], ARGV[number]) end
return rows
"""
)
TOUCH = Script.of(
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
""",
    is_write=True,
)
LIST = Script.of(
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
PATHS = Script.of(
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
APPEND = Script.of(
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
""",
    is_write=True,
)
"""Arguments: token, ms to remember it, scope, its metadata, the path, the key before the first, the
ttl or nothing, the values. Answers the number of the first, or `!` and a key that is no number."""
POP = Script.of(
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
""",
    is_write=True,
)
"""Arguments: token, ms to remember it, scope, path. Answers the entry: the length of its name, its
version, times and end; after a line break, its name and value. Nothing if there is none."""
CLEAR = Script.of(
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
""",
    is_write=True,
)
COUNT = Script.of(
    _BASE
    + """
local scope, count, first, last = ARGV[1], 0, math.huge, 0
local names = redis.call('ZRANGEBYLEX', index_of(scope), ARGV[2], '+', 'LIMIT', 0, ARGV[3])
for _, name in ipairs(names) do
    local head = head_of(scope, name)
    if head then
        count = count + 1
        first, last = math.min(first, tonumber(head[2])), math.max(last, tonumber(head[3]))
    end
end
return {count, #names, names[#names] or '', digits(first), digits(last)}
"""
)
"""Arguments: scope, from where, how many. Answers how many are not over, were read, the last.

Then when the first was created and one was put last, if there is any.
"""
TTLS = Script.of(
    _BASE
    + """
local ttls = {}
for number = 2, #ARGV do
    ttls[number - 1] = redis.call('HGET', key_of(ARGV[1], ARGV[number]), 't') or ''
end
return ttls
"""
)
LOAD = Script.of(
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
""",
    is_write=True,
)
"""Arguments: token, ms to remember it, whether what is there is replaced; then of each entry its
scope, the scope's metadata, its name, value, version, times, ttl and end."""
SCOPES = Script.of(_BASE + "return redis.call('HGETALL', root .. 'scopes')")
