"""Moving memories in and out: `import`, `export`, `migrate`."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from orbiter.memory.cli._errors import ERROR, UsageError, in_shell_words, say
from orbiter.memory.cli._frame import Run, command, is_missing, new_app
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import counted, one_line
from orbiter.memory.cli._waiting import embed_waiting, note_waiting

if TYPE_CHECKING:
    from orbiter.memory.transfer import Imported, Migration

__all__ = ["app"]

app = new_app()

_SHOWN = 10
"""Problems of a file that are told one by one."""
_FEW = 10
"""Memories that the next `recall` may embed."""


class Source(StrEnum):
    """What can be read."""

    AUTO = "auto"
    JSONL = "jsonl"
    CHATGPT = "chatgpt"
    CLAUDE_AI = "claude-ai"
    CLAUDE_CODE = "claude-code"
    MCP = "mcp"
    LETTA = "letta"
    LANGGRAPH = "langgraph"
    OPENAI_AGENTS = "openai-agents"
    OPENAI = "openai"
    MEM0 = "mem0"
    MARKDOWN = "markdown"


class Target(StrEnum):
    """What can be written."""

    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"
    OPENAI = "openai"
    MCP = "mcp"


@command(app, "import")
async def import_(
    run: Run,
    path: Annotated[
        str, typer.Argument(help="A file, a folder, a zip or a gzip; `-` reads an export of ours.")
    ],
    *,
    format: Annotated[
        Source,
        typer.Option(
            "--format",
            metavar="<format>",
            help="What it is: `jsonl` (our own), `chatgpt`, `claude-ai`, `claude-code`, `mem0`, "
            "`langgraph`, `letta`, `mcp`, `openai`, `openai-agents`, `markdown`.",
        ),
    ] = Source.AUTO,
    owner: Annotated[
        str | None, typer.Option(help="Whose to take, where a file names several people.")
    ] = None,
) -> int:
    """Bring in memories of other programs, or an export."""
    from orbiter.memory.transfer import import_file  # noqa: PLC0415 - `--help` needs it not

    with _brought(path, format) as (file, kind):
        run.place.scope()  # before anything else: a mistake in it must not make a file
        if is_missing(run.unopened(meaning=False)):
            _check_readable(file, kind)
        async with run.both(creates=True) as (store, memory):
            with run.out.progress("importing", unit="") as advance:
                done = await import_file(memory, file, format=kind, owner=owner, progress=advance)
            waiting = await embed_waiting(run.out, store) if done.stored > _FEW else 0
    _tell_import(run, done)
    note_waiting(waiting)
    return ERROR if done.problem_count else 0


@contextmanager
def _brought(path: str, format: Source) -> Iterator[tuple[Path, str]]:
    """Yield the file to read and its format; what stdin holds is kept in a file meanwhile."""
    if path != "-":
        yield Path(path), format.value
        return
    if format not in (Source.AUTO, Source.JSONL):
        # Other formats name what they hold by the file's name, and stdin has none.
        raise UsageError(f"`-` reads what `export` wrote; save `{format.value}` as a file")
    with tempfile.TemporaryDirectory(prefix="orbiter-memory-") as folder:
        file = Path(folder, "stdin")
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield file, Source.JSONL.value


def _check_readable(path: Path, format: str) -> None:
    """Raise `TransferError` for what is not there, or cannot be read: it makes no store."""
    from orbiter.memory.items import MemoryMetadata  # noqa: PLC0415
    from orbiter.memory.transfer import _importing, _reading, _report  # noqa: PLC0415

    if _importing._is_ours(path, None) or format == Source.JSONL:  # noqa: SLF001 - it opens no store
        return
    reader = _reading.Reader(
        path, MemoryMetadata(), format=format, owner=None, limits=None, report=_report.Report()
    )
    try:
        reader.open()
        reader.batch()
    finally:
        reader.close()


def _tell_import(run: Run, done: "Imported") -> None:
    if run.out.is_json:
        problems = [{"place": each.place, "why": _why(each.why)} for each in done.problems]
        run.out.data({**asdict(done), "problems": problems})
        return
    parts = [f"{done.stored:,} stored", f"{done.unchanged:,} there already"]
    if done.skipped:
        parts.append(f"{done.skipped:,} left out")
    format = f" ({one_line(done.format)})" if done.format else ""
    run.out.show(styled((counted(done.found), "bold"), f"{format}: {', '.join(parts)}"))
    for problem in done.problems[:_SHOWN]:
        say(f"{one_line(problem.place)}: {one_line(_why(problem.why))}", kind="problem")
    more = done.problem_count - min(len(done.problems), _SHOWN)
    if more:
        told = counted(more, "more problem", "more problems")
        say(f"{told}; `--json` has the first 100", kind="problem")


def _why(text: str) -> str:
    return in_shell_words(text)


@command(app, "export")
async def export(
    run: Run,
    path: Annotated[
        str, typer.Argument(help="The new file, or folder for Markdown; `-` is stdout (jsonl).")
    ],
    *,
    format: Annotated[
        Target, typer.Option("--format", help="`jsonl` holds everything, and comes back exactly.")
    ] = Target.JSONL,
) -> None:
    """Write memories to a file that anybody can read."""
    from orbiter.memory.transfer import export_file  # noqa: PLC0415

    if path == "-" and (format is not Target.JSONL or run.out.is_json):
        raise UsageError("only `jsonl` goes to stdout, and without `--json`; name a file")
    if path == "-" and run.out.is_terminal:
        # The lines are exact, so a terminal would obey what a memory says.
        raise UsageError("`-` is for a pipe, not for a terminal; name a file, or give `| less`")
    target = sys.stdout.buffer if path == "-" else Path(path)
    async with run.scoped(meaning=False) as memory:
        with run.out.progress("exporting", unit="") as advance:
            done = await export_file(memory, target, format=format.value, progress=advance)
    if run.out.is_json:
        run.out.data(
            {
                "path": path,
                "format": format.value,
                "records": done.records,
                "versions": done.versions,
                "sha256": done.digest or None,
            }
        )
    elif path != "-":
        run.out.show(styled((one_line(path), "bold"), f"  {counted(done.records)}"))
    if not done.records:
        run.out.note(f"nothing is remembered of {run.place.told()}; `--all` takes everyone's")


@command(app, "migrate", url=False)
async def migrate(
    run: Run,
    source: Annotated[str, typer.Argument(metavar="SRC", help="Where the memories are.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where they shall be, too.")],
) -> int:
    """Copy a store to another address."""
    from orbiter.memory.transfer import migrate as copy  # noqa: PLC0415

    for name, url in (("SRC", source), ("DST", target)):
        _check_address(name, url)
    with run.out.progress("copying", unit="") as advance:
        done = await copy(source, target, progress=advance)
    _tell_migration(run, done)
    return 0 if done else ERROR


def _check_address(name: str, url: str) -> None:
    """Raise `UsageError` for what cannot be told from its password, and would be shown with it."""
    from orbiter.memory.backends._addresses import shown  # noqa: PLC0415

    if not url.lower().startswith(("postgres", "redis")):
        return
    try:
        is_plain = shown(url).find("***") < 0 and urlsplit(url).netloc.count("@") < 2
    except ValueError:
        is_plain = False
    if not is_plain:
        raise UsageError(
            f"{name} cannot be read as an address; in user and password write `%2F` for `/`, "
            "`%23` for `#`, `%3F` for `?` and `%40` for `@`"
        )


def _tell_migration(run: Run, done: "Migration") -> None:
    if run.out.is_json:
        run.out.data({**asdict(done), "verified": done.verified})
        return
    told = f"{done.copied:,} copied, {done.already_there:,} there already"
    left = f", {done.left_out:,} forgotten left out" if done.left_out else ""
    run.out.show(styled(told + left))
    mark = ("✓ ", "green") if done else ("✗ ", "bold red")
    word = "verified" if done else "and they are not the same: run it again"
    run.out.show(styled(mark, f"{done.checked:,} read back, {word}"))
