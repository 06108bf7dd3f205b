"""`completion/complete`: the names of conversations, of whoever asks alone."""

import httpx
from tests.mcp.test_http import BOTH, Serve, keys, new_key, serve
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile

__all__ = ["keys", "serve"]


async def test_an_argument_that_names_a_conversation_is_completed(
    serve: Serve, keys: KeyFile, memory: AgentMemory
) -> None:
    for user, chat in (("ann", "trip"), ("ann", "trip/2"), ("ann", "work"), ("bob", "trip-of-bob")):
        await memory.scope(user_id=user).chat(chat).add("hello")
    url, key = await serve(keys), new_key(keys, user="ann")
    handoff = {"type": "ref/prompt", "name": "handoff"}
    template = {"type": "ref/resource", "uri": "memory://chat/{id}"}
    asked = [
        (handoff, "chat", "tri"),
        (template, "id", ""),
        (handoff, "topic", "t"),
        ({"type": "ref/prompt", "name": "nowhere"}, "chat", ""),
    ]

    async with httpx.AsyncClient(
        headers={"Authorization": f"Bearer {key}", **BOTH}, timeout=HANG
    ) as http:
        answers = [
            (await http.post(f"{url}/mcp", json=request(ref, name, value))).json()
            for ref, name, value in asked
        ]

    values = [set(answer["result"]["completion"]["values"]) for answer in answers]
    assert values == [{"trip", "trip/2"}, {"trip", "trip/2", "work"}, set(), set()]


def request(ref: dict[str, str], name: str, value: str) -> dict[str, object]:
    """Return the request for what an argument may be."""
    params = {"ref": ref, "argument": {"name": name, "value": value}}
    return {"jsonrpc": "2.0", "id": 1, "method": "completion/complete", "params": params}
