"""Names that are not found: old ones still load, with a warning that says where they are now.

What other libraries call the same is an error that names ours. This knows where everything is, so
that nothing but `orbiter.memory` itself loads it, and only for a name or a module that is not
found. Modules whose own names changed have them from `_lazy`.
"""

from difflib import get_close_matches
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

from orbiter.memory._lazy import RENAMED, OrbiterDeprecationWarning, warn

__all__ = [
    "MOVED",
    "OLD_MODULES",
    "PEERS",
    "RENAMED",
    "OrbiterDeprecationWarning",
    "find_spec",
    "load",
]

_MEMORY = "`AgentMemory`, or without `await` that of `orbiter.memory.sync`"
_SERVER = '`AgentMemory("https://…", token=…)`, which talks to a server'
_CHAT = '`AgentMemory(…).chat("main")`, a conversation'

PEERS = {
    "AsyncClient": _SERVER,
    "AsyncMemory": "`AgentMemory`",
    "AsyncMemoryClient": _SERVER,
    "BaseMemory": _MEMORY,
    "ChatMemory": _CHAT,
    "ChatMessageHistory": _CHAT,
    "Client": _SERVER,
    "ConversationBufferMemory": _CHAT,
    "ConversationSummaryMemory": _CHAT,
    "InMemoryStore": '`ShortTermMemory`, or `AgentMemory("memory://")`',
    "Mem0": _MEMORY,
    "Memory": _MEMORY,
    "MemoryClient": _SERVER,
    "MemoryManager": _MEMORY,
    "Orbiter": _MEMORY,
    "OrbiterMemory": _MEMORY,
    "Session": _CHAT,
    "SyncMemory": "`AgentMemory` of `orbiter.memory.sync`",
}
"""What other libraries call things, and what does the same here."""

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

OLD_MODULES = {
    "agent.results": ("agent._results",),
    "auth": ("keys",),
    "backends.registry": ("stores",),
    "context.persona": ("soul",),
    "context.prompt_fence": ("fencing",),
    "conversation.history": ("_history_entries", "history"),
    "conversation.tokens": ("tokens",),
    "messages.costs": ("costs",),
    "model.audit": ("audit",),
    "model.copying": ("copies",),
    "model.derived": ("agent._summaries", "extraction._jobs"),
    "model.episode": ("episodes",),
    "model.facts": ("facts", "facts._assertion", "facts._conflicts", "facts._spans"),
    "model.filters": ("_conditions", "filters"),
    "model.items": ("items",),
    "model.protocols": ("protocols",),
    "model.query": ("matches", "query"),
    "model.records": ("records",),
    "model.reports": ("erasure", "reports"),
    "model.serialization": ("items",),
    "model.tool_calls": ("calls",),
    "model.trust": ("trust",),
    "summarizers.openai_summarizer": ("summarizers.openai",),
    "text.pii": ("pii",),
    "text.ranking": ("ranking",),
    "text.words": ("words",),
}
"""The old modules whose names each module has now.

Those that were private are here because pickles of public classes name them.
"""

_OLD = {name for names in OLD_MODULES.values() for name in names}
_OLD_PACKAGES = {name.rpartition(".")[0] for name in _OLD}


def load(name: str) -> object:
    """Return what *name* of `orbiter.memory` stands for, with a warning.

    Any other name raises `AttributeError`.
    """
    if name not in MOVED:
        raise AttributeError(
            f"module 'orbiter.memory' has no attribute {name!r}{_way(f'orbiter.memory.{name}')}"
        )
    new = RENAMED.get(MOVED[name], {}).get(name, name)
    module = import_module(f"orbiter.memory.{MOVED[name]}")
    warn(f"orbiter.memory.{name}", f"{module.__name__}.{new}", stacklevel=3)
    value: object = getattr(module, new)
    return value


def find_spec(name: str) -> ModuleSpec | None:
    """Return how to load the old module *name*, or `None` if there never was one.

    What is a name of another library, or a misspelt one, raises an `ImportError` that names ours.
    """
    short = name.removeprefix("orbiter.memory.")
    if short not in _OLD:
        if way := _way(name):  # Python asks for a module where `from … import …` finds no name
            package, _, last = name.rpartition(".")
            raise ImportError(f"cannot import name {last!r} from {package!r}{way}", name=package)
        return None
    return ModuleSpec(name, _OldModuleLoader(), is_package=short in _OLD_PACKAGES)


def _way(path: str) -> str:
    """Return what to write for a class that is not there, as the end of an error; or nothing."""
    package, _, name = path.rpartition(".")
    if package not in ("orbiter.memory", "orbiter.memory.sync") or not name[:1].isupper():
        return ""  # a module, which nobody misspells as a class
    if name in PEERS:
        return f"; here it is {PEERS[name]}"
    offered = getattr(import_module(package), "__all__", ())
    meant = get_close_matches(name, offered, n=1, cutoff=0.7)
    return f"; did you mean `{meant[0]}`?" if meant else ""


class _OldModuleLoader(Loader):
    """Gives an old module the names of those that took its place."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill *module*, and say at the line that imports it where its names are now."""
        short = module.__name__.removeprefix("orbiter.memory.")
        homes = [home for home, names in OLD_MODULES.items() if short in names]
        listed: list[str] = []
        for home in homes:
            source = import_module(f"orbiter.memory.{home}")
            renamed = {old: getattr(source, new) for old, new in RENAMED.get(home, {}).items()}
            # Private names, too: a pickle may name them.
            private = {name: value for name, value in vars(source).items() if name[:2] != "__"}
            public = {name: getattr(source, name) for name in source.__all__}  # may load them
            vars(module).update(private | public | renamed)
            listed += [*source.__all__, *renamed]
        vars(module)["__all__"] = listed
        new = "` and `".join(f"orbiter.memory.{home}" for home in homes)
        warn(module.__name__, new, stacklevel=2)  # Python's own frames of an import do not count
