"""Memories as they come: `tail`."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._frame import Run, command, new_app
from orbiter.memory.cli._options import Kind, Where, read_where
from orbiter.memory.cli._views import as_json, print_items

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.items import MemoryItem

__all__ = ["app"]

app = new_app()
_PAGE = 200
_KNOWN = 10_000
"""The newest that are known by id; what comes later and is older than all of these is not told."""

_Place = tuple[datetime, str]
"""Where a memory stands in the order of time."""


class Known:
    """What was there or was printed: the ids of the newest, and where the rest begins.

    The rest is never new, not even when newer ones are forgotten and a page reaches it.
    """

    def __init__(self, items: "Iterable[MemoryItem]", *, is_all: bool) -> None:
        self._places = {item.id: _place(item) for item in items}
        self._rest = None if is_all else min(self._places.values(), default=None)

    def add(self, items: "Iterable[MemoryItem]") -> None:
        """Know these, too."""
        self._places |= {item.id: _place(item) for item in items}
        if len(self._places) > _KNOWN:
            newest = sorted(self._places.values())[-_KNOWN:]
            self._places = {item_id: (at, item_id) for at, item_id in newest}
            self._rest = newest[0]

    def has(self, item: "MemoryItem") -> bool:
        """Tell whether *item* is not new."""
        return item.id in self._places or self.is_rest(item)

    def is_rest(self, item: "MemoryItem") -> bool:
        """Tell whether nothing from *item* on can be new."""
        return self._rest is not None and _place(item) <= self._rest


def _place(item: "MemoryItem") -> _Place:
    return item.created_at, item.id


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
    filters = {"memory_type": kind, "where": read_where(where)}
    left = count
    async with run.scoped(meaning=False, creates=True) as memory:
        newest = await memory.list(limit=max(number, _PAGE), **filters)  # type: ignore[arg-type]  # told above
        known = Known(newest, is_all=newest.next is None)
        left = _print(run, newest[:number][::-1], left)
        while left is None or left > 0:
            await asyncio.sleep(interval)
            fresh = await _since(memory, known, filters)
            known.add(fresh)
            left = _print(run, fresh, left)


async def _since(
    memory: "ScopedMemory", known: Known, filters: Mapping[str, object]
) -> "list[MemoryItem]":
    """Return what is not *known*, oldest first: pages are read back to one without anything new."""
    fresh: list[MemoryItem] = []
    cursor: str | None = None
    while True:
        page = await memory.list(limit=_PAGE, cursor=cursor, **filters)  # type: ignore[arg-type]
        new = [item for item in page if not known.has(item)]
        fresh += new
        # Clocks of several machines interleave, so only a page without any new one ends the walk.
        if not new or page.next is None or known.is_rest(page[-1]):
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
