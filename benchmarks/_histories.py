"""Made-up conversations for the benchmarks, each drawn from the dice given."""

import random
from collections.abc import Iterator

from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
)

TEXT = "please check whether the second parcel to Lyon has left and tell me its weight"
WORDS = TEXT.split()
TOOLS = ("find_order", "track_parcel", "weigh")


def words(rng: random.Random, least: int, most: int) -> str:
    """Return some words of text."""
    return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))


def sessions(count: int, *, size: int, first: int = 0) -> Iterator[MemoryItem]:
    """Yield *count* messages of sessions of that size, ten to a user, question and answer."""
    rng = random.Random(first)
    for number in range(first, first + count):
        session = number // size
        metadata = MemoryMetadata(
            user_id=f"user-{session // 10}", session_id=f"session-{session}", agent_id="helper"
        )
        kind = AIMemory if number % 2 else HumanMemory
        yield kind(content=words(rng, 8, 30), metadata=metadata)


def agent_history(
    rng: random.Random, *, rounds: int, tool_groups: tuple[int, ...] = (0, 1, 2, 3)
) -> list[MemoryItem]:
    """Return a valid history: a system message, then rounds.

    Each round is a question, some groups of one to three parallel tool calls, all answered, and
    an answer.
    """
    items: list[MemoryItem] = [SystemMemory(content=words(rng, 5, 40))]
    for number in range(rounds):
        items.append(HumanMemory(content=words(rng, 2, 30)))
        for group in range(rng.choice(tool_groups)):
            items += _tool_group(rng, f"call_{number}_{group}")
        items.append(AIMemory(content=words(rng, 5, 80)))
    return items


def _tool_group(rng: random.Random, name: str) -> Iterator[MemoryItem]:
    calls = [
        {
            "id": f"{name}_{place}",
            "name": rng.choice(TOOLS),
            "arguments": {"order": rng.randint(1, 10**6), "note": words(rng, 1, 12)},
        }
        for place in range(rng.randint(1, 3))
    ]
    yield AIMemory(content="", tool_calls=calls)
    for call in calls:
        yield ToolMemory(
            content=words(rng, 1, 60), tool_call_id=str(call["id"]), tool_name=str(call["name"])
        )
