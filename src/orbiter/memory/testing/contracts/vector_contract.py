"""What searching by meaning means: whose vectors count, in which order, and which are refused.

The store's own `embeddings` are made to answer by the book meanwhile: the vector of a text that is
an angle in degrees points there.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import (
    INDEXED_BY,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
)
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    DEADLINE,
    Contract,
    add_all,
    contents,
    of,
    person,
    written,
)

__all__ = ["SPOILT", "Answer", "MeaningContract"]

Answer = Callable[[str], Any]


def _angle(store: Any) -> Answer:
    """Return what turns `"30"` into a vector that points 30 degrees away from `"0"`."""
    rest = [0.0] * (store.embeddings.dimension - 2)

    def vector(text: str) -> list[float]:
        degrees = math.radians(float(text.split(maxsplit=1)[0]))
        return [math.cos(degrees), math.sin(degrees), *rest]

    return vector


def _script(patch: pytest.MonkeyPatch, store: Any, answer: Answer) -> None:
    """Make the embeddings of *store* answer each text so."""

    async def aembed(text: str) -> Any:
        made = answer(text)
        return await made if asyncio.isfuture(made) else made

    async def aembed_many(texts: Sequence[str]) -> list[Any]:
        return [await aembed(text) for text in texts]

    patch.setattr(store.embeddings, "embed", answer, raising=False)
    patch.setattr(store.embeddings, "embed_many", lambda texts: list(map(answer, texts)))
    patch.setattr(store.embeddings, "aembed", aembed)
    patch.setattr(store.embeddings, "aembed_many", aembed_many)


async def _all(store: Any) -> list[str]:
    return sorted(written(item) for item in await store.search(limit=1000))


SPOILT: dict[str, Callable[[list[float]], Any]] = {
    "one number too few": lambda vector: vector[:-1],
    "one number too many": lambda vector: [*vector, 0.5],
    "no numbers": lambda _vector: [],
    "a NaN": lambda vector: [math.nan, *vector[1:]],
    "an infinity": lambda vector: [*vector[:-1], -math.inf],
    "text": lambda vector: [str(number) for number in vector],
    "nothing": lambda _vector: None,
}


class MeaningContract(Contract):
    """The nearest of what the filters leave, best first; no item without a sound vector."""

    @needs(text="meaning")
    async def test_the_nearest_come_first(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _script(monkeypatch, store, _angle(store))
        await add_all(store, [person(each) for each in ("50", "170", "10", "90", "-30")])

        assert contents(await store.search(query="0")) == ["10", "-30", "50", "90", "170"]
        assert contents(await store.search(query="60", limit=2)) == ["50", "90"]

    @needs(text="meaning")
    async def test_what_is_not_indexed_is_kept_and_never_embedded(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        texts: list[str] = []
        angle = _angle(store)

        def answer(text: str) -> Any:
            texts.append(text)
            return angle(text)

        _script(monkeypatch, store, answer)
        secret = MemoryMetadata(user_id="u", extra={INDEXED_BY: False})
        hidden, plain = (person("1 code", id="one", metadata=who) for who in (secret, of("u")))
        await add_all(store, [hidden, person("5", id="two", metadata=of("u"))])

        assert texts == ["5"]
        assert written(await store.get("one")) == written(hidden)
        for item, ids in ((hidden, ["two"]), (plain, ["one", "two"]), (hidden, ["two"])):
            await store.add(item)
            assert [each.id for each in await store.search(query="0")] == ids
            assert {each.id for each in await store.search()} == {"one", "two"}

    @needs(text="meaning")
    async def test_an_item_is_as_near_as_the_nearest_of_its_texts(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _script(monkeypatch, store, _angle(store))
        texts = MemoryMetadata(user_id="u", extra={INDEXED_BY: ["10", "100"]})
        await add_all(store, [person("0", id="one", metadata=texts), person("50", id="two")])

        for query, ids in (("5", ["one", "two"]), ("99", ["one", "two"]), ("55", ["two", "one"])):
            assert [each.id for each in await store.search(query=query)] == ids
        await store.add(person("0", id="one", metadata=of("u")))
        assert [each.id for each in await store.search(query="99", limit=1)] == ["two"]

    @needs(text="meaning")
    async def test_the_length_of_a_vector_does_not_count(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        angle = _angle(store)

        def answer(text: str) -> list[float]:
            length = float(text.split()[1]) if " " in text else 1.0
            return [length * number for number in angle(text)]

        _script(monkeypatch, store, answer)
        await add_all(store, [person(each) for each in ("40 1000", "20 0.001", "30 7")])

        assert contents(await store.search(query="0")) == ["20 0.001", "30 7", "40 1000"]
        assert contents(await store.search(query="40 0.01", limit=1)) == ["40 1000"]

    @needs(text="meaning")
    async def test_of_equals_the_one_added_first_comes_first(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _script(monkeypatch, store, _angle(store))
        for number in range(20):
            await store.add(person(f"30 {number}", -number, id=f"i{number}"))
        await store.add(person("30 4!", 99, id="i4", metadata=of("ann")))

        texts = contents(await store.search(query="30", limit=6))

        assert texts == ["30 0", "30 1", "30 2", "30 3", "30 4!", "30 5"]
        assert contents(await store.search(query="30", limit=1)) == ["30 0"]

    @needs(text="meaning")
    async def test_filters_apply_before_the_cut(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _script(monkeypatch, store, _angle(store))
        for name in self.capabilities.scope:
            await store.clear()
            others: list[MemoryItem] = [
                person(f"0 {number}", metadata=of(f"other{number % 3}", name))
                for number in range(40)
            ]
            await add_all(store, [*others, person("90 mine", metadata=of("me", name))])

            items = await store.search(query="0", metadata=of("me", name), limit=1)

            assert contents(items) == ["90 mine"], name
        await store.clear()
        drafts = [person(f"0 {number}", status=MemoryStatus.DRAFT) for number in range(40)]
        await add_all(store, [*drafts, AIMemory(content="90 ai"), person("60 kept")])

        assert contents(await store.search(query="0", memory_type="ai", limit=1)) == ["90 ai"]
        accepted = await store.search(query="0", status=MemoryStatus.ACCEPTED, limit=2)
        assert contents(accepted) == ["60 kept", "90 ai"]

    @needs(text="meaning")
    async def test_an_updated_text_is_found_by_its_new_meaning(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _script(monkeypatch, store, _angle(store))
        await add_all(store, [person("0", id="one"), person("20"), person("70")])

        await store.add(person("90", id="one"))

        assert contents(await store.search(query="0")) == ["20", "70", "90"]
        assert contents(await store.search(query="90", limit=1)) == ["90"]

    @needs(text="meaning")
    async def test_what_is_cleared_has_no_meaning_left(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _script(monkeypatch, store, _angle(store))
        await add_all(store, [person("0", metadata=of("ann")), person("80", metadata=of("bob"))])

        await store.clear(metadata=of("ann"))

        assert contents(await store.search(query="0")) == ["80"]
        assert await store.search(query="0", metadata=of("ann")) == []

    @needs(text="meaning")
    async def test_a_limit_of_nothing_gives_nothing_near(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _script(monkeypatch, store, _angle(store))
        assert await store.search(query="0") == []
        await store.add(person("0"))

        assert await store.search(query="0", limit=0) == []
        assert contents(await store.search(query="0", limit=2**70)) == ["0"]

    @needs(text="meaning")
    async def test_a_text_that_cannot_be_embedded_changes_nothing(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        angle = _angle(store)

        def answer(text: str) -> Any:
            if "bad" in text:
                raise OSError("the model is away")
            return angle(text)

        _script(monkeypatch, store, answer)
        await store.add(person("0", id="one"))
        before = await _all(store)

        with pytest.raises(OSError, match="away"):
            await store.add(person("1 bad", id="one"))
        with pytest.raises(OSError, match="away"):
            await store.add(person("1 bad", id="two"))
        if self.capabilities.batch:
            with pytest.raises(OSError, match="away"):
                await store.add_many([person("5", id="one"), person("6"), person("7 bad")])
        with pytest.raises(OSError, match="away"):
            await store.search(query="0 bad")

        assert await _all(store) == before
        assert await store.get("two") is None
        assert contents(await store.search(query="0")) == ["0"]

    @needs(text="meaning")
    @pytest.mark.parametrize("spoilt", SPOILT)
    async def test_a_vector_that_is_none_is_refused(
        self, store: Any, monkeypatch: pytest.MonkeyPatch, spoilt: str
    ) -> None:
        angle = _angle(store)

        def answer(text: str) -> Any:
            return SPOILT[spoilt](angle(text)) if "bad" in text else angle(text)

        _script(monkeypatch, store, answer)
        await store.add(person("0", id="one"))
        before = await _all(store)
        calls: list[Callable[[], Any]] = [
            lambda: store.add(person("1 bad", id="one")),
            lambda: store.add(person("1 bad")),
            lambda: store.search(query="0 bad"),
        ]
        if self.capabilities.batch:
            calls.append(lambda: store.add_many([person("5", id="one"), person("7 bad")]))

        for call in calls:
            with pytest.raises(MemoryError):
                await call()

        assert await _all(store) == before
        assert contents(await store.search(query="0")) == ["0"]

    @needs(text="meaning")
    async def test_a_vector_of_zeros_is_kept_and_near_nothing(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        angle = _angle(store)

        def answer(text: str) -> list[float]:
            return [0.0] * len(angle("0")) if "void" in text else angle(text)

        _script(monkeypatch, store, answer)
        await store.add(person("0 void", id="one"))
        await add_all(store, [person("90"), person("180 void", id="two")])
        if self.capabilities.batch:
            await store.add_many([person("10"), person("20 void", id="two")])
        else:
            await add_all(store, [person("10"), person("20 void", id="two")])

        kept = await store.get("one")
        assert kept is not None
        assert kept.content == "0 void"
        assert len(await store.search()) == 4
        assert contents(await store.search(query="0")) == ["10", "90"]
        assert contents(await store.search(query="180")) == ["90", "10"]
        assert await store.search(query="0 void") == []
        await store.add(person("5", id="one"))
        assert contents(await store.search(query="0", limit=1)) == ["5"]

    @needs(text="meaning")
    async def test_a_cancelled_embedding_changes_nothing(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        angle = _angle(store)
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        _script(monkeypatch, store, lambda text: never if "slow" in text else angle(text))
        await store.add(person("0", id="one"))
        before = await _all(store)

        for work in (
            store.add(person("9 slow", id="one")),
            store.add(person("9 slow")),
            store.search(query="9 slow"),
        ):
            task = asyncio.create_task(work)
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

        assert await _all(store) == before
        await store.add(person("20", id="one"))
        assert contents(await store.search(query="0")) == ["20"]

    @needs(text="meaning")
    async def test_a_slow_embedding_leaves_an_item_with_its_own_vector(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        angle = _angle(store)
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        _script(monkeypatch, store, lambda text: waiting if "slow" in text else angle(text))
        await add_all(store, [person("30"), person("60")])

        slow = asyncio.create_task(store.add(person("0 slow", id="one", metadata=of("ann"))))
        await asyncio.sleep(0)
        quick = asyncio.create_task(store.add(person("90", id="one", metadata=of("bob"))))
        await asyncio.sleep(0.01)
        waiting.set_result(angle("0"))
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(slow, quick)

        kept = await store.get("one")
        assert kept is not None
        assert kept.version == 2
        own = kept.content.split(maxsplit=1)[0]
        assert contents(await store.search(query=own, limit=1)) == [kept.content]
        assert await store.search(query="45", metadata=kept.metadata) == [kept]
        assert len(await store.search(query="45", limit=10)) == 3

    @needs(text="meaning")
    async def test_a_reader_finds_items_by_the_meaning_they_have(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _script(monkeypatch, store, _angle(store))
        who = MemoryMetadata(user_id="ann")

        async def write(number: int) -> None:
            turned = HumanMemory(id=f"i{number % 4}", content=f"{number % 7 * 25}", metadata=who)
            await store.add(turned)

        async def read(number: int) -> None:
            towards = number % 7 * 25
            angles = [int(text) for text in contents(await store.search(query=f"{towards}"))]
            assert angles == sorted(angles, key=lambda degrees: abs(degrees - towards))

        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*(work(n) for n in range(60) for work in (write, read)))
