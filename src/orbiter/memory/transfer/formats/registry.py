"""Registry of file formats: what can be imported and exported, by us and by other packages.

A package adds an importer by an entry point in the group `orbiter_memory.importers`. Whoever lists
formats (command line, dashboard, errors, tests) takes them from here. Importing this costs
nothing: what reads or writes a format is loaded when it is used.
"""

import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from orbiter.memory._lazy import load_plugin, plugins
from orbiter.memory.errors import TransferError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from orbiter.memory.transfer.formats.importer import Importer
    from orbiter.memory.transfer.io.source_file import SourceFile

__all__ = [
    "AUTO",
    "ENTRY_POINTS",
    "EXPORTS",
    "FORMATS",
    "NATIVE",
    "WRITTEN",
    "Export",
    "companions",
    "format_named",
    "has_columns",
    "import_formats",
    "label",
    "names_owners",
    "owners_are_sessions",
    "recognised",
]

ENTRY_POINTS = "orbiter_memory.importers"
"""The group of entry points by which packages add importers."""

AUTO = "auto"
"""Instead of a name: look at the file."""

NATIVE = "jsonl"
"""Our own format, which is read by itself: it holds records, not memories of somebody's."""

_IMPORTERS = {
    "chatgpt": "chatgpt:ChatGPT",
    "claude-ai": "claude_ai:ClaudeAI",
    "claude-code": "claude_code:ClaudeCode",
    "mcp": "mcp_memory:McpMemory",
    "letta": "letta:Letta",
    "langgraph": "langgraph:LangGraphStore",
    "openai-agents": "openai_agents:OpenAIAgents",
    "openai": "openai_jsonl:OpenAIMessages",
    "mem0": "mem0:Mem0",
    "csv": "table_rows:CsvRows",
    "json": "table_rows:JsonRows",
    "markdown": "markdown:MarkdownNotes",
}
"""Each in a module of its own; a file is of the first that recognises it, so the surest stand
first."""

_LAST = ("csv", "json", "markdown")
"""Tables and notes lie in many folders, and an installed package may know better what a file is:
what else there is counts first."""

FORMATS: tuple[str, ...] = (NATIVE, *_IMPORTERS)
"""What `import_file` takes as `format`, beside `auto` and what other packages add."""


class Export(NamedTuple):
    """A format that can be written."""

    writer: str
    """The function of `export_formats` that writes it; our own has another way."""
    endings: tuple[str, ...]
    """How the names of its files may end."""
    title: str
    label: str
    """What it holds."""
    is_folder: bool = False


EXPORTS = {
    NATIVE: Export(
        "",
        (".jsonl",),
        "Everything",
        "All memories with versions, forgotten ones and facts, and key-value entries; can be"
        " imported without loss",
    ),
    "csv": Export(
        "write_csv",
        (".csv",),
        "Table",
        "Current memories and facts of the past, for a spreadsheet; cannot be imported again",
    ),
    "markdown": Export(
        "write_markdown",
        (".md", ".markdown"),
        "Notes",
        "Current memories and facts of the past, as a .zip of Markdown files",
        is_folder=True,
    ),
    "mcp": Export(
        "write_mcp",
        (".jsonl",),
        "Graph",
        "Entities and observations, as the reference MCP memory server reads them",
    ),
    "openai": Export(
        "write_openai",
        (".jsonl",),
        "Conversations",
        "One line of messages per chat, in OpenAI's format",
    ),
}

WRITTEN: tuple[str, ...] = tuple(EXPORTS)
"""What `export_file` takes as `format`, beside `auto`."""


def import_formats() -> list[str]:
    """Return the name of every format that can be imported, those of installed packages last."""
    return [*FORMATS, *_installed()]


@cache
def format_named(name: str) -> "Importer":
    """Return the importer of that name, or raise `TransferError`."""
    home = _IMPORTERS.get(name)
    if home is not None:
        module, _, kind = home.partition(":")
        made: Importer = getattr(import_module(f"orbiter.memory.transfer.formats.{module}"), kind)()
        return made
    claims = _installed().get(name)
    if claims is None:
        names = "`, `".join(import_formats())
        raise TransferError(f"there is no format `{name}`; use `auto`, or one of `{names}`")
    loaded: Importer = load_plugin("importer", claims, error=TransferError, make=True)
    return loaded


@cache
def _installed() -> "dict[str, list[EntryPoint]]":
    """Return the importers of installed packages, without names that are ours."""
    ours = (AUTO, *FORMATS)
    return {name: claims for name, claims in plugins(ENTRY_POINTS).items() if name not in ours}


def recognised(source: "SourceFile") -> str | None:
    """Return the format that *source* looks like, if it looks like any."""
    head = source.head()
    if not head.strip() and not source.is_container:
        return None
    names = [name for name in (*_IMPORTERS, *_installed()) if name not in _LAST]
    names += [] if source.is_container else _LAST
    return next((name for name in names if _recognises(name, source, head)), None)


def _recognises(name: str, source: "SourceFile", head: bytes) -> bool:
    try:
        importer = format_named(name)
    except TransferError as exc:  # one of an installed package: the others work without it
        warnings.warn(str(exc), RuntimeWarning, stacklevel=2)
        return False
    return importer.recognises(source, head)


def label(name: str) -> str:
    """Return what files of an importable format are, for a person."""
    if name == NATIVE:
        return "Export of this page and of `orbiter-memory export`"
    return str(getattr(format_named(name), "label", ""))


def companions(name: str) -> tuple[str, ...]:
    """Return the files of an export that hold nothing to remember, so that nobody misses them."""
    return tuple(getattr(format_named(name), "companions", ()))


def has_columns(name: str) -> bool:
    """Tell whether files of a format are tables, whose columns a caller may name."""
    return hasattr(format_named(name), "prepared")


def names_owners(name: str) -> bool:
    """Tell whether files of a format may say whose each memory is."""
    return bool(getattr(format_named(name), "names_owners", False))


def owners_are_sessions(name: str) -> bool:
    """Tell whether files of a format hold sessions that do not say whose they are."""
    return bool(getattr(format_named(name), "owners_are_sessions", False))
