"""A reranker reads the best candidates beside the question: through every way to recall."""

import asyncio
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.terminal import environment, in_pipe
from tests.recall.conftest import Opening
from tests.rerankers.tiny_models import by_shared_words, write

from orbiter.memory import AgentMemory, MemoryItem, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.recall import InMemoryIndex, Reranking, _rerank, recall
from orbiter.memory.rerankers import OnnxReranker, Reranker
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.sync import AgentMemory as BlockingMemory
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
TEXTS = ("The door code is 4711", "A blue door", "Ask Eva at the door")


class Says:
    """A reranker that gives what it was made with to texts that hold a word, and 0.1 to others."""

    def __init__(self, **scores: float) -> None:
        self.scores = scores
        self.read: list[list[str]] = []
        self.questions: list[str] = []

    def __repr__(self) -> str:
        return "Says()"

    async def rerank(self, question: str, texts: Sequence[str]) -> list[float]:
        self.questions.append(question)
        self.read.append(list(texts))
        return [
            next((score for word, score in self.scores.items() if word in text), 0.1)
            for text in texts
        ]


class Fails(Says):
    """A reranker that raises, or answers with anything but scores."""

    answer: Any = ConnectionError("the reader is gone")

    async def rerank(self, question: str, texts: Sequence[str]) -> Any:
        await super().rerank(question, texts)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def fill(store: Any, texts: Sequence[str] = TEXTS, **extra: Any) -> None:
    for text in texts:
        metadata = MemoryMetadata(user_id="ann", extra=extra)
        await store.add(MemoryItem(content=text, metadata=metadata))


async def test_what_the_reader_says_decides_and_is_told(opened: Opening) -> None:
    reader = Says(Eva=0.93, blue=0.4)
    async with opened() as store:
        await fill(store)
        without = await recall(store, "door code", scope=ANN, mode="words")
        found = await recall(store, "door code", scope=ANN, mode="words", reranker=reader)

    assert without.reranking is None
    assert "4711" in without[0].item.content
    assert [hit.item.content for hit in found] == [TEXTS[2], TEXTS[0], TEXTS[1]]
    assert "reranker says 0.93" in str(found[0].why)
    reason = next(each for each in found[0].why if each.part == "reranker")
    assert reason.points > 0
    for hit in found:
        assert hit.score == pytest.approx(sum(each.points for each in hit.why))
    assert reader.questions == ["door code"]
    assert found.reranking is not None
    assert found.reranking.texts == 3
    assert found.reranking.error is None
    assert str(found.reranking).startswith("Says() read 3 texts in ")
    assert "Says() read 3 texts in" in str(found)


async def test_both_stores_give_the_reader_the_same(opened: Opening) -> None:
    reader = Says(Eva=0.9)
    async with opened(HashEmbeddings(256)) as store:
        await fill(store)
        await store.catch_up()

        found = await recall(store, "Which door?", scope=ANN, reranker=reader)

    assert found[0].item.content == TEXTS[2]
    assert sorted(reader.read[0]) == sorted(TEXTS)


async def test_scores_of_any_range_count_by_order_and_distance() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await fill(store)
        for low, high in ((0.2, 0.7), (-11.0, 4.0), (100, 2000)):
            reader = Says(Eva=high, blue=low, code=low)
            found = await recall(store, "door", scope=ANN, mode="words", reranker=reader)
            assert found[0].item.content == TEXTS[2]
        near = Says(Eva=0.501, blue=0.5, code=0.5)
        little = await recall(store, "door code", scope=ANN, mode="words", reranker=near)
        same = await recall(store, "door code", scope=ANN, mode="words", reranker=Says(door=0.5))

    assert "4711" in same[0].item.content
    assert "4711" in little[0].item.content


async def test_at_most_fifty_texts_are_read_and_copies_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Says()
    async with SQLiteMemoryStore(":memory:") as store:
        names = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}x" for n in range(70)]
        await fill(store, [f"door {name}" for name in names])
        await fill(store, ["my door code"] * 10)
        found = await recall(store, "door code", scope=ANN, mode="words", k=70, reranker=reader)

    assert len(reader.read[0]) == len(set(reader.read[0])) == 50
    assert reader.read[0][0] == "my door code"
    assert len(found[0].repeats) == 9
    assert len(found) == 70
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


async def test_the_reader_is_told_who_spoke() -> None:
    reader = Says()
    async with SQLiteMemoryStore(":memory:") as store:
        await fill(store, ["I sold the door", "Eva: I painted"], speaker="Eva")
        await recall(store, "door painted", scope=ANN, mode="words", reranker=reader)

    assert sorted(reader.read[0]) == ["Eva: I painted", "Eva: I sold the door"]


@pytest.mark.parametrize("mode", ["meaning", "recent"])
async def test_vectors_alone_and_time_alone_ask_no_reader(mode: Any) -> None:
    reader = Says()
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings()) as store:
        await fill(store)
        found = await recall(store, "door", scope=ANN, mode=mode, reranker=reader)

    assert len(found) == 3
    assert found.reranking is None
    assert reader.read == []


async def test_where_nothing_is_found_nothing_is_read() -> None:
    reader = Says()
    async with SQLiteMemoryStore(":memory:") as store:
        await fill(store)
        assert not await recall(store, "zebra", scope=ANN, mode="words", reranker=reader)
        assert not await recall(store, "", scope=ANN, mode="words", reranker=reader)

    assert reader.read == []


# A warning is given once: a row is a case of its own.
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ConnectionError("the reader is gone"), "ConnectionError: the reader is gone"),
        ([0.5], "RerankError: no finite score for each of 3 texts"),
        ([0.5, float("nan"), 0.1], "RerankError: no finite score"),
        (["high", "low", "low"], "ValueError"),
        (None, "TypeError"),
    ],
)
async def test_when_the_reader_fails_recall_answers_without_it_and_says_so(
    answer: Any, told: str
) -> None:
    reader = Fails()
    reader.answer = answer
    async with SQLiteMemoryStore(":memory:") as store:
        await fill(store)
        without = await recall(store, "door code", scope=ANN, mode="words")
        with pytest.warns(UserWarning, match=f"without its reranker: Says.. failed .{told}") as w:
            found = await recall(store, "door code", scope=ANN, mode="words", reranker=reader)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = await recall(store, "door code", scope=ANN, mode="words", reranker=reader)

    assert [warning.filename for warning in w] == [__file__]
    assert found == again == without
    assert found.reranking is not None
    assert told in str(found.reranking.error)
    assert str(found).startswith("3 of 3 candidates")
    assert "not reranked: Says() failed" in str(found)
    assert again.reranking is not None
    assert again.reranking.texts == 0
    assert "not asked again for half a minute" in str(again.reranking)
    assert len(reader.read) == 1


async def test_a_reader_that_takes_too_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(_rerank, "_LONGEST_WAIT", 0.0)
    async with SQLiteMemoryStore(":memory:") as store:
        await fill(store)
        with pytest.warns(UserWarning, match="TimeoutError"):
            found = await recall(
                store, "door", scope=ANN, mode="words", reranker=OnnxReranker(folder)
            )

    assert len(found) == 3


async def test_facts_keep_their_order_in_time() -> None:
    reader = Says(Oslo=0.99, Paris=0.01)
    async with AgentMemory("memory://", embeddings=None, reranker=reader) as memory:
        ann = memory.scope(user_id="ann")
        await ann.facts.put("home", "Oslo")
        await ann.facts.put("home", "Paris")
        found = await ann.recall("home")

    assert "Paris" in found[0].item.content


async def test_an_index_in_memory_asks_the_reader_too() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await fill(store)
        index = InMemoryIndex(store)
        found = await index.recall("door", scope=ANN, mode="words", reranker=Says(Eva=0.9))
        await index.close()

    assert found[0].item.content == TEXTS[2]
    assert found.reranking is not None


# Every way in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "reader", by_shared_words())


async def test_a_memory_and_its_chats_have_one(folder: Path) -> None:
    reader = OnnxReranker(folder)
    assert isinstance(reader, Reranker)
    async with AgentMemory("memory://", embeddings=None, reranker=reader) as memory:
        ann = memory.scope(user_id="ann")
        for text in ("Eva lives in Oslo", "I live for green tea", "Somewhere to live"):
            await ann.remember(text)
        found = await ann.recall("Where does Eva live?", explain=True)
        chat = ann.chat("new")
        in_chat = await chat.context("Where does Eva live?")

    assert found[0].item.content == "Eva lives in Oslo"
    assert "reranker says 0.73" in str(found)
    assert found.reranking is not None
    assert found.reranking.texts == 3
    assert "Eva lives in Oslo" in str(in_chat.messages("openai"))


def test_a_blocking_memory_has_one(folder: Path) -> None:
    with BlockingMemory("memory://", embeddings=None, reranker=OnnxReranker(folder)) as memory:
        ann = memory.scope(user_id="ann")
        ann.remember("Eva lives in Oslo")
        found = ann.recall("Where does Eva live?")

    assert found.reranking is not None
    assert "reranker says" in str(found[0].why)


async def test_a_server_has_one_and_its_clients_see_what_it_says(
    folder: Path, tmp_path: Path
) -> None:
    store = AgentMemory(tmp_path / "served.db", embeddings=None, reranker=OnnxReranker(folder))
    settings = Settings(port=0, with_mcp=False)
    app = create_app(store, settings=settings, keys=None)
    async with serving(app, settings=settings) as url, AgentMemory(url) as client:
        ann = client.scope(user_id="ann")
        await ann.remember("Eva lives in Oslo")
        found = await ann.recall("Where does Eva live?")
        asked = {"user_id": "ann", "q": "Where does Eva live?"}
        page = await asyncio.to_thread(httpx.get, f"{url}/recall", params=asked)

    assert "read 1 text in" in page.text
    assert isinstance(found.reranking, Reranking)
    assert found.reranking.texts == 1
    assert found.reranking.error is None
    assert "reranker says" in str(found[0].why)
    with pytest.raises((QueryError, UnsupportedError), match="reranker"):
        AgentMemory("http://127.0.0.1:1", reranker=OnnxReranker(folder))


def test_the_command_line_takes_one_from_the_environment(folder: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cli.db'}"
    env = environment(url, {"ORBITER_MEMORY_RERANKER": str(folder)})
    in_pipe(["remember", "Eva lives in Oslo"], env)

    shown = json.loads(in_pipe(["recall", "Where does Eva live?", "--json"], env).stdout)
    env["ORBITER_MEMORY_RERANKER"] = str(tmp_path / "gone")
    failed = in_pipe(["recall", "Where does Eva live?"], env)

    assert shown["reranking"]["texts"] == 1
    assert shown["reranking"]["error"] is None
    assert failed.code == 0
    assert "Eva lives in Oslo" in failed.stdout
    assert "not reranked: OnnxReranker" in failed.stderr
