"""Store of LangGraph: values as key-value entries of a scope, found again by recall.

An entry is the truth. A memory beside it is indexed by those of its texts that are to be found, or
several are if there is much of that. They are written before the entry and named in it: one that no
entry names is never returned.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
)

from orbiter.memory.agent import KeyValue
from orbiter.memory.errors import ItemNotFoundError, QueryError, VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls, shielded, write_in_steps
from orbiter.memory.integrations._langgraph_filters import matches, texts_within
from orbiter.memory.model.items import INDEXED_BY, MemoryItem, MemoryMetadata
from orbiter.memory.model.key_value import Delete, Entry, EntryPath, Put, check_changes
from orbiter.memory.recall import RecallMode

__all__ = ["OrbiterStore"]

_ROOT: EntryPath = ("langgraph", "store")
_PAGE = 1_000
_LONGEST = 100_000
"""Characters of a text that are indexed, and of all texts of one memory."""

_MAX_TEXTS = 64
"""Texts of one memory: each has a place of its own in the index of every store."""

_NAMESPACES, _KEY = "langgraph_namespaces", "langgraph_key"
"""What a memory has in `metadata.extra`: its key, and its namespace after all it begins with."""

_Name = tuple[EntryPath, str]


class OrbiterStore(BaseStore):
    """A store on the handle of a scope: `builder.compile(store=OrbiterStore(ann))`.

    With an *index*, such as `{"fields": ["text"]}`, texts of values are also memories of the scope,
    and `search(…, query=…)` finds them by recall, in the *mode* that is given. The model is that of
    the memory, so the index names none. *ttl* is as for every store of LangGraph, in minutes.
    """

    supports_ttl = True

    def __init__(
        self,
        handle: AnyHandle,
        *,
        index: IndexConfig | None = None,
        mode: RecallMode = "hybrid",
        ttl: TTLConfig | None = None,
    ) -> None:
        if index and index.get("embed") is not None:
            raise QueryError(
                "the model of an `OrbiterStore` is that of its memory: give it to "
                "`AgentMemory(embeddings=…)`, and leave `embed` out of the index"
            )
        self._calls = Calls(handle, type(self).__name__)
        self._fields = None if index is None else (_fields_of(index) or ["$"])
        self._mode: RecallMode = mode
        self.ttl_config = ttl

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do all operations: those that read see what was there before those that write."""
        return await self._calls.wait(self._batch(_checked(ops)))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do all operations: those that read see what was there before those that write."""
        return self._calls.run(self._batch(_checked(ops)))

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        results: list[Result] = [None] * len(ops)
        gets = [(at, op) for at, op in enumerate(ops) if isinstance(op, GetOp)]
        for (at, _), item in zip(gets, await self._get([op for _, op in gets]), strict=True):
            results[at] = item
        for at, op in enumerate(ops):
            if isinstance(op, SearchOp):
                results[at] = await self._search(op)
            elif isinstance(op, ListNamespacesOp):
                results[at] = await self._list_namespaces(op)
        # The last one for a key counts.
        puts = {_name(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        if puts:
            await shielded(self._put(puts))  # memories and entries are two steps, done or not
        return results

    @property
    def _kv(self) -> KeyValue:
        return self._calls.handle.kv

    # Reading

    async def _get(self, ops: Sequence[GetOp]) -> list[Item | None]:
        if not ops:
            return []
        names = [_name(op.namespace, op.key) for op in ops]
        entries = await self._entries(names)
        found = [entries.get(name) for name in names]
        pairs = zip(ops, found, strict=True)
        await self._refresh([entry for op, entry in pairs if entry and op.refresh_ttl])
        return [None if entry is None else _item(entry) for entry in found]

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        wanted = op.offset + op.limit
        ranked: dict[_Name, tuple[Entry, float | None]] = {}
        if op.query and self._fields is not None:
            ranked = await self._recall(op, wanted)
        if len(ranked) < wanted:
            for entry in await self._newest(op, wanted):
                ranked.setdefault((entry.path, entry.key), (entry, None))
        chosen = list(ranked.values())[op.offset : wanted]
        if op.refresh_ttl:
            await self._refresh([entry for entry, _ in chosen])
        return [_search_item(entry, score) for entry, score in chosen]

    async def _recall(self, op: SearchOp, wanted: int) -> dict[_Name, tuple[Entry, float | None]]:
        """Return at least *wanted* entries with their scores, the best first, if there are."""
        within: dict[str, object] = {"$exists": True}
        if op.namespace_prefix:
            within = {"$contains": ".".join(op.namespace_prefix)}
        count = max(50, 4 * wanted)
        while True:
            # Its search puts entries into an order, and leaves out none.
            hits = await self._calls.handle.recall(
                str(op.query),
                k=count,
                mode=self._mode,
                where={_NAMESPACES: within},
                min_relevance=0,
            )
            scores = {
                item.id: (name, hit.score if self._mode == "meaning" else hit.relevance)
                for hit in hits
                for item in (hit.item, *hit.repeats)
                if (name := _named_by(item)) is not None
            }
            entries = await self._entries({name for name, _ in scores.values()})
            ranked: dict[_Name, tuple[Entry, float | None]] = {}
            for id, (name, score) in scores.items():
                entry = entries.get(name)
                if entry and id in _stored(entry)["items"] and _is_wanted(entry, op):
                    ranked.setdefault(name, (entry, score))
            if len(ranked) >= wanted or len(hits) < count:
                return ranked
            count *= 4

    async def _entries(self, names: Iterable[_Name]) -> dict[_Name, Entry]:
        named = list(names)
        entries = await self._kv.get_many(named) if named else []
        pairs = zip(named, entries, strict=True)
        return {name: entry for name, entry in pairs if entry and _is_ours(entry)}

    async def _newest(self, op: SearchOp, wanted: int) -> list[Entry]:
        """Return at least *wanted* entries, those that were put last first, if there are."""
        path = (*_ROOT, *op.namespace_prefix)
        count, texts = 16 * wanted if op.filter else wanted, texts_within(op.filter or {})
        while True:
            page = await self._kv.list(path, newest=True, limit=count)
            entries = [
                entry
                for entry in page
                if all(text in entry.value for text in texts)
                and _is_ours(entry)
                and _is_wanted(entry, op)
            ]
            if len(entries) >= wanted or len(page) < count:
                return entries
            # As many as are likely to do, by what this page had, and some more.
            likely = 3 * count * wanted // (2 * len(entries)) if entries else 8 * count
            count = min(max(likely, 2 * count), 8 * count)

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        namespaces: dict[tuple[str, ...], None] = {}
        last: EntryPath | None = None
        start = (*_ROOT, *_literal_prefix(conditions))
        while page := await self._kv.paths(start, after=last, limit=_PAGE):
            for path in page:
                namespace = path[len(_ROOT) :]
                if all(_fits(namespace, condition) for condition in conditions):
                    namespaces.setdefault(namespace[: op.max_depth])
            if len(namespaces) >= op.offset + op.limit or len(page) < _PAGE:
                break
            last = page[-1]
        return list(namespaces)[op.offset : op.offset + op.limit]

    async def _refresh(self, entries: Sequence[Entry]) -> None:
        """Have the time of entries begin again, and that of their memories if it is short."""
        ending = [entry for entry in entries if entry.expires_at is not None]
        if not ending:
            return
        await self._kv.touch([(entry.path, entry.key) for entry in ending])
        for entry in ending:
            stored = _stored(entry)
            lasts = timedelta(minutes=stored["ttl"])
            for id in stored["items"]:
                item = await self._calls.handle.get(id)
                # Once in that time, not at every read: each is a version of the memory.
                if item and item.expires_at and item.expires_at < datetime.now(UTC) + lasts:
                    await self._calls.handle.update(id, expires=2 * lasts)

    # Writing

    async def _put(self, puts: Mapping[_Name, PutOp]) -> None:
        items = {name: self._items(op) for name, op in puts.items()}
        changes = {name: _change(name, op, items[name]) for name, op in puts.items()}
        check_changes([make(None) for make in changes.values()])
        if self._fields is None:
            await write_in_steps(self._kv, [make(None) for make in changes.values()])
            return
        every = [item for each in items.values() for item in each]
        if every:
            await self._calls.handle.remember_many(every)
        try:
            before = await self._write(changes)
        except Exception:  # whatever it was: memories without their entries are taken back
            await self._remove([item.id for item in every])
            raise
        await self._remove([id for entry in before for id in _stored(entry)["items"]])

    async def _write(
        self, changes: Mapping[_Name, Callable[[int | None], Put | Delete]]
    ) -> list[Entry]:
        """Make changes over what is there; return that, as it has memories to be removed."""
        while True:
            before = await self._entries(changes)
            versions = {name: entry.version for name, entry in before.items()}
            made = [make(versions.get(name, 0)) for name, make in changes.items()]
            try:
                await write_in_steps(self._kv, made)
            except VersionConflict:  # somebody else was first
                continue
            return list(before.values())

    def _items(self, op: PutOp) -> list[MemoryItem]:
        """Return the memory of what is to be found of a value; several if that is much."""
        if self._fields is None or op.value is None or op.index is False:
            return []
        prefixes = [".".join(op.namespace[: at + 1]) for at in range(len(op.namespace))]
        extra = {_NAMESPACES: prefixes, _KEY: op.key, "source": "langgraph"}
        # As long again as the entry, so that a read of it need not always prolong them.
        end = op.ttl and datetime.now(UTC) + timedelta(minutes=2 * op.ttl)
        fields = self._fields if op.index is None else op.index
        texts = [
            readable[:_LONGEST]
            for field in fields
            for text in get_text_at_path(op.value, field)
            if (readable := _readable(text)).strip()
        ]
        return [
            MemoryItem(
                content="\n\n".join(some),
                metadata=MemoryMetadata(
                    extra=extra if len(some) == 1 else {**extra, INDEXED_BY: some}
                ),
                expires_at=end or None,
            )
            for some in _grouped(dict.fromkeys(texts))
        ]

    async def _remove(self, ids: Sequence[str]) -> None:
        """Have memories be found no more, and soon removed for good, which only what expires is."""
        for id in ids:
            try:
                await self._calls.handle.update(id, expires=timedelta(seconds=1))
                await self._calls.handle.forget(id)
            except ItemNotFoundError:
                continue


def _fields_of(index: Mapping[str, Any]) -> list[str] | None:
    fields: list[str] | None = index.get("fields") or index.get("text_fields")
    return fields


def _checked(ops: Iterable[Op]) -> list[Op]:
    """Return operations whose namespaces can be: also those that no method of the base checked."""
    checked = list(ops)
    for op in checked:
        if isinstance(op, SearchOp):
            paths = [op.namespace_prefix]
        elif isinstance(op, ListNamespacesOp):
            paths = [condition.path for condition in op.match_conditions or ()]
        else:
            paths = [op.namespace]
        labels: list[object] = [label for path in paths for label in path]
        for label in labels:
            if not isinstance(label, str) or not label or "." in label or "\0" in label:
                raise InvalidNamespaceError(
                    f"invalid namespace label {label!r}: labels are texts that are not empty, "
                    "without periods and U+0000"
                )
    return checked


def _name(namespace: tuple[str, ...], key: str) -> _Name:
    return (*_ROOT, *namespace), str(key)


def _named_by(item: MemoryItem) -> _Name | None:
    """Return the entry that a memory names; `None` if it is not one of ours."""
    namespaces, key = (item.metadata.extra.get(name) for name in (_NAMESPACES, _KEY))
    if not isinstance(namespaces, list) or not namespaces or not isinstance(key, str):
        return None
    last = namespaces[-1]
    path = tuple(last.split(".")) if isinstance(last, str) else ()
    return _name(path, key) if path and all(path) else None


def _change(
    name: _Name, op: PutOp, items: Sequence[MemoryItem]
) -> Callable[[int | None], Put | Delete]:
    """Return what makes the change over the version that is expected."""
    path, key = name

    def change(expected: int | None) -> Put | Delete:
        if op.value is None:
            return Delete(path, key, expected)
        stored = {"value": op.value, "items": [item.id for item in items], "ttl": op.ttl}
        seconds = None if op.ttl is None else 60 * op.ttl
        return Put(path, key, json.dumps(stored).encode(), seconds, expected)

    return change


def _grouped(texts: Iterable[str]) -> list[list[str]]:
    """Return texts as memories take them: none is left out, however many there are."""
    groups: list[list[str]] = []
    size = 0
    for text in texts:
        if not groups or size + len(text) > _LONGEST or len(groups[-1]) == _MAX_TEXTS:
            groups.append([])
            size = 0
        groups[-1].append(text)
        size += len(text)
    return groups


def _readable(text: str) -> str:
    """Return a text without what no memory can hold; the value keeps it."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _stored(entry: Entry) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(entry.value)
    return stored


def _is_ours(entry: Entry) -> bool:
    """Tell whether an entry is one that this store wrote; anybody may put others at its path."""
    try:
        stored: object = json.loads(entry.value)
    except (ValueError, RecursionError):
        return False
    if not isinstance(stored, dict) or not isinstance(stored.get("value"), dict):
        return False
    items, ttl = stored.get("items"), stored.get("ttl")
    is_listed = isinstance(items, list) and all(isinstance(id, str) for id in items)
    return is_listed and isinstance(ttl, int | float | None)


def _is_wanted(entry: Entry, op: SearchOp) -> bool:
    return not op.filter or matches(_stored(entry)["value"], op.filter)


def _item(entry: Entry) -> Item:
    return Item(
        value=_stored(entry)["value"],
        key=entry.key,
        namespace=entry.path[len(_ROOT) :],
        created_at=entry.created_at,
        updated_at=entry.updated_at,
    )


def _search_item(entry: Entry, score: float | None) -> SearchItem:
    return SearchItem(
        value=_stored(entry)["value"],
        key=entry.key,
        namespace=entry.path[len(_ROOT) :],
        created_at=entry.created_at,
        updated_at=entry.updated_at,
        score=score,
    )


def _literal_prefix(conditions: Iterable[MatchCondition]) -> tuple[str, ...]:
    """Return the labels that every match begins with, up to the first `*`."""
    for condition in conditions:
        if condition.match_type == "prefix":
            labels = tuple(condition.path)
            return labels[: labels.index("*")] if "*" in labels else labels
    return ()


def _fits(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    is_prefix = condition.match_type == "prefix"
    part = namespace[: len(path)] if is_prefix else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
