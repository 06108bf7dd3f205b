"""For stores whose `search` returns conversations: what comes back is legal to send."""

import random
from datetime import timedelta
from typing import get_args

import pytest

from orbiter.memory.conversation.windows import complete_tool_groups
from orbiter.memory.messages import Format, to_messages, validate
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, ToolMemory
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import START, Contract, person
from orbiter.memory.testing.histories import random_history

__all__ = ["FORMATS", "ConversationContract"]

FORMATS: tuple[Format, ...] = get_args(Format)


def _calls(*ids: str) -> AIMemory:
    calls = [{"id": id, "name": "f", "arguments": {}} for id in ids]
    return AIMemory(content="let me look", tool_calls=calls)


def _result(id: str) -> ToolMemory:
    return ToolMemory(content="found", tool_call_id=id, tool_name="f")


class ConversationContract(Contract):
    """What was added first comes first, and tool groups are whole or absent."""

    @needs(conversation=True)
    async def test_a_conversation_is_in_the_order_in_which_it_was_added(
        self, store: MemoryStore
    ) -> None:
        added = [person(str(seconds), seconds) for seconds in (30, 10, 20, 0, 40, 10)]
        for item in added:
            await store.add(item)

        items = await store.search()

        assert [item.id for item in items] == [item.id for item in added]
        assert [item.created_at for item in items] == [item.created_at for item in added]

    @needs(conversation=True)
    async def test_a_clock_that_is_set_back_drops_no_tool_group(self, store: MemoryStore) -> None:
        now = START
        turn = [HumanMemory(content="go"), _calls("a", "b"), _result("a"), _result("b")]
        for item, seconds in zip([*turn, AIMemory(content="done")], (0, 1, -1, 2, 0), strict=True):
            item.__dict__["created_at"] = now + timedelta(seconds=seconds)
            await store.add(item)

        items = await store.search()

        assert [item.memory_type for item in items] == ["human", "ai", "tool", "tool", "ai"]

    @needs(conversation=True)
    async def test_a_call_without_all_its_results_is_left_out(self, store: MemoryStore) -> None:
        for item in (HumanMemory(content="go"), _calls("a", "b"), _result("a")):
            await store.add(item)

        assert [item.content for item in await store.search()] == ["go"]

    @needs(conversation=True)
    async def test_a_result_without_its_call_is_left_out(self, store: MemoryStore) -> None:
        for item in (_result("a"), HumanMemory(content="go"), _result("b")):
            await store.add(item)

        assert [item.content for item in await store.search()] == ["go"]

    @needs(conversation=True)
    async def test_a_limit_never_splits_a_group(self, store: MemoryStore) -> None:
        question = HumanMemory(content="go")
        group: list[MemoryItem] = [_calls("a", "b"), _result("a"), _result("b")]
        for item in [question, *group, AIMemory(content="done")]:
            await store.add(item)

        sizes = [len(await store.search(limit=limit)) for limit in range(7)]

        assert sizes == [0, 1, 1, 1, 4, 5, 5]

    @needs(conversation=True)
    async def test_asking_for_a_type_judges_groups_as_stored(self, store: MemoryStore) -> None:
        for item in (_calls("a"), _result("a"), _calls("b"), _result("c")):
            await store.add(item)

        results = await store.search(memory_type="tool")
        calls = await store.search(memory_type="ai")

        assert [item.tool_call_id for item in results if isinstance(item, ToolMemory)] == ["a"]
        assert len(calls) == 1

    @needs(conversation=True)
    @pytest.mark.parametrize("seed", range(60))
    async def test_whatever_was_added_what_is_found_is_legal(
        self, store: MemoryStore, seed: int
    ) -> None:
        rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
        for item in random_history(rng, max_turns=12):
            await store.add(item)

        for limit in (*range(12), 1000):
            items = await store.search(limit=limit, query=rng.choice(("", "", "a", "ok")))
            assert len(items) <= limit
            assert complete_tool_groups(items) == items
            for format in FORMATS:
                assert validate(to_messages(items, format).messages, format) == []
