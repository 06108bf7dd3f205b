"""Offloading long work of coroutines to a thread, so that the event loop goes on."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = [
    "MANY",
    "SLICE",
    "MustWaitError",
    "apart",
    "both",
    "count_words",
    "cut_at_spaces",
    "cut_before",
    "find_all",
    "find_words",
    "has_loop",
    "has_many_values",
    "is_much_text",
    "replace_all",
    "run_here",
    "search",
]

MANY = 500
"""Values or items that are worked on at once: a few milliseconds, whatever they are."""

_MUCH = 100_000
"""Characters of text that are worked on at once."""

SLICE = 4 * 1024
"""Characters that one pattern reads at once: it keeps the interpreter's lock for as long.

Less than a millisecond. The event loop takes the lock some ten times for each request, and waits
for the end of such a call each time.
"""

_SINGLE = frozenset((str, bytes, int, float, bool, type(None), datetime))
"""Types of values that hold no others."""

_SPACE = re.compile(r"\s")

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class _HasText(Protocol):
    @property
    def content(self) -> str: ...


async def apart(is_long: bool, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: FBT001 - the rest is the call's
    """Return what *call* returns, from a thread if it *is_long* and this is the event loop's."""
    if is_long and has_loop():
        return await asyncio.to_thread(call, *args, **kwargs)
    return call(*args, **kwargs)


def has_loop() -> bool:
    """Tell whether an event loop runs in this thread; if not, this is inside `run_here`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class MustWaitError(Exception):
    """What was to run in a thread has to wait for something, which only an event loop can."""


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end, in a thread without an event loop.

    It may await what need not wait, such as reads that are done on the spot. `MustWaitError` is
    raised where it has to wait: then it begins again on the event loop.
    """
    try:
        while work.send(None) is None:  # it only gives others their turn
            pass
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    work.close()
    raise MustWaitError


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, S]) -> tuple[T, S]:
    """Return what two coroutines return, which run at once if there is an event loop."""
    if has_loop():
        results: tuple[T, S] = await asyncio.gather(one, other)
        return results
    try:
        return await one, await other
    finally:
        other.close()


def has_many_values(value: object) -> bool:
    """Tell whether JSON, or a list of anything, holds more than `MANY` values."""
    count = 0
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if type(inner) in _SINGLE:  # asked of every field of every item that is written
            continue
        if isinstance(inner, Mapping | list | tuple):
            count += len(inner)
            if count > MANY:
                return True
            waiting.extend(inner.values() if isinstance(inner, Mapping) else inner)
    return False


def is_much_text(items: Iterable[_HasText], *, many: int = MANY) -> bool:
    """Tell whether *items* are *many* or long, so that to work on their words takes long."""
    left, each = _MUCH, _MUCH // many
    for item in items:
        left -= len(item.content) + each
        if left < 0:
            return True
    return False


def cut_at_spaces(text: str) -> Iterator[str]:
    """Yield *text* in pieces of about `SLICE` characters, cut before white space.

    Where there is none for long, a piece is as long as that.
    """
    yield from cut_before(_SPACE, text)


def cut_before(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Yield *text* in pieces of about `SLICE` characters, cut before a match of one character."""
    start, looked = 0, SLICE
    while len(text) - looked > SLICE:
        match = pattern.search(text, looked, looked + SLICE)
        looked += SLICE
        if match is not None:
            yield text[start : match.start()]
            start = match.start()
            looked = start + SLICE
    yield text[start:] if start else text


def count_words(text: str) -> int:
    """Return how many words *text* has, as white space parts them."""
    return sum(len(piece.split()) for piece in cut_at_spaces(text))


def find_words(pattern: re.Pattern[str], text: str, *, reach: int) -> Iterator[str]:
    """Yield what `pattern.findall(text)` returns, for a pattern without groups.

    It matches no white space, and looks at most *reach* characters beyond a match.
    """
    for piece in cut_at_spaces(text):
        if len(piece) <= 2 * SLICE:
            yield from pattern.findall(piece)
        else:
            yield from (match[0] for match in find_all(pattern, piece, reach=reach))


def find_all(pattern: re.Pattern[str], text: str, *, reach: int) -> Iterator[re.Match[str]]:
    """Yield what `pattern.finditer(text)` yields, reading `SLICE` characters at a time.

    *reach* is how many characters beyond a match the pattern looks at, at most, and how many it
    needs to match at all. Only a match that is longer than a slice is read at once.
    """
    at = 0
    while at < len(text):
        end = at + SLICE
        for match in pattern.finditer(text, at, end + reach):
            if match.start() >= end:
                break
            if match.end() > end:  # it may be longer still
                whole = pattern.search(text, match.start())
                if whole is None:
                    return
                yield whole
                end = whole.end()
                break
            yield match
        at = end


def search(
    pattern: re.Pattern[str], text: str, start: int = 0, *, reach: int
) -> re.Match[str] | None:
    """Return what `pattern.search(text, start)` returns, reading `SLICE` characters at a time.

    *reach* is as for `find_all`.
    """
    if len(text) - start <= SLICE:
        return pattern.search(text, start)
    for at in range(start, len(text), SLICE):
        end = at + SLICE
        match = pattern.search(text, at, end + reach)
        if match is not None and match.start() < end:
            return match if match.end() <= end else pattern.search(text, match.start())
    return None


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
        for match in pattern.finditer(text, max(start, done), end + reach):
            if match.start() >= end:
                break
            parts += (text[done : match.start()], make(match))
            done = match.end()
    return "".join([*parts, text[done:]])
