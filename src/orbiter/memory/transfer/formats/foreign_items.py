"""Items made of what a file says: memories, and the messages of one conversation.

Messages are stored in the order of the file, which is the conversation's whatever the clocks said.
One has the time that the file gives it; where the file gives none, it is dated just after the one
before.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import TypeVar

from pydantic import ValidationError

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer.formats.foreign_values import UNREADABLE, reason
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory

__all__ = [
    "LONGEST_NAME",
    "Say",
    "Thread",
    "cut",
    "dated",
    "digest",
    "made",
    "matching",
    "note",
    "read_each",
    "start_of",
]

_Item = TypeVar("_Item", bound=MemoryItem)
_Row = TypeVar("_Row")

Say = Callable[[str], None]
"""Told what is wrong with one row, or one message."""

_TICK = timedelta(microseconds=1)
_END = datetime.max.replace(tzinfo=UTC) - _TICK
LONGEST_NAME = 200
_LONGEST_TITLE = 500


def read_each(
    rows: Iterable[tuple[str, _Row]],
    read: Callable[[_Row, Say], Iterable[SourceMemory]],
    complain: ReportProblem,
) -> Iterator[SourceMemory]:
    """Yield the memories that *read* makes of each row, by its place; report what it cannot."""
    for place, row in rows:
        say = partial(complain, place)
        try:
            memories = list(read(row, say))
        except UNREADABLE as exc:
            say(reason(exc))
        else:
            yield from memories


def matching(source: SourceFile, name: re.Pattern[str]) -> Iterator[SourceFile]:
    """Yield the files of an export that have such a name; a file alone may have any."""
    members = list(source.members())
    for member in members:
        if len(members) == 1 or name.fullmatch(PurePosixPath(member.name).name):
            yield member


def digest(text: str, *, size: int = 8) -> str:
    """Return a short name for *text*, the same each time."""
    return blake2b(text.encode(), digest_size=size).hexdigest()


def cut(text: str, say: Say) -> str:
    """Return *text* as far as an item can hold it."""
    most = MemoryItem.max_content_bytes
    if len(text) * 4 <= most or len(raw := text.encode()) <= most:
        return text
    say(f"its text of {len(raw):,} bytes was cut after {most:,}")
    return raw[:most].decode(errors="ignore")


def made(kind: type[_Item], say: Say, *, content: str, **fields: object) -> _Item | None:
    """Return an item of that kind, or report what no store can hold.

    What a message held beside its text is left out first: the text is what counts.
    """
    fields["content"] = cut(content, say)
    while True:
        try:
            return kind.model_validate(fields)
        except ValidationError as exc:
            if not fields.pop("native", None):
                say(reason(exc))
                return None
            if exc.errors()[0]["loc"][0] == "native":
                why = reason(exc).removeprefix("it cannot be stored: ")
                say(f"everything except its text was left out: {why}")


def note(
    say: Say,
    text: str,
    *,
    at: datetime | None = None,
    extra: Mapping[str, object] | None = None,
    session: str | None = None,
    agent: str | None = None,
    **fields: object,
) -> MemoryItem:
    """Return a memory that is no message; `ValidationError` if no store can hold it."""
    times = {} if at is None else {"created_at": at, "updated_at": at}
    metadata = MemoryMetadata(session_id=session, agent_id=agent, extra=dict(extra or {}))
    return MemoryItem.model_validate(
        {"content": cut(text, say), "metadata": metadata, **times, **fields}
    )


def dated(item: MemoryItem, at: datetime | None) -> MemoryItem:
    """Return *item* as of the time that the file gives it, if it gives one."""
    return item if at is None else item.model_copy(update={"created_at": at, "updated_at": at})


def start_of(begin: datetime | None, times: Sequence[datetime | None]) -> datetime | None:
    """Return when a conversation began: as it says, or as its first dated message does."""
    first = next((time for time in times if time is not None), None)
    known = [time for time in (begin, first) if time is not None]
    return min(known, default=None)


@dataclass(slots=True)
class Thread:
    """One conversation while it is read."""

    format: str
    id: str
    title: str = ""
    begin: datetime | None = None
    """When it began, if that is known."""
    _last: datetime | None = None
    _is_dated: bool = False
    _read_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def session(self) -> str:
        """What its session is called: of a kind that no caller's own session is."""
        name = self.id if len(self.id) <= LONGEST_NAME else digest(self.id, size=16)
        return f"{self.format}:{name}"

    def next_message(
        self,
        item: MemoryItem,
        *,
        key: str,
        at: datetime | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> SourceMemory:
        """Return *item*, which was just made, as the next message; *key* is its own in here."""
        self._is_dated = self._is_dated or at is not None or self.begin is not None
        if at is None:
            at = self.begin if self._last is None else min(self._last, _END) + _TICK
        at = at or self._read_at
        self._last = at
        labels: dict[str, object] = {"title": self.title[:_LONGEST_TITLE]} if self.title else {}
        labels |= {name: text[:_LONGEST_TITLE] for name, text in (extra or {}).items() if text}
        # Unchecked: whoever places it in a scope makes it again, and checks that.
        metadata = MemoryMetadata.model_construct(session_id=self.session, extra=labels)
        item.__dict__["metadata"] = metadata
        item.__dict__["created_at"] = item.__dict__["updated_at"] = at
        if self._is_dated:
            # Tells the file's time from the clock's, which is another each time it is read.
            item.__pydantic_fields_set__.add("created_at")
        return SourceMemory(item, f"{self.id}/{key}")
