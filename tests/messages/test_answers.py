"""What a model answers in place of a text: refusals, sound, pictures."""

from typing import Any

import pytest
from tests.messages._views import rewritten, said, there_and_back

from orbiter.memory.messages import FORMATS, Format, Message, from_messages, to_messages, validate

ASK: Message = {"role": "user", "content": "Draw a fox."}
NO = "I cannot help with that."
LATER = 4_000_000_000
"""A time that is far ahead, in seconds."""
SOUND: Message = {"id": "audio_1", "data": "UklGRg==", "transcript": "A fox.", "expires_at": LATER}
PNG = "iVBORw0KGgo="


def others(format: Format) -> list[Format]:
    return [each for each in FORMATS if each != format]


REFUSALS: list[tuple[Format, Message]] = [
    ("openai", {"role": "assistant", "content": None, "refusal": NO}),
    ("openai", {"role": "assistant", "content": "", "refusal": NO}),
    ("openai", {"role": "assistant", "content": [{"type": "refusal", "refusal": NO}]}),
    (
        "openai-responses",
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": NO}],
        },
    ),
]


@pytest.mark.parametrize(("format", "refusal"), REFUSALS)
def test_a_refusal_is_what_the_model_says(format: Format, refusal: Message) -> None:
    items = from_messages([ASK, refusal], format)

    assert said(items)[1] == ("AIMemory", NO)
    assert to_messages(items, format) == [ASK, refusal]
    for other in others(format):
        assert NO in str(to_messages(items, other)[1])
        assert validate(to_messages(items, other), other) == []


@pytest.mark.parametrize(("format", "refusal"), REFUSALS)
def test_a_refusal_that_was_changed_is_not_sent_as_it_was(format: Format, refusal: Message) -> None:
    written = rewritten([ASK, refusal], format, index=1, content="No.")

    assert NO not in str(written)
    assert "No." in str(written[1])
    assert validate(written, format) == []


def test_a_refusal_after_a_text_is_said_after_it() -> None:
    both: Message = {"role": "assistant", "content": "Well.", "refusal": NO}

    items = from_messages([ASK, both], "openai")

    assert items[1].content == f"Well.\n{NO}"
    assert to_messages(items, "openai") == [ASK, both]


def test_what_an_audio_answer_says_is_its_text() -> None:
    heard: Message = {"role": "assistant", "content": None, "audio": SOUND}

    items = from_messages([ASK, heard], "openai")

    assert said(items)[1] == ("AIMemory", "A fox.")
    assert "A fox." in str(to_messages(items, "gemini"))
    assert PNG not in items[1].content


def test_an_audio_answer_is_sent_by_its_id_as_openai_takes_it() -> None:
    heard: Message = {"role": "assistant", "content": None, "audio": SOUND}

    written = there_and_back([ASK, heard], "openai")

    assert written[1] == {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}
    assert validate(written, "openai") == []


@pytest.mark.parametrize("content", ["A fox.", "A red fox."])
def test_an_audio_answer_that_openai_has_no_more_or_was_changed_is_sent_as_text(
    content: str,
) -> None:
    ends = 1_700_000_000 if content == "A fox." else LATER
    heard: Message = {"role": "assistant", "content": None, "audio": {**SOUND, "expires_at": ends}}

    written = rewritten([ASK, heard], "openai", index=1, content=content)

    assert written[1] == {"role": "assistant", "content": content}


PICTURES: list[tuple[Format, Message]] = [
    (
        "openai-responses",
        {
            "type": "image_generation_call",
            "id": "ig_1",
            "status": "completed",
            "result": PNG,
            "output_format": "png",
        },
    ),
    (
        "gemini",
        {"role": "model", "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}]},
    ),
    (
        "openai",
        {
            "role": "assistant",
            "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
            ],
        },
    ),
]


@pytest.mark.parametrize(("format", "picture"), PICTURES)
def test_a_picture_that_the_model_made_leaves_a_word_at_another_provider(
    format: Format, picture: Message
) -> None:
    ask: Any = {"role": "user", "parts": [{"text": "Draw."}]} if format == "gemini" else ASK
    items = from_messages([ask, picture], format)

    assert to_messages(items, format) == [ask, picture]
    for other in others(format):
        written = to_messages(items, other)
        assert "[image]" in str(written[1])
        assert PNG not in str(written)
        assert validate(written, other) == []


def test_a_picture_between_texts_and_calls_keeps_its_place() -> None:
    parts: list[Message] = [
        {"text": "Here it is:"},
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"text": "Shall I send it?"},
        {"functionCall": {"name": "send", "args": {}}},
    ]
    asked: Message = {"role": "user", "parts": [{"text": "Draw."}]}
    sent: Message = {
        "role": "user",
        "parts": [{"functionResponse": {"name": "send", "response": {"output": "ok"}}}],
    }
    items = from_messages([asked, {"role": "model", "parts": parts}, sent], "gemini")

    written = to_messages(items, "openai")

    assert written[1]["content"] == "Here it is:\n[image]\nShall I send it?"
    assert len(written[1]["tool_calls"]) == 1
    assert items[1].content == "Here it is:\nShall I send it?"


@pytest.mark.parametrize(
    ("said_by_model", "text"),
    [
        ({"refusal": NO}, NO),
        ({"audio": SOUND}, "A fox."),
        ({"content": "Well.", "refusal": NO}, f"Well.\n{NO}"),
    ],
)
def test_what_a_model_says_beside_its_content_reaches_bedrock(
    said_by_model: Message, text: str
) -> None:
    answer: Message = {"role": "assistant", "content": None, **said_by_model}

    written = to_messages(from_messages([ASK, answer], "openai"), "openai").as_bedrock()

    assert written["messages"][1] == {"role": "assistant", "content": [{"text": text}]}
