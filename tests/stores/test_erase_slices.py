"""Long erasures go in slices: others write in between, and who was interrupted goes on."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.stores.test_erase import ALICE, BOB, bytes_of, check_bob, fill, left_in, said

from orbiter.memory import MemoryMetadata, PostgresMemoryStore, SQLiteMemoryStore
from orbiter.memory.backends.sql import erase
from orbiter.memory.backends.sqlite import maintenance
from orbiter.memory.tasks.progress import Checkpoint, Tracker, track
from orbiter.memory.testing import HashEmbeddings

Sql = SQLiteMemoryStore | PostgresMemoryStore
WHO = MemoryMetadata(user_id=ALICE.user_id)
SLICE = 3


@pytest.fixture(params=["sqlite", "postgres"])
async def open_store(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_dsn: str
) -> AsyncIterator[Callable[..., Any]]:
    """Return what opens stores in the same place, each as another process would."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Sql:
            made: Sql
            if request.param == "sqlite":
                made = SQLiteMemoryStore(tmp_path / "a.db", **options)
            else:
                made = PostgresMemoryStore(postgres_dsn, **options)
            return await stack.enter_async_context(made)

        yield start


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erase, "SLICE", SLICE, raising=False)


async def test_another_writes_between_two_slices(
    open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await open_store(embeddings=HashEmbeddings()), await open_store()
    await fill(store)
    there = [await other.count(metadata=WHO, include_deleted=True)]
    write = store._write

    async def followed(steps: Any) -> Any:
        value = await write(steps)
        number = len(there)
        await other.add(said(f"bob gets in {number}", f"between-{number}", BOB))
        there.append(await other.count(metadata=WHO, include_deleted=True))
        return value

    monkeypatch.setattr(store, "_write", followed)

    done = await store.erase(metadata=WHO)

    assert done, done
    assert (done.items, done.forgotten, done.versions) == (8, 1, 3)
    gone = [before - after for before, after in pairwise(there)]
    assert sum(gone) == there[0]
    assert max(gone) <= SLICE
    for number in range(1, len(there)):
        await other.delete(f"between-{number}")
    await other.purge(metadata=BOB)
    await check_bob(store)


async def test_the_log_tells_how_many_went_in_all(open_store: Callable[..., Any]) -> None:
    store = await open_store(audit="writes")
    await fill(store)

    assert await store.erase(metadata=WHO, by="admin")

    erased = await store.audit_entries(action="erased", limit=1000)
    assert [entry.count for entry in erased if not entry.item_ids] == [9]
    assert len([entry for entry in erased if entry.item_ids]) >= 9
    assert await store.verify_audit()


class Interrupted(Exception):
    """What ends a process in the middle."""


async def interrupt(store: Sql, *, after: int) -> Checkpoint:
    """Begin to erase, and break off after so many checkpoints; return the last."""
    kept: list[Checkpoint] = []

    async def save(state: Checkpoint) -> None:
        kept.append(state)
        if len(kept) > after:
            raise Interrupted

    with track(Tracker(lambda *_: None, save)), pytest.raises(Interrupted):
        await store.erase(metadata=WHO)
    return kept[-1]


async def test_who_goes_on_reports_all_that_went(open_store: Callable[..., Any]) -> None:
    store = await open_store(embeddings=HashEmbeddings())
    await fill(store)
    saved = await interrupt(store, after=2)
    assert 0 < await store.count(metadata=WHO, include_deleted=True) < 9
    steps: list[tuple[int, int]] = []

    with track(Tracker(lambda *step: steps.append(step), saved=saved)):
        done = await store.erase(metadata=WHO)

    assert done, done
    assert (done.items, done.forgotten, done.versions) == (8, 1, 3)
    shares = [part / whole for part, whole in steps]
    assert shares == sorted(shares)
    assert steps[0][0] >= 2 * SLICE
    await check_bob(store)


async def test_who_goes_on_looks_for_what_went_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "db"
    folder.mkdir()
    async with SQLiteMemoryStore(folder / "a.db", embeddings=HashEmbeddings()) as store:
        await fill(store)
        await store._file.read(
            lambda connection: connection.execute("PRAGMA secure_delete = OFF"), writing=True
        )
        saved = await interrupt(store, after=4)
        assert await store.count(metadata=WHO, include_deleted=True) == 0
        with monkeypatch.context() as patched:
            patched.setattr(maintenance, "vacuum_only", lambda _: None)
            with track(Tracker(lambda *_: None, saved=saved)):
                done = await store.erase(metadata=WHO)

        assert not done
        assert any("a.db` holds" in problem for problem in done.problems)
        with track(Tracker(lambda *_: None, saved=saved)):
            again = await store.erase(metadata=WHO)
        assert again, again
        assert again.probes > 10
        assert not left_in(bytes_of(folder))
