"""What our own tools answer stays in its conversation, and is remembered nowhere else."""

import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.agent.conftest import Open
from tests.agent.test_not_indexed import MODES, Noting
from tests.extraction._extractors import LineExtractor

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem, ToolMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.context import ContextManager
from orbiter.memory.context.persona import Soul
from orbiter.memory.context.prompt_fence import Entry, new_mark, render
from orbiter.memory.extraction import LongTermMemory
from orbiter.memory.integrations.tools import memory_tools
from orbiter.memory.mcp import Profile, build
from orbiter.memory.model.fences import has_fence
from orbiter.memory.model.items import is_own_output
from orbiter.memory.model.own_output import AGENT_TOOLS, MCP_TOOLS, is_own_tool
from orbiter.memory.summary import SummaryConfig, conversation_text
from orbiter.memory.testing import HashEmbeddings

SECRET = "Alice has diabetes and sees Dr. Frost"
FENCE = render([Entry(SECRET)], mark=new_mark())


def asking(name: str, result: str, *, question: str = "How am I?") -> list[dict[str, Any]]:
    """Return the messages of a turn in which a model calls a tool."""
    call = {"id": "call", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call", "content": result},
        {"role": "assistant", "content": "I see."},
    ]


async def recalled(handle: ScopedMemory, *questions: str) -> list[str]:
    """Return every text that any recall finds."""
    texts = []
    for mode in MODES:
        for question in questions:
            hits = await handle.recall(question, mode=mode, k=50)
            items = [each for hit in hits for each in (hit.item, hit.shown, *hit.repeats)]
            texts += [*map(str, hits), *(str(hit.passage) for hit in hits), *map(repr, items)]
            texts += [item.content for item in items]
    return texts


async def everything_said(handle: ScopedMemory) -> str:
    """Return all that a model or a person is told of the memories outside of the conversation."""
    questions = (
        "Who is Dr. Frost?",
        "health of Alice",
        "diabetes",
        "Nothing is remembered about this",
    )
    context = await handle.chat("new").context("Who is Dr. Frost?")
    extractor = LineExtractor()
    texts = []
    for chat in await handle.chats():
        talk = handle.chat(str(chat.metadata.session_id))
        items = await talk.items()
        await LongTermMemory(handle, extractor).extract(items)
        await talk.summarize()
        texts += [conversation_text(items), str(await talk.summary())]
    texts += [str(context.messages()), context.text, str(extractor.seen)]
    texts += [str(await handle.facts.all()), *await recalled(handle, *questions)]
    return "\n".join(texts)


class Listening(Noting):
    """Notes which texts it saw; for a store, it is the model of all other tests."""

    name = HashEmbeddings().name


@pytest.fixture
def model() -> Noting:
    return Listening(HashEmbeddings().dimension)


@pytest.fixture
async def any_voice(any_url: str, open_memory: Open, model: Noting, who: str) -> ScopedMemory:
    config = SummaryConfig(message_threshold=1, keep_recent=0)
    return open_memory(any_url, embeddings=model, summaries=config).scope(user_id=f"voice-{who}")


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("recall", FENCE),
        ("know", f"Known: health is {SECRET}."),
        ("mcp__orbiter-memory__memory_search", json.dumps({"results": [{"text": SECRET}]})),
        ("orbiter-memory_memory_get", f"{SECRET}, since May"),
        ("memory.read_graph", json.dumps({"entities": [{"observations": [SECRET]}]})),
        ("Bash", f"$ call-it\n{FENCE}\ndone"),
    ],
)
async def test_a_forgotten_memory_lives_on_in_no_answer_of_a_tool(
    any_voice: ScopedMemory, model: Noting, name: str, result: str
) -> None:
    item = await any_voice.remember(SECRET)
    messages = asking(name, result)
    await any_voice.chat("one").add(messages)
    await any_voice.forget(item)

    assert "diabetes" not in await everything_said(any_voice)
    assert not [text for text in model.texts if "has diabetes" in text and text != SECRET]


async def test_a_conversation_keeps_the_answer_as_it_is(any_voice: ScopedMemory) -> None:
    messages = asking("recall", FENCE)
    chat = any_voice.chat("one")
    await chat.add(messages)

    assert (await chat.messages(format="openai")).messages == messages
    (answer,) = [each for each in await chat.items() if isinstance(each, ToolMemory)]
    assert answer.content == FENCE
    assert answer.metadata.extra == {"indexed_by": False}
    context = await chat.context("And now?")
    assert FENCE in [message["content"] for message in context.messages()]


async def test_what_says_nothing_of_memories_is_found_as_before(any_voice: ScopedMemory) -> None:
    await any_voice.chat("one").add(asking("weather", "It rains in Oslo"))
    await any_voice.chat("two").add(asking("crm__update", "The order of Oslo is 12"))

    texts = await recalled(any_voice, "Oslo")

    assert {"It rains in Oslo", "The order of Oslo is 12"} <= set(texts)


async def test_a_message_of_a_person_is_found_without_the_memories_that_it_quotes(
    any_voice: ScopedMemory, model: Noting
) -> None:
    await any_voice.chat("one").add(f"My garden is green.\n{FENCE}\nIt has roses.")
    (item,) = await any_voice.chat("one").items()

    (hit, *_) = await any_voice.recall("Which colour has my garden?")
    context = await any_voice.chat("two").context("What does my garden have?")

    assert hit.item.id == item.id
    assert hit.item.content == "My garden is green.\nIt has roses."
    assert "roses" in context.text
    assert "diabetes" not in await everything_said(any_voice)
    assert not [text for text in model.texts if "has diabetes" in text]
    assert FENCE in item.content


async def test_a_changed_text_is_found_by_what_it_says_then(any_voice: ScopedMemory) -> None:
    item = await any_voice.remember(FENCE)
    assert await recalled(any_voice, "diabetes") == []

    await any_voice.update(item.id, "The bike is red")

    assert "The bike is red" in await recalled(any_voice, "bike")


async def test_a_memory_does_not_grow_by_being_asked(any_voice: ScopedMemory) -> None:
    about = ["Mia plays the violin", "Mia lives in Oslo", "Mia is nine years old"]
    await any_voice.remember_many(about)
    sizes = []
    for turn in range(3):
        tools = memory_tools(any_voice)
        answer = await tools["recall"](query="Tell me about Mia")
        chat = any_voice.chat(f"session {turn}")
        await chat.add(asking("recall", answer, question="Tell me about Mia"))
        text = (await any_voice.chat(f"next {turn}").context("Who is Mia?")).text
        sizes.append(text.count("violin"))
        assert len(answer) < 1_000

    assert sizes == [1, 1, 1]


async def test_what_an_older_version_stored_is_left_out_when_read(
    tmp_path: Path, open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version knew no fences, and listed the words of every answer."""
    url = f"sqlite:///{tmp_path}/old.db"
    with monkeypatch.context() as patch:
        for module in ("model.items", "model.copying"):
            patch.setattr(f"orbiter.memory.{module}.has_fence", lambda _: False)
        patch.setattr("orbiter.memory.model.items.is_own_tool", lambda _: False)
        patch.setattr("orbiter.memory.text.words.VERSION", 8)
        async with AgentMemory(url, embeddings=Listening(), summaries=None) as old:
            alice = old.scope(user_id="alice")
            for name, result in (("recall", FENCE), ("memory_search", SECRET)):
                await alice.chat(name).add(asking(name, result))
            await alice.chat("three").add(f"My garden is green. {FENCE}")
            assert "diabetes" in "".join(await recalled(alice, "diabetes"))

    memory = open_memory(url, embeddings=Listening(), summaries=SummaryConfig(message_threshold=1))
    alice = memory.scope(user_id="alice")

    assert "diabetes" not in await everything_said(alice)
    assert "My garden is green." in await recalled(alice, "garden")
    assert await memory.verify()


async def test_whatever_source_a_context_has_it_shows_no_answer_of_a_tool() -> None:
    async def recall(query: str, *, limit: int) -> list[MemoryItem]:
        answer = ToolMemory(content=SECRET, tool_call_id="c", tool_name="recall")
        return [answer, HumanMemory(content=f"Roses. {FENCE}")]

    context = await ContextManager(Soul()).assemble("How is Alice?", long_term=recall)

    assert "diabetes" not in context.text
    assert "Roses." in context.text


def names(tools: Iterable[Any]) -> set[str]:
    return {each.__name__ for each in tools}


async def test_every_tool_of_ours_is_known_by_its_name() -> None:
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(AgentMemory("memory://", embeddings=None))
        alice = memory.scope(user_id="alice")
        served = {
            profile: {
                tool.name for tool in await build(lambda _: alice, tools=profile).list_tools()
            }
            for profile in get_args(Profile)
        }
        every = set().union(*served.values())

        assert served["memory"] | served["kg"] == MCP_TOOLS
        of_frameworks = {"memory", "load_memory", "search_memory"}
        assert names(memory_tools(alice)) | of_frameworks == AGENT_TOOLS
    for prefix in (
        "mcp__orbiter-memory__",
        "orbiter-memory_",
        "mcp_orbiter_memory_",
        "orbiter-memory.",
    ):
        assert [name for name in every if not is_own_tool(prefix + name)] == []
    assert [name for name in every if not is_own_tool(f"{name}_mcp_orbiter-memory")] == []
    assert [name for name in MCP_TOOLS if not is_own_tool(f"{name}_mcp_notes")] == []
    others = (
        "",
        "weather",
        "search",
        "mymemory_get",
        "mcp__crm__update",
        "mcp__web__search",
        "search_mcp_web",
    )
    assert [name for name in others if is_own_tool(name)] == []
    assert has_fence(FENCE)
    assert is_own_output(HumanMemory(content=FENCE))


OTHER = "Mia plays the violin"


async def told(handle: ScopedMemory, name: str) -> str:
    """Have a tool answer with all that is remembered, and return what it said."""
    hits = await handle.recall("Dr. Frost, Mia, violin, diabetes", k=9)
    texts = [hit.item.content for hit in hits]
    fence = render([Entry(hit.content, f"item, id {hit.id}") for hit in hits], mark=new_mark())
    answer = json.dumps(texts) if name == "memory_search" else fence
    await handle.chat("one").add(asking(name, answer))
    return answer


@pytest.mark.parametrize("name", ["recall", "memory_search"])
@pytest.mark.parametrize("permanently", [False, True])
async def test_what_is_forgotten_goes_from_the_answers_that_quote_it(
    any_voice: ScopedMemory, name: str, permanently: bool
) -> None:
    item = await any_voice.remember(SECRET)
    await any_voice.remember(OTHER)
    assert "diabetes" in await told(any_voice, name)
    await any_voice.chat("one").summarize()

    done = await any_voice.forget(item, permanently=permanently)

    chat = any_voice.chat("one")
    (answer,) = [each for each in await chat.items() if isinstance(each, ToolMemory)]
    assert "diabetes" not in str((await chat.context("And now?")).messages())
    assert "diabetes" not in await everything_said(any_voice)
    assert "(forgotten)" in answer.content
    assert (OTHER in answer.content) is (name == "recall")
    assert [each.memory_type for each in await chat.items()] == ["human", "ai", "tool", "ai"]
    if permanently:
        assert done.erasure is not None
        assert done.erasure.proven


async def test_an_erased_memory_is_in_no_version_of_an_answer_and_in_no_byte(
    tmp_path: Path, open_memory: Open
) -> None:
    memory = open_memory(f"sqlite:///{tmp_path}/m.db")
    alice, bob = memory.scope(user_id="alice"), memory.scope(user_id="bob")
    item = await alice.remember("Alice had asthma as a child")
    await told(alice, "recall")
    await alice.update(item.id, SECRET)
    await told(alice, "recall")
    await bob.chat("one").add(asking("recall", FENCE))

    done = await alice.forget(item, permanently=True)

    answers = [each for each in await alice.chat("one").items() if isinstance(each, ToolMemory)]
    past = [await alice.history(each.id) for each in answers]
    assert done.erasure is not None
    assert done.erasure.proven
    assert not [word for word in ("asthma", "diabetes") if word in str([answers, past])]
    assert FENCE in [each.content for each in await bob.chat("one").items()]
    await bob.forget(everything=True, permanently=True)
    await memory.close()
    for file in tmp_path.iterdir():
        assert b"diabetes" not in file.read_bytes()
        assert b"asthma" not in file.read_bytes()


async def test_an_erased_session_is_in_no_answer_of_another(
    memory: AgentMemory, alice: ScopedMemory
) -> None:
    await alice.chat("health").add(SECRET)
    assert "diabetes" in await told(alice, "recall")

    done = await memory.erase(alice.scope.user_id, session_id="health")

    assert done.proven
    assert "diabetes" not in str([each.content for each in await alice.chat("one").items()])


async def test_an_erasure_says_that_an_answer_still_quotes_what_is_gone(
    any_voice: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_args: object, **_more: object) -> list[MemoryItem]:
        return []

    item = await any_voice.remember(SECRET)
    await told(any_voice, "recall")
    monkeypatch.setattr("orbiter.memory.agent._erase.strike_quotations", nothing)

    done = await any_voice.forget(item, permanently=True)

    assert done.erasure is not None
    assert not done.erasure.proven
    assert "quote" in str(done.erasure.problems)


async def test_a_word_that_is_forgotten_leaves_other_answers_alone(any_voice: ScopedMemory) -> None:
    await any_voice.remember("violin")
    await any_voice.remember(OTHER)
    await told(any_voice, "recall")

    (item,) = [each for each in await any_voice.list() if each.content == "violin"]
    await any_voice.forget(item)

    (answer,) = [
        each for each in await any_voice.chat("one").items() if isinstance(each, ToolMemory)
    ]
    assert OTHER in answer.content
    assert answer.content.count("(forgotten)") == 1


def hosted(format: str, result: str, *, name: str = "memory_get") -> list[dict[str, Any]]:
    """Return a turn in which the provider itself asks our server."""
    if format == "openai-responses":
        call = {"type": "mcp_call", "id": "m", "server_label": "orbiter-memory", "name": name}
        said = {"role": "assistant", "content": "I see."}
        return [
            {"role": "user", "content": "How am I?"},
            {**call, "arguments": '{"id": "diabetes"}', "output": result},
            said,
        ]
    use = {"type": "mcp_tool_use", "id": "m", "server_name": "orbiter-memory", "name": name}
    text = {"type": "text", "text": result}
    answer = {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": False, "content": [text]}
    return [
        {"role": "user", "content": "How am I?"},
        {"role": "assistant", "content": [
            {**use, "input": {}}, answer, {"type": "text", "text": "I see."}]},
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["openai-responses", "anthropic"])
@pytest.mark.parametrize(
    ("name", "result"), [("memory_get", f"{SECRET}, since May"), ("ours", FENCE)]
)
async def test_what_is_forgotten_goes_from_what_a_provider_was_answered(
    any_voice: ScopedMemory, format: Any, name: str, result: str
) -> None:
    item = await any_voice.remember(SECRET)
    chat = any_voice.chat("one")
    await chat.add(hosted(format, result, name=name), format=format)
    before = await chat.messages(format=format)
    assert "Frost" in str(before)

    await any_voice.forget(item)

    sent = await chat.messages(format=format)
    assert "Frost" not in str(sent)
    assert "(forgotten)" in str(sent)
    assert [each.keys() for each in sent] == [each.keys() for each in before]
    arguments = [each["arguments"] for each in sent if "arguments" in each]
    assert arguments == ['{"id": "diabetes"}'] * len(arguments)


async def test_of_what_people_say_only_what_they_quote_goes(any_voice: ScopedMemory) -> None:
    item = await any_voice.remember(SECRET)
    chat = any_voice.chat("one")
    own = f"I know: {SECRET}."
    await chat.add({"role": "system", "content": f"Be brief.\n{FENCE}"})
    await chat.add({"role": "user", "content": f"{own}\n{FENCE}\n{own}"})

    await any_voice.forget(item)

    system, person = await chat.items()
    assert system.content.startswith("Be brief.")
    assert "diabetes" not in system.content
    assert person.content.count("diabetes") == 2
    assert person.content.startswith(own)
    assert person.content.endswith(own)


@pytest.mark.parametrize("call", ["quarantine", "undo"])
async def test_what_a_source_said_goes_from_the_answers_that_quote_it(
    memory: AgentMemory, call: str
) -> None:
    alice = memory.scope(user_id="alice")
    await alice.remember(SECRET, source="web:evil.example")
    await alice.remember(OTHER)
    await told(alice, "recall")

    assert await getattr(alice, call)("web:evil.example")

    sent = str((await alice.chat("one").context("And now?")).messages())
    assert "diabetes" not in sent
    assert OTHER in sent
