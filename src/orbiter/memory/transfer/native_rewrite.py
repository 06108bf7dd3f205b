"""Records of a native file before they are stored: those of another user, or of nobody we trust.

Ids are shared by all of a store, and those that begin with `~` follow from names that others may
guess. Who could bring along any of them would learn what others have, and take ids before their
owners do. Names in a history would let one act as another. So of a sender who may touch one scope
alone, ids that are not this scope's become new ones, and what is new here is signed by the sender.
What is copied from one user to another has new ids throughout: the first one's are not touched.
New ids are the same each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from orbiter.memory.agent.extraction_jobs import cursor_id, is_job
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.agent.summaries import _summary_id
from orbiter.memory.model.audit import silently
from orbiter.memory.model.derived import SummaryMemory
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import RESERVED, MemoryItem, MemoryMetadata
from orbiter.memory.model.key_value import StoredEntry
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.records import PastVersion, Record
from orbiter.memory.transfer.movable_store import MovableStore

__all__ = ["NativeRewrite", "Sender"]


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a file."""

    name: str | None
    """What is new is signed with that."""
    may_sign_for_others: bool = False
    """Whether the names in the file are believed, but for those that calls of ours sign with."""


class NativeRewrite:
    """Rewrites the records of a file as those of *scope*; let it `learn` all of them first.

    Without a *sender*, the file is believed. With *owner*, all of them are that user's, and become
    those of the scope's user.
    """

    def __init__(
        self,
        store: MovableStore,
        scope: MemoryMetadata,
        *,
        sender: Sender | None = None,
        owner: str | None = None,
    ) -> None:
        self._store = store
        self._scope = scope
        self._sender = sender
        self._owner = owner
        self._new_ids: dict[str, str] = {}
        self._dropped: set[str] = set()

    async def learn(self, records: Sequence[Record]) -> None:
        """Find out which ids of *records* cannot stay as they are."""
        if self._owner is not None:  # then none stays
            await self._find_continued(records)
            return
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

    async def _find_continued(self, records: Sequence[Record]) -> None:
        """Leave out the summary of a chat that this user has, too: it says nothing of theirs."""
        for record in records:
            new, scope = self._new_id(record.item), self._ours(_scope_of(record.item))
            is_by_scope = new in (_summary_id(scope), cursor_id(scope))
            if is_by_scope and not await self._known([new], scope):
                with silently():
                    if await self._store.records(metadata=scope, limit=1):
                        self._dropped.add(record.id)

    async def adopt(self, records: Sequence[Record]) -> list[Record]:
        """Return *records* as they may be stored here."""
        renamed = [self._renamed(each) for each in records if each.id not in self._dropped]
        sender = self._sender
        if sender is None:
            return renamed
        there = await self._known([record.id for record in renamed], self._scope)
        return [_signed(record, there.get(record.id), sender) for record in renamed]

    def adopt_entries(self, entries: Sequence[StoredEntry]) -> list[StoredEntry]:
        """Return key-value entries as those of the scope's user."""
        if self._owner is None:
            return list(entries)
        return [replace(each, scope=self._ours(each.scope)) for each in entries]

    async def _known(self, ids: Sequence[str], scope: MemoryMetadata | None) -> dict[str, Record]:
        if not ids:
            return {}
        with silently():  # nobody gets to see what is looked at
            records = await self._store.records(metadata=scope, item_ids=ids, limit=len(ids))
        return {record.id: record for record in records}

    # Ids

    def _renamed(self, record: Record) -> Record:
        if not self._new_ids and self._owner is None:
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
        changes: dict[str, Any] = {"id": self._new_id(item)}
        job: Any = item  # of fields that one kind has
        if isinstance(item, FactMemory):
            changes["source_ids"] = [self._now(each) for each in item.source_ids]
        elif isinstance(item, SummaryMemory):
            changes["covers_id"] = self._now(item.covers_id)
        elif is_job(item):
            changes["message_ids"] = [self._now(each) for each in job.message_ids]
            changes["last_id"] = self._now(job.last_id)
            changes["recent"] = {self._now(each): at for each, at in job.recent.items()}
        metadata = self._ours(item.metadata)
        if isinstance(origin := metadata.extra.get("forked_from"), str):
            both = {**metadata.extra, "forked_from": self._now(origin)}
            metadata = metadata.model_copy(update={"extra": both})
        return item.model_copy(update={**changes, "metadata": metadata})

    def _new_id(self, item: MemoryItem) -> str:
        if self._owner is not None:
            scope, ours = _scope_of(item), self._ours(_scope_of(item))
            for named in (_summary_id, cursor_id):  # they are found by their scope
                if item.id == named(scope):
                    return named(ours)
        return self._now(item.id)

    def _now(self, item_id: str) -> str:
        if self._owner is None or not item_id:
            return self._new_ids.get(item_id, item_id)
        # Whatever else the handle names: the same through each of this user's.
        user = MemoryMetadata(user_id=self._scope.user_id)
        return derived_id(user, "reassigned", self._owner, item_id)

    def _ours(self, metadata: MemoryMetadata) -> MemoryMetadata:
        """Return *metadata* with the scope's user for the owner of the file."""
        if self._owner is None:
            return metadata
        return metadata.model_copy(update={"user_id": self._scope.user_id})


def _signed(record: Record, there: Record | None, sender: Sender) -> Record:
    """Return *record* signed by its sender, but for what is here and signed already."""
    kept = {past.item.version: past.ended_by for past in there.versions} if there else {}
    first = record.items[0]
    begun_by, begun_at = _name(record.recorded_by, sender), record.recorded_at
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
                kept.get(past.item.version, _name(past.ended_by, sender)),
            )
            for past in record.versions
        ],
        recorded_at=begun_at,
        recorded_by=begun_by,
    )


def _name(name: str | None, sender: Sender) -> str | None:
    is_believed = sender.may_sign_for_others and not (name or "").startswith(RESERVED)
    return name if is_believed else sender.name


def _follows_from_scope(item: MemoryItem) -> bool:
    """Tell whether an id of ours is one that only this item's own scope leads to."""
    scope = _scope_of(item)
    return item.id in (_summary_id(scope), cursor_id(scope))


def _scope_of(item: MemoryItem) -> MemoryMetadata:
    return MemoryMetadata(**{name: getattr(item.metadata, name) for name in SCOPE_FIELDS})
