"""Moving a whole store to another kind of store, exactly, and proving it.

There is no file that says how far a move came. What is in the target already is left alone, so a
move that was killed is simply made again, and goes on where it was. So is what was changed there
since: no move takes anything away.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from orbiter.memory.agent.keywords import checked_keywords
from orbiter.memory.backends.registry import open_store, store_identity
from orbiter.memory.errors import AccessError, QueryError, StorageError
from orbiter.memory.model.agent_store import AgentStore
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.key_value import KeyValueStore, StoredEntry
from orbiter.memory.model.protocols import HistoryStore
from orbiter.memory.model.records import Record, Written
from orbiter.memory.transfer.native import MAX_TOLD, entry_pages, pages_of

if TYPE_CHECKING:
    from orbiter.memory.backends.postgres.store import PostgresMemoryStore


__all__ = ["Migration", "migrate"]

_T = TypeVar("_T")

BATCH = 8_000
"""Records that are written in one transaction, if they are short."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Migration:
    """What a move did. It is true if the target holds all of it, exactly so."""

    copied: int
    """Records that were written, or put right, in the target."""
    already_there: int
    """Records that the target had, exactly so."""
    left_out: int
    """Soft-deleted items, if the target keeps none."""
    checked: int
    """Records that were read back from the target in the end."""
    source_digest: str
    """The sum of the SHA-256 of all records that were read from the source, `kept` and `ended`
    ones aside."""
    target_digest: str
    """The same of those that were read back from the target."""
    is_complete: bool
    """Whether the source holds as many items as it did when they were copied."""
    kept: int = 0
    """Items that went on by themselves in the target, and so were left as they are there."""
    conflicts: tuple[str, ...] = ()
    """The ids of the first hundred of these."""
    ended: int = 0
    """Items that were copied, and were over by themselves before they could be read back."""
    entries: int = 0
    """Key-value entries that the target has, as they are in the source."""

    @property
    def verified(self) -> bool:
        """Whether the target holds what the source does, by count and by digest.

        Items that were `kept` aside: they are not the copy's fault, and make the move false.
        """
        moved = self.copied + self.already_there - self.ended
        is_same = self.source_digest == self.target_digest and self.checked == moved
        return is_same and self.is_complete

    def __bool__(self) -> bool:
        return self.verified and not self.kept


@checked_keywords("migrate")
async def migrate(
    source_url: str,
    target_url: str,
    *,
    progress: Progress | None = None,
    scope: MemoryMetadata | None = None,
    overwrite: bool = False,
) -> Migration:
    """Copy everything, or what is of *scope*, from one store to another; say whether it is there.

    Every item comes with its versions, its deletion, its times and its place among the others.
    Killed at any moment, it may be called again: what is there already is left alone. In the end
    all is read back from the target and compared with what was read from the source. Vectors are
    not copied; the target makes its own, and a SQLite file indexes its texts when it is next open.
    A Redis, and most stores of other packages, keep no versions and nothing soft-deleted, so there
    these are left out.

    An item that is in the target is replaced if the source only knows more of it: the same
    versions, and newer or older ones. If it went on by itself there, it stays, forgotten or not;
    it is counted as `kept`, named in `conflicts`, and makes the answer false. With *overwrite* it
    becomes what it is in the source, with its history.

    *progress* is called with records done and records in all, each counted twice: it is copied,
    and it is read back. What is written to the source meanwhile may be missing in the target;
    a second call brings it over.
    """
    source, target = _stores(source_url, target_url)
    _check_different(source_url, target_url)
    for store in (source, target):
        if leave_chores := getattr(store, "_leave_chores", None):
            leave_chores()  # they would stand between one page and the next
    async with source, target:
        held = _as_allowed(source, scope), _as_allowed(target, scope)
        return await _Move(*held, scope, progress, overwrite=overwrite).run()


class _Move:
    def __init__(
        self,
        source: AgentStore,
        target: AgentStore,
        scope: MemoryMetadata | None,
        progress: Progress | None,
        *,
        overwrite: bool,
    ) -> None:
        self._overwrite = overwrite
        self._kept: set[str] = set()
        self._ends: list[datetime] = []
        self._source = source
        self._target = target
        self._scope = scope
        self._progress = progress
        self._keeps_all = isinstance(target, HistoryStore)
        self._done = self._total = 0

    async def run(self) -> Migration:
        self._total = 2 * await _count(self._source, self._scope)
        copied = left_out = 0
        source_sum = _Sum()
        async with aclosing(_ahead(self._source_pages(source_sum))) as pages:
            async for fitting, others in pages:
                left_out += others
                if fitting:
                    written = await self._target.put_records(fitting, overwrite=self._overwrite)
                    copied += written
                    self._leave_out(fitting, written, source_sum)
                self._report_progress(len(fitting) + others)
        analyze = getattr(self._target, "_analyze", None)
        if analyze is not None and copied >= BATCH:
            await analyze()  # or each page that is read back would be sorted out of all
        target_sum = await self._read_back(source_sum.records)
        unchanged = await self._is_complete(source_sum.records + len(self._kept) + left_out)
        present = source_sum.records - copied
        ended = source_sum.take_out_ended(target_sum)
        entries, differing = await self._move_entries()
        if self._entries is None:
            left_out, differing = left_out + len(differing), []
        conflicts = [*sorted(self._kept), *differing]
        return Migration(
            copied, present, left_out, target_sum.records, source_sum.digest, target_sum.digest,
            unchanged, len(conflicts), tuple(conflicts[:MAX_TOLD]), ended, entries,
        )  # fmt: skip

    @property
    def _entries(self) -> "KeyValueStore | None":
        """Where the target keeps key-value entries, if it does."""
        return getattr(self._target, "key_value", None)

    async def _move_entries(self) -> tuple[int, list[str]]:
        """Copy key-value entries; return how many are there, and which are not as they were."""
        there, others, target = 0, list[str](), self._entries
        async with aclosing(entry_pages(self._source, self._scope)) as pages:
            async for page in pages:
                if target is not None:
                    await target.load(page, overwrite=self._overwrite)
                for stored in page:
                    name = (stored.entry.path, stored.entry.key)
                    here = (
                        [None] if target is None else await target.get([name], scope=stored.scope)
                    )
                    if here == [stored.entry] or _is_over(stored):
                        there += 1
                    else:
                        others.append("/".join([*name[0], name[1]]))
        return there, others

    async def _is_complete(self, seen: int) -> bool:
        """Tell whether the source holds what was seen of it, but for what is over by now."""
        before = self._over()
        count = await _count(self._source, self._scope)
        return seen - self._over() <= count <= seen - before

    def _over(self) -> int:
        now = datetime.now(UTC)
        return sum(1 for end in self._ends if end <= now)

    def _leave_out(self, records: list[Record], written: int, source_sum: "_Sum") -> None:
        """Take out of the sum what stays in the target as it is there."""
        kept = set(written.conflicts if isinstance(written, Written) else ())
        if kept:
            source_sum.take_out([self._held(record) for record in records if record.id in kept])
            self._kept |= kept

    async def _source_pages(
        self, source_sum: "_Sum"
    ) -> AsyncGenerator[tuple[list[Record], int], None]:
        """Yield what is to be copied, page by page, and how many are left out; add it up."""
        async with aclosing(self._pages(self._source)) as pages:
            async for page in pages:
                fitting = self._fitting(page)
                self._ends += [end for record in page if (end := record.ends_at) is not None]
                source_sum.add(
                    [self._held(record) for record in fitting]
                )  # while another is written
                yield fitting, len(page) - len(fitting)

    def _pages(self, store: AgentStore) -> AsyncGenerator[list[Record], None]:
        return pages_of(store, metadata=self._scope, most=BATCH)

    def _fitting(self, page: list[Record]) -> list[Record]:
        """Return what the target can hold of a page."""
        return page if self._keeps_all else [record for record in page if not record.deleted]

    def _held(self, record: Record) -> Record:
        """Return what the target holds of a record that it was given."""
        return record if self._keeps_all else record.present

    async def _read_back(self, records: int) -> "_Sum":
        """Read all that was to be moved from the target."""
        target_sum = _Sum()
        is_alone = await _count(self._target, self._scope) == records + len(self._kept)
        pages = self._pages(self._target) if is_alone else self._copied_pages()
        async with aclosing(_ahead(pages)) as ahead:
            async for page in ahead:
                target_sum.add([record for record in page if record.id not in self._kept])
                self._report_progress(len(page))
        return target_sum

    async def _copied_pages(self) -> AsyncGenerator[list[Record], None]:
        """Yield what a target that holds more than that has of the source."""
        async with aclosing(self._pages(self._source)) as pages:
            async for page in pages:
                ids = [record.id for record in self._fitting(page)]
                yield await self._target.records(item_ids=ids, limit=len(ids), metadata=self._scope)

    def _report_progress(self, records: int) -> None:
        self._done += records
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))


def _is_over(stored: StoredEntry) -> bool:
    end = stored.entry.expires_at
    return end is not None and end <= datetime.now(UTC)


class _Sum:
    """The digest of records, whatever their order is."""

    def __init__(self) -> None:
        self.records = 0
        self._sum = 0
        self._ending: dict[str, Record] = {}

    def add(self, records: list[Record]) -> None:
        self.records += len(records)
        self._sum += sum(map(_number, records))
        self._ending |= {each.id: each for each in records if each.ends_at is not None}

    def take_out(self, records: list[Record]) -> None:
        self.records -= len(records)
        self._sum -= sum(map(_number, records))

    def take_out_ended(self, target_sum: "_Sum") -> int:
        """Take out what is over by now and so was not found; return how much."""
        now = datetime.now(UTC)
        gone = [
            record
            for item_id, record in self._ending.items()
            if item_id not in target_sum._ending and record.ends_at is not None  # noqa: SLF001 - its own kind
            if record.ends_at <= now
        ]
        self.take_out(gone)
        return len(gone)

    @property
    def digest(self) -> str:
        return f"{self._sum % 2**256:064x}"


def _number(record: Record) -> int:
    return int.from_bytes(hashlib.sha256(record.to_line().encode()).digest())


async def _count(store: Any, scope: MemoryMetadata | None) -> int:
    more = {"include_deleted": True} if isinstance(store, HistoryStore) else {}
    counted: int = await store.count(metadata=scope, **more)
    return counted


async def _ahead(pages: AsyncGenerator[_T, None]) -> AsyncGenerator[_T, None]:
    """Yield the same; while one is looked at, the next is on its way."""

    async def following() -> _T | None:
        return await anext(pages, None)

    coming = asyncio.ensure_future(following())
    try:
        while (page := await coming) is not None:
            coming = asyncio.ensure_future(following())
            yield page
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await pages.aclose()


def _stores(source_url: str, target_url: str) -> tuple[AgentStore, AgentStore]:
    for url in (source_url, target_url):
        if str(url).startswith("memory://") or url == ":memory:":
            raise QueryError(
                "`memory://` is gone with this process, so nothing can be copied from or to it"
            )
    source, target = open_store(source_url), open_store(target_url)
    path = getattr(source, "db_path", None)
    if path is not None and not Path(path).is_file():
        raise StorageError(f"there is no `{path}` to copy")
    return source, target


def _as_allowed(store: AgentStore, scope: MemoryMetadata | None) -> AgentStore:
    """Return *store* as row-level security lets the user of *scope* see it.

    A store that acts for nobody sees nothing, and moving nothing would seem to have gone well.
    """
    acting_for = getattr(store, "acting_for", None)
    if acting_for is None:
        return store
    user = None if scope is None else scope.user_id
    try:
        held: PostgresMemoryStore = acting_for(user or "nobody")
    except AccessError:  # there are no policies, or none that hold this role
        return store
    if user is None:
        raise AccessError(
            f"{store!r} shows each user's rows to that user only; name one in `scope`, or connect "
            "as a role that bypasses row-level security"
        )
    return held


def _check_different(source_url: str, target_url: str) -> None:
    """Raise `QueryError` if both are one store: the copy would only look like one."""
    paths = [getattr(open_store(url), "db_path", None) for url in (source_url, target_url)]
    if all(paths):
        source, target = map(Path, paths)  # type: ignore[arg-type]  # no `None`
        is_one = target.exists() and source.samefile(target)
    else:
        is_one = _identity(source_url) == _identity(target_url)
    if is_one:
        raise QueryError("both addresses are of one store; name another as the target")


def _identity(url: str) -> tuple[object, ...]:
    """Return what two addresses of one store share: its name, and which tables are meant."""
    said = parse_qs(urlsplit(url).query)
    name = (store_identity(url) or url).replace("localhost", "127.0.0.1")
    return name, said.get("search_path"), said.get("options")
