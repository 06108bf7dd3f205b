"""Chats: all conversations, and one of them with its window and its summary drawn on it."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.errors import ItemNotFoundError, QueryError
from orbiter.memory.messages.costs import sent_tokens
from orbiter.memory.model.items import MemoryItem, role_of
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.model.reports import ConversationInfo
from orbiter.memory.server.dashboard.chat_address import (
    Conversation,
    address_of,
    as_seen_by,
    conversation_of,
    name_of,
)
from orbiter.memory.server.dashboard.chat_rows import Spoken, drawn, without_halves
from orbiter.memory.server.dashboard.page import Ask, Data, Pages, Toast, as_number

if TYPE_CHECKING:
    from orbiter.memory.model.derived import SummaryMemory

__all__ = ["covered_by", "pages", "summary_of"]

pages = Pages()

_PAGE_CHATS = 50
_MAX_CHATS = 500
_PAGE = 40
_LOOKED = 500
"""Messages that are looked through for the page after one; beyond, there is a way to the newest."""
_TITLE = 200
_HEADING = 80
_TICK = timedelta(microseconds=1)
_SOON = timedelta(minutes=10)
"""How long after a chat has begun its first question is looked for."""
_SIZES = {"tokens": (4_000, 200_000), "rounds": (6, 1_000)}
"""How large a window is, unless the reader says so, and at most."""


@pages.page("/chats", "chats.html", title="Chats")
async def chats(ask: Ask) -> Data:
    """Show the conversations, most recent first."""
    limit = ask.number("n", _PAGE_CHATS, least=1, most=_MAX_CHATS)
    chats = await ask.handle.chats(limit=limit + 1)
    rows = chats[:limit]
    titles = await asyncio.gather(*(_title(ask, each) for each in rows))
    return {
        "chats": [
            {
                "title": title,
                "name": name_of(each.metadata),
                "address": address_of(each.metadata, ask.principal.scope),
                **_scope_of(each),
            }
            for each, title in zip(rows, titles, strict=True)
        ],
        "people": _counted(rows, "user_id"),
        "agents": _counted(rows, "agent_id"),
        "more": min(limit * 2, _MAX_CHATS) if len(chats) > limit and limit < _MAX_CHATS else None,
        "is_all": len(chats) <= limit,
    }


def _scope_of(info: ConversationInfo) -> Data:
    fields: Data = {str(name): getattr(info.metadata, name) for name in SCOPE_FIELDS}
    return {**fields, "messages": info.items, "first_at": info.first_at, "last_at": info.last_at}


def _counted(chats: list[ConversationInfo], name: str) -> dict[str, int]:
    """Return how many chats each has, who has most first."""
    names = Counter(getattr(each.metadata, name) for each in chats)
    del names[None]
    return dict(names.most_common(12))


async def _title(ask: Ask, info: ConversationInfo) -> str:
    """Return its title, else its first question, else how it begins."""
    if info.title:
        return info.title[:_TITLE]
    talk = as_seen_by(ask, info.metadata)
    humans = {**talk.where, "memory_type": "human"}
    for where, span in ((humans, _SOON), (talk.where, _TICK)):
        found = await talk.handle.list(where=where, until=info.first_at + span, limit=100)
        for item in reversed(found):  # the first is the last of a list
            if item.content.strip():
                return " ".join(item.content[:_TITLE].split())
    return ""


@pages.page("/chat", "chat.html", title="Chat")
async def chat(ask: Ask) -> Data:
    """Show one conversation."""
    return await _chat_data(ask, conversation_of(ask))


@pages.part("POST", "/ui/chat/summary", "parts/chat_body.html", role="write")
async def sum_up(ask: Ask) -> Toast:
    """Sum up all but the newest messages."""
    talk = conversation_of(ask)
    if talk.chat is None:
        raise QueryError("a summary needs a chat with a session of its own")
    before = await summary_of(talk)
    await talk.chat.summarize()
    after = await summary_of(talk)
    is_new = after is not None and (before is None or after.version != before.version)
    message = (
        f"Summarized {after.covered:,} messages."
        if after is not None and is_new
        else "Nothing to summarize yet: the newest messages stay as they are."
    )
    return Toast(await _chat_data(ask, talk), message)


async def _chat_data(ask: Ask, talk: Conversation) -> Data:
    before = ask.text("before") or None
    read = await talk.page(limit=_PAGE + 1, before=before)
    page, is_all = read[:_PAGE], len(read) <= _PAGE
    if not page and before is None:
        raise ItemNotFoundError(name_of(talk.scope), way="the page of chats lists those there are")
    items = without_halves(page[::-1], is_all=is_all)
    by, size = _window(ask)
    sent = [] if talk.chat is None else await _sent(talk, by, size)
    kept = await summary_of(talk)
    info = await _info(talk)
    timeline = drawn(items, sent=sent, summed_up=await covered_by(talk, items, kept))
    return {
        "title": "" if info is None else _heading(await _title(ask, info)),
        "messages": None if info is None else info.items,
        "first_at": None if info is None else info.first_at,
        "name": name_of(talk.scope),
        "whose": Query(metadata=talk.scope).wanted,
        "address": address_of(talk.scope, ask.principal.scope),
        "home": _home(talk),
        "timeline": timeline,
        "earlier": items[0].id if items and not is_all else None,
        "later": await _later(talk, page[0]) if before is not None and page else None,
        "is_newest": before is None,
        "has_window": talk.chat is not None,
        "window": {
            "by": by,
            "size": size,
            "messages": len(sent),
            "tokens": sent_tokens(sent, "openai", counter=talk.counter),
            "place": _place(timeline, sent),
        },
        "summary": kept,
    }


async def _later(talk: Conversation, newest: MemoryItem) -> str | None:
    """Return where the page begins that comes after *newest*; nothing if that is the last one."""
    after = await talk.page(limit=_PAGE + 1, after=newest.id)
    return after[0].id if len(after) > _PAGE else None


async def covered_by(
    talk: Conversation, items: list[MemoryItem], kept: "SummaryMemory | None"
) -> set[str] | None:
    """Return the ids of those of a page that the summary covers."""
    if kept is None or not items:
        return None if kept is None else set()
    ids = [item.id for item in items]
    if kept.covers_id in ids:
        return set(ids[: ids.index(kept.covers_id) + 1])
    if not kept.covers_id:
        return {item.id for item in items if kept.covers_by_time(item)}
    # It reaches to a message of a later page, and so covers all of this one; or to an earlier one.
    later = await talk.page(limit=1, after=ids[-1], item_id=kept.covers_id)
    return set(ids) if later else set()


async def _info(talk: Conversation) -> ConversationInfo | None:
    """Return how long a conversation is; nothing for what is none, or is one of very many."""
    chats = await talk.handle.chats(limit=_PAGE_CHATS)
    return next((each for each in chats if each.metadata == talk.scope), None)


def _heading(title: str) -> str:
    return title if len(title) <= _HEADING else f"{title[: _HEADING - 1]}…"


def _home(talk: Conversation) -> dict[str, str]:
    """Return the parameters that open this chat in the context lab."""
    if talk.chat is None:
        return {}
    wanted = {str(name): value for name, value in Query(metadata=talk.scope).wanted.items()}
    last = "session_id" if talk.scope.task_id is None else "task_id"
    return {**{name: value for name, value in wanted.items() if name != last}, "chat": wanted[last]}


def _window(ask: Ask) -> tuple[str, int]:
    by = ask.text("by") or "tokens"
    if by not in _SIZES:
        raise QueryError(f"`by` is `tokens` or `rounds`, not `{by[:40]}`")
    default, most = _SIZES[by]
    return by, as_number("size", ask.text("size"), default, least=1, most=most)


async def _sent(talk: Conversation, by: str, size: int) -> list[MemoryItem]:
    if talk.chat is None:
        return []
    if by == "rounds":
        return await talk.chat.items(rounds=size)
    return await talk.chat.items(budget=size)


def _place(timeline: Spoken, sent: list[MemoryItem]) -> str:
    """Return where the window begins, as seen from this page."""
    if timeline.window_at is not None:
        return "here"
    if any(row.is_sent and row.role != "system" for row in timeline.rows):
        return "above"
    return "below" if any(role_of(item) != "system" for item in sent) else "nowhere"


async def summary_of(talk: Conversation) -> "SummaryMemory | None":
    """Return the summary of a conversation, if it has one."""
    from orbiter.memory.model.derived import SummaryMemory  # noqa: PLC0415 - as chats do

    summary = await talk.handle.get(derived_id(talk.scope, "summary"))
    is_its_own = isinstance(summary, SummaryMemory) and all(
        getattr(summary.metadata, name) == getattr(talk.scope, name) for name in SCOPE_FIELDS
    )
    return summary if is_its_own and isinstance(summary, SummaryMemory) else None
