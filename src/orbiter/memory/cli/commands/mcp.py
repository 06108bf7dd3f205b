"""An MCP server over stdin and stdout: `mcp`."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._error_messages import say
from orbiter.memory.cli._options import command, memory_options

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory

__all__ = ["mcp", "read_only_option", "tools_option"]

_REFERENCE_FILE = "MEMORY_FILE_PATH"

tools_option = click.option(
    "--tools",
    type=click.Choice(["memory", "kg", "openai"]),
    default="memory",
    show_default=True,
    help="`kg`: a knowledge graph; `openai`: search and fetch.",
)
read_only_option = click.option("--read-only", is_flag=True, help="Only tools that change nothing.")


@command("mcp")
@tools_option
@read_only_option
@memory_options(everyone=False, writes=True)
async def mcp(run: CommandContext, *, tools: str, read_only: bool) -> None:
    """Run an MCP server over stdin and stdout."""
    from orbiter.memory.mcp import build  # noqa: PLC0415 - `--help` needs it not

    # Before the store is opened: without the SDK, no file is made.
    server = build(lambda _: handle, tools=tools, read_only=read_only)  # type: ignore[arg-type]  # one of them
    async with run.scoped(creates=True) as handle:
        if tools == "kg" and not read_only:
            await _import_reference_file(handle)
        if sys.stdin.isatty():
            say("this command is started by an agent's program; Ctrl-C stops it", kind="note")
        with _ended_by_ctrl_c():
            await server.run_stdio_async()


async def _import_reference_file(handle: "ScopedMemory") -> None:
    """Import the graph of the reference server, if there is none here yet."""
    from orbiter.memory.mcp.graph import is_empty  # noqa: PLC0415
    from orbiter.memory.transfer import import_file  # noqa: PLC0415

    path = _reference_file()
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
