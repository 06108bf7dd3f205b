"""Merging a record into a store: whether it continues the history that is stored.

Two histories of one item are one if they tell the same of every version that both have, and the
newest of the store's is among the record's. Then the record is a continuation: it may take the
place of what is there. Else the store's item went on by itself, and stays.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from orbiter.memory.model.records import PastVersion, Record

__all__ = ["is_expired", "joined"]

_Versions = Mapping[int, PastVersion]


def joined(stored: Record, incoming: Record, *, keeps_versions: bool = True) -> Record | None:
    """Return the one history of both, with the versions that either has; `None` if it is not one.

    *keeps_versions* tells whether *stored* would know an earlier version if there was one.
    """
    old, new = _by_number(stored), _by_number(incoming)
    if not _continues(stored, incoming, new, keeps_versions=keeps_versions):
        return None
    versions: dict[int, PastVersion] = {**old, **new}
    for number in old.keys() & new.keys():
        if (same := _same(old[number], new[number])) is None:
            return None
        versions[number] = same
    begun = _begun(stored, incoming)
    if begun is None:
        return None
    return Record(
        incoming.item,
        deleted=incoming.deleted,
        versions=[versions[number] for number in sorted(versions)],
        recorded_at=begun[0],
        recorded_by=begun[1],
    )


def is_expired(record: Record) -> bool:
    """Tell whether the item of a record has ended: then it is gone, whatever still holds it."""
    return record.ends_at is not None and record.ends_at <= datetime.now(UTC)


def _continues(stored: Record, incoming: Record, new: _Versions, *, keeps_versions: bool) -> bool:
    """Tell whether what is there is the same version in *incoming*, or an earlier one of it."""
    number = stored.item.version
    if number == incoming.item.version:
        return stored.deleted == incoming.deleted and stored.item == incoming.item
    if number in new:
        past = new[number]
        return stored.deleted == past.deleted and stored.item == past.item
    # A store that keeps no versions cannot tell what it was. It was this if nobody has changed
    # what is there, and both were made in the same microsecond.
    is_untouched = not stored.versions if keeps_versions else number == 1
    made = stored.item.created_at == incoming.item.created_at
    return number < incoming.item.version and is_untouched and made and not stored.deleted


def _same(old: PastVersion, new: PastVersion) -> PastVersion | None:
    """Return what both say of a version; `None` if they do not agree."""
    if (old.item, old.deleted, old.ended_at) != (new.item, new.deleted, new.ended_at):
        return None
    if None not in (old.ended_by, new.ended_by) and old.ended_by != new.ended_by:
        return None
    return replace(new, ended_by=new.ended_by or old.ended_by)


def _begun(stored: Record, incoming: Record) -> tuple[datetime | None, str | None] | None:
    """Return when and by whom the first version of both was written; `None` if they differ."""
    first, second = (record.items[0].version for record in (stored, incoming))
    if first != second:
        record = stored if first < second else incoming
        return record.recorded_at, record.recorded_by
    times = stored.recorded_at, incoming.recorded_at
    if None not in times and times[0] != times[1]:
        return None
    return times[0] or times[1], stored.recorded_by or incoming.recorded_by


def _by_number(record: Record) -> dict[int, PastVersion]:
    return {past.item.version: past for past in record.versions}
