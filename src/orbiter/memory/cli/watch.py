"""Memories as they come: `tail`."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._frame import Run, command, new_app
from orbiter.memory.cli._options import Kind, Where, read_json
from orbiter.memory.cli._views import as_json, print_items

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.items import MemoryItem

__all__ = ["app"]

app = new_app()
_PAGE = 200
_KNOWN = 10_000
"""Ids remembered of what was printed; a burst larger than that may be told twice."""


@command(app, "tail")
async def tail(
    run: Run,
    *,
    kind: Kind = None,
    where: Where = None,
    number: Annotated[int, typer.Option("-n", min=0, help="Begin with the newest so many.")] = 5,
    interval: Annotated[
        float, typer.Option(min=0.05, help="Seconds between two looks at the store.")
    ] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many memories.")] = None,
) -> None:
    """Print new memories as they come, until Ctrl-C."""
    filters = {"memory_type": kind, "where": read_json("where", where)}
    left = count
    async with run.scoped(meaning=False, creates=True) as memory:
        newest = list(await memory.list(limit=max(number, _PAGE), **filters))  # type: ignore[arg-type]  # told above
        seen = dict.fromkeys(item.id for item in newest)
        left = _print(run, newest[:number][::-1], left)
        while left is None or left > 0:
            await asyncio.sleep(interval)
            fresh = await _since(memory, seen, filters)
            seen |= dict.fromkeys(item.id for item in fresh)
            for old in list(seen)[: max(len(seen) - _KNOWN, 0)]:
                del seen[old]
            left = _print(run, fresh, left)


async def _since(
    memory: "ScopedMemory", seen: dict[str, None], filters: Mapping[str, object]
) -> "list[MemoryItem]":
    """Return what is not among *seen*, oldest first: pages are read back to what is known."""
    fresh: list[MemoryItem] = []
    cursor: str | None = None
    while True:
        page = await memory.list(limit=_PAGE, cursor=cursor, **filters)  # type: ignore[arg-type]
        new = [item for item in page if item.id not in seen]
        fresh += new
        # Clocks of several machines interleave, so a page is read whole before it ends the walk.
        if len(new) < len(page) or page.next is None:
            return fresh[::-1]
        cursor = page.next


def _print(run: Run, items: "list[MemoryItem]", left: int | None) -> int | None:
    shown = items if left is None else items[:left]
    for item in shown:
        if run.out.is_json:
            run.out.line(as_json(item))
        else:
            print_items(run.out, [item])
    run.out.flush()
    return None if left is None else left - len(shown)
