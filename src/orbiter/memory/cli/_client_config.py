"""Writing a server into a client's file: in one step, and only if it must be."""

import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from enum import StrEnum
from pathlib import Path

from orbiter.memory.cli import _json_edit, _toml_edit
from orbiter.memory.errors import StorageError

__all__ = [
    "CLIENTS",
    "Change",
    "Client",
    "Name",
    "plan",
    "plan_hooks",
    "plan_removal",
    "plan_without_hooks",
    "write",
]

_CONTINUE_FILE = "mcpServers/orbiter-memory.json"
"""Continue reads every file of that folder; so nobody else's is touched."""


class Name(StrEnum):
    """The programs that can be set up."""

    CLAUDE_CODE = "claude-code"
    CLAUDE_DESKTOP = "claude-desktop"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"
    WINDSURF = "windsurf"
    GEMINI_CLI = "gemini-cli"
    ZED = "zed"
    CLINE = "cline"
    CONTINUE = "continue"
    OPENCODE = "opencode"


@dataclass(frozen=True, slots=True)
class Client:
    """One program."""

    title: str
    user_file: Callable[[], Path]
    """The file that is for all that this user does."""
    project_file: str | None
    """The file that is for one project, below its folder."""
    holder: str
    """The name under which the servers stand."""
    then: str
    """What makes it see the change."""
    kind: str | None = None
    """The `type` that an entry names, if it names one."""
    is_toml: bool = False
    has_one_list: bool = False
    """Whether command and arguments are one list, and the environment is `environment`."""
    variable: str | None = None
    """How its file stands for a variable of whoever starts it; `None`: it lists those passed on;
    empty: it passes all of them on."""
    hooks_file: tuple[Callable[[], Path], str] | None = None
    """The files that name its hooks, for this user and for one project."""

    def file(self, folder: Path | None) -> Path | None:
        """Return the file for all that this user does, or for the project in *folder*."""
        if folder is None:
            return self.user_file()
        return None if self.project_file is None else _existing(folder / self.project_file)

    def entry(
        self, command: list[str], env: Mapping[str, str], *, is_shared: bool = False
    ) -> dict[str, object]:
        """Return what tells it to start *command*.

        A file that is shared is committed: it names the variables of *env*, and holds none.
        """
        entry: dict[str, object] = {"type": self.kind} if self.kind else {}
        if self.has_one_list:
            entry["command"] = command
        else:
            entry |= {"command": command[0], "args": command[1:]}
        name = "environment" if self.has_one_list else "env"
        if not env or (is_shared and self.variable == ""):
            return entry
        if not is_shared:
            return {**entry, name: dict(env)}
        if self.variable is None:
            return {**entry, "env_vars": list(env)}
        return {**entry, name: {each: self.variable.replace("NAME", each) for each in env}}


def _settings_folder() -> Path:
    """Return where programs with windows keep their settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return _config_folder()


def _config_folder() -> Path:
    """Return where programs of a terminal keep their settings, on macOS, too."""
    return _moved("XDG_CONFIG_HOME", Path.home() / ".config")


def _moved(variable: str, usual: Path) -> Path:
    return Path(os.environ[variable]) if os.environ.get(variable) else usual


def _existing(path: Path) -> Path:
    """Return *path*, or the same with comments allowed in its name if only that is there."""
    other = path.with_suffix(".jsonc")
    is_other = path.name == "opencode.json" and other.exists() and not path.exists()
    return other if is_other else path


def _zed_folder() -> Path:
    return _settings_folder() / "Zed" if sys.platform == "win32" else _config_folder() / "zed"


def _cline_file() -> Path:
    """Return the file of the extension if it is installed, else that of the command line."""
    name = "cline_mcp_settings.json"
    extension = _settings_folder() / "Code/User/globalStorage/saoudrizwan.claude-dev"
    folder = extension if extension.is_dir() else Path.home() / ".cline" / "data"
    return _moved("CLINE_MCP_SETTINGS_PATH", folder / "settings" / name)


CLIENTS: dict[Name, Client] = {
    Name.CLAUDE_CODE: Client(
        "Claude Code",
        lambda: _moved("CLAUDE_CONFIG_DIR", Path.home()) / ".claude.json",
        ".mcp.json",
        "mcpServers",
        "restart Claude Code; `/mcp` shows it",
        kind="stdio",
        variable="${NAME}",
        hooks_file=(
            lambda: _moved("CLAUDE_CONFIG_DIR", Path.home() / ".claude") / "settings.json",
            ".claude/settings.json",
        ),
    ),
    Name.CLAUDE_DESKTOP: Client(
        "Claude Desktop",
        lambda: _settings_folder() / "Claude" / "claude_desktop_config.json",
        None,
        "mcpServers",
        "quit and restart Claude Desktop",
    ),
    Name.CURSOR: Client(
        "Cursor",
        lambda: Path.home() / ".cursor" / "mcp.json",
        ".cursor/mcp.json",
        "mcpServers",
        "Cursor's settings show it under MCP",
        variable="${env:NAME}",
    ),
    Name.VSCODE: Client(
        "VS Code",
        lambda: _settings_folder() / "Code" / "User" / "mcp.json",
        ".vscode/mcp.json",
        "servers",
        "VS Code asks once whether you trust it; `MCP: List Servers` shows it",
        kind="stdio",
        variable="${env:NAME}",
    ),
    Name.CODEX: Client(
        "Codex",
        lambda: _moved("CODEX_HOME", Path.home() / ".codex") / "config.toml",
        ".codex/config.toml",
        "mcp_servers",
        "restart Codex; `/mcp` shows it",
        is_toml=True,
    ),
    Name.WINDSURF: Client(
        "Windsurf",
        lambda: Path.home() / ".codeium" / "windsurf" / "mcp_config.json",
        None,
        "mcpServers",
        "restart Windsurf; Cascade's MCP settings show it",
    ),
    Name.GEMINI_CLI: Client(
        "Gemini CLI",
        lambda: Path.home() / ".gemini" / "settings.json",
        ".gemini/settings.json",
        "mcpServers",
        "restart Gemini CLI; `/mcp` shows it",
        variable="${NAME}",
    ),
    Name.ZED: Client(
        "Zed",
        lambda: _zed_folder() / "settings.json",
        ".zed/settings.json",
        "context_servers",
        "Zed's settings show it under AI, MCP Servers",
        variable="",
    ),
    Name.CLINE: Client(
        "Cline",
        _cline_file,
        None,
        "mcpServers",
        "Cline's MCP Servers show it",
    ),
    Name.CONTINUE: Client(
        "Continue",
        lambda: _moved("CONTINUE_GLOBAL_DIR", Path.home() / ".continue") / _CONTINUE_FILE,
        f".continue/{_CONTINUE_FILE}",
        "mcpServers",
        "reload the window of your editor; Continue's agent mode has it",
        variable="${NAME}",
    ),
    Name.OPENCODE: Client(
        "OpenCode",
        lambda: _existing(_config_folder() / "opencode" / "opencode.json"),
        "opencode.json",
        "mcp",
        "restart OpenCode; `opencode mcp list` shows it",
        kind="local",
        has_one_list=True,
        variable="{env:NAME}",
    ),
}


_BOM = "\ufeff"
_PRIVATE = 0o600
_OUR_HOOK = re.compile(r"\borbiter[-.]memory\b.* hook\b")


@dataclass(frozen=True, slots=True)
class Change:
    """What a file is, and what it is to be."""

    path: Path
    before: str | None
    """`None` if there is no file yet."""
    after: str
    there: object
    """The entry of that name that is there, `None` if there is none."""

    @property
    def is_removal(self) -> bool:
        """Tell whether nothing is left in the file, so that it goes; what a link names stays."""
        left = "".join(self.after.removeprefix(_BOM).split())
        return self.before is not None and left in ("", "{}") and not self.path.is_symlink()

    @property
    def is_needed(self) -> bool:
        """Tell whether anything is to be written."""
        return (self.before or "") != self.after

    def diff(self) -> str:
        """Return the change, line by line."""
        old, new = (self.before or "").splitlines(), self.after.splitlines()
        name = str(self.path)
        return "\n".join(unified_diff(old, new, name, name, lineterm=""))


def plan(client: Client, path: Path, name: str, entry: Mapping[str, object]) -> Change:
    """Return what is to change so that the file has *entry*; keys of others in it stay.

    `StorageError` if the file cannot be read as what it should be: it is left alone then.
    """
    edit = _toml_edit if client.is_toml else _json_edit
    path_in_file = (client.holder, name)
    present: object = None

    def edited(body: str) -> str:
        nonlocal present
        present = edit.find(body, path_in_file)
        if isinstance(present, dict) and all(present.get(key) == entry[key] for key in entry):
            return body
        kept = {} if client.is_toml or not isinstance(present, dict) else present
        old = ("env", "environment", "url")
        wanted = {**{key: kept[key] for key in kept if key not in old}, **entry}
        made: str = edit.put(body, path_in_file, wanted)
        return made

    before, after = _edited(path, edited, kind="TOML" if client.is_toml else "JSON")
    return Change(path, before, after, present)


def plan_hooks(path: Path, hooks: Mapping[str, Mapping[str, object]]) -> Change:
    """Return what is to change so that each event has its group of *hooks*, once.

    A group of ours that was there before is replaced; those of others stay. `StorageError` as for
    `plan`.
    """

    def edited(body: str) -> str:
        for event, group in hooks.items():
            present = _json_edit.find(body, ("hooks", event))
            groups = [] if present is None else present
            if not isinstance(groups, list):
                raise _json_edit.FileSyntaxError(f"`hooks.{event}` is not a list")
            if [each for each in groups if _is_our_hook(each)] != [group]:
                others = [each for each in groups if not _is_our_hook(each)]
                body = _json_edit.put(body, ("hooks", event), [*others, group])
        return body

    before, after = _edited(path, edited, kind="JSON")
    return Change(path, before, after, None)


def plan_removal(client: Client, path: Path, name: str) -> Change:
    """Return what is to change so that the file has no entry *name*."""
    edit = _toml_edit if client.is_toml else _json_edit

    present: object = None

    def edited(body: str) -> str:
        nonlocal present
        present = edit.find(body, (client.holder, name))
        made: str = edit.remove(body, (client.holder, name))
        return made

    before, after = _edited(path, edited, kind="TOML" if client.is_toml else "JSON")
    return Change(path, before, after, present)


def plan_without_hooks(path: Path) -> Change:
    """Return what is to change so that no hook is ours; those of others stay."""

    def edited(body: str) -> str:
        events = _json_edit.find(body, ("hooks",))
        for event, groups in events.items() if isinstance(events, dict) else ():
            if not isinstance(groups, list):
                continue
            others = [each for each in groups if not _is_our_hook(each)]
            if not others and groups:
                body = _json_edit.remove(body, ("hooks", event))
            elif others != groups:
                body = _json_edit.put(body, ("hooks", event), others)
        return body

    before, after = _edited(path, edited, kind="JSON")
    return Change(path, before, after, None)


def _is_our_hook(group: object) -> bool:
    """Tell whether a group of hooks starts `orbiter-memory hook` and nothing else."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list) or not hooks:
        return False
    commands = [str(each.get("command")) if isinstance(each, dict) else "" for each in hooks]
    return all(_OUR_HOOK.search(each) for each in commands)


def _edited(path: Path, edit: Callable[[str], str], *, kind: str) -> tuple[str | None, str]:
    """Return the text of a file, `None` if there is none, and what *edit* makes of it."""
    _check_place(path)
    try:
        raw = path.read_bytes() if path.exists() else None
        text = "" if raw is None else raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise StorageError(f"`{path}` cannot be read: {exc}; nothing was changed") from exc
    mark = _BOM if text.startswith(_BOM) else ""
    try:
        made = edit(text.removeprefix(_BOM))
    except _json_edit.FileSyntaxError as exc:
        raise StorageError(
            f"`{path}` cannot be read as {kind}: {exc}; nothing was changed. Fix the file, or "
            "add it by hand: `--dry-run` on a new file shows how"
        ) from exc
    return None if raw is None else text, mark + made


def _check_place(path: Path) -> None:
    """Raise `StorageError` where there can be no such file."""
    try:
        real = path.resolve()
        is_loop = any(each.is_symlink() for each in (real, *real.parents))
    except (OSError, RuntimeError):  # a loop of links; Python 3.13 leaves it in the path
        is_loop = True
    if is_loop:
        raise StorageError(f"`{path}` cannot be opened: its links form a loop; nothing was changed")
    folder = next(each for each in real.parents if each.exists())
    if not folder.is_dir():
        raise StorageError(
            f"`{folder}` is not a folder, so `{path}` cannot be created; nothing was changed"
        )
    if real.is_dir():
        raise StorageError(f"`{path}` is a folder, not a file; nothing was changed")


def write(change: Change, *, project: Path | None) -> Path | None:
    """Write the file in one step, or remove it; return the backup of what it was, if it was there.

    The file of a *project* has none: it would be committed, and the repository has what it was.
    Below the project's folder, folders that are empty without the file go with it.
    """
    try:
        return _write(change, project)
    except OSError as exc:
        raise StorageError(
            f"`{change.path}` cannot be written: {exc}; nothing was changed"
        ) from exc


def _write(change: Change, project: Path | None) -> Path | None:
    path = change.path.resolve()  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    mode = _PRIVATE
    if change.before is not None:
        mode = stat.S_IMODE(path.stat().st_mode)
        if project is None:
            backup = _free(path)
            _put(backup, change.before, mode)
    now = path.read_bytes().decode("utf-8", "replace") if path.exists() else None
    if now != change.before:
        raise StorageError(f"`{path}` was changed by another program just now; run this again")
    if change.is_removal:
        path.unlink()
        _remove_empty_folders(change.path, project)
    else:
        _put(path, change.after, mode)
    return backup


def _remove_empty_folders(path: Path, project: Path | None) -> None:
    """Remove the folders of a file that are empty without it, up to that of the project."""
    if project is None:
        return  # a program's own folder
    with suppress(OSError):  # one that is not empty, and so those around it
        for folder in path.parents:
            if folder == project:
                break
            folder.rmdir()


def _free(path: Path) -> Path:
    number = 1
    while (backup := path.with_name(f"{path.name}.bak{number if number > 1 else ''}")).exists():
        number += 1
    return backup


def _put(path: Path, text: str, mode: int) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:  # Ctrl-C, too: nothing half-written is left behind
        with suppress(OSError):
            Path(name).unlink()
        raise
