"""The import path of `orbiter.memory.history` for code written against synaptic."""

from orbiter.memory.history import History, Memory, ResponseMem, ToolCall, UserMem

__all__ = ["History", "Memory", "ResponseMem", "ToolCall", "UserMem"]
