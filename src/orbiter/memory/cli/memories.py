"""Putting memories in and finding them: `remember`, `recall`, `list`, `show`."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.cli._errors import UsageError
from orbiter.memory.cli._frame import Run, command, new_app
from orbiter.memory.cli._options import (
    Id,
    Kind,
    Since,
    Tags,
    Until,
    Where,
    read_json,
    read_stdin,
    read_when,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import clean, moment
from orbiter.memory.cli._views import (
    as_json,
    entry,
    hit_lines,
    left_out_lines,
    parts_of,
    print_items,
    said,
)

if TYPE_CHECKING:
    from orbiter.memory.items import MemoryItem
    from orbiter.memory.recall import Hit, LeftOut

__all__ = ["app"]

app = new_app()
_BATCH = 500
"""Memories stored in one step; between steps the bar moves."""
_MOST_LEFT_OUT = 5
"""Candidates that came next and are told to a person; JSON has all."""


class Mode(StrEnum):
    """How memories are found."""

    HYBRID = "hybrid"
    WORDS = "words"
    MEANING = "meaning"
    RECENT = "recent"


@command(app, "remember", everyone=False)
async def remember(
    run: Run,
    texts: Annotated[
        list[str], typer.Argument(help="One memory each; `-` reads stdin.", show_default=False)
    ],
    *,
    tag: Tags = None,
    importance: Annotated[float | None, typer.Option(help="From 0 to 1.")] = None,
    source: Annotated[str | None, typer.Option(help="Where it comes from.")] = None,
    extra: Annotated[str | None, typer.Option(help="More to keep with it: a JSON object.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Stored once: the same key again stores nothing.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of stdin is a memory; empty ones are none.")
    ] = False,
) -> None:
    """Store memories; print their ids."""
    things = _things(texts, by_line=lines)
    if key is not None and len(things) != 1:
        raise UsageError(f"`--key` is for one memory, not for {len(things)}")
    labels: dict[str, Any] = {
        "tags": tag or None,
        "importance": importance,
        "source": source,
        "extra": read_json("extra", extra),
    }
    stored: list[MemoryItem] = []
    async with run.scoped(creates=True) as memory:
        with run.out.progress("remembering", unit="memories") as advance:
            if len(things) == 1:
                stored = [await memory.remember(things[0], **labels, idempotency_key=key)]
            for start in range(0, len(things) if len(things) > 1 else 0, _BATCH):
                stored += await memory.remember_many(things[start : start + _BATCH], **labels)
                advance(len(stored), len(things))
    if run.out.is_json:
        run.out.data([as_json(item) for item in stored])
    else:
        run.out.rows((item.id,) for item in stored)


def _things(texts: Sequence[str], *, by_line: bool) -> list[str]:
    if by_line and "-" not in texts:
        raise UsageError("`--lines` splits stdin; give `-` as the text")
    things: list[str] = []
    for text in texts:
        if text != "-":
            things.append(text)
            continue
        given = read_stdin()
        things += [one for one in given.splitlines() if one.strip()] if by_line else [given.strip()]
    return things


@command(app, "recall")
async def recall(  # noqa: PLR0913 - the filters
    run: Run,
    query: Annotated[str, typer.Argument(help="A question; `-` reads stdin.", show_default=False)],
    *,
    k: Annotated[int, typer.Option("-k", "--limit", min=1, help="At most so many.")] = 10,
    mode: Annotated[Mode, typer.Option(help="How to look.")] = Mode.HYBRID,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="All reasons with their points, and what came next.")
    ] = False,
) -> None:
    """Find the memories that answer a question, with reasons."""
    async with run.scoped() as memory:
        found = await memory.recall(
            read_stdin().strip() if query == "-" else query,
            k=k,
            mode=mode.value,
            memory_type=kind,
            since=read_when("since", since),
            until=read_when("until", until),
            where=read_json("where", where),
            explain=explain,
        )
    if run.out.is_json:
        run.out.data(
            {
                "hits": [_hit_json(hit) for hit in found],
                "considered": found.considered,
                "left_out": [_left_out_json(each) for each in found.left_out],
            }
        )
    elif run.out.is_plain() and not explain:
        run.out.rows(
            (hit.item.id, f"{hit.score:.2f}", moment(hit.item.created_at), said(hit.item))
            for hit in found
        )
    else:
        for place, hit in enumerate(found, 1):
            mark = styled((f"{place:>2}", "bold green"))
            run.out.show(entry(mark, hit_lines(hit, run.out.console.width, full=explain)))
        for each in found.left_out[:_MOST_LEFT_OUT]:
            run.out.show(entry(styled((" –", "dim")), left_out_lines(each)))
    if not found:
        run.out.note("nothing found; `--all` looks at everyone's, `list` shows what there is")


def _left_out_json(each: "LeftOut") -> dict[str, object]:
    why = [{"part": one.part, "points": one.points, "text": one.text} for one in each.why]
    return {"score": each.score, "reason": each.reason, "why": why, "item": as_json(each.item)}


def _hit_json(hit: "Hit") -> dict[str, object]:
    why = [{"part": each.part, "points": each.points, "text": each.text} for each in hit.why]
    repeats = [item.id for item in hit.repeats]
    return {"score": hit.score, "why": why, "repeats": repeats, "item": as_json(hit.item)}


@command(app, "list")
async def list_(
    run: Run,
    *,
    query: Annotated[str, typer.Option("--query", help="A text that it holds.")] = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many.")] = 20,
    cursor: Annotated[
        str | None, typer.Option(help="Go on after this id, the last of the page before.")
    ] = None,
) -> None:
    """List memories, newest first."""
    async with run.scoped(meaning=False) as memory:
        page = await memory.list(
            query=query,
            where=read_json("where", where),
            memory_type=kind,
            since=read_when("since", since),
            until=read_when("until", until),
            limit=limit,
            cursor=cursor,
        )
    if run.out.is_json:
        run.out.data({"items": [as_json(item) for item in page], "next": page.next})
        return
    print_items(run.out, page)
    if page.next:
        run.out.note(f"there are more: --cursor {page.next}")
    if not page:
        run.out.note("nothing here; `--all` looks at everyone's")


@command(app, "show")
async def show(run: Run, item_id: Id) -> None:
    """Show a memory with everything that is known about it."""
    from orbiter.memory.errors import ItemNotFoundError  # noqa: PLC0415 - `--help` needs it not

    async with run.scoped(meaning=False) as memory:
        item = await memory.get(item_id)
    if item is None:
        raise ItemNotFoundError(item_id, way="`--all` looks at everyone's, `list` shows some")
    if run.out.is_json:
        run.out.data(as_json(item))
        return
    for name, value in parts_of(item):
        run.out.show(styled((f"{name:<11}", "dim"), value))
    run.out.show("")
    run.out.show(styled(clean(item.content) or said(item)))
