"""The times a question speaks of."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row
from tests.timing import scaled

from orbiter.memory.recall import _date_phrases
from orbiter.memory.recall._date_phrases import named_day, offsets, spans
from orbiter.memory.recall._dates import FIRST, Offset, Span, closeness, is_within
from orbiter.memory.recall._foreign_times import asks_only_time
from orbiter.memory.recall._query_analysis import read

NOW = datetime(2024, 6, 15, 12, tzinfo=UTC)


def _days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


LAST_WEEKEND = Span(
    start=datetime(2024, 6, 7, tzinfo=UTC),
    end=NOW,
    core=(datetime(2024, 6, 8, tzinfo=UTC), datetime(2024, 6, 10, tzinfo=UTC)),
)


def _from_to(first: tuple[int, int, int], end: tuple[int, int, int]) -> Span:
    return Span(start=datetime(*first, tzinfo=UTC), end=datetime(*end, tzinfo=UTC))


def _since(year: int, month: int, day: int) -> Span:
    return Span(start=datetime(year, month, day, tzinfo=UTC), end=NOW)


@each_row(
    ("text", "expected"),
    [
        ("on 7 May 2023", Span(2023, 5, 7)),
        ("on May 7, 2023?", Span(2023, 5, 7)),
        ("the 7th of May, 2023", Span(2023, 5, 7)),
        ("7 MAY 2023", Span(2023, 5, 7)),
        ("on 2023-05-07", Span(2023, 5, 7)),
        ("on 2023/5/7", Span(2023, 5, 7)),
        ("on 01.11.2026", Span(2026, 11, 1)),
        ("on 7.5.2023?", Span(2023, 5, 7)),
        ("on December 3rd", Span(None, 12, 3)),
        ("in July 2022", Span(2022, 7)),
        ("in July", Span(None, 7)),
        ("in 2021", Span(2021)),
        ("during 1999", Span(1999)),
        ("on 29 February 2024", Span(2024, 2, 29)),
        ("on 29 February", Span(None, 2, 29)),
        ("on December 1,2023", Span(2023, 12, 1)),
        ("on the third of June", Span(None, 6, 3)),
        ("on the twenty-first of May 2023", Span(2023, 5, 21)),
        ("on June the second", Span(None, 6, 2)),
        ("in the first week of May", Span(None, 5, 1, last=7)),
        ("in the second week of November 2023", Span(2023, 11, 8, last=14)),
        ("in the last week of June", Span(None, 6, 22, last=31)),
        ("on the first weekend in May", Span(None, 5, 1, last=7)),
        ("in the second half of May", Span(None, 5, 16, last=31)),
        ("in early May 2022", Span(2022, 5, 1, last=10)),
        ("in mid-March", Span(None, 3, 11, last=20)),
        ("at the end of July", Span(None, 7, 21, last=31)),
    ],
)
def test_a_date_is_read(text: str, expected: Span) -> None:
    assert spans(f"What did I do {text}", now=NOW) == (expected,)


@each_row(
    "text",
    [
        "",
        "Where do I live?",
        "I may go",
        "May I ask?",
        "March on, soldiers",
        "What may third parties do?",
        "the third of five",
        "in the first week of the holidays",
        "31 February 2023",
        "29 February 2023",
        "45 January",
        "0000-01-01",
        "2023-13-01",
        "01.13.2023",
        "version 1.2.3",
        "9999-12-31",
        "in 99999",
        "room 2021",
        "the mayor marched",
        "an augustan age",
        "12345-01-01",
    ],
)
def test_what_names_no_time_or_an_impossible_one_has_none(text: str) -> None:
    assert spans(text, now=NOW) == ()


def test_a_month_that_is_also_a_word_needs_something_that_makes_it_one() -> None:
    for text in ("in May", "last march", "early May", "mid-March", "May 2023", "3 March"):
        assert [span.month for span in spans(text, now=NOW)] in ([3], [5])


@each_row(
    ("text", "inside", "outside"),
    [
        ("two weeks ago", 14, 40),
        ("2 weeks ago", 14, 1),
        ("a couple of weeks ago", 14, 40),
        ("a few days ago", 3, 9),
        ("three months ago", 91, 200),
        ("a year ago", 365, 30),
        ("yesterday", 1, 5),
        ("last week", 8, 30),
        ("this week", 2, 30),
        ("last month", 40, 90),
        ("last weekend", 6, 30),
        ("in the past three days", 3, 9),
        ("in the last 2 weeks", 20, 30),
        ("in the last few weeks", 20, 40),
        ("past month", 20, 60),
        ("this year", 300, 400),
    ],
)
def test_a_time_is_seen_from_now(text: str, inside: float, outside: float) -> None:
    asked = spans(f"What happened {text}?", now=NOW)

    assert closeness(_days_ago(inside), asked) == 1.0
    assert closeness(_days_ago(outside), asked) == 0.0


@each_row(
    ("text", "expected"),
    [
        ("between 1 and 10 May", (Span(None, 5, 1, last=10),)),
        ("from the 3rd to the 7th of May 2023", (Span(2023, 5, 3, last=7),)),
        ("May 3-7, 2023", (Span(2023, 5, 3, last=7),)),
        ("between May 3 and May 7 2023", (Span(2023, 5, 3, last=7),)),
        ("from 2023-05-03 to 2023-05-07", (Span(2023, 5, 3, last=7),)),
        ("from May 3 through 7", (Span(None, 5, 3, last=7),)),
        ("on 3 and 7 May", (Span(None, 5, 7),)),
        ("from March to May", (Span(None, 3), Span(None, 4), Span(None, 5))),
        ("between March and May 2023", (_from_to((2023, 3, 1), (2023, 6, 1)),)),
        ("from November to January 2024", (_from_to((2023, 11, 1), (2024, 2, 1)),)),
        ("from November 2023 to January", (_from_to((2023, 11, 1), (2024, 2, 1)),)),
        ("from 28 April to 3 May", (Span(None, 4, 28, last=30), Span(None, 5, 1, last=3))),
        ("from 28 May to 28 May", (Span(None, 5, 28),)),
        ("between 2023-04-28 and 2023-05-03", (_from_to((2023, 4, 28), (2023, 5, 4)),)),
        ("2023-05-03 - 2023-04-28", (Span(2023, 5, 3), Span(2023, 4, 28))),
        ("between Monday and Wednesday", (Span(2024, 6, 10, last=12),)),
        ("in May and June", (Span(None, 5), Span(None, 6))),
        ("since May", (_since(2024, 5, 1),)),
        ("since July", (_since(2023, 7, 1),)),
        ("since the beginning of May 2023", (_since(2023, 5, 1),)),
        ("since last Monday", (_since(2024, 6, 10),)),
        ("since 3 May", (_since(2024, 5, 3),)),
        ("since 29 February", (_since(2024, 2, 29),)),
        ("since last summer", (_since(2023, 6, 1),)),
        ("since the summer", (_since(2024, 6, 1),)),
        ("last weekend before March 2024", (Span(2024, 3), LAST_WEEKEND)),
        ("last Friday, on 23 January 2022", (Span(2022, 1, 21), Span(2022, 1, 23))),
        ("after 5 May 2024", (_since(2024, 5, 6),)),
        ("after May 2024", (_since(2024, 6, 1),)),
        ("before March 2024", (Span(start=FIRST, end=datetime(2024, 3, 1, tzinfo=UTC)),)),
        ("until March 2024", (Span(start=FIRST, end=datetime(2024, 4, 1, tzinfo=UTC)),)),
        ("before March", (Span(None, 3),)),
        ("after December 2024", (Span(2024, 12),)),
    ],
)
def test_a_time_may_reach_from_one_to_another(text: str, expected: tuple[Span, ...]) -> None:
    assert spans(f"What did I do {text}?", now=NOW) == expected


@each_row(
    ("text", "expected"),
    [
        ("on Oct 3", Span(None, 10, 3)),
        ("on 3 Oct 2023", Span(2023, 10, 3)),
        ("in Sept", Span(None, 9)),
        ("on Feb. 14th", Span(None, 2, 14)),
        ("on 13/10/2023", Span(2023, 10, 13)),
        ("on 10/13/2023", Span(2023, 10, 13)),
        ("in 2023-10", Span(2023, 10)),
        ("in 10/2023", Span(2023, 10)),
        ("on the 5th", Span(2024, 6, 5)),
        ("on the 20th", Span(2024, 5, 20)),
        ("at Christmas", Span(None, 12, 24, last=26)),
        ("last Christmas", Span(2023, 12, 24, last=26)),
        ("on New Year's Eve 2022", Span(2022, 12, 31)),
        ("on Halloween", Span(None, 10, 31)),
        ("in the summer of 2023", _from_to((2023, 6, 1), (2023, 9, 1))),
        ("last winter", _from_to((2023, 12, 1), (2024, 3, 1))),
        ("last summer", _from_to((2023, 6, 1), (2023, 9, 1))),
        ("this summer", _from_to((2024, 6, 1), (2024, 9, 1))),
        ("in Q2 2023", _from_to((2023, 4, 1), (2023, 7, 1))),
        ("in the first quarter of 2024", _from_to((2024, 1, 1), (2024, 4, 1))),
        ("in Q4", _from_to((2023, 10, 1), (2024, 1, 1))),
        ("today", _from_to((2024, 6, 15), (2024, 6, 16))),
        ("this morning", _from_to((2024, 6, 15), (2024, 6, 16))),
        ("on Tuesday last week", Span(2024, 6, 4)),
        ("on Tuesday of last week", Span(2024, 6, 4)),
        ("half a year ago", Span(start=_days_ago(7.5 * 30.44 - 30.44), end=_days_ago(5.5 * 30.44))),
        (
            "the day before yesterday",
            Span(
                start=_days_ago(3),
                end=_days_ago(1),
                core=(datetime(2024, 6, 13, tzinfo=UTC), datetime(2024, 6, 14, tzinfo=UTC)),
            ),
        ),
    ],
)
def test_a_time_is_named_as_people_name_it(text: str, expected: Span) -> None:
    assert spans(f"What did I do {text}?", now=NOW) == (expected,)


THURSDAY = datetime(2026, 11, 19, 15, tzinfo=UTC)


@each_row(
    ("text", "first", "last"),
    [
        ("What did I do last weekend?", 14, 15),
        ("What did I do this weekend?", 14, 15),
        ("What did I do at the weekend?", 14, 15),
        ("What did I do over the weekend?", 14, 15),
        ("What did I do yesterday?", 18, 18),
        ("What did I do the day before yesterday?", 17, 17),
        ("What did I do in the last three days?", 16, 19),
        ("What happened in the past seven days?", 12, 19),
        ("Was habe ich letztes Wochenende gemacht?", 14, 15),
        ("Was habe ich am Wochenende gemacht?", 14, 15),
        ("Qu'est-ce que j'ai fait le week-end dernier ?", 14, 15),
        ("Qu'est-ce que j'ai fait ce week-end ?", 14, 15),
        ("¿Qué hice el fin de semana pasado?", 14, 15),
        ("Cosa ho fatto lo scorso fine settimana?", 14, 15),
        ("Wat heb ik vorig weekend gedaan?", 14, 15),
        ("Что я делал на прошлых выходных?", 14, 15),
        ("先週末は何をしましたか？", 14, 15),
        ("上周末我做了什么？", 14, 15),
        ("Was habe ich vorgestern gemacht?", 17, 17),
        ("Qu'ai-je fait avant-hier ?", 17, 17),
        ("¿Qué hice anteayer?", 17, 17),
        ("¿Qué hice antes de ayer?", 17, 17),
        ("Cosa ho fatto l'altro ieri?", 17, 17),
        ("O que fiz anteontem?", 17, 17),
        ("Wat heb ik eergisteren gedaan?", 17, 17),
        ("Что я делал позавчера?", 17, 17),
        ("一昨日は何をしましたか？", 17, 17),
        ("前天我做了什么？", 17, 17),
        ("Was habe ich heute gemacht?", 19, 19),
    ],
)
def test_a_question_for_a_time_alone_is_about_the_very_time(
    text: str, first: int, last: int
) -> None:
    question = read(text, now=THURSDAY)
    noons = [(day, datetime(2026, 11, day, 12, tzinfo=UTC)) for day in range(1, 20)]

    assert asks_only_time(text)
    assert [day for day, at in noons if is_within(at, question.times)] == [*range(first, last + 1)]
    assert all(closeness(at, question.times) for _, at in noons[first - 1 : last])


@each_row(
    ("day", "text", "saturday"),
    [
        (14, "last weekend", 7),
        (14, "this weekend", 14),
        (15, "at the weekend", 14),
        (16, "last weekend", 14),
        (20, "over the weekend", 14),
    ],
)
def test_a_weekend_is_the_last_one_that_has_begun(day: int, text: str, saturday: int) -> None:
    now = datetime(2026, 11, day, 9, tzinfo=UTC)

    (asked,) = spans(f"What did I do {text}?", now=now)

    assert str(asked) == f"{saturday} November 2026 to {saturday + 1} November 2026"


@pytest.mark.parametrize(
    "text",
    [
        "What do I do at the weekend?",
        "Was mache ich am Wochenende?",
        "Was ist am Wochenende los?",
        "What did I do on the weekend of the fair?",
    ],
)
def test_a_weekend_that_is_not_over_or_another_is_no_time(text: str) -> None:
    assert spans(text, now=THURSDAY) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("next year", Span(2025)),
        ("next month", Span(2024, 7)),
        ("next week", _from_to((2024, 6, 17), (2024, 6, 24))),
    ],
)
def test_what_comes_next_is_a_time(text: str, expected: Span) -> None:
    assert spans(f"Where will I be {text}?", now=NOW) == (expected,)


def test_the_month_after_december_is_of_the_next_year() -> None:
    assert spans("next month", now=NOW.replace(month=12)) == (Span(2025, 1),)


def test_a_time_is_written_without_the_days_around_it() -> None:
    texts = ("yesterday", "today", "last week", "in the last three days", "since 3 May")
    written = [str(spans(f"What did I do {text}?", now=THURSDAY)[0]) for text in texts]

    assert written == [
        "18 November 2026",
        "19 November 2026",
        "9 November 2026 to 15 November 2026",
        "16 November 2026 to 19 November 2026",
        "3 May 2026 to 19 November 2026",
    ]


def test_what_may_be_a_day_or_a_month_is_both() -> None:
    asked = spans("What happened on 10/03/2023?", now=NOW)

    assert asked == (Span(2023, 3, 10), Span(2023, 10, 3))


@each_row(
    "text",
    [
        "What do I have to do today?",
        "What do I want for Christmas?",
        "What is on the 5th floor?",
        "When is Jan's birthday?",
        "What does Jan do?",
        "Is it a fall or a spring?",
        "Where is the Q3 report?",
        "Who sat on the 5th row?",
        "the ratio 3/2/10",
        "version 2023-1",
    ],
)
def test_what_is_to_come_or_no_time_is_none(text: str) -> None:
    assert spans(text, now=NOW) == ()


def test_a_time_of_any_year_is_looked_for_in_the_last_one() -> None:
    assert Span(None, 5, 3).latest(NOW) == Span(2024, 5, 3)
    assert Span(None, 6, 16).latest(NOW) == Span(2023, 6, 16)
    assert Span(None, 6).latest(NOW) == Span(2024, 6)
    assert Span(None, 2, 29).latest(NOW.replace(year=2023)) == Span(2020, 2, 29)
    assert Span(2020, 5).latest(NOW) == Span(2020, 5)


def test_an_open_time_is_written_as_one() -> None:
    (before,) = spans("before March 2024", now=NOW)

    assert str(before) == "before 1 March 2024"
    assert closeness(datetime(2020, 1, 1, tzinfo=UTC), [before]) == 1.0
    assert closeness(datetime(2024, 3, 2, tzinfo=UTC), [before]) == 0.0


@each_row(
    ("text", "expected"),
    [
        ("last year", Span(2023)),
        ("Previous Year", Span(2023)),
        ("last month", Span(2024, 5)),
        ("last Monday", Span(2024, 6, 10)),
        ("on Friday", Span(2024, 6, 14)),
        ("on Saturday", Span(2024, 6, 8)),  # it is one now
        ("this Sunday", Span(2024, 6, 9)),
    ],
)
def test_a_year_a_month_and_a_day_of_the_week_are_those_of_the_calendar(
    text: str, expected: Span
) -> None:
    assert spans(f"What happened {text}?", now=NOW) == (expected,)


def test_the_month_before_january_is_of_the_year_before() -> None:
    now = datetime(2024, 1, 31, tzinfo=UTC)

    assert spans("last month", now=now) == (Span(2023, 12),)


def test_a_year_is_less_close_than_a_day_or_a_month() -> None:
    assert closeness(datetime(2023, 5, 7, tzinfo=UTC), [Span(2023)]) == 0.6
    assert closeness(datetime(2024, 1, 1, tzinfo=UTC), [Span(2023)]) == 0.0


def test_several_times_are_all_read_once() -> None:
    text = "Between 1 May 2023 and 3 June 2023, or on 1 May 2023"

    assert spans(text, now=NOW) == (_from_to((2023, 5, 1), (2023, 6, 4)), Span(2023, 5, 1))


@each_row(("day", "expected"), [(7, 1.0), (6, 1.0), (14, 1.0), (25, 0.5), (4, 0.5), (1, 0.0)])
def test_a_day_is_spoken_of_on_it_and_in_the_week_after(day: int, expected: float) -> None:
    assert closeness(datetime(2023, 5, day, tzinfo=UTC), [Span(2023, 5, 7)]) == expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [((2023, 5, 31), 1.0), ((2023, 6, 10), 0.5), ((2023, 6, 20), 0.0), ((2022, 5, 3), 0.0)],
)
def test_a_month_is_spoken_of_in_it_and_early_in_the_next(
    moment: tuple[int, int, int], expected: float
) -> None:
    assert closeness(datetime(*moment, tzinfo=UTC), [Span(2023, 5)]) == expected


def test_without_a_year_any_year_will_do() -> None:
    for year in (1999, 2023):
        assert closeness(datetime(year, 5, 8, tzinfo=UTC), [Span(None, 5, 7)]) == 1.0
        assert closeness(datetime(year, 5, 8, tzinfo=UTC), [Span(None, 5)]) == 1.0


def test_the_turn_of_the_year_does_not_part_days_that_are_close() -> None:
    assert closeness(datetime(2024, 1, 3, tzinfo=UTC), [Span(None, 12, 31)]) == 1.0
    assert closeness(datetime(2024, 1, 3, tzinfo=UTC), [Span(None, 12)]) == 0.5
    assert closeness(datetime(2023, 12, 31, 12, tzinfo=UTC), [Span(None, 1, 1)]) == 1.0
    assert closeness(datetime(2024, 1, 3, tzinfo=UTC), [Span(2024, 12, 31)]) == 0.0


def test_the_29th_of_february_is_no_day_of_other_years() -> None:
    assert closeness(datetime(2024, 3, 1, tzinfo=UTC), [Span(None, 2, 29)]) == 1.0
    assert closeness(datetime(2023, 3, 1, tzinfo=UTC), [Span(None, 2, 29)]) == 0.0


def test_the_closest_of_several_times_counts_and_of_none_nothing() -> None:
    moment = datetime(2023, 5, 7, tzinfo=UTC)

    assert closeness(moment, [Span(2020), Span(2023, 5, 7)]) == 1.0
    assert 0 < closeness(moment, [Span(2023)]) < 1
    assert closeness(moment, []) == 0.0


PIECES = st.sampled_from(
    [
        "99 years ago",
        "999 years ago",
        "yesterday",
        "last year",
        "last month",
        "on sunday",
        "the past 999 years",
        "31.12.9999",
        "0 days ago",
        "may",
        "march 99",
        "31 february",
        "0000-00-00",
        "9999-12-31",
        "0001-01-01",
        "in 1900",
        "of 2099",
        "١٢ may",
        "twelve weeks ago",
        "a few",
        "a couple of",
        "² may 0",
        "december 31",
        "29 february",
        "1 january 0001",
        "this weekend",
        "next month",
        "next year",
        "from",
        "to",
        "between",
        "and",
        "since",
        "before",
        "after",
        "in winter 9999",
        "in q4 0001",
        "on the 31st",
        "christmas",
        "did i",
        "today",
        "31/12/9999",
        "in 0001-01",
        ",",
    ]
)
MOMENTS = st.datetimes(timezones=st.just(UTC))


@pytest.mark.slow
@given(st.one_of(st.text(), st.lists(PIECES).map(" ".join)), MOMENTS, MOMENTS)
def test_any_text_at_any_time_has_times_that_can_be_compared(
    text: str, now: datetime, moment: datetime
) -> None:
    found = spans(text, now=now)

    assert 0.0 <= closeness(moment, found) <= 1.0
    for span in found:
        bounds = span.bounds()
        assert bounds is None or bounds[0] <= bounds[1]
    assert spans(text, now=now) == found


@pytest.mark.parametrize("text", ["yesterday", "999 years ago", "last year", "0 days ago"])
def test_the_beginning_and_the_end_of_time_can_be_asked_at(text: str) -> None:
    for now in (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)):
        (span,) = spans(text, now=now)

        assert span.bounds() is not None


@pytest.mark.parametrize("text", ["last month", "on Monday", "last Sunday", "past 999 years"])
def test_no_time_before_or_after_all_others_is_an_error(text: str) -> None:
    for now in (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)):
        assert all(span.bounds() is not None for span in spans(text, now=now))


@pytest.mark.slow
@pytest.mark.timeout(scaled(20))
@pytest.mark.parametrize(
    "text", ["1 " * 10**5, "1" + " " * 10**6, "may " * 10**5, "last\n" * 10**5]
)
def test_a_long_text_is_read_in_one_go(text: str) -> None:
    assert isinstance(spans(text, now=NOW), tuple)


@each_row(
    ("day", "expected"),
    [(-2, 0.5), (0, 1.0), (6, 1.0), (13, 1.0), (20, 0.5), (40, 0.0)],
)
def test_a_part_of_a_month_is_spoken_of_in_it_and_in_the_week_after(
    day: int, expected: float
) -> None:
    (asked,) = spans("in the second week of May 2023", now=NOW)

    moment = datetime(2023, 5, 8, 12, tzinfo=UTC) + timedelta(days=day)

    assert closeness(moment, [asked]) == expected
    assert str(asked) == "8 to 14 May 2023"


@each_row(
    ("text", "begins", "ends"),
    [
        ("two weeks before August 11, 2023", (7, 24), (8, 5)),
        ("the week before 3 August 2023", (7, 27), (8, 7)),
        ("the day after 2023-07-31", (7, 31), (8, 9)),
        ("the Sunday before August 3, 2023", (7, 29), (8, 7)),
        ("the weekend after the 3rd of August, 2023", (8, 4), (8, 13)),
        ("last week, as mentioned on 3 August 2023", (7, 20), (8, 3)),
    ],
)
def test_a_time_may_be_told_from_a_date(
    text: str, begins: tuple[int, int], ends: tuple[int, int]
) -> None:
    found = spans(f"What did I do {text}?", now=NOW)[-1]

    assert found.start is not None
    assert found.end is not None
    assert (found.start.year, found.start.month, found.start.day) == (2023, *begins)
    assert (found.end.year, found.end.month, found.end.day) == (2023, *ends)
    assert offsets(text) == ()


@each_row(
    ("text", "expected"),
    [
        ("three weeks after the wedding?", Offset("the wedding", 21, 3.5)),
        ("two days before my birthday", Offset("my birthday", -2, 1)),
        ("a couple of months prior to the move?", Offset("the move", -2 * 30.44, 15.22)),
        ("the weekend after the concert, with Eva?", Offset("the concert", 1, 1, 5)),
        ("on Friday before the trip?", Offset("the trip", -1, 1, 4)),
        ("the day after Ann's party?", Offset("ann's party", 1, 1)),
        ("the week following our holidays", Offset("our holidays", 3.5, 3.5)),
    ],
)
def test_a_time_may_be_told_from_an_event(text: str, expected: Offset) -> None:
    assert offsets(f"What did I do {text}") == (expected,)
    assert spans(f"What did I do {text}", now=NOW) == ()


@each_row(
    "text", ["after the wedding", "the day after tomorrow", "two weeks ago", "days after", "before"]
)
def test_without_a_distance_or_an_event_there_is_no_offset(text: str) -> None:
    assert offsets(f"What did I do {text}?") == ()


def test_an_offset_from_a_day_is_a_time() -> None:
    friday = datetime(2023, 5, 5, 20, tzinfo=UTC)

    assert str(Offset("x", 21, 3.5).from_day(friday)) == "23 May 2023 to 3 June 2023"
    assert str(Offset("x", 1, 1, 5).from_day(friday)) == "5 May 2023 to 14 May 2023"
    assert str(Offset("x", -1, 1, 4).from_day(friday)) == "27 April 2023 to 6 May 2023"
    Offset("x", 999 * 365.25, 1, None).from_day(datetime(9999, 12, 31, tzinfo=UTC))
    Offset("x", 1, 1, 2).from_day(datetime(9999, 12, 31, tzinfo=UTC))


@each_row(
    ("text", "day"),
    [
        ("We married yesterday!", (2024, 6, 14)),
        ("The concert was last Monday", (2024, 6, 10)),
        ("On 3 June 2024 we moved", (2024, 6, 3)),
        ("We moved in May", None),
        ("On 3 June 2024 or yesterday", None),
        ("We moved", None),
    ],
)
def test_a_text_may_tell_one_day(text: str, day: tuple[int, int, int] | None) -> None:
    told = named_day(text, now=NOW)

    assert (None if told is None else (told.year, told.month, told.day)) == day


_NEEDS = [
    (_date_phrases._NAMED, _date_phrases._SHORT_MONTHS),
    (_date_phrases._OFFSET, _date_phrases._SIDES),
    (_date_phrases._PAST, _date_phrases._ENDS),
    (_date_phrases._AGO, ("ago",)),
    (_date_phrases._NEXT, ("next",)),
    (_date_phrases._WEEKEND, ("weekend",)),
    (_date_phrases._WEEKDAY, ("day",)),
    *((form, tuple("0123456789")) for form in (*_date_phrases._NUMERIC, _date_phrases._YEAR)),
]


@pytest.mark.parametrize("at", range(len(_NEEDS)))
@given(st.data())
def test_what_a_pattern_finds_has_a_word_that_it_is_used_for(at: int, data: st.DataObject) -> None:
    form, words = _NEEDS[at]
    text = data.draw(st.from_regex(form.pattern, alphabet=st.characters(codec="ascii")))

    assert _date_phrases._has_any(text, words)
