"""What sources are worth: of an item in hand, and of the same item in a store's filter."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, MemoryMetadata, ToolMemory
from orbiter.memory.agent.inputs import labels, within
from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import parse_where
from orbiter.memory.model.trust import (
    SOURCE_KINDS,
    Trust,
    from_source,
    lowest_source,
    parse_source,
    read_trust,
    source_of,
    trust_of,
    trusted,
)

SOURCES = st.one_of(
    st.sampled_from([*SOURCE_KINDS, "web:example.com", "tool:search", "crm", "crm:7", "User", ""]),
    st.sampled_from(["webs", "user;", "web:", ":", 7, None, ["user"], True]),
    st.text("webusr:; ", max_size=5),
)
LEVELS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-1, 7), st.sampled_from([4.5, "5", True, None, [5], {}])
)
ITEMS = st.builds(
    lambda kind, source, level: _item(kind, **source, **level),
    st.sampled_from(["human", "ai", "tool", "item", "fact", "summary", "scraped"]),
    st.just({}) | st.fixed_dictionaries({"source": SOURCES}),
    st.just({}) | st.fixed_dictionaries({"trust": LEVELS}),
)


class ScrapedMemory(ToolMemory):
    """What an application's own tool brings along."""

    memory_type: str = "scraped"


def _item(kind: str = "human", **extra: Any) -> MemoryItem:
    made: dict[str, type[MemoryItem]] = {
        "human": HumanMemory,
        "ai": AIMemory,
        "tool": ToolMemory,
        "scraped": ScrapedMemory,
    }
    metadata = MemoryMetadata(extra=extra)
    if kind in made:
        return made[kind](content="x", metadata=metadata)
    return MemoryItem(content="x", metadata=metadata, memory_type=kind)


def _fits(where: Any, item: MemoryItem) -> bool:
    condition = parse_where(where)
    return condition is None or condition.matches(item)


@settings(deadline=None)
@given(ITEMS, st.sampled_from(Trust))
def test_the_filter_keeps_just_what_is_worth_as_much(item: MemoryItem, level: Trust) -> None:
    assert _fits(trusted(level), item) == (trust_of(item) >= level)


@settings(deadline=None)
@given(ITEMS, st.sampled_from([*SOURCE_KINDS, "web:example.com", "crm", "crm:7"]))
def test_the_filter_finds_just_what_is_of_the_source(item: MemoryItem, label: str) -> None:
    source = source_of(item)
    is_of = source == label or (":" not in label and source.startswith(f"{label}:"))

    assert _fits(from_source(label), item) == is_of


@each_row(
    ("kind", "level"),
    [("human", 5), ("item", 5), ("fact", 5), ("ai", 4), ("tool", 3), ("scraped", 3)],
)
def test_without_a_label_the_type_tells(kind: str, level: int) -> None:
    assert trust_of(_item(kind)) == level
    assert source_of(_item(kind)) == Trust(level).name.lower()


def test_a_summary_that_does_not_say_what_it_sums_up_is_worth_least() -> None:
    assert trust_of(_item("summary")) is Trust.WEB


def test_a_kind_that_is_not_ours_was_brought_along() -> None:
    assert [parse_source(label) for label in ("web:a.b", "user", "crm", "")] == [1, 5, 2, 2]


def test_what_is_made_of_several_is_worth_no_more_than_the_worst() -> None:
    items = [_item("human"), _item("ai"), _item("human", source="web:a.example"), _item("tool")]

    assert lowest_source(items) == ("web:a.example", Trust.WEB)
    assert lowest_source(items[:2]) == ("agent", Trust.AGENT)
    assert lowest_source([]) is None


def test_source_and_trust_are_written_together() -> None:
    assert labels(None, None, "web:example.com", None) == {"source": "web:example.com", "trust": 1}
    assert labels(None, None, None, {"source": " Web: a.example"}) == {
        "source": "web:a.example",
        "trust": 1,
    }
    assert labels(None, None, None, {"trust": "high"}) == {"trust": "high"}  # of their own
    assert labels(None, None, "tool", {"trust": 3}) == {"source": "tool", "trust": 3}


@pytest.mark.parametrize("level", [5, "user", None, True])
def test_a_trust_that_contradicts_the_source_is_refused_with_the_way_out(level: object) -> None:
    with pytest.raises(QueryError, match="leave `trust` out, or name another `source`"):
        labels(None, None, "web", {"trust": level})


def test_no_later_label_lifts_what_came_from_the_web() -> None:
    own = MemoryMetadata(extra=labels(None, None, "web", None))

    with pytest.raises(QueryError, match="worth 1"):
        within(MemoryMetadata(), own, labels(None, None, None, {"trust": 5}))
    named = within(MemoryMetadata(), own, labels(None, None, "user", None))
    assert named.extra == {"source": "user", "trust": 5}


@each_row("value", [0, 6, "everyone", "USER", True, None, 2.5])
def test_a_level_that_there_is_not_is_refused(value: Any) -> None:
    with pytest.raises(QueryError, match="must be one of `user`, `agent`, `tool`"):
        read_trust(value)
