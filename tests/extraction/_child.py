"""A worker that is killed in the middle: it says when it has begun, and then hangs.

Called with the address, the user, and at which draft to hang.
"""

import asyncio
import sys
from typing import Any

from tests.extraction._extractors import LineExtractor

from orbiter.memory import AgentMemory
from orbiter.memory.agent.facts import Facts
from orbiter.memory.extraction import MemoryOrchestrator


async def main(url: str, user: str, hang_at: int) -> None:
    proposed = 0
    propose = Facts.propose

    async def propose_and_hang(self: Facts, *args: Any, **kwargs: Any) -> Any:
        nonlocal proposed
        if proposed == hang_at:
            print("in the middle", flush=True)
            await asyncio.sleep(3_600)
        proposed += 1
        return await propose(self, *args, **kwargs)

    Facts.propose = propose_and_hang  # type: ignore[method-assign]  # this process is to be killed
    async with AgentMemory(url, embeddings=None, summaries=None) as memory:
        alice = memory.scope(user_id=user)
        await MemoryOrchestrator(alice, LineExtractor(), concurrency=1).run()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
