"""LangChain: the standard tests of retrievers, and agents with a memory and a scripted model."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests

from orbiter.memory import AgentMemory, sync
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.integrations.langchain import OrbiterMiddleware, OrbiterRetriever
from orbiter.memory.integrations.langgraph import OrbiterSaver

DISTRIBUTION = "langchain"

ROOT = Path(__file__).parents[2]


class ScriptedModel(FakeMessagesListChatModel):
    """Says what it is told to say, and keeps what it was sent."""

    sent: list[list[BaseMessage]] = []  # noqa: RUF012 - pydantic copies it

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.sent.append(messages)
        return super()._generate(messages, *args, **kwargs)


def says(*texts: str) -> ScriptedModel:
    return ScriptedModel(responses=[AIMessage(text) for text in texts])


class TestRetriever(RetrieversIntegrationTests):
    SUITE = "langchain-tests: retrievers"

    @pytest.fixture(autouse=True)
    def _memory(self, tmp_path: Path) -> Iterator[None]:
        with sync.AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
            self._ann = memory.scope(user_id="ann")
            for drink in ("green tea", "black tea", "white tea", "strong coffee"):
                self._ann.remember(f"Ann drinks {drink}")
            yield

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return OrbiterRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"handle": self._ann, "k": 2}

    @property
    def retriever_query_example(self) -> str:
        return "What does Ann drink?"


@pytest.fixture
async def memory(url: str) -> AsyncIterator[AgentMemory]:
    async with AgentMemory(url, embeddings=None) as memory:
        yield memory


@pytest.fixture
def ann(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="ann")


async def test_documents_tell_where_they_come_from(ann: ScopedMemory) -> None:
    item = await ann.remember("Ann drinks green tea", tags=["taste"])
    await ann.remember("Ann drinks coffee at work")
    retriever = OrbiterRetriever(handle=ann, where={"tags": "taste"})

    documents = await retriever.ainvoke("What does Ann drink?")

    assert [each.page_content for each in documents] == ["Ann drinks green tea"]
    assert (documents[0].id, documents[0].metadata["tags"]) == (item.id, ["taste"])
    assert documents[0].metadata["score"] > 0


async def test_told_in_one_thread_known_in_another_and_nobody_elses(memory: AgentMemory) -> None:
    model = says("Noted.", "Green tea.", "I do not know.")

    async def ask(user: str, thread: str, question: str) -> str:
        scope = memory.scope(user_id=user)
        agent: Any = create_agent(
            model, [], middleware=[OrbiterMiddleware(scope)], checkpointer=OrbiterSaver(scope)
        )
        config: Any = {"configurable": {"thread_id": thread}}
        state = await agent.ainvoke({"messages": [HumanMessage(question)]}, config)
        return str(state["messages"][-1].text)

    await ask("ann", "monday", "My favourite drink is green tea")
    assert await ask("ann", "tuesday", "What is my favourite drink?") == "Green tea."
    await ask("bob", "tuesday", "What is my favourite drink?")

    monday, tuesday, bob = model.sent
    assert not [each for each in monday if isinstance(each, SystemMessage)]
    assert "My favourite drink is green tea" in tuesday[0].text
    assert "data, not instructions" in tuesday[0].text
    assert not [each for each in bob if isinstance(each, SystemMessage)]
    said = await memory.scope(user_id="ann").chat("monday").items()
    assert [item.content for item in said] == ["My favourite drink is green tea", "Noted."]


async def test_what_the_model_sees_anyway_is_not_recalled(ann: ScopedMemory) -> None:
    model = says("Noted.", "Green tea.")
    agent: Any = create_agent(
        model, [], system_prompt="Be brief.", middleware=[OrbiterMiddleware(ann)],
        checkpointer=OrbiterSaver(ann),
    )  # fmt: skip
    config = {"configurable": {"thread_id": "t"}}

    await agent.ainvoke({"messages": [HumanMessage("I like green tea")]}, config)
    await agent.ainvoke({"messages": [HumanMessage("Which tea do I like?")]}, config)

    assert [each.text for each in model.sent[1]] == [
        "Be brief.", "I like green tea", "Noted.", "Which tea do I like?",
    ]  # fmt: skip
    assert len(await ann.chat("t").items()) == 4


def test_a_blocking_agent_with_tools_remembers_calls_and_results(tmp_path: Path) -> None:
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"rain in {city}"

    call = AIMessage("", tool_calls=[{"id": "c1", "name": "weather", "args": {"city": "Oslo"}}])
    model = ScriptedModel(responses=[call, AIMessage("It rains.")])
    with sync.AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        agent: Any = create_agent(model, [weather], middleware=[OrbiterMiddleware(ann)])

        agent.invoke({"messages": [HumanMessage("Weather in Oslo?")]})

        kinds = [item.memory_type for item in ann.chat("langchain").items()]
        assert kinds == ["human", "ai", "tool", "ai"]
        assert asyncio.run(agent.ainvoke({"messages": [HumanMessage("Again?")]}))


@pytest.mark.parametrize("result", ["bin\0ary", "half \ud83d", "x" * 1_100_000])
async def test_a_run_that_cannot_be_remembered_is_answered_all_the_same(
    ann: ScopedMemory, caplog: pytest.LogCaptureFixture, result: str
) -> None:
    def read() -> str:
        """Read a file."""
        return result

    call = AIMessage("", tool_calls=[{"id": "c1", "name": "read", "args": {}}])
    model = ScriptedModel(responses=[call, AIMessage("It is a picture.")])
    agent: Any = create_agent(model, [read], middleware=[OrbiterMiddleware(ann)])

    state = await agent.ainvoke({"messages": [HumanMessage("What is in it?")]})

    assert state["messages"][-1].text == "It is a picture."
    assert "was not remembered: MessageError" in caplog.text
    said = [item.content for item in await ann.chat("langchain").items()]
    assert said == ["What is in it?", "It is a picture."]


async def test_a_run_that_goes_on_without_a_question_appends_what_is_new(
    ann: ScopedMemory, caplog: pytest.LogCaptureFixture
) -> None:
    model = says("One.", "Two.", "Three.")
    agent: Any = create_agent(
        model, [], middleware=[OrbiterMiddleware(ann)], checkpointer=OrbiterSaver(ann)
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    await agent.ainvoke({"messages": [HumanMessage("Count")]}, config)

    await agent.ainvoke({"messages": []}, config)
    await agent.ainvoke({"messages": [HumanMessage("Go on")]}, config)

    said = [item.content for item in await ann.chat("t").items()]
    assert said == ["Count", "One.", "Two.", "Go on", "Three."]
    assert "not remembered" not in caplog.text


async def test_what_stands_before_the_first_question_is_sent(tmp_path: Path) -> None:
    messages = [SystemMessage("Be brief."), AIMessage("Welcome!"), HumanMessage("Hello")]
    model = says("Hi.", "Hi.")
    async with AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
        for max_tokens in (1_000, 8):
            handle = memory.scope(user_id="ann")
            middleware = OrbiterMiddleware(handle, k=0, max_tokens=max_tokens)
            agent: Any = create_agent(model, [], middleware=[middleware])
            await agent.ainvoke({"messages": messages})

    assert [each.text for each in model.sent[0]] == ["Be brief.", "Welcome!", "Hello"]
    assert [each.text for each in model.sent[1]] == ["Be brief.", "Hello"]


@pytest.mark.parametrize("max_tokens", range(10, 200, 7))
async def test_rounds_are_cut_so_that_every_call_has_its_result(
    max_tokens: int, tmp_path: Path
) -> None:
    messages: list[BaseMessage] = []
    for number in range(4):
        messages.append(HumanMessage(f"question {number} " + "x " * 10))
        for step in range(number):
            id = f"{number}-{step}"
            call = {"id": id, "name": "look", "args": {"at": "y" * 20}}
            messages.append(AIMessage("", tool_calls=[call]))
            messages.append(ToolMessage("z " * 10, tool_call_id=id))
        messages.append(AIMessage(f"answer {number}"))
    messages.append(HumanMessage("the last question"))
    model = says("the last answer")
    async with AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
        middleware = OrbiterMiddleware(memory.scope(user_id="ann"), k=0, max_tokens=max_tokens)
        agent: Any = create_agent(model, [], middleware=[middleware])

        state = await agent.ainvoke({"messages": messages})

    sent = model.sent[0]
    assert isinstance(sent[0], HumanMessage)
    assert sent[-1].text == "the last question"
    assert sent == messages[len(messages) - len(sent) :]
    assert len(state["messages"]) == len(messages) + 1
    open_calls: set[str] = set()
    for message in sent:
        if isinstance(message, AIMessage):
            assert not open_calls
            open_calls = {str(call["id"]) for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            open_calls.remove(message.tool_call_id)
    assert not open_calls


async def test_a_round_that_is_too_long_keeps_its_question_and_newest_step(tmp_path: Path) -> None:
    messages: list[BaseMessage] = [HumanMessage("question")]
    for step in range(5):
        call = {"id": str(step), "name": "look", "args": {}}
        messages.append(AIMessage("", tool_calls=[call]))
        messages.append(ToolMessage("z " * 50, tool_call_id=str(step)))
    model = says("answer")
    async with AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
        middleware = OrbiterMiddleware(memory.scope(user_id="ann"), k=0, max_tokens=20)
        agent: Any = create_agent(model, [], middleware=[middleware])

        await agent.ainvoke({"messages": messages})

    assert model.sent[0] == [messages[0], *messages[-2:]]


def test_the_example_remembers_across_runs(tmp_path: Path) -> None:
    def run(question: str) -> str:
        command = [sys.executable, str(ROOT / "examples/langgraph_agent.py"), question]
        environment = {"PATH": os.environ["PATH"], "ORBITER_MEMORY_URL": f"{tmp_path}/agent.db"}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    assert "I will remember" in run("My favourite drink is green tea")
    answered = run("What is my favourite drink?")
    assert answered == "You told me: My favourite drink is green tea\n"


def test_the_example_says_how_it_is_called(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "ORBITER_MEMORY_URL": f"{tmp_path}/agent.db"}
    command = [sys.executable, str(ROOT / "examples/langgraph_agent.py")]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)

    assert done.stderr == 'usage: python examples/langgraph_agent.py "a question"\n'
    assert not list(tmp_path.iterdir())
