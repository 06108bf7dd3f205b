"""Messages of a foreign conversation, as items of one session in the order they were said.

They are stored in that order, which is the conversation's whatever the clocks said. A message has
the time that the file gives it; where the file gives none, it is dated just after the one before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TypeVar

from pydantic import ValidationError

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceMemory

__all__ = ["LONGEST_NAME", "Thread", "cut", "digest", "made", "start_of"]

_Item = TypeVar("_Item", bound=MemoryItem)

_TICK = timedelta(microseconds=1)
_END = datetime.max.replace(tzinfo=UTC) - _TICK
LONGEST_NAME = 200
_LONGEST_TITLE = 500


def digest(text: str, *, size: int = 8) -> str:
    """Return a short name for *text*, the same each time."""
    return blake2b(text.encode(), digest_size=size).hexdigest()


def start_of(begin: datetime | None, times: Sequence[datetime | None]) -> datetime | None:
    """Return when a conversation began: as it says, or as its first dated message does."""
    first = next((time for time in times if time is not None), None)
    known = [time for time in (begin, first) if time is not None]
    return min(known, default=None)


def cut(text: str, complain: ReportProblem, place: str) -> str:
    """Return *text* as far as an item can hold it."""
    most = MemoryItem.max_content_bytes
    if len(text) * 4 <= most or len(raw := text.encode()) <= most:
        return text
    complain(place, f"its text of {len(raw):,} bytes was cut after {most:,}")
    return raw[:most].decode(errors="ignore")


def made(
    kind: type[_Item], complain: ReportProblem, place: str, *, content: str, **fields: object
) -> _Item | None:
    """Return an item of that kind, or complain of what no store can hold.

    What a message held beside its text is left out first: the text is what counts.
    """
    fields["content"] = cut(content, complain, place)
    while True:
        try:
            return kind.model_validate(fields)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
            what = f"`{first['loc'][0]}`: {first['msg'].removeprefix('Value error, ')}"
            if not fields.pop("native", None):
                complain(place, f"it cannot be stored: {what}")
                return None
            if first["loc"][0] == "native":
                complain(place, f"everything except its text was left out: {what}")


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
