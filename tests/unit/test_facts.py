"""Folding against a plain model: every moment and every knowledge is asked for, one by one."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.rows import each_row

from orbiter.memory.model.facts import (
    FactMemory,
    FactSpan,
    conflicts_in,
    current,
    dated,
    entries,
    holding,
    said_last,
    same_value,
    show_value,
    span_of,
    timeline,
)
from orbiter.memory.model.items import MemoryMetadata, MemoryStatus
from orbiter.memory.model.serialization import dump_item, load_item
from orbiter.memory.model.validation import Json

DAY_0 = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 8


def day(number: int) -> datetime:
    return DAY_0 + timedelta(days=number)


def fact(value: object = "Berlin", *, source: str | None = None, **fields: Any) -> FactMemory:
    days = ("valid_from", "valid_to", "recorded_at", "retracted_at")
    times = {n: day(v) if n in days and isinstance(v, int) else v for n, v in fields.items()}
    extra = {} if source is None else {"source": source}
    return FactMemory(
        **{"key": "home_city", "value": value, "metadata": MemoryMetadata(extra=extra), **times}
    )


@st.composite
def facts(draw: st.DrawFn) -> FactMemory:
    start = draw(st.integers(0, DAYS - 2))
    recorded = draw(st.integers(0, DAYS - 1))
    return fact(
        draw(st.sampled_from(["Berlin", "Munich", "Rome"])),
        id=draw(st.text("abcdef", min_size=6, max_size=6)),
        key=draw(st.sampled_from(["home_city", "job"])),
        valid_from=start,
        valid_to=draw(st.none() | st.integers(start + 1, DAYS)),
        recorded_at=recorded,
        retracted_at=draw(st.none() | st.integers(recorded, DAYS)),
        status=draw(st.sampled_from([*MemoryStatus, MemoryStatus.ACCEPTED])),
        is_end=draw(st.sampled_from([False, False, False, True])),
        source=draw(st.sampled_from([None, "web", "agent"])),
    )


def model_holding(given_facts: list[FactMemory], as_of: int, known_at: int) -> FactMemory | None:
    """Say the rule once more, as plainly as it can be said."""
    best: FactMemory | None = None
    for one in given_facts:
        if one.status != "accepted" or one.recorded_at > day(known_at):
            continue
        if one.retracted_at is not None and one.retracted_at <= day(known_at):
            continue
        if one.valid_from > day(as_of):
            continue
        if one.valid_to is not None and one.valid_to <= day(as_of):
            continue
        if best is None or (one.valid_from, one.recorded_at, one.id) > (
            best.valid_from,
            best.recorded_at,
            best.id,
        ):
            best = one
    return None if best is None or best.is_end else best


several = st.lists(facts(), max_size=7, unique_by=lambda each: each.id)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(several)
def test_what_holds_is_what_the_rule_says_at_every_moment(given_facts: list[FactMemory]) -> None:
    for key in ("home_city", "job"):
        of_key = [one for one in given_facts if one.key == key]
        for known_at in range(DAYS + 1):
            spans = timeline(of_key, known_at=day(known_at))
            for as_of in range(DAYS + 1):
                expected = model_holding(of_key, as_of, known_at)

                assert holding(of_key, as_of=day(as_of), known_at=day(known_at)) is expected
                folded = current(given_facts, as_of=day(as_of), known_at=day(known_at))
                assert folded.get(key) is expected
                at_that_time = [s for s in spans if _covers(s, day(as_of))]
                assert [s.fact for s in at_that_time] == ([] if expected is None else [expected])


def _covers(span: FactSpan, moment: datetime) -> bool:
    return span.start <= moment and (span.end is None or moment < span.end)


@settings(max_examples=25, deadline=None)
@given(several)
def test_a_timeline_is_in_order_and_never_empty_handed(given_facts: list[FactMemory]) -> None:
    of_key = [one for one in given_facts if one.key == "job"]

    spans = timeline(of_key, known_at=day(DAYS))

    for span in spans:
        assert span.end is None or span.start < span.end
    for one, next_one in itertools.pairwise(spans):
        assert one.end is not None
        assert one.end <= next_one.start
        assert not (one.fact is next_one.fact and one.end == next_one.start)


@settings(max_examples=25, deadline=None)
@given(several)
def test_conflicts_are_those_of_the_rule(given_facts: list[FactMemory]) -> None:
    """Each pair is looked at by itself, with what was recorded before the later one."""
    known = [f for f in given_facts if f.is_known(day(DAYS)) and f.key == "job"]
    known.sort(key=lambda f: (f.recorded_at, f.id))
    expected = set()
    for place, later in enumerate(known):
        before = known[:place]
        for earlier in before:
            is_last_word = not any(
                f.valid_from == earlier.valid_from for f in before[before.index(earlier) + 1 :]
            )
            is_over = later.is_end and earlier.valid_from > later.valid_from
            is_within = (
                not later.is_end
                and earlier.valid_to is not None
                and earlier.valid_from < later.valid_from < earlier.valid_to
                and (later.valid_to is not None or later.valid_from < earlier.recorded_at)
            )
            has_begun = is_last_word and later.covers(earlier.valid_from) and not is_over
            if (has_begun or is_within) and _differ(earlier, later):
                expected.add((earlier.id, later.id, "same time"))
        held = max(
            (f for f in before if f.covers(later.valid_from)),
            key=lambda f: (f.valid_from, f.recorded_at, f.id),
            default=None,
        )
        is_told = held is not None and (held.id, later.id, "same time") in expected
        if held and held.valid_from < later.valid_from and _differ(held, later) and not is_told:
            worth = {"web": 1, "agent": 4, None: 5}
            sources = [f.metadata.extra.get("source") for f in (later, held)]
            if worth[sources[0]] < worth[sources[1]]:
                expected.add((held.id, later.id, "less trusted"))

    found = conflicts_in(given_facts, known_at=day(DAYS))

    of_job = [c for c in found if c.key == "job"]
    assert {(c.earlier.id, c.later.id, c.reason) for c in of_job} == expected
    assert len(of_job) == len(expected)


def _differ(one: FactMemory, other: FactMemory) -> bool:
    return one.is_end != other.is_end or (not one.is_end and one.value != other.value)


def test_what_was_told_late_was_true_before_and_not_known() -> None:
    berlin = fact("Berlin", valid_from=0, recorded_at=0)
    munich = fact("Munich", valid_from=3, recorded_at=5)

    def city(as_of: int, known_at: int) -> object:
        found = holding([berlin, munich], as_of=day(as_of), known_at=day(known_at))
        return None if found is None else found.value

    assert city(4, 4) == "Berlin"
    assert city(4, 5) == "Munich"
    assert city(2, 9) == "Berlin"
    assert [str(each) for each in entries([munich, berlin], known_at=day(9))] == [
        "Berlin, 2024 to 4 Jan 2024",
        "Munich, since 4 Jan 2024",
    ]
    assert conflicts_in([berlin, munich]) == []


def test_an_end_ends_a_fact_and_a_new_one_begins_it_again() -> None:
    said = [
        fact("Acme", valid_from=0, recorded_at=0),
        fact(None, valid_from=2, recorded_at=2, is_end=True),
        fact("Initech", valid_from=4, recorded_at=4),
    ]

    spans = timeline(said, known_at=day(9))

    assert [(s.fact.value, s.start, s.end) for s in spans] == [
        ("Acme", day(0), day(2)),
        ("Initech", day(4), None),
    ]
    assert holding(said, as_of=day(3), known_at=day(9)) is None
    assert said[1].content == "home city: ended"


def test_the_one_that_began_before_holds_again_after_one_that_ended() -> None:
    home = fact("Berlin", valid_from=0, recorded_at=0)
    trip = fact("Rome", valid_from=2, valid_to=4, recorded_at=1)

    found = entries([home, trip], known_at=day(9))

    assert [len(each.spans) for each in found] == [2, 1]
    assert str(found[0]) == "Berlin, 2024 to 3 Jan 2024 and since 5 Jan 2024"
    at = span_of(home, [home, trip], as_of=day(1), known_at=day(9))
    assert (at.start, at.end) == (day(0), day(2))
    now = span_of(home, [home, trip], as_of=day(9), known_at=day(9))
    assert (now.start, now.end) == (day(4), None)


def test_what_is_retracted_was_known_until_then() -> None:
    wrong = fact("Rome", valid_from=1, recorded_at=1, retracted_at=3)
    right = fact("Berlin", valid_from=0, recorded_at=0)

    assert holding([wrong, right], as_of=day(2), known_at=day(2)) is wrong
    assert holding([wrong, right], as_of=day(2), known_at=day(3)) is right
    assert said_last([wrong, right], known_at=day(2)) == [wrong]
    assert said_last([wrong, right], known_at=day(3)) == [right]
    assert [str(e) for e in entries([wrong, right], known_at=day(3))] == [
        "Berlin, since 2024",
        "Rome, retracted 4 Jan 2024",
    ]
    assert str(entries([wrong, right], known_at=day(2))[1]) == "Rome, since 2 Jan 2024"


def test_two_values_for_the_same_time_are_a_conflict_until_one_is_retracted() -> None:
    one = fact("Berlin", valid_from=0, recorded_at=0)
    other = fact("Munich", valid_from=0, recorded_at=1)

    (found,) = conflicts_in([other, one])

    assert (found.earlier, found.later, found.reason) == (one, other, "same time")
    assert str(found) == "home_city: Berlin or Munich (same time)"
    one.retracted_at = day(2)
    assert conflicts_in([one, other]) == []
    assert len(conflicts_in([one, other], known_at=day(1))) == 1


def test_a_less_trusted_source_never_takes_over_unseen() -> None:
    said = fact("Berlin", valid_from=0, recorded_at=0, source="user")
    read = fact("Rome", valid_from=3, recorded_at=3, source="web:example.com")

    (found,) = conflicts_in([said, read])

    assert (found.earlier, found.later, found.reason) == (said, read, "less trusted")
    assert conflicts_in([said, fact("Rome", valid_from=3, recorded_at=3, source="user")]) == []
    assert conflicts_in([said, fact("Berlin", valid_from=3, recorded_at=3, source="web")]) == []


@each_row(
    ("start", "end", "shown"),
    [
        (datetime(2024, 3, 1, tzinfo=UTC), None, "since 1 Mar 2024"),
        (datetime(2020, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC), "2020 to 2024"),
        (datetime.min.replace(tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC), "until 2024"),
        (datetime.min.replace(tzinfo=UTC), None, ""),
        (
            datetime(2024, 3, 1, 9, tzinfo=UTC),
            datetime(2024, 3, 1, 17, 30, tzinfo=UTC),
            "1 Mar 2024, 09:00 to 17:30 UTC",
        ),
    ],
)
def test_dates_are_shown_as_people_say_them(
    start: datetime, end: datetime | None, shown: str
) -> None:
    one = fact(valid_from=start, valid_to=end)

    assert dated(one) == shown
    assert dated(FactSpan(one, start, end)) == shown


@each_row(
    ("value", "shown"),
    [
        ("Berlin", "Berlin"),
        (["tea", "coffee"], "tea, coffee"),
        ([], "[]"),
        (True, "true"),
        (None, "null"),
        ({"a": [1]}, '{"a": [1]}'),
    ],
)
def test_content_says_key_and_value(value: Json, shown: str) -> None:
    one = fact(value)

    assert show_value(value) == shown
    assert one.content == f"home city: {shown}"
    assert one.metadata.extra["fact"] == "home_city"


def test_a_fact_comes_back_as_it_was() -> None:
    one = fact({"a": [1, 2.5, None]}, valid_from=1, valid_to=2, source="web", source_ids=["m1"])

    record = dump_item(one)

    assert load_item(record) == one
    assert isinstance(load_item(record), FactMemory)
    assert record["valid_from"] == "2024-01-02T00:00:00.000000+00:00"


@each_row(
    "fields",
    [
        {"key": ""},
        {"key": " city"},
        {"key": "a\nb"},
        {"key": "a\u2028b"},
        {"key": "x" * 201},
        {"value": float("nan")},
        {"value": {1: 2}},
        {"value": "x" * 2**16},
        {"valid_from": 2, "valid_to": 2},
        {"source_ids": [""]},
    ],
)
def test_what_is_no_fact_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        fact(**fields)


def test_a_zone_is_turned_into_utc_and_a_span_is_checked_when_it_is_changed() -> None:
    east = datetime.fromisoformat("2024-03-01T00:00:00+02:00")
    one = fact(valid_from=east)

    assert one.valid_from == datetime(2024, 2, 29, 22, tzinfo=UTC)
    assert one.valid_from.tzinfo is UTC
    with pytest.raises(ValidationError, match="valid_to"):
        one.valid_to = east


def test_a_number_is_no_truth_value() -> None:
    assert same_value(1, 1.0)
    assert not same_value(1, True)
    assert not same_value([0], [False])
    assert same_value({"a": 1, "b": 2}, {"b": 2, "a": 1.0})
