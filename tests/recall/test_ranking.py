"""From what was measured to an order, and repeats that share a place."""

import random
from datetime import timedelta

from tests.recall.pools import START, ask, pool, talk, turn
from tests.rows import each_row

from orbiter.memory import MemoryItem
from orbiter.memory.recall._features import FeatureTable
from orbiter.memory.recall._rerank import ASSISTANT, PEOPLE, kind_of
from orbiter.memory.recall._scoring import Scored, score, without_repeats
from orbiter.memory.recall._signals import measure

LONG = (
    "Our flight to Rome leaves Zurich airport on Monday evening with a long stop in Milan where we "
    "want to eat pizza and meet our old friend Luca again"
)


def _table(items: list[MemoryItem], **columns: list[float]) -> FeatureTable:
    nothing: list[int | None] = [None] * len(items)
    return FeatureTable(items, columns, nothing, nothing, [frozenset()] * len(items), {}, {}, {})


def _unrepeated(items: list[MemoryItem], limit: int = 10) -> dict[str, list[str]]:
    scored = [Scored(item, place, {}) for place, item in enumerate(items)]
    return {
        one.item.id: [repeat.id for repeat in repeats]
        for one, repeats in without_repeats(scored, limit=limit)
    }


def test_a_score_is_the_sum_of_its_points_and_the_best_comes_first() -> None:
    items = talk("a", "b")
    table = _table(items, x=[1.0, 2.0], y=[5.0, -1.0], z=[9.0, 9.0])

    scored = score(table, {"x": 1.0, "y": 0.5, "unknown": 7.0}, [0, 1])

    assert [(one.item.id, one.score) for one in scored] == [("0", 3.5), ("1", 1.5)]
    assert scored[0].points == {"x": 1.0, "y": 2.5}


def test_what_is_not_eligible_is_not_there() -> None:
    items = talk("a", "b", "c")

    scored = score(_table(items, x=[1.0, 2.0, 3.0]), {"x": 1.0}, [0, 1])

    assert [one.item.id for one in scored] == ["1", "0"]


def test_of_equals_the_newest_comes_first_and_then_the_id_decides() -> None:
    items = [
        turn("b", "x"),
        turn("a", "x"),
        turn("new", "x", at=START + timedelta(days=1)),
    ]
    dice = random.Random(1)

    for _ in range(5):
        dice.shuffle(items)
        scored = score(_table(items, x=[1.0] * 3), {"x": 1.0}, [0, 1, 2])
        assert [one.item.id for one in scored] == ["new", "a", "b"]


def test_every_weight_is_of_a_column_that_is_measured() -> None:
    measured = set(measure(ask("x"), pool(talk("a"), similarity={})).columns)

    for kind in (PEOPLE, ASSISTANT):
        assert set(kind.words) <= measured - {"meaning", "neighbour_meaning"}
        assert set(kind.meaning) <= measured
        assert set(kind.details) <= measured | {"detail", "neighbour_detail"}


def test_who_speaks_tells_the_kind_of_talk() -> None:
    assert kind_of(talk("a", "b")) is PEOPLE
    assert kind_of([turn("a", "x"), turn("b", "x", assistant=True)]) is ASSISTANT
    assert kind_of([]) is PEOPLE


def test_repeats_share_a_place_and_are_listed() -> None:
    items = talk(
        "I like green tea.", "I drink coffee", "i like  green tea!", "I like the green tea"
    )

    assert _unrepeated(items) == {"0": ["2", "3"], "1": []}


def test_different_speakers_do_not_repeat_each_other() -> None:
    items = [
        turn("a", "I like green tea", speaker="Ann"),
        turn("b", "I like green tea", speaker="Ben"),
        turn("c", "I like green tea", assistant=True),
        turn("d", "I like green tea", speaker="Ann"),
    ]

    assert _unrepeated(items) == {"a": ["d"], "b": [], "c": []}


@each_row(
    ("one", "other"),
    [
        ("I am a vegetarian", "I am not a vegetarian"),
        ("I eat meat", "I don't eat meat"),
        ("I eat meat", "I never eat meat"),
        ("My code is 4711", "My code is 4712"),
        (f"{LONG} from gate 12", f"{LONG} from gate 14"),
        (f"{LONG} on Monday", f"{LONG} on Tuesday"),
        ("Bob owes Anna 50 euros", "Anna owes Bob 50 euros"),
        ("The flight goes from Berlin to Paris", "The flight goes from Paris to Berlin"),
        ("The balance is -50", "The balance is 50"),
        ("It costs $50", "It costs €50"),
        ("Take 1/2 tablet", "Take 1-2 tablets"),
        ("Half off: 50%", "Half off: 50"),
        ("Take it before dinner", "Take it after dinner"),
        ("Turn it on", "Turn it off"),
        ("I like tea and hate coffee", "I hate tea and like coffee"),
        ("The password is hunteR", "The password is Hunter"),
    ],
)
def test_what_says_something_else_is_no_repeat(one: str, other: str) -> None:
    assert _unrepeated(talk(one, other)) == {"0": [], "1": []}


def test_texts_without_terms_do_not_repeat_each_other() -> None:
    assert _unrepeated(talk("🎉", "👍", "")) == {"0": [], "1": [], "2": []}


def test_repeats_of_what_is_chosen_take_no_place_at_the_limit() -> None:
    items = talk("green tea", "red wine", "green tea", "black coffee", "red wine")

    assert _unrepeated(items, limit=2) == {"0": ["2"], "1": []}
    assert _unrepeated(items, limit=0) == {}
