"""In-memory index: recall from a store that finds neither by words nor by meaning, as Redis.

A private index in this process follows the store. It is derived, so it may be thrown away at any
moment; what is returned is what the store had when it was read for this very answer.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from orbiter.memory.model.copying import copy_item, unfenced
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import Embeddings, MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS, check_size
from orbiter.memory.recall._hits import RecallResult
from orbiter.memory.recall._modes import check_mode, no_meaning
from orbiter.memory.recall._recall import RecallOptions, check_scope, recall
from orbiter.memory.tasks.event_loop import OneLoop

if TYPE_CHECKING:
    from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore

__all__ = ["InMemoryIndex"]

_PAGE = 500
_SCOPES = 64
"""How many scopes are held; those asked for last."""
_ROOM = 4
"""How many times `max_items` items are held at most, whoever's they are."""
_MAX_CHARS = 64 * 2**20
"""Characters of all that is held for scopes other than the one asked for last."""

_Owner = tuple[str | None, ...]
"""The scope fields of an item, or of what was asked for, where `None` is anyone's."""


class InMemoryIndex:
    """Recalls from *store* by way of an index in memory, which *embeddings* let find by meaning.

    *store* must page: `search` takes `before`, and returns the newest first. Every answer reads
    the newest *max_items* of its scope, and older ones are not found. The index holds those of the
    scopes asked for last, up to 64 scopes, four times *max_items* and 64 million characters.
    Answers are given one at a time.
    """

    def __init__(
        self,
        store: MemoryStore,
        embeddings: Embeddings | None = None,
        *,
        max_items: int = 5_000,
    ) -> None:
        self.store = store
        self.embeddings = embeddings
        self._max_items = check_size("max_items", max_items)
        self._index: SQLiteMemoryStore | None = None
        self._held: dict[str, MemoryItem] = {}
        self._owned: dict[_Owner, set[str]] = {}
        self._scopes: dict[_Owner, None] = {}
        self._loop = OneLoop(repr(self))

    def __repr__(self) -> str:
        return f"InMemoryIndex({self.store!r})"

    async def recall(
        self, query: str, *, scope: MemoryMetadata | None, **options: Unpack[RecallOptions]
    ) -> RecallResult:
        """Return the items of the store that answer *query*, as `recall` does, in any mode.

        They are as the store has them. Of items that are new to the index, more than a hundred at
        once are found by their words first, and by their meaning a little later.
        """
        check_scope(scope)
        if check_mode(options.get("mode", "hybrid")) == "meaning" and self.embeddings is None:
            raise no_meaning(self.store)
        async with self._loop.turn:
            there = await self._read(scope)
            index = await self._opened()
            try:
                await self._follow(index, _owner(scope), there)
            except BaseException:  # cancellation included: who knows what was written
                await self._close()
                raise
            result = await recall(index, query, scope=scope, **options)
        return _as_stored(result, there)

    async def close(self) -> None:
        """Drop the index; the store stays open. May be repeated; the next answer rebuilds it."""
        async with self._loop.turn:
            await self._close()

    async def _close(self) -> None:
        index, self._index = self._index, None
        self._held.clear()
        self._owned.clear()
        self._scopes.clear()
        if index is not None:
            await index.close()

    async def _opened(self) -> "SQLiteMemoryStore":
        if self._index is None:
            # Here, because who recalls from Postgres needs no SQLite.
            from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore  # noqa: PLC0415

            index = SQLiteMemoryStore(":memory:", embeddings=self.embeddings)
            await index.init()
            self._index = index
        return self._index

    async def _read(self, scope: MemoryMetadata | None) -> dict[str, MemoryItem]:
        """Return the newest items of a scope, by id, newest first."""
        items: dict[str, MemoryItem] = {}
        while len(items) < self._max_items:
            last = next(reversed(items.values()), None)
            limit = min(_PAGE, self._max_items - len(items))
            page = await self._page(scope, limit, last)
            known = len(items)
            items |= {item.id: item for item in page}
            if len(page) < limit or len(items) == known:
                break
        return items

    async def _page(
        self, scope: MemoryMetadata | None, limit: int, before: MemoryItem | None
    ) -> list[MemoryItem]:
        if before is None:
            return await self.store.search(metadata=scope, limit=limit)
        return await self.store.search(  # type: ignore[call-arg]  # a store that pages
            metadata=scope, limit=limit, before=before
        )

    async def _follow(
        self, index: "SQLiteMemoryStore", scope: _Owner, there: dict[str, MemoryItem]
    ) -> None:
        """Bring the index in line with what is *there*: of this scope it holds that and no more."""
        covered = [
            key for owner, keys in self._owned.items() if _covers(scope, owner) for key in keys
        ]
        news = [item for key, item in there.items() if self._held.get(key) != item]
        known = there.keys() - {item.id for item in news}
        # What has changed goes, too: an update would leave its former self in the history.
        await self._remove(index, [key for key in covered if key not in known])
        await self._remove(index, [item.id for item in news if item.id in self._held])
        if news:
            await index.add_many(news[::-1])  # of one instant, the later one is the newer
            for item in news:
                self._held[item.id] = copy_item(item)
                self._owned.setdefault(_owner(item.metadata), set()).add(item.id)
        self._scopes.pop(scope, None)
        self._scopes[scope] = None
        while len(self._scopes) > 1 and self._is_full():
            await self._forget(index, next(iter(self._scopes)))

    def _is_full(self) -> bool:
        if len(self._scopes) > _SCOPES or len(self._held) > _ROOM * self._max_items:
            return True
        return sum(len(item.content) for item in self._held.values()) > _MAX_CHARS

    async def _forget(self, index: "SQLiteMemoryStore", scope: _Owner) -> None:
        """Remove what is held for the sake of one scope only."""
        del self._scopes[scope]
        alone = [
            key
            for owner, keys in self._owned.items()
            if _covers(scope, owner) and not any(_covers(other, owner) for other in self._scopes)
            for key in keys
        ]
        await self._remove(index, alone)

    async def _remove(self, index: "SQLiteMemoryStore", item_ids: Iterable[str]) -> None:
        removed = list(item_ids)
        if not removed:
            return
        await asyncio.gather(*(index.delete(item_id) for item_id in removed))
        await index.purge()
        for item_id in removed:
            owner = _owner(self._held.pop(item_id).metadata)
            self._owned[owner].discard(item_id)
            if not self._owned[owner]:
                del self._owned[owner]


def _owner(metadata: MemoryMetadata | None) -> _Owner:
    return tuple(getattr(metadata, name, None) for name in SCOPE_FIELDS)


def _covers(scope: _Owner, owner: _Owner) -> bool:
    return all(wanted is None or wanted == has for wanted, has in zip(scope, owner, strict=True))


def _as_stored(result: RecallResult, there: dict[str, MemoryItem]) -> RecallResult:
    """Return the same answer with the store's items: the index counts versions of its own."""

    def stored(item: MemoryItem) -> MemoryItem:
        return unfenced(there[item.id])

    return RecallResult(
        (
            replace(
                hit,
                item=stored(hit.item),
                repeats=tuple(map(stored, hit.repeats)),
            )
            for hit in result
        ),
        mode=result.mode,
        considered=result.considered,
        left_out=tuple(replace(one, item=stored(one.item)) for one in result.left_out),
        question=result.question,
        spread=result.spread,
        reranking=result.reranking,
        unembedded=result.unembedded,
    )
