"""A text query means the same in every SQL store as in `Query.matches`, for any Unicode."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.stores.side_by_side import eager_indexes

from orbiter.memory import HumanMemory, PostgresMemoryStore, SQLiteMemoryStore
from orbiter.memory.model import Query

_TRICKY = (
    "aAkKsSiIßẞſKÅÄäΣσςıİǆǅǄﬁﬀŉǰΐև\u0345\u0130\u0307\u2126 %_\\\"'*()\n"
    "京\U0001f600\U00010400\U00010428\uffff\ufffe"
)
LETTERS = st.one_of(
    st.sampled_from(_TRICKY),
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
)
TEXTS = st.lists(st.text(LETTERS, max_size=12), min_size=1, max_size=8)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, postgres_dsn: str) -> AsyncIterator[Any]:
    is_embedded = request.param == "sqlite"
    if not is_embedded:  # the tables are small, but the trigrams are to be asked
        connection = await asyncpg.connect(postgres_dsn)
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET enable_seqscan = off")
        await connection.close()
    async with SQLiteMemoryStore() if is_embedded else PostgresMemoryStore(postgres_dsn) as made:
        yield made


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "read"])
async def test_a_text_query_finds_what_the_reference_finds(store: Any, indexed: bool) -> None:
    loop = asyncio.get_running_loop()

    @settings(
        max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(texts=TEXTS, data=st.data())
    def search(texts: list[str], data: st.DataObject) -> None:
        # Parts of the texts in another case are what finds the mistakes.
        parts = [text[start : start + 4] for text in texts for start in range(len(text))]
        needle = data.draw(st.one_of(st.text(LETTERS, max_size=5), st.sampled_from(["", *parts])))
        needle = data.draw(st.sampled_from([needle, needle.upper(), needle.casefold()]))
        asyncio.run_coroutine_threadsafe(_compare(store, texts, needle, indexed), loop).result(60)

    if indexed:
        with eager_indexes():
            await asyncio.to_thread(search)
    else:
        await asyncio.to_thread(search)


async def _compare(store: Any, texts: list[str], needle: str, indexed: bool) -> None:
    await store.clear()
    await store.purge()
    items = [HumanMemory(content=text) for text in texts]
    await store.add_many(items)
    if indexed:
        await store.optimize()
    asked = Query(needle, limit=100)

    found = await store.search(query=needle, limit=100)

    assert {item.id for item in found} == {item.id for item in items if asked.matches(item)}


async def test_a_text_that_changed_is_found_as_it_is_now() -> None:
    with eager_indexes():
        async with SQLiteMemoryStore() as store:
            items = [HumanMemory(id=f"i{n}", content=f"before {n}") for n in range(20)]
            await store.add_many(items)
            await store.optimize()
            for item in items[::2]:
                item.content = item.content.replace("before", "after")
            await store.add_many(items[::2])

            async def found(query: str) -> int:
                return len(await store.search(query=query, limit=100))

            assert (await found("before"), await found("after")) == (10, 10)
            await store.optimize()
            assert (await found("before"), await found("after")) == (10, 10)
            await store.delete("i0")
            await store.delete("i1")
            assert (await found("before"), await found("after")) == (9, 9)
            await store.purge()
            await store.add(HumanMemory(id="new", content="before and after"))
            assert (await found("before"), await found("after")) == (10, 10)
            assert await store.verify()
