"""Google ADK: `OrbiterSessionService` keeps sessions, `OrbiterMemoryService` what was said in them.

ADK names the application and the user with every call, so both services stand on a whole memory: an
application is an agent of it. What one user has in one application nobody else sees.
"""

import json
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import uuid4

from pydantic_core import to_jsonable_python

from orbiter.memory import sync
from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent import AgentMemory, ScopedMemory
from orbiter.memory.errors import QueryError, UnsupportedError, VersionConflict
from orbiter.memory.integrations._calls import Calls, list_all
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata, role_of
from orbiter.memory.model.key_value import Delete, EntryPath, KeyValueStore, Put, appended_key
from orbiter.memory.recall import Hit, RecallMode
from orbiter.memory.text.ranking import asked_for_prompt, for_prompt

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import Event
    from google.adk.memory import BaseMemoryService
    from google.adk.memory.base_memory_service import SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions import BaseSessionService, Session, State
    from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
    from google.genai.types import Content, Part
except ModuleNotFoundError as exc:
    raise missing_extra("the services for Google ADK need google-adk", "google-adk") from exc

__all__ = ["OrbiterMemoryService", "OrbiterSessionService"]

_ROOT = "google-adk"
_SESSIONS = (_ROOT, "sessions")
_STATE = (_ROOT, "state")
"""State that sessions share, by its whole name: an application's, and a user's in it."""
_ADDED = (_ROOT, "added")
"""In a chat: the events whose message was added to it."""
_NO_SESSION = "google-adk"
"""The chat of events that are added without a session."""
_PAGE = 200
_T = TypeVar("_T")

AnyMemory = AgentMemory | sync.AgentMemory
"""A memory, async or blocking."""


class _Service:
    """What both services do with a memory."""

    def __init__(self, memory: AnyMemory) -> None:
        if not isinstance(memory, AgentMemory | sync.AgentMemory):
            raise QueryError(f"`{type(self).__name__}` takes an `AgentMemory`, not {memory!r}")
        self._memory = memory

    def _handle(self, app_name: str, user_id: str | None) -> ScopedMemory:
        """Return the handle of a user in an application, or of what all its users share."""
        memory: AgentMemory = sync.async_form(self._memory)
        return memory.scope(user_id=user_id, agent_id=app_name)

    async def _wait(self, app_name: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Await *work* in the loop that the memory is used in."""
        return await Calls(self._memory.scope(agent_id=app_name), type(self).__name__).wait(work)


class OrbiterSessionService(_Service, BaseSessionService):  # type: ignore[misc]  # types of theirs are not read
    """The sessions of every application and user, for `Runner(session_service=…)`.

    *memory* is of `orbiter.memory` or of `orbiter.memory.sync`. Events are kept exactly, each
    stored in one step with the state that it changes; state with `app:` is stored in a second step.
    Who appends to a session that somebody else appended to since it was read gets a
    `StaleSessionError`, and changes nothing.
    """

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a session; `AlreadyExistsError` if the user has one of that id."""
        name = (session_id or "").strip() or str(uuid4())
        return await self._wait(app_name, self._create(app_name, user_id, name, state or {}))

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its events, or those that *config* asks for; `None` if none."""
        work = self._get(app_name, user_id, session_id.strip(), config or GetSessionConfig())
        return await self._wait(app_name, work)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of a user without their events, the one used last at the end.

        Without a user, those of all: for that everything of the application is looked through,
        which a memory on a server does not do.
        """
        return await self._wait(app_name, self._list(app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session with its events for good; what was added to memory stays."""
        await self._wait(app_name, self._delete(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user that all sessions share, by names without `user:`."""
        state = await self._wait(app_name, _shared_state(self._handle(app_name, user_id)))
        return {name.removeprefix(State.USER_PREFIX): value for name, value in state.items()}

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event with the state that it changes; a partial one is not stored."""
        if event.partial:
            return event
        # Temporary state is for this run alone: `super` puts it into the session, nobody stores it.
        session.last_update_time = await self._wait(session.app_name, self._append(session, event))
        return await super().append_event(session, event)

    # In the loop of the memory

    async def _create(
        self, app_name: str, user_id: str, session_id: str, state: dict[str, Any]
    ) -> Session:
        handle = self._handle(app_name, user_id)
        shared, own = _divided(state)
        head = {"state": own, "events": 0, "updated": time.time(), "log": uuid4().hex}
        if await handle.kv.get(_SESSIONS, session_id) is not None:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.")
        try:
            await handle.kv.write(
                [
                    Put(_SESSIONS, session_id, _json(head), expected_version=0),
                    *_puts(shared, State.USER_PREFIX),
                ]
            )
        except VersionConflict:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.") from None
        await self._put_app_state(app_name, shared)
        return await self._session(app_name, user_id, session_id, head, [])

    async def _get(
        self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig
    ) -> Session | None:
        handle = self._handle(app_name, user_id)
        entry = await handle.kv.get(_SESSIONS, session_id) if session_id else None
        if entry is None:
            return None
        head = json.loads(entry.value)
        most, since = config.num_recent_events, config.after_timestamp
        events: list[Event] = []
        if most != 0:
            size = min(most or _PAGE, _PAGE)
            async for event in _newest(handle, _log(session_id, head), head["events"], size):
                if since is None or event.timestamp >= since:
                    events.append(event)
                if len(events) == most:
                    break
        return await self._session(app_name, user_id, session_id, head, events[::-1])

    async def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        users = [user_id] if user_id is not None else await self._users(app_name)
        sessions = []
        for user in users:
            handle = self._handle(app_name, user)
            entries = await list_all(handle.kv, _SESSIONS)
            shared = await self._all_shared(app_name, user) if entries else {}
            for entry in entries:
                head = json.loads(entry.value)
                sessions.append(_session(app_name, user, entry.key, head, shared, []))
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def _users(self, app_name: str) -> list[str]:
        """Return who has a session, without a list of users that would outlive their erasure."""
        store = getattr(sync.async_form(self._memory).store, "key_value", None)
        if not isinstance(store, KeyValueStore):
            raise UnsupportedError("this memory does not list the sessions of all users; name one")
        users: dict[str, None] = {}
        page = await store.dump(metadata=MemoryMetadata(agent_id=app_name), limit=_PAGE)
        while page:
            users |= {
                each.scope.user_id: None
                for each in page
                if each.entry.path == _SESSIONS and each.scope.user_id is not None
            }
            page = await store.dump(
                metadata=MemoryMetadata(agent_id=app_name), after=page[-1], limit=_PAGE
            )
        return list(users)

    async def _delete(self, app_name: str, user_id: str, session_id: str) -> None:
        kv = self._handle(app_name, user_id).kv
        entry = await kv.get(_SESSIONS, session_id) if session_id else None
        if entry is not None:
            # The head first: who appends at the same time finds that the session is gone.
            await kv.write([Delete(_SESSIONS, session_id)])
            await kv.clear(_log(session_id, json.loads(entry.value)))

    async def _append(self, session: Session, event: Event) -> float:
        """Store an event, and return when the session was changed last."""
        kv = self._handle(session.app_name, session.user_id).kv
        changes = {
            name: value
            for name, value in event.actions.state_delta.items()
            if not name.startswith(State.TEMP_PREFIX)
        }
        shared, own = _divided(changes)
        actions = event.actions.model_copy(update={"state_delta": changes})
        line = event.model_copy(update={"actions": actions}).model_dump_json(exclude_none=True)
        while True:
            entry = await kv.get(_SESSIONS, session.id)
            if entry is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            head = json.loads(entry.value)
            if head["updated"] > session.last_update_time:
                raise StaleSessionError(
                    f"session `{session.id}` was changed since it was read; get it again"
                )
            # Later than before, whatever the clock says, so that everybody else notices.
            head["updated"] = max(event.timestamp, math.nextafter(head["updated"], math.inf))
            head["events"] += 1
            head["state"] |= own
            puts = [
                Put(_SESSIONS, session.id, _json(head), expected_version=entry.version),
                Put(_log(session.id, head), appended_key(head["events"]), line.encode()),
                *_puts(shared, State.USER_PREFIX),
            ]
            try:
                await kv.write(puts)
            except VersionConflict:  # somebody was faster: see what became of the session
                continue
            await self._put_app_state(session.app_name, shared)
            return float(head["updated"])

    async def _put_app_state(self, app_name: str, shared: dict[str, Any]) -> None:
        """Store what all users share: another scope, so a step of its own after the session's."""
        if puts := _puts(shared, State.APP_PREFIX):
            await self._handle(app_name, None).kv.write(puts)

    async def _all_shared(self, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that a user's sessions share, with that of all users."""
        app = await _shared_state(self._handle(app_name, None))
        return app | await _shared_state(self._handle(app_name, user_id))

    async def _session(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        head: dict[str, Any],
        events: list[Event],
    ) -> Session:
        shared = await self._all_shared(app_name, user_id)
        return _session(app_name, user_id, session_id, head, shared, events)


class OrbiterMemoryService(_Service, BaseMemoryService):  # type: ignore[misc]  # types of theirs are not read
    """What was said to every application, by user, for `Runner(memory_service=…)`.

    What is added of a session goes to the chat of its id, each event once. A search returns at most
    *k* memories that `recall` finds, best first, without those below *min_relevance*; by default,
    without what answers nothing.
    """

    def __init__(
        self,
        memory: AnyMemory,
        *,
        k: int = 10,
        mode: RecallMode = "hybrid",
        min_relevance: float | None = None,
    ) -> None:
        super().__init__(memory)
        self._k = k
        self._mode: RecallMode = mode
        self._min_relevance = min_relevance

    async def add_session_to_memory(self, session: Session) -> None:
        """Add what is new in a session."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add what events say; one that was added before, or forgotten since, is left out.

        *custom_metadata* is kept in `metadata.extra`, to filter by.
        """
        said = _said(events, custom_metadata or {})
        handle = self._handle(app_name, user_id)
        await self._wait(app_name, _add(handle, session_id or _NO_SESSION, said))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember texts; one with an id that was added before is left out."""
        more = custom_metadata or {}
        await self._wait(app_name, _remember(self._handle(app_name, user_id), memories, more))

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return what the user told this application that answers *query*, best first."""
        if not query.strip():
            return SearchMemoryResponse()
        least = self._min_relevance
        work = self._handle(app_name, user_id).recall(
            query, k=self._k, mode=self._mode, min_relevance=asked_for_prompt(least)
        )
        hits = for_prompt(await self._wait(app_name, work), least)
        return SearchMemoryResponse(memories=[_entry(hit) for hit in hits])

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Forget one memory; `restore` of the handle brings it back."""
        if memory_id:
            await self._wait(app_name, self._handle(app_name, user_id).forget(memory_id))


def _log(session_id: str, head: dict[str, Any]) -> EntryPath:
    """Return where the events of a session are; one that is made again has another log."""
    return (_ROOT, "events", session_id, head["log"])


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _jsonable(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return state as JSON can keep it; what it cannot keep becomes a text, as in ADK's own."""
    values: dict[str, Any] = to_jsonable_python(dict(state), fallback=str)
    return values


def _divided(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state that sessions share, and a session's own; temporary state is in neither."""
    shared: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in _jsonable(state).items():
        if name.startswith((State.APP_PREFIX, State.USER_PREFIX)):
            shared[name] = value
        elif not name.startswith(State.TEMP_PREFIX):
            own[name] = value
    return shared, own


def _puts(shared: Mapping[str, Any], prefix: str) -> list[Put]:
    return [Put(_STATE, name, _json(v)) for name, v in shared.items() if name.startswith(prefix)]


async def _shared_state(handle: ScopedMemory) -> dict[str, Any]:
    return {entry.key: json.loads(entry.value) for entry in await list_all(handle.kv, _STATE)}


async def _newest(
    handle: ScopedMemory, log: EntryPath, count: int, size: int
) -> AsyncIterator[Event]:
    """Yield the first *count* events of a log, the newest of them first, by pages of *size*."""
    end, last = appended_key(count), None
    while True:
        page = await handle.kv.list(log, deep=False, reverse=True, after=last, limit=size)
        for entry in page:
            if entry.key <= end:  # others came after the session was read
                yield Event.model_validate_json(entry.value)
        if len(page) < size:
            return
        last = page[-1]


def _session(
    app_name: str,
    user_id: str,
    session_id: str,
    head: dict[str, Any],
    shared: dict[str, Any],
    events: list[Event],
) -> Session:
    return Session(
        app_name=app_name,
        user_id=user_id,
        id=session_id,
        state=head["state"] | shared,
        events=events,
        last_update_time=head["updated"],
    )


def _text(content: Content | None) -> str:
    """Return what is said in a content; thoughts, calls and files are left out."""
    parts = (content.parts or []) if content is not None else []
    return "\n".join(part.text for part in parts if part.text and not part.thought).strip()


def _said(
    events: Iterable[Event], custom_metadata: Mapping[str, object]
) -> list[tuple[str | None, MemoryItem]]:
    """Return the messages of events, each with the event's id."""
    messages: list[tuple[str | None, MemoryItem]] = []
    for event in events:
        if not (text := _text(event.content)):
            continue
        kind: Callable[..., MemoryItem] = HumanMemory if event.author == "user" else AIMemory
        extra = _jsonable({**custom_metadata, "author": event.author})
        with suppress(ValueError):  # too long, or with characters that no store keeps
            item = kind(
                content=text,
                created_at=datetime.fromtimestamp(event.timestamp, UTC),
                metadata=MemoryMetadata(extra=extra),
            )
            messages.append((event.id or None, item))
    return messages


def _when(memory: MemoryEntry) -> datetime | None:
    """Return when a memory is of, if it says so."""
    with suppress(ValueError):
        return datetime.fromisoformat(memory.timestamp or "").astimezone(UTC)
    return None


async def _remember(
    handle: ScopedMemory, memories: Sequence[MemoryEntry], custom_metadata: Mapping[str, object]
) -> None:
    for memory in memories:
        extra = {**memory.custom_metadata, **custom_metadata}
        extra |= {"author": memory.author} if memory.author else {}
        if text := _text(memory.content):
            await handle.remember(
                text, extra=_jsonable(extra), created_at=_when(memory), idempotency_key=memory.id
            )


async def _add(
    handle: ScopedMemory, session_id: str, messages: Sequence[tuple[str | None, MemoryItem]]
) -> None:
    """Add messages to the chat of a session, but for those that were added before."""
    chat = handle.chat(session_id)
    keys = [key for key, _ in messages if key is not None]
    added = {
        entry.key for entry in await chat.kv.get_many([(_ADDED, key) for key in keys]) if entry
    }
    new = [(key, item) for key, item in messages if key not in added]
    for key, item in new:
        await chat.add(item, idempotency_key=key)
    # Only to be quick: an event that is added twice at the same time is one message, too.
    if puts := [Put(_ADDED, key, b"") for key, _ in new if key is not None]:
        await chat.kv.write(puts)


def _entry(hit: Hit) -> MemoryEntry:
    item = hit.shown
    extra = dict(item.metadata.extra)
    author = extra.pop("author", None)
    return MemoryEntry(
        id=item.id,
        content=Content(
            role="model" if role_of(item) == "ai" else "user", parts=[Part(text=item.content)]
        ),
        author=author if isinstance(author, str) else None,
        timestamp=item.created_at.isoformat(),
        custom_metadata={
            **extra,
            "session_id": item.metadata.session_id,
            "relevance": hit.relevance,
        },
    )
