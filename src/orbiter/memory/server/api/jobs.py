"""Jobs: calls that may take longer than a request, each done by a task of the server.

A job is written down before it begins, so that the next server goes on with it. What it needs for
that, and what it was asked, is wiped there when it ends. It belongs to the key that asked.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from orbiter.memory.agent import AgentMemory, ScopedMemory
from orbiter.memory.auth import KeyStore, Principal, still_holds
from orbiter.memory.errors import MemoryConnectionError, MemoryError
from orbiter.memory.model.query import Query
from orbiter.memory.model.reports import Erasure
from orbiter.memory.server.api.job_record import (
    Job,
    JobStore,
    dump_job,
    encode_report,
    hashed,
    load_job,
    may_quote,
    needed_principal,
    note_progress,
    older_jobs,
    principal_of_job,
    problem_of_job,
    quoting_answer,
    receive_job,
    refused_problem,
    request_digest,
    require_same,
    send_job,
    target_of,
)
from orbiter.memory.server.http.error_responses import HTTPProblem, complete_report, is_erasure
from orbiter.memory.server.http.limits import JobLimits
from orbiter.memory.server.http.worker_link import Alone
from orbiter.memory.tasks.progress import Checkpoint, Tracker, advance, track
from orbiter.memory.wire import Operation, load_error, problem
from orbiter.memory.wire.calls import dump_param, load_param
from orbiter.memory.wire.problems import log_fault

__all__ = ["Jobs"]

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
_MAX_ENDED = 100
"""Jobs of one key that are kept after their end: the newest."""

_AGAIN = timedelta(minutes=10)
"""How long a report that was sent can be asked for again: the answer may not have arrived."""

_EVERY = timedelta(minutes=1)
"""Between two looks for records that are too old."""

_OFTEN = 60.0
_LOOK = 0.5
"""Seconds between two looks at the record of a job that another server does."""

_BEAT = 3.0
"""Seconds between two times that servers over one store hear of each other."""

_RECHECK = 1.0
"""Seconds between two looks whether the owner of a job may still do it."""

_ATTEMPTS = 3
"""How often a job starts over after its server was killed: it may be what kills it."""

_MAX_BYTES = 64 * 2**20
"""Bytes of reports that are held in memory, those of all keys together."""


class _OwnerRefusedError(Exception):
    """The key that asked for a job may not do it any more."""


class Jobs:
    """All jobs of one server."""

    def __init__(
        self,
        memory: AgentMemory,
        store: JobStore | None,
        *,
        kept: float,
        read_only: bool,
        link: Alone | None = None,
        keys: KeyStore | None = None,
        takes_tokens: bool = False,
    ) -> None:
        self._memory, self._keys, self._store = memory, keys, store
        self._takes_tokens = takes_tokens
        self._link = Alone() if link is None else link
        self._limits = JobLimits(self._link.limits)
        self._resuming = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._link.on("job", self._answer_other)
        self._link.on("jobs", self._jobs_for_other)
        self._link.on("once", self._once_for_other)
        self._link.on("drop job", self._drop_for_other)
        self._link.on("erased", self._hear_erased)
        self._link.on("resume", lambda _: self.resume())
        self._kept, self._read_only = timedelta(seconds=kept), read_only
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._once: dict[str, str] = {}  # jobs by the digest of their `Idempotency-Key`
        self._steps: set[asyncio.Task[Any]] = set()  # which `_to_end` ends
        self._pruned = datetime.min.replace(tzinfo=UTC)
        self.after_erasure: list[Callable[[], Awaitable[None]]] = []  # whoever else keeps something
        self.is_leaving = False
        """Whether the server ends, and nobody is kept waiting."""

    # Beginning

    async def begin(
        self,
        operation: Operation,
        principal: Principal,
        target: Any,
        args: Mapping[str, Any],
        *,
        once: str | None = None,
    ) -> Job:
        """Return the job of a call, under way; of a call that was made *once*, the one there is."""
        is_scoped = isinstance(target, ScopedMemory)
        scope = Query(metadata=target.scope).wanted if is_scoped else {}
        job = Job(
            operation,
            principal.key_id,
            {str(name): value for name, value in scope.items()},
            target._by if is_scoped else None,  # noqa: SLF001 - who acts signs it after a restart, too
            {p.name: dump_param(p, args[p.name]) for p in operation.params if p.name in args},
            principal.is_bound,
            principal.expires_at,
        )
        await self._prune()
        if once is None:
            return await self._begin(job, target, principal)
        job.once = hashed(principal.key_id or "", once)
        job.digest = request_digest(job, job.id)
        async with self._limits.alone(job.once):
            job_ids = [] if job.once in self._once else await self._link.ask("once", job.once)
            if not job_ids and self._link.workers > 1:
                await self.resume()  # a worker that was killed a moment ago may have begun it
            for job_id in job_ids or filter(None, [self._once.get(job.once)]):
                return require_same(await self.find(job_id, principal), job)
            return await self._begin(job, target, principal)

    async def _begin(self, job: Job, target: Any, principal: Principal) -> Job:
        self._limits.begin(job.owner)
        self._keep(job)
        try:
            while (other := await self._to_end(self._put_first(job))) is not None:
                if (known := await self._elsewhere(other)) is None or not self._is_old(known):
                    break
                await self._to_end(self._remove(known))  # its `Idempotency-Key` is free again
        except BaseException:  # cancellation included: what is not written down is not begun
            self._forget(job)
            await self._to_end(self._remove(job))
            raise
        if other is not None:
            self._forget(job)
            return require_same(await self.find(other, principal), job)
        if not job.is_dropped:
            self._launch(job, target)
        return job

    def _keep(self, job: Job) -> None:
        self._jobs[job.id] = job
        if job.once:
            self._once[job.once] = job.id

    def _forget(self, job: Job) -> None:
        if self._jobs.pop(job.id, None) is not None and not job.is_finished:
            self._limits.end(job.owner)
        if self._once.get(job.once) == job.id:
            del self._once[job.once]

    def _launch(self, job: Job, target: Any) -> None:
        task = asyncio.create_task(self._run(job, target))
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.id, None))

    async def start(self) -> None:
        """Go on with what servers have left that ended, and see what the others do."""
        if self._store is not None:
            self._store = await self._store.open()
        await self.resume()
        if self._store is not None and self._store.is_shared:
            self._beating = asyncio.create_task(self._beat(self._store))

    async def resume(self) -> None:
        """Go on with what servers have left that ended."""
        async with self._resuming:
            if self._store is not None and not self.is_leaving:
                await self._resume(self._store)

    async def _resume(self, store: JobStore) -> None:
        for record in await store.left(but=self._jobs.keys()):
            job = load_job(record)
            if job is None or (self._read_only and job.operation.is_change and not job.is_finished):
                continue
            if not job.is_finished and not await store.take(record):
                continue
            self._keep(job)
            if job.is_finished:
                continue
            self._limits.begin(job.owner, is_resumed=True)
            job.attempts += 1
            if job.attempts > _ATTEMPTS:
                message = f"the job was interrupted {_ATTEMPTS} times; see the log of the server"
                await self._end(job, problem_=problem(500, message, kind="InternalError"))
                continue
            await self._write(job)
            self._launch(job, target_of(job, self._memory))
        for owner in {job.owner for job in self._jobs.values()}:
            await self._remove_all(self._forget_older(owner))

    async def _beat(self, store: JobStore) -> None:
        """Tell other servers that this one lives, and hear of what they did, until it ends."""
        while True:
            await asyncio.sleep(_BEAT)
            own = [self._jobs[job_id] for job_id in self._tasks if job_id in self._jobs]
            try:
                news = await store.beat([job for job in own if not job.is_finished])
                if news.has_erased:
                    await self._hear_erased({})  # of whom is not written down anywhere
                for job in own:
                    if job.id in news.stopped:
                        await self._to_end(self._drop(job))
                    elif job.id in news.lost and not job.is_finished:
                        self._lose(job)
                if news.has_left:
                    await self.resume()
                await self._prune()
            except (MemoryError, OSError) as exc:  # a store that is away is asked again
                _LOG.debug("what other servers do is not known: %s", exc)
            except Exception as exc:  # noqa: BLE001 - without a beat, all jobs go to the others
                log_fault(_LOG, "hearing of other servers", exc)

    def _lose(self, job: Job) -> None:
        """Leave a job to the server that has taken it over."""
        self._forget(job)
        if (task := self._tasks.get(job.id)) is not None:
            task.cancel()
        job.note()

    # Working

    async def _run(self, job: Job, target: Any) -> None:
        async with self._limits.turn(job.owner, is_heavy=job.operation.is_heavy):
            job.state = "running"
            job.note()
            tracker = Tracker(note_progress(job), self._saver(job), job.saved)
            params = {param.name: param for param in job.operation.params}
            try:
                args = {name: load_param(params[name], arg) for name, arg in job.arguments.items()}
                await self._require_owner(job)
                with track(tracker):
                    work = getattr(target, job.operation.name)(**args)
                    result = await self._while_allowed(job, work)
                principal, url = principal_of_job(job), self._memory.url
                result = await complete_report(principal, result, self._keys, url)
                report = await asyncio.to_thread(encode_report, job, result)
            except _OwnerRefusedError:
                await self._end(job, problem_=refused_problem(job))
                return
            except Exception as exc:  # noqa: BLE001 - told to whoever asked, and logged if it is a fault
                await self._end(job, problem_=problem_of_job(exc, job))
                return
            await self._end(job, result=result, report=report)

    async def _while_allowed(self, job: Job, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what *work* returns; end it when its owner may not do it any more."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=_RECHECK))[0]:
                with suppress(
                    MemoryError
                ):  # keys that cannot be read: its next step waits for them
                    if not await self._is_allowed(job):
                        raise _OwnerRefusedError
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _require_owner(self, job: Job) -> None:
        """Wait until the keys can be read; raise if the owner of a job may not do it any more."""
        while True:
            try:
                is_allowed = await self._is_allowed(job)
            except MemoryError as exc:
                _LOG.error("a job waits until the keys can be read: %s", exc)
                await asyncio.sleep(_RECHECK)
                continue
            if not is_allowed:
                raise _OwnerRefusedError
            return

    async def _is_allowed(self, job: Job) -> bool:
        needed = needed_principal(job)
        return await still_holds(needed, self._keys, takes_tokens=self._takes_tokens)

    def _saver(self, job: Job) -> Any:
        async def save(state: Checkpoint) -> None:
            await self._require_owner(job)
            job.saved = state
            if not await self._write(job):
                self._lose(job)

        return save

    async def _end(
        self,
        job: Job,
        *,
        result: Any = None,
        report: bytes | None = None,
        problem_: dict[str, Any] | None = None,
    ) -> None:
        job.is_proof = is_erasure(result)
        if job.is_proof:
            scope = job.arguments if isinstance(result, Erasure) else job.scope
            await self._hear_erased(scope)  # before anybody is told that it is done
            self._link.tell("erased", scope)
        self._limits.end(job.owner)
        job.report, job.problem, job.ended_at = report, problem_, datetime.now(UTC)
        job.state = "failed" if report is None else "done"
        job.by, job.arguments, job.saved = None, {}, {}
        older = self._forget_older(job.owner)
        try:
            if await self._write(job) and self._beating and may_quote(job, job.scope):
                self._forget(job)  # the table has its words, where every erasure finds them
        except MemoryError as exc:  # it is done all the same; a restart would do it again
            _LOG.error("a job has ended, and that cannot be written: %s", exc)
        job.note()
        await self._remove_all(older)

    # Knowing

    async def jobs_of(self, principal: Principal) -> list[Job]:
        """Return the jobs that *principal* may see, the newest first: see `_is_visible`."""
        everyone = _sees_everyone(principal)
        asked = {"owner": principal.key_id, "everyone": everyone}
        sent = [each for many in await self._link.ask("jobs", asked) for each in many]
        others = {job.id: job for each in sent if (job := receive_job(each)) is not None}
        known = {**others, **self._jobs}
        jobs = [job for job in known.values() if _is_visible(job, principal)]
        if self._store is not None:
            records = await self._store.of_owner(
                principal.key_id, but=known.keys(), everyone=everyone
            )
            more = map(load_job, records)
            jobs += [job for job in more if job is not None and not self._is_old(job)]
        older = {
            job.id
            for owner in {job.owner for job in jobs}
            for job in older_jobs([each for each in jobs if each.owner == owner], most=_MAX_ENDED)
        }
        kept = [job for job in jobs if job.id not in older]
        return sorted(kept, key=lambda job: job.created_at, reverse=True)

    async def _jobs_for_other(self, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        own = [
            job for job in self._jobs.values() if asked["everyone"] or job.owner == asked["owner"]
        ]
        return [{**send_job(job), "report": None} for job in own]

    async def find(self, job_id: str, principal: Principal) -> Job:
        """Return a job, or raise `HTTPProblem` with 404: also for one of another key."""
        job = self._jobs.get(job_id)
        if job is None and job_id.isalnum():
            job = await self._elsewhere(job_id)
        if job is None or not _is_visible(job, principal) or self._is_old(job) or job.is_gone:
            raise HTTPProblem(404, "there is no such job; `/v1/jobs` lists those of your key")
        return job

    async def wait(self, job: Job, seconds: float, *, is_news: bool = False) -> None:
        """Wait until a job is over, or with *is_news* has changed; not longer than *seconds*."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not job.is_finished and not self.is_leaving:
            left = until - loop.time()
            if left <= 0:
                return
            if job.id not in self._jobs:
                await asyncio.sleep(min(left, _LOOK))
                await self._look(job)
                continue
            try:
                async with asyncio.timeout(left):
                    await job.changed.wait()
            except TimeoutError:
                return
            if is_news:
                return

    async def result(self, job: Job) -> Any:
        """Return what a job returns once it is done, or raise what it raises."""
        while not job.is_finished:
            if self.is_leaving:
                raise MemoryConnectionError(
                    "the server is stopping; the job resumes after the restart"
                )
            await self.wait(job, _OFTEN, is_news=True)
            advance(job.done, job.total)
        if job.problem is not None:
            raise load_error(job.problem["status"], job.problem)
        return job.operation.returns.load(json.loads(job.report or b"null"))

    async def _elsewhere(self, job_id: str) -> Job | None:
        """Return a job of another worker, or of another server by what that wrote."""
        for sent in await self._link.ask("job", job_id):
            return receive_job(sent)
        record = None if self._store is None else await self._store.read(job_id)
        return None if record is None else load_job(record)

    async def _answer_other(self, job_id: str) -> dict[str, Any] | None:
        job = self._jobs.get(job_id)
        return None if job is None else send_job(job)

    async def _once_for_other(self, once: str) -> str | None:
        return self._once.get(once)

    async def _drop_for_other(self, job_id: str) -> None:
        if job_id in self._jobs:
            await self._to_end(self._drop(self._jobs[job_id]))

    async def _hear_erased(self, erased: Mapping[str, Any]) -> None:
        """Forget reports that may hold words of a scope that was *erased*."""
        for job in self._jobs.values():
            if may_quote(job, erased):
                job.report = None
        for forget in self.after_erasure:
            await forget()

    async def _look(self, job: Job) -> None:
        """See how far a job of another server is."""
        now = await self._elsewhere(job.id)
        if now is not None:
            vars(job).update(vars(now))
            return
        job.state, job.ended_at = "failed", datetime.now(UTC)
        job.problem = problem(404, "it was stopped", kind="MemoryConnectionError")

    # Ending

    async def drop(self, job: Job) -> None:
        """Stop a job if it is under way, and forget it."""
        job.is_dropped = True
        await self._link.ask("drop job", job.id)
        await self._to_end(self._drop(job))

    async def _drop(self, job: Job) -> None:
        if (task := self._tasks.get(job.id)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._forget(job)
        job.note()
        await self._remove(job)

    async def answered(self, job: Job) -> None:
        """Forget a job whose report went out as the answer; soon, if it may be asked for again."""
        job.is_answered = True
        if not job.once:
            self._forget(job)
        if self._store is not None:
            job.is_dropped = not self._store.is_shared  # a table has yet to know how it ended
            async with job.disk:
                await self._to_end(self._store.answer(job.id))

    def leave(self) -> None:
        """Keep nobody waiting any more: the server ends."""
        self.is_leaving = True
        for job in self._jobs.values():
            job.note()

    async def stop(self) -> None:
        """Stop all work; the next server goes on with it."""
        self.leave()
        tasks = [task for task in (*self._tasks.values(), self._beating) if task is not None]
        left = [self._jobs[job_id] for job_id in self._tasks if job_id in self._jobs]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        has_others = self._link.workers > 1 or self._beating is not None
        left = [job for job in left if has_others and not job.is_finished]
        for job in left:
            job.attempts -= 1  # another one goes on with it: nothing was wrong
        with suppress(TimeoutError):  # a database may be away: then leases tell the others
            async with asyncio.timeout(None if self._beating is None else 2.0):
                await asyncio.gather(*map(self._put, left), *self._steps, return_exceptions=True)
        if self._store is not None:
            await self._store.close()

    # Keeping

    async def _put_first(self, job: Job) -> str | None:
        async with job.disk:
            return None if self._store is None else await self._store.begin(dump_job(job))

    async def _write(self, job: Job) -> bool:
        """Write down how a job is now; tell whether it is still this server's."""
        return await self._to_end(self._put(job))

    async def _put(self, job: Job) -> bool:
        async with job.disk:
            if self._store is None or job.is_dropped:
                return True
            return await self._store.write(dump_job(job), quoting_answer(job))

    async def _remove(self, job: Job) -> None:
        job.is_dropped = True
        if self._store is not None:
            async with job.disk:
                await self._store.remove(job.id)

    async def _to_end(self, step: Coroutine[Any, Any, _T]) -> _T:
        """Do a step to its end, also if who waits is cancelled: its thread would go on unseen."""
        task = asyncio.create_task(step)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        return await asyncio.shield(task)

    def _forget_older(self, owner: str | None) -> list[Job]:
        """Forget what a key has more than it may have; return it, for its records are left."""
        own = [job for job in self._jobs.values() if job.owner == owner]
        for job in (older := older_jobs(own, most=_MAX_ENDED)):
            self._forget(job)
        return older

    async def _remove_all(self, jobs: list[Job]) -> None:
        for job in jobs:
            await self._to_end(self._remove(job))

    def _is_old(self, job: Job) -> bool:
        age = timedelta(0) if job.ended_at is None else datetime.now(UTC) - job.ended_at
        return age > (_AGAIN if job.is_answered else self._kept)

    async def _prune(self) -> None:
        """Forget what ended long ago, and reports that are too much together."""
        now = datetime.now(UTC)
        over = [job for job in self._jobs.values() if job.ended_at is not None]
        size = 0
        for job in sorted(over, key=lambda job: job.ended_at or now, reverse=True):
            size += len(job.report or b"")
            if size > _MAX_BYTES and not job.operation.has_safe_report:
                job.report = None
            if self._is_old(job):
                self._forget(job)
        if self._store is not None and now - self._pruned > _EVERY:
            self._pruned = now
            oldest, answered = now - self._kept, now - _AGAIN
            await self._store.prune(oldest=oldest, answered=answered, most=_MAX_ENDED)


def _sees_everyone(principal: Principal) -> bool:
    """Tell whether *principal* is an administrator of everything."""
    return principal.may("admin") and not principal.is_bound


def _is_visible(job: Job, principal: Principal) -> bool:
    """Tell whether *principal* may list, follow and stop a job: its owner, or who sees all."""
    return job.owner == principal.key_id or _sees_everyone(principal)
