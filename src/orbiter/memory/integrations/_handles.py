"""One async face for the handles of a memory, whether its calls are awaited or block.

Adapters are written once, with `await`. `in_threads` is for frameworks that run a loop of their
own, `at_once` for those that block: there the coroutine never waits, and `finish` ends it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orbiter.memory.errors import UnsupportedError
from orbiter.memory.model.query import SCOPE_FIELDS

if TYPE_CHECKING:
    from orbiter.memory import sync
    from orbiter.memory.agent import ScopedMemory

    AnyHandle = ScopedMemory | sync.ScopedMemory

__all__ = ["at_once", "finish", "forget_messages", "in_threads", "is_blocking", "shielded"]

_T = TypeVar("_T")


def in_threads(handle: "AnyHandle") -> "ScopedMemory":
    """Return *handle* for an event loop: calls of a blocking one wait on another thread."""
    return cast("ScopedMemory", _Awaited(handle, _on_thread)) if is_blocking(handle) else handle  # type: ignore[return-value]  # told apart by `is_blocking`


def at_once(handle: "AnyHandle") -> "ScopedMemory":
    """Return a blocking *handle* for coroutines that `finish` ends: nothing in them waits."""
    if not is_blocking(handle):
        raise UnsupportedError(
            "this needs a handle that blocks: make the memory with `orbiter.memory.sync`, or use "
            "the async form"
        )
    return cast("ScopedMemory", _Awaited(handle, _here))


def finish(work: Coroutine[Any, Any, _T]) -> _T:
    """Return what a coroutine over an `at_once` handle returns."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast("_T", done.value)
    raise RuntimeError("a coroutine over a blocking handle waited for something else")


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


async def forget_messages(handle: "ScopedMemory", chat_id: str) -> None:
    """Forget the messages of a chat, and nothing else that is of its session."""
    scope = handle.chat(chat_id).scope
    here: dict[str, object] = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    await handle.forget(where={**here, "memory_type": {"$in": ["system", "human", "ai", "tool"]}})


def is_blocking(handle: object) -> bool:
    """Tell whether the calls of *handle* wait by themselves."""
    return bool(getattr(handle, "is_blocking", False))


async def _on_thread(method: Callable[..., object], args: Any, kwargs: Any) -> object:
    return await asyncio.to_thread(method, *args, **kwargs)


async def _here(method: Callable[..., object], args: Any, kwargs: Any) -> object:
    return method(*args, **kwargs)


class _Awaited:
    """A blocking handle, whose calls are coroutines."""

    def __init__(self, handle: object, run: Callable[..., Coroutine[Any, Any, object]]) -> None:
        self._handle = handle
        self._run = run

    def __repr__(self) -> str:
        return repr(self._handle)

    def chat(self, chat_id: str) -> "_Awaited":
        return _Awaited(self._handle.chat(chat_id), self._run)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._handle, name)
        if is_blocking(found):
            return _Awaited(found, self._run)
        if not callable(found):
            return found
        return lambda *args, **kwargs: self._run(found, args, kwargs)
