"""Memory for LLM agents: what is remembered, what is recalled, what a model may be shown.

Every name loads its module on first use, so importing this package costs next to nothing and
needs none of the extras. Type checkers read `__init__.pyi`, which `docs/build_names.py` writes.
Everything else is imported from its own package, as `orbiter.memory.recall` or `.errors`.
"""

import sys
from importlib import import_module

_NAMES = {
    "agent": ("AgentMemory", "Chat", "ScopedMemory"),
    "backends.postgres": ("PostgresMemoryStore",),
    "backends.redis": ("RedisMemoryStore",),
    "backends.sqlite": ("SQLiteMemoryStore",),
    "backends.vector": ("VectorMemoryStore",),
    "context": ("Context", "ContextManager"),
    "context.persona": ("Soul",),
    "conversation": ("count_tokens",),
    "embeddings": ("LocalEmbeddings", "OpenAIEmbeddings"),
    "episodic": ("EpisodicMemory", "ShortTermMemoryManager", "get_short_term_memory"),
    "errors": ("MemoryConnectionError", "MemoryError", "VersionConflict"),
    "messages": ("from_messages", "to_messages", "validate"),
    "model": (
        "AIMemory",
        "Embeddings",
        "HumanMemory",
        "MemoryItem",
        "MemoryMetadata",
        "MemoryStatus",
        "MemoryStore",
        "Summarizer",
        "SystemMemory",
        "ToolCall",
        "ToolMemory",
    ),
    "short_term": ("ShortTermMemory",),
    "summary": (
        "SummaryConfig",
        "SummaryResult",
        "SummaryTemplate",
        "TriggerResult",
        "check_trigger",
        "generate_summary",
    ),
    "tasks.progress": ("ProgressBar",),
    "transfer": ("export_file", "import_file", "migrate"),
}
"""The names that most programs need, by the module that has them."""

_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)  # noqa: PLE0605 - written once; the stub has it in full


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("orbiter-memory")
    if name in _HOME:
        value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise import_module(f"{__name__}._missing_names").missing_attribute(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _MissingNames:
    """Names ours where one of another library is imported. Python asks it last."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name.startswith(f"{__name__}."):
            error = import_module(f"{__name__}._missing_names").missing_module(name)
            if error is not None:
                raise error


sys.meta_path.append(_MissingNames)  # type: ignore[arg-type]  # it finds nothing, and says so
