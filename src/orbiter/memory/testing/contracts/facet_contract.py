"""For stores that count users and values themselves: what they count is what is there."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.key_value import Delete, Entry, Put, StoredEntry
from orbiter.memory.model.value_counts import (
    FacetStore,
    UserInfo,
    UserOrder,
    UserQuery,
    ValueCount,
    count_values,
    list_users,
    users_of_entries,
)
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    HOSTILE_IDS,
    START,
    Contract,
    add_all,
    of,
    person,
)

__all__ = ["FacetContract"]

_MANY = 1_000
_NAMED = [name for name in HOSTILE_IDS if name]
_VALUES: tuple[Any, ...] = (
    "a", "A", "ab", "é", "1", "true", "", 1, 1.0, 2, -3, 0.1, 0.30000000000000004, 1e300,
    2**53 + 1, 2**62 + 1, True, False, None, [], ["a", "a", "b"], [1, "1", True, None], [["a"]],
    {"a": 1}, [{"a": 1}, 2.5], "b\n", "\U0001f600",
)  # fmt: skip
_KEYS = ("tags", "n", "a b", 'q"q', "é", "x.y", "user_id2")


def _random_items(rng: random.Random, count: int) -> list[MemoryItem]:
    return [
        person(
            "said",
            rng.randrange(50),
            metadata=MemoryMetadata(
                user_id=rng.choice(["ann", "bob", "Bob", "böb", None]),
                session_id=rng.choice(["s", "t", None]),
                extra={key: rng.choice(_VALUES) for key in _KEYS if rng.random() < 0.7},
            ),
        )
        for _ in range(count)
    ]


class FacetContract(Contract):
    """Counts are of what `search` finds, in every scope and order."""

    @needs(facets=True)
    async def test_users_are_counted_with_their_sessions_and_times(self, store: Any) -> None:
        ann, bob = MemoryMetadata(user_id="ann", session_id="s"), of("bob")
        other = MemoryMetadata(user_id="ann", session_id="t")
        items = [person("1", 5, metadata=ann), person("2", 1, metadata=other)]
        items += [person("3", 9, metadata=of("ann")), person("4", 3, metadata=bob)]
        await add_all(
            store, [*items, person("nobody's", 7), person("5", metadata=of("s", "agent_id"))]
        )

        counted = await store.users(UserQuery())

        at = [START + timedelta(seconds=seconds) for seconds in (1, 9, 3)]
        assert isinstance(store, FacetStore)
        ann_info = UserInfo("ann", 3, 2, at[0], at[1])
        assert counted == [ann_info, UserInfo("bob", 1, 0, at[2], at[2])]

    @needs(facets=True)
    @pytest.mark.parametrize("order", get_args(UserOrder))
    async def test_pages_of_users_hold_everyone_once_and_in_order(
        self, store: Any, order: UserOrder
    ) -> None:
        rng = random.Random(7)  # noqa: S311 - repeatable on purpose
        items: list[MemoryItem] = [
            person("said", rng.randrange(5), metadata=of(name))
            for name in _NAMED
            for _ in range(rng.randrange(1, 4))
        ]
        await add_all(store, items)

        counted: list[UserInfo] = []
        while page := await store.users(UserQuery("", order, counted[-1] if counted else None, 7)):
            counted += page

        assert counted == list_users(items, UserQuery("", order, None, _MANY))
        assert sorted(each.user_id for each in counted) == sorted(_NAMED)
        assert await store.users(UserQuery("", order, None, 0)) == []

    @needs(facets=True, key_value=True)
    @pytest.mark.parametrize("order", get_args(UserOrder))
    async def test_whoever_has_entries_is_among_the_users(
        self, store: Any, order: UserOrder
    ) -> None:
        items: list[MemoryItem] = [person("hi", n, metadata=of(f"m{n}")) for n in range(4)]
        await add_all(store, items)
        for name in ("m1", "m3", *_NAMED):
            changes = [Put(("p",), key, b"v") for key in name[:3]]
            await store.key_value.write(changes, scope=of(name))
        long_ago = StoredEntry(of("m2"), Entry(("p",), "k", b"v", 1, START, START))
        await store.key_value.load([long_ago])
        await store.key_value.write([Put(("p",), "k", b"v")], scope=of("agent", "agent_id"))
        theirs = users_of_entries(await store.key_value.dump(limit=_MANY))

        counted: list[UserInfo] = []
        while page := await store.users(UserQuery("", order, counted[-1] if counted else None, 3)):
            counted += page

        assert counted == list_users(items, UserQuery("", order, None, _MANY), theirs)
        assert {each.user_id for each in counted} == {"m0", "m1", "m2", "m3", *_NAMED}

    @needs(facets=True, key_value=True)
    async def test_nobody_is_a_user_by_an_entry_that_is_gone(self, store: Any) -> None:
        names = [(("p",), "k")]
        await store.key_value.write([Put(("p",), "k", b"v", ttl=0.02)], scope=of("ann"))
        await store.key_value.write([Put(("p",), "k", b"v")], scope=of("bob"))
        await store.key_value.write([Delete(("p",), "k")], scope=of("bob"))
        while await store.key_value.get(names, scope=of("ann")) != [None]:
            pass

        assert await store.users(UserQuery()) == []

    @needs(facets=True)
    async def test_users_are_found_by_how_their_names_begin(self, store: Any) -> None:
        last = "\U0010ffff"
        names = [*_NAMED, "ali\ud7ff", "ali\ue000", f"z{last}", f"z{last}{last}", "é", "e\u0301"]
        await add_all(store, [person("hi", metadata=of(name)) for name in names])

        for start in (
            "ali",
            "a",
            "A",
            "al%",
            "_",
            "%",
            "\\",
            "z",
            f"z{last}",
            "é",
            "ali\ud7ff",
            "x",
        ):
            counted = await store.users(UserQuery(start, limit=_MANY))

            wanted = sorted(name for name in names if name.startswith(start))
            assert [each.user_id for each in counted] == wanted, start

    @needs(facets=True)
    async def test_values_are_counted_as_where_finds_them(self, store: Any) -> None:
        items = _random_items(random.Random(3), 120)  # noqa: S311 - repeatable on purpose
        await add_all(store, items)

        for scope in (None, of("ann"), MemoryMetadata(user_id="bob", session_id="s")):
            for field in (*_KEYS, "memory_type", "status", "user_id", "session_id", "task_id"):
                counted = await store.count_by(field, metadata=scope, limit=_MANY)

                there = await store.search(metadata=scope, limit=_MANY)
                assert counted == count_values(there, field, _MANY), field
                for each in counted[:5]:
                    equal = await store.search(
                        metadata=scope, where={field: each.value}, limit=_MANY
                    )
                    assert len(equal) == each.items, each

    @needs(facets=True)
    async def test_what_is_counted_is_narrowed_down(self, store: Any) -> None:
        items = _random_items(random.Random(5), 60)  # noqa: S311 - repeatable on purpose
        await add_all(store, items)
        since, until = START + timedelta(seconds=10), START + timedelta(seconds=40)

        for narrowed in (
            {"where": {"n": {"$exists": True}}},
            {"since": since, "until": until},
            {"memory_type": "ai"},
            {"memory_type": "human", "where": {"session_id": "s"}},
        ):
            counted = await store.count_by("tags", limit=3, **narrowed)

            there = await store.search(limit=_MANY, **narrowed)
            assert counted == count_values(there, "tags", 3), narrowed
        assert await store.count_by("tags", limit=0) == []

    @needs(facets=True)
    async def test_nobody_is_counted_by_another(self, store: Any) -> None:
        items: list[MemoryItem] = [
            person("hi", metadata=MemoryMetadata(user_id=name, extra={"tags": [name]}))
            for name in _NAMED
        ]
        await add_all(store, items)

        for name in _NAMED:
            for field in ("tags", "user_id"):
                counted = await store.count_by(field, metadata=of(name))
                assert counted == [ValueCount(name, 1)], field

    @needs(facets=True)
    async def test_what_is_gone_is_not_counted(self, store: Any) -> None:
        kept, gone = person("kept", metadata=of("ann")), person("gone", 1, metadata=of("ann"))
        over = person("over", 2, metadata=of("cid"))
        over.expires_at = datetime.now(UTC) + timedelta(milliseconds=1)
        await add_all(store, [kept, gone, person("hi", metadata=of("bob"))])
        await store.delete_many([gone.id])
        await store.clear(metadata=of("bob"))
        await store.add(over)
        while await store.get(over.id) is not None:
            pass

        assert await store.users(UserQuery()) == [UserInfo("ann", 1, 0, START, START)]
        assert await store.count_by("user_id") == [ValueCount("ann", 1)]

    @needs(facets=True)
    async def test_what_cannot_be_counted_is_refused(self, store: Any) -> None:
        for field in ("content", "id", "created_at", "version", "", "$or", 5, None):
            with pytest.raises(QueryError, match="`"):
                await store.count_by(field)
        with pytest.raises(QueryError, match="limit"):
            await store.count_by("tags", limit=-1)
        with pytest.raises(QueryError, match="order"):
            UserQuery(order="size")  # type: ignore[arg-type]  # on purpose
        with pytest.raises(QueryError, match="starts_with"):
            UserQuery("\ud800")
