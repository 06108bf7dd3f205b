from datetime import UTC, datetime, timedelta

import pytest

from orbiter.memory.errors import QueryError
from orbiter.memory.text.ranking import diversify, fuse_ranks, recency

NOW = datetime(2025, 1, 2, tzinfo=UTC)


def test_what_two_rankings_agree_on_comes_first() -> None:
    fused = fuse_ranks({"words": ["a", "b", "c"], "meaning": ["b", "d"]})

    assert [key for key, _ in fused] == ["b", "a", "d", "c"]
    assert fused[0][1] == pytest.approx(1 / 62 + 1 / 61)


def test_a_weight_makes_one_ranking_count_for_more() -> None:
    rankings = {"words": ["a", "b"], "meaning": ["b", "a"]}

    assert fuse_ranks(rankings, weights={"words": 2.0})[0][0] == "a"
    assert fuse_ranks(rankings, weights={"meaning": 2.0})[0][0] == "b"


def test_a_key_named_twice_counts_once_and_ties_go_to_the_first_seen() -> None:
    assert fuse_ranks({"x": ["a", "a", "b"]}) == fuse_ranks({"x": ["a", "b"]})
    assert [k for k, _ in fuse_ranks({"x": ["a"], "y": ["b"]})] == ["a", "b"]


@pytest.mark.parametrize(("hours", "value"), [(0, 1.0), (24, 0.5), (48, 0.25), (-5, 1.0)])
def test_recency_halves_with_each_half_life(hours: float, value: float) -> None:
    created_at = NOW - timedelta(hours=hours)

    assert recency(created_at, now=NOW, half_life_hours=24) == pytest.approx(value)


def test_diversity_prefers_what_is_new() -> None:
    scored = [("cat", 1.0), ("cats", 0.99), ("dog", 0.6)]

    def similarity(left: str, right: str) -> float:
        return 1.0 if left[:3] == right[:3] else 0.0

    assert diversify(scored, similarity, limit=2) == ["cat", "dog"]
    assert diversify(scored, similarity, limit=2, weight=1.0) == ["cat", "cats"]
    assert diversify(scored, similarity, limit=0) == []
    assert len(diversify(scored, similarity, limit=9)) == 3


def test_senseless_parameters_are_refused() -> None:
    with pytest.raises(QueryError, match="half_life_hours"):
        recency(NOW, now=NOW, half_life_hours=0)
    with pytest.raises(QueryError, match="weight"):
        diversify([], lambda _left, _right: 0.0, limit=1, weight=2)
