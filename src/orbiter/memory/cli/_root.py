"""The commands by name, each loaded when it is called, so that `--help` stays quick."""

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from orbiter.memory.cli._error_messages import report, say_in_json

__all__ = ["COMMANDS", "NAME", "app", "run"]

NAME = "orbiter-memory"

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Get started": {
        "demo": ("demo", "Take a tour with sample data; your data is not touched."),
        "doctor": ("doctor", "Check the settings, this computer and the store; suggest fixes."),
    },
    "Memories": {
        "remember": ("remember", "Store memories; print their ids."),
        "recall": ("recall", "Find memories that answer a question, with reasons."),
        "list": ("memories", "List memories, newest first."),
        "show": ("memories", "Show one memory with all its details."),
        "edit": ("edit", "Change a memory; the old version is kept."),
        "forget": ("edit", "Delete memories; they can be restored, or for good."),
        "restore": ("restore", "Restore a forgotten memory, an earlier version, or a backup."),
    },
    "Facts": {
        "facts": ("facts", "Show and change facts, and when they were true."),
        "review": ("review", "Accept or discard facts that were proposed."),
    },
    "Conversations": {
        "chat": ("chat", "List conversations, or show one."),
        "context": ("chat", "Print the context for a model, within a token budget."),
    },
    "Import and export": {
        "import": ("import_", "Import memories from other programs, or an export."),
        "export": ("export", "Export memories to a file in an open format."),
        "migrate": ("export", "Copy a store to another URL."),
    },
    "Trust": {
        "quarantine": ("sources", "Hide everything from a source, or show it again."),
        "undo": ("sources", "Undo everything that a source added or changed."),
        "audit": ("audit", "Show and verify the audit log."),
    },
    "Retention": {
        "evict": ("erase", "Limit size: forget the least valuable memories first."),
        "sweep": ("maintenance", "Remove for good what has expired or was forgotten."),
        "erase": ("erase", "Erase everything in a scope permanently, and verify it."),
    },
    "Store": {
        "stats": ("maintenance", "Count memories, or those with each value of a field."),
        "users": ("users", "List the users who have memories or key-value entries."),
        "reindex": ("maintenance", "Rebuild the search indexes."),
        "backup": ("maintenance", "Copy the store to a new file, also while it is in use."),
    },
    "Server and agents": {
        "serve": ("serve", "Serve REST, MCP and the dashboard, until Ctrl-C."),
        "keys": ("keys", "Create, list, rotate and revoke API keys."),
        "mcp": ("mcp", "Run an MCP server over stdin and stdout."),
        "install": ("install", "Add this memory to an agent's program."),
        "hook": ("hook", "Answer a hook of Claude Code, which is read from stdin."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Root(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # the names to suggest

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the parent's signature
        """Return every name."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of that name, or `None`."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"orbiter.memory.cli.commands.{COMMANDS[cmd_name][0]}")
        made = (each for each in vars(module).values() if isinstance(each, click.Command))
        return next(each for each in made if each.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands by section, without loading one."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()])

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Run; print an error as one line, and exit with the code that says what happened."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **more)  # type: ignore[call-overload]  # as it came
        words = list((more.get("args") or (args[0] if args else None)) or sys.argv[1:])
        say_in_json(words[:1] == ["serve"] and _wants_json_log(words))
        try:
            code = super().main(*args, standalone_mode=False, **more)  # type: ignore[call-overload]  # as it came
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001 - it is printed, and becomes the exit code
            code = report(exc)
        # An agent that calls a hook takes 2 for "do not go on", and it is the code of a bad option.
        is_hook = words[:1] == ["hook"]
        return sys.exit(0 if is_hook else code if isinstance(code, int) else 0)


def _wants_json_log(words: Sequence[str]) -> bool:
    """Return whether the log of `serve` with the options *words*, right or wrong, is JSON.

    Asked before they are read, as what is wrong with them is a line of that log; and of a file that
    is no TOML, too.
    """
    chosen = _value_of("--log-format", words) or os.environ.get("ORBITER_MEMORY_LOG_FORMAT")
    path = _value_of("--config", words) or os.environ.get("ORBITER_MEMORY_CONFIG")
    if chosen or not path:
        return (chosen or "").lower() == "json"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return (
        re.search(r"^\s*log-format\s*=\s*[\"']json[\"']", text, re.MULTILINE | re.IGNORECASE)
        is not None
    )


def _value_of(option: str, words: Sequence[str]) -> str | None:
    values = [after for word, after in pairwise(words) if word == option]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return values[-1] if values else None


def _drop_placeholders() -> None:
    """Unset variables whose value is their own placeholder, such as `${ORBITER_MEMORY_URL}`.

    A file that `install --project` wrote has those. Claude Code passes them on as they are where
    the variable is not set; as a URL, it would be a file of that name in the project.
    """
    for name in [each for each in os.environ if each.startswith("ORBITER_MEMORY_")]:
        if os.environ[name].lstrip("$") in (f"{{{name}}}", f"{{env:{name}}}"):
            del os.environ[name]


@click.group(
    NAME,
    cls=Root,
    context_settings={"help_option_names": ["--help", "-h"]},  # every command inherits it
)
@click.version_option(package_name=NAME, message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks.  [env var: ORBITER_DEBUG]")
def app(*, debug: bool) -> None:
    """Memory for LLM agents: remember, recall, inspect, correct.

    The options of a store, a scope and a server can be variables: `--url` is ORBITER_MEMORY_URL.
    """
    _drop_placeholders()
    if debug:
        os.environ["ORBITER_DEBUG"] = "1"


def _open_closed() -> None:
    """Have a shell's `<&-` and `>&-` mean nothing to read, and nobody who reads."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # In this order, each takes the number that is its own, and no store's file does.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open until the end


def run() -> None:
    """Run the command that `sys.argv` names."""
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a letter that the terminal has not is shown as an escape
            reconfigure(errors="backslashreplace")
    app(prog_name=NAME)
