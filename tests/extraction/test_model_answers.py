"""What a model may answer: sound facts of the given messages, or what nobody can read."""

import json
from typing import Any

import pytest
from tests.rows import each_row

from orbiter.memory.errors import ExtractionError
from orbiter.memory.extraction._model_answer import read_answer

MUNICH = {"key": "home_city", "value": "Munich", "messages": ["m1"]}


def read(text: str) -> Any:
    names = {"m1": "id-1", "m2": "id-2"}
    return read_answer(text, messages=names, max_facts=3, model="`tiny`").facts


def one(**fields: Any) -> str:
    return json.dumps({"facts": [{**MUNICH, **fields}]})


@each_row(
    "text",
    [
        "Sure! Here you are.",
        "{}",
        '{"facts": [}',
        '{"facts": [' + "[" * 100_000,
        '{"facts": "none"}',
        json.dumps({"facts": ["x"]}),
        "x" * 300_000,
        *(
            one(**fields)
            for fields in (
                {"messages": ["id-1"]},
                {"messages": [1, None]},
                {"key": ""},
                {"key": 5},
                {"key": "a\nb"},
                {"value": "\ud800"},
                {"value": 2**70},
                {"value": float("nan")},
                {"value": "x" * 70_000},
                {"valid_from": "soon"},
                {"valid_to": 5},
                {"valid_from": "2024", "valid_to": "2023"},
            )
        ),
    ],
)
def test_an_answer_of_which_nothing_can_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ExtractionError) as caught:
        read(text)

    assert str(caught.value).startswith("`tiny`")
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("text", ['{"facts": []}', '```\n{"facts": null}\n```', "```json\n[]```"])
def test_nothing_found_is_an_answer(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    ("given", "year", "month", "day"),
    [
        ("2024", 2024, 1, 1),
        ("2024-03", 2024, 3, 1),
        ("2024-03-05", 2024, 3, 5),
        ("2024-03-05T23:00:00-02:00", 2024, 3, 6),
    ],
)
def test_times_are_read_as_models_write_them(given: str, year: int, month: int, day: int) -> None:
    (found,) = read(one(valid_from=given, messages=["m2", "m1", "m2"]))

    moment = found.valid_from
    assert (moment.year, moment.month, moment.day) == (year, month, day)
    assert moment.utcoffset().total_seconds() == 0
    assert found.message_ids == ("id-2", "id-1")
