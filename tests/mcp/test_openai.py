"""The profile `openai`: two tools, in exactly the shapes that connectors ask for."""

import json

import jsonschema  # type: ignore[import-untyped]  # it has no stubs here
from tests.mcp.conftest import Connect, refusal, text_of

from orbiter.memory import ScopedMemory


async def test_search_and_fetch_answer_in_the_shapes_of_connectors(
    connect: Connect, alice: ScopedMemory, era: str
) -> None:
    item = await alice.remember("tea is in the\nleft drawer " + "x" * 200, tags=["home"])
    async with connect("openai", mode=era) as client:
        schemas = {each.name: each.output_schema for each in (await client.list_tools()).tools}
        search = await client.call_tool("search", {"query": "tea"})
        fetch = await client.call_tool("fetch", {"id": item.id})
        told = await refusal(client, "fetch", id="nowhere")

    found, document = json.loads(text_of(search)), json.loads(text_of(fetch))
    assert found == search.structured_content
    assert document == fetch.structured_content
    [result] = found["results"]
    assert set(result) == {"id", "title", "url"}
    assert result["id"] == item.id
    assert result["title"].startswith("tea is in the left drawer")
    assert result["url"] == f"memory://item/{item.id}"
    assert set(document) == {"id", "title", "text", "url", "metadata"}
    assert document["text"] == item.content
    assert document["metadata"]["tags"] == "home"
    for name, answer in (("search", found), ("fetch", document)):
        assert schemas[name] is not None
        jsonschema.validate(answer, schemas[name])
    assert "there is no memory" in told
