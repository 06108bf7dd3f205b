"""What a client may attach to a conversation by its address: `memory://recent` and others.

Each is JSON: a client that puts it before a model shows it as a document, not as instructions.
"""

import json
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from mcp_types import Resource, ResourceTemplate

from orbiter.memory.errors import ItemNotFoundError, QueryError
from orbiter.memory.mcp._rendering import cut, share, shown
from orbiter.memory.mcp.graph import Graph
from orbiter.memory.model.facts import ALWAYS
from orbiter.memory.model.items import role_of

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory

__all__ = ["GRAPH", "MIME", "RESOURCES", "TEMPLATES", "item_uri", "read"]

MIME = "application/json"
_SCHEME = "memory://"
_RECENT = 20
_MOST_FACTS = 200
_ROUNDS = 20

RESOURCES = (
    Resource(
        uri=f"{_SCHEME}recent",
        name="recent",
        title="Recent memories",
        description="The newest memories.",
        mime_type=MIME,
    ),
    Resource(
        uri=f"{_SCHEME}profile",
        name="profile",
        title="Profile",
        description="The facts that hold now.",
        mime_type=MIME,
    ),
)
GRAPH = Resource(
    uri=f"{_SCHEME}knowledge-graph",
    name="knowledge-graph",
    title="Knowledge graph",
    description="All entities and relations.",
    mime_type=MIME,
)
"""The reference knowledge-graph server's own; the profile `kg` shows it, too."""

TEMPLATES = (
    ResourceTemplate(
        uri_template=f"{_SCHEME}item/{{id}}",
        name="item",
        title="A memory",
        description="One memory, whole.",
        mime_type=MIME,
    ),
    ResourceTemplate(
        uri_template=f"{_SCHEME}chat/{{id}}",
        name="chat",
        title="A conversation",
        description="The summary and the newest messages of a conversation.",
        mime_type=MIME,
    ),
)


def item_uri(item_id: str) -> str:
    """Return the address of a memory."""
    return f"{_SCHEME}item/{quote(item_id, safe='')}"


async def read(handle: "ScopedMemory", uri: str) -> str:
    """Return the JSON of a resource; `QueryError` if the address is none of ours."""
    kind, _, name = uri.removeprefix(_SCHEME).partition("/")
    if uri.startswith(_SCHEME):
        if kind == "recent" and not name:
            return await _recent(handle)
        if kind == "profile" and not name:
            return await _profile(handle)
        if kind == "knowledge-graph" and not name:
            return await _graph(handle)
        if kind == "item" and name:
            return await _item(handle, unquote(name))
        if kind == "chat" and name:
            return await _chat(handle, unquote(name))
    raise QueryError(
        f"there is no resource `{cut(uri, 200)}`; there are `memory://recent`, `memory://profile`, "
        "`memory://item/{id}` and `memory://chat/{id}`"
    )


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


async def _recent(handle: "ScopedMemory") -> str:
    page = await handle.list(limit=_RECENT)
    most = share(len(page))
    found = [shown(each, most=most).model_dump(mode="json", exclude_none=True) for each in page]
    return _dumped({"memories": found})


async def _profile(handle: "ScopedMemory") -> str:
    facts = await handle.facts.all()
    told = {
        key: {
            "value": fact.value,
            "since": None if fact.valid_from == ALWAYS else fact.valid_from.isoformat(),
            "id": fact.id,
        }
        for key, fact in list(facts.items())[:_MOST_FACTS]
    }
    return _dumped({"facts": told, "left_out": max(0, len(facts) - _MOST_FACTS)})


async def _graph(handle: "ScopedMemory") -> str:
    stored = await Graph(handle).read()
    entities = [stored.entity(name).model_dump(mode="json") for name in stored.kinds]
    relations = [each.model_dump(mode="json", by_alias=True) for each in stored.relations]
    return _dumped({"entities": entities, "relations": relations})


async def _item(handle: "ScopedMemory", item_id: str) -> str:
    item = await handle.get(item_id)
    if item is None:
        raise ItemNotFoundError(item_id)
    return _dumped(shown(item, most=2**30).model_dump(mode="json", exclude_none=True))


async def _chat(handle: "ScopedMemory", chat_id: str) -> str:
    chat = handle.chat(chat_id)
    items = await chat.items(rounds=_ROUNDS)
    if not items:
        raise QueryError(f"there is no conversation `{cut(chat_id, 200)}` here")
    most = share(len(items))
    messages = [
        {
            "role": role_of(each) or each.memory_type,
            "text": cut(each.content, most),
            "at": each.created_at.isoformat(timespec="seconds"),
            "id": each.id,
        }
        for each in items
    ]
    return _dumped({"chat": chat_id, "summary": await chat.summary(), "messages": messages})
