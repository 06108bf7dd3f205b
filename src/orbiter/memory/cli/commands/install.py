"""Adding this memory to the programs of agents: `install`.

A program's own command does it where there is one; else the lines to paste are printed, or put
into a JSON file that is named. No file is looked for, and none but that is written.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from click import UsageError

from orbiter.memory._lazy import with_install_note
from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._error_messages import without_passwords
from orbiter.memory.cli._launch import settings_of, shell_line, start_words
from orbiter.memory.cli._options import command, memory_options
from orbiter.memory.cli.commands.mcp import read_only_option, tools_option
from orbiter.memory.errors import StorageError

__all__ = ["CLIENTS", "Client", "Environment", "Words", "install"]

_HOOK_SECONDS = 30
"""Seconds that an agent waits for a hook at most; the first start by `uvx` loads packages."""

_OUR_HOOK = re.compile(r"\borbiter[-.]memory\b.* hook\b")

Words = list[str]
Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Client:
    """A program that starts MCP servers, and how one is added to it."""

    title: str
    file: str
    """Where its servers are, for whoever pastes them."""
    holder: str = "mcpServers"
    """The name under which the servers are in that file."""
    kind: str | None = None
    """The `type` that an entry has, if it has one."""
    variable: str | None = None
    """How its file refers to a variable; `None` if it cannot."""
    add: Callable[[str, Words, Environment, bool], Words] | None = None
    """Its own command that adds a server: from a name, the words to start, the variables, and
    whether it is for the project alone."""

    def entry(self, words: Words, env: Environment) -> dict[str, object]:
        """Return what tells it to start *words*."""
        kind: dict[str, object] = {"type": self.kind} if self.kind else {}
        if self.holder == "mcp":  # OpenCode has one list
            return {**kind, "command": words, **({"environment": dict(env)} if env else {})}
        return {
            **kind,
            "command": words[0],
            "args": words[1:],
            **({"env": dict(env)} if env else {}),
        }


def _claude(name: str, words: Words, env: Environment, is_shared: bool) -> Words:  # noqa: FBT001
    pairs = [word for key, value in env.items() for word in ("--env", f"{key}={value}")]
    scope = "project" if is_shared else "user"
    return ["claude", "mcp", "add", "--scope", scope, name, *pairs, "--", *words]


def _codex(name: str, words: Words, env: Environment, is_shared: bool) -> Words:  # noqa: FBT001
    if is_shared:
        raise UsageError("`codex mcp add` knows no projects; leave `--project` out")
    pairs = [word for key, value in env.items() for word in ("--env", f"{key}={value}")]
    return ["codex", "mcp", "add", name, *pairs, "--", *words]


def _gemini(name: str, words: Words, env: Environment, is_shared: bool) -> Words:  # noqa: FBT001
    pairs = [word for key, value in env.items() for word in ("--env", f"{key}={value}")]
    scope = "project" if is_shared else "user"
    return ["gemini", "mcp", "add", "--scope", scope, *pairs, name, *words[:1], "--", *words[1:]]


def _code(name: str, words: Words, env: Environment, is_shared: bool) -> Words:  # noqa: FBT001
    if is_shared:
        raise UsageError("`code --add-mcp` knows no projects; give `--file .vscode/mcp.json`")
    entry = {"name": name, "command": words[0], "args": words[1:]} | ({"env": env} if env else {})
    return ["code", "--add-mcp", json.dumps(entry)]


CLIENTS = {
    "claude-code": Client(
        "Claude Code", ".mcp.json", kind="stdio", variable="${NAME}", add=_claude
    ),
    "claude-desktop": Client(
        "Claude Desktop", "claude_desktop_config.json (Settings, Developer, Edit Config)"
    ),
    "cline": Client("Cline", "cline_mcp_settings.json (MCP Servers, Configure)"),
    "codex": Client("Codex", "~/.codex/config.toml", add=_codex),
    "continue": Client("Continue", ".continue/mcpServers/orbiter-memory.json", variable="${NAME}"),
    "cursor": Client("Cursor", "~/.cursor/mcp.json or .cursor/mcp.json", variable="${env:NAME}"),
    "gemini-cli": Client("Gemini CLI", "~/.gemini/settings.json", variable="${NAME}", add=_gemini),
    "opencode": Client(
        "OpenCode", "opencode.json", holder="mcp", kind="local", variable="{env:NAME}"
    ),
    "vscode": Client(
        "VS Code",
        ".vscode/mcp.json",
        holder="servers",
        kind="stdio",
        variable="${env:NAME}",
        add=_code,
    ),
    "windsurf": Client("Windsurf", "~/.codeium/windsurf/mcp_config.json"),
    "zed": Client("Zed", "~/.config/zed/settings.json", holder="context_servers"),
}


@command("install")
@click.argument("client", metavar="CLIENT", type=click.Choice(list(CLIENTS)))
@click.option("--file", type=click.Path(path_type=Path), help="Put it into this JSON file.")
@click.option(
    "--hooks",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also hooks, into this settings.json of Claude Code.",
)
@tools_option
@read_only_option
@click.option("--project", is_flag=True, help="For the project in this folder, to be committed.")
@click.option("--name", default="orbiter-memory", help="Name of the server there.")
@click.option("--dry-run", is_flag=True, help="Only print what would be run or written.")
@memory_options(everyone=False, writes=True)
def install(  # noqa: PLR0913 - each is an option
    run: CommandContext,
    client: str,
    *,
    file: Path | None,
    hooks: Path | None,
    tools: str,
    read_only: bool,
    project: bool,
    name: str,
    dry_run: bool,
) -> None:
    """Add this memory to an agent's program.

    CLIENT is claude-code, claude-desktop, cline, codex, continue, cursor, gemini-cli, opencode,
    vscode, windsurf or zed. It is added by the program's own command, such as `claude mcp add`.
    Where there is none, the lines to paste are printed; `--file` puts them into a JSON file.
    """
    program = CLIENTS[client]
    if hooks is not None and (read_only or client != "claude-code"):
        raise UsageError("`--hooks` is for `claude-code`, and not with `--read-only`")
    start = start_words(run.target, is_shared=project)
    if start[0] != "uvx":
        _check_can_start()
    arguments, env = settings_of(run.target, is_shared=project)
    run.unopened(meaning=False)  # a mistake in where the memory is shows now
    kind = [] if tools == "memory" else ["--tools", tools]
    words = [*start, "mcp", *kind, *(["--read-only"] if read_only else []), *arguments]
    shown = {each: (program.variable or "").replace("NAME", each) for each in env}
    given = {each: value for each, value in shown.items() if value} if project else env
    if program.add is not None and file is None:
        _run(run, program.add(name, words, given, project), program, env, dry_run=dry_run)
    else:
        _put(run, program, file, name, program.entry(words, given), env, dry_run=dry_run)
    if hooks is not None:
        _put_hooks(run, hooks, shell_line([*start, "hook", *arguments]), dry_run=dry_run)
    if env and (project or hooks):
        run.out.text(f"set {' and '.join(env)} where {program.title} is started")


def _check_can_start() -> None:
    """Refuse to write down what this Python could not run."""
    if find_spec("mcp") is None:
        error = ModuleNotFoundError(
            "there is no SDK of the Model Context Protocol here; pip install 'orbiter-memory[mcp]'"
        )
        raise with_install_note(error, "mcp")


def _hidden(text: str, env: Environment) -> str:
    """Return *text* without the secrets of *env*."""
    for secret in env.values():
        text = text.replace(secret, "***") if secret else text
    return without_passwords(text)


def _run(
    run: CommandContext, words: Words, program: Client, env: Environment, *, dry_run: bool
) -> None:
    """Have the program add it itself."""
    line = _hidden(shlex.join(words), env)
    path = shutil.which(words[0])
    if dry_run or path is None:
        if path is None:
            run.out.note(
                f"`{words[0]}` is not on the PATH; this is what adds it to {program.title}"
            )
        run.out.text(line)
        return
    done = subprocess.run([path, *words[1:]], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own choice
    if done.returncode:
        why = _hidden(done.stderr.strip() or done.stdout.strip(), env)
        raise StorageError(f"`{line}` failed: {why}")
    run.out.text(f"{line}\n{_hidden(done.stdout.strip(), env)}".rstrip())


def _put(
    run: CommandContext,
    program: Client,
    file: Path | None,
    name: str,
    entry: dict[str, object],
    env: Environment,
    *,
    dry_run: bool,
) -> None:
    """Put an entry into a JSON file, or print it to be pasted."""
    if file is None:
        run.out.note(f"paste this into {program.file}, or name that file with `--file`")
        # Whole, with its key: it is there to be pasted.
        run.out.text(json.dumps({program.holder: {name: entry}}, indent=2, ensure_ascii=False))
        return
    settings = _read_object(file)
    servers = settings.setdefault(program.holder, {})
    if not isinstance(servers, dict):
        raise StorageError(f"`{program.holder}` in `{file}` is not an object; nothing was changed")
    servers[name] = entry
    _write_object(run, file, settings, env, dry_run=dry_run)


def _put_hooks(run: CommandContext, file: Path, line: str, *, dry_run: bool) -> None:
    """Have Claude Code call *line* at a start and at a stop; hooks of others stay."""
    settings = _read_object(file)
    hook = {"type": "command", "command": line, "timeout": _HOOK_SECONDS}
    groups = {
        # A session that is resumed has the context of its start.
        "SessionStart": {"matcher": "startup|clear|compact", "hooks": [hook]},
        "Stop": {"hooks": [hook]},
    }
    events = settings.setdefault("hooks", {})
    for event, group in groups.items():
        present = events.get(event, []) if isinstance(events, dict) else None
        if not isinstance(present, list):
            raise StorageError(f"`hooks.{event}` in `{file}` is not a list; nothing was changed")
        events[event] = [*(each for each in present if not _is_our_hook(each)), group]
    _write_object(run, file, settings, {}, dry_run=dry_run)


def _is_our_hook(group: object) -> bool:
    """Return whether a group of hooks starts `orbiter-memory hook` and nothing else."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list) or not hooks:
        return False
    commands = [str(each.get("command")) if isinstance(each, dict) else "" for each in hooks]
    return all(_OUR_HOOK.search(each) for each in commands)


def _read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in *file*, empty if there is no file."""
    try:
        text = file.read_text(encoding="utf-8-sig") if file.exists() else ""
        settings = json.loads(text) if text.strip() else {}
    except (OSError, ValueError) as exc:
        raise StorageError(
            f"`{file}` cannot be read as JSON: {exc}; nothing was changed. Without `--file`, the "
            "lines to paste are printed"
        ) from exc
    if not isinstance(settings, dict):
        raise StorageError(f"`{file}` holds no JSON object; nothing was changed")
    return settings


def _write_object(
    run: CommandContext, file: Path, settings: dict[str, Any], env: Environment, *, dry_run: bool
) -> None:
    """Write *settings* in one step; the file that was there is replaced, with its mode."""
    text = f"{json.dumps(settings, indent=2, ensure_ascii=False)}\n"
    if dry_run:
        run.out.text(f"would write {file}")
        run.out.text(_hidden(text, env))
        return
    path = file.resolve()  # a link stays one
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        handle, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as temporary:
            temporary.write(text)
        Path(made).chmod(mode)
        Path(made).replace(path)
    except OSError as exc:
        raise StorageError(f"`{file}` cannot be written: {exc}; nothing was changed") from exc
    run.out.text(f"wrote {file}")
