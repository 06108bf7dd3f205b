"""Caches of what was worked out about texts: bounded by bytes, however long the texts are."""

import sys
import threading
from collections import Counter

import pytest
from tests.rows import each_row

import orbiter.memory.recall  # noqa: F401 - loads the modules whose caches are looked at
from orbiter.memory.backends.sqlite.term_index import _short, token
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.recall import _features, near_duplicates
from orbiter.memory.recall._features import terms_of
from orbiter.memory.recall.near_duplicates import find_clusters, text_tokens
from orbiter.memory.text import words
from orbiter.memory.text.text_caches import (
    TextCache,
    WordCache,
    _size_of,
    clear_all,
    text_cache,
)


def _long(number: int) -> str:
    return f"number {number}: " + "every word is one of few, " * 5_000


def _caches() -> list[TextCache[object]]:
    found = (value for module in (_features, near_duplicates) for value in vars(module).values())
    return [value for value in found if isinstance(value, TextCache)]


def test_every_cache_of_recall_is_bounded_by_bytes() -> None:
    others = {
        key
        for name, module in list(sys.modules.items())
        if name.startswith("orbiter.memory.recall")
        for key, value in vars(module).items()
        if hasattr(value, "cache_info") and not isinstance(value, TextCache | type)
    }

    word_lists = {
        "_before_terms",
        "_forms",
        "_phrases",
        "_signs",
        "_tables",
        "_time_words",
        "_unspaced",
    }
    assert others - word_lists == {"written"}  # of 16 questions, which are short
    assert len(_caches()) >= 4


def test_a_cache_answers_for_many_texts_as_for_each() -> None:
    counted: list[str] = []

    @text_cache(max_bytes=10_000)
    def lengths(text: str) -> int:
        counted.append(text)
        return len(text)

    lengths("tea")

    assert lengths.of_all(["tea", "coffee", "tea"]) == [3, 6, 3]
    assert lengths.of_all(["coffee", "tea"]) == [6, 3]
    assert counted == ["tea", "coffee"]


@pytest.mark.slow
def test_long_texts_fill_no_cache_beyond_its_bytes() -> None:
    clear_all()
    items = [MemoryItem(content=_long(number)) for number in range(8)]

    for item in items:
        find_clusters([item])
        terms_of(item)
        text_tokens(item.content)

    for cache in _caches():
        info = cache.cache_info()
        assert info.bytes <= info.max_bytes
        assert info.max_bytes <= 32 * 2**20
    clear_all()
    assert all(cache.cache_info().bytes == 0 for cache in _caches())


def test_words_that_were_met_are_forgotten_with_the_caches() -> None:
    words.terms_of(["zanzibar"])
    assert "zanzibar" in words._TERMS["en"]

    clear_all()

    assert not any("zanzibar" in terms for terms in words._TERMS.values())


def test_a_cache_of_words_asks_once_for_each_that_is_short() -> None:
    asked: list[str] = []

    @WordCache
    def length(word: str) -> int:
        asked.append(word)
        return len(word)

    long = "x" * 1_000
    assert list(map(length.__getitem__, ("tea", "oolong", "tea", long, long))) == [
        3,
        6,
        3,
        *[1_000] * 2,
    ]
    assert asked == ["tea", "oolong", long, long]

    for number in range(60_000):
        length[str(number)]
    assert len(length) <= 50_000


def test_a_cache_counts_what_it_holds_and_gives_up_the_oldest() -> None:
    asked: list[str] = []

    @text_cache(max_bytes=100_000)
    def letters(text: str) -> Counter[str]:
        asked.append(text)
        return Counter(text)

    texts = [chr(97 + n) * 20_000 for n in range(8)]
    for text in [*texts, texts[-1]]:
        assert letters(text) == Counter(text)

    assert asked == texts  # the last one was remembered
    assert 0 < letters.cache_info().currsize < len(texts)
    assert letters.cache_info().bytes <= 100_000
    letters(texts[0])
    assert asked == [*texts, texts[0]]  # the first one was given up


@each_row("cache", _caches(), ids=lambda cache: cache.__name__)
@each_row(
    "text",
    [
        "hi",
        "It is 5 or 7, not 9. " * 40,
        "every word is another: " + " ".join(map(str, range(500))),
    ],
    ids=["short", "long", "numbers"],
)
def test_the_bytes_of_an_answer_are_not_underestimated(cache: TextCache[object], text: str) -> None:
    cache.cache_clear()

    answer = cache(text)

    assert cache.cache_info().bytes >= 0.7 * _size_of(answer)


def test_what_is_larger_than_the_whole_cache_is_worked_out_and_not_kept() -> None:
    @text_cache(max_bytes=1_000)
    def doubled(text: str) -> str:
        return text * 2

    assert doubled("x" * 5_000) == "x" * 10_000
    assert doubled.cache_info().currsize == 0


def test_a_failure_is_not_remembered() -> None:
    @text_cache(max_bytes=1_000)
    def number(text: str) -> int:
        return int(text)

    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            number("x")
    assert number("7") == 7


def test_threads_may_share_a_cache() -> None:
    @text_cache(max_bytes=20_000)
    def length(text: str) -> int:
        return len(text)

    def work() -> None:
        for number in range(2_000):
            assert length("x" * (number % 300)) == number % 300

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert length.cache_info().bytes <= 20_000


def test_a_term_that_no_index_holds_is_not_kept() -> None:
    _short.cache_clear()

    held = {token("x" * 100_000 + str(number)) for number in range(50)}

    assert len(held) == 50
    assert _short.cache_info().currsize == 0
