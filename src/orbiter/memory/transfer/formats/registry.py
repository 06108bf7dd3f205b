"""The formats that can be read, by name, and which of them a file is of."""

from functools import cache
from importlib import import_module

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.protocol import ReadableFormat
from orbiter.memory.transfer.io.opened_file import OpenedFile

__all__ = ["COMPANIONS", "FORMATS", "NAMES_OWNERS", "NATIVE", "format_named", "recognised"]

_HOMES = {
    "chatgpt": ("formats.chatgpt", "ChatGPT"),
    "claude-ai": ("formats.claude_ai", "ClaudeAI"),
    "claude-code": ("formats.claude_code", "ClaudeCode"),
    "mcp": ("formats.mcp_memory", "McpMemory"),
    "letta": ("formats.letta", "Letta"),
    "langgraph": ("formats.langgraph", "LangGraphStore"),
    "openai-agents": ("formats.openai_agents", "OpenAIAgents"),
    "openai": ("formats.openai_jsonl", "OpenAIMessages"),
    "mem0": ("formats.mem0", "Mem0"),
    "markdown": ("formats.markdown", "MarkdownNotes"),
}
"""Each in a module of its own; a file is of the first that recognises it, so the surest stand
first."""

NATIVE = "jsonl"
"""Our own format, which is read by itself: it holds records, not memories of somebody's."""

COMPANIONS = {
    "chatgpt": (
        "chat.html",
        "conversation_asset_file_names.json",
        "export_manifest.json",
        "message_feedback.json",
        "model_comparisons.json",
        "shared_conversations.json",
        "user.json",
        "user_settings.json",
    ),
    "claude-ai": ("users.json",),
}
"""Files of an export that hold nothing to remember, so that nobody misses them."""

NAMES_OWNERS = frozenset(("mem0", "langgraph"))
"""Formats whose files may say whose each memory is."""

FORMATS: tuple[str, ...] = (NATIVE, *_HOMES)
"""What `import_file` takes as `format`, beside `auto`."""


@cache
def format_named(name: str) -> ReadableFormat:
    """Return the format of that name, or raise `TransferError`."""
    if name not in _HOMES:
        names = "`, `".join(FORMATS)
        raise TransferError(f"there is no format `{name}`; use `auto`, or one of `{names}`")
    module, kind = _HOMES[name]
    found: ReadableFormat = getattr(import_module(f"orbiter.memory.transfer.{module}"), kind)()
    return found


def recognised(source: OpenedFile) -> str | None:
    """Return the format that *source* looks like, if it looks like any."""
    head = source.head()
    if not head.strip() and not source.is_container:
        return None
    # Notes lie in many folders: what else there is counts first.
    names = [name for name in _HOMES if name != "markdown" or not source.is_container]
    return next((name for name in names if format_named(name).recognises(source, head)), None)
