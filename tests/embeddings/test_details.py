"""Details: the vectors of words, beside a text's own and from the same run."""

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import orbiter_memory_minilm
import pytest

from orbiter.memory import LocalEmbeddings
from orbiter.memory.embeddings._minilm import MAX_ROWS, code
from orbiter.memory.errors import EmbeddingError
from orbiter.memory.testing import HashEmbeddings

TEXTS = [
    "Ann's door code is 4711.",
    "",
    "The cat sat on the mat; " * 3,
    "東京で会いましょう",
    "I \U0001f600 it",
    "what is it?",
    "harvest oxygen " * 200,
]


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


async def rows(local: LocalEmbeddings, text: str) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
    ((_, details),) = await local.aembed_details([text])
    return np.frombuffer(details, dtype=np.int8).reshape(-1, local.detail_dimension)


@pytest.mark.slow
async def test_the_vector_is_that_of_aembed_bit_for_bit(local: LocalEmbeddings) -> None:
    found = await local.aembed_details(TEXTS)

    assert [vector for vector, _ in found] == await local.aembed_many(TEXTS)
    assert await local.aembed_details([]) == []


@pytest.mark.parametrize(
    "text",
    ["Ann's door code is 4711.", "I'm not there, and you'll cook!", "unaffable", "what is it?", ""],
)
async def test_each_word_has_a_row(local: LocalEmbeddings, text: str) -> None:
    expected = local.token_vectors(text) @ np.load(orbiter_memory_minilm.DETAILS)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)

    found = await rows(local, text)

    assert found.shape == (len(local.tokens(text)), 64)
    assert np.abs(found - 127 * expected).max(initial=0) < 0.501


@pytest.mark.slow
async def test_a_text_has_the_same_details_whatever_is_beside_it(local: LocalEmbeddings) -> None:
    alone = [(await local.aembed_details([text]))[0] for text in TEXTS]

    batched, *others = await asyncio.gather(
        local.aembed_details(TEXTS * 3), *(local.aembed_details([text]) for text in TEXTS)
    )

    assert batched == alone * 3
    assert [other for (other,) in others] == alone
    assert await LocalEmbeddings().aembed_details(TEXTS[::-1]) == alone[::-1]


async def test_a_long_text_has_the_rows_of_its_first_words(local: LocalEmbeddings) -> None:
    # 300 pieces, read in two parts of 150.
    short, first, second = "harvest oxygen " * 75, "harvest " * 150, "oxygen " * 150

    both = await rows(local, first + second)

    assert len(await rows(local, short)) == 150
    assert (
        both.tobytes()
        == np.concatenate([await rows(local, first), await rows(local, second)])[
            :MAX_ROWS
        ].tobytes()
    )
    assert len(both) == MAX_ROWS == 256


@pytest.mark.parametrize(
    ("sentence", "word", "near", "far"),
    [
        ("My kids love the beach.", "kids", "children", "engine"),
        ("She bought a new car last week.", "car", "vehicle", "soup"),
        ("The doctor told me to rest.", "doctor", "physician", "violin"),
    ],
)
async def test_near_words_are_near(
    local: LocalEmbeddings, sentence: str, word: str, near: str, far: str
) -> None:
    place = local.tokens(sentence).index(word)
    row = (await rows(local, sentence))[place].astype(int)

    nearness = [int(row @ (await rows(local, other))[0]) / 127**2 for other in (near, far)]

    assert nearness[0] > nearness[1] + 0.2


async def test_words_alone_are_as_near_in_64_bytes_as_in_384_numbers(
    local: LocalEmbeddings,
) -> None:
    words = local.tokens("kids children beach ocean engine motor car soup bread doctor nurse")
    full = np.concatenate([local.token_vectors(word) for word in words])
    coded = np.concatenate([await rows(local, word) for word in words]).astype(int) / 127
    pairs = np.triu_indices(len(words), 1)

    together = np.corrcoef((full @ full.T)[pairs], (coded @ coded.T)[pairs])[0, 1]

    assert together > 0.9


def test_a_row_of_zeros_stays_one() -> None:
    nothing = np.zeros((1, 384), dtype=np.float32)

    assert code(nothing, np.load(orbiter_memory_minilm.DETAILS)) == bytes(64)


async def test_a_model_without_details_has_none() -> None:
    model = HashEmbeddings(8)

    assert model.detail_dimension == 0
    assert await model.aembed_details(["a", "b"]) == [
        (await model.aembed("a"), b""),
        (await model.aembed("b"), b""),
    ]


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY", b"pickle"])
async def test_a_damaged_file_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    damaged = tmp_path / "details.npy"
    if content is not None:
        damaged.write_bytes(content)
    monkeypatch.setattr(orbiter_memory_minilm, "DETAILS", damaged)
    local = LocalEmbeddings()

    with pytest.raises(EmbeddingError, match="pip install --force-reinstall"):
        await local.aembed_details(["x"])
    assert len(await local.aembed("x")) == 384


async def test_a_file_of_another_shape_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    np.save(tmp_path / "details.npy", np.zeros((384, 32), dtype=np.float32))
    monkeypatch.setattr(orbiter_memory_minilm, "DETAILS", tmp_path / "details.npy")

    with pytest.raises(EmbeddingError, match=r"float32 \(384, 32\)"):
        await LocalEmbeddings().aembed_details(["x"])


@pytest.mark.slow
def test_a_vector_alone_does_not_read_the_file() -> None:
    code = """
from orbiter.memory import LocalEmbeddings
local = LocalEmbeddings()
local.embed("hello")
print(local._engine.model()._projection is None, local.detail_dimension)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "64"]


async def test_the_projection_keeps_what_words_have_in_common(local: LocalEmbeddings) -> None:
    matrix = np.load(orbiter_memory_minilm.DETAILS)
    assert (matrix.shape, matrix.dtype) == ((384, 64), np.float32)
    assert np.linalg.matrix_rank(matrix) == 64

    words = ("puppy", "dog", "physician", "doctor", "ocean", "sea")
    made = [rows for _, rows in await local.aembed_details(words)]
    vectors = [np.frombuffer(rows, np.int8).astype(np.float32) for rows in made]
    near = dict(zip(words, vectors, strict=True))

    for word, other in zip(words[::2], words[1::2], strict=True):
        assert max(words, key=lambda each: each != word and near[word] @ near[each]) == other
