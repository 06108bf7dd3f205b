"""Random sequences of calls, compared step by step with a model that is too simple to be wrong."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from orbiter.memory.conversation.windows import complete_tool_groups
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    new_id,
)
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.query import Query
from orbiter.memory.testing.capabilities import Capabilities, needs
from orbiter.memory.testing.contracts.base_contract import (
    DEADLINE,
    START,
    Contract,
    KitNote,
    add_all,
    of,
)

__all__ = ["Model", "ModelContract", "StoreMachine"]

_few = st.sampled_from((None, None, "a", "b"))
METADATA = st.builds(MemoryMetadata, user_id=_few, session_id=_few, task_id=_few, agent_id=_few)
USERS = (of("a"), of("b"))
FILTERS = st.sampled_from(USERS) | METADATA

_common: dict[str, st.SearchStrategy[Any]] = {
    "id": st.sampled_from([f"id{number}" for number in range(12)]),
    "content": st.sampled_from(
        ("", "Apple", "apple pie", "ÄPFEL", "straße", "a%b_c\\d", " x ", "x" * 50)
    ),
    "metadata": METADATA,
    "created_at": st.integers(0, 5).map(lambda seconds: START + timedelta(seconds=seconds)),
    "status": st.sampled_from((MemoryStatus.ACCEPTED, *MemoryStatus)),
    "version": st.sampled_from((1, 1, 7)),
}
_call_ids = st.sampled_from(("c1", "c1", "c2"))

ITEMS: st.SearchStrategy[MemoryItem] = st.one_of(
    st.builds(HumanMemory, **_common),
    st.builds(SystemMemory, **_common),
    st.builds(KitNote, **_common, mood=st.sampled_from(("", "calm"))),
    st.builds(
        AIMemory,
        **_common,
        tool_calls=st.lists(_call_ids, max_size=2, unique=True).map(
            lambda ids: [{"id": id, "name": "f", "arguments": {}} for id in ids]
        ),
    ),
    st.builds(ToolMemory, **_common, tool_call_id=_call_ids, is_error=st.booleans()),
)

_FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "query": st.sampled_from(
        ("apple", "APPLE", "äpf", "STRASSE", "%", "_c\\", "*", "x", " ", "zz")
    ),
    "metadata": FILTERS,
    "memory_type": st.sampled_from(("human", "ai", "tool", "system", "other")),
    "status": st.sampled_from(MemoryStatus),
}


def _asking(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    limit = st.sampled_from((1, 2, 3, 5, 10, 1000, 1000, 0))
    return st.fixed_dictionaries({"limit": limit, **{name: _FILTERS[name] for name in names}})


# Few filters at a time, or hardly a question would find anything.
SEARCHES = st.one_of(
    _asking(),
    *map(_asking, _FILTERS),
    _asking("query", "metadata"),
    _asking("metadata", "status"),
    _asking(*_FILTERS),
)


_T = TypeVar("_T")


class Model:
    """A list, and `Query.matches`."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.items: list[MemoryItem] = []

    def add(self, item: MemoryItem, version: int = 1) -> None:
        """Store or update, keeping the place and the time of creation."""
        for place, old in enumerate(self.items):
            if old.id == item.id:
                kept = {"created_at": old.created_at, "version": old.version + 1}
                self.items[place] = item.model_copy(update=kept, deep=True)
                return
        self.items.append(item.model_copy(update={"version": version}, deep=True))

    def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None`."""
        return next((item for item in self.items if item.id == item_id), None)

    def search(self, query: Query) -> list[MemoryItem]:
        """Return what `Query.matches` accepts, in the store's order."""
        oldest_first = list(self.items)
        if not self.capabilities.conversation:
            oldest_first.sort(key=lambda item: item.created_at)
        if self.capabilities.conversation and query.memory_type is not None:
            about = Query(metadata=query.metadata, fields=query.fields)
            oldest_first = complete_tool_groups(
                [item for item in oldest_first if about.matches(item)]
            )
        items = [item for item in oldest_first if query.matches(item)]
        if self.capabilities.conversation and query.memory_type is None:
            items = complete_tool_groups(complete_tool_groups(items)[-query.limit or len(items) :])
        items = items[-query.limit :] if query.limit else []
        return items if self.capabilities.order == "oldest" else items[::-1]

    def clear(self, query: Query) -> int:
        """Remove what matches; return how many."""
        left = [item for item in self.items if not query.matches(item)]
        removed = len(self.items) - len(left)
        self.items = left
        return removed


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model, and compares every answer."""

    store: ClassVar[Any]
    loop: ClassVar[asyncio.AbstractEventLoop]
    capabilities: ClassVar[Capabilities]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.capabilities)
        self.cleared: set[str] = set()
        self._run(self.store.clear())
        # A store that deletes softly remembers versions; each run has ids of its own.
        self.prefix = f"{new_id()}-"

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=DEADLINE)

    def _query(self, query: str = "", **filters: Any) -> Query:
        return Query(query, **filters, fields=self.capabilities.scope)

    def _add(self, items: list[MemoryItem]) -> None:
        items = [item.model_copy(update={"id": self.prefix + item.id}) for item in items]
        self._run(add_all(self.store, items) if len(items) > 1 else self.store.add(items[0]))
        for item in items:
            if item.id in self.cleared:  # whether its past counts is the store's affair
                self.cleared.remove(item.id)
                kept = self._run(self.store.get(item.id))
                assert kept is not None, f"added and lost: `{item.id}`"
                writes = sum(each.id == item.id for each in items)
                again = item.model_copy(update={"created_at": kept.created_at})
                self.model.add(again, kept.version - writes + 1)
            else:
                self.model.add(item)

    # Hypothesis leaves some rules out of each run: without this, most stores stay empty.
    @initialize(items=st.lists(ITEMS, min_size=3, max_size=12))
    def fill(self, items: list[MemoryItem]) -> None:
        """Start with something to find."""
        self._add(
            [item.model_copy(update={"id": f"id{place}"}) for place, item in enumerate(items)]
        )

    @rule(item=ITEMS)
    def add(self, item: MemoryItem) -> None:
        """Add, or add again."""
        self._add([item])

    @rule(items=st.lists(ITEMS, min_size=1, max_size=4))
    def add_several(self, items: list[MemoryItem]) -> None:
        """Add several, in one step if the store can; one id may come twice."""
        self._add(items)

    @rule(number=st.integers(0, 12))
    def get(self, number: int) -> None:
        """Get an item that is there or not."""
        item_id = f"{self.prefix}id{number}"
        assert self._run(self.store.get(item_id)) == self.model.get(item_id)

    @rule(several=st.lists(SEARCHES, min_size=3, max_size=6))
    def search(self, several: list[dict[str, Any]]) -> None:
        """Ask anything."""
        self._compare(several)

    @rule(metadata=FILTERS)
    def clear(self, metadata: MemoryMetadata) -> None:
        """Remove some."""
        query = self._query(metadata=metadata)
        if query.wanted:
            self._clear(query, metadata)

    @rule(die=st.integers(0, 9))
    def clear_all(self, die: int) -> None:
        """Remove all, once in a while."""
        if die == 9:
            self._clear(self._query(), None)

    def _clear(self, query: Query, metadata: MemoryMetadata | None) -> None:
        self.cleared |= {item.id for item in self.model.items if query.matches(item)}
        assert self._run(self.store.clear(metadata=metadata)) == self.model.clear(query)

    @invariant()
    def agrees(self) -> None:
        """Everything, and everything of one user, is as in the model."""
        self._compare([{"limit": 1000}, {"limit": 1000, "metadata": USERS[0]}])

    def _compare(self, several: list[dict[str, Any]]) -> None:
        # Those are refused, which a contract of its own says.
        several = [a for a in several if not self._query(**a).names_only_ignored_fields]

        async def search() -> list[list[MemoryItem]]:
            return [await self.store.search(**filters) for filters in several]

        for filters, items in zip(several, self._run(search()), strict=True):
            assert items == self.model.search(self._query(**filters)), filters


class ModelContract(Contract):
    """No sequence of calls makes the store differ from the model."""

    model_settings: ClassVar[settings] = settings(
        max_examples=40,
        stateful_step_count=30,
        deadline=None,
        database=None,
        # A failing sequence has at most 30 steps; making it shorter takes minutes.
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    """How long and how thoroughly to look; override it for a longer run."""

    @needs(text="substring")
    async def test_no_sequence_of_calls_differs_from_the_model(self, store: MemoryStore) -> None:
        attributes = {
            "store": store,
            "loop": asyncio.get_running_loop(),
            "capabilities": self.capabilities,
        }
        machine = type("Machine", (StoreMachine,), attributes)
        # Hypothesis drives the machine from a thread; the store stays on its own event loop.
        await asyncio.to_thread(run_state_machine_as_test, machine, settings=self.model_settings)
