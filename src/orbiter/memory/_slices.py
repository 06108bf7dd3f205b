"""Long work of coroutines, done so that the event loop goes on: in a thread where there is much."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from orbiter.memory.items import MemoryItem

__all__ = ["MANY", "apart", "has_many_values", "is_much_text"]

MANY = 500
"""Values or items that are worked on at once: a few milliseconds, whatever they are."""

_MUCH = 100_000
"""Characters of text that are worked on at once."""

P = ParamSpec("P")
T = TypeVar("T")


async def apart(is_long: bool, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: FBT001 - the rest is the call's
    """Return what *call* returns, from a thread if it *is_long*."""
    return await asyncio.to_thread(call, *args, **kwargs) if is_long else call(*args, **kwargs)


def has_many_values(value: object) -> bool:
    """Tell whether JSON, or a list of anything, holds more than `MANY` values."""
    count = 0
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        parts = inner.values() if isinstance(inner, Mapping) else inner
        if isinstance(parts, str | bytes) or not isinstance(parts, Iterable):
            continue
        if isinstance(inner, Mapping | list | tuple):
            count += len(inner)
            if count > MANY:
                return True
            waiting.extend(parts)
    return False


def is_much_text(items: "Iterable[MemoryItem]") -> bool:
    """Tell whether *items* are many or long, so that to work on their words takes long."""
    return sum(len(item.content) + _MUCH // MANY for item in items) > _MUCH
