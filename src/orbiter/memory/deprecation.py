"""Deprecated names: they still load, with a warning that says what replaces them."""

import sys
from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` costs more than this
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOVED", "RENAMED", "OrbiterDeprecationWarning", "load", "old_names", "warn"]


class OrbiterDeprecationWarning(UserWarning):
    """Something of this library goes in a later version; the text says what replaces it."""


MOVED = {
    "AccessError": "errors",
    "AuditEntry": "model",
    "AuditLog": "agent",
    "AuditProblem": "model",
    "AuditVerification": "model",
    "BatchStore": "model",
    "BulkDeleteStore": "model",
    "CachedEmbeddings": "embeddings",
    "Clock": "model",
    "ConversationIndex": "model",
    "ConversationInfo": "model",
    "ConversationStore": "model",
    "DetailStore": "model",
    "EmbeddingError": "errors",
    "EmbeddingsMismatchError": "errors",
    "EmptyFilterError": "errors",
    "Erasure": "model",
    "EventLoopError": "errors",
    "EventStream": "agent",
    "Evicted": "agent",
    "Eviction": "agent",
    "Exported": "transfer",
    "ExtractionError": "errors",
    "ExtractionReport": "extraction",
    "ExtractiveSummarizer": "summarizers",
    "Extractor": "extraction",
    "FactConflict": "model.facts",
    "FactEntry": "model.facts",
    "FactMemory": "model.facts",
    "FactSpan": "model.facts",
    "Facts": "agent",
    "FactsView": "agent",
    "FenceError": "errors",
    "Forgotten": "agent",
    "Hit": "recall",
    "Imported": "transfer",
    "InsertStore": "model",
    "InvalidItemError": "errors",
    "ItemNotFoundError": "errors",
    "ItemTypeError": "errors",
    "ItemVersion": "model",
    "LeftOut": "recall",
    "LexicalStore": "model",
    "Lifecycle": "model",
    "LongTermMemory": "extraction",
    "MemoryEvent": "agent",
    "MemoryOrchestrator": "extraction",
    "MemoryTimeoutError": "errors",
    "MessageError": "errors",
    "Migration": "transfer",
    "NotInitializedError": "errors",
    "OpenAIExtractor": "extraction",
    "OpenAISummarizer": "summarizers",
    "PIIHasher": "text.pii",
    "Page": "agent",
    "PagedStore": "model",
    "PastMemory": "agent",
    "Problem": "messages",
    "ProposedFact": "extraction",
    "ProviderMessages": "messages",
    "Query": "model",
    "QueryError": "errors",
    "Reason": "recall",
    "Recall": "context",
    "RecallMode": "recall",
    "Recalled": "recall",
    "Record": "model",
    "Restored": "model",
    "ScopeError": "errors",
    "ScopeStats": "agent",
    "SoulError": "errors",
    "SoulNotFoundError": "errors",
    "StatusError": "errors",
    "StorageError": "errors",
    "StoreStats": "model",
    "SummaryError": "errors",
    "SummaryMemory": "agent",
    "ToolCallNotFoundError": "errors",
    "TransferError": "errors",
    "Trust": "model",
    "UnsupportedError": "errors",
    "VectorReader": "model",
    "VectorStore": "model",
    "Verification": "model",
    "VersionedStore": "model",
    "Where": "model",
    "Why": "recall",
    "WordMatches": "model",
    "acting_as": "model",
    "default_url": "backends.registry",
    "dump_item": "model",
    "estimate_tokens": "conversation",
    "last_rounds": "conversation",
    "load_item": "model",
    "roll_summary": "summary",
    "rounds": "conversation",
    "source_of": "model",
    "store_at": "backends.registry",
    "trim_to": "conversation",
    "trust_of": "model",
    "whole_groups": "conversation",
}
"""The names that `orbiter.memory` itself had, and the module that has each now."""

RENAMED = {
    "agent": {"Evicted": "EvictionResult", "Forgotten": "ForgetResult"},
    "backends.registry": {"store_at": "open_store"},
    "conversation": {"trim_to": "trim_to_budget", "whole_groups": "complete_tool_groups"},
    "recall": {
        "LeftOut": "Excluded",
        "LeftOutReason": "ExcludedReason",
        "Mirror": "InMemoryIndex",
        "Recalled": "RecallResult",
        "Why": "Explanation",
    },
    "transfer": {"Exported": "ExportResult", "Imported": "ImportResult"},
}
"""The names that modules had, and what each is called now."""


def warn(old: str, new: str, *, stacklevel: int) -> None:
    """Warn that *old* is now *new*; a *stacklevel* of 1 is the caller of this function."""
    import warnings  # noqa: PLC0415 - most programs never need it

    text = f"`{old}` is now `{new}`; the old name will be removed in version 1.0"
    warnings.warn(text, OrbiterDeprecationWarning, stacklevel=stacklevel + 1)


def load(name: str) -> object:
    """Return what *name* of `orbiter.memory` stands for, with a warning.

    Any other name raises `AttributeError`.
    """
    if name not in MOVED:
        raise AttributeError(f"module 'orbiter.memory' has no attribute {name!r}")
    new = RENAMED.get(MOVED[name], {}).get(name, name)
    module = f"orbiter.memory.{MOVED[name]}"
    warn(f"orbiter.memory.{name}", f"{module}.{new}", stacklevel=3)
    value: object = getattr(import_module(module), new)
    return value


def old_names(
    module: str, load_name: "Callable[[str], object] | None" = None
) -> "Callable[[str], object]":
    """Return the `__getattr__` of *module*: its old names, then those that *load_name* loads."""
    renamed = RENAMED[module.removeprefix("orbiter.memory.")]

    def load_old(name: str) -> object:
        new = renamed.get(name)
        if new is not None:
            warn(f"{module}.{name}", f"{module}.{new}", stacklevel=2)
            return getattr(sys.modules[module], new)
        if load_name is not None:
            return load_name(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return load_old
