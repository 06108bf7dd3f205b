"""Primary and read replicas of Postgres: which server runs the steps of a store.

A replica is a help and never a risk: one that is dead, lags or refuses is left out for a while, and
the primary answers. What this process wrote, it reads: a replica must have replayed the log as far
as the primary had written it after our last write.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from orbiter.memory.backends.postgres import maintenance, schema
from orbiter.memory.backends.postgres.driver import Driver
from orbiter.memory.backends.postgres.pool import OnceToken, is_answer
from orbiter.memory.backends.sql.dialect import Statement, Steps
from orbiter.memory.backends.sql.operations import SQLDatabase
from orbiter.memory.errors import MemoryError
from orbiter.memory.tasks.read_from import may_read_replica

if TYPE_CHECKING:
    import asyncpg

__all__ = ["REST", "PostgresRunner", "Replicas"]

_T = TypeVar("_T")

REST = 2.0
"""Seconds for which a replica that failed or lagged is left out."""

_POLL, _LONGEST_POLL = 0.001, 0.05
_MAX_OWNERS = 10_000

_WRITTEN = "SELECT pg_current_wal_insert_lsn()::text"
# One that was promoted has all that the servers after the failover know of.
_REPLAYED = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END
    >= $1::text::pg_lsn
"""
# What a replica says to a read that would also write; the primary then does both.
_READ_ONLY = "25006"


def _is_ailing(error: Exception) -> bool:
    """Tell whether *error* says something of the replica, and not of the question."""
    if isinstance(error, MemoryError):
        return isinstance(error, OSError)  # no connection, or none in time
    return not is_answer(error) and getattr(error, "sqlstate", None) != _READ_ONLY


class _Replica:
    """One replica: its connections, opened on first use, and how long it is left out."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.rests_until = 0.0
        self.pool: Any = None
        self._opening = asyncio.Lock()

    async def opened(self) -> Any:
        async with self._opening:
            if self.pool is None:
                self.pool = await self.driver.connect()
        return self.pool

    def rest(self) -> None:
        self.rests_until = monotonic() + REST


class Replicas:
    """The replicas of an opened store. It belongs to one event loop."""

    def __init__(self, primary: Driver) -> None:
        options = primary.options
        self._wait = options.replica_wait
        self._sees_all = options.replica_sees == "all"
        self._primary = primary
        self._replicas = [
            _Replica(
                Driver(
                    dsn,
                    f"the replica {urlsplit(dsn).netloc.rpartition('@')[2]}",
                    pool_settings={**primary.pool_settings, "min_size": 0, "timeout": self._wait},
                    acquire_timeout=self._wait,
                    statement_timeout=primary.statement_timeout,
                    retry_for=0.0,
                    counted_as="postgres-replicas",
                )
            )
            for dsn in options.replicas
        ]
        self._turn = 0
        self._writes, self._known_after = 0, 0
        self._position: str | None = None
        self._indexed: dict[str | None, int] = {}

    # What this process wrote

    def wrote(self) -> None:
        """Note a write, whatever came of it."""
        self._writes += 1

    def is_to_index(self, owner: str | None) -> bool:
        """Tell, once, whether something was written since this was asked for *owner*.

        Terms are made from what was written when somebody searches, and only the primary can.
        """
        if self._indexed.get(owner, 0) == self._writes:
            return False
        if len(self._indexed) >= _MAX_OWNERS:
            self._indexed.clear()
        self._indexed[owner] = self._writes
        return True

    async def _position_of(self, pool: Any) -> str | None:
        """Return how far a replica must be, asking the primary if we have written since."""
        writes = self._writes
        if self._sees_all or self._known_after != writes:
            async with self._primary.lease(pool) as connection:
                ((position,),) = await self._primary.do(connection, Statement(_WRITTEN))
            # Of answers that overtake each other, an older one is no answer to who wrote since.
            if writes < self._known_after:
                return str(position)
            self._position, self._known_after = position, writes
        return self._position

    # Reading

    async def read(
        self, pool: Any, run: Callable[[Driver, Any], Awaitable[_T]]
    ) -> tuple[_T] | None:
        """Return what *run* returns on a connection of a replica; `None` if no replica can.

        *pool* is the primary's.
        """
        failures: tuple[type[Exception], ...] = (MemoryError, *self._primary.failures)
        replicas = list(self._awake())
        if not replicas:
            return None
        try:
            position = await self._position_of(pool)
        except failures:
            return None  # the primary itself says what is wrong, or is tried again
        deadline = monotonic() + self._wait
        for replica in replicas:
            try:
                async with replica.driver.lease(await replica.opened()) as connection:
                    if await self._has_caught_up(replica, connection, position, deadline):
                        return (await run(replica.driver, connection),)
                replica.rest()
                # After a failover no replica may ever get as far as the old primary was.
                self._known_after = -1
            except failures as exc:
                if _is_ailing(exc):
                    replica.rest()
        return None

    def _awake(self) -> Iterator[_Replica]:
        """Return those that are not left out, another one first each time."""
        now, count = monotonic(), len(self._replicas)
        self._turn = (self._turn + 1) % count
        for index in range(count):
            replica = self._replicas[(self._turn + index) % count]
            if replica.rests_until <= now:
                yield replica

    async def _has_caught_up(
        self, replica: _Replica, connection: Any, position: str | None, deadline: float
    ) -> bool:
        """Wait until a replica has replayed what it must have; the first look is always had."""
        pause, driver = _POLL, replica.driver
        while True:
            # One that is frozen takes connections from its queue, and never answers.
            async with asyncio.timeout(self._wait):
                ((has,),) = await driver.do(connection, Statement(_REPLAYED, [position or "0/0"]))
            if has:
                return True
            if monotonic() + pause > deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL)

    # Closing

    async def close(self) -> None:
        """Close all connections."""
        for replica in self._replicas:
            pool, replica.pool = replica.pool, None
            if pool is None:
                continue
            try:
                async with asyncio.timeout(self._wait):
                    await pool.close()
            except self._primary.failures:
                pool.terminate()
            except BaseException:  # cancelled: cut off what was being closed
                pool.terminate()
                raise

    def terminate(self) -> None:
        """Cut off all connections."""
        for replica in self._replicas:
            pool, replica.pool = replica.pool, None
            if pool is not None:
                pool.terminate()


class PostgresRunner(SQLDatabase):
    """The part of the store that all others run their steps by."""

    _driver: Driver
    _layout: schema.Layout
    _replicas: Replicas | None

    @abstractmethod
    def _opened(self) -> "asyncpg.Pool[Any]":
        """Return the open pool, or raise what is wrong."""

    @property
    @abstractmethod
    def _acts_for(self) -> str | None:
        """Whom the server is to hold us to."""

    @abstractmethod
    async def _sweep_now_and_then(self) -> None:
        """Remove some of what is over, if that was not done for a while."""

    async def _write(self, steps: Callable[[], Steps[_T]]) -> _T:
        once = OnceToken()

        async def attempt() -> _T:
            async with self._driver.lease(self._opened()) as connection:
                return await self._driver.run_in_transaction(
                    connection, steps(), once=once, principal=self._acts_for
                )

        value = await self._wrote_after(self._driver.retry(attempt))
        if once.is_to_clean:
            with suppress(MemoryError):  # what was asked for is done
                await self._read(maintenance.forget_commits)
        await self._sweep_now_and_then()
        return value

    async def _wrote_after(self, call: Awaitable[_T]) -> _T:
        """Await *call*, which writes: what replicas are asked afterwards, they must have of it."""
        try:
            return await call
        finally:  # also a write of which nobody knows what came
            if self._replicas is not None:
                self._replicas.wrote()

    async def _together(self, steps: Callable[[], Steps[_T]], *, writes: bool = True) -> _T:
        """Run steps as one transaction, as often as it takes: they may be repeated."""

        async def run(driver: Driver, connection: Any) -> _T:
            return await driver.run_in_transaction(connection, steps(), principal=self._acts_for)

        if not writes:
            return await self._run_read(run)
        return await self._wrote_after(self._on_primary(run))

    async def _read(self, steps: Callable[[], Steps[_T]], *, alone: bool = False) -> _T:  # noqa: ARG002
        async def run(driver: Driver, connection: Any) -> _T:
            if self._layout.row_security:
                return await driver.run_in_transaction(
                    connection, steps(), principal=self._acts_for
                )
            return await driver.run(connection, steps())

        return await self._run_read(run)

    async def _run_read(self, run: Callable[[Driver, Any], Awaitable[_T]]) -> _T:
        """Run what only reads, on a replica if there is one and the caller allows it."""
        if self._replicas is not None and may_read_replica():
            answer = await self._replicas.read(self._opened(), run)
            if answer is not None:
                return answer[0]
        return await self._on_primary(run)

    async def _on_primary(self, run: Callable[[Driver, Any], Awaitable[_T]]) -> _T:
        async def attempt() -> _T:
            async with self._driver.lease(self._opened()) as connection:
                return await run(self._driver, connection)

        return await self._driver.retry(attempt)

    async def _close_replicas(self) -> None:
        replicas, self._replicas = self._replicas, None
        if replicas is not None:
            await replicas.close()
