"""What a model may answer: sound facts of the given messages, or an error that says what it is."""

import json
from typing import Any

import pytest

from orbiter.memory.errors import ExtractionError
from orbiter.memory.extraction._openai_extractor import read_answer

MUNICH = {"key": "home_city", "value": "Munich", "messages": ["m1"]}


def read(text: str) -> Any:
    return read_answer(text, messages={"m1": "id-1", "m2": "id-2"}, max_facts=3, model="`tiny`")


def one(**fields: Any) -> str:
    return json.dumps({"facts": [{**MUNICH, **fields}]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Sure! Here you are.", "no JSON"),
        ('Sure! {"facts": []}', "something around it"),
        ('```json\n{"facts": []}\n```', "something around it"),
        ('{"facts": []} Anything else?', "damaged JSON"),
        ('{"facts": [}', "damaged JSON"),
        ('{"facts": [], "facts": []}', "appears twice"),
        ('{"facts": [' + "[" * 100_000, "damaged JSON"),
        ('{"facts": [{"key": "a", "value": NaN}]}', "NaN is not JSON"),
        ("[]", "something other than"),
        ('{"facts": {}}', "something other than"),
        ('{"facts": [], "more": 1}', "something other than"),
        (json.dumps({"facts": ["x"]}), "not an object"),
        ("x" * 300_000, "300,000 characters"),
        (json.dumps({"facts": [MUNICH] * 4}), "4 facts, at most 3"),
        (json.dumps({"facts": [{"key": "a", "messages": ["m1"]}]}), "no `value`"),
        (one(extra=1), "`extra`, which was not asked for"),
        (one(messages=["m9"]), "no message m9"),
        (one(messages=["id-1"]), "no message id-1"),
        (one(messages=[]), "not a list of messages"),
        (one(messages="m1"), "not a list of messages"),
        (one(messages=[1]), "no message 1"),
        (one(key=""), "must not be empty"),
        (one(key=5), "must be a string"),
        (one(key="a\nb"), "not a valid key"),
        (one(value="\ud800"), "surrogate"),
        (one(value=2**70), "64 bits"),
        (one(value="x" * 70_000), "65,536 are allowed"),
        (one(valid_from="soon"), "`valid_from` is not a valid time"),
        (one(valid_to=5), "`valid_to` is not a valid time"),
        (one(valid_from="2024", valid_to="2023"), "before it begins"),
        (one(confidence=2), "confidence"),
        (one(confidence="high"), "confidence"),
        (one(confidence=True), "confidence"),
    ],
)
def test_what_cannot_be_used_is_refused_as_a_whole(text: str, problem: str) -> None:
    with pytest.raises(ExtractionError) as caught:
        read(text)

    assert problem in str(caught.value)
    assert str(caught.value).startswith("`tiny`")
    assert len(str(caught.value)) < 600


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
