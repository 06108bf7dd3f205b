"""What `stats` and a dry run of `erase` say was so at one instant, whatever is done beside them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orbiter.memory import AgentMemory, HumanMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.backends.sql import erase
from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.model.derived import ExtractionMemory


async def _fill(store: Any, alice: ScopedMemory) -> None:
    notes = [HumanMemory(content=f"note {n}", metadata=alice.scope) for n in range(8)]
    jobs = [ExtractionMemory(content="job", metadata=alice.scope) for _ in range(6)]
    await store.add_many([*notes, *jobs])
    await store.delete_many([each.id for each in (*notes[:3], *jobs[:2])])


def _change_after_reads(
    store: Any, change: Callable[[], Awaitable[object]], patch: pytest.MonkeyPatch
) -> None:
    """Have *change* made after each read of *store*, as another program might."""
    is_busy = False

    def follow(name: str) -> None:
        read = getattr(store, name)

        async def followed(*args: Any, **options: Any) -> Any:
            nonlocal is_busy
            found = await read(*args, **options)
            if not is_busy:
                is_busy = True
                await change()
                is_busy = False
            return found

        patch.setattr(store, name, followed)

    is_sql = isinstance(store, SQLMemoryStore)
    for name in ("_read",) if is_sql else ("count", "search", "count_by"):
        follow(name)


@pytest.mark.parametrize("is_there", [True, False])
async def test_counts_are_of_one_instant(
    any_local_memory: AgentMemory, who: str, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = any_local_memory
    store: Any = memory.store
    alice = memory.scope(f"alice-{who}")
    await alice.stats()  # opens it
    if is_there:
        await _fill(store, alice)
    keeps = isinstance(store, SQLMemoryStore)

    async def change() -> None:
        nonlocal is_there
        await (memory.erase(user_id=alice.scope.user_id) if is_there else _fill(store, alice))
        is_there = not is_there

    was_there = is_there
    _change_after_reads(store, change, monkeypatch)
    stats = await alice.stats()
    assert (stats.items, stats.forgotten) == (5 * was_there, 3 * was_there if keeps else None)

    was_there = is_there
    would = await memory.erase(user_id=alice.scope.user_id, dry_run=True)
    assert (would.items, would.forgotten) == (9 * was_there, 5 * was_there if keeps else 0)


async def test_no_count_is_negative_while_an_erase_runs(
    any_memory: AgentMemory, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "SLICE", 25)
    alice = any_memory.scope(f"alice-{who}")
    await alice.remember_many([f"note {number}" for number in range(600)])

    erasing = asyncio.create_task(any_memory.erase(user_id=alice.scope.user_id))
    seen = [await alice.stats()]
    while not erasing.done():
        seen.append(await alice.stats())

    assert await erasing
    assert all(0 <= each.items <= 600 and not each.forgotten for each in seen), seen
    assert (await alice.stats()).items == 0
