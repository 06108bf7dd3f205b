"""What is told of a memory that is not there: who was looked at, and whether it was forgotten."""

from typing import TYPE_CHECKING

from orbiter.memory.cli._error_messages import NotThereError

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.cli._command import Place
    from orbiter.memory.model.reports import ItemVersion

__all__ = ["not_there", "past_of"]


async def past_of(memory: "ScopedMemory", item_id: str) -> "list[ItemVersion]":
    """Return the versions of a memory, oldest first; none where a store keeps none."""
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415 - `--help` needs it not

    try:
        return await memory.history(item_id)
    except UnsupportedError:  # a Redis
        return []


async def not_there(place: "Place", memory: "ScopedMemory", item_id: str) -> NotThereError:
    """Return the error for a memory that *memory* has not."""
    past = await past_of(memory, item_id)
    if past and past[-1].change == "deleted":
        return NotThereError(
            f"the memory `{item_id}` of {place.told()} was forgotten; "
            f"`orbiter-memory restore {item_id}` brings it back"
        )
    way = "`list` shows some" if place.everyone else "`--all` looks at everyone's"
    return NotThereError(f"there is no memory `{item_id}` of {place.told()}; {way}")
