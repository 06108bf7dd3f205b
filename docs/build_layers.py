"""Writes the list of layers to CONTRIBUTING.md and docs/layers.svg: `python docs/build_layers.py`.

The list itself is the first contract of import-linter in pyproject.toml. A test keeps both current.
"""

import textwrap
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PICTURE = Path(__file__).with_name("layers.svg")

PACKAGE = "orbiter.memory."
BEGIN, END = "<!-- layers, by docs/build_layers.py -->\n", "<!-- end of layers -->"

PURPOSES = {
    "_missing_names": "what to write for a name that is not there",
    "cli": "the command orbiter-memory",
    "integrations": "adapters for agent frameworks",
    "server": "REST, MCP over HTTP, and the dashboard",
    "client": "an AgentMemory behind a server",
    "mcp": "the tools of the MCP server",
    "sync": "the blocking forms of everything async",
    "extraction": "facts from conversations, in the background",
    "transfer": "import, export, migrate",
    "wire": "the table of REST calls, and their JSON",
    "agent": "AgentMemory, scopes, chats, facts: what most programs use",
    "auth": "the keys of a server, and what each may do",
    "episodic": "recent activity of users, for a while",
    "recall": "search: candidates, ranking, explanation",
    "backends": "stores: SQLite, Postgres, Redis, vectors",
    "context": "what a model is sent, within a token budget",
    "diagnostics": "the checks of doctor",
    "rerankers": "read a question beside the texts that may answer it",
    "summarizers": "what writes summaries",
    "testing": "the test kit for stores",
    "embeddings": "models that turn text into vectors",
    "messages": "messages of providers to items and back",
    "short_term": "a store in memory",
    "summary": "when and how a conversation is summarized",
    "base": "the names of the original library",
    "conversation": "windows, rounds, token counts",
    "text": "words, stemming, ranking, personal data",
    "model": "items, queries, protocols: values without I/O",
    "tasks": "event loops, threads, progress",
    "_lazy": "names that load on first use",
    "errors": "every error of the library",
}
"""What each package or module at the top is for."""


def layers() -> list[list[str]]:
    """Return the packages and modules of each layer, the highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rows = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [[each.strip().removeprefix(PACKAGE) for each in row.split("|")] for row in rows]


def table() -> str:
    """Return the layers as a table in Markdown."""
    rows = layers()
    lines = ["| layer | package or module | what it is for |", "|---|---|---|"]
    for number, row in zip(range(len(rows), 0, -1), rows, strict=True):
        lines += [f"| {number} | `{each}` | {PURPOSES[each]} |" for each in row]
    return "\n".join(lines) + "\n"


def contributing() -> str:
    """Return the text of CONTRIBUTING.md with the table as it should be."""
    before, _, rest = CONTRIBUTING.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


_WIDTH, _MARGIN, _GAP, _LEFT = 1000, 16, 8, 44
_HEIGHT, _LINE = 62, 14
_LETTER = 5.6  # the width of a letter of 11 pixels, on average
_STYLE = """\
  .page { fill: #ffffff } .row { fill: #f1f4f8 } .box { fill: #dbe7f6; stroke: #7a9cc6 }
  .name { fill: #10233d; font: 600 13px ui-monospace, monospace }
  .why { fill: #2f4158; font: 11px system-ui, sans-serif }
  .note { fill: #4a5a70; font: 12px system-ui, sans-serif } .arrow { stroke: #4a5a70 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #10151d } .row { fill: #1a222e } .box { fill: #24344a; stroke: #587aa5 }
    .name { fill: #eaf1fb } .why { fill: #c3cfdf } .note { fill: #a9b6c8 }
    .arrow { stroke: #a9b6c8 }
  }"""


def picture() -> str:
    """Return the layers as an SVG: each a row of boxes, the highest above."""
    rows = layers()
    height = 2 * _MARGIN + len(rows) * (_HEIGHT + _GAP) - _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        "<title>The layers of orbiter.memory: each imports only from those below it</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}" rx="10"/>',
    ]
    for index, row in enumerate(rows):
        parts += _row(row, number=len(rows) - index, top=_MARGIN + index * (_HEIGHT + _GAP))
    right, bottom = _WIDTH - 14, height - _MARGIN
    parts += [
        f'<path class="arrow" d="M{right} {_MARGIN} V{bottom} m-4 -7 l4 7 l4 -7" fill="none"/>',
        (
            f'<text class="note" transform="translate({right - 16} {height / 2:.0f}) rotate(90)" '
            'text-anchor="middle">imports only downwards</text>'
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(row: list[str], *, number: int, top: int) -> list[str]:
    inner = _WIDTH - _LEFT - _MARGIN - 34
    width = (inner - _GAP * (len(row) + 1)) / len(row)
    parts = [
        f'<rect class="row" x="{_LEFT}" y="{top}" width="{inner}" height="{_HEIGHT}" rx="8"/>',
        (
            f'<text class="note" x="{_LEFT - 10}" y="{top + _HEIGHT / 2 + 4:.0f}" '
            f'text-anchor="end">{number}</text>'
        ),
    ]
    for column, name in enumerate(row):
        x = _LEFT + _GAP + column * (width + _GAP)
        lines = textwrap.wrap(PURPOSES[name], int((width - 16) / _LETTER))
        parts.append(
            f'<rect class="box" x="{x:.0f}" y="{top + 5}" width="{width:.0f}" '
            f'height="{_HEIGHT - 10}" rx="6"/>'
        )
        parts.append(f'<text class="name" x="{x + 8:.0f}" y="{top + 22}">{escape(name)}</text>')
        parts += [
            f'<text class="why" x="{x + 8:.0f}" y="{top + 37 + at * _LINE}">{escape(line)}</text>'
            for at, line in enumerate(lines)
        ]
    return parts


if __name__ == "__main__":
    CONTRIBUTING.write_text(contributing(), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
