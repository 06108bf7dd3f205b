"""Embeds pending items before a command ends, which the background would not get to."""

from time import monotonic
from typing import TYPE_CHECKING

from orbiter.memory.cli._command_context import is_served
from orbiter.memory.cli._error_messages import say
from orbiter.memory.cli._text import counted

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory
    from orbiter.memory.cli._output import Output

__all__ = ["FEW", "PATIENCE", "embed_waiting", "note_waiting"]

PATIENCE = 10.0
"""Seconds that a question waits for vectors at most."""
_SLICE = 0.5
"""Seconds between two moves of the bar."""
FEW = 10
"""Memories that the next `recall` may embed: loading the model takes longer than they do."""
_STALLED = 60.0
"""Seconds without a single vector after which it ends; they may be with a process that died."""


async def embed_waiting(
    out: "Output", memory: "AgentMemory", *, within: float | None = None
) -> int:
    """Embed what waits, for at most *within* seconds, under a bar; return how many still wait.

    It ends before that when nothing more can be done now: the model fails, or refuses a text.
    """
    if is_served(memory):  # it has a process that goes on
        return 0
    store = memory.store
    embed = getattr(store, "catch_up", None)
    if embed is None or getattr(store, "embeddings", None) is None:
        return 0
    waiting: int = await embed(within=0.0)
    if not waiting:
        return 0
    total, moved = waiting, monotonic()
    until = None if within is None else moved + within
    with out.progress("embedding", unit="memories") as advance:
        while waiting:
            advance(total - waiting, total)
            begun = monotonic()
            span = _SLICE if until is None else min(_SLICE, until - begun)
            if span <= 0 or begun - moved > _STALLED:
                break
            left: int = await embed(within=span)
            if left < waiting:
                moved = monotonic()
            elif monotonic() - begun < span / 2:  # it did not even use its time
                return left
            total, waiting = max(total, left), left
    return waiting


def note_waiting(waiting: int) -> None:
    """Say, to programs too, that an answer may lack what is not embedded yet."""
    if waiting:
        are = "is" if waiting == 1 else "are"
        say(
            f"{counted(waiting)} {are} not embedded yet, so found by words only; each `recall` "
            "embeds some, `orbiter-memory doctor --repair` all",
            kind="note",
        )
