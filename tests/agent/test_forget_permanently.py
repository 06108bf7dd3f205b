"""`forget(…, permanently=True)`: nothing brings it back, and nothing of it is left anywhere."""

import asyncio
import os
import signal
import sqlite3
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tests.agent.conftest import Open
from tests.agent.test_erase import bytes_of
from tests.crash._children import Child

from orbiter.memory import AgentMemory, VectorMemoryStore
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.sql import erase
from orbiter.memory.embeddings import CachedEmbeddings
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import HashEmbeddings

SECRET = "the vault opens with gingerbreadtrombone"
EARLIER = "the vault opens with zeppelinwhisper"
KEPT = "the garden gate squeaks like a quittenmarmelade"


async def test_it_is_gone_from_every_kind_of_store(
    any_memory: AgentMemory, any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    item = await any_alice.remember(EARLIER)
    await any_alice.update(item.id, SECRET)
    kept = await any_alice.remember(KEPT)
    theirs = await any_bob.remember("bob has a gingerbreadtrombone, too")
    assert await any_alice.recall("gingerbreadtrombone")

    gone = await any_alice.forget(item.id, permanently=True)

    assert gone.erasure, gone.erasure
    assert (len(gone), gone.ids, gone.items, gone.erasure.items) == (1, (item.id,), (), 1)
    assert await any_alice.get(item.id) is None
    assert SECRET not in [hit.item.content for hit in await any_alice.recall("gingerbreadtrombone")]
    assert [each.id for each in await any_alice.list()] == [kept.id]
    assert [each.id for each in await any_bob.list()] == [theirs.id]
    assert not await any_alice.forget(item.id, permanently=True)
    assert "trombone" not in str(gone.erasure)


async def test_hits_items_and_ids_go_in_one_call(any_alice: ScopedMemory) -> None:
    for number in range(4):
        await any_alice.remember(f"gingerbreadtrombone {number}")
    hits = await any_alice.recall("gingerbreadtrombone 0", k=1)
    items = await any_alice.list()
    left = [item for item in items if item.id != hits[0].item.id]

    gone = await any_alice.forget([hits[0], left[0], left[1].id, "nobody's"], permanently=True)

    assert gone.erasure
    assert set(gone.ids) == {hits[0].item.id, left[0].id, left[1].id}
    assert [each.id for each in await any_alice.list()] == [left[2].id]


async def test_a_hit_takes_only_what_says_the_same_with_it(any_alice: ScopedMemory) -> None:
    code = "The launch code is blue falcon"
    await any_alice.remember_many([code, code, f"{code} (2)"] * 40)
    (hit, *_) = await any_alice.recall("launch code", mode="words")
    alike = {item.id for item in hit.repeats if item.content != hit.item.content}
    assert alike  # as there are so many

    gone = await any_alice.forget(hit)

    assert len(gone.ids) > 1
    assert alike.isdisjoint(gone.ids)


@pytest.mark.parametrize("is_note_first", [True, False])
async def test_a_hit_takes_the_note_and_the_message_of_the_same_words_with_it(
    any_alice: ScopedMemory, any_bob: ScopedMemory, is_note_first: bool
) -> None:
    note, message = "Dr Zebulon rocks", "dr Zebulon rocks."
    for handle in (any_alice, any_bob):
        if is_note_first:
            await handle.remember(note)
        await handle.chat("one").add(message)
        if not is_note_first:
            await handle.remember(note)
    await any_alice.chat("one").add({"role": "assistant", "content": "Dr Zebulon rocks, yes."})
    for place in range(5):
        await any_alice.remember(f"Zebulon street {place} rocks")

    hits = await any_alice.recall("Who is Dr Zebulon?", mode="words", k=20)
    said = [hit for hit in hits if hit.item.content in (note, message)]
    gone = await any_alice.forget(said[0])

    assert len(said) == 1
    assert len(said[0].repeats) == 1
    assert len(gone.ids) == 2
    left = await any_alice.recall("Who is Dr Zebulon?", mode="words", k=20)
    assert len(left) == len(hits) - 1
    assert {note, message}.isdisjoint(hit.item.content for hit in left)
    assert len(await any_bob.list()) == 2


async def test_a_list_can_be_forgotten_and_restored_as_well(alice: ScopedMemory) -> None:
    items = await alice.remember_many(["one", "two", "three"])

    gone = await alice.forget(items[:2])

    assert gone.items == tuple(items[:2])
    assert gone.erasure is None
    await alice.restore(items[0].id)
    assert {each.content for each in await alice.list()} == {"one", "three"}
    assert await alice.forget([]) == await alice.forget(["nobody's"])


async def test_nothing_is_left_of_what_was_forgotten_before(alice: ScopedMemory) -> None:
    item = await alice.remember(EARLIER)
    await alice.update(item.id, SECRET)
    await alice.forget(item.id)
    assert [each.id for each in await alice.list(forgotten=True)] == [item.id]

    would = await alice.forget(item.id, permanently=True, dry_run=True)
    gone = await alice.forget(item.id, permanently=True)

    assert (would.ids, would.erasure) == ((item.id,), None)
    assert gone.erasure
    assert (gone.erasure.forgotten, gone.erasure.versions) == (1, 2)
    assert await alice.history(item.id) == []
    assert await alice.list(forgotten=True) == []


async def test_an_id_of_somebody_else_is_as_good_as_none(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    item = await any_alice.remember(SECRET)

    gone = await any_bob.forget([item, item.id], permanently=True)

    assert not gone
    assert gone.erasure is not None
    assert gone.erasure.total == 0
    assert await any_alice.get(item.id) == item


async def test_filters_choose_what_goes_also_of_what_was_forgotten(alice: ScopedMemory) -> None:
    for number in range(3):
        await alice.remember(f"gingerbreadtrombone {number}", tags=["secret"])
    first = (await alice.list())[0]
    await alice.forget(first)
    await alice.remember(KEPT)
    would = await alice.forget(where={"tags": "secret"}, permanently=True, dry_run=True)
    assert len(would) == 3

    gone = await alice.forget(where={"tags": "secret"}, permanently=True)

    assert gone.erasure
    assert len(gone) == 3
    assert await alice.list(forgotten=True) == []
    assert [each.content for each in await alice.list()] == [KEPT]
    assert len(await alice.forget(everything=True, permanently=True)) == 1
    with pytest.raises(QueryError, match="exactly one"):
        await alice.forget(permanently=True)
    with pytest.raises(QueryError, match="not 7"):
        await alice.forget(7, permanently=True)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(QueryError, match="not 8"):
        await alice.forget([8], permanently=True)  # type: ignore[list-item]  # wrong on purpose


async def test_no_byte_of_it_is_left_in_any_file(tmp_path: Path, open_memory: Open) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    cache = CachedEmbeddings(HashEmbeddings(), folder / "cache.db")
    memory = open_memory(f"sqlite:///{folder}/agent.db", embeddings=cache, audit="writes")
    alice = memory.scope(user_id="alice-nightjar")
    item = await alice.remember(EARLIER, extra={"where": "behindtheharmonium"})
    await memory.flush()  # else it may be changed before it has a vector
    await alice.update(item.id, SECRET)
    await alice.remember(KEPT)
    await memory.flush()
    await alice.recall("gingerbreadtrombone")
    canaries = (b"gingerbreadtrombone", b"zeppelinwhisper", b"behindtheharmonium")
    there = bytes_of(folder)
    assert [each in there for each in canaries] == [True] * 3
    with sqlite3.connect(folder / "cache.db") as vectors:
        before = vectors.execute("SELECT count(*) FROM vectors").fetchone()[0]

    gone = await alice.forget(item, permanently=True)

    assert gone.erasure, gone.erasure
    assert (gone.erasure.vectors, gone.erasure.versions) == (1, 1)
    assert gone.erasure.cached == 2
    assert gone.erasure.bytes_read > 0
    left = bytes_of(folder)
    assert [each for each in canaries if each in left] == []
    assert b"quittenmarmelade" in left
    with sqlite3.connect(folder / "cache.db") as vectors:
        assert vectors.execute("SELECT count(*) FROM vectors").fetchone()[0] == before - 2
    assert await memory.audit.verify()
    last = (await memory.audit.entries(item_id=item.id))[0]
    assert (last.action, last.item_ids, last.count) == ("erased", (item.id,), 1)
    assert await memory.verify()
    cache.close()


async def test_a_summary_does_not_outlive_its_message(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory(
        f"sqlite:///{tmp_path}/agent.db", summaries=SummaryConfig(message_threshold=4)
    )
    alice = memory.scope(user_id="alice")
    chat = alice.chat("kitchen")
    said = await chat.add({"role": "user", "content": "Remember gingerbreadtrombone for me."})
    for number in range(8):
        await chat.add({"role": "user", "content": f"What about number {number}?"})
    summary = await chat.summarize()
    assert summary is not None
    assert "gingerbreadtrombone" in summary

    gone = await alice.forget([each.id for each in said], permanently=True)

    assert gone.erasure, gone.erasure
    assert len(gone) == 1
    await memory.flush()
    left = await chat.summarize()
    assert left is None or "gingerbreadtrombone" not in left
    await memory.close()
    assert b"gingerbreadtrombone" not in bytes_of(tmp_path)


def forget_and_die(_: Connection, url: str, user: str, item_ids: list[str], steps: int) -> None:
    """Forget memories for good, and be killed after so many transactions."""
    left = steps

    async def die(_: object) -> None:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    async def main() -> None:
        async with AgentMemory(url, embeddings=HashEmbeddings(), summaries=None) as memory:
            await memory.scope(user_id=user).forget(item_ids, permanently=True)

    vars(erase)["checkpoint"] = die
    asyncio.run(main())


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_killed_in_between_and_repeated_it_leaves_no_summary(
    local_url: str, open_memory: Open, who: str, steps: int
) -> None:
    memory = open_memory(local_url, summaries=SummaryConfig(message_threshold=4))
    alice = memory.scope(user_id=who)
    chat = alice.chat("kitchen")
    said = await chat.add([{"role": "user", "content": f"gingerbreadtrombone {n}"} for n in "123"])
    said += await chat.add([{"role": "user", "content": f"What about {n}?"} for n in range(12)])
    more = [{"role": "user", "content": f"number {number}"} for number in range(1000)]
    said += await alice.chat("garden").add(more)
    assert "gingerbreadtrombone" in (await chat.summarize() or "")
    await memory.flush()
    ids = [item.id for item in said]

    child = Child(forget_and_die, local_url, who, ids, steps)
    assert child.rest() == []
    child.end()
    left = len(await alice.list(limit=2000))
    assert await chat.summary() is None or not steps
    gone = await alice.forget(ids, permanently=True)

    assert left > 0
    assert gone.erasure, gone.erasure
    assert await chat.summary() is None
    assert await alice.list(limit=2000) == await alice.list(forgotten=True, limit=2000) == []
    if local_url.startswith("sqlite"):
        assert b"gingerbreadtrombone" not in bytes_of(Path(local_url[10:]).parent)


async def test_it_is_gone_from_postgres_with_partitions(
    postgres_dsn: str, open_memory: Open
) -> None:
    store = PostgresMemoryStore(postgres_dsn)
    await store.init(partitions=4)
    await store.close()
    memory = open_memory(postgres_dsn, audit="writes")
    alice, bob = memory.scope(user_id="alice"), memory.scope(user_id="bob")
    item = await alice.remember(EARLIER)
    await alice.update(item.id, SECRET)
    theirs = await bob.remember(SECRET)
    await memory.flush()

    gone = await alice.forget([item.id, theirs.id], permanently=True)

    assert gone.erasure, gone.erasure
    assert (gone.ids, gone.erasure.versions, gone.erasure.vectors) == ((item.id,), 1, 1)
    assert [hit.item.id for hit in await bob.recall("gingerbreadtrombone")] == [theirs.id]
    assert await alice.recall("gingerbreadtrombone") == []
    assert await memory.verify()
    assert await memory.audit.verify()


async def test_a_store_in_this_process_loses_it_too(open_memory: Open) -> None:
    for store, model in (
        (VectorMemoryStore(HashEmbeddings()), "auto"),
        (ShortTermMemory(), HashEmbeddings()),
    ):
        memory = open_memory(store=store, embeddings=model)
        alice, bob = memory.scope(user_id="alice"), memory.scope(user_id="bob")
        item, theirs = await alice.remember(SECRET), await bob.remember(SECRET)
        await alice.remember(KEPT)
        await alice.recall("gingerbreadtrombone")

        gone = await alice.forget([item, theirs], permanently=True)

        assert gone.erasure
        assert gone.ids == (item.id,)
        assert [each.content for each in await alice.list()] == [KEPT]
        found = [hit.item.content for hit in await alice.recall("gingerbreadtrombone")]
        assert SECRET not in found
        assert await bob.get(theirs.id)


async def test_events_tell_which_and_not_what(local_memory: AgentMemory, who: str) -> None:
    alice = local_memory.scope(user_id=f"alice-{who}")
    item = await alice.remember(SECRET)
    async with alice.events() as events:
        await alice.forget(item, permanently=True)
        event = await anext(aiter(events))

    assert (event.kind, event.item_ids) == ("forgotten", (item.id,))


async def test_a_store_without_versions_says_that_nothing_was_forgotten_before(
    open_memory: Open,
) -> None:
    alice = open_memory(store=ShortTermMemory()).scope(user_id="alice")
    item = await alice.remember(SECRET)
    await alice.forget(item)

    assert not await alice.forget(item, permanently=True)
    with pytest.raises(UnsupportedError):
        await alice.list(forgotten=True)
