"""Browsing memories: `list` and `show`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._item_ids import (
    find_id,
    not_there,
    note_nothing,
    note_replaced,
)
from orbiter.memory.cli._options import (
    AsOf,
    Id,
    Kind,
    Since,
    Tagged,
    Until,
    Where,
    check_past,
    read_when,
    read_where,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import clean
from orbiter.memory.cli._views import (
    as_json,
    parts_of,
    print_items,
    said,
)

if TYPE_CHECKING:
    from orbiter.memory.agent import Page
    from orbiter.memory.model.items import MemoryItem

__all__ = ["app"]

app = new_app()
_SCREEN = 20
"""Memories that are listed at once where nobody said how many."""
_PAGE = 500
"""Memories read at once where all are listed."""


@command(app, "list", reads=True)
async def list_(  # noqa: PLR0913 - the filters
    run: CommandContext,
    *,
    query: Annotated[str, typer.Option("--query", help="Text that it contains.")] = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    tag: Tagged = None,
    forgotten: Annotated[
        bool, typer.Option("--forgotten", help="Forgotten memories, which can be restored.")
    ] = False,
    as_of: AsOf = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "-n", "--limit", min=1, help="At most this many; else 20 in a terminal, all in a pipe."
        ),
    ] = None,
    cursor: Annotated[
        str | None,
        typer.Option(help="Continue after a page: its `next`, or the id of its last memory."),
    ] = None,
) -> None:
    """List memories, newest first."""
    # A program that got the first few would take them for all; one that pages has a `next`.
    is_all = limit is None and not run.out.is_terminal and not (run.out.is_json and cursor)
    filters: dict[str, Any] = {
        "query": query,
        "where": read_where(where, tag),
        "memory_type": kind,
        "limit": _PAGE if is_all else limit or _SCREEN,
        "cursor": cursor,
    }
    bounds: dict[str, Any] = {
        "since": read_when("since", since),
        "until": read_when("until", until),
        "forgotten": forgotten,
    }
    then = read_when("as-of", as_of)
    if then is not None:
        check_past(**bounds)
    items: list[MemoryItem] = []
    ended: dict[str, str] = {}
    ids: list[str] = []
    after = None
    async with run.both(meaning=False) as (store, memory):
        if cursor is not None:
            cursor = await find_id(memory, cursor)
            filters |= {"cursor": cursor}
        ask = partial(memory.list, **bounds) if then is None else memory.as_of(then).list
        async for page in _pages(ask, filters, goes_on=is_all):
            after = page.next
            if run.out.is_json:
                items += page
                ended |= page.ended
            else:
                everyone = run.target.everyone
                print_items(run.out, page, first=len(ids) + 1, shows_scope=everyone)
            ids += [item.id for item in page]
        await run.note_default_user(store)
        if not ids:
            await note_nothing(
                run, store, f"no memories here{run.target.or_all('shows')}", kind=kind
            )
    note_replaced(run, query, where or "", *(tag or ()))
    if run.out.is_json:
        listed = [as_json(item) for item in items]
        run.out.data({"items": listed, "next": after, "ended": ended})
        return
    if after and run.out.is_terminal:  # what `$(…)` reads asks for no more
        run.out.note(f"there are more: --cursor {after}")


async def _pages(
    ask: "Callable[..., Awaitable[Page]]", filters: dict[str, Any], *, goes_on: bool
) -> "AsyncIterator[Page]":
    """Yield the page that is asked for, and with *goes_on* all that follow."""
    while True:
        page = await ask(**filters)
        yield page
        if page.next is None or not goes_on:
            return
        filters["cursor"] = page.next


@command(app, "show", reads=True)
async def show(run: CommandContext, item_id: Id) -> None:
    """Show one memory with all its details."""
    async with run.scoped(meaning=False) as memory:
        item_id = await find_id(memory, item_id)
        item = await memory.get(item_id)
        if item is None:
            raise await not_there(run.target, memory, item_id)
    if run.out.is_json:
        run.out.data(as_json(item))
        return
    for name, value in parts_of(item):
        run.out.show(styled((f"{name:<10} ", "dim"), value))
    run.out.show("")
    run.out.show(styled(clean(item.content) or said(item)))
