"""Files of other programs, written by hand, and what becomes of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.messages import FORMATS, validate
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.transfer import ImportResult
from orbiter.memory.transfer.files import import_sent


async def take(
    _memory: AgentMemory, handle: ScopedMemory, path: Path, **options: Any
) -> ImportResult:
    """Import a file as a handle does."""
    report = await import_sent(handle, path, **options)
    assert report.found == report.stored + report.updated + report.unchanged + report.skipped
    return report


async def everything(handle: ScopedMemory) -> list[MemoryItem]:
    """Return all that is remembered, oldest first."""
    return list(await handle.list(limit=10_000))[::-1]


async def assert_legal(handle: ScopedMemory) -> None:
    """Check that every conversation can be sent to every provider."""
    told = await handle.chats(limit=1_000)
    assert told
    for each in told:
        chat = handle.chat(each.metadata.session_id or "")
        for format in FORMATS:
            sent = await chat.messages(format=format)
            assert sent.messages
            assert validate(sent.messages, format) == []


def lines(path: Path, values: Sequence[object]) -> Path:
    """Write a value to a line; bytes as they are."""
    raw = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in values)
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def document(path: Path, value: object) -> Path:
    """Write one value."""
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def said(role: str, text: str) -> dict[str, object]:
    return {"role": role, "content": text}


def places(report: ImportResult) -> list[str]:
    return [problem.place for problem in report.problems]
