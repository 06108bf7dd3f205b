"""A process that writes and acknowledges until it is killed: takes TARGET and JSON_ARGS.

It is started as a file, outside its package, for the kit takes longer to import than the rest.
"""

import asyncio
import json
import sys
from importlib import import_module
from typing import Any

from orbiter.memory.model.items import HumanMemory, MemoryMetadata, new_id

__all__ = ["main"]


async def main(target: str, args: str) -> None:
    """Write items to the store that *target* names, and print the id of each that is stored."""
    module, _, name = target.partition(":")
    store: Any = getattr(import_module(module), name)(*json.loads(args))
    await store.init()
    for _ in range(100_000):  # the parent kills us long before
        item_id = new_id()
        await store.add(HumanMemory(id=item_id, content=f"content of {item_id}"))
        if hasattr(store, "key_value"):
            writer = MemoryMetadata(user_id="writer")
            await store.key_value.append(("log",), [item_id.encode()], scope=writer)
        sys.stdout.write(f"{item_id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
