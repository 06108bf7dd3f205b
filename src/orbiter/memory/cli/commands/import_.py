"""What other programs remember, and our own exports: `import`."""

import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.cli._command import CommandContext, command, is_missing, new_app
from orbiter.memory.cli._embed_progress import embed_waiting, note_waiting
from orbiter.memory.cli._error_messages import ERROR, UsageError, in_shell_words, say
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import counted, one_line
from orbiter.memory.transfer.formats.registry import AUTO, FORMATS, NATIVE, import_formats

if TYPE_CHECKING:
    from orbiter.memory.transfer import ImportResult, Problem

__all__ = ["app"]

app = new_app()

_MAX_PROBLEMS = 10
"""Problems of a file that are told one by one."""
_FEW = 10
"""Memories that the next `recall` may embed."""
_TABLES = ("csv", "json")
"""Formats whose rows are known by what they say, not by the name of the file."""
_COUNTED = ("found", "stored", "updated", "unchanged", "skipped", "forgotten", "problem_count")


def _check_format(name: str) -> str:
    """Return the name of a format; one that no importer has is refused."""
    if name not in (AUTO, *FORMATS) and name not in import_formats():
        raise typer.BadParameter(f"'{name}' is not one of {', '.join((AUTO, *import_formats()))}.")
    return name


@command(app, "import")
async def import_(
    run: CommandContext,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Files, folders, zips or gzips; `-` reads our own export, or a table.",
        ),
    ],
    *,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="<format>",
            callback=_check_format,
            autocompletion=lambda: [AUTO, *import_formats()],
            help=f"Format: `{NATIVE}` (our own), `{'`, `'.join(FORMATS[1:])}`, or what an "
            "installed package adds.",
        ),
    ] = AUTO,
    owner: Annotated[
        str | None,
        typer.Option(
            help="Whose memories to import, if not `--user`'s, or which session of a file."
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Of a table, the column that is the memory, such as `note`."
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of a table, the column that says when.")
    ] = None,
    user_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Of a table, the column that says whose each row is; `''` if none does.",
        ),
    ] = None,
    day_first: Annotated[
        bool | None,
        typer.Option(
            "--day-first/--month-first", help="Whether `3/4/2026` is in April or in March."
        ),
    ] = None,
) -> int:
    """Import memories from other programs, or an export."""
    from orbiter.memory.cli import _import_preview  # noqa: PLC0415
    from orbiter.memory.transfer import import_file  # noqa: PLC0415
    from orbiter.memory.transfer.formats.importer import Columns  # noqa: PLC0415

    columns = Columns(text, at, user_column, day_first)
    scope = run.target.scope()  # before anything else: a mistake in it must not make a file
    done: list[tuple[str, ImportResult]] = []
    waiting = 0
    with _brought(paths, format, is_table=columns.is_any_named) as (files, kind):
        is_new = is_missing(run.unopened(meaning=False))
        looked = []
        if is_new or len(files) > 1:  # all of them before the first is stored
            looked = [
                await _import_preview.look(each, scope, format=kind, owner=owner, columns=columns)
                for each in files
            ]
        if is_new and not any(each.has_more for each in looked):
            done = [(path, each.result) for path, each in zip(paths, looked, strict=True)]
        else:
            async with run.both(creates=True) as (store, memory):
                before = (await memory.stats()).items
                try:
                    with run.out.progress("importing", unit="") as advance:
                        for path, file in zip(paths, files, strict=True):
                            result = await import_file(
                                memory,
                                file,
                                format=kind,
                                owner=owner,
                                **asdict(columns),
                                progress=advance,
                            )
                            done.append((path, result))
                    if sum(each.stored + each.updated for _, each in done) > _FEW:
                        waiting = await embed_waiting(run.out, store)
                except BaseException as exc:  # Ctrl-C, too: it is told, and goes on
                    _print_results(run, done)  # what is stored stays, whatever became of the rest
                    if isinstance(exc, asyncio.CancelledError):  # what Ctrl-C is in here
                        stored = (await memory.stats()).items - before
                        _say_interrupted(stored, is_complete=len(done) == len(files))
                    raise
    _print_results(run, done)
    note_waiting(waiting)
    return ERROR if any(not _is_note(one) for _, each in done for one in each.problems) else 0


def _say_interrupted(stored: int, *, is_complete: bool) -> None:
    """Say what an interrupted import has stored, and how to continue it; also in a log."""
    if is_complete:
        say("stopped while embedding; everything is stored, `recall` embeds the rest", kind="note")
        return
    # Others may have forgotten more meanwhile than this has stored.
    count = f"{counted(stored, 'new memory is', 'new memories are')} stored" if stored > 0 else ""
    say(
        f"stopped; {count or 'no new memory is stored'}. Run the same command again to continue: "
        "nothing is imported twice",
        kind="note",
    )


@contextmanager
def _brought(
    paths: Sequence[str], format: str, *, is_table: bool
) -> Iterator[tuple[list[Path], str]]:
    """Yield the files to read and their format; what stdin holds is kept in a file meanwhile."""
    if "-" not in paths:
        yield [Path(path) for path in paths], format
        return
    is_table = format in _TABLES or (is_table and format == AUTO)
    if (format not in (AUTO, NATIVE) and not is_table) or list(paths) != ["-"]:
        # Other formats name what they hold by the file's name, and stdin has none.
        what = f"`{format}`" if list(paths) == ["-"] else "what else there is"
        raise UsageError(f"`-` reads what `export` wrote, or a table; save {what} as a file")
    from orbiter.memory.cli._import_preview import is_ours, kind_of  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="orbiter-memory-") as folder:
        file = Path(folder, "stdin")
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        if is_table:
            yield [file], format
            return
        kind = kind_of(file) if format == AUTO else NATIVE
        if kind not in (NATIVE, *_TABLES) or (kind == NATIVE and not is_ours(file)):
            what = f"this is `{kind}`" if kind not in (None, NATIVE) else "this is something else"
            raise UsageError(
                f"stdin takes what `orbiter-memory export` wrote, or a table, and {what}; write it "
                "to a file, and import that. If it is a table, add `--format csv` or "
                "`--format json`"
            )
        yield [file], kind


def _is_note(problem: "Problem") -> bool:
    """Tell whether nothing is wrong: it is somebody else's, and was left where it is."""
    return problem.why.endswith(" were not imported")


def _print_results(run: CommandContext, done: "Sequence[tuple[str, ImportResult]]") -> None:
    if run.out.is_json:
        if done:
            run.out.data(_json(done))
        return
    for path, result in done:
        counts = (
            f"{result.stored:,} new, {result.updated:,} updated, {result.unchanged:,} unchanged, "
            f"{result.skipped:,} skipped"
        )
        name = f"{one_line(path)}: " if len(done) > 1 else ""
        format = f" ({one_line(result.format)})" if result.format else ""
        head = (counted(result.found), "bold")
        run.out.show(styled(name, head, f"{format}: {counts}{_amiss(result)}"))
        _print_problems(name, result)
        if result.forgotten:
            count = counted(result.forgotten, "memory that was", "memories that were")
            run.out.note(
                f"{count} forgotten here stay forgotten; `orbiter-memory list --forgotten` shows "
                "what, `restore ID` brings it back"
            )


def _amiss(result: "ImportResult") -> str:
    """Return how many rows were not stored, or not with their time, if all of them are known."""
    if result.problem_count > len(result.problems):
        return f"; {result.problem_count:,} problems"
    kinds = (("so it is not stored", "not stored"), ("; it is stored, and dated now", "dated now"))
    counts = [(sum(why in each.why for each in result.problems), kind) for why, kind in kinds]
    return "".join(f"; {count:,} {kind}" for count, kind in counts if count)


def _print_problems(name: str, result: "ImportResult") -> None:
    # What is wrong comes first: others of whom a file tells may be many.
    problems = sorted(result.problems, key=_is_note)
    for problem in problems[:_MAX_PROBLEMS]:
        kind = "note" if _is_note(problem) else "problem"
        why = one_line(in_shell_words(problem.why))
        say(f"{name}{one_line(problem.place)}: {why}", kind=kind)
    for note in result.notes:
        say(f"{name}{one_line(in_shell_words(note))}", kind="note")
    more = result.problem_count - min(len(problems), _MAX_PROBLEMS)
    if more:
        is_all_notes = all(map(_is_note, problems))
        what = ("more note", "more notes") if is_all_notes else ("more problem", "more problems")
        kind = "note" if is_all_notes else "problem"
        say(f"{name}{counted(more, *what)}; `--json` has the first 100", kind=kind)


def _json(done: "Sequence[tuple[str, ImportResult]]") -> dict[str, Any]:
    """Return what became of all files together, and of each."""
    files = [
        {
            "path": path,
            **asdict(each),
            "problems": _problems(each),
            "notes": [in_shell_words(note) for note in each.notes],
        }
        for path, each in done
    ]
    sums: Counter[str] = Counter()
    for each in files:
        sums.update({name: each[name] for name in _COUNTED})
    formats = dict.fromkeys(each.format for _, each in done if each.format)
    return {
        "format": ", ".join(formats),
        **{name: sums[name] for name in _COUNTED},
        "problems": [one for each in files for one in each["problems"]],
        "files": files,
    }


def _problems(result: "ImportResult") -> list[dict[str, object]]:
    return [
        {"place": each.place, "why": in_shell_words(each.why), "is_note": _is_note(each)}
        for each in result.problems
    ]
