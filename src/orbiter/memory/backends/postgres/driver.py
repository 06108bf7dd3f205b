"""Driver of Postgres: connections, time limits, transactions, retries, errors."""

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from orbiter.memory.backends.batches import Deadlines
from orbiter.memory.backends.pool_counts import PoolCounts
from orbiter.memory.backends.postgres.pool import (
    Lease,
    OnceToken,
    import_asyncpg,
    is_answer,
    pool_sizes,
    quiet_connection,
    read_options,
)
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.backends.urls import PERCENT_CODES, is_misread, scrubbed
from orbiter.memory.errors import (
    AccessError,
    MemoryConnectionError,
    MemoryError,
    MemoryTimeoutError,
    StorageError,
)

if TYPE_CHECKING:
    import asyncpg

__all__ = ["Driver", "SmallPool", "make_beside_memories", "outcome", "places", "with_zones"]

_T = TypeVar("_T")

# Where a table is that the search path finds, and where it belongs: beside the memories, or where
# these will be. Of several schemas in the search path, another may have such a table, too.
_HOME = """
COALESCE(
    (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('memory_items')),
    quote_ident(current_schema())
)
"""
_LOCK = 7_310_578_224_417_913_217
"""The advisory lock of whoever makes a table beside the memories."""
_PLACES = f"""
SELECT
    (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1)), {_HOME}
"""

_MARK = "INSERT INTO memory_commits (token) VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1"

# Broken connections, servers that stop, start, fail over or are full, and lost races between
# transactions: by the next attempt all of them may be over.
_PASSING = ("08", "57P", "25006", "40001", "40P01", "53300")
_NOT_LET_IN = ("57P03", "53300")
"""A server that starts or ends, or has too many connections: it lets nobody in."""


async def outcome(call: Awaitable[object]) -> Exception | None:
    """Return the error of *call*, for whoever asked for it; `None` if there is none."""
    try:
        await call
    except Exception as exc:  # noqa: BLE001 - told to the one who asked
        return exc
    return None


class Driver:
    """Runs steps on connections of a pool, within time limits, and again when they break."""

    def __init__(
        self,
        dsn: str,
        store: str,
        *,
        pool_settings: dict[str, Any],
        acquire_timeout: float,
        statement_timeout: float,
        retry_for: float,
        counted_as: str = "postgres",
    ) -> None:
        """*store* is what errors call the store, *counted_as* what metrics call its pool."""
        self._asyncpg = import_asyncpg()
        self.options = read_options(dsn)
        self._dsn = self.options.dsn
        self.store = store
        self.pool_settings = pool_settings
        if self.options.statement_cache_size is not None:
            size = self.options.statement_cache_size
            self.pool_settings = {**pool_settings, "statement_cache_size": size}
        self._acquire_timeout = acquire_timeout
        self.statement_timeout = statement_timeout
        self._retry_for = retry_for
        self._deadlines = Deadlines()
        self._counts = PoolCounts(counted_as)

    def beside(self, counted_as: str) -> "Driver":
        """Return a driver of the same server, for two connections of its own."""
        return Driver(
            self._dsn,
            self.store,
            pool_settings={**self.pool_settings, "min_size": 0, "max_size": 2},
            acquire_timeout=self._acquire_timeout,
            statement_timeout=self.statement_timeout,
            retry_for=self._retry_for,
            counted_as=counted_as,
        )

    async def connect(self) -> "asyncpg.Pool[Any]":
        if is_misread(self._dsn):
            raise StorageError(f"{self.store}: its address cannot be read; {PERCENT_CODES}")
        pool: Any = self._asyncpg.create_pool(
            self._dsn, connection_class=quiet_connection(self._asyncpg), **self.pool_settings
        )
        try:
            await pool
            await pool.release(await pool.acquire())  # is there anyone?
        except (ValueError, OverflowError) as exc:  # a port above 65535 is the second
            text = scrubbed(f"{exc}", self._dsn)
            # Without the cause, which may quote what it took a password for.
            raise StorageError(
                f"{self.store} is not a valid address: {text}; use "
                f"`postgresql://user:password@host:port/name`, and {PERCENT_CODES}"
            ) from None
        except TimeoutError as exc:
            pool.terminate()
            raise MemoryConnectionError(
                f"{self.store} gave no connection within {self.pool_settings['timeout']:g} s; "
                "check its address, or raise `connect_timeout`"
            ) from exc
        except BaseException:  # cancellation, too, must leave no connection
            pool.terminate()
            raise
        return pool  # type: ignore[no-any-return]  # a pool is awaited into itself

    def lease(self, pool: "asyncpg.Pool[Any]") -> "Lease":
        self._counts.sizes = partial(pool_sizes, pool)  # the caller's own pool, too
        return Lease(pool, self._acquire_timeout, self.store, self._deadlines, self._counts)

    async def run(self, connection: Any, steps: Steps[_T]) -> _T:
        try:
            statement = next(steps)
            while True:
                statement = steps.send(await self.do(connection, statement))
        except StopIteration as done:
            value: _T = done.value
            return value

    async def run_at_once(self, connection: Any, steps: Steps[_T]) -> _T | None:
        """Run the first statement by itself; return the answer, or `None` if there are more."""
        try:
            steps.send(await self.do(connection, next(steps)))
        except StopIteration as done:
            value: _T = done.value
            return value
        return None

    async def run_in_transaction(
        self,
        connection: Any,
        steps: Steps[_T],
        *,
        once: OnceToken | None = None,
        principal: str | None = None,
    ) -> _T:
        """Run steps as one transaction; with *once*, once, however often it is tried."""
        await self.execute(connection, "BEGIN")
        try:
            if principal is not None:
                local = "SELECT set_config('orbiter.user_id', $1, true)"
                await self.do(connection, Statement(local, [principal]))
            # Waits for an earlier attempt that is still under way. If that has left its token,
            # only its answer was lost.
            if once is not None and not await self.do(connection, Statement(_MARK, [once.token])):
                await self.execute(connection, "ROLLBACK")
                return once.value  # type: ignore[return-value]  # what the steps returned
            value = await self.run(connection, steps)
            if once is not None:
                once.value = value
            await self.execute(connection, "COMMIT")
        except Exception as exc:  # a cancelled one is cut off by its lease
            await self.roll_back(connection, exc)
            raise
        return value

    async def do(self, connection: Any, statement: Statement) -> Rows:
        with self._deadlines.limit(self.statement_timeout):
            if statement.many:
                await connection.executemany(statement.sql, statement.args)
                return ()
            return with_zones(await connection.fetch(statement.sql, *statement.args))

    async def execute(self, connection: Any, script: str) -> None:
        with self._deadlines.limit(self.statement_timeout):
            await connection.execute(script)

    async def fetch_row(self, connection: Any, sql: str) -> Any:
        with self._deadlines.limit(self.statement_timeout):
            return await connection.fetchrow(sql)

    async def roll_back(self, connection: Any, error: Exception) -> None:
        if connection.is_closed() or not is_answer(error):
            return  # what is broken, or stalls, is cut off, and the transaction with it
        try:
            await self.execute(connection, "ROLLBACK")
        except self.failures:
            connection.terminate()

    @property
    def postgres_error(self) -> type[Exception]:
        """What the server answers when it refuses."""
        error: type[Exception] = self._asyncpg.PostgresError
        return error

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        driver = self._asyncpg
        # The third is what a connection that the server is just closing may raise.
        return driver.PostgresError, driver.InterfaceError, driver.InternalClientError, OSError

    async def retry(self, attempt: Callable[[], Awaitable[_T]], *, only_reads: bool = False) -> _T:
        """Try until it works, fails for good, or the deadline has passed."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._retry_for, 0.02
        is_unsent = True
        while True:
            try:
                return await attempt()
            except self.failures as exc:
                is_unsent = is_unsent and (only_reads or _is_unsent(exc))
                error = self.translate(exc, is_unsent=is_unsent)
                left = deadline - loop.time()
                if not isinstance(error, MemoryConnectionError) or left <= 0:
                    raise error from (exc.__cause__ if error is exc else exc)
            # Up to the deadline and once more: the patience that was asked for is had in full.
            spread = pause * random.uniform(0.5, 1.5)  # noqa: S311 - spreads callers
            await asyncio.sleep(min(spread, left))
            pause = min(2 * pause, 1.0)

    def translate(self, error: Exception, *, is_unsent: bool = False) -> Exception:
        """Return *error* as one of ours; *is_unsent* says that no statement went to the server."""
        if isinstance(error, MemoryError):
            return error
        # Not the whole error: its detail may quote a row.
        text = getattr(error, "message", None) or f"{error}"
        text = scrubbed(text, self._dsn) or type(error).__name__
        if isinstance(error, TimeoutError):
            doubt = "whether a write was carried out is not known: add the item again"
            way = "nothing of this was written: try again" if is_unsent else doubt
            return MemoryTimeoutError(
                f"{self.store} did not answer within {self.statement_timeout:g} s; {way}, or raise "
                "`statement_timeout`"
            )
        state = getattr(error, "sqlstate", None) or ""
        return self._translate_answer(error, text, state, is_unsent=is_unsent)

    def _translate_answer(
        self, error: Exception, text: str, state: str, *, is_unsent: bool
    ) -> Exception:
        if state == "42501":
            return AccessError(f"{self.store} refuses this: {text}; {_way(text)}")
        is_unopened = text.startswith("pool is ")  # only a caller's own can be
        is_refused = isinstance(error, self._asyncpg.ClientConfigurationError)
        if state[:2] in ("28", "3D") or is_refused or is_unopened:
            what = (
                "the pool, or the store that this one acts for"
                if is_unopened
                else ("user, password and database")
            )
            return StorageError(f"{self.store} cannot be used: {text}; check {what}")
        if state in ("40001", "40P01"):
            return MemoryConnectionError(
                f"{self.store} was blocked by other writers for {self._retry_for:g} s: {text}; "
                "nothing was written: try again"
            )
        if state in ("26000", "42P05"):
            return StorageError(
                f"{self.store}: {text}; a pooler in transaction mode gives each transaction "
                "another connection, without our prepared statements: add "
                "`?statement_cache_size=0` to the URL"
            )
        if state == "22003":
            text += "; an item cannot have more versions: add it under another id"
        if state == "53200":
            text += "; raise `max_locks_per_transaction` of the server, or make fewer partitions"
        if not state or state.startswith(_PASSING):
            doubt = "A write may or may not have been carried out: if in doubt, add again"
            return MemoryConnectionError(
                f"{self.store} could not be reached for {self._retry_for:g} s: {text}; check that "
                f"it runs. {'Nothing of this was written: try again' if is_unsent else doubt}"
            )
        return StorageError(f"{self.store}: {text}")


class SmallPool:
    """Connections for a table beside a store's; opened by the first use in a process and loop.

    So what reads it does not wait for calls of the store, which may have all of its connections.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._pool: asyncpg.Pool[Any] | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._opening = asyncio.Lock()

    async def lease(self) -> "Lease":
        """Return a connection for a while."""
        home = (os.getpid(), asyncio.get_running_loop())
        async with self._opening:
            if self._pool is None or self._home != home:
                self._pool, self._home = await self.driver.connect(), home
            return self.driver.lease(self._pool)

    async def read(self, work: Callable[[Any], Awaitable[_T]], *, only_reads: bool = True) -> _T:
        """Do *work* on a connection, again if that breaks: it changes nothing, or the same."""

        async def attempt() -> _T:
            async with await self.lease() as connection:
                return await work(connection)

        return await self.driver.retry(attempt, only_reads=only_reads)

    async def run(self, sql: str, *args: object) -> Rows:
        """Run one statement, which may be done twice if a connection breaks."""
        statement = Statement(sql, args)
        return await self.read(lambda on: self.driver.do(on, statement), only_reads=False)

    async def make_table(self, name: str, script: str) -> None:
        """Make the table *name* beside the memories by *script*, if it is not there."""
        [(schema, home)] = await self.run(_PLACES, name)
        if schema != home:
            await self.run(make_beside_memories(script))
            [(schema, home)] = await self.run(_PLACES, name)
        if schema != home:
            raise StorageError(
                f"`{schema}.{name}` is not for the memories in the schema `{home}`; name only one "
                "schema in the `search_path` of the URL"
            )

    async def close(self) -> None:
        """End the connections. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is None or self._home != (os.getpid(), asyncio.get_running_loop()):
            return
        try:
            async with asyncio.timeout(2.0):
                await pool.close()
        except self.driver.failures:  # a time that ran out is one
            pool.terminate()


async def places(connection: Any, table: str) -> tuple[str | None, str]:
    """Return the schema in which the search path finds *table*, and the one of the memories."""
    schema, home = await connection.fetchrow(_PLACES, table)
    return schema, home


def make_beside_memories(script: str) -> str:
    """Return a statement that makes a table by *script* in the schema of the memories.

    The rest of the transaction has that schema alone as its search path.
    """
    return f"""
DO $make$ BEGIN
PERFORM pg_advisory_xact_lock({_LOCK});
PERFORM set_config('search_path', {_HOME}, true);
{script}
END $make$
"""


def _is_unsent(error: Exception) -> bool:
    """Tell whether there was no connection yet on which a statement could have gone out."""
    if getattr(error, "sqlstate", None) in _NOT_LET_IN:
        return True
    is_name = isinstance(error, ConnectionRefusedError | FileNotFoundError | socket.gaierror)
    # Of several addresses of one name, each of which refused.
    return is_name or (isinstance(error, OSError) and "Connect call failed" in str(error))


def with_zones(rows: Rows) -> Rows:
    """Return *rows* with every time in UTC.

    The driver writes the first and the last instant there is as `-infinity` and `infinity`, and
    reads these without a zone.
    """
    if not rows:
        return rows
    times = [n for n, value in enumerate(rows[0]) if value is None or type(value) is datetime]
    bare = {
        place
        for n in times
        for place, row in enumerate(rows)
        if type(row[n]) is datetime and row[n].tzinfo is None
    }
    if not bare:
        return rows
    return [_in_utc(row) if place in bare else row for place, row in enumerate(rows)]


def _in_utc(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        value.replace(tzinfo=UTC) if type(value) is datetime and value.tzinfo is None else value
        for value in row
    )


def _way(text: str) -> str:
    if "row-level security" in text:
        return (
            "the item is another user's or names no `user_id`, or the store acts for no user: "
            "use `acting_for(user_id)`"
        )
    return "grant the role the right, see docs/backends.md"
