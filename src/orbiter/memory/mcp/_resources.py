"""What a client may attach to a conversation by its address: `memory://recent` and others.

Each is JSON: a client that puts it before a model shows it as a document, not as instructions.
"""

import json
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, ParamSpec
from urllib.parse import quote, unquote

from mcp.types import Resource, ResourceTemplate
from pydantic import Field

from orbiter.memory.context.entries import default_trust, message_entries
from orbiter.memory.context.prompt_fence import Entry, escape
from orbiter.memory.errors import ItemNotFoundError, MemoryError, QueryError
from orbiter.memory.mcp._rendering import cut, known, share, to_memory, within_budget
from orbiter.memory.mcp._sdk import Context, Prompt, mistake
from orbiter.memory.mcp._tools import error_text
from orbiter.memory.mcp.graph import Graph
from orbiter.memory.model.facts import ALWAYS
from orbiter.memory.model.items import role_of
from orbiter.memory.text.ranking import for_prompt

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.mcp._caller import HandleOfCall

__all__ = [
    "CHAT_ARGUMENTS",
    "GRAPH",
    "MIME",
    "RESOURCES",
    "TEMPLATES",
    "chat_names",
    "item_uri",
    "prompts",
    "read",
]


MIME = "application/json"
_SCHEME = "memory://"
_RECENT = 20
_MAX_FACTS = 200
_ROUNDS = 20


def _labels(name: str, title: str, description: str) -> dict[str, str]:
    return {"name": name, "title": title, "description": description, "mimeType": MIME}


def _resource(name: str, title: str, description: str) -> Resource:
    labels = _labels(name, title, description)
    return Resource.model_validate({"uri": f"{_SCHEME}{name}", **labels})


def _template(name: str, title: str, description: str) -> ResourceTemplate:
    labels = _labels(name, title, description)
    return ResourceTemplate.model_validate({"uriTemplate": f"{_SCHEME}{name}/{{id}}", **labels})


RESOURCES = (
    _resource("recent", "Recent memories", "The newest memories."),
    _resource("profile", "Profile", "The facts that are valid now."),
)
GRAPH = _resource("knowledge-graph", "Knowledge graph", "All entities and relations.")
"""The reference knowledge-graph server's own; the profile `kg` shows it, too."""

TEMPLATES = (
    _template("item", "A memory", "One memory, with its full text."),
    _template("chat", "A conversation", "The summary and the newest messages of a conversation."),
)


CHAT_ARGUMENTS = (("handoff", "chat"), (f"{_SCHEME}chat/{{id}}", "id"))
"""The arguments of prompts and templates that name a conversation."""

_MAX_COMPLETIONS = 100  # the protocol's own limit
_P = ParamSpec("_P")
_BUDGET = 4_000
_HITS = 20
_PROMPT_ROUNDS = 15


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


async def chat_names(handle: "ScopedMemory", begin: str) -> list[str]:
    """Return the names of conversations that begin so, newest first."""
    chats = await handle.chats(limit=_MAX_COMPLETIONS)
    names = dict.fromkeys(chat.metadata.session_id or "" for chat in chats)
    return [name for name in names if name and name.startswith(begin)]


async def _recent(handle: "ScopedMemory") -> str:
    page = await handle.list(limit=_RECENT)
    max_chars = share(len(page))
    memories = [
        to_memory(each, most=max_chars).model_dump(mode="json", exclude_none=True) for each in page
    ]
    return _dumped({"memories": memories})


async def _profile(handle: "ScopedMemory") -> str:
    facts = await handle.facts.all()
    rows = {
        key: {
            "value": fact.value,
            "since": None if fact.valid_from == ALWAYS else fact.valid_from.isoformat(),
            "id": fact.id,
        }
        for key, fact in list(facts.items())[:_MAX_FACTS]
    }
    return _dumped({"facts": rows, "left_out": max(0, len(facts) - _MAX_FACTS)})


async def _graph(handle: "ScopedMemory") -> str:
    stored = await Graph(handle).read()
    entities = [stored.entity(name).model_dump(mode="json") for name in stored.kinds]
    relations = [each.model_dump(mode="json", by_alias=True) for each in stored.relations]
    return _dumped({"entities": entities, "relations": relations})


async def _item(handle: "ScopedMemory", item_id: str) -> str:
    item = await handle.get(item_id)
    if item is None:
        raise ItemNotFoundError(item_id)
    return _dumped(to_memory(item, most=2**30).model_dump(mode="json", exclude_none=True))


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


def prompts(handle_of_call: "HandleOfCall") -> list[Prompt]:
    """Return the prompts over the handle of each call."""

    async def recall(
        ctx: Context, query: Annotated[str, Field(description="What you want to know.")]
    ) -> str:
        """Answer a question from memory, and say where it comes from."""
        recalled = await handle_of_call(ctx).recall(_require_text("query", query), k=_HITS)
        hits = for_prompt(recalled)
        text, _, _ = within_budget([known(hit) for hit in hits], _BUDGET)
        question = escape(query)
        if not text:
            return f"There are no memories about: {question}\nSay so, and answer what you can."
        return (
            f"Answer this question from the memories below: {question}\n"
            "Name the ids you relied on. Where they contradict each other, the newer one counts; "
            f"where they do not answer it, say so.\n\n{text}"
        )

    async def handoff(
        ctx: Context,
        chat: Annotated[str, Field(description="The conversation to take over.")] = "",
        topic: Annotated[str, Field(description="Or what the work is about.")] = "",
    ) -> str:
        """Tell the next agent what it must know to go on."""
        handle = handle_of_call(ctx)
        if not chat.strip() and not topic.strip():
            raise QueryError("name the `chat` to take over, or the `topic` of the work")
        entries = await _said(handle, chat.strip()) if chat.strip() else []
        about = topic.strip() or (entries[0].content[:500] if entries else chat)
        hits = await handle.recall(about, k=_HITS)
        text, _, _ = within_budget([*entries, *(known(hit) for hit in hits)], _BUDGET)
        if not text:
            return "There are no memories about this work. Say so, and ask what is to be done."
        return (
            "You take over work that another agent began. What it left is below: the summary and "
            "the newest messages of the conversation, newest first, then memories.\n"
            "First write, in a few lines: the goal; what is done; what was decided, and why; what "
            "is open or failed; what the person wants to be respected; the next step. Then go on "
            f"with that step.\n\n{text}"
        )

    return [Prompt.from_function(_with_error_text(each)) for each in (recall, handoff)]


def _require_text(name: str, value: str) -> str:
    if not value.strip():
        raise QueryError(f"`{name}` is empty")
    return value


async def _said(handle: "ScopedMemory", chat_id: str) -> list[Entry]:
    """Return the summary and the messages of a conversation, newest first."""
    chat = handle.chat(chat_id)
    items = await chat.items(rounds=_PROMPT_ROUNDS, open_group="keep")
    if not items:
        raise QueryError(f"there is no conversation `{chat_id[:200]}` here")
    summary = await chat.summary()
    said = [entry for item in reversed(items) for entry in message_entries(item, default_trust)]
    return [Entry(summary, "summary of the conversation"), *said] if summary else said


def _with_error_text(prompt: Callable[_P, Awaitable[str]]) -> Callable[_P, Awaitable[str]]:
    """Have what goes wrong told: the SDK would say only that something did."""

    @wraps(prompt)
    async def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> str:
        try:
            return await prompt(*args, **kwargs)
        except MemoryError as exc:
            # A prompt does not know where it is read.
            raise mistake(error_text(exc, is_far=True)) from exc

    return wrapper
