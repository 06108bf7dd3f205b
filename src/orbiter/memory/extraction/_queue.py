"""The extraction queue, kept in the store beside the messages: it survives everything.

A job names the messages of one stretch of a conversation. Its id follows from where the stretch
begins, so two that queue at once make one job. A worker claims it by writing its next version,
which only one can, and for a time that is longer than an extraction may take.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orbiter.memory.agent.chat_history import read_back, read_on
from orbiter.memory.agent.extraction_jobs import cursor_id
from orbiter.memory.agent.inputs import belongs, derived_id
from orbiter.memory.agent.runtime import Core, Store
from orbiter.memory.errors import AccessError, ItemNotFoundError, VersionConflict
from orbiter.memory.model.derived import ExtractionMemory
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus, new_id
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.model.reports import ConversationInfo

__all__ = ["ExtractionReport", "FailedJob", "Queue", "home_of", "job_for"]


OPEN, DONE, FAILED, CURSOR = "open", "done", "failed", "cursor"
MAX_ERROR = 500

KEPT = timedelta(days=30)
"""How long a job stays that is done: its cursor is behind it, and nobody asks for it again."""

OVERLAP = timedelta(seconds=10)
"""How far back a conversation is looked at again if the message is gone that a cursor reached to:
writers have clocks of their own."""

RECENT = 200
"""Most messages that a cursor knows by their ids: of more in the last moments, the newest. What is
older than these counts as seen. Those of one instant are all known, or some might be missed."""

_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A stretch of a conversation that was given up."""

    job_id: str
    scope: MemoryMetadata
    """The conversation."""
    messages: int
    attempts: int
    error: str

    def __str__(self) -> str:
        return (
            f"`{self.job_id}`, {self.messages} messages, given up after {self.attempts} attempts: "
            f'{self.error}; try again with `await orchestrator.retry("{self.job_id}")`'
        )


@dataclass(frozen=True, slots=True)
class ExtractionReport:
    """How far extraction has come. It is true if nothing failed."""

    waiting: int
    running: int
    done: int
    failed: tuple[FailedJob, ...]

    def __bool__(self) -> bool:
        return not self.failed

    def __str__(self) -> str:
        first = (
            f"{self.waiting} waiting, {self.running} running, {self.done} done, "
            f"{len(self.failed)} failed"
        )
        return "\n".join([first, *map(str, self.failed)])


def job_for(
    conversation: MemoryMetadata, after: ExtractionMemory | None, stretch: Sequence[MemoryItem]
) -> ExtractionMemory:
    """Return the job of the messages that follow *after*."""
    ids = [item.id for item in stretch if item.memory_type != "system" and item.content.strip()]
    return ExtractionMemory(
        id=derived_id(conversation, "extraction", "" if after is None else after.last_id),
        content=f"extraction of {len(ids)} messages",
        metadata=_with_state(conversation, OPEN),
        message_ids=ids,
        last_id=stretch[-1].id,
        last_at=max(item.created_at for item in stretch),
        recent={item.id: item.created_at for item in stretch},
    )


def cursor_at(
    conversation: MemoryMetadata, before: ExtractionMemory | None, job: ExtractionMemory
) -> ExtractionMemory:
    """Return the cursor of a conversation of which *job* is queued, after *before*."""
    known, last_at, seen_to = dict(job.recent), job.last_at, _FIRST
    if before is not None:
        known |= before.recent
        last_at, seen_to = max(last_at, before.last_at), before.seen_to
    seen_to = max(seen_to, last_at - OVERLAP if last_at - _FIRST > OVERLAP else _FIRST)
    known = {name: at for name, at in known.items() if at >= seen_to}
    if len(known) > RECENT:
        seen_to = sorted(known.values())[-RECENT]
        known = {name: at for name, at in known.items() if at >= seen_to}
    return ExtractionMemory(
        id=cursor_id(conversation),
        content="extraction cursor",
        metadata=_with_state(conversation, CURSOR),
        last_id=job.last_id,
        last_at=last_at,
        recent=known,
        seen_to=seen_to,
        messages=0 if before is None else before.messages,
    )


def _with_state(scope: MemoryMetadata, state: str) -> MemoryMetadata:
    fields = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    return MemoryMetadata(**fields, extra={"extraction": state, "due": 0.0})


def home_of(conversation: MemoryMetadata) -> MemoryMetadata:
    """Return the scope that the facts of a conversation belong to: that of the handle it is of."""
    fields = {name: getattr(conversation, name) for name in SCOPE_FIELDS}
    narrow = "task_id" if fields["task_id"] is not None else "session_id"
    if all(value is None for name, value in fields.items() if name != narrow):
        return MemoryMetadata(**fields)  # else it would be everybody's
    return MemoryMetadata(**{name: None if name == narrow else fields[name] for name in fields})


_PAGE = 1_000
_BACKLOG = 200
_CURSORS = 200
_MAX_CONVERSATIONS = 1_000_000
_HIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")


class Queue:
    """The jobs of one scope; any number of processes may share them."""

    def __init__(
        self,
        core: Core,
        scope: MemoryMetadata,
        *,
        clock: Callable[[], datetime],
        batch: int,
        lease: float,
        max_attempts: int,
        backoff: Callable[[int], float],
    ) -> None:
        self._core = core
        self._scope = scope
        self._filter = scope if Query(metadata=scope).wanted else None
        self._clock = clock
        self._batch = batch
        self._lease = lease
        self._max_attempts = max_attempts
        self._backoff = backoff
        self._worker = new_id()
        self._backlog: deque[ExtractionMemory] = deque()

    async def _store(self) -> Store:
        return await self._core.opened(self._scope)

    def now(self) -> float:
        """Return the present instant in seconds."""
        return self._clock().timestamp()

    # Queueing

    async def add(self, conversation: MemoryMetadata, *, messages: int | None = None) -> int:
        """Queue what was said since the last time; return how many jobs were made.

        *messages* is how many the conversation has, if that is known. A crash between the jobs
        and the cursor loses nothing: the next call meets the jobs, and goes on behind them.
        """
        store = await self._store()
        made = 0
        while True:
            cursor = await _own(store, cursor_id(conversation), conversation)
            new = await _not_queued(store, conversation, cursor)
            reached = cursor
            while new:
                job = job_for(conversation, reached, new[: self._batch])
                is_mine = await _added(store, job)
                made += is_mine
                kept = job if is_mine else await _own(store, job.id, conversation)
                if kept is None:  # it was there a moment ago
                    break
                reached = cursor_at(conversation, reached, kept)
                new = new[self._batch :] if is_mine else _behind(new, kept)
            if reached is not None and messages not in (None, reached.messages):
                reached = reached.model_copy(update={"messages": messages})
            is_kept = (
                reached is None or reached is cursor or await _added(store, reached, over=cursor)
            )
            if is_kept and not new:
                return made

    async def add_new(self) -> int:
        """Queue every conversation that has gone on since the last time."""
        store = await self._store()
        conversations = await store.conversations(metadata=self._filter, limit=_MAX_CONVERSATIONS)
        made = 0
        for start in range(0, len(conversations), _CURSORS):
            part = {
                cursor_id(info.metadata): info for info in conversations[start : start + _CURSORS]
            }
            known = await store.search(
                metadata=self._filter, where={"id": {"$in": list(part)}}, limit=len(part)
            )
            cursors = {item.id: item for item in known}
            for name, info in part.items():
                if _has_gone_on(info, cursors.get(name)):
                    made += await self.add(info.metadata, messages=info.items)
        return made

    # Working

    async def reserve(self) -> ExtractionMemory | None:
        """Take a job that is due, and nobody else's from then on; `None` if there is none."""
        store = await self._store()
        is_fresh = False
        while True:
            while self._backlog:
                taken = await self._take(store, self._backlog.popleft())
                if taken is not None:
                    return taken
            if is_fresh:
                return None
            due: dict[str, object] = {"extraction": OPEN, "due": {"$lte": self.now()}}
            self._backlog.extend(sorted(await self._jobs(store, due), key=_order))
            is_fresh = True

    async def _take(self, store: Store, job: ExtractionMemory) -> ExtractionMemory | None:
        if job.attempts >= self._max_attempts:  # each time it took its worker with it
            error = job.error or "its worker was killed each time"
            await _added(store, job.moved(FAILED, worker="", error=error), over=job)
            return None
        until = self.now() + self._lease
        mine = job.moved(OPEN, due=until, attempts=job.attempts + 1, worker=self._worker)
        if not await _added(store, mine, over=job):
            return None
        item = await store.get(job.id)
        is_mine = isinstance(item, ExtractionMemory) and item.worker == self._worker
        return item if is_mine else None  # type: ignore[return-value]  # told above

    async def finish(self, job: ExtractionMemory, proposed: int) -> None:
        """Note that a job is done."""
        end = datetime.now(UTC) + KEPT
        done = job.moved(DONE, worker="", error="", proposed=proposed, expires_at=end)
        await _added(await self._store(), done, over=job)

    async def fail(self, job: ExtractionMemory, error: str) -> None:
        """Note what went wrong: it is tried again later, or given up."""
        message = _HIDDEN.sub(" ", error)[:MAX_ERROR]
        left = job.moved(FAILED, worker="", error=message)
        if job.attempts < self._max_attempts:
            again = self.now() + self._backoff(job.attempts)
            left = job.moved(OPEN, due=again, worker="", error=message)
        await _added(await self._store(), left, over=job)

    async def release(self, job: ExtractionMemory) -> None:
        """Give back what was taken, as if it had not been."""
        left = job.moved(OPEN, due=self.now(), worker="", attempts=job.attempts - 1)
        await _added(await self._store(), left, over=job)

    async def retry(self, job_id: str) -> None:
        """Have a job that was given up tried again, as if it were new."""
        store = await self._store()
        while True:
            job = await store.get(job_id)
            if not isinstance(job, ExtractionMemory) or not belongs(job, self._scope):
                raise ItemNotFoundError(job_id, way="`report()` shows what failed")
            if job.state != FAILED:
                return
            if await _added(store, job.moved(OPEN, due=self.now(), attempts=0), over=job):
                return

    async def next_due(self) -> float | None:
        """Return when the next open job is due; `None` if there is none."""
        jobs = await self._jobs(await self._store(), {"extraction": OPEN})
        return min((job.due for job in jobs), default=None)

    # Reporting

    async def report(self) -> ExtractionReport:
        """Return how far it has come."""
        store, now = await self._store(), self.now()
        waiting = running = done = 0
        failed: list[FailedJob] = []
        async for job in self._every(store):
            if job.state == FAILED:
                fields = {name: getattr(job.metadata, name) for name in SCOPE_FIELDS}
                failed.append(
                    FailedJob(
                        job.id,
                        MemoryMetadata(**fields),
                        len(job.message_ids),
                        job.attempts,
                        job.error,
                    )
                )
            elif job.state == OPEN:
                is_running = bool(job.worker) and job.due > now
                running += is_running
                waiting += not is_running
            else:
                done += job.state == DONE
        return ExtractionReport(waiting, running, done, tuple(reversed(failed)))

    async def _every(self, store: Store) -> AsyncIterator[ExtractionMemory]:
        """Yield jobs, and cursors."""
        before: MemoryItem | None = None
        while True:
            page = await store.search(
                metadata=self._filter,
                memory_type="extraction",
                limit=_PAGE,
                before=before,
            )
            for item in page:
                if isinstance(item, ExtractionMemory):
                    yield item
            if len(page) < _PAGE:
                return
            before = page[-1]

    async def _jobs(self, store: Store, where: dict[str, object]) -> list[ExtractionMemory]:
        items = await store.search(
            metadata=self._filter,
            memory_type="extraction",
            status=MemoryStatus.DRAFT,
            where=where,
            limit=_BACKLOG,
        )
        return [job for job in items if isinstance(job, ExtractionMemory)]


def _order(job: ExtractionMemory) -> tuple[float, datetime, str]:
    return job.due, job.created_at, job.id


def _has_gone_on(info: ConversationInfo, cursor: MemoryItem | None) -> bool:
    # One that comes late is not the newest, but one more.
    return (
        not isinstance(cursor, ExtractionMemory)
        or info.last_at > cursor.last_at
        or info.items != cursor.messages
    )


async def _not_queued(
    store: Store, conversation: MemoryMetadata, cursor: ExtractionMemory | None
) -> list[MemoryItem]:
    """Return the messages that came after *cursor*, in the order in which they came."""
    if cursor is None:
        return (await read_back(store, conversation))[0]
    new = await read_on(store, conversation, cursor.last_id) if cursor.last_id else None
    if new is not None:
        return new
    # The message that it reached to is gone for good, and with it where that one was.
    said, _ = await read_back(store, conversation, since=cursor.seen_to)
    return [item for item in said if not cursor.has_seen(item)]


def _behind(messages: Sequence[MemoryItem], job: ExtractionMemory) -> list[MemoryItem]:
    """Return those of *messages* that come after what *job* reads."""
    ids = [item.id for item in messages]
    if job.last_id in ids:
        return list(messages[ids.index(job.last_id) + 1 :])
    return [item for item in messages if item.id not in job.recent]


async def _own(store: Store, item_id: str, conversation: MemoryMetadata) -> ExtractionMemory | None:
    item = await store.get(item_id)
    if item is None:
        return None
    if isinstance(item, ExtractionMemory) and all(
        getattr(item.metadata, name) == getattr(conversation, name) for name in SCOPE_FIELDS
    ):
        return item
    raise AccessError(f"`{item_id}` is the id of something other than an extraction; remove it")


async def _added(
    store: Store, item: ExtractionMemory, *, over: ExtractionMemory | None = None
) -> bool:
    """Write *item* over that very version, or as a new one; tell whether nobody was faster."""
    try:
        await store.add(item, expected_version=0 if over is None else over.version)
    except VersionConflict:
        return False
    return True
