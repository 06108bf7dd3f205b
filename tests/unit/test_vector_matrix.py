"""A matrix of vectors against a list that is too simple to be wrong."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.rows import each_row

from orbiter.memory.backends.vector.approximate import Candidates
from orbiter.memory.backends.vector.matrix import VectorMatrix
from orbiter.memory.backends.vector.normalize import directions
from orbiter.memory.backends.vector.top_k import Rows, product, ranked

SIZE = 3
# Few values, so that many vectors are equal or opposite: ties are where order goes wrong.
VECTORS = st.lists(st.sampled_from((-1.0, 0.0, 0.5, 1.0)), min_size=SIZE, max_size=SIZE).filter(any)
GROUPS = st.lists(VECTORS, min_size=1, max_size=4)
KEYS = st.integers(0, 30) | st.sampled_from((-5, 10**6, 2**40, 2**62))


def _direction(vector: list[float]) -> list[float]:
    """Return a vector of length 1, of the numbers that float32 has."""
    exact = np.array(vector) / np.linalg.norm(vector)
    return [float(number) for number in exact.astype(np.float32)]


class Naive:
    def __init__(self) -> None:
        self.held: dict[int, list[list[float]]] = {}

    def put(self, key: int, vectors: list[list[float]]) -> None:
        self.held[key] = vectors  # a dict keeps the place of a key that is replaced

    def nearest(
        self, vector: list[float], count: int, among: list[int] | None = None
    ) -> list[tuple[int, float]]:
        towards = _direction(vector)
        scored = [
            (
                key,
                max(sum(a * b for a, b in zip(_direction(r), towards, strict=True)) for r in rows),
            )
            for key, rows in self.held.items()
            if among is None or key in among
        ]
        return sorted(scored, key=lambda pair: -min(1.0, pair[1]))[:count]


class ShelfMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.naive = VectorMatrix(SIZE), Naive()

    @rule(key=KEYS, vectors=GROUPS)
    def put(self, key: int, vectors: list[list[float]]) -> None:
        self.matrix.put(key, np.array(vectors))
        self.naive.put(key, vectors)

    @rule(pairs=st.lists(st.tuples(KEYS, VECTORS), max_size=60))
    def put_many(self, pairs: list[tuple[int, list[float]]]) -> None:
        keys = np.array([key for key, _ in pairs], np.int64)
        vectors = np.array([vector for _, vector in pairs]).reshape(-1, SIZE)
        self.matrix.put_many(keys, vectors)
        grouped: dict[int, list[list[float]]] = {}
        for key, vector in pairs:
            grouped.setdefault(key, []).append(vector)
        for key, rows in grouped.items():
            self.naive.put(key, rows)

    @rule(first=st.integers(0, 100), count=st.integers(1, 80), vector=VECTORS)
    def put_a_stretch(self, first: int, count: int, vector: list[float]) -> None:
        keys = np.arange(first, first + count)
        self.matrix.put_many(keys, np.array([vector] * count))
        for key in keys.tolist():
            self.naive.put(key, [vector])

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        assert self.matrix.remove(key) is (self.naive.held.pop(key, None) is not None)

    @rule(first=st.integers(0, 100), count=st.integers(1, 90))
    def remove_a_stretch(self, first: int, count: int) -> None:
        for key in range(first, first + count):
            assert self.matrix.remove(key) is (self.naive.held.pop(key, None) is not None)

    @rule(vector=VECTORS, count=st.integers(0, 12) | st.just(2**70))
    def nearest(self, vector: list[float], count: int) -> None:
        self._same(self.matrix.nearest(vector, count), self.naive.nearest(vector, count))

    @rule(vector=VECTORS, count=st.integers(1, 12), keys=st.lists(KEYS, max_size=40))
    def nearest_among(self, vector: list[float], count: int, keys: list[int]) -> None:
        for _ in range(3):  # what is asked for again may be answered from a copy
            found = self.matrix.nearest(vector, count, among=np.array(keys, np.int64))
            self._same(found, self.naive.nearest(vector, count, keys))

    @rule(vector=VECTORS, first=st.integers(0, 100), step=st.integers(1, 12))
    def nearest_among_a_stretch(self, vector: list[float], first: int, step: int) -> None:
        keys = list(range(first, 200, step))
        found = self.matrix.nearest(vector, 9, among=np.array(keys, np.int64))
        self._same(found, self.naive.nearest(vector, 9, keys))

    @rule(vector=VECTORS, keys=st.lists(KEYS, max_size=10))
    def similarities(self, vector: list[float], keys: list[int]) -> None:
        found = self.matrix.similarities(vector, keys)
        assert found == pytest.approx(dict(self.naive.nearest(vector, 100, keys)), abs=1e-6)

    @invariant()
    def counts_what_is_there(self) -> None:
        assert len(self.matrix) == len(self.naive.held)
        assert self.matrix.rows == sum(map(len, self.naive.held.values()))

    @staticmethod
    def _same(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
        assert [key for key, _ in found] == [key for key, _ in expected]
        assert [c for _, c in found] == pytest.approx([c for _, c in expected], abs=1e-6)


TestShelf: Any = ShelfMachine.TestCase
TestShelf.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


def _random(count: int, size: int = 16, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, size), dtype=np.float32)


def _near(matrix: VectorMatrix, towards: Any, **among: Any) -> dict[int, float]:
    return dict(matrix.nearest(towards, 1, **among))


def _brute(vectors: npt.NDArray[np.float32], towards: Any, keys: Any) -> list[int]:
    exact = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1)[:, None]
    scores = exact[keys] @ np.asarray(towards, np.float64)
    found: list[int] = np.asarray(keys)[np.argsort(-scores)].tolist()
    return found


SUBSETS = {
    "one": np.array([7]),
    "a stretch": np.arange(100, 900),
    "long stretches": np.concatenate([np.arange(0, 400), np.arange(1000, 1500)]),
    "short stretches": np.concatenate([np.arange(n, n + 40) for n in range(0, 3000, 100)]),
    "every second": np.arange(0, 3000, 2),
    "a few": np.arange(0, 3000, 97),
    "every eleventh": np.arange(3, 3000, 11),
    "in disorder, some twice": np.array([9, 3, 2999, 3, 50, 9, 17]),
    "some not there": np.array([-4, 5, 2999, 3001, 10**12, -(2**63), 2**63 - 1]),
    "none": np.array([], np.int64),
}


@each_row("apart", [1, 1000], ids=["close keys", "keys far apart"])
@each_row("name", SUBSETS)
def test_every_subset_is_searched_exactly(name: str, apart: int) -> None:
    vectors, towards = _random(3000), _random(1, seed=1)[0]
    matrix = VectorMatrix(16)
    matrix.put_many(np.arange(3000) * apart, vectors)
    among = SUBSETS[name]
    here = np.unique(among[(among >= 0) & (among < 3000)])
    with np.errstate(over="ignore"):
        asked = np.where((among >= 0) & (among < 3000), among * apart, among)
    expected = [key * apart for key in _brute(vectors, towards, here)][:10]

    for _ in range(3):  # what is asked for again is answered from a copy
        assert [key for key, _ in matrix.nearest(towards, 10, among=asked)] == expected


def test_a_subset_that_grows_between_searches_is_searched_whole() -> None:
    vectors, towards = _random(4000), _random(1, seed=1)[0]
    matrix = VectorMatrix(16)
    matrix.put_many(np.arange(3000), vectors[:3000])

    for end in (3000, 3000, 3000, 3100, 3400, 3401, 4000):
        matrix.put_many(np.arange(3000, end), vectors[3000:end])
        among = np.arange(0, end, 5)
        found = [key for key, _ in matrix.nearest(towards, 7, among=among)]
        assert found == _brute(vectors, towards, among)[:7]


def test_a_subset_is_searched_anew_when_its_vectors_change() -> None:
    vectors, towards = _random(3000), _random(1, seed=1)[0]
    matrix = VectorMatrix(16)
    matrix.put_many(np.arange(3000), vectors)
    among = np.arange(0, 3000, 5)
    for _ in range(3):
        matrix.nearest(towards, 3, among=among)

    best = matrix.nearest(towards, 1, among=among)[0][0]
    matrix.put(best, -towards[None])
    matrix.put(1000, towards[None])

    assert _near(matrix, towards, among=among) == {1000: pytest.approx(1.0)}
    assert best not in dict(matrix.nearest(towards, 500, among=among))
    assert matrix.similarities(towards, [best, 4711]) == {best: pytest.approx(-1.0)}


def test_equal_vectors_are_equal_wherever_they_stand() -> None:
    vectors = np.repeat(_random(1, 385), 997, axis=0)
    matrix = VectorMatrix(385)
    matrix.put_many(np.arange(997)[::-1], vectors)

    found = matrix.nearest(_random(1, 385, seed=1)[0], 20)

    assert [key for key, _ in found] == list(range(996, 976, -1))
    assert len({cosine for _, cosine in found}) == 1


def test_a_rank_decides_between_equals() -> None:
    matrix = VectorMatrix(2)
    for key, rank in ((1, 30), (2, 10), (3, 20)):
        matrix.put(key, [[1.0, 0.0]], rank=rank)
    matrix.put(2, [[2.0, 0.0]], rank=99)  # put again, it keeps its rank

    assert [key for key, _ in matrix.nearest([1.0, 0.0], 3)] == [2, 3, 1]


@each_row(
    ("vectors", "told"),
    [
        ([[1.0, 2.0]], "3 numbers, not 2"),
        ([[1.0] * 4], "3 numbers, not 4"),
        ([[0.0, 0.0, 0.0]], "only zeros"),
        ([[1.0, 0, 0], [1.0, np.nan, 0]], "vector 1 of 2 has a NaN or an infinity"),
        ([[np.inf, 0, 0]], "infinity"),
        ([["1", "2", "3"]], "rows of 3 numbers"),
        ([[1.0, 2.0, 3.0], [1.0]], "rows of 3 numbers"),
        ([1.0, 2.0, 3.0], "rows of 3 numbers"),
        (None, "rows of 3 numbers"),
    ],
)
def test_what_points_nowhere_is_refused_and_changes_nothing(vectors: Any, told: str) -> None:
    matrix = VectorMatrix(3)
    matrix.put(1, [[1.0, 0.0, 0.0]])

    with pytest.raises(ValueError, match=told):
        matrix.put(1, vectors)
    with pytest.raises(ValueError, match=told):
        matrix.put_many(np.arange(len(vectors or [1])), vectors)

    assert (len(matrix), matrix.rows) == (1, 1)
    assert matrix.nearest([1.0, 0.0, 0.0], 5) == [(1, 1.0)]


def test_other_things_that_cannot_be_are_refused() -> None:
    matrix = VectorMatrix(2)

    with pytest.raises(ValueError, match="dimension"):
        VectorMatrix(0)
    with pytest.raises(ValueError, match="at least one"):
        matrix.put(1, np.empty((0, 2)))
    with pytest.raises(ValueError, match="as many keys"):
        matrix.put_many([1], [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(OverflowError):
        matrix.put(2**63, [[1.0, 0.0]])
    for vector in ([0.0, 0.0], [1.0], [np.nan, 1.0], "ab", [[1.0, 0.0]], [[1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError, match="vector"):
            matrix.nearest(vector, 1)
    assert len(matrix) == 0


@each_row("scale", [1e-300, 1e-40, 1.0, 1e30, 1e300])
def test_no_vector_is_too_long_or_too_short(scale: float) -> None:
    matrix = VectorMatrix(2)
    matrix.put(1, [[3 * scale, 4 * scale]])

    assert _near(matrix, [scale, 0.0]) == {1: pytest.approx(0.6)}


def test_readers_see_whole_vectors_while_another_thread_writes() -> None:
    matrix, done, wrong = VectorMatrix(8), threading.Event(), []
    ends = np.eye(8, dtype=np.float32)
    matrix.put_many(np.arange(200), np.repeat(ends[:1], 200, axis=0))

    def read() -> None:
        while not done.is_set():
            among = np.arange(0, 200, 3)
            for found in (matrix.nearest(ends[0], 200), matrix.nearest(ends[0], 200, among=among)):
                if any(cosine not in (0.0, 1.0) for _, cosine in found):
                    wrong.append(found)
                if len(found) not in (200, len(among)):
                    wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(4000):
        matrix.put(number % 200, ends[number % 8][None])
    done.set()
    for reader in readers:
        reader.join()

    assert wrong == []


def test_a_graph_loses_no_vector_while_it_is_built() -> None:
    for seed in range(3):  # two threads lost some in about half of such graphs
        vectors = directions(np.random.default_rng(seed).standard_normal((2000, 32)), 32)
        graph = Candidates(32, np.arange(2000), vectors)

        lost = [key for key in range(2000) if key not in graph.nearest(vectors[key], 1)]

        assert lost == []


@pytest.mark.slow
def test_the_approximate_search_follows_every_change() -> None:
    vectors = _random(2000, 32)
    matrix = VectorMatrix(32, approximate_from=500)
    matrix.put_many(np.arange(400), vectors[:400])
    matrix.nearest(vectors[0], 5)
    assert getattr(matrix, "_candidates") is None  # noqa: B009 - mypy would take it for final
    matrix.put_many(np.arange(400, 2000), vectors[400:])

    for key in (3, 700, 1999):
        assert _near(matrix, vectors[key]) == {key: pytest.approx(1.0)}
    assert matrix._candidates is not None
    matrix.remove(3)
    matrix.put(700, -vectors[700][None])
    matrix.put(5000, np.stack([vectors[3], vectors[700]]))
    for key in range(0, 1900, 2):
        matrix.remove(key)

    for asked in (vectors[3], vectors[700]):
        assert _near(matrix, asked) == {5000: pytest.approx(1.0)}
    assert matrix.nearest(vectors[5], 1, among=np.array([7, 9]))[0][0] in (7, 9)
    assert len(matrix.nearest(vectors[5], 2000)) == len(matrix)
    left = [key for key in range(2000) if key % 2 or key >= 1900]
    hits = sum(matrix.nearest(vectors[key], 1)[0][0] == key for key in left if key not in (3, 700))
    assert hits >= 0.97 * (len(left) - 2)


def test_what_a_product_rounds_away_does_not_decide() -> None:
    vectors = np.repeat(_random(1) / np.linalg.norm(_random(1)), 50, axis=0).astype(np.float32)
    places = np.arange(50)
    seen = Rows(vectors, places, places, None)
    rounded = (vectors @ vectors[0] - 3e-8 * (50 - places)).astype(np.float32)

    assert [key for key, _ in ranked(seen, vectors[0], rounded, 3)] == [0, 1, 2]


def test_ranks_given_with_many_keys_replace_those_they_had() -> None:
    matrix = VectorMatrix(2)
    same = [[1.0, 0.0]] * 4
    matrix.put_many([1, 2, 3, 1], same, ranks=[5, 4, 4, 5])
    assert [key for key, _ in matrix.nearest([1, 0], 3)] == [3, 2, 1]

    matrix.put_many([1], same[:1], ranks=[0])

    assert [key for key, _ in matrix.nearest([1, 0], 3)] == [1, 3, 2]
    with pytest.raises(ValueError, match="as many ranks"):
        matrix.put_many([1], same[:1], ranks=[0, 1])


@each_row("count", [0, 1, 1_041, 1_042, 2_500])
def test_a_product_in_parts_has_the_score_of_every_row(count: int) -> None:
    dice = np.random.default_rng(count)
    rows = dice.standard_normal((count, 384), np.float32)
    towards = dice.standard_normal(384, np.float32)
    exact = np.einsum("ij,j->i", rows.astype(np.float64), towards.astype(np.float64))
    np.testing.assert_allclose(product(rows, towards), exact, atol=1e-3)


def test_no_product_of_a_search_is_large_enough_to_wake_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, dot = [], np.dot

    def measured(rows: Any, towards: Any, out: Any) -> Any:
        sizes.append(rows.size)
        return dot(rows, towards, out=out)

    matrix = VectorMatrix(384)
    matrix.put_many(range(3_000), np.random.default_rng(1).standard_normal((3_000, 384)))
    monkeypatch.setattr(np, "dot", measured)
    for among in (None, range(2_000), range(0, 3_000, 2)):
        sizes.clear()
        matrix.nearest([1.0] * 384, 10, among=None if among is None else list(among))
        assert sum(sizes) >= 384 * 1_500
        assert max(sizes) < 460_800  # from there on OpenBLAS shares a product out


def test_vectors_of_length_1_are_kept_bit_by_bit() -> None:
    made = directions(np.random.default_rng(1).standard_normal((100, 384)), 384)
    assert directions(made, 384).tobytes() == made.tobytes()
    longer = made.copy()
    longer[3] *= 1.1
    assert np.allclose(directions(longer, 384), made, atol=1e-7)


def test_sketches_pass_over_none_of_the_nearest_and_follow_every_change() -> None:
    dice = np.random.default_rng(5)
    centres = dice.standard_normal((200, 96))
    notes = np.repeat(centres, 25, axis=0) + 0.6 * dice.standard_normal((5_000, 96))
    exact, sketched = VectorMatrix(96), VectorMatrix(96, sketched_from=1_000)
    for matrix in (exact, sketched):
        matrix.put_many(np.arange(4_000), notes[:4_000])
    before = [matrix.nearest(centres[3], 20) for matrix in (exact, sketched)]
    for matrix in (exact, sketched):
        matrix.put_many(np.arange(4_000, 5_000), notes[4_000:])
        matrix.put(7, centres[190:191])
        matrix.remove(75)

    found = [[matrix.nearest(each, 20) for each in centres] for matrix in (exact, sketched)]

    assert before[0] == before[1]
    assert found[0] == found[1]
    assert found[1][190][0][0] == 7
    assert 75 not in dict(found[1][3])


@pytest.mark.parametrize("shift", [0.0, 2.0, None], ids=["around zero", "around two", "positive"])
def test_sketches_find_the_nearest_wherever_the_numbers_lie(shift: float | None) -> None:
    dice = np.random.default_rng(6)
    centres = dice.standard_normal((200, 96))
    notes = np.repeat(centres, 30, axis=0) + 0.6 * dice.standard_normal((6_000, 96))
    notes = np.abs(notes) if shift is None else notes + shift
    exact, sketched = VectorMatrix(96), VectorMatrix(96, sketched_from=1_000)
    for matrix in (exact, sketched):
        matrix.put_many(np.arange(6_000), notes)

    found = [
        [matrix.nearest(notes[at], 10) for at in range(0, 6_000, 300)]
        for matrix in (exact, sketched)
    ]

    assert found[0] == found[1]


def test_sketches_count_neither_the_dead_nor_all_but_some_of_equals() -> None:
    dice = np.random.default_rng(7)
    notes = dice.standard_normal((6_000, 64))
    exact, sketched = VectorMatrix(64), VectorMatrix(64, sketched_from=1_000)
    for matrix in (exact, sketched):
        matrix.put_many(np.arange(6_000), notes)
        matrix.put_many(np.arange(6_000, 10_000), np.repeat(notes[:1], 4_000, axis=0))
        for key in range(6_000, 8_000):
            matrix.remove(key)

    assert sketched.nearest(notes[0], 50) == exact.nearest(notes[0], 50)
    assert len(sketched.nearest(notes[0], 200)) == 200
