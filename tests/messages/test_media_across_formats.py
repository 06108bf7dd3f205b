"""Pictures, files and sounds of one provider's message, sent to another."""

import json
from itertools import permutations, product
from typing import Any

import pytest

from orbiter.memory.conversation.tokens import count_tokens, estimate_tokens
from orbiter.memory.messages import FORMATS, Format, from_messages, to_messages, validate
from orbiter.memory.messages.codec import Message
from orbiter.memory.messages.costs import sent_tokens
from orbiter.memory.model.items import HumanMemory

PNG, PDF, WAV = "iVBORw0KGgo=", "JVBERi0xLjQ=", "UklGRg=="
URL = "https://example.org/map.png"
PAIRS = list(permutations(FORMATS, 2))

PICTURE: dict[Format, Message] = {
    "openai": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    "openai-responses": {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
    },
    "gemini": {"inlineData": {"mimeType": "image/png", "data": PNG}},
}
PICTURE_BY_URL: dict[Format, Message] = {
    "openai": {"type": "image_url", "image_url": {"url": URL}},
    "openai-responses": {"type": "input_image", "image_url": URL},
    "anthropic": {"type": "image", "source": {"type": "url", "url": URL}},
    "gemini": {"fileData": {"mimeType": "image/png", "fileUri": URL}},
}
DOCUMENT: dict[Format, Message] = {
    "openai": {
        "type": "file",
        "file": {"filename": "plan.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
    },
    "openai-responses": {
        "type": "input_file",
        "filename": "plan.pdf",
        "file_data": f"data:application/pdf;base64,{PDF}",
    },
    "anthropic": {
        "type": "document",
        "title": "plan.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    },
    "gemini": {
        "inlineData": {"mimeType": "application/pdf", "data": PDF, "displayName": "plan.pdf"}
    },
}
MEDIA = {"picture": PICTURE, "picture by URL": PICTURE_BY_URL, "document": DOCUMENT}


def message(format: Format, *blocks: Message) -> Message:
    if format == "gemini":
        return {"role": "user", "parts": list(blocks)}
    typed = {"type": "message"} if format == "openai-responses" else {}
    return {**typed, "role": "user", "content": list(blocks)}


def text(format: Format, words: str) -> Message:
    if format == "gemini":
        return {"text": words}
    return {"type": "input_text" if format == "openai-responses" else "text", "text": words}


def blocks_of(message: Message) -> Any:
    return message.get("parts", message.get("content"))


def sent(source: Format, target: Format, *blocks: Message) -> list[Message]:
    written = to_messages(from_messages([message(source, *blocks)], source), target).messages
    assert validate(written, target) == []
    return written


@pytest.mark.parametrize(("what", "pair"), list(product(MEDIA, PAIRS)))
def test_what_a_person_shows_is_sent_to_every_provider(
    what: str, pair: tuple[Format, Format]
) -> None:
    source, target = pair
    shown = MEDIA[what]

    (only,) = sent(source, target, text(source, "What is"), shown[source], text(source, "this?"))

    assert blocks_of(only) == [text(target, "What is"), shown[target], text(target, "this?")]


@pytest.mark.parametrize(("what", "pair"), list(product(MEDIA, PAIRS)))
def test_a_message_without_a_word_is_sent(what: str, pair: tuple[Format, Format]) -> None:
    source, target = pair

    (only,) = sent(source, target, MEDIA[what][source])

    assert blocks_of(only) == [MEDIA[what][target]]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_changed_text_is_sent_with_the_picture(source: Format, target: Format) -> None:
    (item,) = from_messages([message(source, text(source, "Old"), PICTURE[source])], source)
    item.content = "New"

    (only,) = to_messages([item], target).messages

    assert blocks_of(only) == [text(target, "New"), PICTURE[target]]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_is_sent_is_counted(source: Format, target: Format) -> None:
    items = from_messages([message(source, text(source, "What?"), PICTURE[source])], source)
    there = from_messages(to_messages(items, target).messages, target)

    assert sent_tokens(items, target, counter=estimate_tokens) >= count_tokens(there)


def test_a_sound_is_sent_where_it_is_heard() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
    heard = {"inlineData": {"mimeType": "audio/wav", "data": WAV}}

    assert blocks_of(sent("openai", "gemini", sound)[0]) == [heard]
    assert blocks_of(sent("gemini", "openai", heard)[0]) == [sound]


@pytest.mark.parametrize(
    ("source", "target", "block", "words"),
    [
        ("gemini", "anthropic", {"inlineData": {"mimeType": "audio/wav", "data": WAV}}, "[audio]"),
        ("gemini", "openai", {"inlineData": {"mimeType": "video/mp4", "data": WAV}}, "[video]"),
        (
            "openai",
            "gemini",
            {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{PNG}"}},
            "[image]",
        ),
        ("openai-responses", "gemini", {"type": "input_image", "file_id": "file-1"}, "[image]"),
        ("gemini", "openai", {"inlineData": {"mimeType": "image/heic", "data": PNG}}, "[image]"),
        ("openai", "anthropic", {"type": "file", "file": {"file_id": "file-1"}}, "[file]"),
        (
            "openai",
            "gemini",
            {"type": "image_url", "image_url": {"url": "https://example.org/map"}},
            "[image: https://example.org/map]",
        ),
        (
            "openai-responses",
            "openai",
            {"type": "input_file", "filename": "a.pdf", "file_url": "https://example.org/a.pdf"},
            "[file: a.pdf, https://example.org/a.pdf]",
        ),
        (
            "gemini",
            "anthropic",
            {"fileData": {"mimeType": "image/png", "fileUri": "gs://bucket/map.png"}},
            "[image: gs://bucket/map.png]",
        ),
    ],
)
def test_of_what_a_provider_cannot_take_a_word_is_sent(
    source: Format, target: Format, block: Message, words: str
) -> None:
    (alone,) = sent(source, target, block)
    (beside,) = sent(source, target, text(source, "What is this?"), block)

    (there,) = from_messages([alone], target)
    assert there.content == words
    (there,) = from_messages([beside], target)
    assert there.content == f"What is this?\n{words}"


SCREENSHOTS: dict[Format, list[Message]] = {
    "anthropic": [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "the screen"}, PICTURE["anthropic"]],
                }
            ],
        },
    ],
    "openai-responses": [
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "the screen"},
                PICTURE["openai-responses"],
            ],
        },
    ],
}


@pytest.mark.parametrize("pair", list(permutations(SCREENSHOTS)))
def test_what_a_tool_shows_is_sent_where_a_result_may_have_it(pair: tuple[Format, Format]) -> None:
    source, target = pair

    items = from_messages(SCREENSHOTS[source], source)

    assert to_messages(items, target).messages == SCREENSHOTS[target]


@pytest.mark.parametrize("target", ["openai", "gemini"])
@pytest.mark.parametrize("source", SCREENSHOTS)
def test_elsewhere_a_tools_text_is_sent_alone(source: Format, target: Format) -> None:
    written = to_messages(from_messages(SCREENSHOTS[source], source), target).messages

    assert validate(written, target) == []
    assert PNG not in json.dumps(written)
    assert from_messages(written, target)[-1].content == "the screen"


@pytest.mark.parametrize("format", FORMATS)
def test_an_item_is_not_changed_by_sending_it(format: Format) -> None:
    source: Format = "openai" if format != "openai" else "anthropic"
    items = from_messages([message(source, text(source, "What?"), PICTURE[source])], source)
    before = [item.model_dump() for item in items]

    to_messages([*items, HumanMemory(content="And?")], format)

    assert [item.model_dump() for item in items] == before
