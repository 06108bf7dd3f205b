"""The settings of one `AgentMemory`, and what its conversations make of them and share."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from orbiter.memory.agent.extraction_jobs import free_messages
from orbiter.memory.agent.runtime import Core, Store
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, role_of
from orbiter.memory.model.protocols import Embeddings, MemoryStore, Reranker, Summarizer
from orbiter.memory.model.query import SCOPE_FIELDS

if TYPE_CHECKING:
    from orbiter.memory.agent.summaries import Summaries
    from orbiter.memory.context import ContextManager
    from orbiter.memory.context.persona import Soul
    from orbiter.memory.conversation.tokens import TokenCounter
    from orbiter.memory.model.audit import AuditMode
    from orbiter.memory.summary import SummaryConfig
    from orbiter.memory.text.pii import PIIHook
    from orbiter.memory.text.redaction import Redact

__all__ = ["CLIENT_SETTINGS", "Chats", "MemorySettings"]

CLIENT_SETTINGS = frozenset(("token", "timeout", "insecure"))
"""Those of a memory on a server; all others are for a store in this process."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)  # it holds keys
class MemorySettings:
    """The options of `AgentMemory`, which explains them."""

    store: MemoryStore | None = None
    token: str | None = None
    timeout: float | None = None
    insecure: bool = False
    embeddings: Embeddings | Literal["auto"] | None = "auto"
    reranker: Reranker | None = None
    episodic: str | None = None
    persona: "str | Path | Soul | None" = None
    summarizer: Summarizer | None = None
    summaries: "SummaryConfig | Literal['auto'] | None" = "auto"
    count_tokens: "TokenCounter | None" = None
    secret: bytes | None = None
    row_security: bool = False
    audit: "AuditMode | None" = None
    redact: "Redact | None" = None
    pii: "PIIHook | str | None" = None

    def chosen(self) -> list[str]:
        """Return the names of those that are not what they are by default."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]


class Chats:
    """Settings, and what is made once for all conversations, when the first of them needs it."""

    def __init__(self, core: Core, settings: MemorySettings) -> None:
        self.core = core
        self._settings = settings
        self._answering: WeakValueDictionary[tuple[object, ...], asyncio.Lock]
        self._answering = WeakValueDictionary()

    def answering(self, scope: MemoryMetadata) -> asyncio.Lock:
        """Return the lock under which results find their calls in one conversation."""
        scope_ids = (getattr(scope, name) for name in SCOPE_FIELDS)
        key = (id(asyncio.get_running_loop()), *scope_ids)  # a lock is of one loop
        return self._answering.setdefault(key, asyncio.Lock())

    @cached_property
    def count_tokens(self) -> "TokenCounter":
        """What counts tokens: the given one, or the estimate."""
        if self._settings.count_tokens is None:
            from orbiter.memory.conversation.tokens import estimate_tokens  # noqa: PLC0415 - see the class

            return estimate_tokens
        return self._settings.count_tokens

    @cached_property
    def summaries(self) -> "Summaries":
        """What makes the summaries."""
        from orbiter.memory.agent.summaries import Summaries  # noqa: PLC0415
        from orbiter.memory.summary import SummaryConfig  # noqa: PLC0415

        chosen = self._settings.summaries
        config = SummaryConfig() if chosen == "auto" else chosen
        made = Summaries(self.core, config, self._settings.summarizer)
        self.core.on_close(made.close)
        return made

    async def changed(self, store: Store, items: Sequence[MemoryItem]) -> None:
        """Forget the summaries of conversations that *items* belong to.

        If these are jobs, what they were to read is found again.
        """
        if said := [item for item in items if role_of(item) is not None]:
            await self.summaries.forget(store, said)
        await free_messages(store, items)

    async def flush(self) -> None:
        """Wait until no summary is under way."""
        if "summaries" in self.__dict__:
            await self.summaries.flush()

    @cached_property
    def assembler(self) -> "ContextManager":
        """What puts contexts together; one for all, as it knows what messages cost."""
        from orbiter.memory.context import ContextManager  # noqa: PLC0415

        return ContextManager(
            self._settings.persona,
            count_tokens=self.count_tokens,
            secret=self._settings.secret,
        )
