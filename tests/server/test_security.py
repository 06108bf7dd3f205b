"""Who gets in, and what of whose they can reach: attacks that are refused before any handler."""

import asyncio
import base64
import json
import logging
import re
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.server.conftest import Client, Served, new_key
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, Principal
from orbiter.memory.errors import (
    EmbeddingError,
    MemoryError,
    MemoryTimeoutError,
    QueryError,
    StorageError,
    SummaryError,
)
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.wire import OPERATIONS, REST_ONLY

SECRET = "canary-of-ann-7f3a"
BARE = {"with_mcp": False, "with_dashboard": False}
POLICY = {
    "content-security-policy": "default-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def doors(app: Starlette) -> Iterator[tuple[str, str]]:
    """Yield the method and a path of every route there is, mounted ones included."""
    for each in (*OPERATIONS, *REST_ONLY):
        path = "/".join("x" if part.startswith("{") else part for part in each.path.split("/"))
        yield each.verb, f"/v1/{path}"
    yield "GET", "/v1/openapi.json"
    for route in app.routes:
        if isinstance(route, Mount):
            yield "GET", f"{route.path}/app.css"
        elif path := getattr(route, "path", ""):
            filled = "/".join("x" if part.startswith("{") else part for part in path.split("/"))
            for method in route.methods or ():  # type: ignore[attr-defined]  # of a `Route`
                yield method, filled
    yield from (
        ("GET", "/nothing/here"),
        ("GET", "/docs"),
        ("TRACE", "/"),
        ("OPTIONS", "/v1/recall"),
    )


async def test_without_a_key_no_door_opens(served: Served, client: Client, keys: KeyFile) -> None:
    new_key(keys, user="ann")
    url = await served(keys=keys)
    http = client(url)
    probes = {(each, path) for each in ("GET", "HEAD") for path in ("/healthz", "/readyz")}
    tried = set(doors(served.app)) - probes  # type: ignore[attr-defined]

    for method, path in sorted(tried):
        answer = await http.request(method, path)
        assert answer.status_code == 401, (method, path)
        # `Basic` first, and no bare `Bearer`: else Chromium asks nobody for a key.
        asked = 'Basic realm="orbiter-memory", Bearer realm="orbiter-memory"'
        assert answer.headers["www-authenticate"] == asked
        assert all(answer.headers[name].startswith(value) for name, value in POLICY.items())
        assert "set-cookie" not in answer.headers
    for wrong in ("Bearer", "Basic !", "Digest x", "Bearer om_00000000_" + "A" * 43,
                  basic("")["Authorization"], basic("om_x")["Authorization"]):  # fmt: skip
        answer = await http.get("/v1/memories", headers={"Authorization": wrong})
        assert answer.status_code == 401, wrong
    assert {("POST", "/mcp"), ("GET", "/metrics"), ("GET", "/v1/events"), ("POST", "/v1/import"),
            ("GET", "/static/app.css"), ("GET", "/")} <= tried  # fmt: skip
    assert len(tried) > 60


async def test_static_files_are_sent_whole(served: Served, client: Client) -> None:
    http = client(await served())
    many = ",".join(f"{n}-{n}" for n in range(2_000))

    whole = await http.get("/static/app.css")
    for ranges in ("bytes=0-9", f"bytes={many}", "bytes=-1", "lines=1"):
        part = await http.get("/static/app.css", headers={"Range": ranges})
        assert (part.status_code, part.content) == (200, whole.content), ranges[:20]


HOSTS = [
    "evil.com", "evil.com:{port}", "127.0.0.1.evil.com:{port}", "localhost.evil.com:{port}",
    "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}0", "localhost", "localhost:80", "[::1]",
    "127.1:{port}", "0x7f000001:{port}", "2130706433:{port}", "0.0.0.0:{port}", "[::]:{port}",
    "127.0.0.1:{port}@evil.com", "user@127.0.0.1:{port}", "evil.com#127.0.0.1:{port}",
    "127.0.0.1:{port}, evil.com", "127.0.0.1:{port}/", "127.0.0.2:{port}", "localhost.:{port}",
    "127.0.0.1 :{port}", "127.0.0.1:", ":{port}", "", "[::1%25lo]:{port}", "192.168.0.1:{port}",
    "127.0.0.1:{port}\\@evil.com", "１２７.0.0.1:{port}", "metadata.google.internal",
]  # fmt: skip


async def raw(url: str, head: str, body: bytes = b"") -> bytes:
    """Send a request as it is written here; return the whole answer."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    text = head.replace("{port}", str(parts.port)).replace("\n", "\r\n")
    writer.write(text.encode() + b"\r\n\r\n" + body)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_it_answers_to_its_own_names_alone(served: Served, memory: AgentMemory) -> None:
    url = await served(**BARE)
    ask = "POST /v1/memories?user_id=ann HTTP/1.1\n{hosts}\nConnection: close\nContent-Length: 2"

    for host in HOSTS:
        answer = await raw(url, ask.replace("{hosts}", f"Host: {host}"), b"{}")
        assert answer.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 ")), (host, answer)
        assert b"content-security-policy" in answer
    for hosts in (
        "X: y",
        "Host: 127.0.0.1:{port}\nHost: evil.com",
        "Host: evil.com\nHost: localhost:{port}",
    ):
        answer = await raw(url, ask.replace("{hosts}", hosts), b"{}")
        assert answer.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 ")), hosts
    assert (await raw(url, "GET /v1/openapi.json HTTP/1.0")).startswith(b"HTTP/1.1 421 ")
    for host in ("127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"):
        answer = await raw(url, f"GET /v1/openapi.json HTTP/1.1\nHost: {host}\nConnection: close")
        assert answer.startswith(b"HTTP/1.1 200 "), host
    assert (await memory.unscoped().stats()).items == 0


async def test_a_name_that_is_allowed_is_answered_and_no_other(
    served: Served, client: Client, keys: KeyFile
) -> None:
    key = new_key(keys, user="ann")
    names = ("memory.example.com", "other.example:8443")
    url = await served(keys=keys, allowed_hosts=names, **BARE)
    http = client(url, key)

    for host, status in {
        "memory.example.com": 200,
        "Memory.Example.com:8443": 200,
        "other.example:8443": 200,
        "other.example": 421,
        "other.example:80": 421,
        "evil.memory.example.com": 421,
        "memory.example.com.evil": 421,
    }.items():
        assert (await http.get("/v1/openapi.json", headers={"Host": host})).status_code == status, (
            host
        )
    for origin, status in {
        "https://memory.example.com": 200,
        "https://other.example:8443": 200,
        "https://other.example": 403,
    }.items():
        headers = {"Host": "memory.example.com", "Origin": origin}
        assert (await http.get("/v1/openapi.json", headers=headers)).status_code == status, origin


ORIGINS = [
    "null", "http://evil.com", "https://evil.com", "http://127.0.0.1", "http://localhost:1",
    "http://127.0.0.1.evil.com:{port}", "http://evil.com:{port}", "file://", "",
    "chrome-extension://abc", "http://127.0.0.1:{port}/", "http://127.0.0.1:{port}@evil.com",
    "127.0.0.1:{port}", "ftp://127.0.0.1:{port}", "http://127.0.0.1:{port} http://evil.com",
]  # fmt: skip


async def test_pages_of_others_are_refused_whatever_they_send(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    url = await served(**BARE)
    http, port = client(url), str(urlsplit(url).port)
    attacks = [{"Origin": each.replace("{port}", port)} for each in ORIGINS]
    attacks += [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "what")]
    attacks += [
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        for mode, dest in (("navigate", "iframe"), ("no-cors", "image"), ("cors", "empty"))
    ]

    for headers in attacks:
        for method in ("GET", "POST"):
            answer = await http.request(
                method, "/v1/memories?user_id=ann", headers=headers, json={"what": "bad"}
            )
            assert answer.status_code == 403, (method, headers)
            assert "access-control-allow-origin" not in answer.headers
    assert (await memory.unscoped().stats()).items == 0
    for headers in (
        {"Origin": url},
        {"Origin": f"http://localhost:{port}"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
        },
    ):
        assert (await http.get("/v1/openapi.json", headers=headers)).status_code == 200, headers
    visit = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    posted = await http.post("/v1/memories?user_id=ann", headers=visit, json={"what": "bad"})
    assert posted.status_code == 403


async def test_no_preflight_is_answered_and_no_origin_is_named(
    served: Served, client: Client
) -> None:
    http = client(url := await served(**BARE))

    for origin in ("http://evil.com", url):
        answer = await http.options(
            "/v1/memories", headers={"Origin": origin, "Access-Control-Request-Method": "POST"}
        )
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]


def basic(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}


async def test_a_change_from_a_browser_needs_what_the_page_knows(
    served: Served, client: Client, keys: KeyFile
) -> None:
    key, token = keys.create(scope=MemoryMetadata(user_id="ann"), role="write")
    other = new_key(keys, user="bob")
    url = await served(keys=keys, **BARE)
    http, server = client(url), served.app.state.orbiter  # type: ignore[attr-defined]
    right = server.token_for(key.principal())
    wrong = server.token_for(Principal("write", key_id=other[3:11]))

    async def change(path: str, headers: Mapping[str, str]) -> int:
        return (await http.post(path, headers=headers, json={"what": "x"})).status_code

    assert await change("/v1/memories", basic(token)) == 403
    assert await change("/v1/memories", basic(token) | {"X-Orbiter-Token": wrong}) == 403
    assert await change("/v1/memories", basic(token) | {"X-Orbiter-Token": right[:-1]}) == 403
    assert await change("/v1/memories", basic(token) | {"X-Orbiter-Token": right}) == 201
    assert await change("/v1/memories", {"Authorization": f"Bearer {token}"}) == 201
    assert await change("/ui/anything", {"Authorization": f"Bearer {token}"}) == 403
    assert (await http.get("/v1/memories", headers=basic(token))).status_code == 200
    assert right not in {wrong, token}


async def test_a_page_of_one_server_can_be_used_with_another_over_the_same_keys(
    served: Served, client: Client, keys: KeyFile
) -> None:
    token, other = new_key(keys, user="ann"), new_key(keys, user="bob")
    first, second = await served(keys=keys, **BARE), await served(keys=keys, **BARE)
    tokens = []
    for server in (first, second):
        page = await client(await served(keys=keys, with_mcp=False)).get(
            "/data", headers=basic(token) | {"Accept": "text/html"}
        )
        tokens += re.findall(r'name="orbiter-token" content="([^"]+)"', page.text)
        for key, status in ((token, 201), (other, 403)):
            headers = basic(key) | {"X-Orbiter-Token": tokens[-1]}
            answer = await client(server).post("/v1/memories", headers=headers, json={"what": "x"})
            assert answer.status_code == status

    assert tokens[0] == tokens[1]
    assert keys.list()[0].digest.hex() not in tokens


async def test_a_page_of_a_server_without_keys_needs_the_token_too(
    served: Served, client: Client
) -> None:
    http = client(await served(**BARE))

    assert (await http.post("/ui/anything")).status_code == 403
    assert (await http.post("/v1/memories?user_id=a", json={"what": "x"})).status_code == 201


async def test_a_server_without_keys_takes_nothing_from_a_proxy(
    served: Served, client: Client
) -> None:
    http = client(await served(**BARE))

    for name in (
        "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
        "X-Forwarded-Server", "X-Forwarded", "X-Real-IP", "X-Client-IP", "CF-Connecting-IP",
        "True-Client-IP",
    ):  # fmt: skip
        assert (
            await http.get("/v1/openapi.json", headers={name: "10.0.0.1"})
        ).status_code == 403, name


async def test_keys_that_cannot_be_read_open_nothing_and_show_nothing(
    served: Served, client: Client, keys: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_key(keys, user="ann")
    http = client(await served(keys=keys, **BARE))
    right = {"Authorization": f"Bearer {key}"}

    keys.path.chmod(0o644)
    answers = [await http.get("/v1/openapi.json", headers=each) for each in ({}, right, {}, right)]
    keys.path.chmod(0o600)
    keys.path.write_text("{")
    answers += [await http.get("/v1/openapi.json", headers=each) for each in ({}, right)]

    for answer in answers:
        assert answer.status_code == 503
        assert answer.headers["connection"] == "close"
        assert str(keys.path) not in answer.text
        assert "chmod" not in answer.text
    told = [each.getMessage() for each in caplog.records if str(keys.path) in each.getMessage()]
    assert len(told) == 2  # once for each cause, however often somebody asks


@pytest.mark.parametrize(
    "head",
    [
        "Host: {host}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
        "Host: {host}\r\nTransfer-Encoding: chunked\r\nContent-Length: 3",
        "Host: {host}\nX-A: b",
        "Host: {host}\r\nX-A: b\n\r\n",
        "Host: {host}\r\nX-A: b\r\n c",
        "Host: {host}\r\nX-A: b\r\n\tTransfer-Encoding: chunked",
    ],
)
async def test_a_request_that_two_servers_would_read_differently_is_refused(
    served: Served, head: str
) -> None:
    url = await served(**BARE)
    parts = urlsplit(url)
    hidden = "GET /v1/openapi.json HTTP/1.1\r\nHost: {host}\r\n\r\n"
    line = "POST /v1/memories?user_id=ann HTTP/1.1\r\n"
    fine = "GET /v1/openapi.json HTTP/1.1\r\nHost: {host}\r\n\r\n"
    for before in ("", fine):  # also behind a request that is right
        text = f"{before}{line}{head}\r\n\r\n0\r\n\r\n{hidden}"
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(text.replace("{host}", parts.netloc).encode())
        told = await reader.read()
        writer.close()

        assert told.count(b"HTTP/1.1 ") == (2 if before else 1)
        assert told.count(b"HTTP/1.1 200 ") == (1 if before else 0)
        assert b"HTTP/1.1 400 " in told


async def test_a_header_behind_the_body_is_none(
    served: Served, memory: AgentMemory, keys: KeyFile
) -> None:
    key = new_key(keys, user="ann")
    url = await served(keys=keys, **BARE)
    parts = urlsplit(url)
    text = (
        f"POST /v1/memories HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        'b\r\n{"what":"x"\r\n1\r\n}\r\n0\r\nIdempotency-Key: behind\r\n\r\n'
    )
    for _ in range(2):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(text.encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
        writer.close()

    assert (await memory.unscoped().stats()).items == 2


async def test_a_request_for_another_protocol_is_answered_in_this_one(served: Served) -> None:
    url = await served(**BARE)
    for protocol in ("h2c", "websocket"):
        head = (
            "POST /v1/memories?user_id=a HTTP/1.1\nHost: 127.0.0.1:{port}\n"
            f"Connection: Upgrade\nUpgrade: {protocol}\nContent-Type: application/json\n"
            "Content-Length: 12"
        )
        host = urlsplit(url).netloc
        more = f"GET /v1/openapi.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        answer = await raw(url, head, b'{"what":"x"}' + more.encode())

        assert answer.startswith(b"HTTP/1.1 201 ")
        assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 2") == 2


async def test_a_request_of_http_1_0_comes_in_one_piece(served: Served) -> None:
    url = await served(**BARE)
    head = (
        "POST /v1/memories?user_id=a HTTP/1.0\nHost: 127.0.0.1:{port}\nTransfer-Encoding: chunked"
    )

    assert (await raw(url, head, b"0\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_a_slash_that_is_written_as_a_number_is_no_slash(served: Served) -> None:
    url = await served(**BARE)

    for path, status in {
        "/v1%2Fx/memories?user_id=a": b"404",
        "/v1%2fmemories?user_id=a": b"404",
        "/v1%2Fopenapi.json": b"404",
        "/v1/jobs/..%2fx": b"404",
        "/v1/jobs/..%2Fx/events": b"404",
        "/v1/memories?user_id=a": b"200",
    }.items():
        answer = await raw(url, f"GET {path} HTTP/1.1\nHost: 127.0.0.1:{{port}}\nConnection: close")
        assert answer.startswith(b"HTTP/1.1 " + status), path


async def test_a_version_that_is_not_there_any_more_is_named_rightly(
    served: Served, client: Client
) -> None:
    http = client(await served(**BARE))
    made = (await http.post("/v1/memories?user_id=a", json={"what": "x"})).json()["id"]

    answer = await http.patch(
        f"/v1/memories/{made}?user_id=a", json={"content": "y"}, headers={"If-Match": '"7"'}
    )

    assert answer.status_code == answer.json()["status"] == 412
    assert answer.json()["title"] == "Precondition Failed"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.invalid"])
async def test_without_keys_no_other_computer_is_served(
    host: str, memory: AgentMemory, keys: KeyFile
) -> None:
    settings = Settings(host=host, port=0, **BARE)  # type: ignore[arg-type]

    with pytest.raises(QueryError, match=r"no keys; make one with `orbiter-memory keys|no address"):
        async with serving(create_app(memory, settings=settings, keys=keys), settings=settings):
            pass


async def test_a_name_that_means_another_computer_is_refused_without_keys(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_: object, **__: object) -> list[object]:
        one = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
        return [one, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    settings = Settings(host="looks.harmless", port=0, **BARE)  # type: ignore[arg-type]

    with pytest.raises(QueryError, match="can be reached from other computers"):
        async with serving(create_app(memory, settings=settings), settings=settings):
            pass


@pytest.mark.parametrize("name", ["memory.example.com", "Memory.example.com:443", "10.1.2.3"])
async def test_a_public_name_is_refused_without_keys(
    memory: AgentMemory, served: Served, keys: KeyFile, name: str
) -> None:
    # Who reaches it by that name comes through a proxy, and looks like this computer.
    settings = Settings(port=0, allowed_hosts=("localhost", name), **BARE)  # type: ignore[arg-type]

    with pytest.raises(QueryError, match=f"`{name}`.*keys create"):
        async with serving(create_app(memory, settings=settings), settings=settings):
            pass

    new_key(keys, user="ann")
    assert await served(keys=keys, allowed_hosts=("localhost", name), **BARE)


async def test_other_names_of_this_computer_need_no_keys(served: Served) -> None:
    names = ("127.0.0.1:9000", "localhost:9000", "[::1]:9000", "[::1]", "app.localhost")

    assert await served(allowed_hosts=names, **BARE)


async def test_with_keys_every_address_is_served_and_the_last_revoked_key_opens_nothing(
    served: Served, client: Client, keys: KeyFile
) -> None:
    key, token = keys.create(scope=MemoryMetadata(user_id="ann"), role="read")
    http = client(await served(keys=keys, host="0.0.0.0", **BARE), token)
    assert (await http.get("/v1/openapi.json")).status_code == 200

    keys.revoke(key.id)

    assert (await http.get("/v1/openapi.json")).status_code == 401
    assert (await http.get("/v1/openapi.json", headers={"Authorization": ""})).status_code == 401


@pytest.fixture
async def tenants(
    served: Served, client: Client, keys: KeyFile
) -> tuple[httpx.AsyncClient, httpx.AsyncClient, str]:
    """Return clients of ann and bob, and the id of a memory of ann's that holds the canary."""
    url = await served(keys=keys, with_dashboard=False)
    ann, bob = (client(url, new_key(keys, user=each)) for each in ("ann", "bob"))
    made = await ann.post("/v1/memories", json={"what": f"ann knows {SECRET}", "tags": [SECRET]})
    await ann.put("/v1/facts/home", json={"value": SECRET})
    await ann.post(f"/v1/chats/{SECRET}/messages", json={"what": f"{SECRET} said"})
    return ann, bob, made.json()["id"]


WHOSE = {"everyone": "true", "by": "ann"}


async def test_a_request_never_reaches_past_its_key(
    tenants: tuple[httpx.AsyncClient, httpx.AsyncClient, str], memory: AgentMemory
) -> None:
    _, bob, _ = tenants
    before = (await memory.scope(user_id="ann").stats()).items

    found = [
        await bob.get("/v1/memories", params=WHOSE),
        await bob.get("/v1/memories", headers={"X-User-Id": "ann", "user_id": "ann"}),
        await bob.post("/v1/recall", params=WHOSE, json={"query": SECRET}),
        await bob.post("/v1/recall", json={"query": "knows", "where": {"user_id": "ann"}}),
        await bob.get("/v1/stats", params=WHOSE),
        await bob.get("/v1/facts", params=WHOSE),
        await bob.get("/v1/chats", params=WHOSE),
        await bob.get("/v1/export", params=WHOSE),
        await bob.post("/v1/context", params=WHOSE, json={"task": f"what is {SECRET}"}),
    ]
    made = await bob.post("/v1/memories", params=WHOSE, json={"what": "bob was here"})
    item = {"memory_type": "item", "content": "mine", "metadata": {"user_id": "ann"}}
    forged = await bob.post("/v1/memories", json={"what": item})

    asked = json.dumps([SECRET, f"what is {SECRET}"])
    for answer in found:
        assert answer.status_code in (200, 403, 422), answer.text
        assert SECRET not in answer.text.replace(f"what is {SECRET}", ""), asked
    assert made.status_code == 201
    assert made.json()["metadata"]["user_id"] == "bob"
    assert forged.status_code in (403, 422) or forged.json()["metadata"]["user_id"] == "bob"
    assert (await memory.scope(user_id="ann").stats()).items == before


async def test_what_is_anothers_is_not_there_at_all(
    tenants: tuple[httpx.AsyncClient, httpx.AsyncClient, str], memory: AgentMemory
) -> None:
    ann, bob, item_id = tenants
    before = (await ann.get("/v1/export")).text
    missing = "01a1e10f8ce6700096f24aa2659cd480"

    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"content": "taken"}),
        ("DELETE", "", None),
        ("POST", "/restore", {}),
        ("GET", "/history", None),
    ):
        answers = [
            await bob.request(method, f"/v1/memories/{each}{path}", json=body, params=WHOSE)
            for each in (item_id, missing)
        ]
        there, not_there = ((each.status_code, each.text) for each in answers)
        assert there == (not_there[0], not_there[1].replace(missing, item_id)), (method, path)
        assert there[0] in (404, 200)  # an empty history is one
        assert SECRET not in there[1]
    after = (await ann.get("/v1/export")).text
    lines, now = (
        [json.loads(line) for line in text.splitlines()[1:-1]] for text in (before, after)
    )
    assert lines == now


async def test_nothing_of_one_tenant_reaches_another_by_any_way(
    tenants: tuple[httpx.AsyncClient, httpx.AsyncClient, str],
    client: Client,
    keys: KeyFile,
    served: Served,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ann, bob, item_id = tenants
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    listening = asyncio.Event()

    async def listen() -> None:
        async with bob.stream("GET", "/v1/events", params=WHOSE) as answer:
            listening.set()
            async for line in answer.aiter_lines():
                told.append(line)
                if "remembered" in line and line.startswith("data"):
                    return

    task = asyncio.create_task(listen())
    await listening.wait()
    await ann.post("/v1/memories", json={"what": f"again {SECRET}"})
    await ann.get(f"/v1/memories/{SECRET}")
    for method, path in sorted(set(doors(served.app))):  # type: ignore[attr-defined]
        if path not in ("/v1/events", "/metrics"):
            answer = await bob.request(method, path.replace("/x", f"/{item_id}"), params=WHOSE)
            told += [answer.text, str(answer.headers)]
    await bob.post("/v1/memories", json={"what": "the end"})
    await asyncio.wait_for(task, HANG)
    admin = client(str(bob.base_url), new_key(keys, "admin"))
    metrics = (await admin.get("/metrics")).text

    assert SECRET not in "\n".join(told)
    for hidden in (SECRET, item_id, "ann", "bob"):
        assert hidden not in metrics
    assert 'route="/v1/memories/{item_id}"' in metrics
    ours = [each for each in caplog.records if not each.name.startswith(("httpx", "httpcore"))]
    assert SECRET not in "\n".join(each.getMessage() for each in ours)


async def test_no_key_and_no_content_is_ever_logged(
    served: Served,
    client: Client,
    keys: KeyFile,
    memory: AgentMemory,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG, logger="orbiter")
    caplog.set_level(logging.DEBUG, logger="uvicorn")
    token = new_key(keys, user="ann")
    http = client(await served(keys=keys, with_log=True, **BARE), token)

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"a driver says {SECRET}")

    await http.post("/v1/memories", json={"what": SECRET})
    await http.get("/v1/memories", params={"query": SECRET, "user_id": SECRET})
    await http.get("/v1/openapi.json", headers={"Authorization": f"Bearer {token[:-1]}"})
    monkeypatch.setattr(memory.store, "get", broken)
    answer = await http.get(f"/v1/memories/{SECRET}")

    assert answer.status_code == 500
    assert SECRET not in answer.text
    assert "RuntimeError at test_security.py" in caplog.text
    assert "GET /v1/memories/{item_id} 500" in caplog.text
    for hidden in (SECRET, token, token[:-1], token[12:]):
        assert hidden not in caplog.text
    assert token not in repr(served.app.state.orbiter)  # type: ignore[attr-defined]


def _storage_error(reason: str, cause: Exception | None = None) -> MemoryError:
    error = StorageError(f"`/srv/a.db`: {reason}")
    error.__cause__ = cause
    return error


_ROW = _storage_error(f"row `{SECRET}` cannot be read: {SECRET}", ValueError(SECRET))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (_storage_error("the disk is full (database or disk is full)"), "the disk is full (data"),
        (_storage_error(f'fts5: syntax error near "{SECRET}"'), "`/srv/a.db`: fts5: syntax error"),
        (_storage_error(f'invalid input: "he said "{SECRET}""'), "`/srv/a.db`: invalid input"),
        (_storage_error(f"argument $1: b'{SECRET}'"), "argument $1"),
        (_storage_error(f"the store's row\n{SECRET}"), "the store's row"),
        (_storage_error(f"ERR unknown, with args beginning with: `{SECRET}`"), "ERR unknown"),
        (_ROW, ""),
        (_storage_error(f"row {SECRET}", _ROW), ""),
        (MemoryTimeoutError("`/srv/a.db` was locked"), "`/srv/a.db` was locked"),
        (EmbeddingError(f"the provider refused {SECRET}"), ""),
        (SummaryError(SECRET, TypeError(SECRET)), ""),
        (KeyError(SECRET), ""),
    ],
)
async def test_a_failure_is_logged_with_its_reason_and_no_word_of_anybody(
    served: Served,
    client: Client,
    keys: KeyFile,
    memory: AgentMemory,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: str,
) -> None:
    caplog.set_level(logging.DEBUG, logger="orbiter")
    http = client(await served(keys=keys, with_log=True, **BARE), new_key(keys, "admin"))

    async def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(memory.store, "get", broken)
    answer = await http.get(
        f"/v1/memories/{SECRET}", params={"user_id": "ann"}, headers={"X-Request-ID": "r-9"}
    )

    assert answer.status_code >= 500
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert f"{type(error).__name__} at test_security.py" in line
    assert reason in line
    assert line.endswith(" request=r-9")
    assert SECRET not in caplog.text


async def test_a_role_does_what_it_may_and_no_more(
    served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys, **BARE)
    reader, writer = (client(url, new_key(keys, each, "ann")) for each in ("read", "write"))
    bound, admin = client(url, new_key(keys, "admin", "ann")), client(url, new_key(keys, "admin"))

    async def statuses(method: str, path: str, **more: object) -> list[int]:
        clients = (reader, writer, bound, admin)
        return [(await each.request(method, path, **more)).status_code for each in clients]  # type: ignore[arg-type]

    named = {"params": {"user_id": "ann"}}
    assert await statuses("GET", "/v1/memories", **named) == [200] * 4
    made = await statuses("POST", "/v1/memories", json={"what": "x"}, **named)
    assert made == [403, 201, 201, 201]
    assert await statuses("GET", "/metrics") == [403, 403, 403, 200]
    assert await statuses("GET", "/v1/store/stats") == [403, 403, 403, 200]
    assert await statuses("GET", "/v1/users") == [403, 403, 403, 200]
    everyone = {"everyone": "true"}
    answers = [await each.get("/v1/memories", params=everyone) for each in (bound, admin)]
    found = [each.json()["items"] for each in answers]
    assert [len(each) for each in found] == [3, 3]
    assert (await admin.get("/v1/memories")).status_code == 422


async def test_a_request_for_another_than_its_key_is_for_is_refused_at_every_door(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory
) -> None:
    await memory.scope("bob").remember(SECRET)
    url = await served(keys=keys, rate=10_000, burst=10_000)
    ann = client(url, new_key(keys, "admin", "ann"))
    before = await memory.unscoped().list()

    for method, path in doors(served.app):  # type: ignore[attr-defined]
        for other in ("bob", "nobody"):
            answer = await ann.request(method, f"{path}?user_id=ann&user_id={other}")
            if method == "HEAD" or path in ("/healthz", "/readyz"):
                assert SECRET not in answer.text
                continue
            assert answer.status_code == 403, (method, path, answer.text)
            if "X-Orbiter-Token" in answer.text:  # which changes of a page need before all else
                continue
            assert answer.json()["detail"] == (
                f"this key is for user_id `ann`, not `{other}`; leave `user_id` out, or use a key "
                f"for `{other}`"
            )
    assert await memory.unscoped().list() == before


async def test_what_a_key_names_may_be_named_again_or_left_open(
    served: Served, client: Client, keys: KeyFile
) -> None:
    scope = MemoryMetadata(user_id="ann", agent_id="cook")
    http = client(await served(keys=keys, **BARE), keys.create(scope=scope, role="write")[1])

    for params, status in (
        ({"user_id": "ann"}, 200),
        ({"user_id": "ann", "agent_id": "cook"}, 200),
        ({"session_id": "s"}, 200),
        ({"user_id": "~default"}, 200),  # as a program says it that names no user
        ({"everyone": "true"}, 200),  # everything that the key opens
        ({"agent_id": "coder"}, 403),
        ({"user_id": "Ann"}, 403),
        ({"user_id": "ann", "agent_id": "coder"}, 403),
    ):
        answer = await http.get("/v1/memories", params=params)
        assert answer.status_code == status, (params, answer.text)


async def test_a_key_of_one_user_counts_no_other(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory
) -> None:
    await memory.scope("ann").remember("tea", tags=["hers"])
    await memory.scope("bob").remember("jam", tags=["his"])
    url = await served(keys=keys, **BARE)
    bound, admin = client(url, new_key(keys, "admin", "ann")), client(url, new_key(keys, "admin"))

    for field, hers in (("tags", "hers"), ("user_id", "ann")):
        for params in ({}, {"user_id": "ann"}, {"everyone": "true"}):
            answer = await bound.post("/v1/counts", params=params, json={"field": field})
            assert answer.json() == {"counts": [{"value": hers, "items": 1}]}, params
    everyone = await admin.post("/v1/counts", params={"everyone": "true"}, json={"field": "tags"})
    assert [each["value"] for each in everyone.json()["counts"]] == ["hers", "his"]
    users = (await admin.get("/v1/users", params={"limit": 1})).json()
    assert [each["user_id"] for each in users["users"]] == ["ann"]
    assert "ann" in users["next"]


async def test_a_read_only_server_changes_nothing(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    http = client(await served(read_only=True, **BARE))
    named = {"user_id": "ann"}

    for path, body in (("memories", {"what": "x"}), ("forget", {"everything": True})):
        assert (await http.post(f"/v1/{path}", params=named, json=body)).status_code == 403
    assert (await http.post("/v1/import", params=named, content=b"{}")).status_code == 403
    assert (await http.get("/v1/memories", params=named)).status_code == 200
    assert (await memory.unscoped().stats()).items == 0


async def test_a_websocket_is_refused(served: Served) -> None:
    url = await served(**BARE)
    answer = await raw(
        url,
        "GET /v1/events?user_id=a HTTP/1.1\nHost: evil.com\nConnection: Upgrade\n"
        "Upgrade: websocket\nSec-WebSocket-Version: 13\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\nConnection: close",
    )
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await served.app({"type": "websocket", "headers": []}, None, send)  # type: ignore[attr-defined]

    assert answer.startswith(b"HTTP/1.1 421 ")
    assert sent == [{"type": "websocket.close", "code": 1008}]
