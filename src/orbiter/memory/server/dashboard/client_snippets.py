"""Lines to copy that connect a client to this server: Python, curl, programs with MCP."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from orbiter.memory.server.dashboard.page import Ask, scope_of

__all__ = ["Snippet", "snippets", "snippets_for"]


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines for one kind of client."""

    id: str
    title: str
    text: str
    note: str


async def snippets_for(ask: Ask) -> list[Snippet]:
    """Return the snippets for the reader of a page, with the scope of key and page."""
    server = ask.server
    needs_key = await server.needs_key()
    return snippets(
        str(ask.request.base_url).rstrip("/"),
        needs_key=needs_key,
        with_mcp=server.settings.with_mcp,
        store=None if needs_key else _store_file(ask),
        scope={**ask.scope, **scope_of(ask.principal.scope)},
        key_command="" if ask.principal.is_bound else server.key_command(),
    )


def _store_file(ask: Ask) -> str | None:
    """Return the file that is served. Without keys, the reader is on this computer."""
    path = str(getattr(ask.server.memory.store, "db_path", ":memory:"))
    return None if path == ":memory:" else str(Path(path).absolute())


def snippets(
    url: str,
    *,
    needs_key: bool,
    with_mcp: bool,
    store: str | None = None,
    scope: Mapping[str, str] | None = None,
    key_command: str = "",
) -> list[Snippet]:
    """Return what to copy for the server at *url*; with keys, each shows where the key goes.

    Who is on the same computer may go to the *store* itself, and needs no server for it. *scope*
    is the one that the reader's key, or the page, names; *key_command* makes a key.
    """
    named = dict(scope or {"user_id": "alice"})
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in named.items())
    where = ["--url", url if needs_key or store is None else store]
    for name, value in (scope or {}).items():
        where += [f"--{name.removesuffix('_id')}", value]
    python, header, variable, bearer = "", "", "", "."
    if needs_key:
        python, variable = ', token="om_…"', "ORBITER_MEMORY_TOKEN=om_… "
        header = "  -H 'Authorization: Bearer om_…' \\\n"
        bearer = "; send the key as a bearer token."
    command = key_command or "orbiter-memory keys create --url STORE"
    key = f" To create a key, run on the server: {command}." if needs_key else ""
    made = [
        Snippet(
            "connect-python",
            "Python",
            "from orbiter.memory.sync import AgentMemory\n"
            f'memory = AgentMemory("{url}"{python})\n'
            f'memory.scope({arguments}).remember("Mia loves trams")',
            f"Import it from orbiter.memory to use it with await.{key}",
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
        made += [
            Snippet(
                "connect-claude",
                "Claude Code, Cursor, VS Code, Codex",
                f"{variable}orbiter-memory install claude-code {shlex.join(where)}",
                "Or cursor, vscode, codex, claude-desktop; --dry-run shows what it would write. "
                "--user sets the user of the memories, by default your name on that computer.",
            ),
            Snippet("connect-mcp", "Any MCP client", f"{url}/mcp", f"Streamable HTTP{bearer}"),
        ]
    return made
