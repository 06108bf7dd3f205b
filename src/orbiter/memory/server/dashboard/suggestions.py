"""What a field offers while somebody types: names of users, agents, sessions, chats and keys.

Only what the visitor may see is offered: a key that names a user is told of that user alone.
"""

from starlette.responses import JSONResponse, Response

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.server.dashboard.chat_address import name_of
from orbiter.memory.server.dashboard.page import Ask, Pages
from orbiter.memory.server.dashboard.scope_cache import ScopeCache

__all__ = ["pages"]

pages = Pages()

_MAX_VALUES = 20
_READ = 500
"""Values that are read of a field, the most frequent."""
_FIELDS = (*SCOPE_FIELDS, "chat", "key", "tag", "source")
_kept: ScopeCache[list[str]] = ScopeCache(seconds=20, most=200)


@pages.part("GET", "/ui/suggest")
async def suggest(ask: Ask) -> Response:
    """Return at most twenty values of a field that begin with, or else contain, what is typed."""
    field, typed = ask.text("field"), ask.text("q").strip()[:200].casefold()
    if field not in _FIELDS:
        raise QueryError(f"`field` is one of `{'`, `'.join(_FIELDS)}`")
    if field == "user_id" and not Query(metadata=ask.handle.scope).wanted:
        # An index leads to the names that begin so, however many there are.
        page = await ask.server.memory.users(
            starts_with=ask.text("q").strip()[:200], limit=_MAX_VALUES
        )
        first = [user.user_id for user in page]
        if first or not typed:
            return JSONResponse({"values": first})
    values = await _kept.get(ask, lambda: _read(ask.handle, field), field)
    begin = [each for each in values if each.casefold().startswith(typed)]
    within = [each for each in values if typed in each.casefold() and each not in begin]
    return JSONResponse({"values": [*begin, *within][:_MAX_VALUES]})


async def _read(handle: ScopedMemory, field: str) -> list[str]:
    if field == "chat":
        names = [name_of(each.metadata) for each in await handle.chats(limit=_READ)]
        return list(dict.fromkeys(names))
    name = {"key": "fact", "tag": "tags"}.get(field, field)
    only = "fact" if field == "key" else None
    counted = await handle.count_by(name, memory_type=only, limit=_READ)
    return [each.value for each in counted if isinstance(each.value, str)]
