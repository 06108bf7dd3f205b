"""One job: what was asked, how far it is, and its record as JSON.

The record of a job that has ended holds no word of a memory, unless the call is known to return
none. A table has the answer beside it, where every erasure finds it.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol, Self
from uuid import uuid4

from orbiter.memory.agent import AgentMemory
from orbiter.memory.auth import Principal
from orbiter.memory.errors import AccessError, ItemNotFoundError, MemoryError, QueryError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.http.error_responses import problem_for
from orbiter.memory.server.http.json_body import compact_json
from orbiter.memory.tasks.progress import Checkpoint
from orbiter.memory.wire import OPERATIONS, Operation, dump_error
from orbiter.memory.wire.problems import log_fault

__all__ = [
    "Beat",
    "Job",
    "JobStore",
    "QuotingAnswer",
    "Record",
    "dump_job",
    "encode_report",
    "hashed",
    "load_job",
    "may_quote",
    "needed_principal",
    "note_progress",
    "older_jobs",
    "principal_of_job",
    "problem_of_job",
    "quoting_answer",
    "receive_job",
    "refused_problem",
    "request_digest",
    "require_same",
    "send_job",
    "target_of",
]

_LOG = logging.getLogger(__name__)

NOT_KEPT = "(not kept)"
"""What stands for the name of somebody who was erased, in a report that is read from a file."""

State = Literal["queued", "running", "done", "failed"]

_LONG_OPERATIONS = {each.id: each for each in OPERATIONS if each.is_long}


@dataclass(eq=False)
class Job:
    """One call under way, or what became of it."""

    operation: Operation
    owner: str | None
    """The id of the key that asked; `None` on a server without keys."""
    scope: dict[str, str]
    """Whose memories; empty for everyone's, and for calls of the whole store."""
    by: str | None
    arguments: dict[str, Any]
    """The arguments, as JSON."""
    is_bound: bool
    """Whether the key is of somebody's, and not told where the store is."""
    owner_until: datetime | None = None
    """When the token ends that the owner came with; `None` for a key, which is looked up."""
    is_answered: bool = False
    """Whether the request that asked has had the report: then it is not kept for long."""
    id: str = field(default_factory=lambda: uuid4().hex)
    once: str = ""
    """The digest of the `Idempotency-Key` it was asked with, if any."""
    digest: str = ""
    """Tells whether another request is the same."""
    state: State = "queued"
    done: int = 0
    total: int = 0
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    report: bytes | None = None
    """What the call returned, as JSON; `None` before, and if it was kept in memory and is gone."""
    is_proof: bool = False
    """Whether the report is that of an erasure: then it holds no word of a memory."""
    problem: dict[str, Any] | None = None
    attempts: int = 0
    saved: Checkpoint = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each change, and then another one."""
    is_dropped: bool = False
    """Whether its record is removed, or will be: then it is written no more."""
    disk: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its record is written or removed, which so come one after the other."""

    @property
    def is_finished(self) -> bool:
        """Whether it is done or has failed."""
        return self.state in ("done", "failed")

    @property
    def is_gone(self) -> bool:
        """Whether its report was sent, and nobody can ask for it again."""
        return self.is_answered and not self.once

    def note(self) -> None:
        """Wake whoever waits for a change."""
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    def as_json(self) -> dict[str, Any]:
        """Return the job without its report, as JSON."""
        return {
            "id": self.id,
            "call": self.operation.id,
            "owner": self.owner,
            "state": self.state,
            "progress": {"done": self.done, "total": self.total or None},
            "created_at": self.created_at.isoformat(),
            "ended_at": None if self.ended_at is None else self.ended_at.isoformat(),
            "problem": self.problem,
        }

    def to_json(self) -> bytes:
        """Return the job with its report."""
        head = compact_json(self.as_json()).encode()
        return head[:-1] + b',"report":' + (self.report or b"null") + b"}"


Record = Mapping[str, Any]
"""What is written of a job, as JSON."""


class Beat(NamedTuple):
    """What a server hears of others when it says that it lives."""

    lost: set[str]
    """Ids of its jobs that another server has taken over, or removed."""
    stopped: set[str]
    """Ids of its jobs that another server was asked to stop."""
    has_left: bool
    """Whether there are jobs that no server does."""
    has_erased: bool
    """Whether another server has erased somebody since the last time."""


class QuotingAnswer(NamedTuple):
    """What a call returned or raised, as JSON, if that may hold words of memories."""

    scope: dict[str, str]
    """Whose; empty for everyone's."""
    text: str


class JobStore(Protocol):
    """Where the records of jobs are."""

    is_shared: bool
    """Whether servers of other computers have it, too; then `beat` is to be called all the time."""

    async def open(self) -> "Self | JobStore":
        """Return where the jobs are kept: this, or what takes its place."""

    async def begin(self, record: Record) -> str | None:
        """Write a new record; return the id of another job with its `Idempotency-Key`, if any."""

    async def write(self, record: Record, answer: "QuotingAnswer | None" = None) -> bool:
        """Put a record in the place of the one before; tell whether the job is still ours.

        Only what `is_shared` keeps the answer.
        """

    async def answer(self, job_id: str) -> None:
        """Note that the report of a job was sent."""

    async def remove(self, job_id: str) -> None:
        """Remove a record; the job has stopped then, whoever did it."""

    async def read(self, job_id: str) -> Record | None:
        """Return the record of a job; `None` if there is none."""

    async def of_owner(
        self, owner: str | None, *, but: Collection[str], everyone: bool = False
    ) -> list[Record]:
        """Return the records of a key, or of all keys, without those of the ids in *but*."""

    async def left(self, *, but: Collection[str]) -> list[Record]:
        """Return what may be gone on with, and what is to be known; those in *but* are known."""

    async def take(self, record: Record) -> bool:
        """Take over a job; not if its server lives, or another was faster."""

    async def beat(self, jobs: Sequence[Job]) -> Beat:
        """Say that this server lives, and does *jobs*; return what others did."""

    async def prune(self, *, oldest: datetime, answered: datetime, most: int) -> None:
        """Remove what ended before *oldest*, or *answered*, and of each key all but the newest."""

    async def close(self) -> None:
        """Leave our jobs to others."""


def dump_job(job: Job) -> dict[str, Any]:
    """Return what is written of a job; of one that is over, no word of a memory."""
    is_safe = job.operation.has_safe_report
    call: dict[str, Any] = {
        "scope": job.scope,
        "by": job.by,
        "given": job.arguments,
        "saved": dict(job.saved),
    }
    return {
        **job.as_json(),
        "problem": job.problem if is_safe else _plain(job),
        "is_bound": job.is_bound,
        "owner_until": None if job.owner_until is None else job.owner_until.isoformat(),
        "once": job.once,
        "digest": job.digest,
        "attempts": job.attempts,
        "is_proof": job.is_proof,
        "report": _without_names(job.report) if is_safe else None,
        **({} if job.is_finished else call),
    }


def quoting_answer(job: Job) -> QuotingAnswer | None:
    """Return what is no part of the record of a job that has ended; `None` if that has it all."""
    if not job.is_finished or job.operation.has_safe_report:
        return None
    answer = job.report if job.problem is None else compact_json(job.problem).encode()
    return None if answer is None else QuotingAnswer(job.scope, answer.decode())


def _without_names(report: bytes | None) -> Any:
    """Return a report without whom it is about: no name of somebody who was erased is in a file."""
    loaded = None if report is None else json.loads(report)
    if not isinstance(loaded, dict) or "erased" not in loaded:
        return loaded
    names = loaded["erased"]
    # Who erased it is kept, unless it is one of those.
    by = None if loaded.get("by") in names.values() else loaded.get("by")
    return {**loaded, "erased": dict.fromkeys(names, NOT_KEPT), "by": by}


def _plain(job: Job) -> dict[str, Any] | None:
    """Return a problem without its words: they may be of memories, or of what was asked."""
    problem = job.problem
    if problem is None or problem == refused_problem(job):
        return problem
    message = "the details were lost when the server stopped; ask again"
    return {**{name: problem.get(name) for name in ("type", "title", "status")}, "detail": message}


def load_job(record: Mapping[str, Any]) -> Job | None:
    """Return the job of a record; `None` if it is of another version."""
    operation = _LONG_OPERATIONS.get(str(record.get("call")))
    if operation is None:
        return None
    try:
        report, ended, answer = record["report"], record["ended_at"], record.get("answer")
        until = record.get("owner_until")  # not there in a record of an earlier version
        is_known = ended is not None or record.get("is_alive", False)  # else it has to begin
        report = compact_json(report).encode() if operation.has_safe_report else None
        problem = record["problem"]
        if answer is not None and problem is not None:
            problem = json.loads(answer)
        elif answer is not None:
            report = answer.encode()
        return Job(
            operation,
            record["owner"],
            dict(record.get("scope", {})),
            record.get("by"),
            dict(record.get("given", {})),
            record["is_bound"],
            None if until is None else datetime.fromisoformat(until),
            id=record["id"],
            once=record["once"],
            digest=record["digest"],
            state=record["state"] if is_known else "queued",
            done=record["progress"]["done"],
            total=record["progress"]["total"] or 0,
            created_at=datetime.fromisoformat(record["created_at"]),
            ended_at=None if ended is None else datetime.fromisoformat(ended),
            report=report if record["state"] == "done" else None,
            problem=problem,
            attempts=record["attempts"],
            is_answered=record.get("is_answered", False),
            saved=record.get("saved", {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def require_same(known: Job, job: Job) -> Job:
    """Return *known* if it does what *job* would do; `QueryError` if the key meant another."""
    if known.digest != request_digest(job, known.id):
        raise QueryError(
            "the `Idempotency-Key` was used for another request; use a new key for this one"
        )
    return known


def request_digest(job: Job, salt: str) -> str:
    """Return what two jobs have in common that do the same for the same scope."""
    call = [job.operation.id, job.scope, job.by, job.arguments]
    return hashed(salt, json.dumps(call, sort_keys=True))


def hashed(*parts: str) -> str:
    """Return a digest from which none of *parts* can be read."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def target_of(job: Job, memory: AgentMemory) -> Any:
    """Return what the call of a job is made on."""
    if job.operation.target == "memory":
        return memory
    if job.operation.target == "audit":
        return memory.audit
    if job.scope:
        return memory.scope(**job.scope, by=job.by)
    return memory.unscoped(by=job.by)


def needed_principal(job: Job) -> Principal:
    """Return who may do a job: its owner, with the least role and the narrowest scope for it."""
    erases = job.operation.erases(job.arguments)
    asked = job.scope if job.operation.target == "scope" else job.arguments
    scope = {name: asked[name] for name in SCOPE_FIELDS if asked.get(name) is not None}
    return Principal(
        "admin" if erases else job.operation.role,
        MemoryMetadata(**scope),
        key_id=job.owner,
        expires_at=job.owner_until,
    )


def refused_problem(job: Job) -> dict[str, Any]:
    """Return what is told of a job whose owner may not do it any more; it quotes no memory."""
    who = "this job was asked for without a key, and the server needs one by now"
    if job.owner is not None and job.owner_until is not None:
        who = "the token that this job was asked for with has expired"
    elif job.owner is not None:
        who = f"the key `{job.owner}` was revoked, has expired, or may no longer do this job"
    way = "what the job had done until then stays done. Ask again with a key that may do it"
    return dump_error(AccessError(f"{who}; {way}"))[1]


def principal_of_job(job: Job) -> Principal:
    """Return who is told of a job; only whether it is held to somebody's memories counts."""
    held = MemoryMetadata(user_id="somebody") if job.is_bound else MemoryMetadata()
    return Principal("admin", held, key_id=job.owner)


def note_progress(job: Job) -> Callable[[int, int], None]:
    """Return what notes in a job how far it is."""

    def advance(done: int, total: int) -> None:
        job.done, job.total = done, total
        job.note()

    return advance


def encode_report(job: Job, result: Any) -> bytes:
    """Return what a call returned as JSON; raise what a `DELETE` of nothing is told.

    What was removed before the job was interrupted is in the result.
    """
    erasure = getattr(result, "erasure", None)
    is_done = result or (erasure is not None and (erasure.total or erasure.problems))
    if job.operation.verb == "DELETE" and not is_done:
        raise ItemNotFoundError(str(job.arguments["item"]))
    return compact_json(job.operation.returns.dump(result)).encode()


def problem_of_job(error: Exception, job: Job) -> dict[str, Any]:
    """Return what is told of an error, and log it if it is a fault of ours."""
    status, details = problem_for(principal_of_job(job), error)
    if status >= 500 and not isinstance(error, MemoryError):
        log_fault(_LOG, "a job", error)
    return details


def send_job(job: Job) -> dict[str, Any]:
    """Return a job for another worker of this server, with what is in no file."""
    report = None if job.report is None else job.report.decode()
    now = {"state": job.state, "problem": job.problem, "report": report}
    return {"record": dump_job(job), **now}


def receive_job(sent: Mapping[str, Any]) -> Job | None:
    """Return the job that another worker has sent."""
    job = load_job(sent["record"])
    if job is not None:
        job.state, job.problem = sent["state"], sent["problem"]
        job.report = None if sent["report"] is None else sent["report"].encode()
    return job


def may_quote(job: Job, scope: Mapping[str, Any]) -> bool:
    """Tell whether the report of a job may hold words of *scope*; nobody named means everyone's."""
    is_others = any(scope.get(name) not in (None, value) for name, value in job.scope.items())
    is_safe = job.operation.has_safe_report or job.is_proof
    return job.is_finished and not is_safe and not is_others


def older_jobs(jobs: list[Job], *, most: int) -> list[Job]:
    """Return which of the jobs of one key have ended and are too many, the newest left out."""
    over = [(job.ended_at, job.id, job) for job in jobs if job.ended_at is not None]
    return [job for *_, job in sorted(over, reverse=True)[most:]]
