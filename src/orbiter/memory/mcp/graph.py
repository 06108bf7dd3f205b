"""A knowledge graph whose entities and relations are memories like any other.

An observation is one memory, and so is a relation, in the shape in which the file of the reference
server is imported: recall, `history` and the dashboard see them, and what was imported is here.
Nothing is read, changed and written back as a whole, so writers cannot undo each other's work. An
entity of which nothing is observed is one memory by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.transfer.formats.mcp_memory import observation_of, relation_of

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory

__all__ = ["Entity", "Graph", "Relation", "Stored", "is_empty"]

_PAGE = 1_000
_AT_ONCE = 8
"""Writes under way at a time: a store gathers them into one, and none waits long."""
_ENTITIES: Where = {"entity": {"$exists": True}}
_RELATIONS: Where = {"relation": {"$exists": True}}
_HITS = 20


class Entity(BaseModel):
    """A thing, and what was observed of it."""

    name: str
    entityType: str  # noqa: N815 - the reference server's name
    observations: list[str]


class Relation(BaseModel):
    """Two entities, and what the one is to the other."""

    model_config = ConfigDict(populate_by_name=True, frozen=True)

    begin: str = Field(alias="from")
    to: str
    relationType: str  # noqa: N815


@dataclass
class Stored:
    """A graph as it is stored: each part with the memories that say it."""

    kinds: dict[str, str] = field(default_factory=dict)
    """The type of each entity, in the order in which they came."""
    observations: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By entity and text: the ids."""
    relations: dict[Relation, list[str]] = field(default_factory=dict)

    def entity(self, name: str) -> Entity:
        """Return one entity, whole."""
        return Entity(
            name=name, entityType=self.kinds[name], observations=list(self.observations[name])
        )

    def part(self, names: Iterable[str]) -> tuple[list[Entity], list[Relation]]:
        """Return entities, and the relations that any of them is in."""
        wanted = set(names)
        return (
            [self.entity(name) for name in self.kinds if name in wanted],
            [each for each in self.relations if each.begin in wanted or each.to in wanted],
        )

    def add(self, item: MemoryItem) -> None:
        """Take in a memory, if it is a part of a graph."""
        relation = _relation(item)
        if relation is not None:
            self.relations.setdefault(relation, []).append(item.id)
        elif "entity" in item.metadata.extra:
            name, kind, text = observation_of(item)
            self.kinds.setdefault(name, kind)
            known = self.observations.setdefault(name, {})
            if text:
                known.setdefault(text, []).append(item.id)


class Graph:
    """The graph of one scope; *source* signs what is written."""

    def __init__(self, handle: "ScopedMemory", *, source: str | None = None) -> None:
        self._handle = handle
        self._source = source

    async def read(self, where: Where | None = None) -> Stored:
        """Return the graph, or what of it fulfils *where*, in the order in which it came."""
        stored = Stored()
        every = where or {"$or": [_ENTITIES, _RELATIONS]}
        for item in reversed([item async for item in _pages(self._handle, every)]):
            stored.add(item)
        return stored

    async def create_entities(self, entities: Sequence[Entity]) -> list[Entity]:
        """Add those that are not there yet; return them as stored."""
        there = await self._entities(each.name for each in entities)
        new: dict[str, Entity] = {}
        for entity in entities:
            _check("an entity's name", entity.name)
            if entity.name not in there.kinds:
                texts = [text for text in dict.fromkeys(entity.observations) if text.strip()]
                new.setdefault(entity.name, entity.model_copy(update={"observations": texts}))
        await _each(
            self._keep(each.name, each.entityType, text)
            for each in new.values()
            for text in each.observations or [""]
        )
        return list(new.values())

    async def add_observations(
        self, additions: Sequence[tuple[str, Sequence[str]]]
    ) -> list[tuple[str, list[str]]]:
        """Add what is not known yet of each entity; return that. All of them must be there."""
        there = await self._entities(name for name, _ in additions)
        self._check_there(there, (name for name, _ in additions))
        added = []
        for name, texts in additions:
            known = there.observations[name]
            new = [each for each in dict.fromkeys(texts) if each not in known and each.strip()]
            known.update({each: [] for each in new})
            added.append((name, new))
        await _each(
            self._keep(name, there.kinds[name], text) for name, texts in added for text in texts
        )
        return added

    async def create_relations(self, relations: Sequence[Relation]) -> list[Relation]:
        """Add those that are not there yet, between entities that are; return them."""
        names = list(dict.fromkeys(n for each in relations for n in (each.begin, each.to)))
        self._check_there(await self._entities(names), names)
        there = await self.read(_RELATIONS)
        new = [each for each in dict.fromkeys(relations) if each not in there.relations]
        for each in new:
            _check("a relation's type", each.relationType)
        await _each(self._relate(each) for each in new)
        return new

    async def delete_entities(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Forget entities with all that is said of them; return which, and which are not there."""
        wanted = list(dict.fromkeys(names))
        there = await self._entities(wanted)
        gone = [name for name in wanted if name in there.kinds]
        if gone:
            relations = (await self.read(_RELATIONS)).relations
            ended = [r for r in relations if r.begin in gone or r.to in gone]
            await _each(self._forget(item_id) for each in ended for item_id in relations[each])
            await self._handle.forget(where={"entity": {"$in": gone}})
        return gone, [name for name in wanted if name not in there.kinds]

    async def delete_observations(
        self, deletions: Sequence[tuple[str, Sequence[str]]]
    ) -> tuple[int, list[str]]:
        """Forget observations; return how many, and which entities are not there."""
        there = await self._entities(name for name, _ in deletions)
        count, ids = 0, []
        for name, texts in deletions:
            known = there.observations.get(name, {})
            gone = [text for text in dict.fromkeys(texts) if text in known]
            count += len(gone)
            ids += [item_id for text in gone for item_id in known.pop(text)]
        await self._keep_bare(
            there, [name for name, known in there.observations.items() if not known]
        )
        await _each(self._forget(item_id) for item_id in ids)
        # Others may have taken at the same time what was to be left.
        after = await self._entities(there.kinds)
        await self._keep_bare(there, [name for name in there.kinds if name not in after.kinds])
        missing = dict.fromkeys(name for name, _ in deletions if name not in there.kinds)
        return count, list(missing)

    async def _keep_bare(self, there: Stored, names: Sequence[str]) -> None:
        """Give entities a memory of their own, as they must not end with their last word."""
        await _each(self._keep(name, there.kinds[name], "") for name in names)

    async def delete_relations(self, relations: Sequence[Relation]) -> int:
        """Forget relations; return how many there were."""
        there = (await self.read(_RELATIONS)).relations
        gone = [each for each in dict.fromkeys(relations) if each in there]
        await _each(self._forget(item_id) for each in gone for item_id in there[each])
        return len(gone)

    async def search(self, query: str) -> tuple[list[Entity], list[Relation]]:
        """Return the entities that hold *query*; where none does, those that answer it."""
        stored = await self.read()
        needle = query.lower()
        names = [
            name
            for name, kind in stored.kinds.items()
            if any(needle in text.lower() for text in (name, kind, *stored.observations[name]))
        ]
        if not names and query.strip():
            hits = await self._handle.recall(query, k=_HITS, where=_ENTITIES)
            names = [observation_of(hit.item)[0] for hit in hits]
        return stored.part(names)

    async def _entities(self, names: Iterable[str]) -> Stored:
        wanted = list(dict.fromkeys(names))
        return await self.read({"entity": {"$in": wanted}}) if wanted else Stored()

    def _check_there(self, there: Stored, names: Iterable[str]) -> None:
        for name in names:
            if name not in there.kinds:
                raise QueryError(f"Entity with name {name} not found; `create_entities` makes it")

    async def _keep(self, name: str, kind: str, text: str) -> MemoryItem:
        about: dict[str, object] = {"entity": name, "entity_type": kind}
        content = f"{name}: {text}"
        if not text:
            about["observation"] = ""
            content = f"{name} ({kind})" if kind else name
        return await self._handle.remember(content, source=self._source, extra=about, dedupe=True)

    async def _relate(self, relation: Relation) -> MemoryItem:
        said, extra = relation_of(relation.begin, relation.relationType, relation.to)
        return await self._handle.remember(said, source=self._source, extra=extra, dedupe=True)

    async def _forget(self, item_id: str) -> object:
        return await self._handle.forget(item_id)


async def is_empty(handle: "ScopedMemory") -> bool:
    """Tell whether there is no graph yet."""
    return not await handle.list(where={"$or": [_ENTITIES, _RELATIONS]}, limit=1)


def _check(what: str, text: str) -> None:
    if not text.strip():
        raise QueryError(f"{what} must not be empty; nothing was stored")


def _relation(item: MemoryItem) -> Relation | None:
    relation = item.metadata.extra.get("relation")
    if not isinstance(relation, Mapping):
        return None
    ends = [relation.get(name) for name in ("from", "to", "relationType")]
    if not all(isinstance(end, str) and end for end in ends):
        return None
    begin, to, kind = (str(end) for end in ends)
    return Relation(begin=begin, to=to, relationType=kind)


async def _pages(handle: "ScopedMemory", where: Where) -> AsyncIterator[MemoryItem]:
    cursor: str | None = None
    while True:
        page = await handle.list(where=where, limit=_PAGE, cursor=cursor)
        for item in page:
            yield item
        cursor = page.next
        if cursor is None:
            return


async def _each(writes: Iterable[object]) -> None:
    """Do all *writes*, some at a time; the first that fails is raised once all have ended."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(write: object) -> None:
        async with gate:
            await write  # type: ignore[misc]  # each is a coroutine

    ended = await asyncio.gather(*(one(write) for write in writes), return_exceptions=True)
    for failed in ended:
        if isinstance(failed, BaseException):
            raise failed
