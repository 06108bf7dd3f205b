"""Pydantic AI: a conversation store, a history processor that trims, instructions, and a toolset.

`OrbiterConversationStore` keeps each message once, with the revisions that Pydantic AI checks. What
was said is also in the chat of the conversation's id, for recall and the dashboard.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any
from uuid import uuid4

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent import KeyValue
from orbiter.memory.conversation.tokens import estimate_tokens
from orbiter.memory.errors import InvalidItemError, VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls, forget_messages, list_all
from orbiter.memory.integrations.tools import memory_tools, recalled_text
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, ToolMemory
from orbiter.memory.model.key_value import MAX_CHANGES, Delete, Entry, EntryPath, Put

try:
    from pydantic_ai import RunContext
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.toolsets import FunctionToolset
except ModuleNotFoundError as exc:
    raise missing_extra("`OrbiterConversationStore` needs Pydantic AI", "pydantic-ai") from exc

__all__ = ["OrbiterConversationStore", "memory_toolset", "recall_instructions", "trim_history"]

_ROOT = "pydantic-ai"
_RECORDS = (_ROOT, "records")
_HOMES = (_ROOT, "homes")
"""By id of an entry: the conversation it is stored with."""
_PAGE = 200
_STEP = (MAX_CHANGES - 1) // 2
"""Entries that are deleted in one step, each with its home, and the record."""
_TALK = frozenset(
    (
        "capability-load-return",
        "retry-feedback",
        "retry-prompt",
        "speech",
        "tool-return",
        "tool-search-return",
        "user-prompt",
    )
)
"""The parts of a request that belong to its turn."""
_RECORD = TypeAdapter(ConversationRecord)


class OrbiterConversationStore(ConversationStore):
    """The conversations of one handle.

    `delete` removes the messages that no fork shares for good, and forgets the chat. With
    *remember* false, what is said does not go to a chat.
    """

    def __init__(self, handle: AnyHandle, *, remember: bool = True) -> None:
        self._calls = Calls(handle, "OrbiterConversationStore")
        self._remember = remember

    @property
    def _kv(self) -> KeyValue:
        return self._calls.handle.kv

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or `None`."""
        entry = await self._calls.wait(self._kv.get(_RECORDS, conversation_id))
        return None if entry is None else _RECORD.validate_json(entry.value)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records, or those of a scope of Pydantic AI's, newest first."""
        records = [_RECORD.validate_json(entry.value) for entry in await self._all(_RECORDS)]
        records = [record for record in records if scope is None or record.scope == scope]
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new entries in one step; `ConversationConflict` if it changed."""
        name = record.conversation_id
        _, version = await self._stored(name, expected_revision)
        puts = [Put(_RECORDS, name, _RECORD.dump_json(record), expected_version=version)]
        for entry in new_entries:
            puts.append(Put(_entries(name), entry.id, _value(entry)))
            puts.append(Put(_HOMES, entry.id, name.encode()))
        if record.head_id is not None and record.head_id not in {e.id for e in new_entries}:
            home = await self._calls.wait(self._kv.get(_HOMES, record.head_id))
            if home is None:
                raise ConversationConflict(name)
            # Put again, so that whoever deletes it meanwhile is told.
            puts.append(Put(_HOMES, home.key, home.value, expected_version=home.version))
        try:
            await self._calls.wait(self._kv.write(puts))
        except VersionConflict:
            raise ConversationConflict(name) from None
        messages = [item for entry in new_entries for item in _said(entry.message)]
        if self._remember and messages:
            await self._calls.wait(self._calls.handle.chat(name).add(messages))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Remove a record, and the entries that no other conversation's history reaches.

        What is too long for one step loses its newest entries first: it is a shorter conversation
        until it is gone, so a call that is cut off may be made again.
        """
        revision: str | None = expected_revision
        while revision is not None:
            revision = await self._delete_newest(conversation_id, revision)
        if self._remember:
            await self._calls.wait(forget_messages(self._calls.handle, conversation_id))

    async def _delete_newest(self, conversation_id: str, revision: str) -> str | None:
        """Remove as much of a conversation as one step can; return the revision that is left."""
        record, version = await self._stored(conversation_id, revision)
        if record is None:
            raise ConversationConflict(conversation_id)
        histories = await self._histories(record)
        places = {name: place for each in histories for place, name in enumerate(each)}
        own = {entry.key for entry in await self._all(_entries(conversation_id))} | places.keys()
        for other in await self.read_records():
            if other.conversation_id != conversation_id:
                own.difference_update(*await self._histories(other))
        # The newest first: a fork that is made meanwhile has all entries before its own.
        names = sorted(own, key=lambda name: -places.get(name, len(own)))
        some = names[:_STEP]
        changes: list[Put | Delete] = [Delete(_RECORDS, conversation_id, version)]
        left: str | None = None
        if len(some) < len(names):
            record = _shortened(record, histories, set(some))
            left = record.revision
            changes = [Put(_RECORDS, conversation_id, _RECORD.dump_json(record), None, version)]
        homes = await self._calls.wait(self._kv.get_many([(_HOMES, name) for name in some]))
        for home in homes:
            if home is not None:
                changes.append(Delete(_HOMES, home.key, home.version))
                changes.append(Delete(_entries(home.value.decode()), home.key))
        try:
            await self._calls.wait(self._kv.write(changes))
        except VersionConflict:
            return revision  # it was saved, or an entry is a fork's now: look again
        return left

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry; `LookupError` if there is none."""
        home = await self._calls.wait(self._kv.get(_HOMES, entry_id))
        entry = home and await self._calls.wait(
            self._kv.get(_entries(home.value.decode()), entry_id)
        )
        if entry is None:
            raise LookupError(f"there is no entry `{entry_id}`")
        return _entry(entry)

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to *head_id*, or the last *limit* of them, in order."""
        history: list[ConversationEntry] = []
        known: dict[str, ConversationEntry] = {}
        wanted, looked_up = head_id, None
        path: EntryPath | None = None
        after: Entry | None = None
        while wanted is not None and (limit is None or len(history) < limit):
            if wanted in known:
                history.append(known[wanted])
                wanted = known[wanted].parent_id
                continue
            if path is None:  # the first, or of a conversation that this one was forked from
                home = await self._calls.wait(self._kv.get(_HOMES, wanted))
                if home is None or looked_up == wanted:
                    raise LookupError(f"there is no entry `{wanted}`")
                path, after, looked_up = _entries(home.value.decode()), None, wanted
            page = await self._calls.wait(
                self._kv.list(path, deep=False, reverse=True, after=after, limit=_PAGE)
            )
            known |= {entry.key: _entry(entry) for entry in page}
            after = page[-1] if page else None
            path = path if len(page) == _PAGE else None
        return history[::-1]

    async def _stored(
        self, conversation_id: str, expected: str | None
    ) -> tuple[ConversationRecord | None, int]:
        """Return a record and its stored version; `ConversationConflict` for another revision."""
        stored = await self._calls.wait(self._kv.get(_RECORDS, conversation_id))
        record = None if stored is None else _RECORD.validate_json(stored.value)
        if (record and record.revision) != expected:
            raise ConversationConflict(conversation_id)
        return record, 0 if stored is None else stored.version

    async def _histories(self, record: ConversationRecord) -> list[list[str]]:
        """Return the entries of the history of a record, then of each of its branches."""
        tips = (record.head_id, *record.branches)
        return [[entry.id for entry in await self.read_history(tip)] for tip in tips]

    async def _all(self, path: EntryPath) -> list[Entry]:
        return await self._calls.wait(list_all(self._kv, path))


def trim_history(budget: int) -> Callable[[list[ModelMessage]], list[ModelMessage]]:
    """Return a history processor for `ProcessHistory` that keeps the newest within *budget* tokens.

    Whole turns go first, the oldest before others, then steps of the last turn: a tool's call
    always goes with its result. System prompts and the last thing the user said stay.
    """

    def trim(messages: list[ModelMessage]) -> list[ModelMessage]:
        starts = [place for place, each in enumerate(messages) if _is_prompt(each)]
        if not starts or _tokens(messages) <= budget:
            return messages
        fitting = (start for start in starts if _tokens(messages[start:]) <= budget)
        start = next(fitting, starts[-1])
        steps = _steps(messages[start + 1 :])
        while len(steps) > 1 and _tokens([messages[start], *chain(*steps)]) > budget:
            del steps[0]
        return [*_settings(messages[:start]), *_answered([messages[start], *chain(*steps)])]

    return trim


def recall_instructions(
    handle: AnyHandle, *, k: int = 5
) -> Callable[[RunContext[Any]], Awaitable[str]]:
    """Return instructions for `Agent(instructions=…)`: what is remembered about the prompt.

    What stands in the messages of the run is not repeated.
    """
    calls = Calls(handle, "recall_instructions")

    async def instructions(ctx: RunContext[Any]) -> str:
        prompt = _texts(ctx.prompt)
        known = {item.content for message in ctx.messages for item in _said(message)}
        return await calls.wait(recalled_text(calls.handle, prompt, k=k, known={prompt, *known}))

    return instructions


def memory_toolset(handle: AnyHandle) -> FunctionToolset[Any]:
    """Return the ready-made tools of *handle* for `Agent(toolsets=[…])`."""
    return memory_tools(handle).pydantic_ai()


def _entries(conversation_id: str) -> EntryPath:
    return (_ROOT, "entries", conversation_id)


def _value(entry: ConversationEntry) -> bytes:
    """Return an entry as it is stored: the one before it, and on the next line its message."""
    try:
        message = ModelMessagesTypeAdapter.dump_json([entry.message])
    except PydanticSerializationError as exc:
        raise InvalidItemError(
            f"a message cannot be stored as JSON, as with half of a surrogate pair: {exc}"
        ) from None
    return b"\n".join([(entry.parent_id or "").encode(), message])


def _entry(stored: Entry) -> ConversationEntry:
    parent, _, message = stored.value.partition(b"\n")
    (read,) = ModelMessagesTypeAdapter.validate_json(message)
    return ConversationEntry(id=stored.key, parent_id=parent.decode() or None, message=read)


def _shortened(
    record: ConversationRecord, histories: Sequence[Sequence[str]], gone: Collection[str]
) -> ConversationRecord:
    """Return a record whose history and branches, newest last, end before what is *gone*."""
    tips = [
        next((name for name in reversed(history) if name not in gone), None)
        for history in histories
    ]
    branches = [tip for tip in dict.fromkeys(tips[1:]) if tip is not None]
    # Another revision, so that whoever goes on with what is gone is told.
    return replace(record, head_id=tips[0], branches=branches, revision=str(uuid4()))


def _is_prompt(message: ModelMessage) -> bool:
    is_request = isinstance(message, ModelRequest)
    return is_request and any(isinstance(part, UserPromptPart) for part in message.parts)


def _tokens(messages: Sequence[ModelMessage]) -> int:
    return estimate_tokens(ModelMessagesTypeAdapter.dump_json(list(messages)).decode())


def _steps(messages: Sequence[ModelMessage]) -> list[list[ModelMessage]]:
    """Return each answer of the model with the results of its calls."""
    steps: list[list[ModelMessage]] = []
    for message in messages:
        if not steps or isinstance(message, ModelResponse):
            steps.append([])
        steps[-1].append(message)
    return steps


def _answered(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return messages without results of calls that are not among them.

    A request may have a prompt beside the results of the turn before.
    """
    calls: set[str] = set()
    kept: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            calls |= {part.tool_call_id for part in message.tool_calls}
            kept.append(message)
            continue
        parts = [part for part in message.parts if _answers(part) in (None, *calls)]
        if parts:
            kept.append(replace(message, parts=parts))
    return kept


def _answers(part: ModelRequestPart) -> str | None:
    """Return the id of the call that a part is the result of, if it is one."""
    if isinstance(part, ToolReturnPart):
        return part.tool_call_id
    if part.part_kind == "retry-prompt" and part.tool_name is not None:
        return part.tool_call_id
    return None


def _settings(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return what holds on after the messages are gone: system prompts, tools, a summary."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    parts = [part for each in requests for part in each.parts if part.part_kind not in _TALK]
    return [ModelRequest(parts=parts)] if parts else []


def _texts(content: object) -> str:
    """Return the text of a prompt, which may have pictures, too."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "\n".join(part for part in parts if isinstance(part, str))


def _said(message: ModelMessage) -> list[MemoryItem]:
    """Return a message as those of a chat; what cannot be one is left out."""
    items: list[MemoryItem] = []
    try:
        if isinstance(message, ModelResponse):
            text = "\n".join(part.content for part in message.parts if isinstance(part, TextPart))
            calls = [
                {
                    "id": part.tool_call_id,
                    "name": part.tool_name,
                    "arguments": part.args_as_json_str(),
                }
                for part in message.parts
                if isinstance(part, ToolCallPart)
            ]
            if text.strip() or calls:
                items.append(AIMemory(content=text, tool_calls=calls))
            return items
        for part in message.parts:
            if isinstance(part, UserPromptPart) and _texts(part.content).strip():
                items.append(HumanMemory(content=_texts(part.content)))
            elif isinstance(part, ToolReturnPart):
                text = part.model_response_str()
                about = {"tool_call_id": part.tool_call_id, "tool_name": part.tool_name}
                items.append(ToolMemory(content=text, **about))
    except ValueError:  # too long, or with characters that no store keeps
        return []
    return items
