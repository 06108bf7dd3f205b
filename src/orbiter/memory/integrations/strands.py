"""Strands: `OrbiterSessionRepository` keeps sessions, `OrbiterMemoryStore` finds what was said.

The repository keeps every message of an agent exactly, with its state. What was said is also in the
chat of the session's id, where the store, recall and the dashboard find it.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic_core import to_jsonable_python

from orbiter.memory import sync
from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent import Chat, KeyValue, ScopedMemory
from orbiter.memory.errors import ItemNotFoundError, QueryError, VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls, forget_messages, list_all
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.model.key_value import Entry, EntryPath, appended_key
from orbiter.memory.recall import Hit
from orbiter.memory.text.ranking import asked_for_prompt, for_prompt

try:
    from strands.memory import AddMessagesContext, ExtractionConfig, MemoryEntry, SearchOptions
    from strands.session.session_repository import SessionRepository
    from strands.types.exceptions import SessionException
    from strands.types.session import Session, SessionAgent, SessionMessage
except ModuleNotFoundError as exc:
    raise missing_extra("the adapters for Strands need strands-agents", "strands") from exc

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase
    from strands.types.content import Message

__all__ = ["OrbiterMemoryStore", "OrbiterSessionRepository"]

_ROOT = "strands"
_SESSION: tuple[EntryPath, str] = ((_ROOT,), "session")
_AGENTS = (_ROOT, "agents")
_MULTI_AGENTS = (_ROOT, "multi-agents")


class OrbiterSessionRepository(SessionRepository):  # type: ignore[misc]  # types of theirs are not read
    """The sessions of one handle: `RepositorySessionManager("s1", OrbiterSessionRepository(ann))`.

    *handle* is one of `orbiter.memory.sync`, as Strands calls a repository from threads of its own
    and waits for it. With *remember* false, what is said does not go to a chat.
    """

    def __init__(self, handle: sync.ScopedMemory, *, remember: bool = True) -> None:
        if not isinstance(handle, sync.ScopedMemory):
            raise QueryError(
                "`OrbiterSessionRepository` takes the handle of a scope of `orbiter.memory.sync`, "
                f"as Strands waits for it in threads of its own; not {handle!r}"
            )
        self._calls = Calls(handle, "OrbiterSessionRepository")
        self._remember = remember

    def create_session(self, session: Session, **_: Any) -> Session:
        """Begin a session; `SessionException` if there is one of that id."""
        self._create(session.session_id, *_SESSION, session.to_dict(), "Session")
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Return a session, or `None`."""
        stored = self._read(session_id, *_SESSION)
        return None if stored is None else Session.from_dict(stored)

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Remove a session for good, and forget what was said in it."""
        self._calls.run(self._delete(session_id))

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Add an agent to a session."""
        self._check_session(session_id)
        name = session_agent.agent_id
        self._create(session_id, _AGENTS, name, session_agent.to_dict(), f"Agent {name} in session")

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        """Return an agent with its state, or `None`."""
        stored = self._read(session_id, _AGENTS, agent_id)
        return None if stored is None else SessionAgent.from_dict(stored)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Store the state of an agent that is in a session."""
        name = session_agent.agent_id
        before = self._read(session_id, _AGENTS, name)
        if before is None:
            raise SessionException(f"Agent {name} in session {session_id} does not exist")
        session_agent.created_at = before["created_at"]
        self._write(session_id, _AGENTS, name, session_agent.to_dict())

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Append a message; `SessionException` if another program did so before."""
        self._calls.run(self._append(session_id, agent_id, session_message))

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **_: Any
    ) -> SessionMessage | None:
        """Return a message, or `None`."""
        stored = self._read(session_id, _log(agent_id), _number(message_id))
        return None if stored is None else _message(stored)

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Store a message that was redacted; the chat says what it says now."""
        self._calls.run(self._update(session_id, agent_id, session_message))

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **_: Any,
    ) -> list[SessionMessage]:
        """Return at most *limit* messages of an agent, in order, without the first *offset*."""
        entries = self._calls.run(list_all(self._kv(session_id), _log(agent_id)))
        end = None if limit is None else offset + limit
        return [_message(json.loads(entry.value)) for entry in entries[offset:end]]

    def create_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **_: Any) -> None:
        """Store the state of a graph or a swarm."""
        self._check_session(session_id)
        self._write(session_id, _MULTI_AGENTS, multi_agent.id, multi_agent.serialize_state())

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **_: Any
    ) -> dict[str, Any] | None:
        """Return the state of a graph or a swarm, or `None`."""
        return self._read(session_id, _MULTI_AGENTS, multi_agent_id)

    def update_multi_agent(self, session_id: str, multi_agent: "MultiAgentBase", **_: Any) -> None:
        """Store the state of a graph or a swarm that is in a session."""
        if self._read(session_id, _MULTI_AGENTS, multi_agent.id) is None:
            raise SessionException(
                f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            )
        self._write(session_id, _MULTI_AGENTS, multi_agent.id, multi_agent.serialize_state())

    # Entries of a session: they go with its chat when it is erased

    def _kv(self, session_id: str) -> KeyValue:
        return self._calls.handle.chat(session_id).kv

    def _read(self, session_id: str, path: EntryPath, key: str) -> dict[str, Any] | None:
        entry: Entry | None = self._calls.run(self._kv(session_id).get(path, key))
        return None if entry is None else json.loads(entry.value)

    def _write(self, session_id: str, path: EntryPath, key: str, value: Mapping[str, Any]) -> None:
        self._calls.run(self._kv(session_id).put(path, key, _json(value)))

    def _create(
        self, session_id: str, path: EntryPath, key: str, value: Mapping[str, Any], what: str
    ) -> None:
        put = self._kv(session_id).put(path, key, _json(value), expected_version=0)
        try:
            self._calls.run(put)
        except VersionConflict:
            raise SessionException(f"{what} {session_id} already exists") from None

    def _check_session(self, session_id: str) -> None:
        if self._read(session_id, *_SESSION) is None:
            raise SessionException(f"Session {session_id} does not exist")

    async def _delete(self, session_id: str) -> None:
        if not await self._kv(session_id).clear((_ROOT,)):
            raise SessionException(f"Session {session_id} does not exist")
        await forget_messages(self._calls.handle, session_id)

    async def _append(self, session_id: str, agent_id: str, message: SessionMessage) -> None:
        kv = self._kv(session_id)
        if await kv.get(_AGENTS, agent_id) is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        item = _item(message.to_message(), {"agent": agent_id}) if self._remember else None
        stored = message.to_dict() | {"item_id": item.id if item else None}
        try:
            await kv.put(
                _log(agent_id), _number(message.message_id), _json(stored), expected_version=0
            )
        except VersionConflict:
            raise SessionException(
                f"Message {message.message_id} already exists in agent {agent_id} "
                f"in session {session_id}"
            ) from None
        if item is not None:
            await self._calls.handle.chat(session_id).add(item)

    async def _update(self, session_id: str, agent_id: str, message: SessionMessage) -> None:
        kv, key = self._kv(session_id), _number(message.message_id)
        entry = await kv.get(_log(agent_id), key)
        if entry is None:
            raise SessionException(f"Message {message.message_id} does not exist")
        before = json.loads(entry.value)
        message.created_at = before["created_at"]
        item_id = before.get("item_id")
        await kv.put(_log(agent_id), key, _json(message.to_dict() | {"item_id": item_id}))
        if item_id is not None:
            with suppress(ItemNotFoundError):  # it was forgotten meanwhile
                if text := _text(message.to_message()):
                    await self._calls.handle.update(item_id, content=text)
                else:
                    await self._calls.handle.forget(item_id)


class OrbiterMemoryStore:
    """The memories of a scope, for `MemoryManager(stores=[OrbiterMemoryStore(ann)])`.

    A search returns what `recall` finds, best first, without those below *min_relevance*; by
    default, without what answers nothing. *handle* is of `orbiter.memory.sync`, or for agents that
    are awaited in one event loop, of `orbiter.memory`. With *extraction*, what is said goes to the
    chat *chat_id*; with an `OrbiterSessionRepository` it is in a chat already.
    """

    def __init__(
        self,
        handle: AnyHandle,
        *,
        name: str = "memory",
        description: str | None = "What the user said and what was remembered earlier.",
        max_search_results: int | None = None,
        writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
        min_relevance: float | None = None,
        chat_id: str = "strands",
    ) -> None:
        self.name = name
        self.description = description
        self.max_search_results = max_search_results
        self.writable = writable
        self.extraction = extraction
        self._calls = Calls(handle, "OrbiterMemoryStore")
        self._min_relevance = min_relevance
        self._chat_id = chat_id
        self._run_id = uuid4().hex

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return the memories that answer *query*, best first."""
        if not query.strip():
            return []
        k = (options or {}).get("max_search_results", self.max_search_results)
        least = self._min_relevance
        recalled = self._calls.handle.recall(
            query, k=5 if k is None else k, min_relevance=asked_for_prompt(least)
        )
        return [_entry(hit) for hit in for_prompt(await self._calls.wait(recalled), least)]

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Remember a text; *metadata* is kept in `metadata.extra`. Return its id."""
        work = self._calls.handle.remember(content, extra=_jsonable(metadata or {}))
        return (await self._calls.wait(work)).id

    async def add_messages(
        self, messages: "list[Message]", context: AddMessagesContext | None = None
    ) -> None:
        """Add what was said to the chat; a batch that is tried again is added once."""
        numbers = context.sequence_numbers if context is not None else None
        await self._calls.wait(self._add(messages, numbers or ()))

    async def _add(self, messages: "list[Message]", numbers: Sequence[int]) -> None:
        handle: ScopedMemory = self._calls.handle
        chat: Chat = handle.chat(self._chat_id)
        for position, message in enumerate(messages):
            item = _item(message, {})
            key = None
            if position < len(numbers) and item is not None:
                # Each agent counts from 0, so the number alone is not enough.
                about = f"{numbers[position]}\0{message['role']}\0{item.content}"
                key = f"{self._run_id}:{sha256(about.encode()).hexdigest()}"
            if item is not None:
                await chat.add(item, idempotency_key=key)


def _log(agent_id: str) -> EntryPath:
    return (_ROOT, "messages", agent_id)


def _number(message_id: int) -> str:
    """Return the key of a message; `ValueError` for what is not a position."""
    if message_id < 0:
        raise ValueError(f"`message_id` must be a whole number from 0 on, not {message_id!r}")
    return appended_key(message_id)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _jsonable(value: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = to_jsonable_python(dict(value), fallback=str)
    return values


def _message(stored: dict[str, Any]) -> SessionMessage:
    return SessionMessage.from_dict(stored)


def _text(message: "Message") -> str:
    """Return what is said in a message; tools, reasoning and files are left out."""
    texts = [block["text"] for block in message["content"] if "text" in block]
    return "\n".join(texts).strip()


def _item(message: "Message", extra: dict[str, Any]) -> MemoryItem | None:
    """Return what is said as a message of a chat, or `None` if nothing is, or it cannot be one."""
    if not (text := _text(message)):
        return None
    kind = HumanMemory if message["role"] == "user" else AIMemory
    with suppress(ValueError):  # too long, or with characters that no store keeps
        return kind(content=text, metadata=MemoryMetadata(extra=extra))
    return None


def _entry(hit: Hit) -> MemoryEntry:
    item = hit.shown
    metadata = {
        **item.metadata.extra,
        "id": item.id,
        "relevance": hit.relevance,
        "created_at": item.created_at.isoformat(),
    }
    if item.metadata.session_id is not None:
        metadata["session_id"] = item.metadata.session_id
    return MemoryEntry(content=item.content, metadata=metadata)
