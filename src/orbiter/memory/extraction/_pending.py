"""What waits to be extracted, kept in the store beside the messages: it survives everything.

A job names the messages of one stretch of a conversation. Its id follows from where the stretch
begins, so two that queue at once make one job. A worker claims it by writing its next version,
which only one can, and for a time that is longer than an extraction may take.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orbiter.memory.agent.extraction_jobs import cursor_id
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.model.derived import ExtractionMemory
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = ["ExtractionReport", "FailedJob", "home_of", "job_for"]

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
    whose = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    return MemoryMetadata(**whose, extra={"extraction": state, "due": 0.0})


def home_of(conversation: MemoryMetadata) -> MemoryMetadata:
    """Return the scope that the facts of a conversation belong to: that of the handle it is of."""
    whose = {name: getattr(conversation, name) for name in SCOPE_FIELDS}
    narrow = "task_id" if whose["task_id"] is not None else "session_id"
    if all(value is None for name, value in whose.items() if name != narrow):
        return MemoryMetadata(**whose)  # else it would be everybody's
    return MemoryMetadata(**{name: None if name == narrow else whose[name] for name in whose})
