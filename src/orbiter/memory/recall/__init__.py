"""Recall: the memories that answer a question, best first, each with the reasons why.

Candidates come from words, from meaning and from time; what was said around them, who said it and
in which session is weighed with them. Nothing here knows a store or a model but by the protocols
they fulfil, the private index of `Mirror` apart, and the same store and question always give the
same answer.
"""

from dataclasses import dataclass

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.trust import Trust
from orbiter.memory.recall._explanation import Reason, Why
from orbiter.memory.recall._hits import Hit, LeftOut, LeftOutReason, Recalled
from orbiter.memory.recall._in_memory_index import Mirror
from orbiter.memory.recall._modes import RecallMode
from orbiter.memory.recall._recall import RecallOptions, recall
from orbiter.memory.recall._warnings import no_model_by_choice

__all__ = [
    "BoundRecall",
    "Hit",
    "LeftOut",
    "LeftOutReason",
    "Mirror",
    "Reason",
    "RecallMode",
    "RecallOptions",
    "Recalled",
    "Why",
    "no_model_by_choice",
    "recall",
]


@dataclass(frozen=True)
class BoundRecall:
    """Recall for one user, as `ContextManager.assemble(long_term=...)` takes it."""

    store: MemoryStore
    scope: MemoryMetadata
    min_trust: Trust | str | int | None = None

    async def recall(self, query: str, *, limit: int) -> list[MemoryItem]:
        """Return at most *limit* items that answer *query*, best first."""
        hits = await recall(self.store, query, scope=self.scope, k=limit, min_trust=self.min_trust)
        return [hit.shown for hit in hits]
