"""`MemoryEngine`: what an `AgentMemory` is made of, a store in this process or a server.

`LocalMemory` and the client's `RemoteEngine` are the two; neither inherits how the other works.
`AgentMemory` has the documentation of every call.
"""

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import RESERVED, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, require_text

if TYPE_CHECKING:
    from orbiter.memory.agent._audit import AuditLog
    from orbiter.memory.agent.chat_service import Chats
    from orbiter.memory.agent.events import EventStream
    from orbiter.memory.agent.runtime import Core
    from orbiter.memory.agent.scope import ScopedMemory
    from orbiter.memory.model.agent_store import AgentStore
    from orbiter.memory.model.reports import Erasure, Restored, StoreStats, Verification
    from orbiter.memory.tasks.progress import Progress

__all__ = ["MemoryEngine", "check_actor", "scope_of"]


class MemoryEngine(ABC):
    """The calls of an `AgentMemory`, as one kind of place carries them out."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where memories are kept, without a password."""

    @property
    @abstractmethod
    def core(self) -> "Core":
        """The opened store and what is closed with it; a memory on a server refuses."""

    @property
    @abstractmethod
    def chats(self) -> "Chats":
        """What conversations share; a memory on a server refuses."""

    @property
    @abstractmethod
    def store(self) -> "AgentStore":
        """The store; a memory on a server refuses."""

    @property
    @abstractmethod
    def audit(self) -> "AuditLog":
        """What was done in this memory."""

    @abstractmethod
    def handle(self, scope: MemoryMetadata, by: str | None) -> "ScopedMemory":
        """Return a handle on *scope*, which names nobody for everyone's memories."""

    @abstractmethod
    def events(self) -> "EventStream":
        """Return everything that happens from now on."""

    @abstractmethod
    async def init(self) -> None:
        """Open it. May be repeated."""

    @abstractmethod
    async def close(self) -> None:
        """Close it. May be repeated."""

    @abstractmethod
    async def erase(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        task_id: str | None = None,
        agent_id: str | None = None,
        by: str | None = None,
        dry_run: bool = False,
        progress: "Progress | None" = None,
    ) -> "Erasure":
        """Remove for good all that has these ids, everywhere, and check that nothing is left."""

    @abstractmethod
    async def stats(self) -> "StoreStats":
        """Return how much the store holds."""

    @abstractmethod
    async def verify(
        self, *, repair: bool = False, progress: "Progress | None" = None
    ) -> "Verification":
        """Read everything and check the search structures."""

    @abstractmethod
    async def reindex(self, *, progress: "Progress | None" = None) -> int:
        """Embed everything again; return how many items."""

    @abstractmethod
    async def backup(
        self, path: str | os.PathLike[str], *, progress: "Progress | None" = None
    ) -> None:
        """Copy the store to a new file."""

    @abstractmethod
    async def restore(
        self, path: str | os.PathLike[str], *, progress: "Progress | None" = None
    ) -> "Restored":
        """Replace the store by a backup."""

    @abstractmethod
    async def flush(self, *, progress: "Progress | None" = None) -> None:
        """Wait until what goes on in the background is done."""


def scope_of(
    user_id: str | None, session_id: str | None, task_id: str | None, agent_id: str | None
) -> MemoryMetadata:
    """Return the scope of these ids; `QueryError` if there is none, or one is not valid."""
    given = (user_id, session_id, task_id, agent_id)
    for name, value in zip(SCOPE_FIELDS, given, strict=True):
        if value is not None:
            require_text(name, value)
    if given == (None, None, None, None):
        names = "`, `".join(SCOPE_FIELDS)
        raise QueryError(
            f"a scope names at least one of `{names}`; "
            "everyone's memories are behind `memory.unscoped()`"
        )
    return MemoryMetadata(
        user_id=user_id, session_id=session_id, task_id=task_id, agent_id=agent_id
    )


def check_actor(by: str | None) -> str | None:
    """Return who acts, or raise `QueryError` for a name that the library signs with itself."""
    if by is not None and require_text("by", by).startswith(RESERVED):
        raise QueryError(f"`by` must not begin with `{RESERVED}`, which is reserved: `{by}`")
    return by
