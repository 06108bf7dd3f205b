"""`LocalEngine`: the engine of an `AgentMemory` whose store is in this process."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from orbiter.memory.agent.chat_service import CLIENT_SETTINGS, Chats, MemorySettings
from orbiter.memory.agent.events import EventStream
from orbiter.memory.agent.interface import (
    Handle,
    MemoryEngine,
    ScopedHandle,
    ScopeSession,
    session_of,
)
from orbiter.memory.agent.runtime import Core
from orbiter.memory.agent.telemetry import traced
from orbiter.memory.backends.registry import (
    URL_VARIABLE,
    default_url,
    make_folder,
    open_store,
)
from orbiter.memory.backends.urls import redacted
from orbiter.memory.errors import QueryError
from orbiter.memory.model.agent_store import AgentStore, store_label, store_name
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.protocols import Embeddings, LexicalStore, MemoryStore
from orbiter.memory.tasks.read_from import reading_from
from orbiter.memory.text.redaction import Redaction, filter_questions

if TYPE_CHECKING:
    from orbiter.memory.context.persona import Soul
    from orbiter.memory.text.pii import PIIHook

__all__ = ["LocalEngine"]

_SERVERS = ("postgres", "redis")
_FILES = ("memory", "sqlite")
_READS = frozenset(
    (
        *("recall", "get", "list", "history", "stats", "chats", "items", "messages", "context"),
        *("summary", "all", "keys", "conflicts", "drafts", "get_many", "paths"),
    )
)
"""The calls of handles that change nothing, so that a replica can answer them."""

_T = TypeVar("_T")


class LocalEngine(MemoryEngine):
    """A store, opened when it is first used, with all that stands beside it."""

    def __init__(self, url: str | os.PathLike[str] | None, settings: MemorySettings) -> None:
        _check_no_server(settings)
        settings = replace(settings, persona=_persona(settings))
        own_store, embeddings = settings.store, settings.embeddings
        if own_store is None:
            is_ours = url is None and not os.environ.get(URL_VARIABLE)
            address = default_url() if url is None else url
            model = _local_model() if embeddings == "auto" else embeddings
            store = open_store(address, embeddings=model, audit=settings.audit)
            self._url = _printable(address)
        else:
            is_ours, address = False, ""
            model = _model_of(own_store, embeddings)
            _check_only_store(url, settings.audit)
            store, self._url = _adapted(own_store), store_label(own_store)
        if settings.row_security and not hasattr(store, "acting_for"):
            raise QueryError(
                "`row_security=True` works only with Postgres; other stores separate users by "
                "their handles"
            )
        episodic = settings.episodic
        if episodic is None and str(address).startswith("redis"):
            episodic = str(address)
        self._core = Core(
            store,
            owner=repr(self),
            embeddings=model,
            is_model_declined=embeddings is None,
            reranker=settings.reranker,
            episodic=episodic,
            row_security=settings.row_security,
            prepare=partial(make_folder, str(address)) if is_ours else _nothing,
            is_given=own_store is not None,
            redaction=Redaction(settings.redact, _hook(settings)),
        )
        self._chats = Chats(self._core, settings)

    def __repr__(self) -> str:
        return f"AgentMemory({self._url!r})"

    @property
    def url(self) -> str:
        return self._url

    @property
    def chats(self) -> Chats:
        return self._chats

    @traced("store.init")
    async def init(self) -> None:
        await self._core.init()

    @traced("store.close")
    async def close(self) -> None:
        await self._core.close()

    def redacted(self, items: Sequence[MemoryItem], *, are_files: bool = False) -> list[MemoryItem]:
        redaction = self._core.redaction
        return (redaction.for_files() if are_files else redaction).apply(items)

    def events(self, session: ScopeSession) -> EventStream:
        return self._core.events.listen(session.scope)

    def perform(
        self,
        handle: Handle,
        name: str,
        method: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Coroutine[Any, Any, Any]:
        redaction = self._core.redaction
        if redaction.replaces:
            args, kwargs = filter_questions(method, args, kwargs, redaction)
        call = method(handle, *args, **kwargs)
        if not isinstance(handle, ScopedHandle) or name not in _READS:
            return call
        return call if session_of(handle).read_from == "primary" else self._from_replica(call)

    async def _from_replica(self, call: Coroutine[Any, Any, _T]) -> _T:
        try:
            if not self._core.is_open:  # opening it reads what only the primary knows for sure
                await self._core.init()
        except BaseException:  # cancellation included: the call will not be awaited
            call.close()
            raise
        with reading_from("replica"):
            return await call


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
    if isinstance(store, LexicalStore):  # which is asked itself, without an index beside it
        if embeddings not in ("auto", None):
            raise QueryError(
                f"`{store_name(store)}` was made without a model; give `embeddings` to the store "
                "itself"
            )
        return None
    return _local_model() if embeddings == "auto" else embeddings


def _persona(settings: MemorySettings) -> "Soul | Path | None":
    """Return the persona, or the file that has it; what is none is refused."""
    if settings.persona is None:
        return None
    from orbiter.memory.context.persona_file import check_persona  # noqa: PLC0415 - few have one

    return check_persona(settings.persona)


def _hook(settings: MemorySettings) -> "PIIHook | None":
    """Return what gets texts before they are written: a function, or a word of the terminal's."""
    if not isinstance(settings.pii, str):
        return settings.pii
    from orbiter.memory.text.pii import hasher_of  # noqa: PLC0415 - few need it

    return hasher_of(settings.pii)


def _check_no_server(settings: MemorySettings) -> None:
    """Refuse what only a memory at `http://…` takes."""
    for name in settings.chosen():
        if name in CLIENT_SETTINGS:
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
