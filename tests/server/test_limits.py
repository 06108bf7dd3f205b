"""How much, how long and how often: what asks for more is refused, and nothing is held up."""

import asyncio
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key, until

from orbiter.memory import AgentMemory
from orbiter.memory.keys import KeyFile
from orbiter.memory.server._problems import Refused
from orbiter.memory.server._rates import Buckets

BARE = {"with_mcp": False, "with_dashboard": False}
HEAD = (
    "POST /v1/memories?user_id=ann HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
)


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    return reader, writer, parts.netloc


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    url = await served(max_body=1_000, **BARE)
    http = client(url)
    reader, writer, host = await connect(url)
    writer.write((HEAD.format(host=host) + "Content-Length: 1001\r\n\r\n").encode())

    told = await reader.readuntil(b"}")  # without a byte of the body being sent
    writer.close()
    fits = await http.post("/v1/memories?user_id=ann", json={"what": "x" * 900})

    assert told.startswith(b"HTTP/1.1 413 ")
    assert b"content-security-policy" in told
    assert fits.status_code == 201
    assert (await memory.unscoped().stats()).items == 1


async def test_a_body_that_does_not_say_its_size_is_counted(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    http = client(await served(max_body=1_000, **BARE))

    async def long() -> AsyncIterator[bytes]:
        yield b'{"what": "'
        for _ in range(100):
            yield b"x" * 100

    answer = await http.post("/v1/memories?user_id=ann", content=long())

    assert answer.status_code == 413
    assert answer.json()["title"] == "Too Large"
    assert (await memory.unscoped().stats()).items == 0


@pytest.mark.parametrize("length", ["-1", "1e3", "99999999999999999999999", "0x10", "1, 2"])
async def test_a_size_that_is_none_is_refused(served: Served, length: str) -> None:
    url = await served(patience=0.2, **BARE)
    reader, writer, host = await connect(url)
    writer.write((HEAD.format(host=host) + f"Content-Length: {length}\r\n\r\n{{}}").encode())

    told = await _rest(reader)
    writer.close()

    assert told.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))


async def test_a_client_that_stops_in_the_middle_is_not_waited_for(served: Served) -> None:
    url = await served(patience=0.2, **BARE)
    told = []
    for begin in ("", "GET /heal", HEAD, HEAD + "X-A: b\r\n"):
        reader, writer, host = await connect(url)
        writer.write(begin.replace("{host}", host).encode())
        told.append(await _rest(reader))
        writer.close()
    reader, writer, host = await connect(url)
    writer.write((HEAD.format(host=host) + 'Content-Length: 50\r\n\r\n{"what"').encode())
    slow = await _rest(reader)
    writer.close()

    assert told == [b""] * 4
    assert slow.startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(served: Served) -> None:
    url = await served(patience=0.3, **BARE)
    reader, writer, host = await connect(url)
    reading = asyncio.ensure_future(_rest(reader))
    text = (HEAD.format(host=host) + "X-Slow: " + "y" * 10_000).encode()

    for byte in text:
        if reading.done():
            break
        writer.write(bytes([byte]))
        await asyncio.sleep(0.02)
    writer.close()

    assert await reading == b""


async def test_a_connection_is_used_again_and_let_go_when_it_idles(served: Served) -> None:
    url = await served(patience=0.3, **BARE)
    reader, writer, host = await connect(url)

    for _ in range(3):
        writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        await reader.readuntil(b"}")

    assert await _rest(reader) == b""
    writer.close()


async def test_a_client_that_does_not_read_is_cut_off(served: Served) -> None:
    plain = AgentMemory("memory://", embeddings=None)
    url = await served(memory=plain, patience=0.3, **BARE)
    await plain.scope(user_id="ann").remember_many(["x" * 500_000] * 16)
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    ask = f"GET /v1/memories?user_id=ann HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        taken.setblocking(False)
        await loop.sock_connect(taken, (parts.hostname, parts.port))
        await loop.sock_sendall(taken, ask.encode())
        # A reset shows here once the server has given up, and nobody has read a byte.
        await until(lambda: taken.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


async def test_headers_without_end_are_refused(served: Served) -> None:
    url = await served(**BARE)
    reader, writer, host = await connect(url)
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nX: {'y' * 70_000}".encode())

    told = await _rest(reader)
    writer.close()

    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"x-content-type-options: nosniff" in told


async def test_more_connections_than_allowed_are_not_taken(served: Served, client: Client) -> None:
    url = await served(max_connections=3, **BARE)
    held = [await connect(url) for _ in range(3)]
    await asyncio.sleep(0.05)

    with pytest.raises(httpx.HTTPError):
        await client(url).get("/healthz")
    for _, writer, _ in held:
        writer.close()
        await writer.wait_closed()

    async with asyncio.timeout(60):  # until the server has noticed
        while not await _answers(client(url)):
            pass


async def test_what_takes_too_long_is_ended(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client(await served(timeout=0.2, **BARE))
    ended = asyncio.Event()

    async def endless(*_: object, **__: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(memory.store, "get", endless)
    answer = await http.get("/v1/memories/x?user_id=ann")
    await ended.wait()

    assert answer.status_code == 504
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_store_that_does_not_answer_is_not_ready_but_the_server_lives(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client(await served(**BARE))
    assert (await http.get("/readyz")).json() == {"status": "ready"}

    async def gone(*_: object, **__: object) -> None:
        raise ConnectionError("secret address")

    monkeypatch.setattr(memory.store, "get", gone)
    answer = await http.get("/readyz")

    assert answer.status_code == 503
    assert "secret" not in answer.text
    assert (await http.get("/healthz")).status_code == 200


async def test_who_asks_too_often_waits_and_others_do_not(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, rate=0.5, burst=5, **BARE)
    new_key(keys, user="carl")
    ann, bob = (client(url, new_key(keys, user=each)) for each in ("ann", "bob"))

    found = [await ann.get("/healthz") for _ in range(7)]

    assert [each.status_code for each in found] == [200] * 5 + [429] * 2
    assert found[-1].headers["retry-after"] in ("1", "2")
    assert (await bob.get("/healthz")).status_code == 200


async def test_who_guesses_keys_is_slowed_down_and_owners_of_keys_are_not(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, **BARE)
    ann = client(url, new_key(keys, user="ann"))
    guesser = client(url, f"om_00000000_{'A' * 43}")

    found = {(await guesser.get("/healthz")).status_code for _ in range(60)}

    assert found == {401, 429}
    assert (await ann.get("/healthz")).status_code == 200


def test_a_bucket_fills_up_again() -> None:
    now = 0.0
    buckets = Buckets(rate=2, burst=3, clock=lambda: now)
    for _ in range(3):
        buckets.take("ann")
    with pytest.raises(Refused) as refused:
        buckets.take("ann")
    assert refused.value.headers == {"Retry-After": "1"}

    now = 0.5
    buckets.take("ann")

    with pytest.raises(Refused):
        buckets.take("ann")
    now = 1_000.0
    for _ in range(3):
        buckets.take("ann")
    with pytest.raises(Refused):
        buckets.take("ann")


async def _answers(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/healthz")).status_code == 200
    except httpx.HTTPError:
        return False


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
