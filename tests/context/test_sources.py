from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orbiter.memory import (
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    ShortTermMemory,
    SQLiteMemoryStore,
    SystemMemory,
)
from orbiter.memory.context import ContextManager, Memory
from orbiter.memory.context.prompt_fence import parse
from orbiter.memory.errors import QueryError

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")


@pytest.fixture
async def store(tmp_path: Path) -> SQLiteMemoryStore:
    store = SQLiteMemoryStore(str(tmp_path / "memories.db"))
    await store.init()
    for who, content in (
        (ANN, "Ann thinks ethics of machines matter most"),
        (ANN, "Ann buys bread about noon"),
        (ANN, "An education in cats"),
        (BOB, "Bob's ethics are secret"),
    ):
        await store.add(HumanMemory(content=content, metadata=who))
    draft = HumanMemory(content="ethics draft", metadata=ANN, status=MemoryStatus.DRAFT)
    await store.add(draft)
    return store


async def test_a_store_gives_what_shares_words_with_the_task(
    soul: Path, store: SQLiteMemoryStore
) -> None:
    manager = ContextManager(soul)

    context = await manager.assemble("Write about the ETHICS of it", long_term=store, scope=ANN)
    nothing = await manager.assemble("Something else entirely", long_term=store, scope=ANN)
    await store.close()

    found = parse(context.text, mark=context.marks[1])
    assert [entry.content for entry in found] == ["Ann thinks ethics of machines matter most"]
    assert "## Relevant memories" not in nothing.text


async def test_a_store_gives_nothing_that_is_not_indexed(
    soul: Path, store: SQLiteMemoryStore
) -> None:
    hidden = MemoryMetadata(user_id="ann", extra={"indexed_by": False})
    await store.add_many(
        [HumanMemory(content=f"about the ethics of it, {n}", metadata=hidden) for n in range(9)]
    )

    for task in ("about the ethics of it", "ethics"):
        context = await ContextManager(soul).assemble(task, long_term=store, scope=ANN)
        given = [entry.content for entry in parse(context.text, mark=context.marks[1])]
        assert given == ["Ann thinks ethics of machines matter most"]
    await store.close()


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("ethics of machines", ["ethics and machines"]),  # the rare word tells more
        ("machines", ["ethics and machines", "machines one", "machines three", "machines two"]),
        ("cation levels", []),  # `education` holds it, but not as a word
        ("What about these, please?", []),  # no word of these tells anything
        ("AI!", ["AI for all"]),
        ("x" * 2_000_000 + " ethics", ["ethics and machines"]),
    ],
)
async def test_what_a_store_finds_is_relevant(soul: Path, task: str, found: list[str]) -> None:
    store = ShortTermMemory(scope="user")
    for content in (
        *("an education about these", "AI for all", "ethics and machines"),
        *("machines one", "machines two", "machines three"),
    ):
        await store.add(HumanMemory(content=content, metadata=ANN))

    context = await ContextManager(soul, count_tokens=len).assemble(
        task, long_term=store, scope=ANN
    )

    memories = [section.text for section in context.sections if section.name == "memories"]
    shown = [entry.content for text in memories for entry in parse(text, mark=context.marks[1])]
    assert sorted(shown) == found


@pytest.mark.parametrize("scope", [None, MemoryMetadata(), MemoryMetadata(extra={"a": 1})])
async def test_a_store_without_a_scope_is_refused(
    soul: Path, store: SQLiteMemoryStore, scope: MemoryMetadata | None
) -> None:
    with pytest.raises(QueryError, match="scope=MemoryMetadata"):
        await ContextManager(soul).assemble("ethics", long_term=store, scope=scope)
    await store.close()


class Unscoped(ShortTermMemory):
    """A store that finds everyone's items, whoever is asked for."""

    async def search(self, **asked: Any) -> list[MemoryItem]:
        return await super().search(**{**asked, "metadata": None})


async def test_a_store_that_ignores_the_scope_still_leaks_nothing(soul: Path) -> None:
    leaky = Unscoped(scope="user")
    await leaky.add(HumanMemory(content="Bob's ethics", metadata=BOB))

    context = await ContextManager(soul).assemble(
        "ethics", long_term=leaky, scope=MemoryMetadata(session_id="s1")
    )

    assert "Bob" not in context.text
    assert {left.reason for left in context.dropped} == {"scope"}


class Finder:
    async def recall(self, query: str, *, limit: int) -> Sequence[Memory]:
        own: list[Memory] = [
            HumanMemory(content=f"{who.user_id}: {query}", metadata=who) for who in (ANN, BOB)
        ]
        return ["anyone's", *own][:limit]


async def recall_function(query: str, *, limit: int) -> list[str]:
    return [query.upper()] * limit


async def test_a_recall_object_or_function_is_asked_for_five(soul: Path) -> None:
    manager = ContextManager(soul)

    by_object = await manager.assemble("cats", long_term=Finder(), scope=ANN)
    by_function = await manager.assemble("cats", long_term=recall_function)

    found = [entry.content for entry in parse(by_object.text, mark=by_object.marks[1])]
    assert found == ["anyone's", "ann: cats"]
    assert by_function.text.count("] CATS\n") == 5


async def test_a_memory_of_conversations_shows_one_user_only(soul: Path) -> None:
    memory, manager = ShortTermMemory(scope="user"), ContextManager(soul)
    await memory.add(HumanMemory(content="I am Ann", metadata=ANN))
    alone = await manager.assemble("Go", conversation=memory)
    await memory.add(HumanMemory(content="I am Bob", metadata=BOB))

    context = await manager.assemble("Go", conversation=memory, scope=ANN)
    with pytest.raises(QueryError, match="scope=MemoryMetadata"):
        await manager.assemble("Go", conversation=memory)

    assert "I am Ann" in alone.text
    assert "I am Ann" in context.text
    assert "Bob" not in context.text


async def test_only_accepted_items_are_shown(soul: Path) -> None:
    refused = [
        HumanMemory(content="secret", status=status)
        for status in (MemoryStatus.DRAFT, MemoryStatus.DISCARD)
    ]

    context = await ContextManager(soul).assemble("Go", conversation=refused, memories=refused)

    assert "secret" not in context.text
    assert {left.reason for left in context.dropped} == {"status"}
    assert all(left.tokens > 0 for left in context.dropped)


async def test_items_that_are_no_messages_are_left_out_of_a_conversation(soul: Path) -> None:
    note = MemoryItem(content="a note", memory_type="note")

    context = await ContextManager(soul).assemble(
        "Go", conversation=[note, HumanMemory(content="Hi")]
    )

    assert [(left.reason, left.source) for left in context.dropped] == [("kind", "note")]


async def test_a_later_change_of_an_item_does_not_reach_the_context(soul: Path) -> None:
    item = SystemMemory(content="before")
    context = await ContextManager(soul).assemble("Go", conversation=[item])

    item.content = "after"

    assert "before" in str(context.messages().messages)


async def test_a_users_memories_stand_beside_one_sessions_conversation(
    soul: Path, store: SQLiteMemoryStore
) -> None:
    chat = ShortTermMemory(scope="session")
    here = MemoryMetadata(user_id="ann", session_id="here")
    for session in ("here", "elsewhere"):
        metadata = MemoryMetadata(user_id="ann", session_id=session)
        await chat.add(HumanMemory(content=f"said {session}", metadata=metadata))

    context = await ContextManager(soul).assemble(
        "Write about ethics", conversation=chat, long_term=store, scope=here, recall_scope=ANN
    )
    await store.close()

    assert "Ann thinks ethics of machines matter most" in context.text
    assert "said here" in context.text
    assert "said elsewhere" not in context.text


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"memories": "hello"}, r"`memories=\[…\]`"),
        ({"recent": HumanMemory(content="x")}, r"`recent=\[…\]`"),
        ({"memories": None}, "`memories` must be a list"),
        ({"conversation": None}, "`conversation` must be a list"),
        ({"conversation": "hello"}, "`conversation` must be a list"),
        ({"conversation": [{"role": "user", "content": "x"}]}, "`from_messages`"),
        ({"short_term_manager": ShortTermMemory()}, "`conversation=`"),
        ({"long_term": lambda query, limit: []}, "`async def`"),
        ({"long_term": 7}, "`int` cannot recall"),
    ],
)
async def test_what_cannot_serve_as_a_source_is_named(
    soul: Path, source: dict[str, Any], told: str
) -> None:
    with pytest.raises(QueryError, match=told):
        await ContextManager(soul).assemble("Do it", **source)


@pytest.mark.parametrize("bad", [{"secret": "abc"}, {"soul_path": 7}])
def test_a_setting_that_means_nothing_is_named(bad: dict[str, Any]) -> None:
    with pytest.raises(QueryError, match=next(iter(bad))):
        ContextManager(**bad)


class Leaky:
    """A memory that answers with everyone's messages."""

    async def window(self, *, metadata: MemoryMetadata | None = None) -> list[MemoryItem]:
        return [HumanMemory(content=f"{who.user_id}'s", metadata=who) for who in (ANN, BOB)]


async def test_a_conversation_is_checked_against_the_scope_again(soul: Path) -> None:
    both = await Leaky().window()
    for source in (Leaky(), both):
        context = await ContextManager(soul).assemble("Do it", conversation=source, scope=ANN)

        assert "ann's" in context.text
        assert "bob's" not in context.text + str(context.messages().messages)
        assert [(each.section, each.reason) for each in context.dropped] == [
            ("conversation", "scope")
        ]
