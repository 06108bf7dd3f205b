"""Writers who never try again by themselves, and a judge of what they were told.

Every id has one writer, so the version of a row counts the writes that reached it.
"""

import asyncio
from collections import Counter
from typing import NamedTuple, Self

import asyncpg
from tests.timing import HANG, until

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, PostgresMemoryStore


class Verdict(NamedTuple):
    """What is wrong: acknowledged writes that are gone, and writes that were carried out twice."""

    lost: list[str]
    doubled: list[str]


class Load:
    """Tasks that add new items, update one, and add batches, until they are told to stop."""

    def __init__(self, store: PostgresMemoryStore, *, writers: int = 8) -> None:
        self.acknowledged: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        """How often each writer was told that its write was carried out."""
        self.errors: list[Exception] = []
        self._store = store
        self._newest: dict[str, int] = {}
        self._is_over = False
        self._tasks = [asyncio.create_task(self._write(f"w{n}")) for n in range(writers)]

    async def __aenter__(self) -> Self:
        await self.goes_on(times=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Let the writers finish what they are at; who does not, hangs. Idempotent."""
        self._is_over = True
        done, hung = await asyncio.wait(self._tasks, timeout=HANG)
        for task in hung:
            task.cancel()
        await asyncio.gather(*done)
        assert not hung, f"{len(hung)} of {len(self._tasks)} writers hang"

    async def _write(self, name: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            fresh = [f"{name}-{number}"]
            await self._call(
                [*fresh, f"{fresh[0]}+", f"{name}-all"] if number % 3 else fresh, number
            )
            await self._call([f"{name}-all"], number)

    async def _call(self, ids: list[str], number: int) -> None:
        who = MemoryMetadata(user_id=ids[0].partition("-")[0])
        items: list[MemoryItem] = [
            HumanMemory(id=item_id, content=f"{number}", metadata=who) for item_id in ids
        ]
        try:
            if len(items) == 1:
                await self._store.add(items[0])
            else:
                await self._store.add_many(items)
        except Exception as exc:  # noqa: BLE001 - judged by the test
            self.errors.append(exc)
            self.unknown.update(ids)
        else:
            self.acknowledged.update(ids)
            self.answers[ids[0].partition("-")[0]] += 1
            self._newest |= dict.fromkeys(ids, number)

    async def goes_on(self, *, times: int = 3) -> None:
        """Return when every writer has been answered again, so many times."""
        wanted = {f"w{n}": self.answers[f"w{n}"] + times for n in range(len(self._tasks))}
        await until(
            lambda: all(self.answers[name] >= count for name, count in wanted.items()),
            "a further answer for every writer",
        )

    async def judge(self, dsn: str) -> Verdict:
        """Compare what the writers know with the rows."""
        connection = await asyncpg.connect(dsn)
        try:
            rows = await connection.fetch("SELECT id, version, content FROM memory_items")
        finally:
            await connection.close()
        found = {item_id: (version, int(content)) for item_id, version, content in rows}
        assert len(found) == len(rows), "an id has several rows"
        lost, doubled = [], []
        for item_id, number in self._newest.items():
            version, content = found.get(item_id, (0, 0))
            if version < self.acknowledged[item_id] or content < number:
                lost.append(item_id)
        for item_id, (version, _) in found.items():
            if version > self.acknowledged[item_id] + self.unknown[item_id]:
                doubled.append(item_id)
        return Verdict(lost, doubled)
