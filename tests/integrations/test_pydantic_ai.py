"""Pydantic AI: conversations with revisions, forks and branches; trimming; recall; the toolset."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each_row

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai import Agent, Conversation
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from tests.agent.test_own_output import SECRET, everything_said

from orbiter.memory import AgentMemory, ScopedMemory
from orbiter.memory.agent import KeyValue
from orbiter.memory.errors import InvalidItemError, StorageError
from orbiter.memory.integrations import pydantic_ai
from orbiter.memory.integrations.pydantic_ai import (
    OrbiterConversationStore,
    memory_toolset,
    recall_instructions,
    trim_history,
)
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import HashEmbeddings

DISTRIBUTION = "pydantic-ai-slim"


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        yield memory


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


@pytest.fixture(params=["theirs", "ours"])
def store(request: pytest.FixtureRequest, alice: ScopedMemory) -> ConversationStore:
    """Whatever is tested of our store holds of the one that Pydantic AI brings, too."""
    return (
        InMemoryConversationStore()
        if request.param == "theirs"
        else OrbiterConversationStore(alice)
    )


@pytest.fixture
def agent() -> Agent[None, str]:
    made = Agent(TestModel(), system_prompt="Be brief.")

    @made.tool_plain
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"sunny in {city}"

    return made


async def _say(
    store: ConversationStore, agent: Agent[None, str], text: str, name: str = "c"
) -> Any:
    conversation = await store.load(name) or Conversation(conversation_id=name)
    result = await agent.run(text, conversation=conversation)
    await store.save(result)
    return result


async def test_a_conversation_goes_on_and_each_message_is_stored_once(
    store: ConversationStore, agent: Agent[None, str]
) -> None:
    first = await _say(store, agent, "hello")
    second = await _say(store, agent, "again")

    loaded = await store.load("c")
    entries = await store.load_entries("c")

    assert loaded is not None
    assert entries is not None
    assert loaded.messages == second.all_messages()
    assert loaded.messages[: len(first.all_messages())] == first.all_messages()
    assert loaded.usage == second.conversation.usage
    assert len({entry.id for entry in entries}) == len(loaded.messages)
    last = await store.load("c", limit=2)
    assert last is not None
    assert last.messages == loaded.messages[-2:]


async def test_of_two_that_save_one_is_told_of_the_other(
    store: ConversationStore, agent: Agent[None, str]
) -> None:
    await _say(store, agent, "hello")
    mine, theirs = await store.load("c"), await store.load("c")
    assert mine is not None
    await store.save(await agent.run("first", conversation=theirs))

    with pytest.raises(ConversationConflict):
        await store.save(await agent.run("second", conversation=mine))
    with pytest.raises(ConversationConflict):
        await store.save(Conversation(conversation_id="c"))


async def test_forks_share_messages_and_outlive_what_they_came_from(
    store: ConversationStore, agent: Agent[None, str]
) -> None:
    original = (await _say(store, agent, "hello")).all_messages()
    await _say(store, agent, "more")
    fork = await store.fork("c", at=4, new_conversation_id="fork")
    await _say(store, agent, "elsewhere", "fork")
    fork_of_fork = await store.fork("fork", new_conversation_id="third")

    await store.delete("c")
    await store.delete("fork")

    assert fork.messages == original
    assert await store.load("c") is None
    kept = await store.load("third")
    assert kept is not None
    assert kept.messages == fork_of_fork.messages
    assert [record.conversation_id for record in await store.list_conversations()] == ["third"]


async def test_a_conversation_branches_and_branches_back(
    store: ConversationStore, agent: Agent[None, str]
) -> None:
    await _say(store, agent, "hello")
    whole = await store.load("c")
    assert whole is not None
    branched = await store.branch("c", at=0, expected_revision=whole.revision)
    record = await store.read_record("c")
    assert record is not None
    back = await store.branch("c", from_entry=record.branches[0], expected_revision=record.revision)

    assert branched.messages == []
    assert back.messages == whole.messages
    with pytest.raises(ConversationConflict):
        await store.branch("c", at=0, expected_revision=whole.revision)


async def test_scopes_of_pydantic_ai_keep_conversations_apart(
    store: ConversationStore, agent: Agent[None, str]
) -> None:
    for name, scope in (("a", "team"), ("b", "team"), ("c", None)):
        result = await agent.run("hello", conversation=Conversation(conversation_id=name))
        await store.save(result, scope=scope)

    listed = await store.list_conversations(scope="team")

    assert [record.conversation_id for record in listed] == ["b", "a"]
    assert await store.load("a", scope="other") is None
    assert len(await store.list_conversations(limit=2)) == 2


async def test_deleting_leaves_nothing_behind(alice: ScopedMemory, agent: Agent[None, str]) -> None:
    store = OrbiterConversationStore(alice)
    await _say(store, agent, "hello")
    await store.fork("c", new_conversation_id="fork")

    await store.delete("c")
    await store.delete("fork")

    assert await alice.kv.list() == []
    assert list(await alice.list()) == []


def _prompts(count: int) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(content=f"{number}")]) for number in range(count)]


async def test_a_conversation_of_more_messages_than_one_step_changes_is_deleted(
    alice: ScopedMemory,
) -> None:
    store = OrbiterConversationStore(alice, remember=False)
    messages = _prompts(5_200)
    await store.save(Conversation(conversation_id="c", messages=messages[:4_000]))
    stored = await store.load("c")
    assert stored is not None
    stored.messages = messages
    await store.save(stored)

    await store.delete("c")

    assert await alice.kv.list() == []


async def test_a_conversation_whose_deletion_was_cut_off_is_shorter_and_can_be_deleted(
    alice: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OrbiterConversationStore(alice, remember=False)
    monkeypatch.setattr(pydantic_ai, "_STEP", 3)
    messages = _prompts(10)
    await store.save(Conversation(conversation_id="c", messages=messages))
    whole = await store.load("c")
    assert whole is not None
    await store.branch("c", at=6, expected_revision=whole.revision)
    await store.fork("c", at=2, new_conversation_id="fork")
    write = KeyValue.write
    steps: list[int] = []

    async def write_until_the_disk_is_full(kv: KeyValue, changes: Any) -> list[int]:
        steps.append(len(changes))
        if len(steps) == 3:
            raise StorageError("no space is left on the device")
        return await write(kv, changes)

    with monkeypatch.context() as patch:
        patch.setattr(KeyValue, "write", write_until_the_disk_is_full)
        with pytest.raises(StorageError):
            await store.delete("c")
    left = await store.load("c")
    await store.delete("c")

    assert left is not None
    assert left.messages == messages[:4]
    assert await store.load("c") is None
    kept = await store.load("fork")
    assert kept is not None
    assert kept.messages == messages[:2]
    await store.delete("fork")
    assert await alice.kv.list() == []


async def test_who_goes_on_with_a_conversation_that_is_being_deleted_is_told(
    alice: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OrbiterConversationStore(alice, remember=False)
    monkeypatch.setattr(pydantic_ai, "_STEP", 2)
    messages = _prompts(7)
    await store.save(Conversation(conversation_id="c", messages=messages))
    mine = await store.load("c")
    assert mine is not None
    mine.messages = [*messages, ModelRequest(parts=[UserPromptPart(content="more")])]
    told: list[str] = []
    write = KeyValue.write

    async def write_and_let_others_save(kv: KeyValue, changes: Any) -> list[int]:
        versions = await write(kv, changes)
        monkeypatch.setattr(KeyValue, "write", write)
        with pytest.raises(ConversationConflict):
            await store.save(mine)
        told.append("saved over")
        await store.fork("c", at=2, new_conversation_id="fork")
        return versions

    monkeypatch.setattr(KeyValue, "write", write_and_let_others_save)
    await store.delete("c")

    assert told == ["saved over"]
    assert await store.load("c") is None
    kept = await store.load("fork")
    assert kept is not None
    assert kept.messages == messages[:2]
    await store.delete("fork")
    assert await alice.kv.list() == []


async def test_a_text_that_is_none_is_refused_with_the_reason(alice: ScopedMemory) -> None:
    store = OrbiterConversationStore(alice)
    messages: list[ModelMessage] = [ModelResponse(parts=[TextPart(content="half: \ud800")])]

    with pytest.raises(InvalidItemError, match="half of a surrogate pair"):
        await store.save(Conversation(conversation_id="c", messages=messages))

    assert await store.load("c") is None


async def test_what_is_said_is_recalled_by_the_user_alone(
    memory: AgentMemory, alice: ScopedMemory, agent: Agent[None, str]
) -> None:
    await _say(OrbiterConversationStore(alice), agent, "My cat is called Tom.")
    bob = memory.scope(user_id="bob")

    (hit, *_) = await alice.recall("What is the cat called?")
    messages = await alice.chat("c").items()

    assert hit.item.content == "My cat is called Tom."
    assert [item.memory_type for item in messages] == ["human", "ai", "tool", "ai"]
    assert await OrbiterConversationStore(bob).load("c") is None


async def test_long_histories_are_read_in_pages(alice: ScopedMemory) -> None:
    store = OrbiterConversationStore(alice, remember=False)
    messages = _prompts(450)
    await store.save(Conversation(conversation_id="c", messages=messages))

    loaded = await store.load("c")

    assert loaded is not None
    assert loaded.messages == messages


def _turns(count: int, *, steps: int) -> list[ModelMessage]:
    messages: list[ModelMessage] = [ModelRequest(parts=[SystemPromptPart(content="Be brief.")])]
    for turn in range(count):
        messages.append(ModelRequest(parts=[UserPromptPart(content=f"question {turn} " * 20)]))
        for step in range(steps):
            id = f"{turn}.{step}"
            messages.append(
                ModelResponse(parts=[ToolCallPart("look", {"at": id}, tool_call_id=id)])
            )
            answer = ToolReturnPart(tool_name="look", content="seen " * 20, tool_call_id=id)
            messages.append(ModelRequest(parts=[answer]))
        messages.append(ModelResponse(parts=[TextPart(content=f"answer {turn}")]))
    return messages


@each_row("budget", [1, 200, 500, 1_000, 3_000, 100_000])
@each_row("steps", [0, 3])
def test_a_trimmed_history_is_legal_and_ends_as_it_did(budget: int, steps: int) -> None:
    messages = _turns(6, steps=steps)

    kept = trim_history(budget)(messages)

    calls = [p.tool_call_id for m in kept for p in m.parts if isinstance(p, ToolCallPart)]
    returns = [p.tool_call_id for m in kept for p in m.parts if isinstance(p, ToolReturnPart)]
    assert calls == returns
    assert kept[0].parts[0] == messages[0].parts[0]
    assert isinstance(kept[1].parts[0], UserPromptPart)
    assert kept[-1] == messages[-1]
    assert len(kept) == len(messages) if budget == 100_000 else len(kept) < len(messages)


@pytest.mark.parametrize("with_prompt_between", [False, True])
def test_a_prompt_that_came_with_a_result_is_kept_without_it_if_the_call_goes(
    with_prompt_between: bool,
) -> None:
    messages: list[ModelMessage] = [ModelRequest(parts=[SystemPromptPart(content="Be brief.")])]
    for turn in range(4):
        messages.append(ModelRequest(parts=[UserPromptPart(content=f"question {turn} " * 20)]))
        call = ToolCallPart("look", {"at": turn}, tool_call_id=f"{turn}")
        messages.append(ModelResponse(parts=[call]))
        result = ToolReturnPart(tool_name="look", content="seen", tool_call_id=f"{turn}")
        prompt = UserPromptPart(content=f"and then {turn}?")
        if with_prompt_between:
            messages += [ModelRequest(parts=[prompt]), ModelRequest(parts=[result])]
        else:
            messages.append(ModelRequest(parts=[result, prompt]))
        messages.append(ModelResponse(parts=[TextPart(content=f"answer {turn}")]))

    for budget in range(1, 1_500, 40):
        kept = trim_history(budget)(messages)

        parts = [part for message in kept for part in message.parts]
        calls = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
        returns = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
        assert calls == returns
        assert prompt in parts
        assert kept[-1] == messages[-1]
        assert all(message.parts for message in kept)
    assert trim_history(100_000)(messages) == messages


def test_a_history_that_fits_is_left_as_it_is() -> None:
    call = ToolCallPart("look", {}, tool_call_id="1")
    result = ToolReturnPart(tool_name="look", content="seen", tool_call_id="1")
    messages: list[ModelMessage] = [
        ModelResponse(parts=[call]),
        ModelRequest(parts=[result, UserPromptPart(content="And then?")]),
    ]

    assert trim_history(1_000)(messages) == messages


async def test_an_agent_remembers_in_one_run_and_knows_in_the_next(alice: ScopedMemory) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = str(messages[-1].parts[-1].content)  # type: ignore[union-attr]
        if said.startswith("I live"):
            return ModelResponse(parts=[ToolCallPart("know", {"key": "city", "value": "Oslo"})])
        is_result = isinstance(messages[-1].parts[-1], ToolReturnPart)
        text = said if is_result else str(info.instructions)
        return ModelResponse(parts=[TextPart(content=text)])

    agent = Agent(
        FunctionModel(answer),
        toolsets=[memory_toolset(alice)],
        instructions=recall_instructions(alice),
        capabilities=[ProcessHistory(trim_history(2_000))],
    )

    told = await agent.run("I live in Oslo.")
    asked = await agent.run("Which city is home?")

    assert told.output == "Known: city is Oslo."
    assert "city: Oslo" in asked.output
    assert "data, not instructions" in asked.output


async def test_instructions_do_not_repeat_the_conversation(alice: ScopedMemory) -> None:
    instructions: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        instructions.append(info.instructions or "")
        return ModelResponse(parts=[TextPart("Your cat Luna is at home.")])

    agent = Agent(FunctionModel(answer), instructions=recall_instructions(alice))
    store = OrbiterConversationStore(alice)
    await alice.remember("My cat is called Luna")

    for prompt in ("Where is my cat?", "What is my cat called?"):
        await _say(store, agent, prompt, "one")

    assert all("My cat is called Luna" in text for text in instructions)
    assert not any("at home" in text or "Where is" in text for text in instructions)


async def test_instructions_do_not_repeat_what_a_tool_has_answered(alice: ScopedMemory) -> None:
    instructions: list[str | None] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        instructions.append(info.instructions)
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("Luna.")])
        return ModelResponse(parts=[ToolCallPart("recall", {"query": "Where is my cat?"})])

    recalls = recall_instructions(alice)
    agent = Agent(FunctionModel(answer), instructions=recalls, toolsets=[memory_toolset(alice)])
    await alice.remember("My cat is called Luna (see [1])")

    told = await agent.run("What is my cat called?")
    await agent.run("Is my cat called Luna?", message_history=told.all_messages())

    assert "Luna" in (instructions[0] or "")
    assert instructions[-1] is None


async def test_what_its_tools_answer_is_no_memory() -> None:
    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart(content="I see.")])
        query = str(messages[-1].parts[-1].content)  # type: ignore[union-attr]
        return ModelResponse(parts=[ToolCallPart("recall", {"query": query})])

    config = SummaryConfig(message_threshold=1)
    async with AgentMemory("memory://", embeddings=HashEmbeddings(), summaries=config) as memory:
        alice = memory.scope(user_id="alice")
        agent = Agent(FunctionModel(answer), toolsets=[memory_toolset(alice)])
        store = OrbiterConversationStore(alice)
        item = await alice.remember(SECRET)
        await _say(store, agent, "Who is Dr. Frost?", "one")
        await _say(store, agent, "Who won?", "two")
        assert "diabetes" in str([item.content for item in await alice.chat("one").items()])

        await alice.forget(item)

        said = await everything_said(alice)
        assert "diabetes" not in said
        assert "Nothing is remembered" not in said
