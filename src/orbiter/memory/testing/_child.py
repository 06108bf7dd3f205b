"""A process that writes and acknowledges until it is killed: `python -m … TARGET JSON_ARGS`."""

import asyncio
import json
import sys
from typing import Any

from orbiter.memory._ids import new_id
from orbiter.memory.items import HumanMemory
from orbiter.memory.testing.capabilities import Recipe


async def _main(target: str, args: str) -> None:
    store: Any = Recipe(target, tuple(json.loads(args))).make()
    await store.init()
    for _ in range(100_000):  # the parent kills us long before
        item_id = new_id()
        await store.add(HumanMemory(id=item_id, content=f"content of {item_id}"))
        sys.stdout.write(f"{item_id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
