"""`evaluate` says how well recall answers questions whose answers are known."""

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory import sync as blocking
from orbiter.memory.agent import Evaluation
from orbiter.memory.errors import QueryError


async def test_it_says_at_which_place_each_answer_came(any_memory: AgentMemory, who: str) -> None:
    ann = any_memory.scope(who)
    await ann.remember("The door code of the office is 4711")
    await ann.remember("The door of the garage is green")
    cat = await ann.remember("My cat is called Tom")
    await any_memory.scope(f"bob-{who}").remember("The answer of another user is zebra")

    found = await ann.evaluate(
        [
            ("What is the door code?", "4711"),
            ("What is the door code?", "GARAGE is"),
            ("What is my cat called?", cat),
            ("What is my cat called?", cat.id),
            ("What is the boat called?", "The answer of another user is zebra"),
            ("Which door code?", cat),
        ],
        mode="words",
        k=2,
    )

    assert [each.rank for each in found] == [1, 2, 1, 1, None, None]
    assert found.hit_rate == pytest.approx(4 / 6)
    assert found.mrr == pytest.approx(3.5 / 6)
    assert repr(found) == "Evaluation(6 questions, hit@2 0.67, MRR 0.58)"
    assert [each.is_stored for each in found.misses] == [False, True]
    assert found.misses[1].first == "The door code of the office is 4711"
    assert "zebra" not in str([each.first for each in found])
    assert found[0].relevance is not None


async def test_it_is_a_table(memory: AgentMemory, who: str) -> None:
    ann = memory.scope(who)
    await ann.remember("The door code is 4711")

    found = await ann.evaluate({"Which door code?": "4711", "Which boat?": "<b>red</b>"})

    html = found._repr_html_()
    assert "2 questions, hit@10 0.50, MRR 0.50" in html
    assert "&lt;b&gt;red&lt;/b&gt; (not remembered)" in html
    assert [row["rank"] for row in found.to_dicts()] == [1, None]
    assert isinstance(found[:1], Evaluation)
    nothing = await ann.evaluate([])
    assert (nothing.hit_rate, nothing.mrr, nothing.misses) == (0.0, 0.0, [])


async def test_what_is_no_pair_is_named(memory: AgentMemory, who: str) -> None:
    ann = memory.scope(who)
    for wrong in (["Where?"], [("Where?",)], [(1, "Oslo")], ["ab"], [5]):
        with pytest.raises(QueryError, match=r"question 0 must be a pair .*not "):
            await ann.evaluate(wrong)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`expected` must be"):
        await ann.evaluate([("Where?", "")])


def test_the_blocking_form_has_it() -> None:
    with blocking.AgentMemory("memory://", embeddings=None) as memory:
        memory.default_user.remember("Tea, not coffee")

        assert memory.default_user.evaluate([("What do I drink: tea?", "tea")]).hit_rate == 1.0


async def test_a_table_of_questions_is_taken_and_a_minimum_relevance(
    any_memory: AgentMemory, who: str
) -> None:
    class Frame:
        columns = ("expected", "question", "note")

        def to_dict(self, orient: str) -> list[dict[str, object]]:
            assert orient == "records"
            return [{"expected": "4711", "question": "Which door code?", "note": 1}]

    ann = any_memory.scope(who)
    await ann.remember("The door code is 4711")

    found = await ann.evaluate(Frame(), mode="words")  # type: ignore[arg-type]
    two = await ann.evaluate([{"q": "Which door code?", "a": "4711"}], mode="words")
    none = await ann.evaluate([("Which door code?", "4711")], min_relevance=1.0)

    assert (found.hit_rate, two.hit_rate) == (1.0, 1.0)
    assert (none.hit_rate, none[0].is_stored) == (0.0, True)
