"""Entries of key and value: exact bytes, one step, in order, and nobody else's."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from orbiter.memory.errors import InvalidItemError, QueryError, VersionConflict
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.key_value import MAX_KEY, MAX_PATH, Delete, Entry, Put, StoredEntry
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import Recipe, needs
from orbiter.memory.testing.contracts.base_contract import HOSTILE_IDS, Contract, of

__all__ = ["HOSTILE_PARTS", "WRITERS", "KeyValueContract"]

WRITERS = 8

HOSTILE_PARTS = (
    "a", "A", "a ", "ab", "a%", "a_", "a*", "a?", "[a]", "a\n", "a/b", "a.b", "a:b", "'", '"', "\\",
    "é", "e\u0301", "日本", "😀", "\x02", "\x7f", "-", "0", "00",
)  # fmt: skip
"""Parts of paths, and keys, that some comparison takes for another one of them."""

ANN = of("ann")


def _names(entries: Sequence[Entry]) -> list[tuple[tuple[str, ...], str]]:
    return [(entry.path, entry.key) for entry in entries]


class KeyValueContract(Contract):
    """What is put is got, exactly, by whom it belongs to; changes are made together or not."""

    if TYPE_CHECKING:

        def recipe(self, store: MemoryStore) -> Recipe: ...

    @needs(key_value=True)
    async def test_a_value_is_got_as_it_was_put(self, store: Any) -> None:
        values = [b"", b"\0", bytes(range(256)), "日本😀".encode(), b"x" * 8_000_000]
        await store.key_value.write(
            [Put(("v",), str(number), value) for number, value in enumerate(values)], scope=ANN
        )

        entries = await store.key_value.get(
            [(("v",), str(number)) for number in range(len(values) + 1)], scope=ANN
        )

        assert [entry and entry.value for entry in entries] == [*values, None]
        assert {entry.version for entry in entries[:-1]} == {1}

    @needs(key_value=True)
    async def test_versions_count_and_begin_again(self, store: Any) -> None:
        kv = store.key_value
        assert await kv.write([Put(("p",), "k", b"1")], scope=ANN) == [1]
        [first] = await kv.get([(("p",), "k")], scope=ANN)
        assert await kv.write([Put(("p",), "k", b"2")], scope=ANN) == [2]
        [second] = await kv.get([(("p",), "k")], scope=ANN)

        assert (second.value, second.version, second.expires_at) == (b"2", 2, None)
        assert second.created_at == first.created_at <= first.updated_at <= second.updated_at
        assert await kv.write([Delete(("p",), "k"), Delete(("p",), "none")], scope=ANN) == [2, 0]
        assert await kv.get([(("p",), "k")], scope=ANN) == [None]
        assert await kv.write([Put(("p",), "k", b"3")], scope=ANN) == [1]

    @needs(key_value=True)
    async def test_a_step_is_made_whole_or_not_at_all(self, store: Any) -> None:
        kv = store.key_value
        await kv.write([Put(("p",), "a", b"a"), Put(("p",), "b", b"b")], scope=ANN)
        for wrong in (
            Put(("p",), "b", b"x", expected_version=0),
            Put(("p",), "b", b"x", expected_version=2),
            Put(("p",), "new", b"x", expected_version=1),
            Delete(("p",), "b", expected_version=3),
            Delete(("p",), "none", expected_version=1),
        ):
            with pytest.raises(VersionConflict, match=f"p/{wrong.key}"):
                await kv.write(
                    [Put(("p",), "c", b"c"), Delete(("p",), "a"), wrong, Put(("q",), "a", b"")],
                    scope=ANN,
                )
            entries = await kv.entries((), scope=ANN)
            assert [(each.key, each.value) for each in entries] == [("a", b"a"), ("b", b"b")]

        right = [
            Put(("p",), "b", b"x", expected_version=1),
            Delete(("p",), "a", expected_version=1),
            Put(("p",), "new", b"n", expected_version=0),
        ]
        assert await kv.write(right, scope=ANN) == [2, 1, 1]
        assert await kv.write([], scope=ANN) == []
        # Of several changes of one entry the last one counts.
        twice = [Put(("p",), "b", b"y"), Delete(("p",), "new"), Put(("p",), "new", b"m")]
        assert await kv.write([*twice, Delete(("p",), "b")], scope=ANN) == [2, 2, 2, 2]
        assert _names(await kv.entries((), scope=ANN)) == [(("p",), "new")]

    @needs(key_value=True)
    async def test_entries_come_by_path_and_key(self, store: Any) -> None:
        kv = store.key_value
        paths = [("a",), ("a", "b"), ("a", "b", "c"), ("a", "c"), ("ab",), ("b",)]
        for path in paths[::-1]:
            await kv.write([Put(path, key, b"") for key in ("2", "10", "1")], scope=ANN)
        every = [(path, key) for path in paths for key in ("1", "10", "2")]

        assert _names(await kv.entries((), scope=ANN)) == every
        assert _names(await kv.entries((), scope=ANN, reverse=True)) == every[::-1]
        assert _names(await kv.entries(("a",), scope=ANN)) == every[:12]
        assert _names(await kv.entries(("a",), scope=ANN, is_deep=False)) == every[:3]
        assert _names(await kv.entries(("a", "b"), scope=ANN)) == every[3:9]
        assert await kv.entries(("none",), scope=ANN) == []
        assert await kv.entries((), scope=ANN, limit=0) == []
        assert _names(await kv.entries((), scope=ANN, after=every[4], limit=5)) == every[5:10]
        assert (
            _names(await kv.entries(("a",), scope=ANN, after=every[4], limit=5, reverse=True))
            == every[3::-1]
        )
        assert await kv.paths((), scope=ANN) == paths
        assert await kv.paths(("a",), scope=ANN) == paths[:4]
        assert await kv.paths(("a",), scope=ANN, after=("a",), limit=2) == paths[1:3]
        assert await kv.paths(("none",), scope=ANN) == []

    @needs(key_value=True)
    async def test_the_newest_entries_are_those_that_were_put_last(self, store: Any) -> None:
        kv = store.key_value
        names = [(("n", "b"), "1"), (("n",), "2"), (("n", "a"), "3"), (("o",), "4")]
        for path, key in [*names, names[1]]:
            await asyncio.sleep(0.002)  # the clock of a store may count whole milliseconds
            await kv.write([Put(path, key, b"", ttl=600)], scope=ANN)
        await kv.touch([names[0]], scope=ANN)  # nothing was put
        by_age = [names[1], names[3], names[2], names[0]]

        assert _names(await kv.entries((), scope=ANN, newest=True)) == by_age
        assert _names(await kv.entries((), scope=ANN, newest=True, limit=2)) == by_age[:2]
        below = [by_age[0], by_age[2], by_age[3]]
        assert _names(await kv.entries(("n",), scope=ANN, newest=True)) == below
        assert _names(await kv.entries(("n",), scope=ANN, newest=True, is_deep=False)) == below[:1]
        assert await kv.entries((), scope=of("bob"), newest=True) == []
        for other in ({"reverse": True}, {"after": names[0]}):
            with pytest.raises(QueryError, match="`newest` is an order of its own"):
                await kv.entries((), scope=ANN, newest=True, **other)

    @needs(key_value=True)
    async def test_odd_names_are_all_different(self, store: Any) -> None:
        kv = store.key_value
        names = [((part, "x"), part) for part in HOSTILE_PARTS]
        await kv.write(
            [Put(path, key, str(place).encode()) for place, (path, key) in enumerate(names)],
            scope=ANN,
        )

        entries = await kv.get(names, scope=ANN)
        assert [entry.value for entry in entries] == [str(i).encode() for i in range(len(names))]
        for path, key in names:
            assert _names(await kv.entries(path[:1], scope=ANN)) == [(path, key)]
        in_order = sorted(names, key=lambda name: [part.encode() for part in name[0]])
        assert _names(await kv.entries((), scope=ANN)) == in_order
        assert await kv.paths((), scope=ANN) == [path for path, _ in in_order]

    @needs(key_value=True)
    async def test_an_entry_is_over_unless_it_is_touched(self, store: Any) -> None:
        kv = store.key_value
        await kv.write(
            [
                Put(("t",), "short", b"", 0.1),
                Put(("t",), "long", b"", 3600),
                Put(("t",), "no", b""),
            ],
            scope=ANN,
        )
        [before] = await kv.get([(("t",), "long")], scope=ANN)
        await asyncio.sleep(0.2)

        assert _names(await kv.entries((), scope=ANN)) == [(("t",), "long"), (("t",), "no")]
        assert await kv.get([(("t",), "short")], scope=ANN) == [None]
        assert await kv.touch([(("t",), key) for key in ("short", "long", "no")], scope=ANN) == 1
        [after] = await kv.get([(("t",), "long")], scope=ANN)
        assert after.expires_at > before.expires_at
        assert (after.version, after.updated_at) == (before.version, before.updated_at)
        assert await kv.write([Put(("t",), "short", b"", expected_version=0)], scope=ANN) == [1]
        [lasting] = await kv.get([(("t",), "short")], scope=ANN)
        assert lasting.expires_at is None
        await kv.write([Put(("u",), "only", b"", 0.05)], scope=ANN)
        await asyncio.sleep(0.1)
        assert await kv.paths((), scope=ANN) == [("t",)]
        assert await kv.touch([], scope=ANN) == 0

    @needs(key_value=True)
    async def test_a_log_keeps_what_is_appended_in_order(self, store: Any) -> None:
        kv = store.key_value
        keys = await kv.append(("log",), [b"1", b"2"], scope=ANN)
        keys += await kv.append(("log",), [b"3"], scope=ANN)
        assert await kv.append(("log",), [], scope=ANN) == []
        await kv.append(("log", "other"), [b"x"], scope=ANN)

        entries = await kv.entries(("log",), scope=ANN, is_deep=False)
        assert [entry.value for entry in entries] == [b"1", b"2", b"3"]
        assert [entry.key for entry in entries] == keys == sorted(set(keys))
        assert (await kv.pop(("log",), scope=ANN)).value == b"3"
        await kv.append(("log",), [b"4"], scope=ANN)
        entries = await kv.entries(("log",), scope=ANN, is_deep=False)
        assert [entry.value for entry in entries] == [b"1", b"2", b"4"]
        assert await kv.clear(("log",), scope=ANN) == 4
        assert await kv.pop(("log",), scope=ANN) is None
        await kv.write([Put(("log",), "mine", b"")], scope=ANN)
        with pytest.raises(QueryError, match="mine"):
            await kv.append(("log",), [b"1"], scope=ANN)

    @needs(key_value=True)
    async def test_of_those_who_append_and_pop_at_once_each_gets_its_own(self, store: Any) -> None:
        kv = store.key_value
        values = [[b"%d-%d" % (writer, n) for n in range(3)] for writer in range(WRITERS)]
        keys = await asyncio.gather(*(kv.append(("l",), each, scope=ANN) for each in values))

        assert len({key for several in keys for key in several}) == 3 * WRITERS
        entries = await kv.entries(("l",), scope=ANN)
        for each in values:  # a call's values stand together
            start = [entry.value for entry in entries].index(each[0])
            assert [entry.value for entry in entries[start : start + 3]] == each
        popped = await asyncio.gather(*(kv.pop(("l",), scope=ANN) for _ in range(3 * WRITERS + 1)))
        assert sorted(each.value for each in popped if each) == sorted(
            value for each in values for value in each
        )

    @needs(key_value=True)
    async def test_of_changes_that_race_none_is_lost(self, store: Any) -> None:
        kv = store.key_value

        async def count_up() -> None:
            for _ in range(5):
                while True:
                    [entry] = await kv.get([(("n",), "n")], scope=ANN)
                    value = b"%d" % (int(entry.value) + 1 if entry else 1)
                    version = entry.version if entry else 0
                    try:
                        await kv.write([Put(("n",), "n", value, None, version)], scope=ANN)
                    except VersionConflict:
                        continue
                    break

        async def write_both(order: int) -> None:
            puts = [Put(("m",), key, b"") for key in "abc"]
            for _ in range(5):
                await kv.write(puts[::order], scope=ANN)

        await asyncio.gather(
            *(count_up() for _ in range(WRITERS)), *(write_both(order) for order in (1, -1, 1, -1))
        )

        [entry] = await kv.get([(("n",), "n")], scope=ANN)
        assert (entry.value, entry.version) == (b"%d" % (5 * WRITERS), 5 * WRITERS)
        assert {each.version for each in await kv.entries(("m",), scope=ANN)} == {20}

    @needs(key_value=True)
    async def test_entries_of_a_scope_are_of_just_that_scope(self, store: Any) -> None:
        kv = store.key_value
        scopes = [of(name) for name in HOSTILE_IDS]
        scopes += [of("alice", "session_id"), of("alice", "task_id"), of("alice", "agent_id")]
        scopes += [
            MemoryMetadata(user_id="alice", session_id="alice"),
            MemoryMetadata(user_id="alice", agent_id="alice"),
        ]
        for number, scope in enumerate(scopes):
            await kv.write([Put(("p",), "k", b"%d" % number)], scope=scope)
            await kv.append(("log",), [b"%d" % number], scope=scope)

        for number, scope in enumerate(scopes):
            entries = await kv.entries((), scope=scope)
            assert [entry.value for entry in entries] == [b"%d" % number] * 2
            assert [each.value for each in await kv.get([(("p",), "k")], scope=scope)] == [
                b"%d" % number
            ]
        assert await kv.clear((), scope=scopes[0]) == 2
        for scope in scopes[1:]:
            assert len(await kv.entries((), scope=scope)) == 2

    @needs(key_value=True)
    async def test_entries_of_a_scope_and_below_it_are_counted(self, store: Any) -> None:
        kv, of_session = store.key_value, MemoryMetadata(user_id="ann", session_id="s")
        await kv.write([Put(("p",), str(number), b"") for number in range(250)], scope=ANN)
        await kv.write(
            [Put(("p",), "k", b""), Put(("p",), "over", b"", ttl=0.01)], scope=of_session
        )
        await kv.write([Put(("p",), "k", b"")], scope=of("bob"))
        await asyncio.sleep(0.05)  # until one is over

        scopes = (ANN, of_session, of("bob"), of("carol"), None)
        assert [await kv.count(metadata=each) for each in scopes] == [251, 1, 1, 0, 252]

    @needs(key_value=True)
    async def test_erase_removes_entries_and_no_one_elses(self, store: Any) -> None:
        kv, of_session = store.key_value, MemoryMetadata(user_id="ann", session_id="s")
        for scope in (ANN, of_session, of("bob"), of("ann", "agent_id")):
            await kv.write([Put(("p",), "k", b"a secret of many words")], scope=scope)

        erased = await store.erase(metadata=ANN)

        assert (bool(erased), erased.entries) == (True, 2)
        for scope in (ANN, of_session):
            assert await kv.entries((), scope=scope) == []
        for scope in (of("bob"), of("ann", "agent_id")):
            assert len(await kv.entries((), scope=scope)) == 1

    @needs(key_value=True)
    async def test_what_is_dumped_is_loaded_as_it_was(self, store: Any) -> None:
        kv, of_session = store.key_value, MemoryMetadata(user_id="ann", session_id="s")
        for scope in (ANN, of_session, of("bob")):
            await kv.write([Put(("p",), key, bytes(range(256))) for key in "abc"], scope=scope)
            await kv.write([Put(("p",), "b", b"2"), Put(("q", "r"), "e", b"", 3600)], scope=scope)

        every, page = [], await kv.dump(limit=5)
        while page:
            every += page
            page = await kv.dump(limit=5, after=every[-1])
        anns = await kv.dump(metadata=ANN)
        assert (len(every), len(anns)) == (12, 8)
        assert {each.scope.user_id for each in anns} == {"ann"}
        assert [StoredEntry.from_line(each.to_line().encode()) for each in every] == every

        await kv.clear((), scope=of("bob"))
        await kv.write([Put(("p",), "b", b"here")], scope=ANN)
        there = [each.scope.user_id == "ann" for each in every]
        assert await kv.load(every) == [not each for each in there]
        [entry] = await kv.get([(("p",), "b")], scope=ANN)
        assert entry.value == b"here"
        assert await kv.load(every[::-1], overwrite=True) == [True] * 12
        assert await kv.dump() == every

    @needs(key_value=True)
    async def test_entries_are_found_by_what_their_names_contain(self, store: Any) -> None:
        kv = store.key_value
        names = [
            (("ab", "c"), "k1"), (("ab", "c"), "%_k"), (("x",), "aB"), (("x",), "ab"),
            (("x", "y"), "é"), ((), "yab"), (("a", "b"), "z"),
        ]  # fmt: skip
        await kv.write([Put(*name, b"v") for name in names], scope=ANN)
        await kv.write([Put(("ab",), "another's", b"v")], scope=of("bob"))

        for text in ("ab", "a", "B", "%", "_", "é", "k", "nothing", "", "\\", "'", "a" * 999):
            wanted = sorted(
                (path, key) for path, key in names if any(text in part for part in (*path, key))
            )
            listed = await kv.entries((), scope=ANN, contains=text)
            assert sorted((each.path, each.key) for each in listed) == wanted, text
            back = await kv.entries((), scope=ANN, contains=text, reverse=True)
            assert back == listed[::-1], text
            newest = await kv.entries((), scope=ANN, contains=text, newest=True, limit=2)
            assert len(newest) == min(2, len(wanted)), text
            paged = await kv.entries((), scope=ANN, contains=text, limit=2)
            while len(paged) < len(listed):
                last = (paged[-1].path, paged[-1].key)
                paged += await kv.entries((), scope=ANN, contains=text, after=last, limit=2)
            assert paged == listed, text
        below = await kv.entries(("x",), scope=ANN, contains="ab")
        assert [(each.path, each.key) for each in below] == [(("x",), "ab")]
        for wrong in (None, 5, "a\0", "a\x01"):
            with pytest.raises(QueryError, match="contains"):
                await kv.entries((), scope=ANN, contains=wrong)

    @needs(key_value=True, shared=True)
    async def test_another_store_on_the_same_data_has_the_entries(self, store: Any) -> None:
        await store.key_value.write([Put(("p",), "k", b"v")], scope=ANN)
        other: Any = self.recipe(store).make()
        await other.init()
        try:
            assert await other.key_value.write([Put(("p",), "k", b"w")], scope=ANN) == [2]
        finally:
            await other.close()
        [entry] = await store.key_value.get([(("p",), "k")], scope=ANN)
        assert (entry.value, entry.version) == (b"w", 2)

    @needs(key_value=True)
    async def test_what_cannot_be_stored_is_refused_and_named(self, store: Any) -> None:
        kv = store.key_value
        path: Any
        key: Any
        value: Any
        ttl: Any
        version: Any
        for path in ("p", ("",), ("a\0",), ("a\x01",), (1,), None, ("p" * MAX_PATH,), ("\ud800",)):
            with pytest.raises(QueryError):
                await kv.write([Put(path, "k", b"")], scope=ANN)
            with pytest.raises(QueryError):
                await kv.entries(path, scope=ANN)
        for key in ("", "a\0", 1, None, "k" * (MAX_KEY + 1), "\ud800"):
            with pytest.raises(QueryError):
                await kv.write([Put(("p",), key, b"")], scope=ANN)
        for value in ("text", None, 1):
            with pytest.raises(InvalidItemError):
                await kv.write([Put(("p",), "k", value)], scope=ANN)
        for ttl in (0, -1, True, "1", 1e12):
            with pytest.raises(ValueError, match="ttl"):
                await kv.write([Put(("p",), "k", b"", ttl)], scope=ANN)
        for version in (-1, True, "1", 1.0):
            with pytest.raises(QueryError, match="expected_version"):
                await kv.write([Put(("p",), "k", b"", None, version)], scope=ANN)
        longest = ("p" * (MAX_PATH - 1),)
        await kv.write([Put(longest, "k" * MAX_KEY, b"")], scope=ANN)
        assert _names(await kv.entries((), scope=ANN)) == [(longest, "k" * MAX_KEY)]
