"""`AuditLog`: what was written, read and erased in a memory, by whom, and whether it is true.

It is everybody's, so it knows no scope: it is for whoever answers for the memory, never for an
agent.
"""

import builtins
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from orbiter.memory.agent.interface import Handle, MemoryEngine, operation
from orbiter.memory.agent.keywords import (
    ItemRef,
    ScopeId,
    Time,
    as_bound,
    as_id,
    as_name,
)
from orbiter.memory.agent.runtime import Core, Store
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.model.agent_store import store_name
from orbiter.memory.model.audit import AuditEntry, AuditVerification, silently
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, require_text
from orbiter.memory.tasks.progress import Progress, track

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.audit import SQLAudit

__all__ = ["AuditLog", "read_as_one"]

_T = TypeVar("_T")


class AuditLog(Handle):
    """The log of a memory that was made with `audit`; `AgentMemory.audit` returns it."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def _address(self) -> tuple[str, dict[str, object]]:
        return "audit", {}

    def __repr__(self) -> str:
        return f"AuditLog({self._engine.url!r})"

    async def _store(self) -> "SQLAudit":
        await self._core.init()
        store = self._core.store
        if not _keeps_log(store):
            raise UnsupportedError(
                f"`{store_name(store)}` keeps no audit log; SQLite and Postgres do"
            )
        return store

    @operation("audit.entries", "GET audit", role="admin", answer="entries")
    async def entries(  # noqa: PLR0913 - each narrows it down
        self,
        *,
        user_id: ScopeId | None = None,
        session_id: ScopeId | None = None,
        task_id: ScopeId | None = None,
        agent_id: ScopeId | None = None,
        action: str | None = None,
        by: str | None = None,
        item_id: ItemRef | None = None,
        since: Time | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> builtins.list[AuditEntry]:
        """Return at most *limit* entries that match all that is given, newest first.

        A user's entries are found by the digest of the name, which the log has in its place. So
        the entries of an erased user are still there for whoever knows the name. *by* is who
        did it. *item_id* finds what was done to an item, except reads. *before* is the number of
        the last entry of a page, to get the page of older ones. `UnsupportedError` if there is no
        log.
        """
        names = (user_id, session_id, task_id, agent_id)
        ids = {
            name: None if value is None else require_text(name, as_name(value))
            for name, value in zip(SCOPE_FIELDS, names, strict=True)
        }
        store = await self._store()
        entries = await store.audit_entries(
            metadata=MemoryMetadata(**ids),
            action=action,
            by=None if by is None else require_text("by", by),
            item_id=None if item_id is None else as_id(item_id),
            since=as_bound("since", since),
            before=before,
            limit=limit,
        )
        # Another process may have begun a log that this one, open before, does not keep.
        if not entries and store.audit is None and not await store.audit_entries(limit=1):
            raise UnsupportedError(
                f"`{store_name(store)}` has no audit log; `orbiter-memory audit begin` starts one, "
                'or open it with `audit="writes"`'
            )
        return entries

    @operation(
        "audit.verify",
        "POST audit/verify",
        role="admin",
        is_heavy=True,
        is_long=True,
        has_safe_report=True,
    )
    async def verify(
        self, *, head: str | None = None, progress: Progress | None = None
    ) -> AuditVerification:
        """Follow the chain, and compare every item with what its entries say of it.

        *head* is what `head()` returned at some time, and was kept elsewhere: without it nobody
        can tell whether somebody has rewritten the whole log. *progress* is called with steps
        done and steps in all.
        """
        with track(progress):
            return await (await self._store()).verify_audit(head=head)

    @operation("audit.head", "GET audit/head", role="admin", answer="head")
    async def head(self) -> str:
        """Return the hash of the last entry. Keep it where nobody who can write here can."""
        return await (await self._store()).audit_head()


async def read_as_one(
    core: Core,
    scope: MemoryMetadata,
    call: str,
    read: Callable[[], Awaitable[_T]],
    ids: Callable[[_T], Iterable[str]],
) -> _T:
    """Return what *read* returns; if reads are logged, all that it reads is one entry.

    The entry names *call* and the *ids* that were found.
    """
    store = await core.opened(scope)
    if not _keeps_log(store) or store.audit != "all":
        return await read()
    with silently():
        result = await read()
    await store.log_read(call, ids(result), scope=scope)
    return result


def _keeps_log(store: Store) -> "TypeGuard[SQLAudit]":
    # By what it can do: to ask for its class would load a database's driver.
    return hasattr(store, "verify_audit")
