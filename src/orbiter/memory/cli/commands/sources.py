"""Doubts about a source, and about what is said twice.

The commands are `quarantine`, `release`, `undo` and `duplicates`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._error_messages import ERROR
from orbiter.memory.cli._item_ids import note_nothing
from orbiter.memory.cli._options import DryRun, Since, Yes, read_when
from orbiter.memory.cli._output import is_agreed, styled
from orbiter.memory.cli._text import counted, moment, one_line, shortened
from orbiter.memory.cli._views import as_json, entry, facts, print_items, said

if TYPE_CHECKING:
    from orbiter.memory.model.items import MemoryItem

__all__ = ["app"]

app = new_app()

Origin = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Such as `web:example.com`, or `web` for all of the kind."
    ),
]


@command(app, "quarantine")
async def quarantine(
    run: CommandContext, source: Origin, *, dry_run: DryRun = False, yes: Yes = False
) -> int:
    """Hide everything from a source."""
    async with run.scoped(meaning=False) as memory:
        with run.out.progress("looking", unit="memories") as advance:
            work = memory.quarantine(source, dry_run=dry_run or not yes, progress=advance)
            items = (await work).items
        if items and not dry_run and not yes:
            if not _is_agreed(run, "hide", source, items):
                run.out.note("nothing was hidden")
                return ERROR
            with run.out.progress("hiding", unit="memories") as advance:
                items = (await memory.quarantine(source, progress=advance)).items
    way = f"hidden; `orbiter-memory release {one_line(source)}` shows it again"
    _print_result(run, items, dry_run=dry_run, done=way, would="would be hidden")
    return 0


@command(app, "release")
async def release(run: CommandContext, source: Origin) -> None:
    """Show hidden memories of a source again."""
    async with run.scoped(meaning=False) as memory:
        with run.out.progress("releasing", unit="memories") as advance:
            count = await memory.release(source, progress=advance)
    if run.out.is_json:
        run.out.data({"released": count})
    else:
        run.out.show(styled(f"{counted(count)} released"))


@command(app, "undo")
async def undo(
    run: CommandContext,
    source: Origin,
    *,
    since: Since = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Undo everything that a source added or changed."""
    start = read_when("since", since)
    async with run.scoped(meaning=False) as memory:
        with run.out.progress("looking", unit="memories") as advance:
            work = memory.undo(source, since=start, dry_run=dry_run or not yes, progress=advance)
            items = (await work).items
        if items and not dry_run and not yes:
            if not _is_agreed(run, "undo", source, items):
                run.out.note("nothing was undone")
                return ERROR
            with run.out.progress("undoing", unit="memories") as advance:
                items = (await memory.undo(source, since=start, progress=advance)).items
    way = "undone; `history ID` shows the versions, `restore ID` brings one back"
    _print_result(run, items, dry_run=dry_run, done=way, would="would be undone")
    return 0


def _is_agreed(run: CommandContext, what: str, source: str, items: "Sequence[MemoryItem]") -> bool:
    origin = f"`{one_line(source)}` of {run.target.describe()}"
    lines = [shortened(said(item), 200) for item in items]
    return is_agreed(run.out, f"{what} {counted(len(items))} from {origin}", lines)


def _print_result(
    run: CommandContext, items: "Sequence[MemoryItem]", *, dry_run: bool, done: str, would: str
) -> None:
    if run.out.is_json:
        run.out.data({"dry_run": dry_run, "items": [as_json(item) for item in items]})
    else:
        print_items(run.out, items)
    run.out.note(f"{counted(len(items))} {would if dry_run else done}")


@command(app, "duplicates", reads=True)
async def duplicates(run: CommandContext) -> None:
    """Show memories that say the same thing."""
    async with run.both(meaning=False) as (store, memory):
        with run.out.progress("comparing", unit="memories") as advance:
            groups = await memory.duplicates(progress=advance)
        if not groups:
            await note_nothing(run, store, "there are no duplicates")
    if run.out.is_json:
        run.out.data([[as_json(item) for item in group] for group in groups])
    elif run.out.is_plain():
        run.out.rows(
            (number, item.id, moment(item.created_at), said(item))
            for number, group in enumerate(groups, 1)
            for item in group
        )
    else:
        for group in groups:
            text = styled(shortened(said(group[0]), 4 * run.out.console.width))
            mark = styled((f"{len(group)}×", "yellow"))
            run.out.show(entry(mark, [text, *map(facts, group)]))
    if groups:
        run.out.note("`orbiter-memory evict --duplicates` keeps the first of each")
