"""Writers of episodes who never try again by themselves, and a judge of what they were told.

Every content is written by one call of one writer, so a content that is there twice was written
twice, and one that was acknowledged and is not there was lost.
"""

import asyncio
import functools
import gc
import itertools
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, Self

import pytest
from redis.asyncio import Redis
from tests.timing import HANG, until

from orbiter.memory.episodic.manager import ShortTermMemoryManager

_numbers = itertools.count()
_TICK = timedelta(microseconds=1)


def new_agent(name: str = "agent") -> str:
    """Return the name of an agent that no other test has."""
    return f"{name}-{next(_numbers)}"


def left_open(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that leaves connections open, which say so when they are freed: here and now.

    The test has an event loop of its own, since one that is still there keeps its connections.
    """

    @functools.wraps(test)
    def with_burial(*args: Any, **named: Any) -> None:
        test(*args, **named)
        for _ in range(3):  # what one round frees may hold what the next one finds
            gc.collect()

    marked = with_burial
    for warning in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        marked = pytest.mark.filterwarnings(f"ignore::{warning}")(marked)
    return marked


class Verdict(NamedTuple):
    """What is wrong: acknowledged writes that are gone, and writes that were carried out twice."""

    lost: list[str]
    doubled: list[str]


class Load:
    """Tasks that add interactions until they are told to stop, each with a manager from *make*."""

    def __init__(
        self,
        make: Callable[[str], ShortTermMemoryManager],
        *,
        writers: int = 20,
        agents: int = 4,
        pause: float = 0.1,
    ) -> None:
        self.acknowledged: set[str] = set()
        self.answers: Counter[str] = Counter()
        """How often each writer was told that its write was carried out."""
        self.errors: list[Exception] = []
        self.managers = [make(new_agent("load")) for _ in range(agents)]
        self._pause = pause
        self._is_over = False
        self._tasks = [
            asyncio.create_task(self._write(self.managers[n % agents], f"w{n}"))
            for n in range(writers)
        ]

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

    async def _write(self, manager: ShortTermMemoryManager, name: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            content = f"{name}-{number}"
            try:
                added = await manager.add_interaction("note", content)
            except Exception as exc:  # noqa: BLE001 - judged by the test
                self.errors.append(exc)
            else:
                assert added.content == content
                self.acknowledged.add(content)
                self.answers[name] += 1
            await asyncio.sleep(self._pause)

    async def goes_on(self, *, times: int = 3) -> None:
        """Return when every writer has been answered again, so many times."""
        wanted = {f"w{n}": self.answers[f"w{n}"] + times for n in range(len(self._tasks))}
        await until(
            lambda: all(self.answers[name] >= count for name, count in wanted.items()),
            "a further answer for every writer",
        )

    async def judge(self) -> Verdict:
        """Compare what the writers know with what is there, and let the managers go."""
        found: Counter[str] = Counter()
        for manager in self.managers:
            found.update(memory.content for memory in await manager.get_range())
            # The stream keeps four thousand; the tests write fewer to each agent.
            arrived = Counter(await _arrivals(manager))
            found.update({f"arrival {each}": times for each, times in arrived.items()})
            assert len(arrived) == await manager.count() < 4000
            await manager.disconnect()
        lost = self.acknowledged - found.keys()
        doubled = [content for content, times in found.items() if times > 1]
        return Verdict(sorted(lost), sorted(doubled))


async def _arrivals(manager: ShortTermMemoryManager) -> list[str]:
    episodes: Any = manager._episodes
    entries = await episodes._connection.call(episodes, ("XRANGE", episodes._shared[2], "-", "+"))
    return [fields[b"id"].decode() for _, fields in entries]


async def storm(url: str, *, cancellations: int) -> None:
    """Cancel so many reads and writes at random points; each that is not gets its own answer."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    dice = random.Random(7)
    agents = [ShortTermMemoryManager(url, new_agent("storm")) for _ in range(3)]
    known = [await agents[n % 3].add_interaction("note", f"known {n}") for n in range(30)]
    sent: set[str] = set()
    acknowledged: set[str] = set()
    answered = 0

    async def read(number: int) -> None:
        nonlocal answered
        wanted = known[number % 30]
        at = wanted.timestamp
        got = await agents[number % 3].get_range(at, at + _TICK)
        assert got == [wanted], "someone else's answer"
        answered += 1

    async def write(number: int) -> None:
        content = f"written {number}"
        sent.add(content)
        added = await agents[number % 3].add_interaction("note", content)
        assert added.content == content
        acknowledged.add(content)

    async def cancel_some(tasks: list[asyncio.Task[None]]) -> None:
        for task in dice.sample(tasks, len(tasks) * 2 // 3):
            if dice.random() < 0.3:
                await asyncio.sleep(dice.random() * 0.002)
            else:
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
            task.cancel()

    number, cancelled = 0, 0
    while cancelled < cancellations:
        work = []
        for _ in range(dice.choice([1, 2, 5, 20, 60])):
            number += 1
            work.append(asyncio.create_task((read if dice.random() < 0.5 else write)(number)))
        await cancel_some(work)
        async with asyncio.timeout(HANG):
            results = await asyncio.gather(*work, return_exceptions=True)
        kinds = {type(each) for each in results}
        assert kinds <= {type(None), asyncio.CancelledError}, results
        cancelled += sum(isinstance(each, asyncio.CancelledError) for each in results)

    found = [each.content for agent in agents for each in await agent.get_range()]
    assert acknowledged <= set(found) <= sent | {each.content for each in known}
    assert len(found) == len(set(found))
    assert len(acknowledged) > 100
    assert answered > 100
    for agent in agents:
        await agent.disconnect()
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def connections(url: str) -> int:
    """Return how many clients the server at *url* has, without the one who asks."""
    async with Redis.from_url(url) as client:
        return len(await client.client_list()) - 1
