"""Recall from real stores: what a question finds, in which order, and what it says about it."""

import random
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.recall.conftest import MODELS, Opening
from tests.recall.pools import NOW, START, turn
from tests.rows import each_row

from orbiter.memory import (
    HumanMemory,
    LocalEmbeddings,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    PostgresMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.recall import Hit, recall
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")


def _ids(hits: Iterable[Hit]) -> list[str]:
    return [hit.item.id for hit in hits]


def _note(item_id: str, content: str, **extra: Any) -> MemoryItem:
    metadata = MemoryMetadata(user_id="ann", session_id=item_id, extra=extra)
    return HumanMemory(id=item_id, content=content, metadata=metadata, created_at=START)


def _dialogue(*lines: tuple[str, str], session: str = "s") -> list[MemoryItem]:
    return [
        turn(
            f"{session}{n}",
            text,
            speaker=speaker,
            session=session,
            at=START + timedelta(minutes=n),
        )
        for n, (speaker, text) in enumerate(lines)
    ]


CHAT = _dialogue(
    ("Ann", "Hi Ben, how was the weekend?"),
    ("Ben", "Great, I went hiking with my sister in the Alps."),
    ("Ann", "Lovely! I painted our kitchen green on Saturday."),
    ("Ben", "What did you do with the old table?"),
    ("Ann", "Sold it for 80 francs, to a neighbour."),
    ("Ben", "My daughter plays the violin in an orchestra now."),
    ("Ann", "In 2019 I moved to Zürich because of work."),
    ("Ben", "I moved into a small flat by the lake."),
)


@MODELS
async def test_what_was_added_just_now_is_found(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many([_note(str(n), f"note {n} about tea") for n in range(60)])
        await store.add(_note("new", "The door code is 4711"))

        found = await recall(store, "What's the code of the door?", scope=ANN)

        assert found[0].item.id == "new"
        if model is not None:
            assert any(re.match(r"similar meaning \(0\.\d\d\)", r.text) for r in found[0].why)


@MODELS
async def test_forms_of_the_words_are_found(opened: Opening, model: HashEmbeddings | None) -> None:
    async with opened(model) as store:
        await store.add_many([_note(str(n), f"note {n} about tea") for n in range(30)])
        await store.add(_note("a", "We celebrated with the children and went swimming"))

        found = await recall(store, "celebration child swim", scope=ANN, k=1)

        assert _ids(found) == ["a"]


async def test_what_is_deleted_or_discarded_is_not_recalled(opened: Opening) -> None:
    async with opened(HashEmbeddings(64)) as store:
        await store.add_many([_note(name, f"door code {name}") for name in "abc"])
        await recall(store, "door code", scope=ANN)
        await store.delete("a")
        gone = _note("b", "door code b")
        gone.status = MemoryStatus.DISCARD
        await store.add(gone)

        assert _ids(await recall(store, "door code", scope=ANN)) == ["c"]
        await store.restore("a")
        assert set(_ids(await recall(store, "door code", scope=ANN))) == {"a", "c"}


@MODELS
async def test_a_changed_item_is_found_by_its_new_text_only(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many([_note(str(n), f"note {n} about tea") for n in range(40)])
        await store.add(_note("a", "The zebra sleeps"))
        await recall(store, "zebra", scope=ANN)
        await store.add(_note("a", "A giraffe wakes"))

        new = await recall(store, "giraffe", scope=ANN)
        old = await recall(store, "zebra", scope=ANN, k=50)

        assert new[0].item.content == "A giraffe wakes"
        assert all("zebra" not in reason.text for hit in old for reason in hit.why)
        assert all(hit.item.content != "The zebra sleeps" for hit in old)


@MODELS
async def test_the_one_who_is_named_is_preferred(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many(CHAT)

        of_ann = await recall(store, "Where did Ann move to?", scope=ANN, k=1)
        of_ben = await recall(store, "Where did Ben move to?", scope=ANN, k=1)

        assert "Zürich" in of_ann[0].item.content
        assert "lake" in of_ben[0].item.content
        assert "said by Ann, who is asked about" in {reason.text for reason in of_ann[0].why}


@MODELS
async def test_the_answer_after_a_question_is_found(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        filler = _dialogue(*[("Ann", f"Tea number {n} is nice") for n in range(30)], session="t")
        await store.add_many([*CHAT, *filler])

        found = await recall(store, "What did Ann do with the old table?", scope=ANN, k=2)

        assert "Sold it for 80 francs, to a neighbour." in [hit.item.content for hit in found]


async def test_a_time_in_the_question_prefers_what_was_said_then(opened: Opening) -> None:
    async with opened() as store:
        for month in (3, 5, 9):
            at = datetime(2023, month, 8, tzinfo=UTC)
            text = f"Dinner in restaurant {'xyzabcdefg'[month]}"
            await store.add(turn(f"m{month}", text, session=str(month), at=at))
        await store.add(turn("old", "Dinner at home", session="o", at=NOW - timedelta(days=15)))

        async def best(query: str) -> str:
            return (await recall(store, query, scope=ANN, now=NOW))[0].item.id

        assert await best("Where was the dinner on 7 May 2023?") == "m5"
        assert await best("Where was the dinner in September 2023?") == "m9"
        assert await best("Where was the dinner two weeks ago?") == "old"


async def test_a_time_in_the_question_finds_what_has_none_of_its_words(opened: Opening) -> None:
    async with opened() as store:
        day = datetime(2020, 2, 3, tzinfo=UTC)
        await store.add(turn("then", "We saw a film", session="f", at=day))
        await store.add_many(
            [turn(str(n), f"meeting {n}", session=f"x{n}", at=START) for n in range(300)]
        )

        found = await recall(store, "Which meeting or so was on 3 February 2020?", scope=ANN)

        assert "then" in _ids(found)


async def test_recency_and_importance_move_items_when_they_have_a_weight(opened: Opening) -> None:
    async with opened() as store:
        for name, days, importance in (("old", 300, 1.0), ("new", 1, 0.0)):
            await store.add(
                turn(
                    name,
                    f"tea of kind {name}",
                    session=name,
                    at=NOW - timedelta(days=days),
                    importance=importance,
                )
            )

        async def best(**weights: Any) -> str:
            return (await recall(store, "tea", scope=ANN, now=NOW, **weights))[0].item.id

        assert await best(recency_weight=9.0) == "new"
        assert await best(recency_weight=-9.0) == "old"
        assert await best(importance_weight=9.0) == "old"
        candidates = await recall(
            store, "tea", scope=ANN, now=NOW, recency_weight=3.0, importance_weight=2.0
        )
        points = {reason.part: reason.points for hit in candidates for reason in hit.why}
        assert points["importance"] == 2.0
        assert 0 < points["recency"] < 3.0


@each_row("importance", ["high", None, [1], 7, -3, True])
async def test_any_importance_counts_from_0_to_1(importance: Any) -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add(turn("a", "tea", importance=importance))

        (hit,) = await recall(store, "tea", scope=ANN, importance_weight=1.0)

        assert all(0 <= r.points <= 1 for r in hit.why if r.part == "importance")


async def test_repeats_take_one_place_however_many_there_are(opened: Opening) -> None:
    async with opened() as store:
        await store.add_many([_note(f"r{n}", "The door code is secret") for n in range(70)])
        await store.add_many([_note("x", "I closed a door"), _note("y", "green tea")])

        found = await recall(store, "the door code", scope=ANN, k=2, min_relevance=0)

        assert len(found) == 2
        assert "x" in _ids(found)
        assert max(len(hit.repeats) for hit in found) > 10
        repeated = next(hit for hit in found if hit.repeats)
        times = f"said {len(repeated.repeats) + 1} times"
        assert times in str(repeated)
        assert times in repeated._repr_html_()


@MODELS
async def test_the_same_question_has_the_same_answer(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many(CHAT)

        first = await recall(store, "When did Ann paint the kitchen?", scope=ANN, now=NOW)
        second = await recall(store, "When did Ann paint the kitchen?", scope=ANN, now=NOW)

        assert first == second
        assert [hit.score for hit in first] == sorted((h.score for h in first), reverse=True)


@MODELS
async def test_a_score_is_the_sum_of_its_reasons(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many(CHAT)

        found = await recall(store, "When did Ann paint?", scope=ANN, now=NOW, recency_weight=2.0)

        assert found
        for hit in found:
            assert sum(reason.points for reason in hit.why) == pytest.approx(hit.score, abs=1e-9)
            sizes = [abs(reason.points) for reason in hit.why]
            assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("model", [None, HashEmbeddings(256)], ids=["words", "vectors"])
async def test_both_databases_recall_the_same(
    tmp_path: Path, postgres_dsn: str, model: HashEmbeddings | None
) -> None:
    dice = random.Random(3)
    vocabulary = [
        "paint",
        "house",
        "tea",
        "red",
        "code",
        "door",
        "lake",
        "日本",
        "Zürich",
        "sister",
    ]
    items = [
        turn(
            f"i{n}",
            " ".join(dice.choices(vocabulary, k=dice.randrange(1, 9))) + dice.choice(".?!"),
            speaker=dice.choice(("Ann", "Ben", None)),
            session=str(n // 9),
            at=START + timedelta(minutes=n),
        )
        for n in range(120)
    ]
    questions = ("Where did Ann paint the red house?", "door code", "日本", "sister last week", "")
    answers: list[list[tuple[str, float]]] = []
    for store in (
        SQLiteMemoryStore(tmp_path / "m.db", embeddings=model),
        PostgresMemoryStore(postgres_dsn, embeddings=model),
    ):
        async with store:
            await store.add_many(items)
            await store.catch_up()
            found = [await recall(store, q, scope=ANN, k=8, now=NOW) for q in questions]
            answers.append([(hit.item.id, hit.score) for hits in found for hit in hits])

    assert [item_id for item_id, _ in answers[0]] == [item_id for item_id, _ in answers[1]]
    assert [s for _, s in answers[0]] == pytest.approx([s for _, s in answers[1]], abs=1e-4)


async def test_a_hit_can_be_read(opened: Opening) -> None:
    async with opened(None) as store:
        await store.add_many(CHAT)

        (hit,) = await recall(store, "When did Ann move?", scope=ANN, now=NOW, k=1)

        first, total, *others = str(hit).splitlines()
        assert total == f"    {hit.score:.2f} points"
        assert re.fullmatch(
            r"-?\d+\.\d\d  \[Ann, 1 Jun 2024\] In 2019 I moved to Zürich because of work\.", first
        )
        assert len(others) == len([r for r in hit.why if abs(r.points) >= 0.005]) >= 3
        assert all(re.fullmatch(r"    [+-]\d+\.\d\d  [a-z].+", line) for line in others)
        assert {"says when", "said by Ann, who is asked about"} <= {r.text for r in hit.why}


async def test_reasons_show_words_as_they_were_asked(opened: Opening) -> None:
    async with opened() as store:
        await store.add_many(
            [turn("a", "a celebration in our house", assistant=True), _note("b", "tea")]
        )

        found = await recall(store, "celebrating at the houses of others", scope=ANN)

        told = " ".join(reason.text for hit in found for reason in hit.why)
        assert 'contains "celebrating", "houses" (2 of ' in told


async def test_a_long_item_is_shown_by_its_beginning() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add(turn("a", "a long\nstory " * 100))

        (hit,) = await recall(store, "story", scope=ANN)

        first = str(hit).splitlines()[0]
        assert "a long story a long story" in first
        assert first.endswith("…")
        assert len(first) < 160


@each_row(
    ("question", "answer"),
    [
        ("我的门密码是什么？", "门密码是四七一一"),
        ("Wo wohnt meine Schwester?", "Meine Schwester wohnt in Köln"),
        ("Как зовут мою собаку?", "Собаку зовут Шарик"),
        ("犬の名前は何ですか", "うちの犬の名前はポチです"),
        ("Où est l'école de Léa ?", "Léa va à l’école à Lyon"),
        ("내 고양이 이름은?", "고양이 이름은 나비"),
    ],
)
async def test_other_languages_are_found_by_their_words(question: str, answer: str) -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add(_note("a", answer))
        for n, text in enumerate(("I like tea", "今天天气很好", "Es regnet heute", "Идёт дождь")):
            await store.add(_note(str(n), text))

        found = await recall(store, question, scope=ANN, k=1)

        assert _ids(found) == ["a"]


class Partial(HashEmbeddings):
    """Embeddings that cannot embed some texts yet."""

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        if any("late" in text for text in texts):
            raise ConnectionError("not now")
        return await super().aembed_many(texts)


async def test_what_is_not_embedded_yet_is_found_by_its_words(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.recall._candidates._PATIENCE", 0.2)
    async with opened(Partial(64)) as store:
        await store.add_many([_note("a", "my door code"), _note("b", "green tea")])
        await store.catch_up()
        await store.add(_note("c", "the late zebra"))

        found = await recall(store, "zebra", scope=ANN)

        assert _ids(found)[0] == "c"
        assert (await recall(store, "my door code", scope=ANN))[0].item.id == "a"


async def test_it_says_once_that_many_are_not_embedded_yet(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.recall._candidates._PATIENCE", 0.0)
    monkeypatch.setattr("orbiter.memory.recall._modes._warned", set())
    async with opened(Partial(64)) as store:
        await store.add_many([_note(str(n), f"late zebra number {n}") for n in range(120)])

        with pytest.warns(UserWarning, match="120 memories are not embedded yet"):
            assert await recall(store, "zebra", scope=ANN)
        assert await recall(store, "zebra", scope=ANN)


async def test_every_answer_says_how_many_are_not_embedded_yet(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.recall._candidates._PATIENCE", 0.0)
    async with opened(Partial(64)) as store:
        await store.add(_note("a", "my door code"))
        await store.catch_up()
        embedded = await recall(store, "my door code", scope=ANN)
        await store.add_many([_note(str(n), f"late zebra number {n}") for n in range(3)])

        for _ in range(2):
            found = await recall(store, "zebra", scope=ANN)
            assert found.unembedded == 3
            assert "3 memories have no vector yet: `flush()`" in str(found)
            assert "3 memories have no vector yet: `flush()`" in found._repr_html_()
        assert embedded.unembedded == 0
        assert "no vector" not in str(embedded)
        assert (await recall(store, "zebra", scope=ANN, mode="words")).unembedded is None


async def test_a_table_says_how_it_is_ordered(opened: Opening) -> None:
    async with opened(HashEmbeddings(64)) as store:
        await store.add_many([_note(str(n), f"the {n}th boat is red") for n in range(3)])

        for mode, spread, order in (
            ("hybrid", None, "best first"),
            ("words", None, "best first"),
            ("words", True, "oldest first"),
            ("meaning", None, "by the cosine"),
            ("recent", None, "newest first"),
        ):
            found = await recall(store, "red boat", scope=ANN, mode=mode, spread=spread)  # type: ignore[arg-type]
            assert found.order.startswith(order)
            assert f"3 hits of 3 candidates, {order}" in found._repr_html_()


async def test_only_one_question_waits_for_what_another_process_embeds(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(HashEmbeddings(64)) as store:
        await store.add(_note("a", "my door code"))
        waits: list[float | None] = []

        async def catch_up(*, within: float | None = None) -> int:
            waits.append(within)
            return 1  # it is with another

        monkeypatch.setattr(store, "catch_up", catch_up)
        for _ in range(3):
            await recall(store, "door", scope=ANN)

        assert waits == [0.0, 2.0, 0.0, 0.0]


async def test_the_talk_around_the_nearest_is_measured_too(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.recall._candidates._MAX_CANDIDATES", 1)
    async with opened(HashEmbeddings(64)) as store:
        await store.add_many(CHAT)

        found = await recall(store, "kitchen", scope=ANN, k=4, min_relevance=0)

        assert len(found) == 4
        assert all("meaning" in {reason.part for reason in hit.why} for hit in found)


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


async def test_meaning_finds_what_shares_no_word(local: LocalEmbeddings) -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=local) as store:
        await store.add_many(
            [
                *CHAT,
                _note("pet", "Our puppy Rex barks at the postman every morning"),
                _note("car", "The garage repaired the brakes of the van"),
            ]
        )

        dog = await recall(store, "Which dogs are in the family?", scope=ANN, k=1)
        music = await recall(store, "Who is a musician?", scope=ANN, k=2)

        assert _ids(dog) == ["pet"]
        assert any("violin" in hit.item.content for hit in music)


async def test_a_name_is_put_as_that_person_says_it(local: LocalEmbeddings) -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=local) as store:
        await store.add_many(CHAT)

        found = await recall(store, "Which colour did Ann's kitchen get?", scope=ANN, k=1)

        assert "green" in found[0].item.content
        assert sum(r.points for r in found[0].why) == pytest.approx(found[0].score, abs=1e-9)


EVENTS = {
    "married": (0, "Tom and Lea had their wedding, what a party!"),
    "later": (2, "We fly home tomorrow."),
    "jacket": (21, "I bought a red jacket today."),
    "shoes": (60, "I bought running shoes today."),
    "concert": (70, "The concert of the Kites was yesterday."),
    "swim": (77, "Swimming in the lake with Eva."),
    "bike": (120, "I bought a bike today."),
}


@MODELS
@pytest.mark.parametrize(
    ("question", "expected", "read_as"),
    [
        ("What did I buy three weeks after the wedding?", "jacket", "25 May 2023 to 5 June 2023"),
        ("What did I do the weekend after the concert?", "swim", "21 July 2023 to 30 July 2023"),
    ],
)
async def test_a_time_told_by_an_event_is_that_of_the_event_and_so_much_more(
    opened: Opening, model: Any, question: str, expected: str, read_as: str
) -> None:
    begin = datetime(2023, 5, 7, 18, tzinfo=UTC)  # a Sunday
    async with opened(model) as store:
        for item_id, (days, text) in EVENTS.items():
            at = begin + timedelta(days=days)
            metadata = MemoryMetadata(user_id="ann", session_id=item_id)
            await store.add(HumanMemory(id=item_id, content=text, metadata=metadata, created_at=at))
        await store.catch_up()
        found = await recall(store, question, scope=ANN, mode="hybrid", now=NOW)

    assert expected in _ids(found)[:2]  # what names the event may come first
    assert read_as in found.question


async def test_a_caption_counts_as_text_of_its_message(opened: Opening) -> None:
    async with opened() as store:
        await store.add(_note("max", "This is Max! [a photo of a dog on a beach]"))
        await store.add(_note("tea", "Green tea, please."))

        found = await recall(store, "Which dog was at the beach?", scope=ANN, mode="words")

    assert _ids(found) == ["max"]
    assert "dog" in str(found[0].why)
