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

from orbiter.memory.backends.sql.rows import _KINDS, ENDS, READ, _plain, decode, iso, usual_metadata
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.records import PastVersion, Record
from orbiter.memory.model.validation import to_utc

__all__ = [
    "DELETED",
    "VERSION",
    "Kept",
    "KeptVersion",
    "Note",
    "StoredRecord",
    "moment",
    "spell_instant",
    "user_of_row",
]

VERSION = READ.index("version")
DELETED = len(READ)
"""Where a row has its version, and behind the columns of an item, whether it is deleted."""

_spell = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


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
    came: str | datetime
    came_by: str | None


class KeptVersion(NamedTuple):
    """A row of `memory_versions`; what the next version has too is `None`."""

    id: str
    version: int
    content: str | None
    memory_type: str | None
    """Without it the row only tells when and by whom the next version was written."""
    status: str | None
    metadata: str | None
    extra_json: str | None
    created_at: str | datetime
    updated_at: str | datetime
    deleted: int | None
    ended_at: str | datetime
    ended_by: str | None


class StoredRecord(Record):
    """A record as it was read; the item and its versions are made when they are asked for."""

    __slots__ = ("_times", "came", "past", "row")

    def __init__(
        self,
        row: Sequence[Any],
        past: Sequence[Sequence[Any]] = (),
        came: str | datetime | None = None,
        recorded_by: str | None = None,
    ) -> None:
        """*row* holds the columns `READ`, and whether it is deleted; so do those of *past*.

        These also tell when and by whom they were ended. *came* is `recorded_at` as it was read.
        """
        self.row = row
        self.past = past
        self._item: MemoryItem | None = None
        self._versions: tuple[PastVersion, ...] | None = None
        self._line: str | None = None
        self.deleted = bool(row[DELETED])
        self._times: tuple[str, str] | None = None
        self.came = came
        self.recorded_by = recorded_by

    @property
    def recorded_at(self) -> datetime | None:  # type: ignore[override]  # nobody writes it
        """When the store wrote the first version, where it has noted that."""
        return None if self.came is None else moment(self.came)

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

    @property
    def ends_at(self) -> datetime | None:
        """When the item is over."""
        return super().ends_at if self.row[5].startswith(ENDS) else None

    def _spelled(self) -> str:
        # Kept, as a target is often given what the line says.
        self._times = times = _times(self.row)
        item = None if times is None else _plain_item(self.row, times)
        if item is None or self.recorded_by is not None:
            return super()._spelled()
        deleted = '"deleted":true,' if self.deleted else ""
        came = ""
        if self.came is not None:
            self.came = spell_instant(self.came)
            came = f',"recorded_at":"{self.came}"'
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
        created, updated = self._times or row[6:8]
        return Kept(
            row[0], row[1], row[2], row[3], who[0], "{}", created, updated, row[DELETED],
            row[VERSION],
        )  # fmt: skip

    def plain_past(self) -> list[KeptVersion] | None:
        """Return what is written of the versions of a plain item, if these are plain, too."""
        rows: list[KeptVersion] = []
        newer = self.row
        for row in reversed(self.past):
            who = _plain_scope(row)
            if who is None:
                return None
            is_whole = user_of_row(row[4]) != user_of_row(newer[4])
            content = None if row[1] == newer[1] and not is_whole else row[1]
            extra = "{}" if is_whole else None
            rows.append(
                KeptVersion(
                    row[0], row[VERSION], content, row[2], row[3], who[0], extra, row[6], row[7],
                    row[DELETED], row[-2], row[-1],
                )
            )  # fmt: skip
            newer = row
        return rows


def _plain_scope(row: Sequence[Any]) -> tuple[str, str] | None:
    """Return the metadata of a row with nothing unusual in it; else `None`."""
    if row[5] != "{}" or row[2] not in _KINDS or type(row[1]) is not str or len(row[4]) >= 512:
        return None
    return _spellings(row[4])


@lru_cache(maxsize=1024)
def user_of_row(metadata: str) -> str | None:
    """Return the user whom the metadata of a row names."""
    owner = json.loads(metadata).get("user_id")
    return owner if isinstance(owner, str) else None


@lru_cache(maxsize=1024)
def _spellings(metadata: str) -> tuple[str, str] | None:
    """Return plain metadata as a row has it, and as a record does; rows repeat them."""
    plain = _plain(metadata, "{}")
    if plain is None or plain[1]:
        return None
    who = usual_metadata(*(plain[0][name] for name in SCOPE_FIELDS))
    return who, _spell(json.loads(who))


def _plain_item(row: Sequence[Any], times: tuple[str, str]) -> str | None:
    """Return what a record says of an item with nothing unusual in it; else `None`."""
    who = _plain_scope(row)
    if who is None:
        return None
    created, updated = times
    return (
        f'{{"content":{_quoted(row[1])},"created_at":"{created}","id":{_quoted(row[0])},'
        f'"memory_type":"{row[2]}","metadata":{who[1]},"status":"{row[3]}",'
        f'"updated_at":"{updated}","version":{row[VERSION]}}}'
    )


def _times(row: Sequence[Any]) -> tuple[str, str] | None:
    """Return both times of a row as stores write them; `None` if one of them is unusual."""
    created, updated = row[6], row[7]
    at = _spelled_instant(created)
    changed = at if created == updated else _spelled_instant(updated)
    return None if at is None or changed is None else (at, changed)


def _plain_version(row: Sequence[Any]) -> str | None:
    times = _times(row)
    item = None if times is None else _plain_item(row, times)
    if item is None:
        return None
    deleted = '"deleted":true,' if row[DELETED] else ""
    by = "" if row[-1] is None else f'"ended_by":{_spell(row[-1])},'
    return f'{{{deleted}"ended_at":"{spell_instant(row[-2])}",{by}"item":{item}}}'


def _spelled_instant(value: str | datetime) -> str | None:
    """Return a time of a row as stores write it; `None` if there is something unusual in it."""
    if isinstance(value, str):
        return value if value[10:11] == "T" and value[26:] == "+00:00" else None
    return value.isoformat(timespec="microseconds") if value.tzinfo is UTC else None


def spell_instant(value: str | datetime) -> str:
    """Return a time of a row as stores write it."""
    return _spelled_instant(value) or iso(moment(value))


def moment(value: str | datetime) -> datetime:
    """Return a time of a row."""
    return to_utc(datetime.fromisoformat(value) if isinstance(value, str) else value)
