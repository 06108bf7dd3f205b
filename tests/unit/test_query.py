from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from orbiter.memory import AIMemory, HumanMemory, MemoryMetadata, MemoryStatus
from orbiter.memory.errors import QueryError
from orbiter.memory.model import Query

ANN = HumanMemory(content="Straße 7, 100% sure", metadata=MemoryMetadata(user_id="ann"))


@each_row(
    ("query", "matches"),
    [
        (Query(), True),
        (Query(text="STRASSE"), True),
        (Query(text="0%"), True),
        (Query(text="1%"), False),
        (Query(metadata=MemoryMetadata(user_id="ann")), True),
        (Query(metadata=MemoryMetadata(user_id="Ann")), False),
        (Query(metadata=MemoryMetadata(user_id="ann", task_id="t")), False),
        (Query(metadata=MemoryMetadata(extra={"k": 1})), True),
        (Query(metadata=MemoryMetadata(task_id="t"), fields=("user_id",)), True),
        (Query(memory_type="human"), True),
        (Query(memory_type="ai"), False),
        (Query(status=MemoryStatus.ACCEPTED), True),
        (Query(status=MemoryStatus.DRAFT), False),
        (Query(text="sure", memory_type="human", metadata=ANN.metadata), True),
    ],
)
def test_every_given_part_must_hold(query: Query, matches: bool) -> None:
    assert query.matches(ANN) is matches


@given(st.text(), st.text(), st.text())
def test_a_text_is_found_inside_any_other(before: str, text: str, after: str) -> None:
    try:
        item = AIMemory(content=before + text + after)
    except ValueError:
        return

    # Folding a letter may join it with its neighbour only if the letter itself is kept.
    assert Query(text=item.content).matches(item)
    if text.isascii() and "\0" not in text:
        assert Query(text=text.upper()).matches(item)


@each_row(
    ("parts", "told"),
    [
        ({"limit": -1}, "`limit` must be 0 or more, not -1"),
        ({"limit": True}, "`limit` must be a whole number"),
        ({"limit": 1.0}, "`limit` must be a whole number, not 1.0"),
        ({"status": "gone"}, "unknown status `gone`"),
        ({"text": "a\0"}, r"`query`.*U\+0000 at position 1"),
        ({"text": "\ud800"}, "`query`.*surrogate"),
        ({"text": 5}, "`query` must be a string, not 5"),
        ({"memory_type": HumanMemory}, '`memory_type` must be a string, such as "human"'),
        ({"metadata": {"user_id": "a"}}, "`metadata` must be a MemoryMetadata"),
    ],
)
def test_a_senseless_query_is_refused(parts: dict[str, Any], told: str) -> None:
    with pytest.raises(QueryError, match=told):
        Query(**parts)


def test_a_status_may_be_given_as_text() -> None:
    assert Query(status="accepted").matches(ANN)  # type: ignore[arg-type]  # a convenience
