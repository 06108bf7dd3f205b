"""Failover of Postgres under load: writes acknowledged, writes lost, time without service.

Each round starts a primary with two streaming replicas, writes through one URL that names all
three, kills the primary and promotes the replica that has received most. Acknowledged is what `add`
returned from; lost is what of it the promoted server does not have.

```
.venv/bin/python -m benchmarks.failover --rounds 5
.venv/bin/python -m benchmarks.failover --rounds 5 --asynchronous --cut 0.5
```

With `--cut`, the network between the primary and its replicas breaks so many seconds before the
primary dies: what is acknowledged in that time, nobody else has.
"""

import argparse
import asyncio
import time
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.servers.postgres_replicas import PostgresReplicas, query
from tests.timing import until

from orbiter.memory import HumanMemory, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.errors import MemoryError

WRITERS = 8
BEFORE, AFTER = 1.0, 1.0


class Round(NamedTuple):
    """What one failover did."""

    acknowledged: int
    lost: int
    refused: int
    seconds_without: float


class Writers:
    """Tasks that add one memory after the other, and note when each was acknowledged."""

    def __init__(self, store: PostgresMemoryStore) -> None:
        self.acknowledged: dict[str, float] = {}
        self.refused = 0
        self._store = store
        self._is_over = False

    async def run(self, name: str) -> None:
        """Write until `end`."""
        number = 0
        while not self._is_over:
            number += 1
            item_id = f"{name}-{number}"
            who = MemoryMetadata(user_id=name)
            try:
                await self._store.add(HumanMemory(id=item_id, content=item_id, metadata=who))
            except MemoryError:
                self.refused += 1
            else:
                self.acknowledged[item_id] = time.monotonic()

    def end(self) -> None:
        """Have every writer finish what it is at."""
        self._is_over = True

    def longest_gap(self) -> float:
        """Return the longest time in which nobody's write was acknowledged."""
        times = sorted(self.acknowledged.values())
        return max(after - before for before, after in pairwise(times))


async def fail_over_once(*, synchronous: bool, cut: float) -> Round:
    """Do one round."""
    with await asyncio.to_thread(PostgresReplicas.start, synchronous=synchronous) as servers:
        dsn = await asyncio.to_thread(servers.create_database)
        async with PostgresMemoryStore(servers.failover_url(dsn), retry_for=60.0) as store:
            writers = Writers(store)
            tasks = [asyncio.create_task(writers.run(f"w{n}")) for n in range(WRITERS)]
            await asyncio.sleep(BEFORE)
            if cut:
                await asyncio.to_thread(servers.cut_off)
                await asyncio.sleep(cut)
            promoted = await asyncio.to_thread(servers.fail_over)
            count = len(writers.acknowledged)
            await until(lambda: len(writers.acknowledged) > count, "a write on the new primary")
            await asyncio.sleep(AFTER)
            writers.end()
            await asyncio.gather(*tasks)
        name = urlsplit(dsn).path[1:]
        there = await asyncio.to_thread(query, promoted.dsn(name), "SELECT id FROM memory_items")
    lost = writers.acknowledged.keys() - {row[0] for row in there}
    return Round(len(writers.acknowledged), len(lost), writers.refused, writers.longest_gap())


def main() -> None:
    """Print a line for each round, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="failovers, 3 by default")
    parser.add_argument(
        "--asynchronous", action="store_true", help="acknowledge before a replica has the commit"
    )
    parser.add_argument("--cut", type=float, default=0.0, help="seconds without replication before")
    asked = parser.parse_args()
    kind = "asynchronous" if asked.asynchronous else "synchronous"
    cut = f", replicas cut off {asked.cut:g} s before" if asked.cut else ""
    print(f"Failover of a primary with two replicas, {kind} commit, {WRITERS} writers{cut}\n")
    print("round  acknowledged  lost  refused  seconds without service")
    done: list[Round] = []
    for number in range(1, asked.rounds + 1):
        once = fail_over_once(synchronous=not asked.asynchronous, cut=asked.cut)
        done.append(asyncio.run(once))
        _print(str(number), done[-1])
    whole = [sum(each[column] for each in done) for column in range(3)]
    longest = max(each.seconds_without for each in done)
    _print("all", Round(int(whole[0]), int(whole[1]), int(whole[2]), longest))


def _print(name: str, row: Round) -> None:
    counts = f"{row.acknowledged:>12,}  {row.lost:>4,}  {row.refused:>7,}"
    print(f"{name:>5}  {counts}  {row.seconds_without:>23.2f}", flush=True)


if __name__ == "__main__":
    main()
