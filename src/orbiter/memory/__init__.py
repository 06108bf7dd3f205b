"""Memory for LLM agents: what is remembered, what is recalled, what a model may be shown.

Every name loads its module on first use, so importing this package costs next to nothing and
needs none of the extras.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` would double the cost
if TYPE_CHECKING:
    from orbiter.memory.agent import (
        AgentMemory,
        Chat,
        EventStream,
        Forgotten,
        MemoryEvent,
        Page,
        ScopedMemory,
        ScopeStats,
        SummaryMemory,
    )
    from orbiter.memory.backends.postgres import PostgresMemoryStore
    from orbiter.memory.backends.redis import RedisMemoryStore
    from orbiter.memory.backends.sqlite import SQLiteMemoryStore
    from orbiter.memory.backends.vector import VectorMemoryStore
    from orbiter.memory.calls import ToolCall
    from orbiter.memory.context import Context, ContextManager, Recall
    from orbiter.memory.conversation import last_rounds, rounds, trim_to, whole_groups
    from orbiter.memory.embeddings.cached import CachedEmbeddings
    from orbiter.memory.embeddings.local import LocalEmbeddings
    from orbiter.memory.embeddings.openai import OpenAIEmbeddings
    from orbiter.memory.episodes import EpisodicMemory
    from orbiter.memory.episodic import ShortTermMemoryManager, get_short_term_memory
    from orbiter.memory.errors import (
        AccessError,
        EmbeddingError,
        EmbeddingsMismatchError,
        EmptyFilterError,
        FenceError,
        InvalidItemError,
        ItemNotFoundError,
        ItemTypeError,
        MemoryConnectionError,
        MemoryError,
        MemoryTimeoutError,
        MessageError,
        NotInitializedError,
        QueryError,
        ScopeError,
        SoulError,
        SoulNotFoundError,
        StatusError,
        StorageError,
        SummaryError,
        ToolCallNotFoundError,
        UnsupportedError,
        VersionConflict,
    )
    from orbiter.memory.filters import Where
    from orbiter.memory.items import (
        AIMemory,
        HumanMemory,
        MemoryItem,
        MemoryMetadata,
        MemoryStatus,
        SystemMemory,
        ToolMemory,
        dump_item,
        load_item,
    )
    from orbiter.memory.matches import WordMatches
    from orbiter.memory.messages import (
        Problem,
        ProviderMessages,
        from_messages,
        to_messages,
        validate,
    )
    from orbiter.memory.pii import PIIHasher
    from orbiter.memory.protocols import (
        BatchStore,
        BulkDeleteStore,
        Clock,
        ConversationIndex,
        ConversationStore,
        DetailStore,
        Embeddings,
        LexicalStore,
        Lifecycle,
        MemoryStore,
        PagedStore,
        Summarizer,
        VectorStore,
        VersionedStore,
    )
    from orbiter.memory.query import Query
    from orbiter.memory.recall import Hit, LeftOut, Reason, Recalled, RecallMode, Why
    from orbiter.memory.reports import ConversationInfo, ItemVersion, StoreStats, Verification
    from orbiter.memory.short_term import ShortTermMemory
    from orbiter.memory.soul import Soul
    from orbiter.memory.stores import default_url, store_at
    from orbiter.memory.summarizers.extractive import ExtractiveSummarizer
    from orbiter.memory.summarizers.openai import OpenAISummarizer
    from orbiter.memory.summary import (
        SummaryConfig,
        SummaryResult,
        SummaryTemplate,
        TriggerResult,
        check_trigger,
        generate_summary,
        roll_summary,
    )
    from orbiter.memory.tokens import count_tokens, estimate_tokens

_HOME = {
    "AIMemory": "items",
    "AccessError": "errors",
    "AgentMemory": "agent",
    "BatchStore": "protocols",
    "BulkDeleteStore": "protocols",
    "CachedEmbeddings": "embeddings.cached",
    "Chat": "agent",
    "Clock": "protocols",
    "Context": "context",
    "ContextManager": "context",
    "ConversationIndex": "protocols",
    "ConversationInfo": "reports",
    "ConversationStore": "protocols",
    "DetailStore": "protocols",
    "EmbeddingError": "errors",
    "Embeddings": "protocols",
    "EmbeddingsMismatchError": "errors",
    "EmptyFilterError": "errors",
    "EpisodicMemory": "episodes",
    "EventStream": "agent",
    "ExtractiveSummarizer": "summarizers.extractive",
    "FenceError": "errors",
    "Forgotten": "agent",
    "Hit": "recall",
    "HumanMemory": "items",
    "InvalidItemError": "errors",
    "ItemNotFoundError": "errors",
    "ItemTypeError": "errors",
    "ItemVersion": "reports",
    "LeftOut": "recall",
    "LexicalStore": "protocols",
    "Lifecycle": "protocols",
    "LocalEmbeddings": "embeddings.local",
    "MemoryConnectionError": "errors",
    "MemoryError": "errors",
    "MemoryEvent": "agent",
    "MemoryItem": "items",
    "MemoryMetadata": "items",
    "MemoryStatus": "items",
    "MemoryStore": "protocols",
    "MemoryTimeoutError": "errors",
    "MessageError": "errors",
    "NotInitializedError": "errors",
    "OpenAIEmbeddings": "embeddings.openai",
    "OpenAISummarizer": "summarizers.openai",
    "PIIHasher": "pii",
    "Page": "agent",
    "PagedStore": "protocols",
    "PostgresMemoryStore": "backends.postgres",
    "Problem": "messages",
    "ProviderMessages": "messages",
    "Query": "query",
    "QueryError": "errors",
    "Reason": "recall",
    "Recall": "context",
    "RecallMode": "recall",
    "Recalled": "recall",
    "RedisMemoryStore": "backends.redis",
    "SQLiteMemoryStore": "backends.sqlite",
    "ScopeError": "errors",
    "ScopeStats": "agent",
    "ScopedMemory": "agent",
    "ShortTermMemory": "short_term",
    "ShortTermMemoryManager": "episodic",
    "Soul": "soul",
    "SoulError": "errors",
    "SoulNotFoundError": "errors",
    "StatusError": "errors",
    "StorageError": "errors",
    "StoreStats": "reports",
    "Summarizer": "protocols",
    "SummaryConfig": "summary",
    "SummaryError": "errors",
    "SummaryMemory": "agent",
    "SummaryResult": "summary",
    "SummaryTemplate": "summary",
    "SystemMemory": "items",
    "ToolCall": "calls",
    "ToolCallNotFoundError": "errors",
    "ToolMemory": "items",
    "TriggerResult": "summary",
    "UnsupportedError": "errors",
    "VectorMemoryStore": "backends.vector",
    "VectorStore": "protocols",
    "Verification": "reports",
    "VersionConflict": "errors",
    "VersionedStore": "protocols",
    "Where": "filters",
    "Why": "recall",
    "WordMatches": "matches",
    "check_trigger": "summary",
    "count_tokens": "tokens",
    "default_url": "stores",
    "dump_item": "items",
    "estimate_tokens": "tokens",
    "from_messages": "messages",
    "generate_summary": "summary",
    "get_short_term_memory": "episodic",
    "last_rounds": "conversation",
    "load_item": "items",
    "roll_summary": "summary",
    "rounds": "conversation",
    "store_at": "stores",
    "to_messages": "messages",
    "trim_to": "conversation",
    "validate": "messages",
    "whole_groups": "conversation",
}
"""Which module each public name lives in."""

__all__ = [
    "AIMemory",
    "AccessError",
    "AgentMemory",
    "BatchStore",
    "BulkDeleteStore",
    "CachedEmbeddings",
    "Chat",
    "Clock",
    "Context",
    "ContextManager",
    "ConversationIndex",
    "ConversationInfo",
    "ConversationStore",
    "DetailStore",
    "EmbeddingError",
    "Embeddings",
    "EmbeddingsMismatchError",
    "EmptyFilterError",
    "EpisodicMemory",
    "EventStream",
    "ExtractiveSummarizer",
    "FenceError",
    "Forgotten",
    "Hit",
    "HumanMemory",
    "InvalidItemError",
    "ItemNotFoundError",
    "ItemTypeError",
    "ItemVersion",
    "LeftOut",
    "LexicalStore",
    "Lifecycle",
    "LocalEmbeddings",
    "MemoryConnectionError",
    "MemoryError",
    "MemoryEvent",
    "MemoryItem",
    "MemoryMetadata",
    "MemoryStatus",
    "MemoryStore",
    "MemoryTimeoutError",
    "MessageError",
    "NotInitializedError",
    "OpenAIEmbeddings",
    "OpenAISummarizer",
    "PIIHasher",
    "Page",
    "PagedStore",
    "PostgresMemoryStore",
    "Problem",
    "ProviderMessages",
    "Query",
    "QueryError",
    "Reason",
    "Recall",
    "RecallMode",
    "Recalled",
    "RedisMemoryStore",
    "SQLiteMemoryStore",
    "ScopeError",
    "ScopeStats",
    "ScopedMemory",
    "ShortTermMemory",
    "ShortTermMemoryManager",
    "Soul",
    "SoulError",
    "SoulNotFoundError",
    "StatusError",
    "StorageError",
    "StoreStats",
    "Summarizer",
    "SummaryConfig",
    "SummaryError",
    "SummaryMemory",
    "SummaryResult",
    "SummaryTemplate",
    "SystemMemory",
    "ToolCall",
    "ToolCallNotFoundError",
    "ToolMemory",
    "TriggerResult",
    "UnsupportedError",
    "VectorMemoryStore",
    "VectorStore",
    "Verification",
    "VersionConflict",
    "VersionedStore",
    "Where",
    "Why",
    "WordMatches",
    "check_trigger",
    "count_tokens",
    "default_url",
    "dump_item",
    "estimate_tokens",
    "from_messages",
    "generate_summary",
    "get_short_term_memory",
    "last_rounds",
    "load_item",
    "roll_summary",
    "rounds",
    "store_at",
    "to_messages",
    "trim_to",
    "validate",
    "whole_groups",
]


if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("orbiter-memory")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
