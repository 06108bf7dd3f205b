"""The handles of a memory on a server: what they name is sent along, and the server does the rest.

No call is written down here that the table of `orbiter.memory.wire` has.
"""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

from orbiter.memory.agent import (
    AuditLog,
    Chat,
    EventStream,
    Facts,
    FactsView,
    PastMemory,
    ScopedMemory,
)
from orbiter.memory.agent.inputs import narrowed
from orbiter.memory.client._remote_calls import Caller, called_by
from orbiter.memory.client._remote_events import RemoteEvents
from orbiter.memory.client._transport import HTTPTransport, Request
from orbiter.memory.model.audit import actor
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, check_instant
from orbiter.memory.wire import operations_of

if TYPE_CHECKING:
    import os
    from typing import IO

    from orbiter.memory.transfer import ExportResult, ImportResult

__all__ = [
    "RemoteAudit",
    "RemoteChat",
    "RemoteFacts",
    "RemoteFactsView",
    "RemotePast",
    "RemoteScope",
]

_PAGE = 500
_CHAT = operations_of("chat")


class Scoped(Caller):
    """What a request says of whose memories it is about, and who acts."""

    def __init__(self, link: HTTPTransport, scope: MemoryMetadata, *, by: str | None) -> None:
        self._link = link
        self._scope = scope
        self._by = by

    def _asked(self) -> dict[str, str]:
        whose: dict[str, str] = {
            name: value for name in SCOPE_FIELDS if (value := getattr(self._scope, name))
        }
        by = actor(self._by)
        who = {} if by is None else {"by": by}
        return {**(whose or {"everyone": "true"}), **who}


@called_by("scope", made_of_others=("add", "delete", "get_all", "search"))
class RemoteScope(Scoped, ScopedMemory):
    """What is remembered in one scope on a server; `AgentMemory.scope` makes it."""

    @property
    def _session(self) -> NoReturn:  # type: ignore[override]  # what reaches below a handle is told
        raise self._link.not_here("this")

    def events(self) -> EventStream:
        """Return what happens in this scope from now on, for `async for`."""
        return RemoteEvents(self._link, Request("GET", "/v1/events", self._asked()), self._scope)

    def chat(self, chat_id: str) -> "RemoteChat":
        """Return the conversation of that name in this scope, which may be a new one."""
        return RemoteChat(self, chat_id)

    @property
    def facts(self) -> "RemoteFacts":
        """What is known to be true in this scope, since when, and what was true before."""
        return RemoteFacts(self._link, self._scope, by=self._by)

    def as_of(self, moment: datetime) -> "RemotePast":
        """Return everything of this scope as it was stored at *moment*, to be read only."""
        return RemotePast(self._link, self._scope, moment, by=self._by)

    @property
    def activity(self) -> NoReturn:
        """Refuse: what was done lately is kept beside the agent that does it."""
        raise self._link.not_here("`activity`")

    async def _import_there(
        self,
        path: "str | os.PathLike[str]",
        *,
        format: str,
        owner: str | None,
        progress: Callable[[int, int], None] | None,
    ) -> "ImportResult":
        """Send a file to the server, which stores what it holds; `import_file` calls it."""
        from orbiter.memory.client._file_transfers import import_there  # noqa: PLC0415 - seldom needed

        asked = {**self._asked(), "format": format} | ({} if owner is None else {"owner": owner})
        return await import_there(self._link, asked, path, progress=progress)

    async def _export_there(
        self,
        target: "str | os.PathLike[str] | IO[bytes]",
        *,
        format: str,
        progress: Callable[[int, int], None] | None,
    ) -> "ExportResult":
        """Write what the server sends; `export_file` calls it."""
        from orbiter.memory.client._file_transfers import export_there  # noqa: PLC0415

        return await export_there(
            self._link, {**self._asked(), "format": format}, target, progress=progress
        )


@called_by("chat")
class RemoteChat(Scoped, Chat):
    """One conversation on a server; `ScopedMemory.chat` makes it."""

    def __init__(self, handle: RemoteScope, chat_id: str) -> None:
        super().__init__(handle._link, handle.scope, by=handle._by)  # noqa: SLF001 - two of a kind
        self._handle = self._home = handle
        self._id = chat_id
        self._narrow = narrowed(handle.scope, chat_id)

    @property
    def scope(self) -> MemoryMetadata:
        """What its messages carry."""
        return self._narrow

    def _named(self) -> dict[str, object]:
        return {"chat_id": self._id}

    async def fork(self, at: str | MemoryItem, *, chat_id: str | None = None) -> "RemoteChat":
        """Return a new chat with the messages up to and including *at*; this one stays as it is."""
        made = await self._call(_CHAT["fork"], {"at": at, "chat_id": chat_id})
        return RemoteChat(self._home, made)


@called_by("facts")
class RemoteFacts(Scoped, Facts):
    """What is true in one scope on a server; `ScopedMemory.facts` makes it."""


@called_by("past_facts")
class RemoteFactsView(Scoped, FactsView):
    """What was true in one scope on a server, as known then; `PastMemory.facts` makes it."""

    def __init__(
        self, link: HTTPTransport, scope: MemoryMetadata, moment: datetime, *, by: str | None
    ) -> None:
        super().__init__(link, scope, by=by)
        self._moment = moment

    def _named(self) -> dict[str, object]:
        return {"moment": self._moment}


@called_by("past")
class RemotePast(Scoped, PastMemory):
    """What was remembered in one scope on a server at *moment*; `ScopedMemory.as_of` makes it."""

    def __init__(
        self, link: HTTPTransport, scope: MemoryMetadata, moment: datetime, *, by: str | None
    ) -> None:
        super().__init__(link, scope, by=by)
        self._moment = check_instant("moment", moment)

    def _named(self) -> dict[str, object]:
        return {"moment": self._moment}

    @property
    def facts(self) -> RemoteFactsView:
        """What was true then, as it was known then."""
        return RemoteFactsView(self._link, self._scope, self._moment, by=self._by)

    async def __aiter__(self) -> AsyncIterator[MemoryItem]:
        """Yield all that was remembered, newest first."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=_PAGE, cursor=cursor)
            for item in page:
                yield item
            cursor = page.next
            if cursor is None:
                return


@called_by("audit")
class RemoteAudit(Caller, AuditLog):
    """The log of a memory on a server; `AgentMemory.audit` returns it."""

    def __init__(self, link: HTTPTransport) -> None:
        self._link = link

    def __repr__(self) -> str:
        return f"AuditLog({self._link.address.url!r})"
