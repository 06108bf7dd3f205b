"""What `where=` and `delete_many` mean in every store that has them."""

import random
from datetime import timedelta
from typing import Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
)
from orbiter.memory.model.query import Query
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    HOSTILE_IDS,
    START,
    Contract,
    add_all,
    contents,
    of,
    person,
)

__all__ = ["WhereContract", "confusable_items", "random_where"]

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


_MEANINGLESS: tuple[Any, ...] = (
    [], "n = 1", {1: 1}, {"n": {}}, {"n": {"$near": 1}}, {"$nor": [{"n": 1}]}, {"$or": []},
    {"n": {"$gt": None}}, {"n": {"$gt": 2**53}}, {"n": {"$in": "abc"}}, {"n": {"$exists": 1}},
    {"n": [1]}, {"n": float("nan")}, {"n": "a\0"}, {"created_at": "yesterday"},
)  # fmt: skip


class WhereContract(Contract):
    """A filter finds exactly what `Query.matches` accepts; ids delete what they name."""

    @needs(where=True)
    async def test_where_finds_exactly_what_it_states(self, store: Any) -> None:
        await add_all(store, confusable_items(1))
        items = await store.search(limit=1000)
        dice = random.Random(1)  # noqa: S311 - to be repeated, not to be secret

        for where in (*telling_filters(), *(random_where(dice) for _ in range(90))):
            found = await store.search(where=where, limit=1000)

            asked = Query(where=where)
            expected = [item.id for item in items if asked.matches(item)]
            assert sorted(item.id for item in found) == sorted(expected), where

    @needs(where=True)
    async def test_where_applies_before_the_limit(self, store: Any) -> None:
        await store.add(person("old", metadata=MemoryMetadata(user_id="u", extra={"n": 7})))
        newer = [person(f"{n}", 1 + n, metadata=of("u")) for n in range(300)]
        await add_all(store, [*newer])

        for where in ({"n": 7}, {"n": {"$gt": 6.5}}, {"content": "old"}):
            found = await store.search(where=where, limit=1, metadata=of("u"))

            assert contents(found) == ["old"], where

    @needs(where=True)
    async def test_where_joins_the_other_filters(self, store: Any) -> None:
        for content, user, n in (("a", "u", 1), ("b", "u", 2), ("c", "v", 2)):
            who = MemoryMetadata(user_id=user, extra={"n": n})
            await store.add(person(content, metadata=who))

        found = await store.search(where={"n": 2}, metadata=of("u"), memory_type="human")

        assert contents(found) == ["b"]
        assert await store.search(where={"n": 2}, memory_type="ai") == []
        assert len(await store.search(where={})) == 3

    @needs(where=True)
    async def test_a_where_that_means_nothing_is_refused(self, store: Any) -> None:
        for where in _MEANINGLESS:
            with pytest.raises(ValueError, match=r"\$|where|time|`n`") as caught:
                await store.search(where=where)

            assert isinstance(caught.value, MemoryError), where

    @needs(bulk_delete=True)
    async def test_delete_many_removes_what_it_names_and_nothing_else(self, store: Any) -> None:
        ids = [item_id for item_id in HOSTILE_IDS if item_id]
        await add_all(store, [person(item_id, id=item_id) for item_id in ids])
        gone = ids[::2]

        removed = await store.delete_many([*gone, *gone, "nobody", "", "a\0b"])

        assert removed == len(gone)
        assert sorted(contents(await store.search(limit=1000))) == sorted(ids[1::2])
        assert await store.get(gone[0]) is None
        assert await store.delete_many(gone) == 0
        assert await store.delete_many([]) == 0

    @needs(bulk_delete=True)
    async def test_delete_many_knows_no_limit(self, store: Any) -> None:
        items: list[MemoryItem] = [person("hi", id=f"i{number}") for number in range(450)]
        await add_all(store, [*items, person("left")])

        assert await store.delete_many([item.id for item in items]) == 450
        assert contents(await store.search()) == ["left"]

    @needs(bulk_delete=True)
    async def test_delete_many_takes_a_list_of_ids_only(self, store: Any) -> None:
        await store.add(person("hi", id="i"))

        for ids in ("i", 7, None, [7]):
            with pytest.raises(ValueError, match="item_id") as caught:
                await store.delete_many(ids)

            assert isinstance(caught.value, MemoryError), ids
        assert len(await store.search()) == 1

    @needs(bulk_delete=True, versions=True)
    async def test_what_delete_many_removed_can_be_restored(self, store: Any) -> None:
        await add_all(store, [person("hi", id=f"i{number}") for number in range(3)])

        await store.delete_many(["i0", "i1"], by="ann")
        await store.restore("i1")

        assert {item.id for item in await store.search()} == {"i1", "i2"}
        deleted = (await store.history("i0"))[-1]
        assert (deleted.change, deleted.by) == ("deleted", "ann")
