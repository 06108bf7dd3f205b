"""The profile `kg`: the nine tools of the reference knowledge-graph server, to be put in its place.

Names, arguments and answers are its own, so that prompts and programs written for it go on.
"""

import json
from typing import TYPE_CHECKING, Annotated

from mcp.types import CallToolResult
from pydantic import BaseModel, Field

from orbiter.memory.mcp._caller import source_of_call
from orbiter.memory.mcp._sdk import Context
from orbiter.memory.mcp._tools import Definition, answer, plain
from orbiter.memory.mcp.graph import Entity, Graph, Relation

if TYPE_CHECKING:
    from orbiter.memory.mcp._caller import HandleOfCall

__all__ = ["GraphTools"]


class Entities(BaseModel):
    """Entities that were made."""

    entities: list[Entity]


class Relations(BaseModel):
    """Relations that were made."""

    relations: list[Relation]


class NewObservations(BaseModel):
    """What to add to an entity."""

    entityName: str  # noqa: N815 - the reference server's names
    contents: list[str]


class OldObservations(BaseModel):
    """What to remove from an entity."""

    entityName: str  # noqa: N815
    observations: list[str]


class AddedObservations(BaseModel):
    """What was added to an entity."""

    entityName: str  # noqa: N815
    addedObservations: list[str]  # noqa: N815


class Results(BaseModel):
    """What was added to each entity."""

    results: list[AddedObservations]


class Done(BaseModel):
    """What became of a removal."""

    success: bool
    message: str


class GraphPart(BaseModel):
    """A graph, or a part of one."""

    entities: list[Entity]
    relations: list[Relation]


class GraphTools:
    """The tools over the handle of each call."""

    def __init__(self, handle_of_call: "HandleOfCall") -> None:
        self._handle_of_call = handle_of_call

    def definitions(self) -> list[Definition]:
        """Return the tools in the order of the reference server."""
        rows = (
            (self.create_entities, "Create entities", "Create new entities.", "adds"),
            (
                self.create_relations,
                "Create relations",
                "Create relations between entities, in active voice.",
                "adds",
            ),
            (
                self.add_observations,
                "Add observations",
                "Add observations to entities.",
                "adds",
            ),
            (
                self.delete_entities,
                "Delete entities",
                "Remove entities with their relations.",
                "removes",
            ),
            (
                self.delete_observations,
                "Delete observations",
                "Remove observations from entities.",
                "removes",
            ),
            (self.delete_relations, "Delete relations", "Remove relations.", "removes"),
            (self.read_graph, "Read graph", "Read the whole graph.", "reads"),
            (
                self.search_nodes,
                "Search nodes",
                "Find entities whose name, type or observations contain the query, or answer it.",
                "reads",
            ),
            (self.open_nodes, "Open nodes", "Read entities by their names.", "reads"),
        )
        return [
            Definition(
                run,
                title,
                text,
                reads=kind == "reads",
                destroys=kind == "removes",
                is_strict=False,
            )
            for run, title, text, kind in rows
        ]

    def _graph(self, ctx: Context) -> Graph:
        return Graph(self._handle_of_call(ctx), source=source_of_call(ctx))

    async def create_entities(
        self, ctx: Context, entities: list[Entity]
    ) -> Annotated[CallToolResult, Entities]:
        """Make entities."""
        made = await self._graph(ctx).create_entities(entities)
        return answer(Entities(entities=made), _json(made))

    async def create_relations(
        self, ctx: Context, relations: list[Relation]
    ) -> Annotated[CallToolResult, Relations]:
        """Make relations."""
        made = await self._graph(ctx).create_relations(relations)
        return answer(Relations(relations=made), _json(made))

    async def add_observations(
        self, ctx: Context, observations: list[NewObservations]
    ) -> Annotated[CallToolResult, Results]:
        """Add observations."""
        additions = [(each.entityName, each.contents) for each in observations]
        added = [
            AddedObservations(entityName=name, addedObservations=texts)
            for name, texts in await self._graph(ctx).add_observations(additions)
        ]
        return answer(Results(results=added), _json(added))

    async def delete_entities(
        self,
        ctx: Context,
        entityNames: list[str],  # noqa: N803
    ) -> Annotated[CallToolResult, Done]:
        """Remove entities."""
        gone, missing = await self._graph(ctx).delete_entities(entityNames)
        if not missing:
            return _done("Entities deleted successfully")
        count = len(gone) + len(missing)
        names = ", ".join(map(plain, missing))
        return _done(f"Deleted {len(gone)} of {count} entities. Not found: {names}")

    async def delete_observations(
        self, ctx: Context, deletions: list[OldObservations]
    ) -> Annotated[CallToolResult, Done]:
        """Remove observations."""
        pairs = [(each.entityName, each.observations) for each in deletions]
        count, missing = await self._graph(ctx).delete_observations(pairs)
        total = sum(len(texts) for _, texts in pairs)
        if count == total:
            return _done("Observations deleted successfully")
        more = f" Entities not found: {', '.join(map(plain, missing))}" if missing else ""
        return _done(f"Deleted {count} of {total} observations.{more}")

    async def delete_relations(
        self, ctx: Context, relations: list[Relation]
    ) -> Annotated[CallToolResult, Done]:
        """Remove relations."""
        count = await self._graph(ctx).delete_relations(relations)
        if count == len(relations):
            return _done("Relations deleted successfully")
        return _done(f"Deleted {count} of {len(relations)} relations. The rest matched nothing.")

    async def read_graph(self, ctx: Context) -> Annotated[CallToolResult, GraphPart]:
        """Return everything."""
        stored = await self._graph(ctx).read()
        entities = [stored.entity(name) for name in stored.kinds]
        return _part(entities, list(stored.relations))

    async def search_nodes(
        self, ctx: Context, query: Annotated[str, Field(max_length=2048)]
    ) -> Annotated[CallToolResult, GraphPart]:
        """Return what holds the query."""
        return _part(*await self._graph(ctx).search(query))

    async def open_nodes(
        self, ctx: Context, names: list[str]
    ) -> Annotated[CallToolResult, GraphPart]:
        """Return entities by name."""
        stored = await self._graph(ctx).read()
        return _part(*stored.part(names))


def _part(entities: list[Entity], relations: list[Relation]) -> CallToolResult:
    graph = GraphPart(entities=entities, relations=relations)
    return answer(graph, json.dumps(_plain(graph), ensure_ascii=False, indent=2))


def _done(message: str) -> CallToolResult:
    return answer(Done(success=True, message=message), message)


def _json(values: "list[Entity] | list[Relation] | list[AddedObservations]") -> str:
    return json.dumps([_plain(each) for each in values], ensure_ascii=False, indent=2)


def _plain(value: BaseModel) -> object:
    return value.model_dump(mode="json", by_alias=True)
