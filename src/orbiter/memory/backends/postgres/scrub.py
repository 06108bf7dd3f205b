"""What `erase` does to a Postgres database after the rows are gone, and how it makes sure."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Protocol, TypeVar

from orbiter.memory.backends.postgres import erase
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.driver import Driver
from orbiter.memory.backends.sql.dialect import Steps
from orbiter.memory.backends.sql.erase_probes import Probes
from orbiter.memory.model.reports import Erasure

__all__ = ["PAUSE", "RENEWING", "Read", "Scrubbing"]

_T = TypeVar("_T")

RENEWING = 0x6F72626974657202
"""The advisory lock of whoever builds indexes anew: "orbiter" and a two."""

PAUSE = 0.05

_NOT_OURS = (
    "the rows are dead but still on disk: only the owner of the tables can clean them; have it "
    "call `erase`, too, or `optimize()`"
)
_STILL_SEEN = (
    "a transaction that began before may still see what was erased, so it is still on disk; call "
    "`erase` again when that is over"
)


class Read(Protocol):
    """Runs steps that change nothing."""

    async def __call__(self, steps: Callable[[], Steps[_T]], /) -> _T: ...


class Scrubbing:
    """One cleaning of one database."""

    def __init__(
        self, driver: Driver, dialect: PostgresDialect, pool: Callable[[], Any], read: Read
    ) -> None:
        self._driver = driver
        self._dialect = dialect
        self._pool = pool
        self._read = read

    async def run(
        self, wanted: dict[Any, str], probes: Probes, forget: Callable[[], Awaitable[None]]
    ) -> Erasure:
        """Clean the tables and look for *probes*; *forget* removes what is of nothing by now."""
        traces = probes.taken()
        await forget()
        try:
            problems = await self._clean()
        except self._driver.failures as exc:
            problems = [f"{self._driver.translate(exc)}; then call `erase` again"]
        tables, left = await self._read(
            lambda: erase.look(self._dialect, wanted, traces, probes.ids)
        )
        return Erasure(tables=tables, probes=len(traces), problems=(*problems, *left))

    async def _clean(self) -> list[str]:
        tables = [table.name for table in await self._read(erase.tables)]
        rights = await self._read(lambda: erase.rows(erase.RIGHTS, tables))
        owns, sees_all = rights[0]
        if not owns:
            return [_NOT_OURS]
        is_seen = await self._is_still_seen()
        await self._execute([f"VACUUM (ANALYZE) {table}" for table in tables])
        await self._forget_samples()
        if not is_seen and not sees_all:  # of others' transactions we know by what they kept
            is_seen = bool((await self._read(lambda: erase.rows(erase.DEAD)))[0][0])
        if is_seen:
            return [_STILL_SEEN]
        await self._renew_indexes()
        return []

    async def _forget_samples(self) -> None:
        """Have the planner forget its samples of tables that are empty: ANALYZE keeps them."""
        async with self._driver.lease(self._pool()) as connection:
            is_super = await connection.fetchval("SELECT current_setting('is_superuser')") == "on"
            for (name,) in await connection.fetch(erase.EMPTY):
                if is_super and not await connection.fetch(f"SELECT 1 FROM {name} LIMIT 1"):
                    for command in erase.FORGET_SAMPLES:
                        await connection.execute(command.format(name))
            if is_super:
                for name in ("pg_statistic", "pg_statistic_ext_data"):
                    await connection.execute(f"VACUUM {name}")
                return
            for name, insert in erase.RESAMPLE.items():
                async with connection.transaction():
                    await connection.execute("SELECT set_config('orbiter.user_id', '', true)")
                    await connection.execute(insert)
                    await connection.execute(f"ANALYZE {name}")
                    await connection.execute(f"DELETE FROM {name} WHERE user_key = '' AND id = '~'")

    async def _is_still_seen(self) -> bool:
        """Wait until nobody can see what was removed; tell whether someone still can."""
        number = (await self._read(lambda: erase.rows(erase.HORIZON)))[0][0]
        until = monotonic() + erase.PATIENCE
        while (await self._read(lambda: erase.rows(erase.BEHIND, number)))[0][0]:
            if monotonic() > until:
                return True
            await asyncio.sleep(PAUSE)
        return False

    async def _renew_indexes(self) -> None:
        there = await self._read(lambda: erase.rows(erase.LEAVES, [*erase.KEYED]))
        async with self._driver.lease(self._pool()) as connection:
            # One at a time: what another is just making looks like what a crash left behind. To
            # wait inside the server would hold up the one that is at it.
            while not await connection.fetchval(  # noqa: ASYNC110 - another process has it
                f"SELECT pg_try_advisory_lock({RENEWING})"
            ):
                await asyncio.sleep(PAUSE)
            try:
                for row in await connection.fetch(erase.UNFINISHED):
                    await connection.execute(f"DROP INDEX IF EXISTS {row[0]}")
                for row in there:
                    await connection.execute(f"REINDEX INDEX CONCURRENTLY {row[0]}")
            finally:
                await connection.execute(f"SELECT pg_advisory_unlock({RENEWING})")

    async def _execute(self, commands: list[str]) -> None:
        # Each takes as long as it takes, and none can be part of a transaction.
        async with self._driver.lease(self._pool()) as connection:
            for command in commands:
                await connection.execute(command)
