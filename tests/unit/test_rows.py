"""Rows of the SQL stores: what is written quickly is what a thorough look would have written."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from orbiter.memory.backends.sql import rows
from orbiter.memory.backends.sql.rows import Row, decode, encode, iso
from orbiter.memory.backends.sql.stored_records import StoredRecord
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.model.records import Record

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


@pytest.mark.parametrize("change", [None, {"native": {"openai": {"name": "Ann"}}}])
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_look_writes_the_same_row(
    kind: type[MemoryItem], change: dict[str, object] | None
) -> None:
    now = datetime.now(UTC)
    item = kind(content="Likes oolong.", metadata=TOLD, created_at=now, **(change or {}))
    quick = encode(item)
    # The same instant, spelled so that it is looked at again.
    item.__dict__["created_at"] = now.astimezone(timezone(timedelta(0), "Z"))
    assert encode(item) == quick


@pytest.mark.parametrize("metadata", [MemoryMetadata(), WHO, TOLD])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_written_to_an_export_as_its_item_is(
    kind: type[MemoryItem], metadata: MemoryMetadata
) -> None:
    item = kind(content="Likes oolong.", metadata=metadata)
    assert StoredRecord((*as_read(encode(item)), 0)).to_line() == Record(item).to_line()


def test_a_plain_item_that_names_another_kind_becomes_one() -> None:
    item = MemoryItem(content="Likes oolong.", memory_type="human")
    found = decode(as_read(encode(item)))
    assert type(found) is HumanMemory


@pytest.mark.parametrize("break_it", [
    lambda item: item.__dict__.update(content="\ud800"),
    lambda item: item.__dict__.update(id=""),
    lambda item: item.__dict__.update(version=0),
    lambda item: item.metadata.extra.update(tags={1}),
])  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_spoiled_behind_its_back_is_refused(
    kind: type[MemoryItem], break_it: Callable[[MemoryItem], None]
) -> None:
    item = kind(content="Likes oolong.")
    break_it(item)
    with pytest.raises(ValueError, match="cannot be stored"):
        encode(item)
