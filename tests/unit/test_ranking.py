from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from tests.rows import each_row

from orbiter.memory.errors import QueryError
from orbiter.memory.text.ranking import for_prompt, fuse_ranks, recency
from orbiter.memory.text.words import is_filler

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


def test_senseless_parameters_are_refused() -> None:
    with pytest.raises(QueryError, match="half_life_hours"):
        recency(NOW, now=NOW, half_life_hours=0)


FILLER = (
    *(
        "Okay, noted.",
        "Thanks!",
        "Lovely!",
        "Good.",
        "You're welcome!",
        "Great, thank you so much.",
    ),
    *("No problem at all.", "Have a nice day!", "Got it, thanks.", "Yes, I will remember that."),
    *("Vielen Dank!", "Alles klar, danke dir", "Bis bald!", "C'est noté, merci !", "Très bien."),
    *("Perfecto, gracias.", "Спасибо, понятно.", "谢谢！", "好的。", "ありがとうございます"),
)
TELLING = (
    *("I'm Will.", "Hi, I am Will", "My room is 12.", "No cilantro, ever", "Mia", "17 °C", "42"),
    *(
        "I like tea",
        "I am allergic",
        "No meat.",
        "yes, the red one",
        "It's at 5",
        "Nice has a beach",
    ),
    *("Good Omens is my book", "会議は来週の火曜日です", "👍", ""),
)


@each_row("text", FILLER)
def test_what_is_only_polite_is_filler(text: str) -> None:
    assert is_filler(text)


@each_row("text", TELLING)
def test_what_tells_something_is_no_filler(text: str) -> None:
    assert not is_filler(text)


@dataclass
class Answer:
    content: str
    relevance: float


def test_filler_never_reaches_a_prompt() -> None:
    hits = [Answer("Okay, noted.", 0.6), Answer("Mia is allergic to peanuts", 0.4)]

    assert for_prompt(hits) == hits[1:]
    assert for_prompt(hits[:1]) == []
    assert for_prompt(hits, min_relevance=0.0) == hits


def test_a_prompt_has_all_parts_of_a_matter_over_time() -> None:
    class OverTime(list[Answer]):
        spread = True

    hits = OverTime([
        Answer("I bought the wood", 0.01),
        Answer("The mast is up", 0.95),
        Answer("Is the boat ready?", 0.03),
    ])  # fmt: skip

    assert for_prompt(hits) == hits
    assert for_prompt(OverTime(hits[:1])) == []  # as nothing answers
