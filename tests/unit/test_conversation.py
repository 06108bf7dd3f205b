import random

import pytest
from benchmarks.legal import faults
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, SystemMemory, ToolMemory, count_tokens
from orbiter.memory.conversation import complete_tool_groups, last_rounds, rounds, trim_to_budget
from orbiter.memory.errors import QueryError
from orbiter.memory.testing import random_history


def human(text: str) -> HumanMemory:
    return HumanMemory(content=text)


def ai(text: str, *ids: str) -> AIMemory:
    return AIMemory(content=text, tool_calls=[{"id": i, "name": "f", "arguments": {}} for i in ids])


def tool(id: str, text: str = "") -> ToolMemory:
    return ToolMemory(content=text or f"result {id}", tool_call_id=id)


def system(text: str) -> SystemMemory:
    return SystemMemory(content=text)


def said(items: list[MemoryItem]) -> list[str]:
    return [item.content for item in items]


def test_a_round_starts_at_a_human_message() -> None:
    items: list[MemoryItem] = [system("s"), human("a"), ai("b"), human("c"), human("d")]

    assert [said(part) for part in rounds(items)] == [["s"], ["a", "b"], ["c"], ["d"]]
    assert rounds([]) == []


@pytest.mark.parametrize(
    ("count", "kept"),
    [
        (0, ["s1", "a", "b", "s2", "c", "d"]),
        (1, ["s1", "s2", "c", "d"]),
        (2, ["s1", "a", "b", "s2", "c", "d"]),
        (9, ["s1", "a", "b", "s2", "c", "d"]),
    ],
)
def test_the_last_rounds_keep_earlier_system_messages(count: int, kept: list[str]) -> None:
    items: list[MemoryItem] = [
        system("s1"), human("a"), ai("b"), system("s2"), human("c"), ai("d"),
    ]  # fmt: skip

    assert said(last_rounds(items, count)) == kept


def test_a_negative_number_of_rounds_is_refused() -> None:
    with pytest.raises(QueryError, match="count"):
        last_rounds([], -1)


@each_row(
    ("items", "kept"),
    [
        ([ai("x", "1"), tool("1")], ["x", "result 1"]),
        ([ai("x", "1", "2"), tool("2"), tool("1")], ["x", "result 2", "result 1"]),
        ([ai("x", "1", "2"), tool("1")], []),
        ([tool("1"), ai("x", "1")], []),
        ([tool("1"), human("h")], ["h"]),
        ([ai("x", "1"), human("h")], ["h"]),
        # a late result goes where providers want it: directly behind its call
        ([ai("x", "1"), human("h"), tool("1")], ["x", "result 1", "h"]),
        # the first of two results is what the model saw
        ([ai("x", "1"), tool("1", "first"), tool("1", "second")], ["x", "first"]),
        # an id used again belongs to the nearest call before it
        ([ai("x", "1"), tool("1", "a"), ai("y", "1"), tool("1", "b")], ["x", "a", "y", "b"]),
        ([ai("x", "1"), ai("y", "1"), tool("1", "b")], ["y", "b"]),
        ([ai("x", "1", "1"), tool("1")], []),
        ([ai("x", ""), tool("")], []),
        ([ai("x"), tool("1"), system("s")], ["x", "s"]),
    ],
)
def test_a_tool_group_is_whole_or_absent(items: list[MemoryItem], kept: list[str]) -> None:
    assert said(complete_tool_groups(items)) == kept


def test_an_open_last_turn_may_be_kept() -> None:
    items = [human("h"), ai("x", "1", "2"), tool("1")]

    assert said(complete_tool_groups(items, open_group="keep")) == ["h", "x", "result 1"]
    assert said(complete_tool_groups([*items, human("later")], open_group="keep")) == ["h", "later"]


def test_missing_results_may_be_completed_the_same_each_time() -> None:
    items = [ai("x", "1", "2"), tool("1"), human("h")]

    completed = complete_tool_groups(items, open_group="complete")

    assert said(completed) == ["x", "result 1", "No result was recorded for this tool call.", "h"]
    stand_in = completed[2]
    assert isinstance(stand_in, ToolMemory)
    assert (stand_in.tool_call_id, stand_in.tool_name, stand_in.is_error) == ("2", "f", True)
    assert complete_tool_groups(items, open_group="complete") == completed
    assert complete_tool_groups(completed) == completed


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(QueryError, match="`maybe`"):
        complete_tool_groups([human("h")], open_group="maybe")  # type: ignore[arg-type]  # under test


def test_a_budget_keeps_whole_rounds_and_the_rules() -> None:
    items = [system("rules"), human("a" * 40), ai("b" * 40), human("c"), ai("d")]
    enough_for_the_last = count_tokens([items[0], *items[3:]])

    assert said(trim_to_budget(items, budget=count_tokens(items))) == said(items)
    assert said(trim_to_budget(items, budget=count_tokens(items) - 1)) == ["rules", "c", "d"]
    assert said(trim_to_budget(items, budget=enough_for_the_last)) == ["rules", "c", "d"]
    assert said(trim_to_budget(items, max_items=4)) == ["rules", "c", "d"]


def test_a_round_too_long_keeps_its_question_and_newest_steps() -> None:
    items = [system("rules"), human("do it")]
    for number in range(50):
        items += [ai(f"step {number}", str(number)), tool(str(number))]

    kept = trim_to_budget(items, max_items=7)

    assert said(kept) == ["rules", "do it", "step 48", "result 48", "step 49", "result 49"]


@pytest.mark.parametrize("spare", [0, 5, 25, 100])
def test_the_newest_round_is_kept_whole_whenever_it_fits(spare: int) -> None:
    newest = [human("what now?"), ai("look", "1"), tool("1"), ai("done")]
    items = [system("rules " * 60), human("before"), ai("that"), *newest]

    kept = trim_to_budget(items, budget=count_tokens(newest) + spare)

    assert said(kept)[-4:] == said(newest)


def test_without_room_for_all_the_question_comes_before_the_rules() -> None:
    items: list[MemoryItem] = [system("long rules " * 50), system("be kind"), human("go"), ai("ok")]

    assert said(trim_to_budget(items, budget=40)) == ["be kind", "go", "ok"]
    assert said(trim_to_budget(items, max_items=1)) == ["go"]
    assert trim_to_budget(items, budget=0) == []
    assert trim_to_budget(items, max_items=0) == []


def test_a_question_that_does_not_fit_is_not_replaced_by_an_older_one() -> None:
    items: list[MemoryItem] = [system("rules"), human("a"), ai("b"), human("long " * 200)]

    assert said(trim_to_budget(items, budget=60)) == ["rules"]
    assert said(trim_to_budget([*items, ai("late answer")], budget=60)) == ["rules", "late answer"]


@pytest.mark.parametrize("limit", [-1, 1.5, True])
def test_a_senseless_limit_is_refused(limit: int) -> None:
    with pytest.raises(QueryError, match="budget"):
        trim_to_budget([human("h")], budget=limit)
    with pytest.raises(QueryError, match="max_items"):
        trim_to_budget([human("h")], max_items=limit)


def test_a_budget_is_counted_by_the_given_counter() -> None:
    items: list[MemoryItem] = [human("a b c"), human("d")]

    kept = trim_to_budget(items, budget=8 + 4 + 100, counter=lambda text: 60 * len(text.split()))

    assert said(kept) == ["d"]


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_no_history_window_limit_or_budget_gives_an_illegal_result(seed: int) -> None:
    assert list(faults(seed)) == []


@given(st.integers(0, 2**32), st.sampled_from(["drop", "complete"]))
@settings(max_examples=100, deadline=None)
def test_whole_groups_is_idempotent_and_keeps_everything_else(seed: int, policy: str) -> None:
    history = random_history(random.Random(seed))

    once = complete_tool_groups(history, open_group=policy)  # type: ignore[arg-type]  # one of the words

    assert complete_tool_groups(once, open_group=policy) == once  # type: ignore[arg-type]  # as above
    plain = [i for i in history if i.memory_type != "tool" and not getattr(i, "tool_calls", None)]
    kept = [i for i in once if i.memory_type != "tool" and not getattr(i, "tool_calls", None)]
    assert kept == plain
