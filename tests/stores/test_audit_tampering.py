"""The audit log finds every change that was made behind its back."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.stores._audit_places import ANN, BOB, Place, Store, busy, note, place, store, told, url

from orbiter.memory import MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.backends.sql import audit_log, audit_reader, audit_verify
from orbiter.memory.backends.sql.audit_dialect import Fields
from orbiter.memory.backends.sql.audit_reader import COLUMNS
from orbiter.memory.backends.sql.audit_verify import ChainCheck, Findings, some_entries
from orbiter.memory.model.audit import AuditEntry, AuditProblem, canonical, chain
from orbiter.memory.model.records import Record

__all__ = ["place", "store", "url"]


def _flipped(raw: bytes) -> Iterator[bytes]:
    """Return what *raw* is with one byte changed, for each of its bytes."""
    for at, byte in enumerate(raw):
        yield bytes([*raw[:at], byte ^ 1, *raw[at + 1 :]])


def _changes(column: str, value: Any, *, is_file: bool) -> list[str]:
    """Return SQL for what is nearly *value*."""
    if isinstance(value, int):
        return [str(value + 1000)]
    if value is None:
        return ["1" if column == "version" else "'x'"]
    if not is_file:
        return [_quoted(value[:-1] + ("1" if value[-1] != "1" else "0"))]
    raw = value.encode()
    several = [*_flipped(raw)][:: max(1, len(raw) // 3)]
    several.append(bytes([raw[0] ^ 0x80, *raw[1:]]))  # no UTF-8 any more
    # And the same bytes, as another kind of value.
    return [*(f"CAST(x'{each.hex()}' AS TEXT)" for each in several), f"x'{raw.hex()}'"]


def _quoted(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


async def test_a_change_of_any_column_of_an_entry_is_found(place: Place) -> None:
    async with place.store(audit="all") as store:
        await store.add(note("one", "a", expires_at=datetime(2099, 1, 1, tzinfo=UTC)), by="support")
        await store.search(metadata=ANN)
        await store.delete("a")
        assert await store.verify_audit()
        names = ", ".join(COLUMNS)
        for number in (2, 3):
            (row,) = await place.rows(f"SELECT {names} FROM memory_audit WHERE number = {number}")
            for column, value in zip(COLUMNS, row, strict=True):
                there = number + 1000 if column == "number" else number
                for changed in _changes(column, value, is_file=place.is_file):
                    setting = f"UPDATE memory_audit SET {column} ="
                    await place.run(f"{setting} {changed} WHERE number = {number}")
                    found = await store.verify_audit()
                    assert any(each.entry for each in found.problems), (column, changed)
                    await place.run(f"{setting} {_quoted(value)} WHERE number = {there}")
        assert await store.verify_audit()


async def test_a_flip_of_any_byte_of_an_entry_is_found(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "audit.db", audit="all") as store:
        await store.add(note("one", "a", expires_at=datetime(2099, 1, 1, tzinfo=UTC)), by="support")
        await store.search(metadata=ANN)
        dialect = store._operations.dialect
        read = await store._read(lambda: some_entries(store._log, dialect, 0))

    def problems(entries: list[Fields]) -> list[AuditProblem]:
        findings = Findings()
        check = ChainCheck(findings, None)
        for fields in entries:
            check.follow(fields)
        check.end(read.head)
        return findings.problems

    assert problems(read.entries) == []
    flips = 0
    for at, fields in enumerate(read.entries):
        for column, value in enumerate(fields):
            for flipped in _flipped(value or b"") if column else ():
                entries = list(read.entries)
                entries[at] = (*fields[:column], flipped, *fields[column + 1 :])
                assert problems(entries), (at, COLUMNS[column], flipped)
                flips += 1
    assert flips > 500


SWAP = (
    "UPDATE memory_audit SET number = -1 WHERE number = 3",
    "UPDATE memory_audit SET number = 3 WHERE number = 4",
    "UPDATE memory_audit SET number = 4 WHERE number = -1",
)
COPY = (
    "INSERT INTO memory_audit SELECT number + 1, at, action, actor, whose, call, item_id, version,"
    " items, total, digest, ends_at, hash FROM memory_audit WHERE number = 9"
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["DELETE FROM memory_audit WHERE number = 4"], "entries 4 to 4 are missing"),
        (SWAP, "entry 3 was changed"),
        ([COPY], "entry 10 was changed, or does not follow"),
        (["DELETE FROM memory_audit WHERE number = 9"], "the log ends with entry 8"),
        (["UPDATE memory_audit_head SET number = 8"], "the log ends with entry 9"),
        (["UPDATE memory_audit_head SET key = 'k'"], "the key of the digests"),
        (["UPDATE memory_audit_head SET begun = 0"], "where the log began"),
        (["DELETE FROM memory_audit_head"], "the log ends with entry 9"),
    ],
)
async def test_missing_swapped_and_inserted_entries_are_found(
    tmp_path: Path, change: Sequence[str], said: str
) -> None:
    place = Place(f"sqlite:///{tmp_path}/audit.db")
    async with place.store(audit="writes") as store:
        await busy(store)
        await place.run(*change)
        await place.close()

        assert any(said in what for what in await told(store)), await told(store)


async def test_a_log_written_anew_is_found_by_a_hash_that_was_noted(place: Place) -> None:
    async with place.store(audit="writes") as store:
        await busy(store)
        head = await store.audit_head()
        await store.add(note("more", "d"))
        assert await store.verify_audit(head=head)
        await place.run(
            *(f"DELETE FROM {table}" for table in ("memory_audit", "memory_audit_salts")),
            "UPDATE memory_audit_head SET number = 0, hash = '', key = NULL, begun = 0",
        )
    async with place.store(audit="writes") as store:
        assert await store.verify_audit()
        assert ["no entry has the hash" in what for what in await told(store, head=head)] == [True]


async def test_a_change_of_a_row_behind_the_logs_back_is_found(place: Place) -> None:
    async with place.store(audit="writes") as store:
        await store.add(note("first", "a"))
        await store.add(note("second", "a"))
        await store.add(note("other", "b", BOB))
        columns = {
            "content": "'another'",
            "memory_type": "'ai'",
            "status": "'draft'",
            "metadata": """'{"user_id":"bob"}'""",
            "extra_json": """'{"native":{"a":1}}'""",
            "created_at": "'2020-01-01T00:00:00.000000+00:00'",
            "updated_at": "'2020-01-01T00:00:00.000000+00:00'",
            "deleted": "1",
            "version": "7",
        }
        ended = {"ended_at": "'2020-01-01T00:00:00.000000+00:00'", "ended_by": "'somebody'"}
        for table, item in (("memory_items", ""), ("memory_versions", " AND version = 1")):
            columns |= ended if item else {}
            cast = ", ".join(f"CAST({name} AS TEXT)" for name in columns)
            (row,) = await place.rows(f"SELECT {cast} FROM {table} WHERE id = 'a'{item}")
            for (column, value), was in zip(columns.items(), row, strict=True):
                await place.run(f"UPDATE {table} SET {column} = {value} WHERE id = 'a'{item}")
                found = await store.verify_audit()
                assert {each.item_id for each in found.problems} == {"a"}, (table, column)
                again = item.replace("1", "7") if column == "version" else item
                old = _quoted(was) if was is not None else "NULL"
                await place.run(f"UPDATE {table} SET {column} = {old} WHERE id = 'a'{again}")
                assert not await told(store), (table, column)
        await place.run("DELETE FROM memory_versions WHERE id = 'a'")
        assert "item `a` has lost version 1" in await told(store)
        await place.run("DELETE FROM memory_items WHERE id = 'a'")
        assert await told(store) == ["item `a` was removed without the log"]
        await place.run("UPDATE memory_audit_salts SET salt = 'x' WHERE id = 'b'")
        assert "in version 1" in (await told(store))[1]
        await place.run("DELETE FROM memory_audit_salts WHERE id = 'b'")
        assert "lost its salt" in (await told(store))[1]


async def test_a_change_of_when_an_item_came_is_found(place: Place) -> None:
    async with place.store(audit="writes") as store:
        await store.add(note("dated", "a", created_at=datetime(2020, 1, 1, tzinfo=UTC)))
        third = note("third", "b", version=3)
        await store.put_records([Record(third)])
        assert await store.verify_audit()
        (came,) = await place.rows("SELECT CAST(ended_at AS TEXT) FROM memory_versions")

        for change, back in (
            ("SET ended_at = '2019-01-01T00:00:00.000000+00:00'", f"SET ended_at = '{came[0]}'"),
            ("SET ended_by = 'x'", "SET ended_by = NULL"),
            ("SET version = -1", "SET version = 0"),
        ):
            await place.run(f"UPDATE memory_versions {change}")
            assert [what.startswith("item `a` was changed") for what in await told(store)] == [True]
            await place.run(f"UPDATE memory_versions {back}")
            assert await store.verify_audit()

        forged = "INSERT INTO memory_versions (id, version, ended_at"
        when = "'2020-01-01T00:00:00.000000+00:00'"
        await place.run(
            f"{forged}) VALUES ('b', 0, {when})",
            f"{forged}, content, memory_type, status, metadata, extra_json, created_at, updated_at,"
            f" deleted) VALUES ('b', 1, {when}, 'forged', 'human', 'accepted', '{{}}', '{{}}',"
            f" {when}, {when}, 0)",
        )
        assert any("item `b` was changed" in what and "version 1" in what
                   for what in await told(store))  # fmt: skip
        await place.run("DELETE FROM memory_versions WHERE id = 'b' AND version = 1")
        assert any("item `b` was changed" in what for what in await told(store))


async def test_who_is_erased_has_signed_nothing_and_that_is_no_alarm(place: Place) -> None:
    async with place.store(audit="writes") as store:
        await store.add(note("bob's", "a", BOB), by="ann")
        await store.add(note("bob's second", "a", BOB), by="ann")
        await store.add(note("ann's", "b"))
        assert await store.erase(metadata=MemoryMetadata(user_id="ann"))

        assert await told(store) == []
        assert await place.rows("SELECT 1 FROM memory_versions WHERE ended_by = 'ann'") == []


async def test_an_item_that_is_over_and_two_of_its_id_are_no_alarm(place: Place) -> None:
    over = datetime.now(UTC) - timedelta(seconds=1)
    async with place.store(audit="writes") as store:
        await store.add(note("short", "a", expires_at=over))
        await store.add_many([note("one", "a"), note("two", "a")])
        await store.add(note("going on", "b", expires_at=datetime.now(UTC) + timedelta(days=1)))
        await store.add_many([note("b1", "b"), note("b2", "b")])

        assert await told(store) == []
        actions = [(each.action, each.version) for each in await store.audit_entries(item_id="b")]
        assert actions == [("updated", 3), ("updated", 2), ("added", 1)]


async def test_a_beginning_that_was_broken_off_finds_what_has_changed_since(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (audit_log, audit_reader, audit_verify):
        monkeypatch.setattr(module, "CHUNK", 3)
    async with place.store() as store:
        await store.add_many([note("text", f"{number}") for number in range(8)])
        await store.add(note("second", "2"))
        store._audit = "writes"
        last = await store._write(
            lambda: store._log.begin(store._operations.dialect, "", sees_all=True)
        )
        assert last == "2"
    async with place.store() as store:  # nobody logs: it has not begun
        assert store.audit is None
        await store.add(note("changed", "0"))
        await store.delete("1")
        await store.purge()
        await store.delete("2")
        await store.purge()
        await store.add(note("another", "2"))

    async with place.store(audit="writes") as store:
        assert await told(store) == []
        assert {each.action for each in await store.audit_entries(item_id="0")} == {
            "found",
            "purged",
        }
        await place.run("UPDATE memory_items SET content = 'forged' WHERE id = '0'")
        assert len(await told(store)) == 1


async def test_the_log_refuses_to_be_changed_by_mistake(place: Place, store: Store) -> None:
    await busy(store)

    for statement in ("DELETE FROM memory_audit", "UPDATE memory_audit SET actor = 'x'"):
        with pytest.raises(Exception, match="only ever added to"):
            await place.rows(statement)


def test_an_entry_and_its_hash_say_everything_once() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    plain = {"at": when, "action": "added", "by": None, "whose": "", "item_ids": (), "count": 0}
    others = {
        "number": 2, "at": when + timedelta(microseconds=1), "action": "read", "by": "a",
        "whose": "w", "item_ids": ("a",), "count": 1, "version": 1, "digest": "d", "call": "c",
        "ends_at": when,
    }  # fmt: skip
    entry = AuditEntry(number=1, **plain)  # type: ignore[arg-type]
    changed = [AuditEntry(**{"number": 1, **plain, name: value}) for name, value in others.items()]  # type: ignore[arg-type]

    assert len({canonical(each) for each in (entry, *changed)}) == 12
    assert len({chain(before, entry) for before in ("0" * 64, "1" * 64)}) == 2
