"""LangGraph's store in SQLite: `store(prefix, key, value, …)`, one JSON object to a row."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from orbiter.memory.errors import TransferError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.json_helpers import (
    as_object,
    compact,
    first_text,
    instant,
    safely,
)
from orbiter.memory.transfer.formats.sqlite_file import SQLITE, columns, opened
from orbiter.memory.transfer.io.json_stream import parsed_text

__all__ = ["LangGraphStore"]

_TEXTS = ("text", "memory", "content", "data", "value", "fact")
_COLUMNS = {"prefix", "key", "value"}


class LangGraphStore:
    """The rows of a store; whose they are stands somewhere in their namespace."""

    name = "langgraph"
    label = "A LangGraph store, its SQLite file or JSON"
    names_owners = True

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the table."""
        if not head.startswith(SQLITE):
            return False
        with opened(source) as connection:
            return columns(connection, "store") >= _COLUMNS

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the rows in the order of their creation."""
        with opened(source) as connection:
            have = columns(connection, "store")
            if not have >= _COLUMNS:
                raise TransferError(f"`{source.name}` has no table `store(prefix, key, value)`")
            wanted = ["prefix", "key", "value"]
            wanted += [
                name if name in have else "NULL"
                for name in ("created_at", "updated_at", "expires_at")
            ]
            if columns(connection, "checkpoints"):
                why = "checkpoints of threads are not imported, only the store"
                complain("table `checkpoints`", why)
            rows = connection.execute(
                f"SELECT {', '.join(wanted)} FROM store ORDER BY {wanted[3]}, prefix, key"  # noqa: S608 - names of our own
            )
            for row in rows:
                place = f"row `{row[0]}` `{row[1]}`"
                parse = partial(parsed_text, place=place, limits=source.limits, complain=complain)
                memory = safely(partial(_source_memory, row, parse), complain, place)
                if memory is not None:
                    yield memory


def _source_memory(
    row: sqlite3.Row | tuple[object, ...], parse: Callable[[object], object]
) -> SourceMemory:
    prefix, key, value, created, updated, expires = row
    record = _object(value, parse)
    labels = [label for label in str(prefix).split(".") if label]
    at = instant(created)
    times: dict[str, object] = (
        {} if at is None else {"created_at": at, "updated_at": instant(updated) or at}
    )
    if (end := instant(expires)) is not None:
        times["expires_at"] = end
    extra = {"namespace": labels, "key": str(key), "value": dict(record)}
    item = MemoryItem.model_validate(
        {"content": _text(record), "metadata": MemoryMetadata(extra=extra), **times}
    )
    return SourceMemory(item, compact([labels, str(key)]), tuple(labels))


def _object(value: object, parse: Callable[[object], object]) -> Mapping[str, object]:
    try:
        parsed = parse(value)
    except ValueError as exc:
        raise ValueError(f"its value is not valid JSON: {exc}") from None
    if not isinstance(parsed, Mapping):
        raise ValueError("its value is not a JSON object")  # noqa: TRY004 - of the file, not the caller
    return parsed


def _text(record: Mapping[str, object]) -> str:
    """Return what the value says: its text, LangMem's `content`, or all of it as JSON."""
    inner = as_object(record.get("content"))
    return first_text(record, *_TEXTS) or first_text(inner, *_TEXTS) or compact(record)
