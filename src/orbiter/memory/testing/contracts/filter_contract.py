"""Filters: what `search`, `clear`, `where=` and `delete_many` find in every store."""

import random
from datetime import timedelta
from typing import Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.fences import DATA, MARK_LENGTH, MARK_LETTERS
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import (
    INDEXED_BY,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    ToolMemory,
)
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
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

__all__ = [
    "FilterContract",
    "WhereContract",
    "confusable_items",
    "random_where",
]

_FENCE = f"{MARK_LETTERS[:MARK_LENGTH]} Notes: {DATA}"


class FilterContract(Contract):
    """Every filter given must hold, to the letter; what is not given asks nothing."""

    async def test_a_filter_field_that_is_none_asks_nothing(self, store: MemoryStore) -> None:
        await store.add(person("1", 1, metadata=MemoryMetadata(user_id="u", session_id="s")))
        await store.add(person("2", 2, metadata=of("u")))
        await store.add(person("3", 3))

        assert contents(await store.search(metadata=of("u"))) == self._ordered("1", "2")
        assert len(await store.search(metadata=MemoryMetadata())) == 3

    async def test_extra_never_filters(self, store: MemoryStore) -> None:
        await store.add(person("hi", metadata=MemoryMetadata(user_id="u", extra={"k": 1})))

        items = await store.search(metadata=MemoryMetadata(user_id="u", extra={"k": 2}))

        assert contents(items) == ["hi"]

    @needs(text="substring")
    async def test_what_is_not_indexed_is_listed_and_found_by_filters(
        self, store: MemoryStore
    ) -> None:
        secret = MemoryMetadata(user_id="u", extra={INDEXED_BY: False})
        await store.add(person("the code is 42", id="kept", metadata=secret))

        assert [each.id for each in await store.search(metadata=of("u"))] == ["kept"]
        assert [each.id for each in await store.search(query="code is")] == ["kept"]
        kept = await store.get("kept")
        assert kept is not None
        assert kept.metadata == secret

    async def test_no_words_find_what_is_not_indexed(self, store: MemoryStore) -> None:
        if not isinstance(store, LexicalStore):  # recall then follows it with an index that is one
            return
        secret = MemoryMetadata(user_id="u", extra={INDEXED_BY: False})
        hidden, plain = (person("code", id="one", metadata=who) for who in (secret, of("u")))
        await add_all(store, [hidden, person("code", id="two", metadata=of("u"))])

        for item, ids in ((hidden, ["two"]), (plain, ["one", "two"]), (hidden, ["two"])):
            await store.add(item)
            for scope in (of("u"), None):
                matches = await store.match_words(["code"], Query(metadata=scope))

                assert sorted(each.id for each in matches.items) == ids
                assert (matches.frequency, matches.passages) == ({"code": len(ids)}, len(ids))

    async def test_what_our_own_tools_answer_is_kept_and_not_indexed(
        self, store: MemoryStore
    ) -> None:
        answers = [
            ToolMemory(id=id, content=text, tool_call_id=id, tool_name=name, metadata=of("u"))
            for id, name, text in (
                ("by name", "mcp__orbiter-memory__memory_search", '{"text": "code"}'),
                ("by fence", "other", f"{_FENCE} code"),
            )
        ]
        await add_all(store, [*answers, person(f"{_FENCE} code", metadata=of("u"))])

        for answer in answers:
            kept = await store.get(answer.id)
            assert kept is not None
            assert kept.content == answer.content
            assert kept.metadata.extra == {INDEXED_BY: False}
        if isinstance(store, LexicalStore):
            assert not (await store.match_words(["code"], Query(metadata=of("u")))).items

    async def test_words_find_an_item_by_each_of_its_texts(self, store: MemoryStore) -> None:
        if not isinstance(store, LexicalStore):
            return
        texts = MemoryMetadata(user_id="u", extra={INDEXED_BY: ["a code", "some number"]})
        await store.add(person("value", id="one", metadata=texts))

        for term, ids in (("code", ["one"]), ("number", ["one"]), ("valu", [])):
            matches = await store.match_words([term], Query(metadata=of("u")))

            assert [each.id for each in matches.items] == ids
            assert matches.passages == 2

    async def test_every_field_of_the_scope_must_be_equal(self, store: MemoryStore) -> None:
        for name in self.capabilities.scope:
            await store.clear()
            others = {other: "same" for other in self.capabilities.scope if other != name}
            await store.add(person("mine", metadata=MemoryMetadata(**others, **{name: "me"})))
            await store.add(person("other", metadata=MemoryMetadata(**others, **{name: "you"})))
            await store.add(person("nobody's", metadata=MemoryMetadata(**others)))

            items = await store.search(metadata=MemoryMetadata(**others, **{name: "me"}))

            assert contents(items) == ["mine"], name

    async def test_type_and_status_filter(self, store: MemoryStore) -> None:
        await store.add(person("said", status=MemoryStatus.DRAFT))
        await store.add(AIMemory(content="answered"))

        assert contents(await store.search(memory_type="human")) == ["said"]
        assert contents(await store.search(memory_type="ai")) == ["answered"]
        for unheard_of in ("unheard-of", "HUMAN", "human ", "hum", ""):
            assert await store.search(memory_type=unheard_of) == []
        assert contents(await store.search(status=MemoryStatus.DRAFT)) == ["said"]
        assert contents(await store.search(status=MemoryStatus.ACCEPTED)) == ["answered"]
        assert await store.search(status=MemoryStatus.DISCARD) == []
        assert len(await store.search()) == 2
        assert await store.search(memory_type="ai", status=MemoryStatus.DRAFT) == []

    async def test_a_status_may_be_given_as_text(self, store: MemoryStore) -> None:
        await store.add(person("drafted", status=MemoryStatus.DRAFT))
        await store.add(person("kept"))

        for status, expected in (("draft", ["drafted"]), ("accepted", ["kept"]), ("discard", [])):
            assert contents(await store.search(status=status)) == expected  # type: ignore[arg-type]  # as JSON has it

    @needs(text="substring")
    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("100% sure", "0%"),
            ("snake_case", "e_c"),
            (r"back\slash", "k\\s"),
            ("it's", "t's"),
            ('say "hi"', '"HI"'),
            ("[a-z]*?", "[A-Z]*"),
            ("C++ AND (node.js)", "c++ and (NODE.JS"),
            ("-bob x:y", "-BOB"),
            ("STRASSE", "straße"),
            ("Straße", "STRASSE"),
            ("ÄPFEL", "äpfel"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("東京タワー", "京タ"),
            ("a\nb", "A\nB"),
            ("x", "x"),
            ("two  blanks", "  "),
            ("an apple", " APPLE"),
            ("tail ", "L "),
        ],
        ids=ascii,
    )
    async def test_a_query_is_a_literal_substring_in_any_case(
        self, store: MemoryStore, text: str, query: str
    ) -> None:
        await store.add(person(text))
        await store.add(person("something else entirely"))

        assert contents(await store.search(query=query)) == [text]

    @needs(text="substring")
    async def test_a_query_finds_neither_more_nor_less_than_it_says(
        self, store: MemoryStore
    ) -> None:
        await store.add(person("plain words"))

        for query in ("%", "_", "\\", "*", "?", "pl_in", "p%n", ".", "p.*", "^p", "plain|x"):
            assert await store.search(query=query) == [], query
        for query in (" plain", "words ", "plain  words", "words plain", "\nplain", "\t"):
            assert await store.search(query=query) == [], query

    @needs(text="substring")
    async def test_a_query_looks_at_the_content_only(self, store: MemoryStore) -> None:
        needle = "needle"
        who = dict.fromkeys(self.capabilities.scope, needle)
        items: list[MemoryItem] = [
            person("hay", id=needle, metadata=MemoryMetadata(**who, extra={needle: needle})),
            AIMemory(content="hay", native={needle: [needle]}),
            AIMemory(content="", tool_calls=[{"id": needle, "name": needle}]),
            ToolMemory(content="", tool_call_id=needle, tool_name=needle),
            MemoryItem(content="hay", memory_type=needle),
        ]
        await add_all(store, items)

        for query in (needle, "human", "ai", "accepted", "2025", "user_id"):
            assert await store.search(query=query) == [], query
        assert await store.search(query=needle, memory_type=needle) == []

    @needs(text="substring")
    async def test_a_query_may_be_long(self, store: MemoryStore) -> None:
        query = "".join(f"{number} bottles, " for number in range(4500))
        assert len(query) > 60_000
        await store.add(person(f"sing: {query}and so on"))
        await store.add(person(query[:-10]))

        assert [item.content[:5] for item in await store.search(query=query.upper())] == ["sing:"]
        assert await store.search(query=f"{query}!") == []

    async def test_clear_removes_everything_and_counts_it(self, store: MemoryStore) -> None:
        items = [person(str(number)) for number in range(3)]
        for item in items:
            await store.add(item)

        assert await store.clear() == 3
        assert await store.search() == []
        assert await store.get(items[0].id) is None
        assert await store.clear() == 0

    async def test_clear_removes_what_matches_and_nothing_else(self, store: MemoryStore) -> None:
        ann, bob = of("ann"), of("bob")
        for who in (ann, bob, ann):
            await store.add(person("hi", metadata=who))

        assert await store.clear(metadata=ann) == 2
        assert await store.clear(metadata=ann) == 0
        assert len(await store.search()) == 1
        assert len(await store.search(metadata=bob)) == 1

    async def test_clear_knows_no_limit_and_no_status(self, store: MemoryStore) -> None:
        statuses: list[Any] = list(MemoryStatus)
        items: list[MemoryItem] = [
            person(str(number), metadata=of("ann"), status=statuses[number % 3])
            for number in range(40)
        ]
        await add_all(store, [*items, person("his", metadata=of("bob"))])

        assert await store.clear(metadata=of("ann")) == 40
        assert contents(await store.search()) == ["his"]

    async def test_a_cleared_item_comes_back_when_added_again(self, store: MemoryStore) -> None:
        item = person("hi", metadata=of("ann"))
        for cleared_by in (None, of("ann")):
            await store.add(item)
            await store.clear(metadata=cleared_by)
            assert await store.get(item.id) is None

            await store.add(item)

            kept = await store.get(item.id)
            assert kept is not None
            assert kept.status is MemoryStatus.ACCEPTED
            assert await store.search(status=MemoryStatus.ACCEPTED) == [kept]
            assert await store.search(metadata=of("ann")) == [kept]


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


def distinguishing_filters() -> list[Where]:
    """Return filters in which one careless step of a store shows."""
    return [
        *({"k": value} for value in VALUES),
        *({"k": {"$contains": value}} for value in (None, True, 1, "a", 2**53 + 1, 1e16, 2**62)),
        *({"k": {"$prefix": value}} for value in ("", "a", "A", "%", "_", "é", "\U0010ffff")),
        *({name: {"$prefix": "a"}} for name in ("user_id", "content", "tags", "memory_type")),
        {"$not": {"user_id": {"$prefix": "a"}}, "k": {"$not": {"$prefix": "a"}}},
        {"$or": [{"session_id": {"$prefix": "\ud7ff"}}, {"id": {"$prefix": ""}}]},
        *({"k": {"$gt": value}} for value in (0, 0.1, 1, 5e-324, "", "a", "ab", "\uffff")),
        {"k": {"$ne": 1}},
        {"k": {"$ne": None}},
        # Every item has a `k`; a half of them have no `n`.
        *(
            {"n": {sign: operand}}
            for sign, operand in (("$ne", 1), ("$nin", [1]), ("$exists", False))
        ),
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
        where[name] = _condition(dice, name)
    return where


def _condition(dice: random.Random, name: str) -> object:
    if dice.random() < 0.3:
        return _operand(dice, name)
    operators = {}
    for _ in range(dice.choice((1, 1, 2))):
        sign = dice.choice(
            ("$eq", "$ne", "$in", "$nin", "$exists", "$contains", "$prefix", "$not", *_SIGNS)
        )
        if sign in ("$contains", "$prefix") and name in ("created_at", "updated_at"):
            sign = "$exists"
        operators[sign] = _operator_value(dice, name, sign)
    return operators


def _operator_value(dice: random.Random, name: str, sign: str) -> object:
    if sign == "$exists":
        return dice.random() < 0.5
    if sign in ("$in", "$nin"):
        return [_operand(dice, name) for _ in range(dice.choice((0, 1, 2, 5)))]
    if sign == "$not":
        other = dice.choice(("$eq", "$gt", "$in"))
        return {other: _operator_value(dice, name, other)}
    value = _operand(dice, name)
    while sign in _SIGNS and not _is_ordered(value):
        value = _operand(dice, name)
    if sign == "$prefix":
        return value[:1] if isinstance(value, str) else "a"
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

        for where in (*distinguishing_filters(), *(random_where(dice) for _ in range(90))):
            matching = await store.search(where=where, limit=1000)

            query = Query(where=where)
            expected = [item.id for item in items if query.matches(item)]
            assert sorted(item.id for item in matching) == sorted(expected), where

    @needs(where=True)
    async def test_where_applies_before_the_limit(self, store: Any) -> None:
        await store.add(person("old", metadata=MemoryMetadata(user_id="u", extra={"n": 7})))
        newer = [person(f"{n}", 1 + n, metadata=of("u")) for n in range(300)]
        await add_all(store, [*newer])

        for where in ({"n": 7}, {"n": {"$gt": 6.5}}, {"content": "old"}):
            items = await store.search(where=where, limit=1, metadata=of("u"))

            assert contents(items) == ["old"], where

    @needs(where=True)
    async def test_where_joins_the_other_filters(self, store: Any) -> None:
        for content, user, n in (("a", "u", 1), ("b", "u", 2), ("c", "v", 2)):
            who = MemoryMetadata(user_id=user, extra={"n": n})
            await store.add(person(content, metadata=who))

        items = await store.search(where={"n": 2}, metadata=of("u"), memory_type="human")

        assert contents(items) == ["b"]
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
