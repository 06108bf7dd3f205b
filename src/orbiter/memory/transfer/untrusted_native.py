"""Import of a native file from a sender who may touch one scope alone and is not trusted.

Ids are shared by all of a store, and those that begin with `~` follow from names that others may
guess. Who could bring along any of them would learn what others have, and take ids before their
owners do. Names in a history would let one act as another. So ids that are not this scope's become
new ones, the same each time, and what is new here is signed by whoever sent it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orbiter.memory.agent.extraction_jobs import cursor_id, is_job
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.agent.summaries import _summary_id
from orbiter.memory.model.audit import silently
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import RESERVED, MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.records import PastVersion, Record
from orbiter.memory.transfer.native import MovableStore

__all__ = ["Sender", "UntrustedImport"]


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a file."""

    name: str | None
    """What is new is signed with that."""
    may_sign_for_others: bool = False
    """Whether the names in the file are believed, but for those that calls of ours sign with."""


class UntrustedImport:
    """Rewrites the records of a file as those of *scope*; let it `learn` all of them first."""

    def __init__(self, store: MovableStore, scope: MemoryMetadata, sender: Sender) -> None:
        self._store = store
        self._scope = scope
        self._sender = sender
        self._new_ids: dict[str, str] = {}

    async def learn(self, records: Sequence[Record]) -> None:
        """Find out which ids of *records* cannot stay as they are."""
        renamed = {record.id: derived_id(self._scope, "imported", record.id) for record in records}
        known = await self._known([*renamed, *renamed.values()], self._scope)
        unknown = [record for record in records if record.id not in known]
        others = await self._known([record.id for record in unknown], None)
        for record in unknown:
            new = renamed[record.id]
            # It may have been another's when it was imported before, and be free by now.
            is_not_ours = record.id.startswith(RESERVED) and not _follows_from_scope(record.item)
            if new in known or record.id in others or is_not_ours:
                self._new_ids[record.id] = new

    async def adopt(self, records: Sequence[Record]) -> list[Record]:
        """Return *records* as they may be stored here."""
        renamed = [self._renamed(record) for record in records]
        there = await self._known([record.id for record in renamed], self._scope)
        return [self._signed(record, there.get(record.id)) for record in renamed]

    async def _known(self, ids: Sequence[str], scope: MemoryMetadata | None) -> dict[str, Record]:
        if not ids:
            return {}
        with silently():  # nobody gets to see what is looked at
            found = await self._store.records(metadata=scope, item_ids=ids, limit=len(ids))
        return {record.id: record for record in found}

    # Ids

    def _renamed(self, record: Record) -> Record:
        if not self._new_ids:
            return record
        return Record(
            self._with_new_ids(record.item),
            deleted=record.deleted,
            versions=[
                PastVersion(
                    self._with_new_ids(past.item), past.deleted, past.ended_at, past.ended_by
                )
                for past in record.versions
            ],
            recorded_at=record.recorded_at,
            recorded_by=record.recorded_by,
        )

    def _with_new_ids(self, item: MemoryItem) -> MemoryItem:
        """Return *item* with what has a new id called so, itself and what it refers to."""
        changes: dict[str, Any] = {"id": self._now(item.id)}
        told: Any = item  # of fields that one kind has
        if isinstance(item, FactMemory):
            changes["source_ids"] = [self._now(each) for each in item.source_ids]
        elif is_job(item):
            changes["message_ids"] = [self._now(each) for each in told.message_ids]
            changes["last_id"] = self._now(told.last_id)
            changes["recent"] = {self._now(each): at for each, at in told.recent.items()}
        extra = item.metadata.extra
        if isinstance(origin := extra.get("forked_from"), str):
            both = {**extra, "forked_from": self._now(origin)}
            changes["metadata"] = item.metadata.model_copy(update={"extra": both})
        return item.model_copy(update=changes)

    def _now(self, item_id: str) -> str:
        return self._new_ids.get(item_id, item_id)

    # Names

    def _signed(self, record: Record, there: Record | None) -> Record:
        """Return *record* signed by its sender, but for what is here and signed already."""
        kept = {past.item.version: past.ended_by for past in there.versions} if there else {}
        first = record.items[0]
        begun_by, begun_at = self._name(record.recorded_by), record.recorded_at
        if there is not None and there.items[0].version == first.version:
            begun_by = there.recorded_by
        elif begun_by is not None and begun_at is None:  # a name stands beside a time
            begun_at = first.created_at if first.version == 1 else first.updated_at
        return Record(
            record.item,
            deleted=record.deleted,
            versions=[
                PastVersion(
                    past.item,
                    past.deleted,
                    past.ended_at,
                    kept.get(past.item.version, self._name(past.ended_by)),
                )
                for past in record.versions
            ],
            recorded_at=begun_at,
            recorded_by=begun_by,
        )

    def _name(self, given: str | None) -> str | None:
        is_believed = self._sender.may_sign_for_others and not (given or "").startswith(RESERVED)
        return given if is_believed else self._sender.name


def _follows_from_scope(item: MemoryItem) -> bool:
    """Tell whether an id of ours is one that only this item's own scope leads to."""
    scope = MemoryMetadata(**{name: getattr(item.metadata, name) for name in SCOPE_FIELDS})
    return item.id in (_summary_id(scope), cursor_id(scope))
