"""Episodes in Redis: a body per episode with its own TTL, an index in order of time.

    agent:{agent_id}:episodic:{timestamp_iso}-{mark}   the body, JSON
    agent:{agent_id}:episodic:index                    sorted set: bodies' keys by time
    agent:{agent_id}:episodic:expiry                   sorted set: the same by end of life
    agent:{agent_id}:episodic:arrivals                 stream: the ids of the newest four thousand

All of one agent lie in one slot of a cluster, where the id stands in braces. The last three live
as long as the longest-lived body. Keys are made of the index's members inside the scripts.
"""

from collections.abc import Sequence
from datetime import datetime

from orbiter.memory.backends._episodes.episode import PAGE, Episode, Span
from orbiter.memory.backends._redis.commands import Script
from orbiter.memory.backends._redis.link import RedisLink
from orbiter.memory.episodes import STAMP_LENGTH

CONNECT_WITHIN = 3.0
"""Seconds after which `connect` gives up: who calls it wants to know, not to wait."""

# The server's clock decides what is over. The number of members to drop at once is bounded, so
# that no call pays for all: 7,000 is about what a call may unpack.
_TRIM = """
local index, expiry = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function trim(most)
    local dead = redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, most)
    if #dead > 0 then
        redis.call('ZREM', index, unpack(dead))
        redis.call('ZREM', expiry, unpack(dead))
    end
    return #dead
end
local function outlive(...)
    local last = redis.call('ZREVRANGE', expiry, 0, 0, 'WITHSCORES')[2]
    if last then
        for _, key in ipairs({...}) do redis.call('PEXPIREAT', key, last) end
    end
end
"""

# Several episodes at once, each in one argument: more would take longer to pack than to store.
_PUT = Script.of(
    _TRIM
    + """
local arrivals, prefix = KEYS[3], string.sub(index, 1, -6)
trim(64)
for _, episode in ipairs(ARGV) do
    local id, at, ttl, start = string.match(episode, '^(%S+) (%S+) (%S+) ()')
    local key = prefix .. id
    -- The body comes last: if something of another type lies in the way, there is none.
    redis.call('ZADD', expiry, now + ttl, key)
    if redis.call('ZADD', index, at, key) == 1 then
        redis.call('XADD', arrivals, 'MAXLEN', '~', 4000, '*', 'id', id)
    end
    redis.call('SET', key, string.sub(episode, start), 'PX', ttl)
end
outlive(index, expiry, arrivals)
return 1
"""
)

_PAGE = Script.of(
    _TRIM
    + """
local least, most, limit, before, score = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
trim(1000)
local start = 0
if before ~= '' then
    -- Those of one microsecond have one score: the rank says where among them to go on.
    local rank = redis.call('ZREVRANK', index, before)
    if rank then
        start = rank + 1 - redis.call('ZCOUNT', index, most, '+inf')
    else
        most = score
    end
end
local bodies, size, want = {}, 0, 64
while #bodies < limit do
    want = math.min(limit - #bodies, want)
    local keys = redis.call('ZREVRANGEBYSCORE', index, '(' .. most, least, 'LIMIT', start, want)
    if #keys == 0 then break end
    -- The index beside them: in a slot that is halfway, one key alone that is yet to come would
    -- pass for dead, where several are refused.
    local found = redis.call('MGET', index, unpack(keys))
    for place, key in ipairs(keys) do
        local body = found[place + 1]
        if body then
            bodies[#bodies + 1], size = body, size + #body
            if size > 2000000 and #bodies < limit then
                return {key, table.concat(bodies, '\\30')}
            end
        end
    end
    start = start + #keys
    want = math.min(1000, math.ceil(2000000 * (#bodies + 1) / (size + 1)))
end
return {'', table.concat(bodies, '\\30')}
"""
)
"""Answers with the key to go on from, or nothing, and the bodies, newest first: two megabytes and
a body at most, so that every network carries them in the time of an attempt. They come as one
text, parted by a character that JSON never holds: to read ten answers takes longer than to find
them."""

_COUNT = Script.of(
    _TRIM
    + """
while trim(1000) == 1000 do end
return redis.call('ZCOUNT', index, ARGV[1], '(' .. ARGV[2])
"""
)

_REMOVE = Script.of(
    _TRIM
    + """
for place = 4, #KEYS do
    redis.call('DEL', KEYS[place])
    redis.call('ZREM', index, KEYS[place])
    redis.call('ZREM', expiry, KEYS[place])
end
outlive(index, expiry, KEYS[3])
if redis.call('EXISTS', index) == 0 then redis.call('DEL', KEYS[3]) end
return 1
"""
)


class RedisEpisodes:
    """The episodes of one agent in one Redis."""

    def __init__(self, link: RedisLink, agent_id: str) -> None:
        self._link = link
        tag = f"{{{agent_id}}}" if link.address.kind == "cluster" else agent_id
        self._prefix = f"agent:{tag}:episodic:"
        self._shared = tuple(f"{self._prefix}{name}" for name in ("index", "expiry", "arrivals"))

    async def connect(self) -> None:
        await self._link.call(self, ("EXISTS", self._shared[0]), within=CONNECT_WITHIN)

    async def disconnect(self) -> None:
        await self._link.leave(self)

    async def put(self, episode: Episode) -> None:
        told = f"{episode.id} {_score(episode.at)} {episode.ttl_ms} {episode.body}"
        await self._link.call(self, _PUT.call(self._shared, (told,), is_shared=True))

    async def page(self, span: Span, *, limit: int, before: Episode | None) -> list[str]:
        cursor = ("", "") if before is None else (self._prefix + before.id, _score(before.at))
        bodies: list[str] = []
        left = min(limit, PAGE)
        while True:
            args: list[str | int] = [*_bounds(span), left - len(bodies), *cursor]
            last, some = await self._link.call(self, _PAGE.call(self._shared[:2], args))
            bodies += some.decode().split("\x1e") if some else ()
            if not last:
                return bodies
            key = last.decode()
            moment = key.removeprefix(self._prefix)[:STAMP_LENGTH]
            cursor = (key, _score(datetime.fromisoformat(moment)))

    async def count(self, span: Span) -> int:
        return int(await self._link.call(self, _COUNT.call(self._shared[:2], _bounds(span))))

    async def remove(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 500):
            keys = [self._prefix + each for each in ids[start : start + 500]]
            await self._link.call(self, _REMOVE.call([*self._shared, *keys], []))

    async def news(self, position: str | None) -> tuple[list[str], str]:
        arrivals = self._shared[2]
        if position is None:
            newest = await self._link.call(self, ("XREVRANGE", arrivals, "+", "-", "COUNT", 1))
            return [], newest[0][0].decode() if newest else "0-0"
        block = self._link.block_ms
        where = ("STREAMS", arrivals, position)
        found = await self._link.wait_for(
            self,
            ("XREAD", "COUNT", 500, "BLOCK", block, *where),
            glance=("XREAD", "COUNT", 500, *where),
        )
        if not found:
            return [], position
        # A list of pairs, or with RESP3 a mapping to a list of lists.
        entries = next(iter(found.values()))[0] if isinstance(found, dict) else found[0][1]
        keys = (self._prefix.encode() + fields[b"id"] for _, fields in entries)
        bodies = await self._link.call(self, ("MGET", *keys))
        return [body.decode() for body in bodies if body], entries[-1][0].decode()


def _score(instant: datetime) -> str:
    """Return *instant* in seconds, to the microsecond."""
    return f"{instant.timestamp():.6f}"


def _bounds(span: Span) -> list[str]:
    return [
        "-inf" if span.since is None else _score(span.since),
        "+inf" if span.until is None else _score(span.until),
    ]
