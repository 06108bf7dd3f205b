"""Wrapped clients of providers, against a server that answers as the providers do."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest
from benchmarks._chat_templates import refusals
from google import genai
from tests.integrations.model_provider import Provider, running_provider

from orbiter.memory import AgentMemory, Soul, sync
from orbiter.memory.agent import Chat
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.integrations.clients import wrap
from orbiter.memory.messages import validate


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as server:
        yield server


@pytest.fixture
def alice() -> Iterator[sync.ScopedMemory]:
    with sync.AgentMemory("memory://", embeddings=None) as memory:
        yield memory.scope(user_id="alice")


def _openai(provider: Provider) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=provider.url)


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_chat_goes_on_without_being_told_again(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    plain = _openai(provider)
    client = alice.wrap(plain)
    assert type(client) is openai.OpenAI
    for text in ("I live in Oslo", "I have a cat", "What do you know of me?"):
        answer = client.chat.completions.create(model="m", messages=[_user(text)])  # type: ignore[list-item]  # a dict

    assert answer.choices[0].message.content == "answer 3"
    assert all(text in provider.last for text in ("I live in Oslo", "answer 2", "What do you"))
    assert [item.content for item in alice.chat("default").items()] == [
        "I live in Oslo", "answer 1", "I have a cat", "answer 2", "What do you know of me?",
        "answer 3",
    ]  # fmt: skip
    plain.chat.completions.create(model="m", messages=[_user("on my own")])  # type: ignore[list-item]
    assert provider.requests[-1]["messages"] == [_user("on my own")]


def test_who_tells_everything_each_time_is_not_remembered_twice(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client, said = wrap(_openai(provider), alice), list[Any]()
    said.append({"role": "system", "content": "Be brief."})
    for text in ("one", "two", "two"):
        said.append(_user(text))
        answer = client.chat.completions.create(model="m", messages=said)
        said.append(answer.choices[0].message)
    contents = [item.content for item in alice.chat("default").items()]

    assert contents == ["one", "answer 1", "two", "answer 2", "two", "answer 3"]
    assert provider.requests[-1]["messages"][0] == said[0]
    assert provider.last.count("Be brief.") == 1


def test_what_was_said_elsewhere_is_recalled(provider: Provider, alice: sync.ScopedMemory) -> None:
    alice.remember("Alice is allergic to peanuts")
    client = wrap(_openai(provider), alice, chat="dinner")
    client.chat.completions.create(model="m", messages=[_user("What about peanuts?")])  # type: ignore[list-item]

    assert "allergic to peanuts" in provider.last
    assert alice.chat("default").items() == []


@pytest.mark.parametrize("streams", [False, True])
def test_tool_calls_stay_with_their_results(
    provider: Provider, alice: sync.ScopedMemory, *, streams: bool
) -> None:
    client = wrap(_openai(provider), alice)
    provider.calls_tool = True
    said: list[Any] = [_user("Weather in Oslo?")]
    answer = client.chat.completions.create(model="m", messages=said, stream=streams)
    if streams:
        assert isinstance(answer, openai.Stream)
        assert len(list(answer)) == 3
    provider.calls_tool = False
    result = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    client.chat.completions.create(model="m", messages=[result])  # type: ignore[list-item]
    sent = [each for each in provider.requests[-1]["messages"] if each["role"] != "system"]

    assert [each["role"] for each in sent][:3] == ["user", "assistant", "tool"]
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{"city":"Oslo"}'


def test_calls_at_the_same_time_are_each_answered_their_own_question(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    provider.echoes = True
    client = wrap(_openai(provider), alice)

    def ask(number: int) -> str:
        said: list[Any] = [_user(f"What is {number} squared?")]
        answer = client.chat.completions.create(model="m", messages=said)
        return str(answer.choices[0].message.content)

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, range(100, 116)))

    asked = [f"What is {number} squared?" for number in range(100, 116)]
    assert [answer[-len(question) :] for answer, question in zip(answers, asked, strict=True)] == (
        asked
    )
    said = [item for item in alice.chat("default").items() if item.memory_type == "human"]
    assert sorted(item.content for item in said) == asked


@pytest.mark.parametrize("is_late", [False, True])
def test_tool_results_go_on_with_the_question_that_they_are_for(
    provider: Provider, alice: sync.ScopedMemory, *, is_late: bool
) -> None:
    client = wrap(_openai(provider), alice)
    provider.calls_tool = True
    said: list[Any] = [_user("Weather in Oslo?")]
    stream: Any = client.chat.completions.create(model="m", messages=said, stream=True)
    if not is_late:
        list(stream)
    provider.calls_tool = False
    client.chat.completions.create(model="m", messages=[_user("Who are you?")])  # type: ignore[list-item]
    if is_late:
        list(stream)
    result = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    client.chat.completions.create(model="m", messages=[result])  # type: ignore[list-item]
    sent = provider.requests[-1]["messages"]

    asked = [each["content"] for each in sent if each["role"] == "user"]
    assert asked[-1].endswith("Weather in Oslo?")
    assert validate(sent, "openai") == []
    assert [each["content"] for each in sent if each["role"] == "tool"] == ["rain"]


def test_an_answer_that_is_streamed_is_remembered_in_the_end(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client = wrap(_openai(provider), alice)
    stream: Any = client.chat.completions.create(
        model="m",
        messages=[_user("hi")],  # type: ignore[list-item]
        stream=True,
    )
    texts = [piece.choices[0].delta.content or "" for piece in stream]
    events = list(client.responses.create(model="m", input="again", stream=True))

    assert ("".join(texts), events[-1].type) == ("answer 1", "response.completed")
    contents = [item.content for item in alice.chat("default").items()]
    assert contents == ["hi", "answer 1", "again", "answer 2"]


def test_the_clients_of_others_remember_too(provider: Provider, alice: sync.ScopedMemory) -> None:
    claude = wrap(anthropic.Anthropic(api_key="k", base_url=provider.url), alice)
    options = {"http_options": {"base_url": provider.url}}
    gemini = wrap(genai.Client(api_key="k", **options), alice)
    respond = wrap(_openai(provider), alice).responses.create
    claude.messages.create(
        model="m",
        max_tokens=9,
        system="Be brief.",
        messages=[_user("one")],  # type: ignore[list-item]
    )
    assert provider.requests[-1]["system"].startswith("Be brief.")
    respond(model="m", input="two", instructions="Be kind.")
    assert gemini.models.generate_content(model="m", contents="three").text == "answer 3"
    pieces = list(gemini.models.generate_content_stream(model="m", contents="four"))
    assert len(pieces) == 2
    provider.calls_tool = True
    events = list(
        claude.messages.create(model="m", max_tokens=9, messages=[_user("five")], stream=True)  # type: ignore[list-item]
    )
    assert len(events) == 8

    items = alice.chat("default").items(open_group="keep")
    assert [item.content for item in items] == [
        "one", "answer 1", "two", "answer 2", "three", "answer 3", "four", "answer 4", "five",
        "answer 5",
    ]  # fmt: skip
    assert items[-1].calls[0].args == {"city": "Oslo"}  # type: ignore[attr-defined]  # an answer


async def test_async_clients_remember(provider: Provider) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        gpt = alice.wrap(openai.AsyncOpenAI(api_key="k", base_url=provider.url))
        claude = wrap(anthropic.AsyncAnthropic(api_key="k", base_url=provider.url), alice)
        options = {"http_options": {"base_url": provider.url}}
        gemini = wrap(genai.Client(api_key="k", **options), alice)
        await gpt.chat.completions.create(model="m", messages=[_user("one")])  # type: ignore[list-item]
        stream: Any = await gpt.chat.completions.create(
            model="m",
            messages=[_user("two")],  # type: ignore[list-item]
            stream=True,
        )
        assert len([piece async for piece in stream]) == 3
        await claude.messages.create(model="m", max_tokens=9, messages=[_user("three")])  # type: ignore[list-item]
        await gemini.aio.models.generate_content(model="m", contents="four")
        coming = await gemini.aio.models.generate_content_stream(model="m", contents="five")
        assert len([piece async for piece in coming]) == 2

        contents = [item.content for item in await alice.chat("default").items()]
        assert contents[1::2] == [f"answer {number}" for number in range(1, 6)]


@pytest.mark.parametrize("by", ["method", "function"])
def test_async_clients_remember_in_a_blocking_memory(
    provider: Provider, alice: sync.ScopedMemory, by: str
) -> None:
    def wrapped(client: Any) -> Any:
        return alice.wrap(client) if by == "method" else wrap(client, alice)

    async def talk() -> None:
        async with (
            openai.AsyncOpenAI(api_key="k", base_url=provider.url) as one,
            anthropic.AsyncAnthropic(api_key="k", base_url=provider.url) as two,
        ):
            gpt, claude = wrapped(one), wrapped(two)
            plain = genai.Client(api_key="k", http_options={"base_url": provider.url})
            gemini = wrapped(plain).aio
            await gpt.chat.completions.create(model="m", messages=[_user("one")])
            stream = await gpt.responses.create(model="m", input="two", stream=True)
            assert [event.type async for event in stream][-1] == "response.completed"
            await claude.messages.create(model="m", max_tokens=9, messages=[_user("three")])
            await gemini.models.generate_content(model="m", contents="four")
            coming = await gemini.models.generate_content_stream(model="m", contents="five")
            assert len([piece async for piece in coming]) == 2
            await plain.aio.aclose()

    asyncio.run(talk())

    contents = [item.content for item in alice.chat("default").items()]
    assert contents[1::2] == [f"answer {number}" for number in range(1, 6)]


async def test_a_blocking_client_in_the_loop_of_its_memory_says_which_to_wrap(
    provider: Provider,
) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        client = memory.scope(user_id="alice").wrap(_openai(provider))

        with pytest.raises(UnsupportedError, match="wrap the async client, such as `AsyncOpenAI`"):
            client.chat.completions.create(model="m", messages=[_user("hi")])  # type: ignore[list-item]

    assert provider.requests == []


class _MyClient(openai.OpenAI):
    def __repr__(self) -> str:
        return f"mine, {super().__repr__()}"


def _clients(url: str) -> list[Any]:
    kinds = (
        openai.OpenAI,
        openai.AsyncOpenAI,
        anthropic.Anthropic,
        anthropic.AsyncAnthropic,
        _MyClient,
    )
    azure = openai.AzureOpenAI(api_key="k", azure_endpoint=url, api_version="1")
    google = genai.Client(api_key="k", http_options={"base_url": url})
    return [*(kind(api_key="k", base_url=url) for kind in kinds), azure, google]


def test_a_wrapped_client_says_that_it_remembers(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    how = ", which remembers in chat 'dinner' of sync.ScopedMemory(user_id='alice')"
    for plain in _clients(provider.url):
        before = repr(plain)
        client = alice.wrap(plain, chat="dinner")
        made = client.copy() if hasattr(client, "copy") else client.aio
        for each in (client, made):
            assert repr(each).endswith(f">{how}")
            assert repr(each).count("remembers") == 1
        assert type(client) is type(plain)  # which providers' own code compares
        assert repr(plain) == repr(wrap(plain, alice, active=False)) == before


def test_a_client_with_a_memory_gets_no_second_one(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    for plain in _clients(provider.url):
        client = alice.wrap(plain, chat="dinner")
        made = client.copy() if hasattr(client, "copy") else client.aio
        for each in (client, made):
            with pytest.raises(QueryError, match=r"in chat 'dinner' of .*'alice'.* already"):
                wrap(each, alice)
        assert wrap(each, alice, active=False) is each
        alice.wrap(plain)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"chat": ""}, "`chat` must be"),
        ({"chat": None}, "`chat` must be"),
        ({"budget": -5}, "`budget` must be 0 or more"),
        ({"memory_limit": "5"}, "`memory_limit` must be a whole number"),
    ],
)
def test_what_no_call_could_use_is_refused_when_a_client_is_wrapped(
    provider: Provider, alice: sync.ScopedMemory, named: dict[str, Any], told: str
) -> None:
    with pytest.raises(QueryError, match=told):
        alice.wrap(_openai(provider), **named)


def test_a_call_stays_within_the_budget(provider: Provider, alice: sync.ScopedMemory) -> None:
    client = wrap(_openai(provider), alice, budget=300)
    for number in range(30):
        client.chat.completions.create(
            model="m",
            messages=[_user(f"{number} " + "word " * 30)],  # type: ignore[list-item]
        )
    assert len(provider.requests[-1]["messages"]) < 12
    with pytest.raises(QueryError, match="budget"):
        client.responses.create(model="m", input="hi", instructions="word " * 1_000)


@pytest.mark.parametrize(
    ("said", "way_out"),
    [
        ([_user("word " * 2_000)], "raise `budget`"),
        (
            [_user("hi"), {"role": "assistant", "content": "hello"}, _user("word " * 2_000)],
            "budget",
        ),
        ([_user("")], "say in words what is wanted"),
    ],
)
def test_a_call_that_is_refused_leaves_nothing_in_the_chat(
    provider: Provider, alice: sync.ScopedMemory, said: list[Any], way_out: str
) -> None:
    client = wrap(_openai(provider), alice, budget=300)

    with pytest.raises(QueryError, match=way_out):
        client.chat.completions.create(model="m", messages=said)

    assert alice.chat("default").items() == []
    assert provider.requests == []


def test_a_long_message_of_blocks_is_sent_shortened(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client = wrap(_openai(provider), alice, budget=300)
    said: Any = {"role": "user", "content": [{"type": "text", "text": "word " * 2_000}]}

    client.chat.completions.create(model="m", messages=[said])

    [block] = provider.requests[0]["messages"][-1]["content"]
    assert "tokens left out" in block["text"]
    assert alice.chat("default").items()[0].content == said["content"][0]["text"]


def test_an_answer_is_the_callers_even_if_it_cannot_be_remembered(
    provider: Provider,
    alice: sync.ScopedMemory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = wrap(_openai(provider), alice)
    add = Chat.add

    async def fail_with_answers(chat: Chat, what: Any, **options: Any) -> Any:
        if not isinstance(what, list):
            raise OSError("disk full")
        return await add(chat, what, **options)

    monkeypatch.setattr(Chat, "add", fail_with_answers)
    with caplog.at_level(logging.WARNING, "orbiter.memory"):
        answer = client.chat.completions.create(model="m", messages=[_user("hi")])  # type: ignore[list-item]
    assert answer.choices[0].message.content == "answer 1"
    assert "not remembered: OSError: disk full" in caplog.text


def test_what_is_no_client_is_refused_and_one_can_be_left_as_it_is(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client = _openai(provider)
    assert wrap(client, alice, active=False) is client
    with pytest.raises(QueryError, match="openai, anthropic or google-genai"):
        wrap(object(), alice)
    with pytest.raises(QueryError, match="handle of a scope"):
        wrap(client, client)  # type: ignore[arg-type]


def test_a_message_of_parts_that_is_stored_otherwise_is_sent_once(provider: Provider) -> None:
    part = {"type": "text", "text": "My cat is Rex, <private>PIN 7261,</private> password=hunter2"}
    with sync.AgentMemory("memory://", embeddings=None, redact="secrets") as memory:
        client = memory.scope("alice").wrap(_openai(provider))
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": [part]}])  # type: ignore[list-item,misc]

    assert provider.last.count("My cat is Rex") == 1
    assert "hunter2" not in provider.last


def test_the_system_text_of_a_call_and_ours_are_one_message(provider: Provider) -> None:
    with sync.AgentMemory("memory://", embeddings=None, persona=Soul(name="Nova")) as memory:
        alice = memory.scope(user_id="alice")
        client = alice.wrap(_openai(provider))
        brief, kind = ({"role": "system", "content": text} for text in ("Be brief.", "Be kind."))
        said: Any = [brief, _user("I have a cat"), kind]

        client.chat.completions.create(model="m", messages=said)
        client.chat.completions.create(model="m", messages=[brief, _user("What is its name?")])  # type: ignore[list-item]
        client.responses.create(model="m", instructions="Be brief.", input="Well?")

        first, second, third = provider.requests
        for request in (first, second):
            assert list(refusals(request["messages"])) == []
        assert first["messages"][0]["content"] == "Be brief.\n\nBe kind.\n\nYou are Nova."
        assert second["messages"][0]["content"] == "Be brief.\n\nYou are Nova."
        assert third["instructions"] == "Be brief.\n\nYou are Nova."
        assert [entry["role"] for entry in third["input"]][:1] == ["user"]


def test_where_nothing_is_remembered_nothing_is_added(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    said: Any = [{"role": "system", "content": "Be brief."}, _user("Hi")]

    wrap(_openai(provider), alice).chat.completions.create(model="m", messages=said)

    assert provider.requests[-1]["messages"] == said
