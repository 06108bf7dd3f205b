"""The commands by name, each loaded when it is called, so that `--help` stays quick."""

import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orbiter.memory.cli._error_messages import (
    INTERRUPTED,
    USAGE,
    UsageError,
    report,
    say,
    say_in_json,
)
from orbiter.memory.cli._settings_file import drop_placeholders, usage_text, wants_json_log

__all__ = ["NAME", "app", "run"]

NAME = "orbiter-memory"

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Get started": {
        "demo": ("commands.demo", "Take a tour with sample data; your data is not touched."),
        "config": (
            "commands.config",
            "Show the settings, those of a server too, and where each comes from.",
        ),
        "doctor": ("commands.doctor", "Check this computer and the store; suggest fixes."),
        "completion": ("commands.config", "Print the shell completion script."),
    },
    "Memories": {
        "remember": ("commands.remember", "Store memories; print their ids."),
        "recall": ("commands.recall", "Find memories that answer a question, with reasons."),
        "list": ("commands.memories", "List memories, newest first."),
        "show": ("commands.memories", "Show one memory with all its details."),
        "edit": ("commands.edit", "Change a memory; the old version is kept."),
        "forget": ("commands.edit", "Delete memories; they can be restored, or for good."),
        "restore": (
            "commands.history",
            "Restore a forgotten memory, an earlier version, or a backup.",
        ),
        "history": ("commands.history", "Show every version of a memory and what changed."),
        "count": (
            "commands.users",
            "Count memories by the values of a field, most frequent first.",
        ),
        "tail": ("commands.tail", "Print new memories as they arrive, until Ctrl-C."),
    },
    "Facts": {
        "facts": ("commands.facts", "Show and change facts, and when they were true."),
        "review": ("commands.review", "Accept or discard facts that were proposed."),
    },
    "Conversations": {
        "chat": ("commands.chat", "List and show conversations."),
        "context": ("commands.chat", "Print the context for a model, within a token budget."),
    },
    "Import and export": {
        "import": ("commands.import_", "Import memories from other programs, or an export."),
        "export": ("commands.export", "Export memories to a file in an open format."),
        "migrate": ("commands.export", "Copy a store to another URL."),
    },
    "Trust": {
        "quarantine": ("commands.sources", "Hide everything from a source."),
        "release": ("commands.sources", "Show hidden memories of a source again."),
        "undo": ("commands.sources", "Undo everything that a source added or changed."),
        "duplicates": ("commands.sources", "Show memories that say the same thing."),
    },
    "Retention": {
        "evict": ("commands.erase", "Limit size: forget the least valuable memories first."),
        "sweep": (
            "commands.maintenance",
            "Remove for good what has expired, and on request what was forgotten.",
        ),
        "erase": ("commands.erase", "Erase everything in a scope permanently, and verify it."),
        "audit": ("commands.audit", "Show and verify the audit log."),
    },
    "Store": {
        "stats": ("commands.maintenance", "Count memories in a scope and in the whole store."),
        "users": (
            "commands.users",
            "List the users who have memories or key-value entries: how many, and since when.",
        ),
        "kv": ("commands.users", "List key-value entries, or print the value of one."),
        "reindex": ("commands.maintenance", "Rebuild the search indexes."),
        "backup": (
            "commands.maintenance",
            "Copy the store to a new file, also while it is in use.",
        ),
    },
    "Server": {
        "serve": ("commands.serve", "Serve REST, MCP and the dashboard, until Ctrl-C."),
        "keys": ("commands.keys", "Create, list, rotate and revoke API keys."),
        "mcp": ("commands.mcp", "Run an MCP server over stdin and stdout."),
        "install": (
            "commands.mcp",
            "Add this memory to the MCP configuration of an agent.",
        ),
        "uninstall": (
            "commands.mcp",
            "Remove this memory from the configuration of an agent.",
        ),
        "hook": ("commands.hook", "Answer a hook of Claude Code, which is read from stdin."),
    },
}
COMMANDS = {name: entry for part in SECTIONS.values() for name, entry in part.items()}
_MEANT = {
    "remember": ("add", "put", "save", "store"),
    "recall": ("ask", "find", "query", "search"),
    "forget": ("del", "delete", "remove", "rm"),
    "list": ("all", "ls"),
    "show": ("cat", "get", "read", "view"),
    "kv": ("entries", "keyvalue"),
    "stats": ("info", "status"),
}
_OTHER_NAMES = {other: [name] for name, others in _MEANT.items() for other in others}
"""What other programs call these commands."""


class Root(TyperGroup):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the parent's signature
        """Return every name."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return the command of that name, or `None`."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"orbiter.memory.cli.{COMMANDS[cmd_name][0]}")
        command = typer.main.get_command(module.app)
        return getattr(command, "commands", {}).get(cmd_name, command)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that *args* begin with; say which one may have been meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = _OTHER_NAMES.get(args[0], get_close_matches(args[0], COMMANDS, n=1))
            meant = f"did you mean `{near[0]}`?" if near else f"`{NAME} --help` lists them all"
            raise UsageError(f"there is no command `{args[0]}`; {meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the commands by section, without loading one."""
        for title, part in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in part.items()])

    def main(self, *args: Any, **more: Any) -> Any:
        """Run, tell errors in one line, and exit with the code that says what happened."""
        is_standalone = more.get("standalone_mode", True)
        call = partial(super().main, *args, **{**more, "standalone_mode": False})
        if not is_standalone:
            return call()
        words = [*args[:1], more.get("args"), sys.argv[1:]]
        line = list(next(each for each in words if each is not None))
        is_hook = line[:1] == ["hook"]
        say_in_json(line[:1] == ["serve"] and wants_json_log(line))
        code = _code_of(call)
        # An agent that calls a hook takes 2 for "do not go on", and it is the code of a bad option.
        return sys.exit(0 if is_hook else code)


def _code_of(call: Callable[[], object]) -> int:
    try:
        code = call()
        sys.stdout.flush()
    except typer.Abort:  # what a Ctrl-C becomes while arguments are read
        return INTERRUPTED
    except Exception as exc:  # noqa: BLE001 - the last one to see it: it is told and becomes the code
        if not hasattr(exc, "format_message"):  # only a mistake in the arguments has it
            return report(exc)
        _say_usage(exc, usage_text(exc))
        return USAGE
    except KeyboardInterrupt as exc:
        return report(exc)
    return code if isinstance(code, int) else 0


def _say_usage(error: Any, text: str) -> None:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{text}\n")
        return
    option = getattr(error, "option_name", "")
    meant = next((e for e in _OTHER_OPTIONS.get(option, ()) if e in _option_names(context)), None)
    see = context.command_path if context is not None else None
    if meant is None and option and (path := _path_with(context, option)):
        meant, see = f"{path} {option}", path
    if meant is not None:
        text = f"no such option: {option}; did you mean `{meant}`?"
    elif context is not None and context.info_name == "sweep" and option in _AGES:
        way = f"{NAME} forget --all --until 90d --permanently --yes"
        text = f"no such option: {option}; to remove what is older than 90 days: `{way}`"
    text = text.replace("Value error, ", "")  # what a value's own check raises begins so
    say(text[:1].lower() + text[1:] + _meant(context, text))
    if see is not None:
        say(f"{see} --help", kind="see")


_OTHER_OPTIONS = {
    **dict.fromkeys(("--k", "--top-k", "--n", "--count", "--max"), ("--limit", "--memories")),
    "--tags": ("--tag",),
    "--user-id": ("--user",),
    "--session-id": ("--session",),
    "--agent-id": ("--agent",),
    "--db": ("--url",),
    "--store": ("--url",),
    "--metadata": ("--extra",),
    "--date": ("--at",),
    "--when": ("--at",),
    "--column": ("--text",),
}
"""What other programs call an option."""
_AGES = ("--older", "--older-than", "--until", "--before", "--days", "--age")
"""What people give `sweep`, which removes nothing by its age."""


def _option_names(context: Any) -> set[str]:
    command = getattr(context, "command", None)
    return {name for each in getattr(command, "params", ()) for name in each.opts}


def _path_with(context: Any, option: str) -> str | None:
    """Return another command of the same group that has *option*: `chat` alone is `chat list`."""
    group = getattr(context, "parent", None)
    if group is None or group.parent is None:  # the program itself is no such group
        return None
    for name, command in group.command.commands.items():
        if any(option in each.opts for each in command.params):
            return f"{group.command_path} {name}"
    return None


def _meant(context: Any, text: str) -> str:
    """Return what may have been meant by an argument too many, or one that is missing."""
    if context is None:
        return ""
    if context.info_name == "undo" and text.startswith("Missing argument"):
        return f" `undo` takes back all of a source; `{NAME} restore ID` brings back one memory"
    if context.info_name == "remember" and text.startswith("Missing argument"):
        return f" Give the text, or `-` for stdin: `… | {NAME} remember - --lines`"
    if context.info_name == "context" and text.startswith("Missing argument"):
        return f' Name a conversation, `{NAME} context CHAT`, or ask: `{NAME} context "QUESTION"`'
    if context.parent is None and text.startswith("No such option"):
        return f"; options come after the command, as in `{NAME} list --user ann`"
    extra = re.match(r"Got unexpected extra argument(?:s|\(s\))? \((.+)\)", text)
    return "" if extra is None else _place_of(extra[1].split()[0], context)


def _place_of(word: str, context: Any) -> str:
    """Return where a word too many belongs: it is a store, a name, or a command."""
    around = getattr(context.parent, "command", None)
    if word in getattr(around, "commands", {}):
        return f"; options come after the command: `{context.parent.command_path} {word} --…`"
    options = _option_names(context)
    is_place = "://" in word or "/" in word or word.endswith((".db", ".sqlite"))
    if is_place and "--url" in options:
        return f"; did you mean `--url {word}`?"
    if any(each.param_type_name == "argument" for each in context.command.params):
        return "; put quotes around what has several words"
    meant = next((each for each in ("--query", "--starts-with", "--user") if each in options), None)
    return f"; did you mean `{meant} {word}`?" if meant else ""


def _show_help(ctx: typer.Context, value: bool) -> None:  # noqa: FBT001 - how typer calls it
    if value:
        sys.stdout.write(f"{ctx.get_help()}\n")
        raise typer.Exit


def _show_version(value: bool) -> None:  # noqa: FBT001
    if value:
        from importlib.metadata import version  # noqa: PLC0415 - slower than all else here

        sys.stdout.write(f"{NAME} {version(NAME)}\n")
        raise typer.Exit


app = typer.Typer(
    cls=Root,
    name=NAME,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},  # every command inherits it
)


# A `--help` of its own: the built-in one loads pydantic even where it is not asked for.
@app.callback(invoke_without_command=False)
def root(
    *,
    help: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--help", "-h", is_eager=True, callback=_show_help, help="Show this and exit."
        ),
    ] = False,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks. [env: ORBITER_DEBUG]")
    ] = False,
) -> None:
    """Memory for LLM agents: remember, recall, inspect, correct."""
    drop_placeholders()
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
    if f"_{NAME.replace('-', '_').upper()}_COMPLETE" in os.environ:
        from typer import completion  # noqa: PLC0415 - only when a shell asks

        import_module("orbiter.memory.cli._completion")  # for the names after `--user`
        completion.completion_init()  # type: ignore[attr-defined]  # it is there since 0.4
    app(prog_name=NAME)
