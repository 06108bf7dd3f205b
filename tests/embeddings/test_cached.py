"""`CachedEmbeddings`: the same vectors for less work, whatever becomes of the file."""

import asyncio
import multiprocessing
import os
import sqlite3
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.timing import HANG

from orbiter.memory import Embeddings
from orbiter.memory.embeddings import CachedEmbeddings
from orbiter.memory.errors import EmbeddingError
from orbiter.memory.testing import HashEmbeddings


class Counting(HashEmbeddings):
    """Remembers what it was asked; waits, fails or answers wrongly on demand."""

    def __init__(self, dimension: int = 8, name: str = "counting") -> None:
        super().__init__(dimension)
        self.asked: list[list[str]] = []
        self.error: Exception | None = None
        self.called = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def embed_many(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        if self.error is not None:
            raise self.error
        return super().embed_many(texts)

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        self.called.set()
        if self.gate is not None:
            await self.gate.wait()
        return self.embed_many(texts)


@pytest.fixture
def model() -> Counting:
    return Counting()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors.db"


@pytest.fixture
def cached(model: Counting, path: Path) -> Iterator[CachedEmbeddings]:
    cache = CachedEmbeddings(model, path)
    yield cache
    cache.close()


async def test_the_model_is_asked_once_for_each_text(
    cached: CachedEmbeddings, model: Counting
) -> None:
    first = await cached.aembed_many(["a", "b", "a"])
    second = await cached.aembed_many(["b", "c"])

    assert model.asked == [["a", "b"], ["c"]]
    assert first[0] == first[2]
    assert second[0] == first[1]
    assert (cached.hits, cached.misses) == (1, 3)
    assert cached.embed("c") == second[1] == await cached.aembed("c")
    assert cached.embed_many([]) == await cached.aembed_many([]) == []
    assert isinstance(cached, Embeddings)
    assert (cached.name, cached.dimension) == ("counting", 8)


def test_a_cached_vector_is_the_uncached_one_exactly(path: Path) -> None:
    texts = ["one two three", "four", ""]  # lengths that float32 cannot hold
    first = CachedEmbeddings(Counting(), path).embed_many(texts)
    model = Counting()
    second = CachedEmbeddings(model, path).embed_many(texts)

    assert first == second
    assert model.asked == []
    assert [type(number) for number in second[0]] == [float] * 8
    assert first[0] == pytest.approx(HashEmbeddings(8).embed(texts[0]))


def test_a_caller_may_change_what_it_got(cached: CachedEmbeddings) -> None:
    one, other = cached.embed_many(["a", "a"])
    one.clear()

    assert other == cached.embed("a")


def test_models_and_dimensions_share_a_file_and_nothing_else(path: Path) -> None:
    models = [Counting(8, "x"), Counting(4, "x"), Counting(8, "y")]
    for model in models:
        CachedEmbeddings(model, path).embed("a")

    assert [model.asked for model in models] == [[["a"]]] * 3


def test_the_file_is_private_and_holds_no_text(cached: CachedEmbeddings, path: Path) -> None:
    cached.embed("my secret diagnosis")
    files = list(path.parent.glob("vectors.db*"))

    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(files) == 3  # with the journal
    assert not [file for file in files if b"secret" in file.read_bytes()]


def test_nothing_is_opened_before_it_is_needed(cached: CachedEmbeddings, path: Path) -> None:
    assert not path.exists()
    cached.close()
    assert not path.exists()


def test_the_oldest_go_first(model: Counting, path: Path) -> None:
    cached = CachedEmbeddings(model, path, max_entries=3)
    for text in "abcde":
        cached.embed(text)
    model.asked.clear()

    cached.embed_many(["e", "d", "c", "b"])

    assert model.asked == [["b"]]
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM vectors").fetchone() == (3,)


async def test_tasks_that_ask_for_one_text_share_one_call(
    cached: CachedEmbeddings, model: Counting
) -> None:
    model.gate = asyncio.Event()
    tasks = [asyncio.create_task(cached.aembed_many(["a", str(n % 2)])) for n in range(6)]
    await asyncio.sleep(0.1)
    model.gate.set()

    found = await asyncio.gather(*tasks)

    assert sorted(text for call in model.asked for text in call) == ["0", "1", "a"]
    assert len({tuple(vectors[0]) for vectors in found}) == 1


async def test_whoever_waits_goes_on_when_the_first_is_cancelled(
    cached: CachedEmbeddings, model: Counting
) -> None:
    model.gate = asyncio.Event()
    first = asyncio.create_task(cached.aembed("a"))
    await model.called.wait()
    second = asyncio.create_task(cached.aembed("a"))
    await asyncio.sleep(0.05)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    model.gate.set()

    assert await second == cached.embed("a")
    assert cached._under_way == {}


async def test_a_failure_reaches_everyone_and_is_not_kept(
    cached: CachedEmbeddings, model: Counting
) -> None:
    model.error = EmbeddingError("out of order")
    model.gate = asyncio.Event()
    tasks = [asyncio.create_task(cached.aembed("a")) for _ in range(3)]
    await asyncio.sleep(0.05)
    model.gate.set()

    assert [type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)] == [
        EmbeddingError
    ] * 3
    model.error = None
    assert len(await cached.aembed("a")) == 8


@pytest.mark.parametrize("answer", [[], [[1.0]], [[1.0] * 8] * 2])
def test_a_wrong_answer_is_not_kept(
    cached: CachedEmbeddings, model: Counting, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(model, "embed_many", lambda texts: answer)
        with pytest.raises(EmbeddingError, match="counting"):
            cached.embed("a")

    assert len(cached.embed("a")) == 8


def _damage_nothing_there(path: Path) -> None:
    path.mkdir()


def _damage_other_file(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)


def _damage_other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE vectors (mine)")


def _damage_pages(path: Path) -> None:
    CachedEmbeddings(Counting(), path).embed_many([str(number) for number in range(500)])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))


@pytest.mark.parametrize(
    "damage",
    [_damage_nothing_there, _damage_other_file, _damage_other_database, _damage_pages],
)
async def test_a_useless_file_is_passed_over_with_one_warning(path: Path, damage: Any) -> None:
    damage(path)
    before = path.read_bytes() if path.is_file() else b""
    cached = CachedEmbeddings(Counting(), path)

    with pytest.warns(RuntimeWarning, match="is not used") as caught:
        found = [cached.embed("7"), cached.embed("7"), await cached.aembed("7")]

    assert len(caught) == 1
    assert found == [CachedEmbeddings(Counting(), path.with_name("new")).embed("7")] * 3
    if damage is not _damage_pages:
        assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_locked_file_is_passed_over_and_used_again_later(model: Counting, path: Path) -> None:
    cached = CachedEmbeddings(model, path, busy_timeout=0.01)
    cached.embed("a")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.warns(RuntimeWarning, match="locked"):
            cached.embed("b")
        assert cached.embed("a")  # readers do not wait
        other.execute("ROLLBACK")
    cached.embed("b")
    model.asked.clear()

    cached.embed_many(["a", "b"])

    assert model.asked == []


def test_an_entry_of_the_wrong_size_is_ignored(
    cached: CachedEmbeddings, model: Counting, path: Path
) -> None:
    right = cached.embed("a")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE vectors SET vector = zeroblob(12)")

    assert cached.embed("a") == right
    assert cached.embed("a") == right
    assert model.asked == [["a"]] * 2


def _work(path: Path, worker: int, queue: Any) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        cached = CachedEmbeddings(Counting(), path, busy_timeout=30)
        for number in range(30):
            cached.embed_many([f"text {(number * 7 + worker) % 40}", "shared"])
    queue.put([str(one.message) for one in seen])


@pytest.mark.slow
def test_many_processes_share_a_file(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_work, args=(path, n, queue)) for n in range(3)]

    for worker in workers:
        worker.start()
    warned = [queue.get(timeout=HANG) for _ in workers]
    for worker in workers:
        worker.join(30)

    assert warned == [[], [], []]
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _fork_work(cached: CachedEmbeddings, queue: Any) -> None:
    queue.put((cached.embed("a"), cached.embed("child"), cached.hits))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_opens_the_file_itself(cached: CachedEmbeddings, model: Counting) -> None:
    expected = cached.embed("a")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_fork_work, args=(cached, queue))

    child.start()
    found, new, hits = queue.get(timeout=HANG)
    child.join(30)
    model.asked.clear()

    assert (found, hits) == (expected, 1)
    assert cached.embed("child") == new
    assert model.asked == []


@pytest.mark.parametrize(
    "settings",
    [{"max_entries": 0}, {"max_entries": -1}, {"busy_timeout": -1}, {"path": ":memory:"}],
)
def test_senseless_settings_are_refused(model: Counting, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        CachedEmbeddings(model, **{"path": "x.db", **settings})


def test_a_vector_of_zeros_is_passed_on_and_asked_for_again(tmp_path: Path) -> None:
    class Void(HashEmbeddings):
        def embed(self, text: str) -> list[float]:
            return [0.0] * self.dimension

    path = tmp_path / "vectors.db"

    assert CachedEmbeddings(Void(), path).embed("tea") == [0.0] * Void().dimension
    again = CachedEmbeddings(HashEmbeddings(), path).embed("tea")
    assert again == pytest.approx(HashEmbeddings().embed("tea"))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_vector_that_points_nowhere_is_refused_and_not_kept(
    tmp_path: Path, number: float
) -> None:
    class Broken(HashEmbeddings):
        is_broken = True

        def embed(self, text: str) -> list[float]:
            return [number] * self.dimension if self.is_broken else super().embed(text)

    broken = Broken()
    cached = CachedEmbeddings(broken, tmp_path / "vectors.db")

    with pytest.raises(EmbeddingError, match="not kept"):
        cached.embed("tea")
    broken.is_broken = False

    assert cached.embed("tea") == pytest.approx(HashEmbeddings().embed("tea"))
