"""What a model is shown for one task: persona, conversation, recent activity, memories, the task.

What does not change from turn to turn comes first, byte for byte the same; what was remembered
goes through `orbiter.memory.fencing` and nowhere else; the whole is never over its budget.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orbiter.memory._checks import check_text
from orbiter.memory.context._budget import Dropped
from orbiter.memory.context._draft import PRIORITY, Costs, Draft, Parts, Section, compose
from orbiter.memory.context._entries import (
    Memory,
    Reason,
    TrustRule,
    candidate,
    check_memories,
    default_trust,
)
from orbiter.memory.context._sources import (
    ConversationSource,
    Recall,
    RecallFunction,
    RecentActivity,
    SoulFile,
    read_conversation,
    read_recent,
    recall,
)
from orbiter.memory.errors import QueryError
from orbiter.memory.items import MemoryItem, MemoryMetadata
from orbiter.memory.messages import Format, ProviderMessages, to_messages
from orbiter.memory.protocols import MemoryStore
from orbiter.memory.query import check_size
from orbiter.memory.tokens import TokenCounter, estimate_tokens

__all__ = [
    "PRIORITY",
    "Context",
    "ContextManager",
    "ConversationSource",
    "Dropped",
    "Memory",
    "Reason",
    "Recall",
    "RecallFunction",
    "RecentActivity",
    "Section",
    "TrustRule",
    "default_trust",
]


_MOST_COSTS = 100_000
"""Messages whose cost is remembered; some 20 MB."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a model is shown, as one text or as messages, and what that costs."""

    text: str = field(repr=False)
    """All sections, in order, with a blank line between."""
    sections: tuple[Section, ...] = field(repr=False)
    tokens: int
    """What it costs to send, as text or as messages, whichever is more."""
    budget: int | None
    dropped: tuple[Dropped, ...] = field(repr=False)
    """What was left out, and why."""
    prefix: str = field(repr=False)
    """The beginning of `text` that the next turn repeats, unless the persona changes or the
    conversation is cut. As messages it is all but the last one."""
    prefix_tokens: int
    marks: tuple[str, str] = field(repr=False)
    """The marks of the conversation's fence and of the others; `fencing.parse` needs them."""
    _items: tuple[MemoryItem, ...] = field(repr=False)

    def messages(self, format: Format = "openai") -> ProviderMessages:
        """Return the same as messages the provider accepts.

        The persona is the system's, the conversation stands in its own roles, and the last
        message is the user's: what was remembered, fenced, and the task.
        """
        return to_messages(self._items, format)


class ContextManager:
    """Puts together what a model is shown.

    *soul_path* is read at the first assembly, and again when the file has changed. *budget* is in
    tokens as *count_tokens* counts them; `None` means no limit. *priority* orders the sections
    that may shrink, the first is kept longest. *trust* says how far a memory may be relied on.
    Processes that share a *secret* fence a conversation with the same mark, so that its text
    begins the same whichever of them assembles it.
    """

    def __init__(
        self,
        soul_path: str | Path = "./SOUL.md",
        *,
        budget: int | None = None,
        count_tokens: TokenCounter = estimate_tokens,
        priority: Sequence[str] = PRIORITY,
        trust: TrustRule = default_trust,
        secret: bytes | None = None,
    ) -> None:
        if not isinstance(soul_path, str | Path):
            raise QueryError(f"`soul_path` must be the path of a persona, not {soul_path!r}")
        if not isinstance(secret, bytes | None):
            raise QueryError(f"`secret` must be bytes, not `{type(secret).__name__}`")
        self.soul_path = Path(soul_path)
        self.budget = None if budget is None else check_size("budget", budget)
        if sorted(priority) != sorted(PRIORITY):
            raise QueryError(f"`priority` must order {PRIORITY}, not {tuple(priority)}")
        self._priority = tuple(priority)
        self._count_tokens = count_tokens
        self._trust = trust
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._soul = SoulFile(self.soul_path)
        self._costs: Costs = {}

    async def assemble_context(  # noqa: PLR0913 - one keyword per source, as in `assemble`
        self,
        input_query: str,
        short_term_manager: RecentActivity | None = None,
        *,
        conversation: Sequence[MemoryItem] | ConversationSource = (),
        recent: Sequence[Memory] = (),
        memories: Sequence[Memory] = (),
        long_term: MemoryStore | Recall | RecallFunction | None = None,
        scope: MemoryMetadata | None = None,
        recall_scope: MemoryMetadata | None = None,
        hours: float = 2.0,
        recent_limit: int = 10,
        memory_limit: int = 5,
        budget: int | None = None,
    ) -> str:
        """Return the text of `assemble`, which takes the same arguments."""
        context = await self.assemble(
            input_query,
            short_term_manager,
            conversation=conversation,
            recent=recent,
            memories=memories,
            long_term=long_term,
            scope=scope,
            recall_scope=recall_scope,
            hours=hours,
            recent_limit=recent_limit,
            memory_limit=memory_limit,
            budget=budget,
        )
        return context.text

    async def assemble(  # noqa: PLR0913 - one keyword per source
        self,
        input_query: str,
        short_term_manager: RecentActivity | None = None,
        *,
        conversation: Sequence[MemoryItem] | ConversationSource = (),
        recent: Sequence[Memory] = (),
        memories: Sequence[Memory] = (),
        long_term: MemoryStore | Recall | RecallFunction | None = None,
        scope: MemoryMetadata | None = None,
        recall_scope: MemoryMetadata | None = None,
        hours: float = 2.0,
        recent_limit: int = 10,
        memory_limit: int = 5,
        budget: int | None = None,
    ) -> Context:
        """Return what the model should see for *input_query*; empty sections are left out.

        *recent* and *memories* are shown first, in the given order, then what *short_term_manager*
        remembers of the last *hours* and what *long_term* finds; the limits are for the latter.
        A store needs a *scope* that names somebody; *recall_scope* is the one for *long_term* where
        it differs, such as a user's memories beside one session's conversation. A task that the
        conversation asks already, with nothing but tools' answers since, is not asked again in
        the messages.
        `QueryError` if the persona and the task alone exceed the budget; *budget* replaces the
        manager's for this call.
        """
        _check_task(input_query)
        check_size("recent_limit", recent_limit)
        check_size("memory_limit", memory_limit)
        limit = self.budget if budget is None else check_size("budget", budget)
        soul = await self._soul.read()
        history, not_theirs = await read_conversation(conversation, scope)
        episodes = check_memories("recent", recent)
        episodes += await read_recent(short_term_manager, hours=hours, limit=recent_limit)
        found = check_memories("memories", memories)
        foreign: list[Memory] = []
        if long_term is not None:
            whose = scope if recall_scope is None else recall_scope
            more, foreign = await recall(long_term, input_query, scope=whose, limit=memory_limit)
            found += more
        parts = Parts(
            persona=soul.render(),
            task=input_query,
            history=history,
            foreign=not_theirs,
            remembered={
                "recent": [candidate(episode, self._trust) for episode in episodes],
                "memories": [candidate(memory, self._trust) for memory in found]
                + [candidate(memory, self._trust, refused="scope") for memory in foreign],
            },
        )
        if len(self._costs) > _MOST_COSTS:
            self._costs.clear()
        draft = compose(
            parts,
            budget=limit,
            counter=self._count_tokens,
            priority=self._priority,
            trust=self._trust,
            secret=self._secret,
            costs=self._costs,
        )
        return _context(draft, limit, self._count_tokens)


def _check_task(task: object) -> None:
    if not isinstance(task, str) or not task.strip():
        raise QueryError(f"`input_query` must say what the model should do, not {task!r}")
    try:
        check_text(task, max_bytes=2**62)
    except ValueError as exc:
        raise QueryError(f"`input_query` cannot be sent: {exc}") from None


def _context(draft: Draft, budget: int | None, counter: TokenCounter) -> Context:
    return Context(
        text=draft.text,
        sections=draft.sections,
        tokens=draft.tokens,
        budget=budget,
        dropped=draft.dropped,
        prefix=draft.prefix,
        prefix_tokens=counter(draft.prefix),
        marks=draft.marks,
        _items=draft.items,
    )
