"""Walking through what is stored, page by page, and within bounds of time."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    START,
    Contract,
    add_all,
    contents,
    of,
    person,
)

__all__ = ["PagingContract"]


async def _fill(store: Any, count: int = 23) -> list[str]:
    """Store items, of which three each share an instant; return their contents, newest first."""
    items: list[MemoryItem] = [
        person(f"n{number}", number // 3, metadata=of("ann")) for number in range(count)
    ]
    others: list[MemoryItem] = [
        person(f"his {number}", number // 3, metadata=of("bob")) for number in range(count)
    ]
    await add_all(store, [each for pair in zip(items, others, strict=True) for each in pair])
    return [f"n{number}" for number in reversed(range(count))]


class PagingContract(Contract):
    """Pages neither overlap nor leave a gap, whatever is written meanwhile."""

    @needs(paging=True)
    @pytest.mark.parametrize("size", [1, 4, 5, 23, 50])
    @pytest.mark.parametrize("query", ["", "n"], ids=["all", "by text"])
    async def test_pages_from_the_newest_to_the_oldest_are_the_whole(
        self, store: Any, size: int, query: str
    ) -> None:
        expected = await _fill(store)
        filters = {"metadata": of("ann"), "limit": size, "query": query}

        items: list[MemoryItem] = []
        while page := await store.search(**filters, before=items[-1] if items else None):
            assert len(page) <= size
            items += page
            assert len(items) <= len(expected), "the pages have no end"

        assert contents(items) == expected

    @needs(paging=True)
    @pytest.mark.parametrize("size", [1, 4, 22, 50])
    @pytest.mark.parametrize("query", ["", "n"], ids=["all", "by text"])
    async def test_pages_from_the_oldest_to_the_newest_are_the_whole(
        self, store: Any, size: int, query: str
    ) -> None:
        expected = await _fill(store)
        filters = {"metadata": of("ann"), "limit": size, "query": query}
        oldest = (await store.search(metadata=of("ann"), limit=100))[-1]

        pages = [[oldest]]
        while page := await store.search(**filters, after=pages[-1][0].id):
            pages.append(page)
            assert len(pages) <= len(expected), "the pages have no end"

        assert [item.content for page in reversed(pages) for item in page] == expected

    @needs(paging=True)
    async def test_what_is_written_meanwhile_shifts_no_page(self, store: Any) -> None:
        expected = await _fill(store)
        first = await store.search(metadata=of("ann"), limit=5)

        await store.add(person("newer", 999, metadata=of("ann")))
        await store.add(first[-1])
        second = await store.search(metadata=of("ann"), limit=5, before=first[-1])

        assert contents(first + second) == expected[:10]
        newer = await store.search(metadata=of("ann"), after=first[0])
        assert contents(newer) == ["newer"]

    @needs(paging=True, versions=True)
    @pytest.mark.parametrize("size", [3, 4, 5])
    async def test_a_cursor_may_be_deleted_and_purged(self, store: Any, size: int) -> None:
        expected = await _fill(store)
        first = await store.search(metadata=of("ann"), limit=size)
        await store.delete(first[-1].id)

        second = await store.search(metadata=of("ann"), limit=5, before=first[-1])
        await store.purge()
        again = await store.search(metadata=of("ann"), limit=5, before=first[-1])

        assert contents(second) == expected[size : size + 5]
        assert contents(again) == contents(second)
        newer = await store.search(metadata=of("ann"), limit=50, after=first[-1])
        assert contents(newer) == expected[: size - 1]
        with pytest.raises(ValueError, match=first[-1].id) as caught:
            await store.search(before=first[-1].id)  # an id alone does not say where it was
        assert isinstance(caught.value, MemoryError)

    @needs(paging=True, expiry=True)
    @pytest.mark.parametrize("query", ["", "n"], ids=["all", "by text"])
    async def test_a_walk_goes_on_though_its_last_item_is_gone_each_time(
        self, store: Any, query: str
    ) -> None:
        expected = await _fill(store)
        filters = {"metadata": of("ann"), "limit": 4, "query": query}

        items: list[MemoryItem] = []
        while page := await store.search(**filters, before=items[-1] if items else None):
            items += page
            assert len(items) <= len(expected), "the pages have no end"
            # Its own instant, a time to live that has passed: it is gone for good.
            await store.add(page[-1].model_copy(update={"expires_at": START}))
            if hasattr(store, "sweep"):
                await store.sweep()

        assert contents(items) == expected

    @needs(paging=True, expiry=True)
    async def test_a_cursor_whose_id_was_given_out_again_stands_where_it_stood(
        self, store: Any
    ) -> None:
        expected = await _fill(store)
        first = await store.search(metadata=of("ann"), limit=5)

        await store.add(first[-1].model_copy(update={"expires_at": START}))
        again = {"created_at": START + timedelta(seconds=999), "expires_at": None}
        await store.add(first[-1].model_copy(update=again))
        second = await store.search(metadata=of("ann"), limit=5, before=first[-1])

        assert contents(second) == expected[5:10]

    @needs(paging=True)
    @pytest.mark.parametrize("cursor", ["nobody", "", "a\0b", "\ud800", 7], ids=ascii)
    async def test_a_cursor_that_names_nothing_is_refused(self, store: Any, cursor: Any) -> None:
        await store.add(person("hi"))

        for name in ("before", "after"):
            with pytest.raises(ValueError, match=name) as caught:
                await store.search(**{name: cursor})
            assert isinstance(caught.value, MemoryError)

    @needs(paging=True)
    async def test_both_cursors_bound_a_stretch(self, store: Any) -> None:
        await _fill(store)
        everything = await store.search(metadata=of("ann"), limit=100)

        between = await store.search(
            metadata=of("ann"), limit=100, before=everything[4], after=everything[10]
        )

        assert contents(between) == contents(everything[5:10])

    @needs(paging=True)
    async def test_since_is_included_and_until_is_not(self, store: Any) -> None:
        for seconds in (1, 2, 2.000001, 3):
            await store.add(person(f"at {seconds}", seconds))
        two, three = START + timedelta(seconds=2), START + timedelta(seconds=3)

        async def texts_between(**bounds: datetime) -> list[str]:
            return contents(await store.search(**bounds, query="AT"))

        assert await texts_between(since=two) == self._ordered("at 2", "at 2.000001", "at 3")
        assert await texts_between(until=two) == ["at 1"]
        assert await texts_between(since=two, until=three) == self._ordered("at 2", "at 2.000001")
        assert await texts_between(since=three, until=two) == []
        naive = two.replace(tzinfo=None)
        assert await texts_between(since=naive) == await texts_between(since=two)
        assert contents(await store.search(since=two, until=three)) == await texts_between(
            since=two, until=three
        )

    @needs(paging=True)
    async def test_a_bound_must_be_a_time(self, store: Any) -> None:
        for name in ("since", "until"):
            with pytest.raises(ValueError, match=name) as caught:
                await store.search(**{name: "yesterday"})
            assert isinstance(caught.value, MemoryError)
