"""What speaks for a candidate: each column alone."""

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recall.pools import ask, column, pool, talk, turn
from tests.rows import each_row

from orbiter.memory.recall._candidate_pool import Pool
from orbiter.memory.recall._features import has_evidence, standardise, terms_of
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.recall._signals import measure


def test_standardised_values_have_mean_zero_and_deviation_one() -> None:
    assert standardise([1.0, 3.0] * 10) == pytest.approx([-1.0, 1.0] * 10)
    assert standardise([1.0, 3.0] * 10, absent=9.0) == pytest.approx([-1.0, 1.0] * 10)


def test_few_values_are_compared_with_what_is_absent() -> None:
    assert standardise([5.0])[0] == pytest.approx(19**0.5)
    assert standardise([5.0, 5.0]) == pytest.approx([3.0, 3.0])
    assert standardise([0.05], absent=0.1)[0] < 0 < standardise([0.15], absent=0.1)[0]
    assert standardise([0.0, 1.0])[0] < 0


@each_row("values", [[], [0.0], [2.0] * 20, [None, None], [None, 0.0]])
def test_where_nothing_differs_everything_is_average(values: list[float | None]) -> None:
    assert standardise(values) == [0.0] * len(values)


def test_what_is_not_known_is_average() -> None:
    assert standardise([1.0, None, 3.0])[1] == 0.0
    assert standardise([1.0, None, 3.0] * 10) == pytest.approx([-1.0, 0.0, 1.0] * 10)


@pytest.mark.slow
@given(st.lists(st.floats(-1e6, 1e6)))
def test_standardising_keeps_the_order(values: list[float]) -> None:
    scaled = standardise(values)

    assert len(scaled) == len(values)
    for one, higher in zip(values, scaled, strict=True):
        assert all(
            higher >= other for value, other in zip(values, scaled, strict=True) if value <= one
        )


def test_an_empty_pool_has_an_empty_table() -> None:
    table = measure(ask("what?"), pool(similarity={}))

    assert table.items == []
    assert all(values == [] for values in table.columns.values())


def test_words_count_for_more_the_rarer_they_are() -> None:
    items = talk("I paint", "I cook", "I run")
    asked = ask("paint or cook")

    found = column("words", asked, pool(items, frequency={"paint": 1, "cook": 90}))

    assert found["0"] > found["1"] > found["2"]


def test_words_count_for_more_the_more_of_them_are_there() -> None:
    found = column(
        "words", ask("red house paint"), pool(talk("red house", "house", "paint red house"))
    )

    assert found["2"] > found["0"] > found["1"]


def test_words_count_for_more_in_a_short_text() -> None:
    filler = " ".join(f"other{n}" for n in range(60))

    found = column("words", ask("paint"), pool(talk("paint", f"paint {filler}", "tea")))

    assert found["0"] > found["1"] > found["2"]


def test_a_long_text_counts_by_its_best_passage() -> None:
    filler = " ".join(f"filler {n} sentence." for n in range(300))

    found = column("words", ask("paint house"), pool(talk(f"{filler} paint house", "tea", filler)))

    assert found["0"] > found["1"] == found["2"]


def test_reach_lends_an_answer_the_words_of_what_was_said_before_it() -> None:
    items = talk("tea", "tea", "What did you paint?", "The house.", "tea")

    found = column("prev_turn", ask("paint"), pool(items))

    assert found["2"] == found["3"] > found["0"] == found["4"]


def test_prev_turn_ends_with_the_stretch() -> None:
    found = column(
        "prev_turn", ask("paint"), pool(talk("tea", "paint"), talk("yes", "no", first=2))
    )

    assert found["1"] > found["2"] == found["3"]


def test_talk_reaches_two_turns_each_way() -> None:
    items = talk("a", "b", "c", "paint", "d", "e", "f")

    found = column("neighbours", ask("paint"), pool(items))

    near = {item_id for item_id, value in found.items() if value > 0}
    assert near == {"1", "2", "3", "4", "5"}


def test_the_speaker_who_is_asked_about_counts_and_the_other_does_not() -> None:
    items = [turn("a", "x", speaker="Ann"), turn("b", "x", speaker="Ben"), turn("n", "x")]

    about_one = column("speaker", ask("What did Ann do?", "Ann", "Ben"), pool(items))
    about_both = column("speaker", ask("Where did Ann and Ben meet?", "Ann", "Ben"), pool(items))
    about_none = column("speaker", ask("Who paints?", "Ann", "Ben"), pool(items))

    assert about_one["a"] > about_one["n"] > about_one["b"]
    assert about_both["a"] == about_both["b"]
    assert len(set(about_none.values())) == 1


def test_a_speaker_is_known_in_any_case() -> None:
    items = [
        turn("a", "x", speaker="ANN"),
        turn("b", "x", speaker="ann "),
        turn("c", "x", speaker="C"),
    ]

    found = column("speaker", ask("What did Ann do?", "ANN", "ann ", "C"), pool(items))

    assert found["a"] == found["b"] > found["c"]


def test_the_user_and_the_assistant_are_told_apart() -> None:
    items = [turn("u", "x"), turn("a", "x", assistant=True)]

    assert column("user", ask("What?"), pool(items)) == {"u": 0.5, "a": -0.5}
    assert column("user", ask("What?"), pool(items[:1])) == {"u": 0.0}
    assert column("assistant", ask("What did you say?"), pool(items)) == {"u": 0.0, "a": 1.0}
    assert column("assistant", ask("What did he say?"), pool(items)) == {"u": 0.0, "a": 0.0}


def test_date_counts_what_was_said_around_the_time_asked_about() -> None:
    items = [
        turn("may", "x", at=datetime(2023, 5, 9, tzinfo=UTC)),
        turn("july", "x", at=datetime(2023, 7, 9, tzinfo=UTC)),
    ]

    assert column("date", ask("on 8 May 2023"), pool(items)) == {"may": 1.0, "july": 0.0}
    assert set(column("date", ask("ever"), pool(items)).values()) == {0.0}


def test_echo_is_a_question_with_half_of_the_words_in_common_and_nothing_else() -> None:
    items = talk(
        "Where is my flat in Bern?",
        "where's the flat? ",
        "My flat is in Bern.",
        "Where is the tea?",
        "Where?",
        "Is the flat that we saw in Bern on Monday still free?",
    )

    found = column("echo", ask("Where is my flat in Bern?"), pool(items))

    assert found == {"0": 1.0, "1": 1.0, "2": 0.0, "3": 0.0, "4": 0.0, "5": 0.0}
    assert set(column("echo", ask("Where is it?"), pool(items)).values()) == {0.0}


def test_echo_is_known_by_the_names_too() -> None:
    items = [turn("q", "Where does Ann live?", speaker="Ben"), turn("o", "Where does Cid live?")]

    found = column("echo", ask("Where does Ann live?", "Ann", "Ben", "Cid"), pool(items))

    assert found == {"q": 1.0, "o": 0.0}


def test_an_echo_lends_its_words_to_what_follows_only() -> None:
    asked = ask("What did you paint?")
    items = talk("tea", "coffee", "What did you paint?", "The house.", "Well.", "tea")
    candidates = pool(items)

    found = column("neighbours", asked, candidates)
    table = measure(asked, candidates)

    assert {item_id for item_id, value in found.items() if value > 0} == {"2", "3", "4"}
    assert [has_evidence(asked, table, at) for at in range(6)] == [False] * 2 + [True] * 3 + [False]


def test_evidence_is_a_word_near_or_a_time() -> None:
    items = talk("a", "b", "c", "paint", "d", "e", "f")
    by_words, by_time = ask("paint"), ask("What was on 2 June 2024?")

    def evident(asked: Question, candidates: Pool) -> set[str]:
        table = measure(asked, candidates)
        return {i.id for at, i in enumerate(table.items) if has_evidence(asked, table, at)}

    assert evident(by_words, pool(items)) == {"1", "2", "3", "4", "5"}
    assert evident(by_time, pool(items)) == {str(n) for n in range(7)}
    assert evident(ask("zebra"), pool(items)) == set()
    assert evident(ask("What is this?"), pool(items)) == set()


def test_meaning_ranks_by_cosine_and_what_has_no_vector_is_average() -> None:
    found = column("meaning", ask("x"), pool(talk("a", "b", "c"), similarity={"0": 0.9, "1": 0.1}))

    assert found["0"] > 0 == found["2"] > found["1"]


def test_the_only_candidate_is_near_or_not() -> None:
    near = column("meaning", ask("x"), pool(talk("a"), similarity={"0": 0.5}))
    far = column("meaning", ask("x"), pool(talk("a"), similarity={"0": 0.02}))

    assert near["0"] > 0 > far["0"]


def test_without_a_model_nothing_is_said_about_meaning() -> None:
    columns = measure(ask("x"), pool(talk("a"))).columns

    assert not {"meaning", "neighbour_meaning"} & columns.keys()


def test_neighbour_meaning_is_what_the_talk_around_means_without_the_item_itself() -> None:
    items = talk("a", "b", "c", "d", "e", "f")
    similarity = {"0": 0.1, "1": 0.1, "2": 0.9, "3": 0.1, "4": 0.1, "5": 0.1}

    found = column("neighbour_meaning", ask("x"), pool(items, similarity=similarity))

    assert found["1"] > found["2"] < found["3"]
    assert found["0"] > found["5"]


def test_the_order_of_the_stretches_and_of_what_is_known_changes_nothing() -> None:
    dice = random.Random(5)
    windows = [
        talk(*dice.choices(["paint a house", "tea", "the red house?", "in 2019"], k=4),
             session=str(n), first=10 * n)
        for n in range(6)
    ]  # fmt: skip
    similarity = {item.id: dice.random() for window in windows for item in window}
    asked, frequency = ask("When did I paint the red house?"), {"paint": 3, "red": 9, "hous": 30}
    shuffled = dict(dice.sample(sorted(similarity.items()), len(similarity)))

    one = measure(asked, pool(*windows, similarity=similarity, frequency=frequency))
    other = measure(
        asked,
        pool(*reversed(windows), similarity=shuffled, frequency=dict(reversed(frequency.items()))),
    )

    for name, values in one.columns.items():
        expected = {item.id: value for item, value in zip(one.items, values, strict=True)}
        found = {i.id: v for i, v in zip(other.items, other.columns[name], strict=True)}
        assert found == pytest.approx(expected)


def test_the_table_says_which_terms_were_found_where() -> None:
    table = measure(ask("painting the red house"), pool(talk("I painted", "a red house", "tea")))

    assert table.matched == [{"paint"}, {"red", "hous"}, set()]
    assert set(table.rarity) == {"paint", "red", "hous"}
    assert table.before == [None, 0, 1]
    assert table.after == [1, 2, None]


def test_terms_of_an_item_are_those_of_all_its_passages() -> None:
    item = turn("a", " ".join(f"word{n} paint." for n in range(400)))

    assert terms_of(item) == {"paint", *(f"word{n}" for n in range(400))}
