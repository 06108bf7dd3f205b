"""Users, and the names that a field offers while somebody types.

Whoever may see everyone's gets all users, page by page. A key that names a user sees that one, and
is offered names of that user alone.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from starlette.responses import JSONResponse, Response

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.value_counts import UserInfo, UserOrder
from orbiter.memory.server.dashboard.chat_address import name_of
from orbiter.memory.server.dashboard.data_page import count_erasure
from orbiter.memory.server.dashboard.page import Ask, Data, Pages, scope_of
from orbiter.memory.server.dashboard.scope_cache import ScopeCache

__all__ = ["pages"]

pages = Pages()

_PAGE = 50
_MAX_ASKED = 200
"""Users of whom it is asked whether they have entries of an agent: those who were seen last."""
_ORDERS = {"recent": "Last seen", "items": "Most memories", "name": "Name"}


@dataclass(frozen=True, slots=True)
class Person:
    """One user, as the page shows them."""

    user_id: str
    memories: int
    chats: int
    first_at: datetime | None
    last_at: datetime | None
    entries: int
    is_default: bool = False


_people: ScopeCache[list[Person]] = ScopeCache(seconds=15)
"""The users of a scope within everyone: each of them is asked for, one after another."""


@pages.page("/users", "users.html", title="Users")
async def users(ask: Ask) -> Data:
    """Show a page of users."""
    order, starts = ask.text("order") or "recent", ask.text("starts_with").strip()
    if order not in _ORDERS:
        raise QueryError(f"`order` is one of `{'`, `'.join(_ORDERS)}`")
    held = scope_of(ask.handle.scope)
    if held:
        people, more = await _people.get(ask, lambda: _within(ask)), None
    else:
        page = await ask.server.memory.users(
            starts_with=starts,
            order=cast("UserOrder", order),
            limit=_PAGE,
            cursor=ask.text("cursor") or None,
        )
        people, more = [_person(each) for each in page], page.next
    return {
        "people": people,
        "more": more,
        "order": order,
        "orders": _ORDERS,
        "starts_with": starts,
        "is_everyone": not held,
        "most": max((each.memories for each in people), default=0) or 1,
    }


def _person(user: UserInfo) -> Person:
    times = (user.first_at, user.last_at)
    return Person(user.user_id, user.items, user.chats, *times, user.entries, user.is_default)


async def _within(ask: Ask) -> list[Person]:
    """Return the users of a scope, which names a user or an agent."""
    page = []
    counted = await ask.handle.count_by("user_id", limit=_PAGE)
    counts = dict.fromkeys(await _with_entries(ask), 0)
    for name, memories in {**counts, **{str(each.value): each.items for each in counted}}.items():
        own = ask.handle_for({**ask.scope, "user_id": name})
        newest = await own.list(limit=1) if memories else []
        sessions = len(await own.count_by("session_id", limit=1_000)) if memories else 0
        last = newest[0].created_at if newest else None
        entries = (await count_erasure(ask, scope_of(own.scope))).entries
        if memories or entries:
            page.append(Person(name, memories, sessions, None, last, entries))
    return sorted(page, key=lambda each: -each.memories)


async def _with_entries(ask: Ask) -> list[str]:
    """Return users who may have key-value entries and no memory; not all of the scope."""
    if ask.handle.scope.user_id is not None:
        return [ask.handle.scope.user_id]
    recent = await ask.server.memory.users(order="recent", limit=_MAX_ASKED)
    return [each.user_id for each in recent if each.entries]


# What a field offers

_MAX_VALUES = 20
_READ = 500
"""Values that are read of a field, the most frequent."""
_FIELDS = (*SCOPE_FIELDS, "chat", "key", "tag", "source")
_suggested: ScopeCache[list[str]] = ScopeCache(seconds=20, most=200)


@pages.part("GET", "/ui/suggest")
async def suggest(ask: Ask) -> Response:
    """Return at most twenty values of a field that begin with, or else contain, what is typed."""
    field, typed = ask.text("field"), ask.text("q").strip()[:200].casefold()
    if field not in _FIELDS:
        raise QueryError(f"`field` is one of `{'`, `'.join(_FIELDS)}`")
    if field == "user_id" and not scope_of(ask.handle.scope):
        # An index leads to the names that begin so, however many there are.
        page = await ask.server.memory.users(
            starts_with=ask.text("q").strip()[:200], limit=_MAX_VALUES
        )
        first = [user.user_id for user in page]
        if first or not typed:
            return JSONResponse({"values": first})
    values = await _suggested.get(ask, lambda: _values_of(ask.handle, field), field)
    begin = [each for each in values if each.casefold().startswith(typed)]
    within = [each for each in values if typed in each.casefold() and each not in begin]
    return JSONResponse({"values": [*begin, *within][:_MAX_VALUES]})


async def _values_of(handle: ScopedMemory, field: str) -> list[str]:
    if field == "chat":
        names = [name_of(each.metadata) for each in await handle.chats(limit=_READ)]
        return list(dict.fromkeys(names))
    name = {"key": "fact", "tag": "tags"}.get(field, field)
    only = "fact" if field == "key" else None
    counted = await handle.count_by(name, memory_type=only, limit=_READ)
    return [each.value for each in counted if isinstance(each.value, str)]
