"""Every block of Bedrock's Converse API: it comes back as it was, and is legal for the others."""

import json
from typing import Any

from tests.rows import each_row

from orbiter.memory import AgentMemory
from orbiter.memory.messages import (
    FORMATS,
    Message,
    from_messages,
    to_bedrock,
    to_messages,
    validate,
)
from orbiter.memory.model.items import MemoryItem

HELLO: Message = {"role": "user", "content": [{"text": "Hello."}]}
FINE: Message = {"role": "assistant", "content": [{"text": "Fine."}]}
S3 = {"s3Location": {"uri": "s3://bucket/key", "bucketOwner": "111122223333"}}
POINT = {"cachePoint": {"type": "default", "ttl": "1h"}}
PICTURE = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
SEARCH = {
    "searchResult": {
        "source": "https://example.org/oslo",
        "title": "Oslo",
        "content": [{"text": "Capital."}],
        "citations": {"enabled": True},
    }
}


def document(**fields: Any) -> Message:
    return {"document": {"name": "plan", **fields}}


ASKED: dict[str, tuple[list[Message], str]] = {
    "a video": ([{"video": {"format": "mp4", "source": {"bytes": b"mp4"}}}], "[video]"),
    "a video in S3": ([{"video": {"format": "mov", "source": S3}}], "[video: s3://bucket/key]"),
    "a sound": ([{"audio": {"format": "mp3", "source": {"bytes": b"mp3"}}}], "[audio]"),
    "a picture in S3": ([{"image": {"format": "png", "source": S3}}], "[image: s3://bucket/key]"),
    "a picture": ([PICTURE], "image/png"),
    "a sheet": ([document(format="xlsx", source={"bytes": b"PK"})], "[file: plan]"),
    "a text": ([document(source={"text": "At noon."})], "At noon."),
    "a text in parts": ([document(source={"content": [{"text": "At noon."}]})], "At noon."),
    "a document to cite": (
        [
            document(
                format="pdf",
                source={"bytes": b"%PDF"},
                context="Of Mia.",
                citations={"enabled": True},
            )
        ],
        "application/pdf",
    ),
    "a search result": ([SEARCH], "Capital."),
    "a guarded text": (
        [{"guardContent": {"text": {"text": "At noon.", "qualifiers": ["query"]}}}],
        "At noon.",
    ),
    "a guarded picture": (
        [{"guardContent": {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}}],
        "image/png",
    ),
    "a cache point": ([{"text": "At noon."}, POINT], "At noon."),
}


async def stored(messages: list[Message]) -> list[MemoryItem]:
    async with AgentMemory("memory://", embeddings=None) as memory:
        chat = memory.scope(user_id="alice").chat("c")
        await chat.add(messages)
        assert (await chat.messages(format="anthropic")).as_bedrock() == {"messages": messages}
        return await chat.items()


@each_row("name", ASKED)
async def test_what_a_user_shows_comes_back_and_is_legal_elsewhere(name: str) -> None:
    blocks, words = ASKED[name]
    messages = [{"role": "user", "content": [{"text": "See."}, *blocks]}, FINE]

    items = await stored(messages)

    assert to_bedrock(items) == {"messages": messages}
    for format in FORMATS:
        written = to_messages(items, format)
        assert validate(written, format) == []
        assert "s3Location" not in str(written)
        assert "guardContent" not in str(written)
        assert "cachePoint" not in str(written)
    assert words in json.dumps(to_messages(items, "anthropic"))


RETURNED: dict[str, tuple[list[Message], str]] = {
    "JSON": ([{"json": {"sky": "blue"}}], '{"sky": "blue"}'),
    "a picture": ([{"text": "See."}, PICTURE], "See."),
    "only a picture": ([PICTURE], ""),
    "a video": ([{"video": {"format": "mp4", "source": {"bytes": b"mp4"}}}], ""),
    "a search result": ([SEARCH], ""),
    "a document": ([document(format="pdf", source={"bytes": b"%PDF"})], ""),
    "a sheet": ([document(format="xlsx", source={"bytes": b"PK"})], ""),
}


def group(content: list[Message], **fields: Any) -> list[Message]:
    use = {"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}
    result = {"toolResult": {"toolUseId": "t1", "content": content, **fields}}
    return [
        HELLO,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
        FINE,
    ]


@each_row("name", RETURNED)
async def test_what_a_tool_returns_comes_back_and_is_legal_elsewhere(name: str) -> None:
    content, text = RETURNED[name]
    messages = group(content)

    items = await stored(messages)

    assert items[2].content == text
    assert to_bedrock(items) == {"messages": messages}
    for format in FORMATS:
        assert validate(to_messages(items, format), format) == []
    (result,) = to_messages(items, "anthropic")[2]["content"]
    assert result["content"]
    assert {each["type"] for each in result["content"] if isinstance(each, dict)} <= {
        "text", "image", "document", "search_result",
    }  # fmt: skip


async def test_a_changed_result_is_not_sent_as_it_was() -> None:
    items = await stored(group([{"json": {"sky": "blue"}}]))
    items[2].content = "grey"

    (result,) = to_bedrock(items)["messages"][2]["content"]

    assert result["toolResult"]["content"] == [{"text": "grey"}]


async def test_a_cache_point_after_a_result_comes_back() -> None:
    messages = group([{"text": "done"}])
    messages[2]["content"].append(POINT)

    items = await stored(messages)

    assert to_bedrock(items) == {"messages": messages}
    assert to_messages(items, "anthropic")[2]["content"][0]["cache_control"] == {
        "type": "ephemeral",
        "ttl": "1h",
    }


async def test_an_answer_with_citations_comes_back() -> None:
    cited = {
        "citationsContent": {
            "content": [{"text": "At noon."}],
            "citations": [{"title": "plan", "sourceContent": [{"text": "noon"}]}],
        }
    }
    messages = [HELLO, {"role": "assistant", "content": [cited]}]

    items = await stored(messages)

    assert to_bedrock(items) == {"messages": messages}
    assert items[1].content == "At noon."
    assert to_messages(items, "anthropic")[1]["content"] == [{"type": "text", "text": "At noon."}]


def test_a_picture_in_the_result_of_another_provider_is_sent_to_bedrock() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
    }
    messages: list[Message] = [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [picture]}],
        },
    ]

    written = to_messages(from_messages(messages, "anthropic"), "anthropic").as_bedrock()

    assert written["messages"][2]["content"][0]["toolResult"]["content"] == [PICTURE]


def test_messages_that_were_changed_after_reading_are_sent_as_they_are_now() -> None:
    said = to_messages(from_messages([{"role": "user", "content": "Hi."}], "openai"), "openai")
    said.append({"role": "assistant", "content": "Hello."})

    assert said.as_bedrock()["messages"][1] == {
        "role": "assistant",
        "content": [{"text": "Hello."}],
    }
