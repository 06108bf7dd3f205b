"""Calls of adapters that are both blocking and async, whichever kind of handle they are given.

A memory is used in one event loop at a time. With a handle of `orbiter.memory.sync` that is the
loop of blocking calls; with an async one it is the loop of the program.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from orbiter.memory import sync
from orbiter.memory.agent import KeyValue, ScopedMemory
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.key_value import MAX_CHANGES, Delete, Entry, EntryPath, Put
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = [
    "AnyHandle",
    "BlockingCallError",
    "Calls",
    "forget_messages",
    "list_all",
    "shielded",
    "write_in_steps",
]

AnyHandle = ScopedMemory | sync.ScopedMemory
"""A handle of one scope, async or blocking."""

_T = TypeVar("_T")
_PAGE = 500
_WAY = "await the async form, such as `aget`"


class BlockingCallError(UnsupportedError, asyncio.InvalidStateError):
    """A blocking call of an adapter was made in the event loop that has its memory."""


class Calls:
    """Runs work on the handle of a scope, for callers with an event loop and without.

    *owner* is how the adapter is called in errors, and *way* says what to do instead of a blocking
    call in the event loop that has the memory.
    """

    def __init__(self, handle: AnyHandle, owner: str, *, way: str = _WAY) -> None:
        if not isinstance(handle, ScopedMemory | sync.ScopedMemory):
            raise QueryError(
                f"`{owner}` takes the handle of a scope, such as `memory.scope(user_id='ann')` or, "
                f"for a personal agent, `memory.default_user`, not {handle!r}"
            )
        self._original = handle
        self._owner = owner
        self._way = way
        self._is_blocking = isinstance(handle, sync.ScopedMemory)
        self._loop = _running_loop()

    def __repr__(self) -> str:
        return repr(self._original)

    @property
    def is_blocking(self) -> bool:
        """Whether the handle is one of `orbiter.memory.sync`."""
        return self._is_blocking

    @property
    def handle(self) -> ScopedMemory:
        """The async handle; work on it inside `run` or `wait`."""
        handle: ScopedMemory = sync.async_form(self._original)
        return handle

    async def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await *work* in the loop that the handle is used in."""
        if self._is_blocking:
            return await asyncio.to_thread(sync.run, work)
        self._loop = asyncio.get_running_loop()
        return await work

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Block until *work* is done in the loop that the handle is used in."""
        running = _running_loop()
        loop = self._loop
        if self._is_blocking or loop is None or not loop.is_running():
            return sync.run(work)
        if loop is running:
            work.close()
            raise BlockingCallError(
                f"a blocking call of `{self._owner}` inside the event loop that has its memory; "
                f"{self._way}, or give it a handle of `orbiter.memory.sync`"
            )
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def stream(self, work: AsyncGenerator[_T, None]) -> AsyncGenerator[_T, None]:
        """Yield what *work* yields, each step of it in the loop that the handle is used in."""
        try:
            while (step := await self.wait(_next(work))) is not None:
                yield step[0]
        finally:
            await self.wait(_close(work))

    def iterate(self, work: AsyncGenerator[_T, None]) -> Iterator[_T]:
        """Yield what *work* yields, and block for each."""
        try:
            while (step := self.run(_next(work))) is not None:
                yield step[0]
        finally:
            self.run(_close(work))


async def shielded(work: Coroutine[Any, Any, _T]) -> _T:
    """Do *work* to its end even if the caller is cancelled meanwhile, and only then say so."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as exc:
            cancelled = cancelled or exc
    if cancelled is not None:
        task.exception()  # nobody is left to tell
        raise cancelled
    return task.result()


async def write_in_steps(kv: KeyValue, changes: Sequence[Put | Delete]) -> None:
    """Make changes in order, however many: in one step if they fit into one."""
    for start in range(0, len(changes), MAX_CHANGES):
        await kv.write(changes[start : start + MAX_CHANGES])


async def list_all(kv: KeyValue, path: EntryPath) -> list[Entry]:
    """Return all entries at a path, however many there are."""
    entries: list[Entry] = []
    while True:
        page = await kv.list(path, deep=False, after=entries[-1] if entries else None, limit=_PAGE)
        entries += page
        if len(page) < _PAGE:
            return entries


async def forget_messages(handle: ScopedMemory, chat_id: str) -> None:
    """Forget the messages of a chat, and nothing else that is of its session."""
    scope = handle.chat(chat_id).scope
    here: dict[str, object] = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    await handle.forget(where={**here, "memory_type": {"$in": ["system", "human", "ai", "tool"]}})


async def _next(work: AsyncGenerator[_T, None]) -> tuple[_T] | None:
    async for value in work:
        return (value,)
    return None


async def _close(work: AsyncGenerator[_T, None]) -> None:
    await work.aclose()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
