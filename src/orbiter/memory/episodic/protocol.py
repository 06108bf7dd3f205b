"""What a place that keeps an agent's episodes must do; one file per place follows it.

An episode's id begins with its time in one width, so the order of ids is the order of time. A
place keeps the text it is given and knows nothing of what is in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from orbiter.memory.model.episode import stamp
from orbiter.memory.model.reports import Erasure

__all__ = ["PAGE", "Episode", "Episodes", "Span", "StoredEpisode"]

PAGE = 5_000
"""Episodes read in one round trip: more would hold up everyone else at the server."""


class Episode(NamedTuple):
    """An episode as it is kept: written again under its id, it is still one."""

    id: str
    at: datetime
    body: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Span:
    """From *since* on and before *until*; either may be open."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def first(self) -> str:
        """What the ids in the span are greater than."""
        return "" if self.since is None else stamp(self.since)

    @property
    def end(self) -> str:
        """What the ids in the span are less than; the tilde follows every digit."""
        return "~" if self.until is None else stamp(self.until)


class StoredEpisode(NamedTuple):
    """An episode as it is read."""

    id: str
    body: str


class Episodes(Protocol):
    """Keeps the episodes of one agent until their time is over."""

    async def connect(self) -> None:
        """See that the place is there; else raise `MemoryConnectionError` or `StorageError`."""
        ...

    async def disconnect(self) -> None:
        """Let go of it. The next call connects again."""
        ...

    async def put(self, episode: Episode) -> None:
        """Keep *episode* from now on, for as long as it says."""
        ...

    async def page(self, span: Span, *, limit: int, before: str | None) -> list[StoredEpisode]:
        """Return at most *limit* and `PAGE` episodes, newest first, older than the id *before*."""
        ...

    async def count(self, span: Span) -> int:
        """Return how many there are."""
        ...

    async def remove(self, ids: Sequence[str]) -> None:
        """Forget these."""
        ...

    async def erase(self, patterns: Sequence[str]) -> Erasure:
        """Remove for good all episodes of the agents whose ids match one of *patterns*.

        A pattern is the beginning of an id, and may hold `*` for some characters.
        """
        ...

    async def news(self, position: str | None) -> tuple[list[str], str]:
        """Return the bodies that came since *position*, in order of arrival, and the new position.

        Waits about a second for some. Without a position nothing is new yet.
        """
        ...
