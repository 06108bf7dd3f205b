"""Changing memories: `edit` and `forget`."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._error_messages import ERROR, NOT_FOUND, say
from orbiter.memory.cli._lookup import find_id, not_there, note_nothing, note_replaced
from orbiter.memory.cli._options import (
    Filters,
    Labels,
    command,
    dry_run_option,
    filter_options,
    label_options,
    memory_options,
    output_options,
    read_stdin,
    read_words,
    yes_option,
)
from orbiter.memory.cli._output import is_agreed
from orbiter.memory.cli._text import counted, shortened
from orbiter.memory.cli._views import as_json, print_item, print_items, said
from orbiter.memory.cli.commands.erase import print_erasure

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.model.items import MemoryItem

__all__ = ["edit", "forget"]


@command("edit")
@click.argument("item_id", metavar="ID")
@click.argument("words", nargs=-1, metavar="[TEXT]")
@label_options
@click.option("--add-tag", "add_tags", multiple=True, help="A tag to add.")
@click.option("--remove-tag", "remove_tags", multiple=True, help="A tag to remove.")
@click.option("--index/--no-index", default=None, help="Whether recall may return it.")
@click.option("--expect", type=int, help="Only if it still has this version; else exit 4.")
@memory_options(writes=True)
@output_options
async def edit(
    run: CommandContext,
    item_id: str,
    words: tuple[str, ...],
    *,
    labels: Labels,
    add_tags: tuple[str, ...],
    remove_tags: tuple[str, ...],
    index: bool | None,
    expect: int | None,
) -> None:
    """Change a memory; the old version is kept.

    TEXT is the new text, quoted or not; `-` reads stdin. Without TEXT and options, $EDITOR opens.
    `--expires never` removes the end.
    """
    from orbiter.memory.errors import ItemNotFoundError  # noqa: PLC0415 - `--help` needs it not

    changes = labels.arguments()
    if changes["extra"] == {}:
        raise UsageError("`--extra` is empty; there is nothing to keep")
    if labels.tags and (add_tags or remove_tags):
        raise UsageError("`--tag` replaces all tags; leave it out, or `--add-tag`, `--remove-tag`")
    changes |= {
        "add_tags": list(add_tags) or None,
        "remove_tags": list(remove_tags) or None,
        "index": index,
    }
    async with run.scoped() as memory:
        item_id = await find_id(memory, item_id)
        text = read_words(words) if words else None
        if text is None and all(value is None for value in changes.values()):
            before = await memory.get(item_id)
            if before is None:
                raise await not_there(run.target, memory, item_id)
            text, expect = _in_editor(before.content), expect or before.version
            if text == before.content:
                run.out.note("nothing was changed")
                return
        try:
            item = await memory.update(item_id, text, **changes, expected_version=expect)
        except ItemNotFoundError:
            raise await not_there(run.target, memory, item_id) from None
    print_item(run.out, item)


def _in_editor(text: str) -> str:
    """Return *text* as `$VISUAL` or `$EDITOR` left it, without line ends behind it."""
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal for an editor; give the text, or `-` and pipe it in")
    made = click.edit(text)
    return text if made is None else made.rstrip("\n")


@command("forget")
@click.argument("item_ids", nargs=-1, metavar="[ID]...")
@click.option("--query", default="", help="All that contain this text.")
@filter_options
@click.option("--everything", is_flag=True, help="All memories of the scope.")
@click.option("--permanently", is_flag=True, help="Erase them, also what was forgotten before.")
@dry_run_option
@yes_option
@memory_options(writes=True)
@output_options
async def forget(
    run: CommandContext,
    item_ids: tuple[str, ...],
    *,
    query: str,
    filters: Filters,
    everything: bool,
    permanently: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete memories; they can be restored, or for good.

    Give ids (`-` reads them from stdin), or a filter.
    """
    ids = [one for each in item_ids for one in (read_stdin().split() if each == "-" else [each])]
    matching = filters.arguments() | {"query": query, "everything": everything}
    has_filter = any(value not in ("", None, False, {}) for value in matching.values())
    if bool(ids) == has_filter:
        raise UsageError(
            "say what to forget: ids, or a filter such as `--tag`, `--query`, `--where`, "
            "or `--everything`; and not both"
        )
    note_replaced(run, query, *filters.texts())
    async with run.both(meaning=False) as (store, memory):
        ids = [await find_id(memory, each) for each in ids]
        if permanently:
            chosen = matching if has_filter else {"item": ids}
            return await _erase(run, memory, ids, chosen, dry_run=dry_run, yes=yes)
        missing: list[str] = []
        if ids:
            gone, missing = await _forget_ids(memory, ids, dry_run=dry_run)
            for item_id in missing:
                say(str(await not_there(run.target, memory, item_id)))
        else:
            with run.out.progress("looking", unit="memories") as advance:
                result = await memory.forget(
                    **matching,
                    dry_run=dry_run or not yes,
                    progress=advance,
                )
            gone = list(result.items)
            if not gone:
                nothing = f"0 {'would be forgotten' if dry_run else 'forgotten'}"
                await note_nothing(run, store, nothing, kind=filters.kind)
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
