"""What test processes do: each function runs in a process of its own and talks over a pipe.

Processes are forked from a server that has imported everything and opened nothing, so that one
costs milliseconds and starts clean.
"""

import asyncio
import multiprocessing
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from tests.crash._history import change
from tests.timing import HANG

from orbiter.memory import HumanMemory, MemoryMetadata, SQLiteMemoryStore, VersionConflict
from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile
from orbiter.memory.backends.sqlite.file_checks import Connection as SQLiteConnection

ROOT = Path(__file__).parents[2]


class Child:
    """A process that runs *work* with the other end of a pipe as its first argument."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process: BaseProcess = _server().Process(
            target=_run, args=(work, theirs, *args), daemon=True
        )
        self.process.start()
        theirs.close()

    def receive(self, seconds: float = HANG) -> Any:
        """Return what the process sends next; `None` when it has ended.

        One that says nothing for so long hangs: it is killed, and this is a `TimeoutError`.
        """
        try:
            if not self.pipe.poll(seconds):
                self.kill()
                raise TimeoutError(f"{self.process} said nothing for {seconds} s")
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return None

    def rest(self) -> list[Any]:
        """Return everything until the process ends."""
        said = []
        while (word := self.receive()) is not None:
            said.append(word)
        return said

    def kill(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGKILL)

    def end(self) -> int | None:
        """Wait for the end and return the exit code."""
        self.process.join(HANG)
        self.pipe.close()
        code = self.process.exitcode
        self.process.close()
        return code


def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    # It finds the modules to import by the environment only.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    context.set_forkserver_preload(["tests.crash._children"])
    return context


def _run(work: Callable[..., None], pipe: Connection, *args: Any) -> None:
    sys.stdin.close()
    work(pipe, *args)
    pipe.close()


def write_until_killed(pipe: Connection, path: str, writers: list[str]) -> None:
    """Carry out each writer's changes at once, and acknowledge each."""

    async def write(store: SQLiteMemoryStore, writer: str) -> None:
        for number in range(100_000):
            await change(writer, number).carry_out(store)
            pipe.send((writer, number))

    async def main() -> None:
        async with SQLiteMemoryStore(path) as store:
            await asyncio.gather(*(write(store, writer) for writer in writers))

    asyncio.run(main())


def hold_lock(pipe: Connection, path: str, seconds: float) -> None:
    """Hold the write lock until told to go, or for *seconds* more."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        pipe.send("locked")
        pipe.poll(seconds)
        connection.execute("ROLLBACK")
        pipe.send("free")


def hold_snapshot(pipe: Connection, path: str) -> None:
    """Read one row and hold that view of the file until told to go."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM memory_items").fetchone()
        pipe.send("reading")
        pipe.poll(HANG)


def take_lock(pipe: Connection, path: str, times: int) -> None:
    """For each word received, say whether the write lock can be had, but for a chore's moment."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=2)) as connection:
        for _ in range(times):
            pipe.recv()
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                pipe.send(True)
            except sqlite3.OperationalError:
                pipe.send(False)


def open_and_add(pipe: Connection, path: str, name: str) -> None:
    """Open at the same moment as others, add one item, and say what went wrong, or nothing."""

    async def main() -> None:
        async with SQLiteMemoryStore(path, busy_timeout=30) as store:
            await store.add(HumanMemory(id=name, content=name))

    pipe.send("ready")
    pipe.recv()
    try:
        asyncio.run(main())
    except Exception as exc:  # noqa: BLE001 - told to the parent
        pipe.send(repr(exc))
    else:
        pipe.send("")


def write_together(pipe: Connection, path: str, name: str, writers: int, adds: int) -> None:
    """Let *writers* tasks each add items, and count each add up in one shared item."""

    async def count_up(store: SQLiteMemoryStore) -> None:
        while True:
            old = await store.get("shared")
            count = old.metadata.extra["count"] if old is not None else 0
            new = HumanMemory(
                id="shared", content="shared", metadata=MemoryMetadata(extra={"count": count + 1})
            )
            try:
                return await store.add(new, expected_version=old.version if old else 0)
            except VersionConflict:
                continue

    async def write(store: SQLiteMemoryStore, writer: int) -> None:
        for number in range(adds):
            await store.add(HumanMemory(id=f"{name}-{writer}-{number}", content="x"))
            await store.add(HumanMemory(id="upserts", content="x"))
        if writer < 2:
            await count_up(store)

    async def main() -> None:
        async with SQLiteMemoryStore(path, busy_timeout=60) as store:
            await asyncio.gather(*(write(store, writer) for writer in range(writers)))

    try:
        asyncio.run(main())
    except Exception as exc:  # noqa: BLE001 - told to the parent
        pipe.send(repr(exc))
    else:
        pipe.send("")


def append_until_killed(pipe: Connection, path: str, name: str, tasks: int) -> None:
    """Append unique values to one item's list; say `("ok", value)` or `("seen", list)`."""

    async def append(store: SQLiteMemoryStore, task: int) -> None:
        number = 0
        while True:
            old = await store.get("list")
            values = list(old.metadata.extra["values"]) if old is not None else []
            pipe.send(("seen", f"{name}.{task}", values))
            value = f"{name}.{task}.{number}"
            new = HumanMemory(
                id="list",
                content="list",
                metadata=MemoryMetadata(extra={"values": [*values, value]}),
            )
            try:
                await store.add(new, expected_version=old.version if old else 0)
            except VersionConflict:
                continue
            pipe.send(("ok", value))
            number += 1

    async def main() -> None:
        async with SQLiteMemoryStore(path, busy_timeout=30) as store:
            await asyncio.gather(*(append(store, task) for task in range(tasks)))

    asyncio.run(main())


class MortalStore(SQLiteMemoryStore):
    """Dies by its own hand, as many steps of its connections from now as `steps_left` says.

    A step is a statement, or a thousand instructions of a longer one.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._file.__class__ = MortalFile
        self.file = cast("MortalFile", self._file)


class MortalFile(SQLiteFile):
    """The file of a `MortalStore`."""

    steps_left: int | None = None

    def _connect(self) -> SQLiteConnection:
        connection = super()._connect()
        connection.set_trace_callback(self.step)
        connection.set_progress_handler(self.step, 1000)
        return connection

    def step(self, _: str = "") -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


def die_during(pipe: Connection, path: str, task: str, steps: int) -> None:
    """Carry *task* out and die after *steps* statements of it; else say `survived`."""

    async def main() -> None:
        store = MortalStore(path)
        if task == "init":
            store.file.steps_left = steps
        await store.init()
        if task == "purge":
            await store.clear(metadata=MemoryMetadata(user_id="gone"))
        store.file.steps_left = steps
        if task == "index":
            items = [HumanMemory(content=f"text number {n}") for n in range(300)]
            await store.add_many(items)
            pipe.send([item.id for item in items])
            while (await store.stats()).unindexed >= 256:  # noqa: ASYNC110 - only the file tells
                await asyncio.sleep(0.01)
        elif task == "backup":
            await store.backup(f"{path}.copy", progress=lambda *_: store.file.step())
        elif task == "repair":
            await store.verify(repair=True)
        elif task != "init":
            await getattr(store, task)()
        store.file.steps_left = None
        await store.close()
        pipe.send("survived")

    asyncio.run(main())


def fill_up(pipe: Connection, path: str, size: int) -> None:
    """Write until files may not grow beyond *size*, then with room again; say what happened."""

    async def add(store: SQLiteMemoryStore, name: str, errors: list[tuple[str, str]]) -> list[str]:
        done = []
        for number in range(600):
            item = HumanMemory(id=f"{name}-{number}", content="x" * 2000)
            try:
                await store.add(item)
                done.append(item.id)
            except Exception as exc:  # noqa: BLE001 - told to the parent
                errors.append((type(exc).__name__, str(exc)))
                if len(errors) == 5:
                    break
        return done

    async def main() -> None:
        errors: list[tuple[str, str]] = []
        async with SQLiteMemoryStore(path) as store:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            acknowledged = await add(store, "before", errors)
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            went_on = await add(store, "after", [])
        pipe.send((acknowledged, errors, went_on))

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    asyncio.run(main())


def open_as_nobody(pipe: Connection, path: str) -> None:
    """Open, add and say what came of it, as a user to whom modes apply."""

    async def main() -> None:
        async with SQLiteMemoryStore(path) as store:
            await store.add(HumanMemory(content="x"))

    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        asyncio.run(main())
    except Exception as exc:  # noqa: BLE001 - told to the parent
        pipe.send((type(exc).__name__, str(exc)))
    else:
        pipe.send(("", "written"))
