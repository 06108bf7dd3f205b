"""The profile `kg` in place of the reference server: its names, its shapes, its file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no stubs here
import pytest
from tests.mcp.conftest import Connect, call, refusal, text_of
from tests.mcp.sdk_client import Client

from orbiter.memory import AgentMemory, ScopedMemory, export_file, import_file
from orbiter.memory.mcp import build

ANN = {"name": "Ann", "entityType": "person", "observations": ["likes tea", "runs: far"]}
ACME = {"name": "Acme", "entityType": "company", "observations": []}
WORKS = {"from": "Ann", "to": "Acme", "relationType": "works_at"}


async def test_the_nine_tools_answer_in_the_reference_servers_shapes(
    connect: Connect, era: str
) -> None:
    async with connect("kg", mode=era) as client:
        schemas = {t.name: t.output_schema for t in (await client.list_tools()).tools}
        seen: dict[str, Any] = {}

        async def ask(tool: str, **arguments: object) -> str:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            jsonschema.validate(result.structured_content, schemas[tool] or {})
            seen[tool] = result.structured_content
            return text_of(result)

        made = await ask("create_entities", entities=[ANN, ACME, ANN])
        again = await ask("create_entities", entities=[ANN])
        related = await ask("create_relations", relations=[WORKS, WORKS])
        added = await ask(
            "add_observations",
            observations=[{"entityName": "Ann", "contents": ["likes tea", "sings"]}],
        )
        whole = await ask("read_graph")
        found = await ask("search_nodes", query="SINGS")
        opened = await ask("open_nodes", names=["Acme", "nobody"])
        parted = await ask(
            "delete_observations",
            deletions=[{"entityName": "Ann", "observations": ["sings", "never said"]}],
        )
        unrelated = await ask("delete_relations", relations=[WORKS])
        removed = await ask("delete_entities", entityNames=["Ann", "nobody"])
        rest = await ask("read_graph")

    assert json.loads(made) == [ANN, ACME]
    assert json.loads(again) == []
    assert seen["create_entities"] == {"entities": []}
    assert json.loads(related) == [WORKS]
    assert seen["create_relations"] == {"relations": [WORKS]}
    assert json.loads(added) == [{"entityName": "Ann", "addedObservations": ["sings"]}]
    assert seen["add_observations"] == {"results": json.loads(added)}
    with_more = {**ANN, "observations": ["likes tea", "runs: far", "sings"]}
    assert json.loads(whole) == {"entities": [with_more, ACME], "relations": [WORKS]}
    assert json.loads(found) == {"entities": [with_more], "relations": [WORKS]}
    assert json.loads(opened) == {"entities": [ACME], "relations": [WORKS]}
    assert parted == "Deleted 1 of 2 observations."
    assert unrelated == "Relations deleted successfully"
    assert removed == "Deleted 1 of 2 entities. Not found: nobody"
    assert seen["delete_entities"] == {"success": True, "message": removed}
    assert json.loads(rest) == {"entities": [ACME], "relations": []}


async def test_what_has_no_entity_to_stand_on_is_refused(connect: Connect) -> None:
    async with connect("kg") as client:
        observed = await refusal(
            client, "add_observations", observations=[{"entityName": "Bo", "contents": ["x"]}]
        )
        related = await refusal(client, "create_relations", relations=[WORKS])
        nameless = await refusal(client, "create_entities", entities=[{**ANN, "name": " "}])
        graph = await call(client, "read_graph")

    assert observed.startswith("Entity with name Bo not found")
    assert related.startswith("Entity with name Ann not found")
    assert "must not be empty" in nameless
    assert graph == {"entities": [], "relations": []}


async def test_what_is_answered_is_what_is_stored(connect: Connect, era: str) -> None:
    cat = {"name": "Cy", "entityType": "cat", "observations": ["meows", "meows", "", " "]}
    async with connect("kg", mode=era) as client:
        made = await call(client, "create_entities", entities=[cat])
        graph = await call(client, "read_graph")
        listed = {each.uri for each in (await client.list_resources()).resources}
        [document] = (await client.read_resource("memory://knowledge-graph")).contents

    assert made["entities"] == graph["entities"] == [{**cat, "observations": ["meows"]}]
    assert "memory://knowledge-graph" in listed
    assert json.loads(document.text) == graph  # type: ignore[union-attr]


async def test_an_entity_outlives_its_last_observation_and_its_removal_takes_all(
    connect: Connect, alice: ScopedMemory
) -> None:
    async with connect("kg") as client:
        await call(client, "create_entities", entities=[ANN, ACME])
        await call(client, "create_relations", relations=[WORKS])
        gone = [{"entityName": "Ann", "observations": ANN["observations"]}]
        await call(client, "delete_observations", deletions=gone)
        bare = await call(client, "open_nodes", names=["Ann"])
        await call(client, "delete_entities", entityNames=["Ann", "Acme"])
        after = await call(client, "read_graph")
        left = await alice.list()
        again = await call(client, "create_entities", entities=[ANN])

    assert bare["entities"] == [{**ANN, "observations": []}]
    assert after == {"entities": [], "relations": []}
    assert list(left) == []
    assert again == {"entities": [ANN]}


async def test_an_entity_outlives_those_who_take_its_last_words_at_once(connect: Connect) -> None:
    names = [f"e{number}" for number in range(5)]
    async with connect("kg") as client:
        made = [{"name": n, "entityType": "t", "observations": ["a", "b"]} for n in names]
        await call(client, "create_entities", entities=made)
        taken = [{"entityName": name, "observations": [text]} for name in names for text in "ab"]
        await asyncio.gather(
            *(call(client, "delete_observations", deletions=[each]) for each in taken)
        )
        graph = await call(client, "read_graph")

    bare = [{**each, "observations": []} for each in made]
    assert sorted(graph["entities"], key=lambda each: each["name"]) == bare


async def test_a_graph_is_memories_that_recall_and_history_see(
    connect: Connect, alice: ScopedMemory
) -> None:
    async with connect("kg") as client:
        await call(client, "create_entities", entities=[ANN, ACME])
        await call(client, "create_relations", relations=[WORKS])
        by_words = await call(client, "search_nodes", query="who is running far away?")

    [hit, *_] = await alice.recall("who drinks tea?", k=3)
    assert hit.item.content == "Ann: likes tea"
    assert hit.item.metadata.extra["source"].startswith("agent")
    assert len(await alice.history(hit.item.id)) == 1
    assert "Ann works at Acme" in {item.content for item in await alice.list()}
    # The reference server finds nothing here, as no text holds the whole question.
    assert [each["name"] for each in by_words["entities"]][:1] == ["Ann"]


async def test_twenty_parallel_writes_keep_twenty(connect: Connect, era: str) -> None:
    async with connect("kg", mode=era) as client:
        await asyncio.gather(
            *(
                call(
                    client,
                    "create_entities",
                    entities=[{"name": f"e{n}", "entityType": "t", "observations": [f"o{n}"]}],
                )
                for n in range(20)
            )
        )
        await asyncio.gather(
            *(
                call(
                    client,
                    "add_observations",
                    observations=[{"entityName": "e0", "contents": [f"more {n}", "the same"]}],
                )
                for n in range(20)
            )
        )
        graph = await call(client, "read_graph")

    assert {each["name"] for each in graph["entities"]} == {f"e{n}" for n in range(20)}
    first = next(each for each in graph["entities"] if each["name"] == "e0")
    assert sorted(first["observations"]) == sorted(
        ["o0", "the same", *(f"more {n}" for n in range(20))]
    )


@pytest.fixture
def reference_file(tmp_path: Path) -> Path:
    """Return a file as the reference server writes it."""
    path = tmp_path / "memory.jsonl"
    lines = [
        {"type": "entity", **ANN},
        {"type": "entity", **ACME},
        {"type": "relation", **WORKS},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


async def test_the_reference_servers_file_is_the_same_graph_in_both_directions(
    connect: Connect, alice: ScopedMemory, memory: AgentMemory, reference_file: Path, tmp_path: Path
) -> None:
    await import_file(alice, reference_file)
    async with connect("kg") as client:
        imported = await call(client, "read_graph")
        # What is there already, from the file, is not made twice.
        assert await call(client, "create_entities", entities=[ANN]) == {"entities": []}
        last = [{"entityName": "Ann", "observations": ["likes tea", "runs: far"]}]
        await call(client, "delete_observations", deletions=last)
        bare = await call(client, "open_nodes", names=["Ann"])
        new = [{"entityName": "Ann", "contents": ["paints"]}]
        await call(client, "add_observations", observations=new)
        written = await call(client, "read_graph")
    await export_file(alice, tmp_path / "out.jsonl", format="mcp")
    again = memory.scope(user_id="bob")
    await import_file(again, tmp_path / "out.jsonl", format="mcp")

    assert imported == {"entities": [ANN, ACME], "relations": [WORKS]}
    assert bare["entities"] == [{**ANN, "observations": []}]
    texts = {item.content for item in await again.list()}
    assert {"Ann: paints", "Ann works at Acme"} <= texts
    assert {**ANN, "observations": ["paints"]} in written["entities"]


async def test_a_graph_is_of_its_scope_alone(connect: Connect, memory: AgentMemory) -> None:
    bob = memory.scope(user_id="bob")
    async with connect("kg") as client, Client(build(lambda _: bob, tools="kg")) as other:
        await call(client, "create_entities", entities=[ANN])
        await call(other, "create_entities", entities=[{**ANN, "observations": ["bob's"]}])
        await call(other, "delete_entities", entityNames=["Ann"])
        mine = await call(client, "read_graph", user_id="bob")

    assert mine["entities"] == [ANN]
