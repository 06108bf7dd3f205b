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

__all__ = [
    "complete_chats",
    "complete_fields",
    "complete_ids",
    "complete_names",
    "complete_tags",
    "quietly",
]

_WITHIN = 10.0
"""Seconds that a shell waits at most for a file."""
_WITHIN_AWAY = 1.0
"""The same for a store behind a network, which may not answer at all."""
_HERE = ("sqlite", "memory")
_MAX_IDS = 30
_MAX_NAMES = 500

Completions = list[tuple[str, str]]


def complete_ids(ctx: typer.Context, incomplete: str) -> Completions:
    """Return ids that begin with *incomplete*, newest first, with what each memory says.

    Those of imported memories begin with a mark that a shell takes for a home folder: they are
    offered without it, as commands take them.
    """
    from orbiter.memory.model.items import RESERVED  # noqa: PLC0415 - `--help` needs it not

    async def ids(_: "AgentMemory", memory: "ScopedMemory") -> Completions:
        marks = ("", RESERVED)
        starts = {"$or": [{"id": {"$prefix": mark + incomplete}} for mark in marks]}
        where = starts if incomplete else None
        forgotten = ctx.command.name == "restore"
        items = await memory.list(where=where, limit=_MAX_IDS, forgotten=forgotten)
        return [(_typed(item.id, incomplete), shortened(said(item), 60)) for item in items]

    def _typed(item_id: str, begun: str) -> str:
        return item_id if begun.startswith(RESERVED) else item_id.removeprefix(RESERVED)

    return _ask(ctx, ids)


def complete_tags(ctx: typer.Context, incomplete: str) -> Completions:
    """Return the tags of the scope, most frequent first."""

    async def tags(_: "AgentMemory", memory: "ScopedMemory") -> Completions:
        counts = await memory.count_by("tags", limit=_MAX_NAMES)
        return _named([each.value for each in counts], incomplete)

    return _ask(ctx, tags)


def complete_fields(ctx: typer.Context, incomplete: str) -> Completions:
    """Return the fields by which the newest memories of the scope can be counted."""
    from orbiter.memory.model.query import SCOPE_FIELDS  # noqa: PLC0415 - `--help` needs it not

    async def names(_: "AgentMemory", memory: "ScopedMemory") -> Completions:
        newest = await memory.list(limit=_MAX_NAMES)
        extra = sorted({name for item in newest for name in item.metadata.extra})
        return _named([*extra, "memory_type", "status", *SCOPE_FIELDS], incomplete)

    return _ask(ctx, names)


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

    return quietly(ask, run.target)


def quietly(ask: "Callable[[], Coroutine[Any, Any, Completions]]", target: Target) -> Completions:
    """Return what *ask* finds at *target* within the time a shell waits; nothing if it fails."""
    try:
        scheme, mark, _ = (target.setting("url")[0] or "").partition("://")
        is_away = bool(mark) and scheme.lower() not in _HERE
        return asyncio.run(asyncio.wait_for(ask(), _WITHIN_AWAY if is_away else _WITHIN))
    except Exception:  # noqa: BLE001 - a shell shows what is said, in the middle of a line
        return []
