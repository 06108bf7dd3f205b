"""Memories as they come: `tail`."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._options import Kind, Where, read_where
from orbiter.memory.cli._views import as_json, print_items

if TYPE_CHECKING:
    from orbiter.memory.model.items import MemoryItem

__all__ = ["app"]

app = new_app()


@command(app, "tail", reads=True)
async def tail(
    run: CommandContext,
    *,
    kind: Kind = None,
    where: Where = None,
    number: Annotated[
        int, typer.Option("-n", min=0, help="Start with this many of the newest.")
    ] = 5,
    interval: Annotated[float, typer.Option(min=0.05, help="Polling interval in seconds.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many memories.")] = None,
) -> None:
    """Print new memories as they arrive, until Ctrl-C."""
    from orbiter.memory.agent.events import PAGE, SeenIds, since  # noqa: PLC0415 - not for `--help`

    wanted = read_where(where)
    left = count
    async with run.scoped(meaning=False, creates=True) as memory:
        newest = await memory.list(limit=max(number, PAGE), memory_type=kind, where=wanted)
        known = SeenIds(newest, is_all=newest.next is None)
        left = _print(run, newest[:number][::-1], left)
        while left is None or left > 0:
            await asyncio.sleep(interval)
            fresh = await since(memory, known, memory_type=kind, where=wanted)
            known.add(fresh)
            left = _print(run, fresh, left)


def _print(run: CommandContext, items: "list[MemoryItem]", left: int | None) -> int | None:
    printed = items if left is None else items[:left]
    for item in printed:
        if run.out.is_json:
            run.out.line(as_json(item))
        else:
            print_items(run.out, [item])
    run.out.flush()
    return None if left is None else left - len(printed)
