"""Messages that cannot be read: the error says which one and why."""

from typing import Any

import pytest
from tests.messages._samples import ASK, UNREADABLE
from tests.rows import each_row

from orbiter.memory.errors import MessageError
from orbiter.memory.messages import FORMATS, Format, from_messages


@each_row(
    ("format", "bad", "words"),
    [
        pytest.param(format, *case, id=f"{format}-{number}")
        for format, cases in UNREADABLE.items()
        for number, case in enumerate(cases)
    ],
)
def test_a_message_that_cannot_be_read_is_named(format: Format, bad: Any, words: str) -> None:
    with pytest.raises(MessageError, match=rf"(?s)^message 1: .*{words}"):
        from_messages([ASK[format], bad], format)


@each_row("format", FORMATS)
@each_row("messages", [ASK["openai"], "hi", None, 5])
def test_what_is_no_list_of_messages_is_told(format: Format, messages: Any) -> None:
    with pytest.raises(MessageError, match=r"write \[message\]"):
        from_messages(messages, format)


@pytest.mark.parametrize("format", FORMATS)
def test_messages_may_come_one_by_one(format: Format) -> None:
    items = from_messages((each for each in [ASK[format]]), format)  # type: ignore[arg-type]  # untyped callers do

    assert [item.content for item in items] == ["Look."]
