"""Doubts about a source: `quarantine` and `undo`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._error_messages import ERROR
from orbiter.memory.cli._options import (
    command,
    dry_run_option,
    memory_options,
    output_options,
    read_when,
    yes_option,
)
from orbiter.memory.cli._output import is_agreed, styled
from orbiter.memory.cli._text import counted, one_line, shortened
from orbiter.memory.cli._views import as_json, print_items, said

if TYPE_CHECKING:
    from orbiter.memory.model.items import MemoryItem

__all__ = ["quarantine", "undo"]


@command("quarantine")
@click.argument("source")
@click.option("--release", is_flag=True, help="Show what was hidden of the source again.")
@dry_run_option
@yes_option
@memory_options(writes=True)
@output_options
async def quarantine(
    run: CommandContext, source: str, *, release: bool, dry_run: bool, yes: bool
) -> int:
    """Hide everything from a source, or show it again.

    SOURCE is such as `web:example.com`, or `web` for all of the kind.
    """
    if release:
        if dry_run:
            raise UsageError("`--release` hides nothing; leave `--dry-run` out")
        await _release(run, source)
        return 0
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
    way = f"hidden; `orbiter-memory quarantine {one_line(source)} --release` shows it again"
    _print_result(run, items, dry_run=dry_run, done=way, would="would be hidden")
    return 0


async def _release(run: CommandContext, source: str) -> None:
    async with run.scoped(meaning=False) as memory:
        with run.out.progress("releasing", unit="memories") as advance:
            count = await memory.release(source, progress=advance)
    if run.out.is_json:
        run.out.data({"released": count})
    else:
        run.out.show(styled(f"{counted(count)} released"))


@command("undo")
@click.argument("source")
@click.option("--since", help="Only what it did from this time on.")
@dry_run_option
@yes_option
@memory_options(writes=True)
@output_options
async def undo(
    run: CommandContext, source: str, *, since: str | None, dry_run: bool, yes: bool
) -> int:
    """Undo everything that a source added or changed.

    To bring back one memory: `orbiter-memory restore ID`.
    """
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
    way = "undone; `show ID --history` shows the versions, `restore ID` brings one back"
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
