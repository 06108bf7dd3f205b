"""Items that the library makes itself: summaries, and jobs of the extraction of facts."""

from datetime import UTC, datetime
from typing import Self

from pydantic import Field

from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus

__all__ = ["EXTRACTION", "ExtractionMemory", "SummaryMemory"]

EXTRACTION = "extraction"
"""The `memory_type` of jobs."""

_FIRST = datetime.min.replace(tzinfo=UTC)


class SummaryMemory(MemoryItem):
    """What a conversation was about, up to and including one instant; the store replaces it."""

    memory_type: str = "summary"
    status: MemoryStatus = MemoryStatus.DRAFT
    summaries: dict[str, str] = Field(default_factory=dict)
    """By the name of the template; `content` is all of them."""
    covers_id: str = ""
    """The last message that is in it, and all that were added before that one are."""
    covers_to: datetime = _FIRST
    """When that message says it was written."""
    covered: int = 0
    """How many messages are in it."""

    def covers_by_time(self, message: MemoryItem) -> bool:
        """Tell of a summary that names no message whether one is in it: by its time."""
        return not self.covers_id and message.created_at <= self.covers_to


class ExtractionMemory(MemoryItem):
    """A stretch of a conversation that waits for its facts, or how far a conversation has come.

    `metadata.extra` has the state, as `extraction`, and as `due` the time from which on a worker
    may take it, in seconds, by which stores find it.
    """

    memory_type: str = EXTRACTION
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
