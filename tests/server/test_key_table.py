"""Keys in a table of Postgres: shared by all servers, and closed when it cannot be asked."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import httpx
import pytest
from tests.server.conftest import Client, Served
from tests.servers.databases import PostgresServer, postgres_server
from tests.stores.conftest import postgres_dsn
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, KeyTable, key_table
from orbiter.memory.errors import (
    AccessError,
    ItemNotFoundError,
    MemoryConnectionError,
    MemoryError,
    QueryError,
    StorageError,
)
from orbiter.memory.model.items import MemoryMetadata

__all__ = ["postgres_dsn", "postgres_server"]

ANN = MemoryMetadata(user_id="ann")


@pytest.fixture
async def table(postgres_dsn: str) -> AsyncIterator[KeyTable]:
    made = KeyTable(postgres_dsn)
    yield made
    await made.close()


@pytest.fixture
async def other(postgres_dsn: str) -> AsyncIterator[KeyTable]:
    """Return the same table, as another process sees it."""
    made = KeyTable(postgres_dsn)
    yield made
    await made.close()


async def execute(dsn: str, *statements: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetch(statements[-1])
    finally:
        await connection.close()


async def test_keys_of_one_schema_open_no_memories_of_another(
    postgres_dsn: str, table: KeyTable
) -> None:
    """Both schemas are in the search path, as extensions are often in `public`."""
    _, token = await table.create(scope=MemoryMetadata(), role="admin")
    await execute(postgres_dsn, "CREATE SCHEMA tenant", "SELECT 1")
    url = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}search_path=tenant,public"
    async with AgentMemory(url):
        pass  # its tables are in `tenant`
    tenant = KeyTable(url)
    try:
        with pytest.raises(StorageError, match=r"public\.orbiter_keys.*keys create"):
            await tenant.identify(token)
        with pytest.raises(StorageError):
            await tenant.list()
        _, own = await tenant.create(scope=MemoryMetadata(), role="admin")
        needs_key, nobody = await tenant.identify(token)
        _, somebody = await tenant.identify(own)
        _, elsewhere = await table.identify(own)
        _, there = await table.identify(token)
    finally:
        await tenant.close()

    assert needs_key
    assert (nobody, elsewhere) == (None, None)
    assert somebody is not None
    assert there is not None


async def test_a_key_is_who_it_was_made_for(table: KeyTable, other: KeyTable) -> None:
    scope = MemoryMetadata(user_id="ann", agent_id="a", session_id="s", task_id="t")
    key, token = await table.create(scope=scope, role="read", name="Ann's laptop")

    needs_key, found = await other.identify(token)

    assert needs_key
    assert found is not None
    assert (found.role, found.name, found.key_id) == ("read", "Ann's laptop", key.id)
    assert found.scope == scope
    assert [each.id for each in await other.list()] == [key.id]
    assert await other.current(key.id) == found


async def test_what_is_kept_of_a_revoked_key_can_be_removed(
    table: KeyTable, other: KeyTable
) -> None:
    key, _ = await table.create(scope=ANN, role="write")
    last, _ = await table.create(scope=ANN, role="write")
    with pytest.raises(QueryError, match="revoke it first"):
        await other.remove(key.id)
    for each in (key, last):
        await table.revoke(each.id)

    ended = await asyncio.gather(
        table.remove(key.id), other.remove(last.id), return_exceptions=True
    )

    assert sum(isinstance(each, QueryError) for each in ended) == 1, "one of them is the last"
    assert len(await table.list()) == 1
    with pytest.raises(ItemNotFoundError):
        await table.remove("00000000")


async def test_without_a_key_nothing_is_made_and_none_is_needed(
    table: KeyTable, postgres_dsn: str
) -> None:
    assert await table.identify("") == (False, None)
    assert await table.identify(f"om_00000000_{'a' * 43}") == (False, None)
    assert await table.list() == []
    assert await table.current("00000000") is None
    with pytest.raises(ItemNotFoundError):
        await table.revoke("00000000")
    with pytest.raises(ItemNotFoundError):
        await table.rotate("00000000", overlap=timedelta())
    (row,) = await execute(postgres_dsn, "SELECT to_regclass('orbiter_keys') IS NULL AS missing")
    assert row["missing"]


async def test_the_table_holds_no_key_and_nobody_else_may_read_it(
    table: KeyTable, postgres_dsn: str
) -> None:
    token = (await table.create(scope=ANN, role="write"))[1]

    rows = await execute(postgres_dsn, "SELECT t::text AS row FROM orbiter_keys AS t")
    (rights,) = await execute(
        postgres_dsn,
        "SELECT has_table_privilege('pg_read_all_stats', 'orbiter_keys', 'SELECT') AS may",
    )

    assert token[12:] not in str(rows)
    assert token[12:].encode().hex() not in str(rows)
    assert not rights["may"]


async def test_the_page_makes_the_same_table(table: KeyTable, postgres_dsn: str) -> None:
    page = (Path(__file__).parents[2] / "docs/operate/keys.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```sql\n(CREATE TABLE.*?)```", page, re.DOTALL)

    assert script.strip() == key_table._CREATE.replace(" IF NOT EXISTS", "").strip()
    await execute(postgres_dsn, script, "SELECT 1")
    assert (await table.create(scope=ANN, role="write"))[1]


async def test_what_is_no_key_opens_nothing(table: KeyTable) -> None:
    key, token = await table.create(scope=ANN, role="write")
    other = (await table.create(scope=ANN, role="write"))[1]
    head, secret = token[:12], token[12:]
    wrong = secret[:-1] + ("A" if secret[-1] != "A" else "B")

    tried = [
        "", " ", "om_", token[:-1], token + "A", f"{token} ", f" {token}", token.upper(),
        head + wrong, f"om_00000000_{secret}", head + other[12:], secret, key.id, "é" * 55,
        "\udcff" * 55, "\0" * 55, f"{token}\n",
    ]  # fmt: skip

    assert [each for each in tried if await table.identify(each) != (True, None)] == []
    assert (await table.identify(token))[1] is not None


async def test_a_revoked_or_expired_key_opens_nothing_in_any_process(
    table: KeyTable, other: KeyTable, postgres_dsn: str
) -> None:
    one, first = await table.create(scope=ANN, role="write")
    soon = datetime.now(UTC) + timedelta(hours=1)
    two, second = await table.create(scope=ANN, role="write", expires=soon)
    principals = [(await other.identify(token))[1] for token in (first, second)]

    revoked = await table.revoke(one.id)
    again = await table.revoke(one.id)
    await execute(
        postgres_dsn,
        "UPDATE orbiter_keys SET expires_at = clock_timestamp() - interval '1 s' "
        f"WHERE id = '{two.id}'",
    )

    assert revoked.revoked_at == again.revoked_at
    for principal, token in zip(principals, (first, second), strict=True):
        assert await other.identify(token) == (True, None)
        assert principal is not None
        assert await other.current(str(principal.key_id)) is None


async def test_a_server_whose_keys_were_removed_stays_closed(
    table: KeyTable, postgres_dsn: str
) -> None:
    token = (await table.create(scope=ANN, role="write"))[1]
    assert await table.has_keys()

    await execute(postgres_dsn, "DELETE FROM orbiter_keys")
    assert await table.identify(token) == (True, None)
    await execute(postgres_dsn, "DROP TABLE orbiter_keys")

    with pytest.raises(MemoryError):
        await table.identify(token)
    assert await table.has_keys()


async def test_without_the_database_nobody_comes_in_and_then_again_everybody() -> None:
    with PostgresServer.start() as server:
        table = KeyTable(await asyncio.to_thread(server.create_database))
        token = (await table.create(scope=ANN, role="write"))[1]
        principal = (await table.identify(token))[1]
        assert principal is not None

        await asyncio.to_thread(server.stop, mode="immediate")
        with pytest.raises((MemoryConnectionError, StorageError)):
            await table.identify(token)
        with pytest.raises((MemoryConnectionError, StorageError)):
            await table.current(str(principal.key_id))

        await asyncio.to_thread(server.start_again)
        assert (await table.identify(token))[1] == principal
        await table.close()


async def test_processes_that_make_the_table_at_once_lose_no_key(postgres_dsn: str) -> None:
    tables = [KeyTable(postgres_dsn) for _ in range(8)]

    made = await asyncio.gather(*(each.create(scope=ANN, role="read") for each in tables))

    assert {key.id for key in await tables[0].list()} == {key.id for key, _ in made}
    for each in tables:
        await each.close()


async def test_a_role_that_may_only_read_checks_keys_and_makes_none(
    table: KeyTable, postgres_dsn: str
) -> None:
    key, token = await table.create(scope=ANN, role="write")
    name = f"reader_{key.id}"
    await execute(
        postgres_dsn,
        f"CREATE ROLE {name} LOGIN PASSWORD 'secret'",
        f"GRANT SELECT ON orbiter_keys TO {name}",
        "SELECT 1",
    )
    reader = KeyTable(re.sub(r"//[^@]*@", f"//{name}:secret@", postgres_dsn))
    try:
        assert (await reader.identify(token))[1] is not None
        for change in (reader.create(scope=ANN, role="read"), reader.revoke(key.id)):
            with pytest.raises(AccessError, match="GRANT SELECT, INSERT, UPDATE") as refused:
                await change
            assert "secret" not in str(refused.value)
        await execute(postgres_dsn, f"REVOKE ALL ON orbiter_keys FROM {name}", "SELECT 1")
        with pytest.raises(AccessError):
            await reader.identify(token)
    finally:
        await reader.close()
        await execute(postgres_dsn, f"DROP OWNED BY {name}", f"DROP ROLE {name}", "SELECT 1")


async def test_a_rotated_key_works_until_its_overlap_is_over(
    table: KeyTable, other: KeyTable, postgres_dsn: str
) -> None:
    first, old_token = await table.create(scope=ANN, role="write", name="agent")

    new, token, old = await table.rotate("agent", overlap=timedelta(hours=24))

    assert (new.name, new.role, new.scope) == (first.name, first.role, first.scope)
    assert (old.id, old.replaced_by) == (first.id, new.id)
    assert old.expires_at is not None
    assert timedelta(hours=23) < old.expires_at - datetime.now(UTC) < timedelta(hours=25)
    for each in (old_token, token):
        assert (await other.identify(each))[1] is not None
    assert [key.replaced_by for key in await other.list()] == [new.id, None]
    with pytest.raises(QueryError, match=f"replaced by `{new.id}`"):
        await table.rotate(first.id, overlap=timedelta())
    last, _, ended = await table.rotate("agent", overlap=timedelta())
    assert ended.id == new.id
    assert (await other.identify(token))[1] is None
    assert last.id in {key.id for key in await other.list()}


async def test_two_who_rotate_one_key_at_once_make_one_key(postgres_dsn: str) -> None:
    tables = [KeyTable(postgres_dsn) for _ in range(4)]
    first, _ = await tables[0].create(scope=ANN, role="write")

    made = await asyncio.gather(
        *(each.rotate(first.id, overlap=timedelta(hours=1)) for each in tables),
        return_exceptions=True,
    )

    assert sum(isinstance(each, tuple) for each in made) == 1
    assert sum(isinstance(each, QueryError) for each in made) == 3
    assert len(await tables[0].list()) == 2
    for each in tables:
        await each.close()


async def test_a_revoked_key_fails_on_every_server_with_the_next_request(
    served: Served, client: Client, postgres_dsn: str
) -> None:
    tables = [KeyTable(postgres_dsn) for _ in range(3)]
    key, token = await tables[0].create(scope=ANN, role="read")
    servers = [client(await served(keys=each), token) for each in tables]
    for http in servers * 2:
        assert (await http.get("/v1/openapi.json")).status_code == 200

    operator = KeyTable(postgres_dsn)
    await operator.revoke(key.id)

    refused = [await http.get("/v1/openapi.json") for http in servers]
    assert [answer.status_code for answer in refused] == [401] * 3
    unknown = await client(str(servers[0].base_url), f"om_00000000_{'a' * 43}").get("/v1/stats")
    assert unknown.json()["detail"] == refused[0].json()["detail"]
    await operator.close()


async def test_a_server_whose_database_is_gone_answers_503_and_names_no_secret(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with PostgresServer.start() as server:
        dsn = await asyncio.to_thread(server.create_database)
        table = KeyTable(dsn)
        token = (await table.create(scope=ANN, role="write"))[1]
        http = client(await served(keys=table), token)
        assert (await http.get("/v1/openapi.json")).status_code == 200

        await asyncio.to_thread(server.stop, mode="immediate")
        answers = [await http.get("/v1/openapi.json"), await http.get("/v1/memories")]

    assert [each.status_code for each in answers] == [503, 503]
    assert "all requests are refused: " in caplog.text
    assert "Nothing of this was written" in caplog.text
    assert "may or may not" not in caplog.text
    password = dsn.partition("@")[0].rpartition(":")[2]
    for text in (answers[0].text, caplog.text):
        assert password not in text
        assert token[12:] not in text


async def test_an_event_stream_ends_when_its_key_is_revoked(
    served: Served, client: Client, postgres_dsn: str
) -> None:
    table = KeyTable(postgres_dsn)
    key, token = await table.create(scope=ANN, role="read")
    http = client(await served(keys=table), token, timeout=httpx.Timeout(HANG))

    async with http.stream("GET", "/v1/events") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        operator = KeyTable(postgres_dsn)
        await operator.revoke(key.id)
        await operator.close()
        async with asyncio.timeout(HANG):
            async for _ in lines:
                pass


async def test_keys_of_a_file_are_moved_once_and_stay_as_they_were(
    table: KeyTable, other: KeyTable, tmp_path: Path
) -> None:
    file = KeyFile(tmp_path / "postgresql-1.keys.json")
    key, token = file.create(scope=ANN, role="write", name="laptop")
    gone, revoked = file.create(scope=ANN, role="read")
    file.revoke(gone.id)
    before = file.path.read_text()

    moved = await asyncio.gather(*(each.adopt(KeyFile(file.path)) for each in (table, other)))

    kept = tmp_path / "postgresql-1.keys.json.moved"
    assert sorted(moved, key=lambda each: each[0]) == [(0, None), (2, kept)]
    assert kept.read_text() == before
    assert kept.stat().st_mode & 0o777 == 0o600
    found = (await table.identify(token))[1]
    assert found is not None
    assert (found.key_id, found.name, found.role) == (key.id, "laptop", "write")
    assert (await table.identify(revoked))[1] is None
    assert await table.adopt(KeyFile(file.path)) == (0, None)


async def test_a_backup_that_is_put_back_revives_no_key(table: KeyTable, tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "a.keys.json")
    key, token = file.create(scope=ANN, role="write")
    content = file.path.read_text()
    await table.adopt(file)
    await table.revoke(key.id)
    file.path.write_text(content)
    file.path.chmod(0o600)

    count, kept = await table.adopt(KeyFile(file.path))

    assert count == 1
    assert kept is not None
    assert kept.name != "a.keys.json.moved"
    assert (await table.identify(token))[1] is None
    assert json.loads((tmp_path / "a.keys.json.moved").read_text()) == json.loads(content)


async def test_a_file_that_is_damaged_is_not_moved(table: KeyTable, tmp_path: Path) -> None:
    path = tmp_path / "a.keys.json"
    path.write_text("{")
    path.chmod(0o600)

    with pytest.raises(StorageError):
        await table.adopt(KeyFile(path))

    assert path.read_text() == "{"


async def test_a_memory_and_its_keys_are_in_one_database(
    served: Served, client: Client, postgres_dsn: str
) -> None:
    async with AgentMemory(postgres_dsn, embeddings=None, summaries=None) as memory:
        table = KeyTable(postgres_dsn)
        ann = (await table.create(scope=ANN, role="write"))[1]
        bob = (await table.create(scope=MemoryMetadata(user_id="bob"), role="write"))[1]
        url = await served(memory=memory, keys=table)
        made = await client(url, ann).post("/v1/memories", json={"what": "Ann likes tea"})
        assert made.status_code in (200, 201), made.text

        mine = (await client(url, ann).get("/v1/memories")).json()["items"]
        others = (await client(url, bob).get("/v1/memories")).json()["items"]

    assert [item["content"] for item in mine] == ["Ann likes tea"]
    assert others == []
