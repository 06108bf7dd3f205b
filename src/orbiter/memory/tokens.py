"""Counting tokens, and sharing out a budget of them.

One way of counting serves trimming, triggers and contexts alike, so that "fits" means the same
everywhere. The default is an estimate that needs no download and errs high on English, code,
data and most scripts; languages of long words in Latin letters (Finnish, Swahili) it counts a
quarter or a third too low. Any callable `text -> int`, such as a real tokenizer, can replace it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from orbiter.memory.calls import call_arguments, call_id, call_name
from orbiter.memory.items import MemoryItem, ToolMemory, calls_of
from orbiter.memory.query import check_size

__all__ = [
    "CONVERSATION_TOKENS",
    "TokenCounter",
    "count_tokens",
    "estimate_tokens",
    "item_tokens",
    "split_budget",
]

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text: `estimate_tokens`, or the `len(encode(...))` of a real tokenizer."""

CONVERSATION_TOKENS = 8
"""What any conversation costs besides its messages: the reply's start, and the opening turn that
Anthropic and Gemini need before a history that begins with the model."""

_MESSAGE_TOKENS = 4  # role and separators
_CALL_TOKENS = 8  # type, keys and brackets around a call
_MEDIA_TOKENS = 1_600  # what a large picture costs; its base64 text says nothing about that

# Each match stands for about one token of a modern byte-pair vocabulary; `benchmarks/tokens.py`
# prints the error against real tokenizers. Astral characters cost two, hence the empty match.
_PIECE = re.compile(
    r"(?=[\U00010000-\U0010ffff])"
    r"|[A-Z]?[a-z]{1,7}|[A-Z]{1,4}|[0-9]{1,3}| (?=[0-9])"
    r"|[\u0400-\u04ff]{1,3}"  # Cyrillic
    r"|[\u0900-\u0dff]{1,2}"  # the scripts of India, vowel signs included
    r"|[\u0e00-\u0eff]{1,2}"  # Thai, Lao
    r"|[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"  # Chinese, Japanese, Korean
    r"|[^\W\d_A-Za-z]{1,2}|[^\w\s]|_|\n+| {2,}|\t+|\d"
)
_BLOB = re.compile(r"(?=[A-Za-z+/_-]*[0-9])[A-Za-z0-9+/_-]{32,}={0,2}")


def estimate_tokens(text: str) -> int:
    """Return about how many tokens *text* is; `docs/benchmarks.md` shows the error by language."""
    count = len(_PIECE.findall(text))
    if len(text) >= 32:
        # Hashes and base64 split into far shorter pieces than words do.
        count += sum(len(blob) * 3 // 4 - len(_PIECE.findall(blob)) for blob in _BLOB.findall(text))
    return count


def item_tokens(item: MemoryItem, *, counter: TokenCounter = estimate_tokens) -> int:
    """Return what *item* costs as a message: role, text, names, tool arguments and ids."""
    total = _MESSAGE_TOKENS + counter(item.content)
    for call in calls_of(item):
        total += _CALL_TOKENS + counter(call_id(call)) + counter(call_name(call))
        total += counter(call_arguments(call))
    if isinstance(item, ToolMemory):
        total += counter(item.tool_call_id) + counter(item.tool_name)
    for kept in item.native.values():
        total += _native_tokens(kept, counter)
    return total


def count_tokens(items: Iterable[MemoryItem], *, counter: TokenCounter = estimate_tokens) -> int:
    """Return what *items* cost together when they are sent; nothing costs nothing."""
    costs = [item_tokens(item, counter=counter) for item in items]
    return CONVERSATION_TOKENS + sum(costs) if costs else 0


def split_budget(budget: int, wants: Mapping[str, int]) -> dict[str, int]:
    """Share *budget* among parts that want so many tokens each.

    Small wants are met in full; what they leave is shared evenly among the large ones, so no
    part can starve another. The shares never add up to more than *budget*.
    """
    check_size("budget", budget)
    shares = dict.fromkeys(wants, 0)
    left, open_parts = budget, sorted(wants, key=lambda name: wants[name])
    while open_parts:
        name = open_parts.pop(0)
        shares[name] = min(check_size(name, wants[name]), left // (len(open_parts) + 1))
        left -= shares[name]
    return shares


# Blocks whose text or call an item holds in fields of its own, and which are counted there.
_COUNTED_TYPES = frozenset(
    ("text", "input_text", "output_text", "tool_use", "tool_result", "function_call")
)
_COUNTED_KEYS = frozenset(("functionCall", "functionResponse"))


def _native_tokens(value: Any, counter: TokenCounter) -> int:
    if isinstance(value, str):
        return counter(value)
    if isinstance(value, list):
        return sum(_native_tokens(inner, counter) for inner in value)
    if not isinstance(value, dict):
        return 1
    if value.get("type") in _COUNTED_TYPES:
        return 0
    counted = _COUNTED_KEYS if "thought" in value or "type" in value else {*_COUNTED_KEYS, "text"}
    return sum(
        _MEDIA_TOKENS if _is_media(key, inner) else counter(key) + _native_tokens(inner, counter)
        for key, inner in value.items()
        if key not in counted
    )


def _is_media(key: str, value: object) -> bool:
    return isinstance(value, str) and (
        value.startswith("data:") or (key in {"data", "file_data"} and len(value) > 1_000)
    )
