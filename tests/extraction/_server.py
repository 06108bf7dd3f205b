"""A real HTTP server that speaks as much of the chat API as an extractor meets."""

import asyncio
import json
from typing import Any

Answer = tuple[int, dict[str, str], Any]


def completion(text: str | None, *, finish: str = "stop", refusal: str | None = None) -> Answer:
    """Return an answer that says *text*."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return 200, {}, body


def facts(*found: dict[str, Any]) -> Answer:
    """Return an answer that names facts."""
    return completion(json.dumps({"facts": found}))


class ChatServer:
    """Answers from a script; `None` in it never answers."""

    def __init__(self) -> None:
        self.answers: list[Answer | None] = []
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has hung up
        finally:
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        assert head.startswith("POST /v1/chat/completions ")
        self.requests.append(json.loads(await reader.readexactly(int(headers["content-length"]))))
        scripted = self.answers.pop(0)
        if scripted is None:
            await reader.read()
            return False
        status, extra, content = scripted
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        extra = {"content-type": "application/json", "content-length": str(len(data)), **extra}
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in extra.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await writer.drain()
        return True
