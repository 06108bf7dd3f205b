"""Users whose names look alike ask for all they can get, through every door of one server.

Each has a secret in every kind of memory there is. What one of them is told must hold his own
secret and nobody else's; a pair is somebody who asks and somebody whose secret he may not see.
"""

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.mcp.conftest import over_http
from tests.timing import HANG

from orbiter.memory import AgentMemory, ScopedMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.records import Record
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.testing.contracts.base_contract import HOSTILE_IDS

__all__ = ["DOORS", "Verdict", "ask_everywhere"]

_WORDS = "harbour meeting at noon"
"""In every text, so that a question for them could find all."""
_AT_ONCE = 8
_MANY = 500
_LOOK_ALIKE = ("{}", "{} ", "{}\u00a0", "'{}'", "{}%", "0{}", "{}\u200d", "{}ß", "{}ss", "{}:x")


@dataclass
class Person:
    """Somebody with a key of his own."""

    name: str
    secret: str
    handle: ScopedMemory
    http: httpx.AsyncClient
    key: str
    item_id: str = ""
    cursor: str = ""
    """What leads to the second page of his memories."""


@dataclass
class Verdict:
    """How many pairs were judged, and what went wrong."""

    pairs: int = 0
    leaked: list[str] = field(default_factory=list)
    """Who saw whose secret, and where."""
    missing: list[str] = field(default_factory=list)
    """Who did not see his own."""


async def ask_everywhere(folder: Path, dice: random.Random, *, users: int) -> Verdict:
    """Have so many users of one server ask through every door; return what they saw."""
    verdict = Verdict()
    async with _people(folder, dice, users) as (url, people):
        await _each(people, _store)
        await _each(people, lambda one: _overwrite(one, dice.choice(people)))
        for name, door in DOORS.items():

            async def ask(
                one: Person, name: str = name, door: Callable[..., Awaitable[str]] = door
            ) -> None:
                told = await door(one, url, dice.choice([each for each in people if each != one]))
                seen = [each.name for each in people if each != one and each.secret in told]
                verdict.leaked += [f"{name}: {one.name!r} saw {each!r}" for each in seen]
                if one.secret not in told:
                    verdict.missing.append(f"{name}: {one.name!r}")
                verdict.pairs += len(people) - 1

            await _each(people, ask)
        await _listen(people, verdict)
    return verdict


async def _each(people: Sequence[Person], work: Callable[[Person], Awaitable[None]]) -> None:
    """Have all of them do it, some at once, so that a mix-up of requests would show."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(person: Person) -> None:
        async with turn:
            await work(person)

    await asyncio.gather(*map(one, people))


@asynccontextmanager
async def _people(
    folder: Path, dice: random.Random, count: int
) -> AsyncIterator[tuple[str, list[Person]]]:
    made = {form.format(name) for name in HOSTILE_IDS if name for form in _LOOK_ALIKE}
    names = dice.sample(sorted(name for name in made if len(name) <= 256), count)
    keys = KeyFile(folder / "keys.json")
    settings = Settings(port=0, rate=1e6, burst=10**6)
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(
            AgentMemory(f"sqlite:///{folder}/agent.db", embeddings=None, summaries=None)
        )
        people = []
        for name in names:
            _, key = keys.create(scope=MemoryMetadata(user_id=name), role="write")
            http = httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=HANG)
            await stack.enter_async_context(http)
            secret = f"canary{dice.getrandbits(64):016x}"
            people.append(Person(name, secret, memory.scope(user_id=name), http, key))
        app = create_app(memory, settings=settings, keys=keys)
        url = await stack.enter_async_context(serving(app, settings=settings))
        for one in people:
            one.http.base_url = url
        yield url, people


async def _store(one: Person) -> None:
    """Keep the secret in every kind of memory."""
    text = f"{_WORDS} {one.secret}"
    one.item_id = (await one.handle.remember(f"{text} note", tags=["shared"])).id
    await one.handle.remember(f"{text} another")
    await one.handle.facts.put("home.city", text)
    await one.handle.chat("talk").add(f"{text} said")
    await one.handle.kv.put(("shared",), "key", text.encode())
    one.cursor = (await one.handle.list(limit=1)).next or ""


async def _overwrite(one: Person, other: Person) -> None:
    """Bring a file which says that a memory of another's id, and of his, is something else."""
    about = MemoryMetadata(user_id=other.name)
    record = Record(MemoryItem(id=other.item_id, content="overwritten", metadata=about))
    head = '{"format":"orbiter-memory records","format_version":1}\n'
    body = f"{head}{record.to_line()}\n"
    end = {"records": 1, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    whole = body.encode() + json.dumps({"end": end}).encode() + b"\n"
    await one.http.post("/v1/import", params={"user_id": other.name}, content=whole)
    await one.http.post("/v1/import", content=whole)


# Each door: who asks, where the server is, and whose memory he may not see.


async def _library(one: Person, _: str, other: Person) -> str:
    handle = one.handle
    found: list[object] = [item.content for item in await handle.list(limit=_MANY)]
    found += (await handle.facts.all()).values()
    found += [entry.value for entry in await handle.kv.list(limit=_MANY)]
    found += [item.content for item in await handle.chat("talk").items()]
    found += await handle.chats()
    found += [hit.item.content for hit in await handle.recall(f"{_WORDS} {other.name}", k=100)]
    shown = await handle.chat("talk").context(_WORDS, budget=50_000)
    found.append(shown.messages())
    stolen = await handle.get(other.item_id)
    return f"{found} {stolen.content if stolen else ''}"


async def _rest(one: Person, _: str, other: Person) -> str:
    ask = one.http
    answers = [
        await ask.get("/v1/memories", params={"limit": str(_MANY)}),
        await ask.get("/v1/memories", params={"user_id": other.name, "limit": str(_MANY)}),
        await ask.get("/v1/memories", params={"everyone": "true", "query": _WORDS}),
        await ask.get(f"/v1/memories/{other.item_id}"),
        await ask.get(f"/v1/memories/{other.item_id}/history"),
        await ask.post("/v1/recall", json={"query": f"{_WORDS} {other.name}", "k": 100}),
        await ask.post("/v1/recall", params={"user_id": other.name}, json={"query": _WORDS}),
        await ask.post("/v1/context", json={"task": _WORDS, "budget": 50_000}),
        await ask.get("/v1/facts"),
        await ask.get("/v1/chats/talk/messages"),
        await ask.post("/v1/kv/list", json={}),
        await _exported(ask, {}),
        await _exported(ask, {"user_id": other.name}),
        await ask.get("/v1/users"),
        await ask.get("/v1/audit"),
    ]
    assert not any(each.status_code >= 500 for each in answers), answers
    return " ".join(each.text for each in answers)


async def _exported(http: httpx.AsyncClient, asked: dict[str, str]) -> httpx.Response:
    """Return an export, once it is this one's turn: few are made at once."""
    async with asyncio.timeout(HANG):
        while True:
            answer = await http.get("/v1/export", params=asked)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return answer
            await asyncio.sleep(0.05)


async def _cursors(one: Person, _: str, other: Person) -> str:
    """Go on where another's list went on."""
    stolen = await one.http.get("/v1/memories", params={"cursor": other.cursor})
    own = await one.http.get("/v1/memories", params={"cursor": one.cursor})
    assert own.status_code == 200, own.text
    return stolen.text + own.text


async def _mcp(one: Person, url: str, other: Person) -> str:
    async with over_http(f"{url}/mcp", one.key) as client:
        told = [
            await client.call_tool("memory_list", {"limit": 50}),
            await client.call_tool("memory_search", {"query": f"{_WORDS} {other.name}"}),
            await client.call_tool("memory_context", {"task": _WORDS}),
            await client.call_tool("memory_get", {"id": other.item_id}),
        ]
    return repr([(each.content, each.structured_content) for each in told])


async def _dashboard(one: Person, _: str, other: Person) -> str:
    told = ""
    for path in ("/", "/memories", "/facts", "/review", "/data", "/users"):
        for asked in ({}, {"user_id": other.name}, {"q": _WORDS}):
            told += (await one.http.get(path, params=asked, headers={"Accept": "text/html"})).text
    shown = await one.http.get("/memory", params={"id": other.item_id})
    return told + shown.text


DOORS: dict[str, Callable[[Person, str, Person], Awaitable[str]]] = {
    "library": _library,
    "rest": _rest,
    "cursors": _cursors,
    "mcp": _mcp,
    "dashboard": _dashboard,
}


async def _listen(people: Sequence[Person], verdict: Verdict) -> None:
    """Have some of them hear what happens while all of them write."""
    ids: dict[str, str] = {}
    ready: list[asyncio.Event] = []

    async def hear(one: Person, is_ready: asyncio.Event) -> None:
        heard = ""
        async with one.http.stream("GET", "/v1/events", params={"everyone": "true"}) as answer:
            is_ready.set()
            async for line in answer.aiter_lines():
                heard += line
                if one.name in ids and ids[one.name] in line:
                    break
        others = [name for name, item_id in ids.items() if name != one.name and item_id in heard]
        verdict.leaked += [f"events: {one.name!r} heard {name!r}" for name in others]
        verdict.pairs += len(people) - 1

    async with asyncio.TaskGroup() as group:
        for one in people:
            ready.append(asyncio.Event())
            group.create_task(hear(one, ready[-1]))
        await asyncio.gather(*(each.wait() for each in ready))
        written = [
            (one.name, MemoryItem(content="news", metadata=MemoryMetadata(user_id=one.name)))
            for one in people
        ]
        ids.update({name: item.id for name, item in written})
        for (_, item), one in zip(written, people, strict=True):
            await one.handle.remember(item)
