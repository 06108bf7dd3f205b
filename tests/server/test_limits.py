"""How much, how long and how often: what asks for more is refused, and nothing is held up."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from tests.server.conftest import Client, Served, new_key, until
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.server import Settings
from orbiter.memory.server.http import connection_limit
from orbiter.memory.server.http.connection_limit import (
    Acceptor,
    ConnectionLimiter,
    TrackedConnection,
    max_open_connections,
)
from orbiter.memory.server.http.error_responses import HTTPProblem
from orbiter.memory.server.http.limits import RateLimiter

BARE = {"with_mcp": False, "with_dashboard": False}
PATIENT = {**BARE, "patience": HANG, "idle": HANG}
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
    url = await served(idle=0.3, **BARE)
    reader, writer, host = await connect(url)

    for _ in range(3):
        writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        await reader.readuntil(b"}")

    assert await _rest(reader) == b""
    writer.close()


async def test_a_connection_outlives_those_of_proxies_and_of_who_is_slow(served: Served) -> None:
    url = await served(patience=0.2, **BARE)
    reader, writer, host = await connect(url)

    first, _ = await _ask(reader, writer, host)
    await asyncio.sleep(0.5)
    second, _ = await _ask(reader, writer, host)

    assert (first, second) == (200, 200)
    assert Settings().idle > 60, "as long as nginx and most balancers keep one"
    writer.close()


async def test_a_full_server_lets_those_go_who_wait_for_nothing(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, max_connections=4, **PATIENT)
    people = [new_key(keys, user=f"user-{number}") for number in range(6)]

    held = [await _keep_alive(url, key) for key in people]
    oldest, newest = held[0], held[-1]

    assert [status for *_, status, _ in held] == [200] * 6
    assert await _rest(oldest[0]) == b"", "its place was needed"
    assert (await _ask(*newest[:3], people[-1]))[0] == 200
    for _, writer, *_ in held:
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
    writer.write(f"GET /v1/openapi.json HTTP/1.1\r\nHost: {host}\r\nX: {'y' * 70_000}".encode())

    told = await _rest(reader)
    writer.close()

    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"x-content-type-options: nosniff" in told


@pytest.mark.parametrize("begin", ["0\r\nX: {long}", "2;x={long}", "0\r\n{many}"])
async def test_what_stands_around_the_pieces_of_a_body_has_an_end(
    served: Served, begin: str
) -> None:
    url = await served(**BARE)
    reader, writer, host = await connect(url)
    head = HEAD.format(host=host) + "Transfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()
    writer.write(begin.format(long="y" * 200_000, many="X: y\r\n" * 40_000).encode())

    told = await _rest(reader)
    writer.close()

    assert told.startswith(b"HTTP/1.1 400 ")


async def test_headers_that_come_at_once_are_counted_too(served: Served, client: Client) -> None:
    http = client(await served(**BARE))

    many = await http.get(
        "/v1/openapi.json", headers={f"X-{count}": "y" * 90 for count in range(400)}
    )
    one = await http.get("/v1/openapi.json", headers={"X": "y" * 33_000})
    path = await http.get(f"/v1/openapi.json?{'y' * 33_000}")
    fits = await http.get("/v1/openapi.json", headers={"X": "y" * 30_000})

    assert {each.status_code for each in (many, one, path)} <= {431, 400}
    assert 431 in (many.status_code, one.status_code, path.status_code)
    assert fits.status_code == 200


async def test_who_has_shown_no_key_makes_room_for_who_comes(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, max_connections=4, **BARE)
    ann = client(url, new_key(keys, user="ann"))
    assert (await ann.get("/v1/openapi.json")).status_code == 200
    (kept,) = ann._transport._pool.connections  # type: ignore[attr-defined]  # it is used again
    silent = [await connect(url) for _ in range(12)]

    gone = await asyncio.gather(*(_rest(reader) for reader, _, _ in silent[:9]))
    again = await ann.get("/v1/openapi.json")
    bob = await client(url, new_key(keys, user="bob")).get("/v1/openapi.json")

    assert gone == [b""] * 9  # the oldest; the last three have the room that is left
    assert (again.status_code, bob.status_code) == (200, 200)
    assert ann._transport._pool.connections == [kept]  # type: ignore[attr-defined]
    for _, writer, _ in silent:
        writer.close()


async def test_who_is_being_answered_makes_room_for_nobody(served: Served, client: Client) -> None:
    url = await served(max_connections=2, **BARE)
    events = {"user_id": "ann"}
    async with client(url).stream("GET", "/v1/events", params=events) as one:
        async with client(url).stream("GET", "/v1/events", params=events) as other:
            with pytest.raises(httpx.HTTPError):
                await client(url).get("/v1/openapi.json")
            assert (one.status_code, other.status_code) == (200, 200)

        async with asyncio.timeout(HANG):  # until the server has noticed
            while not await _answers(client(url)):
                pass


async def test_one_key_has_a_part_of_all_connections_and_others_get_in(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, max_connections=40, max_connections_per_key=15, **PATIENT)
    greedy = new_key(keys, role="read", user="mallory")
    others = [new_key(keys, user=f"user-{number}") for number in range(10)]

    held = [await _keep_alive(url, greedy) for _ in range(60)]  # more than there are places
    answers = [await client(url, key).get("/v1/openapi.json") for key in others]
    still = [await _ask(*each[:3], greedy) for each in held[:15]]

    statuses = [status for _, _, _, status, _ in held]
    assert statuses == [200] * 15 + [429] * 45
    assert {head.count(b"connection: close") for *_, status, head in held if status == 429} == {1}
    assert [each.status_code for each in answers] == [200] * 10
    assert {status for status, _ in still} == {200}
    for reader, writer, _, status, _ in held:
        assert status == 200 or await reader.read() == b"" or reader.at_eof()
        writer.close()


async def test_a_connection_that_ends_leaves_its_place_to_its_key(
    served: Served, keys: KeyFile
) -> None:
    url = await served(keys=keys, max_connections=20, max_connections_per_key=2, **PATIENT)
    key = new_key(keys, user="ann")
    first = await _keep_alive(url, key)
    second = await _keep_alive(url, key)
    third = await _keep_alive(url, key)

    first[1].close()

    async with asyncio.timeout(60):  # until the server has noticed
        while (fourth := await _keep_alive(url, key))[3] != 200:
            fourth[1].close()
    assert [each[3] for each in (first, second, third)] == [200, 200, 429]
    for each in (second, third, fourth):
        each[1].close()


async def test_a_connection_counts_for_the_key_that_it_showed_last(
    served: Served, keys: KeyFile
) -> None:
    url = await served(keys=keys, max_connections=20, max_connections_per_key=1, **PATIENT)
    ann, bob = new_key(keys, user="ann"), new_key(keys, user="bob")
    reader, writer, host, first, _ = await _keep_alive(url, ann)

    as_bob, _ = await _ask(reader, writer, host, bob)  # as behind a proxy
    other = await _keep_alive(url, ann)
    again = await _keep_alive(url, bob)

    assert (first, as_bob, other[3], again[3]) == (200, 200, 200, 429)
    for each in (writer, other[1], again[1]):
        each.close()


async def test_those_who_come_at_once_need_not_wait_for_a_turn_of_the_loop_each() -> None:
    limiter = ConnectionLimiter(max_total=100)
    acceptor = Acceptor(limiter, _Silent, patience=1.0, tls=None)
    bound = socket.create_server(("127.0.0.1", 0), backlog=100)
    bound.setblocking(False)
    clients = [socket.create_connection(bound.getsockname()) for _ in range(40)]
    taking = asyncio.create_task(acceptor.run(bound))
    for _ in range(12):
        await asyncio.sleep(0)

    assert len(limiter._unauthenticated) == 40

    taking.cancel()
    await asyncio.wait({taking})
    for each in (*clients, bound):
        each.close()


def test_a_key_never_has_more_than_half_of_all_connections() -> None:
    few, one = (
        ConnectionLimiter(max_total=10, max_per_key=400),
        ConnectionLimiter(max_total=1, max_per_key=400),
    )
    connections = [_Silent() for _ in range(12)]

    entered = [few.add(each) and few.authenticate(each, "key") for each in connections[:10]]
    without_keys = ConnectionLimiter(max_total=10, max_per_key=2)
    local = [
        without_keys.add(each) and without_keys.authenticate(each, None)
        for each in connections[:10]
    ]

    assert entered == [True] * 5 + [False] * 5
    assert all(local)
    assert one.add(connections[11])
    assert one.authenticate(connections[11], "key")


class _Silent(TrackedConnection):
    """A connection that goes nowhere."""

    is_idle = False

    def evict(self) -> None:
        """Do nothing."""


async def test_a_refusal_before_a_key_ends_the_connection(
    served: Served, client: Client, keys: KeyFile
) -> None:
    key = new_key(keys, user="ann")
    url = await served(keys=keys, **BARE)
    http = client(url)
    right = {"Authorization": f"Bearer {key}"}

    refused = [
        await http.get("/v1/openapi.json"),
        await http.get("/v1/openapi.json", headers={"Authorization": "Bearer x"}),
        await http.get("/v1/openapi.json", headers=right | {"Host": "evil.com"}),
        await http.get("/v1/openapi.json", headers=right | {"Origin": "http://evil.com"}),
        # Who still sends when the answer is there must be able to read it.
        await http.post("/v1/memories", content=b"x" * 5_000_000),
    ]
    known = [
        await http.get("/v1/openapi.json", headers=right),
        await http.get("/metrics", headers=right),
    ]

    assert [each.status_code for each in refused] == [401, 401, 421, 403, 401]
    assert {each.headers.get("connection") for each in refused} == {"close"}
    assert [each.status_code for each in known] == [200, 403]
    assert [each.headers.get("connection") for each in known] == [None, None]


def test_connections_leave_room_for_the_files_of_the_store() -> None:
    resource = pytest.importorskip("resource")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert max_open_connections(10) == 10
    if soft != resource.RLIM_INFINITY:
        assert max_open_connections(soft) == soft - 128


@pytest.fixture
def tls(tmp_path: Path) -> tuple[dict[str, object], ssl.SSLContext]:
    """Return settings with a certificate, and what trusts it."""
    authority, context = trustme.CA(), ssl.create_default_context()
    made, pem = authority.issue_cert("127.0.0.1"), tmp_path / "server.pem"
    made.private_key_and_cert_chain_pem.write_to_path(pem)
    authority.configure_trust(context)
    return {"tls_cert": str(pem), "tls_key": str(pem), **BARE}, context


async def test_a_handshake_is_waited_for_as_anything_else(
    served: Served, client: Client, tls: tuple[dict[str, object], ssl.SSLContext]
) -> None:
    settings, trusted = tls
    url = await served(patience=0.3, **settings)
    silent = await connect(url)
    plain = await connect(url)
    plain[1].write(b"GET / HTTP/1.1\r\n\r\n")

    told = [await _rest(silent[0]), await _rest(plain[0])]  # without an end, if it were waited for

    assert told[0] == b""
    assert b"HTTP" not in told[1]
    assert (await client(url, verify=trusted).get("/v1/openapi.json")).status_code == 200
    for _, writer, _ in (silent, plain):
        writer.close()


async def test_a_handshake_that_does_not_come_makes_room(
    served: Served, client: Client, tls: tuple[dict[str, object], ssl.SSLContext]
) -> None:
    settings, trusted = tls
    url = await served(max_connections=2, patience=60.0, **settings)
    silent = [await connect(url) for _ in range(6)]

    gone = await asyncio.gather(*(_rest(reader) for reader, _, _ in silent[:4]))
    answer = await client(url, verify=trusted).get("/v1/openapi.json")

    assert gone == [b""] * 4
    assert answer.status_code == 200
    for _, writer, _ in silent:
        writer.close()


async def test_a_system_without_room_is_told_of_now_and_then(
    served: Served,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, failures = asyncio.get_running_loop(), [OSError(errno.EMFILE, "too many")] * 5
    accept = loop.sock_accept

    async def full(bound: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return await accept(bound)

    monkeypatch.setattr(connection_limit, "_PAUSE", 0.0)
    monkeypatch.setattr(loop, "sock_accept", full)
    url = await served(**BARE)

    assert (await client(url).get("/v1/openapi.json")).status_code == 200
    assert not failures
    told = [each for each in caplog.records if "no room" in each.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info is None


async def test_a_key_holds_one_import_and_one_export_at_a_time(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, **BARE)
    ann, bob = (client(url, new_key(keys, user=each)) for each in ("ann", "bob"))
    going, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> AsyncIterator[bytes]:
        yield b"{"
        going.set()
        await go_on.wait()

    first = asyncio.create_task(ann.post("/v1/import", content=held()))
    await going.wait()
    counts = served.app.state.orbiter.link.limits.counts  # type: ignore[attr-defined]
    await until(lambda: counts["transfers"])
    second = await ann.post("/v1/import", content=b"{}")
    out = await ann.get("/v1/export")
    others = await bob.post("/v1/import", content=b"{}")
    go_on.set()
    await first
    after = await ann.post("/v1/import", content=b"{}")

    assert second.status_code == 429
    assert second.headers["retry-after"] == "5"
    assert out.status_code == 200
    assert {others.status_code, after.status_code} <= {200, 422}
    assert not counts["transfers"]


async def test_an_import_that_comes_by_drops_is_ended(served: Served) -> None:
    url = await served(patience=0.3, **BARE)
    reader, writer, host = await connect(url)
    reading = asyncio.ensure_future(_rest(reader))
    writer.write(
        f"POST /v1/import?user_id=ann HTTP/1.1\r\nHost: {host}\r\n"
        "Content-Length: 10000000\r\n\r\n".encode()
    )

    for _ in range(200):  # 5,000 bytes a second
        if reading.done():
            break
        writer.write(b"x" * 250)
        await asyncio.sleep(0.05)
    is_finished = reading.done()
    writer.close()

    assert is_finished
    told = await reading
    assert not told or told.startswith(b"HTTP/1.1 408 ")


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
    assert (await http.get("/v1/openapi.json")).status_code == 200


async def test_who_asks_too_often_waits_and_others_do_not(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, rate=0.5, burst=5, **BARE)
    new_key(keys, user="carl")
    ann, bob = (client(url, new_key(keys, user=each)) for each in ("ann", "bob"))

    found = [await ann.get("/v1/openapi.json") for _ in range(7)]

    assert [each.status_code for each in found] == [200] * 5 + [429] * 2
    assert found[-1].headers["retry-after"] in ("1", "2")
    assert (await bob.get("/v1/openapi.json")).status_code == 200


async def test_each_server_counts_for_itself_and_the_pages_for_operators_say_so(
    served: Served, client: Client, keys: KeyFile
) -> None:
    key = new_key(keys, user="ann")
    urls = [await served(keys=keys, rate=0.1, burst=2, **BARE) for _ in range(2)]

    answers = [await client(url, key).get("/v1/openapi.json") for url in urls for _ in range(3)]

    assert [each.status_code for each in answers] == [200, 200, 429] * 2
    for page in ("operate/settings.md", "operate/workers.md", "cli.md", "server.md"):
        text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
        assert "counts for itself" in text, page


async def test_who_guesses_keys_is_slowed_down_and_owners_of_keys_are_not(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, **BARE)
    ann = client(url, new_key(keys, user="ann"))
    guesser = client(url, f"om_00000000_{'A' * 43}")

    found = {(await guesser.get("/v1/openapi.json")).status_code for _ in range(60)}

    assert found == {401, 429}
    assert (await ann.get("/v1/openapi.json")).status_code == 200


def test_a_bucket_fills_up_again() -> None:
    now = 0.0
    buckets = RateLimiter(rate=2, burst=3, clock=lambda: now)
    for _ in range(3):
        buckets.take("ann")
    with pytest.raises(HTTPProblem) as refused:
        buckets.take("ann")
    assert refused.value.headers == {"Retry-After": "1"}

    now = 0.5
    buckets.take("ann")

    with pytest.raises(HTTPProblem):
        buckets.take("ann")
    now = 1_000.0
    for _ in range(3):
        buckets.take("ann")
    with pytest.raises(HTTPProblem):
        buckets.take("ann")


async def _answers(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/v1/openapi.json")).status_code == 200
    except httpx.HTTPError:
        return False


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


Held = tuple[asyncio.StreamReader, asyncio.StreamWriter, str, int, bytes]


async def _keep_alive(url: str, key: str) -> Held:
    """Open a connection, and ask something with *key* that leaves it open."""
    reader, writer, host = await connect(url)
    status, head = await _ask(reader, writer, host, key)
    return reader, writer, host, status, head


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, key: str = ""
) -> tuple[int, bytes]:
    shown = f"Authorization: Bearer {key}\r\n" if key else ""
    writer.write(f"GET /v1/openapi.json HTTP/1.1\r\nHost: {host}\r\n{shown}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return int(head.split(b" ", 2)[1]), head
