"""Long work of coroutines, done so that the event loop goes on: in a thread where there is much."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ParamSpec, Protocol, TypeVar

__all__ = [
    "MANY",
    "SLICE",
    "apart",
    "cut_at_spaces",
    "has_many_values",
    "is_much_text",
    "replace_all",
]

MANY = 500
"""Values or items that are worked on at once: a few milliseconds, whatever they are."""

_MUCH = 100_000
"""Characters of text that are worked on at once."""

SLICE = 64 * 1024
"""Characters that one pattern reads at once: it keeps the interpreter's lock for as long."""

_SPACE = re.compile(r"(?<=[A-Za-z0-9]) (?=[A-Za-z0-9])")

P = ParamSpec("P")
T = TypeVar("T")


class _HasText(Protocol):
    @property
    def content(self) -> str: ...


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


def is_much_text(items: Iterable[_HasText]) -> bool:
    """Tell whether *items* are many or long, so that to work on their words takes long."""
    return sum(len(item.content) + _MUCH // MANY for item in items) > _MUCH


def cut_at_spaces(text: str) -> Iterator[str]:
    """Yield *text* in pieces of about `SLICE` characters, cut before a space between plain words.

    What has no such space is one piece, however long.
    """
    start = 0
    while len(text) - start > 2 * SLICE:
        space = _SPACE.search(text, start + SLICE)
        if space is None:
            break
        yield text[start : space.start()]
        start = space.start()
    yield text[start:] if start else text


def replace_all(
    pattern: re.Pattern[str], make: Callable[[re.Match[str]], str], text: str, *, reach: int
) -> str:
    """Return what `pattern.sub(make, text)` returns, reading `SLICE` characters at a time.

    *reach* is how many characters behind the start of a match the pattern looks at, at most.
    """
    if len(text) <= SLICE:
        return pattern.sub(make, text)
    parts: list[str] = []
    done = 0
    for start in range(0, len(text), SLICE):
        end = start + SLICE
        for found in pattern.finditer(text, max(start, done), end + reach):
            if found.start() >= end:
                break
            parts += (text[done : found.start()], make(found))
            done = found.end()
    return "".join([*parts, text[done:]])
