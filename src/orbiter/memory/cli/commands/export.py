"""Moving memories out: `export`, `migrate`."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from orbiter.memory.cli._command import SCOPES, CommandContext, Target, command, new_app
from orbiter.memory.cli._error_messages import ERROR, UsageError, say
from orbiter.memory.cli._item_ids import note_nothing
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import counted, one_line, stored
from orbiter.memory.transfer.formats.registry import AUTO, NATIVE, WRITTEN

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory
    from orbiter.memory.transfer import ExportResult, Migration

__all__ = ["app"]

app = new_app()


def _check_format(name: str) -> str:
    """Return the name of a format; one that cannot be written is refused."""
    if name not in (AUTO, *WRITTEN):
        raise typer.BadParameter(f"'{name}' is not one of {', '.join((AUTO, *WRITTEN))}.")
    return name


@command(app, "export", reads=True)
async def export(
    run: CommandContext,
    path: Annotated[
        str, typer.Argument(help="The new file, or folder for Markdown; `-` is stdout (jsonl).")
    ],
    *,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar=f"<{'|'.join((AUTO, *WRITTEN))}>",
            callback=_check_format,
            autocompletion=lambda: [AUTO, *WRITTEN],
            help=(
                "`auto` goes by the file name; `jsonl` keeps everything, to be imported without "
                "loss."
            ),
        ),
    ] = AUTO,
) -> None:
    """Export memories to a file in an open format."""
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
        parts = await _parts(memory, done) if kind == NATIVE else ""
        if kind != NATIVE:
            await _say_left_out(run, store, memory, kind)
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
        run.out.show(
            styled((one_line(path), "bold"), f"  {stored(done.records, done.entries)}{parts}")
        )


async def _say_left_out(
    run: CommandContext, store: "AgentMemory", memory: "ScopedMemory", kind: str
) -> None:
    """Say what a format for other programs does not hold, as who keeps it as a copy must know."""
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415 - `--help` needs it not

    scope: dict[str, Any] | None = run.target.scope()
    entries = "key-value entries"
    try:
        if scope is not None:
            there = await store.erase(**scope, dry_run=True)
            entries = counted(there.entries, "key-value entry", entries) if there.entries else ""
    except MemoryError:  # a server counts them for administrators only
        pass
    forgotten = (await memory.stats()).forgotten or 0
    parts = ["earlier versions", f"{forgotten:,} forgotten" if forgotten else "", entries]
    *most, last = (each for each in parts if each)  # versions are not counted beforehand
    lacks = f"{', '.join(most)} and {last}" if most else last
    has_past = kind in ("csv", "markdown")
    now = "what is remembered now" + (", and what facts were before" if has_past else "")
    say(
        f"it has {now}, without {lacks}; `orbiter-memory export FILE.jsonl` has all of it",
        kind="note",
    )


def _options(target: Target) -> str:
    """Return the options that name the store and the scope, to repeat them in advice."""
    names = [(name, getattr(target, name)) for name in ("url", *SCOPES)]
    words = [word for name, value in names if value for word in (f"--{name}", value)]
    words += [word for word in target.scope_options() if word in ("--all", "--no-user")]
    return "".join(f" {shlex.quote(word)}" for word in words)


async def _parts(memory: "ScopedMemory", done: "ExportResult") -> str:
    """Return what an export has beside the memories that `stats` and `list` count, in brackets."""
    own = await memory.stats()
    forgotten = own.forgotten or 0
    others = done.records - own.items - forgotten
    parts = [f"{own.items:,} remembered"]  # replaced facts, too
    parts += [f"{forgotten:,} forgotten"] if forgotten else []
    parts += [f"{others:,} for internal use"] if others > 0 else []
    parts += [counted(done.versions, "earlier version", "earlier versions")] * bool(done.versions)
    return f" ({', '.join(parts)})" if parts[1:] else ""


@command(app, "migrate", url=False)
async def migrate(
    run: CommandContext,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The store to copy from.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The store to copy to.")],
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what has changed in DST.")
    ] = False,
) -> int:
    """Copy a store to another URL."""
    from orbiter.memory.transfer import migrate as copy  # noqa: PLC0415

    for name, url in (("SRC", source), ("DST", target)):
        _check_address(name, url)
    with run.out.progress("copying", unit="") as advance:
        done = await copy(source, target, progress=advance, overwrite=overwrite)
    _print_migration(run, done)
    _note_key_file(source, target)
    if _is_postgres(source):
        await _note_key_table(source, target)
    return 0 if done else ERROR


def _is_postgres(url: str) -> bool:
    return url.partition("://")[0].lower() in ("postgres", "postgresql")


async def _note_key_table(source: str, target: str) -> None:
    """Say that the keys in the table of a Postgres *source* stay, and how to take them along."""
    from orbiter.memory.auth import KeyTable  # noqa: PLC0415 - of an extra
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415

    async def count(url: str) -> int:
        table = KeyTable(url)
        try:
            return len(await table.list())
        except MemoryError:  # a role that may not read them
            return 0
        finally:
            await table.close()

    if not (here := await count(source)):
        return
    way = "make new ones with `orbiter-memory keys create --url DST`"
    if _is_postgres(target) and not await count(target):
        way = (
            '`pg_dump --no-owner --table=orbiter_keys "$SRC" | psql -qv ON_ERROR_STOP=1 "$DST"` '
            "copies them, revoked ones too"
        )
    are = "key in the table orbiter_keys of SRC is"
    are = are if here == 1 else "keys in the table orbiter_keys of SRC are"
    say(f"the {here:,} {are} not copied; {way}", kind="note")


def _note_key_file(source: str, target: str) -> None:
    """Say that the keys in the file of *source* stay, and how to take them along."""
    from orbiter.memory.auth import KeyFile, key_file_for  # noqa: PLC0415 - for this alone
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415

    try:
        path = key_file_for(source)
        count = len(KeyFile(path).list()) if path.exists() else 0
    except (MemoryError, OSError):  # keys that are elsewhere, or that others read
        return
    if not count:
        return
    are = "key in `{}` is" if count == 1 else "keys in `{}` are"
    way = "make new ones with `orbiter-memory keys create`"
    try:
        new = key_file_for(target)
        if not new.exists():
            way = f"`{shlex.join(['install', '-D', '-m', '600', str(path), str(new)])}` copies them"
            if _is_postgres(target):
                way += (
                    ", and `keys create` or `serve` with DST as `--url` moves them into its table"
                )
    except MemoryError:  # an address that has no file
        pass
    say(f"the {count:,} {are.format(path)} not copied; {way}", kind="note")


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
