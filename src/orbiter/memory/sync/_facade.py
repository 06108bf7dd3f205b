"""Makes a blocking class of an async one: the same names, signatures and documentation.

No method is written down here. `blocking_class` looks at the async class and gives the blocking
one what it finds: a coroutine function becomes a method that waits, an async iterator a `Stream`,
`async with` becomes `with`, and what has a blocking form itself is handed out in it, and taken in
it. `blocking_function` does so for one function.
"""

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from functools import reduce, wraps
from operator import or_
from threading import Lock, RLock
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, get_args, get_origin

from orbiter.memory.errors import UnsupportedError
from orbiter.memory.sync._background_loop import Ended, call, in_callback, with_short_traceback

__all__ = ["Blocking", "Stream", "async_form", "blocking_class", "blocking_function", "unwrap"]

_T = TypeVar("_T")
_Class = TypeVar("_Class", bound="type[Blocking[Any]]")

_forms: dict[type, "type[Blocking[Any]]"] = {}
_making = RLock()


class Stream(Iterator[_T], Generic[_T]):
    """What arrives from now on, one after the other; each step waits until there is something.

    Leave it with `close()`, which also ends a `for` of another thread, or `with`, or just drop it.
    """

    def __init__(self, source: AsyncIterator[_T], owner: object) -> None:
        self._source = source
        self._owner = owner  # dropped, the memory would be closed, and the stream with it
        self._process = os.getpid()
        self._turn = Lock()
        self._task: asyncio.Task[Any] | None = None
        self._is_closed = False

    def __next__(self) -> _T:
        self._check()
        with self._turn:
            try:
                return call(self._following)
            except (StopAsyncIteration, Ended):
                raise StopIteration from None
            except asyncio.CancelledError:
                if self._is_closed:
                    raise StopIteration from None
                raise

    async def _following(self) -> _T:
        self._task = asyncio.current_task()
        try:
            return await anext(self._source)
        finally:
            self._task = None

    def close(self) -> None:
        """Hear no more. May be repeated."""
        self._check()
        call(self._end)

    async def _end(self) -> None:
        self._is_closed = True
        if isinstance(self._source, AsyncGenerator) and self._task is not None:
            # A generator that waits cannot be closed; what it waits for can be given up.
            self._task.cancel()
            await asyncio.wait([self._task])
        if hasattr(self._source, "aclose"):
            await self._source.aclose()

    def _check(self) -> None:
        if self._process != os.getpid():
            raise UnsupportedError("a stream ends when the process forks; start another one here")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _GivenToAsyncError(UnsupportedError, AttributeError):
    """A blocking object stands where an async one is needed; so it is for `hasattr`, too."""


class Blocking(Generic[_T]):
    """Stands for an async object; every call through it waits until the answer is there."""

    is_blocking = True

    def __init__(self, make: Callable[[], _T], made: _T | None = None) -> None:
        self._make = make
        try:
            self._twin = make() if made is None else made
        except BaseException as exc:  # noqa: BLE001 - it is raised again
            raise with_short_traceback(exc)  # noqa: B904 - the same error
        self._process = os.getpid()

    def _other(self) -> _T:
        """Return the async object; in a process that was forked since, one of its own.

        The old one may be in the middle of something that only goes on in the parent.
        """
        if self._process != os.getpid():
            with _making:
                if self._process != os.getpid():
                    self._twin = self._make()
                    self._process = os.getpid()
        return self._twin

    def _again(self, value: object) -> Callable[[], Any]:
        """Return what makes *value*, the result of an async method, again after a fork.

        Only a chat has a method that makes another, and says how.
        """
        raise UnsupportedError(f"`{type(value).__name__}` cannot be made again after a fork")

    if not TYPE_CHECKING:  # else every misspelt name would have the type `Any`

        def __getattr__(self, name: str) -> object:
            # Attributes that the async object got when it was made; methods are found before.
            if not name.startswith("_") and name in vars(self._twin):
                return getattr(self._twin, name)
            # What async code would work on; one that is not made yet has no twin either.
            if name in vars(vars(self).get("_twin", Blocking)) and not name.startswith("__"):
                raise _GivenToAsyncError(
                    f"a blocking `{type(self).__name__}` was given to something async; "
                    "`orbiter.memory.sync` has blocking forms of `import_file`, `export_file`, "
                    "`migrate`, `LongTermMemory` and `MemoryOrchestrator`"
                )
            twin = vars(self).get("_twin")
            if twin is not None and name[0] != "_" and not hasattr(type(twin), name):
                return getattr(twin, name)  # raises, and may say which object has the name
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        async def __aenter__(self) -> object:
            name = type(self).__name__
            raise TypeError(
                f"`sync.{name}` waits by itself: write `with`, and no `await`; `{name}` of "
                "`orbiter.memory` takes `async with`"
            )

        __aexit__ = None  # which Python looks for, and never calls

    def __repr__(self) -> str:
        # Where it stands in an error of async code, the reader sees that it is the blocking one.
        return f"sync.{self._twin!r}"


def blocking_class(twin: type) -> Callable[[_Class], _Class]:
    """Give the decorated class every public name of the async class *twin* that it lacks."""

    def fill(form: _Class) -> _Class:
        _forms[twin] = form
        form.__doc__ = _sync_doc(twin.__doc__)
        form.__module__ = __package__
        for name in dir(twin):
            if not name.startswith("_") and name not in vars(form):
                setattr(form, name, _member(name, inspect.getattr_static(twin, name)))
        if "__init__" in vars(form):
            vars(form)["__init__"].__signature__ = _signature(twin.__init__)  # type: ignore[misc]
        for name in ("__getitem__", "__setitem__"):
            if hasattr(twin, name):  # what refuses it, and says which call is meant
                setattr(form, name, getattr(twin, name))
        if hasattr(twin, "__aiter__"):
            form.__iter__ = _iterate  # type: ignore[attr-defined]
        if hasattr(twin, "__aenter__"):
            form.__enter__ = _enter  # type: ignore[attr-defined]
            form.__exit__ = _exit  # type: ignore[attr-defined]
        return form

    return fill


def _member(name: str, member: object) -> Any:
    if isinstance(member, property):
        return _property(name, member)
    if inspect.iscoroutinefunction(member):
        return _waiting(name, member)
    if inspect.isfunction(member):
        return _on_loop(name, member)
    return member


def _waiting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Blocking[Any], /, *args: object, **kwargs: object) -> object:
        try:
            value = _wait(getattr(self._other(), name), args, kwargs)
        except BaseException as exc:  # noqa: BLE001 - it is raised again
            raise with_short_traceback(exc)  # noqa: B904 - the same error
        form = _form_for(type(value))
        return value if form is None else _of(form, value, self._again(value))

    return _dressed(method, function)


def _form_for(kind: type) -> "type[Blocking[Any]] | None":
    """Return the blocking form of a class, or of what it is a kind of, such as one on a server."""
    return next((_forms[each] for each in kind.__mro__ if each in _forms), None)


def blocking_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls the async *function* with blocking objects, and waits."""

    def waiting(*args: object, **kwargs: object) -> object:
        try:
            return _wait(function, args, kwargs)
        except BaseException as exc:  # noqa: BLE001 - it is raised again
            raise with_short_traceback(exc)  # noqa: B904 - the same error

    waiting = _dressed(waiting, function)
    waiting.__module__ = __package__
    return waiting


def _wait(
    function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    positional = [unwrap(value) for value in args]
    keywords = {key: _guarded(unwrap(value)) for key, value in kwargs.items()}
    return call(lambda: function(*positional, **keywords))


def async_form(handle: Any) -> Any:
    """Return the async object behind a blocking one, to be used in what is given to `run`.

    One that is async already is returned as it is.
    """
    return handle._other() if isinstance(handle, Blocking) else handle  # noqa: SLF001


def unwrap(value: object) -> object:
    """Return the async object behind *value*, if it is a blocking one, else *value*."""
    if isinstance(value, Blocking):
        return value._other()  # noqa: SLF001 - the two make one class
    if _form_for(type(value)) is not None:
        raise UnsupportedError(
            f"an async `{type(value).__name__}` was given to something that blocks; use that of "
            "`orbiter.memory.sync`, or `await` the async form"
        )
    return value


def _on_loop(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Blocking[Any], /, *args: object, **kwargs: object) -> object:
        positional = [unwrap(value) for value in args]
        keywords = {key: unwrap(value) for key, value in kwargs.items()}
        try:
            return _handed_out(self, lambda twin: getattr(twin, name)(*positional, **keywords))
        except BaseException as exc:  # noqa: BLE001 - it is raised again
            raise with_short_traceback(exc)  # noqa: B904 - the same error

    return _dressed(method, function)


def _property(name: str, member: property) -> property:
    returned = inspect.get_annotations(member.fget)["return"] if member.fget else None
    kind = returned if isinstance(returned, str) else getattr(returned, "__name__", "")

    def read(self: Blocking[Any]) -> object:
        if kind in {twin.__name__ for twin in _forms}:
            return _handed_out(self, lambda twin: getattr(twin, name))
        return getattr(self._other(), name)  # a value that never changes

    return property(_dressed(read, member.fget) if member.fget else read)


def _handed_out(owner: Blocking[Any], take: Callable[[Any], Any]) -> object:
    """Return what *take* takes from the async object, in its blocking form if it has one."""

    def make() -> Any:
        twin = owner._other()  # noqa: SLF001 - the two make one class

        async def work() -> object:
            return take(twin)

        return call(work)

    value = make()
    if isinstance(value, AsyncIterator):
        return Stream(value, owner)
    form = _form_for(type(value))
    return value if form is None else _of(form, value, make)


def _of(form: "type[Blocking[_T]]", value: _T, make: Callable[[], _T]) -> Blocking[_T]:
    proxy = form.__new__(form)
    Blocking.__init__(proxy, make, value)
    return proxy


def _guarded(value: object) -> object:
    """Return *value*; if it is a callback, one that is refused blocking calls."""
    if not callable(value):
        return value
    callback: Callable[..., object] = value

    @wraps(callback, updated=())
    def guarded(*args: object, **kwargs: object) -> object:
        with in_callback():
            return callback(*args, **kwargs)

    return guarded


def _dressed(method: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Give *method* the name, signature and documentation of the async *function*."""
    method = wraps(function)(method)
    # Frameworks look behind `__wrapped__`, and would take the method for a coroutine function.
    del method.__wrapped__
    signature = _signature(function)
    method.__signature__ = signature  # type: ignore[attr-defined]
    named = {name: each.annotation for name, each in signature.parameters.items()}
    known = {name: named.get(name, kind) for name, kind in function.__annotations__.items()}
    method.__annotations__ = {**known, "return": signature.return_annotation}
    method.__doc__ = _sync_doc(function.__doc__)
    return method


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of *function* as it is in the blocking form."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=_typed(each.annotation)) for each in signature.parameters.values()
    ]
    return signature.replace(
        parameters=parameters, return_annotation=_typed(signature.return_annotation)
    )


def _typed(annotation: Any) -> Any:
    """Return *annotation* as it is in the blocking class."""
    if isinstance(annotation, UnionType):
        return reduce(or_, map(_typed, get_args(annotation)))
    kind = get_origin(annotation) or annotation
    if not isinstance(kind, type) or not issubclass(kind, AsyncIterator):
        return _forms.get(kind, annotation) if isinstance(kind, type) else annotation
    arguments = get_args(annotation)
    return Stream[arguments[0] if arguments else kind.__anext__.__annotations__["return"]]  # type: ignore[misc]


def _sync_doc(doc: str | None) -> str | None:
    return doc and doc.replace("`async for`", "a `for` loop").replace("async with", "with")


def _iterate(self: Blocking[Any]) -> object:
    return _handed_out(self, aiter)


def _enter(self: Blocking[_T]) -> Blocking[_T]:
    twin: Any = self._other()
    call(twin.__aenter__)
    return self


def _exit(
    self: Blocking[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    twin = self._other()
    call(lambda: twin.__aexit__(kind, error, trace))
