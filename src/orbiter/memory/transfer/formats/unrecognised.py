"""What a file is that no format recognises, in words that help to find out what to do."""

import csv
import json
from contextlib import suppress

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.registry import import_formats
from orbiter.memory.transfer.formats.sqlite_file import SQLITE, opened
from orbiter.memory.transfer.io.source_file import SourceFile
from orbiter.memory.transfer.native import is_native

__all__ = ["is_store", "looks_like", "unknown"]

_MAX_NAMES = 6
_COLUMNS = 2


def is_store(head: bytes) -> bool:
    """Tell whether a file that begins so is a SQLite store of ours, or of the original library."""
    # In its own words: what else is in the schema may be refused, see `sqlite_file.py`.
    return head.startswith(SQLITE) and b"memory_items" in head and b"extra_json" in head


def looks_like(source: SourceFile) -> str:
    """Return what is not known: `it is empty`, `it is plain text`."""
    if source.is_container:
        is_any = next(source.members(), None) is not None
        return "it contains no file of a known format" if is_any else "it contains no files"
    head = source.head()
    if not head.strip():
        return "it is empty"
    if is_native(head):
        return "it is an export of `export_file`; import it by itself"
    if head.startswith(SQLITE):
        return _tables(source)
    try:
        text = head.decode()
    except UnicodeDecodeError as exc:
        if exc.start < len(head) - 3:  # a character that is cut off at the end is none of its
            return "it is binary, or not UTF-8 text"
        text = head[: exc.start].decode()
    return "it is binary, not text" if "\0" in text else _text(text)


def _tables(source: SourceFile) -> str:
    with suppress(TransferError), opened(source) as connection:
        rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        names = [str(name) for (name,) in rows]
        if {"checkpoints", "writes"} <= set(names):
            return (
                "it has checkpoints of LangGraph, not memories; copy them with `copy_checkpoints` "
                "of `orbiter.memory.integrations.langgraph`"
            )
        names = names[:_MAX_NAMES]
        tables = f" with the tables `{'`, `'.join(names)}`" if names else " without tables"
        return f"it is a SQLite file{tables}, none of which is known"
    return "it is a SQLite file that cannot be opened"


def _text(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if text.lstrip()[:1] in ("{", "["):
        return _json(text, lines[0])
    for mark in (",", ";", "\t"):
        counts = {line.count(mark) for line in lines[:3]}
        if len(counts) == 1 and min(counts) >= _COLUMNS - 1 and len(lines) > 1:
            header = next(csv.reader(lines[:1], delimiter=mark), [])
            names = [name[:40] for name in header[:_MAX_NAMES]]
            return (
                f"it looks like a table with the columns `{'`, `'.join(names)}`; say which one is "
                "the memory with `text=…`"
            )
    return "it is plain text; name it `.md` to take it as a note"


def _json(text: str, first: str) -> str:
    for part in (text, first):
        with suppress(ValueError, RecursionError):
            value = json.loads(part)
            if isinstance(value, list):
                value = value[0] if value else {}
            if isinstance(value, dict) and value:
                keys = "`, `".join(str(key)[:40] for key in list(value)[:_MAX_NAMES])
                return (
                    f"it is JSON with `{keys}`, which no known format has; if its objects are "
                    "notes, say which field is the memory with `text=…`"
                )
            return "it is JSON that contains no objects"
    return "it looks like JSON, but it is of an unknown format, or damaged"


def unknown(source: SourceFile) -> TransferError:
    """Return the error for a file of no known format."""
    names = "`, `".join(import_formats())
    return TransferError(
        f"`{source.name}` is of an unknown format: {looks_like(source)}. The known ones are "
        f"`{names}`; if it is one of these, give that name as its format"
    )
