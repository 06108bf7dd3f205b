"""Memories that are indexed by several texts instead of their own: found by each, returned once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Open
from tests.agent.test_erase import bytes_of
from tests.agent.test_not_indexed import Noting, ann, in_every_mode, memory, model, recalled, url

from orbiter.memory import AgentMemory, HumanMemory, MemoryMetadata
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.embeddings import CachedEmbeddings
from orbiter.memory.errors import QueryError
from orbiter.memory.sync import AgentMemory as SyncAgentMemory
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.transfer import export_file, import_file

__all__ = ["ann", "memory", "model", "url"]

TEXTS = ["Ann eats neither meat nor fish", "she flies planes for an airline"]
VALUE = '{"diet": 1, "job": 2}'


async def test_it_is_found_by_each_text_and_returned_once(ann: ScopedMemory, model: Noting) -> None:
    item = await ann.remember(VALUE, index=TEXTS)
    await ann.remember("the weather was nice")

    for text in TEXTS:
        for mode in ("hybrid", "words", "meaning"):
            hits = await ann.recall(text, mode=mode)
            assert (hits[0].item, hits[0].passage) == (item, text), mode
            assert [hit.item.id for hit in hits].count(item.id) == 1
    assert item.content == VALUE
    assert VALUE not in model.texts
    assert await ann.recall("diet", mode="words") == []


async def test_its_relevance_and_its_reasons_are_those_of_its_texts(ann: ScopedMemory) -> None:
    # The older one first: of hits about as likely the newer one is in front.
    plain = await ann.remember("a plane of an airline is late")
    by_text = await ann.remember(VALUE, index=TEXTS)
    await ann.remember_many([f"the weather was nice on day {n}" for n in range(20)])

    found = await ann.recall("Who flies planes for an airline?", explain=True, k=1)

    assert [hit.item for hit in found] == [by_text]
    assert "plane" in str(found[0].why)
    (other,) = [each for each in found.left_out if each.item.id == plain.id]
    assert other.relevance < found[0].relevance
    found = await ann.recall("a plane of an airline is late", explain=True, k=1)
    assert [hit.item for hit in found] == [plain]
    assert by_text in [each.item for each in found.left_out]


async def test_of_a_long_text_the_passage_is_the_part_that_answers(ann: ScopedMemory) -> None:
    sentences = [f"Chapter {n} is about the harbour of town number {n}." for n in range(200)]
    sentences[150] = "The lighthouse keeper collects marbles."
    await ann.remember(VALUE, index=["something short", " ".join(sentences)])

    for mode in ("hybrid", "words"):
        asked = "what does the lighthouse keeper collect?"
        (hit,) = await ann.recall(asked, mode=mode, min_relevance=0)
        assert "marbles" in hit.passage
        assert len(hit.passage) < 2_000


async def test_the_same_texts_of_two_items_are_no_repeats(ann: ScopedMemory) -> None:
    one, two = [await ann.remember(f"value {n}", index=["the door code"]) for n in (1, 2)]

    assert await recalled(ann) == in_every_mode(one, two)
    assert all(not hit.repeats for hit in await ann.recall("the door code"))
    assert not await ann.evict(duplicates=True)


async def test_what_is_newer_is_judged_by_the_texts(ann: ScopedMemory) -> None:
    at = datetime.now(UTC) - timedelta(days=300)
    monday = "The dentist appointment is on Monday at 9"
    old = await ann.remember("1", index=[monday, "I like tea"], created_at=at)
    moved = "The dentist appointment was moved to Thursday at 3"
    new = await ann.remember("2", index=[moved, "I like cake"])

    hits = await ann.recall("When is the dentist appointment?")

    assert [hit.item for hit in hits] == [new, old]
    assert hits[1].replaced_by == new.id
    assert hits[1].shown.content == "1 (replaced since)"


async def test_an_update_changes_the_texts(ann: ScopedMemory, memory: AgentMemory) -> None:
    async def by_words(query: str) -> list[str]:
        return [hit.item.id for hit in await ann.recall(query, mode="words")]

    item = await ann.remember(VALUE, index=["the door code"])
    assert (await by_words("door code"), await by_words("airline")) == ([item.id], [])

    await ann.update(item.id, index=TEXTS)
    assert (await by_words("door code"), await by_words("airline")) == ([], [item.id])
    await ann.update(item.id, "another value")
    assert (await by_words("another value"), await by_words("airline")) == ([], [item.id])
    await ann.update(item.id, index=["the door code"])
    await memory.flush()  # on a busy machine, vectors come later
    assert await recalled(ann) == in_every_mode(item)
    await ann.update(item.id, index=True)
    assert (await by_words("door code"), await by_words("another value")) == ([], [item.id])
    await ann.update(item.id, index=False)
    assert await recalled(ann) == in_every_mode()


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)  # others keep no vectors
async def test_undo_a_new_model_and_a_check_keep_to_them(url: str, model: Noting) -> None:
    async with AgentMemory(url, embeddings=model) as memory:
        ann = memory.scope(user_id="ann")
        item = await ann.remember(VALUE, index=["the door code", "a number"])
        await ann.update(item.id, index=TEXTS)
        await ann.forget(item.id)
        await ann.restore(item.id)
        assert (await ann.recall("airline", mode="words"))[0].passage == TEXTS[1]
        await ann.restore(item.id, version=1)
        assert await recalled(ann) == in_every_mode(item)
        await memory.flush()
        assert await memory.verify()
        then = (await ann.history(item.id))[-1].at
        (hit,) = await ann.as_of(then).recall("door code")
        assert (hit.item.content, hit.passage) == (VALUE, "the door code")
    successor = Noting(32)

    store = AgentMemory(url, embeddings=successor)
    await store.reindex()
    async with store as memory:
        assert await recalled(memory.scope(user_id="ann")) == in_every_mode(item)
        assert await memory.verify()
    assert VALUE not in successor.texts


@pytest.mark.parametrize("way", ["erase", "forget", "forget all"])
async def test_nothing_of_the_texts_is_left_in_any_file(
    tmp_path: Path, open_memory: Open, way: str
) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    cache = CachedEmbeddings(HashEmbeddings(), folder / "cache.db")
    memory = open_memory(f"sqlite:///{folder}/agent.db", embeddings=cache)
    ann, bob = memory.scope(user_id="ann"), memory.scope(user_id="bob")
    texts = ["the vault opens with gingerbreadtrombone", "the cellar opens with zeppelinwhisper"]
    item = await ann.remember("value", index=["the attic opens with quittenmarmelade"])
    await memory.flush()
    await ann.update(item.id, index=texts)
    kept = await bob.remember("value", index=["the gate", "the door"])
    await memory.flush()
    assert await ann.recall("zeppelinwhisper")
    secrets = (b"gingerbreadtrombone", b"zeppelinwhisper", b"quittenmarmelade")
    assert all(each in bytes_of(folder) for each in secrets)

    if way == "erase":
        erasure = await memory.erase(user_id="ann")
    else:
        gone = await ann.forget(*([item.id] if way == "forget" else []), **_all(way))
        assert gone.erasure is not None
        erasure = gone.erasure

    assert erasure, erasure
    assert erasure.cached >= 3
    assert not [each for each in secrets if each in bytes_of(folder)]
    assert await recalled(bob, "the gate") == in_every_mode(kept)
    assert await memory.verify()


def _all(way: str) -> dict[str, Any]:
    return {"permanently": True} | ({"everything": True} if way == "forget all" else {})


async def test_they_move_along(ann: ScopedMemory, tmp_path: Path, model: Noting) -> None:
    file = tmp_path / "ann.jsonl"
    await ann.remember(VALUE, index=TEXTS)
    await export_file(ann, file)
    async with AgentMemory(tmp_path / "two.db", embeddings=model) as memory:
        there = memory.scope(user_id=ann.scope.user_id)
        await import_file(there, file)

        (hit,) = await there.recall("airline", mode="words")
        assert (hit.item.content, hit.passage) == (VALUE, TEXTS[1])
        assert await there.recall("diet", mode="words") == []


async def test_an_item_may_bring_them_along(ann: ScopedMemory) -> None:
    by = MemoryMetadata(extra={"indexed_by": ["the door code", "a number"]})
    (item,) = await ann.remember_many([HumanMemory(content=VALUE, metadata=by)])

    assert await recalled(ann) == in_every_mode(item)


def test_the_blocking_form_takes_them(tmp_path: Path) -> None:
    with SyncAgentMemory(tmp_path / "m.db", embeddings=HashEmbeddings()) as memory:
        ann = memory.scope(user_id="ann")
        item = ann.remember(VALUE, index=TEXTS)

        assert [hit.item for hit in ann.recall("airline", mode="words")] == [item]


@pytest.mark.parametrize("wrong", ["text", [], [" "], [1], 7])
async def test_what_are_no_texts_is_refused(ann: ScopedMemory, wrong: Any) -> None:
    with pytest.raises(QueryError, match="`index"):
        await ann.remember(VALUE, index=wrong)
    item = await ann.remember(VALUE)
    with pytest.raises(QueryError, match="`index"):
        await ann.update(item.id, index=wrong)


async def test_texts_are_for_one_memory(ann: ScopedMemory) -> None:
    texts: Any = TEXTS
    with pytest.raises(QueryError, match="(?i)`index` must be true or false"):
        await ann.remember_many(["one", "two"], index=texts)
    with pytest.raises(QueryError, match="(?i)`index` must be true or false"):
        await ann.chat("one").add("one", index=texts)
    fact = await ann.facts.put("door_code", "4711")
    with pytest.raises(QueryError, match="is a fact"):
        await ann.update(fact.id, index=texts)
