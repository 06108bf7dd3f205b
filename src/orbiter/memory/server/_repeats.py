"""The same `Idempotency-Key` with another request: an error, as HTTP has it.

Nothing is kept for it: what was stored under a key is what was asked first, so a repeated request
is compared with that, after a restart and in another process, too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.agent._reading import labels, read, read_messages
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.items import MemoryItem, dump_item

__all__ = ["check_same"]

_OWN = ("id", "created_at", "updated_at", "version", "expires_at")
"""What an item has by itself, or may have in another way each time it is asked for."""


async def check_same(
    key: str, call: str, given: Mapping[str, Any], stored: Sequence[MemoryItem], home: Any
) -> None:
    """Raise `QueryError` if what is stored under *key* is not what the call would have stored."""
    wanted = _wanted(call, given, home)
    if len(stored) < len(wanted):  # something of it was forgotten since
        return
    for item, made in zip(stored, wanted, strict=False):
        first = item if item.version == 1 else await _first(home, item)
        if first is not None and _said(first) != _said(made):
            break
    else:
        if len(stored) == len(wanted):
            return
    raise QueryError(
        f"the `Idempotency-Key` `{key}` was used for another request; use a new key for this one"
    )


def _wanted(call: str, given: Mapping[str, Any], home: "ScopedMemory | Chat") -> list[MemoryItem]:
    form = given.get("format")
    if call == "add":
        return read_messages(given["what"], home.scope, {}, form, as_human=True)
    more = labels(
        given.get("tags"), given.get("importance"), given.get("source"), given.get("extra")
    )
    if call == "remember":
        return [read(given["what"], home.scope, more, form)]
    return read_messages(given["things"], home.scope, more, form, as_human=False)


async def _first(home: Any, item: MemoryItem) -> MemoryItem | None:
    """Return what an item was when it was stored, if the store still knows."""
    handle = home if isinstance(home, ScopedMemory) else home._handle  # noqa: SLF001 - of one family
    try:
        versions = await handle.history(item.id)
    except UnsupportedError:
        return None
    return versions[0].item if versions and versions[0].item.version == 1 else None


def _said(item: MemoryItem) -> dict[str, Any]:
    return {name: value for name, value in dump_item(item).items() if name not in _OWN}
