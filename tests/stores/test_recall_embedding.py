"""Embedding in the background: nothing waits for it, nothing is lost by it, all can be redone."""

import asyncio
import gc
import math
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.stores.recall_reference import Fickle, Sound

from orbiter.memory import HumanMemory, MemoryMetadata, PostgresMemoryStore, SQLiteMemoryStore
from orbiter.memory.backends.sql import embedder
from orbiter.memory.errors import (
    EmbeddingsMismatchError,
    MemoryError,
    NotInitializedError,
    QueryError,
)
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query
from orbiter.memory.recall import recall
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that opens the same store, each time with its own embeddings."""
    if request.param == "sqlite":
        return lambda embeddings=None: SQLiteMemoryStore(tmp_path / "m.db", embeddings=embeddings)
    dsn = request.getfixturevalue("postgres_dsn")
    return lambda embeddings=None: PostgresMemoryStore(dsn, embeddings=embeddings)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(embedder, "LONGEST_PAUSE", 0.02)


def items(count: int, text: str = "painting {}") -> list[HumanMemory]:
    return [
        HumanMemory(id=f"{text}{n}", content=text.format(n), metadata=ANN) for n in range(count)
    ]


class Successor(Fickle):
    """A model that takes the place of `HashEmbeddings`."""

    name = "successor"
    replaces = (HashEmbeddings(16).name,)

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        """Embed a question, for which no gate is closed."""
        return [(self.embed(text), b"") for text in texts]


async def until_current(store: Any) -> None:
    """Wait until the store's model is the one that is searched, and the only one."""
    while not store._model.is_current:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


async def found(store: Any, embeddings: Embeddings, text: str) -> list[str]:
    near = await store.nearest(embeddings.embed(text), Query(metadata=ANN, limit=1000))
    return [item.content for item, _ in near]


async def test_writes_are_embedded_without_being_asked(opened: Any) -> None:
    embeddings = HashEmbeddings(16)
    async with opened(embeddings) as store:
        await store.add_many(items(150))

        while (await store.stats()).unembedded:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)

        assert len(await found(store, embeddings, "painting")) == 150


async def test_a_write_does_not_wait_for_the_model(opened: Any) -> None:
    embeddings = Fickle()
    embeddings.gate.clear()
    async with opened(embeddings) as store:
        await store.add(HumanMemory(content="first", metadata=ANN))
        await store.add(HumanMemory(content="second", metadata=ANN))

        assert await store.count() == 2
        assert await store.catch_up(within=0.05) == 2
        assert (await store.stats()).unembedded == 2
        embeddings.gate.set()
        assert await store.catch_up() == 0


async def test_a_hanging_model_does_not_keep_a_store_from_closing(opened: Any) -> None:
    embeddings = Fickle()
    embeddings.gate.clear()
    async with opened(embeddings) as store:
        await store.add(HumanMemory(content="first", metadata=ANN))
        assert await store.catch_up(within=0.05) == 1

    async with opened(Sound()) as store:
        assert await store.catch_up() == 0
        assert await found(store, embeddings, "first") == ["first"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "RuntimeError: the model is out of order"),
        ([math.nan] * 16, "NaN"),
        ([math.inf] * 16, "infinity"),
        ([1.0] * 15, "16 numbers"),
    ],
    ids=["raises", "nan", "inf", "short"],
)
async def test_what_cannot_be_embedded_keeps_nothing_else_waiting(
    opened: Any, answer: Any, told: str
) -> None:
    embeddings = Fickle()
    embeddings.bad, embeddings.answer = "poison", answer
    async with opened(embeddings) as store:
        await store.add_many([*items(5), HumanMemory(id="p", content="poison"), *items(5, "b {}")])

        while await store.catch_up(within=0.05) > 1:
            pass
        with pytest.raises((RuntimeError, ValueError)):
            await store.catch_up()

        stats = await store.stats()
        assert stats.unembedded == 1
        assert told in (stats.embedding_error or "")
        assert len(await found(store, embeddings, "painting")) == 10
        await store.add(HumanMemory(id="p", content="cured", metadata=ANN))
        assert await store.catch_up() == 0
        assert (await store.stats()).embedding_error is None
        assert len(await found(store, embeddings, "painting")) == 11


async def test_a_vector_of_zeros_is_near_nothing_and_its_item_kept(opened: Any) -> None:
    embeddings = Fickle()
    embeddings.bad, embeddings.answer = "void", [0.0] * 16
    async with opened(embeddings) as store:
        await store.add_many([*items(3), HumanMemory(id="z", content="void", metadata=ANN)])

        assert await store.catch_up() == 0
        assert await store.verify()

        stats = await store.stats()
        assert (stats.unembedded, stats.embedding_error) == (0, None)
        near = await store.nearest([1.0] * 16, Query(metadata=ANN, limit=99))
        assert len(near) == 3
        assert "z" not in {item.id for item, _ in near}
        assert await store.similarities([1.0] * 16, ["z"]) == {}
        by_words = await store.match_words(["void"], Query(metadata=ANN))
        assert [item.id for item in by_words.items] == ["z"]
        await store.add(HumanMemory(id="z", content="filled", metadata=ANN))
        assert await store.catch_up() == 0
        assert len(await store.nearest([1.0] * 16, Query(metadata=ANN, limit=99))) == 4
        assert await store.verify()


async def test_a_model_that_fails_is_not_called_in_a_hot_loop(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "FIRST_PAUSE", 30.0)
    monkeypatch.setattr(embedder, "LONGEST_PAUSE", 60.0)
    embeddings = Fickle()
    embeddings.bad = "painting"
    async with opened(embeddings) as store:
        for item in items(20):
            await store.add(item)
        assert await store.catch_up(within=0.2) == 20

        assert embeddings.calls <= 2


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch, short_pauses: None) -> None:
    monkeypatch.setattr(embedder, "FIRST_PAUSE", 30.0)
    monkeypatch.setattr(embedder, "LONGEST_PAUSE", 60.0)


async def put_off_poison(store: Any) -> None:
    """Store a text that is refused beside others; return when it alone waits, and was put off."""
    await store.add_many([*items(5), HumanMemory(id="p", content="poison", metadata=ANN)])
    while (await store.stats()).unembedded > 1:
        with suppress(RuntimeError):
            await store.catch_up()
    with pytest.raises(RuntimeError):
        await store.catch_up()


@pytest.mark.usefixtures("long_pauses")
async def test_a_text_that_is_refused_is_not_tried_again_by_who_only_looks(opened: Any) -> None:
    embeddings = Fickle()
    embeddings.bad = "poison"
    async with opened(embeddings) as store:
        await put_off_poison(store)
        calls = embeddings.calls

        left = [await store.catch_up(within=2.0), await store.catch_up(within=2.0)]

        assert left == [1, 1]
        assert len(await found(store, embeddings, "painting")) == 5
        assert embeddings.calls == calls


@pytest.mark.usefixtures("long_pauses")
async def test_what_is_written_does_not_wait_for_a_text_that_is_refused(opened: Any) -> None:
    embeddings = Fickle()
    embeddings.bad = "poison"
    async with opened(embeddings) as store:
        await put_off_poison(store)
        await store.add(HumanMemory(content="painting late", metadata=ANN))

        assert await store.catch_up(within=30.0) == 1
        assert len(await found(store, embeddings, "painting")) == 6


@pytest.mark.usefixtures("long_pauses")
async def test_nobody_waits_while_a_text_that_was_refused_is_tried_again(opened: Any) -> None:
    embeddings = Fickle()
    embeddings.bad = "poison"
    async with opened(embeddings) as store:
        await put_off_poison(store)
        calls = embeddings.calls
        embeddings.gate.clear()
        again = asyncio.create_task(store.catch_up())
        while embeddings.calls == calls:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)

        assert await asyncio.wait_for(store.catch_up(within=600.0), 60.0) == 1

        await store.add(HumanMemory(content="painting late", metadata=ANN))
        embeddings.gate.set()
        await asyncio.wait({again})
        assert await store.catch_up(within=30.0) == 1
        assert len(await found(store, embeddings, "painting")) == 6


@pytest.mark.parametrize(
    ("vector", "told"),
    [
        ([math.nan] * 16, "NaN"),
        ([0.0] * 16, "zeros"),
        ([1.0] * 15, "16 numbers"),
        ([[1.0] * 16], "16 numbers"),
        ([1.0, [2.0]], "16 numbers"),
        ([], "16 numbers"),
        (["1"] * 16, "16 numbers"),
        ("red boat", "16 numbers"),
        (None, "16 numbers"),
    ],
    ids=["nan", "zero", "short", "nested", "ragged", "empty", "texts", "text", "none"],
)
async def test_what_is_no_vector_is_refused_by_every_store(
    opened: Any, vector: Any, told: str
) -> None:
    async with opened(HashEmbeddings(16)) as store:
        for written in ([], items(3)):
            await store.add_many(written)
            await store.catch_up()

            with pytest.raises(QueryError, match=told):
                await store.nearest(vector, Query(metadata=ANN))
            with pytest.raises(QueryError, match=told):
                await store.similarities(vector, [item.id for item in written])


async def test_an_item_changed_while_it_is_embedded_is_embedded_again(opened: Any) -> None:
    embeddings = Fickle()
    embeddings.gate.clear()
    async with opened(embeddings) as store:
        await store.add(HumanMemory(id="a", content="old words", metadata=ANN))
        await store.add(HumanMemory(id="b", content="gone", metadata=ANN))
        while not embeddings.calls:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        await store.add(HumanMemory(id="a", content="new words", metadata=ANN))
        await store.delete("b")
        await store.purge()
        embeddings.gate.set()

        assert await store.catch_up() == 0
        near = await store.nearest(embeddings.embed("new words"), Query(metadata=ANN))
        assert [(item.id, round(cosine, 4)) for item, cosine in near] == [("a", 1.0)]
        assert await store.verify()


async def test_rows_written_without_a_model_wait_for_it(opened: Any) -> None:
    embeddings = HashEmbeddings(16)
    async with opened() as store:
        await store.add_many(items(70))
    async with opened(embeddings) as store, opened() as other:
        assert await store.catch_up() == 0
        await other.add(HumanMemory(id="late", content="late painting", metadata=ANN))
        await other.add(HumanMemory(id="painting {}1", content="changed", metadata=ANN))
        await other.delete("painting {}2")

        assert await store.catch_up() == 0
        assert len(await found(store, embeddings, "painting")) == 70
        assert (await found(store, embeddings, "changed"))[0] == "changed"


async def test_who_only_looks_is_told_what_waits_after_any_write(opened: Any) -> None:
    embeddings = Fickle()
    async with opened(embeddings) as store, opened() as other:
        await store.add_many(items(3))
        await store.catch_up()
        embeddings.gate.clear()
        asked = Query(metadata=ANN)

        await store.match_words(["paint"], asked)  # sees that nothing waits
        assert await store.catch_up(within=0.0) == 0
        await store.match_words(["paint"], asked)
        await store.add(HumanMemory(content="own", metadata=ANN))
        assert await store.catch_up(within=0.0) == 1
        embeddings.gate.set()
        await store.catch_up()

        embeddings.gate.clear()
        await store.match_words(["paint"], asked)
        await other.add(HumanMemory(content="another's", metadata=ANN))
        await store.match_words(["paint"], asked)  # sees that something waits
        assert await store.catch_up(within=0.0) == 1
        embeddings.gate.set()


async def test_a_search_that_saw_nothing_wait_spares_a_read(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db", embeddings=Sound()) as store:
        await store.add_many(items(3))
        await store.catch_up()
        await store.match_words(["paint"], Query(metadata=ANN))
        store._what_waits = None  # type: ignore[assignment, method-assign]

        assert await store.catch_up(within=0.0) == 0
        with pytest.raises(TypeError):  # it is believed once
            await store.catch_up(within=0.0)


async def test_another_model_is_refused_with_the_way_out(opened: Any) -> None:
    async with opened(HashEmbeddings(16)) as store:
        await store.add(HumanMemory(content="kept", metadata=ANN))
        await store.catch_up()
    for other, told in ((HashEmbeddings(8), "(8 dimensions)"), (Fickle(16), "`fickle`")):
        with pytest.raises(EmbeddingsMismatchError) as caught:
            await opened(other).init()

        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, MemoryError)
        for part in (told, "(16 dimensions)", "HashEmbeddings", "store.reindex()", "open it with"):
            assert part in str(caught.value)

    async with opened(HashEmbeddings(16)) as store:
        assert await store.catch_up() == 0
        assert await found(store, HashEmbeddings(16), "kept") == ["kept"]


async def test_a_model_that_replaces_the_stored_one_embeds_everything_in_the_background(
    opened: Any,
) -> None:
    old, new = HashEmbeddings(16), Successor(32)
    async with opened(old) as store:
        await store.add_many(items(150))
        await store.catch_up()
    new.gate.clear()
    async with opened(new) as store:
        assert (await store.stats()).unembedded == 150
        await store.add(HumanMemory(id="late", content="painting late", metadata=ANN))
        assert await found(store, new, "painting") == []
        with warnings.catch_warnings(action="ignore"):  # that many are not embedded yet
            hits = await recall(store, "painting 7", scope=ANN, k=1)
        assert [hit.item.content for hit in hits] == ["painting 7"]
        async with opened(old) as other:  # which does not know of the new one
            by_old = await found(other, old, "painting")  # the late one, too, if it was quick
            assert set(by_old) - {"painting late"} == {each.content for each in items(150)}

        new.gate.set()
        assert await store.catch_up() == 0

        assert len(await found(store, new, "painting")) == 151
        await until_current(store)
        with pytest.raises(EmbeddingsMismatchError, match="successor"):
            await opened(old).init()
        await store.add(HumanMemory(content="painting latest", metadata=ANN))
        assert await store.catch_up() == 0
        assert len(await found(store, new, "painting")) == 152
        assert await store.verify()


async def test_replacing_a_model_goes_on_where_a_process_ended(opened: Any) -> None:
    async with opened(HashEmbeddings(16)) as store:
        await store.add_many([*items(embedder.CHUNK), *items(embedder.CHUNK, "statue {}")])
        await store.catch_up()
    new = Successor(32)
    new.bad = "statue"  # all of one chunk
    async with opened(new) as store:
        while len(await found(store, new, "painting")) < embedder.CHUNK:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    new.bad, new.texts = "\0", 0

    async with opened(new) as store:
        assert await store.catch_up() == 0
        assert new.texts == embedder.CHUNK
        assert len(await found(store, new, "painting")) == 2 * embedder.CHUNK
        await until_current(store)


async def test_two_processes_replace_a_model_together(opened: Any) -> None:
    async with opened(HashEmbeddings(16)) as store:
        await store.add_many(items(150))
        await store.catch_up()
    async with opened(Successor(32)) as one, opened(Successor(32)) as other:
        for store in (one, other):
            assert await store.catch_up() == 0
            assert len(await found(store, Successor(32), "painting")) == 150
        await until_current(one)
        await until_current(other)
        assert len(await one._models()) == 1


async def test_an_empty_store_changes_its_model_at_once(opened: Any) -> None:
    async with opened(HashEmbeddings(16)):
        pass
    async with opened(Successor(32)) as store:
        await until_current(store)


async def test_reindex_changes_the_model_while_others_read(opened: Any) -> None:
    old, new = HashEmbeddings(16), HashEmbeddings(32)
    async with opened(old) as reader:
        await reader.add_many(items(200))
        assert await reader.catch_up() == 0
        store, steps = opened(new), []
        task = asyncio.create_task(store.reindex(progress=lambda *step: steps.append(step)))
        seen = 0
        while not task.done():
            try:
                assert len(await found(reader, old, "painting")) == 200
            except EmbeddingsMismatchError:  # it is complete
                break
            seen += 1

        assert await task == 200
        assert steps[-1] == (200, 200)
        assert steps == sorted(steps)
        assert seen
        assert len(await found(store, new, "painting")) == 200
        with pytest.raises(EmbeddingsMismatchError, match="32 dimensions"):
            await found(reader, old, "painting")
        await reader.add(HumanMemory(content="painting late", metadata=ANN))
        assert await store.catch_up() == 0
        assert len(await found(store, new, "painting")) == 201
        assert await store.verify()
        await store.close()


async def test_reindex_goes_on_where_it_was_stopped(opened: Any) -> None:
    async with opened(HashEmbeddings(8)) as store:
        await store.add_many(items(300))
        await store.catch_up()
    embeddings = Fickle(24)
    store = opened(embeddings)

    def stop(done: int, _: int) -> None:
        if done >= 128:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await store.reindex(progress=stop)
    await store.close()
    async with opened(HashEmbeddings(8)) as old:
        assert len(await found(old, HashEmbeddings(8), "painting")) == 300
    first = embeddings.texts

    store = opened(embeddings)
    assert await store.reindex() == 300 - first
    assert embeddings.texts == 300
    assert len(await found(store, embeddings, "painting")) == 300
    await store.close()


async def test_a_reindex_that_fails_closes_what_it_opened_and_goes_on_later(opened: Any) -> None:
    async with opened(HashEmbeddings(8)) as store:
        await store.add_many(items(100))
        await store.catch_up()
    embeddings = Fickle(24)
    store = opened(embeddings)
    with pytest.raises(EmbeddingsMismatchError):
        await store.init()

    def fail(*_: int) -> None:
        embeddings.bad = "painting"

    with pytest.raises(RuntimeError, match="out of order"):
        await store.reindex(progress=fail)

    for ask in (store.count, store.catch_up, store.stats):
        with pytest.raises(NotInitializedError):
            await ask()
    assert not [thread.name for thread in threading.enumerate() if "m.db" in thread.name]
    async with opened(HashEmbeddings(8)) as old:
        assert len(await found(old, HashEmbeddings(8), "painting")) == 100
    embeddings.bad = "\0"
    assert await store.reindex() == 100 - embedder.CHUNK
    assert len(await found(store, embeddings, "painting")) == 100
    await store.close()


async def test_a_reindex_that_fails_leaves_an_open_store_at_work(opened: Any) -> None:
    embeddings = Fickle(16)
    async with opened(embeddings) as store:
        await store.add_many(items(100))
        await store.catch_up()

        def fail(*_: int) -> None:
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            await store.reindex(progress=fail)

        await store.add(HumanMemory(content="painting late", metadata=ANN))
        assert await store.catch_up() == 0
        assert len(await found(store, embeddings, "painting")) == 101
        assert await store.reindex() == 101 - embedder.CHUNK
        assert len(await found(store, embeddings, "painting")) == 101


async def test_what_is_written_after_another_store_has_reindexed_is_embedded(opened: Any) -> None:
    embeddings = Fickle(16)
    async with opened(embeddings) as store, opened(Sound()) as other:
        await store.add_many(items(3))
        await store.catch_up()
        await other.reindex()
        await other.close()
        embeddings.gate.clear()
        await store.add(HumanMemory(content="painting late", metadata=ANN))

        assert (await store.stats()).unembedded == 1
        assert await store.catch_up(within=0.0) == 1
        embeddings.gate.set()
        assert await store.catch_up() == 0
        assert len(await found(store, embeddings, "painting")) == 4


async def test_what_waits_for_a_model_that_is_gone_is_not_embedded_for_it(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later(_: object) -> None:
        """Leave what the old model has to be removed some other time."""

    monkeypatch.setattr(PostgresMemoryStore, "_drop_left_behind", later)
    embeddings = Fickle(16)
    embeddings.gate.clear()
    async with opened(embeddings) as store:
        await store.add_many(items(5))
        while not embeddings.calls:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        other = opened(Sound())
        assert await other.reindex() == 5
        await other.close()
        embeddings.gate.set()

        assert await store.catch_up() == 0
        assert len(await found(store, embeddings, "painting")) == 5
        assert embeddings.texts == 5


async def test_a_store_whose_model_was_replaced_says_so_wherever_it_counts(opened: Any) -> None:
    async with opened(HashEmbeddings(16)) as store:
        await store.add_many(items(3))
        await store.catch_up()
        other = opened(HashEmbeddings(32))
        await other.reindex()
        await other.close()

        for ask in (store.stats, store.catch_up, lambda: store.catch_up(within=0.0)):
            with pytest.raises(EmbeddingsMismatchError, match="32 dimensions"):
                await ask()
        await store.add(HumanMemory(content="still written", metadata=ANN))
        assert await store.count() == 4


async def test_reindex_with_the_same_model_embeds_everything_anew(opened: Any) -> None:
    embeddings = Fickle(16)
    async with opened(embeddings) as store:
        await store.add_many(items(20))
        await store.catch_up()
        before = embeddings.texts

        assert await store.reindex() == 20
        assert embeddings.texts == before + 20
        assert len(await found(store, embeddings, "painting")) == 20


async def test_reindex_needs_embeddings(opened: Any) -> None:
    async with opened() as store:
        with pytest.raises(QueryError, match="embeddings"):
            await store.reindex()


def test_what_are_no_embeddings_is_named() -> None:
    with pytest.raises(TypeError, match="Embeddings"):
        SQLiteMemoryStore(embeddings="all-MiniLM")  # type: ignore[arg-type]  # the mistake


def test_a_store_can_go_through_several_event_loops(tmp_path: Path) -> None:
    embeddings = HashEmbeddings(16)
    store = SQLiteMemoryStore(tmp_path / "m.db", embeddings=embeddings)

    async def write(text: str) -> int:
        await store.init()
        await store.add(HumanMemory(content=text, metadata=ANN))
        return await store.catch_up()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [asyncio.run(write("one")), asyncio.run(write("two"))] == [0, 0]
        assert asyncio.run(found(store, embeddings, "one")) == ["one", "two"]
        asyncio.run(store.close())
        gc.collect()
