"""Tables of ours and of others, plans, locales, pools: what a database may look like."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.servers.databases import PostgresServer
from tests.timing import HANG

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.backends.postgres import term_search
from orbiter.memory.backends.postgres.dialect import PartitionedDialect
from orbiter.memory.backends.sql.dialect import Statement
from orbiter.memory.errors import StorageError
from orbiter.memory.model.query import Query


async def run(dsn: str, *script: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        for line in script[:-1]:
            await connection.execute(line)
        return [tuple(row) for row in await connection.fetch(script[-1])]
    finally:
        await connection.close()


def item(name: str, text: str = "text", user: str = "ann") -> MemoryItem:
    return HumanMemory(id=name, content=text, metadata=MemoryMetadata(user_id=user))


# Tables that are there already


async def test_tables_keep_their_number_of_partitions(postgres_dsn: str) -> None:
    store = PostgresMemoryStore(postgres_dsn)
    await store.init(partitions=4)
    await store.close()

    for wrong in (3, 5):
        with pytest.raises(StorageError, match=f"has 4 partitions, not {wrong}"):
            await PostgresMemoryStore(postgres_dsn).init(partitions=wrong)
    async with PostgresMemoryStore(postgres_dsn) as store:
        await store.add(item("1"))
        with pytest.raises(StorageError, match="has 4 partitions, not 8"):
            await store.init(partitions=8)
        await store.init(partitions=4)


async def test_the_url_says_how_many_partitions_new_tables_have(postgres_dsn: str) -> None:
    url = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}partitions="
    async with AgentMemory(f"{url}4", embeddings=None) as memory:
        await memory.scope("ann").remember("likes tea")
    parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'memory_items'::regclass"

    assert await run(postgres_dsn, parts) == [(4,)]
    async with AgentMemory(f"{url}4", embeddings=None) as again:
        assert len(await again.scope("ann").list()) == 1
    async with PostgresMemoryStore(postgres_dsn) as without:
        assert without._layout.partitions == 4
    with pytest.raises(StorageError, match="has 4 partitions, not 8; .* leave `partitions` out"):
        await PostgresMemoryStore(f"{url}8").init()
    for wrong in ("0", "257", "many", ""):
        with pytest.raises(ValueError, match=rf"must be from 1 to 256, not .?{wrong}"):
            PostgresMemoryStore(url + wrong)


async def test_a_refused_opening_leaves_no_connection(postgres_dsn: str) -> None:
    async with PostgresMemoryStore(postgres_dsn):
        pass

    with pytest.raises(StorageError, match="has no partitions"):
        await PostgresMemoryStore(postgres_dsn).init(partitions=2)

    others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
    for _ in range(50):
        left = await run(postgres_dsn, f"{others} AND pid <> pg_backend_pid()")
        if not left:
            break
        await asyncio.sleep(0.02)
    assert left == []


async def test_tables_newer_than_we_know_are_refused_and_untouched(postgres_dsn: str) -> None:
    async with PostgresMemoryStore(postgres_dsn) as store:
        await store.add(item("1"))
    await run(postgres_dsn, "INSERT INTO memory_schema VALUES (99)", "SELECT 1")

    with pytest.raises(StorageError, match="schema 99.*pip install -U"):
        await PostgresMemoryStore(postgres_dsn).init()

    assert await run(postgres_dsn, "SELECT id FROM memory_items") == [("1",)]


@pytest.mark.parametrize("partitions", [None, 2])
@pytest.mark.parametrize("table", ["memory_items", "memory_versions", "memory_folded"])
async def test_another_programs_table_is_refused_and_untouched(
    postgres_dsn: str, table: str, partitions: int | None
) -> None:
    await run(
        postgres_dsn,
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, price NUMERIC)",
        f"INSERT INTO {table} VALUES (1, 2.5)",
        "SELECT 1",
    )
    relations = "SELECT oid, relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    before = await run(postgres_dsn, relations)

    with pytest.raises(StorageError, match=table):
        await PostgresMemoryStore(postgres_dsn).init(partitions=partitions)

    assert await run(postgres_dsn, relations) == before
    assert [float(price) for _, price in await run(postgres_dsn, f"SELECT * FROM {table}")] == [2.5]


@pytest.mark.parametrize(
    "table", ["memory_schema (version INTEGER)", "memory_schema (name TEXT, at TIMESTAMPTZ)"]
)
async def test_another_programs_schema_table_is_refused(postgres_dsn: str, table: str) -> None:
    await run(postgres_dsn, f"CREATE TABLE {table}", "SELECT 1")

    with pytest.raises(StorageError):
        await PostgresMemoryStore(postgres_dsn).init()


# Pools of the caller's


async def test_a_given_pool_is_used_and_not_closed(postgres_dsn: str) -> None:
    pool = await asyncpg.create_pool(postgres_dsn, min_size=1, max_size=3)
    store = PostgresMemoryStore(pool=pool)

    async with store:
        await asyncio.gather(*(store.add(item(f"{n}")) for n in range(30)))
        users = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        assert await pool.fetchval(users) <= 3

    assert await pool.fetchval("SELECT count(*) FROM memory_items") == 30
    await store.init()
    assert await store.count() == 30
    await store.close()
    await pool.close()


async def test_a_given_pool_that_is_closed_or_not_open_is_refused_at_once(
    postgres_dsn: str,
) -> None:
    closed = await asyncpg.create_pool(postgres_dsn, min_size=0)
    await closed.close()
    unopened = asyncpg.create_pool(postgres_dsn, min_size=0)

    for pool in (closed, unopened):
        with pytest.raises(StorageError, match="pool is"):
            await asyncio.wait_for(PostgresMemoryStore(pool=pool).init(), HANG)


@pytest.mark.parametrize("is_given", [True, False])
async def test_nothing_of_ours_stays_in_a_session(postgres_dsn: str, is_given: bool) -> None:
    pool = await asyncpg.create_pool(
        postgres_dsn, min_size=1, max_size=1, statement_cache_size=0, reset=_keep
    )
    store = (
        PostgresMemoryStore(pool=pool)
        if is_given
        else PostgresMemoryStore(postgres_dsn, max_size=1, statement_cache_size=0)
    )
    await store.init(row_security=False)
    await _use_everything(store)

    async with (pool if is_given else store._pool).acquire() as connection:  # type: ignore[union-attr]
        for nothing in (
            "SELECT name, statement FROM pg_prepared_statements",
            # The driver itself turns `jit` off and on again when it looks up a type.
            "SELECT name FROM pg_settings WHERE source = 'session' AND setting <> reset_val",
            "SELECT name FROM pg_cursors WHERE name <> ''",
            "SELECT * FROM pg_locks WHERE locktype = 'advisory'",
            "SELECT relname FROM pg_class WHERE relpersistence = 't'",
        ):
            assert await connection.fetch(nothing) == [], nothing

    await store.close()
    await pool.close()


async def _keep(_: object) -> None:
    """Take the place of the pool's own cleaning up, which would hide what we leave."""


async def _use_everything(store: PostgresMemoryStore) -> None:
    await store.add(item("1", "Äpfel"))
    await store.add(item("1", "Birnen"), by="bob", expected_version=1)
    await store.add_many([item(f"{n}") for n in range(600)], by="bob")
    await store.search(query="text", limit=1000)
    await store.search(query="äpfel", before="3")
    await store.history("1")
    await store.delete("1", by="bob")
    await store.restore("1")
    await store.clear(metadata=MemoryMetadata(user_id="ann"))
    await store.purge()
    await store.stats()
    await store.verify(repair=True)
    await store.optimize()


# Extensions and locales

HAY = [
    "In Istanbul", "İstanbul", "istanbul", "ıstanbul", "ISTANBUL", "STRASSE", "straße", "ẞ",
    "ÄPFEL", "ǅ", "Σίσυφος", "ΣΊΣΥΦΟΣ", "100%", "1000", "a_b", "aXb", "back\\slash", "ﬁne", "FINE",
]  # fmt: skip
NEEDLES = [
    "I", "i", "ı", "İ", "istanbul", "ISTANBUL", "STRASSE", "straße", "ß", "äpfel", "ǆ", "σίσυφοσ",
    "%", "_", "a_b", "\\", "fine", "n i",
]  # fmt: skip


async def _expect_exact_search(store: PostgresMemoryStore) -> None:
    # More rows than are read one by one, so that whatever index there is is asked, too.
    filling = [item(f"f{n}", f"nothing of note {n}") for n in range(600)]
    await store.add_many([item(f"h{n}", text) for n, text in enumerate(HAY)])
    await store.add_many(filling)

    for needle in NEEDLES:
        found = {each.content for each in await store.search(query=needle, limit=1000)}
        texts = [*HAY, *(each.content for each in filling)]
        assert found == {text for text in texts if needle.casefold() in text.casefold()}, needle


@pytest.mark.parametrize("partitions", [None, 3])
async def test_search_is_exact_though_the_extension_was_dropped(
    postgres_dsn: str, partitions: int | None
) -> None:
    store = PostgresMemoryStore(postgres_dsn)
    await store.init(partitions=partitions)
    await run(postgres_dsn, "DROP EXTENSION pg_trgm CASCADE", "SELECT 1")

    await _expect_exact_search(store)

    assert (await store.verify()).problems == ()
    await store.close()


async def test_a_role_that_may_not_make_extensions_gets_tables_and_exact_search(
    postgres_dsn: str,
) -> None:
    name = "role_" + urlsplit(postgres_dsn).path.removeprefix("/test_")
    await run(
        postgres_dsn,
        f"CREATE ROLE {name} LOGIN PASSWORD 'plain'",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {name}",
        "SELECT 1",
    )
    parts = urlsplit(postgres_dsn)
    netloc = f"{name}:plain@{parts.netloc.rpartition('@')[2]}"

    async with PostgresMemoryStore(parts._replace(netloc=netloc).geturl()) as store:
        extensions = await run(postgres_dsn, "SELECT extname FROM pg_extension")
        await _expect_exact_search(store)

    await run(postgres_dsn, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}", "SELECT 1")
    assert ("pg_trgm",) not in extensions


@pytest.mark.parametrize(
    "locale",
    [
        "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8' LOCALE 'C'",
        "LOCALE 'C.UTF-8'",
    ],
)
async def test_search_is_exact_in_every_locale(
    postgres_server: PostgresServer, locale: str
) -> None:
    root = postgres_server.dsn()
    connection = await asyncpg.connect(root)
    await connection.execute(f"CREATE DATABASE strange TEMPLATE template0 {locale}")

    try:
        async with PostgresMemoryStore(postgres_server.dsn("strange")) as store:
            await _expect_exact_search(store)
    finally:
        await connection.execute("DROP DATABASE strange WITH (FORCE)")
        await connection.close()


# Plans


class Plans:
    """Explains the statements of operations as they are run, with the values they are run with."""

    def __init__(self, store: PostgresMemoryStore, connection: "asyncpg.Connection[Any]") -> None:
        self._connection = connection
        self.operations = store._operations

    async def of(self, steps: Any) -> str:
        lines: list[str] = []
        try:
            statement: Statement = next(steps)
            while True:
                explained = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement.sql}"
                async with self._connection.transaction():
                    plan = await self._connection.fetch(explained, *statement.args)
                lines += [row[0] for row in plan]
                rows = await self._connection.fetch(statement.sql, *statement.args)
                statement = steps.send(rows)
        except StopIteration:
            return "\n".join(lines)


def partitions_of(plan: str, table: str = "memory_items") -> set[str]:
    """Return the partitions that a plan looked into."""
    ran = [line for line in plan.splitlines() if "never executed" not in line]
    return set(re.findall(rf"Scan.* on {table}_p(\d+)", "\n".join(ran)))


@pytest.fixture(scope="module", params=[None, 8], ids=["whole", "partitioned"])
def template(
    postgres_server: PostgresServer, request: pytest.FixtureRequest
) -> Iterator[tuple[str, bool]]:
    """Fill the tables once; each test has a copy."""
    dsn = postgres_server.create_database()
    asyncio.run(_fill(dsn, request.param))
    yield dsn, bool(request.param)
    postgres_server.drop_database(dsn)


@pytest.fixture
async def filled(
    postgres_server: PostgresServer, template: tuple[str, bool]
) -> AsyncIterator[tuple[PostgresMemoryStore, Plans, bool]]:
    dsn = await asyncio.to_thread(postgres_server.create_database, template=template[0])
    connection = await asyncpg.connect(dsn)
    async with PostgresMemoryStore(dsn) as store:
        yield store, Plans(store, connection), template[1]
    await connection.close()
    await asyncio.to_thread(postgres_server.drop_database, dsn)


async def _fill(dsn: str, partitions: int | None) -> None:
    dice = random.Random(7)
    store = PostgresMemoryStore(dsn)
    await store.init(partitions=partitions)
    await store.add_many(
        [
            HumanMemory(
                id=f"i{n}",
                content=f"text number {n} {dice.random()}",
                metadata=MemoryMetadata(
                    user_id=f"u{n % 50}", session_id=f"s{n % 500}", task_id=f"t{n % 1000}"
                ),
            )
            for n in range(6000)
        ]
    )
    await store.optimize()
    await store.close()


QUESTIONS = {
    "user": Query(metadata=MemoryMetadata(user_id="u7")),
    "user and session": Query(metadata=MemoryMetadata(user_id="u7", session_id="s7")),
    "user and text": Query("number 57", metadata=MemoryMetadata(user_id="u7")),
    "user and rare text": Query("no such text", metadata=MemoryMetadata(user_id="u7")),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_users_search_reads_an_index_of_one_partition(
    filled: tuple[PostgresMemoryStore, Plans, bool], question: str
) -> None:
    _, plans, is_partitioned = filled

    plan = await plans.of(plans.operations.search(QUESTIONS[question], None, None))

    assert "Seq Scan on memory_items" not in plan, plan
    assert "Index" in plan, plan
    if is_partitioned:
        assert len(partitions_of(plan)) == 1, plan


async def test_one_item_is_found_by_its_key_in_one_partition(
    filled: tuple[PostgresMemoryStore, Plans, bool],
) -> None:
    _, plans, is_partitioned = filled
    make = plans.operations

    for steps in (
        make.get("i7"),
        make.history("i7"),
        make.delete("i7", None),
        make.restore("i7", None),
        make.get("no such item"),
    ):
        plan = await plans.of(steps)

        assert "Seq Scan on memory_i" not in plan, plan
        if is_partitioned:
            assert len(partitions_of(plan)) <= 1, plan
            assert len(partitions_of(plan, "memory_ids")) <= 1, plan


@pytest.mark.parametrize("template", [8], indirect=True, ids=["partitioned"])
async def test_who_names_an_item_by_its_id_has_no_other_partition_planned(
    filled: tuple[PostgresMemoryStore, Plans, bool],
) -> None:
    store, plans, _ = filled
    for _ in range(7):  # from the sixth time on the server may plan for every value
        assert (await store.get("i7")) is not None

    plan = await plans.of(plans.operations.get("i7"))
    assert await store.delete("i7")
    gone = await plans.of(plans.operations.get("i7"))
    history = await plans.of(plans.operations.history("i7"))
    restored = await plans.of(plans.operations.restore("i7", None))
    deleted = await plans.of(plans.operations.delete("i7", None))

    assert len(set(re.findall(r"memory_versions_p\d+", history))) == 1, history
    for each in (plan, gone, history, restored, deleted):
        assert len(set(re.findall(r"memory_items_p\d+", each))) == 1, each
        assert len(set(re.findall(r"memory_ids_p\d+", each))) == 1, each
    assert await store.get("i7") is None


@pytest.mark.parametrize("words", [["57"], ["57", "number"], ["number"]])
async def test_recall_by_words_of_a_user_has_no_other_partition_planned(
    filled: tuple[PostgresMemoryStore, Plans, bool],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, plans, is_partitioned = filled
    # As if `number`, which stands in every text, were too common to be looked up.
    monkeypatch.setattr(term_search, "COMMON", 10)
    await store.catch_up()
    about = Query(metadata=MemoryMetadata(user_id="u7"), limit=20)

    plan = await plans.of(term_search.match(plans.operations, words, about, "u7", held=False))

    assert "memory_passages" in plan, plan
    for table in ("memory_items", "memory_passages") if is_partitioned else ():
        assert len(set(re.findall(rf"{table}_p\d+", plan))) == 1, plan


async def test_an_item_that_moves_to_another_user_while_it_is_asked_for_is_found() -> None:
    steps = PartitionedDialect().get("i7")

    assert "memory_ids" in next(steps).sql
    first = steps.send([("ann",)])
    assert "memory_ids" in steps.send([]).sql
    second = steps.send([("bob",)])
    with pytest.raises(StopIteration) as ended:
        steps.send([("the row",)])

    assert [list(first.args), list(second.args)] == [["ann", "i7"], ["bob", "i7"]]
    assert ended.value.value == [("the row",)]


async def test_forgetting_a_user_reads_an_index_of_one_partition(
    filled: tuple[PostgresMemoryStore, Plans, bool],
) -> None:
    _, plans, is_partitioned = filled

    plan = await plans.of(plans.operations.clear(MemoryMetadata(user_id="u7"), None))

    assert "Seq Scan on memory_items" not in plan, plan
    if is_partitioned:
        assert len(partitions_of(plan)) == 1, plan


# Writing to partitions


@pytest.fixture
async def parts(postgres_dsn: str) -> AsyncIterator[PostgresMemoryStore]:
    store = PostgresMemoryStore(postgres_dsn)
    await store.init(partitions=4)
    try:
        yield store
    finally:
        await store.close()


async def test_what_tasks_write_to_partitions_at_once_is_one_statement(
    parts: PostgresMemoryStore, postgres_dsn: str
) -> None:
    items = [item(f"id-{n}", user=f"user-{n % 5}") for n in range(20)]
    await asyncio.gather(*map(parts.add, items))

    written = await run(
        postgres_dsn, "SELECT count(*), count(DISTINCT xmin::text) FROM memory_items"
    )
    assert written == [(20, 1)]
    # Transactions of several statements leave a token, so that they are not repeated.
    assert await run(postgres_dsn, "SELECT count(*) FROM memory_commits") == [(0,)]
    order = await run(postgres_dsn, "SELECT id FROM memory_items ORDER BY seq")
    assert [name for (name,) in order] == [each.id for each in items]


async def test_one_that_changes_hands_moves_while_others_are_written_once(
    parts: PostgresMemoryStore,
) -> None:
    await asyncio.gather(*(parts.add(item(f"id-{n}")) for n in range(3)))
    users = ("ann", "bob", "ann")
    given = [item(f"id-{n}", "new", user) for n, user in enumerate(users)]
    await asyncio.gather(*map(parts.add, [*given, item("id-3", "new")]))

    found = [await parts.get(f"id-{n}") for n in range(4)]
    told = [each and (each.metadata.user_id, each.content, each.version) for each in found]
    assert told == [("ann", "new", 2), ("bob", "new", 2), ("ann", "new", 2), ("ann", "new", 1)]


# Citus: a table is spread by one column, which every unique key of it must have

SPREAD = {
    **dict.fromkeys(
        ("memory_items", "memory_passages", "memory_terms", "memory_vectors"), "user_key"
    ),
    **dict.fromkeys(("memory_details", "memory_pending", "memory_unembedded"), "user_key"),
    **dict.fromkeys(("memory_ids", "memory_versions", "memory_folded"), "id"),
}
"""The tables that grow with the memories, and the column that each is spread by."""

_KEYS = """
SELECT c.relname::text, (SELECT array_agg(a.attname::text) FROM pg_attribute AS a
    WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey))
FROM pg_class AS c JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisunique
WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
"""
_WITH_USERS = """
SELECT c.relname::text FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
    AND NOT c.relispartition AND a.attname = 'user_key'
"""


async def test_every_unique_key_has_the_column_by_which_citus_spreads_its_table(
    postgres_dsn: str,
) -> None:
    store = PostgresMemoryStore(postgres_dsn)
    await store.init(partitions=2)
    await store.close()

    keys = await run(postgres_dsn, _KEYS)
    with_users = {name for (name,) in await run(postgres_dsn, _WITH_USERS)}
    foreign = await run(postgres_dsn, "SELECT conname::text FROM pg_constraint WHERE contype = 'f'")

    assert SPREAD.keys() <= {table for table, _ in keys}
    assert [each for each in keys if SPREAD.get(each[0], each[1][0]) not in each[1]] == []
    assert with_users - {"memory_ids"} == {name for name, by in SPREAD.items() if by == "user_key"}
    assert foreign == []  # one between tables that are spread by different columns is refused
