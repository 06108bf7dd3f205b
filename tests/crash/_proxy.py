"""A TCP proxy in front of a server, for every way in which a network can fail.

Bytes are held back, thrown away, cut short or slowed down; they are never changed.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Literal, Self
from urllib.parse import urlsplit

Mode = Literal["open", "refuse", "black hole", "half open", "slow", "thin", "crawl"]

_READY = b"Z\x00\x00\x00\x05"
"""How the last message of an answer begins; one byte follows."""

_STEPS = {"slow": (50, 0.005), "thin": (65_536, 0.004), "crawl": (1, 1.0)}
"""Bytes at a time, and seconds between them."""


class Proxy:
    """Use as `async with Proxy(port) as proxy` and connect to `proxy.dsn(...)`."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        """Where new connections go; those that are there stay where they are."""
        self.lost = 0
        """How many requests or answers were lost by `lose_reply` and `lose_request`."""
        self.held = 0
        """How many requests arrived that were not passed on at once: an event to wait for."""
        self._mode: Mode = "open"
        self._free = asyncio.Event()
        self._free.set()
        self._traps: list[tuple[bytes, str]] = []
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def dsn(self, dsn: str) -> str:
        """Return *dsn* with the way through this proxy."""
        parts = urlsplit(dsn)
        login = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{login}@127.0.0.1:{self.port}").geturl()

    # Faults that last until `heal`

    def refuse(self) -> None:
        """Reset every connection, and each new one at once."""
        self._mode = "refuse"
        self.reset()

    def black_hole(self) -> None:
        """Let nothing through; what was sent arrives after `heal`, as by retransmission."""
        self._mode = "black hole"
        self._free.clear()

    def slow_down(self) -> None:
        """Let fifty bytes through at a time, two hundred times a second."""
        self._mode = "slow"

    def half_open(self) -> None:
        """Swallow everything, on new connections too; those of that time stay dead after `heal`."""
        self._mode = "half open"
        self.forget()

    def narrow(self) -> None:
        """Let some ten megabytes through a second, on each connection."""
        self._mode = "thin"

    def crawl(self) -> None:
        """Let one byte through a second, each way."""
        self._mode = "crawl"

    def heal(self) -> None:
        """Work again, and carry on with what is still connected."""
        self._mode = "open"
        self._free.set()
        for link in self._links:
            link.is_free.set()

    # Faults that happen once

    def reset(self) -> None:
        """Reset every connection."""
        for link in list(self._links):
            link.reset()

    def forget(self) -> None:
        """Leave every connection half open: nobody is told, and nothing is ever answered."""
        for link in self._links:
            link.is_forgotten = True

    def lose_reply(self, marker: bytes) -> None:
        """Let the next request with *marker* be carried out, and reset instead of its answer."""
        self._traps.append((marker, "reply"))

    def drop_reply(self, marker: bytes) -> None:
        """Like `lose_reply`, but reset at the first byte of the answer, whatever it is."""
        self._traps.append((marker, "any reply"))

    def lose_request(self, marker: bytes) -> None:
        """Reset instead of the next request with *marker*."""
        self._traps.append((marker, "request"))

    def hold(self, marker: bytes) -> None:
        """Keep the next request with *marker*, and what follows on its connection, to `heal`."""
        self._traps.append((marker, "hold"))

    def held_back(self) -> bytes:
        """Return what was sent behind a request that `hold` keeps."""
        return b"".join(bytes(link.client.reader._buffer) for link in self._links)  # type: ignore[attr-defined]

    # Carrying bytes

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _End(reader, writer)
        if self._mode == "refuse":
            client.reset()
            return
        try:
            server = _End(*await asyncio.open_connection("127.0.0.1", self.upstream))
        except OSError:
            client.reset()
            return
        link = _Link(client, server)
        link.is_forgotten = self._mode == "half open"
        self._links.add(link)
        pumps = [
            asyncio.create_task(self._pump(link, client, server, is_request=True)),
            asyncio.create_task(self._pump(link, server, client, is_request=False)),
        ]
        self._tasks.update(pumps)
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._tasks.difference_update(pumps)
            self._links.discard(link)
            client.close()
            server.close()

    async def _pump(self, link: "_Link", here: "_End", there: "_End", *, is_request: bool) -> None:
        with suppress(OSError):
            while data := await here.reader.read(65536):
                if is_request and self._traps and self._traps[0][0] in data:
                    self._spring(link)
                if not is_request and link.loses_reply:
                    if link.loses_any_reply or data[-6:-1] == _READY:
                        self.lost += 1
                        link.reset()
                    continue
                await self._carry(data, link, there, is_request=is_request)

    def _spring(self, link: "_Link") -> None:
        kind = self._traps.pop(0)[1]
        if kind == "request":
            self.lost += 1
            link.reset()
        elif kind in ("reply", "any reply"):
            link.loses_reply = True
            link.loses_any_reply = kind == "any reply"
        else:
            link.is_free.clear()

    async def _carry(self, data: bytes, link: "_Link", there: "_End", *, is_request: bool) -> None:
        if is_request:
            self.held += not (self._free.is_set() and link.is_free.is_set()) or link.is_forgotten
            await link.is_free.wait()
        await self._free.wait()
        if link.is_forgotten or link.is_reset:
            return
        while data:
            mode = self._mode
            size, seconds = _STEPS.get(mode, (len(data), 0.0))
            there.writer.write(data[:size])
            data = data[size:]
            await there.writer.drain()
            while seconds > 0 and self._mode == mode:  # a healed network goes on at once
                await asyncio.sleep(min(seconds, 0.05))
                seconds -= 0.05


class _End:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def reset(self) -> None:
        raw: socket.socket | None = self.writer.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        with suppress(OSError, RuntimeError):
            self.writer.close()


class _Link:
    def __init__(self, client: _End, server: _End) -> None:
        self.client, self.server = client, server
        self.is_forgotten = False
        self.is_free = asyncio.Event()
        self.is_free.set()
        self.is_reset = False
        self.loses_reply = False
        self.loses_any_reply = False

    def reset(self) -> None:
        self.is_reset = True
        self.client.reset()
        self.server.reset()
