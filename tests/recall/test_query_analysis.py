"""Analysis of a query: whom it is about, when, and what it looks for."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from orbiter.memory.recall._query_analysis import Question, read, shortened

NOW = datetime(2024, 6, 15, tzinfo=UTC)


def _read(text: str, *speakers: str) -> Question:
    return read(text, speakers=speakers, now=NOW)


@each_row("text", ["the annual plan", "Joann", "Anne", "ann_b", "Bannister", "benn"])
def test_a_name_inside_another_word_is_no_name(text: str) -> None:
    assert _read(text, "Ann", "Ben").people == frozenset()


def test_without_speakers_a_name_is_a_term_like_others() -> None:
    question = _read("What did Ann paint?")

    assert question.people == frozenset()
    assert question.terms == ("ann", "paint")


def test_names_are_not_among_the_terms() -> None:
    assert _read("What did Ann's sister paint with Ben?", "Ann", "Ben").terms == ("sister", "paint")


def test_a_term_is_there_once() -> None:
    assert _read("painting, painted and paints a painting").terms == ("paint",)


def test_a_name_that_no_one_is_called_in_the_question_takes_no_term_from_it() -> None:
    question = _read("What did I paint?", "Paints", "Painted Lady")

    assert question.terms == ("paint",)
    assert question.people == frozenset()


@pytest.mark.parametrize("text", ["Where does Ann Lee live?", "Where does Ann live?", "ann lee's"])
def test_a_name_of_two_words_is_found_by_the_whole_and_by_each(text: str) -> None:
    assert _read(text, "Ann Lee", "Bob Ray").people == {"ann lee"}


def test_a_name_that_two_share_may_mean_either() -> None:
    assert _read("Where does Lee live?", "Ann Lee", "Bob Lee").people == {"ann lee", "bob lee"}
    assert _read("Where does Ann Lee live?", "Ann Lee", "Bob Lee").people == {"ann lee"}


def test_a_name_written_in_two_ways_is_one_person() -> None:
    assert _read("Where does Ann live?", "Ann", "ann", " ANN ").people == {"ann"}


def test_a_name_is_found_without_its_accents() -> None:
    assert _read("Where does Jose live?", "José").people == {"josé"}
    assert _read("Where does José live?", "José").people == {"josé"}


@each_row("name", ["C++", "a.b", "(x)", "[", "\\d+", "J.R.", "Dr. No", "O'Neil", "x|y"])
def test_a_name_is_no_pattern(name: str) -> None:
    if len(name) > 1:
        assert _read(f"Where does {name} live?", name, "Ben").people == {name.casefold()}
    assert _read("Where does axb 1 live?", name).people == frozenset()


@each_row("name", ["Jess'", "Ann's", "Alı", "İrem", "Straße", "ΣΑΣ", "ſam", "Κ"])
def test_a_name_with_odd_letters_is_read(name: str) -> None:
    for speaker in (name, name.lower(), name.upper(), name.casefold(), "Ali", "Jess", "Sam"):
        question = _read(f"Where do {name}, {name.upper()} and ali's live?", speaker)

        assert question.people <= {speaker.casefold()}


def test_a_name_that_is_a_common_word_is_one_by_its_capital() -> None:
    assert _read("When did Will paint?", "Will").people == {"will"}
    assert _read("Will it rain?", "Will").people == frozenset()
    assert _read("What will I do?", "Will").people == frozenset()
    assert _read("What did the chef of all say?", "The Chef of All").people == {"the chef of all"}
    assert _read("What is all of the?", "The Chef of All").people == frozenset()


@pytest.mark.parametrize("name", ["", " ", "A", "I"])
def test_what_is_too_short_is_no_name(name: str) -> None:
    assert _read("A question I ask", name).people == frozenset()


@each_row(
    "text",
    ["When did I?", " when was it", "How long ago was it?", "What year was it?", "On which day"],
)
def test_a_question_asks_when(text: str) -> None:
    assert _read(text).asks_when


@each_row("text", ["", "What did I do when it rained?", "Whenever", "Who?", "How?"])
def test_another_question_does_not_ask_when(text: str) -> None:
    assert not _read(text).asks_when


def test_a_question_tells_whether_the_assistant_is_asked() -> None:
    assert _read("What did you suggest?").asks_you
    assert not _read("What did he suggest?").asks_you
    assert not _read("Was it in the youth hostel of Iowa?").asks_you


def test_a_question_names_its_times() -> None:
    assert [span.year for span in _read("What happened in 2021?").times] == [2021]
    assert _read("What happened?").times == ()


def test_of_a_very_long_question_both_ends_count() -> None:
    text = "first " + "middle " * 10_000 + "last"

    short = shortened(text)

    assert len(short) < 3000
    assert short.startswith("first")
    assert short.endswith("last")
    assert shortened(short[:2000]) == short[:2000]
    assert shortened("What?") == "What?"


NAMES = st.one_of(
    st.text(max_size=8), st.sampled_from(["Ann", "Will", "İi", "ı", "ß", "The", "a b"])
)


@given(st.text(), st.lists(NAMES, max_size=4))
def test_any_question_about_anyone_is_read(text: str, names: list[str]) -> None:
    asked = f"{text} {' and '.join(names)}'s {text}"

    question = read(asked, speakers=names, now=NOW)

    assert question.people <= {name.casefold().strip() for name in names}
    assert len(set(question.terms)) == len(question.terms)
    assert question == read(asked, speakers=list(reversed(names)), now=NOW)
