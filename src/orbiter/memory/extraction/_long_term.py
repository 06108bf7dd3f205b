"""`LongTermMemory`: facts of one scope, proposed by an extractor and reviewed by somebody."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent.facts import Facts
from orbiter.memory.agent.inputs import belongs
from orbiter.memory.errors import AccessError, ExtractionError, QueryError
from orbiter.memory.extraction._protocol import (
    Extractor,
    ProposedFact,
    check_extractor,
    check_proposals,
)
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem

if TYPE_CHECKING:
    from orbiter.memory.recall import RecallResult

__all__ = ["LongTermMemory"]


class LongTermMemory:
    """The facts of a handle's scope, and what proposes them from its messages."""

    def __init__(self, handle: ScopedMemory, extractor: Extractor) -> None:
        if not isinstance(handle, ScopedMemory):
            raise QueryError(
                f"facts belong to somebody, so `LongTermMemory` needs a handle such as "
                f"`memory.scope(user_id=…)`, not {handle!r}"
            )
        check_extractor(extractor)
        self._handle = handle
        self._extractor = extractor
        self._facts = handle.facts

    @property
    def facts(self) -> Facts:
        """What is true, and what waits for a review."""
        return self._facts

    def __repr__(self) -> str:
        return f"LongTermMemory({self._handle!r}, {self._extractor!r})"

    async def extract(self, messages: Sequence[MemoryItem]) -> list[FactMemory]:
        """Have facts proposed from stored messages; return the drafts, which wait for a review.

        Each names the messages that it comes from, and is worth no more than the least trusted of
        them. It may be repeated: the same messages propose the same once, and nothing that was
        accepted, discarded or forgotten. A failing extractor is an `ExtractionError`; then nothing
        is proposed.
        """
        said = list(messages)
        for message in said:
            if not isinstance(message, MemoryItem):
                raise QueryError(f"`messages` must be stored items, not {message!r}")
            if not belongs(message, self._handle.scope):
                raise AccessError(f"the message `{message.id}` is not of {self._handle!r}")
        if not said:
            return []
        found = await self._ask(said, await self._facts.all())
        there = {message.id: message for message in said}
        drafts: dict[str, FactMemory] = {}
        for each in found:
            # As they are now: what was forgotten while the extractor thought proposes nothing.
            sources = [await self._handle.get(name) for name in each.message_ids]
            if any(now is None or now.content != there[now.id].content for now in sources):
                continue
            draft = await self._facts.propose(
                each.key,
                each.value,
                source=[now for now in sources if now is not None],
                valid_from=each.valid_from,
                valid_to=each.valid_to,
                confidence=each.confidence,
            )
            if draft is not None:
                drafts[draft.id] = draft
        return list(drafts.values())

    async def _ask(
        self, messages: list[MemoryItem], known: Mapping[str, FactMemory]
    ) -> list[ProposedFact]:
        try:
            found = await self._extractor.extract(messages, known)
        except ExtractionError:
            raise
        except Exception as exc:  # whatever an extractor of one's own raises: it is its failure
            raise ExtractionError(f"the extractor failed: {type(exc).__name__}: {exc}") from exc
        return check_proposals(found, messages)

    # Reviewing, recalling

    async def drafts(self) -> list[FactMemory]:
        """Return what waits for a review, oldest first."""
        return await self._facts.drafts()

    async def accept(self, fact_id: str) -> FactMemory:
        """Make a draft a fact that is known from now on."""
        return await self._facts.accept(fact_id)

    async def discard(self, fact_id: str) -> FactMemory:
        """Turn a draft down."""
        return await self._facts.discard(fact_id)

    async def recall(self, query: str, *, k: int = 10) -> "RecallResult":
        """Return at most *k* memories that answer *query*, facts among them, best first."""
        return await self._handle.recall(query, k=k)
