"""Writing a server into a client's file: with a backup, in one step, and only if it must be."""

import os
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

__all__ = ["CLIENTS", "Change", "Client", "Name", "plan", "write"]


class Name(StrEnum):
    """The programs that can be set up."""

    CLAUDE_CODE = "claude-code"
    CLAUDE_DESKTOP = "claude-desktop"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"


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
    names_type: bool = False
    is_toml: bool = False
    variable: str | None = None
    """How its file stands for a variable of whoever starts it; `None`: it lists those passed on."""

    def entry(
        self, command: list[str], env: Mapping[str, str], *, is_shared: bool = False
    ) -> dict[str, object]:
        """Return what tells it to start *command*.

        A file that is shared is committed: it names the variables of *env*, and holds none.
        """
        kind: dict[str, object] = {"type": "stdio"} if self.names_type else {}
        found = {**kind, "command": command[0], "args": command[1:]}
        if not env:
            return found
        if not is_shared:
            return {**found, "env": dict(env)}
        if self.variable is None:
            return {**found, "env_vars": list(env)}
        return {**found, "env": {name: self.variable.replace("NAME", name) for name in env}}


def _settings_folder() -> Path:
    """Return where programs with windows keep their settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _moved(variable: str, usual: Path) -> Path:
    return Path(os.environ[variable]) if os.environ.get(variable) else usual


CLIENTS: dict[Name, Client] = {
    Name.CLAUDE_CODE: Client(
        "Claude Code",
        lambda: _moved("CLAUDE_CONFIG_DIR", Path.home()) / ".claude.json",
        ".mcp.json",
        "mcpServers",
        "restart Claude Code; `/mcp` shows it",
        names_type=True,
        variable="${NAME}",
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
        names_type=True,
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
}


_BOM = "\ufeff"
_PRIVATE = 0o600


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
    def is_needed(self) -> bool:
        """Tell whether anything is to be written."""
        return self.before != self.after

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
    _check_place(path)
    try:
        raw = path.read_bytes() if path.exists() else None
        text = "" if raw is None else raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise StorageError(f"`{path}` cannot be read: {exc}; nothing was changed") from exc
    mark = _BOM if text.startswith(_BOM) else ""
    body = text.removeprefix(_BOM)
    try:
        there = edit.find(body, path_in_file)
        has_all = isinstance(there, dict) and all(
            there.get(key) == value for key, value in entry.items()
        )
        if has_all:
            return Change(path, text, text, there)
        kept = {} if client.is_toml or not isinstance(there, dict) else there
        wanted = {**{k: v for k, v in kept.items() if k not in ("env", "url")}, **entry}
        made = edit.put(body, path_in_file, wanted)
    except _json_edit.FileSyntaxError as exc:
        kind = "TOML" if client.is_toml else "JSON"
        raise StorageError(
            f"`{path}` cannot be read as {kind}: {exc}; nothing was changed. Fix the file, or "
            "add the server by hand: `--dry-run` on a new file shows how"
        ) from exc
    return Change(path, None if raw is None else text, mark + made, there)


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


def write(change: Change) -> Path | None:
    """Write the file in one step; return the backup of what it was, if it was there."""
    try:
        return _write(change)
    except OSError as exc:
        raise StorageError(
            f"`{change.path}` cannot be written: {exc}; nothing was changed"
        ) from exc


def _write(change: Change) -> Path | None:
    path = change.path.resolve()  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    mode = _PRIVATE
    if change.before is not None:
        mode = stat.S_IMODE(path.stat().st_mode)
        backup = _free(path)
        _put(backup, change.before, mode)
    now = path.read_bytes().decode("utf-8", "replace") if path.exists() else None
    if now != change.before:
        raise StorageError(f"`{path}` was changed by another program just now; run this again")
    _put(path, change.after, mode)
    return backup


def _free(path: Path) -> Path:
    number = 1
    while (found := path.with_name(f"{path.name}.bak{number if number > 1 else ''}")).exists():
        number += 1
    return found


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
