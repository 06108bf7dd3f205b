"""Checkpointer of LangGraph: the state of each thread as key-value entries of a scope.

A checkpoint is the entry of its id at the path of its thread and namespace, and the writes of its
tasks are entries one level below. A checkpoint is written in one step, so a graph that is killed
goes on from the last one that was written whole.
"""

import builtins
import heapq
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from orbiter.memory.agent import KeyValue
from orbiter.memory.errors import VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls, write_in_steps
from orbiter.memory.model.key_value import Delete, Entry, EntryPath, Put

__all__ = ["OrbiterSaver"]

_ROOT: EntryPath = ("langgraph", "checkpoints")
_PAGE = 20
"""Entries that are read at a time; each may be a large state."""

_Typed = tuple[str, bytes]


class OrbiterSaver(BaseCheckpointSaver[str]):
    """A checkpointer on the handle of a scope: `builder.compile(checkpointer=OrbiterSaver(ann))`.

    Threads are those of that scope alone: another scope's have the same ids and never meet.
    *serde* is as for every checkpointer.
    """

    def __init__(self, handle: AnyHandle, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._calls = Calls(handle, type(self).__name__)

    # One checkpoint

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that *config* names, or the newest one of its thread."""
        return await self._calls.wait(self._get(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that *config* names, or the newest one of its thread."""
        return self._calls.run(self._get(config))

    async def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        path = _thread_path(config)
        if id := get_checkpoint_id(config):
            entry = await self._entries.get(path, id)
        else:
            entry = next(
                iter(await self._entries.list(path, deep=False, reverse=True, limit=1)), None
            )
        return None if entry is None else await self._tuple(entry, config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - all values are stored with each checkpoint
    ) -> RunnableConfig:
        """Store a checkpoint, whole; return the config that names it."""
        return await self._calls.wait(self._put(config, checkpoint, metadata))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - all values are stored with each checkpoint
    ) -> RunnableConfig:
        """Store a checkpoint, whole; return the config that names it."""
        return self._calls.run(self._put(config, checkpoint, metadata))

    async def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> RunnableConfig:
        value = _packed(
            {"parent": get_checkpoint_id(config)},
            self.serde.dumps_typed(get_checkpoint_metadata(config, metadata)),
            self.serde.dumps_typed(checkpoint),
        )
        await self._entries.put(_thread_path(config), checkpoint["id"], value)
        chosen = config["configurable"]
        return _config(chosen["thread_id"], chosen.get("checkpoint_ns", ""), checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote after a checkpoint; what it wrote there before stays."""
        await self._calls.wait(self._put_writes(config, writes, task_id, task_path))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote after a checkpoint; what it wrote there before stays."""
        self._calls.run(self._put_writes(config, writes, task_id, task_path))

    async def _put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        path = (*_thread_path(config), config["configurable"]["checkpoint_id"])
        changes = []
        for position, (channel, value) in enumerate(writes):
            # Errors, interrupts and the like have a place of their own, and replace the last one.
            index = WRITES_IDX_MAP.get(channel, position)
            header = {"task": task_id, "index": index, "channel": channel, "path": task_path}
            packed = _packed(header, self.serde.dumps_typed(value))
            expected = 0 if index >= 0 else None
            changes.append(Put(path, f"{task_id}:{index}", packed, expected_version=expected))
        while changes:
            try:
                await write_in_steps(self._entries, changes)
            except VersionConflict:
                stored = await self._entries.get_many([(path, change.key) for change in changes])
                changes = [
                    change
                    for change, entry in zip(changes, stored, strict=True)
                    if entry is None or change.expected_version is None
                ]
            else:
                return

    # Several

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints that match, the newest first.

        Without a *config* those of all threads; without its `checkpoint_ns` of all namespaces.
        """
        checkpoints = self._list(config, filter=filter, before=before, limit=limit)
        async for each in self._calls.stream(checkpoints):
            yield each

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints that match, the newest first; see `alist`."""
        checkpoints = self._list(config, filter=filter, before=before, limit=limit)
        yield from self._calls.iterate(checkpoints)

    async def _list(
        self,
        config: RunnableConfig | None,
        *,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncGenerator[CheckpointTuple, None]:
        last = get_checkpoint_id(before) if before else None
        if config and "checkpoint_ns" in config["configurable"]:
            paths = [_thread_path(config)]
        else:
            paths = await self._namespaces(_thread_path(config)[:-1] if config else _ROOT)
        count = 0
        async for entry in self._newest_first(
            paths, get_checkpoint_id(config) if config else None, last
        ):
            if limit is not None and count >= limit:
                return
            metadata = self._record(entry).metadata
            if all(metadata.get(key) == value for key, value in (filter or {}).items()):
                count += 1
                yield await self._tuple(entry, config)

    # Whole threads

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove all checkpoints and writes of a thread for good."""
        await self._calls.wait(self._clear([thread_id]))

    def delete_thread(self, thread_id: str) -> None:
        """Remove all checkpoints and writes of a thread for good."""
        self._calls.run(self._clear([thread_id]))

    async def _clear(self, thread_ids: Sequence[str]) -> None:
        for thread_id in thread_ids:
            await self._entries.clear((*_ROOT, str(thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one."""
        await self._calls.wait(self._copy(source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one."""
        self._calls.run(self._copy(source_thread_id, target_thread_id))

    async def _copy(self, source: str, target: str) -> None:
        start = (*_ROOT, str(target))
        for path in await self._namespaces((*_ROOT, str(source))):
            # From the oldest on, each after its writes: cut off, it is a shorter thread.
            async for page in self._pages(path):
                entries: builtins.list[Entry] = []
                for entry in page:
                    async for writes in self._pages((*path, entry.key)):
                        entries += writes
                    entries.append(entry)
                names = [((*start, *each.path[len(start) :]), each.key) for each in entries]
                puts = [Put(*name, each.value) for name, each in zip(names, entries, strict=True)]
                await write_in_steps(self._entries, puts)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs made, and their writes, for good."""
        await self._calls.wait(self._delete_for_runs(set(run_ids)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs made, and their writes, for good."""
        self._calls.run(self._delete_for_runs(set(run_ids)))

    async def _delete_for_runs(self, run_ids: set[str]) -> None:
        for path in await self._namespaces(_ROOT):
            async for page in self._pages(path):
                runs = [self._record(entry).metadata.get("run_id") for entry in page]
                await self._delete(
                    [entry for entry, run in zip(page, runs, strict=True) if run in run_ids]
                )

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace, or none with the strategy `delete`.

        Checkpoints that the newest one's delta channels are rebuilt from stay, too.
        """
        await self._calls.wait(self._prune(thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace; see `aprune`."""
        self._calls.run(self._prune(thread_ids, strategy))

    async def _prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        if strategy == "delete":
            return await self._clear(thread_ids)
        if strategy != "keep_latest":
            raise ValueError(f"unknown strategy `{strategy}`; use `keep_latest` or `delete`")
        for thread_id in thread_ids:
            for path in await self._namespaces((*_ROOT, str(thread_id))):
                kept = await self._needed(path)
                async for page in self._pages(path):
                    # What a graph that runs meanwhile adds is newer, and stays.
                    old = [each for each in page if each.key not in kept and each.key < max(kept)]
                    await self._delete(old)
        return None

    async def _needed(self, path: EntryPath) -> set[str]:
        """Return the newest id and those of its ancestors that its delta channels start from."""
        entry: Entry | None = (await self._entries.list(path, deep=False, reverse=True, limit=1))[0]
        kept: set[str] = set()
        missing: set[str] | None = None
        while entry is not None and missing != set() and entry.key not in kept:
            kept.add(entry.key)
            record = self._record(entry)
            if missing is None:
                missing = set(record.metadata.get("counters_since_delta_snapshot") or ())
            missing -= record.checkpoint["channel_values"].keys()
            entry = await self._entries.get(path, record.parent) if record.parent else None
        return kept

    # Delta channels

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the ancestors of a checkpoint wrote to channels, and where that starts."""
        return await self._calls.wait(self._history(config, channels))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the ancestors of a checkpoint wrote to channels, and where that starts."""
        return self._calls.run(self._history(config, channels))

    async def _history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        histories: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
        missing = set(channels)
        seen: set[str] = set()  # a chain of parents that bites its tail ends, too
        checkpoint = await self._get(config) if channels else None
        while checkpoint and missing and checkpoint.parent_config:
            if (id := checkpoint.parent_config["configurable"]["checkpoint_id"]) in seen:
                break
            seen.add(id)
            if (checkpoint := await self._get(checkpoint.parent_config)) is None:
                break
            for write in reversed(checkpoint.pending_writes or []):
                if write[1] in missing:
                    histories[write[1]]["writes"].append(write)
            values = checkpoint.checkpoint["channel_values"]
            for name in missing & values.keys():
                histories[name]["seed"] = values[name]
                missing.discard(name)
        for history in histories.values():
            history["writes"].reverse()
        return histories

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002
        """Return a version after *current*, in the form of LangGraph's own checkpointers."""
        number = int(str(current or 0).partition(".")[0]) + 1
        return f"{number:032}.{random.random():016}"  # noqa: S311 - it only tells branches apart

    # Entries

    @property
    def _entries(self) -> KeyValue:
        return self._calls.handle.kv

    async def _pages(
        self, path: EntryPath, *, reverse: bool = False, start: str | None = None
    ) -> AsyncGenerator[builtins.list[Entry], None]:
        """Yield the entries at *path* by key, in pages, those after *start* alone."""
        last = None if start is None else (path, start)
        while page := await self._entries.list(
            path, deep=False, reverse=reverse, after=last, limit=_PAGE
        ):
            yield page
            if len(page) < _PAGE:
                return
            last = (path, page[-1].key)

    async def _namespaces(self, path: EntryPath) -> builtins.list[EntryPath]:
        """Return the paths of checkpoints at and below *path*."""
        paths: builtins.list[EntryPath] = []
        last: EntryPath | None = None
        while page := await self._entries.paths(path, after=last, limit=1):
            paths.append(page[0][: len(_ROOT) + 2])
            last = (*paths[-1], "\U0010ffff")  # behind the paths of writes, of which there are many
        return paths

    async def _newest_first(
        self, paths: Sequence[EntryPath], id: str | None, before: str | None
    ) -> AsyncGenerator[Entry, None]:
        """Yield the checkpoints at *paths*, or those of an *id*, the last id first."""
        sources = [self._descending(path, id, before) for path in paths]
        heads: builtins.list[tuple[_Descending, int, Entry]] = []

        async def advance(number: int) -> None:
            async for entry in sources[number]:
                heapq.heappush(heads, (_Descending(entry.key), number, entry))
                return

        for number in range(len(sources)):
            await advance(number)
        while heads:
            _, number, entry = heapq.heappop(heads)
            yield entry
            await advance(number)

    async def _descending(
        self, path: EntryPath, id: str | None, before: str | None
    ) -> AsyncGenerator[Entry, None]:
        if id is not None:
            entry = await self._entries.get(path, id)
            if entry is not None and (before is None or id < before):
                yield entry
            return
        async for page in self._pages(path, reverse=True, start=before):
            for entry in page:
                yield entry

    async def _delete(self, checkpoints: Sequence[Entry]) -> None:
        await self._entries.write([Delete(entry.path, entry.key) for entry in checkpoints])
        for entry in checkpoints:
            await self._entries.clear((*entry.path, entry.key))

    async def _tuple(self, entry: Entry, config: RunnableConfig | None) -> CheckpointTuple:
        record = self._record(entry)
        thread_id = config["configurable"]["thread_id"] if config else entry.path[-2]
        namespace = entry.path[-1][1:]
        parent = record.parent
        return CheckpointTuple(
            config=_config(thread_id, namespace, entry.key),
            checkpoint=record.checkpoint,
            metadata=record.metadata,
            parent_config=_config(thread_id, namespace, parent) if parent else None,
            pending_writes=await self._writes((*entry.path, entry.key)),
        )

    async def _writes(self, path: EntryPath) -> builtins.list[PendingWrite]:
        writes = []
        async for page in self._pages(path):
            for entry in page:
                header, value = _unpacked(entry.value)
                # The order in which a run applies them.
                order = (header["path"], header["task"], header["index"])
                writes.append((order, header, value))
        writes.sort(key=lambda write: write[0])
        return [
            (header["task"], header["channel"], self.serde.loads_typed(value))
            for _, header, value in writes
        ]

    def _record(self, entry: Entry) -> "_Record":
        return _Record(entry.value, self.serde)


class _Record:
    """A stored checkpoint, of which only what is asked for is decoded."""

    def __init__(self, value: bytes, serde: SerializerProtocol) -> None:
        header, self._metadata, self._checkpoint = _unpacked(value)
        self._serde = serde
        self.parent: str | None = header["parent"]

    @cached_property
    def metadata(self) -> CheckpointMetadata:
        metadata: CheckpointMetadata = self._serde.loads_typed(self._metadata)
        return metadata

    @cached_property
    def checkpoint(self) -> Checkpoint:
        checkpoint: Checkpoint = self._serde.loads_typed(self._checkpoint)
        return checkpoint


@dataclass(frozen=True, slots=True)
class _Descending:
    """Sorts the last text first."""

    text: str

    def __lt__(self, other: "_Descending") -> bool:
        return self.text > other.text


def _thread_path(config: RunnableConfig) -> EntryPath:
    """Return where the checkpoints of a thread and a namespace stand; the root's is empty."""
    chosen = config["configurable"]
    return (*_ROOT, str(chosen["thread_id"]), f"/{chosen.get('checkpoint_ns', '')}")


def _config(thread_id: str, namespace: str, id: str) -> RunnableConfig:
    names = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": id}
    return {"configurable": names}


def _packed(header: Mapping[str, object], *values: _Typed) -> bytes:
    """Return values as bytes, behind a line of JSON that tells their kinds and sizes."""
    parts = [(kind, len(data)) for kind, data in values]
    line = json.dumps({**header, "parts": parts}).encode()
    return b"\n".join([line, b"".join(data for _, data in values)])


def _unpacked(value: bytes) -> builtins.list[Any]:
    line, _, data = value.partition(b"\n")
    header = json.loads(line)
    unpacked = [header]
    start = 0
    for kind, size in header["parts"]:
        unpacked.append((kind, data[start : start + size]))
        start += size
    return unpacked
