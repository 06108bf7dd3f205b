"""What becomes of a batch of an import: each thing is new, changed, here already, or forgotten.

What is new in a batch is stored as one step; what is stored stays when a later batch fails, and is
found again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orbiter.memory.agent.runtime import Store, keeps_versions
from orbiter.memory.errors import VersionConflict
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query
from orbiter.memory.transfer.reader import IMPORTED, ReadItem
from orbiter.memory.transfer.report import Report

__all__ = ["store_batch"]


@dataclass
class _Plan:
    """What becomes of the things of a batch, by what the store holds."""

    new: dict[str, ReadItem] = field(default_factory=dict)
    changed: list[tuple[ReadItem, MemoryItem]] = field(default_factory=list)
    """With what is there of each."""
    unchanged: int = 0
    forgotten: int = 0
    twice: list[ReadItem] = field(default_factory=list)
    """What stands under a name that something else in the batch has."""


async def store_batch(
    store: Store, scope: MemoryMetadata, batch: Sequence[ReadItem], report: Report
) -> tuple[list[MemoryItem], list[MemoryItem]]:
    """Store what is new or changed; return all that was written, and what was there before.

    What is new is one step, and only if it is new: who imports the same at once writes no second
    version. What has changed is written over what was looked at.
    """
    own = scope if Query(metadata=scope).wanted else None
    plan = await _plan(store, own, batch)
    while plan.new and not await store.insert([one.item for one in plan.new.values()]):
        before, plan = plan.new.keys(), await _plan(store, own, batch)
        if plan.new.keys() == before:  # no one of ours has come: an id is another's
            await store.add_many([one.item for one in plan.new.values()], within=own)
            break
    are_ours = await asyncio.gather(
        *(_update(store, own, one, there) for one, there in plan.changed)
    )
    updated = [
        one.item for (one, _), is_ours in zip(plan.changed, are_ours, strict=True) if is_ours
    ]
    written = [*(one.item for one in plan.new.values()), *updated]
    report.stored += len(plan.new)
    report.updated += len(updated)
    report.unchanged += plan.unchanged + len(plan.changed) - len(updated)
    report.skipped += plan.forgotten + len(plan.twice)
    report.forgotten += plan.forgotten
    for one in plan.twice:
        report.complain(one.place, "another memory has the same name")
    return written, updated


async def _plan(store: Store, own: MemoryMetadata | None, batch: Sequence[ReadItem]) -> _Plan:
    """Tell what is new in a batch, what has changed, and what stays as it is."""
    ids = list({one.item.id for one in batch})
    wanted = {"id": {"$in": ids}}
    # First: what another stores meanwhile is then found, and not taken for forgotten.
    used = set() if keeps_versions(store) else await store.used_ids(ids)
    stored = await store.search(metadata=own, where=wanted, limit=len(batch))
    there = {item.id: item for item in stored}
    forgotten = used - there.keys()
    if keeps_versions(store):
        gone = await store.search(metadata=own, where=wanted, limit=len(batch), deleted=True)
        forgotten = {item.id for item in gone}
    plan, seen = _Plan(), dict[str, str]()
    for one in batch:
        item_id, before = one.item.id, there.get(one.item.id)
        if item_id in seen:
            if seen[item_id] == one.digest:
                plan.unchanged += 1
            else:
                plan.twice.append(one)
        elif before is not None and before.metadata.extra.get(IMPORTED) == one.digest:
            plan.unchanged += 1
        elif item_id in forgotten:
            plan.forgotten += 1
        else:
            seen[item_id] = one.digest
            if before is None:
                plan.new[item_id] = one
            else:
                plan.changed.append((one, before))
    return plan


async def _update(
    store: Store, own: MemoryMetadata | None, one: ReadItem, there: MemoryItem | None
) -> bool:
    """Write what a file says over what is there; tell whether nobody else has."""
    while there is not None and there.metadata.extra.get(IMPORTED) != one.digest:
        # The rest is the file's; `created_at` is kept by the store.
        one.item.__dict__["status"] = there.status
        one.item.__dict__["updated_at"] = datetime.now(UTC)
        try:
            await store.add(one.item, expected_version=there.version, within=own)
        except VersionConflict:
            there = await store.get(one.item.id)
        else:
            return True
    return False
