"""Erasing a scope, or some items of it: the store, activity, cached vectors, and this process."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orbiter.memory.agent._updates import pages
from orbiter.memory.agent.extraction_jobs import free_messages
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.agent.interface import scope_of
from orbiter.memory.agent.keywords import ScopeId
from orbiter.memory.agent.logged_quotations import quoting_logs, strike_logs
from orbiter.memory.agent.quotations import (
    are_quoted,
    owner_of,
    quotes_of,
    strike_quotations,
    texts_of,
)
from orbiter.memory.agent.results import ForgetResult
from orbiter.memory.agent.runtime import Core, Store, keeps_versions
from orbiter.memory.agent.summaries import summaries_of
from orbiter.memory.backends.arguments import check_several_ids
from orbiter.memory.backends.urls import absolute_url
from orbiter.memory.errors import EmptyFilterError, MemoryError, QueryError
from orbiter.memory.model.audit import silently
from orbiter.memory.model.episode import OURS, activity_name, part_of
from orbiter.memory.model.items import INDEXED_BY, MemoryItem, MemoryMetadata, index_texts
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.model.reports import Erasure
from orbiter.memory.tasks.progress import Tracker, track
from orbiter.memory.text.text_caches import clear_all

if TYPE_CHECKING:
    from orbiter.memory.agent.chat_service import Chats
    from orbiter.memory.agent.interface import ScopeSession
    from orbiter.memory.model.key_value import KeyValueStore

__all__ = ["erase", "erase_items", "remove_map_file", "scope_to_erase"]

_PAGE = 500
_UNTOLD = Tracker(lambda _done, _total: None)


def scope_to_erase(*ids: ScopeId | None) -> MemoryMetadata:
    """Return the scope of these ids; `QueryError` if there is none: everyone is never meant."""
    if all(each is None for each in ids):
        names = "`, `".join(SCOPE_FIELDS)
        raise QueryError(f"an erasure needs at least one of `{names}`; nothing was erased")
    return scope_of(*ids)


def _activity_names(scope: MemoryMetadata) -> list[str]:
    """Return the patterns of all ids of *scope* and below it."""
    wanted = Query(metadata=scope).wanted
    parts = (part_of(name, wanted[name]) if name in wanted else "*" for name in SCOPE_FIELDS)
    # What was kept before ids had parts is found if it is of this very scope.
    patterns = [OURS + "-".join(parts), f"{OURS}{derived_id(scope, 'activity')}"]
    return [*patterns, activity_name(scope)] if set(wanted) == {"agent_id"} else patterns


async def erase(session: "ScopeSession", *, dry_run: bool = False) -> Erasure:
    """Remove for good all that a scope names, wherever it is; return what was done, and if all is.

    What is written for it after the call began may stay. With *dry_run*, only count.
    """
    core, chats, scope, by = session.core, session.chats, session.scope, session.by
    if session.filter is None:
        raise EmptyFilterError()
    store = await session.store()
    if dry_run:
        if keeps_versions(store):
            items, forgotten = await store.counts(metadata=scope)
        else:
            items, forgotten = await store.count(metadata=scope), 0
        kept: KeyValueStore | None = getattr(store, "key_value", None)
        entries = 0 if kept is None else await kept.count(metadata=scope)
        would = Erasure(items=items, forgotten=forgotten, entries=entries, dry_run=True)
        return await _signed(session, would, scope)
    done = await _erase_activity(core, scope)
    cached = 0 if core.is_indexed else await _forget_cached(core, store, scope)
    owner = owner_of(scope)
    # All answers of a whole user go anyway.
    leaving = [] if owner == scope else await _find(store, Query(metadata=scope), None)
    quoted = _Quoted(store, owner, await texts_of(store, leaving), {item.id for item in leaving})
    await chats.changed(store, await quoted.strike(leaving=scope))
    await chats.flush()  # or a summary that is being written would outlive what it sums up
    done += await store.erase(metadata=scope, by=by)
    await chats.flush()
    if await store.search(metadata=scope, memory_type="summary", limit=1):
        with track(_UNTOLD):  # it is no part of what was counted, and goes on from nothing
            done += await store.erase(metadata=scope, by=by)
    done += await quoted.left()
    await _forget_here(core, chats)
    return await _signed(session, done + Erasure(cached=cached), scope)


async def _signed(session: "ScopeSession", done: Erasure, scope: MemoryMetadata | None) -> Erasure:
    """Return the report with what an auditor asks for: whose, when, by whom, where, how."""
    from importlib.metadata import version  # noqa: PLC0415 - seldom needed

    named = {} if scope is None else Query(metadata=scope).wanted
    return replace(
        done,
        erased={str(name): each for name, each in named.items()},
        at=datetime.now(UTC),
        by=session.by,
        store=absolute_url(session.engine.url),
        program=f"orbiter-memory {version('orbiter-memory')}",
        not_searched=(
            *dict.fromkeys(done.not_searched),  # a store may have been erased in two steps
            *await asyncio.to_thread(_replaced_copies, done.files),
        ),
    )


def _replaced_copies(files: Sequence[str]) -> tuple[str, ...]:
    """Return the copies that `restore` left beside a SQLite store, whose *files* were searched."""
    if not files:
        return ()
    store = Path(files[0])
    begin = f"{store.name}.replaced-"
    try:
        copies = sorted(each for each in store.parent.iterdir() if each.name.startswith(begin))
    except OSError:  # a folder that may not be listed; the report is made all the same
        return ()
    return tuple(f"`{each}`, a copy that `restore` kept: delete it" for each in copies)


async def remove_map_file(url: str) -> None:
    """Remove the file next to the store that the map of an earlier dashboard kept, with hashes."""
    from orbiter.memory.auth import key_file_for  # noqa: PLC0415 - seldom needed

    with suppress(QueryError, OSError):  # a store in memory or of another computer has none here
        keys = key_file_for(url)
        file = keys.with_name(f"{keys.name.removesuffix('.keys.json')}.map.json")
        await asyncio.to_thread(file.unlink, missing_ok=True)


async def erase_items(
    session: "ScopeSession", item_ids: Sequence[str] | None, query: Query, *, dry_run: bool
) -> ForgetResult:
    """Remove items of a scope for good: those of *item_ids*, or all that match *query*.

    What was forgotten before goes, too. So do the summaries of chats that messages go from, and
    what the answers of our own tools repeat of the items.
    """
    core, chats, scope, by = session.core, session.chats, session.filter, session.by
    store = await session.store()
    items = await _find(store, query, item_ids)
    if dry_run:
        return ForgetResult(tuple(items), dry_run=True)
    own = [item.id for item in items]
    summaries = list(summaries_of(items))
    cached = 0 if core.is_indexed else _drop_vectors(core, items)
    quoted = _Quoted(store, owner_of(scope), await texts_of(store, items), {*own})
    answers = await quoted.strike()
    summaries += [each for each in summaries_of(answers) if each not in summaries]
    await chats.flush()  # or a summary that is being written would outlive what it sums up
    # Also ids of which nothing was read, as it may be gone already, and not yet cleaned up behind.
    # Summaries first: if that is cut short, none is left that says what a message did.
    ids = list(dict.fromkeys([*summaries, *(item_ids or own)]))
    done = await store.erase(metadata=scope, by=by, item_ids=ids)
    await chats.flush()
    if summaries and (again := await store.used_ids(summaries)):
        with track(_UNTOLD):  # it is no part of what was counted, and goes on from nothing
            done += await store.erase(metadata=scope, by=by, item_ids=sorted(again))
    done += await quoted.left()
    await free_messages(store, items)
    await _forget_here(core, chats)
    await remove_map_file(session.engine.url)
    core.events.emit_items("forgotten", items)
    done = await _signed(session, replace(done, cached=done.cached + cached), None)
    return ForgetResult((), erased=tuple(own), erasure=done)


@dataclass(slots=True)
class _Quoted:
    """What messages and logs of a user repeat of *texts*, which are those of the items *ids*."""

    store: Store
    owner: MemoryMetadata | None
    texts: Sequence[str]
    ids: set[str]

    async def strike(self, *, leaving: MemoryMetadata | None = None) -> list[MemoryItem]:
        """Take it out; return the messages that had it. What is of *leaving* goes anyway."""
        if not self.texts:
            return []
        answers = await strike_quotations(self.store, self.owner, self.texts, forgotten=True)
        self.ids.update(item.id for item in answers)
        quotes = quotes_of(self.texts)
        with silently():  # what is read here is shown to nobody
            await strike_logs(self.store, self.owner, quotes, self.ids, leaving=leaving)
        return answers

    async def left(self) -> Erasure:
        """Return what is still there: of a tool that has answered meanwhile, or in a log."""
        if not self.texts:
            return Erasure()
        problems: list[str] = []
        if await are_quoted(self.store, self.owner, self.texts):
            way = "`forget` them permanently, too"
            problems.append(f"answers of tools, or calls of them, quote what was erased; {way}")
        with silently():
            logs = await quoting_logs(self.store, self.owner, quotes_of(self.texts), self.ids)
        way = "delete the conversation there, or erase its session"
        problems += [f"key-value entries at `{n}` quote what was erased; {way}" for n in logs]
        return Erasure(problems=tuple(problems))


async def _find(store: Store, query: Query, item_ids: Sequence[str] | None) -> list[MemoryItem]:
    """Return the items that go, those that were forgotten before included."""
    several = [query]
    if item_ids is not None:
        ids = check_several_ids(item_ids)
        parts = [ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE)]
        several = [replace(query, where={"id": {"$in": part}}) for part in parts]
    items: list[MemoryItem] = []
    for each in several:
        for forgotten in (False, True) if keeps_versions(store) else (False,):
            async for page in pages(store, each, are_removed=False, forgotten=forgotten):
                items += page
    return items


async def _erase_activity(core: Core, scope: MemoryMetadata) -> Erasure:
    if not core.has_activity:
        return Erasure()
    try:
        return await core.activity(activity_name(scope)).erase_agents(*_activity_names(scope))
    except MemoryError as exc:  # the rest must go all the same, and this is told
        return Erasure(problems=(f"recent activity: {exc}; then repeat the erasure",))


async def _forget_cached(core: Core, store: Store, scope: MemoryMetadata) -> int:
    """Have cached vectors forgotten of what a store holds that has no vectors of its own."""
    if not hasattr(core.embeddings, "forget"):
        return 0
    cached, last = 0, None
    with suppress(QueryError):  # the last of a page went meanwhile: it is being removed already
        while page := await store.search(metadata=scope, limit=_PAGE, before=last):
            cached += _drop_vectors(core, page)
            last = page[-1]
    return cached


def _drop_vectors(core: Core, items: Iterable[MemoryItem]) -> int:
    from orbiter.memory.backends.sql.erase import forget_cached  # noqa: PLC0415 - seldom needed

    # What is not indexed now may have been.
    texts = [
        text
        for item in items
        for text in (item.content, *index_texts("", item.metadata.extra.get(INDEXED_BY)))
    ]
    return forget_cached(core.embeddings, texts)


async def _forget_here(core: Core, chats: "Chats") -> None:
    """Forget what this process knows of memories; it is counted and indexed again."""
    if not core.is_indexed:
        await core.mirror().close()
    clear_all()
    if "summaries" in chats.__dict__:
        chats.summaries._tallies.clear()  # noqa: SLF001 - nothing but counts
    if "assembler" in chats.__dict__:
        chats.assembler._costs.clear()  # noqa: SLF001 - the same
