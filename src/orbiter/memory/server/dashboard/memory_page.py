"""One memory: read it, change it, see what it was, where it came from, and why it is found."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import (
    ItemNotFoundError,
    QueryError,
    UnsupportedError,
    VersionConflict,
)
from orbiter.memory.model.items import RESERVED, AIMemory, MemoryItem, MemoryStatus, ToolMemory
from orbiter.memory.model.reports import ItemVersion
from orbiter.memory.model.trust import source_of, trust_of
from orbiter.memory.recall import Reason
from orbiter.memory.server.dashboard.chat_address import address_of
from orbiter.memory.server.dashboard.facets import tags_of
from orbiter.memory.server.dashboard.memories_page import read_tags
from orbiter.memory.server.dashboard.page import Ask, Data, Pages, Toast, as_float, as_number
from orbiter.memory.text.word_diff import Piece, word_diff

__all__ = ["as_edited", "pages"]


pages = Pages()
_MAX_RAW = 50_000
"""Letters of raw JSON that are on the page; more is behind the link to its twin."""


_HITS = 10
_RELATED = 6
_MAX_QUERY = 600
"""Letters of a memory that are asked with to find what is like it."""


MAX_VERSIONS = 30
"""Versions that are shown, the newest; all of them are in the history that REST gives."""

_MAX_SOURCES = 12
_GROUP = timedelta(hours=1)
_NEAR = 200
"""Messages around a call among which its answers are looked for."""

_OWN = ("tags", "importance", "source", "trust", "edited", "fact", "forked_from")
"""Keys of `metadata.extra` that have a place of their own on the page."""


@pages.page("/memory", "memory.html", title="Memory")
async def memory(ask: Ask) -> Data:
    """Return the page of one memory."""
    return await _full_page_data(ask, query=ask.text("q").strip())


@pages.part("GET", "/ui/memory", "parts/memory_main.html")
async def show_memory(ask: Ask) -> Data:
    """Return a memory to be read, as after an edit that was given up."""
    return await _page_data(ask)


@pages.part("GET", "/ui/memory/edit", "parts/memory_edit.html", role="write")
async def edit(ask: Ask) -> Data:
    """Return a memory in fields."""
    item, _, is_forgotten = await _load(ask)
    if is_forgotten:
        raise QueryError("this memory is forgotten; restore it first, then edit it")
    return {"item": item, "tags": ", ".join(tags_of(item)), "conflict": None}


@pages.part("GET", "/ui/memory/why", "parts/memory_why.html")
async def why(ask: Ask) -> Data:
    """Return how a memory does for a question."""
    item, _, _ = await _load(ask)
    query = ask.text("q").strip()
    return {
        "item": item,
        "rank": await rank_of(_handle_of(ask, item), item, query) if query else None,
    }


@pages.part("POST", "/ui/memory", "parts/memory_saved.html", role="write")
async def save(ask: Ask) -> Toast | Data:
    """Change a memory, unless somebody else has done so since it was read."""
    form = await ask.form()
    item, _, _ = await _load(ask)
    version = as_number("version", form.get("version", ""), 0, least=1, most=2**31)
    content, tags = as_edited(item.content, form.get("content")), read_tags(form.get("tags", ""))
    new_tags = tags if tags != tags_of(item) else None
    said = form.get("importance", "").strip()
    weight = as_float("importance", said, most=1) if said else None
    weight = weight if weight != item.metadata.extra.get("importance") else None
    if content is None and new_tags is None and weight is None:
        return Toast({**await _full_page_data(ask), "conflict": None}, "No changes.")
    try:
        await ask.handle.update(
            item.id, content, tags=new_tags, importance=weight, expected_version=version
        )
    except VersionConflict:
        return await _conflict(ask, form)
    data = await _full_page_data(ask)
    if item.memory_type == "fact" or not data["keeps_versions"]:
        return Toast({**data, "conflict": None}, "Saved.")
    return Toast(
        {**data, "conflict": None},
        "Saved. The previous version can be restored.",
        _restore_address(ask, version=str(version)),
        "#memory",
    )


@pages.part("POST", "/ui/memory/forget", "parts/memory_main.html", role="write")
async def forget(ask: Ask) -> Toast | Response:
    """Forget a memory, and show it as forgotten, or go home where the store keeps nothing of it."""
    forgotten = await ask.handle.forget(ask.text("id"))
    try:
        return Toast(
            await _full_page_data(ask), "Forgotten.", _restore_address(ask), target="#memory"
        )
    except ItemNotFoundError:
        if not forgotten:
            raise
        return Response(
            headers={"HX-Redirect": f"/memories{f'?{urlencode(ask.scope)}' if ask.scope else ''}"}
        )


@pages.part("POST", "/ui/memory/restore", "parts/memory_main.html", role="write")
async def restore(ask: Ask) -> Toast:
    """Bring a memory back, or what it was in an earlier version."""
    version = ask.number("version", 0, most=2**31)
    await ask.handle.restore(ask.text("id"), version=version or None)
    said = f"Version {version} is restored." if version else "Restored."
    return Toast(await _full_page_data(ask), said)


def _restore_address(ask: Ask, **more: str) -> str:
    return f"/ui/memory/restore?{urlencode({'id': ask.text('id'), **ask.scope, **more})}"


async def _load(ask: Ask) -> tuple[MemoryItem, list[ItemVersion], bool]:
    """Return a memory, its versions, and whether it is forgotten; or raise `ItemNotFoundError`."""
    item_id = ask.text("id")
    if not item_id:
        raise QueryError("the address names no memory; open one from the list at `/memories`")
    item = await ask.handle.get(item_id)
    try:
        versions: list[ItemVersion] = await ask.handle.history(item_id)
    except UnsupportedError:
        versions = []  # this store keeps no versions
    if item is not None:
        return item, versions, False
    if not versions:
        raise ItemNotFoundError(item_id, way="it may belong to somebody else, or be erased")
    return versions[-1].item, versions, True


async def _full_page_data(ask: Ask, *, query: str = "") -> Data:
    """Return all of the page, with related memories and the rank for a question."""
    data = await _page_data(ask)
    item = data["item"]
    assert isinstance(item, MemoryItem)  # noqa: S101 - `_page_data` has put it there
    is_forgotten = bool(data["is_forgotten"])
    handle = _handle_of(ask, item)
    return {
        **data,
        "related": [] if is_forgotten else await related_to(handle, item),
        "rank": await rank_of(handle, item, query) if query and not is_forgotten else None,
    }


async def _page_data(ask: Ask) -> Data:
    item, versions, is_forgotten = await _load(ask)
    raw_size = len(item.content) + len(str(item.native)) + len(str(item.metadata.extra))
    return {
        "item": item,
        "tags": tags_of(item),
        "is_forgotten": is_forgotten,
        "keeps_versions": bool(versions),
        "changes": await asyncio.to_thread(changes, versions),
        "count_versions": len(versions),
        "origin": await origin_of(ask.handle, item),
        "chat": address_of(item.metadata, ask.principal.scope),
        "group": [] if is_forgotten else await tool_group(ask.handle, item),
        "is_raw_here": raw_size <= _MAX_RAW,
    }


async def _conflict(ask: Ask, form: dict[str, str]) -> Data:
    """Return the form again with what was typed, and what is stored by now."""
    data = await _page_data(ask)
    item = data["item"]
    assert isinstance(item, MemoryItem)  # noqa: S101 - `_page_data` has put it there
    mine = form.get("content", item.content)
    return {
        **data,
        "tags": form.get("tags", ""),
        "conflict": {"mine": mine, "pieces": word_diff(item.content, mine)},
    }


def _handle_of(ask: Ask, item: MemoryItem) -> ScopedMemory:
    """Return the memories that *item* is compared with: those of its own user or agent."""
    own = item.metadata
    if own.user_id:
        return ask.handle_for({**ask.scope, "user_id": own.user_id})
    if own.agent_id:
        return ask.handle_for({**ask.scope, "agent_id": own.agent_id})
    return ask.handle


def as_edited(old: str, typed: str | None) -> str | None:
    """Return the text that somebody typed over *old*, or `None` if that is the same.

    A browser gives every end of a line the same form, which is no change of the text.
    """
    if typed is None:
        return None
    plain = typed.replace("\r\n", "\n").replace("\r", "\n")
    if plain == old.replace("\r\n", "\n").replace("\r", "\n"):
        return None
    ends_in_two = "\r\n" in old and "\n" not in old.replace("\r\n", "")
    return plain.replace("\n", "\r\n") if ends_in_two else plain


@dataclass(frozen=True, slots=True)
class Rank:
    """What becomes of a memory for one question."""

    query: str
    question: str
    """How the question was understood, in words."""
    verdict: str
    place: int | None = None
    """Its place among the hits; `None` if it is no hit."""
    relevance: float | None = None
    score: float | None = None
    why: Sequence[Reason] = ()


async def rank_of(handle: ScopedMemory, item: MemoryItem, query: str) -> Rank:
    """Ask *query*, and return what becomes of *item*."""
    hits = await handle.recall(query, k=_HITS, explain=True)
    for place, hit in enumerate(hits, 1):
        if hit.item.id == item.id:
            verdict = f"Number {place} of {hits.considered:,} candidates"
            numbers = (place, hit.relevance, hit.score, tuple(hit.why))
            return Rank(query, hits.question, verdict, *numbers)
    verdict = (
        f"Not among the best of {hits.considered:,} candidates: it does not match the question"
    )
    if item.status is not MemoryStatus.ACCEPTED:
        verdict = f"Never recalled: its status is {item.status.value}, and only accepted ones are"
    out = next((each for each in hits.left_out if each.item.id == item.id), None)
    if out is not None:
        verdict = f"Left out: {out.told}"
    for place, hit in enumerate(hits, 1):
        if any(each.id == item.id for each in hit.repeats):
            verdict = f"Left out: number {place} says the same"
    if out is None:
        return Rank(query, hits.question, verdict)
    return Rank(query, hits.question, verdict, None, out.relevance, out.score, tuple(out.why))


async def related_to(handle: ScopedMemory, item: MemoryItem) -> list[MemoryItem]:
    """Return a few memories that are about the same, best first."""
    query = item.content[:_MAX_QUERY].strip()
    if not query:
        return []
    # What is about the same need not answer it.
    hits = await handle.recall(query, k=_RELATED + 1, min_relevance=0)
    return [hit.item for hit in hits if hit.item.id != item.id][:_RELATED]


class Label(NamedTuple):
    """A tag, a date or the like that is not what it was."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Change:
    """One version, and what it changed."""

    version: int
    change: str
    at: datetime
    by: str
    pieces: Sequence[Piece]
    labels: Sequence[Label]
    is_now: bool
    may_return: bool
    """Whether making the memory this again would change anything."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a memory came from, and what it is worth."""

    source: str
    trust: str
    is_edited: bool
    sources: Sequence[MemoryItem]
    """The memories that a fact was taken from, as far as they are still there."""
    more_sources: int
    forked_from: str
    extra: dict[str, object]


def changes(versions: Sequence[ItemVersion]) -> list[Change]:
    """Return the newest versions, newest first, each with what it changed in the one before."""
    if not versions:
        return []
    pairs = list(zip([None, *versions], versions, strict=False))[-MAX_VERSIONS:]
    return [_change(earlier, version, versions[-1]) for earlier, version in reversed(pairs)]


def _change(earlier: ItemVersion | None, version: ItemVersion, last: ItemVersion) -> Change:
    item, now, is_now = version.item, last.item, version is last
    pieces: Sequence[Piece] = []
    labels: Sequence[Label] = []
    if earlier is not None and version.change == "updated":
        labels = _labels(earlier.item, item)
        if earlier.item.content != item.content:
            pieces = word_diff(earlier.item.content, item.content)
    is_same = item.content == now.content and not _labels(item, now)
    return Change(
        item.version,
        version.change,
        version.at,
        (version.by or "").removeprefix(RESERVED),
        pieces,
        labels,
        is_now,
        may_return=not is_now and not is_same and version.change != "deleted",
    )


def _labels(before: MemoryItem, after: MemoryItem) -> list[Label]:
    """Return what differs, apart from the text."""
    was, now = before.metadata.extra, after.metadata.extra
    names = sorted({*was, *now} - {"trust"})
    pairs = [(name, was.get(name), now.get(name)) for name in names]
    pairs += [
        ("status", before.status.value, after.status.value),
        ("expires", before.expires_at, after.expires_at),
    ]
    return [Label(name, _said(old), _said(new)) for name, old, new in pairs if old != new]


def _said(value: object) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


async def origin_of(handle: ScopedMemory, item: MemoryItem) -> Origin:
    """Return where *item* came from."""
    ids = list(getattr(item, "source_ids", []))
    there = [await handle.get(each) for each in ids[:_MAX_SOURCES] if isinstance(each, str)]
    extra = item.metadata.extra
    forked = extra.get("forked_from")
    return Origin(
        source=source_of(item),
        trust=trust_of(item).name.lower(),
        is_edited=bool(extra.get("edited")),
        sources=[each for each in there if each is not None],
        more_sources=max(0, len(ids) - _MAX_SOURCES),
        forked_from=forked if isinstance(forked, str) else "",
        extra={name: value for name, value in extra.items() if name not in _OWN},
    )


async def tool_group(handle: ScopedMemory, item: MemoryItem) -> list[MemoryItem]:
    """Return the rest of the tool group that *item* is part of: its call, or the answers to it."""
    own = item.metadata
    where = {"session_id": own.session_id, "user_id": own.user_id, "task_id": own.task_id}
    at = item.created_at
    if isinstance(item, ToolMemory) and item.tool_call_id:
        near = await handle.list(where=where, since=at - _GROUP, until=at, limit=_NEAR)
        replies = (each for each in near if isinstance(each, AIMemory))
        call = next((a for a in replies if any(c.id == item.tool_call_id for c in a.calls)), None)
        return [] if call is None else [call]
    if isinstance(item, AIMemory) and item.tool_calls:
        ids = {call.id for call in item.calls}
        near = await handle.list(where=where, since=at, until=at + _GROUP, limit=_NEAR)
        answers = [each for each in near if isinstance(each, ToolMemory)]
        return [each for each in answers[::-1] if each.tool_call_id in ids]
    return []
