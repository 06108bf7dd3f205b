"""Records have one spelling, and come back from it as they were."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.rows import each_row
from tests.transfer._moving import odd_items

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.errors import InvalidItemError
from orbiter.memory.model.episode import EpisodicMemory, stored_episode
from orbiter.memory.model.records import PastVersion, Record

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def item(version: int = 1, text: str = "hello", item_id: str = "a") -> MemoryItem:
    return HumanMemory(id=item_id, content=text, created_at=NOON, version=version)


def record() -> Record:
    past = [PastVersion(item(1, "one"), False, NOON, "ann"), PastVersion(item(2), True, NOON)]
    return Record(item(4), deleted=True, versions=past, recorded_at=NOON, recorded_by="bob")


def test_a_record_comes_back_from_its_line() -> None:
    again = Record.from_line(record().to_line())

    assert again == record()
    assert again.versions == record().versions
    assert (again.item, again.deleted) == (item(4), True)
    assert (again.recorded_at, again.recorded_by) == (NOON, "bob")
    assert again.digest == record().digest


@each_row("one", odd_items(40, seed=3), ids=lambda one: one.memory_type)
def test_an_item_of_any_kind_comes_back_from_its_line(one: MemoryItem) -> None:
    line = Record(one).to_line()

    again = Record.from_line(line)

    assert again.item == one
    assert type(again.item) is type(one)
    assert again.to_line() == line
    assert "\n" not in line


def test_equal_records_are_equal_lines_however_they_were_made() -> None:
    one = AIMemory(id="a", content="", created_at=NOON, tool_calls=[{"b": 1, "a": 2}])
    who = MemoryMetadata(extra={"z": 1, "a": 2})
    later = timedelta(hours=2)
    other = AIMemory(
        id="a",
        content="",
        created_at=(NOON + later).astimezone(UTC) - later,
        tool_calls=[{"a": 2, "b": 1}],
    )
    first, second = (each.model_copy(update={"metadata": who}) for each in (one, other))

    assert Record(first).to_line() == Record(second).to_line()
    assert Record(first).to_line() != Record(first, deleted=True).to_line()


def test_what_is_empty_is_not_said() -> None:
    assert json.loads(Record(item()).to_line()) == {
        "item": {
            "content": "hello",
            "created_at": "2026-01-01T12:00:00.000000+00:00",
            "id": "a",
            "memory_type": "human",
            "metadata": {},
            "status": "accepted",
            "updated_at": "2026-01-01T12:00:00.000000+00:00",
            "version": 1,
        }
    }


def test_a_kind_that_nobody_knows_keeps_every_field() -> None:
    line = (
        Record(item())
        .to_line()
        .replace('"human"', '"alien"')
        .replace('"version"', '"tentacles":8,"version"')
    )

    assert Record.from_line(line).to_line() == json.dumps(
        json.loads(line), separators=(",", ":"), sort_keys=True
    )


@each_row(
    "line",
    [
        "",
        "nonsense",
        "[1]",
        "{}",
        '{"item":{}}',
        '{"item":{"id":"a"},"item":{"id":"a"}}',
        "[" * 100_000,
        record().to_line().replace('"ended_at"', '"ended"'),
        record().to_line().replace('"deleted":true', '"deleted":1'),
        record().to_line().replace('"recorded_by":"bob"', '"recorded_by":""'),
        record().to_line().replace('"version":4', '"version":0'),
        record().to_line().replace('"version":4', '"version":NaN'),
        record().to_line().replace('"version":2', '"version":7'),
        record().to_line()[:-1] + ',"future":1}',
    ],
)
def test_what_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(InvalidItemError):
        Record.from_line(line)


def test_versions_of_another_item_are_refused() -> None:
    with pytest.raises(InvalidItemError, match="`b` is not an earlier version of `a`"):
        Record(item(3), versions=[PastVersion(item(1, item_id="b"), False, NOON)])


_EPISODE = EpisodicMemory(interaction_type="note", content="hi", platform="mail", ttl_hours=3.5)


@each_row("metadata", [{}, {"to": ["ann", {"cc": None}]}])
@each_row("content", ["", "plain", "with \x7f and \n"])
def test_a_stored_episode_is_read_as_the_model_reads_it(content: str, metadata: Any) -> None:
    memory = EpisodicMemory(interaction_type="note", content=content, metadata=metadata)
    body = memory.model_dump_json()

    read = stored_episode(json.loads(body))

    assert read is not None
    assert read == EpisodicMemory.model_validate_json(body) == memory
    assert read.model_fields_set == set(EpisodicMemory.model_fields)
    assert read.model_dump_json() == body


@each_row(
    "changed",
    [
        {"id": "7"},
        {"id": _EPISODE.id + " "},
        {"timestamp": "2026-01-31T23:59:59.123456+00:00"},
        {"timestamp": None},
        {"agent_id": ""},
        {"agent_id": []},
        {"interaction_type": ""},
        {"interaction_type": "x" * 257},
        {"content": None},
        {"content": "\0"},
        {"content": "ä"},
        {"platform": 1},
        {"metadata": []},
        {"metadata": {"n": float("nan")}},
        {"ttl_hours": 0.0},
        {"ttl_hours": float("inf")},
        {"ttl_hours": 2},
        {"more": 1},
    ],
)
def test_an_episode_that_looks_unlike_ours_is_left_to_the_model(changed: Any) -> None:
    assert stored_episode({**json.loads(_EPISODE.model_dump_json()), **changed}) is None


@pytest.mark.parametrize("record", [None, [], "x", {}])
def test_what_is_no_episode_is_none(record: Any) -> None:
    assert stored_episode(record) is None
