"""Shell completion of ids and names, read from the store of the command line so far.

A shell waits for it, and shows whatever it writes: so it is quick, silent, and makes no store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer

from orbiter.memory.cli._command import CommandContext, Target, is_missing, name_completers
from orbiter.memory.cli._output import Output
from orbiter.memory.cli._text import one_line, shortened
from orbiter.memory.cli._views import said

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory

__all__ = ["complete_chats", "complete_ids", "complete_names", "quietly"]

_WITHIN = 10.0
"""Seconds that a shell waits at most, for a server that does not answer."""
_MAX_IDS = 30
_MAX_NAMES = 500

Completions = list[tuple[str, str]]


def complete_ids(ctx: typer.Context, incomplete: str) -> Completions:
    """Return ids that begin with *incomplete*, newest first, with what each memory says."""

    async def ids(_: "AgentMemory", memory: "ScopedMemory") -> Completions:
        where = {"id": {"$prefix": incomplete}} if incomplete else None
        forgotten = ctx.command.name == "restore"
        items = await memory.list(where=where, limit=_MAX_IDS, forgotten=forgotten)
        return [(item.id, shortened(said(item), 60)) for item in items]

    return _ask(ctx, ids)


def complete_chats(ctx: typer.Context, incomplete: str) -> Completions:
    """Return conversations of the scope, most recent first."""

    async def chats(_: "AgentMemory", memory: "ScopedMemory") -> Completions:
        scopes = [each.metadata for each in await memory.chats(limit=_MAX_NAMES)]
        return _named([scope.task_id or scope.session_id for scope in scopes], incomplete)

    return _ask(ctx, chats)


def complete_names(ctx: typer.Context, incomplete: str, name: str) -> Completions:
    """Return the users, sessions, tasks or agents that there are; *name* says which."""

    async def names(store: "AgentMemory", _: "ScopedMemory") -> Completions:
        if name == "user":
            users = await store.users(starts_with=incomplete, order="recent", limit=_MAX_NAMES)
            return _named([each.user_id for each in users], incomplete)
        field = f"{name}_id"
        where = {field: {"$prefix": incomplete}} if incomplete else None
        user = ctx.params.get("user")  # who was named on this line; others' are not theirs
        handle = store.scope(user_id=user) if user else store.unscoped()
        counts = await handle.count_by(field, where=where, limit=_MAX_NAMES)
        return _named([each.value for each in counts], incomplete)

    return _ask(ctx, names)


name_completers.append(complete_names)


def _named(names: Iterable[object], incomplete: str) -> Completions:
    texts = (name for name in names if isinstance(name, str) and name)
    unique = dict.fromkeys(name for name in texts if name.startswith(incomplete))
    # What a terminal would obey, or a shell would split, is not offered.
    return [(name, "") for name in unique if name == one_line(name)]


def _ask(
    ctx: typer.Context, read: "Callable[[AgentMemory, ScopedMemory], Awaitable[Completions]]"
) -> Completions:
    options: dict[str, Any] = {each.name: ctx.params.get(each.name) for each in fields(Target)}
    flags = {name: bool(options[name]) for name in ("everyone", "no_user")}
    run = CommandContext(Target(**{**options, **flags}), Output(is_json=True))

    async def ask() -> Completions:
        if is_missing(run.unopened(meaning=False)):
            return []
        async with run.both(meaning=False) as (store, memory):
            return await read(store, memory)

    return quietly(ask)


def quietly(ask: "Callable[[], Coroutine[Any, Any, Completions]]") -> Completions:
    """Return what *ask* finds within the time a shell waits, and nothing if it fails."""
    try:
        return asyncio.run(asyncio.wait_for(ask(), _WITHIN))
    except Exception:  # noqa: BLE001 - a shell shows what is said, in the middle of a line
        return []
