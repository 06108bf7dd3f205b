"""Every way to ask a model through a wrapped client is completed, and remembered."""

import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from pydantic import BaseModel
from tests.integrations.model_provider import Provider, running_provider

from orbiter.memory import AgentMemory, ScopedMemory, sync
from orbiter.memory.integrations.clients import OFF, wrap


class City(BaseModel):
    name: str


_JSON = '{"name": "Oslo"}'
_ASKED: Any = [{"role": "user", "content": "Where do I live?"}]
_MODEL: Any = {"model": "m", "messages": _ASKED}
_CLAUDE: Any = {**_MODEL, "max_tokens": 9}
_RESPONSE: Any = {"model": "m", "input": _ASKED}
_STREAMED: Any = {"stream": True}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as server:
        server.text = _JSON
        yield server


@pytest.fixture
def alice() -> Iterator[sync.ScopedMemory]:
    with sync.AgentMemory("memory://", embeddings=None) as memory:
        handle = memory.scope(user_id="alice")
        handle.chat("default").add(["I live in Oslo.", {"role": "assistant", "content": "Nice."}])
        yield handle


def _check(provider: Provider, contents: list[str]) -> None:
    assert "I live in Oslo." in provider.last
    assert "x-orbiter-memory" not in provider.headers[-1]
    assert contents == ["I live in Oslo.", "Nice.", "Where do I live?", _JSON]


# OpenAI


def _streamed_raw(client: openai.OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(**_MODEL) as response:
        response.parse()


def _streamed_json(client: openai.OpenAI) -> None:
    with client.responses.with_streaming_response.create(**_RESPONSE) as response:
        assert response.json()


def _stream_manager(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**_MODEL, response_format=City) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == City(name="Oslo")


def _responses_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(**_RESPONSE, text_format=City) as stream:
        assert stream.get_final_response().output_parsed == City(name="Oslo")


def _last_event(client: openai.OpenAI) -> None:
    for piece in client.chat.completions.create(**_MODEL, stream=True):
        if piece.choices[0].finish_reason:
            break


def _parsed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(**_MODEL, response_format=City)
    assert answer.choices[0].message.parsed == City(name="Oslo")


_OPENAI: dict[str, Callable[[openai.OpenAI], Any]] = {
    "parse": _parsed,
    "beta.parse": lambda c: c.beta.chat.completions.parse(**_MODEL, response_format=City),
    "stream": _stream_manager,
    "until the last event": _last_event,
    "responses.parse": lambda c: c.responses.parse(**_RESPONSE, text_format=City),
    "responses.stream": _responses_stream,
    "with_options": lambda c: c.with_options(timeout=9).chat.completions.create(**_MODEL),
    "copy of a copy": lambda c: c.copy().copy(max_retries=1).responses.create(**_RESPONSE),
    "raw": lambda c: c.chat.completions.with_raw_response.create(**_MODEL).parse(),
    "raw, unread": lambda c: c.chat.completions.with_raw_response.create(**_MODEL),
    "raw client": lambda c: c.with_raw_response.responses.create(**_RESPONSE),
    "raw stream": lambda c: list(
        c.chat.completions.with_raw_response.create(**_MODEL, **_STREAMED).parse()
    ),
    "streamed response": _streamed_raw,
    "streamed response, as JSON": _streamed_json,
    "post": lambda c: c.post("/chat/completions", cast_to=object, body=_MODEL),
    "generator of messages": lambda c: c.chat.completions.create(
        model="m", messages=(each for each in _ASKED)
    ),
    "several alternatives": lambda c: c.chat.completions.create(**_MODEL, n=2),
}


@pytest.mark.parametrize("way", _OPENAI)
def test_all_calls_of_openai_have_the_memory(
    provider: Provider, alice: sync.ScopedMemory, way: str
) -> None:
    client = alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url))
    _OPENAI[way](client)

    _check(provider, [item.content for item in alice.chat("default").items()])


class _OwnClient(openai.OpenAI):
    """A program's own subclass."""


def test_clients_for_other_clouds_have_the_memory(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    azure = openai.AzureOpenAI(api_key="k", api_version="1", azure_endpoint=provider.url)
    bedrock = anthropic.AnthropicBedrock(api_key="k", aws_region="r", base_url=provider.url)
    vertex = anthropic.AnthropicVertex(
        access_token="t", project_id="p", region="r", base_url=provider.url
    )
    own = _OwnClient(api_key="k", base_url=provider.url)
    clients: list[Any] = [azure, bedrock, vertex, own]
    for client in clients:
        wrapped: Any = wrap(client, alice, chat=str(client))
        assert type(wrapped) is type(client)
        if isinstance(client, openai.OpenAI):
            wrapped.chat.completions.create(**_MODEL)
        else:
            wrapped.messages.create(**_CLAUDE)
        contents = [item.content for item in alice.chat(str(client)).items()]
        assert contents == ["Where do I live?", _JSON]
        assert "I live in Oslo." in provider.last

    paths = [path.partition("?")[0] for path in provider.paths]
    assert paths == [
        "/openai/deployments/m/chat/completions", "/model/m/invoke",
        "/projects/p/locations/r/publishers/anthropic/models/m:rawPredict", "/chat/completions",
    ]  # fmt: skip


# Anthropic


def _claude_stream(client: anthropic.Anthropic) -> None:
    with client.messages.stream(**_CLAUDE) as stream:
        assert "".join(stream.text_stream) == _JSON


def _claude_beta_stream(client: anthropic.Anthropic) -> None:
    with client.beta.messages.stream(**_CLAUDE) as stream:
        stream.until_done()


def _claude_streamed(client: anthropic.Anthropic) -> None:
    with client.messages.with_streaming_response.create(**_CLAUDE, stream=True) as response:
        list(response.parse())


_ANTHROPIC: dict[str, Callable[[anthropic.Anthropic], Any]] = {
    "stream": _claude_stream,
    "parse": lambda c: c.messages.parse(**_CLAUDE, output_format=City),
    "beta.create": lambda c: c.beta.messages.create(**_CLAUDE),
    "beta.stream": _claude_beta_stream,
    "with_options": lambda c: c.with_options(timeout=9).messages.create(**_CLAUDE),
    "raw": lambda c: c.messages.with_raw_response.create(**_CLAUDE),
    "streamed response": _claude_streamed,
    "system blocks": lambda c: c.messages.create(
        **_CLAUDE, system=[{"type": "text", "text": "Be brief."}]
    ),
}


@pytest.mark.parametrize("way", _ANTHROPIC)
def test_all_calls_of_anthropic_have_the_memory(
    provider: Provider, alice: sync.ScopedMemory, way: str
) -> None:
    client = alice.wrap(anthropic.Anthropic(api_key="k", base_url=provider.url))
    _ANTHROPIC[way](client)

    _check(provider, [item.content for item in alice.chat("default").items()])


# google-genai


def _gemini(provider: Provider) -> genai.Client:
    options: Any = {"base_url": provider.url}
    return genai.Client(api_key="k", http_options=options)


def _system(client: genai.Client) -> None:
    config: Any = {"system_instruction": "Be brief."}
    client.models.generate_content(model="m", contents="Where do I live?", config=config)


_GEMINI: dict[str, Callable[[genai.Client], Any]] = {
    "chats": lambda c: c.chats.create(model="m").send_message("Where do I live?"),
    "chats, streamed": lambda c: list(
        c.chats.create(model="m").send_message_stream("Where do I live?")
    ),
    "generate": lambda c: c.models.generate_content(model="m", contents=["Where do I live?"]),
    "stream": lambda c: list(
        c.models.generate_content_stream(model="m", contents="Where do I live?")
    ),
    "system": _system,
}


@pytest.mark.parametrize("way", _GEMINI)
def test_all_calls_of_gemini_have_the_memory(
    provider: Provider, alice: sync.ScopedMemory, way: str
) -> None:
    with _gemini(provider) as client:
        _GEMINI[way](alice.wrap(client))

        _check(provider, [item.content for item in alice.chat("default").items()])
        if way == "system":
            parts = provider.requests[-1]["systemInstruction"]["parts"]
            assert parts[0]["text"] == "Be brief."


def test_a_chat_of_gemini_outlives_the_client_it_was_made_with(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    with _gemini(provider) as plain:
        chat = alice.wrap(plain).chats.create(model="m")
        gc.collect()
        chat.send_message("one")
        answer = plain.models.generate_content(model="m", contents="on my own")

    assert answer.text == _JSON
    assert "I live in Oslo." not in provider.last


# Async


async def _async_parsed(client: openai.AsyncOpenAI) -> None:
    await client.chat.completions.parse(**_MODEL, response_format=City)


async def _async_stream(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(**_MODEL) as stream:
        await stream.until_done()


async def _async_raw_stream(client: openai.AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(**_MODEL, **_STREAMED)
    async for _ in raw.parse():
        pass


async def _async_streamed(client: openai.AsyncOpenAI) -> None:
    async with client.responses.with_streaming_response.create(**_RESPONSE) as response:
        await response.parse()


async def _async_responses(client: openai.AsyncOpenAI) -> None:
    async with client.with_options(timeout=9).responses.stream(**_RESPONSE) as stream:
        await stream.get_final_response()


_ASYNC = {
    "parse": _async_parsed,
    "stream": _async_stream,
    "raw stream": _async_raw_stream,
    "streamed response": _async_streamed,
    "responses.stream": _async_responses,
}


@pytest.fixture
async def async_alice() -> AsyncIterator[ScopedMemory]:
    async with AgentMemory("memory://", embeddings=None) as memory:
        handle = memory.scope(user_id="alice")
        said: list[Any] = ["I live in Oslo.", {"role": "assistant", "content": "Nice."}]
        await handle.chat("default").add(said)
        yield handle


@pytest.mark.parametrize("way", _ASYNC)
async def test_all_calls_of_async_openai_have_the_memory(
    provider: Provider, async_alice: ScopedMemory, way: str
) -> None:
    call: Callable[[openai.AsyncOpenAI], Awaitable[None]] = _ASYNC[way]
    async with openai.AsyncOpenAI(api_key="k", base_url=provider.url) as client:
        await call(async_alice.wrap(client))

    _check(provider, [item.content for item in await async_alice.chat("default").items()])


async def test_calls_of_other_async_clients_have_the_memory(
    provider: Provider, async_alice: ScopedMemory
) -> None:
    async with anthropic.AsyncAnthropic(api_key="k", base_url=provider.url) as plain:
        claude = async_alice.wrap(plain)
        async with claude.messages.stream(**_CLAUDE) as stream:
            await stream.until_done()
    _check(provider, [item.content for item in await async_alice.chat("default").items()])
    with _gemini(provider) as google:
        chat = async_alice.wrap(google).aio.chats.create(model="m")
        await chat.send_message("More?")
        async for _ in await chat.send_message_stream("And more?"):
            pass
        await google.aio.aclose()

    contents = [item.content for item in await async_alice.chat("default").items()]
    assert contents[4:] == ["More?", _JSON, "And more?", _JSON]


# What is left as it is


def test_one_call_goes_without_the_memory(provider: Provider, alice: sync.ScopedMemory) -> None:
    gpt = alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url))
    claude = alice.wrap(anthropic.Anthropic(api_key="k", base_url=provider.url))
    gpt.chat.completions.create(**_MODEL, extra_headers={**OFF, "X-Mine": "1"})
    assert provider.headers[-1]["x-mine"] == "1"
    claude.messages.create(**_CLAUDE, extra_headers=OFF)
    with _gemini(provider) as plain:
        config: Any = {"http_options": {"headers": dict(OFF)}}
        alice.wrap(plain).models.generate_content(model="m", contents="hi", config=config)

    assert all("Oslo." not in str(each) for each in provider.requests)
    assert all("x-orbiter-memory" not in each for each in provider.headers)
    assert len(alice.chat("default").items()) == 2


@pytest.mark.parametrize("chat", ["default", "empty"])
def test_a_call_in_which_nobody_says_anything_is_sent_as_it_is(
    provider: Provider, alice: sync.ScopedMemory, chat: str
) -> None:
    client = alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url), chat=chat)
    systems: Any = [{"role": "system", "content": "Write a poem."}]
    before = alice.chat(chat).items()
    answer = client.chat.completions.create(model="m", messages=systems)

    assert answer.choices[0].message.content == _JSON
    assert provider.requests[-1]["messages"] == systems
    assert alice.chat(chat).items() == before


def test_what_the_provider_keeps_is_not_sent_again(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client = alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url))
    client.responses.create(**_RESPONSE, previous_response_id="r")

    assert provider.requests[-1]["input"] == _ASKED
    contents = [item.content for item in alice.chat("default").items()]
    assert contents[2:] == ["Where do I live?", _JSON]


def test_other_requests_of_a_client_are_as_they_were(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    claude = alice.wrap(anthropic.Anthropic(api_key="k", base_url=provider.url))
    claude.post("/v1/messages/count_tokens", cast_to=object, body={"messages": _ASKED})

    assert provider.requests[-1] == {"messages": _ASKED}
    assert len(alice.chat("default").items()) == 2


def test_bytes_that_the_caller_reads_are_not_remembered(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client = alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url))
    with client.chat.completions.with_streaming_response.create(**_MODEL) as response:
        assert _JSON.encode()[2:5] in b"".join(response.iter_bytes())

    contents = [item.content for item in alice.chat("default").items()]
    assert contents[2:] == ["Where do I live?"]


@pytest.mark.parametrize("end", [None, "stop"])
def test_streams_of_other_servers_are_remembered(
    provider: Provider, alice: sync.ScopedMemory, end: str | None
) -> None:
    """Azure's filter sends pieces without a delta; some never say that they are finished."""
    pieces: list[Any] = [
        [{"index": 0, "delta": {"role": "assistant", "content": "In "}, "finish_reason": None}],
        [{"index": 0, "finish_reason": None, "content_filter_results": {}}],
        None,
        [{"index": 0, "delta": {"content": "Oslo."}, "finish_reason": end}],
    ]
    provider.raw = "".join(f"data: {json.dumps({'choices': each})}\n\n" for each in pieces)
    provider.raw += "data: [DONE]\n\n"
    client = alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url))

    for _ in client.chat.completions.create(**_MODEL, **_STREAMED):
        pass

    contents = [item.content for item in alice.chat("default").items()]
    assert contents[2:] == ["Where do I live?", "In Oslo."]
