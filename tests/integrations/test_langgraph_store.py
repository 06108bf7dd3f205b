"""LangGraph's store: the tests of its own SQLite store, and what they leave open."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import GetOp, PutOp
from tests.integrations.sdists import run_sdist_tests, unpacked_sdist

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations._langgraph_filters import matches, texts_within
from orbiter.memory.integrations.langgraph import OrbiterStore
from orbiter.memory.testing import HashEmbeddings

DISTRIBUTION = "langgraph"

SUITE = "langgraph-checkpoint-sqlite: store tests"
THEIR_INTERNALS = [
    # Attributes and tables of theirs.
    "tests/test_store.py::test_vector_store_initialization",
    "tests/test_async_store.py::test_vector_store_initialization",
    "tests/test_store.py::test_nonnull_migrations",
    # Functions that make their SQL.
    "tests/test_store.py::test_escape_glob_literal",
    "tests/test_store.py::test_namespace_match_pattern",
    "tests/test_store.py::test_list_namespaces_prefix_uses_indexable_condition",
    # A key of a filter would be put into their SQL; ours is only looked up.
    "tests/test_store.py::test_sql_injection_vulnerability",
    # How many rows their sweep removed; ours needs none.
    "tests/test_ttl.py::test_ttl_refresh",
]

Record = Callable[[str, int, int], None]


@pytest.mark.parametrize(
    "files",
    [
        ["tests/test_store.py", "tests/test_async_store.py"],
        pytest.param(["tests/test_ttl.py"], marks=pytest.mark.full),  # it sleeps for 40 seconds
    ],
    ids=["values", "ttl"],
)
def test_the_store_tests_of_langgraph(
    files: list[str], request: pytest.FixtureRequest, record_suite: Record
) -> None:
    assert request.config.cache is not None
    folder = unpacked_sdist("langgraph-checkpoint-sqlite", request.config.cache)

    passed, total = run_sdist_tests(
        folder, files, plugin="swapped_store", leave_out=THEIR_INTERNALS
    )

    record_suite(SUITE, passed, total)
    assert passed == total
    assert total >= (10 if files == ["tests/test_ttl.py"] else 120)


@pytest.fixture
async def ann(url: str) -> AsyncIterator[ScopedMemory]:
    async with AgentMemory(url, embeddings=HashEmbeddings()) as memory:
        yield memory.scope(user_id="ann")


@pytest.fixture
def store(ann: ScopedMemory) -> OrbiterStore:
    return OrbiterStore(ann, index={"fields": ["text"]})


async def test_a_search_finds_by_recall_and_then_the_rest(store: OrbiterStore) -> None:
    await store.aput(("notes",), "tea", {"text": "Ann likes green tea"})
    await store.aput(("notes",), "job", {"text": "Ann works at the harbour"})
    await store.aput(("notes",), "plain", {"text": "green tea again"}, index=False)

    found = await store.asearch(("notes",), query="Which tea does Ann like?")

    assert (found[0].key, found[0].score is not None) == ("tea", True)
    assert {item.key: item.score for item in found}["plain"] is None
    assert len(found) == 3


async def test_values_that_say_the_same_are_each_found(store: OrbiterStore) -> None:
    for key in "abc":
        await store.aput((key,), key, {"text": "Ann likes green tea"})

    found = await store.asearch((), query="green tea")

    assert {item.key: item.score is not None for item in found} == dict.fromkeys("abc", True)


async def test_a_value_with_several_texts_is_one_memory(ann: ScopedMemory) -> None:
    store = OrbiterStore(ann, index={"fields": ["title", "lines[*]"]})
    value = {"title": "Ann likes green tea", "lines": ["she flies planes", "her cat is Tom", " "]}
    await store.aput(("notes",), "ann", value)
    await store.aput(("notes",), "bob", {"title": "Bob likes coffee"})

    for query in ("green tea", "flies planes", "cat Tom"):
        found = await store.asearch(("notes",), query=query)
        assert (found[0].key, found[0].score is not None) == ("ann", True), query
        assert [item.key for item in found].count("ann") == 1
    assert len(await ann.list()) == 2
    await store.adelete(("notes",), "ann")
    assert not await ann.recall("planes", mode="words")


@pytest.mark.parametrize(("count", "length"), [(100, 5), (30, 60_000), (1, 500_000)])
async def test_a_value_is_found_by_every_text_however_much_that_is(
    ann: ScopedMemory, count: int, length: int
) -> None:
    store = OrbiterStore(ann, index={"fields": ["lines[*]"]}, mode="words")
    lines = [f"word{n}word {'😀' * length}" for n in range(count)]
    await store.aput(("n",) * 300, "k", {"lines": lines})

    for number in {0, count // 2, count - 1}:
        (found,) = await store.asearch((), query=f"word{number}word")
        assert (found.value, found.score is not None) == ({"lines": lines}, True)
    await store.aput(("n",) * 300, "k", {"lines": ["short"]})
    assert [item.content for item in await ann.list()] == ["short"]


async def test_what_is_indexed_is_a_memory_until_it_is_replaced_or_deleted(
    store: OrbiterStore, ann: ScopedMemory
) -> None:
    await store.aput(("notes",), "tea", {"text": "Ann likes green tea"})
    assert [hit.item.content for hit in await ann.recall("tea")] == ["Ann likes green tea"]

    await store.aput(("notes",), "tea", {"text": "Ann likes black tea"})
    found = await store.asearch(("notes",), query="green tea")
    assert [item.value["text"] for item in found] == ["Ann likes black tea"]

    await store.adelete(("notes",), "tea")
    assert await store.asearch(("notes",), query="tea") == []
    assert not await ann.recall("tea")
    assert not await ann.list()
    await asyncio.sleep(1.1)  # removed for good, not only forgotten
    assert list(await ann.list(forgotten=True)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("", {"text": "lost"}), ("k" * 2_000, {"text": "lost"}), ("k", {"text": "lost", "v": {1}})],
)
async def test_a_put_that_fails_leaves_no_memory(
    store: OrbiterStore, ann: ScopedMemory, key: str, value: dict[str, object]
) -> None:
    with pytest.raises((QueryError, TypeError)):
        await store.abatch([PutOp(("n",), key, value)])

    assert list(await ann.list()) == []


async def test_a_cancelled_put_leaves_no_memory_without_its_value(
    store: OrbiterStore, ann: ScopedMemory
) -> None:
    for number in range(30):
        put = asyncio.create_task(store.aput(("n",), f"{number}", {"text": f"number {number}"}))
        for _ in range(number % 6):
            await asyncio.sleep(0.0005)
        put.cancel()
        await asyncio.wait({put})

    kept = {item.value["text"] for item in await store.asearch(("n",), limit=100)}
    assert {item.content for item in await ann.list(limit=100)} == kept


async def test_text_that_no_memory_can_hold_is_kept_and_found(store: OrbiterStore) -> None:
    await store.aput(("n",), "odd", {"text": "green\0tea \ud800"})

    (item,) = await store.asearch(("n",), query="green tea")

    assert item.value == {"text": "green\0tea \ud800"}
    assert item.score is not None


async def test_puts_at_once_leave_the_memories_of_the_last_alone(
    store: OrbiterStore, ann: ScopedMemory
) -> None:
    await asyncio.gather(
        *(store.aput(("notes",), "tea", {"text": f"tea number {n}"}) for n in range(8))
    )

    item = await store.aget(("notes",), "tea")
    assert item is not None
    kept = [each.content for each in await ann.list() if each.expires_at is None]
    assert kept == [item.value["text"]]


async def test_a_batch_reads_what_was_there_before_it_writes(store: OrbiterStore) -> None:
    await store.aput(("n",), "k", {"v": 1})
    before = await store.aget(("n",), "k")

    results = await store.abatch(
        [PutOp(("n",), "k", {"v": 2}), PutOp(("n",), "k", {"v": 3}), GetOp(("n",), "k")]
    )

    assert results == [None, None, before]
    after = await store.aget(("n",), "k")
    assert after is not None
    assert before is not None
    assert (after.value, after.created_at) == ({"v": 3}, before.created_at)


async def test_the_time_of_a_value_is_in_minutes_and_reading_prolongs_it(
    ann: ScopedMemory,
) -> None:
    store = OrbiterStore(ann, index={"fields": ["text"]}, ttl={"default_ttl": 2.0})
    await store.aput(("n",), "k", {"text": "green tea"})
    first = (await ann.kv.list())[0]

    await store.aget(("n",), "k", refresh_ttl=False)
    assert (await ann.kv.list())[0].expires_at == first.expires_at

    await store.asearch(("n",), query="tea")
    second = (await ann.kv.list())[0]
    assert first.expires_at is not None
    assert second.expires_at is not None
    assert (first.expires_at - first.updated_at) == timedelta(minutes=2)
    assert second.expires_at > first.expires_at
    assert second.version == first.version
    item = (await ann.list())[0]
    assert item.version == 1
    assert item.expires_at is not None
    assert item.expires_at > second.expires_at


async def test_filters_nest(ann: ScopedMemory) -> None:
    store = OrbiterStore(ann)
    values: dict[str, dict[str, object]] = {
        "a": {"kind": "tea", "price": 3, "from": {"country": "JP", "year": 2024}, "tags": ["x"]},
        "b": {"kind": "tea", "price": 9, "from": {"country": "CN", "year": 2020}, "tags": []},
        "c": {"kind": "pot", "price": 30, "hot": True},
    }
    for key, value in values.items():
        await store.aput(("shop",), key, value)

    async def keys(**wanted: object) -> str:
        return "".join(sorted(each.key for each in await store.asearch(("shop",), filter=wanted)))

    assert await keys(kind={"$in": ["tea", "cup"]}) == "ab"
    assert await keys(kind={"$nin": ["tea"]}) == "c"
    assert await keys(**{"$or": [{"price": {"$lt": 5}}, {"kind": "pot"}]}) == "ac"
    assert await keys(**{"$and": [{"kind": "tea"}, {"price": {"$gte": 9}}]}) == "b"
    assert await keys(**{"$not": {"kind": "tea"}}) == "c"
    assert await keys(**{"from": {"country": "JP"}}) == "a"
    assert await keys(**{"from": {"year": {"$gt": 2022}}}) == "a"
    assert await keys(**{"from.country": {"$ne": "JP"}}) == "bc"
    assert await keys(tags=["x"]) == "a"
    assert await keys(hot=True) == "c"
    assert await keys(hot=1) == ""
    assert await keys(hot={"$exists": False}) == "ab"
    assert await keys(hot=None) == "ab"
    with pytest.raises(QueryError, match=r"unknown operator `\$like`"):
        await keys(kind={"$like": "t"})


async def test_nobody_sees_the_values_of_another(url: str) -> None:
    async with AgentMemory(url, embeddings=HashEmbeddings()) as memory:
        index = {"fields": ["text"]}
        anns = OrbiterStore(memory.scope(user_id="ann"), index=index)  # type: ignore[arg-type]
        bobs = OrbiterStore(memory.scope(user_id="bob"), index=index)  # type: ignore[arg-type]
        await anns.aput(("notes",), "tea", {"text": "Ann likes green tea"})

        assert await bobs.aget(("notes",), "tea") is None
        assert await bobs.asearch((), query="green tea") == []
        assert await bobs.alist_namespaces() == []
        assert await anns.alist_namespaces() == [("notes",)]


async def test_a_model_is_the_memorys(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "m.db") as memory:
        with pytest.raises(QueryError, match="leave `embed` out"):
            OrbiterStore(
                memory.scope(user_id="ann"), index={"dims": 3, "embed": lambda texts: [[1.0]]}
            )


_plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
)
_names = st.sampled_from(["a", "b", "a.b", 'a"', "ä"])
_nested = st.dictionaries(_names, _plain | st.dictionaries(_names, _plain, max_size=2), max_size=3)


@given(value=_nested, wanted=st.dictionaries(_names, _plain, max_size=2), is_nested=st.booleans())
def test_no_value_is_passed_over_for_what_does_not_stand_in_it(
    value: dict[str, Any], wanted: dict[str, Any], *, is_nested: bool
) -> None:
    wanted = {name: {"$eq": each} for name, each in wanted.items()} if is_nested else wanted
    stored = json.dumps({"value": value}).encode()

    if matches(json.loads(stored)["value"], wanted):
        assert all(text in stored for text in texts_within(wanted))


@given(number=st.integers(), name=_names)
def test_a_number_is_found_however_it_is_written(number: int, name: str) -> None:
    for written in (number, float(number) if abs(number) < 10**300 else number):
        stored = json.dumps({name: written}).encode()

        if matches(json.loads(stored), {name: number}):
            assert all(text in stored for text in texts_within({name: number}))


async def test_a_filter_finds_what_is_rare_and_old(store: OrbiterStore) -> None:
    puts = [
        PutOp(("users", str(n % 7)), f"k{n}", {"n": n, "kind": "a" if n < 3 else "b"})
        for n in range(700)
    ]
    await store.abatch(puts)

    found = await store.asearch(("users",), filter={"kind": "a"}, limit=2)
    assert len(found) == 2
    assert {item.value["kind"] for item in found} == {"a"}
    assert [item.key for item in await store.asearch(("users",), filter={"n": 1.0})] == ["k1"]
    assert len(await store.asearch(("users",), filter={"n": {"$lt": 20}}, limit=50)) == 20
