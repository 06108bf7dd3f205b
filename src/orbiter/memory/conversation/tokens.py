"""Counting tokens, and sharing out a budget of them.

One way of counting serves trimming, triggers and contexts alike, so that "fits" means the same
everywhere. The default is an estimate that needs no download and errs high on English, code,
data and most scripts; languages of long words in Latin letters (Finnish, Swahili) it counts a
quarter or a third too low. Any callable `text -> int`, such as a real tokenizer, can replace it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from orbiter.memory.model.items import HumanMemory, MemoryItem, ToolMemory, calls_of
from orbiter.memory.model.query import check_size
from orbiter.memory.model.tool_calls import call_arguments, call_id, call_name, call_rest

__all__ = [
    "CONVERSATION_TOKENS",
    "MESSAGE_TOKENS",
    "TokenCounter",
    "adds_up",
    "count_tokens",
    "estimate_tokens",
    "item_tokens",
    "split_budget",
]

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text: `estimate_tokens`, or the `len(encode(...))` of a real tokenizer."""

CONVERSATION_TOKENS = 8
"""What any conversation costs besides its messages: the reply's start, and an opening turn, which
Anthropic and Gemini need if the model speaks first."""

MESSAGE_TOKENS = 4
"""What any message costs besides its text: its role and separators."""

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
_ASCII_PIECE = re.compile(
    r"[A-Z]?[a-z]{1,7}|[^\sA-Za-z0-9]|[0-9]{1,3}|[A-Z]{1,4}| (?=[0-9])|\n+| {2,}|\t+"
)
"""What `_PIECE` is for plain letters, and nearly twice as fast."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{32,}={0,2}")  # of these, those with a digit
_DIGIT = re.compile(r"[0-9]")


_SHORT = 1024
"""Characters of a text whose count is remembered: 4 MB of texts at most, on average a fifth."""
_SLICE = 2 * 1024
_GAP = re.compile(r"(?<=\n)(?!\n)|(?<=\S )(?=[^\s0-9])")
"""Where no piece and no blob goes on: a text can be cut there, and has as many tokens as before."""


def estimate_tokens(text: str) -> int:
    """Return about how many tokens *text* is; `docs/benchmarks.md` shows the error by language.

    Lines add up: a text has as many tokens as its lines, and one for each run of line ends.
    """
    if len(text) <= _SHORT:
        return _remembered(text)
    # A pattern keeps the interpreter's lock until all of its text is read: others go on between.
    return sum(map(_estimate, _slices(text)))


def adds_up(counter: TokenCounter) -> bool:
    """Tell whether *counter* finds as many tokens in a text as in its lines.

    A real tokenizer need not: it may join what stands at the end of one line and at the start of
    the next.
    """
    return counter is estimate_tokens


def _slices(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > 2 * _SLICE:
        gap = _GAP.search(text, start + _SLICE, start + 2 * _SLICE)
        if gap is None:
            # A run without a gap is cut at places that count from its own start, so that it has
            # as many tokens wherever it stands.
            gaps = list(_GAP.finditer(text, start + 1, start + _SLICE))
            gap = gaps[-1] if gaps else None
        end = start + 2 * _SLICE if gap is None else gap.start()
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _estimate(text: str) -> int:
    piece = _ASCII_PIECE if text.isascii() else _PIECE
    count = len(piece.findall(text))
    if len(text) >= 32 and _DIGIT.search(text):
        # Hashes and base64 split into far shorter pieces than words do.
        count += sum(
            len(blob) * 3 // 4 - len(_ASCII_PIECE.findall(blob))
            for blob in _BLOB.findall(text)
            if _DIGIT.search(blob)
        )
    return count


@lru_cache(maxsize=4096)
def _remembered(text: str) -> int:
    """Return the tokens of a short text; a conversation is counted again with every turn."""
    return _estimate(text)


def item_tokens(item: MemoryItem, *, counter: TokenCounter = estimate_tokens) -> int:
    """Return what *item* costs as a message: role, text, names, tool arguments and ids."""
    total = MESSAGE_TOKENS + counter(item.content)
    if not item.native and item.__class__ is HumanMemory:  # as half of a conversation is
        return total
    for call in calls_of(item):
        total += _CALL_TOKENS + counter(call_id(call)) + counter(call_name(call))
        total += counter(call_arguments(call)) + _json_tokens(call_rest(call), counter)
    if isinstance(item, ToolMemory):
        total += counter(item.tool_call_id) + counter(item.tool_name)
    for kept in item.native.values():
        blocks = kept if isinstance(kept, list) else [kept]
        total += sum(_block_tokens(block, counter) for block in blocks)
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


# What a block of a message holds that its item has in a field of its own, counted there.
_HELD_TEXT = frozenset(
    ("type", "role", "text", "name", "id", "call_id", "tool_use_id", "content", "output")
)
_HELD = frozenset(("input", "arguments", "args", "response", "bedrock"))
_NESTED = frozenset(("content", "output", "parts", "functionCall", "functionResponse"))


def _block_tokens(block: Any, counter: TokenCounter) -> int:
    """Return what a kept block costs beyond the text and the call it stands for."""
    if not isinstance(block, dict):
        return _json_tokens(block, counter)
    total = 0
    for key, value in block.items():
        if key in _HELD or (key in _HELD_TEXT and isinstance(value, str)):
            if key == "text" and block.get("thought"):
                total += counter(value)  # thinking is no part of the item's content
        elif key in _NESTED:
            inner = value if isinstance(value, list) else [value]
            total += sum(_block_tokens(each, counter) for each in inner)
        else:
            total += counter(key) + _json_tokens(value, counter)
    return total


def _json_tokens(value: Any, counter: TokenCounter) -> int:
    if isinstance(value, str):
        return _MEDIA_TOKENS if _is_media(value) else counter(value)
    if isinstance(value, dict):
        return sum(counter(key) + _json_tokens(inner, counter) for key, inner in value.items())
    if isinstance(value, list):
        return sum(_json_tokens(inner, counter) for inner in value)
    return 1


def _is_media(text: str) -> bool:
    head = text[:2_000]
    if head.startswith("data:") and ";base64," in head[:200]:
        return True
    return len(text) > 1_000 and _BASE64.fullmatch(head) is not None
