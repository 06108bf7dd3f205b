"""Where each program that speaks MCP keeps its servers, and how an entry is written there."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["CLIENTS", "Client", "Name"]


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
        "start Claude Code anew; `/mcp` shows it",
        names_type=True,
        variable="${NAME}",
    ),
    Name.CLAUDE_DESKTOP: Client(
        "Claude Desktop",
        lambda: _settings_folder() / "Claude" / "claude_desktop_config.json",
        None,
        "mcpServers",
        "quit Claude Desktop, and start it anew",
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
        "start Codex anew; `/mcp` shows it",
        is_toml=True,
    ),
}
