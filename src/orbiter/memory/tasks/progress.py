"""Progress of long work: how far it is, and what it needs to go on after a crash.

Whoever wants to know sets a tracker around the work; the work calls `advance` and `checkpoint`,
which do nothing where nobody listens. So no layer in between has to pass anything on.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = [
    "Checkpoint",
    "Progress",
    "ProgressBar",
    "Tracker",
    "advance",
    "checkpoint",
    "resumed",
    "track",
]

Progress = Callable[[int, int], None]
"""Is called with how much is done and how much there is in all; 0 in all means unknown."""

_DRAW_EVERY = 0.1
_WIDTH = 30

Checkpoint = Mapping[str, Any]
"""What long work needs to go on where it was, as JSON."""


class Tracker(NamedTuple):
    """Who wants to know how far some work is."""

    progress: Progress
    save: Callable[[Checkpoint], Awaitable[None]] | None = None
    """Keeps a checkpoint; it is on disk when this returns."""
    saved: Checkpoint = MappingProxyType({})
    """The last checkpoint of the same work, if it was interrupted."""


_TRACKER: ContextVar[Tracker | None] = ContextVar("orbiter_memory_tracker", default=None)


class ProgressBar:
    """A bar to give as `progress=`: one line in a terminal, one element in a notebook.

    It draws a few times a second at most, and nothing where nobody would see it move, as in a file.
    """

    def __init__(self, title: str = "") -> None:
        self._title = f"{title}: " if title else ""
        self._began = self._drawn = 0.0
        self._handle: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Draw how far it is; a *total* of 0 is not known."""
        now = monotonic()
        self._began = self._began or now
        is_last = bool(total) and done >= total
        if now - self._drawn < _DRAW_EVERY and not is_last:
            return
        self._drawn = now
        self._draw(self._line(done, total, now - self._began), is_last=is_last)
        if is_last:
            self._began, self._handle = 0.0, None  # the next one is a bar of its own

    def _line(self, done: int, total: int, seconds: float) -> str:
        if not total:
            return f"{self._title}{done:,} in {seconds:.0f} s"
        share = min(done / total, 1.0)
        filled = "█" * int(share * _WIDTH)
        left = seconds * (1 - share) / share if share else 0.0
        end = f"{seconds:.0f} s" if share == 1 else f"{left:.0f} s left"
        return f"{self._title}{share:4.0%} |{filled:<{_WIDTH}}| {done:,} of {total:,}, {end}"

    def _draw(self, line: str, *, is_last: bool) -> None:
        if _is_notebook():
            from IPython.display import display  # noqa: PLC0415 - it runs in IPython

            bundle = {"text/plain": line}
            if self._handle is None:
                self._handle = display(bundle, raw=True, display_id=True)
            else:
                self._handle.update(bundle, raw=True)
        elif sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}" + ("\n" if is_last else ""))
            sys.stderr.flush()


def _is_notebook() -> bool:
    """Tell whether this runs in the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


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
