"""Recall: the memories that answer a question, best first, each with the reasons why.

Candidates come from words, from meaning and from time; what was said around them, who said it and
in which session is weighed with them. Nothing here knows a store or a model but by the protocols
they fulfil, the private index of `InMemoryIndex` apart, and the same store and question always
give the same answer.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.trust import Trust
from orbiter.memory.recall._explanation import Explanation, Reason
from orbiter.memory.recall._hits import Excluded, ExcludedReason, Hit, RecallResult, Reranking
from orbiter.memory.recall._modes import RecallMode, no_model_by_choice
from orbiter.memory.recall._recall import RecallOptions, recall
from orbiter.memory.text.ranking import asked_for_prompt, for_prompt

if TYPE_CHECKING:
    from orbiter.memory.recall._in_memory_index import InMemoryIndex

__all__ = [
    "BoundRecall",
    "Excluded",
    "ExcludedReason",
    "Explanation",
    "Hit",
    "InMemoryIndex",
    "Reason",
    "RecallMode",
    "RecallOptions",
    "RecallResult",
    "Reranking",
    "no_model_by_choice",
    "recall",
]

_load_name, __dir__ = lazy_names(__name__, {"InMemoryIndex": "_in_memory_index"})
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name


@dataclass(frozen=True)
class BoundRecall:
    """Recall for one user, as `ContextManager.assemble(long_term=...)` takes it."""

    store: MemoryStore
    scope: MemoryMetadata
    min_trust: Trust | str | int | None = None
    min_relevance: float | None = None
    """What a memory needs; by default, what does not answer is left out, as in any prompt."""

    async def recall(self, query: str, *, limit: int) -> list[MemoryItem]:
        """Return at most *limit* items that answer *query*, best first."""
        hits = await recall(
            self.store,
            query,
            scope=self.scope,
            k=limit,
            min_trust=self.min_trust,
            min_relevance=asked_for_prompt(self.min_relevance),
        )
        return [hit.shown for hit in for_prompt(hits, min_relevance=self.min_relevance)]
