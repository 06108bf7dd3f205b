"""Rows of a table and the numbers and times of numpy and pandas are taken as they are."""

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from orbiter.memory import AgentMemory
from orbiter.memory import sync as blocking
from orbiter.memory.errors import MessageError, QueryError

_ROWS = [
    {"note": "Ann likes green tea", "stars": 5, "city": "Oslo"},
    {"note": "Bob likes coffee", "stars": 3, "city": None},
]
_CSV = "note,stars,city\nAnn likes green tea,5,Oslo\nBob likes coffee,3,\n"


class Frame:
    """A DataFrame, as far as it is read; pandas itself is no dependency of the tests."""

    columns = ("note", "stars", "when")

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return self.rows


Timestamp = type(
    "Timestamp",
    (datetime,),
    {
        "__module__": "pandas",
        "isoformat": lambda _self, *_: "2026-01-02T00:00:00.123456789",
        "to_pydatetime": lambda self, warn: datetime(self.year, self.month, self.day, tzinfo=UTC),
    },
)
"""A time of pandas, which has nanoseconds that no store keeps."""


async def test_rows_are_memories_whose_other_fields_are_labels(
    any_memory: AgentMemory, who: str
) -> None:
    ann = any_memory.scope(who)
    stored = await ann.remember_many(_ROWS, text="note", tags=["survey"])

    assert [item.content for item in stored] == [row["note"] for row in _ROWS]
    assert stored[0].metadata.extra == {"stars": 5, "city": "Oslo", "tags": ["survey"]}
    assert stored[1].metadata.extra == {"stars": 3, "tags": ["survey"]}
    assert [item.id for item in await ann.list(where={"stars": {"$gte": 4}})] == [stored[0].id]
    assert await any_memory.scope(f"{who}-other").list() == []


async def test_a_reader_of_csv_lines_of_json_and_columns_are_taken(memory: AgentMemory) -> None:
    ann = memory.scope("ann")

    by_reader = await ann.remember_many(csv.DictReader(io.StringIO(_CSV)), text="note")
    lines = "\n".join(map(json.dumps, _ROWS)).splitlines()
    by_lines = await ann.remember_many(map(json.loads, lines), text="note")
    by_column = await ann.remember_many(np.array([row["note"] for row in _ROWS]))
    by_loop = await ann.remember_many(str(row["note"]) for row in _ROWS)

    for stored in (by_reader, by_lines, by_column, by_loop):
        assert [item.content for item in stored] == [row["note"] for row in _ROWS]
    assert by_reader[0].metadata.extra == {"stars": "5", "city": "Oslo"}
    assert by_reader[1].metadata.extra == {"stars": "3", "city": ""}


async def test_a_frame_is_taken_with_numbers_and_times_of_its_own(
    any_memory: AgentMemory, who: str
) -> None:
    frame: Any = Frame(
        [
            {"note": "tea", "stars": np.int64(5), "when": np.datetime64("2026-01-02T03:04")},
            {"note": "milk", "stars": float("nan"), "when": np.datetime64("NaT")},
            {"note": "wine", "stars": np.float32(0.5), "when": date(2026, 1, 2)},
        ]
    )
    stored = await any_memory.scope(who).remember_many(frame, text="note")

    assert [item.metadata.extra for item in stored] == [
        {"stars": 5, "when": "2026-01-02T03:04:00"},
        {},
        {"stars": 0.5, "when": "2026-01-02"},
    ]


async def test_a_frame_of_pandas_is_taken(memory: AgentMemory) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(_ROWS)
    frame["when"] = pandas.to_datetime(["2026-01-02", None])

    by_frame = await memory.default_user.remember_many(frame, text="note")
    by_column = await memory.default_user.remember_many(frame["note"])

    assert [item.content for item in by_frame] == [item.content for item in by_column]
    assert by_frame[0].metadata.extra == {"stars": 5, "city": "Oslo", "when": "2026-01-02T00:00:00"}
    assert by_frame[1].metadata.extra == {"stars": 3}


@pytest.mark.parametrize(
    ("rows", "text", "said"),
    [
        (_ROWS, "notes", r"row 0 has no field `notes`; did you mean `note`\?"),
        (_ROWS, "zzz", "row 0 has no field `zzz`; it has `note`, `stars`, `city`"),
        ([*_ROWS, {"note": None}], "note", "row 2 has no text in `note`; leave such rows out"),
        ([*_ROWS, {"note": "  "}], "note", "row 2 has no text in `note`; leave such rows out"),
        ([{"note": 5}], "note", "`note` of row 0 must be a text, not 5"),
        (["a text"], "note", "row 0 must be a dict"),
        ([{"note": "tea", "to": object()}], "note", "at `to`: `object` is not JSON"),
    ],
)
async def test_a_wrong_row_is_named_and_nothing_is_stored(
    any_memory: AgentMemory, who: str, rows: list[Any], text: str, said: str
) -> None:
    ann = any_memory.scope(who)

    with pytest.raises(ValueError, match=f"(?s){said}"):
        await ann.remember_many(rows, text=text)

    assert await ann.list() == []


async def test_rows_without_a_field_for_the_text_say_how(any_memory: AgentMemory, who: str) -> None:
    way = r'only `note`, `stars`, `city`; rows .* `remember_many\(rows, text="note"\)`; a message '
    with pytest.raises(MessageError, match=way):
        await any_memory.scope(who).remember_many(_ROWS)


async def test_rows_with_a_key_are_stored_once(any_memory: AgentMemory, who: str) -> None:
    ann = any_memory.scope(who)

    first = await ann.remember_many(_ROWS, text="note", idempotency_key="a")
    again = await ann.remember_many(_ROWS, text="note", idempotency_key="a")

    assert [item.id for item in again] == [item.id for item in first]
    assert len(await ann.list()) == len(_ROWS)


def test_the_memory_itself_takes_rows_for_the_default_user() -> None:
    with blocking.AgentMemory("memory://", embeddings=None) as memory:
        memory.default_user.remember_many(_ROWS, text="note")

        assert len(memory.default_user.recall("tea", k=1)) == 1


# Numbers and times


async def test_numbers_of_numpy_are_numbers(any_memory: AgentMemory, who: str) -> None:
    number: Any = np.int64(int(who[:8], 16))
    one: Any = np.int32(1)
    half: Any = np.float32(0.5)
    ann = any_memory.scope(number)
    extra = {"year": np.int64(2020), "is_new": np.True_}
    item = await ann.remember("tea", extra=extra, importance=half)

    assert item.metadata.user_id == str(int(number))
    assert item.metadata.extra == {"year": 2020, "is_new": True, "importance": 0.5}
    assert [hit.id for hit in await ann.recall("tea", k=one)] == [item.id]
    assert len(await ann.list(limit=one, where={"year": np.int64(2020)})) == 1
    assert (await ann.facts.put("age", np.int64(7))).value == 7
    await ann.chat(one).add("hello")
    assert len(await ann.chat("1").messages(rounds=one)) == 1
    wrong: Any
    for wrong in (np.True_, np.float64(1.5)):
        with pytest.raises(QueryError, match="`user_id` must be a string"):
            any_memory.scope(wrong)


@pytest.mark.parametrize(
    "moment",
    [
        np.datetime64("2026-01-02"),
        np.datetime64("2026-01-02T00:00:00.123456789").astype("datetime64[D]"),
        np.datetime64("2026-01-02", "ns"),
        date(2026, 1, 2),
        Timestamp(2026, 1, 2),
    ],
)
async def test_times_of_numpy_and_pandas_are_times(
    any_memory: AgentMemory, who: str, moment: Any
) -> None:
    ann = any_memory.scope(who)
    item = await ann.remember("tea", created_at=moment)

    assert type(item.created_at) is datetime
    assert item.created_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert [each.id for each in await ann.list(since=moment)] == [item.id]
    is_day = type(moment) is date  # which is included
    assert len(await ann.list(until=moment)) == is_day
    assert len(await ann.recall("tea", until=moment)) == is_day
    assert [each.id for each in await ann.list(where={"created_at": moment})] == [item.id]


async def test_a_duration_of_numpy_is_one(any_memory: AgentMemory, who: str) -> None:
    span: Any = np.timedelta64(2, "D")
    item = await any_memory.scope(who).remember("tea", expires=span)

    assert item.expires_at is not None
    assert abs(item.expires_at - item.created_at - timedelta(days=2)) < timedelta(hours=1)


async def test_what_is_no_time_is_named(any_memory: AgentMemory, who: str) -> None:
    ann = any_memory.scope(who)

    for wrong in (np.datetime64("NaT"), 5, np.array(["2026-01-02"], "datetime64[D]")):
        with pytest.raises(QueryError, match="`since` must be a datetime"):
            await ann.list(since=wrong)  # type: ignore[arg-type]


async def test_a_row_was_said_when_its_created_at_says(memory: AgentMemory) -> None:
    ann = memory.scope("ann")
    frame = Frame(
        [
            {"note": "tea", "created_at": Timestamp(2026, 2, 8, tzinfo=UTC), "rating": 1},
            {"note": "coffee", "created_at": np.datetime64("NaT"), "rating": 2},
            {"note": "water", "created_at": None, "rating": 3},
            {"note": "milk", "created_at": "2026-02-09", "rating": 4},
        ]
    )

    stored = await ann.remember_many(frame, text="note")  # type: ignore[arg-type]  # as of pandas

    assert stored[0].created_at == datetime(2026, 2, 8, tzinfo=UTC)
    assert stored[1].created_at > datetime(2026, 3, 1, tzinfo=UTC)
    assert [item.metadata.extra for item in stored] == [
        {"rating": number} for number in (1, 2, 3, 4)
    ]
    until = await ann.list(until=datetime(2026, 3, 1, tzinfo=UTC))
    assert [item.content for item in until] == ["milk", "tea"]
    with pytest.raises(QueryError, match=r"row 0: `created_at` must be a datetime.*'soon'"):
        await ann.remember_many([{"note": "x", "created_at": "soon"}], text="note")


class _Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04:00"),  # noqa: DTZ001 - as people write it
        (date(2026, 1, 2), "2026-01-02"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a/b.txt"), "/a/b.txt"),
        (Decimal("1.5"), 1.5),
        (_Colour.RED, "red"),
        ({"b", "a"}, ["a", "b"]),
        ((1, (2, 3)), [1, [2, 3]]),
        ({"when": date(2026, 1, 2)}, {"when": "2026-01-02"}),
        (np.float32(1.5), 1.5),
        (np.arange(3), [0, 1, 2]),
        (np.datetime64("2026-01-02"), "2026-01-02T00:00:00"),
    ],
)
async def test_a_label_may_be_what_programs_hold(
    any_memory: AgentMemory, who: str, value: object, stored: object
) -> None:
    ann = any_memory.scope(who)

    item = await ann.remember("tea", extra={"it": value})
    (row,) = await ann.remember_many([{"note": "milk", "it": value}], text="note")
    changed = await ann.update(item, extra={"also": value})

    for each in (item, row):
        assert each.metadata.extra["it"] == stored
    assert changed.metadata.extra["also"] == stored


_LOOP: dict[str, object] = {}
_LOOP["again"] = _LOOP


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "at `it.at`: `object` is not JSON; use None, bool"),
        (float("nan"), "at `it.at`: nan is not JSON; leave it out, or use None"),
        (np.datetime64("NaT"), "at `it.at`: NaT is not JSON; leave it out"),
        (timedelta(days=1), r"at `it.at`: `timedelta` is not JSON; use its `total_seconds\(\)`"),
        (
            Decimal("1.23456789012345678901"),
            r"at `it.at`: `Decimal` is not JSON; use its `str\(\)`",
        ),
        (b"tea", "at `it.at`: `bytes` is not JSON; use a text"),
        ({1: 2}, "at `it.at`: key 1 is not a string"),
        (_LOOP, "nested deeper than 32 levels"),
    ],
)
async def test_a_label_that_cannot_be_stored_is_named(
    memory: AgentMemory, who: str, value: object, said: str
) -> None:
    ann = memory.scope(who)

    with pytest.raises(QueryError, match=f"`extra` cannot be stored: .*{said}"):
        await ann.remember("tea", extra={"it": {"at": value}})
    with pytest.raises(QueryError, match=f"row 0 cannot be stored: .*{said}"):
        await ann.remember_many([{"note": "tea", "it": {"at": value}}], text="note")

    assert await ann.list() == []


async def test_created_at_may_name_the_column_of_times(any_memory: AgentMemory, who: str) -> None:
    ann = any_memory.scope(who)
    rows: list[dict[str, Any]] = [
        {"note": "tea", "when": "2024-01-02"},
        {"note": "milk", "when": datetime(2024, 1, 3, tzinfo=UTC)},
    ]

    stored = await ann.remember_many(Frame(rows), text="note", created_at="when")  # type: ignore[arg-type]
    dated = await ann.remember_many(
        [{"note": "rum", "when": "soon"}], text="note", created_at="2020-02-02"
    )

    assert [item.created_at.date() for item in stored] == [date(2024, 1, 2), date(2024, 1, 3)]
    assert [item.metadata.extra for item in stored] == [{}, {}]
    assert dated[0].created_at.date() == date(2020, 2, 2)
    assert dated[0].metadata.extra == {"when": "soon"}
    both = [{**rows[0], "created_at": "2020-01-01"}]
    with pytest.raises(QueryError, match="neither a time nor a column.*'whne'; they have `note`"):
        await ann.remember_many(rows, text="note", created_at="whne")
    with pytest.raises(QueryError, match="`created_at` beside `when`"):
        await ann.remember_many(both, text="note", created_at="when")


@pytest.mark.parametrize("is_list", [False, True])
async def test_to_remember_a_table_as_one_names_the_call_for_its_rows(
    any_memory: AgentMemory, who: str, is_list: bool
) -> None:
    table: Any = _ROWS if is_list else Frame(_ROWS)
    call = 'rows, text="note"' if is_list else 'df, text="column"'

    with pytest.raises(
        QueryError, match=f"cannot be stored as one memory; .*`remember_many.{call}.`"
    ):
        await any_memory.scope(who).remember(table)
