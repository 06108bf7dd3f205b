"""Writes docs/api.md from the docstrings: `python docs/build_api.py`. A test keeps it current."""

import ast
import importlib
import inspect
from itertools import pairwise
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).with_name("api.md")

# Modules in reading order; the names of `orbiter.memory` itself live in these.
MODULES = (
    "agent", "sync", "client", "auth", "server", "mcp", "model", "model.facts", "extraction",
    "transfer", "integrations.langchain", "integrations.langgraph", "integrations.openai_agents",
    "integrations.anthropic_memory", "integrations.pydantic_ai", "integrations.tools",
    "backends.registry", "backends.adapter", "errors", "short_term", "backends.sqlite",
    "backends.postgres", "backends.redis", "backends.vector", "episodic", "text.pii",
    "tasks.progress", "text.words", "recall", "context", "context.persona", "context.prompt_fence",
    "conversation", "conversation.tokens", "messages.costs", "messages", "summary", "summarizers",
    "embeddings", "rerankers", "conversation.history", "text.ranking", "testing",
)  # fmt: skip

INTRO = """\
# API

Every public name in one sentence; `help(name)` tells the rest. Names marked ● are also
importable from `orbiter.memory` itself. Everything else is private and may change.
"""


def _sentence(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    doc = inspect.getdoc(value) if callable(value) and hasattr(value, "__module__") else None
    if doc is None or not getattr(value, "__module__", "").startswith("orbiter."):
        doc = _documented_below(module, name)
    first = doc.split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def _documented_below(module: ModuleType, name: str) -> str:
    """Return the string under a constant's assignment, wherever it was imported from."""
    for source in {module, *_origins(module, name)}:
        body = ast.parse(inspect.getsource(source)).body
        for node, following in pairwise(body):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if name in names and isinstance(following, ast.Expr):
                text = ast.literal_eval(following.value)
                return str(text)
    raise LookupError(f"`{module.__name__}.{name}` has no documentation")


def _origins(module: ModuleType, name: str) -> list[ModuleType]:
    """Return the modules that *module* imports *name* from, be it for type checkers only."""
    return [
        importlib.import_module(node.module)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ImportFrom) and node.module
        if name in {alias.name for alias in node.names}
    ]


def _kind(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.isclass(value) and value.__module__.startswith("orbiter."):
        return "class"
    return "function" if inspect.isfunction(value) else "value"


def page() -> str:
    """Return the text of the page."""
    package = importlib.import_module("orbiter.memory")
    parts = [INTRO]
    for short in MODULES:
        module = importlib.import_module(f"orbiter.memory.{short}")
        summary = (module.__doc__ or "").strip().split("\n")[0]
        parts.append(f"## `orbiter.memory.{short}`\n\n{summary}\n")
        rows = ["| name | | what it is |", "|---|---|---|"]
        for name in module.__all__:
            is_top = name in package.__all__ and getattr(package, name) is getattr(module, name)
            top = " ●" if name in package.__all__ and is_top else ""
            rows.append(f"| `{name}`{top} | {_kind(module, name)} | {_sentence(module, name)} |")
        parts.append("\n".join(rows) + "\n")
    parts.append(
        "`orbiter.memory.base` offers the names of `items`, `query`, `protocols` and `errors` in "
        "one place.\n`synaptic.core.base.memory` offers those of `history`.\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
