"""Validation of the arguments of a store, before any database sees them."""

from collections.abc import Iterable, Sequence

from orbiter.memory.errors import InvalidItemError, QueryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import Cursor
from orbiter.memory.model.validation import check_name

__all__ = [
    "check_cursor",
    "check_different",
    "check_several",
    "check_several_ids",
    "cursor_id",
    "is_item_id",
]

_LONGEST = 256
"""Characters of an id."""


def check_several(items: object) -> None:
    """Raise `InvalidItemError` for what is no list of items."""
    # A pydantic model can be iterated over, too.
    if not isinstance(items, Iterable) or isinstance(items, MemoryItem):
        raise InvalidItemError(f"`items` must be a list of memory items, not {items!r}")


def is_item_id(item_id: object) -> bool:
    """Tell whether an item could have this id; some databases cannot even be asked for others."""
    if not isinstance(item_id, str):
        raise QueryError(f"`item_id` must be an item's id, not {item_id!r}; pass `item.id`")
    try:
        return bool(check_name(item_id, max_chars=_LONGEST))
    except ValueError:
        return False


def check_several_ids(item_ids: Sequence[str]) -> list[str]:
    """Return those of *item_ids* that an item could have, each once."""
    if isinstance(item_ids, str) or not isinstance(item_ids, Iterable):
        raise QueryError(f"`item_ids` must be a list of ids, not {item_ids!r}")
    ids = list(dict.fromkeys(item_ids))
    if all(type(item_id) is str for item_id in ids):
        together = "".join(ids)
        if together.isascii() and "\0" not in together and all(0 < len(i) <= _LONGEST for i in ids):
            return ids  # as nearly always; recall asks for hundreds
    return [item_id for item_id in ids if is_item_id(item_id)]


def check_different(item_ids: Sequence[str]) -> Sequence[str]:
    """Return *item_ids*, or raise `InvalidItemError` if one is given twice."""
    if len(set(item_ids)) < len(item_ids):
        twice = next(item_id for item_id in item_ids if item_ids.count(item_id) > 1)
        raise InvalidItemError(f"the id `{twice}` is given twice; give each item its own")
    return item_ids


def check_cursor(name: str, cursor: object) -> Cursor | None:
    """Return where paging goes on: at an item, at an id, or where a cursor says."""
    if cursor is None or isinstance(cursor, Cursor):
        return cursor
    created_at = cursor.created_at if isinstance(cursor, MemoryItem) else None
    item_id = cursor_id(name, cursor)
    return None if item_id is None else Cursor(item_id, created_at)


def cursor_id(name: str, cursor: object) -> str | None:
    """Return the id of the item that paging goes on from."""
    item_id = cursor.id if isinstance(cursor, MemoryItem) else cursor
    if item_id is None:
        return None
    if not isinstance(item_id, str) or not is_item_id(item_id):
        raise QueryError(f"`{name}` must be an item or its id, not {cursor!r}")
    return item_id
