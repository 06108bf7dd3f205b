"""One turn of an agent, step by step, and a user who has remembered much."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zlib import crc32

import numpy as np
from benchmarks._sql_data import texts

from orbiter.memory import AgentMemory, ScopedMemory
from orbiter.memory.context import Context
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import Embeddings

USER = "ann"
SESSION = 20
"""Messages of one of the user's earlier conversations."""
BUDGET = 4_000
"""Tokens of a context."""
START = datetime(2024, 1, 1, tzinfo=UTC)

SAYS, CONTEXT, CALLS, RESULTS, ANSWERS = STEPS = (
    "add the user's message",
    "make the context",
    "add an answer with two tool calls",
    "add the two results",
    "add the final answer",
)

Around = Callable[[str, Callable[[], Awaitable[object]]], Awaitable[object]]
"""Runs a step of the given name; what measures it stands around it."""


class BagOfWords(Embeddings):
    """Vectors of the local model's size at no cost: sums of what stands for each word."""

    def __init__(self) -> None:
        dice = np.random.default_rng(1)
        self._table = dice.standard_normal((8_192, self.dimension), np.float32)
        # A text of 200 characters has some thirty words that tell something.
        self._words = dice.integers(0, 256, 28 * self.detail_dimension, np.uint8).tobytes()

    @property
    def name(self) -> str:
        return "bag-of-words"

    @property
    def dimension(self) -> int:
        return 384

    @property
    def detail_dimension(self) -> int:
        return 64

    def embed(self, text: str) -> list[float]:
        places = [crc32(word.encode()) % 8_192 for word in text.lower().split()] or [0]
        vector: list[float] = self._table[places].sum(axis=0).tolist()
        return vector

    async def aembed(self, text: str) -> list[float]:
        return self.embed(text)

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        return [(self.embed(text), self._words) for text in texts]


def memories(count: int) -> Iterator[MemoryItem]:
    """Yield what the user has remembered: conversations, and after each a note of what matters."""
    for number, text in enumerate(texts(count)):
        session, turn = divmod(number, SESSION)
        at = START + timedelta(hours=session / 60, seconds=turn)
        if turn == SESSION - 1:
            who = MemoryMetadata(user_id=USER, extra={"tags": ["fact"], "importance": 0.5})
            yield MemoryItem(content=text, metadata=who, created_at=at, updated_at=at)
            continue
        who = MemoryMetadata(user_id=USER, session_id=f"session-{session}")
        kind = AIMemory if turn % 2 else HumanMemory
        yield kind(content=text, metadata=who, created_at=at, updated_at=at)


@lru_cache(maxsize=2)
def _some(count: int, seed: int) -> list[str]:
    return list(texts(count, seed))


def question(number: int) -> str:
    """Return what the user asks in a turn: about something that was said long ago."""
    words = _some(100, 0)[number % 100].lower().split()
    return f"{' '.join(words[number % 20 :][:9])}?".capitalize()


async def turn(handle: ScopedMemory, number: int, around: Around) -> Context:
    """Take one turn: two calls of the model, two tools; return what the model was shown.

    The chat is opened anew, as a server that keeps nothing between two requests does it.
    """
    chat, said = handle.chat("today"), _some(400, 7)
    place = 5 * number % len(said)
    names = [f"call-{number}-{each}" for each in "ab"]
    calls = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}
        for name in names
    ]
    results = [
        {"role": "tool", "tool_call_id": name, "content": said[place + each]}
        for each, name in enumerate(names)
    ]
    await around(SAYS, lambda: chat.add(question(number)))
    shown = await around(CONTEXT, lambda: chat.context(budget=BUDGET))
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    await around(CALLS, lambda: chat.add(asked))
    await around(RESULTS, lambda: chat.add(results))
    answer = {"role": "assistant", "content": said[place + 2]}
    await around(ANSWERS, lambda: chat.add(answer))
    assert isinstance(shown, Context)
    return shown


def handle_of(memory: AgentMemory) -> ScopedMemory:
    """Return the user's handle."""
    return memory.scope(user_id=USER)
