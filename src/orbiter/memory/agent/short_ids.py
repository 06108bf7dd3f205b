"""Short ids: the end of an id, as a model or a person is shown it, and the memory that it means.

Ids begin with their time and end at random, so eight digits of the end tell apart what one scope
holds, at a quarter of the tokens. Everything is looked up in the scope of the handle.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbiter.memory.errors import ItemNotFoundError, QueryError
from orbiter.memory.model.items import RESERVED, MemoryItem

if TYPE_CHECKING:
    from orbiter.memory.agent.scope import ScopedMemory

__all__ = ["find_by_part", "find_item", "short_id"]

_SHORT = 8
_SHORTEST = 6
"""Digits that a part of an id has at least; fewer may be those of another memory by chance."""
_MAX_CANDIDATES = 5
"""Candidates of an ambiguous id that are named."""
_LONG = re.compile(r".*[0-9a-f]{32}")
_WHOLE = re.compile(r"[0-9a-f]{32}")
_PAGE = 500


def short_id(item_id: str) -> str:
    """Return the end of an id that was made here, by which `find_item` finds it; else all of it."""
    return item_id[-_SHORT:] if _LONG.fullmatch(item_id) else item_id


async def find_item(memory: "ScopedMemory", text: str) -> MemoryItem:
    """Return the memory whose id is *text*, or begins or ends so.

    `ItemNotFoundError` if there is none, and `QueryError` if there are several.
    """
    item = await memory.get(text)
    if item is not None:
        return item
    matches: Sequence[MemoryItem] = ()
    if len(text) >= _SHORTEST:
        matches = await find_by_part(memory, text, limit=_MAX_CANDIDATES + 1)
    if not matches:
        raise ItemNotFoundError(text)
    if len(matches) > 1:
        named = ", ".join(f"`{each.id}`" for each in matches[:_MAX_CANDIDATES])
        more = ", …" if len(matches) > _MAX_CANDIDATES else ""
        raise QueryError(f"`{text}` is a part of several ids; give the whole one: {named}{more}")
    return matches[0]


async def find_by_part(
    memory: "ScopedMemory", text: str, *, limit: int, forgotten: bool = False
) -> Sequence[MemoryItem]:
    """Return at most *limit* memories whose id begins with *text*, or else ends so.

    Those of imported memories begin with a mark, which a shell may take for a home folder.
    """
    starts = {"$or": [{"id": {"$prefix": mark + text}} for mark in ("", RESERVED)]}
    matches = await memory.list(where=starts, limit=limit, forgotten=forgotten)
    if matches or _WHOLE.fullmatch(text):
        return matches
    ends: list[MemoryItem] = []
    cursor: str | None = None
    while True:
        page = await memory.list(
            where={"id": {"$contains": text}}, limit=_PAGE, cursor=cursor, forgotten=forgotten
        )
        ends += [item for item in page if item.id.endswith(text)]
        cursor = page.next
        if cursor is None or len(ends) >= limit:
            return ends[:limit]
