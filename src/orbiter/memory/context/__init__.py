"""Context assembly: persona, conversation, recent activity, memories and the task for a model.

What does not change from turn to turn comes first, byte for byte the same; what was remembered
goes through `prompt_fence` and nowhere else; the whole is never over its budget.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbiter.memory.context._layout import PRIORITY, Draft, compose
from orbiter.memory.context._prices import Costs, Section
from orbiter.memory.context._section_sources import (
    ConversationSource,
    Recall,
    RecallFunction,
    RecallHandle,
    RecentActivity,
    RecentSummaries,
    read_conversation,
    read_recent,
    recall,
)
from orbiter.memory.context._visible import Parts
from orbiter.memory.context.entries import (
    Dropped,
    Interaction,
    Memory,
    Reason,
    TrustRule,
    candidate,
    check_memories,
    check_sendable,
    default_trust,
)
from orbiter.memory.context.persona import Soul
from orbiter.memory.context.persona_file import SoulFile, persona_of
from orbiter.memory.context.prompt_fence import Entry
from orbiter.memory.conversation.tokens import TokenCounter, estimate_tokens
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import (
    Format,
    ProviderMessages,
    to_bedrock,
    to_langchain,
    to_messages,
    to_pydantic_ai,
)
from orbiter.memory.model.display import bar, html_table
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.query import check_size
from orbiter.memory.tasks.offload import apart, is_much_text
from orbiter.memory.text.ranking import check_relevance

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from pydantic_ai.messages import ModelMessage

__all__ = [
    "PRIORITY",
    "Context",
    "ContextManager",
    "ConversationSource",
    "Dropped",
    "Interaction",
    "Memory",
    "Reason",
    "Recall",
    "RecallFunction",
    "RecallHandle",
    "RecentActivity",
    "RecentSummaries",
    "Section",
    "TrustRule",
    "default_trust",
]


_MANY = 100
"""Memories that are made into entries in a thread: some milliseconds."""
_MAX_COSTS = 100_000
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
    """The beginning of `text` that the next turn repeats, unless the persona or the summary
    changes or the conversation is cut. As messages it is all before the one that asks."""
    prefix_tokens: int
    marks: tuple[str, str] = field(repr=False)
    """The mark of the summary's and the conversation's fences, and that of the others;
    `fencing.parse` needs them."""
    format: Format
    """The form of messages for which the budget was counted."""
    _items: tuple[MemoryItem, ...] = field(repr=False)

    @property
    def parts(self) -> dict[str, int]:
        """The tokens of each section's text by its name, in order."""
        return {section.name: section.tokens for section in self.sections}

    def _repr_html_(self) -> str:
        of = "" if self.budget is None else f" of {self.budget:,}"
        rows = [(each.name, f"{each.tokens:,}", each.text) for each in self.sections]
        rows += [
            (each.section, f"({each.tokens:,})", f"left out: {each.reason}")
            for each in self.dropped
        ]
        if (rest := self.tokens - sum(self.parts.values())) > 0:
            rows.append(
                ("around messages", f"{rest:,}", "roles, fences and headings of what is sent")
            )
        title = f"{self.tokens:,} tokens{of}, {self.prefix_tokens:,} the same in the next turn"
        return bar(self.parts, total=self.budget) + html_table(
            ("section", "tokens", "text"), rows, title=title
        )

    def messages(self, format: Format | None = None) -> ProviderMessages:
        """Return the same as messages the provider accepts, in the context's own format or another.

        The persona is the system's, the summary is fenced and the user's, and the conversation
        stands in its own roles. The message that asks holds what was remembered, fenced, and the
        task. It is the last one, or that which tools have answered since.
        """
        return to_messages(self._items, self.format if format is None else format)

    def as_kwargs(self, format: Format | None = None) -> dict[str, Any]:
        """Return the arguments of the provider's client, ready for `**`: messages and system."""
        return self.messages(format).as_kwargs()

    def as_bedrock(self) -> dict[str, Any]:
        """Return the arguments of Bedrock's `client.converse`, ready for `**`."""
        return to_bedrock(self._items)

    def as_langchain(self) -> "list[BaseMessage]":
        """Return the messages of LangChain, which must be installed."""
        return to_langchain(self._items)

    def as_pydantic_ai(self) -> "list[ModelMessage]":
        """Return the messages of Pydantic AI, which must be installed."""
        return to_pydantic_ai(self._items)


class ContextManager:
    """Puts together what a model is shown.

    The file at *soul_path* is read at the first assembly, and again when it has changed; a `Soul`
    and a text with spaces are the persona itself, and with `None` there is none. *budget* is in
    tokens as *count_tokens* counts them; `None` means no limit. *priority* orders the sections
    that may shrink, the first is kept longest. *trust* says how far a memory may be relied on.
    Processes that share a *secret* fence a conversation with the same mark, so that its text
    begins the same whichever of them assembles it.
    """

    def __init__(
        self,
        soul_path: str | Path | Soul | None = "./SOUL.md",
        *,
        budget: int | None = None,
        count_tokens: TokenCounter = estimate_tokens,
        priority: Sequence[str] = PRIORITY,
        trust: TrustRule = default_trust,
        secret: bytes | None = None,
    ) -> None:
        if not isinstance(secret, bytes | None):
            raise QueryError(f"`secret` must be bytes, not `{type(secret).__name__}`")
        self._soul = persona_of("soul_path", soul_path)
        self.soul_path = self._soul.path if isinstance(self._soul, SoulFile) else None
        self.budget = None if budget is None else check_size("budget", budget)
        if sorted(priority) != sorted(PRIORITY):
            raise QueryError(f"`priority` must order {PRIORITY}, not {tuple(priority)}")
        self._priority = tuple(priority)
        self._count_tokens = count_tokens
        self._trust = trust
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._costs: Costs = {}

    async def assemble_context(  # noqa: PLR0913 - one keyword per source, as in `assemble`
        self,
        input_query: str,
        short_term_manager: RecentActivity | RecentSummaries | None = None,
        *,
        conversation: Sequence[MemoryItem] | ConversationSource = (),
        recent: Sequence[Memory] = (),
        memories: Sequence[Memory] = (),
        long_term: MemoryStore | Recall | RecallHandle | RecallFunction | None = None,
        scope: MemoryMetadata | None = None,
        recall_scope: MemoryMetadata | None = None,
        hours: float = 2.0,
        recent_limit: int = 10,
        memory_limit: int = 5,
        min_relevance: float | None = None,
        budget: int | None = None,
        summary: str | None = None,
        format: Format = "openai",
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
            min_relevance=min_relevance,
            budget=budget,
            summary=summary,
            format=format,
        )
        return context.text

    async def assemble(  # noqa: PLR0913 - one keyword per source
        self,
        input_query: str,
        short_term_manager: RecentActivity | RecentSummaries | None = None,
        *,
        conversation: Sequence[MemoryItem] | ConversationSource = (),
        recent: Sequence[Memory] = (),
        memories: Sequence[Memory] = (),
        long_term: MemoryStore | Recall | RecallHandle | RecallFunction | None = None,
        scope: MemoryMetadata | None = None,
        recall_scope: MemoryMetadata | None = None,
        hours: float = 2.0,
        recent_limit: int = 10,
        memory_limit: int = 5,
        min_relevance: float | None = None,
        budget: int | None = None,
        summary: str | None = None,
        format: Format = "openai",
    ) -> Context:
        """Return what the model should see for *input_query*; empty sections are left out.

        *recent* and *memories* are shown first, in the given order, then what *short_term_manager*
        remembers of the last *hours* and what *long_term* finds; the limits are for the latter.
        A store needs a *scope* that names somebody; *recall_scope* is the one for *long_term* where
        it differs, such as a user's memories beside one session's conversation. *summary* tells
        what was said before the conversation's items. Of hits with a `relevance`, those that do not
        answer are left out, or with *min_relevance* those below it. A task that the conversation
        asks already, with nothing but tools' answers since, is not asked again in the messages.
        `QueryError` if the persona and the task alone exceed the budget; *budget* replaces the
        manager's for this call, and holds for the text and for the messages of *format*. Messages
        too long for their part of it are shortened, as is a task that is the newest of them.
        """
        _check_task(input_query)
        if not isinstance(summary, str | None):
            raise QueryError(f"`summary` must be a string, not `{type(summary).__name__}`")
        to_messages([], format)  # refuses a format that there is not
        check_size("recent_limit", recent_limit)
        check_size("memory_limit", memory_limit)
        if min_relevance is not None:
            check_relevance(min_relevance)
        limit = self.budget if budget is None else check_size("budget", budget)
        soul = await self._soul.read() if isinstance(self._soul, SoulFile) else self._soul
        history, not_theirs = await read_conversation(conversation, scope)
        episodes = check_memories("recent", recent)
        episodes += await read_recent(short_term_manager, hours=hours, limit=recent_limit)
        recalled = check_memories("memories", memories)
        foreign: list[Memory] = []
        if long_term is not None:
            searched = scope if recall_scope is None else recall_scope
            more, foreign = await recall(
                long_term,
                input_query,
                scope=searched,
                limit=memory_limit,
                min_relevance=min_relevance,
            )
            recalled += more
        persona = soul.render() if soul else ""

        def collected() -> Parts:
            return Parts(
                persona=persona,
                summary=summary if summary and summary.strip() else "",
                task=input_query,
                history=history,
                foreign=not_theirs,
                remembered={
                    "recent": [
                        candidate(episode, self._trust, precision="minute") for episode in episodes
                    ],
                    "memories": [candidate(memory, self._trust) for memory in recalled]
                    + [candidate(memory, self._trust, refused="scope") for memory in foreign],
                },
            )

        count = len(episodes) + len(recalled) + len(foreign)
        parts = await apart(count > _MANY, collected)
        if len(self._costs) > _MAX_COSTS:
            self._costs.clear()

        def assembled() -> Context:
            draft = compose(
                parts,
                budget=limit,
                counter=self._count_tokens,
                priority=self._priority,
                trust=self._trust,
                secret=self._secret,
                costs=self._costs,
                format=format,
            )
            return _context(draft, limit, format)

        return await apart(_is_long(parts), assembled)


def _is_long(parts: Parts) -> bool:
    """Tell whether to lay out *parts* takes long: every text is escaped, and counted again."""
    entries = [Entry(text) for text in (parts.persona, parts.summary, parts.task)]
    entries += [each.entry for section in parts.remembered.values() for each in section]
    return is_much_text([*entries, *parts.history])


def _check_task(task: object) -> None:
    if not isinstance(task, str) or not task.strip():
        raise QueryError(f"`input_query` must say what the model should do, not {task!r}")
    check_sendable("input_query", task)


def _context(draft: Draft, budget: int | None, format: Format) -> Context:
    return Context(
        text=draft.text,
        sections=draft.sections,
        tokens=draft.tokens,
        budget=budget,
        dropped=draft.dropped,
        prefix=draft.prefix,
        prefix_tokens=draft.prefix_tokens,
        marks=draft.marks,
        format=format,
        _items=draft.items,
    )
