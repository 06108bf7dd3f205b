"""Giving a memory to programs that speak the Model Context Protocol: `mcp`, `install`."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory._lazy import with_install_note
from orbiter.memory.cli._client_config import CLIENTS, Client, Name
from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._error_messages import NotThereError, UsageError, say, without_passwords
from orbiter.memory.cli._launch import Via, launcher, settings_of, shell_line

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.cli._client_config import Change

__all__ = ["app"]

app = new_app()

_REFERENCE_FILE = "MEMORY_FILE_PATH"
_HOOK_SECONDS = 30
"""Seconds that an agent waits for a hook at most; the first start by `uvx` loads packages."""


class Tools(StrEnum):
    """Which tools a model is given."""

    MEMORY = "memory"
    KG = "kg"
    OPENAI = "openai"


Chosen = Annotated[
    Tools,
    typer.Option("--tools", help="`memory`; `kg` (knowledge graph); `openai` (search and fetch)."),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Only tools that change nothing.")]


@command(app, "mcp", everyone=False, json=False)
async def mcp(
    run: CommandContext,
    *,
    tools: Chosen = Tools.MEMORY,
    read_only: ReadOnly = False,
    import_file: Annotated[
        Path | None,
        typer.Option("--import", help="First import this `memory.jsonl` of the reference server."),
    ] = None,
) -> None:
    """Run an MCP server over stdin and stdout."""
    from orbiter.memory.mcp import build  # noqa: PLC0415 - `--help` needs it not

    if read_only and import_file is not None:
        raise UsageError("`--import` writes, and `--read-only` forbids it; leave one of them out")
    # Before the store is opened: without the SDK, no file is made.
    server = build(lambda _: handle, tools=tools.value, read_only=read_only)
    async with run.scoped(creates=True) as handle:
        if not read_only:
            await _import_first(handle, import_file, is_graph=tools is Tools.KG)
        if sys.stdin.isatty():
            say("this command is started by an agent's program; Ctrl-C stops it", kind="note")
        with _ended_by_ctrl_c():
            await server.run_stdio_async()


async def _import_first(handle: "ScopedMemory", path: Path | None, *, is_graph: bool) -> None:
    """Import a graph: the one that was named, or the reference server's, if there is none yet."""
    from orbiter.memory.mcp.graph import is_empty  # noqa: PLC0415
    from orbiter.memory.transfer import import_file  # noqa: PLC0415

    if path is None:
        path = _reference_file() if is_graph else None
        if path is None or not await is_empty(handle):
            return
    done = await import_file(handle, path, format="mcp")
    say(f"{done.stored + done.updated} memories imported from `{path}`", kind="note")
    for problem in done.problems[:10]:
        say(str(problem), kind="note")


def _reference_file() -> Path | None:
    """Return the file that the reference server would use, if it was told one that is there."""
    named = os.environ.get(_REFERENCE_FILE)
    path = Path(named).expanduser() if named else None
    return path if path is not None and path.is_file() else None


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Have Ctrl-C end the process at once: the thread that waits for a line cannot be woken.

    Nothing is lost by it, as every answer is given when what it says is durable.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_NAMES = f"`{'`, `'.join(Name)}`"


def _check_client(name: str) -> str:
    if name not in list(Name):
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, map(str, Name)))}.")
    return name


def _client(text: str) -> Any:
    """Return an argument that names a program; a list of all in one word would not wrap."""
    names = [str(each) for each in Name]
    return typer.Argument(
        metavar="CLIENT", help=text, callback=_check_client, autocompletion=lambda: names
    )


@command(app, "install", everyone=False, json=False)
def install(  # noqa: PLR0913 - each is an option
    run: CommandContext,
    client: Annotated[str, _client(f"The program to set up: {_NAMES}.")],
    *,
    hooks: Annotated[
        bool,
        typer.Option(
            "--hooks", help="Also context at each start, and transcripts remembered (Claude Code)."
        ),
    ] = False,
    tools: Chosen = Tools.MEMORY,
    read_only: ReadOnly = False,
    project: Annotated[
        bool, typer.Option("--project", help="Only for the project in this folder.")
    ] = False,
    via: Annotated[
        Via | None,
        typer.Option(
            "--via",
            help="What starts it: this `python`, the `command` on the PATH, or `uvx`.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="Name of the server there.")
    ] = "orbiter-memory",
    force: Annotated[
        bool, typer.Option("--force", help="Replace another entry of that name.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the file and what would change in it.")
    ] = False,
) -> None:
    """Add this memory to the MCP configuration of an agent."""
    from orbiter.memory.cli._client_config import plan  # noqa: PLC0415

    program = CLIENTS[Name(client)]
    if not name.strip():
        raise UsageError("`--name` is empty; leave it out, or say what the server is called")
    if hooks and read_only:
        raise UsageError("`--hooks` remembers, and `--read-only` forbids it; leave one of them out")
    folder = Path.cwd() if project else None
    path = _file_of(program, folder)
    launched, start = launcher(via, run.target, is_shared=project)
    if launched is not Via.UVX:
        _check_can_start()
    arguments, env = settings_of(run.target, is_shared=project)
    run.target.scope()  # a mistake in whose memories, or where, is told now
    run.unopened(meaning=False)
    profile = [] if tools is Tools.MEMORY else ["--tools", tools.value]
    started = [*start, "mcp", *profile, *(["--read-only"] if read_only else [])]
    entry = program.entry([*started, *arguments], env, is_shared=project)
    change = plan(program, path, name, entry)
    changes = [
        change,
        *([_plan_hooks(program, folder, [*start, "hook", *arguments])] if hooks else []),
    ]
    is_other = change.is_needed and change.there is not None
    if is_other and not force:
        if dry_run:
            run.out.text(_hidden(change, env))
        raise UsageError(
            f"`{path}` has another `{name}`, {_describe_entry(change.there)}; `--force` replaces "
            "it, `--name` adds one beside it"
        )
    if not any(each.is_needed for each in changes):
        run.out.text(f"{program.title} has it already: {_paths(changes)}")
        return
    needed = [each for each in changes if each.is_needed]
    _write(run, needed, env, dry_run=dry_run, project=folder)
    if dry_run:
        return
    run.out.text(program.then)
    if env and (project or hooks):
        kept = "the file can be committed, it holds no secret and no path of this machine: "
        run.out.text(
            f"{kept if project else 'hooks are given no secret: '}set {' and '.join(env)} where "
            f"{program.title} is started"
        )


@command(app, "uninstall", url=False, json=False)
def uninstall(
    run: CommandContext,
    client: Annotated[str, _client(f"The program that has it: {_NAMES}.")],
    *,
    project: Annotated[
        bool, typer.Option("--project", help="Only for the project in this folder.")
    ] = False,
    name: Annotated[
        str, typer.Option("--name", help="Name of the server there.")
    ] = "orbiter-memory",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the file and what would change in it.")
    ] = False,
) -> None:
    """Remove this memory from the configuration of an agent."""
    from orbiter.memory.cli._client_config import (  # noqa: PLC0415
        plan_removal,
        plan_without_hooks,
    )

    program = CLIENTS[Name(client)]
    folder = Path.cwd() if project else None
    changes = [plan_removal(program, _file_of(program, folder), name)]
    if program.hooks_file is not None:
        changes.append(plan_without_hooks(_hooks_file(program, folder)))
    needed = [each for each in changes if each.is_needed]
    if not needed:
        raise NotThereError(f"{program.title} does not have it: {_paths(changes)}")
    _write(run, needed, {}, dry_run=dry_run, project=folder)


def _write(
    run: CommandContext,
    changes: "list[Change]",
    env: dict[str, str],
    *,
    dry_run: bool,
    project: Path | None,
) -> None:
    from orbiter.memory.cli._client_config import write  # noqa: PLC0415

    for change in changes:
        if dry_run:
            run.out.text(f"would {'remove' if change.is_removal else 'write'} {change.path}")
            run.out.text(_hidden(change, env))
            continue
        done = "removed" if change.is_removal else "wrote"
        backup = write(change, project=project)
        note = f", the old file is {backup.name}" if backup else ""
        run.out.text(f"{done} {change.path}{note}")


def _plan_hooks(client: Client, folder: Path | None, command: list[str]) -> "Change":
    """Return what is to change so that Claude Code calls *command* at a start and at a stop."""
    from orbiter.memory.cli._client_config import plan_hooks  # noqa: PLC0415

    started = {"type": "command", "command": shell_line(command), "timeout": _HOOK_SECONDS}
    return plan_hooks(
        _hooks_file(client, folder),
        {
            # A session that is resumed has the context of its start.
            "SessionStart": {"matcher": "startup|clear|compact", "hooks": [started]},
            "Stop": {"hooks": [started]},
        },
    )


def _hooks_file(client: Client, folder: Path | None) -> Path:
    if client.hooks_file is None:
        raise UsageError(f"{client.title} has no hooks that are known here; leave `--hooks` out")
    user_file, project_file = client.hooks_file
    return user_file() if folder is None else folder / project_file


def _paths(changes: "list[Change]") -> str:
    return " and ".join(str(each.path) for each in changes)


def _check_can_start() -> None:
    """Refuse to write down what this Python could not run."""
    from importlib.util import find_spec  # noqa: PLC0415 - `--help` needs it not

    if find_spec("mcp") is None:
        error = ModuleNotFoundError(
            f"nothing was written: `{sys.executable}` has no SDK of the Model Context Protocol; "
            "pip install 'orbiter-memory[mcp]', or use `--via uvx`"
        )
        raise with_install_note(error, "mcp")


def _file_of(client: Client, folder: Path | None) -> Path:
    path = client.file(folder)
    if path is None:
        raise UsageError(
            f"{client.title} has no configuration for one project; leave `--project` out"
        )
    return path


def _describe_entry(entry: object) -> str:
    """Return what an entry starts, or where it leads; its environment may hold secrets."""
    if not isinstance(entry, Mapping):
        return "which is not an object"
    command = entry.get("command") or entry.get("url") or ""
    words = [*(command if isinstance(command, list) else [command]), *(entry.get("args") or ())]
    return f"`{without_passwords(' '.join(map(str, words)))}`"


def _hidden(change: "Change", env: Mapping[str, str]) -> str:
    """Return the change, line by line, without the secrets of the old entry and of the new one."""
    old = change.there if isinstance(change.there, Mapping) else {}
    text = change.diff()
    for each in (env, old.get("env"), old.get("environment")):
        for secret in each.values() if isinstance(each, Mapping) else ():
            text = text.replace(str(secret), "***") if secret else text
    return without_passwords(text)
