"""`OrbiterSession`: a session of the OpenAI Agents SDK that is a conversation of a memory.

The runner gets back exactly the items that it stored, from a log. Beside it, what can be read of
them is in the chat of the same name, for recall, `chat.context` and the dashboard. A message that
is forgotten there is not given to the model any more, and an edited one says what it says now.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.errors import MessageError, VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls, forget_messages, shielded
from orbiter.memory.messages import Format, from_messages, to_messages
from orbiter.memory.model.items import MemoryItem, calls_of, role_of
from orbiter.memory.model.key_value import Entry, Put, appended_key
from orbiter.memory.model.tool_calls import call_arguments, call_id, call_name

try:
    from agents import TResponseInputItem
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        "`OrbiterSession` needs the OpenAI Agents SDK: pip install 'orbiter-memory[openai-agents]'"
    ) from exc

__all__ = ["OrbiterSession"]

_LOG = ("openai-agents", "items")
_PAGE = 200
_FORMAT: Format = "openai-responses"


class _Row(NamedTuple):
    """An item of the session, and the id of the message that stands for it in the chat."""

    item: dict[str, Any]
    message_id: str | None


class OrbiterSession(SessionABC):
    """The session *session_id* of a handle, for `Runner.run(…, session=…)`.

    *handle* is of `orbiter.memory` or of `orbiter.memory.sync`; the session is of its scope. Any
    number of agents, objects and processes may use one session.
    """

    def __init__(
        self,
        handle: AnyHandle,
        session_id: str,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = (
            SessionSettings()
            if session_settings is None
            else coerce_session_settings(session_settings)
        )
        self._calls = Calls(handle, "OrbiterSession")
        self._imported = f"openai-agents:{session_id}"  # as `import` names the SDK's own sessions
        self._has_begun = False

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return all items, or the newest *limit* of them, in the order they were added.

        With a limit, what the API would refuse without the items before it is left out: a tool's
        output whose call is cut off, and what follows from reasoning that is cut off.
        """
        most = resolve_session_limit(limit, self.session_settings)
        if most is not None and most <= 0:
            return []
        rows = await self._calls.wait(self._newest(most))
        items = [row.item for row in rows]
        if most is not None and len(items) > most:
            items = _legal_end(items, len(items) - most)
        return items  # type: ignore[return-value]  # they were such when they were added

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none; a cancelled call ends after they are stored."""
        if items:
            await shielded(self._calls.wait(self._add([dict(item) for item in items])))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it; `None` if there is none."""
        return await shielded(self._calls.wait(self._pop()))

    async def clear_session(self) -> None:
        """Remove all items; what can be read of them is forgotten, and may be restored."""
        await shielded(self._calls.wait(self._clear()))

    # The log: on the handle's own loop

    @property
    def _handle(self) -> ScopedMemory:
        return self._calls.handle

    @property
    def _chat(self) -> Chat:
        return self._handle.chat(self.session_id)

    async def _newest(self, limit: int | None) -> list[_Row]:
        """Return the newest rows, oldest first; with a limit, one more if there is one."""
        rows: list[_Row] = []
        last: Entry | None = None
        size = _PAGE if limit is None else min(limit + 1, _PAGE)
        while limit is None or len(rows) <= limit:
            page = await self._chat.kv.list(_LOG, deep=False, reverse=True, after=last, limit=size)
            if not page and last is None:
                rows = (await self._rows_of_chat())[::-1]
            rows += await self._still_there(page)
            if len(page) < size:
                rows = _with_imported(rows[::-1], await self._imported_rows())[::-1]
                break
            last = page[-1]
        return rows[: len(rows) if limit is None else limit + 1][::-1]

    async def _still_there(self, entries: Sequence[Entry]) -> list[_Row]:
        """Return the rows of entries but for those whose message was forgotten."""
        rows = [row for entry in entries if (row := _row(entry.value)) is not None]
        ids = list(dict.fromkeys(row.message_id for row in rows if row.message_id))
        if not ids:
            return rows
        stored = {
            message.id: message
            for message in await self._handle.list(where={"id": {"$in": ids}}, limit=len(ids))
        }
        return [
            row if row.message_id is None else _as_edited(row, stored[row.message_id])
            for row in rows
            if row.message_id is None or row.message_id in stored
        ]

    async def _rows_of_chat(self) -> list[_Row]:
        """Return the rows of a chat that was not begun as a session, such as an imported one."""
        own = _rows_of(await self._chat.items(open_group="keep"))
        return [*await self._imported_rows(), *own]

    async def _imported_rows(self) -> list[_Row]:
        """Return the rows of the SDK's own session of this name, if it was imported."""
        return _rows_of(await self._handle.chat(self._imported).items())

    async def _begin(self) -> None:
        """Have the log begin with what the chat has, if there is no log yet."""
        if not self._has_begun and not await self._chat.kv.list(_LOG, deep=False, limit=1):
            rows = await self._rows_of_chat()
            puts = [
                Put(_LOG, appended_key(number), _value(row), expected_version=0)
                for number, row in enumerate(rows, start=1)
            ]
            with suppress(VersionConflict):  # somebody else was faster
                await self._chat.kv.write(puts)
        self._has_begun = True

    async def _add(self, items: list[dict[str, Any]]) -> None:
        messages = [_message(item) for item in items]
        rows = [
            _Row(item, None if message is None else message.id)
            for item, message in zip(items, messages, strict=True)
        ]
        values = [_value(row) for row in rows]
        await self._begin()
        readable = [message for message in messages if message is not None]
        # The messages first: an item without its message would count as forgotten.
        if readable:
            await self._chat.add(readable)
        try:
            await self._chat.kv.append(_LOG, values)
        except Exception:  # whatever it was: messages without their items are taken back
            await self._forget(message.id for message in readable)
            raise

    async def _pop(self) -> TResponseInputItem | None:
        item = await self._pop_logged()
        if item is None:  # what was imported after the log began is not in it
            self._has_begun = False
            item = await self._pop_logged()
        return item

    async def _pop_logged(self) -> TResponseInputItem | None:
        await self._begin()
        while (entry := await self._chat.kv.pop(_LOG)) is not None:
            for row in await self._still_there([entry]):
                before = await self._chat.kv.list(_LOG, deep=False, reverse=True, limit=1)
                shared = {other.message_id for each in before if (other := _row(each.value))}
                if row.message_id and row.message_id not in shared:
                    await self._forget([row.message_id])
                return row.item  # type: ignore[return-value]  # as for `get_items`
        return None

    async def _clear(self) -> None:
        await self._chat.kv.clear(_LOG)
        for chat_id in (self.session_id, self._imported):
            await forget_messages(self._handle, chat_id)

    async def _forget(self, ids: Iterable[str]) -> None:
        if these := list(ids):
            await self._handle.forget(where={"id": {"$in": these}})


def _value(row: _Row) -> bytes:
    """Return a row as it is stored; `TypeError` for an item that is not JSON."""
    return json.dumps({"message": row.message_id, "item": row.item}).encode()


def _row(value: bytes) -> _Row | None:
    """Return the row of a stored value, or `None` for one that cannot be read."""
    try:
        stored = json.loads(value)
        item, message_id = stored["item"], stored["message"]
    except (ValueError, TypeError, KeyError):
        return None
    return _Row(item, message_id) if isinstance(item, dict) else None


def _message(item: dict[str, Any]) -> MemoryItem | None:
    """Return what can be read of an item as a message, or `None` if it is of no known shape."""
    with suppress(MessageError, ValueError):
        # No message has such characters; the item keeps them.
        text = json.dumps(item, ensure_ascii=False).replace("\\u0000", "\N{REPLACEMENT CHARACTER}")
        readable = json.loads(text.encode(errors="replace"))
        messages = from_messages([readable], _FORMAT)
        return messages[0] if len(messages) == 1 else None
    return None


def _as_edited(row: _Row, stored: MemoryItem) -> _Row:
    """Return a row that says what its message says, if that was changed."""
    if stored.version == 1:
        return row
    written = _message(row.item)
    if written is None or written.content == stored.content:
        return row
    if role_of(stored) == "tool":
        return row._replace(item={**row.item, "output": stored.content})
    edited = to_messages([stored], _FORMAT)
    return row._replace(item=edited[0]) if len(edited) == 1 else row


def _with_imported(rows: list[_Row], imported: Sequence[_Row]) -> list[_Row]:
    """Return all rows of a log, with those that were imported after it began before its own."""
    logged = {row.message_id for row in rows}
    missing = [row for row in imported if row.message_id not in logged]
    ids = {row.message_id for row in imported}
    begin = max((at for at, row in enumerate(rows, start=1) if row.message_id in ids), default=0)
    return [*rows[:begin], *missing, *rows[begin:]]


def _rows_of(messages: Iterable[MemoryItem]) -> list[_Row]:
    return [_Row(entry, item.id) for item in messages for entry in _entries_of(item)]


def _entries_of(message: MemoryItem) -> list[dict[str, Any]]:
    """Return a message of a chat as the SDK's items."""
    native = message.native.get(_FORMAT)
    if isinstance(native, list) and all(isinstance(each, dict) for each in native):
        return native
    role = role_of(message)
    if role == "tool":
        output = {"call_id": getattr(message, "tool_call_id", ""), "output": message.content}
        return [{"type": "function_call_output", **output}]
    calls = [
        {
            "type": "function_call",
            "call_id": call_id(call),
            "name": call_name(call),
            "arguments": call_arguments(call),
        }
        for call in calls_of(message)
    ]
    roles = {"system": "system", "human": "user", "ai": "assistant"}
    said = [{"role": roles[str(role)], "content": message.content}]
    return [*(said if message.content or not calls else []), *calls]


def _legal_end(items: list[dict[str, Any]], start: int) -> list[dict[str, Any]]:
    """Return the items from *start* on that can stand without those before it."""
    if items[start - 1].get("type") == "reasoning":
        while start < len(items) and _is_of_turn(items[start]):
            start += 1
    calls: set[object] = set()
    kept = []
    for item in items[start:]:
        kind = str(item.get("type", ""))
        if kind.endswith("_output") and "call_id" in item:
            if item["call_id"] not in calls:
                continue
        elif "call_id" in item:
            calls.add(item["call_id"])
        kept.append(item)
    return kept


def _is_of_turn(item: dict[str, Any]) -> bool:
    """Tell whether an item is the model's, so that it may follow from reasoning before it."""
    is_output = str(item.get("type", "")).endswith("_output")
    return not is_output and item.get("role", "assistant") == "assistant"
