"""Memories as a table that any spreadsheet opens, and runs nothing of."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.trust import source_of
from orbiter.memory.transfer._current_state import RecordStore, Remembered, merged, remembered
from orbiter.memory.transfer.io.output_file import new_file

__all__ = ["safe_cell", "write_csv"]

_COLUMNS = (
    "id", "created_at", "updated_at", "expires_at", "memory_type", "status", "user_id",
    "session_id", "task_id", "agent_id", "source", "tags", "importance", "content", "key", "value",
    "valid_from", "valid_to", "extra",
)  # fmt: skip

# Spreadsheets skip what cannot be seen before a sign, and some read fullwidth signs as their own.
_FORMULA = re.compile("[\\s\ufeff\u200b-\u200f\u2060]*[=+\\-@＝＋－＠]")
_QUOTED = ("'", "\t", "\r", "\n")


def safe_cell(text: str) -> str:
    """Return *text* so that no spreadsheet takes it for a formula.

    It gets a `'` in front; so does text that begins with one, so that a first `'` can always be
    taken away.
    """
    return f"'{text}" if text.startswith(_QUOTED) or _FORMULA.match(text) else text


async def write_csv(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, tell: Callable[[], None]
) -> None:
    """Write a table with a row for each memory."""
    with new_file(path, may_pack=True) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        rows = csv.writer(text)
        rows.writerow(_COLUMNS)
        async for each in remembered(store, scope):
            cells = _cells(each)
            rows.writerow([safe_cell(str(cells.get(name, ""))) for name in _COLUMNS])
            tell()
        text.detach()


def _cells(each: Remembered) -> dict[str, object]:
    item, labels, fact = each.item, dict(each.labels), each.fact
    tags = labels.pop("tags", [])
    if fact:
        fact["value"] = _json(fact["value"])
    more = merged(each.own_fields, {n: v for n, v in labels.items() if n != "importance"})
    ends = {} if item.expires_at is None else {"expires_at": item.expires_at.isoformat()}
    whose = {name: getattr(item.metadata, name) or "" for name in SCOPE_FIELDS}
    return {
        "id": item.id,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
        **ends,
        "memory_type": item.memory_type,
        "status": item.status.value,
        **whose,
        "source": source_of(item),
        "tags": ", ".join(map(str, tags)) if isinstance(tags, list) else str(tags),
        "importance": labels.get("importance", ""),
        "content": item.content,
        **fact,
        "extra": _json(more) if more else "",
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
