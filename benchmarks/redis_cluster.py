"""A Redis Cluster of three primaries with a replica each: throughput, resharding, failover.

    python -m benchmarks.redis_cluster [--seconds 5] [--only processes|reshard|failover]

First 1, 2, 4 and 8 client processes write as fast as they can, as a ratio to one. Six servers and
all clients share the cores of this machine, so this shows what the client adds or takes away, not
what six machines carry. Then slots move to and fro under load, and a primary is killed under load,
without and with `?wait_replicas=1`. Acknowledged is what `add` returned from; lost is what of it is
not there afterwards.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

from benchmarks._timing import Table, duration
from redis.crc import key_slot
from tests.servers.processes import wait_until
from tests.servers.redis_topologies import RedisCluster
from tests.timing import until

from orbiter.memory import HumanMemory, MemoryMetadata, RedisMemoryStore
from orbiter.memory.errors import MemoryError

PROCESSES = (1, 2, 4, 8)
STORES, WRITERS = 6, 16
SECONDS = 5.0
DEADLINE = 30.0
WAIT = "?wait_replicas=1&wait_ms=5000"


class Load:
    """Tasks that add one memory after the other to some stores, until `end`."""

    def __init__(self, url: str, name: str) -> None:
        self.stores = [
            RedisMemoryStore(url, name=f"{name}-{n}", deadline=DEADLINE) for n in range(STORES)
        ]
        self.acknowledged: dict[tuple[int, str], float] = {}
        self.errors: Counter[str] = Counter()
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Open the stores and start the writers."""
        await asyncio.gather(*(store.init() for store in self.stores))
        self._tasks = [asyncio.create_task(self._write(n)) for n in range(WRITERS)]

    async def _write(self, writer: int) -> None:
        place, number = writer % STORES, 0
        store, who = self.stores[place], MemoryMetadata(user_id=f"user-{writer}")
        while not self._is_over:
            number += 1
            item_id = f"w{writer}-{number}"
            try:
                await store.add(HumanMemory(id=item_id, content=item_id, metadata=who))
            except MemoryError as exc:
                self.errors[type(exc).__name__] += 1
            else:
                self.acknowledged[place, item_id] = time.monotonic()

    async def goes_on(self) -> None:
        """Return when every store has taken a write again."""
        before = self._counts()
        await until(
            lambda: all(self._counts()[n] > before[n] for n in range(STORES)),
            "a further write in every store",
        )

    def _counts(self) -> Counter[int]:
        return Counter(place for place, _ in self.acknowledged)

    async def end(self) -> None:
        """Have every writer finish what it is at."""
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def lost(self) -> int:
        """Return how many acknowledged memories are not there; close the stores."""
        gone = 0
        for place, store in enumerate(self.stores):
            ids = [item_id for where, item_id in self.acknowledged if where == place]
            for start in range(0, len(ids), 1000):
                several = ids[start : start + 1000]
                gone += len(set(several) - await store.used_ids(several))
            await store.close()
        return gone

    def longest_gap(self) -> float:
        """Return the longest time in which a store had no write acknowledged."""
        longest = 0.0
        for store in range(STORES):
            times = sorted(at for (place, _), at in self.acknowledged.items() if place == store)
            longest = max([longest, *(after - before for before, after in pairwise(times))])
        return longest


async def write_for(url: str, name: str, seconds: float) -> int:
    """Write for some seconds; return how many were acknowledged."""
    load = Load(url, name)
    await load.begin()
    await asyncio.sleep(seconds)
    await load.end()
    if lost := await load.lost():
        raise RuntimeError(f"{lost} acknowledged memories are not there")
    return len(load.acknowledged)


def processes_table(cluster: RedisCluster, seconds: float) -> Table:
    """Return the throughput of several client processes, as a ratio to that of one."""
    table = Table(
        f"Client processes, {WRITERS} writers each, {os.cpu_count()} cores for all and six servers",
        *("processes", "acknowledged a second", "ratio to one"),
    )
    one = 0.0
    for count in PROCESSES:
        command = [sys.executable, "-m", "benchmarks.redis_cluster", "--client"]
        running = [
            subprocess.Popen(
                [*command, json.dumps([cluster.url(), f"p{count}-{n}", seconds])],
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(count)
        ]
        written = sum(int(each.communicate()[0]) for each in running)
        each_second = written / seconds
        one = one or each_second
        table.add(str(count), f"{each_second:,.0f}", f"{each_second / one:.2f}")
    return table


def _report(table: Table, name: str, load: Load, lost: int) -> None:
    errors = ", ".join(f"{count} {kind}" for kind, count in load.errors.items()) or "none"
    acknowledged = f"{len(load.acknowledged):,}"
    table.add(name, acknowledged, str(lost), errors, duration(load.longest_gap()))


COLUMNS = ("what", "acknowledged", "lost", "errors", "longest without a write")


async def reshard(cluster: RedisCluster, table: Table, options: str) -> None:
    """Move the slots of all stores to the next primary and on, under load."""
    load = Load(cluster.url() + options, f"reshard-{len(options)}")
    await load.begin()
    await load.goes_on()
    moved = 0
    for _ in range(2):
        for store in load.stores:
            slot = key_slot(f"{{{store.name}}}".encode())
            to = (cluster.owner_of(slot) + 1) % 3
            await asyncio.to_thread(cluster.move_slot, slot, to=to, batch=500)
            moved += 1
    await load.goes_on()
    await load.end()
    name = f"{moved} slots moved" + (", confirmed" if options else "")
    _report(table, name, load, await load.lost())


async def fail_over(cluster: RedisCluster, table: Table, options: str) -> None:
    """Kill the primary of the first store, under load; have it come back as a replica."""
    load = Load(cluster.url() + options, f"failover-{len(options)}")
    await load.begin()
    await load.goes_on()
    slot = key_slot(f"{{{load.stores[0].name}}}".encode())
    old = cluster.owner_of(slot)
    await asyncio.to_thread(cluster.nodes[old].stop, mode="immediate")
    await asyncio.to_thread(
        wait_until, lambda: cluster.owner_of(slot) != old, what="a replica that took over"
    )
    await asyncio.to_thread(cluster.repair)
    await load.goes_on()
    await load.end()
    name = "primary killed" + (", confirmed" if options else "")
    _report(table, name, load, await load.lost())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load, 5 by default")
    parser.add_argument("--only", choices=("processes", "reshard", "failover"))
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(asyncio.run(write_for(*json.loads(options.client))))
        return
    with RedisCluster.start(replicas=1) as cluster:
        if options.only in (None, "processes"):
            processes_table(cluster, options.seconds).show()
        for name, work in (("reshard", reshard), ("failover", fail_over)):
            if options.only in (None, name):
                table = Table(f"{name.capitalize()} under load, {WRITERS} writers", *COLUMNS)
                for wait in ("", WAIT):
                    asyncio.run(work(cluster, table, wait))
                    cluster.repair()
                table.show()


if __name__ == "__main__":
    main()
