"""The session and memory services for Google ADK, with ADK's own runner and tools."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools import load_memory, preload_memory
from google.genai.types import Content, FunctionCall, Part

from orbiter.memory import AgentMemory, sync
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations.google_adk import OrbiterMemoryService, OrbiterSessionService

DISTRIBUTION = "google-adk"
APP, ALICE = "helper", "alice"


class ScriptedModel(BaseLlm):  # type: ignore[misc]  # types of theirs are not read
    """Says the cat's name if it stands in the request, and looks for it first if it may."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        text = llm_request.model_dump_json(exclude_none=True)
        part = Part(text="It is called Tom." if "Tom" in text else "I do not know.")
        if "load_memory" in llm_request.tools_dict and "function_response" not in text:
            part = Part(function_call=FunctionCall(name="load_memory", args={"query": "cat name"}))
        yield LlmResponse(content=Content(role="model", parts=[part]))


EVERY_STORE = pytest.mark.parametrize(
    "url", ["sqlite", "postgres", "redis", "memory"], indirect=True
)


@pytest.fixture
async def memory(url: str) -> AsyncIterator[AgentMemory]:
    async with AgentMemory(url, embeddings=None) as memory:
        yield memory
        for app_name in (APP, "other") if url.startswith("redis") else ():  # which all share
            await memory.erase(agent_id=app_name)


@pytest.fixture
def sessions(memory: AgentMemory) -> OrbiterSessionService:
    return OrbiterSessionService(memory)


def event(text: str | None = None, *, author: str = "user", **fields: Any) -> Event:
    delta = fields.pop("state_delta", {})
    content = None if text is None else Content(role="user", parts=[Part(text=text)])
    return Event(
        author=author,
        invocation_id="i",
        content=content,
        actions=EventActions(state_delta=delta),
        **fields,
    )


async def read(sessions: OrbiterSessionService, session_id: str = "one") -> Any:
    return await sessions.get_session(app_name=APP, user_id=ALICE, session_id=session_id)


async def ask(runner: Runner, user_id: str, session_id: str, text: str) -> str:
    """Return the last answer to a message in a session."""
    message = Content(role="user", parts=[Part(text=text)])
    said = ""
    async for each in runner.run_async(user_id=user_id, session_id=session_id, new_message=message):
        if each.content and each.content.parts and each.content.parts[0].text:
            said = each.content.parts[0].text
    return said


# The agent loop


@EVERY_STORE
@pytest.mark.parametrize("tool", [preload_memory, load_memory], ids=["preload", "load"])
async def test_what_was_told_in_one_session_is_known_in_another_and_to_nobody_else(
    memory: AgentMemory, tool: Any
) -> None:
    sessions, memories = OrbiterSessionService(memory), OrbiterMemoryService(memory)

    async def add_to_memory(callback_context: Any) -> None:
        await callback_context.add_session_to_memory()

    def runner(app_name: str) -> Runner:
        agent = LlmAgent(
            name="helper",
            model=ScriptedModel(),
            tools=[tool],
            after_agent_callback=add_to_memory,
        )
        return Runner(
            app_name=app_name,
            agent=agent,
            session_service=sessions,
            memory_service=memories,
            auto_create_session=True,
        )

    told = await ask(runner(APP), ALICE, "one", "My cat is called Tom.")
    known = await ask(runner(APP), ALICE, "two", "What is my cat called?")
    others = await ask(runner(APP), "bob", "two", "What is my cat called?")
    elsewhere = await ask(runner("other"), ALICE, "two", "What is my cat called?")

    assert (told, known) == ("It is called Tom.", "It is called Tom.")
    assert others == elsewhere == "I do not know."
    alice = memory.scope(user_id=ALICE)
    assert [
        item.content for item in await memory.scope(user_id=ALICE, agent_id=APP).chat("one").items()
    ] == [
        "My cat is called Tom.",
        "It is called Tom.",
    ]
    assert len(await alice.chats()) == 3


async def test_a_session_goes_on_after_a_restart(tmp_path: Any) -> None:
    agent = LlmAgent(name="helper", model=ScriptedModel(), output_key="answer")
    for question in ("My cat is called Tom.", "What is my cat called?"):
        async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
            runner = Runner(
                app_name=APP,
                agent=agent,
                session_service=OrbiterSessionService(memory),
                auto_create_session=True,
            )
            answer = await ask(runner, ALICE, "one", question)
            session = await runner.session_service.get_session(
                app_name=APP, user_id=ALICE, session_id="one"
            )

    assert answer == "It is called Tom."
    assert session is not None
    assert [each.author for each in session.events] == ["user", "helper", "user", "helper"]
    assert session.state == {"answer": "It is called Tom."}


async def test_temporary_state_serves_the_run_and_is_not_stored(
    sessions: OrbiterSessionService,
) -> None:
    seen = []

    async def look(callback_context: Any) -> None:
        seen.append(callback_context.state.get("temp:draft"))

    agent = LlmAgent(
        name="helper",
        model=ScriptedModel(),
        output_key="temp:draft",
        after_agent_callback=look,
    )
    runner = Runner(app_name=APP, agent=agent, session_service=sessions, auto_create_session=True)

    await ask(runner, ALICE, "one", "Hello")
    stored = await sessions.get_session(app_name=APP, user_id=ALICE, session_id="one")

    assert seen == ["I do not know."]
    assert stored is not None
    assert stored.state == {}
    assert "temp:" not in stored.model_dump_json()


def test_a_blocking_memory_serves_the_blocking_runner(tmp_path: Any) -> None:
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        runner = Runner(
            app_name=APP,
            agent=LlmAgent(name="helper", model=ScriptedModel(), tools=[preload_memory]),
            session_service=OrbiterSessionService(memory),
            memory_service=OrbiterMemoryService(memory),
            auto_create_session=True,
        )
        message = Content(role="user", parts=[Part(text="My cat is called Tom.")])

        answers = list(runner.run(user_id=ALICE, session_id="one", new_message=message))

        assert answers[-1].content.parts[0].text == "It is called Tom."


# Sessions


async def test_a_session_is_read_as_it_was_created(sessions: OrbiterSessionService) -> None:
    state = {"key": {"deep": [1, None]}, "user:name": "Ann", "app:v": 2, "temp:x": 1}

    made = await sessions.create_session(app_name=APP, user_id=ALICE, state=state)
    read = await sessions.get_session(app_name=APP, user_id=ALICE, session_id=made.id)

    assert read == made
    assert made.state == {"key": {"deep": [1, None]}, "user:name": "Ann", "app:v": 2}


async def test_an_id_is_taken_once_and_blanks_around_it_do_not_count(
    sessions: OrbiterSessionService,
) -> None:
    await sessions.create_session(app_name=APP, user_id=ALICE, session_id=" one ")

    with pytest.raises(AlreadyExistsError):
        await sessions.create_session(app_name=APP, user_id=ALICE, session_id="one")
    results = await asyncio.gather(
        *(sessions.create_session(app_name=APP, user_id=ALICE, session_id="two") for _ in range(5)),
        return_exceptions=True,
    )

    assert await sessions.get_session(app_name=APP, user_id=ALICE, session_id="one ")
    assert sum(isinstance(each, AlreadyExistsError) for each in results) == 4
    await sessions.create_session(app_name=APP, user_id="bob", session_id="one")


@EVERY_STORE
async def test_state_is_shared_as_its_prefix_says(sessions: OrbiterSessionService) -> None:
    one = await sessions.create_session(app_name=APP, user_id=ALICE, session_id="one")
    delta = {"user:name": "Ann", "app:": "empty", "own": 1, "temp:x": 2}
    await sessions.append_event(one, event(state_delta=delta))

    two = await sessions.create_session(app_name=APP, user_id=ALICE, session_id="two")
    bobs = await sessions.create_session(app_name=APP, user_id="bob")
    other = await sessions.create_session(app_name="other", user_id=ALICE)

    assert one.state == delta
    assert two.state == {"user:name": "Ann", "app:": "empty"}
    assert bobs.state == {"app:": "empty"}
    assert other.state == {}
    assert await sessions.get_user_state(app_name=APP, user_id=ALICE) == {"name": "Ann"}
    assert await sessions.get_user_state(app_name=APP, user_id="bob") == {}


@EVERY_STORE
async def test_events_are_kept_exactly_and_partial_ones_are_not(
    sessions: OrbiterSessionService,
) -> None:
    session = await sessions.create_session(app_name=APP, user_id=ALICE, session_id="one")
    parts = [
        Part(text="\0 \ud7ff 🐈"),
        Part(inline_data={"data": b"\xff\x00", "mime_type": "image/png"}),
        Part(function_call=FunctionCall(id="c", name="f", args={"a": [1.5, {}]})),
    ]
    whole = Event(author="helper", content=Content(role="model", parts=parts), branch="a.b")

    await sessions.append_event(session, event("Hel", partial=True))
    await sessions.append_event(session, whole)
    read = await sessions.get_session(app_name=APP, user_id=ALICE, session_id="one")

    assert read is not None
    assert read.events == session.events == [whole]
    assert read.last_update_time == session.last_update_time == whole.timestamp


async def test_events_are_read_by_number_and_by_time(sessions: OrbiterSessionService) -> None:
    session = await sessions.create_session(app_name=APP, user_id=ALICE, session_id="one")
    for number in range(1, 6):
        await sessions.append_event(session, event(str(number), timestamp=float(number)))

    async def texts(**config: Any) -> list[str]:
        read = await sessions.get_session(
            app_name=APP, user_id=ALICE, session_id="one", config=GetSessionConfig(**config)
        )
        assert read is not None
        return [each.content.parts[0].text for each in read.events]

    assert await texts() == ["1", "2", "3", "4", "5"]
    assert await texts(num_recent_events=2) == ["4", "5"]
    assert await texts(num_recent_events=0) == []
    assert await texts(after_timestamp=3.0) == ["3", "4", "5"]
    assert await texts(after_timestamp=3.0, num_recent_events=9) == ["3", "4", "5"]


async def test_a_session_that_was_changed_since_is_stale_whatever_the_clock_says(
    sessions: OrbiterSessionService,
) -> None:
    mine = await sessions.create_session(app_name=APP, user_id=ALICE, session_id="one")
    theirs = await read(sessions)
    await sessions.append_event(mine, event("first", timestamp=1.0))
    before = theirs.model_copy(deep=True)

    with pytest.raises(StaleSessionError):
        await sessions.append_event(theirs, event("second", state_delta={"temp:x": 1, "a": 1}))
    assert theirs == before
    again = await read(sessions)
    await sessions.append_event(again, event("second", state_delta={"a": 1}))

    stored = await read(sessions)
    assert [each.content.parts[0].text for each in stored.events] == ["first", "second"]
    assert stored.state == {"a": 1}


@EVERY_STORE
async def test_of_those_who_race_only_the_winner_stores_state_of_the_application(
    sessions: OrbiterSessionService,
) -> None:
    names = {"app_name": APP, "user_id": ALICE, "session_id": "one"}
    made = await asyncio.gather(
        *(sessions.create_session(**names, state={f"app:made {n}": n}) for n in range(5)),
        return_exceptions=True,
    )
    winner = next(n for n, each in enumerate(made) if not isinstance(each, AlreadyExistsError))
    copies = [await read(sessions) for _ in range(5)]

    appended = await asyncio.gather(
        *(
            sessions.append_event(each, event(state_delta={f"app:appended {n}": n}))
            for n, each in enumerate(copies)
        ),
        return_exceptions=True,
    )

    last = next(n for n, each in enumerate(appended) if not isinstance(each, StaleSessionError))
    assert (await read(sessions)).state == {
        f"app:made {winner}": winner,
        f"app:appended {last}": last,
    }


@EVERY_STORE
async def test_of_those_who_append_at_once_one_succeeds(sessions: OrbiterSessionService) -> None:
    await sessions.create_session(app_name=APP, user_id=ALICE, session_id="one")
    copies = [
        await sessions.get_session(app_name=APP, user_id=ALICE, session_id="one") for _ in range(5)
    ]

    results = await asyncio.gather(
        *(sessions.append_event(each, event("hello")) for each in copies), return_exceptions=True
    )

    assert sum(isinstance(each, StaleSessionError) for each in results) == 4
    assert len((await read(sessions)).events) == 1


@EVERY_STORE
async def test_sessions_are_listed_with_their_state_the_one_used_last_at_the_end(
    sessions: OrbiterSessionService,
) -> None:
    one = await sessions.create_session(
        app_name=APP, user_id=ALICE, session_id="one", state={"n": 1, "user:u": 1}
    )
    await sessions.create_session(app_name=APP, user_id=ALICE, session_id="two", state={"n": 2})
    await sessions.append_event(one, event("hello"))
    await sessions.create_session(app_name=APP, user_id="bob", session_id="three")
    await sessions.create_session(app_name="other", user_id=ALICE, session_id="four")

    hers = await sessions.list_sessions(app_name=APP, user_id=ALICE)
    everyones = await sessions.list_sessions(app_name=APP)

    assert [(each.id, each.state, each.events) for each in hers.sessions] == [
        ("two", {"n": 2, "user:u": 1}, []),
        ("one", {"n": 1, "user:u": 1}, []),
    ]
    assert [(each.user_id, each.id) for each in everyones.sessions] == [
        (ALICE, "two"),
        (ALICE, "one"),
        ("bob", "three"),
    ]


async def test_a_deleted_session_is_gone_with_its_events(
    memory: AgentMemory, sessions: OrbiterSessionService
) -> None:
    session = await sessions.create_session(
        app_name=APP, user_id=ALICE, session_id="one", state={"user:u": 1, "own": 1}
    )
    await sessions.append_event(session, event("secret"))

    for _ in range(2):
        await sessions.delete_session(app_name=APP, user_id=ALICE, session_id="one")

    assert await sessions.get_session(app_name=APP, user_id=ALICE, session_id="one") is None
    with pytest.raises(SessionNotFoundError):
        await sessions.append_event(session, event("more"))
    left = await memory.scope(user_id=ALICE, agent_id=APP).kv.list()
    assert not any(b"secret" in entry.value for entry in left)
    again = await sessions.create_session(app_name=APP, user_id=ALICE, session_id="one")
    assert (again.state, again.events) == ({"user:u": 1}, [])


@EVERY_STORE
async def test_an_erased_user_leaves_nothing(
    memory: AgentMemory, sessions: OrbiterSessionService
) -> None:
    session = await sessions.create_session(app_name=APP, user_id=ALICE, state={"user:u": 1})
    await sessions.append_event(session, event("My cat is called Tom."))
    await OrbiterMemoryService(memory).add_session_to_memory(session)

    assert await memory.erase(user_id=ALICE)

    assert (await sessions.list_sessions(app_name=APP)).sessions == []
    assert await sessions.get_user_state(app_name=APP, user_id=ALICE) == {}


# Memory


async def test_a_session_may_be_added_after_every_turn(memory: AgentMemory) -> None:
    sessions, memories = OrbiterSessionService(memory), OrbiterMemoryService(memory)
    session = await sessions.create_session(app_name=APP, user_id=ALICE, session_id="one")
    for text, author in [
        ("My cat is Tom.", "user"),
        ("Nice.", "helper"),
        ("My dog is Rex.", "user"),
    ]:
        await sessions.append_event(session, event(text, author=author))
        await asyncio.gather(*(memories.add_session_to_memory(session) for _ in range(3)))

    items = await memory.scope(user_id=ALICE, agent_id=APP).chat("one").items()
    found = await memories.search_memory(app_name=APP, user_id=ALICE, query="What is my dog?")

    assert [item.content for item in items] == ["My cat is Tom.", "Nice.", "My dog is Rex."]
    best = found.memories[0]
    assert (best.content.parts[0].text, best.content.role, best.author) == (
        "My dog is Rex.",
        "user",
        "user",
    )
    assert best.custom_metadata["session_id"] == "one"
    assert best.timestamp.startswith("20")


async def test_a_deleted_memory_does_not_come_back_with_its_session(memory: AgentMemory) -> None:
    memories = OrbiterMemoryService(memory)
    said = [event("My cat is Tom.")]
    await memories.add_events_to_memory(app_name=APP, user_id=ALICE, events=said, session_id="s")
    (found,) = (await memories.search_memory(app_name=APP, user_id=ALICE, query="my cat")).memories

    await memories.delete_memory(app_name=APP, user_id="bob", memory_id=found.id)
    assert (await memories.search_memory(app_name=APP, user_id=ALICE, query="my cat")).memories
    await memories.delete_memory(app_name=APP, user_id=ALICE, memory_id=found.id)
    await memories.add_events_to_memory(app_name=APP, user_id=ALICE, events=said, session_id="s")

    again = await memories.search_memory(app_name=APP, user_id=ALICE, query="my cat")
    assert again.memories == []


async def test_memories_are_added_directly_and_once(memory: AgentMemory) -> None:
    memories = OrbiterMemoryService(memory)
    entry = MemoryEntry(
        id="m1",
        content=Content(parts=[Part(text="Ann likes green tea.")]),
        author="crm",
        timestamp="2024-05-01T10:00:00+00:00",
        custom_metadata={"topic": "drinks"},
    )
    for _ in range(2):
        await memories.add_memory(
            app_name=APP, user_id=ALICE, memories=[entry], custom_metadata={"batch": 7}
        )

    found = await memories.search_memory(app_name=APP, user_id=ALICE, query="green tea")

    (best,) = found.memories
    assert (best.content.parts[0].text, best.author) == ("Ann likes green tea.", "crm")
    assert best.timestamp == "2024-05-01T10:00:00+00:00"
    assert best.custom_metadata.items() >= {"topic": "drinks", "batch": 7}.items()


async def test_thoughts_calls_and_files_are_not_remembered(memory: AgentMemory) -> None:
    parts = [
        Part(text="a thought", thought=True),
        Part(function_call=FunctionCall(name="f", args={})),
        Part(inline_data={"data": b"x", "mime_type": "image/png"}),
    ]
    silent = Event(author="helper", content=Content(role="model", parts=parts))

    await OrbiterMemoryService(memory).add_events_to_memory(
        app_name=APP, user_id=ALICE, events=[silent, event(None)], session_id="s"
    )

    assert list(await memory.scope(user_id=ALICE).list()) == []


async def test_a_question_without_words_finds_nothing(memory: AgentMemory) -> None:
    found = await OrbiterMemoryService(memory).search_memory(
        app_name=APP, user_id=ALICE, query="  "
    )

    assert found.memories == []


def test_a_service_takes_a_whole_memory() -> None:
    alice = AgentMemory("memory://", embeddings=None).scope(user_id=ALICE)

    with pytest.raises(QueryError, match="takes an `AgentMemory`"):
        OrbiterSessionService(alice)  # type: ignore[arg-type]  # that is the point


async def test_sessions_of_another_service_are_moved_over(
    sessions: OrbiterSessionService,
) -> None:
    page = (Path(__file__).parents[2] / "docs/integrations/google-adk.md").read_text()
    code = page.rpartition("```python\n")[2].partition("```")[0]
    namespace: dict[str, Any] = {}
    exec(compile(code, "google-adk.md", "exec"), namespace)
    old = InMemorySessionService()
    session = await old.create_session(
        app_name=APP, user_id=ALICE, session_id="one", state={"app:a": 1, "n": 1}
    )
    for number in range(3):
        await old.append_event(session, event(str(number), state_delta={"n": 2, "user:u": number}))

    await namespace["move"](old, sessions, APP)

    names = {"app_name": APP, "user_id": ALICE, "session_id": "one"}
    moved, before = await sessions.get_session(**names), await old.get_session(**names)
    assert moved is not None
    assert before is not None
    assert (moved.events, moved.state) == (before.events, before.state)
