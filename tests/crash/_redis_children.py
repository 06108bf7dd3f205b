"""What processes do to the episodes of one agent at the same time as others."""

import asyncio
from datetime import datetime
from multiprocessing.connection import Connection

from orbiter.memory.episodic.manager import ShortTermMemoryManager
from orbiter.memory.testing import ManualClock


def add_at(pipe: Connection, url: str, agent_id: str, moment: datetime, count: int) -> None:
    """Add *count* interactions whose clock stands at *moment*; send their ids, or the error."""

    async def main() -> list[str]:
        async with ShortTermMemoryManager(url, agent_id, clock=ManualClock(moment)) as memory:
            added = await asyncio.gather(
                *(memory.add_interaction("note", str(n)) for n in range(count))
            )
            return [each.id for each in added]

    pipe.send("ready")
    pipe.recv()
    try:
        pipe.send(asyncio.run(main()))
    except Exception as exc:  # noqa: BLE001 - told to the parent
        pipe.send(repr(exc))


FORK = """
import asyncio, gc, os, sys, threading
from redis.asyncio import Redis
from orbiter.memory.episodic.manager import get_short_term_memory

url, agent_id = sys.argv[1:]
memory = get_short_term_memory(url, agent_id)

async def in_child(number):
    await asyncio.gather(*(memory.add_interaction("note", f"child {n}") for n in range(20)))
    gc.collect()  # what is freed while a loop runs is closed: it must not be the parent's
    if number:
        await memory.disconnect()

def child(number):
    # In a thread, because in this one the parent's loop seems to run.
    done = []
    thread = threading.Thread(target=lambda: done.append(asyncio.run(in_child(number))))
    thread.start()
    thread.join()
    os._exit(0 if done else 1)

async def connected():
    # The server's numbers of its connections, but for the one that asks.
    async with Redis.from_url(url) as client:
        return {each["id"] for each in await client.client_list()} - {str(await client.client_id())}

async def main():
    others = await connected()
    await memory.add_interaction("note", "before")
    own = await connected() - others
    assert own
    for number in range(3):
        pid = os.fork()
        if not pid:
            child(number)
        await memory.add_interaction("note", "meanwhile")
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert status == 0, status
        await memory.add_interaction("note", "after")
        assert own <= await connected(), "the child has closed the parent's connection"
    print(await memory.count())
    await memory.disconnect()

asyncio.run(main())
"""
