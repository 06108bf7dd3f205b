"""Short-term memory: does a read cost what it returns, however much is kept?

Growth from 1,000 to 100,000 items, a plain scan of everything, and langchain's `trim_messages`
on the same long conversation. The peer needs `pip install langchain-core`.

    python -m benchmarks.short_term
"""

import random
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from benchmarks._histories import agent_history, sessions
from benchmarks._langchain import as_langchain
from benchmarks._timing import Table, duration, exit_code, finish, resting_gc, seconds_per_call
from langchain_core.messages import BaseMessage, trim_messages

from orbiter.memory.conversation.tokens import estimate_tokens, item_tokens
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.short_term import ShortTermMemory

SIZES = (1_000, 10_000, 100_000)
SESSION_ITEMS = 100
SCAN_BAR = 50.0
BUDGET = 2_000
PEER_BAR = 100.0
WALKED, WALK_BAR = 4_000, 10.0


def add_all(memory: ShortTermMemory, items: list[MemoryItem]) -> float:
    """Add the items one by one; return the seconds for one."""
    with resting_gc():
        began = perf_counter()
        for item in items:
            finish(memory.add(item))
        return (perf_counter() - began) / len(items)


def grown(size: int) -> dict[str, float]:
    """Return what each call takes on a memory of *size* items."""
    memory = ShortTermMemory(scope="session")
    items = list(sessions(size, size=SESSION_ITEMS))
    add_all(memory, items)
    one = items[size // 2]
    user, session = one.metadata.user_id, one.metadata.session_id
    whose = MemoryMetadata(user_id=user, session_id=session)

    def search() -> list[MemoryItem]:
        return finish(memory.search(metadata=whose, limit=20))

    def scan() -> list[MemoryItem]:
        return [
            item
            for item in items
            if item.metadata.user_id == user and item.metadata.session_id == session
        ][-20:]

    if [item.id for item in search()] != [item.id for item in scan()]:
        raise AssertionError("the scan and the search found different items")
    times = seconds_per_call(
        {
            "get": lambda: finish(memory.get(one.id)),
            "search, last 20 of a session": search,
            "window, 1,000 tokens of a session": lambda: finish(
                memory.window(metadata=whose, budget=1_000)
            ),
            "plain scan of a list": scan,
        }
    )
    later = [list(sessions(500, size=SESSION_ITEMS, first=size + 500 * n)) for n in range(9)]
    return {"add": min(add_all(memory, batch) for batch in later), **times}


def growth_tables() -> list[Table]:
    by_size = [grown(size) for size in SIZES]
    counts = [f"{size:,}" for size in SIZES]
    growth = Table("Time per call by number of items kept", "call", *counts, "growth")
    for name in by_size[0]:
        times = [measured[name] for measured in by_size]
        growth.add(name, *map(duration, times), f"{times[-1] / times[0]:.1f}x")
    scan, search = (
        by_size[-1][n] for n in ("plain scan of a list", "search, last 20 of a session")
    )
    bar = Table(f"Last 20 of one session out of {SIZES[-1]:,} items", "call", "best median")
    bar.add("plain scan of a list", duration(scan))
    bar.add(
        "ShortTermMemory.search",
        duration(search),
        measured=f"{scan / search:.0f}x",
        bar=f">= {SCAN_BAR:.0f}x",
        ok=scan / search >= SCAN_BAR,
    )
    return [growth, bar]


def langchain_table() -> Table:
    items = agent_history(random.Random(7), rounds=3_400, tool_groups=(0, 0, 1))
    memory = ShortTermMemory(scope="session")
    finish(memory.add_many(items))
    messages = [as_langchain(item) for item in items]
    costs = {id(m): item_tokens(i) for m, i in zip(messages, items, strict=True)}

    def counted(some: list[BaseMessage]) -> int:
        return sum(map(costs.__getitem__, map(id, some)))

    def counting_anew() -> int:
        # A counter never seen before has no counts remembered.
        counter = partial(estimate_tokens)
        return len(finish(memory.window(budget=BUDGET, counter=counter)))

    trim_all: Any = trim_messages  # its decorator hides what it returns
    trim = partial(
        trim_all,
        messages,
        max_tokens=BUDGET,
        strategy="last",
        start_on="human",
        include_system=True,
    )
    calls: dict[str, Callable[[], int]] = {
        "ShortTermMemory.window": lambda: len(finish(memory.window(budget=BUDGET))),
        "ShortTermMemory.window, counting anew": counting_anew,
        "trim_messages, given our stored counts": lambda: len(trim(token_counter=counted)),
        'trim_messages, "approximate"': lambda: len(trim(token_counter="approximate")),
    }
    times = seconds_per_call(calls)
    title = f"{BUDGET:,} tokens out of {len(items):,} messages"
    table = Table(title, "call", "best median", "messages")
    for name, taken in times.items():
        ratio = taken / times["ShortTermMemory.window"]
        # The bar is for the counter langchain advises where speed matters; handing it our own
        # stored counts shows what is left when nobody counts.
        has_bar = "approximate" in name
        table.add(
            name,
            duration(taken),
            str(calls[name]()),
            measured=f"{ratio:.1f}x",
            bar=f">= {PEER_BAR:.0f}x" if has_bar else "",
            ok=ratio >= PEER_BAR if has_bar else None,
        )
    return table


def walk_table() -> Table:
    items = agent_history(random.Random(7), rounds=3_400, tool_groups=(0, 0, 1))
    memory = ShortTermMemory(scope="session")
    finish(memory.add_many(items))
    costs = {item.id: item_tokens(item) for item in items}

    def walk() -> list[MemoryItem]:
        """Take the newest items that fit, whole tool groups or not."""
        room, kept = WALKED, []
        for item in reversed(items):
            room -= costs[item.id]
            if room < 0:
                break
            kept.append(item)
        return kept[::-1]

    window = f"ShortTermMemory.window, {WALKED:,} tokens"
    times = seconds_per_call(
        {
            "plain walk over stored counts": walk,
            "the same, and copies of the items": lambda: list(map(copy_item, walk())),
            window: lambda: finish(memory.window(budget=WALKED)),
        }
    )
    least = next(iter(times.values()))
    table = Table(f"{WALKED:,} tokens out of {len(items):,} messages", "call", "best median")
    for name, taken in times.items():
        ratio = taken / least
        bar = f"<= {WALK_BAR:.0f}x" if name == window else ""
        ok = ratio <= WALK_BAR if name == window else None
        table.add(name, duration(taken), measured=f"{ratio:.1f}x", bar=bar, ok=ok)
    return table


def main() -> int:
    return exit_code(*growth_tables(), langchain_table(), walk_table())


if __name__ == "__main__":
    sys.exit(main())
