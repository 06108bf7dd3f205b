"""`HttpReranker` against a real HTTP server, well-behaved and not."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.listening import listening

from orbiter.memory.errors import (
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
    RerankError,
)
from orbiter.memory.rerankers import HttpReranker

DROP, HANG, DRIP = "drop", "hang", "drip"
SOON = {"retry-after-ms": "1"}


class RerankServer:
    """Scores a text by its length over 100, unless `script` has something else for a request."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self.answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has hung up
        finally:
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        headers = {name.lower(): value for name, value in headers.items()}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append(body)
        self.headers.append(headers)
        step = self.script.pop(0) if self.script else (200, {}, scored(body))
        if step == DROP:
            return False
        if step == HANG:
            await reader.read()
            return False
        if step == DRIP:
            writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        status, extra, content = step
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        extra = {"content-type": "application/json", "content-length": str(len(data)), **extra}
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in extra.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await writer.drain()
        return headers.get("connection") != "close"


def scored(body: dict[str, Any]) -> Any:
    """Answer as Cohere or as TEI does: best first."""
    texts = body["documents"] if "documents" in body else body["texts"]
    pairs = sorted(((len(text) / 100, at) for at, text in enumerate(texts)), reverse=True)
    if "documents" in body:
        rows = [{"index": at, "relevance_score": score} for score, at in pairs[: body["top_n"]]]
        return {"id": "1", "results": rows, "meta": {}}
    return [{"index": at, "score": score} for score, at in pairs]


@pytest.fixture
async def server() -> AsyncIterator[RerankServer]:
    service = RerankServer()
    async with listening(service.serve) as url:
        service.url = f"{url}/rerank"
        yield service


async def test_with_a_model_it_asks_as_cohere_and_jina_want_it(server: RerankServer) -> None:
    reranker = HttpReranker(server.url, model="tiny", api_key="s3cret")

    assert await reranker.rerank("Who?", ["a", "abc", "ab"]) == [0.01, 0.03, 0.02]
    assert server.requests == [
        {"model": "tiny", "query": "Who?", "documents": ["a", "abc", "ab"], "top_n": 3}
    ]
    assert server.headers[0]["authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(reranker)


async def test_without_a_model_it_asks_as_tei_wants_it(server: RerankServer) -> None:
    assert await HttpReranker(server.url).rerank("Who?", ["a", "abc"]) == [0.01, 0.03]
    assert server.requests == [{"query": "Who?", "texts": ["a", "abc"], "truncate": True}]
    assert "authorization" not in server.headers[0]
    assert await HttpReranker(server.url).rerank("Who?", []) == []
    assert len(server.requests) == 1


async def test_many_texts_go_in_batches_and_come_back_in_order(server: RerankServer) -> None:
    texts = ["x" * number for number in range(1, 51)]

    scores = await HttpReranker(server.url).rerank("Who?", texts)

    assert scores == [number / 100 for number in range(1, 51)]
    assert sorted(len(request["texts"]) for request in server.requests) == [18, 32]


async def test_what_cannot_be_sent_is_replaced(server: RerankServer) -> None:
    await HttpReranker(server.url).rerank("\ud800", ["", "\ud800"])

    assert server.requests[0]["query"] == "?"
    assert server.requests[0]["texts"] == [" ", "?"]


@pytest.mark.parametrize(
    "step", [DROP, (503, SOON, {}), (429, SOON, {}), (500, SOON, b"no JSON"), (408, SOON, {})]
)
async def test_a_server_that_fails_is_asked_again(server: RerankServer, step: Any) -> None:
    server.script = [step, step]

    assert await HttpReranker(server.url).rerank("Who?", ["a"]) == [0.01]
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("step", "error", "told"),
    [
        ((401, {}, {"key": "s3cret"}), MemoryConnectionError, r"refused the key \(401\)"),
        ((404, {}, {}), MemoryConnectionError, r"not found \(404\); check `url` and `model`"),
        ((302, {"location": "/x"}, {}), MemoryConnectionError, "302, which leads elsewhere"),
        ((422, {}, {"detail": "no model"}), RerankError, r"refused the texts \(422\).*no model"),
        ((200, {}, b"<html>"), RerankError, "not JSON; check `url`"),
        ((200, {}, {"results": "none"}), RerankError, "answered 1 texts with 0 usable scores"),
        ((200, {}, [{"index": 0, "score": "high"}]), RerankError, "0 usable scores"),
        ((200, {}, [{"index": True, "score": 0.5}]), RerankError, "0 usable scores"),
        ((200, {}, b'[{"index": 0, "score": NaN}]'), RerankError, "0 usable scores"),
        ((200, {}, [{"index": 7, "score": 0.5}]), RerankError, "usable scores"),
        ((200, {}, [1, {"index": 0, "score": 10**400}]), RerankError, "0 usable scores"),
    ],
)
async def test_what_no_other_try_would_change_is_told_at_once(
    server: RerankServer, step: Any, error: type[Exception], told: str
) -> None:
    server.script = [step]

    with pytest.raises(error, match=told) as caught:
        await HttpReranker(server.url, api_key="s3cret").rerank("Who?", ["a"])

    assert "s3cret" not in str(caught.value)
    assert len(server.requests) == 1


async def test_a_server_that_stays_full_is_told_of(server: RerankServer) -> None:
    server.script = [(429, SOON, {})] * 3

    with pytest.raises(MemoryConnectionError, match="too many requests"):
        await HttpReranker(server.url).rerank("Who?", ["a"])


@pytest.mark.parametrize("step", [HANG, DRIP])
async def test_a_server_that_does_not_answer_keeps_nobody_waiting(
    server: RerankServer, step: str
) -> None:
    server.script = [step] * 3
    reranker = HttpReranker(server.url, timeout=0.1, max_retries=0)

    with pytest.raises(MemoryTimeoutError, match=r"no answer in time \(0.1 s a try"):
        await reranker.rerank("Who?", ["a"])


async def test_a_server_that_is_not_there_is_told_of() -> None:
    reranker = HttpReranker("http://user:s3cret@127.0.0.1:9/rerank?key=s3cret", max_retries=0)

    with pytest.raises(MemoryConnectionError, match="cannot reach http://127.0.0.1:9/rerank") as e:
        await reranker.rerank("Who?", ["a"])

    assert "s3cret" not in str(e.value)


async def test_connections_are_kept_within_a_block(server: RerankServer) -> None:
    async with HttpReranker(server.url) as reranker:
        for _ in range(3):
            await reranker.rerank("Who?", ["a"])
    assert server.connections == 1

    await reranker.rerank("Who?", ["a"])
    await reranker.rerank("Who?", ["a"])
    assert server.connections == 3
    await reranker.aclose()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"url": "localhost/rerank"}, "`url` must begin with `http://`"),
        ({"timeout": 0}, "`timeout` must be greater than 0 seconds"),
        ({"deadline": -1}, "`deadline` must be greater than 0 seconds"),
        ({"batch_size": 0}, "`batch_size` must be 1 or more"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(QueryError, match=told):
        HttpReranker(**{"url": "http://127.0.0.1:1", **settings})
