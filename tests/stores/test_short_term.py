import contextlib
import random
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import settings

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
)
from orbiter.memory.conversation import last_rounds, trim_to_budget
from orbiter.memory.conversation.windows import OpenGroup
from orbiter.memory.errors import EmptyFilterError, ScopeError
from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.testing import Capabilities, StoreConformance, random_history


@pytest.mark.full  # the same contract with another setting
class TestTaskScope(StoreConformance):
    capabilities = Capabilities(
        order="oldest", conversation=True, lifecycle=False, durable=False, shared=False
    )

    @pytest.fixture
    def store(self) -> ShortTermMemory:
        return ShortTermMemory()


@pytest.mark.full  # the same contract with another setting
class TestSessionScope(StoreConformance):
    model_settings = settings(StoreConformance.model_settings, max_examples=10)
    capabilities = Capabilities(
        order="oldest",
        conversation=True,
        scope=("user_id", "session_id", "agent_id"),
        lifecycle=False,
        durable=False,
        shared=False,
    )

    @pytest.fixture
    def store(self) -> ShortTermMemory:
        return ShortTermMemory(scope="session")


class TestUserScope(StoreConformance):
    model_settings = settings(StoreConformance.model_settings, max_examples=10)
    capabilities = Capabilities(
        order="oldest",
        conversation=True,
        scope=("user_id", "agent_id"),
        lifecycle=False,
        durable=False,
        shared=False,
    )

    @pytest.fixture
    def store(self) -> ShortTermMemory:
        return ShortTermMemory(scope="user")


def _calls_during(work: Callable[[], object]) -> int:
    """Return how many Python functions *work* calls: a measure of cost that no noise can touch."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


async def _filled(size: int) -> tuple[ShortTermMemory, list[MemoryItem]]:
    memory = ShortTermMemory(scope="session")
    one = MemoryMetadata(session_id="s1")
    await memory.add(HumanMemory(content="a draft", status=MemoryStatus.DRAFT, metadata=one))
    items: list[MemoryItem] = []
    for number in range(size):
        who = MemoryMetadata(user_id=f"u{number % 7}", session_id=f"s{number % (size // 50)}")
        kind = HumanMemory if number % 2 else AIMemory
        items.append(kind(content=f"message {number}", metadata=who))
    await memory.add_many(items)
    return memory, items


def _finish(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that never waits."""
    with contextlib.suppress(StopIteration):
        work.send(None)


@pytest.mark.slow
async def test_no_call_costs_more_because_more_is_stored() -> None:
    costs = []
    for size in (500, 10_000):
        memory, items = await _filled(size)
        session = MemoryMetadata(session_id="s1")
        await memory.window(metadata=session, budget=200)
        calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
            partial(memory.add, HumanMemory(content="new", metadata=session)),
            partial(memory.get, items[3].id),
            partial(memory.search, metadata=session, limit=20),
            partial(memory.search, limit=20),
            partial(memory.window, metadata=session, budget=200),
        ]
        costs.append([_calls_during(partial(_finish, call())) for call in calls])

    small, large = costs
    # Looking up a place by halving takes a few steps more in a longer list; nothing else grows.
    assert all(b <= a + 60 for a, b in zip(small, large, strict=True)), (small, large)


@pytest.mark.slow
async def test_a_window_within_a_budget_is_what_trimming_everything_gives() -> None:
    for seed in range(150):
        rng = random.Random(seed)
        history = sorted(random_history(rng, max_turns=20), key=lambda item: item.created_at)
        for item in history:
            if rng.random() < 0.1:
                item.status = MemoryStatus.DRAFT
        memory = ShortTermMemory(max_rounds=rng.choice((0, 0, 1, 2, 3)))
        await memory.add_many(history)
        budget, most = rng.randint(0, 300), rng.choice((None, rng.randint(0, 20)))
        policy: OpenGroup = rng.choice(("drop", "keep", "complete"))

        found = await memory.window(budget=budget, max_items=most, open_group=policy)

        accepted = [item for item in history if item.status == "accepted"]
        windowed = last_rounds(accepted, memory.max_rounds)
        assert found == trim_to_budget(windowed, budget=budget, max_items=most, open_group=policy)


@pytest.mark.slow
async def test_a_window_is_right_while_the_conversation_changes() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        memory, there = ShortTermMemory(max_rounds=rng.choice((0, 0, 2))), dict[str, MemoryItem]()
        for item in random_history(rng, max_turns=30):
            await memory.add(item)
            there[item.id] = item
            if rng.random() < 0.1:
                other = rng.choice(list(there.values())).model_copy()
                other.status = rng.choice(list(MemoryStatus))
                await memory.add(other)
                there[other.id] = other
            if rng.random() < 0.1:
                gone = rng.choice(list(there))
                await memory.delete(gone)
                del there[gone]
            budget = rng.randint(50, 600)

            found = await memory.window(budget=budget)

            accepted = [each for each in there.values() if each.status == "accepted"]
            windowed = last_rounds(accepted, memory.max_rounds)
            expected = trim_to_budget(windowed, budget=budget)
            assert [each.id for each in found] == [each.id for each in expected]


async def test_a_window_belongs_to_one_conversation() -> None:
    memory = ShortTermMemory(scope="session")
    ann, bob = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
    await memory.add(HumanMemory(content="hers", metadata=ann))
    await memory.add(HumanMemory(content="his", metadata=bob))

    assert [item.content for item in await memory.window(metadata=ann)] == ["hers"]
    assert await memory.window(metadata=MemoryMetadata(user_id="eve"), budget=100) == []


async def test_a_window_hands_out_copies() -> None:
    memory = ShortTermMemory()
    await memory.add(HumanMemory(content="hi", metadata=MemoryMetadata(extra={"k": [1]})))

    (found,) = await memory.window()
    found.metadata.extra["k"].append(2)
    found.content = "changed"

    (again,) = await memory.window()
    assert (again.content, again.metadata.extra) == ("hi", {"k": [1]})


async def test_counts_are_remembered_and_forgotten_with_the_item() -> None:
    memory, counted = ShortTermMemory(), []

    def counter(text: str) -> int:
        counted.append(text)
        return len(text)

    await memory.add(HumanMemory(id="one", content="short"))
    await memory.window(budget=100, counter=counter)
    await memory.window(budget=100, counter=counter)
    assert counted == ["short"]

    await memory.add(HumanMemory(id="one", content="x" * 200))
    assert await memory.window(budget=100, counter=counter) == []
    await memory.clear()
    await memory.add(HumanMemory(id="one", content="tiny"))
    assert len(await memory.window(budget=100, counter=counter)) == 1


async def test_a_new_counter_for_each_call_does_not_pile_up() -> None:
    memory = ShortTermMemory()
    await memory.add(HumanMemory(content="hi"))

    for number in range(50):
        await memory.window(budget=100, counter=lambda _, n=number: n)  # type: ignore[misc]

    assert len(memory._counts) <= 4


async def test_a_counter_need_not_be_hashable() -> None:
    class Counter:
        __hash__ = None  # type: ignore[assignment]  # as a dataclass would be

        def __call__(self, text: str) -> int:
            return len(text)

    memory = ShortTermMemory()
    await memory.add(HumanMemory(content="hi"))

    assert len(await memory.window(budget=100, counter=Counter())) == 1


async def test_max_rounds_counts_rounds_of_the_filtered_conversation() -> None:
    memory = ShortTermMemory(scope="session", max_rounds=1)
    ann, bob = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
    for text, who in (("a1", ann), ("a2", ann), ("b1", bob), ("b2", bob)):
        await memory.add(HumanMemory(content=text, metadata=who))

    assert [item.content for item in await memory.search(metadata=ann)] == ["a2"]


@pytest.mark.parametrize("rounds", [-1, True, 1.5])
def test_a_senseless_number_of_rounds_is_refused(rounds: int) -> None:
    with pytest.raises(ValueError, match="max_rounds"):
        ShortTermMemory(max_rounds=rounds)

    memory = ShortTermMemory(max_rounds=3)
    with pytest.raises(ValueError, match="max_rounds"):
        memory.max_rounds = rounds
    assert memory.max_rounds == 3


@pytest.mark.parametrize("scope", [None, ["user"], 3])
def test_a_scope_that_is_no_text_is_refused(scope: Any) -> None:
    with pytest.raises(ScopeError):
        ShortTermMemory(scope=scope)


def test_the_scope_is_fixed() -> None:
    with pytest.raises(AttributeError):
        ShortTermMemory().scope = "user"  # type: ignore[misc]  # the mistake under test


async def test_a_model_sees_accepted_items_only() -> None:
    memory = ShortTermMemory(max_rounds=2)
    rules = SystemMemory(content="old rules", status=MemoryStatus.DISCARD)
    hi = HumanMemory(content="hi")
    draft = HumanMemory(content="a draft", status=MemoryStatus.DRAFT)
    await memory.add_many([rules, hi, draft, HumanMemory(content="ho")])

    assert [item.content for item in await memory.window(budget=500)] == ["hi", "ho"]
    assert len(await memory.search()) == 3

    draft.transition(MemoryStatus.ACCEPTED)
    await memory.add(draft)
    assert [item.content for item in await memory.window(budget=500)] == ["a draft", "ho"]


@pytest.mark.parametrize("filters", [{"session_id": "s"}, {"task_id": "t", "session_id": "s"}])
async def test_a_window_of_ignored_fields_alone_is_refused(filters: dict[str, str]) -> None:
    memory = ShortTermMemory(scope="user")
    await memory.add(HumanMemory(content="hers", metadata=MemoryMetadata(user_id="ann")))

    with pytest.raises(EmptyFilterError, match="`user_id`, `agent_id`.*without `metadata`"):
        await memory.window(metadata=MemoryMetadata(**filters))
