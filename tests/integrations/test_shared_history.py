"""Processes that bring the same history along at once store it once."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.model_provider import Provider, running_provider
from tests.timing import HANG, scaled, until

from orbiter.memory import AgentMemory, sync
from orbiter.memory.agent import Chat
from orbiter.memory.errors import StorageError
from orbiter.memory.integrations import _resent_history

_PROGRAM = """
import json, sys
import openai
from orbiter.memory import sync
url, provider, said = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
plain = openai.OpenAI(api_key="k", base_url=provider, max_retries=0)
with sync.AgentMemory(url, embeddings=None) as memory:
    alice = memory.scope(user_id="alice")
    client = alice.wrap(plain)
    alice.chat("default").items()
    print("ready", flush=True)
    sys.stdin.readline()
    client.chat.completions.create(model="m", messages=said)
"""
_HISTORY = [
    {"role": "assistant" if number % 2 else "user", "content": f"message {number}"}
    for number in range(20)
]


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as server:
        yield server


def _said(number: int) -> list[dict[str, str]]:
    """Return the messages of a process: some know less of the history than others."""
    return [*_HISTORY[: 20 - 2 * (number % 2)], {"role": "user", "content": f"question {number}"}]


def _start(url: str, provider: Provider, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM, url, provider.url, json.dumps(_said(number))]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_history_that_several_processes_bring_at_once_is_stored_once(
    url: str, provider: Provider
) -> None:
    processes = [_start(url, provider, number) for number in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=scaled(HANG))

    assert [process.returncode for process in processes] == [0] * 4
    with sync.AgentMemory(url, embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        contents = [item.content for item in alice.chat("default").items()]
        entries: Any = alice.chat("default").kv.list()
        assert entries == []
    assert sorted(each for each in contents if each.startswith("message")) == sorted(
        each["content"] for each in _HISTORY
    )
    assert len([each for each in contents if each.startswith("question")]) == 4
    assert len(contents) == 20 + 4 + 4


async def test_the_lease_of_a_process_that_was_killed_ends_by_itself(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_resent_history, "_LEASE_SECONDS", 0.2)
    async with AgentMemory(url, embeddings=None) as memory:
        chat = memory.scope(user_id="alice").chat("default")
        await _resent_history._take(chat)  # and nobody renews it, or gives it back

        async with _resent_history.lease(chat):
            pass

        assert await chat.kv.list() == []


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_history_that_takes_longer_than_a_lease_keeps_others_waiting(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_resent_history, "_LEASE_SECONDS", scaled(1.0))
    order: list[str] = []
    async with (
        AgentMemory(url, embeddings=None) as memory,
        AgentMemory(url, embeddings=None) as elsewhere,
    ):
        chat, same = (each.scope(user_id="alice").chat("default") for each in (memory, elsewhere))

        async def wait_for_it() -> None:
            async with _resent_history.lease(same):
                order.append("other")

        async def is_renewed() -> bool:
            return any(each.version > 4 for each in await chat.kv.list())

        async with _resent_history.lease(chat):
            other = asyncio.create_task(wait_for_it())
            await until(is_renewed)  # more often than a lease has thirds, so it would be over
            order.append("long")
        await other

        assert order == ["long", "other"]
        assert await chat.kv.list() == []


async def test_a_lease_is_renewed_again_after_its_store_could_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_resent_history, "_LEASE_SECONDS", scaled(3.0))
    problems = {1: StorageError("the file is busy"), 2: ConnectionError("reset")}
    put = _resent_history._put

    async def put_later(chat: Chat, version: int) -> int:
        if version in problems:
            raise problems.pop(version)
        return await put(chat, version)

    monkeypatch.setattr(_resent_history, "_put", put_later)
    async with AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
        chat = memory.scope(user_id="alice").chat("default")

        async def is_renewed() -> bool:
            return any(each.version > 2 for each in await chat.kv.list())

        async with _resent_history.lease(chat):
            await until(is_renewed)

        assert problems == {}
        assert await chat.kv.list() == []
