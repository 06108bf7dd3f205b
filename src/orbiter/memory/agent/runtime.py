"""What all handles of one `AgentMemory` share: the store, how it is opened, who listens."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

from orbiter.memory.agent.events import Events
from orbiter.memory.agent.inputs import belongs
from orbiter.memory.agent.keywords import ItemRef, as_id
from orbiter.memory.errors import (
    AccessError,
    ItemNotFoundError,
    MemoryConnectionError,
    QueryError,
    StorageError,
    UnsupportedError,
)
from orbiter.memory.model.agent_store import AgentStore, store_name
from orbiter.memory.model.items import RESERVED, MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import Embeddings, HistoryStore, LexicalStore, Reranker
from orbiter.memory.tasks.event_loop import OneLoop
from orbiter.memory.text.redaction import Redaction, filter_writes

if TYPE_CHECKING:
    from orbiter.memory.backends.postgres.store import PostgresMemoryStore
    from orbiter.memory.backends.sql.store import SQLMemoryStore
    from orbiter.memory.episodic.manager import ShortTermMemoryManager
    from orbiter.memory.model.value_counts import FacetStore
    from orbiter.memory.recall import InMemoryIndex

__all__ = [
    "Core",
    "Store",
    "as_stored",
    "check_ids",
    "counting_store",
    "find",
    "ids_of",
    "is_known",
    "keeps_versions",
    "must_find",
    "versioned",
]

_MAX_MANAGERS = 256
_MAX_BOUND = 1_024


Store = AgentStore


class Core:
    """One store, opened once, and everything that is closed with it."""

    def __init__(  # noqa: PLR0913 - what a memory is made with
        self,
        store: Store,
        *,
        owner: str = "this memory",
        embeddings: Embeddings | None,
        is_model_declined: bool,
        reranker: Reranker | None = None,
        episodic: str | None,
        row_security: bool,
        prepare: Callable[[], None],
        is_given: bool = False,
        redaction: Redaction | None = None,
    ) -> None:
        self.store = store
        self.redaction = redaction or Redaction()
        """What is taken out of texts before they are written."""
        filter_writes(store, self.redaction)
        self._is_given = is_given
        self._is_ours = not is_given
        """Whether this opened the store, and so closes it."""
        self._loop = OneLoop(owner)
        self.events = Events(self.enter)
        self.embeddings = embeddings
        self.is_model_declined = is_model_declined
        self.reranker = reranker
        self.is_indexed = isinstance(store, LexicalStore)
        """Whether the store itself can be asked by words and meaning."""
        self._episodic = episodic
        self._row_security = row_security
        self._prepare = prepare
        self._is_open = False
        self._mirror: InMemoryIndex | None = None
        self._managers: OrderedDict[str, ShortTermMemoryManager] = OrderedDict()
        self._leaving: set[asyncio.Future[None]] = set()
        self._bound: OrderedDict[str, Store] = OrderedDict()
        self._closers: list[Callable[[], Awaitable[None]]] = []

    # Opening and closing

    def enter(self) -> None:
        """Make this the memory of the running event loop; see `OneLoop.enter`."""
        if self._loop.enter():
            # A server's connections ended with the loop that had them; opening makes others.
            self._is_open = False
            self._bound.clear()
            self._leaving.clear()

    async def opened(self, scope: MemoryMetadata) -> Store:
        """Return the store for what concerns *scope*, opening it if it is not open yet."""
        self.enter()
        if not self._is_open:
            await self.init()
        return self._held(scope) if self._row_security else self.store

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._is_open

    def if_open(self, scope: MemoryMetadata) -> Store | None:
        """Return the store for what concerns *scope*, unless it is closed."""
        if not self._is_open:
            return None
        return self._held(scope) if self._row_security else self.store

    async def claim(self) -> None:
        """Note, before anything opens the store, whether somebody else has: they close it."""
        self.enter()
        if not self._is_ours:
            self._is_ours = not await _is_open(self.store)

    async def init(self) -> None:
        """Open the store. May be repeated."""
        self.enter()
        async with self._loop.turn:
            if self._is_open:
                return
            self.prepare()
            try:
                await self._open()
            except (MemoryConnectionError, AccessError, StorageError) as exc:
                # The message names the address and the way out; forty lines of our frames and the
                # driver's above it would only hide that. The causes stay, without theirs.
                raise _without_frames(exc)  # noqa: B904 - the same error
            self._is_open = True

    async def _open(self) -> None:
        await self.claim()
        if self._row_security:
            await self.store.init(row_security=True)  # type: ignore[call-arg]  # only Postgres gets here
        else:
            await self.store.init()

    def prepare(self) -> None:
        """Make what must be there before the store can be opened, such as its folder."""
        try:
            self._prepare()
        except OSError as exc:
            raise StorageError(
                f"the folder for memories cannot be created: {exc}; choose another place, as "
                '`AgentMemory("sqlite:///file.db")` or in `ORBITER_MEMORY_URL`'
            ) from exc

    async def close(self) -> None:
        """Close everything that was opened. May be repeated; the next use opens it again."""
        self.enter()
        async with self._loop.turn:
            for closer in self._closers:
                await closer()
            self.events.close()
            self._bound.clear()
            managers, mirror = list(self._managers.values()), self._mirror
            self._managers.clear()
            self._mirror = None
            await asyncio.gather(*self._leaving, return_exceptions=True)
            for manager in managers:
                with suppress(OSError):  # a server that is gone needs no goodbye
                    await manager.disconnect()
            if mirror is not None:
                await mirror.close()
            self._is_open = False
            if self._is_ours:
                await self.store.close()
                self._is_ours = not self._is_given

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Have *closer* awaited before the store is closed."""
        self._closers.append(closer)

    def _held(self, scope: MemoryMetadata) -> Store:
        """Return the store as the server's row-level security lets this user see it."""
        if scope.user_id is None:
            raise AccessError(
                "with `row_security=True` every handle acts for one user; "
                "name it: `memory.scope(user_id=…)`"
            )
        bound = self._bound.get(scope.user_id)
        if bound is None:
            store: PostgresMemoryStore = self.store  # type: ignore[assignment]  # checked when made
            bound = self._bound[scope.user_id] = store.acting_for(scope.user_id)
            if len(self._bound) > _MAX_BOUND:
                self._bound.popitem(last=False)
        self._bound.move_to_end(scope.user_id)
        return bound

    # What stands beside the store

    def mirror(self) -> "InMemoryIndex":
        """Return the index, in this process, of a store that has none of its own."""
        if self._mirror is None:
            from orbiter.memory.recall import InMemoryIndex  # noqa: PLC0415 - few stores need it

            self._mirror = InMemoryIndex(self.store, self.embeddings)
        return self._mirror

    @property
    def has_activity(self) -> bool:
        """Whether there is a place for what happened lately."""
        return self._episodic is not None

    def activity(self, agent_id: str) -> "ShortTermMemoryManager":
        """Return what remembers the last hours of *agent_id*."""
        if self._episodic is None:
            raise QueryError(
                "recent activity needs a store; give one, such as "
                '`AgentMemory(…, episodic="sqlite:///recent.db")` or `episodic="redis://…"`'
            )
        manager = self._managers.get(agent_id)
        if manager is None:
            from orbiter.memory.episodic.manager import ShortTermMemoryManager  # noqa: PLC0415

            manager = ShortTermMemoryManager(self._episodic, agent_id, pii=self.redaction)
            self._managers[agent_id] = manager
            if len(self._managers) > _MAX_MANAGERS:
                _, oldest = self._managers.popitem(last=False)
                leaving = asyncio.ensure_future(oldest.disconnect())  # its next use connects again
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
        self._managers.move_to_end(agent_id)
        return manager


async def _is_open(store: Store) -> bool:
    """Tell whether *store* is open: as it says by `is_open`, or else by an answer."""
    inner = getattr(store, "store", store)  # what an adapter stands for
    says = getattr(inner, "is_open", None)
    if isinstance(says, bool):
        return says
    try:
        await inner.get(f"{RESERVED}open")
    except Exception:  # noqa: BLE001 - however a store of others says so; what is wrong, `init` says
        return False
    return True


def keeps_versions(store: Store) -> "TypeGuard[SQLMemoryStore]":
    """Tell whether *store* keeps what items were."""
    return isinstance(store, HistoryStore)


def versioned(store: Store, what: str) -> "SQLMemoryStore":
    """Return *store* if it keeps what items were, else raise `UnsupportedError`."""
    if keeps_versions(store):
        return store
    raise UnsupportedError(
        f"`{store_name(store)}` keeps no earlier versions, so {what} is not possible; "
        "SQLite and Postgres keep them"
    )


def counting_store(store: Store) -> "FacetStore":
    """Return what counts the users and values of *store*: itself, or an adapter that reads it."""
    from orbiter.memory.model.value_counts import FacetStore  # noqa: PLC0415 - as below

    if isinstance(store, FacetStore):
        return store
    from orbiter.memory.backends.adapter import StoreAdapter  # noqa: PLC0415 - few stores need it

    return StoreAdapter(store)


def ids_of(item: ItemRef | Sequence[ItemRef]) -> list[str]:
    """Return the ids of one item or several, each given by itself, a hit or its id."""
    is_several = isinstance(item, Sequence) and not isinstance(item, str)
    several: Sequence[Any] = item if is_several else [item]  # type: ignore[assignment]  # told above
    ids = [as_id(each) for each in several]
    for each in ids:
        if not isinstance(each, str):
            raise QueryError(f"`item_id` must be an item's id, not {each!r}; pass `item.id`")
    return list(dict.fromkeys(ids))


def check_are_ids(ids: Sequence[str], items: Sequence[MemoryItem]) -> None:
    """Raise `QueryError` for a text that was given as an id, and names none of *items*."""
    text = next((each for each in ids if len(each.split()) > 1), None)
    if text is not None and not items:
        raise QueryError(
            f"no memory has the id `{text}`; to forget what contains a text: "
            f"`forget(query={json.dumps(text, ensure_ascii=False)})`"
        )


async def find(store: Store, item_id: str, scope: MemoryMetadata) -> MemoryItem | None:
    """Return the item of that id if it is of *scope*: another's is not there at all."""
    item = await store.get(item_id)
    return item if item is not None and belongs(item, scope) else None


async def must_find(store: Store, item_id: str, scope: MemoryMetadata) -> MemoryItem:
    """Return the item of that id, or raise `ItemNotFoundError`."""
    item = await find(store, item_id, scope)
    if item is None:
        raise ItemNotFoundError(item_id)
    return item


async def is_known(store: Store, item_id: str, scope: MemoryMetadata) -> bool:
    """Tell whether an item of that id is of *scope*, or was until it was forgotten."""
    if await find(store, item_id, scope) is not None:
        return True
    past = await store.history(item_id) if keeps_versions(store) else []
    return bool(past) and belongs(past[-1].item, scope)


async def check_ids(store: Store, items: Sequence[MemoryItem], scope: MemoryMetadata) -> None:
    """Refuse ids of ours that items bring along, unless they name something of *scope*."""
    for item in items:
        if item.id.startswith(RESERVED) and not await is_known(store, item.id, scope):
            raise AccessError(f"the id `{item.id}` is taken; leave it out to get a new one")


async def as_stored(store: Store, items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return items as the store has them now, in the same order."""
    wanted = [item.id for item in items]
    stored = await store.search(where={"id": {"$in": wanted}}, limit=len(wanted))
    there = {item.id: item for item in stored}
    return [there.get(item.id, item) for item in items]


def _without_frames(error: Exception) -> Exception:
    """Return *error* without tracebacks, its own and those of what caused it."""
    each: BaseException | None = error
    while each is not None and each.__traceback__ is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
