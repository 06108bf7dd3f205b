"""Putting memories in and finding them: `remember`, `recall`, `list`, `show`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.cli._command import Run, command, new_app
from orbiter.memory.cli._embed_progress import PATIENCE, embed_waiting, note_waiting
from orbiter.memory.cli._error_messages import UsageError
from orbiter.memory.cli._inputs import check_all, print_ids, remember_many, things_of
from orbiter.memory.cli._not_found import not_there
from orbiter.memory.cli._options import (
    Id,
    Kind,
    Since,
    Tagged,
    Tags,
    Until,
    Where,
    read_end,
    read_json,
    read_stdin,
    read_when,
    read_where,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import clean, moment
from orbiter.memory.cli._views import (
    as_json,
    entry,
    hit_json,
    hit_lines,
    left_out_json,
    left_out_lines,
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
_FEW = 10
"""Memories that the next `recall` may embed: loading the model takes longer than they do."""
_MOST_LEFT_OUT = 5
"""Candidates that came next and are told to a person; JSON has all."""


AsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="As it was stored then: `2026-11-01`, `3d`, `yesterday`."),
]


class Level(StrEnum):
    """What a source is worth, the best first."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"
    IMPORT = "import"
    WEB = "web"


class Mode(StrEnum):
    """How memories are found."""

    HYBRID = "hybrid"
    WORDS = "words"
    MEANING = "meaning"
    RECENT = "recent"


@command(app, "remember", everyone=False)
async def remember(  # noqa: PLR0913 - what may be kept with it
    run: Run,
    texts: Annotated[
        list[str], typer.Argument(help="One memory each; `-` reads stdin.", show_default=False)
    ],
    *,
    tag: Tags = None,
    importance: Annotated[float | None, typer.Option(help="From 0 to 1.")] = None,
    source: Annotated[str | None, typer.Option(help="Where it comes from.")] = None,
    extra: Annotated[str | None, typer.Option(help="More to keep with it: a JSON object.")] = None,
    at: Annotated[
        str | None, typer.Option(help="When it was: `2026-11-01`, `3d`; else now.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it is to be gone for good: `30d` from now, or a date.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Stored once: the same key again stores nothing.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of stdin is a memory; empty ones are none.")
    ] = False,
) -> None:
    """Store memories; print their ids."""
    given = things_of(texts, by_line=lines)
    things = [each.text for each in given]
    if key is not None and len(things) != 1:
        raise UsageError(f"`--key` is for one memory, not for {len(things)}")
    labels: dict[str, Any] = {
        "tags": tag or None,
        "importance": importance,
        "source": source,
        "extra": read_json("extra", extra),
        "created_at": read_when("at", at),
        "expires": read_end("expires", expires),
    }
    # Before the store is opened: one bad line must neither make a file nor leave half of them.
    check_all(given, run.place.scope() or {}, labels)
    async with run.both(creates=True) as (store, memory):
        if len(things) == 1:
            stored = [await memory.remember(things[0], **labels, idempotency_key=key)]
            print_ids(run.out, stored)
        else:
            stored = await remember_many(run.out, memory, things, labels)
        if len(stored) > _FEW:
            note_waiting(await embed_waiting(run.out, store))


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
    tag: Tagged = None,
    min_trust: Annotated[
        Level | None,
        typer.Option("--min-trust", help="Only from such a source, or a better one."),
    ] = None,
    as_of: AsOf = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="All reasons with their points, and what came next.")
    ] = False,
) -> None:
    """Find the memories that answer a question, with reasons."""
    filters: dict[str, Any] = {"memory_type": kind, "where": read_where(where, tag)}
    bounds: dict[str, Any] = {
        "since": read_when("since", since),
        "until": read_when("until", until),
        "min_trust": None if min_trust is None else min_trust.value,
        "explain": explain,
    }
    then = read_when("as-of", as_of)
    if then is not None:
        _check_past(**bounds, mode=mode in (Mode.MEANING, Mode.RECENT))
    if mode is Mode.MEANING:
        from orbiter.memory.cli._doctor_report import check_model  # noqa: PLC0415 - slow to load

        check_model(run)
    asked = read_stdin().strip() if query == "-" else query
    waiting = 0
    async with run.both() as (store, memory):
        if then is not None:
            found = await memory.as_of(then).recall(asked, k=k, **filters)
        else:
            if mode in (Mode.HYBRID, Mode.MEANING):
                waiting = await embed_waiting(run.out, store, within=PATIENCE)
            found = await memory.recall(asked, k=k, mode=mode.value, **filters, **bounds)
    note_waiting(waiting)
    if run.out.is_json:
        run.out.data(
            {
                "hits": [hit_json(hit) for hit in found],
                "considered": found.considered,
                "waiting": waiting,
                "left_out": [left_out_json(each) for each in found.left_out],
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


def _check_past(**given: object) -> None:
    """Raise `UsageError` for options that the past does not take."""
    for name, value in given.items():
        if value not in (None, False):
            raise UsageError(
                f"`--as-of` and `--{name.replace('_', '-')}` exclude each other; the past is "
                "looked through by words, `--type`, `--tag` and `--where`"
            )


@command(app, "list")
async def list_(  # noqa: PLR0913 - the filters
    run: Run,
    *,
    query: Annotated[str, typer.Option("--query", help="A text that it holds.")] = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    tag: Tagged = None,
    forgotten: Annotated[
        bool, typer.Option("--forgotten", help="What was forgotten and can be restored.")
    ] = False,
    as_of: AsOf = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "-n", "--limit", min=1, help="At most so many; else 20 in a terminal, all in a pipe."
        ),
    ] = None,
    cursor: Annotated[
        str | None,
        typer.Option(help="Go on behind a page: its `next`, or the id of its last memory."),
    ] = None,
) -> None:
    """List memories, newest first."""
    # A program that got the first few would take them for all; one that pages has a `next`.
    is_all = limit is None and not run.out.is_terminal and not (run.out.is_json and cursor)
    asked: dict[str, Any] = {
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
        _check_past(**bounds)
    shown: list[MemoryItem] = []
    count, after = 0, None
    async with run.scoped(meaning=False) as memory:
        ask = partial(memory.list, **bounds) if then is None else memory.as_of(then).list
        async for page in _pages(ask, asked, goes_on=is_all):
            count, after = count + len(page), page.next
            if run.out.is_json:
                shown += page
            else:
                print_items(run.out, page)
    if run.out.is_json:
        run.out.data({"items": [as_json(item) for item in shown], "next": after})
        return
    if after and run.out.is_terminal:  # what `$(…)` reads asks for no more
        run.out.note(f"there are more: --cursor {after}")
    if not count:
        run.out.note("nothing here; `--all` looks at everyone's")


async def _pages(
    ask: "Callable[..., Awaitable[Page]]", asked: dict[str, Any], *, goes_on: bool
) -> "AsyncIterator[Page]":
    """Yield the page that is asked for, and with *goes_on* all that follow."""
    while True:
        page = await ask(**asked)
        yield page
        if page.next is None or not goes_on:
            return
        asked["cursor"] = page.next


@command(app, "show")
async def show(run: Run, item_id: Id) -> None:
    """Show a memory with everything that is known about it."""
    async with run.scoped(meaning=False) as memory:
        item = await memory.get(item_id)
        if item is None:
            raise await not_there(run.place, memory, item_id)
    if run.out.is_json:
        run.out.data(as_json(item))
        return
    for name, value in parts_of(item):
        run.out.show(styled((f"{name:<10} ", "dim"), value))
    run.out.show("")
    run.out.show(styled(clean(item.content) or said(item)))
