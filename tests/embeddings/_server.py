"""A real HTTP server that speaks as much of the embeddings API as a client meets."""

import asyncio
import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable
from typing import Any

Answer = tuple[int, dict[str, str], Any]
Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]

DROP = "drop"
HANG = "hang"
DRIP = "drip"


def vector(text: str, dimension: int) -> list[float]:
    """Return a vector that tells texts apart: exact in float32, and never zero."""
    seed = sum(ord(letter) * (place + 1) for place, letter in enumerate(text)) + 1
    return [float((seed * (place + 3)) % 1009 + 1) / 1024 for place in range(dimension)]


def packed(numbers: list[float]) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


class EmbeddingServer:
    """Answers each request with vectors, unless `script` has something else in store for it."""

    def __init__(self, dimension: int = 4) -> None:
        self.dimension = dimension
        self.script: list[Answer | str | Change] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.url = ""
        self.open = 0
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0
        self.pause = 0.0
        self.speaks_base64 = True
        self.busy = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()  # who never came need not be waited for

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.connections += 1
        self.idle.clear()
        try:
            while await self.answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has hung up
        finally:
            writer.close()
            self.open -= 1
            if not self.open:
                self.idle.set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        assert head.startswith("POST /v1/embeddings ")
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append(body)
        self.keys.append(headers["authorization"])
        self.busy.set()
        step = self.script.pop(0) if self.script else None
        if step == DROP:
            return False
        if step == HANG:
            await reader.read()
            return False
        if step == DRIP:
            await self.drip(writer)
            return False
        if isinstance(step, tuple):
            self.reply(writer, step)
        else:
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            await asyncio.sleep(self.pause)
            self.at_once -= 1
            self.reply(writer, (200, {}, self.embeddings(body, step)))
        await writer.drain()
        return headers.get("connection") != "close"

    def embeddings(self, body: dict[str, Any], change: Any) -> dict[str, Any]:
        wants_base64 = self.speaks_base64 and body.get("encoding_format") == "base64"
        data: list[dict[str, Any]] = []
        for number, text in enumerate(body["input"]):
            numbers = vector(text, self.dimension)
            embedding = packed(numbers) if wants_base64 else numbers
            data.append({"object": "embedding", "index": number, "embedding": embedding})
        if change:
            data = change(data)
        return {"object": "list", "model": body["model"], "data": data}

    @staticmethod
    def reply(writer: asyncio.StreamWriter, answer: Answer) -> None:
        status, extra, content = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        extra = {"content-type": "application/json", "content-length": str(len(data)), **extra}
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in extra.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)

    @staticmethod
    async def drip(writer: asyncio.StreamWriter) -> None:
        """Answer a byte at a time, for ever: no read of the client's takes long."""
        writer.write(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)


def norm(numbers: list[float]) -> float:
    return math.sqrt(sum(number * number for number in numbers))
