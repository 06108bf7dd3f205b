"""`SQLiteMemoryStore`: one file, many processes, nothing acknowledged is lost.

`sql/operations.py` says what the statements mean, `dialect.py` how SQLite spells them, and
`connection_manager.py` which thread runs them.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from importlib import import_module
from itertools import count as numbers
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from orbiter.memory.backends.sql.audit import check_audit
from orbiter.memory.backends.sql.dialect import Steps
from orbiter.memory.backends.sql.embedder import Embedded, Model, PendingItem, check_embeddings
from orbiter.memory.backends.sql.neighbours import around
from orbiter.memory.backends.sql.operations import Operations
from orbiter.memory.backends.sql.recall import decode_shared
from orbiter.memory.backends.sql.rows import READ, Row, decode
from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.backends.sqlite import maintenance, term_index, vectors
from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile, call_each
from orbiter.memory.backends.sqlite.dialect import INSERT, SQLiteDialect, row_values
from orbiter.memory.backends.sqlite.idle_tasks import forget_some, is_due, sweep_some, uncleaned
from orbiter.memory.backends.sqlite.record_writer import dated, note
from orbiter.memory.backends.sqlite.run import run, run_as_one
from orbiter.memory.backends.sqlite.schema import EXPIRED
from orbiter.memory.backends.sqlite.term_search import match
from orbiter.memory.backends.sqlite.trigram_index import check, index_some, merge_some, rebuild
from orbiter.memory.backends.sqlite.vector_cache import VectorCache, similarities, vectors_of
from orbiter.memory.backends.sqlite.writer_thread import Work
from orbiter.memory.errors import (
    MemoryTimeoutError,
    NotInitializedError,
    StorageError,
    UnsupportedError,
)
from orbiter.memory.model.audit import AuditMode
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import CosineQuery, Query, check_instant, check_size
from orbiter.memory.model.validation import check_positive
from orbiter.memory.tasks.offload import has_loop
from orbiter.memory.tasks.progress import advance

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.audit_dialect import SQLiteAuditDialect
    from orbiter.memory.backends.sql.erase import ErasureTarget, Span
    from orbiter.memory.backends.sql.erase_probes import Probes
    from orbiter.memory.model.reports import Erasure, Restored, StoreStats

__all__ = ["SQLiteMemoryStore"]

_T = TypeVar("_T")

_DIALECT = SQLiteDialect()

ROUNDS = 8
"""How often a question has the terms listed that others wrote meanwhile."""

_TELL = 8
"""Transactions between two looks at how much the indexes still have to forget."""

PAUSE = 0.1
"""Seconds, at most, that a long change of the indexes stops now and then: another process that
waits for its turn tries as often."""


class SQLiteMemoryStore(SQLMemoryStore):
    """Keeps items in a SQLite file that many tasks, threads and processes may share.

    `durability="full"` syncs every commit to disk before it is acknowledged. `"normal"` survives
    the death of the process all the same, but a power cut may take the newest commits with it.
    *busy_timeout* is how many seconds a write waits for another process's. With *embeddings* it
    also finds items by meaning; *vector_cache* is about how many bytes of vectors it holds in
    memory, those of the users asked about last. With *approximate_from* (extra `[ann]`), a search
    by meaning among so many vectors of a user or more takes its candidates from a graph, which
    may miss some and is built by the first such search. *audit* has writes logged, or `"all"`.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] = ":memory:",
        *,
        durability: Literal["full", "normal"] = "full",
        busy_timeout: float = 5.0,
        readers: int = 4,
        embeddings: Embeddings | None = None,
        vector_cache: int = 256 * 2**20,
        approximate_from: int | None = None,
        audit: AuditMode | None = None,
    ) -> None:
        self.db_path = _check_path(db_path)
        check_positive(vector_cache=vector_cache)
        self._operations = Operations(_DIALECT)
        self._audit = check_audit(audit)
        self._embeddings = check_embeddings(embeddings)
        if approximate_from is not None:
            check_size("approximate_from", approximate_from)
            import_module("orbiter.memory.backends.vector.approximate")  # says what to install
        self._vector_cache = VectorCache(
            self._operations, vector_cache, approximate_from=approximate_from
        )
        self._file = SQLiteFile(
            self.db_path,
            owner=repr(self),
            durability=durability,
            busy_timeout=busy_timeout,
            readers=readers,
            group=_run_group,
        )

    def __repr__(self) -> str:
        return f"SQLiteMemoryStore({self.db_path!r})"

    @property
    def url(self) -> str:
        """The URL of the file."""
        return "memory://" if self.db_path == ":memory:" else f"sqlite:///{self.db_path}"

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._file.is_open

    # Opening and closing

    async def init(self) -> None:
        """Open the file, creating it if there is none, and bring its tables up to date.

        A file that is not ours, is damaged, or was written by a newer version is refused with a
        `StorageError`, its bytes unchanged; one whose vectors are of another model than
        `embeddings`, with an `EmbeddingsMismatchError`.
        """
        await self._open()
        try:
            await self._begin_audit()
            await self._start_embedding()
        except BaseException:  # cancellation included
            if self._embedder is None:
                await self._file.close()
            raise

    async def _open(self) -> None:
        await self._file.init()

    def _leave_chores(self) -> None:
        """Leave indexing and sweeping to whoever opens the file next; for one who moves it all.

        Said before it is opened. A search finds what is not indexed all the same.
        """
        self._file.does_chores = False

    async def close(self) -> None:
        """Finish what is under way and close the file; `init` opens it again."""
        await self._stop_embedding()
        await self._file.close()
        self._vector_cache.clear()

    def _audit_dialect(self) -> "SQLiteAuditDialect":
        from orbiter.memory.backends.sql.audit_dialect import SQLiteAuditDialect  # noqa: PLC0415

        return SQLiteAuditDialect()

    # Running steps

    def _put(self, row: Row) -> Coroutine[Any, Any, None]:
        return self._file.write(row)

    async def _write(self, steps: Callable[[], Steps[_T]]) -> _T:
        work: Work[_T] = lambda connection: run(connection, steps())  # noqa: E731 - says what it is
        return await self._file.write(work)  # type: ignore[no-any-return]

    async def _read(self, steps: Callable[[], Steps[_T]], *, alone: bool = False) -> _T:
        runs = run if alone else run_as_one
        return await self._file.read(lambda connection: runs(connection, steps()))

    async def purge(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        deleted_before: datetime | None = None,
    ) -> int:
        """Remove soft-deleted items for good, with their history; return how many.

        *metadata* and *deleted_before* narrow it down: all soft-deleted items go without them.
        The items go as one; the indexes forget them bit by bit, and others can write in between.
        """
        removed = await super().purge(metadata=metadata, deleted_before=deleted_before)
        # If others write for long, or the store is closed, the next `purge` or search goes on.
        with suppress(MemoryTimeoutError, NotInitializedError):
            await self._forget()
        return removed

    async def sweep(self) -> int:
        """Remove items that are over for good, with their history; return how many.

        It need not be called: nobody finds them, and an open store removes them when it is idle.
        """
        removed = 0
        began = monotonic()
        while some := await self._file.read(sweep_some, writing=True):
            removed += some
            await asyncio.sleep(min(monotonic() - began, PAUSE))
            began = monotonic()
        with suppress(MemoryTimeoutError):
            await self._forget()  # what a sweep that was killed has left in the indexes
        return removed

    async def count_removable(self, *, deleted_before: datetime | None = None) -> tuple[int, int]:
        """Return how many items `sweep` would remove, and how many `purge(deleted_before=…)`."""
        if deleted_before is not None:
            deleted_before = check_instant("deleted_before", deleted_before)
        return await self._read(lambda: self._operations.count_removable(EXPIRED, deleted_before))

    async def _forget(self, cleaned: Callable[[float], None] | None = None) -> None:
        """Have the indexes forget what waits; tell *cleaned* now and then which part is left."""
        began = monotonic()
        first = 0 if cleaned is None else await self._file.read(uncleaned)
        for number in numbers():
            if cleaned is not None and first and not number % _TELL:
                cleaned(min(1.0, await self._file.read(uncleaned) / first))
            if not await self._file.read(forget_some, writing=True):
                return
            await asyncio.sleep(min(monotonic() - began, PAUSE))
            began = monotonic()

    # Erasing

    async def erase(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        by: str | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> "Erasure":
        """Remove for good all that *metadata* names: see `SQLMemoryStore.erase`."""
        with self._file.without_chores():  # nothing is taken out of the indexes twice
            return await super().erase(metadata=metadata, by=by, item_ids=item_ids)

    async def _take_beside(self, target: "ErasureTarget", probes: "Probes") -> None:
        from orbiter.memory.backends.sqlite import erase  # noqa: PLC0415

        await self._file.read(partial(erase.take, target=target, probes=probes))

    def _removing(self, target: "ErasureTarget", span: "Span | None") -> "Steps[Erasure]":
        from orbiter.memory.backends.sqlite import erase  # noqa: PLC0415

        return erase.remove(target, span)

    async def _scrub(
        self,
        target: "ErasureTarget",  # noqa: ARG002 - of Postgres alone
        probes: "Probes",
        count: int,
    ) -> "Erasure":
        from orbiter.memory.backends.sql.erase import STEPS  # noqa: PLC0415
        from orbiter.memory.backends.sqlite.erase import scrub  # noqa: PLC0415

        def cleaned(left: float) -> None:
            advance(count + int(count * (1 - left)), STEPS * count)

        self._vector_cache.clear()
        return await scrub(self._file, probes.taken(), partial(self._forget, cleaned))

    # Looking after the file

    async def _stats(self) -> "StoreStats":
        return await self._file.read(maintenance.stats)

    async def optimize(self) -> None:
        """Index what is not indexed yet, merge the index, and write the journal back."""
        await self._index_all()
        for table in ("memory_words", "memory_terms"):
            restart = True
            while await self._file.read(
                partial(merge_some, table=table, restart=restart), writing=True
            ):
                restart = False
        await self._file.read(maintenance.checkpoint, writing=True)

    async def _index_all(self) -> None:
        for some in (index_some, term_index.list_some, vectors.tidy):
            while await self._file.read(some, writing=True):
                pass

    async def vacuum(self) -> None:
        """Give the room of what was purged back to the file system."""
        await self._file.read(maintenance.vacuum, writing=True)

    async def backup(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Copy the store to a new file while others go on reading and writing.

        The file appears under its name when it is complete. *progress* is called, on a thread of
        the store's, with pages done and pages in all. Open it like any other store.
        """
        from orbiter.memory.backends.sqlite.backup import backup  # noqa: PLC0415 - seldom needed

        await self._file.read(
            lambda connection: backup(connection, Path(path).expanduser(), progress)
        )

    async def restore_backup(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> "Restored":
        """Replace the file of this store, which must be closed, by a copy of a backup.

        The backup is checked first, and what was there is kept beside it under a name with the
        date. `StorageError` if anybody has the store open, in this process or another.
        """
        from orbiter.memory.backends.sqlite.backup import restore  # noqa: PLC0415 - as above

        if self.db_path == ":memory:":
            raise UnsupportedError(
                f"{self!r} has no file that could be replaced; open the backup by its own path"
            )
        return await asyncio.to_thread(restore, self._file.path, os.fspath(path), progress)

    async def _check(self, repair: bool) -> list[str]:  # noqa: FBT001
        if repair:
            await self._file.write(rebuild)
            await self._file.write(vectors.mend)
            await self._index_all()
            self._vector_cache.clear()
            self._wrote()
        return await self._file.read(check)

    # Recall

    async def _index_words(self) -> None:
        if await self._file.read(is_due):
            await self.sweep()
        while await self._file.read(term_index.waits):
            if not await self._file.read(term_index.list_some, writing=True):
                return

    async def _what_waits(self) -> tuple[int, bool]:
        model = self._model

        def look(connection: sqlite3.Connection) -> tuple[int | None, bool]:
            count = 0 if model is None else vectors.count(connection, model)
            return count, is_due(connection) or term_index.waits(connection) > 0

        waiting, are_words_due = await self._file.read(look)
        return await self._unembedded() if waiting is None else waiting, are_words_due

    async def offload(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return what *work* returns; its reads are done on one thread, without the event loop."""
        result = await self._file.offload(work, prepare=self._index_words)
        if has_loop():
            self._wrote(is_news=False)
        return result

    # Items are made of rows by the thread that reads them: the event loop has better things to do.

    @property
    def _decode(self) -> Callable[[Sequence[Any]], MemoryItem]:
        """How a row becomes an item: one of the caller's own, but inside of `offload`."""
        return decode_shared if self._file.is_offloaded else decode

    async def _items_of(self, rows: Sequence[Sequence[Any]]) -> list[MemoryItem]:
        if self._file.is_offloaded:
            return list(map(decode_shared, rows))
        return await super()._items_of(rows)

    async def _match_words(
        self, terms: Sequence[str], query: Query
    ) -> tuple[list[MemoryItem], dict[str, int], int]:
        make, model, writes = self._decode, self._model, self._writes

        def ask(
            connection: sqlite3.Connection, *, is_hurried: bool
        ) -> tuple[list[MemoryItem], dict[str, int], int] | None:
            matches = match(connection, self._operations, terms, query, is_hurried=is_hurried)
            if matches and model and not is_hurried:
                self._saw_waiting(vectors.count(connection, model), writes=writes)
            return matches and (list(map(make, matches[0])), *matches[1:])

        rounds = 0
        while (answer := await self._file.read(partial(ask, is_hurried=rounds > ROUNDS))) is None:
            rounds += 1
            try:
                await self._index_words()
            except (MemoryTimeoutError, StorageError):
                # Another process writes for long, or nobody can: what is listed is better than
                # no answer.
                rounds = ROUNDS + 1
        return answer

    async def _models(self) -> list[Model]:
        return await self._file.read(vectors.models)

    async def _begin_model(self, name: str, dimension: int) -> Model:
        begin = partial(vectors.begin, name=name, dimension=dimension)
        return await self._file.write(begin)  # type: ignore[no-any-return]

    async def _finish_model(self, model: Model) -> None:
        await self._file.write(partial(vectors.finish, model=model))

    async def _take_waiting(self, model: Model, count: int) -> list[PendingItem] | None:
        return await self._file.read(partial(vectors.take, model=model, count=count))

    async def _keep_vectors(
        self, model: Model, done: Sequence[tuple[PendingItem, Embedded | None]]
    ) -> None:
        await self._file.write(partial(vectors.keep, model=model, done=done))

    async def _count_waiting(self, model: Model) -> int | None:
        return await self._file.read(partial(vectors.count, model=model))

    async def _nearest(
        self, model: Model, vector: Sequence[float], query: Query
    ) -> list[tuple[MemoryItem, float]] | None:
        make = self._decode

        def ask(connection: sqlite3.Connection) -> list[tuple[MemoryItem, float]] | None:
            near = self._vector_cache.nearest(connection, model, vector, query)
            return None if near is None else [(make(row), cosine) for row, cosine in near]

        return await self._file.read(ask)

    async def _around(
        self, item_ids: Sequence[str], span: int, scored: tuple[Model, CosineQuery] | None = None
    ) -> tuple[list[list[MemoryItem]], dict[str, float]] | None:
        make = self._decode

        def ask(connection: sqlite3.Connection) -> tuple[Any, dict[str, float] | None]:
            stretches = run_as_one(connection, around(_DIALECT, item_ids, span))
            near: dict[str, float] | None = {}
            if scored is not None:
                ids = scored[1].unknown(row[0] for rows in stretches for row in rows)
                near = similarities(connection, scored[0], scored[1].vector, ids)
            return [[make(row[: len(READ)]) for row in rows] for rows in stretches], near

        items, cosines = await self._file.read(ask)
        return None if cosines is None else (items, cosines)

    async def _similarities(
        self, model: Model, vector: Sequence[float], item_ids: Sequence[str]
    ) -> dict[str, float] | None:
        ask = partial(similarities, model=model, vector=vector, item_ids=item_ids)
        return await self._file.read(ask)

    async def _vectors(self, model: Model, item_ids: Sequence[str]) -> dict[str, bytes] | None:
        return await self._file.read(partial(vectors_of, model=model, item_ids=item_ids))

    async def _details(
        self, model: Model, item_ids: Sequence[str]
    ) -> dict[str, list[bytes]] | None:
        return await self._file.read(partial(vectors.read_details, model=model, item_ids=item_ids))


def _check_path(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text or "://" in text:
        raise ValueError(f"`db_path` must be a path or `:memory:`, not {path!r}")
    return text


def _run_group(connection: sqlite3.Connection, group: list[Any]) -> list[Any]:
    """Carry out writes in order: rows to put, neighbours together, and functions to call."""
    if len(group) == 1 and type(group[0]) is Row:  # as most are
        _put_row(connection, group[0])
        return [None]
    values: list[Any] = []
    for is_row, together in groupby(group, key=lambda work: type(work) is Row):
        works = list(together)
        if not is_row:
            values += call_each(connection, works)
            continue
        if len(works) == 1:
            _put_row(connection, works[0])
        else:
            run(connection, _DIALECT.add_many(works))
        values += [None] * len(works)
    return values


def _put_row(connection: sqlite3.Connection, row: Row) -> None:
    """Write a row; one that is new in one statement, of which SQLite says whether it was."""
    if connection.execute(INSERT, row_values(row)).rowcount != 1:
        run(connection, _DIALECT.upsert(row))
    elif late := dated([row]):
        run(connection, note(late))
