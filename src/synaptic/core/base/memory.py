"""The import path of `orbiter.memory.conversation.history` for code written against synaptic."""

from orbiter.memory.conversation.history import History, Memory, ResponseMem, ToolCall, UserMem

__all__ = ["History", "Memory", "ResponseMem", "ToolCall", "UserMem"]
