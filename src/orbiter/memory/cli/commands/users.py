"""Who has memories: `users`."""

import click

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._options import command, limit_option, output_options, store_options
from orbiter.memory.cli._text import moment

__all__ = ["users"]


@command("users")
@click.option(
    "--order",
    type=click.Choice(["name", "recent", "items"]),
    default="name",
    show_default=True,
    help="`recent`: last seen first; `items`: most memories first.",
)
@limit_option(50)
@click.option("--cursor", help="Continue after a page: its `next`, as `--json` has it.")
@store_options
@output_options
async def users(run: CommandContext, *, order: str, limit: int, cursor: str | None) -> None:
    """List the users who have memories or key-value entries."""
    async with run.memory(meaning=False) as memory:
        page = await memory.users(
            order=order,  # type: ignore[arg-type]  # one of these
            limit=limit,
            cursor=cursor,
        )
    if run.out.is_json:
        users = [
            {
                **each,
                "is_default": user.is_default,
                "first_at": user.first_at.isoformat(),
                "last_at": user.last_at.isoformat(),
            }
            for user, each in zip(page, page.to_dicts(), strict=True)
        ]
        run.out.data({"users": users, "next": page.next})
        return
    rows = [
        (
            each.user_id,
            each.items,
            each.chats,
            moment(each.first_at),
            moment(each.last_at),
            each.entries,
        )
        for each in page
    ]
    run.out.table(rows, ("user", "memories", "sessions", "first", "last", "key-value entries"))
    if page.next is not None:
        run.out.note("there are more; `--limit` lists more of them")
    elif not page:
        run.out.note("nobody has memories or key-value entries here")
