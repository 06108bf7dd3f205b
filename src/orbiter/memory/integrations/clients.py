"""Clients of providers with a memory: each call sees what is remembered, and is remembered itself.

`wrap(client, alice)` returns a client of the same type. What a call is given is added to a chat,
the call is sent with the context of that chat instead, under a budget, and the answer is added.
Nothing is sent to anybody but the provider that the client is of.

Every method of a client makes its request in one place: `request` of OpenAI's and Anthropic's
clients, the four of google-genai's transport. That place is replaced, and nothing else; only its
`repr` says that a client remembers.
"""

import copy
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from orbiter.memory.agent.keywords import checked_keywords
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations._calls import AnyHandle, Calls
from orbiter.memory.integrations._client_answers import Pieces
from orbiter.memory.integrations._client_turn import COMPLETE, Complete, Turn, warn_of
from orbiter.memory.messages import Format
from orbiter.memory.model.query import check_size, require_text

__all__ = ["OFF", "wrap"]

OFF: Mapping[str, str] = {"X-Orbiter-Memory": "off"}
"""Headers by which one call goes without the memory; they are not sent."""

_WAY = "wrap the async client, such as `AsyncOpenAI`, or use `client.aio`"
_Client = TypeVar("_Client")
_Route = tuple[Format, Complete]


@checked_keywords("wrap")
def wrap(
    client: _Client,
    handle: AnyHandle,
    *,
    chat: str = "default",
    budget: int = 8_000,
    memory_limit: int = 5,
    active: bool = True,
) -> _Client:
    """Return a client like *client* whose calls have the memory of *handle*.

    It is for the clients of `openai`, `anthropic` and `google-genai`, those for Azure, Bedrock and
    Vertex included, and for all their calls that ask a model for messages, however they are made:
    `docs/integrations/clients.md` lists them. Everything else of the client is as it was.

    A call may be given the newest message alone, or all that was said: what *chat* has already is
    not added twice. System messages and instructions of the call go along as they are; they count
    against *budget*, and are not stored. At most *memory_limit* memories are recalled for a call.
    An answer that is streamed is remembered once its end was read. With *active* false, the client
    is returned as it is; with `extra_headers=OFF`, one call goes without the memory. A client that
    has a memory is not given a second one.
    """
    if not active:
        return client
    before: Turn | None = getattr(client, "_orbiter_turn", None)
    if before is not None:
        raise QueryError(
            f"this client remembers in chat {before.chat_id!r} of {before.calls!r} already, and "
            "would go on doing so; wrap the one that it was made from"
        )
    turn = Turn(
        Calls(handle, "wrap", way=_WAY),
        require_text("chat", chat),
        check_size("budget", budget),
        check_size("memory_limit", memory_limit),
    )
    bases = (base.__module__.partition(".")[0] for base in type(client).__mro__)
    wrapped = next((_WRAPPERS[base] for base in bases if base in _WRAPPERS), None)
    if wrapped is None:
        raise QueryError(
            f"`wrap` takes a client of openai, anthropic or google-genai, not {client!r}"
        )
    made: _Client = wrapped(client, turn)
    return made


def _route(path: str) -> _Route | None:
    """Return how a request to *path* is completed; `None` for one that asks no model."""
    place = path.partition("?")[0]
    return COMPLETE.get(place[place.rfind(":") :] if ":" in place else place)


def _is_off(headers: object) -> bool:
    if not isinstance(headers, Mapping):
        return False
    return any(headers.get(name, headers.get(name.lower())) == value for name, value in OFF.items())


def _without_off(headers: Mapping[str, Any]) -> dict[str, Any]:
    names = {name.lower() for name in OFF}
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _named(made: Any, turn: Turn) -> Any:
    """Have a client say that it remembers, and where."""
    made._orbiter_turn = turn  # noqa: SLF001 - which its class looks for
    kind: Any = type(made)
    _show_memory(kind)
    return made


@cache
def _show_memory(kind: Any) -> None:
    """Have clients of *kind* that have a memory say so; all others are shown as before.

    Python asks the class for that. A class of their own would be another one to their provider:
    Anthropic's have credentials only if their class is exactly `Anthropic`.
    """
    plain: Callable[[Any], str] = kind.__repr__

    def show(client: Any) -> str:
        shown, turn = plain(client), vars(client).get("_orbiter_turn")
        if turn is None:
            return shown
        how = f", which remembers in chat {turn.chat_id!r} of {turn.calls!r}"
        return shown if shown.endswith(how) else shown + how  # a parent may have said it

    kind.__repr__ = show


# OpenAI and Anthropic


def _copied(client: Any, turn: Turn) -> Any:
    return _with_memory(client.copy(), turn)


def _with_memory(made: Any, chat: Turn) -> Any:
    """Give a client its memory, and every client that is made from it."""
    _named(made, chat)
    request = made.request
    is_async = inspect.iscoroutinefunction(request)
    made.request = (_awaiting if is_async else _blocking)(request, chat)
    for name in ("copy", "with_options"):
        make = getattr(made, name)
        setattr(
            made, name, lambda *args, _make=make, **more: _with_memory(_make(*args, **more), chat)
        )
    return made


def _blocking(request: Callable[..., Any], chat: Turn) -> Callable[..., Any]:
    def call(cast_to: Any, options: Any, *args: Any, **more: Any) -> Any:
        options, route = _routed(options)
        if route is None:
            return request(cast_to, options, *args, **more)
        turn, (format, complete) = replace(chat), route
        options.json_data = turn.calls.run(complete(turn, options.json_data))
        answer = request(cast_to, options, *args, **more)
        return _Watch(turn, format).response(answer, streams=bool(more.get("stream")))

    return call


def _awaiting(request: Callable[..., Any], chat: Turn) -> Callable[..., Any]:
    async def call(cast_to: Any, options: Any, *args: Any, **more: Any) -> Any:
        options, route = _routed(options)
        if route is None:
            return await request(cast_to, options, *args, **more)
        turn, (format, complete) = replace(chat), route
        options.json_data = await turn.calls.wait(complete(turn, options.json_data))
        answer = await request(cast_to, options, *args, **more)
        return await _Watch(turn, format).aresponse(answer, streams=bool(more.get("stream")))

    return call


def _routed(options: Any) -> tuple[Any, _Route | None]:
    """Return the options of a request, to be changed, and how its body is completed."""
    options = copy.copy(options)
    is_off = _is_off(options.headers)
    if is_off:
        options.headers = _without_off(options.headers)
    is_ours = str(options.method).lower() == "post" and isinstance(options.json_data, Mapping)
    return options, _route(str(options.url)) if is_ours and not is_off else None


class _Watch:
    """Sees to it that the answer of a call is remembered, in whichever form it is asked for."""

    def __init__(self, turn: Turn, format: Format) -> None:
        self._turn = turn
        self._format = format

    def response(self, answer: Any, *, streams: bool) -> Any:
        """Return the answer of a blocking client, watched."""
        raw = _raw(answer)
        if self._is_watched(answer, raw, streams=streams):
            return answer
        self.end(answer if raw is None else raw.json())
        return answer

    async def aresponse(self, answer: Any, *, streams: bool) -> Any:
        """Return the answer of an async client, watched."""
        raw = _raw(answer)
        if self._is_watched(answer, raw, streams=streams):
            return answer
        await self.aend(answer if raw is None else raw.json())
        return answer

    def end(self, whole: object) -> None:
        """Remember an answer, and block."""
        self._turn.calls.run(self._turn.end(self._format, whole))

    async def aend(self, whole: object) -> None:
        """Remember an answer."""
        await self._turn.calls.wait(self._turn.end(self._format, whole))

    def _is_watched(self, answer: Any, raw: Any, *, streams: bool) -> bool:
        """Watch what is not there yet; tell whether it is such an answer."""
        if hasattr(answer, "_iterator"):
            self._watch_stream(answer)
        elif raw is None:
            return False
        elif streams:
            if hasattr(answer, "parse"):
                answer.parse = self._parsed(answer.parse)
        elif raw.is_closed:
            return False
        else:
            raw.read, raw.aread = self._read(raw), self._aread(raw)
        return True

    def _watch_stream(self, stream: Any) -> None:
        events = stream._iterator  # noqa: SLF001 - what all ways to read a stream go through
        is_async = hasattr(events, "__anext__")
        stream._iterator = self.apieces(events) if is_async else self.pieces(events)  # noqa: SLF001

    def _parsed(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        """Return the `parse` of a raw response whose stream is watched."""

        def watched(stream: Any) -> Any:
            if hasattr(stream, "_iterator"):
                self._watch_stream(stream)
            return stream

        async def later(stream: Any) -> Any:
            return watched(await stream)

        def call(*args: Any, **more: Any) -> Any:
            stream = parse(*args, **more)
            return later(stream) if inspect.isawaitable(stream) else watched(stream)

        return call

    def _read(self, raw: Any) -> Callable[[], bytes]:
        read = raw.read

        def call() -> bytes:
            is_first, content = not raw.is_closed, bytes(read())
            if is_first:
                self.end(raw.json())
            return content

        return call

    def _aread(self, raw: Any) -> Callable[[], Any]:
        read = raw.aread

        async def call() -> bytes:
            is_first, content = not raw.is_closed, bytes(await read())
            if is_first:
                await self.aend(raw.json())
            return content

        return call

    def pieces(
        self, pieces: Iterator[Any], read: Callable[[Any], Any] = lambda piece: piece
    ) -> Iterator[Any]:
        """Yield the pieces of a stream, and remember the whole before its last one that matters."""
        seen: Pieces | None = Pieces(self._format)
        try:
            for piece in pieces:
                seen = _seen(seen, piece, read)
                if seen is not None and seen.whole is not None:
                    self.end(seen.whole)
                    seen = None
                yield piece
        except Exception:  # whatever cut it off: what was said until then was paid for
            if (whole := _closed(seen)) is not None:
                self.end(whole)
            raise
        if (whole := _closed(seen)) is not None:
            self.end(whole)

    async def apieces(
        self, pieces: AsyncIterator[Any], read: Callable[[Any], Any] = lambda piece: piece
    ) -> AsyncIterator[Any]:
        """Do the work of `pieces` in an event loop."""
        seen: Pieces | None = Pieces(self._format)
        try:
            async for piece in pieces:
                seen = _seen(seen, piece, read)
                if seen is not None and seen.whole is not None:
                    await self.aend(seen.whole)
                    seen = None
                yield piece
        except Exception:  # whatever cut it off: what was said until then was paid for
            if (whole := _closed(seen)) is not None:
                await self.aend(whole)
            raise
        if (whole := _closed(seen)) is not None:
            await self.aend(whole)


def _raw(answer: Any) -> Any:
    """Return the HTTP response that a client gives instead of an answer; `None` for an answer."""
    raw = getattr(answer, "http_response", answer)
    return raw if hasattr(raw, "aread") and hasattr(raw, "is_closed") else None


def _seen(seen: Pieces | None, piece: Any, read: Callable[[Any], Any]) -> Pieces | None:
    """Take a piece of a stream; `None` once there is nothing to wait for."""
    try:
        if seen is not None:
            seen.add(read(piece))
    except Exception as exc:  # noqa: BLE001 - the caller's stream goes on, whatever it has
        warn_of(exc)
        return None
    return seen


def _closed(seen: Pieces | None) -> object:
    """Return what a stream said until it ended, if that was not remembered before."""
    try:
        if seen is not None:
            seen.close()
    except Exception as exc:  # noqa: BLE001 - the caller's stream ends as it does
        warn_of(exc)
        return None
    return None if seen is None else seen.whole


# google-genai


def _gemini(client: Any, turn: Turn) -> Any:
    made = copy.copy(client)
    made._aio = copy.copy(client.aio)  # noqa: SLF001 - it has no public way to make another
    transport = _Transport(client, turn)
    for owner in (_named(made, turn), _named(made._aio, turn)):  # noqa: SLF001
        owner._api_client = transport  # noqa: SLF001
        owner._models = copy.copy(owner.models)  # noqa: SLF001
        owner._models._api_client = transport  # noqa: SLF001
    return made


class _Transport:
    """What the models of google-genai's client send their requests by.

    A client that is let go closes its transport. This one does not: the connections are those of
    the client that was wrapped, which may be in use, and which lives as long as this.
    """

    def __init__(self, client: Any, chat: Turn) -> None:
        self._client = client
        self._transport = client._api_client  # noqa: SLF001 - it has no public name
        self._chat = chat

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Leave the connections to the client that was wrapped."""

    async def aclose(self) -> None:
        """Leave the connections to the client that was wrapped."""

    def request(self, method: str, path: str, body: Any, http_options: Any = None) -> Any:
        turn, route, http_options = self._begin(path, http_options)
        if route is None:
            return self._transport.request(method, path, body, http_options)
        body = turn.calls.run(route[1](turn, body))
        answer = self._transport.request(method, path, body, http_options)
        _Watch(turn, route[0]).end(_json(answer))
        return answer

    def request_streamed(
        self, method: str, path: str, body: Any, http_options: Any = None
    ) -> Iterator[Any]:
        turn, route, http_options = self._begin(path, http_options)
        if route is not None:
            body = turn.calls.run(route[1](turn, body))
        pieces = self._transport.request_streamed(method, path, body, http_options)
        yield from pieces if route is None else _Watch(turn, route[0]).pieces(pieces, _json)

    async def async_request(
        self, method: str, path: str, body: Any, http_options: Any = None
    ) -> Any:
        turn, route, http_options = self._begin(path, http_options)
        if route is None:
            return await self._transport.async_request(method, path, body, http_options)
        body = await turn.calls.wait(route[1](turn, body))
        answer = await self._transport.async_request(method, path, body, http_options)
        await _Watch(turn, route[0]).aend(_json(answer))
        return answer

    async def async_request_streamed(
        self, method: str, path: str, body: Any, http_options: Any = None
    ) -> Any:
        turn, route, http_options = self._begin(path, http_options)
        if route is not None:
            body = await turn.calls.wait(route[1](turn, body))
        pieces = await self._transport.async_request_streamed(method, path, body, http_options)
        return pieces if route is None else _Watch(turn, route[0]).apieces(pieces, _json)

    def _begin(self, path: str, http_options: Any) -> tuple[Turn, _Route | None, Any]:
        headers = getattr(http_options, "headers", None) or {}
        if not _is_off(headers):
            return replace(self._chat), _route(path), http_options
        rest = {"headers": _without_off(headers)}
        return self._chat, None, http_options.model_copy(update=rest)


def _json(answer: Any) -> Any:
    """Return what a response of google-genai's transport says."""
    return json.loads(answer.body) if answer.body else {}


_WRAPPERS: Mapping[str, Callable[[Any, Turn], Any]] = {
    "openai": _copied,
    "anthropic": _copied,
    "google": _gemini,
}
