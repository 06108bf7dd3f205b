"""Records of a SQL store: items with all their versions, for export, import and migration.

Writing leaves alone what is there already, so a move that broke off is simply made again. What
went on by itself since, here, stays, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from orbiter.memory.backends.sql.dialect import Args, Dialect, RecordWriter, Statement, Steps
from orbiter.memory.backends.sql.merge import is_expired, joined
from orbiter.memory.backends.sql.operations import MAX_LIMIT
from orbiter.memory.backends.sql.rows import READ, Row, encode
from orbiter.memory.backends.sql.stored_records import (
    DELETED,
    VERSION,
    Kept,
    KeptVersion,
    Note,
    StoredRecord,
    user_of_row,
)
from orbiter.memory.errors import AccessError, InvalidItemError, QueryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.records import PastVersion, Record, Written, check_version
from orbiter.memory.model.validation import to_utc

__all__ = ["check_records", "page", "put"]

_CAME = DELETED + 1
_by_place = itemgetter(DELETED + 3)
_OUTER = ", ".join((*READ, "deleted"))


# Reading


def page(
    dialect: Dialect,
    writer: RecordWriter,
    wanted: Mapping[Any, str],
    after: str | None,
    limit: int,
    item_ids: Sequence[str] | None,
) -> Steps[list[StoredRecord]]:
    """Return records in the order of insertion, deleted ones included; *after* is an id."""
    args = Args(dialect)
    conditions = [*dialect.scope(dict(wanted), args), dialect.not_expired()]
    if item_ids is not None:
        conditions.append(dialect.by_ids(args, item_ids))
    if after is not None:
        conditions.append(f"{dialect.place} > {args.bind((yield from _place(dialect, after)))}")
    tail = f"ORDER BY {dialect.place} LIMIT {min(limit, MAX_LIMIT)}"
    records = yield from _select(dialect, writer, " AND ".join(conditions), args, tail)
    return [_within(record, wanted) for record in records] if wanted else records


def _place(dialect: Dialect, item_id: str) -> Steps[Any]:
    args = Args(dialect)
    where = dialect.by_id(args, item_id)
    rows = yield Statement(f"SELECT {dialect.place} FROM memory_items WHERE {where}", args)
    if not rows:
        raise QueryError(f"`after` names `{item_id}`, which is not stored; start again without it")
    return rows[0][0]


def _there(
    dialect: Dialect, writer: RecordWriter, item_ids: Sequence[str]
) -> Steps[list[StoredRecord]]:
    """Return what has these ids, in any order, what is over included."""
    args = Args(dialect)
    return (yield from _select(dialect, writer, dialect.by_ids(args, item_ids), args))


def _select(
    dialect: Dialect, writer: RecordWriter, where: str, args: Args, tail: str = ""
) -> Steps[list[StoredRecord]]:
    rows = yield Statement(
        f"SELECT {_OUTER}, came, came_by, place FROM (SELECT {writer.columns(dialect)}, deleted,"
        f" {dialect.place} AS place FROM memory_items WHERE {where} {tail}) AS i"
        f" {writer.arrivals}",
        args,
    )
    rows = sorted(rows, key=_by_place)  # most often they are; a database would copy them for it
    # What is at its first version has no other.
    changed = [row[0] for row in rows if row[VERSION] > 1]
    if not changed:
        return [_record(row, ()) for row in rows]
    args = Args(dialect)
    where = writer.versions_of(args, changed)
    past = yield Statement(
        f"SELECT {writer.columns(dialect)}, deleted, {writer.instant('ended_at')}, ended_by"
        f" FROM memory_versions WHERE {where} AND version > 0 ORDER BY id, version DESC",
        args,
    )
    grouped: dict[str, list[Sequence[Any]]] = {}
    for row in past:
        grouped.setdefault(row[0], []).append(row)
    return [_record(row, grouped.get(row[0], ())) for row in rows]


def _record(row: Sequence[Any], past: Sequence[Sequence[Any]]) -> StoredRecord:
    """Return a record; *past* are its earlier versions, the newest first."""
    came, came_by = row[_CAME], row[_CAME + 1]
    if not past:
        return StoredRecord(row, (), came, came_by)
    versions: list[Sequence[Any]] = []
    whole: Sequence[Any] = row
    begins: tuple[Any, Any] | None = None
    for each in past:
        if each[2] is None:  # only tells when and by whom the next was written
            begins = begins or (each[-2], each[-1])
            continue
        begins = None
        whole = [old if old is not None else new for old, new in zip(each, whole, strict=False)]
        whole[-1] = each[-1]
        versions.append(whole)
    return StoredRecord(row, versions[::-1], *(begins or (came, came_by)))


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
    before = None
    for row in record.past:
        if own and row is own[0]:
            break
        before = row
    if before is None:
        return StoredRecord(record.row, own, record.came, record.recorded_by)
    # The first that is left began when the one before it ended, whosever that was.
    return StoredRecord(record.row, own, before[-2], before[-1])


def _is_as(item: MemoryItem, wanted: Mapping[Any, str]) -> bool:
    return all(getattr(item.metadata, name) == value for name, value in wanted.items())


# Writing


def put(
    dialect: Dialect,
    writer: RecordWriter,
    records: Sequence[Record],
    wanted: Mapping[Any, str],
    *,
    exact_extra: bool,
    overwrite: bool,
) -> Steps[Written]:
    """Write records, all or none; return how many were not there already, exactly so.

    What is there is read while nobody else can change it, so what others wrote is not lost.
    """
    by_id = {record.id: record for record in records}
    for record in records if wanted else ():
        if not all(_is_as(item, wanted) for item in record.items):
            raise AccessError(f"`{record.id}` belongs to somebody else, and stays as it is")
    if wanted:
        yield from dialect.reserve(list(by_id))
    kept = _Written(by_id, exact_extra)
    taken = yield from writer.take(dialect, list(by_id), kept.item)
    others = [item_id for item_id in by_id if item_id not in taken]
    stored = (yield from _there(dialect, writer, others)) if others else []
    there = {record.id: record for record in stored}
    for record in there.values() if wanted else ():
        if not _is_as(record.item, wanted):
            raise AccessError(f"the id `{record.id}` is taken; nothing was written")
    new = [record for record in by_id.values() if record.id not in there]
    differing = [
        (there[record.id], record)
        for record in by_id.values()
        if record.id in there and record != there[record.id]
    ]
    changed, conflicts = _decided(differing, overwrite=overwrite)
    kept.change(changed)
    missing = [record for record in new if record.id not in taken]
    for several, write in ((changed, writer.replace), (missing, writer.insert)):
        if several:
            yield from write([kept.item(each.id) for each in several])
    versions, notes = kept.past([*changed, *new])
    if versions or notes:
        yield from writer.add_past(versions, notes)
    return Written(len(new) + len(changed), conflicts)


def _decided(
    differing: Sequence[tuple[Record, Record]], *, overwrite: bool
) -> tuple[list[Record], list[str]]:
    """Return what is written over what is there, and the ids of what stays as it is there."""
    changed: list[Record] = []
    conflicts: list[str] = []
    for there, record in differing:
        if overwrite or is_expired(there):
            changed.append(record)
        elif (whole := joined(there, record)) is None:
            conflicts.append(record.id)
        elif whole != there:
            changed.append(record if whole == record else whole)
    return changed, conflicts


class _Written:
    """What is written of records, made when it is asked for, and once."""

    def __init__(self, records: Mapping[str, Record], exact_extra: bool) -> None:  # noqa: FBT001
        self._records = dict(records)
        self._exact_extra = exact_extra
        self._items: dict[str, Kept] = {}
        self._past: dict[str, tuple[list[KeptVersion], list[Note]]] = {}

    def item(self, item_id: str) -> Kept:
        """Return the row of an item."""
        if item_id not in self._items:
            past = self._past[item_id] = ([], [])
            self._items[item_id] = _keep(self._records[item_id], *past, self._exact_extra)
        return self._items[item_id]

    def change(self, records: Sequence[Record]) -> None:
        """Have these written in the place of what was given for their ids."""
        for record in records:
            if self._records[record.id] is not record:
                self._records[record.id] = record
                self._items.pop(record.id, None)

    def past(self, records: Sequence[Record]) -> tuple[list[KeptVersion], list[Note]]:
        """Return what is written of the past of items whose rows were asked for."""
        versions: list[KeptVersion] = []
        notes: list[Note] = []
        for record in records:
            older, came = self._past[record.id]
            versions += older
            notes += came
        return versions, notes


def _keep(
    record: Record,
    versions: list[KeptVersion],
    notes: list[Note],
    exact_extra: bool,  # noqa: FBT001 - private
) -> Kept:
    """Return what is written of an item; add what is written of its past."""
    already = len(versions)
    kept: Kept | None = None
    past: Sequence[KeptVersion] | None = ()
    came: str | datetime | None
    if isinstance(record, StoredRecord):
        kept, came = record.plain(), record.came
        if record.past and kept is not None:
            past = record.plain_past()
    else:
        came = record.recorded_at
    if kept is None or past is None:
        row = encode(record.item, exact_extra=exact_extra)
        kept = Kept(*row, int(record.deleted), record.item.version)
        for version in reversed(record.versions):
            older = encode(version.item, exact_extra=exact_extra)
            versions.append(_keep_version(version, older, row))
            row = older
    else:
        versions += past
    numbers = [each.version for each in versions[already:]]
    first = min(numbers, default=kept.version)
    if came is not None and first == 1:
        notes.append(Note(kept.id, kept.metadata, came, record.recorded_by))
    elif came is not None:
        versions.append(_ended(kept.id, first - 1, record.items[0], came, record.recorded_by))
    if kept.version - first > len(numbers):
        versions += _gaps(record)
    return kept


def _gaps(record: Record) -> list[KeptVersion]:
    """Return rows for versions that are not known, which tell when the next ones began.

    That is not known either, but the item says when it was changed; it was not there before.
    """
    rows = []
    for past, following in zip(record.versions, record.items[1:], strict=True):
        if following.version > past.item.version + 1:
            ended = max(to_utc(past.ended_at), following.updated_at)
            rows.append(_ended(record.id, following.version - 1, following, ended))
    return rows


def _ended(
    item_id: str,
    version: int,
    following: MemoryItem,
    ended_at: str | datetime,
    ended_by: str | None = None,
) -> KeptVersion:
    """Return the row of a version of which nothing is known but when and by whom it was ended."""
    times = following.created_at, following.updated_at
    return KeptVersion(
        item_id, version, None, None, None, None, None, *times, None, ended_at, ended_by
    )


def _keep_version(past: PastVersion, older: Row, newer: Row) -> KeptVersion:
    # Another user's version may be erased by somebody who does not see this one: it stays whole.
    is_whole = user_of_row(older.metadata) != user_of_row(newer.metadata)
    return KeptVersion(
        older.id,
        past.item.version,
        None if older.content == newer.content and not is_whole else older.content,
        older.memory_type,
        older.status,
        older.metadata,
        None if older.extra_json == newer.extra_json and not is_whole else older.extra_json,
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
    checked = list(records)
    for each in checked:
        if not isinstance(each, Record):
            raise InvalidItemError(f"`records` must hold records only, not {each!r}")
        number = each.row[VERSION] if isinstance(each, StoredRecord) else each.item.version
        check_version(each.id, number)
    return checked
