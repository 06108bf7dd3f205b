"""`PostgresMemoryStore`: the same store on a server, for many machines.

`sql/operations.py` says what the statements mean and `dialect.py` how Postgres spells them; here
is how they get there: a pool, timeouts, and what happens when the connection breaks.
"""

import asyncio
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from orbiter.memory.backends.batches import Batches
from orbiter.memory.backends.postgres import erase as postgres_erase
from orbiter.memory.backends.postgres import maintenance, orphan_rows, schema
from orbiter.memory.backends.postgres.dialect import PartitionedDialect, PostgresDialect
from orbiter.memory.backends.postgres.driver import Driver, SmallPool, outcome
from orbiter.memory.backends.postgres.erase import Scrubbing
from orbiter.memory.backends.postgres.pool import (
    check_partitions,
    check_size,
    is_answer,
    read_options,
)
from orbiter.memory.backends.postgres.recall import PostgresRecall
from orbiter.memory.backends.postgres.replicas import Replicas
from orbiter.memory.backends.postgres.setup import set_up
from orbiter.memory.backends.postgres.upsert import folded
from orbiter.memory.backends.sql.audit import check_audit
from orbiter.memory.backends.sql.dialect import Steps
from orbiter.memory.backends.sql.embedder import Embedder, check_embeddings
from orbiter.memory.backends.sql.erase import STEPS, ErasureTarget, Span
from orbiter.memory.backends.sql.erase_probes import Probes
from orbiter.memory.backends.sql.operations import Operations
from orbiter.memory.backends.sql.rows import Row
from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.backends.urls import check_address, redacted
from orbiter.memory.errors import AccessError, NotInitializedError, QueryError, StorageError
from orbiter.memory.model.audit import AuditMode
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query
from orbiter.memory.model.reports import Erasure, StoreStats
from orbiter.memory.model.validation import check_name, check_positive
from orbiter.memory.tasks.progress import advance

if TYPE_CHECKING:
    import asyncpg

    from orbiter.memory.backends.sql.audit_dialect import PostgresAuditDialect

__all__ = ["PostgresMemoryStore"]

_T = TypeVar("_T")

_DEFAULT = "postgresql://localhost/orbiter"
_WHOLE, _PARTITIONED = PostgresDialect(), PartitionedDialect()
_HELD_WHOLE = PostgresDialect(folds_apart=True)
_HELD_PARTITIONED = PartitionedDialect(folds_apart=True)


class PostgresMemoryStore(PostgresRecall, SQLMemoryStore):
    """Keeps items in Postgres, through asyncpg; any number of processes may share the tables.

    A call that meets a broken connection is tried again for *retry_for* seconds.
    *acquire_timeout* bounds the wait for one of *max_size* connections, *statement_timeout* that
    for an answer. A *pool* of the caller's is used as it is, and never closed. Behind pgbouncer in
    transaction mode, set `statement_cache_size=0`. With *embeddings* items are embedded in the
    background, and found by meaning. *audit* has writes logged, or `"all"`.
    """

    _exact_extra = True

    def __init__(  # noqa: PLR0913 - each is a setting people look for
        self,
        dsn: str = _DEFAULT,
        *,
        pool: "asyncpg.Pool[Any] | None" = None,
        embeddings: Embeddings | None = None,
        min_size: int = 0,
        max_size: int = 10,
        connect_timeout: float = 10.0,
        acquire_timeout: float = 10.0,
        statement_timeout: float = 30.0,
        retry_for: float = 10.0,
        statement_cache_size: int = 256,
        audit: AuditMode | None = None,
    ) -> None:
        check_address(dsn)
        if pool is not None and dsn != _DEFAULT:
            raise ValueError("give a `dsn` or a `pool`, not both")
        options = read_options(dsn)
        max_size = check_size(options.max_size or max_size)
        check_positive(
            connect_timeout=connect_timeout,
            acquire_timeout=acquire_timeout,
            statement_timeout=statement_timeout,
        )
        if not 0 <= min_size <= max_size:
            raise ValueError(f"`min_size` must be from 0 to `max_size`, not {min_size}")
        if statement_cache_size < 0 or retry_for < 0:
            raise ValueError("`statement_cache_size` and `retry_for` must be 0 or more")
        self._dsn = options.dsn
        self._given_pool = pool
        self._has_address = pool is None
        self._embeddings = check_embeddings(embeddings)
        self._principal: str | None = None
        self._audit = check_audit(audit)
        self._driver = Driver(
            dsn,
            repr(self),
            pool_settings={
                "min_size": min_size,
                "max_size": max_size,
                "timeout": connect_timeout,
                "statement_cache_size": statement_cache_size,
            },
            acquire_timeout=acquire_timeout,
            statement_timeout=statement_timeout,
            retry_for=retry_for,
        )
        self._replicas = None
        self._pool: asyncpg.Pool[Any] | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting = 0
        self._layout = schema.Layout()
        self._dialect = _WHOLE
        self._operations = Operations(self._dialect)
        self._batches = Batches(self._put_rows)
        self._bound: weakref.WeakSet[Embedder] = weakref.WeakSet()
        self._begin_recall()

    def __repr__(self) -> str:
        where = repr(redacted(self._dsn)) if self._has_address else "pool=..."
        bound = "" if self._principal is None else f".acting_for({self._principal!r})"
        return f"PostgresMemoryStore({where}){bound}"

    @property
    def url(self) -> str | None:
        """The URL of the database, without a password; `None` of one over a given pool."""
        return redacted(self._dsn) if self._has_address else None

    @property
    def is_open(self) -> bool:
        """Whether there are connections of the running event loop."""
        return self._pool is not None and self._is_at_home()

    def acting_for(self, user_id: str) -> "PostgresMemoryStore":
        """Return this opened store, bound to one user by the server's row-level security.

        It shares the connections and needs neither `init` nor `close`.
        """
        if self._pool is None:
            raise NotInitializedError(self)
        try:
            check_name(user_id, max_chars=1024)
        except (ValueError, TypeError) as exc:
            raise QueryError(f"`user_id` must be a name: {exc}") from None
        if not self._layout.is_held:
            raise AccessError(
                f"{self!r} would not be restricted to `{user_id}`: make the tables with "
                "init(row_security=True), and connect as a role that is not a superuser"
            )
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._principal, bound._given_pool = user_id, self._pool
        bound._begin_recall()
        if self._embedder is not None and self._embeddings is not None:
            # An embedder sees what its store sees. It ends with this store, which is closed.
            bound._embedder = Embedder(self._embeddings, bound)
            self._bound.add(bound._embedder)
        return bound

    # Opening and closing

    async def init(self, *, partitions: int | None = None, row_security: bool = False) -> None:
        """Connect, and make or migrate the tables; safe for many processes at once.

        On an empty database, *partitions* cuts the tables by user into that many parts, and
        *row_security* adds policies by which a connection sees one user's rows only. Tables that
        are there already are taken as they are. `?partitions=16` of the URL does the same.
        """
        if partitions is None:
            partitions = self._driver.options.partitions
        else:
            check_partitions(partitions)
        await self._open(partitions, row_security=row_security)
        if self._principal is None and self._embedder is None:
            try:
                await self._begin_audit()
                await self._start_embedding()
            except BaseException:  # a store that has no use for its tables stays closed
                if self._embedder is None:
                    await self.close()
                raise

    async def _open(self, partitions: int | None = None, *, row_security: bool = False) -> None:
        if self._pool is not None and self._is_at_home():
            self._expect(partitions, row_security)
            return
        if self._pool is not None:
            self._drop()
        if self._opening is None or self._opening.get_loop() is not asyncio.get_running_loop():
            self._opening = asyncio.create_task(self._connect(partitions, row_security))
        opening = self._opening
        self._waiting += 1
        try:
            # A caller who gives up must not take the others' connection along.
            await asyncio.shield(opening)
        except BaseException as exc:  # cancelled, or not to be opened: leave nothing behind
            task = asyncio.current_task()
            if opening.cancelled() and task is not None and not task.cancelling():
                raise NotInitializedError(self) from exc  # someone has closed it meanwhile
            if self._waiting == 1 and self._opening is opening:
                self._opening = None
                # Too late to stop it, and nobody is left who would close it.
                if not opening.cancel():
                    self._drop()
            raise
        finally:
            self._waiting -= 1
        if self._opening is opening:
            self._opening = None
        self._expect(partitions, row_security)

    def _expect(self, partitions: int | None, row_security: bool) -> None:  # noqa: FBT001
        if row_security and not self._layout.row_security:
            raise StorageError(
                f"{self!r} has tables without row-level security; copy the items to a new database "
                "to change that, or call init() without `row_security`"
            )
        if partitions is not None and partitions != self._layout.partitions:
            raise StorageError(
                f"{self!r} has {self._layout.partitions or 'no'} partitions, not {partitions}; "
                "copy the items to a new database to change that, or leave `partitions` out"
            )

    async def close(self) -> None:
        """Close the connections that `init` opened; `init` opens them again."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        for embedder in [*self._bound] if self._principal is None else ():
            await embedder.close()
        if not self._is_at_home():
            self._drop()
        else:
            await self._batches.close()
        await self._stop_embedding()
        if self._principal is None:
            await self._close_replicas()
        pool, self._pool = self._pool, None
        if pool is None or pool is self._given_pool:
            return
        try:
            async with asyncio.timeout(self._driver.statement_timeout):
                await pool.close()
        except self._driver.failures:
            pool.terminate()  # a connection that cannot be closed in good order is closed, too
        except BaseException:  # cancelled: cut off what was being closed
            pool.terminate()
            raise

    def _drop(self) -> None:
        """Let go of the connections from wherever we are now."""
        pool, self._pool = self._pool, None
        replicas, self._replicas = self._replicas, None
        pid, loop = self._home or (0, None)
        # After a fork the sockets, and what the loop watches, are still the parent's.
        if pool is None or pool is self._given_pool or pid != os.getpid():
            return
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(pool.terminate)
            if replicas is not None:
                loop.call_soon_threadsafe(replicas.terminate)

    async def _connect(self, partitions: int | None, row_security: bool) -> None:  # noqa: FBT001
        pool = self._given_pool
        if pool is None:
            pool = await self._driver.retry(self._driver.connect)
        elif getattr(pool, "_loop", None) is not asyncio.get_running_loop():
            raise StorageError(f"{self!r} was given a pool of another event loop; make one here")
        try:
            self._layout = await self._driver.retry(
                lambda: set_up(
                    self._driver, pool, partitions=partitions or 0, row_security=row_security
                )
            )
            self._expect(partitions, row_security)
        except BaseException:  # cancellation, too, must leave no connection
            if pool is not self._given_pool:
                pool.terminate()
            raise
        if self._layout.row_security:
            self._dialect = _HELD_PARTITIONED if self._layout.partitions else _HELD_WHOLE
        else:
            self._dialect = _PARTITIONED if self._layout.partitions else _WHOLE
        self._operations = Operations(self._dialect)
        self._batches = Batches(self._put_rows)
        if self._driver.options.replicas:
            self._replicas = Replicas(self._driver)
        self._pool, self._home = pool, (os.getpid(), asyncio.get_running_loop())

    def _audit_dialect(self) -> "PostgresAuditDialect":
        from orbiter.memory.backends.sql.audit_dialect import PostgresAuditDialect  # noqa: PLC0415

        return PostgresAuditDialect()

    # Running steps

    async def _put(self, row: Row) -> None:
        if self._layout.row_security:
            await self._write(lambda: self._operations.add(row, None, None))
        else:
            self._opened()
            await self._batches.put(row)

    async def _put_rows(
        self, rows: Sequence[Row], *, again: bool = False
    ) -> list[Exception | None]:
        """Upsert rows for their callers, in one statement if possible; *again*, if perhaps done."""
        dialect = self._dialect
        if not dialect.is_one(rows):
            await self._write(lambda: dialect.add_at_once(rows, again=False))
            return [None] * len(rows)

        async def attempt() -> Sequence[Row]:
            nonlocal again
            async with self._driver.lease(self._opened()) as connection:
                try:
                    steps = dialect.add_at_once(rows, again=again)
                    left = await self._driver.run_at_once(connection, steps)
                    if left is None:
                        steps = dialect.add_at_once(rows, again=again)
                        left = await self._driver.run_in_transaction(connection, steps)
                except Exception as exc:  # any: only whether it was an answer matters
                    again = again or not is_answer(exc)
                    raise
                return left

        left = {row.id for row in await self._wrote_after(self._driver.retry(attempt))}
        await self._sweep_now_and_then()
        alone = (row.id in left and self._put_rows([row], again=again) for row in rows)
        return [await outcome(call) if call else None for call in alone]

    def pool_beside(self, counted_as: str) -> SmallPool | None:
        """Return connections for a table that is no store's; `None` over a pool of the caller's."""
        return SmallPool(self._driver.beside(counted_as)) if self._has_address else None

    def _opened(self) -> "asyncpg.Pool[Any]":
        if self._pool is None or (self._principal is not None and self._pool.is_closing()):
            raise NotInitializedError(self)
        if not self._is_at_home():
            raise StorageError(
                f"{self!r} was opened by another process or event loop, and its connections work "
                "only there; make a store in this one and open it"
            )
        return self._pool

    @property
    def _acts_for(self) -> str | None:
        """Whom the server is to hold us to; an unbound store is nobody."""
        return (self._principal or "") if self._layout.row_security else None

    @property
    def _sees_all(self) -> bool:
        return not self._layout.is_held

    @property
    def _is_bound(self) -> bool:
        return self._principal is not None

    def _is_at_home(self) -> bool:
        return self._home == (os.getpid(), asyncio.get_running_loop())

    # Erasing

    async def erase(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        by: str | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> Erasure:
        """Remove for good all that *metadata* names, and make sure; see `SQLMemoryStore.erase`.

        With row-level security a store that acts for nobody acts for the user who is named, and
        one that acts for another refuses.
        """
        user_id = Query(metadata=metadata).wanted.get("user_id")
        if self._principal is not None and user_id not in (None, self._principal):
            raise AccessError(
                f"{self!r} sees nothing of `{user_id}`; erase it with `acting_for({user_id!r})`"
            )
        if self._layout.is_held and self._principal is None:
            if user_id is None:
                raise AccessError(
                    f"{self!r} acts for no user and sees nothing; name a `user_id` to erase"
                )
            bound = self.acting_for(user_id)
            return await bound.erase(metadata=metadata, by=by, item_ids=item_ids)
        return await super().erase(metadata=metadata, by=by, item_ids=item_ids)

    async def _take_beside(self, target: ErasureTarget, probes: Probes) -> None:
        """Nothing: what stands beside the rows is asked for by their ids."""

    def _removing(self, target: ErasureTarget, span: Span | None) -> Steps[Erasure]:
        return postgres_erase.remove(self._dialect, target, span)

    async def _scrub(self, target: ErasureTarget, probes: Probes, count: int) -> Erasure:
        advance(count, STEPS * count)
        scope = MemoryMetadata.model_validate(target.wanted)
        scrubbing = Scrubbing(self._driver, self._dialect, self._opened, self._read)

        async def forget() -> None:
            await self._index_words(Query(metadata=scope))
            while await self._together(lambda: orphan_rows.sweep(self._dialect)):
                pass

        return await scrubbing.run(target, probes, forget)

    # Looking after the tables

    async def _stats(self) -> StoreStats:
        rows = await self._read(maintenance.stats)
        items, deleted, versions, size = rows[0]
        missing = await self._missing_extension()
        return StoreStats(
            *(items, deleted, versions, size, 0, self._layout.version), missing_extension=missing
        )

    async def optimize(self) -> None:
        """Index what waits to be indexed and run `ANALYZE` for the planner."""
        await self._read(maintenance.forget_commits)
        await self.sweep()
        await self._index_words()
        await self._drop_left_behind()
        await self._maintain("VACUUM (ANALYZE) {}")

    async def vacuum(self) -> None:
        """Give the room of what was purged back to the file system; locks the tables meanwhile."""
        await self._maintain("VACUUM (FULL, ANALYZE) {}")

    async def _analyze(self) -> None:
        """Tell the planner of many rows that were just written, as it would learn in a while."""

        async def attempt() -> None:
            async with self._driver.lease(self._opened()) as connection:
                # A role that does not own the tables is warned, and nothing else happens.
                await connection.execute("ANALYZE memory_items, memory_versions")

        await self._driver.retry(attempt)

    async def _maintain(self, command: str) -> None:
        async def attempt() -> None:
            async with self._driver.lease(self._opened()) as connection:
                for table in schema.tables(self._layout):
                    await connection.execute(command.format(table))  # takes as long as it takes

        await self._driver.retry(attempt)

    async def _check(self, repair: bool) -> list[str]:  # noqa: FBT001
        if self._layout.is_held and self._principal is None:
            raise AccessError(
                f"{self!r} acts for no user and sees nothing, so it would find no problems; "
                "verify as a role that bypasses row-level security"
            )
        if lost := await self._lost_vectors(repair=repair):
            return lost  # the rest cannot be read without it
        if repair:
            await self._maintain("REINDEX TABLE {}")
        problems = [
            f"index `{row[0]}` is not valid"
            for row in await self._read(maintenance.invalid_indexes)
        ]
        last = ""
        while rows := await self._read(lambda: maintenance.folded_texts(self._everything, last)):  # noqa: B023
            last = rows[-1][0]
            wrong = [
                (item_id, text, content)
                for item_id, content, kept in rows
                if (text := folded(content)) is not None and text != kept
            ]
            if repair and wrong:
                await self._write(lambda: maintenance.refold(wrong))  # noqa: B023
            elif wrong:
                problems += [f"item `{item_id}` has no folded text" for item_id, _, _ in wrong]
        return problems + await self._check_derived(repair=repair)

    @property
    def _everything(self) -> str:
        return PartitionedDialect.everything if self._layout.partitions else "memory_items"
