"""Calls of a started server import nothing, as others would wait for the event loop meanwhile."""

import subprocess
import sys

SCRIPT = """
import asyncio, sys
import httpx
from orbiter.memory import AgentMemory
from orbiter.memory.server import create_app

BODY = {"what": [{"role": "user", "content": "I like tea. " * 500}]}
TOOLS = {"what": [
    {"role": "assistant", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "tea"}]}
CALLS = (
    ("POST", "/v1/memories", {"what": "green tea", "dedupe": True}),
    ("POST", "/v1/memories/query", {"query": "tea"}),
    ("POST", "/v1/recall", {"query": "Which tea did I like last week?", "explain": True}),
    ("POST", "/v1/chats/c/messages", BODY),
    ("POST", "/v1/chats/c/messages", TOOLS),
    ("POST", "/v1/chats/c/context", {"task": "tea", "budget": 2000}),
    ("POST", "/v1/context", {"task": "tea"}),
    ("PUT", "/v1/facts/tea", {"value": "green"}),
    ("POST", "/v1/forget", {"query": "tea"}),
)

def ours():
    return {name for name in sys.modules if name.startswith("orbiter.")}

async def main():
    async with AgentMemory("memory://", embeddings=None) as memory:
        app = create_app(memory)
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client,
        ):
            loaded = ours()
            for verb, path, body in CALLS:
                answer = await client.request(verb, path, params={"user_id": "ann"}, json=body)
                assert answer.is_success, (path, answer.text)
            await memory.scope("ann").chat("c").add(["tea"] * 2)
            print(*sorted(ours() - loaded))

asyncio.run(main())
"""


def test_calls_of_a_started_server_import_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=300
    )

    assert done.stdout.split() == []
