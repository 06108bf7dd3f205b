"""Written by `docs/build_names.py` from the tables of names, old ones included."""
# ruff: noqa: I001 - in the order of the tables

from orbiter.memory.agent import AgentMemory as AgentMemory
from orbiter.memory.agent import Chat as Chat
from orbiter.memory.agent import ScopedMemory as ScopedMemory
from orbiter.memory.backends.postgres import PostgresMemoryStore as PostgresMemoryStore
from orbiter.memory.backends.redis import RedisMemoryStore as RedisMemoryStore
from orbiter.memory.backends.sqlite import SQLiteMemoryStore as SQLiteMemoryStore
from orbiter.memory.backends.vector import VectorMemoryStore as VectorMemoryStore
from orbiter.memory.context import Context as Context
from orbiter.memory.context import ContextManager as ContextManager
from orbiter.memory.context.persona import Soul as Soul
from orbiter.memory.conversation import count_tokens as count_tokens
from orbiter.memory.embeddings import LocalEmbeddings as LocalEmbeddings
from orbiter.memory.embeddings import OpenAIEmbeddings as OpenAIEmbeddings
from orbiter.memory.episodic import EpisodicMemory as EpisodicMemory
from orbiter.memory.episodic import ShortTermMemoryManager as ShortTermMemoryManager
from orbiter.memory.episodic import get_short_term_memory as get_short_term_memory
from orbiter.memory.errors import MemoryConnectionError as MemoryConnectionError
from orbiter.memory.errors import MemoryError as MemoryError
from orbiter.memory.errors import VersionConflict as VersionConflict
from orbiter.memory.messages import from_messages as from_messages
from orbiter.memory.messages import to_messages as to_messages
from orbiter.memory.messages import validate as validate
from orbiter.memory.model import AIMemory as AIMemory
from orbiter.memory.model import Embeddings as Embeddings
from orbiter.memory.model import HumanMemory as HumanMemory
from orbiter.memory.model import MemoryItem as MemoryItem
from orbiter.memory.model import MemoryMetadata as MemoryMetadata
from orbiter.memory.model import MemoryStatus as MemoryStatus
from orbiter.memory.model import MemoryStore as MemoryStore
from orbiter.memory.model import Summarizer as Summarizer
from orbiter.memory.model import SystemMemory as SystemMemory
from orbiter.memory.model import ToolCall as ToolCall
from orbiter.memory.model import ToolMemory as ToolMemory
from orbiter.memory.short_term import ShortTermMemory as ShortTermMemory
from orbiter.memory.summary import SummaryConfig as SummaryConfig
from orbiter.memory.summary import SummaryResult as SummaryResult
from orbiter.memory.summary import SummaryTemplate as SummaryTemplate
from orbiter.memory.summary import TriggerResult as TriggerResult
from orbiter.memory.summary import check_trigger as check_trigger
from orbiter.memory.summary import generate_summary as generate_summary
from orbiter.memory.tasks.progress import ProgressBar as ProgressBar
from orbiter.memory.transfer import export_file as export_file
from orbiter.memory.transfer import import_file as import_file
from orbiter.memory.transfer import migrate as migrate

# Old names, which load with a warning: programs that have them stay typed.
from orbiter.memory.errors import AccessError as AccessError
from orbiter.memory.model import AuditEntry as AuditEntry
from orbiter.memory.agent import AuditLog as AuditLog
from orbiter.memory.model import AuditProblem as AuditProblem
from orbiter.memory.model import AuditVerification as AuditVerification
from orbiter.memory.model import BatchStore as BatchStore
from orbiter.memory.model import BulkDeleteStore as BulkDeleteStore
from orbiter.memory.embeddings import CachedEmbeddings as CachedEmbeddings
from orbiter.memory.model import Clock as Clock
from orbiter.memory.model import ConversationIndex as ConversationIndex
from orbiter.memory.model import ConversationInfo as ConversationInfo
from orbiter.memory.model import ConversationStore as ConversationStore
from orbiter.memory.model import DetailStore as DetailStore
from orbiter.memory.errors import EmbeddingError as EmbeddingError
from orbiter.memory.errors import EmbeddingsMismatchError as EmbeddingsMismatchError
from orbiter.memory.errors import EmptyFilterError as EmptyFilterError
from orbiter.memory.model import Erasure as Erasure
from orbiter.memory.errors import EventLoopError as EventLoopError
from orbiter.memory.agent import EventStream as EventStream
from orbiter.memory.agent import EvictionResult as _EvictionResult
from orbiter.memory.agent import Eviction as Eviction
from orbiter.memory.transfer import ExportResult as _ExportResult
from orbiter.memory.errors import ExtractionError as ExtractionError
from orbiter.memory.extraction import ExtractionReport as ExtractionReport
from orbiter.memory.summarizers import ExtractiveSummarizer as ExtractiveSummarizer
from orbiter.memory.extraction import Extractor as Extractor
from orbiter.memory.model.facts import FactConflict as FactConflict
from orbiter.memory.model.facts import FactEntry as FactEntry
from orbiter.memory.model.facts import FactMemory as FactMemory
from orbiter.memory.model.facts import FactSpan as FactSpan
from orbiter.memory.agent import Facts as Facts
from orbiter.memory.agent import FactsView as FactsView
from orbiter.memory.errors import FenceError as FenceError
from orbiter.memory.agent import ForgetResult as _ForgetResult
from orbiter.memory.recall import Hit as Hit
from orbiter.memory.transfer import ImportResult as _ImportResult
from orbiter.memory.model import InsertStore as InsertStore
from orbiter.memory.errors import InvalidItemError as InvalidItemError
from orbiter.memory.errors import ItemNotFoundError as ItemNotFoundError
from orbiter.memory.errors import ItemTypeError as ItemTypeError
from orbiter.memory.model import ItemVersion as ItemVersion
from orbiter.memory.recall import Excluded as _Excluded
from orbiter.memory.model import LexicalStore as LexicalStore
from orbiter.memory.model import Lifecycle as Lifecycle
from orbiter.memory.extraction import LongTermMemory as LongTermMemory
from orbiter.memory.agent import MemoryEvent as MemoryEvent
from orbiter.memory.extraction import MemoryOrchestrator as MemoryOrchestrator
from orbiter.memory.errors import MemoryTimeoutError as MemoryTimeoutError
from orbiter.memory.errors import MessageError as MessageError
from orbiter.memory.transfer import Migration as Migration
from orbiter.memory.errors import NotInitializedError as NotInitializedError
from orbiter.memory.extraction import OpenAIExtractor as OpenAIExtractor
from orbiter.memory.summarizers import OpenAISummarizer as OpenAISummarizer
from orbiter.memory.text.pii import PIIHasher as PIIHasher
from orbiter.memory.agent import Page as Page
from orbiter.memory.model import PagedStore as PagedStore
from orbiter.memory.agent import PastMemory as PastMemory
from orbiter.memory.messages import Problem as Problem
from orbiter.memory.extraction import ProposedFact as ProposedFact
from orbiter.memory.messages import ProviderMessages as ProviderMessages
from orbiter.memory.model import Query as Query
from orbiter.memory.errors import QueryError as QueryError
from orbiter.memory.recall import Reason as Reason
from orbiter.memory.context import Recall as Recall
from orbiter.memory.recall import RecallMode as RecallMode
from orbiter.memory.recall import RecallResult as _RecallResult
from orbiter.memory.model import Record as Record
from orbiter.memory.model import Restored as Restored
from orbiter.memory.errors import ScopeError as ScopeError
from orbiter.memory.agent import ScopeStats as ScopeStats
from orbiter.memory.errors import SoulError as SoulError
from orbiter.memory.errors import SoulNotFoundError as SoulNotFoundError
from orbiter.memory.errors import StatusError as StatusError
from orbiter.memory.errors import StorageError as StorageError
from orbiter.memory.model import StoreStats as StoreStats
from orbiter.memory.errors import SummaryError as SummaryError
from orbiter.memory.agent import SummaryMemory as SummaryMemory
from orbiter.memory.errors import ToolCallNotFoundError as ToolCallNotFoundError
from orbiter.memory.errors import TransferError as TransferError
from orbiter.memory.model import Trust as Trust
from orbiter.memory.errors import UnsupportedError as UnsupportedError
from orbiter.memory.model import VectorReader as VectorReader
from orbiter.memory.model import VectorStore as VectorStore
from orbiter.memory.model import Verification as Verification
from orbiter.memory.model import VersionedStore as VersionedStore
from orbiter.memory.model import Where as Where
from orbiter.memory.recall import Explanation as _Explanation
from orbiter.memory.model import WordMatches as WordMatches
from orbiter.memory.model import acting_as as acting_as
from orbiter.memory.backends.registry import default_url as default_url
from orbiter.memory.model import dump_item as dump_item
from orbiter.memory.conversation import estimate_tokens as estimate_tokens
from orbiter.memory.conversation import last_rounds as last_rounds
from orbiter.memory.model import load_item as load_item
from orbiter.memory.summary import roll_summary as roll_summary
from orbiter.memory.conversation import rounds as rounds
from orbiter.memory.model import source_of as source_of
from orbiter.memory.backends.registry import open_store as _open_store
from orbiter.memory.conversation import trim_to_budget as _trim_to_budget
from orbiter.memory.model import trust_of as trust_of
from orbiter.memory.conversation import complete_tool_groups as _complete_tool_groups

Evicted = _EvictionResult
Exported = _ExportResult
Forgotten = _ForgetResult
Imported = _ImportResult
LeftOut = _Excluded
Recalled = _RecallResult
Why = _Explanation
store_at = _open_store
trim_to = _trim_to_budget
whole_groups = _complete_tool_groups

__all__ = [
    "AIMemory",
    "AgentMemory",
    "Chat",
    "Context",
    "ContextManager",
    "Embeddings",
    "EpisodicMemory",
    "HumanMemory",
    "LocalEmbeddings",
    "MemoryConnectionError",
    "MemoryError",
    "MemoryItem",
    "MemoryMetadata",
    "MemoryStatus",
    "MemoryStore",
    "OpenAIEmbeddings",
    "PostgresMemoryStore",
    "ProgressBar",
    "RedisMemoryStore",
    "SQLiteMemoryStore",
    "ScopedMemory",
    "ShortTermMemory",
    "ShortTermMemoryManager",
    "Soul",
    "Summarizer",
    "SummaryConfig",
    "SummaryResult",
    "SummaryTemplate",
    "SystemMemory",
    "ToolCall",
    "ToolMemory",
    "TriggerResult",
    "VectorMemoryStore",
    "VersionConflict",
    "check_trigger",
    "count_tokens",
    "export_file",
    "from_messages",
    "generate_summary",
    "get_short_term_memory",
    "import_file",
    "migrate",
    "to_messages",
    "validate",
]

_NAMES: dict[str, tuple[str, ...]]
__version__: str
