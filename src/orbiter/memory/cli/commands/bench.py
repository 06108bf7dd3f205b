"""Benchmark of this computer: `bench`, on stores in a temporary folder, beside installed peers.

Every store gets the same texts and the same vectors. Ours syncs every write to disk, and so does
LangGraph's here; the others are set up as they come. Turns are interleaved, so that a busy computer
slows all of them down.
"""

import logging
import os
import sqlite3
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._error_messages import say
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import one_line, shortened

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory
    from orbiter.memory.model.protocols import Embeddings

__all__ = ["app"]

app = new_app()
_THINGS = ("tea", "trains", "the sea", "old maps", "rain", "bread", "chess", "the moon")
_PLACES = ("Lisbon", "Oslo", "Kyoto", "Lima", "Accra", "Perth", "Quito", "Turin")
_BATCH = 500
_K = 5
_USER = "bench"
_OURS = "orbiter-memory"
_MAX_SECONDS = 30.0
"""Turns end after this time, whatever `--repeat` says; the stores are opened before."""
_MEASURES = {"write": "remember", "index": "searchable", "recall": "recall"}
"""What is timed: a write until it is durable, until recall can find it, and a question."""

_Call = Callable[[str], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """One store that takes texts and answers questions."""

    write: _Call
    recall: _Call | None = None
    index: _Call | None = None
    """A write that returns when recall can find it, if `write` returns before."""


class _Embedder:
    """The one embedder of all, in the forms that they ask for."""

    def __init__(self) -> None:
        from orbiter.memory.agent import AgentMemory  # noqa: PLC0415 - `--help` needs none of it

        model: Embeddings | None = getattr(AgentMemory("memory://").store, "embeddings", None)
        self.name = "the local model"
        if model is None:
            from orbiter.memory.testing.fakes import HashEmbeddings  # noqa: PLC0415

            model, self.name = HashEmbeddings(256), "hashed words, as no model is installed"
        self.ours: Embeddings = model
        self.dimension = model.dimension

    def one(self, text: str) -> list[float]:
        return [float(value) for value in self.ours.embed(text)]

    def many(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.one(text) for text in texts]


@asynccontextmanager
async def _ours(folder: Path, embedder: _Embedder, texts: Sequence[str]) -> AsyncIterator[_Store]:
    from orbiter.memory.agent import AgentMemory  # noqa: PLC0415 - `--help` needs none of it

    async with AgentMemory(folder / "memory.db", embeddings=embedder.ours) as memory:
        one = memory.scope(user_id=_USER)
        for start in range(0, len(texts), _BATCH):
            await one.remember_many(texts[start : start + _BATCH])
        await _settle(memory)

        async def index(text: str) -> None:
            await one.remember(text)
            await _settle(memory)

        yield _Store(
            write=one.remember, index=index, recall=lambda question: one.recall(question, k=_K)
        )


async def _settle(memory: "AgentMemory") -> None:
    """Have everything indexed, so that recall is timed and not the indexing."""
    catch_up = getattr(memory.store, "catch_up", None)
    if catch_up is not None:
        await catch_up()


# Peers. Each loads what it needs when it is opened: it may be missing, or of another version.


@asynccontextmanager
async def _langgraph(
    folder: Path, embedder: _Embedder, texts: Sequence[str]
) -> AsyncIterator[_Store]:
    """With vectors where this Python's SQLite loads extensions; elsewhere it only writes."""
    put = import_module("langgraph.store.base").PutOp
    index = {"dims": embedder.dimension, "embed": embedder.many, "fields": ["text"]}
    finds = hasattr(sqlite3.Connection, "enable_load_extension")
    opened = import_module("langgraph.store.sqlite.aio").AsyncSqliteStore.from_conn_string(
        str(folder / "langgraph.db"), index=index if finds else None
    )
    async with opened as store:
        # It leaves the journal as SQLite has it by default, which costs another sync.
        await store.conn.execute("PRAGMA journal_mode = WAL")
        await store.conn.execute("PRAGMA synchronous = FULL")
        await store.setup()
        for start in range(0, len(texts), _BATCH):
            some = texts[start : start + _BATCH]
            await store.abatch([put((_USER,), uuid4().hex, {"text": text}) for text in some])

        async def recall(question: str) -> None:
            await store.asearch((_USER,), query=question, limit=_K)

        yield _Store(
            write=lambda text: store.aput((_USER,), uuid4().hex, {"text": text}),
            recall=recall if finds else None,
        )


@asynccontextmanager
async def _mem0(folder: Path, embedder: _Embedder, texts: Sequence[str]) -> AsyncIterator[_Store]:
    """With `infer=False`, which keeps the text as it is and asks no model."""
    os.environ.update({"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder)})
    base: Any = import_module("langchain_core.embeddings").Embeddings

    class Model(base):  # type: ignore[misc]  # of a package that may be missing
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return embedder.many(texts)

        def embed_query(self, text: str) -> list[float]:
            return embedder.one(text)

    vectors = {
        "path": str(folder / "qdrant"),
        "on_disk": True,
        "collection_name": "bench",
        "embedding_model_dims": embedder.dimension,
    }
    memory = import_module("mem0").Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": vectors},
            "embedder": {"provider": "langchain", "config": {"model": Model()}},
            "llm": {"provider": "openai", "config": {"api_key": "unused"}},
            "history_db_path": str(folder / "mem0.db"),
        }
    )
    payloads = [
        {"data": text, "user_id": _USER, "created_at": "2026-01-01T00:00:00+00:00"}
        for text in texts
    ]
    for start in range(0, len(texts), _BATCH):
        some = payloads[start : start + _BATCH]
        ids = [str(uuid4()) for _ in some]
        made = embedder.many([str(each["data"]) for each in some])
        memory.vector_store.insert(vectors=made, payloads=some, ids=ids)

    async def write(text: str) -> None:
        memory.add(text, user_id=_USER, infer=False)

    async def recall(question: str) -> None:
        memory.search(question, filters={"user_id": _USER}, top_k=_K)

    try:
        yield _Store(write=write, recall=recall)
    finally:
        memory.vector_store.client.close()
        memory.close()


@asynccontextmanager
async def _chroma(folder: Path, embedder: _Embedder, texts: Sequence[str]) -> AsyncIterator[_Store]:
    settings = import_module("chromadb.config").Settings(anonymized_telemetry=False)
    client = import_module("chromadb").PersistentClient(str(folder / "chroma"), settings=settings)
    kept = client.create_collection(
        _USER, embedding_function=None, metadata={"hnsw:space": "cosine"}
    )

    def add(some: Sequence[str]) -> None:
        ids = [uuid4().hex for _ in some]
        kept.add(ids=ids, documents=list(some), embeddings=embedder.many(some))

    for start in range(0, len(texts), _BATCH):
        add(texts[start : start + _BATCH])

    async def write(text: str) -> None:
        add([text])

    async def recall(question: str) -> None:
        kept.query(query_embeddings=[embedder.one(question)], n_results=_K, include=["documents"])

    yield _Store(write=write, recall=recall)


@asynccontextmanager
async def _agents(folder: Path, embedder: _Embedder, texts: Sequence[str]) -> AsyncIterator[_Store]:
    """Only to write: a session returns its newest messages, and searches none."""
    del embedder
    session = import_module("agents").SQLiteSession(_USER, folder / "agents.db")
    try:
        await session.add_items([{"role": "user", "content": text} for text in texts])
        yield _Store(write=lambda text: session.add_items([{"role": "user", "content": text}]))
    finally:
        session.close()


@dataclass(frozen=True, slots=True)
class _Peer:
    """Another library: the modules that it needs, and what to install for them."""

    name: str
    modules: tuple[str, ...]
    packages: str
    opened: Callable[[Path, _Embedder, Sequence[str]], AbstractAsyncContextManager[_Store]]

    def is_installed(self) -> bool:
        try:
            return all(find_spec(each) is not None for each in self.modules)
        except ModuleNotFoundError:  # of the package that a module is in
            return False
        except Exception:  # noqa: BLE001 - a package that cannot be loaded; to open it says why
            return True


_PEERS = (
    _Peer(
        "LangGraph store",
        ("langgraph.store.sqlite", "sqlite_vec"),
        "langgraph-checkpoint-sqlite sqlite-vec",
        _langgraph,
    ),
    _Peer(
        "mem0, infer=False",
        ("mem0", "qdrant_client", "langchain_core"),
        "mem0ai langchain-core",
        _mem0,
    ),
    _Peer("Chroma", ("chromadb",), "chromadb", _chroma),
    _Peer("OpenAI Agents session", ("agents",), "openai-agents", _agents),
)


# Measure, and tell


@command(app, "bench", url=False)
async def bench(
    run: CommandContext,
    *,
    size: Annotated[int, typer.Option(min=10, help="How many memories.")] = 1_000,
    repeat: Annotated[int, typer.Option(min=1, help="How many times each call is timed.")] = 30,
) -> None:
    """Benchmark this computer, beside other libraries that are installed."""
    missing = [peer for peer in _PEERS if not peer.is_installed()]
    embedder = _Embedder()
    with TemporaryDirectory(prefix="orbiter-memory-", ignore_cleanup_errors=True) as folder:
        times, failures = await _measure(run, Path(folder), embedder, size, repeat)
    medians = {
        name: {what: median(each) for what, each in calls.items()} for name, calls in times.items()
    }
    rows = {name: _with_ratios(calls, medians[_OURS]) for name, calls in medians.items()}
    install = [f"pip install {peer.packages}" for peer in missing]
    if run.out.is_json:
        run.out.data(
            {
                "memories": size,
                "turns": len(times[_OURS]["write"]),
                "embedder": embedder.name,
                "rows": [{"store": name, **row} for name, row in rows.items()],
                "missing": dict(zip([peer.name for peer in missing], install, strict=True)),
                "failed": failures,
            }
        )
        return
    run.out.show(styled((_line(f"{size:,} memories", _MEASURES), "dim")))
    for name, row in rows.items():
        cells = {what: _cell(row.get(what), row.get(f"{what}_ratio")) for what in _MEASURES}
        run.out.show(styled((_line(name, cells), "bold" * (name == _OURS))))
    run.out.show(styled((f"median of {len(times[_OURS]['write'])} turns; × of {_OURS}", "dim")))
    run.out.show(styled(("ours syncs every write to disk; peers are as they come", "dim")))
    run.out.show(styled((f"vectors by {embedder.name}", "dim")))
    for name, row in rows.items():
        faster = [_MEASURES[what] for what in _MEASURES if row.get(f"{what}_ratio", 1.0) < 1.0]
        if faster:
            run.out.show(styled(f"{name} is faster at {' and '.join(faster)}"))
    for name, why in failures.items():
        say(f"{name} could not be measured: {why}", kind="note")
    for peer, line in zip(missing, install, strict=True):
        say(f"{peer.name} is not installed; to compare with it: {line}", kind="note")


def _with_ratios(calls: dict[str, float], ours: dict[str, float]) -> dict[str, float]:
    # Most stores can find what they have written at once.
    every = {"index": calls["write"], **calls} if "recall" in calls else calls
    ratios = {f"{what}_ratio": value / ours[what] for what, value in every.items()}
    return every if calls is ours else {**every, **ratios}


def _line(name: str, cells: dict[str, str]) -> str:
    return f"{shortened(name, 22):<23}" + "".join(f"{cells[what]:>18}" for what in _MEASURES)


def _cell(seconds: float | None, ratio: float | None) -> str:
    if seconds is None:
        return "none"
    text = f"{seconds * 1e3:,.2f} ms"
    return text if ratio is None else f"{text} {ratio:>5.1f}×"


@asynccontextmanager
async def _opened(peer: _Peer, *args: Any) -> AsyncIterator[_Store]:
    """Open a peer; whatever it says when it is closed, its figures are there."""
    opened = peer.opened(*args)
    store = await opened.__aenter__()
    try:
        yield store
    finally:
        with suppress(Exception):  # of another library; the figures are taken already
            await opened.__aexit__(None, None, None)


async def _measure(
    run: CommandContext, folder: Path, embedder: _Embedder, size: int, repeat: int
) -> tuple[dict[str, dict[str, list[float]]], dict[str, str]]:
    """Return the seconds of each call of each store, and which peers could not be measured."""
    texts = [
        f"{_PLACES[n % 8]} is where I learned about {_THINGS[n // 8 % 8]}, day {n}"
        for n in range(size)
    ]
    failures: dict[str, str] = {}
    logging.disable(logging.WARNING)  # what a peer misses, it says in the middle of a table
    try:
        async with AsyncExitStack() as stack:
            with run.out.progress("measuring", unit="") as advance, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stores = {_OURS: await stack.enter_async_context(_ours(folder, embedder, texts))}
                for peer in _PEERS:
                    if peer.is_installed():
                        try:
                            opened = _opened(peer, folder, embedder, texts)
                            stores[peer.name] = await stack.enter_async_context(opened)
                        except Exception as exc:  # noqa: BLE001 - of any library, in any version
                            failures[peer.name] = shortened(one_line(f"{exc!r}"), 60)
                times = await _take_turns(stores, texts, repeat, advance, failures)
    finally:
        logging.disable(logging.NOTSET)
    return times, failures


async def _take_turns(
    stores: dict[str, _Store],
    texts: Sequence[str],
    repeat: int,
    advance: Callable[[int, int], None],
    failures: dict[str, str],
) -> dict[str, dict[str, list[float]]]:
    times: dict[str, dict[str, list[float]]] = {name: {} for name in stores}
    began = perf_counter()
    for turn in range(repeat + 1):  # the first is for what each loads on first use
        for name, store in list(stores.items()):
            calls = {"write": store.write, "index": store.index, "recall": store.recall}
            for what, call in calls.items():
                if call is None:
                    continue
                question = f"what of {_THINGS[turn % 8]}?"
                text = (
                    question if what == "recall" else f"{what} {turn}: {texts[turn % len(texts)]}"
                )
                start = perf_counter()
                try:
                    await call(text)
                except Exception as exc:  # of any library; ours goes on to the caller
                    if name == _OURS:
                        raise
                    failures[name] = shortened(one_line(f"{exc!r}"), 60)
                    del stores[name], times[name]
                    break
                if turn:
                    times[name].setdefault(what, []).append(perf_counter() - start)
        advance(turn, repeat)
        if turn and perf_counter() - began > _MAX_SECONDS:
            break
    return times
