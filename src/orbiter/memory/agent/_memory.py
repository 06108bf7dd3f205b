"""`AgentMemory`: one address, and from it everything an agent needs to remember."""

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self

from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent._local_engine import LocalEngine
from orbiter.memory.agent.chat_service import MemorySettings
from orbiter.memory.agent.hints import unknown_attribute
from orbiter.memory.agent.interface import (
    DEFAULT_USER,
    Handle,
    MemoryEngine,
    ScopeSession,
    check_actor,
    check_source,
    check_user_name,
    operation,
    scope_of,
)
from orbiter.memory.agent.keywords import ScopeId, checked_keywords
from orbiter.memory.agent.runtime import counting_store
from orbiter.memory.agent.scope import ScopedMemory
from orbiter.memory.backends.registry import URL_VARIABLE, is_http_url, load_scheme
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.model.agent_store import AgentStore, store_name
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.protocols import (
    BackupStore,
    Embeddings,
    MaintainedStore,
    MemoryStore,
    Reranker,
    Summarizer,
    VectorStore,
)
from orbiter.memory.tasks.progress import Progress, advance, track

if TYPE_CHECKING:
    from orbiter.memory.agent._audit import AuditLog
    from orbiter.memory.agent.results import UserPage
    from orbiter.memory.context.persona import Soul
    from orbiter.memory.conversation.tokens import TokenCounter
    from orbiter.memory.model.audit import AuditMode
    from orbiter.memory.model.reports import Erasure, Restored, StoreStats, Verification
    from orbiter.memory.model.value_counts import UserOrder
    from orbiter.memory.summary import SummaryConfig
    from orbiter.memory.text.pii import PIIHook
    from orbiter.memory.text.redaction import Redact

__all__ = ["AgentMemory"]


class AgentMemory(Handle):
    """Memory for agents, at the place that *url* names.

    `sqlite:///agent.db` or a path is a file, `memory://` is this process, `postgresql://…` a
    database for many machines, `redis://…` the shared short-term tier, and `http://…` or
    `https://…` a server of memories, of which *token* is a key, by default that in
    `ORBITER_MEMORY_TOKEN`. There a call may take *timeout* seconds with all its tries, by default
    60, and over plain `http` the key goes to other computers only with *insecure*; all other
    options are then the server's own. Without *url* it is `ORBITER_MEMORY_URL`, or a file in the
    user's data directory.

    With *store*, memories are kept in that object instead: any `MemoryStore`. If it is not open
    yet, it is opened and closed with this one; a store that you have opened stays open. What it
    cannot do itself is done here or refused by name.

    *embeddings* are the local model if the extra `[local]` is installed, none with `None`, or your
    own. A *reranker* reads what recall finds best beside the question; there is none by default.
    *episodic* names the place of `ScopedMemory.activity`. *persona* is the path of a SOUL.md, a
    text with spaces, or a `Soul`. *summarizer* sums up long chats as *summaries* says, by default
    without a model; with `summaries=None`, nothing does. *count_tokens* counts for budgets, in
    place of an estimate. *secret* keeps the beginning of contexts the same in all processes that
    share it, as providers' caches want it. On Postgres, *row_security* has the server itself hold
    every handle to its user. With *audit* `writes`, or `all` for reads as well, what is done is
    recorded in a chain that shows whether anybody has changed it. With *redact* `secrets`, tokens,
    keys and passwords become `[redacted: github token]` and the like; without it, that is done in
    what importers and hooks read, and with `none` nowhere. *pii* gets every text before it is
    written or asked for, and returns what may be stored, as a `PIIHasher` does; `tokens` is one
    with the key in `ORBITER_PII_KEY`: see `docs/privacy.md`.

    `scope("alice")` is Alice's memory; a personal agent that names nobody uses `default_user`.

    Use it as `async with AgentMemory(…) as memory`, or close it; the first use opens it.
    """

    @checked_keywords("AgentMemory")
    def __init__(  # noqa: PLR0913 - each is a setting people look for
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        store: MemoryStore | None = None,
        token: str | None = None,
        timeout: float | None = None,
        insecure: bool = False,
        embeddings: Embeddings | Literal["auto"] | None = "auto",
        reranker: Reranker | None = None,
        episodic: str | None = None,
        persona: "str | Path | Soul | None" = None,
        summarizer: Summarizer | None = None,
        summaries: "SummaryConfig | Literal['auto'] | None" = "auto",
        count_tokens: "TokenCounter | None" = None,
        secret: bytes | None = None,
        row_security: bool = False,
        audit: "AuditMode | None" = None,
        redact: "Redact | None" = None,
        pii: "PIIHook | str | None" = None,
    ) -> None:
        address = os.environ.get(URL_VARIABLE) if url is None and store is None else url
        settings = MemorySettings(
            store=store,
            token=token,
            timeout=timeout,
            insecure=insecure,
            embeddings=embeddings,
            reranker=reranker,
            episodic=episodic,
            persona=persona,
            summarizer=summarizer,
            summaries=summaries,
            count_tokens=count_tokens,
            secret=secret,
            row_security=row_security,
            audit=audit,
            redact=redact,
            pii=pii,
        )
        make = _remote_engine if is_http_url(address) else LocalEngine
        self._engine: MemoryEngine = make(url, settings)

    def _address(self) -> tuple[str, dict[str, object]]:
        return "memory", {}

    def __repr__(self) -> str:
        return f"AgentMemory({self.url!r})"

    @property
    def url(self) -> str:
        """Where memories are kept, without a password."""
        return self._engine.url

    @property
    def store(self) -> AgentStore:
        """The store, for what no handle offers; it knows no scope.

        One that was given and lacks something of an `AgentStore` is `store.store`.
        """
        return self._engine.core_for("store").store

    # Opening and closing

    async def init(self) -> None:
        """Open the store. May be repeated, and need not be called."""
        await self._engine.init()

    async def close(self) -> None:
        """Finish and close everything; the next use opens it again."""
        await self._engine.close()

    async def __aenter__(self) -> Self:
        await self.init()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "`AgentMemory` is used by `async with`, and its calls by `await`; for plain `with` and "
            "calls, take it from `orbiter.memory.sync`"
        )

    def __exit__(self, *_: object) -> None: ...  # only looked up, before the error above is raised

    # Handles

    def scope(
        self,
        user_id: ScopeId | None = None,
        *,
        session_id: ScopeId | None = None,
        task_id: ScopeId | None = None,
        agent_id: ScopeId | None = None,
        name: str | None = None,
        by: str | None = None,
        read_from: str | None = None,
    ) -> ScopedMemory:
        """Return a handle that reads and writes only what has these ids; name at least one.

        A number or a UUID names the same as its text. *name* is what people call the user, where
        the id does not tell: recall then reads "Where does Alice live?" as "Where do I live?". *by*
        is who acts through it, for `history` and the audit log. With *read_from* `replica`, a
        replica of the store may answer reads, if it is not behind this process's own writes: see
        `docs/operate/fleet.md`.
        """
        scope = scope_of(user_id, session_id, task_id, agent_id)
        source = check_source(read_from)
        called = check_user_name(name)
        return ScopedMemory(ScopeSession(self._engine, scope, check_actor(by), source, called))

    @property
    def default_user(self) -> ScopedMemory:
        """The handle of a personal agent, whose program names no user: that of `DEFAULT_USER`."""
        return self.scope(DEFAULT_USER)

    def unscoped(self, *, by: str | None = None, read_from: str | None = None) -> ScopedMemory:
        """Return a handle on everyone's memories: for administration, never for an agent."""
        source = check_source(read_from)
        return ScopedMemory(ScopeSession(self._engine, MemoryMetadata(), check_actor(by), source))

    if not TYPE_CHECKING:  # else every misspelt name would have the type `Any`

        def __getattr__(self, name: str) -> object:
            raise unknown_attribute(self, name, handle=ScopedMemory)

    # Letting go

    @operation(
        "store.erase",
        "POST erase",
        role="admin",
        is_safe_to_repeat=False,
        is_long=True,
        has_safe_report=True,
    )
    async def erase(
        self,
        user_id: ScopeId | None = None,
        *,
        session_id: ScopeId | None = None,
        task_id: ScopeId | None = None,
        agent_id: ScopeId | None = None,
        by: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> "Erasure":
        """Remove for good all that has these ids, everywhere, and check that nothing is left.

        Name at least one. It cannot be undone. The report is true if nothing is left, neither in
        a table nor in the bytes of a file. If it is false, it says why, and calling again resumes.
        With *dry_run* nothing is changed: items, forgotten ones and entries are counted.
        *progress* is called with the steps done and the total.
        """
        from orbiter.memory.agent._erase import (  # noqa: PLC0415 - seldom needed
            erase,
            remove_map_file,
            scope_to_erase,
        )

        scope = scope_to_erase(user_id, session_id, task_id, agent_id)
        with track(progress):
            done = await erase(ScopeSession(self._engine, scope, check_actor(by)), dry_run=dry_run)
        if not dry_run:
            await remove_map_file(self.url)
        return done

    @property
    def audit(self) -> "AuditLog":
        """What was done in this memory, if it was made with `audit=`."""
        from orbiter.memory.agent._audit import AuditLog  # noqa: PLC0415

        return AuditLog(self._engine)

    # Looking after the store

    @operation("store.users", "GET users", role="admin")
    async def users(
        self,
        *,
        starts_with: str = "",
        order: "UserOrder" = "name",
        limit: int = 50,
        cursor: str | None = None,
    ) -> "UserPage":
        """Return a page of the users who have memories or entries: how many, and since when.

        *order* is `name`, `recent` (last seen first) or `items` (most memories first).
        *starts_with* is how names begin, and *cursor* is `next` of the page before. The default
        user's name is `~default`; memories without a user are nobody's. A server answers this
        only to the key of an administrator that names nobody.
        """
        from orbiter.memory.agent.results import user_page, user_query  # noqa: PLC0415 - few ask

        query = user_query(starts_with, order, limit, cursor)
        store = await self._core.opened(MemoryMetadata())
        return user_page(await counting_store(store).users(query), limit)

    @operation("store.stats", "GET store/stats", role="admin")
    async def stats(self) -> "StoreStats":
        """Return how much the store holds, and how much is not indexed yet."""
        await self.init()
        return await self._maintained("`stats`").stats()

    @operation(
        "store.verify",
        "POST store/verify",
        role="admin",
        is_heavy=True,
        is_long=True,
        has_safe_report=True,
    )
    async def verify(
        self, *, repair: bool = False, progress: Progress | None = None
    ) -> "Verification":
        """Read everything and check the search structures; with *repair*, rebuild them.

        *progress* is called with rows read and rows in all.
        """
        await self.init()
        with track(progress):
            return await self._maintained("`verify`").verify(repair=repair)

    @operation(
        "store.reindex",
        "POST store/reindex",
        role="admin",
        answer="count",
        is_heavy=True,
        is_long=True,
        has_safe_report=True,
    )
    async def reindex(self, *, progress: Progress | None = None) -> int:
        """Embed everything again, as after a change of `embeddings`; return how many items.

        It also opens a memory that is refused because its vectors are of another model.
        *progress* is called with items done and items in all.
        """
        await self._core.claim()
        store = self._maintained("`reindex`")
        done = await store.reindex(progress=progress or advance)
        await self.init()
        return done

    @operation("store.backup")
    async def backup(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> None:
        """Copy a SQLite memory to a new file while it is in use; `restore` brings it back."""
        store = self._file_store("`pg_dump` for Postgres, a dump for Redis, or `export_file`")
        await self.init()
        await store.backup(path, progress=progress)

    @operation("store.restore")
    async def restore(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> "Restored":
        """Replace a SQLite memory by a backup, which stays as it is; return what was done.

        This memory is closed for it, and the next use opens what was restored. `StorageError` if
        the backup is damaged, not ours or too new. Also if another process, or another object
        here, has the memory open. Then nothing is changed. The old file is kept beside it.
        """
        store = self._file_store("`pg_restore` for Postgres, a dump for Redis, or `import_file`")
        await self.close()
        self._core.prepare()
        return await store.restore_backup(path, progress=progress)

    @operation("store.flush", "POST store/settle", role="admin", is_long=True, has_safe_report=True)
    async def flush(self, *, progress: Progress | None = None) -> None:
        """Wait until background work is done: summaries, indexes and vectors.

        What was remembered a moment ago is then found by meaning, too.
        *progress* is called once it begins, as nobody knows how much there is.
        """
        self._core.enter()
        with track(progress):
            advance(0)
        await self._chats.flush()
        if isinstance(self.store, VectorStore):
            await self.init()
            await self.store.catch_up()

    def _file_store(self, ways: str) -> BackupStore:
        if not isinstance(self.store, BackupStore):
            raise UnsupportedError(
                f"`{store_name(self.store)}` has no file to copy, as SQLite has; use {ways}"
            )
        return self.store

    def _maintained(self, what: str) -> MaintainedStore:
        if not isinstance(self.store, MaintainedStore):
            raise UnsupportedError(
                f"`{store_name(self.store)}` does not support {what}; SQLite and Postgres do"
            )
        return self.store


def _remote_engine(url: str | os.PathLike[str] | None, settings: MemorySettings) -> MemoryEngine:
    """Return what talks to a server: the client stands above this, and is registered for `http`."""
    make = load_scheme("http")
    if make is None:
        raise missing_extra(
            "the entry points of orbiter-memory are not installed, so `http://…` cannot be opened",
            "client",
        )
    engine: MemoryEngine = make(url, settings)
    return engine
