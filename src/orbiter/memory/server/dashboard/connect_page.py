"""How a program, an agent or a shell begins to use this server: lines to copy."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

__all__ = ["Snippet", "snippets"]


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines for one kind of client."""

    id: str
    title: str
    text: str
    note: str


def snippets(
    url: str,
    *,
    needs_key: bool,
    with_mcp: bool,
    store: str | None = None,
    whose: Mapping[str, str] | None = None,
    key_command: str = "orbiter-memory keys create --url STORE",
) -> list[Snippet]:
    """Return what to copy for the server at *url*; with keys, each shows where the key goes.

    Who is on the same computer may go to the *store* itself, and needs no server for it. *whose*
    is the scope that the reader's key, or the page, names; *key_command* makes a key.
    """
    named = dict(whose or {"user_id": "alice"})
    scope = ", ".join(f"{name}={json.dumps(value)}" for name, value in named.items())
    where = ["--url", url if needs_key or store is None else store]
    for name, value in (whose or {}).items():
        where += [f"--{name.removesuffix('_id')}", value]
    variable = "ORBITER_MEMORY_TOKEN=om_… " if needs_key else ""
    token = ', token="om_…"' if needs_key else ""
    header = "  -H 'Authorization: Bearer om_…' \\\n" if needs_key else ""
    key = f" Where the server runs, {key_command} makes a key." if needs_key else ""
    found = [
        Snippet(
            "connect-python",
            "Python",
            "from orbiter.memory.sync import AgentMemory\n"
            f'memory = AgentMemory("{url}"{token})\n'
            f'memory.scope({scope}).remember("Mia loves trams")',
            f"From orbiter.memory it is the same with await.{key}",
        ),
        Snippet(
            "connect-curl",
            "curl",
            f'curl --json \'{{"what": "Mia loves trams"}}\' \\\n{header}'
            f"  {shlex.quote(f'{url}/v1/memories?{urlencode(named)}')}",
            f"Every call is described at {url}/v1/openapi.json.",
        ),
    ]
    if with_mcp:
        found += [
            Snippet(
                "connect-claude",
                "Claude Code, Cursor, VS Code, Codex",
                f"{variable}orbiter-memory install claude-code {shlex.join(where)}",
                "Or cursor, vscode, codex, claude-desktop; --dry-run shows what it would write. "
                "--user says whose memories an agent has, by default your name on its computer.",
            ),
            Snippet(
                "connect-mcp",
                "Any MCP client",
                f"{url}/mcp",
                "Streamable HTTP" + ("; send the key as a bearer token." if needs_key else "."),
            ),
        ]
    return found
