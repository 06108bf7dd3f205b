"""Conversations keep their order, never mix, and are always legal to send."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orbiter.memory import (
    AgentMemory,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.errors import AccessError, QueryError
from orbiter.memory.messages import FORMATS, validate

Open = Callable[..., AgentMemory]


CALLS: dict[str, object] = {
    "role": "assistant",
    "content": "Let me look.",
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "ask", "arguments": '{"q": 1}'}},
    ],
}


def turn(number: int) -> list[MemoryItem]:
    """Return a round with two calls and their results."""
    calls = [
        {"id": f"{name}{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("look", "ask")
    ]
    return [
        HumanMemory(content=f"question {number}"),
        AIMemory(content="", tool_calls=calls),
        ToolMemory(content=f"seen {number}", tool_call_id=f"look{number}", tool_name="look"),
        ToolMemory(content=f"told {number}", tool_call_id=f"ask{number}", tool_name="ask"),
        AIMemory(content=f"answer {number}"),
    ]


async def texts(chat: Chat) -> list[str]:
    return [item.content for item in await chat.items()]


# Adding


async def test_a_text_is_what_the_user_says(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("dinner")

    (said,) = await chat.add("hello")

    assert type(said) is HumanMemory
    assert said.metadata == chat.scope
    assert chat.scope.session_id == chat.id == "dinner"
    assert await chat.items() == [said]
    assert (await chat.messages()).messages == [{"role": "user", "content": "hello"}]
    assert "dinner" in repr(chat)


async def test_messages_and_items_are_added_in_their_order(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("dinner")

    await chat.add(SystemMemory(content="Be kind."))
    await chat.add(
        ["hello", {"role": "assistant", "content": "good day"}, HumanMemory(content="x")]
    )
    await chat.add({"role": "user", "parts": [{"text": "from Gemini"}]}, format="gemini")
    assert await chat.add([]) == []

    assert await texts(chat) == ["Be kind.", "hello", "good day", "x", "from Gemini"]
    assert await any_alice.chat("dinner").items() == await chat.items()


async def test_what_is_added_is_there_for_others_before_the_call_returns(
    url: str, open_memory: Open, who: str
) -> None:
    here, there = (open_memory(url).scope(user_id=who).chat("c") for _ in range(2))
    await there.items()

    for number in range(3):
        await here.add(f"{number}")
        assert (await texts(there))[-1] == f"{number}"


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (7, "a string"),
        (None, "a string"),
        ([7], "int"),
        (MemoryItem(content="a note"), "role"),
        ([HumanMemory(content="fine"), MemoryItem(content="a note")], "role"),
        ({"role": "nobody", "content": "x"}, "role"),
        (["fine", {"role": "user", "content": 7}], "content"),
    ],
)
async def test_what_is_no_message_is_refused_and_nothing_is_added(
    open_memory: Open, bad: object, told: str
) -> None:
    chat = open_memory("memory://").scope(user_id="alice").chat("c")

    with pytest.raises(ValueError, match=told):
        await chat.add(bad)  # type: ignore[arg-type]  # wrong on purpose

    assert await chat.items() == []


async def test_a_message_of_another_conversation_is_refused(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    who = alice.scope.user_id
    for fields in (
        {"user_id": "another"},
        {"session_id": "another"},
        {"user_id": who, "session_id": "c", "task_id": "t"},
        {"agent_id": "a"},
    ):
        with pytest.raises(AccessError):
            await chat.add(HumanMemory(content="x", metadata=MemoryMetadata(**fields)))
    own = MemoryMetadata(user_id=who, session_id="c")
    await chat.add(HumanMemory(content="mine", metadata=own))

    assert await texts(chat) == ["mine"]


async def test_another_users_id_is_refused_in_a_chat(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    (theirs,) = await any_bob.chat("c").add("theirs")

    for what in (
        HumanMemory(id=theirs.id, content="mine now"),
        [HumanMemory(content="fine"), HumanMemory(id=theirs.id, content="mine now")],
    ):
        with pytest.raises(AccessError):
            await any_alice.chat("c").add(what)

    assert await any_alice.chat("c").items() == []
    assert await any_bob.chat("c").items() == [theirs]


@pytest.mark.parametrize("name", ["", None, 1.5, True])
async def test_a_chat_has_a_name(open_memory: Open, name: object) -> None:
    with pytest.raises(QueryError, match="chat_id"):
        open_memory("memory://").scope(user_id="a").chat(name)  # type: ignore[arg-type]  # wrong on purpose


async def test_a_handle_of_one_task_has_no_room_for_chats(open_memory: Open) -> None:
    handle = open_memory("memory://").scope(user_id="a", session_id="s", task_id="t")

    with pytest.raises(QueryError, match="task_id"):
        handle.chat("c")


# Once per key


async def test_a_key_adds_once(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    first = await chat.add(["one", "two"], idempotency_key="k")
    await chat.add("three")

    again = await chat.add(["one", "two"], idempotency_key="k")
    elsewhere = await any_alice.chat("d").add("one", idempotency_key="k")

    assert again == first
    assert await texts(chat) == ["one", "two", "three"]
    assert elsewhere[0].id not in {item.id for item in first}
    for bad in ("", 7):
        with pytest.raises(QueryError, match="idempotency_key"):
            await chat.add("x", idempotency_key=bad)  # type: ignore[arg-type]  # wrong on purpose


async def test_a_key_adds_once_however_many_try_at_the_same_time(
    url: str, open_memory: Open, who: str
) -> None:
    chats = [open_memory(url).scope(user_id=who).chat("c") for _ in range(2)]

    tries = [chat.add(["one", "two"], idempotency_key="k") for _ in range(5) for chat in chats]
    added = await asyncio.gather(*tries)

    assert await texts(chats[0]) == ["one", "two"]
    assert {tuple(item.id for item in items) for items in added} == {
        tuple(item.id for item in added[0])
    }


# Order


async def test_a_clock_that_goes_back_changes_no_order(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    later = datetime.now(UTC) + timedelta(hours=1)

    await chat.add(HumanMemory(content="one", created_at=later))
    await chat.add(AIMemory(content="two"))
    await chat.add([HumanMemory(content="three", created_at=later - timedelta(days=9)), "four"])
    await any_alice.chat("c").add("five")

    items = await chat.items()
    assert [item.content for item in items] == ["one", "two", "three", "four", "five"]
    assert items[0].created_at == later
    assert items[2].created_at == later - timedelta(days=9)
    assert items[1].created_at < later, "a time is kept as it is given"


async def test_a_message_is_dated_by_the_call_or_by_itself(alice: ScopedMemory) -> None:
    chat = alice.chat("dated")
    day = datetime(2026, 10, 1, tzinfo=UTC)

    await chat.add("by the call", created_at="2026-10-01")
    await chat.add({"role": "user", "content": "as a text", "created_at": "2026-10-01"})
    await chat.add(
        [
            {"role": "user", "content": "as seconds", "created_at": day.timestamp()},
            {"role": "assistant", "content": "not at all", "created_at": None},
        ]
    )
    with pytest.raises(QueryError, match="`created_at` must be a datetime"):
        await chat.add({"role": "user", "content": "x", "created_at": "yesterday"})

    times = {item.content: item.created_at for item in await chat.items()}
    assert [text for text, at in times.items() if at == day] == [
        "by the call",
        "as a text",
        "as seconds",
    ]
    assert times["not at all"] > day
    assert not any("created_at" in message for message in await chat.messages())


async def test_a_machine_whose_clock_is_behind_adds_at_the_end(
    any_url: str, open_memory: Open, who: str
) -> None:
    memory = open_memory(any_url)
    other = memory if any_url == "memory://" else open_memory(any_url)
    ahead, behind = (each.scope(user_id=who).chat("c") for each in (memory, other))
    now = datetime.now(UTC)

    for number in range(0, 6, 2):  # both know the chat from the second round on
        await ahead.add(
            HumanMemory(content=f"{number}", created_at=now + timedelta(hours=1, minutes=number))
        )
        await behind.add(AIMemory(content=f"{number + 1}", created_at=now))

    assert await texts(ahead) == await texts(behind) == ["0", "1", "2", "3", "4", "5"]


async def test_what_is_added_at_once_stays_together(alice: ScopedMemory) -> None:
    chat = alice.chat("c")

    await asyncio.gather(*(chat.add([f"{n}a", f"{n}b", f"{n}c"]) for n in range(20)))

    found = await texts(chat)
    assert len(found) == 60
    assert all([t[-1] for t in found if t[:-1] == str(n)] == ["a", "b", "c"] for n in range(20))


# Never mixed


async def test_conversations_at_the_same_time_never_mix(any_memory: AgentMemory, who: str) -> None:
    alice = any_memory.scope(user_id=who)
    session = any_memory.scope(user_id=who, session_id="one")
    agents = [any_memory.scope(user_id=who, agent_id=name) for name in ("a", "b")]
    chats = {
        "one": alice.chat("one"),
        "two": alice.chat("two"),
        "task": session.chat("one"),
        "task two": session.chat("two"),
        "a": agents[0].chat("one"),
        "b": agents[1].chat("one"),
        "bob": any_memory.scope(user_id=f"{who}-bob").chat("one"),
    }

    async def talk(name: str, chat: Chat, count: int) -> None:
        for number in range(count):
            await chat.add(f"{name} {number}")
            if number % 5 == 0:
                assert await texts(chat) == [f"{name} {n}" for n in range(number + 1)]

    counts = {name: 50 if name in ("one", "two") else 8 for name in chats}
    await asyncio.gather(*(talk(name, chat, counts[name]) for name, chat in chats.items()))

    for name, chat in chats.items():
        expected = [f"{name} {number}" for number in range(counts[name])]
        assert await texts(chat) == expected
        context = await chat.context("go on", memory_limit=0)
        said = set(str(context.messages()[-1]["content"]).split("\n\n"))
        others = {f"{other} 0" for other in chats if other != name}
        assert f"{name} 0" in said
        assert not said & others


async def test_the_chats_of_a_scope_are_listed_newest_first(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    for name in ("first", "second", "first", "third"):
        await any_alice.chat(name).add(f"hello {name}")
    await any_bob.chat("theirs").add("x")
    await any_alice.remember("a note")

    listed = await any_alice.chats()

    assert [each.metadata.session_id for each in listed if each.metadata.session_id] == [
        "third",
        "first",
        "second",
    ]
    assert len(await any_alice.chats(limit=1)) == 1
    with pytest.raises(QueryError, match="limit"):
        await any_alice.chats(limit=-1)


# Reading


async def test_rounds_and_budgets_cut_and_stay_legal(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    await chat.add(SystemMemory(content="Be kind."))
    for number in range(12):
        await chat.add(turn(number))
    await chat.add([HumanMemory(content="last"), CALLS])  # its tools have not answered

    whole = await chat.items()
    assert [item.content for item in whole][:2] == ["Be kind.", "question 0"]
    assert len(whole) == 1 + 12 * 5 + 1
    for rounds in (1, 2, 5, 99):
        items = await chat.items(rounds=rounds)
        humans = [item.content for item in items if isinstance(item, HumanMemory)]
        assert len(humans) == min(rounds, 13)
        assert humans[-1] == "last"
        assert items[0].content == "Be kind."
    assert await chat.items(rounds=0) == whole
    for format in FORMATS:
        for wanted in ({}, {"rounds": 2}, {"budget": 60}, {"budget": 300}, {"budget": 10_000}):
            messages = await chat.messages(format=format, **wanted)
            assert validate(messages.messages, format) == []
            assert messages.messages
    for wrong in ({"rounds": -1}, {"budget": -1}, {"rounds": "2"}, {"budget": 1.5}):
        with pytest.raises(QueryError):
            await chat.items(**wrong)


async def test_an_old_instruction_is_kept_however_long_the_chat(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    await chat.add(SystemMemory(content="Be kind."))
    await chat.add([f"message {number}" for number in range(150)])

    items = await chat.items(rounds=3)

    assert [item.content for item in items] == [
        "Be kind.",
        "message 147",
        "message 148",
        "message 149",
    ]


async def test_an_empty_message_is_legal_everywhere(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    await chat.add(
        [
            {"role": "assistant", "content": None},
            {"role": "user", "content": ""},
            {"role": "user", "content": "  "},
            "hello",
        ]
    )

    for format in FORMATS:
        assert validate((await chat.messages(format=format)).messages, format) == []
        context = await chat.context(format=format, budget=500)
        assert validate(context.messages().messages, format) == []


# Branching


async def test_a_fork_has_what_was_said_so_far_and_goes_its_own_way(
    any_alice: ScopedMemory,
) -> None:
    chat = any_alice.chat("c")
    items = await chat.add([*turn(0), *turn(1)])

    branch = await chat.fork(items[4], chat_id="what if")
    await branch.add("another question")
    await chat.add("the same old")
    unnamed = await chat.fork(items[4].id)

    said = [item.content for item in items]
    assert await texts(branch) == [*said[:5], "another question"]
    assert await texts(chat) == [*said, "the same old"]
    assert await texts(unnamed) == said[:5]
    assert len({"c", branch.id, unnamed.id}) == 3
    assert branch.scope.user_id == chat.scope.user_id
    for format in FORMATS:
        assert validate((await branch.messages(format=format)).messages, format) == []


async def test_a_fork_inside_a_tool_group_is_legal(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    items = await chat.add(turn(0))

    for place in items:
        branch = await chat.fork(place)
        for format in FORMATS:
            assert validate((await branch.messages(format=format)).messages, format) == []


async def test_a_fork_takes_no_place_that_is_taken(alice: ScopedMemory) -> None:
    (said,) = await alice.chat("c").add("hello")
    await alice.chat("d").add("taken")

    for name in ("c", "d"):
        with pytest.raises(QueryError, match="already"):
            await alice.chat("c").fork(said, chat_id=name)
    again = [await alice.chat("c").fork(said, chat_id="e") for _ in range(2)]

    assert await texts(again[0]) == await texts(again[1]) == ["hello"]
    assert await texts(alice.chat("d")) == ["taken"]


async def test_every_rule_of_the_system_is_kept(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    rules = [SystemMemory(content=f"rule {number}") for number in range(150)]
    await chat.add([*rules, *(f"question {number}" for number in range(200))])

    kept = await chat.items(rounds=2)

    assert [item.content for item in kept[:150]] == [f"rule {number}" for number in range(150)]
    assert len(kept) == 152


async def test_a_chat_goes_on_after_the_end_of_time(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    end = datetime.max.replace(tzinfo=UTC)
    await chat.add(HumanMemory(content="from afar", created_at=end))

    await chat.add("hello")

    assert {item.content for item in await chat.items()} == {"from afar", "hello"}


async def test_a_branch_made_twice_at_once_is_one(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    items = await chat.add(["one", "two", "three"])

    await asyncio.gather(*(chat.fork(items[1], chat_id="branch") for _ in range(4)))

    assert [item.content for item in await any_alice.chat("branch").items()] == ["one", "two"]


@pytest.mark.parametrize("asked", [{"rounds": 1}, {"rounds": 3}, {"budget": 60}, {"budget": 400}])
async def test_a_window_is_the_same_whether_a_store_reads_it_in_one_step_or_not(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AgentMemory("memory://", embeddings=None, summaries=None) as memory:
        alice = memory.scope(user_id="alice")
        chat, other = alice.chat("trip"), alice.chat("other")
        await chat.add({"role": "system", "content": "Be brief."})
        await other.add({"role": "system", "content": "Be polite."})
        for number in range(60):
            await chat.add([f"Question {number}?", {"role": "assistant", "content": "Yes."}])
            await memory.scope(user_id="alice", session_id="trip").remember(f"Note {number}")
            if number == 30:
                await chat.add({"role": "system", "content": "Be briefer still."})
        found = [item.content for item in await chat.items(**asked)]

        monkeypatch.setattr(SQLMemoryStore, "newest_messages", None)

        assert found == [item.content for item in await chat.items(**asked)]
        assert found[:2] == ["Be brief.", "Be briefer still."]
        assert found[-1] == "Yes."


async def test_entries_of_a_chat_are_its_own_and_are_erased_with_it(
    memory: AgentMemory, alice: ScopedMemory
) -> None:
    here, there = alice.chat("here"), alice.chat("there")
    await here.kv.append(("log",), [b"a", b"b"])
    await there.kv.append(("log",), [b"c"])
    scope = here.scope

    entries = await here.kv.list(("log",))
    elsewhere = [*await alice.kv.list(), *await there.kv.list()]
    await memory.erase(user_id=scope.user_id, session_id=scope.session_id, task_id=scope.task_id)

    assert [entry.value for entry in entries] == [b"a", b"b"]
    assert [entry.value for entry in elsewhere] == [b"c"]
    assert await here.kv.list() == []
    assert [entry.value for entry in await there.kv.list()] == [b"c"]
