"""Erasing a scope everywhere: the store, recent activity, cached vectors, and this process."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.agent.runtime import Core, Store, keeps_versions
from orbiter.memory.errors import EmptyFilterError, MemoryError, QueryError
from orbiter.memory.model.activity_keys import OURS, activity_name, part_of
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.model.reports import Erasure
from orbiter.memory.tasks.progress import Tracker, track
from orbiter.memory.text.text_caches import clear_all

if TYPE_CHECKING:
    from orbiter.memory.agent.chat_service import Chats
    from orbiter.memory.agent.interface import ScopeSession

__all__ = ["erase", "remove_map_file"]

_PAGE = 500
_UNTOLD = Tracker(lambda _done, _total: None)


def _activity_names(scope: MemoryMetadata) -> list[str]:
    """Return the patterns of all ids of *scope* and below it."""
    wanted = Query(metadata=scope).wanted
    parts = (part_of(name, wanted[name]) if name in wanted else "*" for name in SCOPE_FIELDS)
    # What was kept before ids had parts is found if it is of this very scope.
    found = [OURS + "-".join(parts), f"{OURS}{derived_id(scope, 'activity')}"]
    return [*found, activity_name(scope)] if set(wanted) == {"agent_id"} else found


async def erase(session: "ScopeSession", *, dry_run: bool = False) -> Erasure:
    """Remove for good all that a scope names, wherever it is; return what was done, and if all is.

    What is written for it after the call began may stay. With *dry_run*, only count.
    """
    core, chats, scope, by = session.core, session.chats, session.scope, session.by
    if session.filter is None:
        raise EmptyFilterError()
    store = await session.store()
    if dry_run:
        items = await store.count(metadata=scope)
        every = items
        if keeps_versions(store):
            every = await store.count(include_deleted=True, metadata=scope)
        return Erasure(items=items, forgotten=every - items, dry_run=True)
    done = await _erase_activity(core, scope)
    cached = 0 if core.is_indexed else await _forget_cached(core, store, scope)
    await chats.flush()  # or a summary that is being written would outlive what it sums up
    done += await store.erase(metadata=scope, by=by)
    await chats.flush()
    if await store.search(metadata=scope, memory_type="summary", limit=1):
        with track(_UNTOLD):  # it is no part of what was counted, and goes on from nothing
            done += await store.erase(metadata=scope, by=by)
    if not core.is_indexed:
        await core.mirror().close()
    _forget_here(chats)
    return done + Erasure(cached=cached)


async def remove_map_file(url: str) -> None:
    """Remove the file in which a server of the store at *url* keeps the places of its map.

    It has salted hashes of ids. A server that runs notices that it is gone, and forgets them, too.
    """
    from orbiter.memory.auth import key_file_for  # noqa: PLC0415 - seldom needed

    with suppress(QueryError, OSError):  # a store in memory or of another computer has none here
        keys = key_file_for(url)
        file = keys.with_name(f"{keys.name.removesuffix('.keys.json')}.map.json")
        await asyncio.to_thread(file.unlink, missing_ok=True)


async def _erase_activity(core: Core, scope: MemoryMetadata) -> Erasure:
    if not core.has_activity:
        return Erasure()
    try:
        return await core.activity(activity_name(scope)).erase_agents(*_activity_names(scope))
    except MemoryError as exc:  # the rest must go all the same, and this is told
        return Erasure(problems=(f"recent activity: {exc}; then call `erase` again",))


async def _forget_cached(core: Core, store: Store, scope: MemoryMetadata) -> int:
    """Have cached vectors forgotten of what a store holds that has no vectors of its own."""
    if not hasattr(core.embeddings, "forget"):
        return 0
    from orbiter.memory.backends.sql.erase import forget_cached  # noqa: PLC0415 - seldom needed

    cached, last = 0, None
    with suppress(QueryError):  # the last of a page went meanwhile: it is being removed already
        while page := await store.search(metadata=scope, limit=_PAGE, before=last):
            cached += forget_cached(core.embeddings, [item.content for item in page])
            last = page[-1]
    return cached


def _forget_here(chats: "Chats") -> None:
    """Forget what this process knows of messages; it is counted again."""
    clear_all()
    if "summaries" in chats.__dict__:
        chats.summaries._tallies.clear()  # noqa: SLF001 - nothing but counts
    if "assembler" in chats.__dict__:
        chats.assembler._costs.clear()  # noqa: SLF001 - the same
