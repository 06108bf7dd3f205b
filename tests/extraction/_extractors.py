"""Extractors without a model: they read lines such as `home_city is Munich`."""

from collections.abc import Callable, Mapping, Sequence

from orbiter.memory.extraction import ProposedFact
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem


class LineExtractor:
    """Proposes what messages say; `before` is called with them, and may raise."""

    def __init__(self, before: Callable[[Sequence[MemoryItem]], None] | None = None) -> None:
        self._before = before
        self.seen: list[list[str]] = []
        self.known: list[dict[str, object]] = []

    async def extract(
        self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
    ) -> list[ProposedFact]:
        self.seen.append([message.content for message in messages])
        self.known.append({key: fact.value for key, fact in known.items()})
        if self._before is not None:
            self._before(messages)
        pairs = ((message, message.content.split(" is ")) for message in messages)
        return [
            ProposedFact(words[0], words[1], (message.id,))
            for message, words in pairs
            if len(words) == 2
        ]
