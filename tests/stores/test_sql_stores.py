"""What both SQL stores do alike beyond the kit: counting, and the mistakes people make."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each_row

from orbiter.memory import (
    HumanMemory,
    MemoryError,
    MemoryMetadata,
    PostgresMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.backends.sql import rows
from orbiter.memory.errors import StorageError

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, postgres_dsn: str) -> AsyncIterator[Any]:
    is_embedded = request.param == "sqlite"
    async with SQLiteMemoryStore() if is_embedded else PostgresMemoryStore(postgres_dsn) as made:
        yield made


async def test_counting_takes_a_filter(store: Any) -> None:
    await store.add_many([HumanMemory(id=f"i{n}", content="", metadata=ANN) for n in range(3)])
    await store.add(HumanMemory(content="", metadata=BOB))
    await store.delete("i0")

    assert await store.count(metadata=ANN) == 2
    assert await store.count(metadata=ANN, include_deleted=True) == 3
    assert await store.count(metadata=MemoryMetadata()) == 3


@pytest.mark.parametrize("wrong", [None, 5, HumanMemory(content="hi")], ids=["none", "5", "item"])
async def test_what_is_no_id_is_refused(store: Any, wrong: Any) -> None:
    for method in (store.get, store.delete, store.restore, store.history):
        with pytest.raises(ValueError, match="item.id") as caught:
            await method(wrong)
        assert isinstance(caught.value, MemoryError)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.search(memory_type="\ud800"), "memory_type"),
        (lambda s: s.search(memory_type="a\0b"), "memory_type"),
        (lambda s: s.search(deleted="no"), "`deleted` must be True or False, not 'no'"),
        (lambda s: s.purge(deleted_before="yesterday"), "deleted_before"),
        (lambda s: s.add(HumanMemory(content=""), by=5), "`by` must be a name, not 5"),
        (lambda s: s.add(HumanMemory(content=""), by=""), "`by` must be a name"),
        (lambda s: s.add_many(None), "list of memory items"),
        (lambda s: s.add_many(HumanMemory(content="")), "list of memory items"),
    ],
)
async def test_a_mistake_is_named(store: Any, call: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        await call(store)

    assert isinstance(caught.value, MemoryError)
    assert await store.count() == 0


async def test_a_forgotten_await_is_named(store: Any) -> None:
    forgotten = store.get("x")

    with pytest.raises(ValueError, match="`await` it"):
        await store.add(forgotten)

    forgotten.close()


@each_row(
    ("make", "told"),
    [
        (lambda: SQLiteMemoryStore("sqlite:///agent.db"), "db_path"),
        (lambda: SQLiteMemoryStore(None), "db_path"),  # type: ignore[arg-type]  # the mistake
        (lambda: SQLiteMemoryStore(readers="4"), "readers"),  # type: ignore[arg-type]
        (lambda: SQLiteMemoryStore(busy_timeout=-1), "busy_timeout.*-1"),
        (lambda: PostgresMemoryStore(None), "dsn"),  # type: ignore[arg-type]
        (lambda: PostgresMemoryStore(""), "dsn"),
        (lambda: PostgresMemoryStore(acquire_timeout="5"), "acquire_timeout"),  # type: ignore[arg-type]
        (lambda: PostgresMemoryStore(statement_cache_size=-1), "statement_cache_size"),
        (lambda: PostgresMemoryStore("postgresql://h/db?max_size=0"), "max_size"),
        (lambda: PostgresMemoryStore("postgresql://h/db?max_size=many"), "max_size"),
        (lambda: PostgresMemoryStore("postgresql://h/db?max_size=1001"), "not 1001.*pgbouncer"),
        (lambda: PostgresMemoryStore(max_size=10**9), "max_size.*not 1000000000.*pgbouncer"),
        (lambda: PostgresMemoryStore(max_size=2.5), "max_size.*not 2.5"),  # type: ignore[arg-type]
        (lambda: PostgresMemoryStore("postgresql://x/y", pool=object()), "not both"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_setting_that_means_nothing_is_named(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


async def test_a_file_removed_under_an_open_store_takes_no_more_writes(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path) as store:
        await store.add(HumanMemory(content="kept"))
        for each in tmp_path.iterdir():
            each.unlink()

        with pytest.raises(StorageError, match="removed or replaced"):
            await store.add(HumanMemory(content="lost"))
        assert not path.exists()

    async with SQLiteMemoryStore(path) as store:
        await store.add(HumanMemory(content="rebuild"))
        assert await store.count() == 1


async def test_a_home_folder_that_is_not_expanded_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="expanduser"):
        await SQLiteMemoryStore(tmp_path / "~" / "agent.db").init()


async def test_steady_writes_do_not_starve_the_text_index(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db", durability="normal") as store:
        await store.add_many([HumanMemory(content=f"text {n}") for n in range(600)])
        for _ in range(100):
            await store.add(HumanMemory(content="more"))
            await asyncio.sleep(0.001)

        assert (await store.stats()).unindexed < 600


async def test_verify_tells_texts_of_as_many_trigrams_apart(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path) as store:
        await store.add(HumanMemory(content="apples"))
        await store.optimize()
        connection = sqlite3.connect(path)
        connection.execute(
            "INSERT INTO memory_words (memory_words, rowid, text) VALUES ('delete', 1, 'apples')"
        )
        connection.execute("INSERT INTO memory_words (rowid, text) VALUES (1, 'bananq')")
        connection.commit()
        connection.close()

        assert not await store.verify()
        assert await store.verify(repair=True)


@pytest.mark.parametrize("field", ["metadata", "native"])
async def test_rows_with_many_values_are_read_beside_the_event_loop(
    store: Any, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {f"key{number}": number for number in range(5_000)}
    item = (
        HumanMemory(id="m", content="", metadata=MemoryMetadata(user_id="ann", extra=values))
        if field == "metadata"
        else HumanMemory(id="m", content="", native=values)
    )
    await store.add(item)
    read, readers = rows.decode, []

    def decode(row: Any) -> Any:
        readers.append(threading.current_thread())
        return read(row)

    monkeypatch.setattr(rows, "decode", decode)

    assert await store.get("m") == item
    assert await store.search(limit=1) == [item]
    assert len(readers) == 2
    assert threading.main_thread() not in readers
