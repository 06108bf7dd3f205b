"""`Idempotency-Key` of REST: the same key with another request is an error.

Storing once is done by the `idempotency_key` of the calls; this only compares, and keeps nothing:
what was stored under a key is what was asked first, so a repeated request is compared with that,
place by place, after a restart and in another process, too. Where that is not known any more, the
request is refused: to be asked again is better than to lose something.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.agent.chat_history import seed_of
from orbiter.memory.agent.inputs import derived_id, labels, read, read_many, read_messages
from orbiter.memory.agent.keywords import rows_as_items
from orbiter.memory.agent.runtime import Store, keeps_versions
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import OpenCalls
from orbiter.memory.model.items import MemoryItem, ToolMemory
from orbiter.memory.model.serialization import dump_item
from orbiter.memory.model.validation import to_utc

__all__ = ["check_same"]

_OWN = ("id", "created_at", "updated_at", "version", "expires_at")
"""What an item has by itself, or may have in another way each time it is asked for."""

_KINDS = {"remember": "once", "remember_many": "many", "add": "said"}
_SOON = timedelta(seconds=2)
"""Between the reading of a request and the instant from which its time to live counts."""
_CLOCKS = timedelta(hours=1)
"""How far the clocks of a server and a database may be apart."""


async def check_same(
    key: str,
    call: str,
    arguments: Mapping[str, Any],
    stored: Sequence[MemoryItem],
    home: "ScopedMemory | Chat",
) -> None:
    """Raise `QueryError` if what is stored under *key* is not what the call would have stored.

    *stored* is what the call returned: what is there of it now.
    """
    store = await home._store()  # noqa: SLF001 - of this library
    there = {item.id: item for item in stored}
    wanted = _wanted(call, arguments, home, key)
    is_list = call != "remember"
    for place, made in enumerate(wanted):
        item_id = derived_id(home.scope, _KINDS[call], key, *([place] if is_list else []))
        first = await _first(store, item_id, there.get(item_id), needs_time=not place)
        if first is None or not _is_same(first, made, arguments, is_said=call == "add"):
            raise _refusal(key, is_sure=first is not None and keeps_versions(store))
    last = derived_id(home.scope, _KINDS[call], key, len(wanted))
    if is_list and (await store.get(last) or (keeps_versions(store) and await store.history(last))):
        raise _refusal(key, is_sure=True)


def _refusal(key: str, *, is_sure: bool) -> QueryError:
    doubt = "" if is_sure else ", or what it stored was changed or removed since"
    return QueryError(
        f"the `Idempotency-Key` `{key}` was used for another request{doubt}; use a new key for "
        "this one"
    )


def _wanted(
    call: str, arguments: Mapping[str, Any], home: "ScopedMemory | Chat", key: str
) -> list[MemoryItem]:
    form, index = arguments.get("format"), arguments.get("index", True)
    index = None if index is True else index
    if call == "add":
        calls = OpenCalls(seed=seed_of(home.scope, key), orphans="note")
        more = labels(None, None, None, None, index=index)
        return read_messages(
            arguments["what"], home.scope, more, form, as_human=True, open_calls=calls
        )
    names = ("tags", "importance", "source", "extra")
    more = labels(*(arguments.get(name) for name in names), index=index)
    if call == "remember":
        return [read(arguments["what"], home.scope, more, form)]
    things = rows_as_items(arguments["things"], arguments.get("text"))
    return read_many(things, home.scope, more, form)


@dataclass(frozen=True, slots=True)
class _First:
    """What an id held when it was stored."""

    item: MemoryItem
    at: datetime | None
    """When the store wrote it, if that is known."""
    later: tuple[MemoryItem, ...] = ()
    """What it held when it came back under the same key, after it was forgotten."""


async def _first(
    store: Store, item_id: str, item: MemoryItem | None, *, needs_time: bool
) -> _First | None:
    """Return what was stored first, `None` if nobody knows; one look at the past does for many."""
    is_as_it_was = item is not None and item.version == 1
    if not keeps_versions(store):
        item = await store.get(item_id)  # a call answers with what it was given if that is gone
    if not keeps_versions(store) or (is_as_it_was and not needs_time):
        # Of one that was changed, only that nothing is lost can be told: it says so by itself.
        return _First(item, None) if item is not None else None
    versions = await store.history(item_id)
    if not versions or versions[0].item.version != 1:  # it was removed for good since
        return None
    later = tuple(each.item for each in versions if each.change == "restored")
    return _First(versions[0].item, versions[0].at, later)


def _is_same(
    first: _First, made: MemoryItem, arguments: Mapping[str, Any], *, is_said: bool
) -> bool:
    if _has_said(first.item, made):
        return first.item.version > 1 or _is_dated(first, made, arguments, is_said=is_said)
    return any(_has_said(each, made) for each in first.later)


def _is_dated(
    first: _First, made: MemoryItem, arguments: Mapping[str, Any], *, is_said: bool
) -> bool:
    """Tell whether it has the dates that are asked for; a conversation dates by its order."""
    item, own = first.item, "created_at" in made.model_fields_set
    began = arguments.get("created_at") or (made.created_at if own else None)
    if not is_said and began is not None and item.created_at != to_utc(began):
        return False
    wrote_at = first.at if began is None and not is_said else None
    if wrote_at is not None and abs(wrote_at - item.created_at) > _CLOCKS:
        return False  # it was dated then, and is not now
    expires = arguments.get("expires")
    if not isinstance(expires, timedelta):
        return item.expires_at == (made.expires_at if expires is None else to_utc(expires))
    since = item.created_at if began is None else first.at
    if item.expires_at is None or since is None:
        return item.expires_at is not None
    return abs(item.expires_at - since - expires) <= (_SOON if began is None else _CLOCKS)


def _has_said(item: MemoryItem, made: MemoryItem) -> bool:
    was, now = _said(item), _said(made)
    if isinstance(made, ToolMemory):  # of a result, the chat knew then which call it answers
        for name in ("tool_call_id", "tool_name"):
            now[name] = now[name] or was.get(name)
    return was == now


def _said(item: MemoryItem) -> dict[str, Any]:
    return {name: value for name, value in dump_item(item).items() if name not in _OWN}
