"""`OrbiterStorage`: the records of CrewAI's `Memory`, kept with the memories of a handle.

A record is kept exactly, with its vector. What it says is also a memory of the handle, for recall
and the dashboard: one that is forgotten there is no record any more, and an edited one says what
it says now. Private records are in no other place: they are for their source alone.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent import KeyValue
from orbiter.memory.errors import VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls, list_all
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.key_value import MAX_CHANGES, Delete, Entry, Put

try:
    from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
    from crewai.memory.types import MemoryRecord, ScopeInfo
except ModuleNotFoundError as exc:
    raise missing_extra("`OrbiterStorage` needs CrewAI", "crewai") from exc

import numpy as np

__all__ = ["OrbiterStorage"]

_ROOT = ("crewai",)
_RECORDS = ("crewai", "records")
_DIMENSION = "dimension"
_BATCH = 500
_VALUES = "<f8"
"""How a vector is kept: exactly."""


class _Row(NamedTuple):
    """A record as it is stored, and the id of the memory that says what it says."""

    entry: Entry
    record: MemoryRecord
    item_id: str | None


class OrbiterStorage:
    """The records of one handle, for `Memory(storage=…)`.

    *handle* is of `orbiter.memory.sync`, or an async one whose event loop runs in another thread.
    With *remember* false, no record is a memory of the handle.
    """

    def __init__(self, handle: AnyHandle, *, remember: bool = True) -> None:
        self._calls = Calls(handle, "OrbiterStorage")
        self._remember = remember

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records, over those that have the same id."""
        self._calls.run(self._save(records))

    async def asave(self, records: list[MemoryRecord]) -> None:
        """Store records, over those that have the same id."""
        await self._calls.wait(self._save(records))

    def update(self, record: MemoryRecord) -> None:
        """Store a record over the one that has the same id."""
        self._calls.run(self._save([record]))

    def touch_records(self, record_ids: list[str]) -> None:
        """Note that records were read now."""
        self._calls.run(self._touch(record_ids))

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return the records whose vectors are most similar, best first, with the cosine."""
        wanted = _Filter(scope_prefix, categories, metadata_filter)
        return self._calls.run(self._search(query_embedding, wanted, limit, min_score))

    async def asearch(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return the records whose vectors are most similar, best first, with the cosine."""
        wanted = _Filter(scope_prefix, categories, metadata_filter)
        return await self._calls.wait(self._search(query_embedding, wanted, limit, min_score))

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Remove the records that meet all conditions for good, and forget what they say.

        An empty list of ids names no record, so that none is removed.
        """
        wanted = _Filter(scope_prefix, categories, metadata_filter, record_ids, older_than)
        return self._calls.run(self._delete(wanted))

    async def adelete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Remove the records that meet all conditions for good, and forget what they say."""
        wanted = _Filter(scope_prefix, categories, metadata_filter, record_ids, older_than)
        return await self._calls.wait(self._delete(wanted))

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return a record, or `None`."""
        rows = self._calls.run(self._named([record_id]))
        return rows[0].record if rows else None

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return the records of a scope and those below it, newest first."""
        if limit <= 0 or offset < 0:
            return []
        records = self._all(scope_prefix)
        records.sort(key=lambda record: _instant(record.created_at), reverse=True)
        return records[offset : offset + limit]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return what there is in a scope and below it."""
        records = self._all(scope)
        times = sorted((record.created_at for record in records), key=_instant)
        return ScopeInfo(
            path=scope.rstrip("/") or "/",
            record_count=len(records),
            categories=sorted({each for record in records for each in record.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=_children(records, scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes directly below one."""
        return _children(self._all(parent), parent)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return the categories of a scope, and how many records have each."""
        return Counter(each for record in self._all(scope_prefix) for each in record.categories)

    def count(self, scope_prefix: str | None = None) -> int:
        """Return how many records there are in a scope and below it."""
        return len(self._all(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Remove the records of a scope and below it for good, and forget what they say."""
        self._calls.run(self._reset(scope_prefix))

    # On the handle's own loop

    @property
    def _kv(self) -> KeyValue:
        return self._calls.handle.kv

    def _all(self, scope: str | None) -> list[MemoryRecord]:
        return [row.record for row in self._calls.run(self._rows(_Filter(scope)))]

    async def _rows(self, wanted: "_Filter") -> list[_Row]:
        rows = [_row(entry) for entry in await list_all(self._kv, _RECORDS)]
        return await self._still_there([row for row in rows if wanted.matches(row.record)])

    async def _named(self, ids: Sequence[str]) -> list[_Row]:
        entries = await self._kv.get_many([(_RECORDS, each) for each in ids]) if ids else []
        return await self._still_there([_row(entry) for entry in entries if entry is not None])

    async def _still_there(self, rows: Sequence[_Row]) -> list[_Row]:
        """Return the rows but for those whose memory was forgotten, as they were edited."""
        ids = [row.item_id for row in rows if row.item_id is not None]
        contents: dict[str, str] = {}
        for start in range(0, len(ids), _BATCH):
            some = ids[start : start + _BATCH]
            page = await self._calls.handle.list(where={"id": {"$in": some}}, limit=len(some))
            contents |= {item.id: item.content for item in page}
        for row in rows:
            if row.item_id in contents:
                row.record.content = contents[row.item_id]
        return [row for row in rows if row.item_id is None or row.item_id in contents]

    async def _save(self, records: Iterable[MemoryRecord]) -> None:
        last = list({record.id: record for record in records}.values())
        for start in range(0, len(last), MAX_CHANGES // 2):
            await self._save_some(last[start : start + MAX_CHANGES // 2])

    async def _save_some(self, records: Sequence[MemoryRecord]) -> None:
        size = next((len(each.embedding) for each in records if each.embedding), None)
        for record in records:
            if size is not None and record.embedding:
                _check_dimension(size, record.embedding)
        changes: list[Put | Delete] = []
        if size is not None and await self._check_dimension(size):
            changes.append(Put(_ROOT, _DIMENSION, str(size).encode(), expected_version=0))
        entries = await self._kv.get_many([(_RECORDS, record.id) for record in records])
        old = {entry.key: _row(entry).item_id for entry in entries if entry is not None}
        items = [
            _item(record, old.get(record.id)) if self._remember else None for record in records
        ]
        for record, item in zip(records, items, strict=True):
            value = _value(record, None if item is None else item.id)
            changes.append(Put(_RECORDS, record.id, value))
        # Before their ids are lost: what is private now, or cannot be a memory, is none any more.
        kept = {item.id for item in items if item is not None}
        await self._forget([each for each in old.values() if each not in kept])
        # The memories first: a record whose memory is missing would count as forgotten.
        if said := [item for item in items if item is not None]:
            await self._calls.handle.remember_many(said)
        try:
            await self._kv.write(changes)
        except VersionConflict:  # somebody else stored the first vector
            await self._check_dimension(size or 0)
            await self._kv.write(changes[1:])

    async def _check_dimension(self, size: int) -> bool:
        """Raise for a vector of another size than those stored; tell whether there are none."""
        entry = await self._kv.get(_ROOT, _DIMENSION)
        if entry is not None and int(entry.value) != size:
            raise EmbeddingDimensionMismatchError(int(entry.value), size)
        return entry is None

    async def _touch(self, ids: Sequence[str]) -> None:
        now = datetime.now(UTC).replace(tzinfo=None)  # as CrewAI writes times
        puts = []
        for row in await self._named(ids):
            record = row.record.model_copy(update={"last_accessed": now})
            value = _value(record, row.item_id)
            puts.append(Put(_RECORDS, row.entry.key, value, expected_version=row.entry.version))
        with suppress(VersionConflict):  # somebody else has written one of them just now
            await self._kv.write(puts)

    async def _search(
        self, vector: Sequence[float], wanted: "_Filter", limit: int, min_score: float
    ) -> list[tuple[MemoryRecord, float]]:
        await self._check_dimension(len(vector))
        entries = await list_all(self._kv, _RECORDS)
        cosines = _cosines([entry.value.partition(b"\n")[2] for entry in entries], vector)
        best = [at for at in np.argsort(-cosines, kind="stable") if cosines[at] >= min_score]
        pairs: list[tuple[MemoryRecord, float]] = []
        # To make a record costs far more than to compare its vector: only the best are made.
        step = max(4 * limit, 1)
        for start in range(0, len(best), step):
            if len(pairs) >= limit:
                break
            scores = {entries[at].key: float(cosines[at]) for at in best[start : start + step]}
            rows = [_row(entries[at]) for at in best[start : start + step]]
            rows = await self._still_there([row for row in rows if wanted.matches(row.record)])
            pairs += [(row.record, scores[row.entry.key]) for row in rows]
        return pairs[: max(limit, 0)]

    async def _delete(self, wanted: "_Filter") -> int:
        rows = await self._rows(wanted)
        deleted = 0
        for start in range(0, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            deletes = [Delete(_RECORDS, row.entry.key) for row in some]
            deleted += sum(version > 0 for version in await self._kv.write(deletes))
            await self._forget([row.item_id for row in some])
        return deleted

    async def _forget(self, item_ids: Sequence[str | None]) -> None:
        ids = [each for each in item_ids if each is not None]
        for start in range(0, len(ids), _BATCH):
            some = ids[start : start + _BATCH]
            await self._calls.handle.forget(where={"id": {"$in": some}})

    async def _reset(self, scope: str | None) -> None:
        await self._delete(_Filter(scope))
        if not (scope or "").strip("/"):
            await self._kv.clear(_ROOT)  # the next embedder may have another dimension


class _Filter(NamedTuple):
    """What records must be like; `None` is no condition, nor is what is empty but for *ids*."""

    scope: str | None = None
    categories: Collection[str] | None = None
    metadata: dict[str, Any] | None = None
    ids: Collection[str] | None = None
    older_than: datetime | None = None

    def matches(self, record: MemoryRecord) -> bool:
        path = "/" + (self.scope or "").strip("/")
        return (
            (path == "/" or f"{record.scope}/".startswith(f"{path}/"))
            and (not self.categories or not set(self.categories).isdisjoint(record.categories))
            and all(record.metadata.get(k) == v for k, v in (self.metadata or {}).items())
            and (self.ids is None or record.id in self.ids)
            and (not self.older_than or _instant(record.created_at) < _instant(self.older_than))
        )


def _cosines(vectors: Sequence[bytes], wanted: Sequence[float]) -> np.ndarray[Any, Any]:
    """Return how near each vector is to the wanted one, from 0 to 1; one that is empty has 0."""
    empty = bytes(len(wanted) * np.dtype(_VALUES).itemsize)
    joined = b"".join(each or empty for each in vectors)
    matrix = np.frombuffer(joined, dtype=_VALUES).reshape(-1, len(wanted)).astype(float)
    query = np.asarray(wanted, dtype=float)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
    cosines: np.ndarray[Any, Any] = matrix @ query / np.where(lengths > 0, lengths, 1.0)
    return cosines.clip(0.0, 1.0)


def _check_dimension(size: int, vector: Sequence[float]) -> None:
    if len(vector) != size:
        raise EmbeddingDimensionMismatchError(size, len(vector))


def _value(record: MemoryRecord, item_id: str | None) -> bytes:
    """Return a record as it is stored: the fields, and after the line its vector."""
    fields = record.model_dump(mode="json", exclude={"metadata", "embedding"})
    head = json.dumps({"item": item_id, "record": {**fields, "metadata": record.metadata}})
    vector = np.asarray(record.embedding or [], dtype=_VALUES).tobytes()
    return head.encode() + b"\n" + vector


def _row(entry: Entry) -> _Row:
    head, _, vector = entry.value.partition(b"\n")
    stored = json.loads(head)
    embedding = np.frombuffer(vector, dtype=_VALUES).tolist() or None
    return _Row(entry, MemoryRecord(**stored["record"], embedding=embedding), stored["item"])


def _item(record: MemoryRecord, item_id: str | None) -> MemoryItem | None:
    """Return what a record says as a memory, or `None` if it is private or cannot be one."""
    if record.private or not record.content.strip():
        return None
    extra = {"tags": record.categories, "importance": record.importance, "source": "crewai"}
    fields: dict[str, Any] = {} if item_id is None else {"id": item_id}
    try:
        return MemoryItem(content=record.content, metadata=MemoryMetadata(extra=extra), **fields)
    except ValueError:  # too long, or with characters that no store keeps
        return None


def _instant(time: datetime) -> datetime:
    """Return a time with its zone; CrewAI's have none and are in UTC."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _children(records: Iterable[MemoryRecord], parent: str) -> list[str]:
    """Return the scopes of records directly below *parent*."""
    prefix = f"/{parent.strip('/')}/" if parent.strip("/") else "/"
    below = {record.scope for record in records if record.scope.startswith(prefix)}
    names = {scope.removeprefix(prefix).partition("/")[0] for scope in below}
    return sorted(prefix + name for name in names if name)
