"""Extraction of facts: `LongTermMemory` at once, `MemoryOrchestrator` in the background.

It survives kill -9 and bad models.
Nothing is in the way of a write: conversations are queued when somebody says so, in the store they
are in, and worked off by as many processes as there are.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orbiter.memory.agent import AgentMemory, Chat, ScopedMemory
from orbiter.memory.agent.facts import Facts
from orbiter.memory.agent.inputs import belongs
from orbiter.memory.agent.interface import session_of
from orbiter.memory.errors import AccessError, ExtractionError, MemoryError, QueryError
from orbiter.memory.extraction._extractor import (
    Extractor,
    ProposedFact,
    check_extractor,
    check_proposals,
)
from orbiter.memory.extraction._queue import ExtractionReport, Queue, home_of
from orbiter.memory.model.copying import unfenced
from orbiter.memory.model.derived import ExtractionMemory
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, is_indexed, is_own_output
from orbiter.memory.model.query import SCOPE_FIELDS, check_size

if TYPE_CHECKING:
    from orbiter.memory.recall import RecallResult


__all__ = ["LongTermMemory", "MemoryOrchestrator"]


class LongTermMemory:
    """The facts of a handle's scope, and what proposes them from its messages."""

    def __init__(self, handle: ScopedMemory, extractor: Extractor) -> None:
        if not isinstance(handle, ScopedMemory):
            raise QueryError(
                f"facts belong to somebody, so `LongTermMemory` needs a handle such as "
                f"`memory.scope(user_id=…)`, not {handle!r}"
            )
        check_extractor(extractor)
        self._handle = handle
        self._extractor = extractor
        self._facts = handle.facts

    @property
    def facts(self) -> Facts:
        """What is true, and what waits for a review."""
        return self._facts

    def __repr__(self) -> str:
        return f"LongTermMemory({self._handle!r}, {self._extractor!r})"

    async def extract(self, messages: Sequence[MemoryItem]) -> list[FactMemory]:
        """Have facts proposed from stored messages; return the drafts, which wait for a review.

        Each names the messages that it comes from, and is worth no more than the least trusted of
        them. What memories said is no message: an answer of our own tools, or what stands behind a
        fence. It may be repeated: the same messages propose the same once, and nothing that was
        accepted, discarded or forgotten. A failing extractor is an `ExtractionError`; then nothing
        is proposed.
        """
        said = list(messages)
        for message in said:
            if not isinstance(message, MemoryItem):
                raise QueryError(f"`messages` must be stored items, not {message!r}")
            if not belongs(message, self._handle.scope):
                raise AccessError(f"the message `{message.id}` does not belong to {self._handle!r}")
        heard = [unfenced(message) for message in said if not is_own_output(message)]
        if not heard:
            return []
        proposals = await self._ask(heard, await self._facts.all())
        there = {message.id: message for message in said}
        drafts: dict[str, FactMemory] = {}
        for each in proposals:
            # As they are now: what was forgotten while the extractor thought proposes nothing.
            sources = [await self._handle.get(name) for name in each.message_ids]
            if any(now is None or now.content != there[now.id].content for now in sources):
                continue
            draft = await self._facts.propose(
                each.key,
                each.value,
                source=[now for now in sources if now is not None],
                op=each.op,
                valid_from=each.valid_from,
                valid_to=each.valid_to,
                confidence=each.confidence,
            )
            if draft is not None:
                drafts[draft.id] = draft
        return list(drafts.values())

    async def _ask(
        self, messages: list[MemoryItem], known: Mapping[str, FactMemory]
    ) -> list[ProposedFact]:
        try:
            proposals = await self._extractor.extract(messages, known)
        except ExtractionError:
            raise
        except Exception as exc:  # whatever an extractor of one's own raises: it is its failure
            raise ExtractionError(f"the extractor failed: {type(exc).__name__}: {exc}") from exc
        return check_proposals(proposals, messages)

    # Reviewing, recalling

    async def drafts(self) -> list[FactMemory]:
        """Return what waits for a review, oldest first."""
        return await self._facts.drafts()

    async def accept(self, fact_id: str) -> FactMemory:
        """Make a draft a fact that is known from now on."""
        return await self._facts.accept(fact_id)

    async def discard(self, fact_id: str) -> FactMemory:
        """Turn a draft down."""
        return await self._facts.discard(fact_id)

    async def recall(self, query: str, *, k: int = 10) -> "RecallResult":
        """Return at most *k* memories that answer *query*, facts among them, best first."""
        return await self._handle.recall(query, k=k)


_SHORTEST_PAUSE = 0.05


def _now() -> datetime:
    return datetime.now(UTC)


class MemoryOrchestrator:
    """Has an extractor propose facts from conversations; the drafts wait for a review.

    *memory* is an `AgentMemory`, or the handle of those whose conversations these are. A job is
    up to *batch* messages; *concurrency* of them are worked on at a time, each for at most
    *timeout* seconds. One that fails is tried again after *backoff* seconds, then twice as many
    and so on up to *max_backoff*, and given up after *max_attempts*. In the background the queue
    is looked at every *poll* seconds.
    """

    def __init__(  # noqa: PLR0913 - each bounds something
        self,
        memory: AgentMemory | ScopedMemory,
        extractor: Extractor,
        *,
        batch: int = 50,
        concurrency: int = 2,
        timeout: float = 120.0,
        max_attempts: int = 5,
        backoff: float = 5.0,
        max_backoff: float = 3_600.0,
        poll: float = 5.0,
        clock: Callable[[], datetime] = _now,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        counts = {"batch": batch, "concurrency": concurrency, "max_attempts": max_attempts}
        for name, count in counts.items():
            if check_size(name, count) == 0:
                raise QueryError(f"`{name}` must be 1 or more, not 0")
        waits = {"timeout": timeout, "backoff": backoff, "max_backoff": max_backoff, "poll": poll}
        for name, seconds in waits.items():
            if not seconds > 0:
                raise QueryError(f"`{name}` must be greater than 0 seconds, not {seconds}")
        check_extractor(extractor)
        handle = memory.unscoped() if isinstance(memory, AgentMemory) else memory
        if not isinstance(handle, ScopedMemory):
            raise QueryError(
                "`MemoryOrchestrator` needs an `AgentMemory`, or a handle such as "
                f"`memory.scope(user_id=…)`, not {handle!r}"
            )
        self._session = session_of(handle)  # it works below the handle, on its store
        self._core = self._session.engine.core_for("MemoryOrchestrator")
        self._scope = handle.scope
        self._extractor = extractor
        self._concurrency = concurrency
        self._timeout = timeout
        self._backoff = backoff
        self._max_backoff = max_backoff
        self._poll = poll
        self._pause = pause
        self._dice = dice
        self._queue = Queue(
            self._core,
            self._scope,
            clock=clock,
            batch=batch,
            # So much longer than an extraction may take that no clocks need agree on it.
            lease=2 * timeout + 60,
            max_attempts=max_attempts,
            backoff=self._wait_after,
        )
        self._task: asyncio.Task[None] | None = None
        self._is_closed_with_memory = False

    # Queueing

    async def enqueue(self, chat: Chat) -> int:
        """Queue what was said in *chat* since the last time; return how many jobs that makes."""
        return await self._queue.add(chat.scope)

    async def enqueue_new(self) -> int:
        """Queue every conversation that has gone on since the last time; return how many jobs."""
        return await self._queue.add_new()

    async def report(self) -> ExtractionReport:
        """Return what waits, what is done, and what failed, why, and how to try it again."""
        return await self._queue.report()

    async def retry(self, job_id: str) -> None:
        """Queue a job again that was given up."""
        await self._queue.retry(job_id)

    # Working

    async def run(self, *, until_empty: bool = True) -> None:
        """Work on the queue until nothing waits in it, not even for another attempt.

        With `until_empty=False`, go on until cancelled.
        """
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._concurrency):
                    workers.create_task(self._work(until_empty=until_empty))
        except ExceptionGroup as group:  # the store failed, and they all know
            raise group.exceptions[0] from None

    async def start(self) -> None:
        """Work on the queue in the background until `close`, or until the memory is closed."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_on())
        if not self._is_closed_with_memory:
            self._core.on_close(self.close)
            self._is_closed_with_memory = True

    async def close(self) -> None:
        """Give back what is under way, and stop. May be repeated."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run_on(self) -> None:
        """Keep at it, whatever the store does: what could not be written is done again."""
        while True:
            try:
                await self.run(until_empty=False)
            except (MemoryError, OSError) as exc:
                log = logging.getLogger("orbiter.memory")  # here: importing must touch no logger
                log.warning("extraction was postponed, nothing is lost: %s", type(exc).__name__)
                await self._pause(self._poll)

    async def _work(self, *, until_empty: bool) -> None:
        idle = _SHORTEST_PAUSE
        while True:
            job = await self._queue.reserve()
            if job is not None:
                await self._do(job)
                idle = _SHORTEST_PAUSE
                continue
            due = await self._queue.next_due()
            if due is None and until_empty:
                return
            # At first often: what is another's now may be done, or given back, in a moment.
            idle = min(self._poll, 2 * idle)
            wait = idle if due is None else min(idle, due - self._queue.now())
            await self._pause(max(wait, _SHORTEST_PAUSE))

    async def _do(self, job: ExtractionMemory) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                proposed = await self._extract(job)
        except asyncio.CancelledError:
            with suppress(MemoryError, OSError):  # else its time runs out
                await asyncio.shield(self._queue.release(job))
            raise
        except TimeoutError:
            await self._queue.fail(job, f"it took longer than {self._timeout:g} s")
        except Exception as exc:  # noqa: BLE001 - one bad job must not keep the others waiting
            await self._queue.fail(job, f"{type(exc).__name__}: {exc}")
        else:
            await self._queue.finish(job, proposed)

    async def _extract(self, job: ExtractionMemory) -> int:
        fields = {name: getattr(job.metadata, name) for name in SCOPE_FIELDS}
        conversation = MemoryMetadata(**fields)
        store = await self._core.opened(self._scope)
        ids = job.message_ids
        items = await store.search(
            metadata=conversation, where={"id": {"$in": ids}}, limit=len(ids) or 1
        )
        there: dict[str, MemoryItem] = {item.id: item for item in items}
        # What was forgotten is not there; what is not indexed must not be recalled as a fact.
        messages = [there[name] for name in ids if name in there and is_indexed(there[name])]
        home = home_of(conversation)
        handle = ScopedMemory(self._session._replace(scope=home))
        return len(await LongTermMemory(handle, self._extractor).extract(messages))

    def _wait_after(self, attempts: int) -> float:
        """Return how long to wait: twice as long each time, and never all at the same moment."""
        longest = min(self._max_backoff, self._backoff * 2.0 ** min(attempts - 1, 60))
        return longest * (0.5 + self._dice() / 2)
