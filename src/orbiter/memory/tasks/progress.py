"""Progress of long work: how far it is, and what it needs to go on after a crash.

Whoever wants to know sets a tracker around the work; the work calls `advance` and `checkpoint`,
which do nothing where nobody listens. So no layer in between has to pass anything on.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Checkpoint", "Progress", "Tracker", "advance", "checkpoint", "resumed", "track"]

Progress = Callable[[int, int], None]
"""Is called with how much is done and how much there is in all; 0 in all means unknown."""

Checkpoint = Mapping[str, Any]
"""What long work needs to go on where it was, as JSON."""


@dataclass(frozen=True, slots=True)
class Tracker:
    """Who wants to know how far some work is."""

    progress: Progress
    save: Callable[[Checkpoint], Awaitable[None]] | None = None
    """Keeps a checkpoint; it is on disk when this returns."""
    saved: Checkpoint = field(default_factory=dict)
    """The last checkpoint of the same work, if it was interrupted."""


_TRACKER: ContextVar[Tracker | None] = ContextVar("orbiter_memory_tracker", default=None)


@contextmanager
def track(progress: Progress | Tracker | None) -> Iterator[None]:
    """Tell *progress* how far the work of the block is; with `None`, whoever was told before."""
    if progress is None:
        yield
        return
    token = _TRACKER.set(progress if isinstance(progress, Tracker) else Tracker(progress))
    try:
        yield
    finally:
        _TRACKER.reset(token)


def advance(done: int, total: int = 0) -> None:
    """Tell that *done* of *total* is done; a *total* of 0 is not known."""
    tracker = _TRACKER.get()
    if tracker is not None:
        tracker.progress(done, max(done, total) if total else 0)


async def checkpoint(state: Checkpoint) -> None:
    """Keep what the work needs to go on from here."""
    tracker = _TRACKER.get()
    if tracker is not None and tracker.save is not None:
        await tracker.save(state)


def resumed() -> Checkpoint:
    """Return the last checkpoint of this work; empty if it begins."""
    tracker = _TRACKER.get()
    return {} if tracker is None else tracker.saved
