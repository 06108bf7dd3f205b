"""What is remembered is durable when it returns, stored once per key, and never over another's."""

import asyncio
from collections.abc import Callable

import pytest

from orbiter.memory import (
    AgentMemory,
    HumanMemory,
    MemoryError,
    MemoryItem,
    MemoryMetadata,
    ToolMemory,
)
from orbiter.memory.agent import Given, ScopedMemory
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.errors import AccessError, InvalidItemError

Open = Callable[..., AgentMemory]


async def contents(handle: ScopedMemory) -> list[str]:
    return sorted(item.content for item in await handle.list(limit=500))


# What can be remembered


async def test_a_text_is_remembered_as_a_plain_item_of_the_scope(any_alice: ScopedMemory) -> None:
    item = await any_alice.remember("I love hiking")

    assert item.content == "I love hiking"
    assert item.memory_type == "item"
    assert item.metadata == any_alice.scope
    assert await any_alice.get(item.id) == item
    assert [hit.item for hit in await any_alice.recall("hiking")] == [item]


async def test_labels_are_kept_beside_what_the_caller_adds(any_alice: ScopedMemory) -> None:
    item = await any_alice.remember(
        "I love hiking",
        tags=["sport", "sport", "fun"],
        importance=0.5,
        source="interview",
        extra={"lang": "en"},
    )

    labels = {
        "tags": ["sport", "fun"],
        "importance": 0.5,
        "source": "interview",
        "trust": 2,
        "lang": "en",
    }
    assert item.metadata.extra == labels
    stored = await any_alice.get(item.id)
    assert stored is not None
    assert stored.metadata.extra == labels
    assert await any_alice.list(where={"tags": {"$contains": "fun"}, "importance": {"$gt": 0.4}})


async def test_an_item_keeps_its_kind_its_id_and_its_own_labels(alice: ScopedMemory) -> None:
    given = HumanMemory(content="hello", metadata=MemoryMetadata(extra={"mood": "good"}))

    item = await alice.remember(given, tags=["greeting"])

    assert type(item) is HumanMemory
    assert (item.id, item.version) == (given.id, 1)
    assert item.metadata.extra == {"mood": "good", "tags": ["greeting"]}
    assert item.metadata.user_id == alice.scope.user_id
    assert given.metadata.user_id is None, "the caller's item was changed"


async def test_a_providers_message_is_remembered_as_what_it_is(alice: ScopedMemory) -> None:
    said = await alice.remember({"role": "user", "content": "hello"})
    result = {"type": "tool_result", "tool_use_id": "a", "content": "21 degrees"}
    tool = await alice.remember({"role": "user", "content": [result]}, format="anthropic")

    assert type(said) is HumanMemory
    assert type(tool) is ToolMemory
    assert tool.content == "21 degrees"
    assert await contents(alice) == ["21 degrees", "hello"]


async def test_a_message_of_several_memories_says_which_call_takes_it(alice: ScopedMemory) -> None:
    results = [
        {"type": "tool_result", "tool_use_id": name, "content": name} for name in ("one", "two")
    ]
    message = {"role": "user", "content": results}

    with pytest.raises(MemoryError, match="remember_many"):
        await alice.remember(message, format="anthropic")
    stored = await alice.remember_many([message], format="anthropic")

    assert [item.content for item in stored] == ["one", "two"]


async def test_an_item_may_be_narrower_than_the_handle(memory: AgentMemory, who: str) -> None:
    alice = memory.scope(user_id=f"alice-{who}")
    narrow = MemoryMetadata(user_id=f"alice-{who}", session_id="s1")

    await alice.remember(MemoryItem(content="in the session", metadata=narrow))

    session = memory.scope(user_id=f"alice-{who}", session_id="s1")
    assert await contents(session) == await contents(alice) == ["in the session"]


# Durable


async def test_what_is_remembered_is_there_for_others_before_the_call_returns(
    url: str, open_memory: Open, who: str
) -> None:
    writer, reader = open_memory(url), open_memory(url)
    await reader.init()

    for number in range(5):
        item = await writer.scope(user_id=who).remember(f"number {number}")

        assert await reader.scope(user_id=who).get(item.id) == item


async def test_an_item_given_again_replaces_the_one_of_its_id(alice: ScopedMemory) -> None:
    first = await alice.remember(MemoryItem(content="old"))
    first.content = "new"

    second = await alice.remember(first)

    assert (second.content, second.version) == ("new", 2)
    assert await contents(alice) == ["new"]
    assert await alice.get(first.id) == second


async def test_a_forgotten_id_of_ones_own_may_be_used_again(alice: ScopedMemory) -> None:
    item = await alice.remember(MemoryItem(content="old"))
    await alice.forget(item)

    again = await alice.remember(MemoryItem(id=item.id, content="new"))

    assert again.content == "new"
    assert await contents(alice) == ["new"]


# Once per key

other_words = pytest.mark.filterwarnings("ignore:the `idempotency_key`")


@other_words
async def test_a_key_stores_once_and_returns_what_came_first(any_alice: ScopedMemory) -> None:
    first = await any_alice.remember("hello", idempotency_key="k1")
    second = await any_alice.remember("hello again", idempotency_key="k1")
    other = await any_alice.remember("hello", idempotency_key="k2")

    assert second == first
    assert other.id != first.id
    assert await contents(any_alice) == ["hello", "hello"]


@other_words
async def test_a_key_stores_once_however_many_try_at_the_same_time(
    url: str, open_memory: Open, who: str
) -> None:
    handles = [open_memory(url).scope(user_id=who) for _ in range(2)]

    tries = [
        handle.remember(f"try {number}", idempotency_key="k")
        for number in range(10)
        for handle in handles
    ]
    stored = await asyncio.gather(*tries)

    assert len({item.id for item in stored}) == 1
    assert len({item.content for item in stored}) == 1
    assert await contents(handles[0]) == [stored[0].content]
    assert stored[0].version == 1


@other_words
async def test_a_key_stores_a_list_once_all_or_none(any_alice: ScopedMemory) -> None:
    first = await any_alice.remember_many(["one", "two"], idempotency_key="k", tags=["t"])
    again = await any_alice.remember_many(["three"], idempotency_key="k")
    single = await any_alice.remember("alone", idempotency_key="k")
    nothing = await any_alice.remember_many([], idempotency_key="empty")

    assert [item.content for item in first] == ["one", "two"]
    assert again == first
    assert single.id not in {item.id for item in first}, "the key of a list is another's"
    assert nothing == []
    assert sorted(await contents(any_alice)) == ["alone", "one", "two"]
    for bad in ("", 7):
        with pytest.raises(ValueError, match="idempotency_key"):
            await any_alice.remember_many(["x"], idempotency_key=bad)  # type: ignore[arg-type]  # wrong on purpose


async def test_a_list_that_was_forgotten_is_not_stored_again_under_its_key(
    alice: ScopedMemory,
) -> None:
    first = await alice.remember_many(["one", "two"], idempotency_key="k")
    await alice.forget(first[0])

    again = await alice.remember_many(["one", "two"], idempotency_key="k")

    assert [item.content for item in again] == ["two"]
    assert await contents(alice) == ["two"]


async def test_a_list_is_stored_once_however_many_try_at_the_same_time(
    url: str, open_memory: Open, who: str
) -> None:
    handles = [open_memory(url).scope(user_id=who) for _ in range(2)]

    tries = [
        h.remember_many(["one", "two"], idempotency_key="k") for _ in range(5) for h in handles
    ]
    stored = await asyncio.gather(*tries)

    assert len({tuple(item.id for item in items) for items in stored}) == 1
    assert sorted(await contents(handles[0])) == ["one", "two"]


async def test_the_same_key_is_another_in_another_scope(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    ours = await any_alice.remember("ours", idempotency_key="k")
    theirs = await any_bob.remember("theirs", idempotency_key="k")

    assert ours.id != theirs.id
    assert await contents(any_alice) == ["ours"]
    assert await contents(any_bob) == ["theirs"]


async def test_the_id_behind_a_key_can_neither_be_taken_nor_asked_for(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    used, free = (derived_id(any_alice.scope, "once", key) for key in ("used", "free"))
    await any_alice.remember("ours", idempotency_key="used")

    told = set()
    for item_id in (used, free):
        for call in (any_bob.remember, any_bob.chat("c").add):
            with pytest.raises(AccessError) as caught:
                await call(HumanMemory(id=item_id, content="theirs"))
            told.add(str(caught.value).replace(item_id, "…"))

    assert len(told) == 1, "whether a key was used is nobody else's business"
    assert (await any_alice.remember("ours, too", idempotency_key="free")).id == free
    mine = await any_alice.get(used)
    assert mine is not None
    assert (await any_alice.remember(mine)).version == 2, "whoever has it may give it back"


async def test_of_two_users_who_choose_one_id_at_once_one_is_refused(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    for number in range(10):
        taken = f"order-{number}"
        done = await asyncio.gather(
            any_alice.remember_many([MemoryItem(id=taken, content="alice's")]),
            any_bob.chat("c").add(HumanMemory(id=taken, content="bob's")),
            return_exceptions=True,
        )

        assert sorted(type(each).__name__ for each in done) == ["AccessError", "ItemList"]
        owners = [await handle.get(taken) for handle in (any_alice, any_bob)]
        assert [type(each) is AccessError for each in done] == [each is None for each in owners]


# All or none


async def test_many_are_remembered_in_their_order(any_alice: ScopedMemory) -> None:
    message: Given = {"role": "user", "content": "a message"}
    given = ["a text", message, MemoryItem(content="an item")]

    stored = await any_alice.remember_many(given, tags=["batch"])

    assert [item.content for item in stored] == ["a text", "a message", "an item"]
    assert all(item.metadata.extra == {"tags": ["batch"]} for item in stored)
    assert [await any_alice.get(item.id) for item in stored] == stored
    assert await any_alice.remember_many([]) == []


@pytest.mark.parametrize(
    "bad",
    ["", 7, {"role": "nobody"}, MemoryItem(content="x", metadata=MemoryMetadata(user_id="o"))],
)
async def test_one_that_cannot_be_remembered_keeps_out_the_others(
    alice: ScopedMemory, bad: object
) -> None:
    with pytest.raises(MemoryError):
        await alice.remember_many(["fine", bad, "fine too"])  # type: ignore[list-item]  # wrong on purpose

    assert await contents(alice) == []


async def test_a_foreign_id_among_many_keeps_out_the_others(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    theirs = await any_bob.remember("theirs")

    with pytest.raises(AccessError):
        await any_alice.remember_many(["fine", MemoryItem(id=theirs.id, content="mine now")])

    assert await contents(any_alice) == []
    assert await any_bob.get(theirs.id) == theirs


# Never over another's


async def test_another_users_id_is_refused_and_theirs_untouched(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    theirs = await any_bob.remember("theirs")

    with pytest.raises(AccessError, match="taken") as caught:
        await any_alice.remember(MemoryItem(id=theirs.id, content="mine now"))

    assert "theirs" not in str(caught.value)
    assert await any_bob.get(theirs.id) == theirs
    assert await contents(any_alice) == []


async def test_an_id_that_its_owner_forgot_is_still_theirs(
    alice: ScopedMemory, bob: ScopedMemory
) -> None:
    theirs = await bob.remember("theirs")
    await bob.forget(theirs)
    before = await bob.history(theirs.id)

    with pytest.raises(AccessError):
        await alice.remember(MemoryItem(id=theirs.id, content="mine now"))
    with pytest.raises(AccessError):
        await alice.remember_many([MemoryItem(id=theirs.id, content="mine now")])
    with pytest.raises(AccessError):
        await alice.chat("c").add(HumanMemory(id=theirs.id, content="mine now"))

    assert await bob.history(theirs.id) == before
    assert (await bob.restore(theirs.id)).content == "theirs"
    assert await contents(alice) == []


async def test_many_who_want_one_id_leave_it_to_the_first(
    alice: ScopedMemory, bob: ScopedMemory
) -> None:
    item_id = MemoryItem(content="x").id
    for handle in (alice, bob):  # connections are open, so that the race is one
        await handle.remember("warm up")

    tries = [
        handle.remember(MemoryItem(id=item_id, content=f"{number}"))
        for number in range(10)
        for handle in (alice, bob)
    ]
    done = await asyncio.gather(*tries, return_exceptions=True)

    owners = {item.metadata.user_id for item in done if isinstance(item, MemoryItem)}
    errors = [each for each in done if not isinstance(each, MemoryItem)]
    assert len(owners) == 1
    assert all(isinstance(each, AccessError) for each in errors), errors
    assert len(errors) == 10


@pytest.mark.parametrize("field", ["user_id", "session_id", "task_id", "agent_id"])
async def test_an_item_that_names_another_scope_is_refused(
    memory: AgentMemory, who: str, field: str
) -> None:
    handle = memory.scope(user_id=who, session_id="s", task_id="t", agent_id="a")
    item = MemoryItem(content="x", metadata=MemoryMetadata(**{field: "another"}))

    with pytest.raises(AccessError, match=field):
        await handle.remember(item)
    with pytest.raises(AccessError, match=field):
        await handle.remember_many(["fine", item])

    assert await contents(handle) == []


# Bad input: it gets as far as no store, so one will do


@pytest.fixture
def plain(open_memory: Open) -> ScopedMemory:
    return open_memory("memory://", embeddings=None).scope(user_id="alice")


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (["a", "b"], "list"),
        (b"bytes", "bytes"),
        (None, "NoneType"),
        (7, "int"),
        ({}, "role"),
        ("\ud800", "surrogate|Unicode|UTF"),
        ("null \0 byte", "NUL|null|character"),
    ],
)
async def test_what_cannot_be_remembered_is_refused_with_a_reason(
    plain: ScopedMemory, what: object, told: str
) -> None:
    with pytest.raises(ValueError, match=f"(?i){told}"):
        await plain.remember(what)  # type: ignore[arg-type]  # wrong on purpose

    assert (await plain.stats()).items == 0


@pytest.mark.parametrize(
    ("text", "way"),
    [("a\0b", "remove it"), ("a\ud800b", "decode the text"), ("x" * (2**20 + 1), "split it")],
)
async def test_a_text_that_no_store_keeps_is_refused_in_one_line(
    plain: ScopedMemory, text: str, way: str
) -> None:
    kept = await plain.remember("tea")
    calls = [
        plain.remember(text),
        plain.remember_many(["coffee", text]),
        plain.chat("c").add(text),
        plain.update(kept.id, text),
    ]
    for call in calls:
        with pytest.raises(
            InvalidItemError, match=f"^the text `.+` cannot be stored: .*{way}"
        ) as refusal:
            await call
        assert len(str(refusal.value).splitlines()) == 1
        assert len(str(refusal.value)) < 200

    assert [item.content for item in await plain.list()] == ["tea"]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({"tags": "sport"}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"tags": [1]}, "tags"),
        ({"tags": 7}, "tags"),
        ({"importance": 2}, "importance"),
        ({"importance": -0.1}, "importance"),
        ({"importance": True}, "importance"),
        ({"importance": "high"}, "importance"),
        ({"importance": float("nan")}, "importance"),
        ({"source": ""}, "source"),
        ({"source": 7}, "source"),
        ({"extra": {"a": object()}}, "extra"),
        ({"extra": {1: "a"}}, "extra"),
        ({"extra": ["a"]}, "extra"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": 7}, "idempotency_key"),
        ({"format": "telegraph"}, "format"),
    ],
)
async def test_a_bad_label_is_refused_by_its_name_and_nothing_is_stored(
    plain: ScopedMemory, labels: dict[str, object], told: str
) -> None:
    what = {"role": "user", "content": "hello"}

    with pytest.raises(ValueError, match=told):
        await plain.remember(what, **labels)  # type: ignore[arg-type]  # wrong on purpose

    assert (await plain.stats()).items == 0


@pytest.mark.parametrize("things", ["a text", {"role": "user", "content": "a"}, 7, None])
async def test_many_takes_a_list(plain: ScopedMemory, things: object) -> None:
    with pytest.raises(MemoryError, match="list"):
        await plain.remember_many(things)  # type: ignore[arg-type]  # wrong on purpose

    assert (await plain.stats()).items == 0
