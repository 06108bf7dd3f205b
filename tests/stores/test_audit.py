"""The audit log: nothing unlogged, nothing changed unseen, nothing erased that can be told."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.crash._children import Child
from tests.stores._audit_children import write_audited
from tests.stores._audit_places import (
    ANN,
    BOB,
    TABLES,
    Place,
    Store,
    busy,
    log,
    note,
    place,
    store,
    told,
    url,
)
from tests.stores.test_postgres_security import role_dsn

from orbiter.memory import AgentMemory, MemoryMetadata, PostgresMemoryStore, SQLiteMemoryStore
from orbiter.memory.agent import Delete, Put
from orbiter.memory.agent._audit import read_as_one
from orbiter.memory.agent.runtime import Core
from orbiter.memory.backends.registry import open_store
from orbiter.memory.errors import AccessError, QueryError, UnsupportedError, VersionConflict
from orbiter.memory.model.audit import acting_as
from orbiter.memory.transfer import export_file

__all__ = ["place", "role_dsn", "store", "url"]


# Logging


async def test_every_write_is_an_entry_and_nothing_else_is(store: Store) -> None:
    await busy(store)
    assert await store.delete("not there") is False
    assert await store.restore("a") is False
    assert await store.clear(metadata=MemoryMetadata(user_id="carl")) == 0
    assert await store.get("a") is not None

    entries = await log(store)

    assert [(each.action, *each.item_ids, each.version) for each in entries] == [
        ("added", "a", 1),
        ("added", "b", 1),
        ("updated", "b", 2),
        ("added", "c", 1),
        ("deleted", "a", 2),
        ("restored", "a", 3),
        ("deleted", "b", 3),
        ("purged", "b", 3),
    ]
    assert [each.by for each in entries] == ["support"] + [None] * 7
    assert [each.digest is None for each in entries] == [False] * 7 + [True]
    found = await store.verify_audit(head=await store.audit_head())
    assert (bool(found), found.entries, found.items) == (True, 9, 2)  # `b` is gone
    assert found.head == entries[-1].hash


async def test_a_write_that_fails_is_not_logged(store: Store) -> None:
    await store.add(note("ann's", "a"))

    with pytest.raises(AccessError):
        await store.add_many([note("fine", "b", BOB), note("taken", "a", BOB)], within=BOB)

    assert [each.item_ids for each in await log(store)] == [("a",)]
    assert await store.verify_audit()


async def test_who_acts_is_named_by_the_call_or_around_it(store: Store) -> None:
    with acting_as("nightly"):
        await asyncio.gather(store.add(note("1", "a")), store.add(note("2", "b"), by="ann"))
    await store.add(note("3", "c"))

    assert {each.item_ids[0]: each.by for each in await log(store)} == {
        "a": "nightly",
        "b": "ann",
        "c": None,
    }
    with pytest.raises(QueryError, match="by"), acting_as(""):
        pass


async def test_entries_are_found_by_whose_they_are_and_name_nobody(
    place: Place, store: Store
) -> None:
    await busy(store)

    anns = await log(store, metadata=MemoryMetadata(user_id="ann"))
    assert {name for each in anns for name in each.item_ids} == {"a", "b"}
    assert anns == await log(store, metadata=MemoryMetadata(session_id="s"))
    assert [each.item_ids for each in await log(store, metadata=BOB)] == [("c",)]
    assert await log(store, metadata=MemoryMetadata(user_id="an")) == []
    assert [each.action for each in await log(store, action="deleted")] == ["deleted"] * 2
    assert len(await log(store, item_id="a")) == 3
    newest = await store.audit_entries(limit=2)
    assert [
        each.number for each in await store.audit_entries(limit=2, before=newest[-1].number)
    ] == [
        newest[-1].number - 1,
        newest[-1].number - 2,
    ]
    assert await log(store, since=datetime.now(UTC) + timedelta(hours=1)) == []
    with pytest.raises(QueryError, match="action"):
        await store.audit_entries(action="looked at")
    for table in TABLES:
        assert "'ann'" not in str(await place.rows(f"SELECT * FROM {table}"))


async def test_with_all_reads_are_logged_too(place: Place) -> None:
    async with place.store(audit="all") as store:
        await store.add_many([note("one", "a"), note("two", "b")])
        with acting_as("support"):
            await store.get("a")
            await store.search(query="one")
            await store.history("a")
            await store.records()
            await store.around(["a"], span=1)
        core = Core(
            store,
            embeddings=None,
            is_model_declined=True,
            episodic=None,
            row_security=False,
            prepare=lambda: None,
        )

        async def several() -> list[str]:
            found = await store.search(metadata=ANN)
            again = await store.get("a")
            return [item.id for item in (*found, again) if item is not None]

        await read_as_one(core, ANN, "recall", several, lambda ids: ids[:1])
        entries = (await log(store))[2:]

        assert [(each.action, each.call, each.count) for each in entries] == [
            ("read", "get", 1),
            ("read", "search", 1),
            ("read", "history", 1),
            ("exported", "records", 2),
            ("read", "around", 2),
            ("read", "recall", 1),
        ]
        assert [each.by for each in entries] == ["support"] * 5 + [None]
        assert {each.whose for each in entries if each.call != "records"} == {entries[0].whose}
        assert await store.verify_audit()


async def test_without_audit_nothing_is_logged_and_nothing_is_done_for_it(place: Place) -> None:
    async with place.store() as store:
        steps = list
        assert store._audited(steps, ids=["a"]) is steps  # type: ignore[arg-type,comparison-overlap]
        await busy(store)
        await store.search()

        assert await place.rows("SELECT number FROM memory_audit_head") == [(0,)]
        with pytest.raises(UnsupportedError, match="audit"):
            await store.verify_audit()


async def test_what_was_there_before_the_log_is_found_once(place: Place) -> None:
    async with place.store() as store:
        await busy(store)
    for _ in range(2):
        async with place.store(audit="writes") as store:
            assert [(e.action, *e.item_ids, e.version) for e in await log(store)] == [
                ("found", "a", 1),
                ("found", "a", 2),
                ("found", "a", 3),
                ("found", "c", 1),
            ]
            assert await store.verify_audit()


async def test_a_log_that_was_begun_goes_on_whoever_opens_the_store(place: Place) -> None:
    async with place.store(audit="all") as store:
        await store.add(note("first", "a"))
    async with place.store() as store:
        await store.add(note("second", "b"))
        await store.search()

        assert store.audit == "writes"
        assert [each.item_ids for each in await log(store)] == [("a",), ("b",)]
        assert await store.verify_audit()


# Erasing and moving


async def test_what_is_erased_is_nowhere_in_the_log_and_cannot_be_tried_out(
    place: Place, store: Store
) -> None:
    await store.add(note("the door code is harbour", "a"))
    await store.add(note("bob's own", "b", BOB))
    (before,) = await place.rows("SELECT count(*) FROM memory_audit_salts")

    await store.erase(metadata=MemoryMetadata(user_id="ann"), by="officer")

    logged = [str(await place.rows(f"SELECT * FROM {table}")) for table in TABLES]
    assert not any("harbour" in text or "'ann'" in text for text in logged)
    assert before == (2,)
    assert await place.rows("SELECT id FROM memory_audit_salts") == [("b",)]
    entries = await log(store, metadata=MemoryMetadata(user_id="ann"))
    assert [(each.action, each.by, each.item_ids) for each in entries] == [
        ("added", None, ("a",)),
        ("erased", "officer", ("a",)),
        ("erased", "officer", ()),
    ]
    assert entries[-1].count == 1
    assert await store.verify_audit()


async def test_what_stays_of_an_item_whose_past_was_erased_is_still_vouched_for(
    place: Place, store: Store
) -> None:
    await store.add(note("ann's secret", "a"))
    await store.add(note("bob's now", "a", BOB))
    (salt,) = await place.rows("SELECT salt FROM memory_audit_salts")

    await store.erase(metadata=MemoryMetadata(user_id="ann"))

    assert await place.rows("SELECT salt FROM memory_audit_salts") != [salt]
    assert [each.action for each in await log(store)][2:] == ["erased", "kept", "erased"]
    assert await store.verify_audit()
    await place.run("UPDATE memory_items SET content = 'changed'")
    assert "in version 2" in (await told(store))[0]


async def test_moved_and_replaced_records_are_logged_with_all_they_were(
    place: Place, store: Store, tmp_path: Path
) -> None:
    async with SQLiteMemoryStore(tmp_path / "source.db") as source:
        await busy(source)
        records = await source.records()
    await store.put_records(records)
    await store.put_records(records)
    await store.add(note("changed here", "a"))
    further = await store.records()
    await store.put_records(records)
    await store.put_records(records, overwrite=True)
    await store.put_records(further)

    actions = [(each.action, *each.item_ids, each.version) for each in await log(store)]

    assert actions == [
        ("added", "c", 1),
        ("added", "a", 1),
        ("deleted", "a", 2),
        ("restored", "a", 3),
        ("updated", "a", 4),
        ("purged", "a", 4),
        ("added", "a", 1),
        ("deleted", "a", 2),
        ("restored", "a", 3),
        ("updated", "a", 4),
    ]
    assert await store.verify_audit()


async def test_an_item_that_is_over_may_go_and_no_other(place: Place, store: Store) -> None:
    over = datetime.now(UTC) - timedelta(seconds=1)
    later = datetime.now(UTC) + timedelta(hours=1)
    await store.add(note("short", "a", expires_at=over))
    await store.add(note("long", "b", expires_at=later))
    await store.add(note("short", "c", expires_at=over))
    await store.add(note("again", "c"))
    await store.sweep()

    assert await store.count(include_deleted=True) == 2
    assert await store.verify_audit()
    await place.run("DELETE FROM memory_items WHERE id = 'b'")
    assert await told(store) == ["item `b` was removed without the log"]


# Together


async def test_processes_keep_one_chain_though_one_is_killed(place: Place) -> None:
    children = [Child(write_audited, place.url, *what) for what in (("x", 10**6), ("y", 60))]
    for child in children:
        assert child.receive() == 0
    while children[0].receive() != 20:
        pass
    children[0].kill()
    said = [await asyncio.to_thread(child.rest) for child in children]
    for child in children:
        child.end()

    async with place.store(audit="writes") as store:
        found = await store.verify_audit()
        assert found, found.problems
        assert len(await log(store, metadata=MemoryMetadata(user_id="y"), limit=1000)) == 60
        last = 20 + len(said[0])
        assert len(await log(store, metadata=MemoryMetadata(user_id="x"), limit=1000)) > last
        await store.add(note("goes on", "z"))
        assert await store.verify_audit(head=found.head)


@pytest.mark.parametrize("partitions", [None, 2])
async def test_who_acts_for_a_user_adds_to_the_log_and_reads_none_of_it(
    postgres_dsn: str, role_dsn: str, partitions: int | None
) -> None:
    held = PostgresMemoryStore(role_dsn, audit="all", max_size=2)
    await held.init(partitions=partitions, row_security=True)
    root = PostgresMemoryStore(postgres_dsn, max_size=2)
    await root.init()
    try:
        ann, bob = held.acting_for("ann"), held.acting_for("bob")
        await ann.add(note("one", "a"))
        await ann.add(note("two", "a"))
        await bob.add_many([note("three", "b", BOB), note("four", "c", BOB)])
        await bob.delete("c")
        await bob.purge()
        assert len(await ann.search()) == 1
        for refused in (ann.audit_entries(), ann.verify_audit(), held.verify_audit()):
            with pytest.raises(AccessError):
                await refused

        assert [each.action for each in await log(held)] == [
            "added", "updated", "added", "added", "deleted", "purged", "read",
        ]  # fmt: skip
        sql = "SELECT count(*) FROM memory_audit"
        async with held._opened().acquire() as connection, connection.transaction():
            await connection.execute("SET LOCAL orbiter.user_id = 'ann'")
            assert await connection.fetchval(sql) == 0
            assert await connection.fetchval(sql.replace("audit", "audit_salts")) == 1
            await connection.execute("DELETE FROM memory_audit")
        found = await root.verify_audit()
        assert (found.problems, found.items) == ((), 2)  # one was purged
    finally:
        await root.close()
        await held.close()


async def test_an_item_that_moves_to_another_users_partition_is_still_vouched_for(
    postgres_dsn: str,
) -> None:
    store = PostgresMemoryStore(postgres_dsn, audit="writes", max_size=2)
    await store.init(partitions=4)
    try:
        await store.add(note("ann's", "a"))
        await store.add_many([note("bob's now", "a", BOB), note("other", "b")])

        assert [each.action for each in await log(store)] == ["added", "updated", "added"]
        assert await told(store) == []
    finally:
        await store.close()


async def test_a_log_that_cannot_see_what_is_there_does_not_begin(role_dsn: str) -> None:
    store = PostgresMemoryStore(role_dsn, max_size=2)
    await store.init(row_security=True)
    await store.acting_for("ann").add(note("one", "a"))
    await store.close()

    late = PostgresMemoryStore(role_dsn, audit="writes", max_size=2)

    with pytest.raises(AccessError, match="bypasses"):
        await late.init()


async def test_a_memory_without_a_log_says_so(place: Place) -> None:
    memory = AgentMemory(store=place.store(), embeddings=None)

    with pytest.raises(UnsupportedError, match="has no audit log; `orbiter-memory audit begin`"):
        await memory.audit.entries(user_id="ann")
    await memory.close()


async def test_the_log_of_a_memory(place: Place) -> None:
    store = place.store(audit="writes")
    memory = AgentMemory(store=store, embeddings=None)
    audit = memory.audit
    head = await audit.head()
    await store.add(note("one", "a"))

    assert [each.action for each in await audit.entries(user_id="ann")] == ["added"]
    assert await audit.entries(user_id="bob") == []
    assert await audit.verify(head=head)
    assert not await audit.verify(head="1" * 64)
    await memory.close()


async def test_redis_keeps_no_log() -> None:
    with pytest.raises(UnsupportedError, match="Redis"):
        open_store("redis://localhost", audit="writes")
    memory = AgentMemory("redis://localhost", embeddings=None)
    memory._core._is_open = True
    with pytest.raises(UnsupportedError, match="audit"):
        await memory.audit.head()


def test_what_to_log_is_writes_or_all() -> None:
    with pytest.raises(ValueError, match="audit"):
        SQLiteMemoryStore(audit="reads")  # type: ignore[arg-type]


# Restoring a backup


async def test_a_restore_names_whom_the_backup_has_and_an_erasure_since_took(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "agent.db", tmp_path / "copy.db"
    begin = datetime.now(UTC)
    async with AgentMemory(path, embeddings=None, audit="all") as memory:
        users = {name: memory.scope(name) for name in ("ann", "bob", "cleo", "dora", "eve", "fay")}
        await users["ann"].remember("erased before, and there again")
        await memory.erase(user_id="ann")
        for user in users.values():
            await user.remember("tea")
        await users["bob"].forget(where={"content": "tea"})  # only its past is in the backup
        await users["cleo"].kv.put(("a",), "theme", b"dark")
        await users["cleo"].forget(where={"content": "tea"}, permanently=True)
        await memory.scope("dora", session_id="s").remember("of a session")
        await memory.backup(copy)
        await memory.erase(user_id="bob")
        await memory.erase(user_id="cleo")
        await memory.erase(user_id="dora", session_id="s")
        await users["eve"].list()  # is logged, and is no erasure
        await users["fay"].forget(where={"content": "tea"}, permanently=True)
        await export_file(users["eve"], tmp_path / "eve.jsonl")

    done = await AgentMemory(path, embeddings=None).restore(copy)

    assert [scope for scope, _ in done.erased_since] == [
        MemoryMetadata(user_id="bob"),
        MemoryMetadata(user_id="cleo"),
        MemoryMetadata(user_id="dora", session_id="s"),
    ]
    times = [at for _, at in done.erased_since]
    assert times == sorted(times)
    assert begin < times[0]
    assert times[-1] < datetime.now(UTC)


# Key-value entries


async def test_changes_of_entries_are_logged_without_what_they_say(
    place: Place, store: Store
) -> None:
    entries = store.key_value
    with acting_as("nightly"):
        await entries.write(
            [Put(("secret",), "a", b"word"), Put(("secret",), "b", b"word")], scope=ANN
        )
        await entries.write([Delete(("secret",), "a"), Delete(("secret",), "none")], scope=ANN)
        await entries.append(("log",), [b"1", b"2", b"3"], scope=ANN)
        await entries.pop(("log",), scope=ANN)
        await entries.clear(("log",), scope=ANN)
        await entries.clear(("log",), scope=ANN)  # of which nothing is left

    assert [(each.action, each.call, each.count) for each in await log(store)] == [
        ("stored", "kv.write", 2),
        ("removed", "kv.write", 1),
        ("stored", "kv.append", 3),
        ("removed", "kv.pop", 1),
        ("removed", "kv.clear", 2),
    ]
    assert await log(store, metadata=ANN) == await log(store)
    assert await log(store, by="nightly") == await log(store)
    assert await log(store, by="ann") == []
    assert "secret" not in str(await place.rows("SELECT * FROM memory_audit"))
    assert await store.verify_audit()


async def test_a_change_of_entries_that_fails_is_not_logged(store: Store) -> None:
    with pytest.raises(VersionConflict):
        await store.key_value.write([Put(("a",), "k", b"1", None, 7)], scope=ANN)

    assert await log(store) == []
