"""A memory behind a real server, in the loop of the test, for tests that know of none.

`serve` is no coroutine, as making a memory is none: the client waits for its server before it
sends anything. The port is held from the beginning, so that nobody else gets it.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx

from orbiter.memory import AgentMemory
from orbiter.memory.client import RemoteMemory
from orbiter.memory.client._read_response import Answer
from orbiter.memory.client._transport import HTTPTransport, Request, RetryPolicy

SERVED = "served://"
"""How the address of a memory begins that is to be used through a server."""

Serve = Callable[[AgentMemory], RemoteMemory]


class _Door(HTTPTransport):
    """The way to a server that may still be starting."""

    ready: "asyncio.Event"

    async def send(self, request: Request) -> Answer:
        await self.ready.wait()
        return await super().send(request)

    @asynccontextmanager
    async def stream(self, *given: object, **named: object) -> AsyncIterator[httpx.Response]:
        await self.ready.wait()
        async with super().stream(*given, **named) as answer:  # type: ignore[arg-type]  # as it came
            yield answer


@asynccontextmanager
async def served() -> AsyncIterator[Serve]:
    """Give what puts a memory behind a server and returns the client; in the end, all stop."""
    tasks: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    def serve(memory: AgentMemory) -> RemoteMemory:
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        client = RemoteMemory(f"http://127.0.0.1:{port}")
        door = _Door(client._engine._link.address, patience=RetryPolicy())
        door.ready = asyncio.Event()
        client._engine._link = door
        tasks.append(asyncio.create_task(_serve(memory, held, door.ready, over)))
        return client

    try:
        yield serve
    finally:
        over.set()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def _serve(
    memory: AgentMemory, held: socket.socket, ready: asyncio.Event, over: asyncio.Event
) -> None:
    from orbiter.memory.server import Settings, create_app, serving  # noqa: PLC0415 - slow to load

    settings = Settings(
        port=held.getsockname()[1], rate=1e6, burst=10**6, with_mcp=False, with_dashboard=False
    )
    try:
        async with serving(create_app(memory, settings=settings), settings=settings):
            ready.set()
            await over.wait()
    finally:
        held.close()
        ready.set()  # whoever still calls must not wait for ever
