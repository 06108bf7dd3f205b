"""What recall structures must find, computed naively from all items of a store."""

import asyncio
import math
import random
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import pytest

from orbiter.memory import MemoryItem, MemoryMetadata
from orbiter.memory.backends.sql.embedder import passages_of
from orbiter.memory.model.query import CosineQuery, Query
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.text import words


class Fickle(HashEmbeddings):
    """Embeddings that fail, hang or make nonsense of texts that hold a word."""

    def __init__(self, dimension: int = 16) -> None:
        super().__init__(dimension)
        self.bad = "\0"
        self.answer: Any = None
        self.calls = 0
        self.texts = 0
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def name(self) -> str:
        """Return a name that does not depend on the class."""
        return "fickle"

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed, unless something is wrong."""
        self.calls += 1
        self.texts += len(texts)
        await self.gate.wait()
        if self.answer is None and any(self.bad in text for text in texts):
            raise RuntimeError("the model is out of order")
        return [self.answer if self.bad in text else self.embed(text) for text in texts]


class Sound(HashEmbeddings):
    """The same model as `Fickle`, in good order."""

    def __init__(self) -> None:
        super().__init__(16)

    @property
    def name(self) -> str:
        """Return the other's name."""
        return "fickle"


class Detailed(HashEmbeddings):
    """Embeddings with details: four bytes for each word of more than three letters."""

    detail_dimension = 4

    def rows(self, text: str) -> bytes:
        """Return the details of a text."""
        telling = (word for word in text.casefold().split() if len(word) > 3)
        return b"".join(blake2b(word.encode(), digest_size=4).digest() for word in telling)

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Fail: vectors and details are made in one go."""
        raise AssertionError("a model with details was asked for vectors alone")

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        """Return vectors and details."""
        return [(self.embed(text), self.rows(text)) for text in texts]

    def expected(self, items: Iterable[MemoryItem]) -> dict[str, list[bytes]]:
        """Return what a store must keep of *items*."""
        made = {item.id: [self.rows(part) for part in passages_of(item.content)] for item in items}
        return {item_id: rows for item_id, rows in made.items() if any(rows)}


async def everything(store: Any, user_id: str | None = None) -> list[MemoryItem]:
    """Return all items, or a user's, newest first."""
    found: list[MemoryItem] = await store.search(
        metadata=MemoryMetadata(user_id=user_id) if user_id else None, limit=100_000
    )
    return found


async def check_words(store: Any, terms: Sequence[str], asked: Query) -> None:
    """Compare `match_words` with counting."""
    items = await everything(store, asked.wanted.get("user_id"))
    held = [[set(words.terms(part)) for part in words.passages(item.content)] for item in items]
    total = sum(map(len, held))
    frequency = {term: sum(term in part for parts in held for part in parts) for term in terms}
    worth = {f: math.log(1 + (total - f + 0.5) / (f + 0.5)) for f in frequency.values()}
    scored = []
    for item, parts in zip(items, held, strict=True):
        best = max(sum(worth[frequency[t]] for t in frequency if t in part) for part in parts)
        if best > 0 and asked.matches(item):
            scored.append((round(best, 6), item))
    scored.sort(key=lambda each: -each[0])  # stable: of equals the newest

    found = await store.match_words(terms, asked)

    assert (found.frequency, found.passages) == (frequency, total)
    assert [item.id for item in found.items] == [item.id for _, item in scored[: asked.limit]]
    assert list(found.items) == [item for _, item in scored[: asked.limit]]


async def check_meaning(
    store: Any, embeddings: HashEmbeddings, text: str, asked: Query, *, waiting: bool = False
) -> None:
    """Compare `nearest` with measuring; items that wait may be missing, none may be wrong."""
    items = await everything(store, asked.wanted.get("user_id"))
    towards = embeddings.embed(text)
    cosines = {
        item.id: max(
            sum(a * b for a, b in zip(towards, embeddings.embed(part), strict=True))
            for part in words.passages(item.content)
        )
        for item in items
        if item.content.strip() and asked.matches(item)
    }
    by_id = {item.id: item for item in items}

    found = await store.nearest(towards, asked)

    assert [item for item, _ in found] == [by_id[item.id] for item, _ in found]
    assert len({item.id for item, _ in found}) == len(found) <= asked.limit
    for item, cosine in found:
        assert math.isclose(cosine, cosines[item.id], abs_tol=1e-5)
    assert [c for _, c in found] == sorted((c for _, c in found), reverse=True)
    if not waiting:
        best = sorted(cosines.values(), reverse=True)[: asked.limit]
        assert len(best) == len(found)
        for (_, cosine), expected in zip(found, best, strict=True):
            assert math.isclose(cosine, expected, abs_tol=1e-5)
    near = await store.similarities(towards, [*by_id, "nobody"])
    if not waiting:
        assert near.keys() == {item.id for item in items if item.content.strip()}
    for item_id in near.keys() & cosines.keys():
        assert math.isclose(near[item_id], cosines[item_id], abs_tol=1e-5)


async def check_details(store: Any, embeddings: Detailed, *, waiting: bool = False) -> None:
    """Compare `details` with making them; of items that wait they may be missing, none wrong."""
    expected = embeddings.expected(items := await everything(store))

    found = await store.details([*(item.id for item in items), "nobody"])

    if not waiting:
        assert found.keys() == expected.keys()
    assert found == {item_id: expected.get(item_id) for item_id in found}


async def check_around(store: Any, item_ids: Sequence[str], span: int) -> None:
    """Compare `around` with walking along each conversation."""
    talks: dict[tuple[str | None, str | None], list[MemoryItem]] = {}
    for item in reversed(await everything(store)):
        talks.setdefault((item.metadata.user_id, item.metadata.session_id), []).append(item)
    added = {record.id: place for place, record in enumerate(await store.records(limit=10**6))}
    for (_, session), talk in talks.items():
        if session is not None:
            talk.sort(key=lambda item: added[item.id])
    where = {item.id: (talk, at) for talk in talks.values() for at, item in enumerate(talk)}
    expected: list[set[str]] = []
    for item_id in item_ids:
        if item_id not in where:
            continue
        talk, at = where[item_id]
        stretch = {item.id for item in talk[max(0, at - span) : at + span + 1]}
        joined = [other for other in expected if other & stretch]
        for other in joined[1:]:
            expected.remove(other)
        if joined:
            joined[0].update(stretch, *joined[1:])
        else:
            expected.append(stretch)

    found = await store.around(item_ids, span=span)

    assert [{item.id for item in stretch} for stretch in found] == expected
    for stretch in found:
        places = [where[item.id][1] for item in stretch]
        assert places == list(range(places[0], places[0] + len(places)))


async def check_scored(store: Any, towards: Sequence[float], dice: random.Random) -> None:
    """Compare `around_scored` with `around` and `similarities`, one after the other."""
    item_ids, others, known = (
        [f"i{number}" for number in dice.sample(range(40), size)] for size in (4, 5, 6)
    )
    asked, span = CosineQuery(towards, others, known), dice.randrange(4)

    found, cosines = await store.around_scored(item_ids, asked, span=span)

    assert found == await store.around(item_ids, span=span)
    every = {*others, *(item.id for items in found for item in items)}.difference(known)
    assert cosines == pytest.approx(await store.similarities(towards, sorted(every)))
