"""Deprecated names: the ones that `orbiter.memory` itself had, and where each is now."""

import warnings
from importlib import import_module

__all__ = ["MOVED", "OrbiterDeprecationWarning", "load"]


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


def load(name: str) -> object:
    """Return what *name* stands for, with a warning; raise `AttributeError` for any other."""
    if name not in MOVED:
        raise AttributeError(f"module 'orbiter.memory' has no attribute {name!r}")
    module = f"orbiter.memory.{MOVED[name]}"
    warnings.warn(
        f"`orbiter.memory.{name}` is now `{module}.{name}`; the old name goes in version 1.0",
        OrbiterDeprecationWarning,
        stacklevel=3,
    )
    value: object = getattr(import_module(module), name)
    return value
