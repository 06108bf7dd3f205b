"""Quotations in key-value entries: what frameworks log of their messages repeats memories, too.

An erasure takes out of entries that are JSON, or lines of it, what stands behind a fence, and all
that repeats an erased text where an entry names the message it is of, also in calls of our tools.
What is written otherwise, such as a checkpoint of LangGraph, is searched: the report says that it
quotes what is gone.
"""

import json
import re
from collections.abc import AsyncIterator, Set
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from orbiter.memory.agent.quotations import Quotes, strike, strike_fences, strike_values
from orbiter.memory.agent.quoted_arguments import strike_calls
from orbiter.memory.agent.runtime import Store
from orbiter.memory.errors import VersionConflict
from orbiter.memory.model.fences import fence_spans
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.key_value import Put
from orbiter.memory.model.query import Query
from orbiter.memory.tasks.offload import SLICE, apart

if TYPE_CHECKING:
    from orbiter.memory.model.key_value import KeyValueStore, StoredEntry

__all__ = ["quoting_logs", "strike_logs"]

_PAGE = 100
_NAME = re.compile(r'"([^"\\\n]{1,256})"')
"""What may be the id of a message, in JSON."""


async def strike_logs(
    store: Store,
    owner: MemoryMetadata | None,
    quotes: Quotes,
    ids: Set[str],
    *,
    leaving: MemoryMetadata | None,
) -> None:
    """Take what *quotes* finds out of the entries of *owner*; *ids* are of messages that had it.

    What is of the scope *leaving* goes anyway.
    """
    async for kept, stored in _quoting(store, owner, quotes, ids, leaving=leaving):
        entry = stored.entry
        value = await apart(len(entry.value) > SLICE, _struck, entry.value, quotes, ids)
        with suppress(VersionConflict):  # it was just put again: the search for what is left tells
            put = Put(entry.path, entry.key, value, stored.ttl, entry.version)
            await kept.write([put], scope=stored.scope)


async def quoting_logs(
    store: Store, owner: MemoryMetadata | None, quotes: Quotes, ids: Set[str]
) -> list[str]:
    """Return of which programs entries of *owner* have what *quotes* finds."""
    found = {each.entry.path[0] async for _, each in _quoting(store, owner, quotes, ids)}
    return sorted(found)


async def _quoting(
    store: Store,
    owner: MemoryMetadata | None,
    quotes: Quotes,
    ids: Set[str],
    *,
    leaving: MemoryMetadata | None = None,
) -> "AsyncIterator[tuple[KeyValueStore, StoredEntry]]":
    kept: KeyValueStore | None = getattr(store, "key_value", None)
    last: StoredEntry | None = None
    while kept is not None:
        page = await kept.dump(metadata=owner, after=last, limit=_PAGE)
        for stored in page:
            if leaving is not None and _is_within(stored.scope, leaving):
                continue
            value = stored.entry.value
            if await apart(len(value) > SLICE, _is_quoting, value, quotes, ids):
                yield kept, stored
        if len(page) < _PAGE:
            return
        last = page[-1]


def _is_within(scope: MemoryMetadata, wide: MemoryMetadata) -> bool:
    return all(getattr(scope, name) == each for name, each in Query(metadata=wide).wanted.items())


def _is_quoting(value: bytes, quotes: Quotes, ids: Set[str]) -> bool:
    """Tell whether an entry repeats what *quotes* finds: anywhere, if it names one of *ids*."""
    text = value.decode(errors="replace")
    if not ids.isdisjoint(_NAME.findall(text)) and (
        quotes(text) or _struck(value, quotes, ids) != value
    ):
        return True
    return any(quotes(text[start:end]) for start, end in fence_spans(text))


def _struck(value: bytes, quotes: Quotes, ids: Set[str]) -> bytes:
    """Return an entry without what *quotes* finds; what is no line of JSON stays."""
    is_named = not ids.isdisjoint(_NAME.findall(value.decode(errors="replace")))
    change = partial(strike if is_named else strike_fences, quotes)
    lines = []
    for line in value.split(b"\n"):
        try:
            read, struck = json.loads(line), json.loads(line)
        except (ValueError, RecursionError):
            lines.append(line)
            continue
        if is_named:
            strike_calls(struck, quotes, change)  # first, as the others take their JSON for a text
        struck = strike_values(struck, change)
        lines.append(line if struck == read else json.dumps(struck).encode())
    return b"\n".join(lines)
