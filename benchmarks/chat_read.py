"""Reading a chat: its last rounds, and what a model is shown of it, by the length of the chat.

`chat.items(rounds=10)` against `get_items(20)` of openai-agents, each with one session of so many
messages in a SQLite file; `chat.context` without memories against `trim_messages` of langchain,
which has all messages in memory. They need `pip install openai-agents langchain-core`.

    python -m benchmarks.chat_read [--full]
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from agents import SQLiteSession
from benchmarks._async_timing import Rounds, Work, in_turns
from benchmarks._langchain import as_langchain
from benchmarks._sql_data import texts
from benchmarks._sql_peers import as_message
from benchmarks._timing import Table, duration, exit_code
from langchain_core.messages import trim_messages

from orbiter.memory import (
    AgentMemory,
    AIMemory,
    Chat,
    HumanMemory,
    MemoryItem,
    SQLiteMemoryStore,
)

SIZES, MILLION = (1_000, 10_000), 1_000_000
LAST = 20
BUDGET = 4_000
CALLS, ROUNDS = 20, 11
GROWTH_BAR, TRIM_BAR = 1.5, 20.0
BATCH = 10_000
ITEMS, CONTEXT = f"chat.items(rounds={LAST // 2})", f"chat.context(budget={BUDGET:,}), no memories"
PEER, TRIM = f"openai-agents get_items({LAST})", "langchain trim_messages, in memory"


def messages(chat: Chat, count: int) -> list[MemoryItem]:
    """Return a conversation in which a person and a model take turns."""
    return [
        (AIMemory if number % 2 else HumanMemory)(content=text, metadata=chat.scope)
        for number, text in enumerate(texts(count))
    ]


def repeated(call: Callable[[], Awaitable[object]]) -> Callable[[int], Work]:
    """Return work that makes the same call again and again."""

    async def work() -> None:
        for _ in range(CALLS):
            await call()

    return lambda _: work


class Reading:
    """One chat of so many messages, kept by everybody."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turns: dict[str, Callable[[int], Work]] = {}

    async def open(self, folder: Path, stack: AsyncExitStack) -> None:
        url = f"sqlite:///{folder / f'{self.size}.db'}"
        memory = await stack.enter_async_context(AgentMemory(url, embeddings=None, summaries=None))
        chat = memory.scope(user_id="alice").chat("long")
        session = SQLiteSession("long", folder / f"{self.size}-agents.db")
        stack.callback(session.close)
        said = messages(chat, self.size)
        for start in range(0, self.size, BATCH):
            await memory.store.add_many(said[start : start + BATCH])
            await session.add_items([as_message(item) for item in said[start : start + BATCH]])
        assert isinstance(memory.store, SQLiteMemoryStore)
        await memory.store.optimize()  # else its indexes are made while others are measured
        self._check(await chat.items(rounds=LAST // 2), said)
        self.turns = {
            f"{ITEMS} {self.size}": repeated(lambda: chat.items(rounds=LAST // 2)),
            f"{PEER} {self.size}": repeated(lambda: session.get_items(LAST)),
            f"{CONTEXT} {self.size}": repeated(
                lambda: chat.context("When is it?", budget=BUDGET, memory_limit=0)
            ),
        }
        if self.size < MILLION:
            self.turns[f"{TRIM} {self.size}"] = self._trimming(said)

    @staticmethod
    def _check(found: Sequence[MemoryItem], said: Sequence[MemoryItem]) -> None:
        if [item.content for item in found] != [item.content for item in said[-LAST:]]:
            raise AssertionError("these are not the last rounds")

    @staticmethod
    def _trimming(said: Sequence[MemoryItem]) -> Callable[[int], Work]:
        trim = partial(
            trim_messages,
            [as_langchain(item) for item in said],
            max_tokens=BUDGET,
            strategy="last",
            start_on="human",
            include_system=True,
            token_counter="approximate",
        )

        async def once() -> None:
            trim()

        return lambda _: once


async def measured(folder: Path, sizes: Sequence[int]) -> Rounds:
    async with AsyncExitStack() as stack:
        turns: dict[str, Callable[[int], Work]] = {}
        for size in sizes:
            reading = Reading(size)
            await reading.open(folder, stack)
            turns |= reading.turns
        return await in_turns(turns, rounds=ROUNDS)


def tables(rounds: Rounds, sizes: Sequence[int]) -> list[Table]:
    def each(name: str, size: int) -> float:
        return rounds.typical(f"{name} {size}") / (1 if name == TRIM else CALLS)

    shown = [f"{size:,}" for size in sizes]
    last = Table("The last rounds of one chat, SQLite, by its messages", "call", *shown)
    for name in (ITEMS, PEER):
        times = [duration(each(name, size)) for size in sizes]
        grown = rounds.ratio(f"{name} {sizes[-1]}", f"{name} {sizes[0]}")
        is_ours = name == ITEMS
        bar = f"<= {GROWTH_BAR}x" if is_ours else ""
        ok = grown <= GROWTH_BAR if is_ours else None
        last.add(name, *times, measured=f"{grown:.2f}x", bar=bar, ok=ok)
    for size in sizes:
        ahead = rounds.ratio(f"{PEER} {size}", f"{ITEMS} {size}")
        last.add(
            f"openai-agents against ours, {size:,}",
            *[""] * len(sizes),
            measured=f"{ahead:.2f}x ours",
            bar="> ours",
            ok=ahead > 1,
        )
    context = Table(f"{BUDGET:,} tokens of one chat, SQLite, by its messages", "call", *shown)
    for name in (CONTEXT, TRIM):
        some = [size for size in sizes if name != TRIM or size < MILLION]
        times = [duration(each(name, size)) for size in some]
        grown = rounds.ratio(f"{name} {some[-1]}", f"{name} {some[0]}")
        cells = [*times, *[""] * (len(sizes) - len(some))]
        context.add(name, *cells, measured=f"{grown:.2f}x")
    long = max(size for size in sizes if size < MILLION)
    faster = CALLS * rounds.ratio(f"{TRIM} {long}", f"{CONTEXT} {long}")
    context.add(
        f"faster than trim_messages, {long:,}",
        *[""] * len(sizes),
        measured=f"{faster:.1f}x",
        bar=f">= {TRIM_BAR:.0f}x",
        ok=faster >= TRIM_BAR,
    )
    return [last, context]


def main() -> int:
    parser = argparse.ArgumentParser(description="What it costs to read a chat.")
    parser.add_argument("--full", action="store_true", help="also a chat of a million messages")
    sizes = (*SIZES, MILLION) if parser.parse_args().full else SIZES
    with tempfile.TemporaryDirectory() as folder:
        rounds = asyncio.run(measured(Path(folder), sizes))
    return exit_code(*tables(rounds, sizes))


if __name__ == "__main__":
    sys.exit(main())
