"""What the tests of every format look at: who said what, which tools were called and answered."""

from collections.abc import Sequence
from typing import Any

from orbiter.memory.messages import Format, Message, from_messages, to_messages
from orbiter.memory.model.items import MemoryItem, ToolMemory, calls_of
from orbiter.memory.model.tool_calls import call_id, call_input, call_name


def there_and_back(messages: Sequence[Message], format: Format) -> list[Message]:
    """Return *messages* after they were read and written again."""
    return to_messages(from_messages(messages, format), format).messages


def said(items: Sequence[MemoryItem]) -> list[tuple[str, str]]:
    """Return the class and the text of each item."""
    return [(type(item).__name__, item.content) for item in items]


def called(items: Sequence[MemoryItem]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return id, name and arguments of each call, whatever shape it is kept in."""
    calls = [call for item in items for call in calls_of(item)]
    return [(call_id(call), call_name(call), call_input(call)) for call in calls]


def answered(items: Sequence[MemoryItem]) -> list[tuple[str, str, str, bool]]:
    """Return call id, tool name, text and error flag of each result."""
    return [
        (item.tool_call_id, item.tool_name, item.content, item.is_error)
        for item in items
        if isinstance(item, ToolMemory)
    ]


def rewritten(
    messages: Sequence[Message], format: Format, *, index: int, content: str
) -> list[Message]:
    """Return *messages* as written after the item at *index* was given another text."""
    items = from_messages(messages, format)
    items[index].content = content
    return to_messages(items, format).messages
