"""Conversations as sequences of items: windows, tokens, and the sliding-window `History`."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.conversation.history import History, Memory, ResponseMem, UserMem
    from orbiter.memory.conversation.tokens import TokenCounter, count_tokens, estimate_tokens
    from orbiter.memory.conversation.windows import (
        OpenGroup,
        complete_tool_groups,
        last_rounds,
        rounds,
        trim_to_budget,
    )

__all__ = [
    "History",
    "Memory",
    "OpenGroup",
    "ResponseMem",
    "TokenCounter",
    "UserMem",
    "complete_tool_groups",
    "count_tokens",
    "estimate_tokens",
    "last_rounds",
    "rounds",
    "trim_to_budget",
]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "History": "history",
        "Memory": "history",
        "OpenGroup": "windows",
        "ResponseMem": "history",
        "TokenCounter": "tokens",
        "UserMem": "history",
        "count_tokens": "tokens",
        "estimate_tokens": "tokens",
        "last_rounds": "windows",
        "rounds": "windows",
        "trim_to_budget": "windows",
        "complete_tool_groups": "windows",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
