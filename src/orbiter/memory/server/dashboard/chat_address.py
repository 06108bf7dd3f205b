"""Addresses of conversations: which one a page is about, and what its address says.

A conversation is the messages that name the same user, session, task and agent. Its address is the
scope of the handle it is opened from and, as `id`, what it is called there: a session of it, or a
task of its session, as for `ScopedMemory.chat`. One that has no such name is the four ids alone.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.agent.chat_history import nothing_else
from orbiter.memory.agent.inputs import narrowed
from orbiter.memory.agent.interface import session_of
from orbiter.memory.agent.recalled import with_more
from orbiter.memory.agent.runtime import is_known
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import SPOKEN, MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import SCOPE_FIELDS, Query, ScopeField
from orbiter.memory.server.dashboard.page import Ask
from orbiter.memory.text.ranking import MIN_RELEVANCE

if TYPE_CHECKING:
    from orbiter.memory.conversation.tokens import TokenCounter
    from orbiter.memory.episodic.manager import ShortTermMemoryManager
    from orbiter.memory.model.filters import Where
    from orbiter.memory.model.trust import Trust
    from orbiter.memory.recall import RecallResult

__all__ = [
    "Conversation",
    "Watched",
    "address_of",
    "as_seen_by",
    "chat_of",
    "conversation_of",
    "name_of",
]


@dataclass
class Watched:
    """A handle as a chat knows it, which notes what the chat recalls through it, and why."""

    handle: ScopedMemory
    scope: MemoryMetadata
    recalled: "RecallResult | None" = field(default=None, init=False)

    @property
    def activity(self) -> "ShortTermMemoryManager":
        """What happened lately."""
        return self.handle.activity

    def chat(self, chat_id: str) -> Chat:
        """Return another conversation."""
        return self.handle.chat(chat_id)

    async def recall(
        self,
        query: str,
        *,
        k: int,
        min_trust: "Trust | str | None" = None,
        min_relevance: float = MIN_RELEVANCE,
        spread: bool | None = None,
        where: "Where | None" = None,
    ) -> "RecallResult":
        """Return the memories that answer *query*, and keep them with what was left out."""
        hits = await self.handle.recall(
            query,
            k=k,
            min_trust=min_trust,
            min_relevance=min_relevance,
            spread=spread,
            where=where,
            explain=True,
        )
        self.recalled = hits if self.recalled is None else with_more(self.recalled, hits)
        return hits


@dataclass(frozen=True)
class Conversation:
    """One conversation, as far as the reader may see it."""

    handle: ScopedMemory
    scope: MemoryMetadata
    """The ids that each of its messages names, and no others."""
    chat: Chat | None
    """Its window and its summary; nothing for one that is no session's."""

    @property
    def where(self) -> dict[str, object]:
        """The filter of its messages, in addition to the scope of the handle."""
        return {**nothing_else(self.scope), "memory_type": {"$in": list(SPOKEN)}}

    async def page(
        self,
        *,
        limit: int,
        before: str | None = None,
        after: str | None = None,
        item_id: str | None = None,
    ) -> list[MemoryItem]:
        """Return messages as they were added, the last first: the last, or next to a message.

        With *item_id*, only the one of that id, if it is among them.
        """
        store = await session_of(self.handle).core.opened(self.scope)
        named = before if after is None else after
        if named is not None and not await is_known(store, named, self.scope):
            raise QueryError(f"`{named}` is not a message of this chat; open its newest page")
        is_talk = (self.scope.session_id, self.scope.task_id) != (None, None)
        return await store.search(
            metadata=self.scope,
            where=self.where if item_id is None else {**self.where, "id": item_id},
            status=MemoryStatus.ACCEPTED,
            order="insertion" if is_talk else "time",
            limit=limit,
            before=before,
            after=after,
        )

    @property
    def counter(self) -> "TokenCounter":
        """What counts its tokens."""
        return session_of(self.handle).chats.count_tokens


def conversation_of(ask: Ask) -> Conversation:
    """Return the conversation that an address names; it may have no messages."""
    name = ask.text("id")
    scope = narrowed(ask.handle.scope, name) if name else ask.handle.scope
    return as_seen_by(ask, scope)


def as_seen_by(ask: Ask, scope: MemoryMetadata) -> Conversation:
    """Return the conversation of just this *scope*."""
    wanted = Query(metadata=scope).wanted
    if not wanted:
        raise QueryError("the address names no conversation; the page of chats lists them all")
    handle = ask.handle_for({str(name): value for name, value in wanted.items()})
    if scope.session_id is None:
        return Conversation(handle, scope, None)
    last: ScopeField = "session_id" if scope.task_id is None else "task_id"
    fields = {name: value for name, value in wanted.items() if name != last}
    home = Watched(handle, MemoryMetadata(**fields))
    return Conversation(handle, scope, chat_of(home, wanted[last]))


def chat_of(home: Watched, name: str) -> Chat:
    """Return the chat of that *name* that recalls through *home*."""
    return Chat(session_of(home.handle), home, name)


def address_of(scope: MemoryMetadata, held: MemoryMetadata) -> dict[str, str]:
    """Return the parameters of the page of the conversation of *scope*.

    *held* is what the reader's key stands for: what it names is so in every address.
    """
    fields = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    address = {str(name): value for name, value in fields.items() if value is not None}
    if scope.session_id is not None:
        last = "session_id" if scope.task_id is None else "task_id"
        if getattr(held, last) is None:
            address["id"] = address.pop(last)
    return address


def name_of(scope: MemoryMetadata) -> str:
    """Return what a conversation is called."""
    return scope.task_id or scope.session_id or scope.user_id or scope.agent_id or ""
