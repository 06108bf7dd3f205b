"""Words, vectors and conversations in the SQL stores: what they find is what is there."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.stores.recall_reference import (
    Detailed,
    check_around,
    check_details,
    check_meaning,
    check_scored,
    check_words,
)

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    PostgresMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.errors import QueryError
from orbiter.memory.model.protocols import (
    ConversationStore,
    DetailStore,
    Embeddings,
    LexicalStore,
    VectorStore,
)
from orbiter.memory.model.query import CosineQuery, Query
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.text import words

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
START = datetime(2025, 1, 1, tzinfo=UTC)
PHRASES = (
    "I painted the kitchen green",
    "Ann paints a house in Zürich",
    "café müsli naïve 日本語を話す",
    "it's Ann's 1234 and 56",
    "한국어 문장 ไทย",
    "",
    "  ",
    "the of and",
    f"{'z' * 90} long",
    " ".join(f"word{n} painting." for n in range(400)),
)
QUESTIONS = ("painting in Zurich", "日本 1234", "kitchen ann", "naive word7", f"{'z' * 90}", "??")


@pytest.fixture(params=["sqlite", "sqlite file", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that opens the same store, each time with its own embeddings."""
    address: Any = ":memory:"
    if request.param == "sqlite file":
        address = tmp_path / "memory.db"
    elif request.param == "postgres":
        address = request.getfixturevalue("postgres_dsn")

    def make(embeddings: Embeddings | None = None) -> Any:
        kind = PostgresMemoryStore if request.param == "postgres" else SQLiteMemoryStore
        return kind(address, embeddings=embeddings)

    return make


def _item(dice: random.Random) -> MemoryItem:
    kind = dice.choice((HumanMemory, HumanMemory, AIMemory))
    few: tuple[Any, ...] = (None, 1, 1.0, True, "1")
    return kind(
        id=f"i{dice.randrange(40)}",
        content=" ".join(dice.choices(PHRASES, weights=[9] * 9 + [1], k=dice.choice((1, 1, 2)))),
        metadata=MemoryMetadata(
            user_id=dice.choice(("ann", "ann", "bob", None)),
            session_id=dice.choice(("s", "t", None)),
            extra={"n": dice.choice(few)} if dice.random() < 0.5 else {},
        ),
        status=dice.choice((MemoryStatus.ACCEPTED, MemoryStatus.DRAFT)),
        created_at=START + timedelta(seconds=dice.randrange(6)),
    )


def _asked(dice: random.Random) -> Query:
    def maybe(*values: Any) -> Any:
        return dice.choice((None, None, None, *values))

    return Query(
        metadata=MemoryMetadata(
            user_id=dice.choice(("ann", "bob", None)), session_id=maybe("s", "t")
        ),
        memory_type=maybe("human", "ai"),
        status=maybe(MemoryStatus.DRAFT),
        since=maybe(START + timedelta(seconds=2)),
        until=maybe(START + timedelta(seconds=4)),
        where=maybe({"n": 1}, {"n": True}, {"n": "1"}),
        limit=dice.choice((1, 3, 1000)),
    )


async def _step(store: Any, dice: random.Random) -> None:
    chance, some_id = dice.random(), f"i{dice.randrange(40)}"
    if chance < 0.45:
        await store.add(_item(dice))
    elif chance < 0.6:
        await store.add_many([_item(dice) for _ in range(dice.randrange(8))])
    elif chance < 0.75:
        await store.delete(some_id)
    elif chance < 0.87:
        await store.restore(some_id)
    elif chance < 0.95:
        await store.purge()
    else:
        await store.clear(metadata=dice.choice((ANN, BOB)))


async def _check(store: Any, dice: random.Random, embeddings: Detailed, **waiting: bool) -> None:
    asked, question = _asked(dice), dice.choice(QUESTIONS)
    await check_words(store, list(dict.fromkeys(words.terms(question))), asked)
    await check_meaning(store, embeddings, question, asked, **waiting)
    await check_details(store, embeddings, **waiting)
    await check_around(store, [f"i{n}" for n in dice.sample(range(40), 4)], dice.randrange(4))
    if not any(waiting.values()):  # else the embedder may be at work between the two reads
        await check_scored(store, embeddings.embed(question), dice)
    found = await store.search(limit=1000, where={"n": 1})
    assert [i.id for i in found] == [
        i.id for i in await store.search(limit=1000) if Query(where={"n": 1}).matches(i)
    ]


@pytest.mark.parametrize("seed", range(2))
async def test_what_is_found_is_what_is_there_through_any_changes(opened: Any, seed: int) -> None:
    dice, embeddings = random.Random(seed), Detailed(24)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened(embeddings))
        for _ in range(30):
            for _ in range(dice.randrange(1, 6)):
                await _step(store, dice)
            is_behind = dice.random() < 0.3
            if not is_behind:
                assert await store.catch_up() == 0
            await _check(store, dice, embeddings, waiting=is_behind)
        assert await store.catch_up() == 0
        assert await store.verify()


async def test_a_store_has_the_capabilities_of_recall(opened: Any) -> None:
    store = opened()

    assert isinstance(store, LexicalStore)
    assert isinstance(store, VectorStore)
    assert isinstance(store, DetailStore)
    assert isinstance(store, ConversationStore)
    assert store.embeddings is None


async def test_a_store_without_embeddings_finds_words_and_no_meaning(opened: Any) -> None:
    async with opened() as store:
        await store.add(HumanMemory(id="a", content="I painted it", metadata=ANN))

        found = await store.match_words(["paint"], Query(metadata=ANN))

        assert [item.id for item in found.items] == ["a"]
        assert await store.nearest([1.0, 0.0], Query()) == []
        assert await store.similarities([1.0, 0.0], ["a"]) == {}
        [[item]], cosines = await store.around_scored(
            ["a"], CosineQuery([1.0, 0.0], ["a"], ()), span=1
        )
        assert (item.id, cosines) == ("a", {})
        assert await store.details(["a"]) == {}
        assert (await store.catch_up(), (await store.stats()).unembedded) == (0, 0)


async def test_no_terms_and_no_room_find_nothing(opened: Any) -> None:
    async with opened(HashEmbeddings(8)) as store:
        await store.add(HumanMemory(content="painted", metadata=ANN))
        await store.catch_up()

        assert (await store.match_words([], Query())).items == []
        none = await store.match_words(["paint"], Query(limit=0))
        assert (list(none.items), none.frequency, none.passages) == ([], {"paint": 1}, 1)
        odd = await store.match_words(['"', "a b", "PAINT", "", "'", "*"], Query())
        assert (list(odd.items), set(odd.frequency.values())) == ([], {0})
        assert await store.nearest([1.0] * 8, Query(limit=0)) == []


async def test_what_cannot_be_asked_is_named(opened: Any) -> None:
    async with opened(HashEmbeddings(8)) as store:
        await store.add(HumanMemory(id="a", content="x"))
        await store.catch_up()

        for call in (
            store.match_words("paint", Query()),
            store.around("a", span=1),
            store.around(["a"], span=-1),
            store.around_scored("a", CosineQuery([1.0] * 8, [], ()), span=1),
            store.around_scored(["a"], CosineQuery([1.0] * 8, [5], ()), span=1),  # type: ignore[list-item]
            store.around_scored(["a"], CosineQuery([1.0], [], ()), span=1),
            store.similarities([1.0] * 8, "a"),
            store.similarities([1.0] * 8, [5]),
            store.details("a"),
            store.details([5]),
        ):
            with pytest.raises(QueryError):
                await call
        with pytest.raises(ValueError, match="8 numbers"):
            await store.nearest([1.0, 2.0], Query())
        with pytest.raises(ValueError, match="no direction"):
            await store.nearest([0.0] * 8, Query())


async def test_a_long_text_is_found_by_its_best_passage(opened: Any) -> None:
    embeddings = HashEmbeddings(256)
    async with opened(embeddings) as store:
        filler = " ".join(f"filler{n} sentence." for n in range(9000))
        await store.add(HumanMemory(id="long", content=f"{filler} The zebra sleeps.", metadata=ANN))
        await store.add(HumanMemory(id="short", content="A lion wakes.", metadata=ANN))
        await store.catch_up()

        found = await store.match_words(["zebra", "lion"], Query(metadata=ANN))
        near = await store.nearest(embeddings.embed("the zebra sleeps"), Query(limit=5))

        assert {item.id for item in found.items} == {"long", "short"}
        assert {item.id for item, _ in near} == {"long", "short"}


async def test_where_tells_true_from_one(opened: Any) -> None:
    async with opened() as store:
        for name, value in (
            ("one", 1),
            ("float", 1.0),
            ("true", True),
            ("text", "1"),
            ("list", [1]),
            ("true list", [True, "x"]),
        ):
            metadata = MemoryMetadata(user_id="ann", extra={"k": value, "o": {"k": 1}})
            await store.add(HumanMemory(id=name, content="x", metadata=metadata))

        async def ids(**where: Any) -> set[str]:
            return {item.id for item in await store.search(where=where, query="x")}

        assert await ids(k=1) == await ids(k=1.0) == {"one", "float", "list"}
        assert await ids(k=True) == {"true", "true list"}
        assert await ids(k="1") == {"text"}
        assert await ids(o=1) == await ids(missing="x") == set()
        assert await ids(k=1, o=1) == set()


@asynccontextmanager
async def _asking(store: Any, calls: int) -> AsyncIterator[None]:
    """Ask all the time while something else is done."""
    asked = 0

    async def ask() -> None:
        nonlocal asked
        while True:
            found = await store.match_words(["paint"], Query(metadata=ANN, limit=3))
            assert len(found.items) == 3
            asked += 1

    task = asyncio.create_task(ask())
    yield
    while asked < calls and not task.done():  # noqa: ASYNC110 - a count, not an event
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_words_are_found_while_others_write(opened: Any) -> None:
    async with opened() as store:
        await store.add_many([HumanMemory(content="painted", metadata=ANN) for _ in range(5)])

        async with _asking(store, 5):
            await asyncio.gather(
                *(store.add(HumanMemory(content=f"paints {n}", metadata=BOB)) for n in range(300))
            )

        assert (await store.match_words(["paint"], Query())).frequency == {"paint": 305}
