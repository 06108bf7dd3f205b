"""LlamaIndex: a chat store for its `Memory`, and a memory block that recalls.

`OrbiterChatStore` keeps the messages exactly, active and archived. What was said is also in the
chat of the session's id, where `OrbiterMemoryBlock` finds it from any other session.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Any

from pydantic import Field, PrivateAttr

from orbiter.memory._lazy import missing_extra
from orbiter.memory.integrations._calls import AnyHandle, Calls, list_all, shielded
from orbiter.memory.integrations._message_log import (
    LoggedMessage,
    MessageLog,
    chat_items,
    is_edited,
)
from orbiter.memory.integrations.tools import recalled_text
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.key_value import EntryPath

try:
    from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
    from llama_index.core.memory import BaseMemoryBlock
    from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
except ModuleNotFoundError as exc:
    raise missing_extra("the adapters for LlamaIndex need llama-index-core", "llama-index") from exc

__all__ = ["OrbiterChatStore", "OrbiterMemoryBlock"]

_ROOT = "llama-index"
_SESSIONS: EntryPath = (_ROOT, "sessions")
"""By id: the sessions that have ever had a message."""
_PARTS = {MessageStatus.ARCHIVED: "archived", MessageStatus.ACTIVE: "messages"}
_ROLES = {
    "developer": "system",
    "chatbot": "assistant",
    "model": "assistant",
    "function": "tool",
}
"""Other names of roles."""


class OrbiterChatStore(AsyncDBChatStore):  # type: ignore[misc]  # types of LlamaIndex are not read
    """The sessions of one handle, for `Memory.from_defaults(chat_store=…)`.

    *handle* is of `orbiter.memory` or of `orbiter.memory.sync`. With *remember* false, what is said
    does not go to a chat.
    """

    _calls: Calls = PrivateAttr()
    _remember: bool = PrivateAttr()

    def __init__(self, handle: AnyHandle, *, remember: bool = True) -> None:
        super().__init__()
        self._calls = Calls(handle, "OrbiterChatStore")
        self._remember = remember

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "OrbiterChatStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages of a status in order, or the archived and then the active ones."""
        rows = await self._calls.wait(self._read(key, status))
        start = offset or 0
        end = None if limit is None else start + limit
        return [_chat_message(row) for row in rows[start:end]]

    async def count_messages(
        self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE
    ) -> int:
        """Return how many messages there are of a status, or of any."""
        return len(await self._calls.wait(self._read(key, status)))

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Append a message."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self,
        key: str,
        messages: list[ChatMessage],
        status: MessageStatus = MessageStatus.ACTIVE,
    ) -> None:
        """Append messages, all or none; a cancelled call ends after they are stored."""
        await shielded(self._calls.wait(self._add(key, list(messages), status)))

    async def set_messages(
        self,
        key: str,
        messages: list[ChatMessage],
        status: MessageStatus = MessageStatus.ACTIVE,
    ) -> None:
        """Have a session consist of *messages*; those at the beginning that are there stay."""
        await shielded(self._calls.wait(self._set(key, list(messages), status)))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the active message at a position, 0 being the oldest; return it, or `None`."""
        which = slice(idx, idx + 1) if idx >= 0 else slice(0)
        taken = await self._take(key, which, MessageLog.remove)
        return taken[0] if taken else None

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Remove the messages of a status, or all; what was said is forgotten."""
        await shielded(self._calls.wait(self._delete(key, status)))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Remove the oldest *n* active messages and return them."""
        return await self._take(key, slice(max(n, 0)), MessageLog.remove)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest *n* active messages and return them; the chat keeps them."""

        async def archive(log: MessageLog, rows: Sequence[LoggedMessage]) -> int:
            return await log.move(rows, _PARTS[MessageStatus.ARCHIVED])

        return await self._take(key, slice(max(n, 0)), archive)

    async def get_keys(self) -> list[str]:
        """Return the sessions that have messages."""
        return await self._calls.wait(self._keys())

    # On the handle's own loop

    def _log(self, key: str) -> MessageLog:
        return MessageLog(self._calls.handle, _ROOT, key, remember=self._remember)

    async def _read(self, key: str, status: MessageStatus | None) -> list[LoggedMessage]:
        log = self._log(key)
        parts = list(_PARTS.values()) if status is None else [_PARTS[MessageStatus(status)]]
        return [row for part in parts for row in await log.read(part)]

    async def _add(self, key: str, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
        if not messages:
            return
        pairs = [(_plain(each), _items(each)) for each in messages]
        await self._calls.handle.kv.put(_SESSIONS, key, b"")
        await self._log(key).add(pairs, _PARTS[MessageStatus(status)])

    async def _set(self, key: str, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
        log = self._log(key)
        while True:
            there = await log.read(_PARTS[MessageStatus(status)])
            stored = [_plain(_chat_message(row)) for row in there]
            wanted = [_plain(message) for message in messages]
            pairs = zip(stored, wanted, strict=False)
            same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            others = [each for each in MessageStatus if each != MessageStatus(status)]
            more = [row for each in others for row in await self._read(key, each)]
            rest = [*there[same:], *more]
            if await log.remove(rest) == len(rest):
                break
        await self._add(key, messages[same:], status)

    async def _delete(self, key: str, status: MessageStatus | None) -> None:
        log = self._log(key)
        if status is None:
            await log.clear()
            return
        while rows := await self._read(key, status):
            await log.remove(rows)

    async def _take(
        self,
        key: str,
        which: slice,
        work: Callable[[MessageLog, Sequence[LoggedMessage]], Awaitable[int]],
    ) -> list[ChatMessage]:
        """Do *work* with some of the active messages, and return them."""

        async def take() -> list[ChatMessage]:
            log = self._log(key)
            taken: list[LoggedMessage] = []
            while True:
                rows = (await log.read())[which.start : which.stop - len(taken)]
                count = await work(log, rows)
                taken += rows[:count]
                if count == len(rows):
                    return [_chat_message(row) for row in taken]

        return await shielded(self._calls.wait(take()))

    async def _keys(self) -> list[str]:
        entries = await list_all(self._calls.handle.kv, _SESSIONS)
        return [entry.key for entry in entries if not await self._log(entry.key).is_empty()]


class OrbiterMemoryBlock(BaseMemoryBlock[str]):  # type: ignore[misc]  # as above
    """What is remembered about the newest question, for `Memory.from_defaults(memory_blocks=…)`.

    At most *k* memories of the handle are added, fenced as data; those below *min_relevance* are
    not, nor by default what answers nothing. With a chat store of another kind, messages that leave
    the short-term memory are added to the chat of their session.
    """

    name: str = "memory"
    description: str | None = "What is remembered of earlier conversations."
    handle: Any = Field(exclude=True)
    k: int = 5
    min_relevance: float | None = None
    _calls: Calls = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Check the handle."""
        super().model_post_init(context)
        self._calls = Calls(self.handle, "OrbiterMemoryBlock")

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,
        **block_kwargs: Any,  # noqa: ARG002 - LlamaIndex hands them over
    ) -> str:
        texts = [_text(message) for message in messages or []]
        questions = [_text(each) for each in messages or [] if each.role.value == "user"]
        if not questions:
            return ""
        work = recalled_text(
            self._calls.handle,
            questions[-1],
            k=self.k,
            min_relevance=self.min_relevance,
            known=set(texts),
        )
        return await self._calls.wait(work)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self._calls.wait(self._remember(messages))

    async def _remember(self, messages: Sequence[ChatMessage]) -> None:
        by_session: dict[str, list[MemoryItem]] = {}
        for message in messages:
            session_id = message.additional_kwargs.get("session_id") or _ROOT
            by_session.setdefault(session_id, []).extend(_items(message))
        for session_id, items in by_session.items():
            log = MessageLog(self._calls.handle, _ROOT, session_id)
            if items and await log.is_empty():  # else `OrbiterChatStore` has added them
                await log.chat.add(items)


def _plain(message: ChatMessage) -> dict[str, Any]:
    plain: dict[str, Any] = message.model_dump(mode="json")
    return plain


def _chat_message(row: LoggedMessage) -> ChatMessage:
    """Return a message as it was stored, with what it says now."""
    message = ChatMessage.model_validate(row.message)
    for item in row.items:
        if is_edited(item, _text(message)):
            others = [block for block in message.blocks if not isinstance(block, TextBlock)]
            message.blocks = [TextBlock(text=item.content), *others]
    return message


def _text(message: ChatMessage) -> str:
    return message.content or ""


def _items(message: ChatMessage) -> list[MemoryItem]:
    role = message.role.value
    calls = [
        {
            "id": block.tool_call_id or "",
            "name": block.tool_name,
            "arguments": block.tool_kwargs
            if isinstance(block.tool_kwargs, str)
            else json.dumps(block.tool_kwargs),
        }
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    return chat_items(
        _ROLES.get(role, role),
        _text(message),
        calls=calls,
        call_id=str(message.additional_kwargs.get("tool_call_id") or ""),
    )
