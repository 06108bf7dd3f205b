"""What looking up a key costs a request: none, in a file, and in a table of Postgres.

Three servers in this process over one Postgres store take turns; a client sends one request after
the other. Every figure is a ratio to the server without keys, so others on the machine change it
less. The look-up itself is timed, too, beside a bare `SELECT` of one row by the driver.

    python -m benchmarks.key_checks [--requests 200] [--rounds 10]
"""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from time import perf_counter

import asyncpg
import httpx
from benchmarks._timing import Table, duration, exit_code
from tests.servers.databases import PostgresServer

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, KeyTable
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server import Settings, create_app, serving

BAR = 2.0
"""How many times a request without keys may take with a key that is looked up in the database."""


async def per_call(
    calls: Mapping[str, Callable[[], Awaitable[object]]], *, count: int, rounds: int
) -> dict[str, float]:
    """Return the median over *rounds* of what a call takes, the calls taking turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            began = perf_counter()
            for _ in range(count):
                await call()
            taken[name].append((perf_counter() - began) / count)
    return {name: median(each[1:]) for name, each in taken.items()}  # the first one warms up


async def measure(dsn: str, *, count: int, rounds: int) -> list[Table]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        memory = AgentMemory(dsn, embeddings=None, summaries=None)
        await stack.enter_async_context(memory)
        item = await memory.scope(user_id="ann").remember("Ann likes tea")
        table, file = KeyTable(dsn), KeyFile(Path(folder) / "a.keys.json")
        scope = MemoryMetadata(user_id="ann")
        tokens = {
            "key in a file": file.create(scope=scope, role="write")[1],
            "key in Postgres": (await table.create(scope=scope, role="write"))[1],
        }
        stores = {"no keys": None, "key in a file": file, "key in Postgres": table}
        calls: dict[str, Callable[[], Awaitable[object]]] = {}
        settings = Settings(port=0, rate=1e9, burst=10**9, with_mcp=False, with_dashboard=False)
        for name, keys in stores.items():
            app = create_app(memory, settings=settings, keys=keys)
            url = await stack.enter_async_context(serving(app, settings=settings))
            headers = {"Authorization": f"Bearer {tokens[name]}"} if name in tokens else {}
            http = httpx.AsyncClient(base_url=url, headers=headers)
            await stack.enter_async_context(http)
            path = f"/v1/memories/{item.id}" + ("" if headers else "?user_id=ann")
            assert (await http.get(path)).status_code == 200
            calls[name] = lambda http=http, path=path: http.get(path)  # type: ignore[misc]  # bound now
        requests = await per_call(calls, count=count, rounds=rounds)
        bare = await asyncpg.connect(dsn)
        stack.push_async_callback(bare.close)
        token = tokens["key in Postgres"]
        key_id = token[3:11]
        look_ups = await per_call(
            {
                "bare SELECT": lambda: bare.fetchrow(
                    "SELECT * FROM orbiter_keys WHERE id = $1", key_id
                ),
                "look-up of a key": lambda: table.identify(token),
                "look-up of an unknown key": lambda: table.identify(f"om_00000000_{'a' * 43}"),
            },
            count=count,
            rounds=rounds,
        )
    return [
        _table("A request for one memory, on a Postgres store", requests, "key in Postgres"),
        _table("The look-up alone", look_ups, None),
    ]


def _table(title: str, found: Mapping[str, float], barred: str | None) -> Table:
    table = Table(title, "what", "time")
    first = next(iter(found.values()))
    for name, seconds in found.items():
        is_barred = name == barred
        table.add(
            name,
            duration(seconds),
            measured=f"{seconds / first:.2f} ×",
            bar=f"<= {BAR:g} ×" if is_barred else "",
            ok=seconds / first <= BAR if is_barred else None,
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with PostgresServer.start() as server:
        dsn = server.create_database()
        tables = asyncio.run(measure(dsn, count=given.requests, rounds=given.rounds))
    return exit_code(*tables)


if __name__ == "__main__":
    raise SystemExit(main())
