"""What the state machine draws from: few values each, so that items meet, tie and collide."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.testing.contracts.base_contract import START, KitNote, of

__all__ = ["FILTERS", "ITEMS", "METADATA", "SEARCHES", "USERS"]

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
