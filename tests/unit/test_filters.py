"""`where=`: what each operator means, and what cannot be asked."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.rows import each_row

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import parse_where
from orbiter.memory.model.items import HumanMemory, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import Query

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
EXTRA = {
    "n": 4,
    "half": 0.5,
    "yes": True,
    "nothing": None,
    "lang": "en",
    "tags": ["a", 1, None, [2]],
    "facts": [True, {"a": 1}],
    "empty": [],
    "a.b": "dotted",
    "content": "of extra",
    "metadata.extra.n": "to the letter",
    "$x": "sign",
    "huge": 2**53 + 1,
}
ITEM = HumanMemory(
    id="i1",
    content="Straße 7, 100% sure",
    metadata=MemoryMetadata(user_id="ann", extra=EXTRA),
    created_at=NOON,
)


@each_row(
    ("where", "matches"),
    [
        ({}, True),
        ({"n": 4}, True),
        ({"n": 4.0}, True),
        ({"n": "4"}, False),
        ({"yes": 1}, False),
        ({"yes": True}, True),
        ({"n": 4, "lang": "de"}, False),
        ({"n": {"$gt": 3, "$lt": 5}}, True),
        ({"n": {"$gt": 4}}, False),
        ({"n": {"$gte": 4}}, True),
        ({"n": {"$lte": 3.9}}, False),
        ({"yes": {"$gte": 0}}, False),
        ({"huge": {"$gt": 1}}, True),
        ({"huge": 2**53 + 1}, True),
        ({"huge": 2**53}, False),
        ({"lang": {"$gt": "EN"}}, True),
        ({"lang": {"$gt": 1}}, False),
        ({"missing": {"$lt": 1}}, False),
        ({"nothing": None}, True),
        ({"missing": None}, True),
        ({"n": None}, False),
        ({"nothing": {"$exists": True}}, True),
        ({"missing": {"$exists": False}}, True),
        ({"n": {"$ne": 5}}, True),
        ({"missing": {"$ne": 5}}, True),
        ({"missing": {"$ne": None}}, False),
        ({"n": {"$in": [1, 4]}}, True),
        ({"n": {"$in": []}}, False),
        ({"missing": {"$in": [None]}}, True),
        ({"missing": {"$nin": [1]}}, True),
        ({"n": {"$nin": [4]}}, False),
        ({"tags": {"$contains": "a"}}, True),
        ({"tags": {"$contains": True}}, False),
        ({"tags": {"$contains": 1.0}}, True),
        ({"tags": {"$contains": None}}, True),
        ({"tags": {"$contains": 2}}, False),
        ({"tags": "a"}, True),
        ({"tags": {"$eq": 1.0}}, True),
        ({"tags": "A"}, False),
        ({"tags": True}, False),
        ({"facts": True}, True),
        ({"facts": 1}, False),
        ({"tags": None}, True),
        ({"facts": None}, False),
        ({"empty": None}, False),
        ({"tags": 2}, False),
        ({"tags": {"$ne": "a"}}, False),
        ({"tags": {"$ne": "b"}}, True),
        ({"tags": {"$in": ["b", 1]}}, True),
        ({"tags": {"$in": ["b", 2]}}, False),
        ({"tags": {"$in": [None]}}, True),
        ({"tags": {"$nin": ["b", "a"]}}, False),
        ({"tags": {"$nin": ["b", 2]}}, True),
        ({"empty": {"$nin": ["a", None]}}, True),
        ({"tags": {"$gte": 1}}, False),
        ({"tags": {"$lte": "a"}}, False),
        ({"$and": [{"tags": "a"}, {"tags": 1}]}, True),
        ({"lang": {"$contains": "n"}}, True),
        ({"lang": {"$contains": "N"}}, False),
        ({"n": {"$contains": 4}}, False),
        ({"lang": {"$prefix": "e"}}, True),
        ({"lang": {"$prefix": "E"}}, False),
        ({"lang": {"$prefix": ""}}, True),
        ({"lang": {"$prefix": "n"}}, False),
        ({"lang": {"$prefix": "e%"}}, False),
        ({"tags": {"$prefix": "a"}}, True),
        ({"tags": {"$prefix": "b"}}, False),
        ({"n": {"$prefix": "4"}}, False),
        ({"missing": {"$prefix": ""}}, False),
        ({"version": {"$prefix": "1"}}, False),
        ({"user_id": {"$prefix": "an"}}, True),
        ({"session_id": {"$prefix": ""}}, False),
        ({"lang": {"$not": {"$prefix": "e"}}}, False),
        ({"n": {"$not": {"$gt": 3, "$lt": 5}}}, False),
        ({"$not": {"n": 5}}, True),
        ({"$or": [{"n": 5}, {"lang": "en"}]}, True),
        ({"$and": [{"n": 4}, {"lang": "de"}]}, False),
        ({"a.b": "dotted"}, True),
        ({"content": "of extra"}, False),
        ({"extra.content": "of extra"}, True),
        ({"extra.$x": "sign"}, True),
        ({"metadata.extra.content": "of extra"}, True),
        ({"metadata.extra.tags": {"$in": ["a"]}}, True),
        ({"metadata.extra.n": 4}, True),
        ({"extra.metadata.extra.n": "to the letter"}, True),
        ({"metadata.n": 4}, False),
        ({"content": {"$contains": "100%"}}, True),
        ({"content": 7}, False),
        ({"user_id": "ann"}, True),
        ({"session_id": None}, True),
        ({"session_id": {"$exists": False}}, True),
        ({"user_id": {"$exists": True}}, True),
        ({"memory_type": {"$in": ["ai", "human"]}}, True),
        ({"status": MemoryStatus.ACCEPTED}, True),
        ({"version": 1.0}, True),
        ({"version": {"$gte": 1}}, True),
        ({"version": "1"}, False),
        ({"version": {"$gt": "0"}}, False),
        ({"id": {"$gt": "i0"}}, True),
        ({"created_at": NOON}, True),
        ({"created_at": "2025-01-01T12:00:00Z"}, True),
        ({"created_at": {"$lt": "2025-01-02"}}, True),
        ({"created_at": {"$gt": NOON.replace(tzinfo=None, hour=11)}}, True),
        ({"created_at": NOON.astimezone(timezone(timedelta(hours=5)))}, True),
        ({"created_at": None}, False),
    ],
    ids=str,
)
def test_a_filter_means_what_it_states(where: Any, matches: bool) -> None:
    assert Query(where=where).matches(ITEM) is matches
    assert Query(where={"$not": where}).matches(ITEM) is not matches


@each_row(
    ("where", "told"),
    [
        ([("n", 1)], "`where` must be a dict"),
        ({1: 2}, "names 1; a name must be a string"),
        ({"n": {"$near": 1}}, r"unknown operator `\$near` after `n`; use `\$eq`, `\$ne`"),
        ({"n": {"a": 1}}, "unknown operator `a` after `n`"),
        ({"$nor": []}, r"unknown operator `\$nor`.*`\$and`, `\$or` or `\$not`"),
        ({"n": {}}, r"`n` is compared with \{\}"),
        ({"$and": []}, r"`\$and` takes a list of filters, not \[\]"),
        ({"$or": {"n": 1}}, r"`\$or` takes a list of filters"),
        ({"$or": [1]}, "1 in place of a filter"),
        ({"$not": 1}, "1 in place of a filter"),
        ({"n": {"$not": 1}}, r"`\$not` after `n` takes operators.*`\$ne`"),
        ({"n": {"$in": 1}}, r"`\$in` takes a list of values, not 1"),
        ({"n": {"$in": [[1]]}}, r"cannot compare `n` with \[1\]"),
        ({"tags": ["food"]}, r"`tags` with \['food'\]; .*`\{\"tags\": \{\"\$in\": \['food'\]\}\}`"),
        ({"n": {"$exists": None}}, r"`\$exists` takes True or False, not None"),
        ({"n": {"$gt": True}}, r"`\$gt` compares `n` with a number, a text or a time, not True"),
        ({"n": {"$lt": 2**53}}, r"`\$lt` cannot compare `n` with 9007199254740992.*as text"),
        ({"n": {"$lt": -1e300}}, "round differently"),
        ({"n": float("inf")}, "with inf; use text, a finite number"),
        ({"n": NOON}, "times with `created_at` and `updated_at` only"),
        ({"n": "a\0"}, r"cannot compare `n`: U\+0000"),
        ({"a\0": 1}, r"no item can have: U\+0000"),
        ({"created_at": 7}, "`created_at` is a time; compare it with a datetime, not 7"),
        ({"created_at": "soon"}, "cannot compare `created_at`.*soon"),
        ({"updated_at": {"$contains": "2025"}}, r"`updated_at` is a time.*`\$gte`"),
        ({"updated_at": {"$prefix": "2025"}}, r"`updated_at` is a time.*`\$gte`"),
        ({"n": {"$prefix": 4}}, r"`\$prefix` compares `n` with a text, not 4"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_told(where: Any, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        Query(where=where)


def test_a_filter_has_a_depth_and_a_size() -> None:
    deep: Any = {"n": {"$gt": 1}}
    for _ in range(16):
        deep = {"$not": deep}
    wide = {"$or": [{"n": number} for number in range(256)]}

    assert parse_where(deep) is not None
    assert parse_where(wide) is not None
    with pytest.raises(QueryError, match="deeper than 16 levels"):
        parse_where({"$not": deep})
    with pytest.raises(QueryError, match=r"more than 256 conditions; use `\$in`"):
        parse_where({**wide, "n": 1})
    with pytest.raises(QueryError, match="more than 256"):
        parse_where({"$or": [{}] * 300})
    endless: dict[str, Any] = {}
    endless["$and"] = [endless]
    with pytest.raises(QueryError, match="deeper than 16 levels"):
        parse_where(endless)


def test_a_filter_changed_later_is_asked_as_it_was() -> None:
    where: dict[str, Any] = {"n": {"$in": [4]}}
    asked = Query(where=where)

    where["n"]["$in"].clear()
    where["lang"] = "de"

    assert asked.where == {"n": {"$in": [4]}}
    assert asked.matches(ITEM)


def test_what_was_asked_can_be_asked_again() -> None:
    asked = Query(where={"created_at": {"$gte": NOON}, "n": {"$in": {4}}})

    assert Query(where=asked.where) == asked
    assert hash(parse_where(asked.where)) == hash(asked.condition)


def test_a_filter_of_nothing_asks_nothing() -> None:
    assert parse_where({}) is None
    assert Query(where={}).matches(ITEM)
