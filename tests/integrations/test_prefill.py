"""A call that ends with a message of the model is sent so, and remembered as the model means it."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from tests.integrations.model_provider import Provider, running_provider

from orbiter.memory import sync
from orbiter.memory.messages import validate

_ASKED: dict[str, Any] = {"role": "user", "content": "Where do I live? As JSON."}
_PREFILL: dict[str, Any] = {"role": "assistant", "content": '{"city": "'}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as server:
        server.text = 'Oslo"}'
        yield server


@pytest.fixture
def alice() -> Iterator[sync.ScopedMemory]:
    with sync.AgentMemory("memory://", embeddings=None) as memory:
        memory.scope(user_id="alice").remember("Alice lives in Oslo")
        yield memory.scope(user_id="alice")


def _contents(alice: sync.ScopedMemory) -> list[str]:
    return [item.content for item in alice.chat("default").items()]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("as_blocks", [False, True])
def test_claude_goes_on_with_a_prefill(
    provider: Provider, alice: sync.ScopedMemory, *, streams: bool, as_blocks: bool
) -> None:
    client: Any = alice.wrap(anthropic.Anthropic(api_key="k", base_url=provider.url))
    prefill = _PREFILL
    if as_blocks:
        prefill = {**_PREFILL, "content": [{"type": "text", "text": _PREFILL["content"]}]}
    said = [_ASKED, prefill]
    answer = client.messages.create(model="m", max_tokens=9, messages=said, stream=streams)
    if streams:
        list(answer)
    sent = provider.requests[-1]

    assert sent["messages"][-1] == prefill
    assert "Alice lives in Oslo" in provider.last
    assert validate(sent["messages"][:-1], "anthropic") == []
    assert _contents(alice) == [_ASKED["content"], '{"city": "Oslo"}']

    whole = {"role": "assistant", "content": '{"city": "Oslo"}'}
    thanks = {"role": "user", "content": "Thanks"}
    client.messages.create(model="m", max_tokens=9, messages=[_ASKED, whole, thanks])
    assert _contents(alice)[2:] == ["Thanks", 'Oslo"}']


def test_gemini_goes_on_with_a_prefill(provider: Provider, alice: sync.ScopedMemory) -> None:
    options: Any = {"base_url": provider.url}
    with genai.Client(api_key="k", http_options=options) as plain:
        said: Any = [
            {"role": "user", "parts": [{"text": _ASKED["content"]}]},
            {"role": "model", "parts": [{"text": _PREFILL["content"]}]},
        ]
        alice.wrap(plain).models.generate_content(model="m", contents=said)

    assert provider.requests[-1]["contents"][-1] == said[-1]
    assert _contents(alice) == [_ASKED["content"], '{"city": "Oslo"}']


def test_a_model_of_openai_answers_after_it(provider: Provider, alice: sync.ScopedMemory) -> None:
    client: Any = alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url))
    hello = {"role": "assistant", "content": "Hello!"}
    client.chat.completions.create(model="m", messages=[_ASKED, hello])

    assert provider.requests[0]["messages"][-1] == hello
    assert "Alice lives in Oslo" in str(provider.requests[0])
    assert _contents(alice) == [_ASKED["content"], "Hello!", 'Oslo"}']
    client.responses.create(model="m", input=[{**_ASKED, "content": "And now?"}, hello])
    assert provider.requests[-1]["input"][-1] == hello
    assert _contents(alice)[3:] == ["And now?", "Hello!", 'Oslo"}']


def test_an_answer_that_the_model_is_to_go_on_with_is_not_stored_again(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client: Any = alice.wrap(anthropic.Anthropic(api_key="k", base_url=provider.url))
    provider.text = "I see the sea, and"
    client.messages.create(model="m", max_tokens=9, messages=[_ASKED])
    provider.text = " the hills"
    said = [_ASKED, {"role": "assistant", "content": "I see the sea, and"}]
    client.messages.create(model="m", max_tokens=9, messages=said)

    assert provider.requests[-1]["messages"][-1] == said[-1]
    assert _contents(alice) == [_ASKED["content"], "I see the sea, and", " the hills"]


def test_a_call_with_messages_of_the_model_alone_is_sent_as_it_is(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client: Any = alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url))
    client.chat.completions.create(model="m", messages=[_PREFILL])

    assert provider.requests[-1]["messages"] == [_PREFILL]
    assert _contents(alice) == []
