"""Changing memories and undoing it: `edit`, `forget`, `restore`, `history`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orbiter.memory.cli._command import Run, command, is_missing, is_served, new_app
from orbiter.memory.cli._editor import in_editor
from orbiter.memory.cli._error_messages import ERROR, NOT_FOUND, NotThereError, UsageError, say
from orbiter.memory.cli._not_found import not_there, past_of
from orbiter.memory.cli._options import (
    DryRun,
    Id,
    Kind,
    Since,
    Tagged,
    Tags,
    Until,
    Where,
    Yes,
    read_end,
    read_json,
    read_stdin,
    read_when,
    read_where,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._prompts import can_ask, is_agreed
from orbiter.memory.cli._text import counted, moment, one_line, shortened
from orbiter.memory.cli._version_diff import CHANGES, differences
from orbiter.memory.cli._views import as_json, entry, print_items, said

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.model.items import MemoryItem
    from orbiter.memory.model.reports import ItemVersion

__all__ = ["app"]

app = new_app()


@command(app, "edit")
async def edit(  # noqa: PLR0913 - what may be changed
    run: Run,
    item_id: Id,
    text: Annotated[
        str | None,
        typer.Argument(help="What it shall say; `-` reads stdin, nothing opens $EDITOR."),
    ] = None,
    *,
    tag: Tags = None,
    importance: Annotated[float | None, typer.Option(help="From 0 to 1.")] = None,
    source: Annotated[str | None, typer.Option(help="Where it comes from.")] = None,
    extra: Annotated[str | None, typer.Option(help="More to keep with it: a JSON object.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it is to be gone: `30d` from now, a date, or `never`.")
    ] = None,
    expect: Annotated[
        int | None, typer.Option(help="Only if it still has this version; else exit 4.")
    ] = None,
) -> None:
    """Change a memory; the old version is kept."""
    from orbiter.memory.errors import ItemNotFoundError  # noqa: PLC0415 - `--help` needs it not

    labels = read_json("extra", extra) or None
    if extra is not None and labels is None:
        raise UsageError("`--extra` is empty; there is nothing to keep")
    end: datetime | Literal["never"] | None = "never"
    if (expires or "").strip().lower() != "never":
        end = read_end("expires", expires)
    has_labels = bool(tag) or any(x is not None for x in (importance, source, labels, end))
    async with run.scoped() as memory:
        if text == "-":
            text = read_stdin().strip()
        elif text is None and not has_labels:
            before = await memory.get(item_id)
            if before is None:
                raise await not_there(run.place, memory, item_id)
            text, expect = in_editor(before.content), expect or before.version
            if text == before.content:
                run.out.note("nothing was changed")
                return
        try:
            item = await memory.update(
                item_id,
                text,
                tags=tag or None,
                importance=importance,
                source=source,
                extra=labels,
                expires=end,
                expected_version=expect,
            )
        except ItemNotFoundError:
            raise await not_there(run.place, memory, item_id) from None
    _print_item(run, item)


def _print_item(run: Run, item: "MemoryItem") -> None:
    if run.out.is_json:
        run.out.data(as_json(item))
    else:
        print_items(run.out, [item])


@command(app, "forget")
async def forget(  # noqa: PLR0913 - the filters
    run: Run,
    item_ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of memories; `-` reads them from stdin.")
    ] = None,
    *,
    query: Annotated[str, typer.Option("--query", help="All that hold this text.")] = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    tag: Tagged = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="All memories of the scope.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Remove memories so that they can be restored."""
    ids = [
        one for each in item_ids or () for one in (read_stdin().split() if each == "-" else [each])
    ]
    filters = {
        "query": query,
        "memory_type": kind,
        "since": read_when("since", since),
        "until": read_when("until", until),
        "where": read_where(where, tag),
        "everything": everything,
    }
    has_filter = any(value not in ("", None, False, {}) for value in filters.values())
    if bool(ids) == has_filter:
        raise UsageError(
            "say what to forget: ids, or a filter such as `--tag`, `--query`, `--where`, "
            "or `--everything`; and not both"
        )
    async with run.scoped(meaning=False) as memory:
        if ids:
            gone, missing = await _forget_ids(memory, ids, dry_run=dry_run)
            for item_id in missing:
                say(str(await not_there(run.place, memory, item_id)))
        else:
            with run.out.progress("looking", unit="memories") as advance:
                found = await memory.forget(
                    **filters,  # type: ignore[arg-type]  # told above
                    dry_run=dry_run or not yes,
                    progress=advance,
                )
            gone = list(found.items)
            missing = []
            if gone and not dry_run and not yes:
                lines = [shortened(said(item), 200) for item in gone]
                if not is_agreed(run.out, f"forget {counted(len(gone))}", lines):
                    return ERROR
                # These and no others: what came meanwhile was not asked about.
                gone, _ = await _forget_ids(memory, [item.id for item in gone], dry_run=False)
    if run.out.is_json:
        run.out.data({"dry_run": dry_run, "items": [as_json(item) for item in gone]})
    else:
        print_items(run.out, gone)
    run.out.note(
        f"{len(gone)} {'would be forgotten' if dry_run else 'forgotten; `restore ID` undoes it'}"
    )
    return NOT_FOUND if missing else 0


async def _forget_ids(
    memory: "ScopedMemory", ids: Sequence[str], *, dry_run: bool
) -> tuple[list["MemoryItem"], list[str]]:
    gone: list[MemoryItem] = []
    missing: list[str] = []
    for item_id in dict.fromkeys(ids):
        found = await memory.forget(item_id, dry_run=dry_run)
        gone += found.items
        if not found.items:
            missing.append(item_id)
    return gone, missing


@command(app, "restore")
async def restore(
    run: Run,
    item_id: Annotated[
        str,
        typer.Argument(
            metavar="ITEM_ID|FILE",
            help="The memory's id; or a backup, which replaces the whole store.",
            show_default=False,
        ),
    ],
    *,
    version: Annotated[int | None, typer.Option(help="Go back to this version.")] = None,
    yes: Yes = False,
) -> int:
    """Bring back a forgotten memory, an earlier version, or a backup."""
    from orbiter.memory.errors import ItemNotFoundError  # noqa: PLC0415

    if _is_file_name(item_id):
        if version is not None:
            raise UsageError("`--version` is of one memory; leave it out to restore a backup")
        if options := run.place.scope_options():
            raise UsageError(
                f"a backup replaces the whole store, everyone's memories; leave `{options[0]}` out"
            )
        return await _restore_backup(run, Path(item_id), yes=yes)
    async with run.scoped() as memory:
        try:
            item = await memory.restore(item_id, version=version)
        except ItemNotFoundError:
            past = await past_of(memory, item_id)
            if not past:
                raise await not_there(run.place, memory, item_id) from None
            known = ", ".join(str(each.item.version) for each in past)
            raise NotThereError(
                f"the memory `{item_id}` has no version {version}; it has {known}"
            ) from None
    _print_item(run, item)
    return 0


def _is_file_name(text: str) -> bool:
    """Tell whether *text* names a file, there or not, and no memory."""
    return Path(text).is_file() or "/" in text or text.endswith((".db", ".sqlite", ".sqlite3"))


async def _restore_backup(run: Run, path: Path, *, yes: bool) -> int:
    """Replace the store by a backup."""
    from orbiter.memory.errors import StorageError  # noqa: PLC0415

    if path.is_dir():  # noqa: ASYNC240 - as below
        raise StorageError(f"`{path}` is a folder; name a backup in it")
    if not path.is_file():  # noqa: ASYNC240 - nothing else runs; before anybody is asked
        raise StorageError(f"there is no file `{path}`; name a backup, or the id of a memory")
    memory = run.unopened(meaning=False)
    what = f"replace {one_line(memory.url)} by {one_line(str(path))}"
    if not (yes or is_missing(memory) or is_served(memory)):
        if not can_ask(run.out):
            raise UsageError(f"this would {what}; give `--yes`")
        if not is_agreed(run.out, what, []):
            return ERROR
    with run.out.progress("copying", unit="pages") as advance:
        done = await memory.restore(path, progress=advance)
    if run.out.is_json:
        replaced = None if done.replaced is None else str(done.replaced)
        run.out.data({"path": str(done.path), "items": done.items, "replaced": replaced})
        return 0
    run.out.show(styled((one_line(str(done.path)), "bold"), f"  {counted(done.items)}"))
    if done.replaced is not None:
        # Also for a log of cron: whoever reads it later looks for the old store.
        say(f"the old store is kept in {one_line(str(done.replaced))}", kind="note")
    return 0


@command(app, "history")
async def history(run: Run, item_id: Id) -> None:
    """Show every version of a memory and what changed."""
    async with run.scoped(meaning=False) as memory:
        versions = await memory.history(item_id)
        if not versions:
            raise await not_there(run.place, memory, item_id)
    if run.out.is_json:
        run.out.data([_version_json(each) for each in versions])
        return
    before: MemoryItem | None = None
    for each in versions:
        who = f" by {one_line(each.by)}" if each.by else ""
        told = (f"{each.change}{who}", CHANGES[each.change])
        head = styled(told, (f"  {moment(each.at)}", "dim"))
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
