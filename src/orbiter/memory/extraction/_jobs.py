"""What waits to be extracted, kept in the store beside the messages: it survives everything.

A job names the messages of one stretch of a conversation. Its id follows from where the stretch
begins, so two that queue at once make one job. A worker claims it by writing its next version,
which only one can, and for a time that is longer than an extraction may take.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from pydantic import Field

from orbiter.memory.agent._bookkeeping import JOB, cursor_id
from orbiter.memory.agent._reading import derived_id
from orbiter.memory.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.query import SCOPE_FIELDS

__all__ = ["ExtractionMemory", "ExtractionReport", "FailedJob", "home_of", "job_for"]

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


class ExtractionMemory(MemoryItem):
    """A stretch of a conversation that waits for its facts, or how far a conversation has come.

    `metadata.extra` has the state, as `extraction`, and as `due` the time from which on a worker
    may take it, in seconds, by which stores find it.
    """

    memory_type: str = JOB
    status: MemoryStatus = MemoryStatus.DRAFT
    message_ids: list[str] = Field(default_factory=list)
    """The messages to be read."""
    last_id: str = ""
    """The message that it reaches to."""
    last_at: datetime = _FIRST
    """When the newest message was written that it reaches to."""
    recent: dict[str, datetime] = Field(default_factory=dict)
    """Its messages, or of a cursor those of the last moments, and when they were written."""
    seen_to: datetime = _FIRST
    """Of a cursor: if `last_id` is gone, what was written before that counts as seen."""
    messages: int = 0
    """Of a cursor: how many the conversation had when it was last looked at."""
    attempts: int = 0
    worker: str = ""
    """Who is at it."""
    error: str = ""
    """Why it did not work the last time."""
    proposed: int = 0
    """How many drafts came of it."""

    @property
    def state(self) -> str:
        """`open`, `done` or `failed`; or `cursor`."""
        return str(self.metadata.extra.get("extraction"))

    @property
    def due(self) -> float:
        """From when on it may be taken, in seconds since 1970."""
        value = self.metadata.extra.get("due")
        return float(value) if isinstance(value, int | float) else 0.0

    def has_seen(self, message: MemoryItem) -> bool:
        """Tell of a cursor whether it is past a message."""
        return message.id in self.recent or message.created_at < self.seen_to

    def moved(self, state: str, *, due: float = 0.0, **changes: str | int | datetime) -> Self:
        """Return a copy in that state, due then, with *changes*."""
        extra = {**self.metadata.extra, "extraction": state, "due": due}
        metadata = MemoryMetadata(**{**self.metadata.__dict__, "extra": extra})
        news = {"metadata": metadata, "updated_at": datetime.now(UTC), **changes}
        return self.model_copy(update=news, deep=True)


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
    whose = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    return MemoryMetadata(**whose, extra={"extraction": state, "due": 0.0})


def home_of(conversation: MemoryMetadata) -> MemoryMetadata:
    """Return the scope that the facts of a conversation belong to: that of the handle it is of."""
    whose = {name: getattr(conversation, name) for name in SCOPE_FIELDS}
    narrow = "task_id" if whose["task_id"] is not None else "session_id"
    if all(value is None for name, value in whose.items() if name != narrow):
        return MemoryMetadata(**whose)  # else it would be everybody's
    return MemoryMetadata(**{name: None if name == narrow else whose[name] for name in whose})
