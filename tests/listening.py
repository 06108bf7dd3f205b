"""A TCP server for the time of a block, which leaves no connection behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

__all__ = ["listening"]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """Have *serve* answer each connection to the address this yields, `http://127.0.0.1:1234`.

    Connections that are open at the end are ended: `asyncio.Server` itself leaves their tasks to
    whoever closes the loop.
    """
    open_connections: set[asyncio.Task[None]] = set()

    async def track(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_connections.add(task)
        try:
            await serve(reader, writer)
        finally:
            open_connections.discard(task)

    server = await asyncio.start_server(track, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)
        await server.wait_closed()
