"""Streamed answers of any server that speaks OpenAI's chat completions, by the standard library.

A thread reads, so that Ctrl-C can stop an answer in the middle of a wait: it closes the socket.
"""

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from orbiter.memory.cli._error_messages import UsageError

__all__ = ["ChatEndpoint", "EndpointError", "Usage"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_LINE = 2**20
"""Bytes of one event; a server that sends more is not one that we know."""
_MAX_WHOLE = 2**24
"""Bytes of an answer that is not streamed."""
_MAX_ERROR = 2_000


class EndpointError(Exception):
    """The server refused, failed, or stopped in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of a request, as the server counts them."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """A server and a model on it."""

    url: str
    """Its base, such as `https://api.openai.com/v1`."""
    model: str
    key: str | None = None
    timeout: float = 60.0
    """Seconds without a byte after which it counts as failed."""

    def check(self) -> None:
        """Raise `UsageError` for a URL that is none, or that would send the key in the clear."""
        try:
            parts = urlsplit(self.url)
            has_host = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            has_host = False
        if not has_host:
            raise UsageError(f"`{self.url}` is not a valid URL; write `http://localhost:11434/v1`")
        if self.key and not (self.key.isascii() and self.key.isprintable()):
            raise UsageError(
                "OPENAI_API_KEY has a character that no key has, such as a line end; set it again"
            )
        if self.key and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise UsageError(
                f"`{parts.hostname}` would get OPENAI_API_KEY unencrypted; use `https://…`, or "
                "unset OPENAI_API_KEY"
            )

    async def stream(
        self, messages: Sequence[Mapping[str, Any]]
    ) -> AsyncGenerator[str | Usage, None]:
        """Yield the pieces of an answer as they come, and the usage if the server tells it.

        `EndpointError` if it fails; what was yielded before is all there is.
        """
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | Usage | Exception | None] = asyncio.Queue()
        connection = self._connection()

        def put(piece: str | Usage | Exception | None) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        reader = Thread(target=self._read, args=(connection, messages, put), daemon=True)
        reader.start()
        try:
            while (piece := await pieces.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            connection.stop()

    def _connection(self) -> "_Connection":
        parts = urlsplit(self.url)
        is_secure = parts.scheme == "https"
        return _Connection(
            parts.hostname or "",
            parts.port or (443 if is_secure else 80),
            timeout=self.timeout,
            context=ssl.create_default_context() if is_secure else None,
        )

    def _read(
        self,
        connection: "_Connection",
        messages: Sequence[Mapping[str, Any]],
        put: Callable[[str | Usage | Exception | None], None],
    ) -> None:
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        try:
            with self._ask(connection, messages) as response:
                for piece in self._checked(response):
                    put(piece)
            put(None)
        except TimeoutError:
            put(EndpointError(f"`{host}` did not answer within {self.timeout:g} seconds"))
        except (EndpointError, UsageError) as exc:
            put(exc)
        except (OSError, http.client.HTTPException) as exc:
            reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
            put(EndpointError(f"`{host}` cannot be reached, or hung up: {reason}"))
        except Exception as exc:  # noqa: BLE001 - in a thread nobody else would tell it
            put(exc)
        finally:
            connection.close()

    def _ask(
        self, connection: "_Connection", messages: Sequence[Mapping[str, Any]]
    ) -> http.client.HTTPResponse:
        body = json.dumps(
            {
                "model": self.model,
                "messages": [dict(each) for each in messages],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        path = f"{urlsplit(self.url).path.rstrip('/')}/chat/completions"
        connection.request("POST", path, body.encode(), headers)
        return connection.getresponse()

    def _checked(self, response: http.client.HTTPResponse) -> Iterator[str | Usage]:
        if response.status != http.client.OK:
            raise EndpointError(
                f"`{urlsplit(self.url).hostname}` answered {response.status} {response.reason}"
                f"{_reason(response.read(_MAX_ERROR * 4))}"
            )
        return _pieces(response)


class _Connection(http.client.HTTPConnection):
    """A connection that another thread can end while this one waits."""

    def __init__(
        self, host: str, port: int, *, timeout: float, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context = context
        self._socket: socket.socket | None = None
        self._is_stopped = False

    def connect(self) -> None:
        """Connect, with TLS if there is a context."""
        super().connect()
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)
        # A response takes the socket over, and may forget it here.
        self._socket = self.sock
        if self._is_stopped:
            self.stop()

    def stop(self) -> None:
        """Have whoever reads get the end at once."""
        self._is_stopped = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _reason(body: bytes) -> str:
    """Return what a server says about its refusal, on one line."""
    try:
        error = json.loads(body).get("error")
        text = error.get("message") if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        text = body.decode(errors="replace")
    return f": {' '.join(str(text).split())[:_MAX_ERROR]}" if text else ""


def _pieces(response: http.client.HTTPResponse) -> Iterator[str | Usage]:
    """Yield what the events of a stream say; `EndpointError` if it ends before it is finished."""
    is_finished = False
    if "json" in (response.getheader("Content-Type") or ""):  # it does not stream
        yield from _event(_load(response.read(_MAX_WHOLE)))[0]
        return
    while line := response.readline(_MAX_LINE):
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        pieces, is_last = _event(_load(data))
        is_finished = is_finished or is_last
        yield from pieces
    if not is_finished:
        raise EndpointError("the answer was cut off: the server hung up")


def _load(data: bytes) -> dict[str, Any]:
    """Return an event; `EndpointError` for what is none, or for one that tells of an error."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise EndpointError(f"the server sent something else than an answer: {data[:80]!r}")
    if error := event.get("error"):
        text = error.get("message") if isinstance(error, dict) else error
        raise EndpointError(f"the server stopped: {text}")
    return event


def _event(event: dict[str, Any]) -> tuple[list[str | Usage], bool]:
    """Return what one event says, and whether it is the last with text."""
    pieces: list[str | Usage] = []
    is_last = False
    for choice in _objects_in(event.get("choices")):
        said = choice.get("delta") or choice.get("message")
        content = said.get("content") if isinstance(said, dict) else None
        if isinstance(content, str) and content:
            pieces.append(content)
        is_last = is_last or choice.get("finish_reason") is not None
    if isinstance(usage := event.get("usage"), dict):
        counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
        pieces.append(Usage(*(count if isinstance(count, int) else 0 for count in counts)))
    return pieces, is_last


def _objects_in(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
