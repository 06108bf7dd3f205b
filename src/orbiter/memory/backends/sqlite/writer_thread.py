"""Threads that own SQLite connections: one that writes in groups, a few that read.

A write is one function that runs on the writer's thread between BEGIN IMMEDIATE and COMMIT. No
task can be cancelled inside it, so a cancelled write is whole or absent and never leaves a lock
behind. Writes of tasks that run at the same moment share a COMMIT, and with it the one costly sync
to disk, as do those that wait while another is carried out; each is acknowledged after that.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol, TypeVar

from orbiter.memory.backends.sqlite.fork_safety import Guarded

__all__ = [
    "BUSY",
    "HELD",
    "IDLE",
    "MAX_REST",
    "MIN_REST",
    "NEAR",
    "Chore",
    "Closed",
    "Connect",
    "Group",
    "Patience",
    "Readers",
    "Rest",
    "WaitStart",
    "Work",
    "Writer",
    "is_busy",
    "roll_back",
]


class WaitStart(NamedTuple):
    """When somebody began to wait, and how long the thread had been blocked by then."""

    since: float
    blocked: float


class Patience:
    """The *seconds* that each write has for other processes, kept by the thread that writes."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self.blocked = 0.0
        """How long the thread has waited in vain so far."""

    def begin(self) -> WaitStart:
        """Say that a write waits from now on; may be called from any thread."""
        return WaitStart(self.clock(), self.blocked)

    def left(self, waiting: WaitStart | None) -> float:
        """Return the seconds that a write still has, 0 or more; all, if it has not waited."""
        if waiting is None or waiting.blocked == self.blocked:  # as nearly always
            return self.seconds
        # Of a wait that began before this write came, only the end is its own.
        waited = min(self.clock() - waiting.since, self.blocked - waiting.blocked)
        return max(0.0, self.seconds - waited)

    def spent(self, connection: sqlite3.Connection, waiting: WaitStart | None = None) -> "_Spent":
        """Let statements wait for what *waiting* has left; count it if it was in vain."""
        return _Spent(self, connection, self.left(waiting))


class _Spent:
    """A block in which statements wait at most so long; written out, as every write has one."""

    __slots__ = ("_began", "_connection", "_left", "_patience")

    def __init__(self, patience: Patience, connection: sqlite3.Connection, left: float) -> None:
        self._patience = patience
        self._connection = connection
        self._left = left

    def __enter__(self) -> None:
        if self._left < self._patience.seconds:
            _set_timeout(self._connection, self._left)
        self._began = self._patience.clock()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.OperationalError) and is_busy(error):
            self._patience.blocked += min(self._patience.clock() - self._began, self._left)
        if self._left < self._patience.seconds:
            _set_timeout(self._connection, self._patience.seconds)


def is_busy(error: BaseException) -> bool:
    """Tell whether *error* says that another connection has the lock."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _set_timeout(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


_T = TypeVar("_T")

Connect = Callable[[], sqlite3.Connection]
Work = Callable[[sqlite3.Connection], _T]
Group = Callable[[sqlite3.Connection, list[Any]], list[Any]]
"""Carries out several writes in one transaction and returns what each returns."""
Rest = Callable[[sqlite3.Connection], float | None]
"""Returns how many seconds it is until there is a chore though nobody writes, if ever."""


class Chore(Protocol):
    """What can be done between writes; tells whether there is more of it."""

    def __call__(self, connection: sqlite3.Connection, /, *, is_idle: bool) -> bool: ...


IDLE = 0.02
"""Seconds without a write after which the writer does its chores."""

BUSY = 32
"""Groups of writes after which it does one all the same."""

NEAR = 0.02
"""Seconds that writes which began to wait at about the same time may differ."""

HELD = 0.2
"""Seconds between two looks whether chores may be done again."""

MIN_REST, MAX_REST = 1.0, 86_400.0
"""Seconds that the writer rests at least and at most when it is known when its next chore is."""


class _Job(NamedTuple):
    work: Any
    future: "asyncio.Future[Any]"
    in_transaction: bool
    waiting: WaitStart | None = None


class _Outcome(NamedTuple):
    job: _Job
    value: Any
    error: BaseException | None


class Closed(Exception):  # noqa: N818 - never leaves the store
    """The threads take no more work."""


class Writer:
    """The one thread that changes the database, and its connection."""

    def __init__(
        self,
        connect: Connect,
        group: Group,
        chore: Chore,
        *,
        rest: Rest,
        patience: float,
        name: str,
    ) -> None:
        """*chore* is called when there is nothing to write, until it returns false.

        It is also called after many writes, and told then that it is not idle. After it returned
        false, it is called again when there was another write, or after what *rest* returns.
        *patience* is how many seconds a write waits for other processes in all.
        """
        self._connect = connect
        self._group = group
        self._chore = chore
        self._rest = rest
        self._patience = Patience(patience)
        self._guarded = Guarded()
        self._queue: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        """What each event loop is about to hand over; the lock guards it."""
        self._lock = Lock()
        self._is_open = True
        self.held = 0
        """How many want chores left undone for a while, of which they will do more themselves."""
        self._thread = Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Work[_T]) -> "asyncio.Future[_T]":
        """Have *work* run on the thread, outside of any transaction; await what it returns."""
        return self._queued(work, in_transaction=False)

    def write(self, work: object) -> "asyncio.Future[Any]":
        """Give *work* to the group; await what it returns, which it does once it is committed."""
        return self._queued(work, in_transaction=True)

    def _queued(self, work: object, *, in_transaction: bool) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        job = _Job(work, future, in_transaction, self._patience.begin())
        with self._lock:
            if not self._is_open:
                raise Closed
            if loop in self._gathered:
                self._gathered[loop].append(job)
            elif not getattr(loop, "_ready", True):
                # No other task has a turn before this one is answered, as asyncio's loops tell.
                self._queue.put([job])
            else:
                self._drop_abandoned()
                # Not at once: the thread would begin, and sync, before the next task has its turn.
                self._gathered[loop] = [job]
                loop.call_soon(self._hand_over, loop)
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if jobs := self._gathered.pop(loop, None):
                self._queue.put(jobs)

    def _drop_abandoned(self) -> None:
        """Drop the writes of event loops that ended before they handed them over.

        Nobody waits for them, and later they would overwrite what others have written since.
        """
        for loop in [loop for loop in self._gathered if loop.is_closed()]:
            del self._gathered[loop]

    def stop(self) -> None:
        """Take no more work; end when what was taken is done."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._drop_abandoned()
                for jobs in self._gathered.values():
                    self._queue.put(jobs)
                self._gathered.clear()
                self._queue.put(None)

    async def ended(self) -> None:
        """Wait for the end of the thread."""
        await _ended(self._thread)

    def _main(self) -> None:
        guarded = self._guarded
        try:
            with guarded.lock:
                connection = guarded.connection = self._connect()
        except Exception as exc:  # noqa: BLE001 - told to everyone who waits for the connection
            self._refuse(exc)
            return
        try:
            wait: float | None = IDLE
            groups = 0
            while True:
                jobs, is_last = self._take(wait)
                is_idle = not jobs
                if jobs:
                    with guarded.lock:
                        outcomes = _run_all(connection, jobs, self._group, self._patience)
                    _deliver(outcomes)
                    # They hold the store, which must be free to go while we wait.
                    outcomes.clear()
                    jobs.clear()
                    wait, groups = IDLE, groups + 1
                if (is_idle or groups >= BUSY) and not is_last:
                    wait, groups = self._do_chore(connection, is_idle=is_idle), 0
                if is_last:
                    return
        finally:
            connection.close()

    def _take(self, wait: float | None) -> tuple[list[_Job], bool]:
        """Return all jobs that are there, and whether the thread is to end after them."""
        try:
            some = self._queue.get(timeout=wait)
        except Empty:
            return [], False
        jobs: list[_Job] = []
        while some is not None:
            jobs += some
            if self._queue.empty():  # nobody else takes from it
                return jobs, False
            some = self._queue.get_nowait()
        return jobs, True

    def _do_chore(self, connection: sqlite3.Connection, *, is_idle: bool) -> float | None:
        """Do a chore; return how many seconds it is at most until the next."""
        if self.held:
            return HELD
        try:
            with self._guarded.lock, self._patience.spent(connection):
                if self._chore(connection, is_idle=is_idle):
                    return IDLE
                left = self._rest(connection)
        except Exception:  # noqa: BLE001 - chores can wait, and are never owed
            # Another process writes, the disk is full, or a row was made by hand.
            roll_back(connection)
            return None
        return None if left is None else min(max(left, MIN_REST), MAX_REST)

    def _refuse(self, error: Exception) -> None:
        self.stop()
        jobs, _ = self._take(wait=None)
        _deliver(_Outcome(job, None, error) for job in jobs)


class Readers:
    """Threads that read, each with a connection of its own; started as they are needed."""

    def __init__(self, connect: Connect, *, most: int, name: str) -> None:
        self._connect = connect
        self._most = most
        self._name = name
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = Lock()
        self._is_open = True
        self._unfinished = 0
        self._threads: list[Thread] = []

    async def run(self, work: Work[_T]) -> _T:
        """Run *work* on one of the threads and return what it returns."""
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._is_open:
                raise Closed
            self._unfinished += 1
            if self._unfinished > len(self._threads) < self._most:
                number = len(self._threads) + 1
                thread = Thread(target=self._main, name=f"{self._name}-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._queue.put(_Job(work, future, in_transaction=False))
        return await future

    def stop(self) -> None:
        """Take no more work; end when what was taken is done."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                for _ in self._threads:
                    self._queue.put(None)

    async def ended(self) -> None:
        """Wait for the end of the threads."""
        for thread in self._threads:
            await _ended(thread)

    def _main(self) -> None:
        guarded = Guarded()
        try:
            while (job := self._queue.get()) is not None:
                try:
                    with guarded.lock:
                        if guarded.connection is None:
                            guarded.connection = self._connect()
                        outcome = _run(guarded.connection, job)
                except Exception as exc:  # noqa: BLE001 - told to the one who asked
                    outcome = _Outcome(job, None, exc)
                with self._lock:
                    self._unfinished -= 1
                _deliver([outcome])
                del job, outcome  # they hold the store, which must be free to go while we wait
        finally:
            if guarded.connection is not None:
                guarded.connection.close()


async def _ended(thread: Thread) -> None:
    thread.join(0.005)  # nearly always enough; else the event loop must go on meanwhile
    while thread.is_alive():  # noqa: ASYNC110 - a thread's end cannot be awaited
        await asyncio.sleep(0.01)


def _run_all(
    connection: sqlite3.Connection, jobs: list[_Job], run: Group, patience: Patience
) -> list[_Outcome]:
    """Carry out *jobs* in order; neighbours that write share one transaction."""
    if len(jobs) == 1 and jobs[0].in_transaction and not jobs[0].future.cancelled():
        return _commit(connection, jobs, run, patience)  # as most are
    outcomes: list[_Outcome] = []
    group: list[_Job] = []
    for job in jobs:
        if job.future.cancelled():  # before it began: nothing is written
            continue
        if job.in_transaction:
            group.append(job)
            continue
        outcomes += _commit(connection, group, run, patience)
        group = []
        outcomes.append(_run(connection, job, patience))
    return outcomes + _commit(connection, group, run, patience)


def _commit(
    connection: sqlite3.Connection, group: list[_Job], run: Group, patience: Patience
) -> list[_Outcome]:
    group, refused = _begin(connection, group, patience)
    return refused + (_carry_out(connection, group, run, patience) if group else [])


def _begin(
    connection: sqlite3.Connection, group: list[_Job], patience: Patience
) -> tuple[list[_Job], list[_Outcome]]:
    """Begin a transaction; return those who are in it, and those who waited for it in vain."""
    refused: list[_Outcome] = []
    while group:
        left = [patience.left(job.waiting) for job in group]
        least = min(left)
        try:
            with patience.spent(connection, group[left.index(least)].waiting):
                connection.execute("BEGIN IMMEDIATE")
        except Exception as exc:  # noqa: BLE001 - told to those who waited as long as they may
            soon = least + NEAR if is_busy(exc) else inf
            each = list(zip(group, left, strict=True))
            refused += [_Outcome(job, None, exc) for job, time in each if time <= soon]
            group = [job for job, time in each if time > soon]
        else:
            break
    return group, refused


def _carry_out(
    connection: sqlite3.Connection, group: list[_Job], run: Group, patience: Patience
) -> list[_Outcome]:
    """Carry out the writes of a transaction that has begun."""
    try:
        values = run(connection, [job.work for job in group])
        connection.execute("COMMIT")
    except Exception as exc:  # noqa: BLE001 - told to the one who asked
        roll_back(connection)
        if len(group) == 1:
            return [_Outcome(group[0], None, exc)]
        # One of them failed, and took the others with it: each gets a transaction of its own.
        return [outcome for job in group for outcome in _commit(connection, [job], run, patience)]
    return [_Outcome(job, value, None) for job, value in zip(group, values, strict=True)]


def _run(connection: sqlite3.Connection, job: _Job, patience: Patience | None = None) -> _Outcome:
    limits = nullcontext() if patience is None else patience.spent(connection, job.waiting)
    try:
        with limits:
            return _Outcome(job, job.work(connection), None)
    except Exception as exc:  # noqa: BLE001 - told to the one who asked
        roll_back(connection)
        return _Outcome(job, None, exc)


def roll_back(connection: sqlite3.Connection) -> None:
    # A disk that fails may fail this, too; the error that led here is the one to tell.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _deliver(outcomes: Iterable[_Outcome]) -> None:
    """Wake each event loop once, with all that its tasks wait for."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        loop = outcome.job.future.get_loop()
        if loop in by_loop:
            by_loop[loop].append(outcome)
        else:
            by_loop[loop] = [outcome]
    for loop, done in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, done)
        except RuntimeError:  # the loop is closed: no one waits any more
            continue


def _settle(done: list[_Outcome]) -> None:
    for job, value, error in done:
        if job.future.done():
            continue
        if error is None:
            job.future.set_result(value)
        else:
            job.future.set_exception(error)
