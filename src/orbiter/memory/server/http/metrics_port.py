"""`/metrics` on a port of its own, without a key: for a Prometheus that has none.

It answers that one path and nothing else. Metrics hold counts, and no id, name or text. Workers of
one server share the port, and each answers for all of them.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from orbiter.memory.errors import MemoryConnectionError

__all__ = ["serve_metrics"]

_PATIENCE = 5.0
"""Seconds for a client to send its request and to take the answer."""
_MAX_CLIENTS = 32
_HEAD_BYTES = 8_192


@asynccontextmanager
async def serve_metrics(
    read: Callable[[], Awaitable[str]], *, host: str, port: int, is_shared: bool
) -> AsyncIterator[int]:
    """Answer `GET /metrics` with what *read* returns while the block runs; give the port."""
    clients: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(clients) >= _MAX_CLIENTS:
            writer.transport.abort()
            return
        clients.add(task)
        try:
            async with asyncio.timeout(_PATIENCE):
                await _answer(reader, writer, read)
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass  # whoever is late, or sends no request, is cut off
        finally:
            clients.discard(task)
            writer.transport.abort()

    reuse = is_shared and hasattr(socket, "SO_REUSEPORT")
    try:
        server = await asyncio.start_server(
            accept, host, port, limit=_HEAD_BYTES, reuse_port=reuse or None
        )
    except OSError as exc:
        why = exc.strerror if exc.errno is None else os.strerror(exc.errno)
        raise MemoryConnectionError(
            f"port {port} of `{host}` cannot be served: {why}; choose another with `--metrics-port`"
        ) from exc
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in clients:
            task.cancel()
        if clients:
            await asyncio.wait(clients)
        await server.wait_closed()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, read: Callable[[], Awaitable[str]]
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    is_right = len(words) == 3 and words[0] in (b"GET", b"HEAD")
    if is_right and words[1].partition(b"?")[0] == b"/metrics":
        status, kind, text = "200 OK", "text/plain; version=0.0.4; charset=utf-8", await read()
    else:
        status, kind, text = "404 Not Found", "text/plain", "only `GET /metrics` is here\n"
    body = text.encode()
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    if words[0] != b"HEAD":
        writer.write(body)
    await writer.drain()
    writer.write_eof()
    with suppress(OSError):  # until the client has it all, and closes
        while await reader.read(_HEAD_BYTES):
            pass
