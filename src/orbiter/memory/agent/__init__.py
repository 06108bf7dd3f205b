"""`AgentMemory`: the one object most people use.

`AgentMemory` opens a store, `scope` gives a handle for one user, session, task or agent, and
`chat` one conversation of it. All else of this library is what these are made of.
"""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names
from orbiter.memory.agent._memory import AgentMemory
from orbiter.memory.agent.events import EventStream
from orbiter.memory.agent.inputs import Given
from orbiter.memory.agent.scope import ScopedMemory
from orbiter.memory.model.items import DEFAULT_USER

if TYPE_CHECKING:
    from orbiter.memory.agent._audit import AuditLog
    from orbiter.memory.agent._chat import Chat
    from orbiter.memory.agent._facts_view import FactsView
    from orbiter.memory.agent._kv import KeyValue
    from orbiter.memory.agent._past import PastMemory
    from orbiter.memory.agent.eviction import Eviction, EvictionResult
    from orbiter.memory.agent.facts import Facts
    from orbiter.memory.agent.results import (
        ChatList,
        EvaluatedQuestion,
        Evaluation,
        EventKind,
        FactDict,
        FactHistory,
        ForgetResult,
        ItemList,
        MemoryEvent,
        Page,
        ScopeStats,
        UserPage,
        VersionList,
    )
    from orbiter.memory.model.derived import SummaryMemory
    from orbiter.memory.model.key_value import Delete, Entry, Put
    from orbiter.memory.model.value_counts import UserInfo, ValueCount

__all__ = [
    "DEFAULT_USER",
    "AgentMemory",
    "AuditLog",
    "Chat",
    "ChatList",
    "Delete",
    "Entry",
    "EvaluatedQuestion",
    "Evaluation",
    "EventKind",
    "EventStream",
    "Eviction",
    "EvictionResult",
    "FactDict",
    "FactHistory",
    "Facts",
    "FactsView",
    "ForgetResult",
    "Given",
    "ItemList",
    "KeyValue",
    "MemoryEvent",
    "Page",
    "PastMemory",
    "Put",
    "ScopeStats",
    "ScopedMemory",
    "SummaryMemory",
    "UserInfo",
    "UserPage",
    "ValueCount",
    "VersionList",
]

# Whoever only remembers and recalls need not wait for what talking takes.
_load_name, __dir__ = lazy_names(
    __name__,
    {
        "AuditLog": "_audit",
        "Chat": "_chat",
        "ChatList": "results",
        "Delete": "orbiter.memory.model.key_value",
        "Entry": "orbiter.memory.model.key_value",
        "EvaluatedQuestion": "results",
        "Evaluation": "results",
        "EventKind": "results",
        "EvictionResult": "eviction",
        "Eviction": "eviction",
        "FactDict": "results",
        "FactHistory": "results",
        "Facts": "facts",
        "FactsView": "_facts_view",
        "ForgetResult": "results",
        "ItemList": "results",
        "KeyValue": "_kv",
        "MemoryEvent": "results",
        "Page": "results",
        "PastMemory": "_past",
        "Put": "orbiter.memory.model.key_value",
        "ScopeStats": "results",
        "SummaryMemory": "orbiter.memory.model.derived",
        "UserInfo": "orbiter.memory.model.value_counts",
        "UserPage": "results",
        "ValueCount": "orbiter.memory.model.value_counts",
        "VersionList": "results",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
