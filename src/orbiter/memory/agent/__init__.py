"""`AgentMemory`: the one object most people use.

`AgentMemory` opens a store, `scope` gives a handle for one user, session, task or agent, and
`chat` one conversation of it. All else of this library is what these are made of.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from orbiter.memory.agent._events import EventStream
from orbiter.memory.agent._handle import ScopedMemory
from orbiter.memory.agent._memory import AgentMemory
from orbiter.memory.agent._reading import Given
from orbiter.memory.agent._results import EventKind, Forgotten, MemoryEvent, Page, ScopeStats

if TYPE_CHECKING:
    from orbiter.memory.agent._audit import AuditLog
    from orbiter.memory.agent._chat import Chat
    from orbiter.memory.agent._evicting import Evicted
    from orbiter.memory.agent._facts import Facts
    from orbiter.memory.agent._facts_view import FactsView
    from orbiter.memory.agent._past import PastMemory
    from orbiter.memory.agent._summaries import SummaryMemory
    from orbiter.memory.agent._worth import Eviction

__all__ = [
    "AgentMemory",
    "AuditLog",
    "Chat",
    "EventKind",
    "EventStream",
    "Evicted",
    "Eviction",
    "Facts",
    "FactsView",
    "Forgotten",
    "Given",
    "MemoryEvent",
    "Page",
    "PastMemory",
    "ScopeStats",
    "ScopedMemory",
    "SummaryMemory",
]

# Whoever only remembers and recalls need not wait for what talking takes.
_LATER = {
    "AuditLog": "_audit",
    "Chat": "_chat",
    "Evicted": "_evicting",
    "Eviction": "_worth",
    "Facts": "_facts",
    "FactsView": "_facts_view",
    "PastMemory": "_past",
    "SummaryMemory": "_summaries",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
