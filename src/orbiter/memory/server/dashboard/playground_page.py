"""The playground: a chat next to its memory, to see what each turn recalls, sends and keeps.

Without a model the answers are scripted from what was recalled. With one, the server asks it, and
its key stays on the server.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from orbiter.memory.errors import (
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
    UnsupportedError,
)
from orbiter.memory.model.items import SCRIPTED, AIMemory, MemoryItem, MemoryMetadata, role_of
from orbiter.memory.server.dashboard.chat_address import Watched, chat_of
from orbiter.memory.server.dashboard.context_lab import Task, result_of
from orbiter.memory.server.dashboard.page import Ask, Data, Pages, as_number, scope_of
from orbiter.memory.server.dashboard.slow_parts import slow_part
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.summarizers.openai_summarizer import ChatModel

__all__ = ["pages", "scripted_reply"]

_LOG = logging.getLogger(__name__)
pages = Pages()

_CHAT = "playground"
_BUDGET = 1_000
_MAX_BUDGET = 100_000
_MEMORIES = 5
_MAX_TEXT = 20_000
_ROUNDS = 10
"""Rounds of the chat that are shown."""


@pages.page("/playground", "playground.html", title="Playground")
async def playground(ask: Ask) -> Data:
    """Show the chat, and nothing recalled yet."""
    name = _name(ask)
    has_owner = bool(scope_of(ask.handle.scope))
    return {
        "chat": name,
        "budget": ask.text("budget") or str(_BUDGET),
        "asked": {each: ask.text(each) for each in ("user_id", "agent_id")},
        "held": ask.principal.scope,
        "has_owner": has_owner,
        "model": _model_name(ask.server.settings),
        "turns": await _turns(ask, name) if has_owner else [],
        "turn": None,
        "why": "",
    }


@pages.part("POST", "/ui/playground", role="write")
async def say(ask: Ask) -> Response:
    """Take a turn: recall, assemble, ask the model, keep both messages."""
    form, name = await ask.form(), _name(ask)
    text = form.get("message", "").strip()
    if not text:
        raise QueryError("write a message first")
    if len(text) > _MAX_TEXT:
        raise QueryError(f"a message has at most {_MAX_TEXT:,} letters here")
    if not scope_of(ask.handle.scope):
        raise QueryError("choose a user or an agent first")
    budget = as_number("budget", form.get("budget", ""), _BUDGET, least=50, most=_MAX_BUDGET)

    async def work() -> Data:
        watched = Watched(ask.handle, ask.handle.scope)
        chat = chat_of(watched, name)
        task = Task(text, name, budget, "openai", _MEMORIES, "")
        result: dict[str, Any] = await result_of(watched, chat, task)
        settings = ask.server.settings
        answer: MemoryItem | dict[str, str]
        if settings.playground_url is None:
            reply = scripted_reply(result["memories"])
            extra = MemoryMetadata(extra={SCRIPTED: True})
            answer = AIMemory(content=reply, metadata=extra)
        else:
            model = _model(settings)
            try:
                reply = await model.reply(result["messages"]["openai"]["sent"]["messages"])
            except (MemoryConnectionError, MemoryTimeoutError) as exc:
                return {
                    **await turn_data(result),
                    "kept": [],
                    "unsent": text,
                    "why": _why(ask, exc),
                }
            answer = {"role": "assistant", "content": reply or "…"}
        kept = await chat.add([{"role": "user", "content": text}, answer])
        return {**await turn_data(result), "kept": kept, "why": ""}

    async def turn_data(result: dict[str, Any]) -> Data:
        return {
            "chat": name,
            "turns": await _turns(ask, name),
            "turn": {**result, "sent": result["messages"]["openai"]["sent"]["messages"]},
        }

    return await slow_part(ask, "parts/playground.html", work)


def _why(ask: Ask, error: Exception) -> str:
    """Return why the model gave no answer; only who may see everyone's learns where it is."""
    if ask.principal.is_bound:
        _LOG.error("the model of the playground gave no answer: %s", error)
        return "the model gave no answer; try again later, or ask the administrator of the server"
    return str(error)


def scripted_reply(memories: Sequence[Mapping[str, Any]]) -> str:
    """Return what a model might say of the memories that it is shown, without one."""
    texts = [each["hit"].item.content for each in memories if each["state"] in _SEEN]
    if not texts:
        return "I remember nothing about that yet. I keep what you say, so ask me again later."
    first, *more = (" ".join(text[:300].split()).rstrip(".") for text in texts[:3])
    rest = "".join(f" I also remember: {text}." for text in more)
    return f"I remember: {first}.{rest}"


_SEEN = ("shown", "shortened")


def _model(settings: Settings) -> ChatModel:
    try:
        return ChatModel(
            model=settings.playground_model,
            base_url=str(settings.playground_url),
            api_key=settings.playground_key,
        )
    except ModuleNotFoundError as exc:
        raise UnsupportedError(str(exc)) from exc


def _model_name(settings: Settings) -> str | None:
    """Return which model answers, without where it is: that is the operator's."""
    return None if settings.playground_url is None else settings.playground_model


def _name(ask: Ask) -> str:
    return ask.text("chat").strip() or _CHAT


async def _turns(ask: Ask, name: str) -> list[MemoryItem]:
    chat = chat_of(Watched(ask.handle, ask.handle.scope), name)
    items = await chat.items(rounds=_ROUNDS)
    return [item for item in items if role_of(item) in ("human", "ai") and item.content]
