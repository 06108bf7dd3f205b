"""`CachedEmbeddings` and details: kept with the vectors, in files that knew nothing of them too."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from orbiter.memory import LocalEmbeddings
from orbiter.memory.embeddings import CachedEmbeddings
from orbiter.memory.errors import EmbeddingError
from orbiter.memory.testing import HashEmbeddings

OLD = """
CREATE TABLE vectors (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  dimension INTEGER NOT NULL,
  digest BLOB NOT NULL,
  vector BLOB NOT NULL,
  UNIQUE (model, dimension, digest)
) STRICT;
PRAGMA application_id = 1868721526;
"""


class Detailed(HashEmbeddings):
    """Gives each text as many rows as it has letters, and remembers what it was asked."""

    def __init__(self, size: int = 4) -> None:
        super().__init__(8)
        self.size = size
        self.asked: list[list[str]] = []
        self.gate: asyncio.Event | None = None

    @property
    def name(self) -> str:
        return "detailed"

    @property
    def detail_dimension(self) -> int:
        return self.size

    def embed_many(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        return super().embed_many(texts)

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        return self.embed_many(texts)

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        self.asked.append(list(texts))
        if self.gate is not None:
            await self.gate.wait()
        return [(self.embed(text), text.encode() * self.size) for text in texts]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors.db"


async def test_cached_details_are_the_uncached_ones_exactly(path: Path) -> None:
    texts = ["Ann's door code is 4711.", "", "My kids love the beach."]
    local = LocalEmbeddings()
    plain = await local.aembed_details(texts)

    first = await CachedEmbeddings(local, path).aembed_details(texts)
    again = CachedEmbeddings(local, path)
    second = await again.aembed_details(texts)

    assert first == second == plain
    assert (again.hits, again.misses) == (3, 0)
    assert await again.aembed_many(texts) == [vector for vector, _ in plain]


async def test_the_model_is_asked_once_and_only_for_what_is_missing(path: Path) -> None:
    model = Detailed()
    cached = CachedEmbeddings(model, path)

    first = await cached.aembed_details(["a", "b", "a"])
    second = await cached.aembed_details(["b", "c"])
    vectors = await cached.aembed_many(["a", "c"])

    assert model.asked == [["a", "b"], ["c"]]
    assert first[0] == first[2] == (vectors[0], b"aaaa")
    assert second == [first[1], (vectors[1], b"cccc")]
    assert (cached.detail_dimension, cached.hits, cached.misses) == (4, 3, 3)
    assert await cached.aembed_details([]) == []


async def test_a_vector_kept_without_details_is_new_to_them(path: Path) -> None:
    model = Detailed()
    cached = CachedEmbeddings(model, path)
    vector = await cached.aembed("a")

    found = [await cached.aembed_details(["a"]) for _ in range(2)]

    assert found == [[(vector, b"aaaa")]] * 2
    assert model.asked == [["a"], ["a"]]


async def test_details_of_another_dimension_are_not_taken(path: Path) -> None:
    await CachedEmbeddings(Detailed(4), path).aembed_details(["a"])

    ((_, details),) = await CachedEmbeddings(Detailed(2), path).aembed_details(["a"])

    assert details == b"aa"


async def test_a_model_without_details_finds_its_vectors(path: Path) -> None:
    model = Detailed(0)
    cached = CachedEmbeddings(model, path)
    vector = await cached.aembed("a")

    assert await cached.aembed_details(["a"]) == [(vector, b"")]
    assert model.asked == [["a"]]


async def test_an_old_file_is_opened_and_its_vectors_used(path: Path) -> None:
    new = path.with_name("new.db")
    vector = CachedEmbeddings(Detailed(), new).embed("a")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.executescript(OLD)
        file.execute("ATTACH ? AS new", (str(new),))
        file.execute(
            "INSERT INTO vectors SELECT id, model, dimension, digest, vector FROM new.vectors"
        )
    model = Detailed()
    cached = CachedEmbeddings(model, path)

    assert cached.embed("a") == vector
    assert model.asked == []
    assert await cached.aembed_details(["a"]) == [(vector, b"aaaa")]
    assert model.asked == [["a"]]
    assert await CachedEmbeddings(model, path).aembed_details(["a"]) == [(vector, b"aaaa")]
    assert model.asked == [["a"]]


async def test_damaged_details_are_worked_out_again(path: Path) -> None:
    model = Detailed()
    cached = CachedEmbeddings(model, path)
    right = await cached.aembed_details(["a"])
    for damage in ("zeroblob(3)", "NULL"):
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute(f"UPDATE vectors SET details = {damage}")
        assert await cached.aembed_details(["a"]) == right

    assert model.asked == [["a"]] * 3


async def test_tasks_that_ask_for_one_text_share_one_call(path: Path) -> None:
    model = Detailed()
    model.gate = asyncio.Event()
    cached = CachedEmbeddings(model, path)
    tasks = [asyncio.create_task(cached.aembed_details(["a"])) for _ in range(4)]
    await asyncio.sleep(0.1)
    model.gate.set()

    found = await asyncio.gather(*tasks)

    assert model.asked == [["a"]]
    assert found == [found[0]] * 4
    assert cached._details_under_way == {}


@pytest.mark.parametrize(
    "answer", [[], [([1.0], b"")], [([1.0] * 8, b"123")], [([1.0] * 8, b"")] * 2]
)
async def test_a_wrong_answer_is_not_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch, answer: list[tuple[list[float], bytes]]
) -> None:
    async def wrong(texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        return answer

    model = Detailed()
    cached = CachedEmbeddings(model, path)
    with monkeypatch.context() as patch:
        patch.setattr(model, "aembed_details", wrong)
        with pytest.raises(EmbeddingError, match="detailed"):
            await cached.aembed_details(["a"])

    assert (await cached.aembed_details(["a"]))[0][1] == b"aaaa"


async def test_a_useless_file_is_passed_over_with_one_warning(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)
    cached = CachedEmbeddings(Detailed(), path)

    with pytest.warns(RuntimeWarning, match="is not used") as caught:
        found = [await cached.aembed_details(["a"]) for _ in range(2)]

    assert len(caught) == 1
    assert found[0] == found[1]
    assert found[0][0][1] == b"aaaa"
