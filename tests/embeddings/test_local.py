"""`LocalEmbeddings` with the real model."""

import asyncio
import math
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orbiter_memory_minilm
import pytest
from tests.timing import HANG

from orbiter.memory import (
    Embeddings,
    LocalEmbeddings,
    MemoryItem,
    MemoryMetadata,
    SQLiteMemoryStore,
)
from orbiter.memory.embeddings import _minilm
from orbiter.memory.embeddings._minilm import MAX_CHARS, MAX_PARTS, ROOM, shorten, split, spread
from orbiter.memory.embeddings.local import _RECENT
from orbiter.memory.errors import EmbeddingError
from orbiter.memory.recall import recall

TEXTS = [
    "Ann's door code is 4711.",
    "",
    "The cat sat on the mat; " * 3,
    "東京で会いましょう",
    "¿Dónde está la biblioteca?",
    "I \U0001f600 it",
    "word " * 300,
]


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_vectors_are_plain_numbers_of_length_one(local: LocalEmbeddings) -> None:
    assert isinstance(local, Embeddings)
    assert (local.name, local.dimension) == (orbiter_memory_minilm.NAME, 384)
    for text in TEXTS:
        vector = local.embed(text)
        assert len(vector) == 384
        assert {type(number) for number in vector} == {float}
        assert vector == np.asarray(vector, dtype=np.float32).tolist()
        assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-5)


@pytest.mark.slow
def test_the_runtime_reports_nothing_to_its_maker(tmp_path: Path) -> None:
    # Where it does, it begins with a file in the folder for temporary ones.
    code = "from orbiter.memory import LocalEmbeddings; LocalEmbeddings().embed('hello')"
    reporting = {name for name in os.environ if name.startswith("ORT_")}
    clean = {name: value for name, value in os.environ.items() if name not in reporting}

    subprocess.run([sys.executable, "-c", code], env={**clean, "TMPDIR": str(tmp_path)}, check=True)

    assert list(tmp_path.iterdir()) == []


def test_what_means_the_same_is_near(local: LocalEmbeddings) -> None:
    question = local.embed("Which number opens the entrance?")

    near = cosine(question, local.embed("Ann's door code is 4711."))
    far = cosine(question, local.embed("The soup was too salty for my taste."))

    assert near > far + 0.2


def test_it_is_the_model_it_says_it_is(local: LocalEmbeddings) -> None:
    a, b, c = map(
        local.embed,
        ("A man is eating food.", "A man is eating a meal.", "The sky is blue and far away."),
    )

    # The original weights, in full precision, give these.
    assert cosine(a, b) == pytest.approx(0.926, abs=0.05)
    assert cosine(a, c) == pytest.approx(-0.017, abs=0.05)


def test_case_and_accents_do_not_count(local: LocalEmbeddings) -> None:
    assert local.embed("Café in ZÜRICH") == local.embed("cafe in zurich")


def test_texts_without_a_word_have_the_vector_of_the_empty_text(local: LocalEmbeddings) -> None:
    assert local.embed("") == local.embed(" \n\t\u200b")
    assert local.embed("") != local.embed("x")


@pytest.mark.slow
async def test_a_text_has_one_vector_whatever_is_beside_it(local: LocalEmbeddings) -> None:
    alone = [local.embed(text) for text in TEXTS]

    batched, *others = await asyncio.gather(
        local.aembed_many(TEXTS * 3), *(local.aembed(text) for text in TEXTS)
    )

    assert batched == alone * 3
    assert others == alone
    assert local.embed_many(TEXTS) == alone
    assert LocalEmbeddings().embed_many(TEXTS) == alone


def test_threads_share_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []

    class Counted(_minilm.MiniLM):
        def __init__(self) -> None:
            loaded.append(1)
            super().__init__()

    monkeypatch.setattr(_minilm, "MiniLM", Counted)
    shared = LocalEmbeddings()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(shared.embed, ["one text"] * 8))

    assert len(loaded) == 1
    assert found == [found[0]] * 8


async def test_the_loop_goes_on_meanwhile(local: LocalEmbeddings) -> None:
    threads: set[str] = set()

    def seen(text: str) -> str:
        threads.add(threading.current_thread().name)
        return text

    await local._engine.at_once(seen, "x")
    await local._engine.many(seen, ["x", "y"])
    await local.aembed("x")

    assert threads
    assert threading.current_thread().name not in threads


async def test_a_query_does_not_stand_behind_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    first, go_on = threading.Event(), threading.Event()
    local = LocalEmbeddings()

    def embed(text: str) -> list[float]:
        if text != "query":
            first.set()
            go_on.wait(HANG)
        return [0.0]

    monkeypatch.setattr(local, "embed", embed)
    many = asyncio.create_task(local.aembed_many([str(number) for number in range(50)]))
    await asyncio.to_thread(first.wait, HANG)

    await asyncio.wait_for(local.aembed("query"), HANG)
    assert not many.done()

    go_on.set()
    await many


async def test_a_query_that_was_asked_lately_is_not_worked_out_again(
    local: LocalEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, again = LocalEmbeddings(), "Where does she live?"
    runs: list[str] = []
    details = asked._details

    def _details(text: str) -> tuple[list[float], bytes]:
        runs.append(text)
        return details(text)

    monkeypatch.setattr(asked, "_details", _details)
    [first] = await asked.aembed_details([again])
    first[0][0] = 5.0  # whoever was answered may do so
    answers = [await asked.aembed_details([again]) for _ in range(3)]
    for number in range(_RECENT):
        await asked._engine.at_once(str, f"{number}")
    [last] = await asked.aembed_details([again])

    assert runs == [again, again]
    assert answers == [[last]] * 3
    assert await asked.aembed(again) == last[0] == local.embed(again)


async def test_a_query_and_a_single_text_stand_behind_no_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, go_on = threading.Event(), threading.Event()
    local = LocalEmbeddings()

    def _details(text: str) -> tuple[list[float], bytes]:
        if text != "query":
            first.set()
            go_on.wait(HANG)
        return [0.0], b""

    monkeypatch.setattr(local, "_details", _details)
    many = asyncio.create_task(local.aembed_details([str(number) for number in range(50)]))
    await asyncio.to_thread(first.wait, HANG)

    await asyncio.wait_for(local.aembed_details(["query"]), HANG)
    assert not many.done()

    go_on.set()
    await many


async def test_cancelling_begins_no_further_text(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    first, go_on = threading.Event(), threading.Event()
    local = LocalEmbeddings()

    def embed(text: str) -> list[float]:
        begun.append(text)
        first.set()
        go_on.wait(10)
        return [0.0]

    monkeypatch.setattr(local, "embed", embed)
    task = asyncio.create_task(local.aembed_many([str(number) for number in range(50)]))
    await asyncio.to_thread(first.wait, 10)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await local._engine.many(str, ["after those under way"])

    assert len(begun) <= 2


def test_a_long_text_is_the_mean_of_its_parts(local: LocalEmbeddings) -> None:
    # 255 words of one piece each: a part of 128 and one of 127.
    whole = local.embed("harvest " * 155 + "oxygen " * 100)
    first, second = local.embed("harvest " * 128), local.embed("harvest " * 27 + "oxygen " * 100)

    mean = 128 * np.asarray(first) + 127 * np.asarray(second)

    assert whole == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)
    assert first != second


def test_parts_are_even_whole_and_in_order() -> None:
    for sizes in ([1] * 255, [3] * 400, [100] * 30, [1, 100] * 50, [1] * 254, [], [2, 1] * 999):
        words = [tuple(range(size)) for size in sizes]
        parts = list(split(words))
        lengths = [sum(map(len, part)) for part in parts]

        assert [word for part in parts for word in part] == words
        assert max(lengths) <= ROOM
        assert len(parts) <= 1 + 2 * sum(sizes) // ROOM
        if max(sizes, default=0) <= 3:
            assert len(parts) == max(1, math.ceil(sum(sizes) / ROOM))
            assert max(lengths) - min(lengths) <= 2 * max(sizes, default=0)


def test_a_huge_text_is_read_all_over_and_in_bounded_work() -> None:
    parts: list[list[tuple[int, ...]]] = [[(number,)] for number in range(1000)]
    chosen = [part[0][0] for part in spread(parts, MAX_PARTS)]
    text = shorten("a" * 10**7 + "z" * 10**7)

    assert len(chosen) == MAX_PARTS
    assert (chosen[0], chosen[-1]) == (0, 999)
    assert max(b - a for a, b in pairwise(chosen)) <= 33
    assert len(text) <= MAX_CHARS + MAX_PARTS
    assert text.count("a") == text.count("z")


def test_every_token_has_a_vector(local: LocalEmbeddings) -> None:
    text = "The unaffable 東京 cat"
    vectors = local.token_vectors(text)

    assert local.tokens(text) == ["the", "una", "##ffa", "##ble", "東", "京", "cat"]
    assert vectors.shape == (7, 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert local.token_vectors("").shape == (0, 384)
    long = "the cat " * 200
    assert local.token_vectors(long).shape == (len(local.tokens(long)), 384)


async def test_a_tokens_vector_knows_its_neighbours(local: LocalEmbeddings) -> None:
    bank = {name: local.tokens(name).index("bank") for name in SENSES}
    vectors = {name: await local.atoken_vectors(name) for name in SENSES}
    river, shore, money = (vectors[name][bank[name]] for name in SENSES)

    assert float(river @ shore) > float(river @ money)


SENSES = (
    "they sat on the bank of the river",
    "reeds grow along the bank of the stream",
    "she opened an account at the bank in town",
)


def _in_child(local: LocalEmbeddings, queue: Any) -> None:
    queue.put((local.embed("fork"), asyncio.run(local.aembed_many(["fork", "knife"]))))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_model_and_threads_of_its_own(local: LocalEmbeddings) -> None:
    expected = local.embed("fork"), asyncio.run(local.aembed_many(["fork", "knife"]))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(local, queue))

    child.start()
    found = queue.get(timeout=HANG)
    child.join(30)

    assert found == expected
    assert child.exitcode == 0


def test_a_damaged_model_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    damaged = tmp_path / "model.onnx"
    damaged.write_bytes(orbiter_memory_minilm.MODEL.read_bytes()[:100_000])
    monkeypatch.setattr(orbiter_memory_minilm, "MODEL", damaged)

    with pytest.raises(EmbeddingError, match="pip install --force-reinstall"):
        LocalEmbeddings().embed("x")


@pytest.mark.parametrize("module", ["numpy", "onnxruntime", "orbiter_memory_minilm"])
def test_a_missing_part_is_named_with_its_cure(module: str) -> None:
    code = f"""
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == {module!r} else find(name)
from orbiter.memory import LocalEmbeddings
try:
    LocalEmbeddings()
except ModuleNotFoundError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    named = module.replace("_", "-")
    cure = "pip install 'orbiter-memory[local]'"
    assert done.stdout.strip() == f"LocalEmbeddings needs {named}: {cure}"


@pytest.mark.slow
def test_making_one_loads_nothing_and_the_process_ends_by_itself() -> None:
    code = """
import asyncio, sys
from orbiter.memory import LocalEmbeddings
local = LocalEmbeddings()
print(sorted({"numpy", "onnxruntime"} & set(sys.modules)))
print(len(asyncio.run(local.aembed("hello"))))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG,
    )

    assert done.stdout.split("\n")[:2] == ["[]", "384"]
    assert done.stderr == ""


class Before(LocalEmbeddings):
    """What stores know as the model before."""

    name = "all-MiniLM-L6-v2/int8"
    replaces = ()


async def test_a_store_of_the_model_before_is_embedded_again(
    local: LocalEmbeddings, tmp_path: Path
) -> None:
    ann = MemoryMetadata(user_id="ann")
    async with SQLiteMemoryStore(tmp_path / "m.db", embeddings=Before()) as store:
        for text in ("I love hiking in the mountains", "We use Postgres at work"):
            await store.add(MemoryItem(content=text, metadata=ann))
        await store.catch_up()

    async with SQLiteMemoryStore(tmp_path / "m.db", embeddings=local) as store:
        [by_words] = await recall(store, "mountains", scope=ann, mode="words", k=1)
        await store.catch_up()
        [by_meaning] = await recall(store, "outdoor activities", scope=ann, mode="meaning", k=1)

    assert by_words.item.content == by_meaning.item.content == "I love hiking in the mountains"
