"""Stand-ins for what a test cannot have: time that moves on command, models without weights."""

import math
import re
from collections import deque
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from orbiter.memory.model.protocols import Embeddings

__all__ = ["HashEmbeddings", "ManualClock", "ScriptedSummarizer"]


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: datetime = datetime(2025, 1, 1, tzinfo=UTC)) -> None:
        self.now = start

    def __call__(self) -> datetime:
        """Return the present instant."""
        return self.now

    def advance(self, *, seconds: float = 0.0, hours: float = 0.0) -> None:
        """Move forward, or back with negative values."""
        self.now += timedelta(seconds=seconds, hours=hours)


class HashEmbeddings(Embeddings):
    """Vectors from hashed words: the same text always, and texts that share words are close."""

    def __init__(self, dimension: int = 64) -> None:
        self._dimension = dimension

    @property
    def dimension(self) -> int:
        """How long every vector is."""
        return self._dimension

    def embed(self, text: str) -> list[float]:
        """Return a vector of length 1."""
        vector = [0.0] * self._dimension
        for word in re.findall(r"\w+", text.casefold()) or [""]:
            digest = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
            vector[digest % self._dimension] += 1.0 if digest >> 63 else -1.0
        length = math.sqrt(sum(value * value for value in vector))
        if not length:  # two words that cancel each other out
            vector[0] = length = 1.0
        return [value / length for value in vector]

    async def aembed(self, text: str) -> list[float]:
        """Return a vector of length 1."""
        return self.embed(text)


class ScriptedSummarizer:
    """Answers from a script, in order; an exception in it is raised. Remembers its prompts."""

    def __init__(self, *answers: str | Exception) -> None:
        self._answers: deque[str | Exception] = deque(answers)
        self.prompts: list[str] = []

    async def summarize(self, prompt: str) -> str:
        """Return the next answer of the script."""
        self.prompts.append(prompt)
        if not self._answers:
            raise AssertionError(f"the script has no answer for prompt {len(self.prompts)}")
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer
