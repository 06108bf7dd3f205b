"""Changing memories: `edit` and `forget`."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._completion import complete_ids, complete_tags
from orbiter.memory.cli._error_messages import ERROR, NOT_FOUND, UsageError, say
from orbiter.memory.cli._item_ids import find_id, find_ids, not_there, note_nothing, note_replaced
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
    read_words,
)
from orbiter.memory.cli._output import is_agreed
from orbiter.memory.cli._text import counted, shortened
from orbiter.memory.cli._views import as_json, print_item, print_items, said
from orbiter.memory.cli.commands.erase import print_erasure

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.model.items import MemoryItem
__all__ = ["app", "in_editor"]

app = new_app()


@command(app, "edit")
async def edit(  # noqa: PLR0913 - what may be changed
    run: CommandContext,
    item_id: Id,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="The new text, quoted or not; `-` reads stdin; without it, $EDITOR opens.",
        ),
    ] = None,
    *,
    tag: Tags = None,
    add_tag: Annotated[
        list[str] | None,
        typer.Option("--add-tag", help="A tag to add.", autocompletion=complete_tags),
    ] = None,
    remove_tag: Annotated[
        list[str] | None,
        typer.Option("--remove-tag", help="A tag to remove.", autocompletion=complete_tags),
    ] = None,
    importance: Annotated[float | None, typer.Option(help="From 0 to 1.")] = None,
    source: Annotated[str | None, typer.Option(help="Its source.")] = None,
    extra: Annotated[str | None, typer.Option(help="Extra fields: a JSON object.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it expires: `30d` from now, a date, or `never`.")
    ] = None,
    index: Annotated[
        bool | None,
        typer.Option(
            "--index/--no-index", help="Whether recall may return it.", show_default=False
        ),
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
    changed = (importance, source, labels, end, index)
    if tag and (add_tag or remove_tag):
        raise UsageError("`--tag` replaces all tags; leave it out, or `--add-tag`, `--remove-tag`")
    has_labels = bool(tag or add_tag or remove_tag) or any(each is not None for each in changed)
    async with run.scoped() as memory:
        item_id = await find_id(memory, item_id)
        text = read_words(words) if words else None
        if text is None and not has_labels:
            before = await memory.get(item_id)
            if before is None:
                raise await not_there(run.target, memory, item_id)
            text, expect = in_editor(before.content), expect or before.version
            if text == before.content:
                run.out.note("nothing was changed")
                return
        try:
            item = await memory.update(
                item_id,
                text,
                tags=tag or None,
                add_tags=add_tag or None,
                remove_tags=remove_tag or None,
                importance=importance,
                source=source,
                extra=labels,
                expires=end,
                index=index,
                expected_version=expect,
            )
        except ItemNotFoundError:
            raise await not_there(run.target, memory, item_id) from None
    print_item(run.out, item)


@command(app, "forget")
async def forget(  # noqa: PLR0913 - the filters
    run: CommandContext,
    item_ids: Annotated[
        list[str] | None,
        typer.Argument(
            help="Ids of memories; `-` reads them from stdin.",
            autocompletion=complete_ids,
        ),
    ] = None,
    *,
    query: Annotated[str, typer.Option("--query", help="All that contain this text.")] = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    tag: Tagged = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="All memories of the scope.")
    ] = False,
    permanently: Annotated[
        bool,
        typer.Option("--permanently", help="Erase them for good, also what was forgotten before."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Delete memories; they can be restored, or for good."""
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
    note_replaced(run, query, where or "", *(tag or ()))
    async with run.both(meaning=False) as (store, memory):
        if ids:
            ids = await find_ids(memory, ids)
        if permanently:
            chosen = filters if has_filter else {"item": ids}
            return await _erase(run, memory, ids, chosen, dry_run=dry_run, yes=yes)
        if ids:
            gone, missing = await _forget_ids(memory, ids, dry_run=dry_run)
            for item_id in missing:
                say(str(await not_there(run.target, memory, item_id)))
        else:
            with run.out.progress("looking", unit="memories") as advance:
                result = await memory.forget(
                    **filters,  # type: ignore[arg-type]  # told above
                    dry_run=dry_run or not yes,
                    progress=advance,
                )
            gone = list(result.items)
            missing = []
            if not gone:
                nothing = f"0 {'would be forgotten' if dry_run else 'forgotten'}"
                await note_nothing(run, store, nothing, kind=kind)
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
    if gone:
        how = "would be forgotten" if dry_run else "forgotten; `restore ID` undoes it"
        run.out.note(f"{len(gone)} {how}")
    return NOT_FOUND if missing else 0


async def _erase(
    run: CommandContext,
    memory: "ScopedMemory",
    ids: Sequence[str],
    chosen: Mapping[str, Any],
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Erase what is *chosen* for good, once that is agreed to."""
    with run.out.progress("looking", unit="memories") as advance:
        there = await memory.forget(**chosen, permanently=True, dry_run=True, progress=advance)
    missing = [item_id for item_id in ids if item_id not in there.ids]
    for item_id in missing:
        say(str(await not_there(run.target, memory, item_id)))
    if dry_run:
        if run.out.is_json:
            run.out.data({"dry_run": True, "items": [as_json(item) for item in there]})
        else:
            print_items(run.out, list(there))
        if there or not missing:
            run.out.note(f"{len(there)} would be erased for good")
        return NOT_FOUND if missing else 0
    lines = [shortened(said(item), 200) for item in there]
    if there and not yes and not is_agreed(run.out, f"erase {counted(len(there))} for good", lines):
        return ERROR
    # These and no others: what came meanwhile was not asked about.
    with run.out.progress("erasing", unit="") as advance:
        done = await memory.forget(
            [*dict.fromkeys([*ids, *there.ids])], permanently=True, progress=advance
        )
    assert done.erasure is not None  # noqa: S101 - as it is no dry run
    if missing and not done.erasure.total and done.erasure and not run.out.is_json:
        return NOT_FOUND  # which was said: there is nothing to report of it
    code = print_erasure(run, done.erasure, done.ids)
    return code or (NOT_FOUND if missing else 0)


async def _forget_ids(
    memory: "ScopedMemory", ids: Sequence[str], *, dry_run: bool
) -> tuple[list["MemoryItem"], list[str]]:
    gone: list[MemoryItem] = []
    missing: list[str] = []
    for item_id in dict.fromkeys(ids):
        result = await memory.forget(item_id, dry_run=dry_run)
        gone += result.items
        if not result.items:
            missing.append(item_id)
    return gone, missing


def in_editor(text: str) -> str:
    """Return *text* as `$VISUAL` or `$EDITOR` left it, without line ends behind it.

    The file is readable by this user only, and gone when the editor has ended.
    """
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal for an editor; give the text, or `-` and pipe it in")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        words = shlex.split(editor) or ["vi"]
    except ValueError as exc:
        raise UsageError(f"EDITOR (`{editor}`) is not a valid command: {exc}") from None
    with TemporaryDirectory(prefix="orbiter-memory-") as folder:
        path = Path(folder) / "memory.txt"
        path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*words, str(path)], check=False)  # noqa: S603 - the user's own choice
        except FileNotFoundError:
            raise UsageError(f"there is no editor `{editor}`; set EDITOR, or give a text") from None
        except OSError as exc:
            raise UsageError(
                f"the editor `{editor}` cannot be run: {exc.strerror}; set EDITOR, or give a text"
            ) from None
        if done.returncode:
            raise UsageError(f"`{editor}` ended with {done.returncode}; nothing was changed")
        try:
            return path.read_text(encoding="utf-8").rstrip("\n")
        except FileNotFoundError:
            raise UsageError(f"`{editor}` left no text; nothing was changed") from None
        except UnicodeDecodeError:
            raise UsageError(f"`{editor}` left no UTF-8 text; nothing was changed") from None
