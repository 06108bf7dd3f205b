"""The errors for names that `orbiter.memory` does not have: each says what to write instead.

This knows where everything is, so that nothing but `orbiter.memory` itself loads it, and only for a
name that is not found.
"""

from difflib import get_close_matches
from importlib import import_module

__all__ = ["PEERS", "missing_attribute", "missing_module"]

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

_PACKAGES = (
    "agent",
    "context",
    "conversation",
    "embeddings",
    "errors",
    "model",
    "recall",
    "transfer",
)
"""Where else a name may be that somebody looks for at the top."""


def missing_attribute(name: str) -> AttributeError:
    """Return the error for `orbiter.memory.name`."""
    way = _way(f"orbiter.memory.{name}")
    return AttributeError(f"module 'orbiter.memory' has no attribute {name!r}{way}")


def missing_module(path: str) -> ImportError | None:
    """Return the error for a class that was imported from a package without it, or `None`.

    Python asks for a module of that name where `from … import …` finds no such attribute.
    """
    way = _way(path)
    package, _, name = path.rpartition(".")
    text = f"cannot import name {name!r} from {package!r}{way}"
    return ImportError(text, name=package) if way else None


def _way(path: str) -> str:
    """Return what to write for a class that is not there, as the end of an error; or nothing."""
    package, _, name = path.rpartition(".")
    if package not in ("orbiter.memory", "orbiter.memory.sync") or not name[:1].isupper():
        return ""  # a module, which nobody misspells as a class
    if name in PEERS:
        return f"; here it is {PEERS[name]}"
    for each in _PACKAGES:
        if name in import_module(f"orbiter.memory.{each}").__all__:
            return f"; it is in `orbiter.memory.{each}`"
    offered = getattr(import_module(package), "__all__", ())
    meant = get_close_matches(name, offered, n=1, cutoff=0.7)
    return f"; did you mean `{meant[0]}`?" if meant else ""
