"""Episodes in a SQLite file, beside the items that may be there, shared by many processes."""

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orbiter.memory.backends.sql.erase_probes import Probes
from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile
from orbiter.memory.backends.sqlite.erase import scrub
from orbiter.memory.backends.sqlite.idle_tasks import forget_some
from orbiter.memory.episodic.protocol import PAGE, Episode, Span, StoredEpisode
from orbiter.memory.model.protocols import Clock
from orbiter.memory.model.reports import Erasure

__all__ = ["SQLiteEpisodes"]

_WAIT = 1.0
_GLANCE = 0.05

_PUT = """
INSERT INTO episodic_memories (agent_id, id, body, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT (agent_id, id) DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at
"""
# Few at a time, so that no write pays for all.
_TRIM = """
DELETE FROM episodic_memories WHERE place IN
    (SELECT place FROM episodic_memories WHERE expires_at <= ? ORDER BY expires_at LIMIT 64)
"""
_LIVE = "FROM episodic_memories WHERE agent_id = ? AND id >= ? AND id < ? AND expires_at > ?"
_PAGE = f"SELECT id, body {_LIVE} ORDER BY id DESC LIMIT ?"
_COUNT = f"SELECT count(*) {_LIVE}"
_REMOVE = "DELETE FROM episodic_memories WHERE agent_id = ? AND id = ?"
_NEWEST = "SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'episodic_memories'), 0)"
_NEWS = """
SELECT place, body FROM episodic_memories
WHERE agent_id = ? AND place > ? AND expires_at > ? ORDER BY place LIMIT 500
"""


class SQLiteEpisodes:
    """The episodes of one agent in one file."""

    def __init__(self, file: SQLiteFile, agent_id: str, *, clock: Clock) -> None:
        self._file = file
        self._agent_id = agent_id
        self._clock = clock

    async def connect(self) -> None:
        await self._file.init()

    async def disconnect(self) -> None:
        await self._file.close()

    async def put(self, episode: Episode) -> None:
        now = self._now()
        row = (self._agent_id, episode.id, episode.body, now + episode.ttl_ms / 1000)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_TRIM, [now])
            connection.execute(_PUT, row)

        await self._file.init()
        await self._file.write(write)

    async def page(self, span: Span, *, limit: int, before: str | None) -> list[StoredEpisode]:
        end = span.end if before is None else min(span.end, before)
        args = [self._agent_id, span.first, end, self._now(), min(limit, PAGE)]
        return [StoredEpisode(*row) for row in await self._ask(_PAGE, args)]

    async def count(self, span: Span) -> int:
        args = [self._agent_id, span.first, span.end, self._now()]
        return int((await self._ask(_COUNT, args))[0][0])

    async def remove(self, ids: Sequence[str]) -> None:
        rows = [(self._agent_id, each) for each in ids]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(_REMOVE, rows)

        await self._file.init()
        await self._file.write(write)

    async def erase(self, patterns: Sequence[str]) -> Erasure:
        probes, where = Probes(), " OR ".join(["agent_id GLOB ?"] * len(patterns))

        def remove(connection: sqlite3.Connection) -> int:
            rows = connection.execute(
                f"SELECT agent_id, body FROM episodic_memories WHERE {where}", patterns
            )
            for agent_id, body in rows:
                probes.add_id(agent_id)
                probes.add_text(body)
            gone = connection.execute(f"DELETE FROM episodic_memories WHERE {where}", patterns)
            return gone.rowcount

        async def forget() -> None:
            while await self._file.read(forget_some, writing=True):
                pass

        await self._file.init()
        removed: int = await self._file.write(remove)
        return replace(await scrub(self._file, probes.taken(), forget), episodes=removed)

    async def news(self, position: str | None) -> tuple[list[str], str]:
        if position is None:
            return [], str((await self._ask(_NEWEST, []))[0][0])
        for _ in range(int(_WAIT / _GLANCE)):
            rows = await self._ask(_NEWS, [self._agent_id, int(position), self._now()])
            if rows:
                return [body for _, body in rows], str(rows[-1][0])
            await asyncio.sleep(_GLANCE)
        return [], position

    async def _ask(self, sql: str, args: list[Any]) -> list[Any]:
        await self._file.init()
        return await self._file.read(lambda connection: connection.execute(sql, args).fetchall())

    def _now(self) -> float:
        return self._clock().timestamp()
