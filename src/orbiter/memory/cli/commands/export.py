"""Moving memories out: `export`, `migrate`."""

import shlex
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click import UsageError

from orbiter.memory.cli._command_context import SCOPES, CommandContext, Target
from orbiter.memory.cli._error_messages import ERROR, say
from orbiter.memory.cli._lookup import note_nothing
from orbiter.memory.cli._options import command, memory_options, output_options
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import counted, one_line, stored
from orbiter.memory.transfer.formats.registry import AUTO, NATIVE, WRITTEN

if TYPE_CHECKING:
    from orbiter.memory.transfer import Migration

__all__ = ["export", "migrate"]


@command("export")
@click.argument("path")
@click.option(
    "--format",
    type=click.Choice([AUTO, *WRITTEN]),
    default=AUTO,
    help="`auto` goes by the file name; `jsonl` keeps everything, to be imported without loss.",
)
@memory_options()
@output_options
async def export(run: CommandContext, path: str, *, format: str) -> None:
    """Export memories to a file in an open format.

    PATH is a new file, or for Markdown a new folder; `-` is stdout (jsonl).
    """
    from orbiter.memory.transfer import export_file  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.transfer.export_formats import format_for  # noqa: PLC0415
    from orbiter.memory.transfer.io.output_file import check_free  # noqa: PLC0415

    if path == "-" and (format not in (AUTO, NATIVE) or run.out.is_json):
        raise UsageError("only `jsonl` goes to stdout, and without `--json`; name a file")
    if path == "-" and run.out.is_terminal:
        # The lines are exact, so a terminal would obey what a memory says.
        raise UsageError("`-` is for a pipe, not for a terminal; name a file, or give `| less`")
    # As it was given: a `/` in the end says that it is a folder.
    target = sys.stdout.buffer if path == "-" else path
    if format == AUTO and path.lower().endswith((".md", ".markdown")):
        way = shlex.join(["orbiter-memory", "export", f"{Path(path).with_suffix('')}/"])
        options = _options(run.target)
        raise UsageError(f"Markdown is written as a folder, one file each: `{way}{options}`")
    kind = format_for(target, format, known=WRITTEN)
    if path != "-":
        check_free(Path(path))
    async with run.both(meaning=False) as (store, memory):
        with run.out.progress("exporting", unit="") as advance:
            done = await export_file(memory, target, format=kind, progress=advance)
        if not done.records and not done.entries:
            none = "nothing is stored" if kind == NATIVE else "there are no memories"
            way = run.target.or_all("exports")
            await note_nothing(run, store, f"{none} of {run.target.describe()}{way}")
    if kind != NATIVE:  # as who keeps it as a copy must know
        say(
            "it has what is remembered now, without earlier versions, forgotten memories and "
            "key-value entries; `orbiter-memory export FILE.jsonl` has all of it",
            kind="note",
        )
    if run.out.is_json:
        run.out.data(
            {
                "path": path,
                "format": kind,
                "is_complete": kind == NATIVE,
                "records": done.records,
                "versions": done.versions,
                "entries": done.entries,
                "sha256": done.digest or None,
            }
        )
    elif path != "-":
        run.out.show(styled((one_line(path), "bold"), f"  {stored(done.records, done.entries)}"))


def _options(target: Target) -> str:
    """Return the options that name the store and the scope, to repeat them in advice."""
    names = [name for name in ("url", *SCOPES) if target.is_given(name)]
    words = [word for name in names for word in (f"--{name}", str(getattr(target, name)))]
    words += [word for word in target.scope_options() if word in ("--all", "--no-user")]
    return "".join(f" {shlex.quote(word)}" for word in words)


@command("migrate")
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--overwrite", is_flag=True, help="Replace what has changed in DST.")
@output_options
async def migrate(run: CommandContext, source: str, target: str, *, overwrite: bool) -> int:
    """Copy a store to another URL."""
    from orbiter.memory.transfer import migrate as copy  # noqa: PLC0415

    for name, url in (("SRC", source), ("DST", target)):
        _check_address(name, url)
    with run.out.progress("copying", unit="") as advance:
        done = await copy(source, target, progress=advance, overwrite=overwrite)
    _print_migration(run, done)
    _note_keys(source, target)
    return 0 if done else ERROR


def _note_keys(source: str, target: str) -> None:
    """Say that the keys of a server stay, and how to take those of a file along."""
    from orbiter.memory.auth import key_file_for  # noqa: PLC0415 - for this alone
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415

    with suppress(MemoryError):  # an address that has no file
        old, new = key_file_for(source), key_file_for(target)
        if old.exists():
            way = shlex.join(["install", "-D", "-m", "600", str(old), str(new)])
            say(f"the keys in `{old}` are not copied; `{way}` copies them", kind="note")
            return
    if source.startswith("postgres"):
        say("keys in the table orbiter_keys of SRC are not copied", kind="note")


def _check_address(name: str, url: str) -> None:
    """Raise `UsageError` for what cannot be told from its password, and would be shown with it."""
    from orbiter.memory.backends.urls import redacted  # noqa: PLC0415

    if not url.lower().startswith(("postgres", "redis")):
        return
    try:
        is_plain = redacted(url).find("***") < 0 and urlsplit(url).netloc.count("@") < 2
    except ValueError:
        is_plain = False
    if not is_plain:
        raise UsageError(
            f"{name} cannot be read as an address; in user and password write `%2F` for `/`, "
            "`%23` for `#`, `%3F` for `?` and `%40` for `@`"
        )


def _print_migration(run: CommandContext, done: "Migration") -> None:
    if run.out.is_json:
        run.out.data({**asdict(done), "verified": done.verified})
        return
    summary = f"{done.copied:,} copied, {done.already_there:,} there already"
    left = f", {done.left_out:,} forgotten left out" if done.left_out else ""
    run.out.show(styled(summary + left))
    if done.kept:
        some = ", ".join(map(one_line, done.conflicts[:5]))
        kept = f"{counted(done.kept)} changed in DST and was kept: {some}"
        run.out.show(styled(("! ", "yellow"), f"{kept}; `--overwrite` replaces it"))
    mark = ("✓ ", "green") if done.verified else ("✗ ", "bold red")
    word = "verified" if done.verified else "and they are not the same: run it again"
    run.out.show(styled(mark, f"{done.checked:,} read back, {word}"))
