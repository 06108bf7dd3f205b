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
from typing import TYPE_CHECKING, Any

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._embed_progress import FEW, embed_waiting, note_waiting
from orbiter.memory.cli._error_messages import ERROR, in_shell_words, say
from orbiter.memory.cli._options import command, memory_options, output_options
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import counted, one_line
from orbiter.memory.transfer.formats.registry import AUTO, FORMATS, NATIVE, import_formats

if TYPE_CHECKING:
    from orbiter.memory.transfer import ImportResult, Problem

__all__ = ["import_"]

_MAX_PROBLEMS = 10
"""Problems of a file that are printed one by one."""
_COUNTED = ("found", "stored", "updated", "unchanged", "skipped", "forgotten", "problem_count")


def _check_format(_ctx: click.Context, _param: click.Parameter, name: str) -> str:
    """Return the name of a format; one that no importer has is refused."""
    if name not in (AUTO, *FORMATS) and name not in import_formats():
        raise click.BadParameter(f"'{name}' is not one of {', '.join((AUTO, *import_formats()))}.")
    return name


@command("import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--format",
    callback=_check_format,
    default=AUTO,
    help=f"`{NATIVE}` (our own), `{'`, `'.join(FORMATS[1:])}`, or what a package adds.",
)
@click.option("--owner", help="Whose memories to import, if not the user's; or which session.")
@click.option("--text", metavar="COLUMN", help="Of a table, the column that is the memory.")
@click.option("--at", metavar="COLUMN", help="Of a table, the column that says when.")
@click.option("--user-column", metavar="COLUMN", help="Of a table, whose a row is; `''` if none.")
@click.option("--day-first/--month-first", default=None, help="Whether `3/4/2026` is in April.")
@memory_options(writes=True)
@output_options
async def import_(
    run: CommandContext,
    paths: tuple[str, ...],
    *,
    format: str,
    owner: str | None,
    text: str | None,
    at: str | None,
    user_column: str | None,
    day_first: bool | None,
) -> int:
    """Import memories from other programs, or an export.

    PATH is a file, a folder, a zip or a gzip; `-` is stdin.
    """
    from orbiter.memory.transfer import import_file  # noqa: PLC0415

    columns = {"text": text, "at": at, "user_column": user_column, "day_first": day_first}
    done: list[tuple[str, ImportResult]] = []
    waiting = 0
    with _files(paths) as files:
        async with run.both(creates=True) as (store, memory):
            before = (await memory.stats()).items
            try:
                with run.out.progress("importing", unit="") as advance:
                    for path, file in zip(paths, files, strict=True):
                        result = await import_file(
                            memory,
                            file,
                            format=format,
                            owner=owner,
                            **columns,  # type: ignore[arg-type]  # each is what its name takes
                            progress=advance,
                        )
                        done.append((path, result))
                if sum(each.stored + each.updated for _, each in done) > FEW:
                    waiting = await embed_waiting(run.out, store)
            except BaseException as exc:  # Ctrl-C, too: it is printed, and goes on
                _print_results(run, done)  # what is stored stays, whatever became of the rest
                if isinstance(exc, asyncio.CancelledError):  # what Ctrl-C is in here
                    stored = (await memory.stats()).items - before
                    _say_interrupted(stored, is_complete=len(done) == len(files))
                raise
    _print_results(run, done)
    note_waiting(waiting)
    return ERROR if any(not _is_note(one) for _, each in done for one in each.problems) else 0


@contextmanager
def _files(paths: Sequence[str]) -> Iterator[list[Path]]:
    """Yield the files to read, all of which exist; what stdin holds is kept in one meanwhile.

    It is checked before the store is opened: a mistyped name must not make one.
    """
    if "-" in paths and len(paths) > 1:
        raise UsageError("`-` reads stdin, and takes no files beside it")
    for path in paths:
        if path != "-" and not Path(path).exists():
            raise UsageError(f"there is no file `{path}`; nothing was imported")
    if "-" not in paths:
        yield [Path(path) for path in paths]
        return
    with tempfile.TemporaryDirectory(prefix="orbiter-memory-") as folder:
        file = Path(folder, "stdin")
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield [file]


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


def _is_note(problem: "Problem") -> bool:
    """Return whether nothing is wrong: it is somebody else's, and was left where it is."""
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
        run.out.show(styled(name, head, f"{format}: {counts}"))
        _print_problems(name, result)
        if result.forgotten:
            count = counted(result.forgotten, "memory that was", "memories that were")
            run.out.note(
                f"{count} forgotten here stay forgotten; `orbiter-memory list --forgotten` shows "
                "what, `restore ID` brings it back"
            )


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
        say(f"{name}{more:,} more; `--json` has the first 100", kind="problem")


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
