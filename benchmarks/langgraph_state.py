"""State of LangGraph in a SQLite file: our checkpointer and store against LangGraph's own.

The store has values in many namespaces, the checkpointer a thread of many steps. It needs
`pip install langgraph langgraph-checkpoint-sqlite`.

    python -m benchmarks.langgraph_state
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks._async_timing import Rounds, Work, in_turns
from benchmarks._timing import Table, duration, exit_code
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.sqlite.aio import AsyncSqliteStore

from orbiter.memory import AgentMemory
from orbiter.memory.integrations.langgraph import OrbiterSaver, OrbiterStore

SIZES = (1_000, 10_000)
NAMESPACES = 100
STEPS = 50
CALLS, ROUNDS = 10, 9
BAR = 2.0


def repeated(call: Callable[[], Work]) -> Callable[[int], Work]:
    async def work() -> None:
        for _ in range(CALLS):
            await call()()

    return lambda _: work


def store_calls(store: BaseStore) -> dict[str, Callable[[], Work]]:
    """Return what programs ask of a store."""
    return {
        "aget": lambda: lambda: store.aget(("users", "7"), "k107"),
        "aput": lambda: lambda: store.aput(("users", "7"), "k107", {"text": "new", "n": 1}),
        "asearch(limit=10)": lambda: lambda: store.asearch(("users", "7"), limit=10),
        "asearch(filter, limit=10)": (
            lambda: lambda: store.asearch(("users",), filter={"n": 3}, limit=10)
        ),
        "alist_namespaces()": lambda: lambda: store.alist_namespaces(prefix=("users",)),
    }


def saver_calls(saver: BaseCheckpointSaver[str]) -> dict[str, Callable[[], Work]]:
    """Return what a graph asks of a checkpointer."""
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    async def latest(count: int) -> None:
        _ = [each async for each in saver.alist(config, limit=count)]  # type: ignore[arg-type]

    return {
        "aget_tuple": lambda: lambda: saver.aget_tuple(config),  # type: ignore[arg-type]
        "aput": lambda: lambda: put_step(saver, STEPS),
        "alist(limit=10)": lambda: lambda: latest(10),
    }


async def put_step(saver: BaseCheckpointSaver[str], number: int) -> None:
    """Add a checkpoint to the thread."""
    checkpoint = empty_checkpoint()
    values = {"messages": [f"message {each} of a talk" for each in range(number)]}
    versions = {"messages": f"{number:08d}.0"}
    checkpoint["channel_values"], checkpoint["channel_versions"] = values, dict(versions)
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    metadata = {"source": "loop", "step": number, "parents": {}}
    await saver.aput(config, checkpoint, metadata, versions)  # type: ignore[arg-type]


async def filled(store: BaseStore, size: int) -> None:
    """Put *size* values into the store."""
    puts = [
        PutOp(("users", str(at % NAMESPACES)), f"k{at}", {"text": f"text {at}", "n": at % 10})
        for at in range(size)
    ]
    for start in range(0, size, 1_000):
        await store.abatch(puts[start : start + 1_000])


async def measured(folder: Path) -> Rounds:
    async with AsyncExitStack() as stack:
        turns: dict[str, Callable[[int], Work]] = {}
        for size in SIZES:
            memory = await stack.enter_async_context(
                AgentMemory(f"sqlite:///{folder / f'{size}.db'}", embeddings=None)
            )
            alice = memory.scope(user_id="alice")
            theirs = await stack.enter_async_context(
                AsyncSqliteStore.from_conn_string(str(folder / f"{size}-langgraph.db"))
            )
            await theirs.setup()
            for whose, store in (("ours", OrbiterStore(alice)), ("theirs", theirs)):
                await filled(store, size)
                for name, call in store_calls(store).items():
                    turns[f"{whose} store {name} {size}"] = repeated(call)
        saver = await stack.enter_async_context(
            AsyncSqliteSaver.from_conn_string(str(folder / "saver.db"))
        )
        for whose, each in (("ours", OrbiterSaver(alice)), ("theirs", saver)):
            for number in range(STEPS):
                await put_step(each, number)
            for name, call in saver_calls(each).items():
                turns[f"{whose} saver {name}"] = repeated(call)
        return await in_turns(turns, rounds=ROUNDS, calls=CALLS)


def tables(rounds: Rounds) -> list[Table]:
    made = []
    stores = list(store_calls(None))  # type: ignore[arg-type]  # only the names
    savers = list(saver_calls(None))  # type: ignore[arg-type]
    groups = [(f"Store, {size:,} values", "store", stores, f" {size}") for size in SIZES]
    groups.append((f"Checkpointer, a thread of {STEPS} steps", "saver", savers, ""))
    for title, kind, names, end in groups:
        table = Table(title, "call", "ours", "LangGraph's own")
        for name in names:
            ours, theirs = f"ours {kind} {name}{end}", f"theirs {kind} {name}{end}"
            ratio = rounds.ratio(ours, theirs)
            times = [duration(rounds.typical(each)) for each in (ours, theirs)]
            table.add(name, *times, bar=f"<= {BAR}x", measured=f"{ratio:.2f}x", ok=ratio <= BAR)
        made.append(table)
    return made


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        rounds = asyncio.run(measured(Path(folder)))
    return exit_code(*tables(rounds))


if __name__ == "__main__":
    sys.exit(main())
