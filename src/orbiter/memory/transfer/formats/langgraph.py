"""LangGraph's store in SQLite: `store(prefix, key, value, …)`, one JSON object to a row."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from orbiter.memory.transfer.formats.foreign_items import Say, note, read_each
from orbiter.memory.transfer.formats.foreign_values import (
    Record,
    as_object,
    compact,
    first_text,
    instant,
)
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.sqlite_file import columns, has_table, opened, select

__all__ = ["LangGraphStore"]

_TEXTS = ("text", "memory", "content", "data", "value", "fact")
_COLUMNS = ("prefix", "key", "value")


class LangGraphStore:
    """The rows of a store; whose they are stands somewhere in their namespace."""

    name = "langgraph"
    label = "A LangGraph store, its SQLite file"
    names_owners = True

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the table."""
        return has_table(source, head, "store", _COLUMNS)

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the rows in the order of their creation."""
        with opened(source) as connection:
            if columns(connection, "checkpoints"):
                why = "checkpoints of threads are not imported, only the store"
                complain("table `checkpoints`", why)
            times = ("created_at", "updated_at", "expires_at")
            rows = select(connection, source, "store", _COLUMNS, times, order="4, prefix, key")
            named = ((f"row `{row[0]}` `{row[1]}`", row) for row in rows)
            yield from read_each(named, partial(_memory, source), complain)


def _memory(source: SourceFile, row: tuple[object, ...], say: Say) -> Iterator[SourceMemory]:
    prefix, key, value, created, updated, expires = row
    try:
        record = source.parsed(value, say)
    except ValueError as exc:
        raise ValueError(f"its value is not valid JSON: {exc}") from None
    if not isinstance(record, Mapping):
        raise ValueError("its value is not a JSON object")  # noqa: TRY004 - of the file, not the caller
    labels = [label for label in str(prefix).split(".") if label]
    at, end = instant(created), instant(expires)
    times: dict[str, Any] = {"updated_at": instant(updated) or at} if at else {}
    times |= {"expires_at": end} if end else {}
    extra = {"namespace": labels, "key": str(key), "value": dict(record)}
    item = note(say, _text(record), at=at, extra=extra, **times)
    yield SourceMemory(item, compact([labels, str(key)]), tuple(labels))


def _text(record: Record) -> str:
    """Return what the value says: its text, LangMem's `content`, or all of it as JSON."""
    inner = as_object(record.get("content"))
    return first_text(record, *_TEXTS) or first_text(inner, *_TEXTS) or compact(record)
