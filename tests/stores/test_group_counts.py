"""Counts of users and values by the database: plans, locales, and what the log says of them."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pytest
from tests.servers.databases import PostgresServer

from orbiter.memory import AgentMemory
from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.sql.group_counts import _users
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.model.items import HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.model.value_counts import UserQuery, count_values, list_users
from orbiter.memory.testing.contracts.base_contract import HOSTILE_IDS

NAMES = [*(name for name in HOSTILE_IDS if name), "Zoe", "zoe", "Ångström", "apple", "Banana", "ä"]


def said(user: str, n: int = 0) -> HumanMemory:
    metadata = MemoryMetadata(user_id=user, session_id=f"s{n % 3}", extra={"tags": [user, "all"]})
    return HumanMemory(content="hi", metadata=metadata)


@pytest.fixture
def english(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """Return a server that knows an order in which `apple` comes before `Banana`."""
    compiler = shutil.which("localedef")
    if compiler is None or not Path("/usr/share/i18n/locales/en_US").exists():
        pytest.skip("this system cannot make locales")
    with TemporaryDirectory() as place:  # not below that of the test, which the server cannot read
        Path(place).chmod(0o755)
        command = [compiler, "-i", "en_US", "-f", "UTF-8", f"{place}/en_US.UTF-8"]
        subprocess.run(command, check=True, capture_output=True)
        monkeypatch.setenv("LOCPATH", place)
        with PostgresServer.start() as server:
            yield server


@pytest.mark.postgres
@pytest.mark.parametrize("partitions", [None, 2])
async def test_users_are_ordered_by_code_point_whatever_the_locale(
    english: PostgresServer, partitions: int | None
) -> None:
    connection = await asyncpg.connect(english.dsn())
    try:
        await connection.execute(
            "CREATE DATABASE english TEMPLATE template0 LOCALE 'en_US.UTF-8' ENCODING 'UTF8'"
        )
    except asyncpg.PostgresError as exc:  # another libc reads locales of another form
        await connection.close()
        pytest.skip(f"this Postgres cannot read the locale: {exc}")
    order = await connection.fetchval("SELECT 'apple' < 'Banana'")
    await connection.close()
    items: list[MemoryItem] = [said(name, n) for n, name in enumerate(NAMES * 2)]
    store = PostgresMemoryStore(english.dsn("english"))
    await store.init(partitions=partitions)
    own = await asyncpg.connect(english.dsn("english"))

    try:
        is_english = await own.fetchval("SELECT 'apple' < 'Banana'")
        await store.add_many(items)
        for start in ("", "a", "A", "alice", "Z", "al%"):
            for by in ("name", "recent", "items"):
                asked = UserQuery(start, by, None, 1000)
                assert await store.users(asked) == list_users(items, asked), (start, by)
        paged: list[Any] = []
        while page := await store.users(UserQuery(after=paged[-1] if paged else None, limit=9)):
            paged += page
        assert paged == list_users(items, UserQuery(limit=1000))
        assert await store.count_by("tags", limit=999) == count_values(items, "tags", 999)
    finally:
        await own.close()
        await store.close()

    assert (order, is_english) == (False, True)


async def test_a_page_of_users_is_read_from_indexes_in_sqlite(tmp_path: Path) -> None:
    store = SQLiteMemoryStore(tmp_path / "a.db")
    async with store:
        await store.add_many([said(f"u{n % 7}", n) for n in range(200)])

        statement = next(_users(store._operations.dialect, UserQuery()))
        plan = await store._file.read(
            lambda connection: connection.execute(
                f"EXPLAIN QUERY PLAN {statement.sql}", statement.args
            ).fetchall()
        )

    touched = [row[3] for row in plan if "memory_items" in row[3]]
    assert touched
    assert not [each for each in touched if each.startswith("SCAN") and "INDEX" not in each]
    walk = [each for each in touched if "json_extract(metadata" in each or "<expr>" in each]
    assert walk


@pytest.mark.parametrize("seed", range(3))
async def test_users_are_counted_right_while_the_index_lags(seed: int) -> None:
    rng = random.Random(seed)
    async with SQLiteMemoryStore() as store:
        there: dict[str, MemoryItem] = {}
        for n in range(60):
            item = said(rng.choice(["ann", "bob", "cid"]), n)
            if there and rng.random() < 0.4:
                gone = rng.choice(sorted(there))
                await store.delete(gone)
                del there[gone]
            await store.add(item)
            there[item.id] = item
            for by in ("name", "recent", "items"):
                asked = UserQuery(order=by)
                assert await store.users(asked) == list_users(there.values(), asked)


async def test_the_log_of_reads_says_that_users_and_values_were_counted() -> None:
    async with AgentMemory("memory://", embeddings=None, audit="all") as memory:
        await memory.scope("ann").remember("tea", tags=["food"])

        await memory.users()
        await memory.scope("ann").count_by("tags")
        entries = await memory.audit.entries(limit=2)

    assert [entry.call for entry in entries] == ["count_by", "users"]
