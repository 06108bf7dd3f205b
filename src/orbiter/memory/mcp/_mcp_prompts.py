"""Two prompts that a person may start: what is known of a question, and taking over work."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, ParamSpec

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.prompts import Prompt
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import Field

from orbiter.memory.context.entries import default_trust, message_entries
from orbiter.memory.context.prompt_fence import Entry, escape
from orbiter.memory.errors import MemoryError, QueryError
from orbiter.memory.mcp._rendering import known, within_budget
from orbiter.memory.mcp._tool_errors import told_of

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.mcp import HandleOfCall

__all__ = ["prompts"]

_P = ParamSpec("_P")
_BUDGET = 4_000
_HITS = 20
_ROUNDS = 15


def prompts(handle_of_call: "HandleOfCall") -> list[Prompt]:
    """Return the prompts over the handle of each call."""

    async def recall(
        ctx: Context, query: Annotated[str, Field(description="What you want to know.")]
    ) -> str:
        """Answer a question from memory, and say where it comes from."""
        hits = await handle_of_call(ctx).recall(_given("query", query), k=_HITS)
        told, _, _ = within_budget([known(hit) for hit in hits], _BUDGET)
        asked = escape(query)
        if not told:
            return f"Nothing is remembered about: {asked}\nSay so, and answer what you can."
        return (
            f"Answer this question from the memories below: {asked}\n"
            "Name the ids you relied on. Where they contradict each other, the newer one counts; "
            f"where they do not answer it, say so.\n\n{told}"
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
        found = await handle.recall(about, k=_HITS)
        shown, _, _ = within_budget([*entries, *(known(hit) for hit in found)], _BUDGET)
        if not shown:
            return "Nothing is remembered about this work. Say so, and ask what is to be done."
        return (
            "You take over work that another agent began. What it left is below: the summary and "
            "the newest messages of the conversation, newest first, then memories.\n"
            "First write, in a few lines: the goal; what is done; what was decided, and why; what "
            "is open or failed; what the person wants to be respected; the next step. Then go on "
            f"with that step.\n\n{shown}"
        )

    return [Prompt.from_function(_told(each)) for each in (recall, handoff)]


def _given(name: str, value: str) -> str:
    if not value.strip():
        raise QueryError(f"`{name}` is empty")
    return value


async def _said(handle: "ScopedMemory", chat_id: str) -> list[Entry]:
    """Return the summary and the messages of a conversation, newest first."""
    chat = handle.chat(chat_id)
    items = await chat.items(rounds=_ROUNDS, open_group="keep")
    if not items:
        raise QueryError(f"there is no conversation `{chat_id[:200]}` here")
    summary = await chat.summary()
    said = [entry for item in reversed(items) for entry in message_entries(item, default_trust)]
    return [Entry(summary, "summary of the conversation"), *said] if summary else said


def _told(prompt: Callable[_P, Awaitable[str]]) -> Callable[_P, Awaitable[str]]:
    """Have what goes wrong told: the SDK would say only that something did."""

    @wraps(prompt)
    async def told(*args: _P.args, **kwargs: _P.kwargs) -> str:
        try:
            return await prompt(*args, **kwargs)
        except MemoryError as exc:
            # A prompt does not know where it is read.
            raise MCPError(code=INVALID_PARAMS, message=told_of(exc, is_far=True)) from exc

    return told
