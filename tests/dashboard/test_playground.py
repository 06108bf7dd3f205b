"""The playground: what a turn recalls, sends and keeps; the key of the model is on no page."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.dashboard._visitor import Visitor
from tests.extraction._server import Answer, ChatServer, completion
from tests.listening import listening
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.server import Settings

ANN = {"user_id": "ann"}


async def test_a_turn_shows_what_is_recalled_sent_and_kept(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember("Mia is allergic to peanuts")
    await memory.flush()
    visitor = Visitor(client(await served()))
    page = await visitor.look("/playground", **ANN)

    turn = await visitor.send("/ui/playground", ANN, message="What is Mia allergic to?")

    assert "Scripted answers" in page
    assert "I remember: Mia is allergic to peanuts." in turn.text
    assert 'class="score"' in turn.text
    assert "of 1,000 tokens" in turn.text
    kept = await memory.scope(user_id="ann").chat("playground").items()
    assert [item.memory_type for item in kept] == ["human", "ai"]
    assert kept[1].metadata.extra == {"scripted": True}
    assert all(item.id in turn.text for item in kept)
    assert "What is Mia allergic to?" in await visitor.look("/playground", **ANN)


async def test_without_an_owner_or_a_message_nothing_is_kept(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor = Visitor(client(await served()))

    nobody = await visitor.send("/ui/playground", {}, message="hello")
    empty = await visitor.send("/ui/playground", ANN, message="  ")
    small = await visitor.send("/ui/playground", ANN, message="hello", budget="3")

    assert [each.status_code for each in (nobody, empty, small)] == [422] * 3
    assert "Choose a user or an agent" in await visitor.look("/playground")
    assert (await memory.unscoped().stats()).items == 0


async def test_a_reader_cannot_chat_and_a_key_stays_with_its_user(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys)
    reader = Visitor(client(url, new_key(keys, "read", "ann")))
    ben = Visitor(client(url, new_key(keys, "write", "ben")))

    assert "may only read" in await reader.look("/playground")
    assert (await reader.send("/ui/playground", {}, message="hello")).status_code == 403
    assert (await ben.send("/ui/playground", ANN, message="hello")).status_code == 403
    assert (await ben.send("/ui/playground", {}, message="hello")).status_code == 200
    assert (await memory.scope(user_id="ann").stats()).items == 0
    assert (await memory.scope(user_id="ben").stats()).items == 2
    unguarded = await ben.http.post("/ui/playground", data={"message": "hello"})
    assert unguarded.status_code == 403


@asynccontextmanager
async def model(*answers: Answer) -> AsyncIterator[ChatServer]:
    """Give an endpoint that speaks as OpenAI's does."""
    server = ChatServer()
    server.answers = list(answers)
    async with listening(server.serve) as address:
        server.url = f"{address}/v1"
        yield server


async def test_a_model_is_asked_by_the_server_and_its_key_is_on_no_page(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    pytest.importorskip("openai")
    await memory.scope(user_id="ann").remember("Mia is allergic to peanuts")
    said = completion("Peanuts, <b>all</b> of them.")
    settings = {"playground_model": "m", "playground_key": "sk-secret"}
    async with model(said) as server:
        url = server.url
        visitor = Visitor(client(await served(playground_url=url, **settings)))

        page = await visitor.look("/playground", **ANN)
        turn = await visitor.send("/ui/playground", ANN, message="What is Mia allergic to?")
        twin = json.dumps(await visitor.twin("/playground", **ANN))

    sent = server.requests[0]
    assert sent["model"] == "m"
    assert "peanuts" in str(sent["messages"])
    assert "Peanuts, &lt;b&gt;all&lt;/b&gt; of them." in turn.text
    for text in (page, turn.text, twin, repr(Settings(playground_key="sk-secret"))):
        assert "sk-secret" not in text
    assert url not in page + turn.text + twin


async def test_a_key_of_a_user_is_told_that_the_model_failed_and_not_where_it_is(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    pytest.importorskip("openai")
    refused: Answer = (401, {}, {"error": {"message": "no"}})
    async with model(refused) as server:
        url = await served(keys=keys, playground_url=server.url, playground_key="sk-x")
        visitor = Visitor(client(url, new_key(keys, "write", "ann")))

        turn = await visitor.send("/ui/playground", {}, message="hello")

    assert "the model gave no answer" in turn.text
    assert "the store failed" not in turn.text
    assert server.url not in turn.text


async def test_a_model_that_fails_is_told_without_the_key_and_nothing_is_kept(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    pytest.importorskip("openai")
    refused: Answer = (401, {}, {"error": {"message": "there is no key sk-wrong-secret"}})
    async with model(refused) as server:
        settings = {"playground_url": server.url, "playground_key": "sk-wrong-secret"}
        visitor = Visitor(client(await served(**settings)))

        turn = await visitor.send("/ui/playground", ANN, message="hello")

    assert "answered 401" in turn.text
    assert "secret" not in turn.text
    assert ">hello</pre>" in turn.text  # what was typed is not lost
    assert 'id="play-chat-title"' in turn.text
    assert (await memory.scope(user_id="ann").stats()).items == 0


async def test_without_its_package_the_way_to_install_it_is_told(
    memory: AgentMemory, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    visitor = Visitor(client(await served(playground_url="http://127.0.0.1:9/v1")))

    turn = await visitor.send("/ui/playground", ANN, message="hello")

    assert "pip install" in turn.text
    assert "orbiter-memory[openai]" in turn.text
