"""`AgentMemory`: the one object most people use.

`AgentMemory` opens a store, `scope` gives a handle for one user, session, task or agent, and
`chat` one conversation of it. All else of this library is what these are made of.
"""

from orbiter.memory.agent._chat import Chat
from orbiter.memory.agent._events import EventStream
from orbiter.memory.agent._handle import ScopedMemory
from orbiter.memory.agent._memory import AgentMemory
from orbiter.memory.agent._reading import Given
from orbiter.memory.agent._results import EventKind, Forgotten, MemoryEvent, Page, ScopeStats
from orbiter.memory.agent._summaries import SummaryMemory

__all__ = [
    "AgentMemory",
    "Chat",
    "EventKind",
    "EventStream",
    "Forgotten",
    "Given",
    "MemoryEvent",
    "Page",
    "ScopeStats",
    "ScopedMemory",
    "SummaryMemory",
]
