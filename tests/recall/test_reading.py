"""The reader: the best candidates are judged beside the question, in whatever store."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orbiter_memory_minilm
import pytest
from tests.rows import each_row

from orbiter.memory import (
    AgentMemory,
    HumanMemory,
    LocalEmbeddings,
    MemoryItem,
    MemoryMetadata,
    SQLiteMemoryStore,
)
from orbiter.memory.embeddings import local as local_module
from orbiter.memory.embeddings._reader import Reader
from orbiter.memory.model.reading import Beside, Verdict, WordReader
from orbiter.memory.recall import RecallResult, recall
from orbiter.memory.recall._reading import MAX_READ
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
NOTES = (
    "The door code of the office is 4711",
    "My flight to Lisbon leaves on Friday at 7",
    "I am allergic to peanuts",
    "We keep the spare key with Mrs. Novak",
)


class _Counted:
    """The local reader, which tells how many notes it was given."""

    def __init__(self, reader: WordReader) -> None:
        self._reader = reader
        self.read_at_once: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, question: bytes, notes: Sequence[Beside]) -> list[Verdict]:
        self.read_at_once.append(len(notes))
        return self._reader.read(question, notes)


class _Counting(LocalEmbeddings):
    def __init__(self) -> None:
        super().__init__()
        self.counted = _Counted(super().reader)

    @property
    def reader(self) -> Any:
        return self.counted


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


async def _filled(store: Any, texts: Sequence[str]) -> None:
    await store.add_many([MemoryItem(content=text, metadata=ANN) for text in texts])
    await store.catch_up()


def _parts(found: RecallResult) -> set[str]:
    return {reason.part for hit in found for reason in hit.why}


async def test_of_a_flood_of_copies_one_is_read_for_all() -> None:
    model = _Counting()
    copies = [f"{NOTES[0]}{'!' * (n % 3)}" for n in range(40)]
    async with SQLiteMemoryStore(":memory:", embeddings=model) as store:
        await _filled(store, [*copies, *NOTES[1:]])

        found = await recall(store, "What is the door code?", scope=ANN, min_relevance=0)

    assert model.counted.read_at_once == [len(NOTES)]
    assert found[0].content.startswith(NOTES[0])
    assert len(found[0].repeats) > 10
    assert "reader" in {reason.part for reason in found[0].why}


async def test_only_the_best_are_read_and_they_stand_before_the_others() -> None:
    model = _Counting()
    rooms = "attic barn cellar chapel depot foyer garage hall kitchen lobby office porch shed tower"
    texts = [f"The door of the {room} is painted" for room in rooms.split()]
    async with SQLiteMemoryStore(":memory:", embeddings=model) as store:
        await _filled(store, [*texts, NOTES[0]])

        found = await recall(
            store, "What is the door code?", scope=ANN, k=40, min_relevance=0, explain=True
        )

    assert model.counted.read_at_once == [MAX_READ]
    were_read = ["reader" in {reason.part for reason in hit.why} for hit in found]
    assert were_read == sorted(were_read, reverse=True)
    assert found[0].content == NOTES[0]


async def test_a_question_that_was_stored_is_not_read() -> None:
    model = _Counting()
    asked = "What is the door code of the office?"
    async with SQLiteMemoryStore(":memory:", embeddings=model) as store:
        await store.add(HumanMemory(id="asked", content=asked, metadata=ANN))
        await _filled(store, NOTES[:2])

        found = await recall(store, asked, scope=ANN, min_relevance=0)

    assert model.counted.read_at_once == [2]
    assert found[0].content == NOTES[0]
    echo = next(hit for hit in found if hit.item.id == "asked")
    assert echo.relevance < found[0].relevance / 3


async def test_a_damaged_reader_is_told_of_and_recall_answers_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = Path(orbiter_memory_minilm.READER).read_bytes()
    (tmp_path / "reader.onnx").write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(orbiter_memory_minilm, "READER", tmp_path / "reader.onnx")
    twice = ("I live in Oslo", "I moved to Paris, I no longer live in Oslo")
    async with SQLiteMemoryStore(":memory:", embeddings=LocalEmbeddings()) as store:
        await _filled(store, [*NOTES, *twice])

        with pytest.warns(UserWarning, match="without its reader: .*orbiter-memory-minilm"):
            found = await recall(store, "What is the door code?", scope=ANN)
        again = await recall(store, "Do I live in Oslo?", scope=ANN, min_relevance=0)

    assert found[0].content == NOTES[0]
    assert {hit.content for hit in again[:2]} == set(twice)
    assert "reader" not in _parts(found) | _parts(again)
    for hit in (*found, *again):
        assert sum(reason.points for reason in hit.why) == pytest.approx(hit.score)


async def test_a_damaged_local_model_fails_no_recall_by_other_vectors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(orbiter_memory_minilm.MODEL.read_bytes()[:100_000])
    monkeypatch.setattr(orbiter_memory_minilm, "MODEL", tmp_path / "model.onnx")
    monkeypatch.setattr(local_module, "_shared", LocalEmbeddings)
    monkeypatch.setattr("orbiter.memory.recall._modes._warned", set())
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(64)) as store:
        await _filled(store, NOTES)

        with pytest.warns(UserWarning, match="without its reader: .*orbiter-memory-minilm"):
            found = await recall(store, "What is the door code?", scope=ANN)

    assert found[0].content == NOTES[0]


async def test_a_reader_of_another_version_fails_no_recall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orbiter_memory_minilm, "READER", orbiter_memory_minilm.MODEL)
    monkeypatch.setattr("orbiter.memory.recall._modes._warned", set())
    async with SQLiteMemoryStore(":memory:", embeddings=LocalEmbeddings()) as store:
        await _filled(store, NOTES)

        with pytest.warns(UserWarning, match="without its reader: .*does not fit"):
            found = await recall(store, "What is the door code?", scope=ANN)

    assert found[0].content == NOTES[0]


async def test_a_store_with_other_vectors_is_read_by_the_local_model() -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(64)) as store:
        await _filled(store, NOTES)

        [hit, *_] = await recall(store, "What is the door code?", scope=ANN)
        [other, *_] = await recall(store, "Which food makes me ill?", scope=ANN, min_relevance=0)

    assert hit.content == NOTES[0]
    assert "reader" in {reason.part for reason in hit.why}
    assert other.content == NOTES[2], "its vectors and words know nothing of that"


async def test_without_the_local_model_there_is_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_module, "_shared", lambda: None)
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(64)) as store:
        await _filled(store, NOTES)

        found = await recall(store, "What is the door code?", scope=ANN)

    assert found[0].content == NOTES[0]
    assert "reader" not in _parts(found)


@each_row("text", ["x", "4", "茶", "🎉", "door " * 200_000], ids=len)
@each_row("model", [LocalEmbeddings, HashEmbeddings])
async def test_a_text_of_any_size_is_read(text: str, model: Any) -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=model()) as store:
        await _filled(store, [NOTES[0], text])

        found = await recall(store, "What is the door code?", scope=ANN, min_relevance=0)
        asked = await recall(store, text[:1_000], scope=ANN, min_relevance=0)

    assert found[0].content == NOTES[0]
    for hit in (*found, *asked):
        assert 0 <= hit.relevance <= 1
        assert sum(reason.points for reason in hit.why) == pytest.approx(hit.score)


async def test_an_answer_of_a_chat_is_read_with_what_was_asked_before_it(
    local: LocalEmbeddings,
) -> None:
    async with AgentMemory("memory://", embeddings=local) as memory:
        alice = memory.scope("alice")
        await alice.chat("c").add(
            [
                {"role": "assistant", "content": "What is the name of your dog?"},
                {"role": "user", "content": "Bruno"},
                {"role": "assistant", "content": "And how do you like your tea?"},
                {"role": "user", "content": "Without sugar"},
            ]
        )
        await memory.flush()

        found = await alice.recall("What is my dog called?", min_relevance=0)
        hits = {hit.content: hit.relevance for hit in found}

    assert hits["Bruno"] > hits.get("Without sugar", 0.0)


def test_the_reader_judges_notes_alike_however_many_are_beside_them(
    local: LocalEmbeddings,
) -> None:
    reader, words = Reader(), local.reader.words
    vector, question = words("What is the door code?")

    def beside(text: str) -> Beside:
        own, rows = words(text)
        cosine = sum(a * b for a, b in zip(vector, own, strict=True))
        return Beside(rows, speaker=words("Ann")[1], cosine=cosine)

    notes = [beside(text) for text in (*NOTES, *NOTES[1:] * 5, "x", "")]
    together = reader.read(question, notes)

    assert len(together) == len(notes)
    assert together[0].answers == max(each.answers for each in together)
    for note, verdict in zip(notes[: len(NOTES)], together, strict=False):
        [alone] = reader.read(question, [note])
        assert alone.answers == pytest.approx(verdict.answers, abs=0.5)
    assert reader.read(question, []) == []
    assert {each.answers < -5 for each in reader.read(b"", notes)} == {True}


@pytest.mark.parametrize("user_id", ["u_20", "alice"])
async def test_a_memory_is_found_by_the_question_that_it_is_indexed_by(user_id: str) -> None:
    async with AgentMemory("memory://") as memory:
        alice = memory.scope(user_id=user_id)
        for text in ("The rent is 900", "I love hiking in the hills"):
            await alice.remember(text)
        await alice.remember("Note 7", index=["What does Alice eat?", "Alice's diet"])
        await memory.flush()

        hits = await alice.recall("What does Alice eat?")

    assert hits[0].content == "Note 7"
    assert hits[0].relevance > 0.7
