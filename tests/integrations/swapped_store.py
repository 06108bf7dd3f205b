"""A pytest plugin: `OrbiterStore` in place of the stores that LangGraph's own tests make.

It is loaded with the tests of langgraph-checkpoint-sqlite, in a process of their own. The file that
a test names becomes the file of a memory, and the model that it names the memory's.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import langgraph.store.sqlite
import langgraph.store.sqlite.aio

from orbiter.memory import AgentMemory, sync
from orbiter.memory.integrations.langgraph import OrbiterStore
from orbiter.memory.model.protocols import Embeddings


class TheirEmbeddings(Embeddings):
    """The model of a test."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def embed(self, text: str) -> list[float]:
        return list(self._model.embed_query(text))

    async def aembed(self, text: str) -> list[float]:
        return self.embed(text)

    @property
    def dimension(self) -> int:
        return int(self._model.dims)


def _options(conn_string: str, index: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the URL and the options of the memory, and those of the store."""
    url = "memory://" if conn_string == ":memory:" else f"sqlite:///{conn_string}"
    if index is None:
        return url, {"embeddings": None}, {}
    fields = {"fields": index.get("text_fields")}
    return (
        url,
        {"embeddings": TheirEmbeddings(index["embed"])},
        {"index": fields, "mode": "meaning"},
    )


def _ttl(config: Any) -> Any:
    """Return the settings with what is theirs where nothing is said: a read prolongs nothing."""
    return config and {"refresh_on_read": False, **config}


class SqliteStore(OrbiterStore):
    """Ours, made as theirs is; what is over is gone without a sweep."""

    @classmethod
    @contextmanager
    def from_conn_string(
        cls, conn_string: str, *, index: Any = None, ttl: Any = None
    ) -> Iterator["SqliteStore"]:
        url, options, more = _options(conn_string, index)
        with sync.AgentMemory(url, **options) as memory:
            yield cls(memory.scope(user_id=uuid.uuid4().hex), ttl=_ttl(ttl), **more)

    def setup(self) -> None: ...

    def sweep_ttl(self) -> int:
        return 0

    def start_ttl_sweeper(self) -> None: ...

    def stop_ttl_sweeper(self) -> None: ...


class AsyncSqliteStore(OrbiterStore):
    """Ours, made as theirs is for programs with an event loop."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls, conn_string: str, *, index: Any = None, ttl: Any = None
    ) -> AsyncIterator["AsyncSqliteStore"]:
        url, options, more = _options(conn_string, index)
        async with AgentMemory(url, **options) as memory:
            yield cls(memory.scope(user_id=uuid.uuid4().hex), ttl=_ttl(ttl), **more)

    async def setup(self) -> None: ...

    async def sweep_ttl(self) -> int:
        return 0

    async def start_ttl_sweeper(self) -> None: ...

    async def stop_ttl_sweeper(self) -> None: ...


langgraph.store.sqlite.SqliteStore = SqliteStore  # type: ignore[assignment,misc]
langgraph.store.sqlite.AsyncSqliteStore = AsyncSqliteStore  # type: ignore[assignment,misc]
langgraph.store.sqlite.aio.AsyncSqliteStore = AsyncSqliteStore  # type: ignore[assignment,misc]
