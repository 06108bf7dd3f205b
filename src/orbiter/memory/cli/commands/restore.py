"""Bringing back a memory, or a whole store from a backup: `restore`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click import UsageError

from orbiter.memory.cli._command_context import SCOPES, CommandContext, is_missing, is_served
from orbiter.memory.cli._error_messages import ERROR, NotThereError, say
from orbiter.memory.cli._lookup import find_id, not_there, past_of
from orbiter.memory.cli._options import command, memory_options, output_options, yes_option
from orbiter.memory.cli._output import can_ask, is_agreed, styled
from orbiter.memory.cli._text import counted, moment, one_line
from orbiter.memory.cli._views import print_item

if TYPE_CHECKING:
    from orbiter.memory.model.items import MemoryMetadata
    from orbiter.memory.model.reports import Restored

__all__ = ["restore"]


@command("restore")
@click.argument("item_id", metavar="ID|FILE")
@click.option("--version", type=int, help="Go back to this version.")
@yes_option
@memory_options(writes=True)
@output_options
async def restore(run: CommandContext, item_id: str, *, version: int | None, yes: bool) -> int:
    """Restore a forgotten memory, an earlier version, or a backup.

    FILE is what `backup` wrote; it replaces the whole store.
    """
    from orbiter.memory.errors import ItemNotFoundError  # noqa: PLC0415

    if _is_file_name(item_id):
        if version is not None:
            raise UsageError("`--version` is of one memory; leave it out to restore a backup")
        if options := run.target.scope_options():
            raise UsageError(
                f"a backup replaces the whole store, everyone's memories; leave `{options[0]}` out"
            )
        return await _restore_backup(run, Path(item_id), yes=yes)
    async with run.scoped() as memory:
        item_id = await find_id(memory, item_id)
        try:
            item = await memory.restore(item_id, version=version)
        except ItemNotFoundError:
            past = await past_of(memory, item_id)
            if not past:
                raise await not_there(run.target, memory, item_id) from None
            known = ", ".join(str(each.item.version) for each in past)
            raise NotThereError(
                f"the memory `{item_id}` has no version {version}; it has {known}"
            ) from None
    print_item(run.out, item)
    return 0


def _is_file_name(text: str) -> bool:
    """Return whether *text* names a file, there or not, and no memory."""
    return Path(text).is_file() or "/" in text or text.endswith((".db", ".sqlite", ".sqlite3"))


async def _restore_backup(run: CommandContext, path: Path, *, yes: bool) -> int:
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
        erased = [
            {**{f"{name}_id": value for name, value in _names(scope)}, "at": at}
            for scope, at in done.erased_since
        ]
        report = {"path": str(done.path), "items": done.items, "replaced": replaced}
        run.out.data({**report, "erased_since": erased})
    else:
        _say_restored(run, done)
    _say_erased(run, done)
    return 0


def _say_restored(run: CommandContext, done: "Restored") -> None:
    run.out.show(styled((one_line(str(done.path)), "bold"), f"  {counted(done.items)}"))
    if done.replaced is not None:
        # Also for a log of cron: whoever reads it later looks for the old store.
        say(f"the old store is kept in {one_line(str(done.replaced))}", kind="note")


def _say_erased(run: CommandContext, done: "Restored") -> None:
    """Say that whoever was erased since the backup is there again, and who that is if known."""
    text = "who was erased since this backup is in it again: erase them again"
    if done.replaced is None:  # as in a practice by a job, which must be quiet
        run.out.note(text)
    else:
        say(text, kind="note")
    place = ["--url", str(run.target.url)] if run.target.is_given("url") else []
    for scope, at in done.erased_since:
        words = [word for name, value in _names(scope) for word in (f"--{name}", one_line(value))]
        way = shlex.join(["orbiter-memory", "erase", *words, *place])
        say(f"erased {moment(at)}, and in the backup: `{way}`", kind="note")


def _names(scope: "MemoryMetadata") -> list[tuple[str, str]]:
    values = ((name, getattr(scope, f"{name}_id")) for name in SCOPES)
    return [(name, value) for name, value in values if value is not None]
