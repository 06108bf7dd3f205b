"""Items with all they were, out of a SQL store and into one, exactly and without a second copy.

Writing leaves alone what is there already, so a move that broke off is simply made again.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from orbiter.memory._checks import to_utc
from orbiter.memory.backends._rows import READ, Row, encode
from orbiter.memory.backends._sql import MAX_LIMIT, Args, Dialect, Statement, Steps
from orbiter.memory.backends._stored_records import (
    DELETED,
    VERSION,
    Kept,
    KeptVersion,
    Note,
    StoredRecord,
    moment,
)
from orbiter.memory.errors import AccessError, InvalidItemError, QueryError
from orbiter.memory.items import MemoryItem
from orbiter.memory.records import PastVersion, Record

_CAME = DELETED + 1
_by_place = itemgetter(DELETED + 3)
_OUTER = ", ".join((*READ, "deleted"))


class Keeping(ABC):
    """How one database writes records."""

    @abstractmethod
    def versions_of(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks the rows of `memory_versions` of ids."""

    @abstractmethod
    def insert(self, kept: Sequence[Kept]) -> Steps[None]:
        """Write items that are not there, in order."""

    @abstractmethod
    def replace(self, kept: Sequence[Kept]) -> Steps[None]:
        """Write items in the place of those that are there, which lose their versions."""

    @abstractmethod
    def add_past(self, versions: Sequence[KeptVersion], notes: Sequence[Note]) -> Steps[None]:
        """Write what items were, and when they came."""


# Reading


def page(
    dialect: Dialect,
    keeping: Keeping,
    wanted: Mapping[Any, str],
    after: str | None,
    limit: int,
    item_ids: Sequence[str] | None,
) -> Steps[list[StoredRecord]]:
    """Return records in the order of insertion, deleted ones included; *after* is an id."""
    args = Args(dialect)
    conditions = [*dialect.scope(dict(wanted), args), dialect.living()]
    if item_ids is not None:
        conditions.append(dialect.by_ids(args, item_ids))
    if after is not None:
        conditions.append(f"{dialect.place} > {args.bind((yield from _place(dialect, after)))}")
    tail = f"ORDER BY {dialect.place} LIMIT {min(limit, MAX_LIMIT)}"
    found = yield from _select(dialect, keeping, " AND ".join(conditions), args, tail)
    return [_within(record, wanted) for record in found] if wanted else found


def _place(dialect: Dialect, item_id: str) -> Steps[Any]:
    args = Args(dialect)
    where = dialect.by_id(args, item_id)
    rows = yield Statement(f"SELECT {dialect.place} FROM memory_items WHERE {where}", args)
    if not rows:
        raise QueryError(f"`after` names `{item_id}`, which is not stored; start anew without it")
    return rows[0][0]


def _there(
    dialect: Dialect, keeping: Keeping, item_ids: Sequence[str]
) -> Steps[list[StoredRecord]]:
    """Return what has these ids, in any order, what is over included."""
    args = Args(dialect)
    return (yield from _select(dialect, keeping, dialect.by_ids(args, item_ids), args))


def _select(
    dialect: Dialect, keeping: Keeping, where: str, args: Args, tail: str = ""
) -> Steps[list[StoredRecord]]:
    rows = yield Statement(
        f"SELECT {_OUTER}, came, came_by, place FROM (SELECT {dialect.columns}, deleted,"
        f" {dialect.place} AS place FROM memory_items WHERE {where} {tail}) AS i"
        " LEFT JOIN (SELECT id AS noted, ended_at AS came, ended_by AS came_by"
        " FROM memory_versions WHERE version = 0) AS b ON b.noted = i.id",
        args,
    )
    rows = sorted(rows, key=_by_place)  # most often they are; a database would copy them for it
    # What is at its first version has no other.
    changed = [row[0] for row in rows if row[VERSION] > 1]
    if not changed:
        return [_record(row, ()) for row in rows]
    args = Args(dialect)
    where = keeping.versions_of(args, changed)
    past = yield Statement(
        f"SELECT {dialect.columns}, deleted, ended_at, ended_by FROM memory_versions"
        f" WHERE {where} AND version > 0 ORDER BY id, version DESC",
        args,
    )
    grouped: dict[str, list[Sequence[Any]]] = {}
    for row in past:
        grouped.setdefault(row[0], []).append(row)
    return [_record(row, grouped.get(row[0], ())) for row in rows]


def _record(row: Sequence[Any], past: Sequence[Sequence[Any]]) -> StoredRecord:
    """Return a record; *past* are its earlier versions, the newest first."""
    came = row[_CAME]
    recorded = None if came is None else (moment(came), row[_CAME + 1])
    versions: list[Sequence[Any]] = []
    whole: Sequence[Any] = row
    for each in past:
        if each[2] is None:  # only tells who wrote the next, as its own version was never kept
            continue
        whole = [old if old is not None else new for old, new in zip(each, whole, strict=False)]
        whole[-1] = each[-1]
        versions.append(whole)
    return StoredRecord(row, versions[::-1], recorded)


def _within(record: StoredRecord, wanted: Mapping[Any, str]) -> StoredRecord:
    """Leave out what an item was while it was another's."""
    if not record.past:
        return record
    own = [
        row
        for row, past in zip(record.past, record.versions, strict=True)
        if _is_as(past.item, wanted)
    ]
    if len(own) == len(record.past):
        return record
    return StoredRecord(record.row, own)


def _is_as(item: MemoryItem, wanted: Mapping[Any, str]) -> bool:
    return all(getattr(item.metadata, name) == value for name, value in wanted.items())


# Writing


def put(
    dialect: Dialect,
    keeping: Keeping,
    records: Sequence[Record],
    wanted: Mapping[Any, str],
    *,
    exact_extra: bool,
) -> Steps[int]:
    """Write records, all or none; return how many were not there already, exactly so."""
    given = {record.id: record for record in records}
    for record in records if wanted else ():
        if not all(_is_as(item, wanted) for item in record.items):
            raise AccessError(f"`{record.id}` is another's; nothing was written")
    if wanted:
        yield from dialect.claim(list(given))
    yield from dialect.hold_several(list(given))
    found = yield from _there(dialect, keeping, list(given))
    there = {record.id: record for record in found}
    for record in there.values() if wanted else ():
        if not _is_as(record.item, wanted):
            raise AccessError(f"the id `{record.id}` is taken; nothing was written")
    new = [record for record in given.values() if record.id not in there]
    changed = [
        record for record in given.values() if record.id in there and record != there[record.id]
    ]
    versions: list[KeptVersion] = []
    notes: list[Note] = []
    for several, write in ((changed, keeping.replace), (new, keeping.insert)):
        if several:
            yield from write([_keep(each, versions, notes, exact_extra) for each in several])
    if versions or notes:
        yield from keeping.add_past(versions, notes)
    return len(new) + len(changed)


def _keep(
    record: Record,
    versions: list[KeptVersion],
    notes: list[Note],
    exact_extra: bool,  # noqa: FBT001 - private
) -> Kept:
    """Return what is written of an item; add what is written of its past."""
    kept = record.plain() if isinstance(record, StoredRecord) else None
    past = record.plain_past() if kept is not None and isinstance(record, StoredRecord) else None
    if kept is None or past is None:
        row = encode(record.item, exact_extra=exact_extra)
        kept = Kept(*row, int(record.deleted), record.item.version)
        past = []
        for version in reversed(record.versions):
            older = encode(version.item, exact_extra=exact_extra)
            past.append(_keep_version(version, older, row))
            row = older
    versions += past
    if record.recorded_at is not None:
        notes.append(Note(kept.id, kept.metadata, record.recorded_at, record.recorded_by))
    return kept


def _keep_version(past: PastVersion, older: Row, newer: Row) -> KeptVersion:
    return KeptVersion(
        older.id,
        past.item.version,
        None if older.content == newer.content else older.content,
        older.memory_type,
        older.status,
        older.metadata,
        None if older.extra_json == newer.extra_json else older.extra_json,
        older.created_at,
        older.updated_at,
        int(past.deleted),
        to_utc(past.ended_at),
        past.ended_by,
    )


def check_records(records: object) -> list[Record]:
    """Return *records* as a list, or raise `InvalidItemError`."""
    if not isinstance(records, Iterable):
        raise InvalidItemError(f"`records` must be a list of records, not {records!r}")
    given = list(records)
    for each in given:
        if not isinstance(each, Record):
            raise InvalidItemError(f"`records` must hold records only, not {each!r}")
    return given
