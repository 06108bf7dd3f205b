"""Rows of the SQL stores: what is written quickly is what a thorough look would have written."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.rows import each_row

from orbiter.memory.backends.sql import rows
from orbiter.memory.backends.sql.rows import Row, decode, encode, iso
from orbiter.memory.backends.sql.stored_records import StoredRecord
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.model.records import Record
from orbiter.memory.model.serialization import load_item

KINDS = (MemoryItem, SystemMemory, HumanMemory, AIMemory, ToolMemory)
WHO = MemoryMetadata(user_id="ann", session_id="s1")
TOLD = MemoryMetadata(user_id="ann", extra={"tags": ["tea"], "trust": 5})


def refused(*_: object) -> Any:
    raise AssertionError("a plain item needs no second look")


def as_read(row: Row, version: int = 1) -> tuple[object, ...]:
    return (*row[:6], iso(row.created_at), iso(row.updated_at), version)


@pytest.mark.parametrize("metadata", [MemoryMetadata(), WHO, TOLD])
@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_our_own_kinds_is_written_and_read_without_being_validated_again(
    kind: type[MemoryItem], metadata: MemoryMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = kind(content="Likes oolong.", metadata=metadata)
    monkeypatch.setattr(rows, "validated_copy", refused)
    monkeypatch.setattr(rows, "load_item", refused)
    assert decode(as_read(encode(item))) == item


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
FACTS = [
    FactMemory(key="home", value="Oslo"),
    FactMemory(key="home", value={"city": ["Oslo", None]}, metadata=TOLD, source_ids=["one"]),
    FactMemory(key="home", is_end=True, valid_from=MOMENT, valid_to=MOMENT + timedelta(days=1)),
    FactMemory(key="home", value=1, recorded_at=MOMENT, retracted_at=MOMENT),
]


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_is_read_without_being_validated_again(
    fact: FactMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = as_read(encode(fact))
    monkeypatch.setattr(rows, "load_item", refused)
    read = decode(row)
    assert read == fact
    assert read.model_dump(mode="json") == fact.model_dump(mode="json")


@pytest.mark.parametrize(("stored", "changed"), [
    ('"is_end":false', '"is_end":0'),
    ('"source_ids":[]', '"source_ids":[1]'),
    ('"valid_to":null', '"valid_to":"0001-01-01T00:00:00.000000+00:00"'),
    ('"valid_to":null', '"valid_to":"some day"'),
    ('"valid_to":null', '"valid_to":1'),
    ('"valid_from":"0001-01-01T00:00:00.000000+00:00"', '"valid_from":null'),
    ('"key":"home"', '"key":"work"'),
    ('"key":"home"', '"key":"home","more":1'),
    ('"source_ids":[]', '"source_ids":[""]'),
    ('"value":"Oslo"', f'"value":"{"x" * 2**17}"'),
])  # fmt: skip
def test_a_fact_that_was_changed_by_hand_is_looked_at_again(
    stored: str, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = encode(FactMemory(key="home", value="Oslo"))
    assert stored in row.extra_json
    by_hand = row._replace(extra_json=row.extra_json.replace(stored, changed))
    thorough: list[object] = []

    def look(record: dict[str, Any]) -> MemoryItem:
        thorough.append(record)
        return load_item(record)

    monkeypatch.setattr(rows, "load_item", look)
    assert decode(as_read(by_hand)).id == row.id
    assert thorough


@each_row("value", ["Oslo", 3, None, ["Oslo", "Bergen"], {"city": {"in": "Norway"}}])
def test_facts_of_one_row_share_nothing(value: object) -> None:
    fact = FactMemory(
        key="home",
        value=value,
        source_ids=["a"],
        native={"raw": {"text": "x"}},
        metadata=MemoryMetadata(user_id="ann", extra={"tags": ["x"], "fact": "home"}),
    )
    row = as_read(encode(fact))
    first, plain = decode(row), as_read(encode(fact.model_copy(update={"native": {}})))
    for item in (first, decode(plain)):
        assert isinstance(item, FactMemory)
        item.source_ids.append("b")
        item.metadata.extra["fact"] = "changed"
        item.native["raw"] = 1
        if isinstance(item.value, list | dict):
            item.value.clear()

    assert decode(row) == fact
    assert decode(plain) == fact.model_copy(update={"native": {}})


def test_a_fact_whose_key_was_made_invalid_by_hand_is_no_fact() -> None:
    row = encode(FactMemory(key="home", value="Oslo"))
    changed: dict[str, Any] = {
        name: value.replace('"home"', r'"ho\nme"')
        for name, value in row._asdict().items()
        if isinstance(value, str)
    }
    by_hand = row._replace(**changed)
    assert by_hand != row
    assert not isinstance(decode(as_read(by_hand)), FactMemory)


@each_row("change", [None, {"native": {"openai": {"name": "Ann"}}}])
@each_row("kind", KINDS)
def test_a_second_look_writes_the_same_row(
    kind: type[MemoryItem], change: dict[str, object] | None
) -> None:
    now = datetime.now(UTC)
    item = kind(content="Likes oolong.", metadata=TOLD, created_at=now, **(change or {}))
    quick = encode(item)
    # The same instant, spelled so that it is looked at again.
    item.__dict__["created_at"] = now.astimezone(timezone(timedelta(0), "Z"))
    assert encode(item) == quick


@each_row("metadata", [MemoryMetadata(), WHO, TOLD])
@each_row("kind", KINDS)
def test_a_row_is_written_to_an_export_as_its_item_is(
    kind: type[MemoryItem], metadata: MemoryMetadata
) -> None:
    item = kind(content="Likes oolong.", metadata=metadata)
    assert StoredRecord((*as_read(encode(item)), 0)).to_line() == Record(item).to_line()


def test_a_plain_item_that_names_another_kind_becomes_one() -> None:
    item = MemoryItem(content="Likes oolong.", memory_type="human")
    found = decode(as_read(encode(item)))
    assert type(found) is HumanMemory


@each_row("break_it", [
    lambda item: item.__dict__.update(content="\ud800"),
    lambda item: item.__dict__.update(id=""),
    lambda item: item.__dict__.update(version=0),
    lambda item: item.metadata.extra.update(tags={1}),
])  # fmt: skip
@each_row("kind", KINDS)
def test_what_was_spoiled_behind_its_back_is_refused(
    kind: type[MemoryItem], break_it: Callable[[MemoryItem], None]
) -> None:
    item = kind(content="Likes oolong.")
    break_it(item)
    with pytest.raises(ValueError, match="cannot be stored"):
        encode(item)
