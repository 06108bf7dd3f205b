"""Names of before: they still load, with a warning that says where they are.

This knows where everything is, so that nothing but `orbiter.memory` itself loads it, and only for
a name that is not found. Modules whose own names changed have them from `_lazy`.
"""

from importlib import import_module

from orbiter.memory._lazy import RENAMED, OrbiterDeprecationWarning, warn

__all__ = ["MOVED", "RENAMED", "OrbiterDeprecationWarning", "load"]

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


def load(name: str) -> object:
    """Return what *name* of `orbiter.memory` stands for, with a warning.

    Any other name raises `AttributeError`.
    """
    if name not in MOVED:
        raise AttributeError(f"module 'orbiter.memory' has no attribute {name!r}")
    new = RENAMED.get(MOVED[name], {}).get(name, name)
    module = import_module(f"orbiter.memory.{MOVED[name]}")
    warn(f"orbiter.memory.{name}", f"{module.__name__}.{new}", stacklevel=3)
    value: object = getattr(module, new)
    return value
