"""Who has memories, and which values they have: `users` and `count`."""

from typing import Annotated

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._error_messages import UsageError
from orbiter.memory.cli._options import Kind, Since, Until, Where, read_when, read_where
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import ago, counted, dumps, moment, one_line, stored

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
            chats = counted(each.chats, "chat", "chats")
            details = f"  {stored(each.items, each.entries)}, {chats}, last {ago(each.last_at)}"
            run.out.show(styled((one_line(each.user_id), "bold"), named, (details, "dim")))
    if page.next is not None:
        run.out.note("there are more; `--limit` lists more of them")
    elif not page:
        run.out.note("nobody has memories or key-value entries here")


@command(app, "count")
async def count(
    run: CommandContext,
    field: Annotated[
        str,
        typer.Argument(help="Such as `tags`, `memory_type`, `session_id`, or a key of extra."),
    ],
    *,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    limit: Limit = 50,
) -> None:
    """Count memories by the values of a field, most frequent first."""
    async with run.scoped(meaning=False) as memory:
        counts = await memory.count_by(
            field,
            where=read_where(where),
            memory_type=kind,
            since=read_when("since", since),
            until=read_when("until", until),
            limit=limit,
        )
    if run.out.is_json:
        run.out.data([{"value": each.value, "items": each.items} for each in counts])
        return
    for each in counts:
        value = each.value if isinstance(each.value, str) else dumps(each.value, indent=None)
        if run.out.is_plain():
            run.out.rows([(each.items, value)])
        else:
            run.out.show(styled((f"{each.items:>8,}  ", "cyan"), one_line(value)))
    if not counts:
        run.out.note(f"no memory has a value of `{one_line(field)}`")
