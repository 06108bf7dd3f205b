"""OpenTelemetry spans and metrics of the public calls, where the application wants them.

Nothing of OpenTelemetry is imported here, unless the application has done so. Only an application
that has imported its API and set a provider is told anything, and it decides where that goes. What
is told is how often, how long, how much and what kind of error: never a text, an id or an address.
Of a request to a server it is told the id, too, which the client may have chosen.
"""

import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import wraps
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from orbiter.memory.errors import UnsupportedError

if TYPE_CHECKING:
    from opentelemetry.metrics import (
        CallbackOptions,
        Counter,
        Histogram,
        Meter,
        MeterProvider,
        Observation,
    )
    from opentelemetry.trace import Span, Tracer, TracerProvider

__all__ = ["request_span", "traced"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Attributes = dict[str, str | int | bool]

_NAME = "orbiter.memory"
_SYSTEMS = {
    "SQLiteMemoryStore": "sqlite",
    "PostgresMemoryStore": "postgresql",
    "RedisMemoryStore": "redis",
}
_COUNTS = ("k", "limit", "rounds", "budget", "memory_limit")
_FLAGS = ("dry_run", "everything", "explain", "repair")
_MODES = ("hybrid", "words", "meaning", "recent")
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def traced(
    operation: str,
) -> Callable[[Callable[_P, Coroutine[Any, Any, _T]]], Callable[_P, Coroutine[Any, Any, _T]]]:
    """Tell an application that uses OpenTelemetry of each call of the decorated method.

    What the call does is done in the name of whoever its handle says it acts for.
    Its span is `orbiter.memory.` and *operation*. Without OpenTelemetry it costs two lookups.
    """

    def decorate(
        method: Callable[_P, Coroutine[Any, Any, _T]],
    ) -> Callable[_P, Coroutine[Any, Any, _T]]:
        inner = getattr(method, "__wrapped__", method)
        defaults: dict[str, object] = getattr(inner, "__kwdefaults__", None) or {}

        @wraps(method)
        async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            if getattr(args[0], "_by", None) is not None and not _is_acting(args[0]):
                with _acting(args[0]):
                    return await call(*args, **kwargs)
            modules = sys.modules
            if "opentelemetry.trace" not in modules and "opentelemetry.metrics" not in modules:
                return await method(*args, **kwargs)
            hearers = (_tracer(), _meters())
            if hearers == (None, None):
                return await method(*args, **kwargs)
            with _watched(operation, args[0], {**defaults, **kwargs}, hearers) as see:
                value = await method(*args, **kwargs)
                see(value)
            return value

        return call

    return decorate


def _is_acting(owner: Any) -> bool:
    from orbiter.memory.model.audit import actor  # noqa: PLC0415 - few handles name somebody

    return bool(actor() == owner._by)  # noqa: SLF001 - of a handle, which this decorates


def _acting(owner: Any) -> AbstractContextManager[None]:
    from orbiter.memory.model.audit import acting_as  # noqa: PLC0415

    return acting_as(owner._by)  # noqa: SLF001


@contextmanager
def _watched(
    operation: str,
    owner: object,
    arguments: dict[str, object],
    hearers: "tuple[Tracer | None, _Meters | None]",
) -> Iterator[Callable[[object], None]]:
    """Time what happens inside, in a span; give a function that takes the result."""
    about: _Attributes = {f"{_NAME}.operation": operation, "db.system": _system(owner)}
    tracer, meters = hearers
    with ExitStack() as stack:
        span: Span | None = None
        if tracer is not None:
            with _unharmed():
                span = stack.enter_context(
                    _span(tracer, operation, {**about, **_argument_attributes(arguments)})
                )
        began = perf_counter()
        error: str | None = None
        try:
            yield lambda value: _record_result(span, value)
        except BaseException as exc:  # counted, and raised again
            error = type(exc).__name__  # its words may hold what must not be told
            raise
        finally:
            took = perf_counter() - began
            if error is not None:
                about["error.type"] = error
                _fail(span, error)
            if meters is not None:
                with _unharmed():
                    meters.record(about, took, is_error=error is not None)


def _unharmed() -> "suppress":
    return suppress(Exception)  # what only watches must not break what is watched


@contextmanager
def _span(tracer: "Tracer", operation: str, attributes: _Attributes) -> Iterator["Span"]:
    opened = tracer.start_as_current_span(f"{_NAME}.{operation}", attributes=attributes)
    span = opened.__enter__()
    try:
        yield span
    finally:
        with _unharmed():
            # It is not told of an exception: its message and traceback may hold contents.
            opened.__exit__(None, None, None)


def _record_result(span: "Span | None", value: object) -> None:
    if span is not None:
        with _unharmed():
            span.set_attributes(_answered(value))


def _fail(span: "Span | None", error: str) -> None:
    if span is not None:
        with _unharmed():
            status = sys.modules["opentelemetry.trace"].StatusCode.ERROR
            span.set_status(status, error)
            span.set_attribute("error.type", error)


# A request of a server

RecordRequest = Callable[[str, int, str], None]
"""Takes the route of a request, its status, zero if it was cut, and its id."""


@contextmanager
def request_span(method: str, headers: Iterable[tuple[bytes, bytes]]) -> Iterator[RecordRequest]:
    """Trace a request to a server in a span, whose parent *headers* may name, as `traceparent`.

    A request that somebody else traces already, such as an instrumentation of ASGI, gets none.
    """
    tracer = _tracer() if "opentelemetry.trace" in sys.modules else None
    with ExitStack() as stack:
        span: Span | None = None
        if tracer is not None:
            with _unharmed():
                span = _begin_request(stack, tracer, method, headers)
        yield lambda route, status, request: _end_request(span, method, route, status, request)


def _begin_request(
    stack: ExitStack, tracer: "Tracer", method: str, headers: Iterable[tuple[bytes, bytes]]
) -> "Span | None":
    from opentelemetry import propagate, trace  # noqa: PLC0415 - for OpenTelemetry alone

    if trace.get_current_span().get_span_context().is_valid:
        return None
    sent = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    opened = tracer.start_as_current_span(
        method,
        context=propagate.extract(sent),
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": method},
        record_exception=False,
        set_status_on_exception=False,
    )
    return stack.enter_context(opened)


def _end_request(span: "Span | None", method: str, route: str, status: int, request: str) -> None:
    if span is None:
        return
    with _unharmed():
        span.set_attribute(f"{_NAME}.request_id", request)
        if route != "none":
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)
        if status:
            span.set_attribute("http.response.status_code", status)
        if not status or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _fail(span, str(status or "cut"))


# What is told


def _system(owner: Any) -> str:
    store: object = None
    with suppress(AttributeError, UnsupportedError):  # behind a server there is none to name
        store = owner._core.store  # noqa: SLF001 - of a handle, which this decorates
    names = (_SYSTEMS.get(each.__name__) for each in type(store).__mro__)
    return next(filter(None, names), "other")


def _argument_attributes(arguments: dict[str, object]) -> _Attributes:
    """Return what may be told of the arguments: numbers, flags, and words that we know."""
    attributes: _Attributes = {}
    for name, value in arguments.items():
        is_count = name in _COUNTS and isinstance(value, int) and not isinstance(value, bool)
        is_flag = name in _FLAGS and isinstance(value, bool)
        is_word = isinstance(value, str) and value in _words_of(name)
        if (is_count or is_flag or is_word) and isinstance(value, str | int):
            attributes[f"{_NAME}.{name}"] = str(value) if is_word else value
    return attributes


def _words_of(argument: str) -> Sequence[str]:
    """Return the words that may be told of an argument."""
    if argument != "format":
        return _MODES if argument == "mode" else ()
    from orbiter.memory.messages.codec import FORMATS  # noqa: PLC0415 - for OpenTelemetry alone

    return FORMATS


def _answered(value: object) -> _Attributes:
    """Return what may be told of a result: how much it is."""
    kind = type(value).__name__
    if kind == "Context":
        dropped = getattr(value, "dropped", ())
        return {f"{_NAME}.tokens": getattr(value, "tokens", 0), f"{_NAME}.dropped": len(dropped)}
    if kind == "RecallResult" and isinstance(value, Sized):
        considered = getattr(value, "considered", 0)
        return {f"{_NAME}.hits": len(value), f"{_NAME}.considered": considered}
    if isinstance(value, int):  # a number of items
        return {f"{_NAME}.items": int(value)}
    if isinstance(value, Sized) and not isinstance(value, str):
        return {f"{_NAME}.items": len(value)}
    return {} if value is None else {f"{_NAME}.items": 1}


# Who wants to know


class _Meters:
    """What counts and times the calls, for one provider."""

    def __init__(self, provider: "MeterProvider") -> None:
        meter = provider.get_meter(_NAME)
        self.provider = provider
        self.operations: Counter = meter.create_counter(
            f"{_NAME}.operations", "{operation}", "Calls of a memory"
        )
        self.errors: Counter = meter.create_counter(
            f"{_NAME}.errors", "{error}", "Calls that raised"
        )
        self.duration: Histogram
        arguments = (f"{_NAME}.duration", "s", "How long a call took")
        try:
            self.duration = meter.create_histogram(
                *arguments, explicit_bucket_boundaries_advisory=_SECONDS
            )
        except TypeError:  # an API from before it could be said which durations matter
            self.duration = meter.create_histogram(*arguments)

        _watch_pools(meter)

    def record(self, about: _Attributes, took: float, *, is_error: bool) -> None:
        self.operations.add(1, about)
        self.duration.record(took, about)
        if is_error:
            self.errors.add(1, about)


def _watch_pools(meter: "Meter") -> None:
    """Have the connection pools of this process read whenever metrics are collected."""
    from orbiter.memory.backends.pool_counts import PoolCounts, live_pools  # noqa: PLC0415

    observation = sys.modules["opentelemetry.metrics"].Observation
    prefix = "db.client.connection"

    def reading(
        read: Callable[[PoolCounts], Mapping[str, float]],
    ) -> "Callable[[CallbackOptions], Iterable[Observation]]":
        """Return a callback: what *read* returns by state, of all pools of one name together."""

        def observe(_: object) -> "Iterable[Observation]":
            total: dict[tuple[str, str], float] = {}
            for pool in live_pools():
                for state, count in read(pool).items():
                    total[pool.name, state] = total.get((pool.name, state), 0) + count
            for (name, state), count in total.items():
                about = {f"{prefix}.pool.name": name}
                yield observation(count, {**about, f"{prefix}.state": state} if state else about)

        return observe

    def sizes(pool: PoolCounts) -> Mapping[str, float]:
        used, idle, _ = pool.sizes()
        return {"used": used, "idle": idle}

    gauge, counter = meter.create_observable_up_down_counter, meter.create_observable_counter
    gauge(f"{prefix}.count", [reading(sizes)], "{connection}", "Connections of a pool")
    gauge(
        f"{prefix}.max",
        [reading(lambda pool: {"": pool.sizes().max})],
        "{connection}",
        "Connections that a pool may have",
    )
    gauge(
        f"{prefix}.pending_requests",
        [reading(lambda pool: {"": pool.waiting})],
        "{request}",
        "Calls that wait for a connection",
    )
    counter(
        f"{prefix}.timeouts",
        [reading(lambda pool: {"": pool.timeouts})],
        "{timeout}",
        "Calls that got no connection in time",
    )
    counter(
        f"{_NAME}.pool.wait_time",
        [reading(lambda pool: {"": pool.wait_seconds})],
        "s",
        "How long calls have waited for a connection",
    )


_last_tracer: "tuple[TracerProvider, Tracer] | None" = None
_last_meters: _Meters | None = None


def _tracer() -> "Tracer | None":
    """Return what makes spans, or `None` if the application has not set a provider."""
    global _last_tracer  # noqa: PLW0603 - making one for each call costs more than the call
    with _unharmed():
        module = sys.modules["opentelemetry.trace"]
        provider = module.get_tracer_provider()
        # An `isinstance` of an abstract class takes longer than the rest of this.
        if type(provider) is module.ProxyTracerProvider:
            return None
        if _last_tracer is None or _last_tracer[0] is not provider:
            _last_tracer = (provider, provider.get_tracer(_NAME))
        return _last_tracer[1]
    return None  # it is not there, or just being imported


def _meters() -> _Meters | None:
    """Return what counts, or `None` if the application has not set a provider."""
    global _last_meters  # noqa: PLW0603
    with _unharmed():
        provider = sys.modules["opentelemetry.metrics"].get_meter_provider()
        # The API has no public name for the one that stands in until one is set.
        if type(provider).__name__ == "_ProxyMeterProvider":
            return None
        if _last_meters is None or _last_meters.provider is not provider:
            _last_meters = _Meters(provider)
        return _last_meters
    return None
