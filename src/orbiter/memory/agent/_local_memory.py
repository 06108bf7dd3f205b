"""`LocalMemory`: what an `AgentMemory` is made of whose store is in this process."""

import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orbiter.memory.agent.chat_service import Chats, ScopeSession
from orbiter.memory.agent.events import EventStream
from orbiter.memory.agent.interface import MemoryEngine, check_actor, scope_of
from orbiter.memory.agent.runtime import Core
from orbiter.memory.agent.scope import ScopedMemory
from orbiter.memory.agent.telemetry import traced
from orbiter.memory.backends.registry import (
    URL_VARIABLE,
    default_url,
    make_folder,
    open_store,
)
from orbiter.memory.backends.urls import redacted
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.agent_store import AgentStore, store_label, store_name
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.protocols import (
    BackupStore,
    Embeddings,
    MaintainedStore,
    MemoryStore,
    Summarizer,
    VectorStore,
)
from orbiter.memory.model.reports import StoreStats, Verification
from orbiter.memory.tasks.progress import Progress, advance, track

if TYPE_CHECKING:
    from orbiter.memory.agent._audit import AuditLog
    from orbiter.memory.context.persona import Soul
    from orbiter.memory.conversation.tokens import TokenCounter
    from orbiter.memory.model.audit import AuditMode
    from orbiter.memory.model.reports import Erasure, Restored
    from orbiter.memory.summary import SummaryConfig

__all__ = ["LocalMemory"]

_SERVERS = ("postgres", "redis")
_FILES = ("memory", "sqlite")


class LocalMemory(MemoryEngine):
    """A store, opened when it is first used, with all that stands beside it."""

    def __init__(  # noqa: PLR0913 - each is a setting people look for
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        store: MemoryStore | None = None,
        token: str | None = None,
        timeout: float | None = None,
        insecure: bool = False,
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
        _check_no_server(token=token, timeout=timeout, insecure=insecure or None)
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
            held, self._url = _adapted(store), store_label(store)
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
        return self._url

    @property
    def core(self) -> Core:
        return self._core

    @property
    def chats(self) -> Chats:
        return self._chats

    @property
    def store(self) -> AgentStore:
        return self._core.store

    @traced("store.init")
    async def init(self) -> None:
        await self._core.init()

    @traced("store.close")
    async def close(self) -> None:
        await self._core.close()

    def handle(self, scope: MemoryMetadata, by: str | None) -> ScopedMemory:
        return ScopedMemory(ScopeSession(self._chats, scope, by))

    def events(self) -> EventStream:
        return self._core.events.listen(MemoryMetadata())

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
        from orbiter.memory.agent._erase import erase  # noqa: PLC0415 - seldom needed

        whose = scope_of(user_id, session_id, task_id, agent_id)
        with track(progress):
            session = ScopeSession(self._chats, whose, check_actor(by))
            return await erase(session, dry_run=dry_run)

    @property
    def audit(self) -> "AuditLog":
        from orbiter.memory.agent._audit import AuditLog  # noqa: PLC0415

        return AuditLog(self._core)

    # Looking after the store

    @traced("store.stats")
    async def stats(self) -> StoreStats:
        await self.init()
        return await self._durable("statistics").stats()

    @traced("store.verify")
    async def verify(
        self, *, repair: bool = False, progress: Progress | None = None
    ) -> Verification:
        await self.init()
        with track(progress):
            return await self._durable("checking").verify(repair=repair)

    @traced("store.reindex")
    async def reindex(self, *, progress: Progress | None = None) -> int:
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
        store = self._file_store("`pg_restore` for Postgres, its own file for Redis")
        await self.close()
        self._core.prepare()
        return await store.restore_backup(path, progress=progress)

    @traced("store.flush")
    async def flush(self, *, progress: Progress | None = None) -> None:
        self._core.enter()
        with track(progress):
            advance(0)
        await self._chats.flush()
        if isinstance(self.store, VectorStore):
            await self.init()
            await self.store.catch_up()

    def _file_store(self, ways: str) -> BackupStore:
        if not isinstance(self.store, BackupStore):
            raise UnsupportedError(f"{self!r} has no file to copy; there are other means: {ways}")
        return self.store

    def _durable(self, what: str) -> MaintainedStore:
        if not isinstance(self.store, MaintainedStore):
            raise UnsupportedError(f"{self.store!r} has no {what}; SQLite and Postgres have")
        return self.store


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
            raise QueryError(
                f"`{store_name(store)}` has a model; give `embeddings` to the store itself"
            )
        return own
    return _local_model() if embeddings == "auto" else embeddings


def _check_no_server(**options: object) -> None:
    """Refuse what only a memory at `http://…` takes."""
    for name, value in options.items():
        if value is not None:
            raise QueryError(
                f"`{name}` is for a server, as in `AgentMemory('https://…', {name}=…)`; leave it "
                "out for a store of your own"
            )


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
        return redacted(text)
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0].partition('#')[0]}"


def _nothing() -> None:
    """Prepare nothing: whoever names a place has made its folder."""
