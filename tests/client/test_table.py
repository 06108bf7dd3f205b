"""Every call of the local objects is there over the wire, and looks the same."""

import inspect

import pytest

from orbiter.memory.agent import (
    AgentMemory,
    AuditLog,
    Chat,
    Facts,
    FactsView,
    PastMemory,
    ScopedMemory,
)
from orbiter.memory.agent._local_memory import LocalMemory
from orbiter.memory.client._remote_calls import called_by
from orbiter.memory.client._remote_memory import RemoteEngine
from orbiter.memory.client._remote_scope import (
    RemoteAudit,
    RemoteChat,
    RemoteFacts,
    RemoteFactsView,
    RemotePast,
    RemoteScope,
    Scoped,
)

PAIRS = [
    (LocalMemory, RemoteEngine),
    (ScopedMemory, RemoteScope),
    (Chat, RemoteChat),
    (Facts, RemoteFacts),
    (FactsView, RemoteFactsView),
    (PastMemory, RemotePast),
    (AuditLog, RemoteAudit),
]
MADE_OF_OTHERS = {ScopedMemory: {"add", "search", "get_all", "delete"}, AgentMemory: {"settle"}}
"""The names of mem0 on a handle, and old names, which call the others."""


@pytest.mark.parametrize(("local", "remote"), PAIRS, ids=lambda kind: kind.__name__)
def test_no_call_of_a_local_object_is_missing(local: type, remote: type) -> None:
    for name, member in inspect.getmembers(local, inspect.iscoroutinefunction):
        if name.startswith("_") or name in MADE_OF_OTHERS.get(local, ()):
            continue
        made = getattr(remote, name)
        assert made is not member, f"{local.__name__}.{name} would look for a store here"
        assert inspect.iscoroutinefunction(made)
        ours, theirs = (list(inspect.signature(each).parameters) for each in (made, member))
        assert ours == theirs, name
        assert made.__doc__, name


def test_a_class_that_would_look_for_a_store_here_cannot_be_made() -> None:
    with pytest.raises(TypeError, match=r"Half\.add.* would look for a store"):

        @called_by("scope")
        class Half(Scoped, ScopedMemory):
            """Lacks the names that are made of others."""
