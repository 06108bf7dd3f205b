"""The tool calls that a stored conversation still waits for, so that a result finds its call."""

from collections.abc import Sequence

from orbiter.memory.agent.chat_history import read_back
from orbiter.memory.agent.inputs import check_given, derived_id
from orbiter.memory.agent.runtime import Store
from orbiter.memory.messages import OpenCalls
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, new_id

__all__ = ["find_calls", "is_known_key", "seed_of"]

_FAR = 400
"""Messages between a call and its result, at most; providers want it in the next one."""


def seed_of(scope: MemoryMetadata, key: str | None) -> str:
    """Return what the ids of calls that have none are made from: with a key, the same each time."""
    if key is None:
        return new_id()
    return derived_id(scope, "calls", check_given("idempotency_key", key))


async def is_known_key(store: Store, scope: MemoryMetadata, key: str | None) -> bool:
    """Tell whether something was said under *key*: then nothing is read, and nothing stored."""
    return key is not None and bool(await store.used_ids([derived_id(scope, "said", key, 0)]))


async def find_calls(
    store: Store, scope: MemoryMetadata, wanted: Sequence[tuple[str, str]]
) -> list[MemoryItem]:
    """Return the newest messages, oldest first: enough to have the calls that results answer.

    *wanted* is the call's id and the tool's name of each result, either of which may be empty.
    """

    def is_enough(found: Sequence[MemoryItem]) -> bool:
        calls = OpenCalls(reversed(found))
        return len(found) >= _FAR or all(calls.knows(id, name) for id, name in wanted)

    found, _ = await read_back(store, scope, is_enough=is_enough)
    return found
