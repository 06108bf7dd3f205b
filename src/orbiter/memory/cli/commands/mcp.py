"""Giving a memory to programs that speak the Model Context Protocol: `mcp`, `install`."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._client_config import CLIENTS, Client, Name
from orbiter.memory.cli._command import SCOPES, CommandContext, Target, command, new_app
from orbiter.memory.cli._error_messages import UsageError, say, without_passwords

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory

__all__ = ["app"]

app = new_app()

_REFERENCE_FILE = "MEMORY_FILE_PATH"


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
    async with run.scoped(creates=True) as handle:
        if not read_only:
            await _import_first(handle, import_file, is_graph=tools is Tools.KG)
        server = build(lambda _: handle, tools=tools.value, read_only=read_only)
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


@command(app, "install", everyone=False, json=False)
def install(
    run: CommandContext,
    client: Annotated[Name, typer.Argument(metavar="CLIENT", help="The program to set up.")],
    *,
    tools: Chosen = Tools.MEMORY,
    read_only: ReadOnly = False,
    project: Annotated[
        bool, typer.Option("--project", help="Only for the project in this folder.")
    ] = False,
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
    from orbiter.memory.cli._client_config import plan, write  # noqa: PLC0415

    _check_can_start()
    if not name.strip():
        raise UsageError("`--name` is empty; leave it out, or say what the server is called")
    found = CLIENTS[client]
    path = _file_of(found, project=project)
    arguments, env = _settings(run.target, is_shared=project)
    run.target.scope()  # a mistake in whose memories, or where, is told now
    run.unopened(meaning=False)
    profile = [] if tools is Tools.MEMORY else ["--tools", tools.value]
    started = [sys.executable, "-m", "orbiter.memory.cli", "mcp", *profile]
    started += ["--read-only"] if read_only else []
    entry = found.entry([*started, *arguments], env, is_shared=project)
    change = plan(found, path, name, entry)
    if not change.is_needed:
        run.out.text(f"{found.title} has it already: {path}")
        return
    if change.there is not None and not force:
        if dry_run:
            run.out.text(_hidden(change.diff(), env))
        raise UsageError(
            f"`{path}` has another `{name}`, {_describe_entry(change.there)}; `--force` replaces "
            "it, `--name` adds one beside it"
        )
    if dry_run:
        run.out.text(f"would write {path}")
        run.out.text(_hidden(change.diff(), env))
        return
    backup = write(change)
    run.out.text(f"wrote {path}" + (f", the old file is {backup.name}" if backup else ""))
    run.out.text(found.then)
    if project and env:
        run.out.text(
            f"the file can be committed, it holds no secret: set {' and '.join(env)} where "
            f"{found.title} is started"
        )


def _check_can_start() -> None:
    """Refuse to write down what this Python could not run."""
    from importlib.util import find_spec  # noqa: PLC0415 - `--help` needs it not

    if find_spec("mcp") is None:
        raise ModuleNotFoundError(
            f"nothing was written: `{sys.executable}` has no SDK of the Model Context Protocol; "
            "pip install 'orbiter-memory[mcp]'"
        )


def _file_of(client: Client, *, project: bool) -> Path:
    if not project:
        return client.user_file()
    if client.project_file is None:
        raise UsageError(
            f"{client.title} has no configuration for one project; leave `--project` out"
        )
    return Path.cwd() / client.project_file


def _settings(target: Target, *, is_shared: bool) -> tuple[list[str], dict[str, str]]:
    """Return the options and the environment that lead to the same store, wherever it is started.

    The client has another folder and another environment, so what those say here is written down.
    The key of a server goes to the environment, which other users of the computer cannot see; so
    does an address with a password, if the file is shared.
    """
    from orbiter.memory.backends.registry import is_http_url  # noqa: PLC0415 - `--help` needs it not

    options: list[str] = []
    env: dict[str, str] = {}
    for name in ("url", "model", *SCOPES, "by"):
        given, origin = target.setting(name)
        if name == "user" and not origin.startswith(("--", "ORBITER")):
            continue  # the computer's user, who will be the same there
        if is_shared and name == "url" and given and without_passwords(given) != given:
            env["ORBITER_MEMORY_URL"] = given
        elif given is not None:
            options += [f"--{name}", _absolute(given) if name == "url" else given]
        elif origin == "--no-user":
            options.append(origin)
    token = target.setting("token")[0]
    if token is not None and is_http_url(target.setting("url")[0]):
        env["ORBITER_MEMORY_TOKEN"] = token
    return options, env


def _absolute(url: str) -> str:
    """Return the address of a file from the root on."""
    scheme, mark, rest = url.partition(":///")
    if mark and scheme == "sqlite":
        return f"sqlite:///{Path(rest).expanduser().absolute()}" if rest != ":memory:" else url
    if "://" in url or url == ":memory:":
        return url
    return str(Path(url).expanduser().absolute())


def _describe_entry(entry: object) -> str:
    """Return what an entry starts, or where it leads; its environment may hold secrets."""
    if not isinstance(entry, Mapping):
        return "which is not an object"
    words = [entry.get("command") or entry.get("url") or "", *(entry.get("args") or ())]
    return f"`{without_passwords(' '.join(map(str, words)))}`"


def _hidden(text: str, env: dict[str, str]) -> str:
    for secret in env.values():
        text = text.replace(secret, "***")
    return without_passwords(text)
