"""Memories that are kept and not indexed: no recall returns them, through any door."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.agent._served import SERVED
from tests.agent.conftest import Open
from tests.servers.databases import RedisServer

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.transfer import export_file, import_file

MODES: list[Any] = ["hybrid", "words", "meaning", "recent"]


class Noting(HashEmbeddings):
    """Embeddings that note which texts they saw."""

    def __init__(self, dimension: int = 64) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    async def aembed(self, text: str) -> list[float]:
        self.texts.append(text)
        return await super().aembed(text)

    async def aembed_many(self, texts: Any) -> list[list[float]]:
        self.texts += texts
        return await super().aembed_many(texts)


@pytest.fixture
def model() -> Noting:
    return Noting()


@pytest.fixture(params=["sqlite", "memory", "postgres", "redis", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/m.db"
    if request.param == "http":
        return f"{SERVED}{tmp_path}/m.db"
    if request.param == "memory":
        return "memory://"
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url(7)


@pytest.fixture
async def memory(url: str, open_memory: Open, model: Noting) -> AgentMemory:
    return open_memory(url, embeddings=model)


@pytest.fixture
def ann(memory: AgentMemory, who: str) -> ScopedMemory:
    return memory.scope(user_id=f"ann-{who}")


async def recalled(handle: ScopedMemory, query: str = "the door code") -> dict[str, set[str]]:
    found = {}
    for mode in MODES:
        hits = await handle.recall(query, mode=mode, k=50)
        found[mode] = {hit.item.id for hit in hits} | {i.id for hit in hits for i in hit.repeats}
    return found


def in_every_mode(*items: MemoryItem) -> dict[str, set[str]]:
    return {mode: {item.id for item in items} for mode in MODES}


async def test_no_mode_of_recall_returns_it_and_everything_else_does(
    ann: ScopedMemory, model: Noting
) -> None:
    hidden = await ann.remember("the door code is 4711", index=False)
    shown = await ann.remember("the door code of the shed is 12")

    assert await recalled(ann) == in_every_mode(shown)
    assert not [text for text in model.texts if "4711" in text]
    assert await ann.get(hidden.id) == hidden
    assert {item.id for item in await ann.list()} == {hidden.id, shown.id}
    assert [item.id for item in await ann.list(query="4711")] == [hidden.id]
    assert (await ann.stats()).items == 2


async def test_many_of_them_leave_room_for_the_rest(ann: ScopedMemory) -> None:
    shown = await ann.remember("the door code of the shed is 12")
    await ann.remember_many([f"the door code {n} is {n}" for n in range(150)], index=False)

    assert await recalled(ann) == in_every_mode(shown)


async def test_an_update_and_its_undo_change_whether_it_is_found(ann: ScopedMemory) -> None:
    item = await ann.remember("the door code is 4711")
    everywhere, nowhere = in_every_mode(item), in_every_mode()
    assert await recalled(ann) == everywhere

    await ann.update(item.id, index=False)
    assert await recalled(ann) == nowhere
    await ann.update(item.id, "the door code is 4712")
    assert await recalled(ann) == nowhere
    await ann.update(item.id, index=True)
    assert await recalled(ann) == everywhere


async def test_undo_forget_and_restore_keep_to_it(tmp_path: Path, model: Noting) -> None:
    async with AgentMemory(tmp_path / "m.db", embeddings=model) as memory:
        ann = memory.scope(user_id="ann")
        item = await ann.remember("the door code is 4711", index=False)
        await ann.forget(item.id)
        await ann.restore(item.id)
        assert await recalled(ann) == in_every_mode()

        await ann.update(item.id, index=True)
        assert await recalled(ann) == in_every_mode(item)
        await ann.restore(item.id, version=1)
        assert await recalled(ann) == in_every_mode()
        assert await ann.as_of((await ann.history(item.id))[-1].at).recall("door code") == []
        assert await memory.verify()


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)  # others keep no vectors
async def test_a_new_model_does_not_embed_it(url: str, model: Noting) -> None:
    async with AgentMemory(url, embeddings=model) as memory:
        ann = memory.scope(user_id="ann")
        await ann.remember("the door code is 4711", index=False)
        shown = await ann.remember("the door code of the shed is 12")
        await memory.flush()
    successor = Noting(32)

    store = AgentMemory(url, embeddings=successor)
    await store.reindex()
    async with store as memory:
        assert await recalled(memory.scope(user_id="ann")) == in_every_mode(shown)
        assert await memory.verify()
    assert not [text for text in successor.texts if "4711" in text]


async def test_a_chat_shows_its_message_and_no_other_context_does(ann: ScopedMemory) -> None:
    await ann.chat("one").add("the door code is 4711", index=False)
    await ann.chat("one").add([{"role": "assistant", "content": "noted 4711"}], index=False)

    here = await ann.chat("one").context("what is the door code?")
    there = await ann.chat("two").context("what is the door code?")

    assert "4711" in str(here.messages())
    assert "4711" not in str(there.messages())
    assert await recalled(ann) == in_every_mode()


async def test_a_summary_that_says_it_is_not_indexed_either(
    url: str, open_memory: Open, model: Noting, who: str
) -> None:
    ann = open_memory(url, embeddings=model, summaries=SummaryConfig()).scope(user_id=who)
    chat, other = ann.chat("one"), ann.chat("two")
    await chat.add([f"the door code {n} is 4711" for n in range(20)], index=False)
    await other.add([f"the bike {n} is red" for n in range(20)])

    for one in (chat, other):
        await one.summarize()
    assert "4711" in str(await chat.summary())
    await chat.add([f"the garden gate {n} is green" for n in range(20)])
    await chat.summarize()
    branch = await chat.fork((await chat.items())[-1], chat_id="three")
    assert "4711" in str(await branch.summary())
    await recalled(ann)

    summaries = await ann.list(memory_type="summary")
    marks = {item.metadata.session_id: item.metadata.extra.get("indexed_by") for item in summaries}
    assert marks == {"one": False, "two": None, "three": False}
    assert not [text for text in model.texts if "4711" in text]


async def test_a_summary_of_what_is_not_indexed_any_more_is_made_again(
    url: str, open_memory: Open, model: Noting, who: str
) -> None:
    ann = open_memory(url, embeddings=model, summaries=SummaryConfig()).scope(user_id=who)
    chat = ann.chat("one")
    items = await chat.add([f"the door code {n} is 4711" for n in range(20)])
    await chat.summarize()

    await ann.update(items[0].id, index=False)
    await chat.summarize()

    (summary,) = await ann.list(memory_type="summary")
    assert summary.metadata.extra.get("indexed_by") is False


async def test_it_stays_so_when_it_is_moved(tmp_path: Path, model: Noting) -> None:
    file = tmp_path / "ann.jsonl"
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(AgentMemory(tmp_path / "one.db", embeddings=model))
        two = await stack.enter_async_context(AgentMemory(tmp_path / "two.db", embeddings=model))
        await one.scope(user_id="ann").remember("the door code is 4711", index=False)
        await export_file(one.scope(user_id="ann"), file)
        await import_file(two.scope(user_id="ann"), file)

        assert [item.content for item in await two.scope(user_id="ann").list()] == [
            "the door code is 4711"
        ]
        assert await recalled(two.scope(user_id="ann")) == in_every_mode()
        assert not [text for text in model.texts if "4711" in text]


async def test_a_change_while_it_is_embedded_counts(tmp_path: Path) -> None:
    class Slow(Noting):
        began, go_on = asyncio.Event(), asyncio.Event()

        async def aembed_many(self, texts: Any) -> list[list[float]]:
            self.began.set()
            await self.go_on.wait()
            return await super().aembed_many(texts)

    slow = Slow()
    async with AgentMemory(tmp_path / "m.db", embeddings=slow) as memory:
        ann = memory.scope(user_id="ann")
        item = await ann.remember("the door code is 4711")
        await slow.began.wait()
        await ann.update(item.id, index=False)
        slow.go_on.set()
        await memory.flush()

        assert await ann.recall("door code", mode="meaning") == []
        assert await memory.verify()


async def test_it_is_no_copy_of_what_is_indexed(ann: ScopedMemory) -> None:
    await ann.remember("the door code is 4711", index=False)
    shown = await ann.remember("the door code is 4711")
    again = await ann.remember("the door code is 4711", index=False)

    gone = await ann.evict(duplicates=True)

    assert [each.id for each in gone] == [again.id]
    assert await recalled(ann) == in_every_mode(shown)


async def test_an_item_may_bring_it_along(ann: ScopedMemory) -> None:
    mark = MemoryMetadata(extra={"indexed_by": False})
    await ann.remember_many([HumanMemory(content="the door code is 4711", metadata=mark)])

    assert await recalled(ann) == in_every_mode()


async def test_what_is_no_flag_is_refused(ann: ScopedMemory) -> None:
    wrong: Any = "no"
    with pytest.raises(QueryError, match="(?i)`index` must be true, false or a list .*, not 'no'"):
        await ann.remember("the door code is 4711", index=wrong)
    with pytest.raises(QueryError, match="(?i)`index` must be true or false, not 'no'"):
        await ann.chat("one").add("the door code is 4711", index=wrong)
    with pytest.raises(QueryError, match="`indexed_by` in `extra` .* `index=`"):
        await ann.remember("4711", index=False, extra={"indexed_by": True})
    fact = await ann.facts.put("door_code", "4711")
    with pytest.raises(QueryError, match="is a fact"):
        await ann.update(fact.id, index=False)
    with pytest.raises(QueryError, match="a fact is always indexed"):
        await ann.remember(fact, index=False)
    assert isinstance(fact, MemoryItem)
