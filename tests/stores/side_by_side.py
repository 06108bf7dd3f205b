"""One random sequence of calls on several stores at once; every answer must be the same.

`python -m tests.stores.side_by_side --steps 100000` runs it for long, with progress.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tests.servers.databases import PostgresServer

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryError,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    PostgresMemoryStore,
    SQLiteMemoryStore,
    ToolMemory,
)
from orbiter.memory.backends.postgres import dialect as postgres_dialect
from orbiter.memory.backends.sql import operations
from orbiter.memory.backends.sqlite import trigram_index
from orbiter.memory.model import ItemVersion, dump_item

START = datetime(2025, 1, 1, tzinfo=UTC)
IDS = [f"i{number}" for number in range(30)]
NAMES = ["ann", "bob", "Ann", "", None, None]
TEXTS = [
    "apples and pears", "Straße nach STRASSE", "ÄPFEL äpfel", "100% sure_thing \\ ok", "ΣΊΣΥΦΟΣ σς",
    "İstanbul ıI", "ﬁne ﬂow", "東京タワー", "a\u0301b", "x", "", "xyz" * 40, "K is Kelvin K", "ẞ",
    "\uffff\ufffe odd", "👩‍👩‍👧 family",
]  # fmt: skip
NEEDLES = [
    "", "a", "ap", "app", "APPLES", "strasse", "ẞ", "ss", "äpfel", "Ä", "0% s", "e_t", "\\ o",
    "σίσ", "ΣΣ", "i̇", "fi", "ﬂow", "京タ", "京タワ", "\u0301", "xyzxyzxyz", "k is",
    "kelvin k", "\ufffe o", "👩", "nowhere", " ",
]  # fmt: skip


class Step:
    """One call, the same for every store."""

    def __init__(self, name: str, *args: Any, **named: Any) -> None:
        self.name, self.args, self.named = name, args, named

    def __repr__(self) -> str:
        told = [repr(each) for each in self.args]
        told += [f"{name}={value!r}" for name, value in self.named.items()]
        return f"{self.name}({', '.join(told)})"

    async def on(self, store: Any) -> object:
        if self.name == "reopen":
            await store.close()
            await store.init()
            return None
        try:
            return _plain(await getattr(store, self.name)(*self.args, **self.named))
        except MemoryError as exc:
            return type(exc).__name__


def _plain(answer: object) -> object:
    if isinstance(answer, MemoryItem):
        return type(answer).__name__, dump_item(answer)
    if isinstance(answer, ItemVersion):
        return answer.change, answer.by, _plain(answer.item)
    if isinstance(answer, list):
        return [_plain(each) for each in answer]
    return answer


class Dice:
    """Makes up steps."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._makers: dict[Callable[[], Step], int] = {
            self._add: 20, self._add_expected: 8, self._add_many: 8, self._get: 8,
            self._search: 40, self._delete: 6, self._restore: 6, self._history: 5, self._clear: 3,
            self._purge: 2, self._count: 2, self._reopen: 1,
        }  # fmt: skip

    def step(self) -> Step:
        (maker,) = self._random.choices(list(self._makers), list(self._makers.values()))
        return maker()

    def _metadata(self) -> MemoryMetadata:
        choose = self._random.choice
        extra = choose([{}, {}, {"n": 1.0, "big": 1e16, "k": [None, True, -0.0]}])
        return MemoryMetadata(
            user_id=choose(NAMES), session_id=choose(NAMES), task_id=choose(NAMES),
            agent_id=choose(NAMES), extra=extra,
        )  # fmt: skip

    def _item(self) -> MemoryItem:
        choose = self._random.choice
        own: dict[type[MemoryItem], dict[str, Any]] = {
            HumanMemory: {},
            AIMemory: {"tool_calls": choose([[], [{"id": "c", "n": 2.0}]])},
            ToolMemory: {"tool_call_id": choose(["", "c"]), "is_error": choose([True, False])},
            MemoryItem: {"memory_type": "note"},
        }
        kind = choose(list(own))
        return kind(
            id=choose(IDS),
            content=choose(TEXTS) + choose(["", choose(TEXTS)]),
            status=choose(list(MemoryStatus)),
            metadata=self._metadata(),
            created_at=self._instant(),
            updated_at=self._instant(),
            **own[kind],
        )

    def _instant(self) -> datetime:
        return START + timedelta(seconds=self._random.randrange(6), microseconds=1)

    def _add(self) -> Step:
        return Step("add", self._item(), by=self._random.choice([None, None, "someone"]))

    def _add_expected(self) -> Step:
        return Step("add", self._item(), expected_version=self._random.randrange(5))

    def _add_many(self) -> Step:
        items = [self._item() for _ in range(self._random.randrange(7))]
        return Step("add_many", items, by=self._random.choice([None, None, "batch"]))

    def _get(self) -> Step:
        return Step("get", self._random.choice(IDS))

    def _search(self) -> Step:
        choose = self._random.choice
        asked: dict[str, Any] = {"limit": choose([0, 1, 3, 10, 1000]), "query": choose(NEEDLES)}
        if choose([True, False]):
            asked["metadata"] = self._metadata()
        more: dict[str, list[Any]] = {
            "memory_type": ["human", "note"],
            "status": list(MemoryStatus),
            "before": IDS,
            "after": IDS,
            "since": [self._instant()],
            "until": [self._instant()],
        }
        for name, values in more.items():
            if not self._random.randrange(6):
                asked[name] = choose(values)
        return Step("search", **asked)

    def _delete(self) -> Step:
        return Step("delete", self._random.choice(IDS))

    def _restore(self) -> Step:
        return Step("restore", self._random.choice(IDS), by=self._random.choice([None, "undo"]))

    def _history(self) -> Step:
        return Step("history", self._random.choice(IDS))

    def _clear(self) -> Step:
        return Step("clear", metadata=self._random.choice([None, *[self._metadata()] * 9]))

    def _purge(self) -> Step:
        return Step("purge", metadata=self._random.choice([None, self._metadata()]))

    def _count(self) -> Step:
        return Step("count", include_deleted=self._random.choice([True, False]))

    def _reopen(self) -> Step:
        return Step("reopen" if not self._random.randrange(5) else "verify")


async def compare(
    stores: Sequence[Any],
    steps: int,
    seed: int,
    told: Callable[[int], None] = lambda _: None,
) -> None:
    """Carry out *steps* on all stores; raise `AssertionError` at the first difference."""
    dice = Dice(seed)
    for number in range(steps):
        step = dice.step()
        first, *others = await _on_each(stores, step.on)
        for store, answer in zip(stores[1:], others, strict=True):
            assert answer == first, (
                f"seed {seed}, step {number}: {step}\n{stores[0]!r}: {first}\n{store!r}: {answer}"
            )
        told(number)


async def _on_each(stores: Sequence[Any], call: Callable[[Any], Awaitable[object]]) -> list[object]:
    return list(await asyncio.gather(*(call(store) for store in stores)))


@contextmanager
def eager_indexes(probe: int = 0) -> Iterator[None]:
    """Make the stores use their text indexes for a handful of rows, as they do for many."""
    with (
        patch.object(operations, "PROBE", probe),
        patch.object(trigram_index, "CHUNK", 4),
        patch.object(postgres_dialect, "FEW", probe),
    ):
        yield


async def main(steps: int, seed: int) -> None:
    """Show how far it is, and what came of it."""
    started = time.monotonic()

    def tell(number: int) -> None:
        if number % 200 == 0 or number == steps - 1:
            speed = (number + 1) / (time.monotonic() - started)
            sys.stdout.write(f"\r{number + 1:,} of {steps:,} steps, {speed:.0f} a second ")
            sys.stdout.flush()

    await run(steps, seed, tell)
    sys.stdout.write(f"\nno difference in {steps:,} steps (seed {seed})\n")


async def run(steps: int, seed: int, told: Callable[[int], None] = lambda _: None) -> None:
    """Compare SQLite with whole and with partitioned tables of a Postgres of its own."""
    with (
        TemporaryDirectory() as folder,
        PostgresServer.start() as server,
        eager_indexes(probe=2),
    ):
        whole = PostgresMemoryStore(await asyncio.to_thread(server.create_database))
        parted = PostgresMemoryStore(await asyncio.to_thread(server.create_database))
        file = SQLiteMemoryStore(Path(folder) / "memory.db", durability="normal")
        await asyncio.gather(whole.init(), parted.init(partitions=4), file.init())
        stores = [file, whole, parted]
        try:
            await compare(stores, steps, seed, told)
        finally:
            await asyncio.gather(*(store.close() for store in stores))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(main(given.steps, given.seed))
