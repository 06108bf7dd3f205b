"""What an agent did in the last hours: `ShortTermMemoryManager`, on Redis or without a server.

The address says where: `redis://…` shares the memory among machines, `sqlite:///file` among the
processes of one, `memory://` keeps it in this process. Everything else is the same.
"""

import asyncio
import json
import math
import warnings
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from threading import Lock
from types import TracebackType
from typing import Any, Self

from orbiter.memory.backends import urls
from orbiter.memory.episodic.protocol import PAGE, Episode, Episodes, Span, StoredEpisode
from orbiter.memory.errors import QueryError
from orbiter.memory.model.episode import (
    DEFAULT_TTL_HOURS,
    STAMP_LENGTH,
    EpisodicMemory,
    check_agent_id,
    stored_episode,
)
from orbiter.memory.model.protocols import Clock
from orbiter.memory.model.query import check_instant, check_size
from orbiter.memory.model.reports import Erasure
from orbiter.memory.model.validation import check_positive, to_utc
from orbiter.memory.text.pii import PIIHook, scrub

__all__ = ["EpisodicMemory", "ShortTermMemoryManager", "get_short_term_memory"]

_HOUR_MS = 3_600_000
_SEARCHED_AT_ONCE = 500
_TICK, _MOMENT = timedelta(microseconds=1), timedelta(seconds=1)
_LONG_TEXT = 20_000  # characters that a hook may take a tenth of a second for


def _now() -> datetime:
    return datetime.now(UTC)


class ShortTermMemoryManager:
    """Remembers what one agent did and was told, for some hours.

    *pii* gets content, platform and the texts of the metadata before they are written, see
    `PIIHasher`. A server that is silent for *deadline* seconds is a `ConnectionError`. *clock*
    dates the interactions, and ends them where there is no server that does. *ttl_hours* is how
    long one is remembered unless it says otherwise.
    """

    def __init__(
        self,
        redis_url: str = "redis://localhost:6379/0",
        agent_id: str = "nova",
        *,
        pii: PIIHook | None = None,
        ttl_hours: float = DEFAULT_TTL_HOURS,
        deadline: float = 10.0,
        clock: Clock = _now,
    ) -> None:
        self.redis_url = redis_url
        self.agent_id = check_agent_id(agent_id)
        check_positive(deadline=deadline, ttl_hours=ttl_hours)
        if pii is not None and not callable(pii):
            raise QueryError(f"`pii` must be a function from text to text, not {pii!r}")
        self._pii = pii
        self._ttl_hours = ttl_hours
        self._clock = clock
        self._last = datetime.min.replace(tzinfo=UTC)
        self._episodes = _open_episodes(
            redis_url, agent_id, deadline=deadline, clock=clock, owner=self
        )

    def __repr__(self) -> str:
        return f"ShortTermMemoryManager({_redacted(self.redis_url)!r}, agent_id={self.agent_id!r})"

    # Connecting

    async def connect(self) -> None:
        """Connect, and see that it works; else raise `ConnectionError`. Idempotent.

        It need not be called: the first use connects, too.
        """
        await self._episodes.connect()

    async def disconnect(self) -> None:
        """Close what this manager holds open. Idempotent; the next use connects again."""
        await self._episodes.disconnect()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.disconnect()

    # Writing

    async def add_interaction(
        self,
        interaction_type: str,
        content: str,
        platform: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        ttl_hours: float | None = None,
    ) -> EpisodicMemory:
        """Remember an interaction for *ttl_hours*, or as long as usual; return it once kept."""
        memory = EpisodicMemory(
            agent_id=self.agent_id,
            interaction_type=interaction_type,
            content=content,
            platform=platform,
            metadata={} if metadata is None else metadata,
            timestamp=self._next_instant(),
            ttl_hours=self._ttl_hours if ttl_hours is None else ttl_hours,
        )
        return await self._put(memory, math.ceil(memory.ttl_hours * _HOUR_MS))

    async def add(self, memory: EpisodicMemory) -> EpisodicMemory:
        """Remember *memory* as it is, with a time of its own; under the same id it stays one.

        Returns what is kept, which is *memory* after the `pii` hook.
        """
        if type(memory) is not EpisodicMemory:
            raise QueryError(
                f"`{type(memory).__name__}` is not `EpisodicMemory` itself; `add_interaction` "
                "makes one, and `metadata` takes what you want to add to it"
            )
        if memory.agent_id != self.agent_id:
            raise QueryError(
                f"this is a memory of agent `{memory.agent_id}`, and the manager is "
                f"`{self.agent_id}`'s; make it with `agent_id={self.agent_id!r}`"
            )
        left = memory.expires_at - self._clock()
        if left <= timedelta(0):
            raise QueryError(
                f"it would have expired already, at {memory.expires_at.isoformat()}; give it a "
                "longer `ttl_hours`"
            )
        return await self._put(memory, math.ceil(left / timedelta(milliseconds=1)))

    async def _put(self, memory: EpisodicMemory, ttl_ms: int) -> EpisodicMemory:
        if self._pii is not None:
            if len(memory.content) > _LONG_TEXT:
                memory = await asyncio.to_thread(_scrubbed, memory, self._pii)
            else:
                memory = _scrubbed(memory, self._pii)
        body = memory.model_dump_json()
        await self._episodes.put(Episode(memory.id, memory.timestamp, body, ttl_ms))
        return memory

    async def forget(
        self,
        memory: EpisodicMemory | str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        interaction_type: str | None = None,
        platform: str | None = None,
        everything: bool = False,
    ) -> int:
        """Forget one memory, or all that match every filter given; return how many.

        A filter by time alone, and *everything*, also take what cannot be read any more.
        """
        if memory is not None:
            episode_id = memory.id if isinstance(memory, EpisodicMemory) else memory
            pages = self._pages(_around(episode_id))
            ids = [each.id async for page in pages for each in page if each.id == episode_id]
        else:
            filters = (since, until, interaction_type, platform)
            if not everything and all(each is None for each in filters):
                raise QueryError("say what to forget: a memory, a filter, or `everything=True`")
            span = _span(since, until)
            if interaction_type is None and platform is None:
                ids = [each.id async for page in self._pages(span) for each in page]
            else:
                wanted = _Filter(interaction_type, platform)
                ids = [each.id async for each in self._walk(span) if wanted(each)]
        await self._episodes.remove(ids)
        return len(ids)

    async def erase_agents(self, *patterns: str) -> Erasure:
        """Remove for good what is kept here of every agent whose id matches one of *patterns*.

        `*` stands for any characters. It is the place that is meant, not this agent alone.
        """
        if not patterns or not all(str(each).strip("*") for each in patterns):
            raise QueryError(
                "name agents, such as `nova` or `scope-*`; `*` alone would be everyone's"
            )
        return await self._episodes.erase(patterns)

    # Reading

    async def get_recent(
        self,
        hours: float = 2.0,
        limit: int | None = None,
    ) -> list[EpisodicMemory]:
        """Return the interactions of the last *hours*, newest first, at most *limit*."""
        return await self._take(self._since(hours), limit)

    async def get_recent_summaries(
        self,
        hours: float = 2.0,
        limit: int | None = None,
    ) -> list[str]:
        """Return `get_recent` as lines for a prompt: `[HH:MM] type on platform: content`.

        The time is UTC. A line never breaks, whatever the content.
        """
        return [memory.summary() for memory in await self.get_recent(hours=hours, limit=limit)]

    async def get_range(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        limit: int | None = None,
    ) -> list[EpisodicMemory]:
        """Return the interactions from *since* on and before *until*, newest first."""
        return await self._take(_span(since, until), limit)

    async def search(
        self,
        query: str = "",
        *,
        hours: float | None = None,
        interaction_type: str | None = None,
        platform: str | None = None,
        limit: int | None = 10,
    ) -> list[EpisodicMemory]:
        """Return the newest interactions whose content holds *query*, in any case."""
        if limit is not None:
            check_size("limit", limit)
        if not isinstance(query, str):
            raise QueryError(f"`query` must be a string, not {query!r}")
        if self._pii is not None:
            query = self._pii(query)  # what was replaced when written is found by its token
        wanted = _Filter(interaction_type, platform, query.casefold())
        span = Span() if hours is None else self._since(hours)
        matching: list[EpisodicMemory] = []
        if limit != 0:
            async with aclosing(self._walk(span, at_once=_SEARCHED_AT_ONCE)) as memories:
                async for memory in memories:
                    if wanted(memory):
                        matching.append(memory)
                        if len(matching) == limit:
                            break
        return matching

    async def count(self, since: datetime | None = None, until: datetime | None = None) -> int:
        """Return how many interactions are remembered."""
        return await self._episodes.count(_span(since, until))

    async def stream(self, since: datetime | None = None) -> AsyncGenerator[EpisodicMemory, None]:
        """Yield interactions as they are added, by whomever, in the order in which they arrive.

        With *since*, first those that are there already, so that nothing falls between a look
        back and the start of the stream.
        """
        _, position = await self._episodes.news(None)
        known: set[str] = set()
        if since is not None:
            for memory in reversed(await self.get_range(since)):
                known.add(memory.id)
                yield memory
        while True:
            bodies, position = await self._episodes.news(position)
            for memory in _memories(bodies):
                if memory.id in known:
                    known.discard(memory.id)
                else:
                    yield memory

    async def _take(self, span: Span, limit: int | None) -> list[EpisodicMemory]:
        if limit is not None:
            check_size("limit", limit)
        if limit == 0:
            return []
        if limit is not None and limit <= PAGE:  # as most ask: one round trip, and no more
            page = await self._episodes.page(span, limit=limit, before=None)
            memories = _memories([each.body for each in page])
            if len(page) < limit or len(memories) >= limit:
                return memories[:limit]
        return [memory async for memory in self._walk(span, limit=limit)]

    async def _walk(
        self, span: Span, *, limit: int | None = None, at_once: int = PAGE
    ) -> AsyncGenerator[EpisodicMemory, None]:
        """Yield what is in *span*, newest first."""
        left = limit
        size = at_once if limit is None else min(limit, at_once)
        async with aclosing(self._pages(span, at_once=size)) as pages:
            async for page in pages:
                for memory in _memories([each.body for each in page])[:left]:
                    yield memory
                    left = None if left is None else left - 1
                if left == 0:
                    return

    async def _pages(
        self, span: Span, *, at_once: int = PAGE
    ) -> AsyncGenerator[list[StoredEpisode], None]:
        """Yield what is kept in *span*, newest first, a page per round trip."""
        last: str | None = None
        while True:
            page = await self._episodes.page(span, limit=at_once, before=last)
            yield page
            if len(page) < at_once:
                return
            last = page[-1].id

    def _since(self, hours: float) -> Span:
        try:
            return Span(since=to_utc(self._clock()) - timedelta(hours=_check_hours(hours)))
        except OverflowError:  # before all time
            return Span()

    def _next_instant(self) -> datetime:
        """Return the time, a little later than the last: what is added later is newer.

        Where the clock was set back by more than a moment, its new time counts.
        """
        now = self._clock()
        if now <= self._last < now + _MOMENT:
            now = self._last + _TICK
        self._last = now
        return now


class _Filter:
    """Tells whether a memory is among those asked for."""

    def __init__(
        self, interaction_type: str | None, platform: str | None, needle: str = ""
    ) -> None:
        self._interaction_type = interaction_type
        self._platform = platform
        self._needle = needle

    def __call__(self, memory: EpisodicMemory) -> bool:
        return (
            self._interaction_type in (None, memory.interaction_type)
            and self._platform in (None, memory.platform)
            and self._needle in memory.content.casefold()
        )


_managers: dict[tuple[str, str], ShortTermMemoryManager] = {}
_managing = Lock()


def get_short_term_memory(
    redis_url: str = "redis://localhost:6379/0", agent_id: str = "nova"
) -> ShortTermMemoryManager:
    """Return the manager of this address and agent, the same one each time."""
    with _managing:
        manager = _managers.get((redis_url, agent_id))
        if manager is None:
            manager = _managers[redis_url, agent_id] = ShortTermMemoryManager(redis_url, agent_id)
        return manager


def _check_hours(hours: object) -> float:
    if isinstance(hours, int | float) and not isinstance(hours, bool) and hours >= 0:
        return hours  # NaN is not 0 or more
    raise QueryError(f"`hours` must be a number of 0 or more, not {hours!r}")


def _span(since: datetime | None, until: datetime | None) -> Span:
    if isinstance(since, datetime) and since.tzinfo is None and to_utc(since) > _now():
        raise QueryError(
            f"`since` {since.isoformat()} has no time zone and lies in the future as UTC; "
            "use `datetime.now(UTC)`, or give it its zone"
        )
    return Span(
        None if since is None else check_instant("since", since),
        None if until is None else check_instant("until", until),
    )


def _around(episode_id: str) -> Span:
    """Return the moment at which *episode_id* was made."""
    try:
        instant = datetime.fromisoformat(episode_id[:STAMP_LENGTH])
        end = instant + _TICK
    except (TypeError, ValueError, OverflowError):
        raise QueryError(f"`memory` must be a memory or its id, not {episode_id!r}") from None
    return Span(to_utc(instant), to_utc(end))


def _memories(bodies: list[str]) -> list[EpisodicMemory]:
    try:
        records = json.loads(f"[{','.join(bodies)}]")
    except ValueError:
        records = []
    if len(records) != len(bodies):  # one of them is not JSON, or is several
        return [memory for body in bodies for memory in _memory(body)]
    memories: list[EpisodicMemory] = []
    for body, record in zip(bodies, records, strict=True):
        memory = stored_episode(record)
        memories += _memory(body) if memory is None else (memory,)
    return memories


def _memory(body: str) -> list[EpisodicMemory]:
    try:
        # A newer version may have written more than this one knows.
        known = {name: value for name, value in json.loads(body).items() if name in _FIELDS}
        return [EpisodicMemory.model_validate(known)]
    except (ValueError, AttributeError):
        # Written by hand, or by another program: no reason to lose sight of all others. What it
        # says stays where it is.
        message = (
            f"left out {len(body):,} characters that are not a memory; `forget` removes them, too"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=4)
        return []


_FIELDS = frozenset(EpisodicMemory.model_fields)


def _scrubbed(memory: EpisodicMemory, pii: PIIHook) -> EpisodicMemory:
    scrubbed = {
        "content": pii(memory.content),
        "platform": memory.platform and pii(memory.platform),
        "metadata": scrub(memory.metadata, pii),
    }
    return EpisodicMemory.model_validate({**memory.model_dump(), **scrubbed})


def _open_episodes(
    url: str, agent_id: str, *, deadline: float, clock: Clock, owner: object
) -> Episodes:
    """Return where *url* says that the episodes of *agent_id* are; only its driver is loaded."""
    scheme, mark, rest = str(url).partition("://")
    if scheme == "memory" and mark:
        from orbiter.memory.episodic.in_memory import MemoryEpisodes  # noqa: PLC0415

        return MemoryEpisodes(rest, agent_id, clock=clock)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile  # noqa: PLC0415
        from orbiter.memory.episodic.sqlite import SQLiteEpisodes  # noqa: PLC0415

        file = SQLiteFile(rest[1:], owner=repr(owner), busy_timeout=deadline, readers=1)
        return SQLiteEpisodes(file, agent_id, clock=clock)
    if mark and scheme.partition("+")[0] in ("redis", "rediss"):
        from orbiter.memory.backends.redis.connection import connection_to  # noqa: PLC0415
        from orbiter.memory.episodic.redis import RedisEpisodes  # noqa: PLC0415

        return RedisEpisodes(connection_to(url, deadline=deadline), agent_id)
    name = f"{scheme}://…" if mark else "…" if "@" in scheme else url
    hint = "; a file has three slashes before its name" if scheme == "sqlite" else ""
    raise QueryError(
        f"`{name}` is not a valid address; use `redis://…`, `sqlite:///file.db` or `memory://`{hint}"
    )


def _redacted(url: str) -> str:
    """Return *url* as it may be printed."""
    return url if url.startswith(("memory://", "sqlite://")) else urls.redacted(url)
