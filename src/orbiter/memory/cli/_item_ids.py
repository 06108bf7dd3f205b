"""Ids and names as people type them: whole, or a beginning or an end of an id.

Everything is looked up in the scope of the command, so another user's memory never matches.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from orbiter.memory.cli._command import CommandContext, Target
from orbiter.memory.cli._error_messages import NotThereError, UsageError, say
from orbiter.memory.cli._settings_file import pii_hook
from orbiter.memory.cli._text import counted, one_line, shortened
from orbiter.memory.cli._views import said

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory
    from orbiter.memory.model.items import MemoryItem
    from orbiter.memory.model.reports import ItemVersion

__all__ = [
    "SHORTEST_PART",
    "ambiguous",
    "counts_of_user",
    "find_id",
    "find_ids",
    "near_user",
    "not_there",
    "note_nothing",
    "note_replaced",
    "past_of",
]

SHORTEST_PART = 4
"""Characters that a part of an id has at least."""
_MAX_CANDIDATES = 5
"""Candidates of an ambiguous id that are named."""
_NAMES = 500
"""Users among whom one with a name like the one given is looked for."""


async def find_ids(memory: "ScopedMemory", texts: Sequence[str]) -> list[str]:
    """Return the ids that *texts* mean: see `find_id`."""
    return [await find_id(memory, text) for text in texts]


async def find_id(memory: "ScopedMemory", text: str) -> str:
    """Return the id that *text* means in the scope of *memory*; *text* itself if it means none.

    `UsageError` if several memories have it.
    """
    if len(text) < SHORTEST_PART or await memory.get(text) is not None:
        return text
    matches = await _candidates(memory, text)
    if len(matches) > 1:
        raise ambiguous(text, [(each.id, said(each)) for each in matches])
    return matches[0].id if matches else text


def ambiguous(text: str, matches: Sequence[tuple[str, str]]) -> UsageError:
    """Return the error for a part of several ids; *matches* are these, each with what it is."""
    more = ", …" if len(matches) > _MAX_CANDIDATES else ""
    lines = [f"  {each}  {shortened(about, 60)}" for each, about in matches[:_MAX_CANDIDATES]]
    return UsageError(
        f"`{text}` is ambiguous; give more of the id, from its beginning or its end:\n"
        + "\n".join(lines)
        + more
    )


async def _candidates(memory: "ScopedMemory", text: str) -> "Sequence[MemoryItem]":
    """Return memories with *text* as a part of their id; forgotten ones come last."""
    from orbiter.memory.agent.short_ids import find_by_part  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415

    for forgotten in (False, True):
        with suppress(UnsupportedError):  # a Redis keeps nothing that was forgotten
            limit = _MAX_CANDIDATES + 1
            matches = await find_by_part(memory, text, limit=limit, forgotten=forgotten)
            if matches:
                return matches
    return []


async def past_of(memory: "ScopedMemory", item_id: str) -> "list[ItemVersion]":
    """Return the versions of a memory, oldest first; none where a store keeps none."""
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415 - `--help` needs it not

    try:
        return await memory.history(item_id)
    except UnsupportedError:  # a Redis
        return []


async def not_there(target: Target, memory: "ScopedMemory", item_id: str) -> NotThereError:
    """Return the error for a memory that *memory* has not."""
    past = await past_of(memory, item_id)
    if past and past[-1].change == "deleted":
        return NotThereError(
            f"the memory `{item_id}` of {target.describe()} was forgotten; "
            f"`orbiter-memory restore {item_id}` brings it back"
        )
    way = "`list` shows some" if target.everyone else "`--all` shows everyone's"
    if len(item_id) < SHORTEST_PART:
        way = "give four or more characters of its id"
    return NotThereError(f"there is no memory `{item_id}` of {target.describe()}; {way}")


# What is said where nothing was found


def note_replaced(run: CommandContext, *questions: str) -> None:
    """Say so if questions are asked with tokens: texts that are older than these are not found."""
    if run.target.is_remote():  # which has its own setting
        return
    chosen, origin = run.target.setting("pii")
    hook = pii_hook(chosen, origin)
    if hook is not None and any(hook(each) != each for each in questions):
        say(
            f"{origin} replaced personal data in the question; what was stored without that is "
            "found with `--pii none`",
            kind="note",
        )


async def note_nothing(
    run: CommandContext, memory: "AgentMemory", text: str, *, kind: str | None = None
) -> None:
    """Say that nothing was found; of a scope without memories, where there are some.

    *text* is what is said of all others, if someone is watching. A *kind* that is none is named.
    """
    from orbiter.memory.model.serialization import unknown_kind  # noqa: PLC0415 - few need it

    if wrong := unknown_kind(kind):
        say(wrong, kind="note")
        return
    name = (run.target.scope() or {}).get("user_id")
    items, entries = (1, 0) if name is None else await counts_of_user(memory, name)
    if name is not None and not items and entries:
        has = counted(entries, "key-value entry", "key-value entries")
        way = "`orbiter-memory kv` lists them"
        say(f"no memories of {run.target.describe()}, but {has}; {way}", kind="note")
    elif name is not None and not items and (ways := await _others(run, memory, name)):
        say(f"no memories of {run.target.describe()}{ways}", kind="note")
    elif items and name is not None and await _is_empty_part(run, memory):
        way = f"`--user {name}` alone is for all of this user's"
        say(f"no memories of {run.target.describe()}; {way}", kind="note")
    else:
        run.out.note(text)


async def _is_empty_part(run: CommandContext, memory: "AgentMemory") -> bool:
    """Tell whether the scope is a part of a user's memories, and has none."""
    scope = run.target.scope() or {}
    return len(scope) > 1 and not (await memory.scope(**scope).stats()).items


async def _others(run: CommandContext, memory: "AgentMemory", name: str) -> str:
    """Return whose memories there are instead, as words to add; nothing for whoever may not know.

    A server tells it only to the key of an administrator of everyone.
    """
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415 - `--help` needs it not

    if near := await near_user(memory, name):
        return near
    try:
        users = await memory.users(limit=_FEW_USERS + 1, order="recent")
    except MemoryError:
        return ""
    others = [f"`{one_line(each.user_id)}`" for each in users if each.user_id != name]
    if not others:
        return run.target.or_all("shows") if (await memory.stats()).items else ""
    more = ", …" if len(others) > _FEW_USERS else ""
    return (
        f"; there are some of {', '.join(others[:_FEW_USERS])}{more}: `--user NAME` shows those of "
        f"one, `orbiter-memory users` lists all{run.target.or_all('shows')}"
    )


_FEW_USERS = 3
"""Users who are named where somebody else has no memories."""


async def counts_of_user(memory: "AgentMemory", name: str) -> tuple[int, int]:
    """Return how many memories and entries a user has; as for one with memories if none may know.

    A server tells it only to the key of an administrator.
    """
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415 - `--help` needs it not

    try:
        users = await memory.users(starts_with=name, limit=1)  # the shortest name is the first
    except MemoryError:
        return 1, 0
    return next(((each.items, each.entries) for each in users if each.user_id == name), (0, 0))


async def near_user(memory: "AgentMemory", name: str | None) -> str:
    """Return which user may have been meant by a *name* that nobody has, as words to add."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where a name is wrong

    from orbiter.memory.errors import MemoryError  # noqa: PLC0415 - `--help` needs it not

    if name is None:
        return ""
    try:
        names = [each.user_id for each in await memory.users(limit=_NAMES)]
    except MemoryError:  # the key of a server may not know of others
        return ""
    near = get_close_matches(name, [each for each in names if each != name], n=1)
    return f"; did you mean `{one_line(near[0])}`?" if near else ""
