"""`AgentMemory`: one address, and from it everything an agent needs to remember."""

import inspect
import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from orbiter.memory.agent.chat_service import Chats, ScopeSession
from orbiter.memory.agent.events import EventStream
from orbiter.memory.agent.runtime import Core
from orbiter.memory.agent.scope import ScopedMemory, session_of
from orbiter.memory.agent.telemetry import traced
from orbiter.memory.backends.registry import (
    URL_VARIABLE,
    default_url,
    is_of_server,
    load_scheme,
    make_folder,
    open_store,
)
from orbiter.memory.backends.urls import shown
from orbiter.memory.deprecation import warn
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.items import RESERVED, MemoryMetadata
from orbiter.memory.model.protocols import (
    AgentStore,
    BackupStore,
    Embeddings,
    MaintainedStore,
    MemoryStore,
    Summarizer,
    VectorStore,
)
from orbiter.memory.model.query import SCOPE_FIELDS, require_text
from orbiter.memory.model.reports import StoreStats, Verification
from orbiter.memory.tasks.progress import Progress, advance, track

if TYPE_CHECKING:
    from orbiter.memory.agent._audit import AuditLog
    from orbiter.memory.context.persona import Soul
    from orbiter.memory.conversation.tokens import TokenCounter
    from orbiter.memory.model.audit import AuditMode
    from orbiter.memory.model.reports import Erasure, Restored
    from orbiter.memory.summary import SummaryConfig

__all__ = ["AgentMemory"]

_SERVERS = ("postgres", "redis")
_FILES = ("memory", "sqlite")


class AgentMemory:
    """Memory for agents, at the place that *url* names.

    `sqlite:///agent.db` or a path is a file, `memory://` is this process, `postgresql://…` a
    database for many machines, `redis://…` the shared short-term tier, and `http://…` or
    `https://…` a server of memories, of which *token* is a key, by default that in
    `ORBITER_MEMORY_TOKEN`; all other options are then the server's own. Without *url* it is
    `ORBITER_MEMORY_URL`, or a file in the user's data directory.

    With *store*, memories are kept in that object instead: any `MemoryStore`, which is opened and
    closed with this one. What it cannot do itself is done here or refused by name.

    *embeddings* are the local model if the extra `[local]` is installed, none with `None`, or your
    own. *episodic* names the place of `ScopedMemory.activity`. *persona* is a `Soul` or the path
    of a SOUL.md. *summarizer* sums up long chats as *summaries* says, by default without a model;
    with `summaries=None`, nothing does. *count_tokens* counts for budgets, in place of an
    estimate. *secret* keeps the beginning of contexts the same in all processes that share it, as
    providers' caches want it. On Postgres, *row_security* has the server itself hold every handle
    to its user. With *audit* `writes`, or `all` for reads as well, what is done is recorded in a
    chain that shows whether anybody has changed it.

    Use it as `async with AgentMemory(…) as memory`, or close it; the first use opens it.
    """

    def __new__(
        cls, url: str | os.PathLike[str] | None = None, *_args: object, **_options: object
    ) -> Self:
        """Return a memory; at the address of a server, it is that of `orbiter.memory.client`."""
        address = os.environ.get(URL_VARIABLE) if url is None else url
        if cls is AgentMemory and is_of_server(address):
            cls = _remote_memory()  # type: ignore[assignment]  # noqa: PLW0642
        return super().__new__(cls)

    def __init__(  # noqa: PLR0913 - each is a setting people look for
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        store: MemoryStore | None = None,
        token: str | None = None,
        embeddings: Embeddings | Literal["auto"] | None = "auto",
        episodic: str | None = None,
        persona: "str | Path | Soul | None" = None,
        summarizer: Summarizer | None = None,
        summaries: "SummaryConfig | Literal['auto'] | None" = "auto",
        count_tokens: "TokenCounter | None" = None,
        secret: bytes | None = None,
        row_security: bool = False,
        audit: "AuditMode | None" = None,
    ) -> None:
        if token is not None:
            raise QueryError(
                "`token` is the key of a server, as in `AgentMemory('https://…', token=…)`; "
                "leave it out for a store of your own"
            )
        if store is None:
            is_ours = url is None and not os.environ.get(URL_VARIABLE)
            address = default_url() if url is None else url
            model = _local_model() if embeddings == "auto" else embeddings
            held = open_store(address, embeddings=model, audit=audit)
            self._url = _printable(address)
        else:
            is_ours, address = False, ""
            model = _model_of(store, embeddings)
            _check_only_store(url, audit)
            held, self._url = _adapted(store), repr(store)
        is_redis = str(address).startswith("redis")
        if row_security and not hasattr(held, "acting_for"):
            raise QueryError("`row_security=True` is Postgres's; other stores are held by handles")
        self._core = Core(
            held,
            owner=repr(self),
            embeddings=model,
            is_model_declined=embeddings is None,
            episodic=str(address) if is_redis and episodic is None else episodic,
            row_security=row_security,
            prepare=partial(make_folder, str(address)) if is_ours else _nothing,
        )
        self._chats = Chats(
            self._core,
            persona=persona,
            summarizer=summarizer,
            summaries=summaries,
            count_tokens=count_tokens,
            secret=secret,
        )

    def __repr__(self) -> str:
        return f"AgentMemory({self._url!r})"

    @property
    def url(self) -> str:
        """Where memories are kept, without a password."""
        return self._url

    @property
    def store(self) -> AgentStore:
        """The store, for what no handle offers; it knows no scope.

        One that was given and lacks something of an `AgentStore` is `store.store`.
        """
        return self._core.store

    # Opening and closing

    @traced("store.init")
    async def init(self) -> None:
        """Open the store. May be repeated, and need not be called."""
        await self._core.init()

    @traced("store.close")
    async def close(self) -> None:
        """Finish and close everything; the next use opens it again."""
        await self._core.close()

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

    # Handles

    def scope(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        task_id: str | None = None,
        agent_id: str | None = None,
        by: str | None = None,
    ) -> ScopedMemory:
        """Return a handle that reads and writes only what has these ids; name at least one.

        *by* is who acts through it, for `history` and the audit log.
        """
        given = (user_id, session_id, task_id, agent_id)
        for name, value in zip(SCOPE_FIELDS, given, strict=True):
            if value is not None:
                require_text(name, value)
        if given == (None, None, None, None):
            names = "`, `".join(SCOPE_FIELDS)
            raise QueryError(
                f"a scope names at least one of `{names}`; "
                "everyone's memories are behind `memory.unscoped()`"
            )
        whose = MemoryMetadata(
            user_id=user_id, session_id=session_id, task_id=task_id, agent_id=agent_id
        )
        return self._handle(whose, _check_actor(by))

    def unscoped(self, *, by: str | None = None) -> ScopedMemory:
        """Return a handle on everyone's memories: for administration, never for an agent."""
        return self._handle(MemoryMetadata(), _check_actor(by))

    def _handle(self, whose: MemoryMetadata, by: str | None) -> ScopedMemory:
        return ScopedMemory(ScopeSession(self._chats, whose, by))

    def events(self) -> EventStream:
        """Return everything that happens through this object from now on, for `async for`."""
        return self._core.events.listen(MemoryMetadata())

    # Letting go

    @traced("store.erase")
    async def erase(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        task_id: str | None = None,
        agent_id: str | None = None,
        by: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> "Erasure":
        """Remove for good all that has these ids, everywhere, and check that nothing is left.

        Name at least one. It cannot be undone. The report is true if nothing was found any more,
        neither in a table nor in the bytes of a file; if it is not, it says why, and calling again
        goes on. With *dry_run* nothing is touched: the items and the forgotten ones are counted.
        *progress* is called with steps done and steps in all.
        """
        from orbiter.memory.agent._erase import erase  # noqa: PLC0415 - seldom needed

        whose = self.scope(
            user_id=user_id, session_id=session_id, task_id=task_id, agent_id=agent_id, by=by
        )
        with track(progress):
            return await erase(session_of(whose), dry_run=dry_run)

    @property
    def audit(self) -> "AuditLog":
        """What was done in this memory, if it was made with `audit=`."""
        from orbiter.memory.agent._audit import AuditLog  # noqa: PLC0415

        return AuditLog(self._core)

    # Looking after the store

    @traced("store.stats")
    async def stats(self) -> StoreStats:
        """Return how much the store holds, and what waits to be indexed."""
        await self.init()
        return await self._durable("statistics").stats()

    @traced("store.verify")
    async def verify(
        self, *, repair: bool = False, progress: Progress | None = None
    ) -> Verification:
        """Read everything and check the search structures; with *repair*, build them anew.

        *progress* is called with rows read and rows in all.
        """
        await self.init()
        with track(progress):
            return await self._durable("checking").verify(repair=repair)

    @traced("store.reindex")
    async def reindex(self, *, progress: Progress | None = None) -> int:
        """Embed everything anew, as after a change of `embeddings`; return how many items.

        Where the stored vectors are of another model, this opens the memory, which `init` refuses.
        *progress* is called with items done and items in all.
        """
        self._core.enter()
        store = self._durable("embedding anew")
        done = await store.reindex(progress=progress or advance)
        await self.init()
        return done

    @traced("store.backup")
    async def backup(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> None:
        """Copy a SQLite memory to a new file while it is in use; `restore` brings it back."""
        store = self._file_store("`pg_dump` for Postgres, a snapshot for Redis")
        await self.init()
        await store.backup(path, progress=progress)

    @traced("store.restore")
    async def restore(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> "Restored":
        """Replace a SQLite memory by a backup, which stays as it is; return what was done.

        This memory is closed for it, and the next use opens what was restored. `StorageError` if
        the backup is damaged, not ours or too new, or if another process, or another object here,
        has the memory open; then nothing is changed. What was there is kept beside it.
        """
        store = self._file_store("`pg_restore` for Postgres, its own file for Redis")
        await self.close()
        self._core.prepare()
        return await store.restore_backup(path, progress=progress)

    @traced("store.flush")
    async def flush(self, *, progress: Progress | None = None) -> None:
        """Wait until what goes on in the background is done: summaries, indexes and vectors.

        What was remembered a moment ago is then found by meaning, too, however much it was.
        *progress* is called once it begins, as nobody knows how much there is.
        """
        self._core.enter()
        with track(progress):
            advance(0)
        await self._chats.flush()
        if isinstance(self.store, VectorStore):
            await self.init()
            await self.store.catch_up()

    async def settle(self, *, progress: Progress | None = None) -> None:
        """Do as `flush`, by its old name."""
        warn("settle", "flush", stacklevel=2)
        await self.flush(progress=progress)

    def _file_store(self, ways: str) -> BackupStore:
        if not isinstance(self.store, BackupStore):
            raise UnsupportedError(f"{self!r} has no file to copy; there are other means: {ways}")
        return self.store

    def _durable(self, what: str) -> MaintainedStore:
        if not isinstance(self.store, MaintainedStore):
            raise UnsupportedError(f"{self.store!r} has no {what}; SQLite and Postgres have")
        return self.store


# What `help` and others show of a class is its `__new__`; people look for the options.
AgentMemory.__new__.__signature__ = inspect.signature(AgentMemory.__init__)  # type: ignore[attr-defined]


def _remote_memory() -> type[AgentMemory]:
    """Return the class of the client, which stands above this and is registered for `http`."""
    found = load_scheme("http")
    if found is None:
        raise ModuleNotFoundError(
            "the entry points of orbiter-memory are not installed, so `http://…` leads nowhere: "
            "pip install 'orbiter-memory[client]'"
        )
    remote: type[AgentMemory] = found  # type: ignore[assignment]  # the entry point's own class
    return remote


def _local_model() -> Embeddings | None:
    """Return the local model if its extra is installed; recall says once if it is not."""
    if any(find_spec(name) is None for name in ("numpy", "onnxruntime", "orbiter_memory_minilm")):
        return None
    from orbiter.memory.embeddings.local import LocalEmbeddings  # noqa: PLC0415

    return LocalEmbeddings()


def _adapted(store: MemoryStore) -> AgentStore:
    from orbiter.memory.backends.adapter import as_agent_store  # noqa: PLC0415 - most give a URL

    return as_agent_store(store)


def _model_of(
    store: MemoryStore, embeddings: Embeddings | Literal["auto"] | None
) -> Embeddings | None:
    """Return the model of a store that has one, else that which was chosen."""
    own = getattr(store, "embeddings", None)
    if isinstance(own, Embeddings):
        if embeddings not in ("auto", own):
            raise QueryError(f"{store!r} has a model; give `embeddings` to the store itself")
        return own
    return _local_model() if embeddings == "auto" else embeddings


def _check_only_store(url: object, audit: object) -> None:
    if url is not None:
        raise QueryError("give either `url` or `store`; both say where memories are kept")
    if audit is not None:
        raise QueryError("give `audit` to the store itself, which keeps the log")


def _printable(url: str | os.PathLike[str]) -> str:
    """Return *url* without what may be a password."""
    text = str(url)
    scheme, mark, rest = text.partition("://")
    if not mark or scheme in _FILES:
        return text
    if scheme.startswith(_SERVERS):
        return shown(text)
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0].partition('#')[0]}"


def _check_actor(by: str | None) -> str | None:
    """Return who acts, or raise `QueryError` for a name that the library signs with itself."""
    if by is not None and require_text("by", by).startswith(RESERVED):
        raise QueryError(f"`by` must not begin with `{RESERVED}`, which is reserved: `{by}`")
    return by


def _nothing() -> None:
    """Prepare nothing: whoever names a place has made its folder."""
