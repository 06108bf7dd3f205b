"""Row-level security keeps users apart even where a query forgets to, and secrets never show."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.servers.databases import PostgresServer

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.errors import AccessError, NotInitializedError, StorageError

TABLES = ("memory_items", "memory_versions", "memory_folded")


class Guarded(NamedTuple):
    """A store whose role is held by the policies, with items of two users."""

    store: PostgresMemoryStore
    dsn: str
    root_dsn: str
    tables: tuple[str, ...]

    @property
    def ann(self) -> PostgresMemoryStore:
        return self.store.acting_for("ann")

    @property
    def bob(self) -> PostgresMemoryStore:
        return self.store.acting_for("bob")


async def run(dsn: str, *script: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for line in script:
            await connection.execute(line)
    finally:
        await connection.close()


async def rows(dsn: str, sql: str, *, acting_for: str | None = None) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            if acting_for is not None:
                await connection.execute(f"SET LOCAL orbiter.user_id = '{acting_for}'")
            return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


def item(user: str, name: str, text: str) -> MemoryItem:
    who = MemoryMetadata(user_id=user, session_id="s")
    return HumanMemory(id=name, content=text, metadata=who)


async def plain_role(root_dsn: str, name: str) -> str:
    """Make a role that owns its schema, and is nobody else; return its address."""
    database = urlsplit(root_dsn).path.removeprefix("/")
    await run(
        root_dsn,
        f"DROP ROLE IF EXISTS {name}",
        f"CREATE ROLE {name} LOGIN PASSWORD 'plain' NOBYPASSRLS",
        f"GRANT CONNECT ON DATABASE {database} TO {name}",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {name}",
    )
    parts = urlsplit(root_dsn)
    where = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{name}:plain@{where}").geturl()


@pytest.fixture
async def role_dsn(postgres_dsn: str) -> AsyncIterator[str]:
    name = "role_" + urlsplit(postgres_dsn).path.removeprefix("/test_")
    yield await plain_role(postgres_dsn, name)
    await run(postgres_dsn, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


@pytest.fixture(params=[None, 4], ids=["whole", "partitioned"])
async def guarded(
    postgres_dsn: str, role_dsn: str, request: pytest.FixtureRequest
) -> AsyncIterator[Guarded]:
    store = PostgresMemoryStore(role_dsn, max_size=2)
    await store.init(partitions=request.param, row_security=True)
    tables = (*TABLES, "memory_ids") if request.param else TABLES
    guarded = Guarded(store, role_dsn, postgres_dsn, tables)
    for user, bound in (("ann", guarded.ann), ("bob", guarded.bob)):
        for text in ("door code", "door code ÄÖ", "door code ẞ"):
            await bound.add(item(user, f"{user} 1", f"{text} of {user}"), by=user)
        await bound.add(item(user, f"{user} 2", f"gone from {user}"))
        await bound.delete(f"{user} 2", by=user)
    yield guarded
    await store.close()


async def everything(guarded: Guarded) -> list[list[str]]:
    """Return all rows of all tables, by the eyes of the superuser."""
    return [
        sorted(map(str, await rows(guarded.root_dsn, f"SELECT t.* FROM {table} AS t")))
        for table in guarded.tables
    ]


async def test_unfiltered_questions_are_answered_with_ones_own_items_only(
    guarded: Guarded,
) -> None:
    ann = guarded.ann

    assert [found.id for found in await ann.search(limit=100)] == ["ann 1"]
    assert [found.id for found in await ann.search(query="door", limit=100)] == ["ann 1"]
    assert [found.id for found in await ann.search(query="ß", limit=100)] == ["ann 1"]
    assert await ann.search(metadata=MemoryMetadata(user_id="bob")) == []
    assert await ann.get("ann 1") is not None
    assert await ann.get("bob 1") is None
    assert await ann.history("bob 1") == []
    assert [each.by for each in await ann.history("ann 1")] == ["ann"] * 3
    assert await ann.count() == 1
    assert await ann.count(include_deleted=True) == 2
    assert (await ann.stats()).deleted == 1
    assert (await ann.verify()).checked == 2


async def test_unfiltered_changes_reach_ones_own_items_only(guarded: Guarded) -> None:
    ann, bob = guarded.ann, guarded.bob

    assert await ann.delete("bob 1") is False
    assert await ann.restore("bob 2") is False
    assert await ann.clear() == 1
    assert await ann.clear(metadata=MemoryMetadata(user_id="bob")) == 0
    assert await ann.purge() == 2

    assert await ann.count(include_deleted=True) == 0
    assert [found.id for found in await bob.search()] == ["bob 1"]
    assert await bob.restore("bob 2") is True
    assert len(await bob.history("bob 1")) == 3
    for table in guarded.tables:
        assert await rows(guarded.root_dsn, f"SELECT id FROM {table} WHERE id LIKE 'ann%'") == []


async def test_writing_over_anothers_item_is_refused_and_changes_nothing(
    guarded: Guarded,
) -> None:
    before = await everything(guarded)
    ann = guarded.ann
    stolen = item("ann", "bob 1", "mine now ÄÖ")

    for write in (
        ann.add(stolen),
        ann.add(stolen, by="ann"),
        ann.add(stolen, expected_version=0),
        ann.add_many([item("ann", "ann 3", "fine"), stolen]),
        ann.add(item("bob", "bob 3", "in your name")),
        ann.add(item("bob", "ann 1", "a present")),
        ann.add(HumanMemory(id="nobody's", content="no user")),
    ):
        with pytest.raises(AccessError):
            await write

    assert await everything(guarded) == before


async def test_raw_statements_see_and_change_no_foreign_row(guarded: Guarded) -> None:
    before = await everything(guarded)

    for table in guarded.tables:
        ids = await rows(guarded.dsn, f"SELECT DISTINCT id FROM {table}", acting_for="ann")
        assert ids, table
        assert {name for (name,) in ids} <= {"ann 1", "ann 2"}, table
        for nobody in (None, "", "Ann", "ann ", "%", "carl"):
            assert await rows(guarded.dsn, f"SELECT 1 FROM {table}", acting_for=nobody) == []
        change = f"UPDATE {table} SET id = 'x' WHERE id LIKE 'bob%' RETURNING 1"
        assert await rows(guarded.dsn, change, acting_for="ann") == []
        remove = f"DELETE FROM {table} WHERE id LIKE 'bob%' RETURNING 1"
        assert await rows(guarded.dsn, remove, acting_for="ann") == []

    assert await everything(guarded) == before


async def test_partitions_cannot_be_read_past_the_policies(guarded: Guarded) -> None:
    parts = await rows(
        guarded.root_dsn,
        "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class ON oid = inhrelid"
        " WHERE relkind = 'r'",
    )

    for (part,) in parts:
        assert await rows(guarded.dsn, f"SELECT * FROM {part}", acting_for="ann") == [], part


async def test_a_store_bound_to_nobody_sees_nothing_and_writes_nothing(guarded: Guarded) -> None:
    store = guarded.store

    assert await store.search(limit=100) == []
    assert await store.get("ann 1") is None
    assert await store.history("ann 1") == []
    assert await store.count(include_deleted=True) == 0
    assert await store.clear() == 0
    with pytest.raises(AccessError):
        await store.add(item("ann", "new", "text"))
    with pytest.raises(ValueError, match="user"):
        store.acting_for("")


async def test_a_connection_forgets_whom_it_worked_for(guarded: Guarded) -> None:
    async def use(user: str) -> set[str]:
        found = await guarded.store.acting_for(user).search(limit=100)
        return {str(each.metadata.user_id) for each in found}

    users = ["ann", "bob", "carl", "ann", "bob"] * 20
    seen = await asyncio.gather(*(use(user) for user in users))

    assert seen == [set() if user == "carl" else {user} for user in users]
    assert guarded.store._pool is not None
    for _ in range(4):
        async with guarded.store._pool.acquire() as connection:
            left = await connection.fetchval("SELECT current_setting('orbiter.user_id', true)")
            assert not left
            assert await connection.fetch("SELECT * FROM memory_items") == []


async def test_a_cancelled_or_failed_call_leaves_no_principal_behind(guarded: Guarded) -> None:
    for _ in range(20):
        call = asyncio.create_task(guarded.ann.add(item("ann", "ann 1", "again"), by="ann"))
        await asyncio.sleep(0.001)
        call.cancel()
        await asyncio.wait([call])
        with pytest.raises(AccessError):
            await guarded.ann.add(item("ann", "bob 1", "mine"))

        assert await guarded.store.count(include_deleted=True) == 0


async def test_closing_a_bound_store_leaves_the_others_open(guarded: Guarded) -> None:
    async with guarded.ann as ann:
        assert await ann.count() == 1

    assert await guarded.bob.count() == 1
    assert await guarded.store.count() == 0


async def test_a_store_cannot_be_bound_where_nothing_would_hold_it(
    postgres_dsn: str, role_dsn: str
) -> None:
    with pytest.raises(NotInitializedError):
        PostgresMemoryStore(role_dsn).acting_for("ann")

    async with PostgresMemoryStore(role_dsn) as store:
        with pytest.raises(AccessError, match="row_security"):
            store.acting_for("ann")

    # Tables without policies do not get any by asking for them later.
    with pytest.raises(StorageError, match="row_security"):
        await PostgresMemoryStore(role_dsn).init(row_security=True)


async def test_a_role_that_no_policy_holds_cannot_be_bound(postgres_dsn: str) -> None:
    store = PostgresMemoryStore(postgres_dsn)
    await store.init(row_security=True)

    with pytest.raises(AccessError, match="superuser"):
        store.acting_for("ann")

    await store.close()


# Secrets

SECRET = "s3cr#t"
ODD_DSNS = [
    "postgresql://me:s3cr%23t@127.0.0.1:{port}/db",
    "postgresql://me:s3cr%23t@127.0.0.1:1/db",
    "postgresql://me@127.0.0.1:{port}/db?password=s3cr%23t&sslmode=disable",
    "postgresql://me@127.0.0.1:{port}/db?sslmode=disable&%70assword=s3cr%23t",
    "postgresql://127.0.0.1:{port}/db?user=me&PASSWORD=s3cr%23t",
    "postgresql://me:s3cr%23t@/db?host=/nowhere/at/all",
    "postgresql://me:s3cr%23t@%2Fnowhere%2Fat%2Fall/db",
    "postgresql://me:s3cr%23t@127.0.0.1:{port},127.0.0.1:1/db",
    "postgresql://me:s3cr#t@127.0.0.1:{port}/db",
    "postgresql://me:s3cr#t/@x@127.0.0.1:{port}/db",
    "postgresql://me:s3cr/s3cr#t@127.0.0.1:{port}/db",
    "postgresql://me:s3cr?s3cr#t@127.0.0.1:{port}/db",
    "postgresql://me:s3cr#t@[::1/db",
    "postgresql://me:s3cr#t@127.0.0.1:port/db",
    "postgresql://me@127.0.0.1:{port}/db?sslmode=verify-full&sslpassword=s3cr%23t",
    "postgres://me:s3cr%23t@127.0.0.1:{port}/db?sslmode=nonsense",
    "mysql://me:s3cr%23t@127.0.0.1:{port}/db",
    "host=127.0.0.1 user=me password=s3cr#t dbname=db",
    "me:s3cr#t@127.0.0.1/db",
]


@pytest.mark.parametrize("dsn", ODD_DSNS)
async def test_a_password_never_shows(
    postgres_server: PostgresServer, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = dsn.replace("{port}", f"{postgres_server.port}")
    shown = []

    with caplog.at_level(logging.DEBUG):
        asyncio.get_running_loop().set_debug(True)
        store = PostgresMemoryStore(dsn, retry_for=0, connect_timeout=1)
        shown += [repr(store), str(store), f"{store}"]
        with pytest.raises(NotInitializedError) as unopened:
            await store.count()
        with pytest.raises((StorageError, ConnectionError)) as caught:
            await store.init()
        shown += ["".join(traceback.format_exception(each.value)) for each in (unopened, caught)]
        shown += [caplog.text]

    for text in shown:
        # The lines of this file are in the tracebacks, the secret is not.
        assert "s3cr" not in text, text


async def test_a_working_password_never_shows(
    postgres_server: PostgresServer, postgres_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = urlsplit(postgres_dsn).password
    assert secret is not None
    parts = urlsplit(postgres_dsn)
    where = parts.netloc.rpartition("@")[2]
    query = f"user=postgres&password={secret}&sslmode=disable"
    other_dsn = parts._replace(netloc=where, query=query).geturl()
    shown = []

    with caplog.at_level(logging.DEBUG):
        asyncio.get_running_loop().set_debug(True)
        for dsn in (postgres_dsn, other_dsn):
            async with PostgresMemoryStore(dsn) as store:
                await store.add(item("ann", "1", "text"))
                with pytest.raises(StorageError) as caught:
                    await store.init(partitions=3)
                shown += [
                    repr(store),
                    repr(store.__class__),
                    "".join(traceback.format_exception(caught.value)),
                ]

    shown.append(caplog.text)
    assert all(secret not in text for text in shown)
    assert "127.0.0.1" in shown[0]
