import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.listening import listening
from tests.timing import HANG

from orbiter.memory import HumanMemory, Summarizer, SummaryConfig, SummaryTemplate, generate_summary
from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError, SummaryError
from orbiter.memory.summarizers import OpenAISummarizer

Answer = tuple[int, dict[str, str], Any]


def completion(text: str | None, *, ended: str = "stop") -> Answer:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": ended}
    return (
        200,
        {},
        {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]},
    )


class ChatServer:
    """A real HTTP server that speaks as much of the chat API as a summarizer meets."""

    def __init__(self) -> None:
        self.answers: list[Answer | None] = []
        self.by_prompt: Callable[[str], Answer] | None = None
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after the other on a connection that stays open."""
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
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append(json.loads(body))
        self.keys.append(headers["authorization"])
        scripted: Answer | None
        if self.by_prompt is not None:
            scripted = self.by_prompt(self.requests[-1]["messages"][0]["content"])
        else:
            scripted = self.answers.pop(0)
        if scripted is None:  # never answers
            await reader.read()
            return False
        status, extra, content = scripted
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        extra = {"content-type": "application/json", "content-length": str(len(data)), **extra}
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in extra.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await writer.drain()
        return True


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    chat = ChatServer()
    async with listening(chat.serve) as url:
        chat.url = f"{url}/v1"
        yield chat


Make = Callable[..., OpenAISummarizer]


@pytest.fixture
def make(server: ChatServer) -> Make:
    def summarizer(**settings: Any) -> OpenAISummarizer:
        settings = {"base_url": server.url, "model": "tiny", "timeout": 5.0, **settings}
        return OpenAISummarizer(**settings)

    return summarizer


@pytest.mark.slow
async def test_the_model_is_asked_and_its_answer_returned(server: ChatServer, make: Make) -> None:
    server.answers = [completion("They met in Oslo.")]
    summarizer = make(api_key="sk-secret")

    assert isinstance(summarizer, Summarizer)
    assert await summarizer.summarize("Sum up: …") == "They met in Oslo."
    assert server.requests[0]["model"] == "tiny"
    assert server.requests[0]["messages"] == [{"role": "user", "content": "Sum up: …"}]
    assert server.keys == ["bearer sk-secret"]


async def test_a_server_of_your_own_needs_no_key(
    server: ChatServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.answers = [completion("ok")]

    assert await make().summarize("x") == "ok"


async def test_without_a_key_the_hosted_api_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(MemoryConnectionError, match="OPENAI_API_KEY"):
        await OpenAISummarizer().summarize("x")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_passing_failure_is_tried_again(
    server: ChatServer, make: Make, status: int
) -> None:
    server.answers = [(status, {"retry-after-ms": "1"}, {}), completion("ok")]

    assert await make().summarize("x") == "ok"
    assert len(server.requests) == 2


async def test_retries_are_bounded(server: ChatServer, make: Make) -> None:
    server.answers = [(503, {"retry-after-ms": "1"}, {})] * 9

    with pytest.raises(MemoryConnectionError, match="`tiny` at .* answered 503"):
        await make(max_retries=2).summarize("x")

    assert len(server.requests) == 3


async def test_a_refused_key_is_not_tried_again_nor_shown(server: ChatServer, make: Make) -> None:
    server.answers = [(401, {}, {"error": {"message": "bad key"}})]
    summarizer = make(api_key="sk-secret")

    with pytest.raises(MemoryConnectionError, match="401") as caught:
        await summarizer.summarize("x")

    assert len(server.requests) == 1
    assert "sk-secret" not in f"{caught.value}{summarizer!r}"


async def test_a_server_that_never_answers_times_out(server: ChatServer, make: Make) -> None:
    server.answers = [None]

    with pytest.raises(MemoryTimeoutError, match=r"0\.1 s a try") as caught:
        await make(timeout=0.1, max_retries=0).summarize("x")

    assert isinstance(caught.value, TimeoutError)


async def test_the_deadline_bounds_all_tries(server: ChatServer, make: Make) -> None:
    server.answers = [(503, {"retry-after": "30"}, {})] * 9

    async with asyncio.timeout(HANG):
        with pytest.raises(MemoryTimeoutError, match=r"0\.2 s in all"):
            await make(deadline=0.2, max_retries=5).summarize("x")


async def test_an_unreachable_server_is_a_connection_error(make: Make) -> None:
    with pytest.raises(ConnectionError, match="cannot reach http://127.0.0.1:1/v1"):
        await make(base_url="http://127.0.0.1:1/v1", max_retries=0).summarize("x")


@pytest.mark.parametrize(
    "answer",
    [
        completion(None),
        (200, {}, {"choices": []}),
        (200, {"content-type": "text/html"}, b"<html>"),
    ],
)
async def test_an_empty_answer_is_an_error(server: ChatServer, make: Make, answer: Answer) -> None:
    server.answers = [answer]

    with pytest.raises(MemoryConnectionError, match="answered nothing"):
        await make().summarize("x")


async def test_an_empty_text_is_returned_as_there_may_be_nothing_to_say(
    server: ChatServer, make: Make
) -> None:
    server.answers = [completion("")]

    assert await make().summarize("x") == ""


async def test_no_facts_do_not_fail_the_other_summaries(server: ChatServer, make: Make) -> None:
    def answered(prompt: str) -> Answer:
        return completion("" if "factual" in prompt else "They met in Oslo.")

    server.by_prompt = answered
    items = [HumanMemory(content=str(number)) for number in range(9)]
    config = SummaryConfig(templates=(SummaryTemplate.FACTS, SummaryTemplate.CONVERSATION))

    result = await generate_summary(items, config, make())

    assert result.summaries == {"facts": "", "conversation": "They met in Oslo."}


async def test_an_answer_cut_off_is_asked_for_again_shorter(server: ChatServer, make: Make) -> None:
    cut = " ".join(["word"] * 300)
    server.answers = [completion(cut, ended="length"), completion("They met in Oslo.")]

    assert await make().summarize("Sum up: …") == "They met in Oslo."

    again = server.requests[1]["messages"][0]["content"]
    assert again.startswith("Sum up: …\n\n")
    assert "at most 150 words" in again


async def test_an_answer_cut_off_twice_is_never_taken_for_whole(
    server: ChatServer, make: Make
) -> None:
    server.answers = [completion("They met in", ended="length")] * 2

    with pytest.raises(MemoryConnectionError, match="cut off in its answer, twice; let it"):
        await make().summarize("x")

    assert len(server.requests) == 2


async def test_an_answer_that_a_filter_held_back_is_an_error(
    server: ChatServer, make: Make
) -> None:
    server.answers = [completion("They", ended="content_filter")]

    with pytest.raises(MemoryConnectionError, match="its filter blocked the answer"):
        await make().summarize("x")


@pytest.mark.parametrize(
    "text",
    [
        "<think>Oslo? Yes.</think>\n\nThey met in Oslo.",
        "<think>\nfirst\n</think><think>then</think>They met in Oslo.",
        "Hm, Oslo it was.\n</think>\n\nThey met in Oslo.",
        "<thinking>Oslo? Yes.</thinking> They met in Oslo.\n",
    ],
)
async def test_what_a_model_thought_aloud_is_no_part_of_its_answer(
    server: ChatServer, make: Make, text: str
) -> None:
    server.answers = [completion(text)]

    assert await make().summarize("x") == "They met in Oslo."


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"error": {"message": "maximum context length is 8192 tokens"}}, "length is 8192 tokens"),
        ({"error": "model 'tiny' not found"}, "model 'tiny' not found"),
        ({"detail": "messages: field required"}, "messages: field required"),
        ({"error": {"message": "line\none", "code": 7}}, "line one"),
    ],
)
async def test_a_refusal_tells_its_reason(
    server: ChatServer, make: Make, body: dict[str, Any], reason: str
) -> None:
    server.answers = [(400, {}, body)]

    with pytest.raises(MemoryConnectionError, match="answered 400: ") as caught:
        await make().summarize("x")

    assert reason in str(caught.value)


@pytest.mark.parametrize("body", [{}, b"<html>Bad Gateway</html>", {"error": {"code": 3}}])
async def test_a_refusal_without_a_reason_tells_the_status(
    server: ChatServer, make: Make, body: object
) -> None:
    server.answers = [(400, {}, body)]

    with pytest.raises(MemoryConnectionError, match="answered 400$"):
        await make().summarize("x")


async def test_no_key_stands_in_the_reason_of_a_refusal(
    server: ChatServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "plainkeyofenv")
    told = "wrong: own-secret, plainkeyofenv, sk-proj-abc***xyz1, Bearer eyJhbGci.x; " + "y" * 500
    server.answers = [(401, {}, {"error": {"message": told}})]

    with pytest.raises(MemoryConnectionError) as caught:
        await make(api_key="own-secret").summarize("x")

    said = str(caught.value)
    assert "wrong: [key], [key], [key], Bearer [key]" in said
    assert len(said) < 400


async def test_an_answer_that_is_not_json_is_an_error(server: ChatServer, make: Make) -> None:
    server.answers = [(200, {}, b"<html>")]

    with pytest.raises(MemoryConnectionError, match="tiny"):
        await make(max_retries=0).summarize("x")


def test_it_works_on_one_event_loop_after_another() -> None:
    server = ChatServer()
    server.answers = [completion("ok")] * 4
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def listen() -> None:
        async with listening(server.serve) as url:
            server.url = f"{url}/v1"
            loops.append(asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(listen(),))
    thread.start()
    ready.wait(10)
    try:
        summarizer = OpenAISummarizer(base_url=server.url, model="tiny")
        answers = [asyncio.run(summarizer.summarize("x")) for _ in range(4)]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)

    assert answers == ["ok"] * 4


@pytest.mark.parametrize(
    "settings", [{"timeout": -1}, {"timeout": 0}, {"deadline": 0}, {"max_retries": -1}]
)
def test_senseless_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        OpenAISummarizer(**settings)


async def test_a_password_in_the_address_is_never_shown() -> None:
    summarizer = OpenAISummarizer(base_url="http://ann:hunter2@127.0.0.1:1/v1", max_retries=0)

    with pytest.raises(MemoryConnectionError) as caught:
        await summarizer.summarize("x")

    assert "127.0.0.1:1" in str(caught.value)
    assert "hunter2" not in f"{caught.value}{summarizer!r}"


async def test_a_failing_endpoint_loses_no_item(server: ChatServer, make: Make) -> None:
    server.answers = [(500, {}, {})]
    items = [HumanMemory(content=str(number)) for number in range(9)]

    with pytest.raises(SummaryError, match="`conversation`.*500"):
        await generate_summary(items, SummaryConfig(), make(max_retries=0))

    assert [item.content for item in items] == [str(number) for number in range(9)]
