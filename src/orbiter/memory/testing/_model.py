"""Random sequences of calls, compared step by step with a model that is too simple to be wrong."""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from orbiter.memory._ids import new_id
from orbiter.memory.conversation import whole_groups
from orbiter.memory.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.protocols import MemoryStore
from orbiter.memory.query import Query
from orbiter.memory.testing.capabilities import Capabilities, needs

_T = TypeVar("_T")

_few = st.sampled_from((None, None, "a", "b"))
_metadata = st.builds(MemoryMetadata, user_id=_few, session_id=_few, task_id=_few, agent_id=_few)
_contents = st.sampled_from(("", "Apple", "apple pie", "ÄPFEL", "straße", "a%b_c\\d", "x" * 50))
_instants = st.integers(0, 5).map(lambda s: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=s))
_common = {
    "id": st.sampled_from([f"id{number}" for number in range(12)]),
    "content": _contents,
    "metadata": _metadata,
    "created_at": _instants,
    "status": st.sampled_from(MemoryStatus),
}
_call_ids = st.sampled_from(("c1", "c2"))
_items = st.one_of(
    st.builds(HumanMemory, **_common),
    st.builds(SystemMemory, **_common),
    st.builds(
        AIMemory,
        **_common,
        tool_calls=st.lists(_call_ids, max_size=2, unique=True).map(
            lambda ids: [{"id": id, "name": "f", "arguments": {}} for id in ids]
        ),
    ),
    st.builds(ToolMemory, **_common, tool_call_id=_call_ids),
)
_queries: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    query=st.sampled_from(("", "", "apple", "APPLE", "äpf", "STRASSE", "%", "_c\\", "zz")),
    metadata=st.none() | _metadata,
    memory_type=st.sampled_from((None, None, "human", "ai", "tool", "other")),
    status=st.none() | st.sampled_from(MemoryStatus),
    limit=st.sampled_from((0, 1, 2, 3, 10, 1000)),
)


class Model:
    """A list, and `Query.matches`."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.items: list[MemoryItem] = []

    def add(self, item: MemoryItem) -> None:
        """Store or update, keeping the place and the time of creation."""
        for place, old in enumerate(self.items):
            if old.id == item.id:
                kept = {"created_at": old.created_at, "version": old.version + 1}
                self.items[place] = item.model_copy(update=kept, deep=True)
                return
        self.items.append(item.model_copy(deep=True))

    def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None`."""
        return next((item for item in self.items if item.id == item_id), None)

    def search(self, asked: Query) -> list[MemoryItem]:
        """Return what `Query.matches` accepts, in the store's order."""
        oldest_first = sorted(self.items, key=lambda item: item.created_at)
        if self.capabilities.conversation and asked.memory_type is not None:
            about = Query(metadata=asked.metadata, fields=asked.fields)
            oldest_first = whole_groups([item for item in oldest_first if about.matches(item)])
        found = [item for item in oldest_first if asked.matches(item)]
        if self.capabilities.conversation and asked.memory_type is None:
            found = whole_groups(whole_groups(found)[-asked.limit or len(found) :])
        found = found[-asked.limit :] if asked.limit else []
        return found if self.capabilities.order == "oldest" else found[::-1]

    def clear(self, asked: Query) -> int:
        """Remove what matches; return how many."""
        left = [item for item in self.items if not asked.matches(item)]
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
        self.seen: set[str] = set()
        self._run(self.store.clear())
        # A store that deletes softly remembers versions; each run has ids of its own.
        self.prefix = f"{new_id()}-"

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=60)

    def _query(self, **asked: Any) -> Query:
        return Query(**asked, fields=self.capabilities.scope)

    @rule(item=_items)
    def add(self, item: MemoryItem) -> None:
        """Add, or add again."""
        item = item.model_copy(update={"id": self.prefix + item.id})
        known = self.model.get(item.id) is not None
        gone = not known and item.id in self.seen
        self._run(self.store.add(item))
        if gone:  # whether the version starts anew is the store's affair
            found = self._run(self.store.get(item.id))
            item = item.model_copy(
                update={"version": found.version, "created_at": found.created_at}
            )
        self.model.add(item)
        self.seen.add(item.id)

    @rule(number=st.integers(0, 12))
    def get(self, number: int) -> None:
        """Get an item that is there or not."""
        item_id = f"{self.prefix}id{number}"
        assert self._run(self.store.get(item_id)) == self.model.get(item_id)

    @rule(asked=_queries)
    def search(self, asked: dict[str, Any]) -> None:
        """Ask anything."""
        found = self._run(self.store.search(**asked))
        text = asked.pop("query")
        assert found == self.model.search(self._query(text=text, **asked))

    @rule(metadata=_metadata)
    def clear(self, metadata: MemoryMetadata) -> None:
        """Remove some."""
        asked = self._query(metadata=metadata)
        if asked.wanted:
            assert self._run(self.store.clear(metadata=metadata)) == self.model.clear(asked)

    @rule()
    def clear_all(self) -> None:
        """Remove all."""
        assert self._run(self.store.clear()) == self.model.clear(self._query())


class ModelContract:
    """No sequence of calls makes the store differ from the model."""

    capabilities: ClassVar[Capabilities]
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
