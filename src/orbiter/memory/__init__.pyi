"""Written by `docs/build_names.py` from the table of names."""

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
