"""What a call resends is aligned with the chat: nothing is stored twice, and nothing is lost."""

import random
import sys
from collections import Counter
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbiter.memory import AIMemory, HumanMemory, MemoryItem
from orbiter.memory.integrations._resent_history import Atom, find_new

_questions = st.sampled_from(["yes", "go on", "why?"]).map(lambda text: ("human", text))
_answers = st.sampled_from(["ok", "done", "no"]).map(lambda text: ("ai", text))
_turns = st.lists(
    st.tuples(_questions, st.lists(_answers, min_size=1, max_size=2)).map(
        lambda turn: [turn[0], *turn[1]]
    ),
    max_size=6,
).map(lambda turns: [atom for turn in turns for atom in turn])


def _items(atoms: Sequence[Atom]) -> list[MemoryItem]:
    kinds: dict[str, Any] = {"human": HumanMemory, "ai": AIMemory}
    return [kinds[role](content=text) for role, text in atoms]


def _new(said: Sequence[Atom], stored: Sequence[Atom]) -> list[Atom]:
    marks = find_new([[item] for item in _items(said)], _items(stored), "openai")
    return [atom for atom, is_new in zip(said, marks, strict=True) if is_new]


@given(stored=_turns, kept=st.lists(st.booleans(), min_size=18, max_size=18))
def test_nothing_of_a_history_with_gaps_is_stored_twice(
    stored: list[Atom], kept: list[bool]
) -> None:
    history = [atom for atom, is_kept in zip(stored, kept, strict=False) if is_kept]
    while history and history[-1][0] == "human":
        history.pop()

    assert _new([*history, ("human", "unheard of")], stored) == [("human", "unheard of")]


@given(stored=_turns, told=_turns)
def test_nothing_is_lost_for_a_message_that_the_chat_has_less_often(
    stored: list[Atom], told: list[Atom]
) -> None:
    new = _new([*told, ("human", "unheard of")], stored)

    def questions(atoms: Sequence[Atom]) -> Counter[Atom]:
        return Counter(atom for atom in atoms if atom[0] == "human")

    assert questions(told) - questions(stored) <= questions(new)
    assert new[-1] == ("human", "unheard of")


@given(
    stored=_turns,
    places=st.lists(st.integers(min_value=0, max_value=6), max_size=3),
    answers=st.lists(_answers, min_size=3, max_size=3),
)
def test_turns_put_into_a_history_are_stored_by_one_call_and_known_to_the_next(
    stored: list[Atom], places: list[int], answers: list[Atom]
) -> None:
    said, made = list(stored), list[Atom]()
    for number, (place, answer) in enumerate(zip(places, answers, strict=False)):
        turn: list[Atom] = [("human", f"edited {number}"), answer]
        heads = [at for at, atom in enumerate(said) if atom[0] == "human"]
        at = heads[place] if place < len(heads) else len(said)
        said[at:at] = turn
        made += turn
    said.append(("human", "go on, please"))

    new = _new(said, stored)
    stored = [*stored, *new, ("ai", "a new answer")]
    said = [*said, ("ai", "a new answer"), ("human", "and now?")]

    assert Counter(new) == Counter([*made, ("human", "go on, please")])
    assert _new(said, stored) == [("human", "and now?")]


def _lines_run(said: Sequence[Atom], stored: Sequence[Atom]) -> int:
    """Return how many lines of Python it takes to find what is new."""
    pieces, items = [[item] for item in _items(said)], _items(stored)
    lines, before = 0, sys.gettrace()

    def trace(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        find_new(pieces, items, "openai")
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("is_known", [True, False])
def test_2000_repetitive_messages_with_gaps_take_twice_the_work_of_1000(
    is_known: bool,
) -> None:
    def lines_run(count: int) -> int:
        dice = random.Random(19)
        there = [
            ("ai", dice.choice(["ok", "done"])) if place % 2 else ("human", "go on")
            for place in range(4 * count)
        ]
        said = [there[place] for place in sorted(dice.sample(range(4 * count), count))]
        if not is_known:
            said[::7] = [("human", "go on")] * len(said[::7])
        return _lines_run(said, there)

    assert lines_run(2_000) < 2.5 * lines_run(1_000)
