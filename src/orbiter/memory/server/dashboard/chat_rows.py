"""Rows of a conversation: one for each message, a tool call with its results in one.

Pure functions. What belongs together is together also where results came late; what has lost its
other half is shown as what it is.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from orbiter.memory.model.items import MemoryItem, calls_of, result_id, role_of
from orbiter.memory.model.tool_calls import call_arguments, call_id, call_name

__all__ = ["Called", "Row", "Spoken", "drawn", "without_halves"]

_ONE_LINE = 70
_MAX_JSON = 20_000
"""Characters of JSON that are written with line ends."""


@dataclass
class Called:
    """One tool call, and what came back."""

    name: str
    arguments: str
    call_id: str
    result: MemoryItem | None = None
    output: str = ""


@dataclass
class Row:
    """What is drawn as one: a message, or a call with its results."""

    item: MemoryItem
    role: str
    text: str
    calls: list[Called] = field(default_factory=list)
    is_open: bool = False
    """Whether a call waits for its result."""
    is_sent: bool = False
    """Whether it is in the window."""
    is_pinned: bool = False
    """Whether it is sent although it is older than the window: a system message."""


@dataclass(frozen=True)
class Spoken:
    """The rows, and before which of them the window and what is not summed up begin."""

    rows: list[Row]
    window_at: int | None
    summary_at: int | None
    """Zero if nothing of this page is summed up, the number of rows if all of it is."""


def drawn(
    items: Sequence[MemoryItem],
    *,
    sent: Sequence[MemoryItem] = (),
    summed_up: Collection[str] | None = None,
) -> Spoken:
    """Return *items*, as they were added, as rows; *sent* is the window, in the same order.

    *summed_up* are the ids of those that a summary covers, if there is one.
    """
    rows = _rows(items)
    ids = {item.id for item in sent}
    first = next((item.id for item in sent if role_of(item) != "system"), None)
    window_at = next((at for at, row in enumerate(rows) if row.item.id == first), None)
    for at, row in enumerate(rows):
        row.is_sent = row.item.id in ids
        is_before = window_at is None or at < window_at
        row.is_pinned = row.is_sent and row.role == "system" and is_before
    summary_at = None
    if summed_up is not None:
        summed = [at for at, row in enumerate(rows) if row.item.id in summed_up]
        summary_at = summed[-1] + 1 if summed else 0
    return Spoken(rows, window_at, summary_at)


def _rows(items: Sequence[MemoryItem]) -> list[Row]:
    rows: list[Row] = []
    waiting: dict[str, Called] = {}
    for item in items:
        role = role_of(item) or "system"
        called = waiting.pop(result_id(item), None) if role == "tool" else None
        if called is not None:
            called.result = item
            called.output = _readable(item.content)
            continue
        calls = [
            Called(call_name(call), _arguments(call_arguments(call)), call_id(call))
            for call in calls_of(item)
        ]
        waiting |= {call.call_id: call for call in calls if call.call_id}
        rows.append(
            Row(item, role, _readable(item.content) if role == "tool" else item.content, calls)
        )
    for row in rows:
        row.is_open = any(call.result is None for call in row.calls)
    return rows


def without_halves(items: Sequence[MemoryItem], *, is_all: bool) -> list[MemoryItem]:
    """Return a page, oldest first, without results at its start whose call is on the page before.

    A page of nothing else is left as it is, so that every page leads to an earlier one.
    """
    if is_all:
        return list(items)
    starts = (at for at, item in enumerate(items) if role_of(item) != "tool")
    return list(items[next(starts, 0) :])


def _arguments(text: str) -> str:
    """Return arguments on one line, if that is short, and otherwise on several."""
    spread = _readable(text)
    joined = " ".join(text.split())
    return joined if len(joined) <= _ONE_LINE else spread


def _readable(text: str) -> str:
    """Return JSON with line ends and spaces; any other text as it is."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > _MAX_JSON:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
