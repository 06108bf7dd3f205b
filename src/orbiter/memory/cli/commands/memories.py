"""Browsing memories: `list` and `show`."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._lookup import find_id, not_there, note_nothing, note_replaced
from orbiter.memory.cli._options import (
    Filters,
    as_of_option,
    check_past,
    command,
    filter_options,
    limit_option,
    memory_options,
    output_options,
    read_when,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import clean, moment, one_line
from orbiter.memory.cli._views import (
    CHANGES,
    as_json,
    differences,
    entry,
    parts_of,
    print_items,
    said,
)

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.model.items import MemoryItem
    from orbiter.memory.model.reports import ItemVersion

__all__ = ["list_", "show"]

_SCREEN = 20
"""Memories that are listed at once where nobody said how many."""
_PAGE = 500
"""Memories read at once where all are listed."""
_INTERVAL = 1.0
"""Seconds between two looks for new memories."""


@command("list")
@click.option("--query", default="", help="Only what contains this text.")
@filter_options
@click.option("--forgotten", is_flag=True, help="Forgotten memories, which can be restored.")
@as_of_option
@limit_option(None, "At most this many; else 20 in a terminal, all in a pipe.")
@click.option("--cursor", help="Continue after a page: its `next`, or the id of its last memory.")
@click.option("--follow", is_flag=True, help="Print new memories as they arrive, until Ctrl-C.")
@memory_options()
@output_options
async def list_(
    run: CommandContext,
    *,
    query: str,
    filters: Filters,
    forgotten: bool,
    as_of: str | None,
    limit: int | None,
    cursor: str | None,
    follow: bool,
) -> None:
    """List memories, newest first."""
    # A program that got the first few would take them for all; one that pages has a `next`.
    is_all = limit is None and not run.out.is_terminal and not (run.out.is_json and cursor)
    then = read_when("as-of", as_of)
    bounds = filters.bounds() | {"forgotten": forgotten}
    if then is not None:
        check_past(**bounds, follow=follow)
    if follow:
        if query or cursor or any(bounds.values()):
            raise UsageError("`--follow` goes with `--type`, `--tag`, `--where` and `--limit` only")
        await _follow(run, filters.past(), limit or 5)
        return
    arguments: dict[str, Any] = filters.past() | {
        "query": query,
        "limit": _PAGE if is_all else limit or _SCREEN,
    }
    items: list[MemoryItem] = []
    ended: dict[str, str] = {}
    count, after = 0, None
    async with run.both(meaning=False) as (store, memory):
        if cursor is not None:
            arguments["cursor"] = await find_id(memory, cursor)
        source: Any = memory if then is None else memory.as_of(then)
        while True:
            page = await source.list(**arguments, **({} if then else bounds))
            count, after = count + len(page), page.next
            if run.out.is_json:
                items += page
                ended |= page.ended
            else:
                print_items(run.out, page, shows_scope=run.target.everyone)
            if after is None or not is_all:
                break
            arguments["cursor"] = after
        if not count:
            await note_nothing(
                run, store, f"no memories here{run.target.or_all('shows')}", kind=filters.kind
            )
    note_replaced(run, query, *filters.texts())
    if run.out.is_json:
        run.out.data({"items": [as_json(item) for item in items], "next": after, "ended": ended})
    elif after and run.out.is_terminal:  # what `$(…)` reads asks for no more
        run.out.note(f"there are more: --cursor {after}")


async def _follow(run: CommandContext, filters: dict[str, Any], count: int) -> None:
    """Print the *count* newest memories, then each that arrives from any process, once."""
    from orbiter.memory.agent.events import PAGE, SeenIds, since  # noqa: PLC0415 - not for `--help`

    async with run.scoped(meaning=False, creates=True) as memory:
        newest = await memory.list(limit=max(count, PAGE), **filters)
        known = SeenIds(newest, is_all=newest.next is None)
        fresh: Sequence[MemoryItem] = newest[:count][::-1]
        while True:
            for item in fresh:
                if run.out.is_json:
                    run.out.line(as_json(item))
                else:
                    print_items(run.out, [item])
            run.out.flush()
            await asyncio.sleep(_INTERVAL)
            fresh = await since(memory, known, **filters)
            known.add(fresh)


@command("show")
@click.argument("item_id", metavar="ID")
@click.option("--history", is_flag=True, help="Every version, who made it, and what changed.")
@memory_options()
@output_options
async def show(run: CommandContext, item_id: str, *, history: bool) -> None:
    """Show one memory with all its details.

    ID is the id of a memory, or four or more characters of its beginning or end.
    """
    async with run.scoped(meaning=False) as memory:
        item_id = await find_id(memory, item_id)
        if history:
            await _show_history(run, memory, item_id)
            return
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


async def _show_history(run: CommandContext, memory: "ScopedMemory", item_id: str) -> None:
    versions = await memory.history(item_id)
    if not versions:
        raise await not_there(run.target, memory, item_id)
    if run.out.is_json:
        run.out.data([_version_json(each) for each in versions])
        return
    before: MemoryItem | None = None
    for each in versions:
        who = f" by {one_line(each.by)}" if each.by else ""
        head = styled(
            (f"{each.change}{who}", CHANGES[each.change]), (f"  {moment(each.at)}", "dim")
        )
        mark = styled((f"v{each.item.version}", "bold"))
        run.out.show(entry(mark, [head, *differences(before, each.item)]))
        before = each.item


def _version_json(version: "ItemVersion") -> dict[str, object]:
    return {
        "version": version.item.version,
        "change": version.change,
        "at": version.at,
        "by": version.by,
        "item": as_json(version.item),
    }
