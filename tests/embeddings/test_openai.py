"""`OpenAIEmbeddings` against a real HTTP server, well-behaved and not."""

import asyncio
import math
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.embeddings._server import (
    DRIP,
    DROP,
    HANG,
    Answer,
    Change,
    EmbeddingServer,
    packed,
    vector,
)
from tests.listening import listening
from tests.rows import each_row
from tests.timing import scaled

from orbiter.memory import OpenAIEmbeddings
from orbiter.memory.embeddings.responses import MAX_BATCH_BYTES, batches, retry_after
from orbiter.memory.errors import EmbeddingError, MemoryConnectionError, MemoryTimeoutError

Make = Callable[..., OpenAIEmbeddings]
SOON = {"retry-after-ms": "1"}


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    service = EmbeddingServer()
    async with listening(service.serve) as url:
        service.url = f"{url}/v1"
        yield service


@pytest.fixture
def make(server: EmbeddingServer) -> Make:
    def embeddings(**settings: Any) -> OpenAIEmbeddings:
        settings = {"base_url": server.url, "model": "tiny", "dimension": 4, **settings}
        return OpenAIEmbeddings(**settings)

    return embeddings


@pytest.fixture
def threaded() -> Iterator[EmbeddingServer]:
    """A server on a thread of its own, for callers that block."""
    service = EmbeddingServer()
    ready, loops = threading.Event(), []
    stop = asyncio.Event()

    async def listen() -> None:
        async with listening(service.serve) as url:
            service.url = f"{url}/v1"
            loops.append(asyncio.get_running_loop())
            ready.set()
            await stop.wait()
            await service.idle.wait()

    thread = threading.Thread(target=asyncio.run, args=(listen(),))
    thread.start()
    ready.wait(10)
    yield service
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(10)


async def test_each_text_gets_its_vector(server: EmbeddingServer, make: Make) -> None:
    embeddings = make(api_key="sk-secret")

    assert await embeddings.aembed("door") == vector("door", 4)
    assert await embeddings.aembed_many(["a", "b"]) == [vector("a", 4), vector("b", 4)]
    assert await embeddings.aembed_many([]) == []
    assert server.requests[0] == {"model": "tiny", "input": ["door"], "encoding_format": "base64"}
    assert server.keys == ["bearer sk-secret"] * 2
    assert (embeddings.name, embeddings.dimension) == ("tiny", 4)


async def test_a_server_that_only_sends_numbers_serves_as_well(
    server: EmbeddingServer, make: Make
) -> None:
    server.speaks_base64 = False

    assert await make().aembed("door") == vector("door", 4)


async def test_numbers_come_back_in_the_precision_of_float32(
    server: EmbeddingServer, make: Make
) -> None:
    numbers = [0.1, 0.2, 0.3, 0.4]
    server.script = [lambda data: [{**data[0], "embedding": numbers}], lambda data: data]
    server.script[1] = lambda data: [{**data[0], "embedding": packed(numbers)}]

    first, second = await make().aembed("x"), await make().aembed("x")

    assert first == second
    assert first[0] != 0.1
    assert first == pytest.approx(numbers)


async def test_many_texts_go_in_batches_and_come_back_in_order(
    server: EmbeddingServer, make: Make
) -> None:
    texts = [f"text {number}" for number in range(23)]

    found = await make(batch_size=5).aembed_many(texts)

    assert found == [vector(text, 4) for text in texts]
    assert sorted(len(request["input"]) for request in server.requests) == [3, 5, 5, 5, 5]


async def test_only_so_many_requests_are_made_at_once(server: EmbeddingServer, make: Make) -> None:
    server.pause = 0.02

    await make(batch_size=1, max_concurrency=3).aembed_many([str(n) for n in range(12)])

    assert server.most_at_once == 3


def test_a_batch_is_bounded_in_text_as_well() -> None:
    texts = ["ä" * (MAX_BATCH_BYTES // 4)] * 5 + ["x" * (MAX_BATCH_BYTES * 2), "y"]

    found = list(batches(texts, size=100))

    assert [len(batch) for batch in found] == [2, 2, 1, 1, 1]
    assert [text for batch in found for text in batch] == texts


async def test_vectors_are_told_apart_by_index_not_by_place(
    server: EmbeddingServer, make: Make
) -> None:
    def shuffled(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return random.Random(7).sample(data, len(data))

    server.script = [shuffled]
    texts = [str(number) for number in range(20)]

    assert await make().aembed_many(texts) == [vector(text, 4) for text in texts]


BROKEN: dict[str, tuple[Change, str]] = {
    "too few": (lambda data: data[:1], "2 texts with 1 vectors"),
    "too many": (lambda data: [*data, data[0]], "2 texts with 3 vectors"),
    "none": (lambda data: [], "2 texts with 0 vectors"),
    "same index": (lambda data: [data[0], {**data[1], "index": 0}], "no `index` 1"),
    "no index": (lambda data: [{"embedding": d["embedding"]} for d in data], "no `index` 0"),
    "longer": (
        lambda data: [{**d, "embedding": [1.0] * 7} for d in data],
        "vectors of 7 numbers, not 4; pass `dimension=7`",
    ),
    "nan": (lambda data: [{**d, "embedding": packed([math.nan] * 4)} for d in data], "no direc"),
    "huge": (lambda data: [{**d, "embedding": [1e300, 1, 1, 1]} for d in data], "no direction"),
    "text": (lambda data: [{**d, "embedding": "?"} for d in data], "not a vector"),
    "null": (lambda data: [{**d, "embedding": None} for d in data], "not a vector"),
    "words": (lambda data: [{**d, "embedding": ["a"] * 4} for d in data], "not a vector"),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_no_wrong_answer_is_believed(server: EmbeddingServer, make: Make, fault: str) -> None:
    change, told = BROKEN[fault]
    server.script = [change]

    with pytest.raises(EmbeddingError, match=told) as caught:
        await make().aembed_many(["a", "b"])

    assert "`tiny`" in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"<html>"),
        (200, {"content-type": "text/html"}, b"<html>"),
        (200, {}, {"data": "x"}),
        (200, {}, []),
        (200, {}, b"null"),
    ],
)
async def test_an_answer_of_another_kind_is_an_error(
    server: EmbeddingServer, make: Make, answer: Answer
) -> None:
    server.script = [answer]

    with pytest.raises(EmbeddingError, match="base_url"):
        await make().aembed("x")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_a_passing_failure_is_tried_again(
    server: EmbeddingServer, make: Make, status: int
) -> None:
    server.script = [(status, SOON, {}), (status, SOON, {})]

    assert await make().aembed("x") == vector("x", 4)
    assert len(server.requests) == 3


async def test_a_dropped_connection_is_tried_again(
    server: EmbeddingServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda *_: 0.0)
    server.script = [DROP, DROP]

    assert await make().aembed("x") == vector("x", 4)


@pytest.mark.parametrize("fault", [HANG, DRIP])
async def test_a_try_that_takes_too_long_is_tried_again(
    server: EmbeddingServer, make: Make, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(random, "uniform", lambda *_: 0.0)
    server.script = [fault]

    assert await make(timeout=scaled(0.3)).aembed("x") == vector("x", 4)
    assert len(server.requests) == 2


async def test_retries_are_bounded(server: EmbeddingServer, make: Make) -> None:
    server.script = [(503, SOON, {})] * 9

    with pytest.raises(MemoryConnectionError, match="`tiny` at http.* answered 503"):
        await make(max_retries=2).aembed("x")

    assert len(server.requests) == 3


async def test_a_wait_beyond_the_deadline_is_not_waited_for(
    server: EmbeddingServer, make: Make
) -> None:
    server.script = [(429, {"retry-after": "3000"}, {})]

    with pytest.raises(MemoryConnectionError, match="too many requests.*`max_concurrency`"):
        await make().aembed("x")


@pytest.mark.parametrize("fault", [HANG, DRIP])
async def test_the_deadline_bounds_all_tries(
    server: EmbeddingServer, make: Make, fault: str
) -> None:
    server.script = [fault] * 9

    with pytest.raises(MemoryTimeoutError, match=r"0\.2 s in all\); raise `timeout`"):
        await make(deadline=0.2, max_retries=9).aembed("x")

    await asyncio.wait_for(server.idle.wait(), 180)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_not_tried_again_nor_shown(
    server: EmbeddingServer, make: Make, status: int
) -> None:
    server.script = [(status, {}, {"error": {"message": "no such key: sk-secret"}})]
    embeddings = make(api_key="sk-secret")

    with pytest.raises(MemoryConnectionError, match=f"{status}.*`OPENAI_API_KEY`") as caught:
        await embeddings.aembed("x")

    assert len(server.requests) == 1
    assert "sk-secret" not in f"{caught.value}{embeddings!r}"


async def test_a_used_up_quota_is_not_tried_again(server: EmbeddingServer, make: Make) -> None:
    server.script = [(429, SOON, {"error": {"message": "!", "code": "insufficient_quota"}})]

    with pytest.raises(MemoryConnectionError, match="no quota left"):
        await make().aembed("x")

    assert len(server.requests) == 1


async def test_a_refused_text_is_an_error_with_the_servers_reason(
    server: EmbeddingServer, make: Make
) -> None:
    server.script = [(400, {}, {"error": {"message": "at most 8192 tokens"}})]

    with pytest.raises(EmbeddingError, match="refused a text .400.*at most 8192 tokens"):
        await make().aembed("x")


async def test_an_unknown_model_says_what_to_check(server: EmbeddingServer, make: Make) -> None:
    server.script = [(404, {}, {})]

    with pytest.raises(MemoryConnectionError, match="check `model` and `base_url`"):
        await make().aembed("x")


async def test_without_a_key_the_hosted_api_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(MemoryConnectionError, match="OPENAI_API_KEY"):
        await OpenAIEmbeddings().aembed("x")


async def test_an_unreachable_server_is_a_connection_error(make: Make) -> None:
    embeddings = make(base_url="http://ann:hunter2@127.0.0.1:1/v1", max_retries=0)

    with pytest.raises(ConnectionError, match="cannot reach http://127.0.0.1:1/v1") as caught:
        await embeddings.aembed("x")

    assert "hunter2" not in f"{caught.value}{embeddings!r}"


async def test_the_empty_text_is_sent_as_a_space(server: EmbeddingServer, make: Make) -> None:
    assert await make().aembed_many(["", "a\ud800"]) == [vector(" ", 4), vector("a?", 4)]


@pytest.mark.parametrize(
    ("model", "asked"), [("text-embedding-3-large", 4), ("text-embedding-ada-002", None)]
)
async def test_a_dimension_is_asked_for_where_there_is_a_choice(
    server: EmbeddingServer, make: Make, model: str, asked: int | None
) -> None:
    await make(model=model).aembed("x")

    assert server.requests[0].get("dimensions") == asked


async def test_one_failure_ends_the_whole_call(server: EmbeddingServer, make: Make) -> None:
    server.script = [HANG, (400, {}, {}), HANG]

    with pytest.raises(EmbeddingError):
        await make(batch_size=1).aembed_many(["a", "b", "c"])

    await asyncio.wait_for(server.idle.wait(), 180)


async def test_cancelling_leaves_no_connection_open(server: EmbeddingServer, make: Make) -> None:
    server.script = [HANG] * 4
    task = asyncio.create_task(make(batch_size=1).aembed_many(["a", "b", "c", "d"]))
    await server.busy.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await asyncio.wait_for(server.idle.wait(), 180)
    assert len(asyncio.all_tasks()) <= 2  # this one, and the server's at most


async def test_a_call_leaves_no_connection_open(server: EmbeddingServer, make: Make) -> None:
    embeddings = make()

    await embeddings.aembed("a")
    await embeddings.aembed("b")

    await asyncio.wait_for(server.idle.wait(), 180)
    assert server.connections == 2


async def test_a_context_keeps_the_connection_until_its_end(
    server: EmbeddingServer, make: Make
) -> None:
    async with make() as embeddings:
        for text in "abc":
            await embeddings.aembed(text)
        assert server.open == 1

    await asyncio.wait_for(server.idle.wait(), 180)
    assert server.connections == 1
    assert await embeddings.aembed("d") == vector("d", 4)
    await embeddings.aclose()
    await embeddings.aclose()


def test_it_works_on_one_event_loop_after_another(threaded: EmbeddingServer) -> None:
    embeddings = OpenAIEmbeddings(base_url=threaded.url, model="tiny", dimension=4)

    for _ in range(3):
        assert asyncio.run(embeddings.aembed("x")) == vector("x", 4)


def test_a_blocking_call_works_with_and_without_a_loop(threaded: EmbeddingServer) -> None:
    embeddings = OpenAIEmbeddings(base_url=threaded.url, model="tiny", dimension=4)

    async def inside() -> list[float]:
        return embeddings.embed("x")

    assert embeddings.embed("x") == vector("x", 4)
    assert embeddings.embed_many(["a", "b"]) == [vector("a", 4), vector("b", 4)]
    assert asyncio.run(inside()) == vector("x", 4)


@pytest.mark.parametrize("fault", [HANG, DRIP])
def test_a_blocking_call_ends_in_time_as_well(threaded: EmbeddingServer, fault: str) -> None:
    threaded.script = [fault] * 9
    embeddings = OpenAIEmbeddings(
        base_url=threaded.url, model="tiny", dimension=4, timeout=0.1, deadline=0.2
    )

    with pytest.raises(TimeoutError, match="0.2 s in all"):
        embeddings.embed("x")


@each_row(
    "settings",
    [
        {"timeout": 0},
        {"deadline": -1},
        {"max_retries": -1},
        {"batch_size": 0},
        {"max_concurrency": 0},
        {"dimension": 0},
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        OpenAIEmbeddings(**settings)


@each_row(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "20", "retry-after": "9"}, 0.02),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:07 GMT"}, 7.0),
        ({"retry-after": "Sun, 15 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_a_wanted_wait_is_read_in_every_form(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers, now=datetime(2026, 11, 15, 12, tzinfo=UTC)) == seconds
