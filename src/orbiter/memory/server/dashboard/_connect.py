"""How a program, an agent or a shell begins to use this server: lines to copy."""

from dataclasses import dataclass

__all__ = ["Snippet", "snippets"]


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines for one kind of client."""

    id: str
    title: str
    text: str
    note: str


def snippets(url: str, *, needs_key: bool, with_mcp: bool) -> list[Snippet]:
    """Return what to copy for the server at *url*; with keys, each shows where the key goes."""
    token = ', token="om_…"' if needs_key else ""
    header = "  -H 'Authorization: Bearer om_…' \\\n" if needs_key else ""
    key = " Make a key with orbiter-memory keys create." if needs_key else ""
    found = [
        Snippet(
            "connect-python",
            "Python",
            "from orbiter.memory.sync import AgentMemory\n"
            f'memory = AgentMemory("{url}"{token})\n'
            'memory.scope(user_id="alice").remember("Mia loves trams")',
            f"From orbiter.memory it is the same with await.{key}",
        ),
        Snippet(
            "connect-curl",
            "curl",
            f'curl --json \'{{"what": "Mia loves trams"}}\' \\\n{header}'
            f"  '{url}/v1/memories?user_id=alice'",
            f"Every call is described at {url}/v1/openapi.json.",
        ),
    ]
    if with_mcp:
        found += [
            Snippet(
                "connect-claude",
                "Claude Code, Cursor, VS Code, Codex",
                "orbiter-memory install claude-code",
                "Or cursor, vscode, codex, claude-desktop; --dry-run shows what it would write.",
            ),
            Snippet(
                "connect-mcp",
                "Any MCP client",
                f"{url}/mcp",
                "Streamable HTTP" + ("; send the key as a bearer token." if needs_key else "."),
            ),
        ]
    return found
