"""What a store keeps of an item's past: conditional writes, deletions undone, every version."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orbiter.memory.errors import EmptyFilterError, MemoryError, VersionConflict
from orbiter.memory.model.items import MemoryMetadata, MemoryStatus
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.add_get_contract import IMPOSSIBLE_IDS
from orbiter.memory.testing.contracts.base_contract import (
    Contract,
    contents,
    of,
    person,
    stored,
    written,
)
from orbiter.memory.testing.contracts.fidelity_contract import KINDS

__all__ = ["VersionContract"]


class VersionContract(Contract):
    """Nothing that was ever acknowledged is gone until it is purged."""

    @needs(versions=True)
    async def test_an_expected_version_guards_a_write(self, store: Any) -> None:
        item = person("first", id="one")
        await store.add(item, expected_version=0)

        await store.add(person("second", id="one"), expected_version=1)
        for wrong in (0, 1, 3, 2**40):
            with pytest.raises(VersionConflict) as caught:
                await store.add(person("wrong", id="one"), expected_version=wrong)
            assert isinstance(caught.value, MemoryError)
            assert (caught.value.item_id, caught.value.expected) == ("one", wrong)
            assert caught.value.found == 2
        with pytest.raises(VersionConflict) as caught:
            await store.add(person("wrong", id="two"), expected_version=1)
        assert caught.value.found == 0

        assert contents(await store.search()) == ["second"]
        assert (await store.get("one")).version == 2

    @needs(versions=True)
    async def test_a_deleted_item_is_expected_at_version_0(self, store: Any) -> None:
        version = (await stored(store, person("hi", id="one"))).version
        await store.delete("one")

        with pytest.raises(VersionConflict) as caught:
            await store.add(person("again", id="one"), expected_version=version)
        await store.add(person("again", id="one"), expected_version=0)

        assert caught.value.found == 0
        assert contents(await store.search()) == ["again"]

    @needs(versions=True)
    @pytest.mark.parametrize("expected", [-1, True, 1.0, "1"])
    async def test_an_expected_version_is_a_number(self, store: Any, expected: Any) -> None:
        with pytest.raises(ValueError, match="expected_version") as caught:
            await store.add(person("hi"), expected_version=expected)

        assert isinstance(caught.value, MemoryError)
        assert await store.search() == []

    @needs(versions=True)
    async def test_of_concurrent_writers_who_expect_the_same_one_wins(self, store: Any) -> None:
        for expected in (0, 1, 2):
            results = await asyncio.gather(
                *(
                    store.add(person(str(number), id="one"), expected_version=expected)
                    for number in range(8)
                ),
                return_exceptions=True,
            )

            assert results.count(None) == 1
            assert all(isinstance(each, VersionConflict) for each in results if each is not None)
            assert contents(await store.search()) == [str(results.index(None))]

    @needs(versions=True)
    async def test_a_counter_kept_by_expected_versions_loses_nothing(self, store: Any) -> None:
        async def count_up() -> None:
            while True:
                current = await store.get("one")
                number = current.metadata.extra["n"] if current else 0
                item = person("", id="one", metadata=MemoryMetadata(extra={"n": number + 1}))
                try:
                    await store.add(item, expected_version=current.version if current else 0)
                except VersionConflict:
                    continue
                return

        await asyncio.gather(*(count_up() for _ in range(12)))

        assert (await store.get("one")).metadata.extra == {"n": 12}

    @needs(versions=True)
    async def test_a_deleted_item_can_be_restored_to_its_place(self, store: Any) -> None:
        for number in range(3):
            await store.add(person(f"ÄPFEL {number}", id=f"i{number}", metadata=of("ann")))
        all_three = self._ordered("ÄPFEL 0", "ÄPFEL 1", "ÄPFEL 2")

        assert await store.delete("i1") is True
        assert await store.delete("i1") is False
        assert await store.get("i1") is None
        assert contents(await store.search(metadata=of("ann"))) == [
            each for each in all_three if "1" not in each
        ]
        assert (await store.count(), await store.count(include_deleted=True)) == (2, 3)
        assert await store.restore("i1") is True
        assert await store.restore("i1") is False

        assert contents(await store.search(metadata=of("ann"))) == all_three
        assert contents(await store.search(query="äpfel 1")) == ["ÄPFEL 1"]
        assert await store.count() == 3

    @needs(versions=True)
    async def test_an_expected_version_guards_a_deletion(self, store: Any) -> None:
        await store.add(person("first", id="one"))
        await store.add(person("second", id="one"))

        for wrong in (0, 1, 3):
            with pytest.raises(VersionConflict) as caught:
                await store.delete("one", expected_version=wrong)
            assert (caught.value.expected, caught.value.found) == (wrong, 2)
        with pytest.raises(VersionConflict):
            await store.delete("two", expected_version=1)

        assert contents(await store.search()) == ["second"]
        assert await store.delete("one", expected_version=2)
        assert await store.search() == []

    @needs(versions=True)
    async def test_a_cleared_item_can_be_restored(self, store: Any) -> None:
        item = KINDS[2][0]
        await store.add(item)
        await store.clear()

        assert await store.restore(item.id)

        restored = await store.get(item.id)
        assert written(restored) == written(item.model_copy(update={"version": restored.version}))

    @needs(versions=True)
    @pytest.mark.parametrize("item_id", ["nobody", *IMPOSSIBLE_IDS], ids=ascii)
    async def test_what_is_not_there_is_neither_deleted_nor_restored(
        self, store: Any, item_id: str
    ) -> None:
        await store.add(person("hi"))

        assert await store.delete(item_id) is False
        assert await store.restore(item_id) is False
        assert await store.history(item_id) == []
        assert await store.count() == 1

    @needs(versions=True)
    async def test_purge_removes_the_deleted_for_good_and_nothing_else(self, store: Any) -> None:
        for number, who in enumerate(("ann", "bob", "ann", "bob")):
            await store.add(person(f"n{number}", id=f"i{number}", metadata=of(who)))
        for gone in ("i0", "i1", "i2"):
            await store.delete(gone)

        assert await store.purge(metadata=of("bob")) == 1
        assert await store.count(include_deleted=True) == 3
        assert await store.purge() == 2
        assert await store.purge() == 0

        assert contents(await store.search()) == ["n3"]
        assert await store.count(include_deleted=True) == 1
        for gone in ("i0", "i1", "i2"):
            assert await store.restore(gone) is False
            assert await store.history(gone) == []
            assert await store.search(query=f"n{gone[1]}") == []

    @needs(versions=True)
    async def test_purge_spares_what_was_deleted_later(self, store: Any) -> None:
        # Deletions are dated by the store's clock; a day leaves room for any.
        day = timedelta(days=1)
        await store.add(person("hi", id="one"))
        await store.delete("one")

        assert await store.purge(deleted_before=datetime.now(UTC) - day) == 0
        assert await store.restore("one")
        await store.delete("one")
        assert await store.purge(deleted_before=datetime.now(UTC) + day) == 1

    @needs(versions=True)
    async def test_purge_refuses_a_filter_that_names_nobody(self, store: Any) -> None:
        await store.add(person("hi", id="one"))
        await store.delete("one")

        with pytest.raises(EmptyFilterError):
            await store.purge(metadata=MemoryMetadata(extra={"k": 1}))

        assert await store.restore("one")

    @needs(versions=True)
    async def test_a_purged_id_starts_anew(self, store: Any) -> None:
        await store.add(person("old", id="one", metadata=of("ann")))
        await store.add(person("older", id="one", metadata=of("ann")))
        await store.delete("one")
        await store.purge()

        item = await stored(store, person("new", 5, id="one", metadata=of("bob")))

        assert (item.version, item.content) == (1, "new")
        assert item.created_at == person("", 5).created_at
        assert [each.change for each in await store.history("one")] == ["added"]
        assert contents(await store.search(query="new")) == ["new"]

    @needs(versions=True)
    async def test_history_has_every_version_as_it_was(self, store: Any) -> None:
        kinds = [*(full for full, _ in KINDS), *(bare for _, bare in KINDS)]
        for item in kinds:
            await store.add(item)

        versions = await store.history("one")

        assert [each.item.version for each in versions] == list(range(1, len(kinds) + 1))
        for number, (version, item) in enumerate(zip(versions, kinds, strict=True), start=1):
            assert written(version.item) == written(item.model_copy(update={"version": number}))

    @needs(versions=True)
    async def test_history_tells_what_changed_when_and_by_whom(self, store: Any) -> None:
        start = datetime.now(UTC)
        bobs = MemoryMetadata(user_id="bob", agent_id="helper")
        await store.add(person("a", id="one", metadata=of("ann")))
        await store.add(person("b", id="one", metadata=bobs))
        await store.add(person("b", id="one", status=MemoryStatus.DRAFT), by="reviewer")
        await store.delete("one", by="cleaner")
        await store.restore("one")
        await store.clear(by="owner")
        await store.add(person("c", id="one"))

        versions = await store.history("one")

        assert [(each.item.content, each.change) for each in versions] == [
            ("a", "added"), ("b", "updated"), ("b", "updated"), ("b", "deleted"),
            ("b", "restored"), ("b", "deleted"), ("c", "restored"),
        ]  # fmt: skip
        assert [each.by for each in versions] == [
            "ann", "helper", "reviewer", "cleaner", None, "owner", None,
        ]  # fmt: skip
        assert [each.item.version for each in versions] == list(range(1, 8))
        times = [each.at for each in versions[1:]]
        assert times == sorted(times)
        assert start - timedelta(minutes=5) <= times[0] <= datetime.now(UTC) + timedelta(minutes=5)

    @needs(versions=True)
    async def test_the_first_version_can_be_signed_too(self, store: Any) -> None:
        await store.add(person("a", id="one"), by="importer")
        await store.add_many([person("b", id="two"), person("c", id="one")], by="batch")

        assert [each.by for each in await store.history("one")] == ["importer", "batch"]
        assert [each.by for each in await store.history("two")] == ["batch"]
        assert len(await store.history("one")) == 2

    @needs(versions=True)
    async def test_a_refused_write_leaves_no_version(self, store: Any) -> None:
        await store.add(person("a", id="one"))
        with pytest.raises(VersionConflict):
            await store.add(person("b", id="one"), expected_version=7, by="someone")

        (only,) = await store.history("one")

        assert (only.item.content, only.by) == ("a", None)

    @needs(versions=True)
    async def test_a_past_version_can_be_written_again(self, store: Any) -> None:
        for item in (KINDS[3][0], KINDS[3][1]):
            await store.add(item)

        first = (await store.history("one"))[0].item
        await store.add(first, expected_version=2)

        current = await store.get("one")
        assert written(current) == written(first.model_copy(update={"version": 3}))
