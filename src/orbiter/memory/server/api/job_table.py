"""Records of jobs in a table of a Postgres store, so that every server over it knows every job.

A server has a lease on each job that it does, by the clock of the database, and renews it. What it
leaves, another server goes on with. A row that may hold words of somebody's memories has their
`scope`, by which an erasure in any process finds it: that of a job under way, for what it was
asked, and that of an `answer` which quotes them.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from orbiter.memory.agent import AgentMemory
from orbiter.memory.backends.postgres.driver import SmallPool
from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.errors import MemoryConnectionError, MemoryError, UnsupportedError
from orbiter.memory.server.api.job_record import (
    Beat,
    Job,
    JobStore,
    QuotingAnswer,
    Record,
    load_job,
)

__all__ = ["JobTable"]

_LOG = logging.getLogger(__name__)

LEASE = timedelta(seconds=15)
"""How long a server may be silent until others take over its jobs."""

_LOOK = 0.25
"""Seconds between two looks whether another server has stopped a job."""

_MAX_BYTES = 64 * 2**20
"""Bytes of answers that are kept, those of all keys together: the newest."""

_PATIENCE = 2.0
"""Seconds that a server which stops gives a database that may be away."""

_CREATE = """
CREATE TABLE IF NOT EXISTS orbiter_jobs (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT,
    once TEXT COLLATE "C" UNIQUE,
    server TEXT NOT NULL,
    alive_until TIMESTAMPTZ NOT NULL,
    state TEXT NOT NULL,
    done BIGINT NOT NULL,
    total BIGINT NOT NULL,
    ended_at TIMESTAMPTZ,
    is_stopped BOOLEAN NOT NULL DEFAULT false,
    is_answered BOOLEAN NOT NULL DEFAULT false,
    is_erasure BOOLEAN NOT NULL DEFAULT false,
    record TEXT NOT NULL,
    scope JSONB,
    answer TEXT
);
REVOKE ALL ON orbiter_jobs FROM PUBLIC;
"""
_MAY_USE = """
SELECT has_table_privilege('orbiter_jobs', 'SELECT') AND has_table_privilege('orbiter_jobs', 'INSERT')
    AND has_table_privilege('orbiter_jobs', 'UPDATE') AND has_table_privilege('orbiter_jobs', 'DELETE')
"""  # noqa: E501
_COLUMNS = "record, state, done, total, server, is_answered, alive_until > clock_timestamp()"
_BEGIN = """
INSERT INTO orbiter_jobs (id, owner, once, server, alive_until, state, done, total, scope, record)
VALUES ($1, $2, NULLIF($3, ''), $4, clock_timestamp() + $5, $6, $7, $8, $9, $10)
ON CONFLICT DO NOTHING
"""
_SAME = "SELECT id FROM orbiter_jobs WHERE once = $1"
_WRITE = """
UPDATE orbiter_jobs SET alive_until = clock_timestamp() + $3, state = $4, done = $5, total = $6,
    scope = $7, record = $8, ended_at = $9, is_erasure = $10,
    answer = CASE WHEN NOT is_stopped THEN $11 END  -- it may be an erasure that has stopped it
WHERE id = $1 AND server = $2 RETURNING id
"""
# A job whose report was sent is known by its `Idempotency-Key` alone.
_IS_KNOWN = "NOT (is_answered AND once IS NULL)"
_READ = f"SELECT {_COLUMNS}, answer FROM orbiter_jobs WHERE id = $1"  # noqa: S608
_OF_OWNER = f"""
SELECT {_COLUMNS}, CASE WHEN state = 'failed' THEN answer END FROM orbiter_jobs
WHERE ($3 OR owner IS NOT DISTINCT FROM $1) AND id <> ALL ($2) AND {_IS_KNOWN}
"""  # noqa: S608
_ANSWER = "UPDATE orbiter_jobs SET is_answered = true WHERE id = $1"
_IS_LEFT = "ended_at IS NULL AND NOT is_stopped AND alive_until < clock_timestamp()"
_LEFT = f"SELECT {_COLUMNS}, answer FROM orbiter_jobs WHERE {_IS_LEFT} ORDER BY id"  # noqa: S608
_TAKE = f"""
UPDATE orbiter_jobs SET server = $3, alive_until = clock_timestamp() + $4
WHERE id = $1 AND server = $2 AND {_IS_LEFT} RETURNING id
"""  # noqa: S608
_RENEW = """
UPDATE orbiter_jobs AS job SET alive_until = clock_timestamp() + $2, state = now.state,
    done = now.done, total = now.total
FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[]) AS now (id, state, done, total)
WHERE job.id = now.id AND job.server = $1 AND job.ended_at IS NULL
RETURNING job.id, job.is_stopped
"""
_NEWS = f"""
SELECT EXISTS (SELECT FROM orbiter_jobs WHERE {_IS_LEFT}),
    ARRAY(SELECT id FROM orbiter_jobs WHERE is_erasure AND server <> $1)
"""  # noqa: S608
# What is left of an erasure tells the other servers that there was one.
_WIPE = """
UPDATE orbiter_jobs SET once = NULL, is_answered = true, record = '{}' WHERE id = $1 AND is_erasure
RETURNING id
"""
_REMOVE = """
DELETE FROM orbiter_jobs
WHERE id = $1 AND (server = $2 OR ended_at IS NOT NULL OR alive_until < clock_timestamp())
"""
_STOP = "UPDATE orbiter_jobs SET is_stopped = true WHERE id = $1 RETURNING id"
_PRUNE = """
DELETE FROM orbiter_jobs WHERE ended_at < $1 OR (is_answered AND NOT is_erasure AND ended_at < $2)
    OR (is_stopped AND alive_until < clock_timestamp()) OR id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY owner ORDER BY ended_at DESC, id DESC)
            FROM orbiter_jobs WHERE ended_at IS NOT NULL AND NOT (is_erasure AND is_answered)
        ) AS newest WHERE row_number > $3
    )
"""
_PRUNE_ANSWERS = """
UPDATE orbiter_jobs SET answer = NULL, scope = NULL WHERE id IN (
    SELECT id FROM (
        SELECT id, sum(octet_length(answer)) OVER (ORDER BY ended_at DESC, id DESC) AS bytes
        FROM orbiter_jobs WHERE answer IS NOT NULL
    ) AS newest WHERE bytes > $1
)
"""
_LEAVE = "UPDATE orbiter_jobs SET alive_until = '-infinity' WHERE server = $1 AND ended_at IS NULL"


class JobTable:
    """The table `orbiter_jobs` beside the memories of *memory*, as a `JobStore`.

    *instead* keeps the jobs where the role of the server may not make or write that table.
    """

    is_shared = True

    def __init__(self, memory: AgentMemory, *, instead: JobStore) -> None:
        self._memory, self._instead = memory, instead
        self._server = secrets.token_hex(8)
        self._erasures: frozenset[str] = frozenset()
        self._pool: SmallPool | None = None

    async def open(self) -> JobStore:
        """Make the table if it is not there; return where the jobs are kept."""
        store = self._memory.store
        if isinstance(store, PostgresMemoryStore):
            self._pool = store.pool_beside("jobs")
        try:
            await self._small_pool().make_table("orbiter_jobs", _CREATE)
            if (await self._run(_MAY_USE))[0][0]:
                self._erasures = frozenset((await self._run(_NEWS, self._server))[0][1])
                await self._adopt()
                return self
            reason = "grant the role SELECT, INSERT, UPDATE and DELETE on `orbiter_jobs`"
        except (MemoryConnectionError, asyncio.CancelledError):
            await self._end()  # not for good: so the server has to be started again
            raise
        except MemoryError as exc:
            reason = str(exc)
        await self._end()
        _LOG.warning(
            "jobs are kept on this computer, so other servers do not know them: %s; see "
            "docs/operate/workers.md",
            reason,
        )
        return await self._instead.open()

    async def _adopt(self) -> None:
        """Take over the jobs of a folder, where an earlier version kept them, of ended servers."""
        records = await self._instead.left(but=())
        for record in records:
            if load_job(record) is not None and await self._instead.take(record):
                if await self.begin(record) is None and record["ended_at"] is not None:
                    await self.write({"is_proof": False, **record})
                await self._instead.remove(record["id"])
        if records:
            await self._instead.close()  # which leaves no empty folder

    async def begin(self, record: Record) -> str | None:
        """Write a new record; return the id of another job with its `Idempotency-Key`, if any."""
        once, job_id = record["once"], record["id"]
        who = (job_id, record["owner"], once, self._server, LEASE)
        while True:
            await self._run(_BEGIN, *who, *_progress(record), *_texts(record, record.get("scope")))
            same = await self._run(_SAME, once) if once else [(job_id,)]
            if same:  # else it was removed a moment ago
                return None if same[0][0] == job_id else str(same[0][0])

    async def write(self, record: Record, answer: QuotingAnswer | None = None) -> bool:
        """Put a record in the place of the one before; tell whether the job is still ours."""
        ended = None if record["ended_at"] is None else datetime.fromisoformat(record["ended_at"])
        if answer is not None and len(answer.text) > _MAX_BYTES:
            answer = None
        scope, text = (record.get("scope"), None) if answer is None else answer
        now = (*_progress(record), *_texts(record, scope), ended, record["is_proof"], text)
        kept = await self._run(_WRITE, record["id"], self._server, LEASE, *now)
        if record["is_proof"]:
            with suppress(MemoryError):  # the table is another's: its owner cleans it
                await self._run("VACUUM (ANALYZE) orbiter_jobs")  # of whom it was asked to erase
        return bool(kept)

    async def answer(self, job_id: str) -> None:
        """Note that the report of a job was sent."""
        await self._run(_ANSWER, job_id)

    async def remove(self, job_id: str) -> None:
        """Remove a record; if another server does the job, have that stop, and wait for it."""
        if await self._run(_WIPE, job_id):
            return
        while True:
            await self._run(_REMOVE, job_id, self._server)
            if not await self._run(_STOP, job_id):
                return
            await asyncio.sleep(_LOOK)

    async def read(self, job_id: str) -> Record | None:
        """Return the record of a job; `None` if there is none."""
        rows = await self._run(_READ, job_id)
        return _record(rows[0]) if rows else None

    async def of_owner(
        self, owner: str | None, *, but: Collection[str], everyone: bool = False
    ) -> list[Record]:
        """Return the records of a key, or of all keys, without those of the ids in *but*."""
        return [_record(row) for row in await self._run(_OF_OWNER, owner, list(but), everyone)]

    async def left(self, *, but: Collection[str]) -> list[Record]:
        """Return the records of jobs that no server does; those of the ids in *but* are ours."""
        records = [_record(row) for row in await self._run(_LEFT)]
        return [record for record in records if record.get("id") not in but]

    async def take(self, record: Record) -> bool:
        """Take over a job; not if its server lives, or another was faster."""
        rows = await self._run(_TAKE, record["id"], record["server"], self._server, LEASE)
        return bool(rows)

    async def beat(self, jobs: Sequence[Job]) -> Beat:
        """Renew the lease on *jobs*, and return what other servers did."""
        await self._adopt()
        lost = {job.id for job in jobs}
        stopped = set()
        if jobs:
            columns = [[*each] for each in zip(*map(_row, jobs), strict=True)]
            for job_id, is_stopped in await self._run(_RENEW, self._server, LEASE, *columns):
                lost.discard(job_id)
                if is_stopped:
                    stopped.add(job_id)
        has_left, erasures = (await self._run(_NEWS, self._server))[0]
        before, self._erasures = self._erasures, frozenset(erasures)
        return Beat(lost, stopped, has_left, not self._erasures <= before)

    async def prune(self, *, oldest: datetime, answered: datetime, most: int) -> None:
        """Remove what ended before *oldest*, or *answered*, and of each key all but the newest."""
        await self._run(_PRUNE, oldest, answered, most)
        await self._run(_PRUNE_ANSWERS, _MAX_BYTES)

    async def close(self) -> None:
        """Leave our jobs to others."""
        with suppress(MemoryError, TimeoutError):  # without it they wait until the lease is over
            async with asyncio.timeout(_PATIENCE):
                await self._run(_LEAVE, self._server)
        await self._end()

    async def _end(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _run(self, sql: str, *args: object) -> Sequence[Any]:
        return await self._small_pool().run(sql, *args)

    def _small_pool(self) -> SmallPool:
        if self._pool is None:
            raise UnsupportedError(f"`{self._memory.url}` has no table of jobs")
        return self._pool


def _progress(record: Record) -> tuple[str, int, int]:
    progress = record["progress"]
    return record["state"], progress["done"], progress["total"] or 0


def _row(job: Job) -> tuple[str, str, int, int]:
    return job.id, job.state, job.done, job.total


def _texts(record: Record, scope: Mapping[str, str] | None) -> tuple[str | None, str]:
    dumped = json.dumps({"format": 1, **record})
    return None if scope is None else json.dumps(scope), dumped


def _record(row: Sequence[Any]) -> Record:
    text, state, done, total, server, is_answered, is_alive, answer = row
    now = {"state": state, "progress": {"done": done, "total": total or None}, "server": server}
    with suppress(ValueError, RecursionError):
        record = json.loads(text)
        if isinstance(record, dict) and record.get("format") == 1:
            more = {"is_answered": is_answered, "is_alive": is_alive, "answer": answer}
            return {**record, **now, **more}
    return now  # as one of another version, which is nobody's here
