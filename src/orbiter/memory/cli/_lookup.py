"""Ids and users as people type them, and what to say where nothing is found.

Everything is looked up in the scope of the command, so another user's memory never matches.
"""

from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from click import UsageError

from orbiter.memory.cli._command_context import CommandContext, Target, pii_hook
from orbiter.memory.cli._error_messages import NotThereError, say
from orbiter.memory.cli._text import one_line, shortened
from orbiter.memory.cli._views import said

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory
    from orbiter.memory.model.items import MemoryItem
    from orbiter.memory.model.reports import ItemVersion
    from orbiter.memory.model.value_counts import UserInfo

__all__ = [
    "SHORTEST_PART",
    "ambiguous",
    "find_id",
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
_FEW_USERS = 3
"""Users who are named where somebody else has no memories."""


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


def note_replaced(run: CommandContext, *questions: str) -> None:
    """Say so if questions are asked with tokens: texts that are older than these are not found."""
    hook = None if run.target.is_remote() else pii_hook(run.target)  # a server has its own setting
    if hook is not None and any(hook(each) != each for each in questions):
        say(
            f"{run.target.origins['pii']} replaced personal data in the question; what was stored "
            "without that is found with `--pii none`",
            kind="note",
        )


async def note_nothing(
    run: CommandContext, memory: "AgentMemory", text: str, *, kind: str | None = None
) -> None:
    """Say that nothing was found, as *text* does; of a user without memories, who has some.

    A *kind* that is none is named. A server tells who there is only to administrators.
    """
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.model.serialization import unknown_kind  # noqa: PLC0415 - few need it

    if wrong := unknown_kind(kind):
        say(wrong, kind="note")
        return
    name = (run.target.scope() or {}).get("user_id")
    users: Sequence[UserInfo] = ()
    with suppress(MemoryError):
        users = await memory.users(limit=_NAMES, order="recent")
    known = {each.user_id: each for each in users}
    if name is None or not users or (name in known and known[name].items):
        run.out.note(text)
        return
    near = get_close_matches(name, known.keys() - {name}, n=1)
    others = [f"`{one_line(each)}`" for each in known if each != name]
    if name in known:
        ways = ", but key-value entries, which `orbiter-memory export` has"
    elif near:
        ways = f"; did you mean `{one_line(near[0])}`?"
    else:
        more = ", …" if len(others) > _FEW_USERS else ""
        some = ", ".join(others[:_FEW_USERS])
        ways = f"; there are some of {some}{more}: `--user NAME` shows those of one"
    say(f"no memories of {run.target.describe()}{ways}", kind="note")


async def near_user(memory: "AgentMemory", name: str | None) -> str:
    """Return which user may have been meant by a *name* that nobody has, as words to add."""
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415 - `--help` needs it not

    if name is None:
        return ""
    try:
        names = [each.user_id for each in await memory.users(limit=_NAMES)]
    except MemoryError:  # the key of a server may not know of others
        return ""
    near = get_close_matches(name, [each for each in names if each != name], n=1)
    return f"; did you mean `{one_line(near[0])}`?" if near else ""
