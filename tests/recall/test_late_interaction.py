"""Late interaction: token vectors of the query against those of the best candidates."""

from typing import Any, ClassVar

import pytest
from tests.recall.pools import ask, pool, talk
from tests.rows import each_row

from orbiter.memory.recall import _rerank
from orbiter.memory.recall._features import FeatureTable
from orbiter.memory.recall._rerank import add_details
from orbiter.memory.recall._signals import measure

np = pytest.importorskip("numpy")

RED, TEA, ODD = bytes([127, 0, 0]), bytes([0, 127, 0]), bytes([0, 0, 127])


def _table(*contents: str) -> FeatureTable:
    return measure(ask("x"), pool(talk(*contents)))


def _looked(
    table: FeatureTable, asked: bytes, kept: dict[str, list[bytes]], places: list[int] | None = None
) -> tuple[list[float], list[float]]:
    places = list(range(len(table.items))) if places is None else places
    add_details(table, places, query_token_vectors=asked, kept=kept, dimension=3)
    return table.columns["detail"], table.columns["neighbour_detail"]


def test_what_meets_more_words_of_the_question_is_ahead() -> None:
    alone, _ = _looked(
        _table("a", "b", "c"), RED + TEA, {"0": [RED + TEA], "1": [RED + ODD], "2": [ODD]}
    )

    assert alone[0] > alone[1] > alone[2]


def test_the_order_of_words_and_more_of_them_change_nothing() -> None:
    alone, _ = _looked(
        _table("a", "b", "c"), RED + TEA, {"0": [RED + TEA], "1": [TEA + ODD + RED], "2": [ODD]}
    )

    assert alone[0] == alone[1]


def test_a_text_counts_by_its_best_passage() -> None:
    alone, _ = _looked(
        _table("a", "b"), RED + TEA, {"0": [ODD, RED + TEA, b""], "1": [RED, TEA, ODD]}
    )

    assert alone[0] > alone[1]


def test_a_word_that_half_of_them_meet_counts_less_than_one_that_a_single_one_meets() -> None:
    half, one = bytes([127, 25, 0]), bytes([38, 102, 0])
    kept = {"0": [half], "1": [one], "2": [half], "3": [bytes([38, 25, 0])]}

    alone, _ = _looked(_table("a", "b", "c", "d"), RED + TEA, kept)

    assert alone[1] > alone[0] == alone[2] > alone[3]


def test_neighbours_may_meet_a_word_for_the_talk_but_not_for_the_item_alone() -> None:
    table = _table("a", "b", "c", "d", "e")
    kept = {"0": [RED], "1": [TEA], "2": [ODD], "3": [ODD], "4": [ODD]}

    alone, together = _looked(table, RED + TEA, kept)

    assert alone[0] == alone[1] > alone[2]
    assert together[0] == together[1] > together[2] > together[3] == together[4]


def test_what_has_no_words_and_what_is_not_looked_at_is_average() -> None:
    table = _table("a", "b", "c", "d", "e")

    alone, together = _looked(table, RED, {"0": [RED], "1": [ODD], "4": [RED]}, [0, 1, 2])

    assert alone[0] > 0 > alone[1]
    assert alone[2:] == [0.0, 0.0, 0.0]
    assert together[2:] == [0.0, 0.0, 0.0]


def test_a_question_without_words_says_nothing() -> None:
    alone, together = _looked(_table("a", "b"), b"", {"0": [RED], "1": [TEA]})

    assert alone == together == [0.0, 0.0]


def test_nothing_to_look_at_is_no_error() -> None:
    assert _looked(_table(), RED, {}) == ([], [])
    assert _looked(_table("a"), RED, {}) == ([0.0], [0.0])


class Noting(np.ndarray):  # type: ignore[misc,name-defined,unused-ignore]  # numpy may be absent
    """A matrix that notes how many multiplications each product takes."""

    sizes: ClassVar[list[int]] = []

    def __matmul__(self, other: Any) -> Any:
        self.sizes.append(self.size * other.shape[1])
        return np.asarray(self) @ other


@each_row("count", [1, 20, 256])
@each_row("length", [1, 8, 100, 256])
def test_no_product_is_large_enough_for_threads(count: int, length: int) -> None:
    dice = np.random.default_rng(count)
    question, words = (
        dice.integers(-127, 127, (rows, 64)).astype(np.float32) for rows in (count, length)
    )
    Noting.sizes.clear()

    found = _rerank._products(words.view(Noting), question)

    assert found == pytest.approx(words @ question.T / 127**2, abs=1e-6)
    assert max(Noting.sizes) <= 2**18
