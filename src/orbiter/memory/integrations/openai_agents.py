"""`OrbiterSession`: a session of the OpenAI Agents SDK that is a conversation of a memory.

The runner gets back exactly the items that it stored, from a log. Beside it, what can be read of
them is in the chat of the same name, for recall, `chat.context` and the dashboard. A message that
is forgotten there is not given to the model any more, and an edited one says what it says now.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.errors import MessageError, VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls, forget_messages, shielded
from orbiter.memory.messages import Format, codec_for, from_messages
from orbiter.memory.model.items import MemoryItem, calls_of, role_of
from orbiter.memory.model.key_value import Delete, Entry, Put
from orbiter.memory.model.tool_calls import call_arguments, call_id, call_name

try:
    from agents import TResponseInputItem
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
except ModuleNotFoundError as exc:
    raise missing_extra("`OrbiterSession` needs the OpenAI Agents SDK", "openai-agents") from exc

__all__ = ["OrbiterSession"]

_LOG = ("openai-agents", "items")
_BEGIN = (("openai-agents", "begin"), "messages")
"""Where the messages are noted that the chat had before the log, and how many items of them are
left, if some were popped. They are not copied, however many there are."""
_PAGE, _FEW = 200, 8
_FORMAT: Format = "openai-responses"


class _Row(NamedTuple):
    """An item of the session, and the id of the message that stands for it in the chat."""

    item: dict[str, Any]
    message_id: str | None
    entry: Entry | None = None
    """Where it is logged; for what was there before the log, what is noted of that."""
    place: int = 0
    """Which of the items of its message it is, if it was there before the log."""
    is_there: bool = True
    """Whether its message was not forgotten."""


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

    async def _newest(self, limit: int | None, *, for_last: bool = False) -> list[_Row]:
        """Return the newest rows, oldest first; with a limit, one more if there is one.

        With *for_last*, as many as tell which is the last, and that one is the last of them.
        """
        rows: list[_Row] = []
        last: Entry | None = None
        size = _PAGE if limit is None else min(limit + 1, _PAGE)
        size = _FEW if for_last else size
        while True:
            page = await self._chat.kv.list(_LOG, deep=False, reverse=True, after=last, limit=size)
            rows = [*await self._looked_up(page[::-1]), *rows]
            if len(page) < size:
                has_log = bool(page or last)
                rows = _with_earlier(rows, await self._earlier(has_log=has_log))
                return _whole(rows)[-limit - 1 if limit is not None else None :]
            if limit is not None and len(whole := _whole(rows)) > limit:
                return whole[-limit - 1 :]
            if for_last and _is_settled(rows):
                return _whole(rows)
            last, size = page[-1], _PAGE if for_last else size

    async def _looked_up(self, entries: Sequence[Entry]) -> list[_Row]:
        """Return the rows of entries as their messages are now."""
        rows = [row for entry in entries if (row := _row(entry)) is not None]
        ids = list(dict.fromkeys(row.message_id for row in rows if row.message_id))
        if not ids:
            return rows
        stored = {
            message.id: message
            for message in await self._handle.list(where={"id": {"$in": ids}}, limit=len(ids))
        }
        return [
            row if row.message_id is None else _as_it_is(row, stored.get(row.message_id))
            for row in rows
        ]

    async def _earlier(self, *, has_log: bool) -> list[_Row]:
        """Return the rows of what is not in the log: what was imported or in the chat before it."""
        begin = await self._chat.kv.get(*_BEGIN)
        own: list[MemoryItem] = []
        if begin is None and not has_log:
            own = await self._chat.items(open_group="keep")
            begin = await self._chat.kv.get(*_BEGIN)  # what a session adds, it adds after this
        noted: dict[str, Any] = {"messages": [item.id for item in own], "left": {}}
        if begin is not None:
            noted = json.loads(begin.value)
            ids = set(noted["messages"])
            own = await self._chat.items(open_group="keep") if ids else []
            own = [item for item in own if item.id in ids]
        imported = await self._handle.chat(self._imported).items(open_group="keep")
        return [
            _Row(item, message.id, begin, place)
            for message in (*imported, *own)
            for place, item in enumerate(_entries_of(message))
            if place < noted["left"].get(message.id, place + 1)
        ]

    async def _begin(self) -> None:
        """Note what the chat has before the first item, if nobody has."""
        if await self._chat.kv.get(*_BEGIN) is None:
            log = await self._chat.kv.list(_LOG, deep=False, limit=1)
            own = [] if log else await self._chat.items(open_group="keep")
            note = {"messages": [item.id for item in own], "left": {}}
            with suppress(VersionConflict):  # somebody else was faster, and adds after that
                await self._chat.kv.put(*_BEGIN, json.dumps(note).encode(), expected_version=0)

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
        while True:
            await self._begin()
            rows = await self._newest(None, for_last=True)
            if not rows:
                return None
            row = rows.pop()
            if await self._remove(row):
                if row.message_id and row.message_id not in {
                    other.message_id for other in rows[-1:]
                }:
                    await self._forget([row.message_id])
                return row.item  # type: ignore[return-value]  # as for `get_items`

    async def _remove(self, row: _Row) -> bool:
        """Take a row out of the session; `False` if it was changed meanwhile."""
        if row.entry is None:
            return False
        change: Put | Delete = Delete(row.entry.path, row.entry.key, row.entry.version)
        if row.entry.path != _LOG:
            note = json.loads(row.entry.value)
            note["left"][row.message_id] = row.place
            change = Put(*_BEGIN, json.dumps(note).encode(), expected_version=row.entry.version)
        try:
            await self._chat.kv.write([change])
        except VersionConflict:
            return False
        return True

    async def _clear(self) -> None:
        await self._chat.kv.clear(_LOG[:1])
        for chat_id in (self.session_id, self._imported):
            await forget_messages(self._handle, chat_id)

    async def _forget(self, ids: Iterable[str]) -> None:
        if these := list(ids):
            await self._handle.forget(where={"id": {"$in": these}})


def _value(row: _Row) -> bytes:
    """Return a row as it is stored; `TypeError` for an item that is not JSON."""
    return json.dumps({"message": row.message_id, "item": row.item}).encode()


def _row(entry: Entry) -> _Row | None:
    """Return the row of an entry, or `None` for one that cannot be read."""
    try:
        stored = json.loads(entry.value)
        item, message_id = stored["item"], stored["message"]
    except (ValueError, TypeError, KeyError):
        return None
    return _Row(item, message_id, entry) if isinstance(item, dict) else None


def _message(item: dict[str, Any]) -> MemoryItem | None:
    """Return what can be read of an item as a message, or `None` if it is of no known shape."""
    with suppress(MessageError, ValueError):
        # No message has such characters; the item keeps them.
        text = json.dumps(item, ensure_ascii=False).replace("\\u0000", "\N{REPLACEMENT CHARACTER}")
        readable = json.loads(text.encode(errors="replace"))
        messages = from_messages([readable], _FORMAT)
        return messages[0] if len(messages) == 1 else None
    return None


def _as_it_is(row: _Row, stored: MemoryItem | None) -> _Row:
    """Return a row that says what its message says, if that was changed or forgotten."""
    if stored is None:
        return row._replace(is_there=False)
    if stored.version == 1:
        return row
    written = _message(row.item)
    if written is None or written.content == stored.content:
        return row
    if role_of(stored) == "tool":
        return row._replace(item={**row.item, "output": stored.content})
    edited = codec_for(_FORMAT).encode([[stored]])
    return row._replace(item=edited[0]) if len(edited) == 1 else row


def _with_earlier(rows: list[_Row], earlier: Sequence[_Row]) -> list[_Row]:
    """Return all rows of a log, with those that are not in it before its own."""
    logged = {row.message_id for row in rows}
    missing = [row for row in earlier if row.message_id not in logged]
    ids = {row.message_id for row in earlier}
    begin = max((at for at, row in enumerate(rows, start=1) if row.message_id in ids), default=0)
    return [*rows[:begin], *missing, *rows[begin:]]


def _whole(rows: list[_Row]) -> list[_Row]:
    """Return the rows that are there, without those the API would refuse for one that is not.

    These are the call of an output and the output of a call, reasoning without what it led to, and
    what follows from reasoning.
    """
    gone = {at for at, row in enumerate(rows) if not row.is_there}
    if not gone:
        return rows
    groups: list[set[int]] = []
    calls: dict[str, set[int]] = {}
    turn: set[int] = set()
    for at, row in enumerate(rows):
        if "call_id" in row.item:
            id = str(row.item["call_id"])  # which may come again, for another call
            if id not in calls or not _is_output(row.item):
                calls[id] = set()
                groups.append(calls[id])
            calls[id].add(at)
        if at and _was_popped_between(rows[at - 1], row):
            turn = set()
        if not _is_of_turn(row.item):
            turn = set()
        elif turn or row.item.get("type") == "reasoning":
            if not turn:
                groups.append(turn)
            turn.add(at)
    while torn := [group for group in groups if group & gone and not group <= gone]:
        gone.update(*torn)
    return [row for at, row in enumerate(rows) if at not in gone]


def _is_settled(rows: Sequence[_Row]) -> bool:
    """Tell whether the last row that is there is the same, whatever stands before these.

    Then they begin, or some end of them does, with what neither is of a turn of the model nor has
    outputs behind it whose calls are missing: no group that `_whole` knows goes over that.
    """
    open_outputs: set[str] = set()
    for at in range(len(rows) - 1, -1, -1):
        item = rows[at].item
        if "call_id" in item:
            change = open_outputs.add if _is_output(item) else open_outputs.discard
            change(str(item["call_id"]))
        elif not open_outputs and not _is_of_turn(item) and _whole(list(rows[at:])):
            return True
    return False


def _was_popped_between(older: _Row, newer: _Row) -> bool:
    places = [int(row.entry.key) for row in (older, newer) if row.entry and row.entry.path == _LOG]
    return len(places) == 2 and places[1] - places[0] > 1


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
    return not _is_output(item) and item.get("role", "assistant") == "assistant"


def _is_output(item: dict[str, Any]) -> bool:
    return str(item.get("type", "")).endswith("_output")
