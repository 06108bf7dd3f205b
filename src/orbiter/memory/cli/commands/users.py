"""Who has what beside single memories: `users`, `count` and `kv`."""

import codecs
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._command import CommandContext, command, is_served, new_app
from orbiter.memory.cli._completion import complete_fields
from orbiter.memory.cli._error_messages import NotThereError, UsageError, say
from orbiter.memory.cli._item_ids import note_nothing
from orbiter.memory.cli._options import Kind, Since, Until, Where, read_when, read_where
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import ago, counted, dumps, moment, one_line, shortened, stored

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory
    from orbiter.memory.model.key_value import Entry, StoredEntry

__all__ = ["app"]

app = new_app()
_ORDERS = ("name", "recent", "items")

Limit = Annotated[int, typer.Option("-n", "--limit", min=1, help="At most this many.")]


@command(app, "users", scope=False)
async def users(
    run: CommandContext,
    *,
    starts_with: Annotated[
        str, typer.Option("--starts-with", metavar="TEXT", help="Only names that begin so.")
    ] = "",
    order: Annotated[
        str,
        typer.Option("--order", help="`name`, `recent` (last seen first) or `items` (most first)."),
    ] = "name",
    limit: Limit = 50,
    cursor: Annotated[
        str | None, typer.Option(help="Continue after a page: its `next`, as `--json` has it.")
    ] = None,
) -> None:
    """List the users who have memories or key-value entries: how many, and since when."""
    if order not in _ORDERS:
        raise UsageError(f"`--order` is one of `{'`, `'.join(_ORDERS)}`, not `{one_line(order)}`")
    async with run.memory(meaning=False) as memory:
        page = await memory.users(
            starts_with=starts_with,
            order=order,  # type: ignore[arg-type]  # one of these
            limit=limit,
            cursor=cursor,
        )
    if run.out.is_json:
        rows = [
            {
                **each,
                "is_default": user.is_default,
                "first_at": user.first_at.isoformat(),
                "last_at": user.last_at.isoformat(),
            }
            for user, each in zip(page, page.to_dicts(), strict=True)
        ]
        run.out.data({"users": rows, "next": page.next})
        return
    if run.out.is_plain():
        run.out.rows(
            (
                each.user_id,
                each.items,
                each.chats,
                moment(each.first_at),
                moment(each.last_at),
                each.entries,
            )
            for each in page
        )
    else:
        for each in page:
            named = " (the default user)" if each.is_default else ""
            sessions = counted(each.chats, "session", "sessions")
            since, last = moment(each.first_at)[:10], ago(each.last_at)
            details = (
                f"  {stored(each.items, each.entries)}, {sessions}, since {since}, last {last}"
            )
            run.out.show(styled((one_line(each.user_id), "bold"), named, (details, "dim")))
    if page.next is not None:
        run.out.note("there are more; `--limit` lists more of them")
    elif not page:
        run.out.note("nobody has memories or key-value entries here")


@command(app, "count", reads=True)
async def count(
    run: CommandContext,
    field: Annotated[
        str,
        typer.Argument(
            help="Such as `tags`, `memory_type`, `session_id`, or a key of extra.",
            autocompletion=complete_fields,
        ),
    ],
    *,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    limit: Limit = 50,
) -> None:
    """Count memories by the values of a field, most frequent first."""
    async with run.both(meaning=False) as (store, memory):
        counts = await memory.count_by(
            field,
            where=read_where(where),
            memory_type=kind,
            since=read_when("since", since),
            until=read_when("until", until),
            limit=limit,
        )
        if not counts:
            nothing = f"no memory has a value of `{one_line(field)}`"
            await note_nothing(run, store, nothing, kind=kind)
    if run.out.is_json:
        run.out.data([{"value": each.value, "items": each.items} for each in counts])
        return
    for each in counts:
        value = each.value if isinstance(each.value, str) else dumps(each.value, indent=None)
        if run.out.is_plain():
            run.out.rows([(each.items, value)])
        else:
            run.out.show(styled((f"{each.items:>8,}  ", "cyan"), one_line(value)))


_LONGEST = 2_000
"""Characters of a value that are worth a look in a list."""
_PAGE = 500
"""Entries that are asked of a server at once."""


@command(app, "kv", reads=True)
async def kv(
    run: CommandContext,
    name: Annotated[
        str, typer.Argument(help="`path/key` of an entry, which is printed, or a path.")
    ] = "",
    *,
    limit: Limit = 50,
) -> None:
    """List key-value entries, or print the value of one."""
    async with run.both(meaning=False) as (memory, handle):
        scope = run.target.scope()
        every = await _entries(memory, handle, scope)
        if not every and not name:
            await note_nothing(run, memory, "no key-value entries here")
    start = f"{name.rstrip('/')}/"
    listed = [each for each in every if not name or f"{_name(each)}/".startswith(start)]
    same = [each for each in listed if _name(each) == name]
    # That of the scope itself, else the only one: of several, each must say whose it is.
    one = [each for each in same if _scope(each) == scope] or same
    if name and not listed:
        raise NotThereError(
            f"there is no entry at `{one_line(name)}` of {run.target.describe()}; "
            "`orbiter-memory kv` lists them"
        )
    if len(one) == 1 and not run.out.is_json:
        _print_value(run, one[0].entry.value)
        return
    if run.out.is_json:
        run.out.data([_as_json(each) for each in listed])
        return
    for each in listed[:limit]:
        entry, text = each.entry, _text(each.entry.value)
        size = counted(len(entry.value), "byte", "bytes")
        owner = _owner(each, everyone=run.target.everyone)
        if run.out.is_plain():
            when = moment(entry.updated_at)
            run.out.rows([(_name(each), entry.version, when, size, text or "", owner)])
            continue
        details = f"  version {entry.version}, {size}, {ago(entry.updated_at)}"
        details += f", {owner}" if owner else ""
        run.out.show(styled((one_line(_name(each)), "bold"), (details, "dim")))
        if text:
            run.out.show(styled(f"  {shortened(text, 2 * run.out.console.width)}"))
    if len(listed) > limit:
        run.out.note(f"there are {len(listed) - limit:,} more; `--limit` lists more of them")


async def _entries(
    memory: "AgentMemory", handle: "ScopedMemory", scope: dict[str, str] | None
) -> "list[StoredEntry]":
    """Return the entries of a scope: on a server those of just this scope, else all within it."""
    from orbiter.memory.model.items import MemoryMetadata  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.model.key_value import StoredEntry  # noqa: PLC0415
    from orbiter.memory.transfer.native import entry_pages  # noqa: PLC0415

    owner = None if scope is None else MemoryMetadata(**scope)
    if is_served(memory) and owner is None:
        users = page = await memory.users(limit=_PAGE)
        while page.next is not None:
            page = await memory.users(limit=_PAGE, cursor=page.next)
            users += page
        say(
            "of a server, `--all` lists the entries of users, not those of their sessions and "
            "agents; `orbiter-memory export` has all",
            kind="note",
        )
        return [
            StoredEntry(MemoryMetadata(user_id=user.user_id), entry)
            for user in users
            for entry in await _all_of(
                memory.default_user if user.is_default else memory.scope(user.user_id)
            )
        ]
    if is_served(memory):
        return [StoredEntry(owner or MemoryMetadata(), each) for each in await _all_of(handle)]
    return [each async for page in entry_pages(memory.store, owner) for each in page]


async def _all_of(handle: "ScopedMemory") -> "list[Entry]":
    own = await handle.kv.list(limit=_PAGE)
    while len(own) % _PAGE == 0 and (more := await _after(handle, own)):
        own += more
    return own


async def _after(handle: "ScopedMemory", own: "list[Entry]") -> "list[Entry]":
    return await handle.kv.list(after=own[-1], limit=_PAGE) if own else []


def _print_value(run: CommandContext, value: bytes) -> None:
    """Print a value: to a program as it is, to a terminal as text without control characters."""
    if run.out.is_terminal:
        run.out.text(value.decode(errors="replace"))
    else:
        sys.stdout.buffer.write(value)


def _name(each: "StoredEntry") -> str:
    return "/".join((*each.entry.path, each.entry.key))


def _text(value: bytes) -> str | None:
    """Return a value as one line, if it is text."""
    try:
        # What is cut off may be the rest of a character.
        start, is_whole = value[: 4 * _LONGEST], len(value) <= 4 * _LONGEST
        text = codecs.getincrementaldecoder("utf-8")().decode(start, final=is_whole)
        return one_line(text[:_LONGEST])
    except UnicodeDecodeError:
        return None


def _owner(each: "StoredEntry", *, everyone: bool) -> str:
    """Return what of the scope tells one entry from another."""
    return ", ".join(
        f"{name.removesuffix('_id')} {one_line(value)}"
        for name, value in _scope(each).items()
        if everyone or name != "user_id"
    )


def _scope(each: "StoredEntry") -> dict[str, str]:
    named: dict[str, str] = each.scope.model_dump(exclude={"extra"}, exclude_none=True)
    return named


def _as_json(each: "StoredEntry") -> dict[str, object]:
    entry = each.entry
    try:
        value = {"value": entry.value.decode()}
    except UnicodeDecodeError:
        value = {"base64": b64encode(entry.value).decode()}
    ends = {} if entry.expires_at is None else {"expires_at": entry.expires_at.isoformat()}
    return {
        **_scope(each),
        "path": list(entry.path),
        "key": entry.key,
        **value,
        "version": entry.version,
        "created_at": entry.created_at.isoformat(),
        "updated_at": entry.updated_at.isoformat(),
        **ends,
    }
