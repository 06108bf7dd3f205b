"""LlamaIndex: the chat store beside LlamaIndex's own, the memory block, and both under an agent."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from orbiter.memory import AgentMemory, ScopedMemory, sync
from orbiter.memory.integrations.llama_index import OrbiterChatStore, OrbiterMemoryBlock
from orbiter.memory.model.fences import has_fence

DISTRIBUTION = "llama-index-core"
# Its agents are models of pydantic, and it looks at all their attributes.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning:inspect"
)
ON_ALL = pytest.mark.parametrize(
    "url", ["sqlite", "postgres", "redis", "memory"], indirect=True, ids=str
)
EVERY_STATUS = [MessageStatus.ACTIVE, MessageStatus.ARCHIVED, None]


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        yield memory


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


@pytest.fixture
def user() -> str:
    """Return the id of a user whom no other test has: they share a Redis."""
    return f"alice {uuid4()}"


def _said(*texts: str, role: str = "user") -> list[ChatMessage]:
    return [ChatMessage(role=role, content=text) for text in texts]


def _texts(messages: Sequence[ChatMessage]) -> list[str | None]:
    return [message.content for message in messages]


class _Script:
    """A model that gives the answers of a script, and keeps what it was sent."""

    def __init__(self, *answers: ChatMessage | str) -> None:
        self._answers = list(answers)
        self.sent: list[list[ChatMessage]] = []

    def __call__(self, messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        self.sent.append(list(messages))
        answer = self._answers.pop(0)
        return ChatMessage(role="assistant", content=answer) if isinstance(answer, str) else answer

    @property
    def llm(self) -> MockFunctionCallingLLM:
        return MockFunctionCallingLLM(response_generator=self)


# The chat store


@pytest.mark.parametrize("seed", range(4))
@ON_ALL
async def test_the_store_does_what_the_one_of_llama_index_does(
    url: str, seed: int, user: str
) -> None:
    chance = random.Random(seed)
    theirs = SQLAlchemyChatStore(table_name="messages")
    async with AgentMemory(url, embeddings=None) as memory:
        ours = OrbiterChatStore(memory.scope(user_id=user))
        for step in range(40):
            key = chance.choice(["a", "b"])
            status = chance.choice([MessageStatus.ACTIVE] * 3 + [MessageStatus.ARCHIVED])
            new = _said(*(f"{step}.{each}" for each in range(chance.randrange(1, 4))))
            count = chance.randrange(4)
            name, arguments = chance.choice(
                [
                    ("add_message", (key, new[0], status)),
                    ("add_messages", (key, new, status)),
                    ("add_messages", (key, new)),
                    ("archive_oldest_messages", (key, count)),
                    ("delete_oldest_messages", (key, count)),
                    ("set_messages", (key, new)),
                    ("delete_messages", (key, chance.choice(EVERY_STATUS))),
                ]
            )
            results = [await getattr(store, name)(*arguments) for store in (ours, theirs)]
            assert results[0] == results[1]
            for each in EVERY_STATUS[:2]:
                window = (key, each, chance.choice([None, 0, 2]), chance.choice([None, 1]))
                window = window if window[2] is not None else (*window[:2], None, None)
                found = [await store.get_messages(*window) for store in (ours, theirs)]
                assert found[0] == found[1]
            for each in EVERY_STATUS:
                counts = [await store.count_messages(key, each) for store in (ours, theirs)]
                assert counts[0] == counts[1]
            assert sorted(await ours.get_keys()) == sorted(await theirs.get_keys())
    await theirs._async_engine.dispose()


@ON_ALL
async def test_messages_come_back_exactly(url: str, user: str) -> None:
    call = ToolCallBlock(tool_call_id="c1", tool_name="weather", tool_kwargs={"city": "Oslo"})
    messages = [
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", blocks=[TextBlock(text="And this?"), ImageBlock(image=b"aGk=")]),
        ChatMessage(role="assistant", blocks=[call]),
        ChatMessage(role="tool", content="\0 \ud800", additional_kwargs={"tool_call_id": "c1"}),
        ChatMessage(role="user", blocks=[]),
        ChatMessage(role="developer", content="x", additional_kwargs={"deep": [{"n": 2**70}]}),
    ]
    async with AgentMemory(url, embeddings=None) as memory:
        store = OrbiterChatStore(memory.scope(user_id=user))
        await store.add_messages("s", messages)

        assert await store.get_messages("s") == messages
        assert await store.get_messages("s", limit=2, offset=1) == messages[1:3]


async def test_archived_messages_stay_in_the_chat_and_come_before_active_ones(
    alice: ScopedMemory,
) -> None:
    store = OrbiterChatStore(alice)
    await store.add_messages("s", _said("one", "two", "three"))
    await store.archive_oldest_messages("s", 2)
    await store.add_message("s", *_said("four"))

    assert _texts(await store.get_messages("s", status=None)) == ["one", "two", "three", "four"]
    assert [item.content for item in await alice.chat("s").items()] == [
        "one", "two", "three", "four",
    ]  # fmt: skip


async def test_more_messages_are_archived_than_a_store_changes_in_one_step(
    alice: ScopedMemory,
) -> None:
    texts = [f"{number}" for number in range(5_200)]
    store = OrbiterChatStore(alice, remember=False)
    await store.add_messages("s", _said(*texts))

    assert _texts(await store.archive_oldest_messages("s", 5_190)) == texts[:5_190]
    assert _texts(await store.get_messages("s")) == texts[5_190:]
    assert _texts(await store.get_messages("s", status=None)) == texts


async def test_of_those_who_archive_at_once_none_takes_more_than_its_number(
    alice: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.integrations._message_log.MAX_CHANGES", 4)
    store = OrbiterChatStore(alice)
    await store.add_messages("s", _said(*"abcdefghijklmnop"))

    taken = await asyncio.gather(*(store.archive_oldest_messages("s", 5) for _ in range(3)))

    assert [len(each) for each in taken] == [5, 5, 5]
    assert sorted(str(text) for each in taken for text in _texts(each)) == [*"abcdefghijklmno"]
    assert _texts(await store.get_messages("s")) == ["p"]


async def test_a_message_is_deleted_by_its_position(alice: ScopedMemory) -> None:
    store = OrbiterChatStore(alice)
    await store.add_messages("s", _said("one", "two", "three"))

    assert await store.delete_message("s", 1) == _said("two")[0]
    assert await store.delete_message("s", 2) is None
    assert await store.delete_message("s", -1) is None
    assert _texts(await store.get_messages("s")) == ["one", "three"]
    assert [item.content for item in await alice.chat("s").items()] == ["one", "three"]


async def test_what_is_set_again_keeps_its_place_in_the_chat(alice: ScopedMemory) -> None:
    store = OrbiterChatStore(alice)
    await store.add_messages("s", _said("one", "two", "three"))
    before = await alice.chat("s").items()

    await store.set_messages("s", _said("one", "two", "other", "more"))

    after = await alice.chat("s").items()
    assert [item.content for item in after] == ["one", "two", "other", "more"]
    assert [item.id for item in after[:2]] == [item.id for item in before[:2]]


async def test_forgotten_and_edited_messages_are_so_for_the_model(alice: ScopedMemory) -> None:
    store = OrbiterChatStore(alice)
    await store.add_messages("s", _said("one", "two", "three"))
    one, two, _ = await alice.chat("s").items()

    await alice.forget(one.id)
    await alice.update(two.id, "2")

    assert _texts(await store.get_messages("s")) == ["2", "three"]
    assert await store.count_messages("s") == 2
    await alice.restore(one.id)
    assert _texts(await store.get_messages("s")) == ["one", "2", "three"]


async def test_a_forgotten_result_takes_its_call_along(alice: ScopedMemory) -> None:
    call = ToolCallBlock(tool_call_id="c1", tool_name="weather", tool_kwargs={"city": "Oslo"})
    store = OrbiterChatStore(alice)
    result = ChatMessage(role="tool", content="sunny", additional_kwargs={"tool_call_id": "c1"})
    asks = ChatMessage(role="assistant", blocks=[call])
    await store.add_messages("s", [*_said("Weather?"), asks, result, *_said("Thanks")])
    (sunny,) = await alice.list(where={"memory_type": "tool"})

    await alice.forget(sunny.id)

    assert _texts(await store.get_messages("s")) == ["Weather?", "Thanks"]


@ON_ALL
async def test_writers_at_once_lose_nothing_and_take_nothing_twice(url: str, user: str) -> None:
    async with AgentMemory(url, embeddings=None) as memory:
        alice = memory.scope(user_id=user)
        stores = [OrbiterChatStore(alice) for _ in range(4)]
        texts = [f"{number}" for number in range(20)]
        await asyncio.gather(
            *(
                stores[at % 4].add_messages("s", _said(text, f"{text}b"))
                for at, text in enumerate(texts)
            )
        )
        taken = await asyncio.gather(
            *(store.archive_oldest_messages("s", 5) for store in stores),
            *(store.delete_oldest_messages("s", 2) for store in stores),
        )

        left = await stores[0].get_messages("s")
        archived = await stores[0].get_messages("s", status=MessageStatus.ARCHIVED)
    assert sum(map(len, taken)) == 28
    assert len({message.content for messages in taken for message in messages}) == 28
    assert (len(left), len(archived)) == (12, 20)


async def test_another_user_sees_no_session(memory: AgentMemory, alice: ScopedMemory) -> None:
    await OrbiterChatStore(alice).add_messages("s", _said("hello"))
    bob = OrbiterChatStore(memory.scope(user_id="bob"))

    assert await bob.get_messages("s", status=None) == []
    assert await bob.get_keys() == []


async def test_an_erased_session_leaves_nothing(memory: AgentMemory, alice: ScopedMemory) -> None:
    store = OrbiterChatStore(alice)
    await store.add_messages("s", _said("hello"))
    await store.archive_oldest_messages("s", 1)

    await memory.erase(user_id="alice", session_id="s")

    assert await store.get_messages("s", status=None) == []
    assert await store.get_keys() == []


async def test_without_remember_nothing_goes_to_a_chat(alice: ScopedMemory) -> None:
    store = OrbiterChatStore(alice, remember=False)
    await store.add_messages("s", _said("hello"))

    assert _texts(await store.get_messages("s")) == ["hello"]
    assert list(await alice.list()) == []
    await alice.chat("s").add("from elsewhere")
    await store.delete_messages("s")
    assert [item.content for item in await alice.chat("s").items()] == ["from elsewhere"]


async def test_a_cancelled_call_ends_after_the_messages_are_stored(alice: ScopedMemory) -> None:
    store = OrbiterChatStore(alice)
    task = asyncio.create_task(store.add_messages("s", _said("one", "two")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert _texts(await store.get_messages("s")) == ["one", "two"]
    assert len(await alice.chat("s").items()) == 2


def test_a_blocking_program_uses_a_blocking_memory(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        llama = Memory.from_defaults(
            session_id="s",
            chat_store=OrbiterChatStore(alice),
            memory_blocks=[OrbiterMemoryBlock(handle=alice)],
        )
        alice.chat("earlier").add("My cat is called Tom.")
        llama.put(*_said("What is my cat called?"))
        system, question = llama.get()

    assert "My cat is called Tom." in str(system.content)
    assert question.content == "What is my cat called?"


def test_what_is_no_handle_is_refused() -> None:
    nothing: Any = "memory.db"
    with pytest.raises(ValueError, match="takes the handle of a scope"):
        OrbiterChatStore(nothing)
    with pytest.raises(ValueError, match="takes the handle of a scope"):
        OrbiterMemoryBlock(handle=nothing)


# The memory block


async def test_the_block_recalls_fenced_what_answers_and_is_not_there_anyway(
    alice: ScopedMemory,
) -> None:
    await alice.chat("earlier").add("My cat is called Tom.")
    await alice.remember("The deploy key is in the blue folder.")
    block = OrbiterMemoryBlock(handle=alice)

    recalled = await block.aget(_said("What is my cat called?"))

    assert "My cat is called Tom." in recalled
    assert has_fence(recalled)
    assert "deploy key" not in recalled
    assert await block.aget(_said("My cat is called Tom.", "What is my cat called?")) == ""
    assert await block.aget(_said("How tall is the Eiffel tower?")) == ""
    assert await block.aget([]) == await block.aget(_said("Tom", role="assistant")) == ""


async def test_with_another_store_the_block_remembers_what_leaves_the_short_term(
    alice: ScopedMemory,
) -> None:
    block = OrbiterMemoryBlock(handle=alice)
    llama = Memory.from_defaults(
        session_id="s", token_limit=60, token_flush_size=10, memory_blocks=[block]
    )
    for number in range(12):
        await llama.aput(*_said(f"The number of house {number} is {number * 7}."))
        await llama.aput(*_said(f"Noted, house {number}.", role="assistant"))
    items = await alice.chat("s").items()
    active = await llama.sql_store.get_messages("s")

    assert [item.content for item in items[:2]] == [
        "The number of house 0 is 0.",
        "Noted, house 0.",
    ]
    assert len(items) + len(active) == 24
    await llama.sql_store._async_engine.dispose()


async def test_with_our_store_nothing_is_remembered_twice(alice: ScopedMemory) -> None:
    llama = Memory.from_defaults(
        session_id="s",
        token_limit=60,
        token_flush_size=10,
        chat_store=OrbiterChatStore(alice),
        memory_blocks=[OrbiterMemoryBlock(handle=alice)],
    )
    for number in range(12):
        await llama.aput(*_said(f"The number of house {number} is {number * 7}."))
        await llama.aput(*_said(f"Noted, house {number}.", role="assistant"))

    assert len(await alice.chat("s").items()) == 24
    assert len(await llama.aget_all(status=MessageStatus.ARCHIVED)) > 0
    sent = await llama.aget(input="What is the number of house 3?")
    assert "The number of house 3 is 21." in str(sent[0].content)


# Under an agent


async def _run(memory: AgentMemory, script: _Script, user: str, session: str, text: str) -> str:
    handle = memory.scope(user_id=user)
    agent = FunctionAgent(llm=script.llm, tools=[_weather], system_prompt="Help.", streaming=False)
    llama = Memory.from_defaults(
        session_id=session,
        chat_store=OrbiterChatStore(handle),
        memory_blocks=[OrbiterMemoryBlock(handle=handle)],
    )
    return str(await agent.run(text, memory=llama))


def _weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


@ON_ALL
async def test_told_in_one_session_known_in_the_next_and_nobody_elses(url: str, user: str) -> None:
    call = ToolCallBlock(tool_call_id="c1", tool_name="_weather", tool_kwargs={"city": "Oslo"})
    first = _Script(ChatMessage(role="assistant", blocks=[call]), "Sunny! Hello, Alice.")
    again, second, other = _Script("You said so."), _Script("In Oslo."), _Script("I do not know.")
    async with AgentMemory(url, embeddings=None) as memory:
        told = "I live in Oslo. How is the weather?"
        assert await _run(memory, first, user, "s1", told) == "Sunny! Hello, Alice."
        await _run(memory, again, user, "s1", "Are you sure?")
        assert await _run(memory, second, user, "s2", "Where do I live?") == "In Oslo."
        await _run(memory, other, f"not {user}", "s2", "Where do I live?")
        chat = await memory.scope(user_id=user).chat("s1").items()

    assert [item.content for item in chat] == [
        told, "", "sunny in Oslo", "Sunny! Hello, Alice.", "Are you sure?", "You said so.",
    ]  # fmt: skip
    assert [message.role for message in again.sent[0]] == [
        MessageRole.SYSTEM, MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL,
        MessageRole.ASSISTANT, MessageRole.USER,
    ]  # fmt: skip
    assert "I live in Oslo." in "".join(map(str, second.sent[0]))
    assert "Oslo" not in "".join(map(str, other.sent[0]))


async def test_a_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    for count, text in enumerate(("one", "two", "three")):
        script = _Script("yes")
        async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
            await _run(memory, script, "alice", "s", text)
        users = [each for each in script.sent[0] if each.role == MessageRole.USER]
        assert len(users) == count + 1
