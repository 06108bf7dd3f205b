"""Records: items with all their versions, as they move between stores and into exports.

Pure values, no I/O. A record has one spelling: equal records are equal lines, byte for byte, in
whatever store they were, so a digest of the line tells whether a copy is exact.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from orbiter.memory.errors import InvalidItemError
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, SystemMemory, ToolMemory
from orbiter.memory.model.serialization import dump_item, load_item
from orbiter.memory.model.validation import check_name, to_utc

__all__ = ["MAX_VERSIONS", "PastVersion", "Record", "Written"]

MAX_VERSIONS = 2**31 - 2
"""The highest version that a record may have: every store can count on from there."""

_KNOWN = (SystemMemory, HumanMemory, AIMemory, ToolMemory)
_OWN = ("tool_calls", "tool_call_id", "tool_name", "is_error")
_KEYS = frozenset(("deleted", "item", "recorded_at", "recorded_by", "versions"))
_VERSION_KEYS = frozenset(("deleted", "ended_at", "ended_by", "item"))

_spell = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True
).encode


class Written(int):
    """How many records were written; it is a number, and knows which were left alone."""

    conflicts: tuple[str, ...]
    """Ids of items that went on by themselves in the store, and so stayed as they are."""

    def __new__(cls, written: int, conflicts: Sequence[str] = ()) -> "Written":
        """Return the number with the ids."""
        made = super().__new__(cls, written)
        made.conflicts = tuple(conflicts)
        return made


def check_version(item_id: str, version: int) -> None:
    """Raise `InvalidItemError` if no store can count on from *version*."""
    if not 1 <= version <= MAX_VERSIONS:
        raise InvalidItemError(
            f"`{item_id}` has version {version}; versions are from 1 to {MAX_VERSIONS:,}"
        )


@dataclass(frozen=True, slots=True)
class PastVersion:
    """What an item was until it was changed."""

    item: MemoryItem
    """The item as it was, with the version number it had."""
    deleted: bool
    """Whether it was soft-deleted then."""
    ended_at: datetime
    """When the store wrote the next version."""
    ended_by: str | None = None
    """Who was named as `by=` when it did."""


class Record:
    """An item, whether it is soft-deleted, and its earlier versions, oldest first.

    *recorded_at* is when the store wrote the first of these versions, where it has noted that: it
    does if the item dates itself otherwise, and if there were versions before that are not among
    these. *recorded_by* is who was named as `by=` then. A record is not
    changed once it is made.
    """

    __slots__ = ("_item", "_line", "_versions", "deleted", "recorded_at", "recorded_by")

    def __init__(
        self,
        item: MemoryItem,
        *,
        deleted: bool = False,
        versions: Sequence[PastVersion] = (),
        recorded_at: datetime | None = None,
        recorded_by: str | None = None,
    ) -> None:
        self._item: MemoryItem | None = item
        self._line: str | None = None
        self.deleted = deleted
        self._versions: tuple[PastVersion, ...] | None = tuple(versions)
        self.recorded_at = None if recorded_at is None else to_utc(recorded_at)
        self.recorded_by = recorded_by
        check_version(item.id, item.version)
        last = 0
        for past in self.versions:
            if past.item.id != item.id or not last < past.item.version < item.version:
                raise InvalidItemError(
                    f"version {past.item.version} of `{past.item.id}` is not an earlier version "
                    f"of `{item.id}`, which is at {item.version}; give the versions of one item, "
                    "in order"
                )
            last = past.item.version

    @property
    def item(self) -> MemoryItem:
        """The item as it is now."""
        assert self._item is not None  # noqa: S101 - given, unless a subclass makes it
        return self._item

    @property
    def versions(self) -> tuple[PastVersion, ...]:
        """What it was, oldest first."""
        assert self._versions is not None  # noqa: S101 - given, unless a subclass makes them
        return self._versions

    @property
    def id(self) -> str:
        """The id of the item."""
        return self.item.id

    @property
    def ends_at(self) -> datetime | None:
        """When the item is over; then it is gone, whatever still holds it."""
        end: object = self.item.expires_at
        return end if isinstance(end, datetime) else None  # a kind of item may call another so

    @property
    def items(self) -> list[MemoryItem]:
        """All that the item was, oldest first, and what it is now."""
        return [*(past.item for past in self.versions), self.item]

    @property
    def present(self) -> "Record":
        """The item alone, without what it was: all that a store without versions can hold."""
        if not self.versions and self.recorded_at is None and self.recorded_by is None:
            return self
        return Record(self.item, deleted=self.deleted)

    def to_line(self) -> str:
        """Return it as one line of JSON, without the line's end; equal records, equal lines."""
        if self._line is None:
            self._line = self._spelled()
        return self._line

    def _spelled(self) -> str:
        record: dict[str, Any] = {"item": _dump(self.item)}
        if self.deleted:
            record["deleted"] = True
        if self.recorded_at is not None:
            record["recorded_at"] = _iso(self.recorded_at)
        if self.recorded_by is not None:
            record["recorded_by"] = self.recorded_by
        if self.versions:
            record["versions"] = [_dump_version(past) for past in self.versions]
        return _spell(record)

    @classmethod
    def from_line(cls, line: str | bytes) -> "Record":
        """Return the record of a line, or raise an `InvalidItemError` that says what is wrong."""
        try:
            value = json.loads(line, parse_constant=_refuse, object_pairs_hook=_object)
            return _load(value)
        except InvalidItemError:
            raise
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "item"
            raise InvalidItemError(
                f"this is not a valid record: `{where}`: {first['msg']}"
            ) from None
        except RecursionError:
            raise InvalidItemError("this is not a valid record: it is nested too deeply") from None
        except (ValueError, TypeError) as exc:
            raise InvalidItemError(f"this is not a valid record: {exc}") from None

    @property
    def digest(self) -> str:
        """The SHA-256 of the line, in hexadecimal."""
        return hashlib.sha256(self.to_line().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return self.to_line() == other.to_line() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_line())

    def __repr__(self) -> str:
        more = ", deleted" if self.deleted else ""
        return f"Record({self.id!r}, version {self.item.version}{more})"


# Writing


def _dump(item: MemoryItem) -> dict[str, Any]:
    """Return an item as JSON; what is empty in every store alike is left out."""
    fields = dump_item(item)
    metadata = fields["metadata"]
    fields["metadata"] = {
        name: value for name, value in metadata.items() if value is not None and value != {}
    }
    if not fields["native"]:
        del fields["native"]
    if type(item) in _KNOWN:
        for name in _OWN:
            if not fields.get(name):
                fields.pop(name, None)
    return fields


def _dump_version(past: PastVersion) -> dict[str, Any]:
    version: dict[str, Any] = {"ended_at": _iso(to_utc(past.ended_at)), "item": _dump(past.item)}
    if past.deleted:
        version["deleted"] = True
    if past.ended_by is not None:
        version["ended_by"] = past.ended_by
    return version


def _iso(instant: datetime) -> str:
    return instant.isoformat(timespec="microseconds")


# Reading


def _load(value: object) -> Record:
    fields = _checked(value, _KEYS, "a record")
    versions = fields.get("versions", [])
    if not isinstance(versions, list):
        raise InvalidItemError("this is not a valid record: `versions` must be a list")
    return Record(
        _load_item(fields),
        deleted=_flag(fields),
        versions=[_load_version(each) for each in versions],
        recorded_at=_instant(fields, "recorded_at") if "recorded_at" in fields else None,
        recorded_by=_name(fields, "recorded_by"),
    )


def _load_version(value: object) -> PastVersion:
    fields = _checked(value, _VERSION_KEYS, "a version")
    return PastVersion(
        _load_item(fields),
        _flag(fields),
        _instant(fields, "ended_at"),
        _name(fields, "ended_by"),
    )


def _checked(value: object, known: frozenset[str], what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidItemError(f"this is not a valid record: {what} must be a JSON object")
    if strange := value.keys() - known:
        raise InvalidItemError(
            f"this is not a valid record: {what} has no `{min(strange)}`; perhaps a newer version "
            "of orbiter-memory wrote it"
        )
    return value


def _load_item(fields: Mapping[str, Any]) -> MemoryItem:
    item = fields.get("item")
    if not isinstance(item, dict):
        raise InvalidItemError("this is not a valid record: `item` is missing")
    for name in ("id", "content", "memory_type", "created_at", "updated_at", "version"):
        if name not in item:
            raise InvalidItemError(f"this is not a valid record: the item has no `{name}`")
    return load_item(item)


def _flag(fields: Mapping[str, Any]) -> bool:
    value = fields.get("deleted", False)
    if not isinstance(value, bool):
        raise InvalidItemError("this is not a valid record: `deleted` must be true or false")
    return value


def _instant(fields: Mapping[str, Any], name: str) -> datetime:
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidItemError(f"this is not a valid record: `{name}` must be a time")
    return to_utc(datetime.fromisoformat(value))


def _name(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidItemError(f"this is not a valid record: `{name}` must be a name")
    return check_name(value, max_chars=256)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidItemError("this is not a valid record: a key appears twice in one object")
    return fields


def _refuse(constant: str) -> object:
    raise InvalidItemError(f"this is not a valid record: {constant} is not valid JSON")
