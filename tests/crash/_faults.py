"""Faults, each repeatable any number of times: the tests run a few, `make soak` thousands."""

import asyncio
import os
import random
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from tests.crash._children import Child, take_lock, write_together, write_until_killed
from tests.crash._history import Possible, State, change, read
from tests.crash._power_cut import Disk, WatchedStore, watched
from tests.timing import HANG, until

from orbiter.memory import HumanMemory, MemoryError, SQLiteMemoryStore


@dataclass
class Figures:
    """What was tried, and what went wrong: all but the first three must be 0."""

    cycles: int = 0
    acknowledged: int = 0
    refused: int = 0
    """Requests that were answered with an error; whether there may be any, a tier says."""
    lost: int = 0
    """Acknowledged, and not there afterwards."""
    torn: int = 0
    hung: int = 0
    leaked: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.torn or self.hung or self.leaked)

    def __add__(self, other: "Figures") -> "Figures":
        both = [getattr(self, f.name) + getattr(other, f.name) for f in fields(self)]
        return Figures(*both)


@contextmanager
def folder() -> Iterator[Path]:
    """Give an empty folder for a while."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


async def judge(path: Path, possible: dict[str, Possible], figures: Figures) -> None:
    """Open the store anew and count what is missing, half done or damaged."""
    async with SQLiteMemoryStore(path) as store:
        for writer, states in possible.items():
            verdict = states.judge(await read(store, writer))
            figures.lost += verdict.lost
            figures.torn += verdict.torn
        figures.torn += len((await store.verify()).problems)


# kill -9


async def kill_writers(path: Path, dice: random.Random, name: str) -> Figures:
    """Kill a process with three writers soon after an acknowledgement."""
    figures = Figures(cycles=1)
    writers = [f"{name}-{letter}" for letter in "abc"]
    child = Child(write_until_killed, str(path), writers)
    said = [child.receive() for _ in range(dice.randint(1, 60))]
    await asyncio.sleep(dice.random() * 0.02)
    child.kill()
    said += child.rest()
    child.end()
    figures.acknowledged = len(said)
    possible = {writer: Possible() for writer in writers}
    for writer, states in possible.items():
        numbers = [number for who, number in said if who == writer]
        for number in numbers:
            states.happened(change(writer, number))
        states.may_have_happened(change(writer, len(numbers)))
    await judge(path, possible, figures)
    return figures


# Power cuts


async def cut_power(
    durability: Literal["full", "normal"],
    dice: random.Random,
    *,
    cuts: int,
    store_type: type[WatchedStore] = WatchedStore,
) -> Figures:
    """Write, lose power at random moments of it, and look at what each left behind."""
    figures = Figures(cycles=cuts)
    changes = [change("w", number) for number in range(80)]
    done = 0
    images: list[tuple[Path, int]] = []
    with folder() as place:
        disk = Disk()
        total = 1200  # calls in all of it; a cut planned later than the last one happens then
        planned = {dice.randint(1, total) for _ in range(cuts)}

        def cut(_: int) -> None:
            image = place / f"cut-{len(images)}"
            image.mkdir()
            disk.cut(image, dice)
            images.append((image, done))

        disk.on_call = lambda number: cut(number) if number in planned else None
        with watched(disk):
            async with store_type(place / "m.db", disk, durability=durability) as store:
                for each in changes:
                    await each.carry_out(store)
                    done += 1
                while len(images) < cuts:
                    with disk.lock:
                        cut(0)
        for image, acknowledged in images:
            figures.acknowledged += acknowledged
            prefixes: list[State] = [{}]
            for each in changes:
                prefixes.append(each.applied(prefixes[-1]))
            first = acknowledged if durability == "full" else 0
            states = Possible()
            states.states = prefixes[first:]
            try:
                await judge(image / "m.db", {"w": states}, figures)
            except MemoryError:
                figures.torn += 1
    return figures


# Errors of the disk


async def fail_disk(at: int, *, for_good: bool) -> Figures:
    """Fail the disk's *at*th call, or every one from it on; then open the file anew."""
    figures = Figures(cycles=1)
    states = Possible()
    disk = Disk()
    disk.fails = lambda number: number >= at if for_good else number == at
    with folder() as place:
        path = place / "m.db"
        with watched(disk):
            store = WatchedStore(path, disk)
            try:
                async with asyncio.timeout(HANG):
                    figures.acknowledged = await _write_what_can_be(store, states)
                    await store.close()
            except TimeoutError:
                figures.hung += 1
        figures.leaked += len(await leaks_of(path))
        await judge(path, {"w": states}, figures)
    return figures


async def _write_what_can_be(store: SQLiteMemoryStore, states: Possible) -> int:
    done = failed = 0
    try:
        await store.init()
    except MemoryError:
        return 0
    for number in range(60):
        each = change("w", number)
        try:
            await each.carry_out(store)
        except MemoryError:
            states.may_have_happened(each)
            failed += 1
            if failed == 3:
                break
        else:
            states.happened(each)
            done += 1
    return done


# Cancellation


async def cancel_writes(path: Path, dice: random.Random, *, storms: int) -> Figures:
    """Cancel three of five adds at random points; ask another process for the lock each time."""
    figures = Figures()
    child = Child(take_lock, str(path), storms)
    async with SQLiteMemoryStore(path) as store:
        try:
            for _ in range(storms):
                async with asyncio.timeout(HANG):
                    await _storm(store, dice, figures)
                    child.pipe.send("try")
                    is_free = await asyncio.to_thread(child.receive)
                figures.leaked += not is_free
        except TimeoutError:
            figures.hung += 1
            child.kill()  # it waits for words that will not come
    child.end()
    return figures


async def _storm(store: SQLiteMemoryStore, dice: random.Random, figures: Figures) -> None:
    items = [HumanMemory(content=f"n{number}") for number in range(5)]
    tasks = [asyncio.create_task(store.add(item)) for item in items]
    for task in dice.sample(tasks, 3):
        if dice.random() < 0.5:
            for _ in range(dice.randint(0, 6)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(dice.random() * 0.002)
        task.cancel()
        figures.cycles += 1
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    # What was cancelled on its way may still be written: wait for it, so that the lock is free.
    await store.add(HumanMemory(content="last"))
    for item, end in zip(items, ends, strict=True):
        found = await store.get(item.id)
        if end is None:
            figures.acknowledged += 1
            figures.lost += found != item
        else:
            assert isinstance(end, asyncio.CancelledError), end
            figures.torn += found not in (None, item)


# Resources


async def leaks_of(path: Path) -> list[str]:
    """Return what stores of *path* still hold open when they had time to let go of it."""
    held: list[str] = []

    def are_gone() -> bool:
        held[:] = [*threads_of(path), *files_of(path)]
        return not held

    with suppress(AssertionError):  # the caller says what is left
        await until(are_gone)
    return held


def threads_of(path: Path) -> list[str]:
    """Return the names of the threads that stores of *path* have running."""
    return [t.name for t in threading.enumerate() if repr(os.fspath(path)) in t.name]


def files_of(path: Path) -> list[str]:
    """Return which descriptors of this process are of the store's files."""
    found = []
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - links that may vanish meanwhile
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith(str(path)):
            found.append(target)
    return found


async def open_and_close(path: Path, *, times: int) -> Figures:
    """Open, write, read and close again and again."""
    figures = Figures(cycles=times)
    for number in range(times):
        async with asyncio.timeout(HANG):
            async with SQLiteMemoryStore(path) as store:
                item = HumanMemory(id=f"i{number}", content="x")
                await store.add(item)
                figures.lost += await store.get(item.id) != item
                figures.acknowledged += 1
        figures.leaked += len(await leaks_of(path))
    return figures


# Many processes


async def write_from_processes(path: Path, *, processes: int, writers: int, adds: int) -> Figures:
    """Let processes add and upsert at once, and count what arrived."""
    figures = Figures(cycles=processes * writers * adds)
    children = [
        Child(write_together, str(path), f"p{number}", writers, adds) for number in range(processes)
    ]
    try:
        errors = [await asyncio.to_thread(child.receive, 600.0) for child in children]
    except TimeoutError:
        for child in children:
            child.kill()
        raise
    for child in children:
        child.end()
    assert errors == [""] * processes, errors
    figures.acknowledged = processes * writers * adds
    async with SQLiteMemoryStore(path) as store:
        figures.lost += figures.cycles + 2 - await store.count()
        upserts, shared = await store.get("upserts"), await store.get("shared")
        assert upserts is not None
        assert shared is not None
        figures.lost += figures.cycles - upserts.version
        figures.torn += shared.version != shared.metadata.extra["count"]
        figures.lost += 2 * processes - shared.version
        figures.torn += len((await store.verify()).problems)
    return figures
