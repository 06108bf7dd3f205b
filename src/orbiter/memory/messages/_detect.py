"""Which provider's message it is, by what only that provider's messages have."""

from collections.abc import Mapping

from orbiter.memory.errors import MessageError
from orbiter.memory.messages._common import Format, keys_of, objects_in
from orbiter.memory.messages._responses_entries import is_known

__all__ = ["ANTHROPIC_BLOCKS", "format_of"]

ANTHROPIC_BLOCKS = frozenset(
    (
        "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document",
        "mcp_tool_use", "mcp_tool_result", "web_search_tool_result", "container_upload",
    )
)  # fmt: skip
_ANTHROPIC_KEYS = frozenset(("cache_control", "citations", "source"))
_RESPONSES = frozenset(("input_text", "output_text", "input_image", "input_file"))
_PARTS = frozenset(
    (
        "text", "refusal", "reasoning", "image_url", "image", "input_audio", "audio", "audio_url",
        "file", "video", "video_url", "input_video", "media", "document_url", "reference",
    )
)  # fmt: skip
"""What a message of OpenAI's Chat may be made of, also at services that speak as it does."""


def format_of(message: Mapping[str, object]) -> Format:
    """Return the format of *message*; `openai` where it could be any, as with a plain text.

    What is of a type that no provider has, or is made of such blocks, is a `MessageError`.
    """
    if "parts" in message or message.get("role") == "model":
        return "gemini"
    blocks = objects_in(message.get("content"))
    inside = {block.get("type") for block in blocks if isinstance(block.get("type"), str)}
    is_answer = message.get("type") == "message" and "usage" in message
    if inside & ANTHROPIC_BLOCKS or "stop_reason" in message or is_answer:
        return "anthropic"
    if any(block.keys() & _ANTHROPIC_KEYS for block in blocks):
        return "anthropic"
    if any(str(kind).endswith("_tool_result") for kind in inside):  # each server's tool has one
        return "anthropic"
    if not inside & _RESPONSES and not isinstance(message.get("type"), str):
        _check_parts(inside)
        return "openai"
    if not is_known(message):
        raise MessageError(
            f"message 0: a message of type `{message['type']}`, with the keys {keys_of(message)}, "
            "is of no provider known here; give it as {'role': …, 'content': …}, or say `format=`"
        )
    return "openai-responses"


def _check_parts(kinds: set[object]) -> None:
    """Refuse blocks that nobody here knows: what they say would be lost."""
    unknown = sorted(str(kind) for kind in kinds - _PARTS)
    if unknown:
        raise MessageError(
            f"message 0: a block of type `{unknown[0]}` is of no provider known here; give its "
            "words as text and its calls as `tool_calls`, or say `format=`"
        )
