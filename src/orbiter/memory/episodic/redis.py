"""Episodes in Redis: a body per episode with its own TTL, an index in order of time.

    agent:{agent_id}:episodic:{timestamp_iso}-{mark}   the body, JSON
    agent:{agent_id}:episodic:index                    sorted set: bodies' keys by time
    agent:{agent_id}:episodic:expiry                   sorted set: the same by end of life
    agent:{agent_id}:episodic:arrivals                 stream: the ids of the newest four thousand

All of one agent lie in one slot of a cluster, where the id stands in braces. The last three live
as long as the longest-lived body. Keys are made of the index's members inside the scripts. With
`?wait_replicas=` in the address there is an `index:wait`, too, for a second after a write.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from orbiter.memory.backends.redis.commands import Script
from orbiter.memory.backends.redis.connection import RedisConnection
from orbiter.memory.episodic.protocol import PAGE, Episode, Span, StoredEpisode
from orbiter.memory.model.episode import STAMP_LENGTH
from orbiter.memory.model.reports import Erasure

__all__ = ["CONNECT_WITHIN", "RedisEpisodes"]

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
-- If something of another type lies in the way, it is told before anything is written.
redis.call('ZCARD', index)
redis.call('XLEN', arrivals)
for _, episode in ipairs(ARGV) do
    local id, at, ttl, start = string.match(episode, '^(%S+) (%S+) (%S+) ()')
    local key = prefix .. id
    redis.call('ZADD', expiry, now + ttl, key)
    if redis.call('ZADD', index, at, key) == 1 then
        redis.call('XADD', arrivals, 'MAXLEN', '~', 4000, '*', 'id', id)
    end
    redis.call('SET', key, string.sub(episode, start), 'PX', ttl)
end
outlive(index, expiry, arrivals)
return 1
""",
    is_write=True,
)

_PAGE = Script.of(
    _TRIM
    + """
local least, most, limit, before, score = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
trim(4000)
local start = 0
if before ~= '' then
    -- Those of one microsecond have one score: the rank says where among them to go on. If the one
    -- to go on from is gone, it is put back for a moment.
    local is_gone = redis.call('ZADD', index, 'NX', score, before) == 1
    local rank = redis.call('ZREVRANK', index, before)
    if is_gone then
        redis.call('ZREM', index, before)
        rank = rank - 1
    end
    start = math.max(0, rank + 1 - redis.call('ZCOUNT', index, most, '+inf'))
end
local ids, bodies, size, want, dead, first = {}, {}, 0, 64, 0, #index - 4
local function answer(last)
    local parts = {last, table.concat(ids, '\\30'), table.concat(bodies, '\\30')}
    return table.concat(parts, '\\29')
end
while #bodies < limit do
    want = math.max(math.min(limit - #bodies, want), dead) -- where many are dead, look further
    local keys = redis.call('ZREVRANGEBYSCORE', index, '(' .. most, least, 'LIMIT', start, want)
    if #keys == 0 then break end
    -- The index beside them: in a slot that is halfway, one key alone that is yet to come would
    -- pass for dead, where several are refused.
    local found = redis.call('MGET', index, unpack(keys))
    for place, key in ipairs(keys) do
        local body = found[place + 1]
        if body then
            ids[#ids + 1], bodies[#bodies + 1] = string.sub(key, first), body
            size = size + #body
            if #bodies == limit then break end
            if size > 2000000 then return answer(key) end
        end
    end
    start = start + #keys
    dead = #bodies == 0 and 256 or 0
    want = math.min(1000, math.ceil(2000000 * (#bodies + 1) / (size + 1)))
end
return answer('')
"""
)
"""Answers with the key to go on from, or nothing, with ids, and with bodies, newest first: two
megabytes and a body at most, so that every network carries them in the time of an attempt. They
all come as one text, parted by characters that JSON never holds: to read ten answers takes longer
than to find them."""

_COUNT = Script.of(
    _TRIM
    + """
if ARGV[1] == '-inf' and ARGV[2] == '+inf' then
    return redis.call('ZCOUNT', expiry, '(' .. now, '+inf')
end
while trim(4000) == 4000 do end
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
""",
    is_write=True,
)


_SHARED = ("index", "expiry", "arrivals")


class RedisEpisodes:
    """The episodes of one agent in one Redis."""

    def __init__(self, connection: RedisConnection, agent_id: str) -> None:
        self._connection = connection
        tag = f"{{{agent_id}}}" if connection.address.kind == "cluster" else agent_id
        self._prefix = f"agent:{tag}:episodic:"
        self._shared = tuple(f"{self._prefix}{name}" for name in _SHARED)

    async def connect(self) -> None:
        await self._connection.call(self, ("EXISTS", self._shared[0]), within=CONNECT_WITHIN)

    async def disconnect(self) -> None:
        await self._connection.leave(self)

    async def put(self, episode: Episode) -> None:
        message = f"{episode.id} {_score(episode.at)} {episode.ttl_ms} {episode.body}"
        await self._connection.call(self, _PUT.call(self._shared, (message,), is_shared=True))

    async def page(self, span: Span, *, limit: int, before: str | None) -> list[StoredEpisode]:
        episodes: list[StoredEpisode] = []
        left = min(limit, PAGE)
        while True:
            cursor = ("", "") if before is None else (self._prefix + before, _score_of(before))
            args: list[str | int] = [*_bounds(span), left - len(episodes), *cursor]
            run = _PAGE.call(self._shared[:2], args)
            answer = (await self._connection.call(self, run)).decode()
            last, ids, bodies = answer.split("\x1d", 2)
            if ids:
                episodes += await self._paired(ids.split("\x1e"), bodies.split("\x1e"))
            if not last:
                return episodes
            before = last.removeprefix(self._prefix)

    async def _paired(self, ids: list[str], bodies: list[str]) -> list[StoredEpisode]:
        if len(ids) != len(bodies):  # someone else wrote what is no JSON
            keys = (self._prefix + each for each in ids)
            several = await self._connection.call(self, ("MGET", *keys))
            bodies = ["" if body is None else body.decode(errors="replace") for body in several]
        return [StoredEpisode(*each) for each in zip(ids, bodies, strict=True)]

    async def count(self, span: Span) -> int:
        return int(await self._connection.call(self, _COUNT.call(self._shared[:2], _bounds(span))))

    async def remove(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), 500):
            keys = [self._prefix + each for each in ids[start : start + 500]]
            await self._connection.call(self, _REMOVE.call([*self._shared, *keys], []))

    async def erase(self, patterns: Sequence[str]) -> Erasure:
        """Remove the keys of agents; those of other names under `agent:` are not touched."""
        braces = ("{", "}") if self._connection.address.kind == "cluster" else ("", "")
        episodes = others = 0
        for pattern in patterns:
            agents = f"agent:{braces[0]}{_escaped(pattern)}{braces[1]}:episodic:"
            is_ours = re.compile(
                rf"agent:{re.escape(braces[0])}{_matching(pattern)}{re.escape(braces[1])}:episodic:"
            )
            groups: dict[str, list[str]] = {}
            for raw in await self._connection.keys(self, f"{agents}*"):
                key = raw.decode(errors="replace")
                if match := is_ours.match(key):
                    groups.setdefault(match[0], []).append(key)
            for prefix, several in groups.items():
                named = {f"{prefix}{name}" for name in (*_SHARED, "index:wait")}
                others += len(named.intersection(several))
                episodes += len(set(several) - named)
                for start in range(0, len(several), 500):
                    await self._connection.call(self, ("UNLINK", *several[start : start + 500]))
        return Erasure(episodes=episodes, redis_keys=others)

    async def news(self, position: str | None) -> tuple[list[str], str]:
        arrivals = self._shared[2]
        if position is None:
            newest = await self._connection.call(
                self, ("XREVRANGE", arrivals, "+", "-", "COUNT", 1)
            )
            return [], newest[0][0].decode() if newest else "0-0"
        block = self._connection.block_ms
        where = ("STREAMS", arrivals, position)
        reply = await self._connection.wait_for(
            self,
            ("XREAD", "COUNT", 500, "BLOCK", block, *where),
            glance=("XREAD", "COUNT", 500, *where),
        )
        if not reply:
            return [], position
        # A list of pairs, or with RESP3 a mapping to a list of lists.
        entries = next(iter(reply.values()))[0] if isinstance(reply, dict) else reply[0][1]
        keys = (self._prefix.encode() + fields[b"id"] for _, fields in entries)
        bodies = await self._connection.call(self, ("MGET", *keys))
        return [body.decode() for body in bodies if body], entries[-1][0].decode()


def _escaped(pattern: str) -> str:
    """Return *pattern* as Redis takes it, where more than `*` stands for something."""
    return "".join(f"\\{sign}" if sign in "?[]^\\-" else sign for sign in pattern)


def _matching(pattern: str) -> str:
    """Return the expression that *pattern* is; an agent's id holds no colon of ours."""
    return ".*".join(map(re.escape, pattern.split("*")))


def _score(instant: datetime) -> str:
    """Return *instant* in seconds, to the microsecond."""
    return f"{instant.timestamp():.6f}"


def _score_of(episode_id: str) -> str:
    return _score(datetime.fromisoformat(episode_id[:STAMP_LENGTH]))


def _bounds(span: Span) -> list[str]:
    return [
        "-inf" if span.since is None else _score(span.since),
        "+inf" if span.until is None else _score(span.until),
    ]
