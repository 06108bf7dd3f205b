"""The event loop behind all blocking calls of a process, on a thread of its own.

One loop serves every memory of a process: an application has few threads more however many
memories it opens, and fork and exit are dealt with in one place. Nothing runs before the first
call. What async objects hold is touched on this thread alone; callers wait, and lend their context.
"""

import asyncio
import atexit
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread, get_ident, local
from types import TracebackType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from orbiter.memory.errors import MessageError, QueryError, UnsupportedError
from orbiter.memory.tasks.event_loop import waiting_thread

__all__ = [
    "Ended",
    "call",
    "close_at_exit",
    "close_soon",
    "in_callback",
    "run",
    "with_short_traceback",
]

_T = TypeVar("_T")
_log = logging.getLogger("orbiter.memory")

_LIBRARY = "orbiter.memory."
_BETWEEN = (
    f"{_LIBRARY}sync.",
    f"{_LIBRARY}agent.hints",
    f"{_LIBRARY}agent.keywords",
    f"{_LIBRARY}agent.interface",
    f"{_LIBRARY}agent.telemetry",
    "concurrent.futures",
)
"""Modules that only pass a call on; their frames say nothing of what went wrong in it."""

_PATIENCE = 5.0
"""Seconds that an interrupted call, and the end of the program, wait for what is under way."""


class Ended(UnsupportedError):  # noqa: N818 - it says what is the case
    """The program is ending, and its memories are closed."""


class Closable(Protocol):
    """What must not be left open."""

    async def close(self) -> None: ...


class _Background:
    """A loop, the thread it runs on, and who waits for it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.waiting: set[Future[Any]] = set()
        self.memories: WeakSet[Closable] = WeakSet()
        self.closing: set[asyncio.Task[None]] = set()
        # A daemon: whoever forgets to close a memory must not keep the program from its end.
        self.thread = Thread(target=self._main, name="orbiter-memory", daemon=True)
        self.thread.start()

    def _main(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self._finish())
            self.loop.close()
            for outcome in list(self.waiting):
                if not outcome.done():  # whoever comes now is refused by the closed loop
                    outcome.set_exception(_over())

    async def _finish(self) -> None:
        closes = [close_quietly(memory) for memory in list(self.memories)]
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*closes)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_PATIENCE)
        await self.loop.shutdown_asyncgens()

    def end(self) -> None:
        """Close what is open, give up what is under way, and stop."""
        with suppress(RuntimeError):  # it is closed already
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(3 * _PATIENCE)


_current: _Background | None = None
_starting = Lock()
_is_watching = False
_is_exiting = False
_left_behind: list[_Background] = []
_forks: list[Event] = []
_here = local()


def _background() -> _Background:
    """Return the loop of this process, starting it if there is none."""
    global _current  # noqa: PLW0603 - there is one for each process
    with _starting:
        if _is_exiting:
            raise _over()
        if _current is None or not _current.thread.is_alive():
            _watch()
            _current = _Background()
        return _current


def _watch() -> None:
    global _is_watching  # noqa: PLW0603 - once, and not before there is something to watch
    if not _is_watching:
        _is_watching = True
        atexit.register(_end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child
            )


def _end() -> None:
    global _is_exiting  # noqa: PLW0603
    _is_exiting = True
    if _current is not None:
        _current.end()


def _before_fork() -> None:
    """Have the loop stand still: a lock that its thread held would stay locked in the child.

    It may be that of a module which is just being imported.
    """
    forked = Event()
    _forks.append(forked)
    background = _current
    if background is None or get_ident() == background.thread.ident:
        return
    stands = Event()

    def stand() -> None:
        stands.set()
        forked.wait(_PATIENCE)

    with suppress(RuntimeError):  # it has ended
        background.loop.call_soon_threadsafe(stand)
        stands.wait(1.0)  # longer only if the loop waits for the thread that forks


def _in_parent() -> None:
    _forks.pop().set()


def _in_child() -> None:
    """Leave the parent's loop alone: its thread is not here, and its sockets are the parent's."""
    global _current, _starting  # noqa: PLW0603
    _starting = Lock()  # somebody may have held it
    _forks.clear()
    if _current is not None:
        # Closing it would unhook the parent's, with which it shares what the system watches.
        _left_behind.append(_current)
        with suppress(RuntimeError):  # the set was being changed: at worst there is a warning
            for task in asyncio.all_tasks(_current.loop):
                # As `gather` does for its own: it goes on in the parent, and is no loss here.
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        _current = None


def _over() -> Ended:
    return Ended("the program is ending, and its memories are closed")


def _refuse_inside(background: _Background) -> None:
    if get_ident() == background.thread.ident or getattr(_here, "is_callback", False):
        raise UnsupportedError(
            "a blocking call was made by something that the memory itself calls, such as "
            "`progress` or `count_tokens`, and would wait for itself for ever; do it after the "
            "call, or on another thread"
        )


@contextmanager
def in_callback() -> Iterator[None]:
    """Refuse blocking calls on this thread: somebody waits for it to go on."""
    before = getattr(_here, "is_callback", False)
    _here.is_callback = True
    try:
        yield
    finally:
        _here.is_callback = before


async def _carry(work: Callable[[], Awaitable[_T]], outcome: "Future[_T]") -> None:
    try:
        value = await work()
    except BaseException as exc:  # noqa: BLE001 - all of it is the caller's, and none ends the loop
        outcome.set_exception(exc)
    else:
        outcome.set_result(value)
    finally:
        del outcome  # else it and the error's traceback would keep each other


def _begin(
    loop: asyncio.AbstractEventLoop,
    work: Callable[[], Awaitable[_T]],
    outcome: "Future[_T]",
    tasks: "list[asyncio.Task[None]]",
) -> None:
    tasks.append(loop.create_task(_carry(work, outcome)))


def call(work: Callable[[], Awaitable[_T]]) -> _T:
    """Do *work* on the background loop, in the caller's context; return or raise what it does.

    If the wait is interrupted, as with Ctrl-C, the work is cancelled.
    """
    background = _background()
    _refuse_inside(background)
    loop, outcome = background.loop, Future[_T]()
    tasks: list[asyncio.Task[None]] = []
    background.waiting.add(outcome)
    token = waiting_thread.set(get_ident())
    try:
        try:
            loop.call_soon_threadsafe(_begin, loop, work, outcome, tasks)
        except RuntimeError:
            raise _over() from None
        return outcome.result()
    except asyncio.CancelledError:
        if _is_exiting:
            raise _over() from None
        raise
    except BaseException:  # Ctrl-C, or what the work raised
        if not outcome.done() and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            wait([outcome], timeout=_PATIENCE)
        raise
    finally:
        waiting_thread.reset(token)
        background.waiting.discard(outcome)
        del outcome  # as in `_carry`


def with_short_traceback(error: BaseException) -> BaseException:
    """Return *error* without the frames between the caller and what raised it.

    Of a wrong argument, no frame of the library is left: what it says is all that its caller can
    use. A `TypeError` is of one only where calls are passed on; deeper down it may be a mistake of
    ours. The causes that it was raised from are shortened with it. `ORBITER_DEBUG=1` keeps all of
    them.
    """
    traces = list(_traces(error))
    if os.environ.get("ORBITER_DEBUG", "") not in ("", "0") or not traces:
        return error
    is_refused = isinstance(error, TypeError) and _module_of(traces[-1]).startswith(_BETWEEN)
    is_wrong_call = is_refused or isinstance(error, QueryError | MessageError)
    left_out = (*_BETWEEN, _LIBRARY, "contextlib") if is_wrong_call else _BETWEEN
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and cause not in causes:
        causes.append(cause)
    for each in causes:
        _shorten(each, left_out)
    return error


def _shorten(error: BaseException, left_out: tuple[str, ...]) -> None:
    """Take the frames of these modules out of the traceback."""
    short: TracebackType | None = None
    for trace in reversed(list(_traces(error))):
        if not _module_of(trace).startswith(left_out):
            short = TracebackType(short, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    error.__traceback__ = short


def _module_of(trace: TracebackType) -> str:
    return str(trace.tb_frame.f_globals.get("__name__"))


def _traces(error: BaseException) -> Iterator[TracebackType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def run(awaitable: Awaitable[_T]) -> _T:
    """Wait for *awaitable* on the loop of the blocking memories, and return what it returns.

    It is for what only the async objects offer: `run(memory.store.vacuum())`.
    """

    async def work() -> _T:
        return await awaitable

    try:
        return call(work)
    finally:
        if asyncio.iscoroutine(awaitable):
            awaitable.close()  # nothing, if it ran


def close_at_exit(memory: Closable) -> None:
    """Have *memory* closed when the program ends."""
    _background().memories.add(memory)


def close_soon(memory: Closable, process: int) -> None:
    """Close *memory*, which nobody holds any more, without waiting for it; never fails."""
    background = _current
    if background is None or process != os.getpid():
        return

    def begin() -> None:
        task = background.loop.create_task(close_quietly(memory))
        background.closing.add(task)
        task.add_done_callback(background.closing.discard)

    with suppress(RuntimeError):  # the loop has ended, and closed everything
        background.loop.call_soon_threadsafe(begin)


async def close_quietly(memory: Closable) -> None:
    """Close *memory*; there is nobody left who could be told that it failed."""
    try:
        # Without its observation: what would hear of it may be shut down by now.
        observed = getattr(memory, "_engine", memory)  # what an `AgentMemory` stands on
        await inspect.unwrap(type(observed).close)(observed)
    except Exception:  # noqa: BLE001 - the program ends, or the owner is gone
        _log.debug("closing %r failed", memory, exc_info=True)
