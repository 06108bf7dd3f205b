"""`MemorySettings`: what an `AgentMemory` was made with, for the engine that it gets."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orbiter.memory.model.protocols import Embeddings, MemoryStore, Reranker, Summarizer

if TYPE_CHECKING:
    from orbiter.memory.context.persona import Soul
    from orbiter.memory.conversation.tokens import TokenCounter
    from orbiter.memory.model.audit import AuditMode
    from orbiter.memory.summary import SummaryConfig
    from orbiter.memory.text.pii import PIIHook

__all__ = ["CLIENT_SETTINGS", "MemorySettings"]

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
    pii: "PIIHook | str | None" = None

    def chosen(self) -> list[str]:
        """Return the names of those that are not what they are by default."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]
