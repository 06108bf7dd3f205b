"""A record as a SQL store reads it: a row becomes a line without becoming an item.

That is on the way of whole databases, and some four times faster. An item is made of it only if
somebody asks for one, or if there is something unusual in the row.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring as _quoted
from typing import Any, NamedTuple

from orbiter.memory._checks import to_utc
from orbiter.memory.backends._rows import _KINDS, READ, _plain_who, _scope, decode, iso
from orbiter.memory.items import MemoryItem
from orbiter.memory.query import SCOPE_FIELDS
from orbiter.memory.records import PastVersion, Record

VERSION = READ.index("version")
DELETED = len(READ)
"""Where a row has its version, and behind the columns of an item, whether it is deleted."""

_spell = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
_WIDTH = len(iso(datetime.now(UTC)))


class Kept(NamedTuple):
    """The columns of an item, as `COLUMNS` names them; a time may be as another store wrote it."""

    id: str
    content: str
    memory_type: str
    status: str
    metadata: str
    extra_json: str
    created_at: str | datetime
    updated_at: str | datetime
    deleted: int
    version: int


class Note(NamedTuple):
    """When the first version of an item was written, and by whom."""

    id: str
    metadata: str
    came: datetime
    came_by: str | None


class KeptVersion(NamedTuple):
    """A row of `memory_versions`; what the next version has too is `None`."""

    id: str
    version: int
    content: str | None
    memory_type: str
    status: str
    metadata: str
    extra_json: str | None
    created_at: str | datetime
    updated_at: str | datetime
    deleted: int
    ended_at: str | datetime
    ended_by: str | None


class StoredRecord(Record):
    """A record as it was read; the item and its versions are made when they are asked for."""

    __slots__ = ("past", "row")

    def __init__(
        self,
        row: Sequence[Any],
        past: Sequence[Sequence[Any]] = (),
        recorded: tuple[datetime, str | None] | None = None,
    ) -> None:
        """*row* holds the columns `READ`, and whether it is deleted; so do those of *past*.

        These also tell when and by whom they were ended.
        """
        self.row = row
        self.past = past
        self._item: MemoryItem | None = None
        self._versions: tuple[PastVersion, ...] | None = None
        self._line: str | None = None
        self.deleted = bool(row[DELETED])
        self.recorded_at, self.recorded_by = recorded or (None, None)

    @property
    def item(self) -> MemoryItem:
        """The item as it is now."""
        if self._item is None:
            self._item = decode(self.row[:DELETED])
        return self._item

    @property
    def versions(self) -> tuple[PastVersion, ...]:
        """What it was, oldest first."""
        if self._versions is None:
            self._versions = tuple(
                PastVersion(decode(row[:DELETED]), bool(row[DELETED]), moment(row[-2]), row[-1])
                for row in self.past
            )
        return self._versions

    @property
    def id(self) -> str:
        """The id of the item."""
        return str(self.row[0])

    def _spelled(self) -> str:
        item = _plain_item(self.row)
        if item is None or self.recorded_by is not None:
            return super()._spelled()
        deleted = '"deleted":true,' if self.deleted else ""
        at = self.recorded_at
        came = "" if at is None else f',"recorded_at":"{_spell_instant(at)}"'
        if not self.past:
            return f'{{{deleted}"item":{item}{came}}}'
        versions = [_plain_version(row) for row in self.past]
        if None in versions:
            return super()._spelled()
        return f'{{{deleted}"item":{item}{came},"versions":[{",".join(versions)}]}}'  # type: ignore[arg-type]  # no `None` among them

    def plain(self) -> Kept | None:
        """Return what is written of the item in any SQL store, if there is nothing unusual."""
        row = self.row
        who = _plain_scope(row)
        if who is None:
            return None
        return Kept(
            row[0], row[1], row[2], row[3], who[0], "{}", row[6], row[7], row[DELETED],
            row[VERSION],
        )  # fmt: skip

    def plain_past(self) -> list[KeptVersion] | None:
        """Return what is written of the versions of a plain item, if these are plain, too."""
        found: list[KeptVersion] = []
        newer = self.row
        for row in reversed(self.past):
            who = _plain_scope(row)
            if who is None:
                return None
            content = None if row[1] == newer[1] else row[1]
            found.append(
                KeptVersion(
                    row[0], row[VERSION], content, row[2], row[3], who[0], None, row[6], row[7],
                    row[DELETED], row[-2], row[-1],
                )
            )  # fmt: skip
            newer = row
        return found


def _plain_scope(row: Sequence[Any]) -> tuple[str, str] | None:
    """Return the metadata of a row with nothing unusual in it; else `None`."""
    if row[5] != "{}" or row[2] not in _KINDS or type(row[1]) is not str or len(row[4]) >= 512:
        return None
    return _spellings(row[4])


@lru_cache(maxsize=1024)
def _spellings(metadata: str) -> tuple[str, str] | None:
    """Return plain metadata as a row has it, and as a record does; rows repeat them."""
    scope = _scope(metadata)
    if scope is None:
        return None
    who = _plain_who(*(scope[name] for name in SCOPE_FIELDS))
    return who, _spell(json.loads(who))


def _plain_item(row: Sequence[Any]) -> str | None:
    """Return what a record says of an item with nothing unusual in it; else `None`."""
    who = _plain_scope(row)
    if who is None:
        return None
    created, updated = row[6], row[7]
    if type(created) is datetime:
        same = created == updated
        created = _spell_instant(created)
        updated = created if same else _spell_instant(updated)
    elif len(created) != _WIDTH or len(updated) != _WIDTH:  # not as a store writes it
        return None
    return (
        f'{{"content":{_quoted(row[1])},"created_at":"{created}","id":{_quoted(row[0])},'
        f'"memory_type":"{row[2]}","metadata":{who[1]},"status":"{row[3]}",'
        f'"updated_at":"{updated}","version":{row[VERSION]}}}'
    )


def _plain_version(row: Sequence[Any]) -> str | None:
    item = _plain_item(row)
    if item is None:
        return None
    deleted = '"deleted":true,' if row[DELETED] else ""
    by = "" if row[-1] is None else f'"ended_by":{_spell(row[-1])},'
    return f'{{{deleted}"ended_at":"{_spell_instant(moment(row[-2]))}",{by}"item":{item}}}'


def _spell_instant(instant: datetime) -> str:
    return iso(instant if instant.tzinfo is UTC else to_utc(instant))


def moment(value: str | datetime) -> datetime:
    """Return a time of a row."""
    return to_utc(datetime.fromisoformat(value) if isinstance(value, str) else value)
