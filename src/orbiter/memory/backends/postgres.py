"""`PostgresMemoryStore`: the same store on a server, for many machines.

`_sql.py` says what the statements mean and `_postgres_dialect.py` how Postgres spells them; here
is how they get there: a pool, timeouts, and what happens when the connection breaks.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from orbiter.memory.backends import _postgres_schema as schema
from orbiter.memory.backends._postgres_dialect import PartitionedDialect, PostgresDialect, folded
from orbiter.memory.backends._sql import Operations, Rows, Statement, Steps
from orbiter.memory.backends._sql_store import CHUNK, SQLMemoryStore
from orbiter.memory.backends.reports import StoreStats
from orbiter.memory.errors import (
    AccessError,
    MemoryConnectionError,
    MemoryTimeoutError,
    NotInitializedError,
    StorageError,
)

if TYPE_CHECKING:
    import asyncpg

__all__ = ["PostgresMemoryStore"]

_T = TypeVar("_T")

# Broken connections, servers that stop, start, fail over or are full, and lost races between
# transactions: by the next attempt all of them may be over.
_PASSING = ("08", "57P", "25006", "40001", "40P01", "53300")


class PostgresMemoryStore(SQLMemoryStore):
    """Keeps items in Postgres, through asyncpg; any number of processes may share the tables.

    A write that meets a broken connection is tried again for *retry_for* seconds, and counted
    once. *acquire_timeout* bounds the wait for one of *max_size* connections, *statement_timeout*
    that for an answer. A *pool* of the caller's is used as it is, and never closed. Behind
    pgbouncer in transaction mode, set `statement_cache_size=0`.
    """

    _exact_extra = True

    def __init__(  # noqa: PLR0913 - each is a setting people look for
        self,
        dsn: str = "postgresql://localhost/orbiter",
        *,
        pool: "asyncpg.Pool[Any] | None" = None,
        min_size: int = 1,
        max_size: int = 10,
        connect_timeout: float = 10.0,
        acquire_timeout: float = 10.0,
        statement_timeout: float = 30.0,
        retry_for: float = 10.0,
        statement_cache_size: int = 256,
    ) -> None:
        self._asyncpg = _import_asyncpg()
        for name, value in {
            "connect_timeout": connect_timeout,
            "acquire_timeout": acquire_timeout,
            "statement_timeout": statement_timeout,
            "max_size": max_size,
        }.items():
            if value <= 0:
                raise ValueError(f"`{name}` must be more than 0, not {value}")
        if not 0 <= min_size <= max_size:
            raise ValueError(f"`min_size` must be from 0 to `max_size`, not {min_size}")
        self._dsn = dsn
        self._given_pool = pool
        self._pool_settings = {
            "min_size": min_size,
            "max_size": max_size,
            "timeout": connect_timeout,
            "statement_cache_size": statement_cache_size,
        }
        self._acquire_timeout = acquire_timeout
        self._statement_timeout = statement_timeout
        self._retry_for = retry_for
        self._pool: asyncpg.Pool[Any] | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._layout = schema.Layout(0, 0, row_security=False)
        self._principal: str | None = None
        self._operations = Operations(PostgresDialect())

    def __repr__(self) -> str:
        return f"PostgresMemoryStore({_without_password(self._dsn)!r})"

    def acting_for(self, user_id: str) -> "PostgresMemoryStore":
        """Return this opened store, bound to one user by the server's row-level security.

        It shares the connections and needs neither `init` nor `close`.
        """
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._principal = user_id
        return bound

    # Opening and closing

    async def init(self, *, partitions: int | None = None, row_security: bool = False) -> None:
        """Connect, and make or migrate the tables; safe for many processes at once.

        On an empty database, *partitions* cuts the tables by user into that many parts, and
        *row_security* adds policies by which a connection sees one user's rows only. Tables that
        are there already are taken as they are.
        """
        if partitions is not None and not 1 <= partitions <= 1024:
            raise ValueError(f"`partitions` must be from 1 to 1,024, not {partitions}")
        if self._pool is not None and self._is_at_home():
            self._expect(partitions)
            return
        if self._opening is None or self._opening.get_loop() is not asyncio.get_running_loop():
            self._opening = asyncio.create_task(self._open(partitions or 0, row_security))
        opening = self._opening
        try:
            # A caller who gives up must not take the others' connection along.
            await asyncio.shield(opening)
        finally:
            if opening.done() and self._opening is opening:
                self._opening = None
        self._expect(partitions)

    def _expect(self, partitions: int | None) -> None:
        if partitions is not None and partitions != self._layout.partitions:
            raise StorageError(
                f"{self!r} has {self._layout.partitions} partitions, not {partitions}; copy the "
                "items to a new database to change that, or call init() without"
            )

    async def close(self) -> None:
        """Close the connections that `init` opened; `init` opens them again."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is None or pool is self._given_pool:
            return
        if not self._is_at_home():
            pool.terminate()
            return
        try:
            async with asyncio.timeout(self._statement_timeout):
                await pool.close()
        except BaseException:
            pool.terminate()
            raise

    async def _open(self, partitions: int, row_security: bool) -> None:  # noqa: FBT001
        pool = self._given_pool
        if pool is None:
            pool = await self._retry(lambda _: self._connect())
        try:
            layout = await self._retry(lambda _: self._set_up(pool, partitions, row_security))
        except BaseException:
            if pool is not self._given_pool:
                pool.terminate()
            raise
        self._layout = layout
        self._operations = Operations(
            PartitionedDialect() if layout.partitions else PostgresDialect()
        )
        self._pool, self._home = pool, (os.getpid(), asyncio.get_running_loop())

    async def _connect(self) -> "asyncpg.Pool[Any]":
        pool: Any = self._asyncpg.create_pool(
            self._dsn, connection_class=_quiet_connection(self._asyncpg), **self._pool_settings
        )
        try:
            await pool
        except BaseException:
            pool.terminate()
            raise
        return pool  # type: ignore[no-any-return]  # a pool is awaited into itself

    async def _set_up(
        self,
        pool: "asyncpg.Pool[Any]",
        partitions: int,
        row_security: bool,  # noqa: FBT001
    ) -> schema.Layout:
        async with self._connection(pool) as connection:
            await self._execute(connection, "BEGIN")
            try:
                await self._execute(connection, f"SELECT pg_advisory_xact_lock({schema.LOCK})")
                layout = await self._look(connection)
                if not layout.version:
                    await self._execute(
                        connection, schema.first(partitions, row_security=row_security)
                    )
                    await self._make_words(connection)
                    layout = await self._look(connection)
                await self._execute(connection, "COMMIT")
            except Exception:
                await self._roll_back(connection)
                raise
        return layout

    async def _look(self, connection: Any) -> schema.Layout:
        is_ours, partitions, row_security, has_items = await self._fetch_row(
            connection, schema.LOOK
        )
        if not is_ours:
            if has_items:
                raise StorageError(
                    f"{self!r} has a table `memory_items` of another program's; use another "
                    "database or schema"
                )
            return schema.Layout(0, 0, row_security=False)
        (version,) = await self._fetch_row(connection, "SELECT max(version) FROM memory_schema")
        if version > schema.NEWEST:
            raise StorageError(
                f"{self!r} has schema {version}, this version of orbiter-memory knows "
                f"{schema.NEWEST}; upgrade with: pip install -U orbiter-memory"
            )
        return schema.Layout(version, partitions, row_security)

    async def _make_words(self, connection: Any) -> None:
        """Index texts by trigrams where the server has them and lets us."""
        await self._execute(connection, "SAVEPOINT words")
        try:
            await self._execute(connection, "CREATE EXTENSION IF NOT EXISTS pg_trgm")
            await self._execute(connection, schema.WORDS)
        except self._asyncpg.PostgresError:
            await self._execute(connection, "ROLLBACK TO words")

    # Running steps

    async def _write(self, steps: Callable[[bool], Steps[_T]], *, alone: bool = False) -> _T:
        async def attempt(again: bool) -> _T:  # noqa: FBT001
            async with self._connection(self._opened()) as connection:
                if alone and not self._layout.row_security:
                    is_done, value = await self._run_first(connection, steps(again))
                    if is_done:
                        return value  # type: ignore[return-value]  # what the steps returned
                return await self._run_in_transaction(connection, steps(again))

        return await self._retry(attempt)

    async def _read(self, steps: Callable[[], Steps[_T]]) -> _T:
        async def attempt(_: bool) -> _T:  # noqa: FBT001
            async with self._connection(self._opened()) as connection:
                if self._layout.row_security:
                    return await self._run_in_transaction(connection, steps())
                return await self._run(connection, steps())

        return await self._retry(attempt)

    async def _run(self, connection: Any, steps: Steps[_T]) -> _T:
        try:
            statement = next(steps)
            while True:
                statement = steps.send(await self._do(connection, statement))
        except StopIteration as done:
            value: _T = done.value
            return value

    async def _run_first(self, connection: Any, steps: Steps[_T]) -> tuple[bool, _T | None]:
        """Run the first statement by itself; tell whether it was the only one."""
        try:
            steps.send(await self._do(connection, next(steps)))
        except StopIteration as done:
            return True, done.value
        return False, None

    async def _run_in_transaction(self, connection: Any, steps: Steps[_T]) -> _T:
        await self._execute(connection, "BEGIN")
        try:
            if self._layout.row_security:
                principal = "SELECT set_config('orbiter.user_id', $1, true)"
                await self._do(connection, Statement(principal, [self._principal or ""]))
            value = await self._run(connection, steps)
            await self._execute(connection, "COMMIT")
        except Exception:
            await self._roll_back(connection)
            raise
        return value

    async def _do(self, connection: Any, statement: Statement) -> Rows:
        async with asyncio.timeout(self._statement_timeout):
            if statement.many:
                await connection.executemany(statement.sql, statement.args)
                return ()
            rows: Rows = await connection.fetch(statement.sql, *statement.args)
            return rows

    async def _execute(self, connection: Any, script: str) -> None:
        async with asyncio.timeout(self._statement_timeout):
            await connection.execute(script)

    async def _fetch_row(self, connection: Any, sql: str) -> Any:
        async with asyncio.timeout(self._statement_timeout):
            return await connection.fetchrow(sql)

    async def _roll_back(self, connection: Any) -> None:
        if not connection.is_closed():
            # If it cannot be rolled back it is broken, and the transaction with it.
            with suppress(self._asyncpg.PostgresError, self._asyncpg.InterfaceError, OSError):
                await self._execute(connection, "ROLLBACK")

    def _connection(self, pool: "asyncpg.Pool[Any]") -> "_Lease":
        return _Lease(pool, self._acquire_timeout, self)

    def _opened(self) -> "asyncpg.Pool[Any]":
        if self._pool is None:
            raise NotInitializedError(self)
        if not self._is_at_home():
            raise StorageError(
                f"{self!r} was opened by another process or event loop, and its connections work "
                "only there; make a store in this one and open it"
            )
        return self._pool

    def _is_at_home(self) -> bool:
        return self._home == (os.getpid(), asyncio.get_running_loop())

    # When something breaks

    async def _retry(self, attempt: Callable[[bool], Awaitable[_T]]) -> _T:
        """Try until the deadline; from the second time on, the work may be done already."""
        loop = asyncio.get_running_loop()
        deadline, pause, again = loop.time() + self._retry_for, 0.02, False
        while True:
            try:
                return await attempt(again)
            except (
                self._asyncpg.PostgresError,
                self._asyncpg.InterfaceError,
                OSError,
                asyncio.IncompleteReadError,
            ) as exc:
                error = self._translate(exc)
                if not isinstance(error, MemoryConnectionError) or loop.time() + pause > deadline:
                    raise error from exc
            again = True
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads callers
            pause = min(2 * pause, 1.0)

    def _translate(self, error: Exception) -> Exception:
        if isinstance(error, (StorageError, MemoryTimeoutError, MemoryConnectionError)):
            return error
        text = self._scrub(f"{error}" or type(error).__name__)
        if isinstance(error, TimeoutError):
            return MemoryTimeoutError(
                f"{self!r} did not answer within {self._statement_timeout:g} s; whether a write "
                "was carried out is not known: add the item again, or raise `statement_timeout`"
            )
        state = getattr(error, "sqlstate", None) or ""
        if state == "42501":
            return AccessError(
                f"{self!r} refuses this: {text}; the item is another user's, or the "
                "role lacks the right"
            )
        if state[:2] in ("28", "3D") or isinstance(error, self._asyncpg.ClientConfigurationError):
            return StorageError(f"{self!r} cannot be used: {text}; see user, password and database")
        is_broken = not state and isinstance(error, (OSError, self._asyncpg.InterfaceError))
        if is_broken or isinstance(error, EOFError) or state.startswith(_PASSING):
            return MemoryConnectionError(
                f"{self!r} could not be reached for {self._retry_for:g} s: {text}; a write may or "
                "may not have been carried out: add the item again once the server is back"
            )
        return StorageError(f"{self!r}: {text}")

    def _scrub(self, text: str) -> str:
        secret = urlsplit(self._dsn).password
        for each in {secret, unquote(secret)} if secret else ():
            text = text.replace(each, "***")
        return text

    # Looking after the tables

    async def stats(self) -> StoreStats:
        """Return how much the store holds."""
        rows = await self._read(_stats_steps)
        items, deleted, versions, size = rows[0]
        return StoreStats(items, deleted, versions, size, unindexed=0, schema=self._layout.version)

    async def optimize(self) -> None:
        """Index what waits to be indexed and count the rows anew for the planner."""
        await self._maintain("VACUUM (ANALYZE) {}")

    async def vacuum(self) -> None:
        """Give the room of what was purged back to the file system; locks the tables meanwhile."""
        await self._maintain("VACUUM (FULL, ANALYZE) {}")

    async def _maintain(self, command: str) -> None:
        async def attempt(_: bool) -> None:  # noqa: FBT001
            async with self._connection(self._opened()) as connection:
                for table in schema.TABLES[: 4 if self._layout.partitions else 3]:
                    await connection.execute(command.format(table))  # takes as long as it takes

        await self._retry(attempt)

    async def _check(self, repair: bool) -> list[str]:  # noqa: FBT001
        if repair:
            await self._maintain("REINDEX TABLE {}")
        problems = [f"index `{row[0]}` is not valid" for row in await self._read(_invalid_steps)]
        last = ""
        while rows := await self._read(lambda: _folded_steps(self._everything, last)):  # noqa: B023
            last = rows[-1][0]
            wrong = [
                (item_id, version, text)
                for item_id, version, content, kept in rows
                if (text := folded(content)) is not None and text != kept
            ]
            if repair and wrong:
                await self._write(lambda _: _refold_steps(wrong))  # noqa: B023
            elif wrong:
                problems += [f"item `{item_id}` has no folded text" for item_id, _, _ in wrong]
        return problems

    @property
    def _everything(self) -> str:
        return PartitionedDialect.everything if self._layout.partitions else "memory_items"


class _Lease:
    """A connection for a while: cut off, not waited for, when its caller is cancelled or late."""

    def __init__(self, pool: Any, timeout: float, store: PostgresMemoryStore) -> None:
        self._pool, self._timeout, self._store = pool, timeout, store
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        try:
            self._connection = await self._pool.acquire(timeout=self._timeout)
        except TimeoutError as exc:
            raise MemoryTimeoutError(
                f"{self._store!r} had no free connection for {self._timeout:g} s; raise `max_size` "
                "or `acquire_timeout`"
            ) from exc
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, (asyncio.CancelledError, TimeoutError)):
            self._connection.terminate()
        await self._pool.release(self._connection)


def _stats_steps() -> Steps[Rows]:
    return (
        yield Statement(
            "SELECT (SELECT count(*) FROM memory_items WHERE deleted = 0),"
            " (SELECT count(*) FROM memory_items WHERE deleted = 1),"
            " (SELECT count(*) FROM memory_versions WHERE memory_type IS NOT NULL),"
            " (SELECT sum(pg_total_relation_size(relid))::bigint FROM unnest($1::text[]) AS name,"
            " pg_partition_tree(to_regclass(name)))",
            [list(schema.TABLES)],
        )
    )


def _invalid_steps() -> Steps[Rows]:
    return (
        yield Statement(
            "SELECT indexrelid::regclass::text FROM pg_index, unnest($1::text[]) AS name"
            " WHERE indrelid = to_regclass(name) AND NOT (indisvalid AND indisready)",
            [list(schema.TABLES)],
        )
    )


def _folded_steps(everything: str, last: str) -> Steps[Rows]:
    return (
        yield Statement(
            f"SELECT id, version, content, folded FROM {everything}"
            " LEFT JOIN memory_folded USING (id, version)"
            " WHERE id > $1 AND octet_length(content) <> char_length(content)"
            f" ORDER BY id LIMIT {CHUNK}",
            [last],
        )
    )


def _refold_steps(wrong: list[tuple[str, int, str]]) -> Steps[None]:
    yield Statement(
        "INSERT INTO memory_folded (id, version, folded) VALUES ($1, $2, $3)"
        " ON CONFLICT (id) DO UPDATE SET version = excluded.version, folded = excluded.folded",
        wrong,
        many=True,
    )


def _without_password(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        who, at, where = parts.netloc.rpartition("@")
        user = who.partition(":")[0]
    except ValueError:
        return "postgresql://***"
    kept = "&".join(
        part for part in parts.query.split("&") if not part.lower().startswith("password")
    )
    return parts._replace(netloc=f"{user}{at}{where}", query=kept).geturl()


def _import_asyncpg() -> Any:
    try:
        import asyncpg  # noqa: PLC0415 - an extra, needed by this class alone
    except ModuleNotFoundError as exc:
        raise ModuleNotFoundError(
            "PostgresMemoryStore needs asyncpg: pip install 'orbiter-memory[postgres]'"
        ) from exc
    return asyncpg


def _quiet_connection(asyncpg: Any) -> Any:
    """Return a connection class that is not reset between two uses.

    We leave no session state behind, and resetting costs as much as the query itself.
    """

    class Connection(asyncpg.Connection):  # type: ignore[misc]  # imported when it is needed
        def get_reset_query(self) -> str:
            return ""

    return Connection
