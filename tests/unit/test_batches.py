import asyncio
from collections.abc import Sequence

import pytest
from tests.timing import HANG

from orbiter.memory.backends import batches as _batches
from orbiter.memory.backends.batches import Batches
from orbiter.memory.backends.postgres.where import rarest_trigrams


class Server:
    """Takes batches, each for as long as it is told."""

    def __init__(self, *seconds: float) -> None:
        self.batches: list[list[int]] = []
        self._seconds = list(seconds)

    async def write(self, values: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(values))
        await asyncio.sleep(self._seconds.pop(0) if self._seconds else 0.001)
        if 13 in values:
            raise ValueError("13 is refused")
        if 14 in values:
            raise TimeoutError("14 is not answered")
        return [KeyError(value) if value == 15 else -value for value in values]


async def test_those_who_start_together_go_together_in_order() -> None:
    server = Server()
    batches = Batches(server.write)

    await asyncio.gather(*(batches.put(n) for n in range(5)))
    await batches.put(5)

    assert server.batches == [[0, 1, 2, 3, 4], [5]]


async def test_one_that_is_refused_fails_alone() -> None:
    server = Server()
    batches = Batches(server.write)

    results = await asyncio.gather(*(batches.put(n) for n in (1, 13, 2)), return_exceptions=True)

    assert [type(each) for each in results] == [int, ValueError, int]


async def test_each_gets_its_own_answer_even_if_it_is_an_error() -> None:
    batches = Batches(Server().write)

    results = await asyncio.gather(*(batches.put(n) for n in (1, 15, 2)), return_exceptions=True)

    assert (results[0], results[2]) == (-1, -2)
    assert isinstance(results[1], KeyError)
    with pytest.raises(KeyError):
        await batches.put(15)


async def test_a_batch_that_is_not_answered_is_not_sent_again() -> None:
    server = Server()
    batches = Batches(server.write)

    results = await asyncio.gather(*(batches.put(n) for n in (1, 14, 2)), return_exceptions=True)

    assert [type(each) for each in results] == [TimeoutError] * 3
    assert server.batches == [[1, 14, 2]]


async def test_a_batch_that_stalls_holds_up_nobody_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_batches, "PATIENCE", 0.01)
    server = Server(600)
    batches = Batches(server.write)
    stalled = asyncio.create_task(batches.put(0))
    await asyncio.sleep(0.05)

    async with asyncio.timeout(HANG):
        await asyncio.gather(*(batches.put(n) for n in range(1, 4)))

    stalled.cancel()
    assert [sorted(each) for each in server.batches] == [[0], [1, 2, 3]]


async def test_a_lane_that_becomes_free_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_batches, "PATIENCE", 0.01)
    server = Server(0.2, 600, 600, 600)
    batches = Batches(server.write)
    stalled = []
    for n in range(4):
        stalled.append(asyncio.create_task(batches.put(n)))
        await asyncio.sleep(0.04)

    async with asyncio.timeout(HANG):
        await batches.put(9)

    for task in stalled:
        task.cancel()
    await asyncio.gather(*stalled, return_exceptions=True)
    assert server.batches[-1] == [9]


async def test_a_cancelled_one_takes_no_other_along() -> None:
    server = Server(0.05)
    batches = Batches(server.write)
    tasks = [asyncio.create_task(batches.put(n)) for n in range(3)]
    await asyncio.sleep(0.01)

    tasks[0].cancel()

    assert await asyncio.gather(*tasks[1:]) == [-1, -2]
    await batches.close()


async def _ends_late(batches: Batches[int, int]) -> bool:
    try:
        await batches.put(1, within=0.05)
    except TimeoutError:
        return True
    return False


async def test_a_call_that_is_not_answered_in_time_is_given_up_alone_and_in_company() -> None:
    batches = Batches(Server(600, 600).write, eager=True)

    async with asyncio.timeout(HANG):
        late = await asyncio.gather(*(_ends_late(batches) for _ in range(3)))

    assert late == [True, True, True]


async def test_who_cleans_up_after_being_cancelled_is_told_that_it_is_late() -> None:
    batches, told = Batches(Server(600).write, eager=True), []

    async def work() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            told.append(await _ends_late(batches))

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    task.cancel()
    async with asyncio.timeout(HANG):
        await asyncio.gather(task, return_exceptions=True)

    assert told == [True]
    assert task.cancelled()


async def test_who_is_cancelled_while_it_waits_is_cancelled_and_not_late() -> None:
    batches = Batches(Server(600).write, eager=True)
    task = asyncio.create_task(batches.put(1, within=300))
    await asyncio.sleep(0.01)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()


def test_the_rarest_parts_are_few_different_and_in_order() -> None:
    assert rarest_trigrams("the quick zebra") == ["the", "ick", "zeb"]
    assert rarest_trigrams("bcdbcdbcdbcd") == ["bcd"]
    assert rarest_trigrams("a b c %_") == []
    assert rarest_trigrams("x" * 10**6) == ["xxx"]
