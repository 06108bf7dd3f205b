"""`since` and `until` in words: a phrase bounds a search by the time that a question means."""

from datetime import UTC, date, datetime

import pytest
from tests.rows import each_row

from orbiter.memory.errors import QueryError
from orbiter.memory.recall._date_phrases import spans
from orbiter.memory.recall._dates import is_within
from orbiter.memory.recall.time_bounds import parse_time, read_bound

NOW = datetime(2026, 11, 19, 8, 30, tzinfo=UTC)  # a Thursday


@each_row(
    ("text", "begin", "end"),
    [
        ("Yesterday", "2026-11-18", "2026-11-19"),
        ("today", "2026-11-19", "2026-11-20"),
        ("last week", "2026-11-09", "2026-11-16"),
        ("this month", "2026-11-01", "2026-12-01"),
        ("two weeks ago", "2026-11-05", "2026-11-06"),
        ("on Monday", "2026-11-16", "2026-11-17"),
        ("March", "2026-03-01", "2026-04-01"),
        ("December", "2025-12-01", "2026-01-01"),
        ("2025", "2025-01-01", "2026-01-01"),
        ("2026-11-16", "2026-11-16", "2026-11-17"),
        ("letzte Woche", "2026-11-09", "2026-11-16"),
        ("2026-11-16T09:30+01:00", "2026-11-16T08:30", "2026-11-16T08:30"),
        ("3d", "2026-11-16T08:30", "2026-11-16T08:30"),
        ("12 hours ago", "2026-11-18T20:30", "2026-11-18T20:30"),
    ],
)
def test_since_is_where_a_named_time_begins_and_until_where_it_is_over(
    text: str, begin: str, end: str
) -> None:
    first, last = parse_time(text, now=NOW), parse_time(text, is_end=True, now=NOW)

    assert first == datetime.fromisoformat(begin).replace(tzinfo=UTC)
    assert last == datetime.fromisoformat(end).replace(tzinfo=UTC)


@pytest.mark.parametrize("phrase", ["yesterday", "last week", "last month", "on Monday"])
def test_a_bound_is_the_time_that_a_question_means(phrase: str) -> None:
    asked = [span.latest(NOW) for span in spans(f"What did I do {phrase}?", now=NOW)]

    assert is_within(parse_time(phrase, now=NOW), asked)
    assert not is_within(parse_time(phrase, is_end=True, now=NOW), asked)


@each_row(
    "text",
    ["", "soon", "not yesterday", "yesterday's call", "Monday or Tuesday", "01/02/2026"],
)
def test_a_text_that_is_not_one_time_is_refused_with_what_is_understood(text: str) -> None:
    with pytest.raises(QueryError, match="`since` must be a datetime, or a text such as") as told:
        read_bound("since", text)

    assert "`last week`" in str(told.value)


def test_a_day_as_an_object_is_bounded_as_its_text_is() -> None:
    day = date(2026, 11, 16)

    for name in ("since", "until"):
        moment = read_bound(name, day)
        assert moment.replace(tzinfo=UTC) == read_bound(name, "2026-11-16")
    assert read_bound("until", date.max).year == date.max.year
