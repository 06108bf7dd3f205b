"""Microsoft Agent Framework: the history and context providers, alone and under its agent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
    ResponseStream,
    SessionContext,
)

from orbiter.memory import AgentMemory, ScopedMemory, sync
from orbiter.memory.integrations.agent_framework import (
    OrbiterContextProvider,
    OrbiterHistoryProvider,
)
from orbiter.memory.model.fences import has_fence

DISTRIBUTION = "agent-framework-core"
ON_ALL = pytest.mark.parametrize(
    "url", ["sqlite", "postgres", "redis", "memory"], indirect=True, ids=str
)


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


def _said(*texts: str, role: str = "user") -> list[Message]:
    return [Message(role, [text]) for text in texts]


def _plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


def _texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


class _Script(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
    """A model that gives the answers of a script, and keeps what it was sent."""

    def __init__(self, *answers: Content | str) -> None:
        super().__init__()
        self.answers = list(answers)
        self.sent: list[list[Message]] = []
        self.instructions: list[str] = []

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **_: Any,
    ) -> Awaitable[ChatResponse] | ResponseStream[ChatResponseUpdate, ChatResponse]:
        self.sent.append(list(messages))
        self.instructions.append(str(options.get("instructions")))
        answer = self.answers.pop(0)

        async def respond() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [answer])])

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            content = Content.from_text(answer) if isinstance(answer, str) else answer
            yield ChatResponseUpdate(role="assistant", contents=[content])

        if stream:
            return self._build_response_stream(updates())
        return respond()


# The history provider

CALLS = [
    Content.from_function_call("c1", "weather", arguments={"city": "Oslo"}),
    Content.from_function_call("c2", "weather", arguments='{"city": "Rome"}'),
]
RESULTS = [
    Content.from_function_result("c1", result="sunny"),
    Content.from_function_result("c2", result="rainy"),
]
TURN = [
    Message("user", ["Weather?"]),
    Message("assistant", CALLS),
    Message("tool", RESULTS),
    Message("assistant", ["Sunny in Oslo."], author_name="helper", message_id="m1"),
]


@ON_ALL
async def test_messages_come_back_exactly(url: str, user: str) -> None:
    messages = [
        Message("system", ["Be brief."]),
        Message("user", ["And this?", Content.from_uri("https://x.y/z", media_type="image/png")]),
        *TURN,
        Message("user", ["\0 \ud800"], additional_properties={"deep": [{"n": 2**70}]}),
        Message("user", []),
    ]
    async with AgentMemory(url, embeddings=None) as memory:
        provider = OrbiterHistoryProvider(memory.scope(user_id=user))
        await provider.save_messages("s", messages[:3])
        await provider.save_messages("s", messages[3:])

        assert _plain(await provider.get_messages("s")) == _plain(messages)


async def test_each_result_of_a_tool_is_in_the_chat(alice: ScopedMemory) -> None:
    await OrbiterHistoryProvider(alice).save_messages("s", TURN)

    items = await alice.chat("s").items()

    assert [item.content for item in items] == ["Weather?", "", "sunny", "rainy", "Sunny in Oslo."]
    assert [getattr(item, "tool_call_id", None) for item in items[2:4]] == ["c1", "c2"]


async def test_forgotten_and_edited_messages_are_so_for_the_model(alice: ScopedMemory) -> None:
    provider = OrbiterHistoryProvider(alice)
    await provider.save_messages("s", [*TURN, *_said("Thanks", "Bye")])
    weather, _, _, rainy, sunny, thanks, _ = await alice.chat("s").items()

    await alice.update(weather.id, "How is the weather?")
    await alice.update(rainy.id, "cloudy")
    await alice.update(sunny.id, "Sunny.")
    await alice.forget(thanks.id)

    messages = await provider.get_messages("s")
    assert _texts(messages) == ["How is the weather?", "", "", "Sunny.", "Bye"]
    assert [content.result for content in messages[2].contents] == ["sunny", "cloudy"]


async def test_a_forgotten_result_takes_its_call_along(alice: ScopedMemory) -> None:
    provider = OrbiterHistoryProvider(alice)
    await provider.save_messages("s", TURN)
    _, _, sunny, *_ = await alice.chat("s").items()

    await alice.forget(sunny.id)

    assert _texts(await provider.get_messages("s")) == ["Weather?", "Sunny in Oslo."]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("abc", "d"),
        ("abc", "abcd"),
        ("abc", "cd"),
        ("abc", "abc"),
        ("abc", "xabcd"),
        ("abab", "ab"),
        ("a", "a"),
        ("abc", "ca"),
    ],
)
async def test_a_conversation_that_is_given_again_is_stored_once(
    alice: ScopedMemory, first: str, then: str
) -> None:
    state: dict[str, Any] = {}
    theirs = InMemoryHistoryProvider()
    ours = OrbiterHistoryProvider(alice)
    for texts in (first, then):
        messages = [Message("user", [text], message_id=None) for text in texts]
        await theirs.save_messages("s", messages, state=state)
        await ours.save_messages("s", messages)

    assert _texts(await ours.get_messages("s")) == _texts(
        await theirs.get_messages("s", state=state)
    )


async def test_an_equal_turn_is_stored_again_and_a_conversation_that_grows_is_not(
    alice: ScopedMemory,
) -> None:
    turn = [Message("user", ["next"]), Message("assistant", ["done"])]
    ours = OrbiterHistoryProvider(alice)
    for _ in range(3):
        await ours.save_messages("turns", turn)
        await ours.save_messages("ids", [turn[0], Message("assistant", ["done"], message_id="m")])
    for count in range(1, 4):
        await ours.save_messages("whole", turn * count)
    await ours.save_messages("whole", turn * 3)

    assert _texts(await ours.get_messages("turns")) == ["next", "done"] * 3
    assert _texts(await ours.get_messages("whole")) == ["next", "done"] * 3
    assert _texts(await ours.get_messages("ids")) == ["next", "done"]


@ON_ALL
async def test_writers_at_once_lose_nothing(url: str, user: str) -> None:
    async with AgentMemory(url, embeddings=None) as memory:
        providers = [OrbiterHistoryProvider(memory.scope(user_id=user)) for _ in range(4)]
        await asyncio.gather(
            *(
                providers[number % 4].save_messages("s", _said(f"{number}", f"{number}b"))
                for number in range(20)
            )
        )
        texts = _texts(await providers[0].get_messages("s"))

    assert sorted(texts) == sorted(f"{number}{end}" for number in range(20) for end in ("", "b"))
    assert all(f"{text}b" == texts[at + 1] for at, text in enumerate(texts) if text[-1] != "b")


async def test_sessions_and_users_are_apart(memory: AgentMemory, alice: ScopedMemory) -> None:
    ours = OrbiterHistoryProvider(alice)
    await ours.save_messages("s", _said("hello"))
    await ours.save_messages(None, _said("nowhere"))
    bob = OrbiterHistoryProvider(memory.scope(user_id="bob"))

    assert await bob.get_messages("s") == []
    assert await ours.get_messages("other") == []
    assert _texts(await ours.get_messages(None)) == ["nowhere"]
    await ours.clear("s")
    assert await ours.get_messages("s") == []
    assert await alice.chat("s").items() == []


async def test_an_erased_session_leaves_nothing(memory: AgentMemory, alice: ScopedMemory) -> None:
    ours = OrbiterHistoryProvider(alice)
    await ours.save_messages("s", _said("hello"))

    await memory.erase(user_id="alice", session_id="s")

    assert await ours.get_messages("s") == []


async def test_without_remember_nothing_goes_to_a_chat(alice: ScopedMemory) -> None:
    ours = OrbiterHistoryProvider(alice, remember=False)
    await ours.save_messages("s", _said("hello"))

    assert _texts(await ours.get_messages("s")) == ["hello"]
    assert list(await alice.list()) == []


async def test_a_cancelled_call_ends_after_the_messages_are_stored(alice: ScopedMemory) -> None:
    ours = OrbiterHistoryProvider(alice)
    task = asyncio.create_task(ours.save_messages("s", _said("one", "two")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert _texts(await ours.get_messages("s")) == ["one", "two"]


def test_what_is_no_handle_is_refused() -> None:
    nothing: Any = "memory.db"
    for provider in (OrbiterHistoryProvider, OrbiterContextProvider):
        with pytest.raises(ValueError, match="takes the handle of a scope"):
            provider(nothing)


# The context provider


async def test_instructions_have_what_answers_and_is_not_there_anyway(
    alice: ScopedMemory,
) -> None:
    await alice.chat("earlier").add("My cat is called Tom.")
    await alice.remember("The deploy key is in the blue folder.")
    provider: Any = OrbiterContextProvider(alice)

    async def instructions(*texts: str, role: str = "user") -> str:
        context = SessionContext(session_id="s", input_messages=_said(*texts, role=role))
        await provider.before_run(agent=None, session=None, context=context, state={})
        return "".join(context.instructions)

    recalled = await instructions("What is my cat called?")
    assert "My cat is called Tom." in recalled
    assert has_fence(recalled)
    assert "deploy key" not in recalled
    assert await instructions("My cat is called Tom.", "What is my cat called?") == ""
    assert await instructions("How tall is the Eiffel tower?") == ""
    assert await instructions("Tom", role="assistant") == ""


# Under an agent


def _weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


async def _run(
    memory: AgentMemory, script: _Script, user: str, session: str, text: str, *, stream: bool
) -> str:
    handle = memory.scope(user_id=user)
    providers = [OrbiterHistoryProvider(handle), OrbiterContextProvider(handle)]
    agent = Agent(script, "Help.", tools=[_weather], context_providers=providers)
    place = agent.create_session(session_id=session)
    if not stream:
        return str((await agent.run(text, session=place)).text)
    return "".join(
        [str(update.text) async for update in agent.run(text, session=place, stream=True)]
    )


@pytest.mark.parametrize("stream", [False, True])
@ON_ALL
async def test_told_in_one_session_known_in_the_next_and_nobody_elses(
    url: str, user: str, *, stream: bool
) -> None:
    call = Content.from_function_call("c1", "_weather", arguments={"city": "Oslo"})
    first, again = _Script(call, "Sunny! Hello, Alice."), _Script("You said so.")
    second, other = _Script("In Oslo."), _Script("I do not know.")
    told, question = "I live in Oslo. How is the weather?", "Where do I live?"
    async with AgentMemory(url, embeddings=None) as memory:
        answer = await _run(memory, first, user, "s1", told, stream=stream)
        await _run(memory, again, user, "s1", "Are you sure?", stream=stream)
        known = await _run(memory, second, user, "s2", question, stream=stream)
        await _run(memory, other, f"not {user}", "s2", question, stream=stream)
        chat = await memory.scope(user_id=user).chat("s1").items()

    assert (answer, known) == ("Sunny! Hello, Alice.", "In Oslo.")
    assert [item.content for item in chat] == [
        told, "", "sunny in Oslo", "Sunny! Hello, Alice.", "Are you sure?", "You said so.",
    ]  # fmt: skip
    roles = ["user", "assistant", "tool", "assistant", "user"]
    assert [each.role for each in again.sent[0] if each.role != "system"] == roles
    assert "I live in Oslo." in second.instructions[0] + "".join(_texts(second.sent[0]))
    assert "Oslo" not in other.instructions[0] + "".join(_texts(other.sent[0]))


async def test_a_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    for count, text in enumerate(("one", "two", "three")):
        script = _Script("yes")
        async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
            await _run(memory, script, "alice", "s", text, stream=False)
        assert [each.role for each in script.sent[0]].count("user") == count + 1


def test_a_blocking_memory_serves_as_well(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        provider = OrbiterHistoryProvider(memory.scope(user_id="alice"))

        async def write_and_read() -> list[Message]:
            await provider.save_messages("s", _said("hello"))
            return list(await provider.get_messages("s"))

        assert _texts(asyncio.run(write_and_read())) == ["hello"]
