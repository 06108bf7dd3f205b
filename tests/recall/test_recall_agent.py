"""Recall as an agent uses it: it stores what is asked, recalls with it, and shows what it found."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.recall.conftest import MODELS, Opening
from tests.recall.pools import NOW, START, turn

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SQLiteMemoryStore,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.context import ContextManager
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.recall import BoundRecall, Explanation, Hit, recall
from orbiter.memory.testing import HashEmbeddings

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
ASKED = "Where is my flat?"


def _ids(hits: Iterable[Hit]) -> list[str]:
    return [hit.item.id for hit in hits]


def _chat(session: str | None) -> list[MemoryItem]:
    lines = [
        ("flat", "My flat is in Bern, near the river", "old"),
        ("noted", "Nice, noted.", "old"),
        *((f"tea{n}", f"Tea number {n} tastes fine", f"tea{n // 4}") for n in range(24)),
        ("grey", "It is grey today", "now"),
        ("umbrella", "Yes, take an umbrella.", "now"),
        ("asked", ASKED, "now"),
    ]
    return [
        turn(
            item_id,
            text,
            session=session and own,
            at=START + timedelta(minutes=n),
            assistant=n % 2 == 1,
        )
        for n, (item_id, text, own) in enumerate(lines)
    ]


@MODELS
@pytest.mark.parametrize("session", ["s", None], ids=["in sessions", "without"])
async def test_the_question_that_was_just_stored_is_not_its_own_answer(
    opened: Opening, model: HashEmbeddings | None, session: str | None
) -> None:
    async with opened(model) as store:
        await store.add_many(_chat(session))

        found = await recall(store, ASKED, scope=ANN, now=NOW, min_relevance=0, k=40)

        assert found[0].item.id == "flat"
        if model is None:
            assert not {"grey", "umbrella"} & set(_ids(found))
        told = {reason.part: reason for hit in found[1:] for reason in hit.why}
        assert told["echo"].points <= -4.5
        assert told["echo"].text == "asks the same, so it is not an answer"


@pytest.mark.parametrize("with_note", [True, False], ids=["beside a note", "in the chat alone"])
async def test_a_question_of_a_chat_that_was_answered_comes_behind_its_answer(
    opened: Opening, *, with_note: bool
) -> None:
    """What is before the answer in the chat must not have its place."""
    said = ["What is my job?", "You work as a nurse.", "My new hobby is pottery", "How nice!"]
    async with opened(LocalEmbeddings()) as store:
        if with_note:
            await store.add(MemoryItem(id="note", content="I am a nurse", metadata=ANN))
        for number, text in enumerate(said):
            kind = AIMemory if number % 2 else HumanMemory
            where = MemoryMetadata(user_id=ANN.user_id, session_id="s")
            await store.add(kind(id=str(number), content=text, metadata=where))
        await store.catch_up()

        found = await recall(store, said[0], scope=ANN, now=NOW, min_relevance=0)

        ids = _ids(found)
        assert ids.index("1") < ids.index("0")
        if with_note:
            # It is as relevant as `2`, but for thousandths, and these differ with the runtime.
            assert ids.index("note") < ids.index("0")


@MODELS
@pytest.mark.parametrize("asked", ["car", "Where is my car?", "where is the car parked"])
async def test_an_earlier_question_about_the_same_comes_behind_what_answers(
    opened: Opening, model: HashEmbeddings | None, asked: str
) -> None:
    said = ["Where is my car parked?", "I do not know yet.", "The car is in the garage"]
    async with opened(model) as store:
        for number, text in enumerate(said):
            kind = AIMemory if number == 1 else HumanMemory
            where = MemoryMetadata(user_id=ANN.user_id, session_id="s")
            await store.add(kind(id=str(number), content=text, metadata=where))

        found = await recall(store, asked, scope=ANN, now=NOW)

        assert _ids(found)[0] == "2"


@MODELS
async def test_the_only_memory_is_found_for_a_reason(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add(HumanMemory(content="My flat is in Bern", metadata=ANN))

        (hit,) = await recall(store, ASKED, scope=ANN)

        assert max(reason.points for reason in hit.why) > 0
        assert all(each.relevance < 0.02 for each in await recall(store, "zebra", scope=ANN))


@MODELS
async def test_what_is_blank_is_never_recalled(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        contents = ("", " \n", "The flat is mine", "\t")
        await store.add_many(
            [turn(str(n), text, at=START + timedelta(minutes=n)) for n, text in enumerate(contents)]
        )

        for asked in (ASKED, "What was on 1 June 2024?"):
            assert _ids(await recall(store, asked, scope=ANN, min_relevance=0)) == ["2"]


@MODELS
async def test_what_has_no_session_has_no_neighbours(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many(
            [
                turn(str(n), text, session=None, at=START + timedelta(minutes=n))
                for n, text in enumerate(("Tea is nice", "My flat is in Bern", "Rain again"))
            ]
        )

        found = await recall(store, ASKED, scope=ANN, now=NOW, recency_weight=1.0)

        if model is None:
            assert _ids(found) == ["1"]
        for hit in found:
            parts = [reason.part for reason in hit.why]
            assert len(parts) == len(set(parts))
            assert not {"prev_turn", "neighbours", "session", "neighbour_meaning"} & set(parts)
            assert sum(r.points for r in hit.why) == pytest.approx(hit.score, abs=1e-9)
        assert 'contains "flat" (1 of 1 word)' in {reason.text for reason in found[0].why}


@pytest.mark.parametrize("question", ["Who is Cid?", "What does Cid like?", "And Cid and Dora?"])
async def test_a_question_of_names_alone_is_answered_by_who_spoke_and_who_is_named(
    opened: Opening, question: str
) -> None:
    lines = (
        ("Cid", "I love skiing"),
        ("Ben", "I prefer tea"),
        ("Ben", "Cid is my brother"),
        ("Dora", "It rains"),
    )
    async with opened() as store:
        await store.add_many(
            [turn(str(n), text, speaker=who, session=str(n)) for n, (who, text) in enumerate(lines)]
        )

        found = await recall(store, question, scope=ANN)

        assert set(_ids(found)) == {"0", "2", *(["3"] if "Dora" in question else [])}


async def test_the_passage_of_a_long_item_is_the_one_that_answers() -> None:
    filler = " ".join(f"Filler {n} is a sentence of its own." for n in range(200))
    async with SQLiteMemoryStore(":memory:") as store:
        long = f"{filler}\n\nThe flat is in Bern, near the river. {filler}"
        await store.add_many([turn("long", long), turn("short", "A  flat\nin Rome")])

        found = {hit.item.id: hit for hit in await recall(store, "flat river Bern", scope=ANN)}

    assert "The flat is in Bern" in found["long"].passage
    assert found["long"].passage in long
    assert len(found["long"].passage) < 2000
    assert found["short"].passage == "A  flat\nin Rome"
    assert found["long"].passage.split()[0] in str(found["long"]).splitlines()[0]


async def test_a_hit_shows_what_kind_of_memory_it_is() -> None:
    class Clue(MemoryItem):
        memory_type: str = "clue"

    items = [
        turn("user", "flat one"),
        turn("assistant", "flat two", assistant=True),
        turn("Cid", "flat three", speaker="Cid"),
        ToolMemory(id="tool", content="flat four", tool_call_id="1", tool_name="x"),
        SystemMemory(id="system", content="flat five"),
        Clue(id="clue", content="flat six"),
    ]
    for item in items:
        hit = Hit(item, 1.0, Explanation())
        assert f"[{item.id}, {item.created_at.day} " in str(hit)


async def test_reasons_say_what_speaks_for_an_item_and_what_against_it() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many(_chat("s"))

        found = await recall(store, ASKED, scope=ANN, now=NOW, min_relevance=0)
        hits = {hit.item.id: hit for hit in found}

    told = {name: {r.part: r.text for r in hit.why} for name, hit in hits.items()}
    assert told["flat"]["words"] == 'contains "flat" (1 of 1 word)'
    assert told["noted"]["words"] == "contains none of the words of the question"


async def test_recall_for_one_user_is_a_source_of_context(tmp_path: Path) -> None:
    soul = tmp_path / "SOUL.md"
    soul.write_text("---\nname: A\nrole: assistant\nmission: Help.\n---\n", encoding="utf-8")
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many(_chat("s"))
        await store.add(HumanMemory(content="My flat is a secret of Bob", metadata=BOB))
        bound = BoundRecall(store, ANN)

        found = await bound.recall(ASKED, limit=1)
        context = await ContextManager(soul).assemble(ASKED, long_term=bound, scope=ANN)

        assert [item.id for item in found] == ["flat"]
        assert await bound.recall(ASKED, limit=0) == []
        assert "My flat is in Bern, near the river" in context.text
        assert "secret" not in context.text
