"""Values and rules of memory, without I/O: items, filters, queries, reports, protocols, facts."""

from orbiter.memory._lazy import lazy_names

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` would double the cost
if TYPE_CHECKING:
    from orbiter.memory.model.agent_store import AgentStore
    from orbiter.memory.model.audit import AuditEntry, AuditProblem, AuditVerification, acting_as
    from orbiter.memory.model.filters import Where
    from orbiter.memory.model.items import (
        AIMemory,
        HumanMemory,
        MemoryItem,
        MemoryMetadata,
        MemoryStatus,
        SystemMemory,
        ToolMemory,
    )
    from orbiter.memory.model.protocols import (
        BackupStore,
        Clock,
        ConversationStore,
        DetailStore,
        Embeddings,
        HistoryStore,
        LexicalStore,
        MaintainedStore,
        MemoryStore,
        Reranker,
        Summarizer,
        VectorStore,
    )
    from orbiter.memory.model.query import Query, WordMatches
    from orbiter.memory.model.records import Record
    from orbiter.memory.model.reports import (
        ConversationInfo,
        Erasure,
        ItemVersion,
        Restored,
        StoreStats,
        Verification,
    )
    from orbiter.memory.model.serialization import dump_item, load_item
    from orbiter.memory.model.tool_calls import ToolCall
    from orbiter.memory.model.trust import Trust, source_of, trust_of
    from orbiter.memory.model.value_counts import FacetStore, UserInfo, UserQuery, ValueCount

__all__ = [
    "AIMemory",
    "AgentStore",
    "AuditEntry",
    "AuditProblem",
    "AuditVerification",
    "BackupStore",
    "Clock",
    "ConversationInfo",
    "ConversationStore",
    "DetailStore",
    "Embeddings",
    "Erasure",
    "FacetStore",
    "HistoryStore",
    "HumanMemory",
    "ItemVersion",
    "LexicalStore",
    "MaintainedStore",
    "MemoryItem",
    "MemoryMetadata",
    "MemoryStatus",
    "MemoryStore",
    "Query",
    "Record",
    "Reranker",
    "Restored",
    "StoreStats",
    "Summarizer",
    "SystemMemory",
    "ToolCall",
    "ToolMemory",
    "Trust",
    "UserInfo",
    "UserQuery",
    "ValueCount",
    "VectorStore",
    "Verification",
    "Where",
    "WordMatches",
    "acting_as",
    "dump_item",
    "load_item",
    "source_of",
    "trust_of",
]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "AIMemory": "items",
        "AuditEntry": "audit",
        "AuditProblem": "audit",
        "AuditVerification": "audit",
        "AgentStore": "agent_store",
        "BackupStore": "protocols",
        "Clock": "protocols",
        "ConversationInfo": "reports",
        "ConversationStore": "protocols",
        "DetailStore": "protocols",
        "Embeddings": "protocols",
        "Erasure": "reports",
        "FacetStore": "value_counts",
        "HistoryStore": "protocols",
        "HumanMemory": "items",
        "ItemVersion": "reports",
        "LexicalStore": "protocols",
        "MaintainedStore": "protocols",
        "MemoryItem": "items",
        "MemoryMetadata": "items",
        "MemoryStatus": "items",
        "MemoryStore": "protocols",
        "Query": "query",
        "Record": "records",
        "Reranker": "protocols",
        "Restored": "reports",
        "StoreStats": "reports",
        "Summarizer": "protocols",
        "SystemMemory": "items",
        "ToolCall": "tool_calls",
        "ToolMemory": "items",
        "Trust": "trust",
        "UserInfo": "value_counts",
        "UserQuery": "value_counts",
        "ValueCount": "value_counts",
        "VectorStore": "protocols",
        "Verification": "reports",
        "Where": "filters",
        "WordMatches": "query",
        "acting_as": "audit",
        "dump_item": "serialization",
        "load_item": "serialization",
        "source_of": "trust",
        "trust_of": "trust",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
