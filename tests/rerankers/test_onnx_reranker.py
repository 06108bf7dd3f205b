"""`OnnxReranker` with models of a few bytes, each run by ONNX Runtime."""

import asyncio
import math
import multiprocessing
import threading
from pathlib import Path

import pytest
from tests.rerankers.tiny_models import (
    VOCABULARY,
    by_length,
    by_shared_words,
    by_two_classes,
    write,
)

from orbiter.memory.errors import QueryError, RerankError
from orbiter.memory.rerankers import HttpReranker, OnnxReranker, Reranker, open_reranker

QUESTION = "Where does Eva live?"
TEXTS = ["green tea", "Eva lives in Oslo.", "She lives in Oslo.", ""]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "shared", by_shared_words())


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


async def test_question_and_text_are_read_together(folder: Path) -> None:
    reranker = OnnxReranker(folder)

    scores = await reranker.rerank(QUESTION, TEXTS)

    # Two pieces in common, "eva" and "live"; one; none.
    assert scores == pytest.approx([sigmoid(each) for each in (-3, 1, -1, -3)])
    assert isinstance(reranker, Reranker)
    assert repr(reranker) == f"OnnxReranker('{folder}')"


async def test_numbers_are_had_as_they_are(folder: Path) -> None:
    reranker = OnnxReranker(folder / "model.onnx", folder / "vocab.txt", activation="none")

    assert await reranker.rerank(QUESTION, TEXTS) == [-3, 1, -1, -3]
    assert await reranker.rerank(QUESTION, []) == []


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_the_size_of_batches_changes_nothing(folder: Path, size: int) -> None:
    texts = [f"{'green ' * (number % 7)}eva" for number in range(23)]

    scores = await OnnxReranker(folder, batch_size=size).rerank(QUESTION, texts)

    assert scores == await OnnxReranker(folder).rerank(QUESTION, texts)
    assert len(scores) == 23


@pytest.mark.parametrize("kind", [7, 6])
async def test_a_model_may_have_no_token_types_and_short_integers(
    tmp_path: Path, kind: int
) -> None:
    reranker = OnnxReranker(write(tmp_path / "length", by_length(kind)), activation="none")

    # Three pieces around "where does eva live ?", and "green tea".
    assert await reranker.rerank(QUESTION, ["green tea", "tea"]) == [10, 9]


async def test_of_two_classes_the_second_says_yes(tmp_path: Path) -> None:
    reranker = OnnxReranker(write(tmp_path / "two", by_two_classes()))

    [score] = await reranker.rerank("tea?", ["tea"])

    assert score == pytest.approx(sigmoid(6 - 1))


async def test_a_long_pair_is_cut_the_longer_text_first(tmp_path: Path) -> None:
    folder = write(tmp_path / "length", by_length())
    reranker = OnnxReranker(folder, activation="none", max_tokens=13)

    scores = await reranker.rerank("tea " * 5, ["green", "green " * 5, "green " * 500])
    long = await reranker.rerank("tea " * 500, ["green", "green " * 500])

    assert scores == [9, 13, 13]
    assert long == [13, 13]


async def test_the_end_of_a_long_question_goes_before_a_short_text(folder: Path) -> None:
    reranker = OnnxReranker(folder, activation="none", max_tokens=13)

    [kept] = await reranker.rerank("green " * 500, ["green"])
    [cut] = await reranker.rerank("tea " * 9 + "green", ["green green"])

    assert kept == 2 * 9 - 3
    assert cut == -3


async def test_capitals_count_where_the_model_is_cased(tmp_path: Path) -> None:
    folder = write(tmp_path / "cased", by_shared_words(), (*VOCABULARY, "Eva", "Zoë"))
    reranker = OnnxReranker(folder, activation="none", cased=True)

    assert await reranker.rerank("Eva Zoë", ["Eva", "eva", "Zoë"]) == [-1, -3, -1]


async def test_the_settings_beside_a_vocabulary_tell_whether_capitals_count(tmp_path: Path) -> None:
    folder = write(tmp_path / "cased", by_shared_words(), (*VOCABULARY, "Eva"))
    settings = folder / "tokenizer_config.json"

    settings.write_text('{"do_lower_case": false}', encoding="utf-8")
    told = await OnnxReranker(folder, activation="none").rerank("Eva", ["Eva", "eva"])
    given = await OnnxReranker(folder, activation="none", cased=False).rerank("Eva", ["eva"])
    settings.write_text('{"do_lower_case": true}', encoding="utf-8")
    lower = await OnnxReranker(folder, activation="none").rerank("Eva", ["Eva", "eva"])
    settings.write_text("no JSON", encoding="utf-8")
    with pytest.raises(RerankError, match="is not a WordPiece vocabulary"):
        await OnnxReranker(folder).rerank("Eva", ["eva"])

    assert told == [-1, -3]
    assert given == [-1]
    assert lower == [-1, -1]


async def test_a_folder_may_have_its_model_in_another(folder: Path) -> None:
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")

    assert await OnnxReranker(folder, activation="none").rerank(QUESTION, TEXTS) == [-3, 1, -1, -3]


async def test_what_a_text_says_of_marks_is_text(folder: Path) -> None:
    [score] = await OnnxReranker(folder, activation="none").rerank("eva", ["[SEP] eva [PAD]"])

    assert score == -1


async def test_it_never_runs_on_the_thread_of_the_event_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = OnnxReranker(folder, batch_size=1)
    threads: set[str] = set()
    scores, pairs = reranker._scores, reranker._pairs

    def noted(*args: object) -> object:
        threads.add(threading.current_thread().name)
        return (pairs if len(args) == 2 else scores)(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(reranker, "_scores", noted)
    monkeypatch.setattr(reranker, "_pairs", noted)
    await asyncio.gather(*(reranker.rerank(QUESTION, TEXTS) for _ in range(5)))

    assert threads
    assert all(name.startswith("orbiter-rerank") for name in threads)


def test_making_one_reads_no_file() -> None:
    assert OnnxReranker("nowhere/model.onnx").model == Path("nowhere/model.onnx")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_tokens": 7}, "`max_tokens` must be 8 or more"),
        ({"batch_size": 0}, "`batch_size` must be 1 or more"),
        ({"activation": "tanh"}, "`sigmoid` or `none`, not 'tanh'"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(QueryError, match=told):
        OnnxReranker("model.onnx", **settings)  # type: ignore[arg-type]


async def test_files_that_are_missing_or_no_model_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "damaged", b"no model")
    with pytest.raises(RerankError, match=r"no file `.*gone.onnx`"):
        await OnnxReranker(tmp_path / "gone.onnx").rerank("a", ["b"])
    with pytest.raises(RerankError, match=r"model.onnx` cannot be loaded as an ONNX model"):
        await OnnxReranker(folder).rerank("a", ["b"])
    (folder / "vocab.txt").write_text("a\nb\n", encoding="utf-8")
    with pytest.raises(RerankError, match=r"vocab.txt` is not a WordPiece vocabulary"):
        await OnnxReranker(folder).rerank("a", ["b"])
    (folder / "vocab.txt").unlink()
    with pytest.raises(RerankError, match=r"no file `.*vocab.txt`"):
        await OnnxReranker(folder).rerank("a", ["b"])


async def test_a_model_that_gives_no_number_for_a_pair_is_refused(tmp_path: Path) -> None:
    reranker = OnnxReranker(write(tmp_path / "three", by_two_classes(3)))

    with pytest.raises(RerankError, match=r"gives \(1, 3\) for 1 pairs"):
        await reranker.rerank("tea?", ["tea"])


def _in_child(reranker: OnnxReranker) -> None:
    assert asyncio.run(reranker.rerank(QUESTION, TEXTS[:2])) == [-3, 1]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
async def test_a_child_of_a_fork_uses_it_too(folder: Path) -> None:
    reranker = OnnxReranker(folder, activation="none")
    await reranker.rerank(QUESTION, TEXTS)

    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(reranker,))
    child.start()
    await asyncio.to_thread(child.join, 60)

    assert child.exitcode == 0


def test_a_place_names_a_file_or_a_service() -> None:
    file, service = open_reranker("models/x"), open_reranker("https://api.example/v1/rerank")
    named = open_reranker("http://127.0.0.1:1/rerank?model=tiny", api_key="secret")

    assert isinstance(file, OnnxReranker)
    assert file.model == Path("models/x")
    assert isinstance(service, HttpReranker)
    assert repr(service) == "HttpReranker('https://api.example/v1/rerank')"
    assert repr(named) == "HttpReranker('http://127.0.0.1:1/rerank', model='tiny')"
