"""Pages that are bounded by bytes as well as by items; a page that ends early has a cursor."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request

from orbiter.memory.agent import Page
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.server.http.state import principal_of, shared_of

__all__ = ["bounded_page"]

_FIRST = 8
"""Memories that are read before it is known how long they are; one may have 9 MiB."""

_DEFAULT = 50
_ENVELOPE = 400
"""Bytes of a memory beside what it holds: the names of its fields, its id and its times."""


async def bounded_page(
    request: Request, read: Callable[..., Awaitable[Page]], given: Mapping[str, Any]
) -> Page:
    """Return the page that *read* returns for *given*, or the part of it that is not too long.

    It is read in parts, so that no more than one part too many is ever in memory.
    """
    shared, key_id = shared_of(request), principal_of(request).key_id
    limit: int = given.get("limit", _DEFAULT)
    most = shared.settings.max_page_bytes
    cursor: str | None = given.get("cursor")
    found: list[MemoryItem] = []
    size, step = 0, _FIRST
    while True:
        asked = min(step, limit - len(found)) if limit > 0 else limit
        page = await read(**{**given, "limit": asked, "cursor": cursor})
        sizes = await shared.worker.run(key_id, partial(_sizes, page))
        fits = _fitting(sizes, most - size, is_first=not found)
        if fits < len(page):
            if fits:
                page = await read(**{**given, "limit": fits, "cursor": cursor})
            else:
                page = Page([], next=cursor)
            return Page([*found, *page], next=page.next)
        found += page
        size, cursor = size + sum(sizes), page.next
        if cursor is None or len(found) >= limit or size >= most:
            return Page(found, next=cursor)
        step = max(1, min(limit, int((most - size) * len(found) / max(size, 1))))


def _sizes(items: Sequence[MemoryItem]) -> list[int]:
    return [_size(each) for each in items]


def _fitting(sizes: Sequence[int], room: int, *, is_first: bool) -> int:
    """Return how many of the next memories have room; the first of a page always has."""
    for count, size in enumerate(sizes):
        room -= size
        if room < 0 and (count or not is_first):
            return count
    return len(sizes)


def _size(item: MemoryItem) -> int:
    """Return about how many bytes of JSON a memory is, whatever fields its class has."""
    extra = item.metadata.extra
    return _ENVELOPE + _weight(extra) + sum(_weight(each) for each in vars(item).values())


def _weight(value: object) -> int:
    if isinstance(value, str):
        return _length(value)
    if isinstance(value, dict):
        return 2 + sum(_length(str(name)) + 2 + _weight(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(_weight(inner) + 1 for inner in value)
    return 8


def _length(text: str) -> int:
    if text.isascii() and text.isprintable() and "\\" not in text and '"' not in text:
        return len(text) + 2
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))
