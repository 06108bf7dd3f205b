"""Which provider's message it is, by what only that provider's messages have."""

from collections.abc import Mapping

from orbiter.memory.messages._wire import Format

__all__ = ["format_of"]

_ANTHROPIC = frozenset(
    ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document")
)
_RESPONSES = frozenset(("input_text", "output_text", "input_image", "input_file"))


def format_of(message: Mapping[str, object]) -> Format:
    """Return the format of *message*; `openai` where it could be any, as with a plain text."""
    if "parts" in message or message.get("role") == "model":
        return "gemini"
    kind, content = message.get("type"), message.get("content")
    blocks = content if isinstance(content, list) else ()
    inside = {block.get("type") for block in blocks if isinstance(block, Mapping)}
    if inside & _ANTHROPIC or "stop_reason" in message:
        return "anthropic"
    if inside & _RESPONSES or isinstance(kind, str):
        return "openai-responses"
    return "openai"
