"""Logs of a framework's messages: each exactly as it came, beside the chat of the same id.

The framework reads the log; people and recall read the chat. A message that is forgotten in the
chat is not in the log any more, and one that was edited comes with what it says now.
"""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.conversation.windows import complete_tool_groups
from orbiter.memory.errors import VersionConflict
from orbiter.memory.integrations._calls import forget_messages, list_all
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.model.key_value import MAX_CHANGES, Delete, Entry, EntryPath, Put, appended_key

__all__ = ["LoggedMessage", "MessageLog", "chat_items", "is_edited"]

_ACTIVE = "messages"
_BATCH = 500


class LoggedMessage(NamedTuple):
    """A message of a log."""

    entry: Entry
    message: dict[str, Any]
    """What the framework gave."""
    items: list[MemoryItem]
    """What stands for it in the chat, as it is now."""


class MessageLog:
    """The messages that *framework* keeps of the conversation *chat_id* of a handle.

    It may have several parts, such as an archive. With *remember* false, nothing goes to the chat.
    """

    def __init__(
        self, handle: ScopedMemory, framework: str, chat_id: str, *, remember: bool = True
    ) -> None:
        self._handle = handle
        self._framework = framework
        self._chat_id = chat_id
        self._remember = remember

    @property
    def chat(self) -> Chat:
        """The chat that people and recall read."""
        return self._handle.chat(self._chat_id)

    async def is_empty(self) -> bool:
        """Tell whether no part of the log has a message."""
        return not await self.chat.kv.list((self._framework,), limit=1)

    async def read(self, part: str = _ACTIVE) -> list[LoggedMessage]:
        """Return the messages of a part in order, but for those that were forgotten.

        With one of them, the others of its tool group are left out, too: no provider takes a call
        without its result.
        """
        entries = await list_all(self.chat.kv, self._path(part))
        stored = [(entry, json.loads(entry.value)) for entry in entries]
        ids = [each for _, value in stored for each in value["items"]]
        items = await self._items(ids)
        if len(items) < len(ids):
            left = [items[each] for each in ids if each in items]
            items = {each.id: each for each in complete_tool_groups(left, open_group="keep")}
        return [
            LoggedMessage(entry, value["message"], [items[each] for each in value["items"]])
            for entry, value in stored
            if all(each in items for each in value["items"])
        ]

    async def add(
        self, messages: Sequence[tuple[dict[str, Any], list[MemoryItem]]], part: str = _ACTIVE
    ) -> None:
        """Append messages, all or none, each with what stands for it in the chat."""
        pairs = [(message, items if self._remember else []) for message, items in messages]
        values = [
            json.dumps({"items": [item.id for item in items], "message": message}).encode()
            for message, items in pairs
        ]
        said = [item for _, items in pairs for item in items]
        # The chat first: a message whose item is missing would count as forgotten.
        if said:
            await self.chat.add(said)
        try:
            if values:
                await self.chat.kv.append(self._path(part), values)
        except Exception:  # whatever it was: the chat has no message that the log lacks
            await self._forget(said)
            raise

    async def remove(self, rows: Sequence[LoggedMessage]) -> int:
        """Remove messages and forget them; return how many, less if somebody else was faster.

        All of them are removed or none, if they are not more than a store changes in one step.
        """
        for start in range(0, len(rows), MAX_CHANGES):
            some = rows[start : start + MAX_CHANGES]
            changes = [Delete(row.entry.path, row.entry.key, row.entry.version) for row in some]
            if not await self._write(changes):
                return start
            await self._forget(item for row in some for item in row.items)
        return len(rows)

    async def move(self, rows: Sequence[LoggedMessage], part: str) -> int:
        """Put messages at the end of another part; return how many, as `remove` does."""
        step = MAX_CHANGES // 2
        for start in range(0, len(rows), step):
            if not await self._move(rows[start : start + step], part):
                return start
        return len(rows)

    async def _move(self, rows: Sequence[LoggedMessage], part: str) -> bool:
        path = self._path(part)
        last = await self.chat.kv.list(path, deep=False, reverse=True, limit=1)
        number = int(last[0].key) if last else 0
        changes: list[Put | Delete] = []
        for place, row in enumerate(rows, start=number + 1):
            changes.append(Delete(row.entry.path, row.entry.key, row.entry.version))
            changes.append(Put(path, appended_key(place), row.entry.value, expected_version=0))
        return await self._write(changes)

    async def clear(self) -> None:
        """Remove all parts for good, and forget the messages of the chat."""
        await self.chat.kv.clear((self._framework,))
        if self._remember:
            await forget_messages(self._handle, self._chat_id)

    def _path(self, part: str) -> EntryPath:
        return (self._framework, part)

    async def _write(self, changes: Sequence[Put | Delete]) -> bool:
        try:
            await self.chat.kv.write(changes)
        except VersionConflict:
            return False
        return True

    async def _items(self, ids: Sequence[str]) -> dict[str, MemoryItem]:
        return {item.id: item async for batch in self._batches(ids) for item in batch}

    async def _batches(self, ids: Sequence[str]) -> AsyncIterator[Iterable[MemoryItem]]:
        for start in range(0, len(ids), _BATCH):
            some = list(ids[start : start + _BATCH])
            yield await self._handle.list(where={"id": {"$in": some}}, limit=len(some))

    async def _forget(self, items: Iterable[MemoryItem]) -> None:
        ids = [item.id for item in items]
        for start in range(0, len(ids), _BATCH):
            await self._handle.forget(where={"id": {"$in": ids[start : start + _BATCH]}})


def is_edited(item: MemoryItem, text: str) -> bool:
    """Tell whether an item of a chat was changed, and says something else than *text* now."""
    return item.version > 1 and item.content != text


def chat_items(
    role: str, text: str, *, calls: Sequence[dict[str, Any]] = (), call_id: str = ""
) -> list[MemoryItem]:
    """Return the message of a chat for what was said; none for what cannot be one.

    *calls* are those that an `assistant` makes, *call_id* the one that a `tool` answers.
    """
    try:
        if role == "tool":
            return [ToolMemory(content=text, tool_call_id=call_id)]
        if role == "assistant" and (calls or text.strip()):
            return [AIMemory(content=text, tool_calls=list(calls))]
        if text.strip() and role in ("system", "user"):
            return [(HumanMemory if role == "user" else SystemMemory)(content=text)]
    except ValueError:  # too long, or with characters that no store keeps
        pass
    return []
