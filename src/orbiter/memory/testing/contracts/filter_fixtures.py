"""Filters in MongoDB's manner: items that are easily confused, and what may be asked of them."""

import random
from datetime import timedelta
from typing import Any

from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
)
from orbiter.memory.testing.contracts.base_contract import START

__all__ = ["KEYS", "VALUES", "confusable_items", "random_where", "telling_filters"]

KEYS = ("k", "n", "tags", "a.b", "content", "$in", "é", 'q"', "", "user_id")
"""Keys of `metadata.extra`; some are names of fields, or look like operators or paths."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1.0, -0.0, 0.1, 0.5, 1.0000000000000002, 1e30, 5e-324, 2**53,
    2**53 + 1, 10**16, 1e16, 2**62, 2.0**62, 2**63 - 1, -(2**63), "", "1", "1.0", "true",
    "null", "a", "A", "ab", "b", "ä", "a\u0308", "\U0001f600", "\uffff", "%", "a%", "_", "\\",
    "'", '"', "a\nb", "[1]",
)  # fmt: skip
"""Values that some database takes for another one of them, or orders differently."""

_ODD: tuple[Any, ...] = ([], [1], ["a", "ab"], [True, None], [1.0, [1]], [[1]], [10**16], [2.0**62],
                         ["a", 2**53 + 1], {}, {"a": 1}, {"$gt": 1}, [{"a": 1}], ["1"], [1, "a"],
                         [[None], {"a": None}], [False, 0.1, "\u00e4"])  # fmt: skip
_USERS = (None, "a", "A", "ä", "", "1", "%", "null")
_FIELDS = ("id", "content", "memory_type", "status", "user_id", "session_id", "task_id", "agent_id")
_TEXTS = ("", "a", "A", "ä", "Ä", "100% sure", "human", "ai", "accepted", "draft", "1", "%", "i1",
          "i2", "i10", "\U0001f600", "\uffff")  # fmt: skip
_SIGNS = ("$gt", "$gte", "$lt", "$lte")


def confusable_items(seed: int, count: int = 64) -> list[MemoryItem]:
    """Return items whose fields and `metadata.extra` hold all of the above."""
    dice = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    items: list[MemoryItem] = []
    for number in range(count):
        extra = {
            key: dice.choice(VALUES if dice.random() < 0.7 else _ODD)
            for key in KEYS
            if dice.random() < 0.5
        }
        # Each value stands under one key at least once.
        extra["k"] = (*VALUES, *_ODD, None)[number % (len(VALUES) + len(_ODD) + 1)]
        who = {name: dice.choice(_USERS) for name in _FIELDS[4:]}
        made = dice.choice((HumanMemory, AIMemory, MemoryItem))(
            id=f"i{number}",
            content=dice.choice(_TEXTS),
            status=dice.choice(list(MemoryStatus)),
            metadata=MemoryMetadata.model_validate({**who, "extra": extra}),
            created_at=START + timedelta(microseconds=dice.randrange(8)),
            updated_at=START + timedelta(seconds=1, microseconds=dice.randrange(8)),
        )
        items.append(made)
    return items


def telling_filters() -> list[Where]:
    """Return filters in which one careless step of a store shows."""
    return [
        *({"k": value} for value in VALUES),
        *({"k": {"$contains": value}} for value in (None, True, 1, "a", 2**53 + 1, 1e16, 2**62)),
        *({"k": {"$gt": value}} for value in (0, 0.1, 1, 5e-324, "", "a", "ab", "\uffff")),
        {"k": {"$ne": 1}},
        {"k": {"$ne": None}},
        # Every item has a `k`; a half of them have no `n`.
        *({"n": {sign: told}} for sign, told in (("$ne", 1), ("$nin", [1]), ("$exists", False))),
        {"n": None},
        {"k": {"$in": [None, 2**53, "a", True]}},
        {"k": {"$in": [0, "b", 10**16]}},
        {"k": {"$nin": ["a", 2**53 + 1]}},
        {"k": {"$nin": [None, 0.1]}},
        {"$and": [{"k": 1}, {"k": "a"}]},  # some list has both
        {"metadata.extra.k": "a", "extra.k": {"$ne": 1}},
        {"$not": {"tags": {"$lt": "b"}}},
        {"user_id": None},
        {"user_id": {"$in": [None, "a"]}},
        {"$not": {"user_id": {"$gt": "a"}}},
        {"content": {"$contains": ""}, "session_id": {"$ne": "a"}},
    ]


def random_where(dice: random.Random, depth: int = 3) -> Where:
    """Return a filter that may be asked."""
    if depth and dice.random() < 0.4:
        kind = dice.choice(("$and", "$or", "$not"))
        if kind == "$not":
            return {"$not": random_where(dice, depth - 1)}
        return {kind: [random_where(dice, depth - 1) for _ in range(dice.choice((1, 2, 3)))]}
    where: dict[str, object] = {}
    for _ in range(dice.choice((1, 1, 2, 3))):
        name = dice.choice((*KEYS, *KEYS, *_FIELDS, "created_at", "updated_at", "version"))
        if name == "$in" or (name in ("content", "user_id") and dice.random() < 0.5):
            name = f"{dice.choice(('extra', 'metadata.extra'))}.{name}"
        where[name] = _asked(dice, name)
    return where


def _asked(dice: random.Random, name: str) -> object:
    if dice.random() < 0.3:
        return _operand(dice, name)
    operators = {}
    for _ in range(dice.choice((1, 1, 2))):
        sign = dice.choice(("$eq", "$ne", "$in", "$nin", "$exists", "$contains", "$not", *_SIGNS))
        if sign == "$contains" and name in ("created_at", "updated_at"):
            sign = "$exists"
        operators[sign] = _told(dice, name, sign)
    return operators


def _told(dice: random.Random, name: str, sign: str) -> object:
    if sign == "$exists":
        return dice.random() < 0.5
    if sign in ("$in", "$nin"):
        return [_operand(dice, name) for _ in range(dice.choice((0, 1, 2, 5)))]
    if sign == "$not":
        other = dice.choice(("$eq", "$gt", "$in"))
        return {other: _told(dice, name, other)}
    value = _operand(dice, name)
    while sign in _SIGNS and not _is_ordered(value):
        value = _operand(dice, name)
    return value


def _is_ordered(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return False
    return not isinstance(value, int | float) or abs(value) < 2**53


def _operand(dice: random.Random, name: str) -> object:
    if name in ("created_at", "updated_at"):
        when = START + timedelta(seconds=name == "updated_at", microseconds=dice.randrange(8))
        return dice.choice((when, when.isoformat(), when.replace(tzinfo=None), None))
    if name == "version":
        return dice.choice((0, 1, 2, 1.0, 1.5, "1", True, None, 2**70))
    if name in _FIELDS and dice.random() < 0.8:
        return dice.choice(_TEXTS)
    return dice.choice(VALUES)
