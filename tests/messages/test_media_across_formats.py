"""Pictures, files and sounds of one provider's message, sent to another."""

import json
from itertools import permutations, product
from typing import Any

import pytest
from tests.rows import each_row

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
    "openai-responses": {
        "type": "input_image",
        "detail": "auto",
        "image_url": f"data:image/png;base64,{PNG}",
    },
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
    },
    "gemini": {"inlineData": {"mimeType": "image/png", "data": PNG}},
}
PICTURE_BY_URL: dict[Format, Message] = {
    "openai": {"type": "image_url", "image_url": {"url": URL}},
    "openai-responses": {"type": "input_image", "detail": "auto", "image_url": URL},
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


TEXTS: list[tuple[Message, str]] = [
    (
        {
            "type": "search_result",
            "source": "https://example.org/oslo",
            "title": "Oslo",
            "content": [{"type": "text", "text": "Capital."}, {"type": "text", "text": "North."}],
        },
        "[file: Oslo, https://example.org/oslo]\nCapital.\nNorth.",
    ),
    (
        {
            "type": "document",
            "title": "plan.txt",
            "source": {"type": "text", "media_type": "text/plain", "data": "Grüße at noon."},
        },
        "[file: plan.txt]\nGrüße at noon.",
    ),
    (
        {
            "type": "document",
            "source": {"type": "content", "content": [{"type": "text", "text": "At noon."}]},
        },
        "[file]\nAt noon.",
    ),
]
"""Texts that Anthropic takes as documents, and what is said of them elsewhere."""


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


@each_row(("what", "pair"), list(product(MEDIA, PAIRS)))
def test_what_a_person_shows_is_sent_to_every_provider(
    what: str, pair: tuple[Format, Format]
) -> None:
    source, target = pair
    shown = MEDIA[what]

    (only,) = sent(source, target, text(source, "What is"), shown[source], text(source, "this?"))

    assert blocks_of(only) == [text(target, "What is"), shown[target], text(target, "this?")]


@each_row(("what", "pair"), list(product(MEDIA, PAIRS)))
def test_a_message_without_a_word_is_sent(what: str, pair: tuple[Format, Format]) -> None:
    source, target = pair

    (only,) = sent(source, target, MEDIA[what][source])

    assert blocks_of(only) == [MEDIA[what][target]]


@each_row(("source", "target"), PAIRS)
def test_a_changed_text_is_sent_with_the_picture(source: Format, target: Format) -> None:
    (item,) = from_messages([message(source, text(source, "Old"), PICTURE[source])], source)
    item.content = "New"

    (only,) = to_messages([item], target).messages

    assert blocks_of(only) == [text(target, "New"), PICTURE[target]]


@each_row(("source", "target"), PAIRS)
def test_what_is_sent_is_counted(source: Format, target: Format) -> None:
    items = from_messages([message(source, text(source, "What?"), PICTURE[source])], source)
    there = from_messages(to_messages(items, target).messages, target)

    assert sent_tokens(items, target, counter=estimate_tokens) >= count_tokens(there)


def test_a_sound_is_sent_where_it_is_heard() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
    heard = {"inlineData": {"mimeType": "audio/wav", "data": WAV}}

    assert blocks_of(sent("openai", "gemini", sound)[0]) == [heard]
    assert blocks_of(sent("gemini", "openai", heard)[0]) == [sound]


@each_row(
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
        (
            "gemini",
            "openai-responses",
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.org/a.mp4"}},
            "[video: https://example.org/a.mp4]",
        ),
        *(
            ("anthropic", target, block, words)
            for target in ("openai", "openai-responses")
            for block, words in TEXTS
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


def test_a_text_file_is_a_file_where_files_of_text_are_taken() -> None:
    (block, _), *_ = TEXTS[1:]

    (part,) = blocks_of(sent("anthropic", "gemini", block)[0])

    assert part["inlineData"]["mimeType"] == "text/plain"
    assert part["inlineData"]["displayName"] == "plan.txt"


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
def test_elsewhere_a_word_stands_for_what_a_tool_shows(source: Format, target: Format) -> None:
    written = to_messages(from_messages(SCREENSHOTS[source], source), target).messages

    assert validate(written, target) == []
    assert PNG not in json.dumps(written)
    assert from_messages(written, target)[-1].content == "the screen\n[image]"


@pytest.mark.parametrize("target", [each for each in FORMATS if each != "gemini"])
def test_what_a_function_of_gemini_shows_is_sent_too(target: Format) -> None:
    call = {"functionCall": {"name": "look", "args": {}}}
    answer: Message = {
        "name": "look",
        "response": {"output": "the screen"},
        "parts": [PICTURE["gemini"]],
    }
    history: list[Message] = [
        {"role": "user", "parts": [{"text": "Look."}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [{"functionResponse": answer}]},
    ]
    written = to_messages(from_messages(history, "gemini"), target).messages

    assert validate(written, target) == []
    result = from_messages(written, target)[-1]
    if target == "openai":
        assert result.content == "the screen\n[image]"
    else:
        assert PNG in json.dumps(written)
        assert result.content == "the screen"


@pytest.mark.parametrize("target", [each for each in FORMATS if each != "openai-responses"])
def test_what_a_shell_printed_is_sent(target: Format) -> None:
    ended = {"type": "exit", "exit_code": 2}
    history: list[Message] = [
        {"role": "user", "content": "List it."},
        {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls", "cat b", "top"]}},
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [
                {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "", "stderr": "cat: b: no such file", "outcome": ended},
                {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
            ],
        },
    ]
    items = from_messages(history, "openai-responses")

    said = "a.txt\ncat: b: no such file\n[exit code 2]\n[timed out]"
    assert items[-1].content == said
    assert to_messages(items, "openai-responses").messages == history
    written = to_messages(items, target).messages
    assert validate(written, target) == []
    assert from_messages(written, target)[-1].content == said


@pytest.mark.parametrize(("source", "target"), list(permutations(("openai", "openai-responses"))))
def test_free_text_for_a_tool_is_an_object_in_another_format(
    source: Format, target: Format
) -> None:
    histories: dict[str, list[Message]] = {
        "openai": [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "custom", "custom": {"name": "run", "input": "print(1)"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        ],
        "openai-responses": [
            {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "print(1)"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
        ],
    }
    history = [{"role": "user", "content": "Run it."}, *histories[source]]
    items = from_messages(history, source)

    assert to_messages(items, source).messages == history
    call = to_messages(items, target).messages[1]
    body = call["tool_calls"][0]["function"] if target == "openai" else call
    assert json.loads(body["arguments"]) == {"input": "print(1)"}


@pytest.mark.parametrize("format", FORMATS)
def test_an_item_is_not_changed_by_sending_it(format: Format) -> None:
    source: Format = "openai" if format != "openai" else "anthropic"
    items = from_messages([message(source, text(source, "What?"), PICTURE[source])], source)
    before = [item.model_dump() for item in items]

    to_messages([*items, HumanMemory(content="And?")], format)

    assert [item.model_dump() for item in items] == before
