"""What an answer tells about itself: how it was asked, what was left out, and why, in short."""

import copy
import pickle
import re

import pytest
from tests.recall.conftest import Opening
from tests.recall.pools import NOW, START, ask, pool, turn
from tests.rows import each_row

from orbiter.memory import AIMemory, LocalEmbeddings, MemoryItem, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.model.reading import Verdict
from orbiter.memory.recall import Excluded, Explanation, Hit, Reason, RecallResult, recall
from orbiter.memory.recall._signals import SIGNALS, Evidence, measure
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
NOTES = (
    "My passport expires in March",
    "Python is my favourite language",
    "The wifi password is on the fridge",
    "I am allergic to peanuts",
    "Dinner with Paul on Friday at the ramen bar",
    "My car needs new tyres",
    "The quarterly report is due on Monday",
    "I prefer short answers",
    "My sister Eva lives in Oslo",
    "We use Postgres at work",
)


def _why(*parts: tuple[str, float, str]) -> Explanation:
    return Explanation(Reason(*part) for part in parts)


def test_why_reads_as_the_strongest_reasons_for_an_item() -> None:
    why = _why(
        ("echo", -3.0, "asks the same, so it is not an answer"),
        ("meaning", 1.5, "similar meaning (0.58)"),
        ("words", 1.0, 'contains "hiking" (1 of 2 words)'),
        ("prior", 0.9, "beside the other candidates"),
        ("date", 0.01, "said on 3 May 2024, near the time asked about"),
    )

    assert f"{why}" == str(why)
    assert str(why) == 'similar meaning (0.58); contains "hiking" (1 of 2 words)'
    assert f"{why:.9}" == "similar m"


def test_why_of_the_newest_is_when_they_are_from_however_long_ago() -> None:
    text = "is recent, from 3 May 2019"

    assert str(_why(("recency", 1e-9, text))) == text
    assert str(_why(("recency", 1e-9, text), ("length", -0.1, "x"))) == "not relevant enough"


def test_why_tells_each_kind_of_reason_once() -> None:
    why = _why(
        (
            "neighbour_detail",
            2.0,
            "with the surrounding messages, every word of the question is matched",
        ),
        ("words", 1.8, 'contains "tea" (1 of 1 word)'),
        ("prev_turn", 1.7, 'with the message before it, contains "tea" (1 of 1 word)'),
        ("meaning", 1.0, "similar meaning (0.58)"),
    )

    assert str(why) == 'similar meaning (0.58); contains "tea" (1 of 1 word)'


@pytest.mark.parametrize("points", [1.0, -1.0])
def test_why_begins_with_what_the_reader_says_if_it_says_anything(points: float) -> None:
    words = ("words", 2.0, 'contains "tea" (1 of 1 word)')
    for says in ("answers it (0.93)", "about it (0.67)"):
        assert str(_why(words, ("reader", points, says))) == f"{says}; {words[2]}"
    assert str(_why(words, ("reader", points, "does not answer it (0.03)"))) == words[2]


@pytest.mark.parametrize(
    ("answers", "related", "says"),
    [
        (2.0, -2.0, "answers it (0.88)"),
        (-2.0, 2.0, "about it (0.88)"),
        (-2.0, -2.0, "does not answer it (0.12)"),
    ],
)
def test_what_the_reader_says_is_told_in_words(answers: float, related: float, says: str) -> None:
    question, candidates = ask("tea?"), pool([turn("a", "tea")])
    table = measure(question, candidates)
    table.verdicts[0] = Verdict(answers, related, 0.0)
    (reader,) = [signal for signal in SIGNALS if signal.name == "reader"]

    evidence = Evidence(question, candidates, table, table.items[0], 0)
    assert reader.words(evidence) == (says, says)


def test_why_is_short_and_never_empty() -> None:
    long = _why(("words", 1.0, "holds " + "x" * 300), ("date", 0.9, "said on 3 May 2024"))

    assert len(str(long)) == 100
    assert str(Explanation()) == "not relevant enough"
    assert str(_why(("prior", 1.0, "beside the other candidates"))) == str(Explanation())
    assert str(_why(("meaning", -1.0, "unrelated meaning (0.01)"))) == "not relevant enough"


def test_why_is_a_tuple_of_reasons_all_the_same() -> None:
    reason = Reason("words", 1.0, 'contains "tea" (1 of 1 word)')
    hit = Hit(turn("a", "tea"), 1.0, (reason,))  # type: ignore[arg-type]  # one made by hand

    assert hit.why == (reason,)
    assert repr(hit.why) == f"({reason!r},)"
    assert isinstance(hit.why, Explanation)
    assert pickle.loads(pickle.dumps(hit)).why == copy.copy(hit).why == hit.why


@pytest.mark.parametrize("model", [None, HashEmbeddings(256)], ids=["words", "vectors"])
async def test_what_was_left_out_is_told_with_the_reason(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many(
            [
                turn("hit", "the door code of our house", session=None, at=NOW),
                turn("repeat", "the door code of our house", session=None),
                turn("next", "a blue door", session=None),
                turn("other", "nothing of that", session=None),
            ]
        )

        found = await recall(store, "door code", scope=ANN, k=1, explain=True)
        short = await recall(store, "door code", scope=ANN, k=1)

    assert [hit.item.id for hit in found] == ["hit"]
    left = {one.item.id: one for one in found.left_out}
    assert {item_id: one.reason for item_id, one in left.items()} == {
        "repeat": "repeat",
        "next": "rank",
        "other": "no evidence" if model is None else "relevance",
    }
    scores = [one.score for one in found.left_out]
    assert scores == sorted(scores, reverse=True)
    for one in found.left_out:
        assert sum(reason.points for reason in one.why) == pytest.approx(one.score)
    assert found.considered == short.considered == 4
    assert short.left_out == ()
    assert short == found


@pytest.mark.parametrize("mode", ["hybrid", "meaning", "recent"])
async def test_at_most_fifty_are_told_of(mode: str) -> None:
    texts = [f"tea {one}{other}" for one in "bcdfghjk" for other in "abcdefghij"]
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings(64)) as store:
        await store.add_many([turn(f"n{n}", text, session=None) for n, text in enumerate(texts)])

        found = await recall(store, "tea", scope=ANN, k=5, explain=True, mode=mode, min_relevance=0)  # type: ignore[arg-type]  # one of four

    assert len(found) == 5
    assert [one.reason for one in found.left_out] == ["rank"] * 50
    assert not {hit.item.id for hit in found} & {one.item.id for one in found.left_out}


@each_row(
    ("query", "told"),
    [
        ("Where is the door code?", "looks for door, code"),
        (
            "When did Ann paint in May 2023?",
            "looks for paint, may, 2023; about Ann; of May 2023; asks when",
        ),
        ("tea two weeks ago", "looks for tea, two, weeks, ago; of 29 May 2024 to 4 June 2024"),
        ("tea yesterday", "looks for tea, yesterday; of 14 June 2024"),
        ("tea on 8 May or in 2023", "looks for tea, 8, may, 2023; of 8 May"),
        ("the of and", "has no word to search for"),
        ("", "asks for nothing"),
        (" ".join(f"w{n}" for n in range(15)), r"looks for w0, .*, w11 and 3 more"),
    ],
)
async def test_how_a_question_was_read_is_told(query: str, told: str) -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add(turn("a", "tea", speaker="Ann"))

        found = await recall(store, query, scope=ANN, now=NOW)

    assert re.fullmatch(told, found.question)


async def test_an_answer_can_be_read_in_a_terminal() -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add_many(
            [
                turn("a", "the door\x1b[31m code \u202e4711 👩\u200d🔬", session=None, at=START),
                turn("b", "green tea", session=None),
                turn("c", "a door", session=None),
            ]
        )

        found = await recall(store, "door code", scope=ANN, k=1, now=NOW)
        explained = await recall(store, "door code", scope=ANN, k=1, now=NOW, explain=True)
        nothing = await recall(store, "zebra", scope=ANN, now=NOW)

    head, hit = str(found).split("\n\n")
    assert head == "1 of 3 candidates, mode hybrid: looks for door, code"
    first, second = hit.splitlines()
    assert re.fullmatch(
        r"\d\.\d\d  \[user, 1 Jun 2024\] the door�\[31m code �4711 👩\u200d🔬", first
    )
    assert second.startswith('    contains "code", "door" (2 of 2 words)')
    head, hit, left, *others = str(explained).split("\n\n")
    assert re.search(r"^    \+\d\.\d\d  contains \"code\", \"door\"", hit, re.MULTILINE)
    assert left == "left out, 2 next best:"
    assert [re.split("\n    |:", one)[1] for one in others] == [
        "others rank higher",
        "not relevant enough",
    ]
    assert str(nothing) == "nothing found, mode hybrid: looks for zebra"


def test_an_answer_is_a_list_of_hits() -> None:
    hit = Hit(turn("a", "tea"), 1.0, Explanation())
    left = Excluded(turn("b", "tea"), 0.5, "rank", Explanation())
    found = RecallResult([hit], mode="words", considered=2, left_out=(left,), question="tea")

    assert found == [hit]
    assert found[:1] == [hit]
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.mode, again.left_out) == (found, "words", (left,))


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


@pytest.mark.parametrize("session", [None, "s1"])
async def test_a_plain_memory_is_found_by_what_it_means(
    local: LocalEmbeddings, session: str | None
) -> None:
    who = MemoryMetadata(user_id="ann", session_id=session)
    texts = (*NOTES[:5], "I love hiking in the mountains", *NOTES[5:])
    async with SQLiteMemoryStore(":memory:", embeddings=local) as store:
        for text in texts:
            await store.add(MemoryItem(content=text, metadata=who))

        outdoors = await recall(store, "outdoor activities", scope=ANN)
        eva = await recall(store, "Where does Eva live?", scope=ANN)

    assert [hit.item.content for hit in outdoors] == ["I love hiking in the mountains"]
    assert outdoors[0].relevance > 0.3
    assert re.search(r"similar meaning \(0\.\d\d\)$", str(outdoors[0].why))
    assert eva[0].item.content == "My sister Eva lives in Oslo"
    assert all(hit.relevance < 0.1 for hit in eva[1:])
    assert re.search(
        r"contains \"eva\", \"live\" \(2 of 2 words\); similar meaning \(0\.\d\d\)$",
        f"{eva[0].why}",
    )
    told = " ".join(reason.text for hit in (*outdoors, *eva) for reason in hit.why)
    assert "said" not in told
    assert "item" not in told
    assert str(eva[0]).splitlines()[0].split("] ")[0].split("[")[1].startswith("note, ")


async def test_a_plain_memory_is_worth_what_the_user_says_in_a_chat(opened: Opening) -> None:
    async with opened() as store:
        await store.add(MemoryItem(id="note", content="The door code is 4711", metadata=ANN))
        for n in range(6):
            who = MemoryMetadata(user_id="ann", session_id="chat")
            await store.add(turn(f"h{n}", f"We talked of the door, number {n}", session="chat"))
            await store.add(AIMemory(id=f"a{n}", content=f"I see, a code {n}", metadata=who))

        found = await recall(store, "door code", scope=ANN)

    assert found[0].item.id == "note"
    assert "saved as a note" in {reason.text for reason in found[0].why}


async def test_notes_in_a_session_lend_each_other_nothing(opened: Opening) -> None:
    who = MemoryMetadata(user_id="ann", session_id="s")
    async with opened() as store:
        await store.add(MemoryItem(id="a", content="The door code is 4711", metadata=who))
        await store.add(MemoryItem(id="b", content="I like green tea", metadata=who))
        await store.add(turn("c", "What about lunch?", session="s", at=NOW))
        await store.add(MemoryItem(id="d", content="Paul is ill", metadata=who))

        found = await recall(store, "door code", scope=ANN, explain=True)

    assert [hit.item.id for hit in found] == ["a"]
    assert len(found.left_out) == len({one.item.id for one in found.left_out}) == 3


@pytest.mark.parametrize(
    ("question", "text", "reason"),
    [
        ("牙医预约是什么时候？", "牙医预约改到12月10日了", 'contains "牙医预约" (1 of 2 words)'),
        ("我女儿几岁？", "我女儿叫小美，今年六岁", 'contains "女儿", "岁"'),
        (
            "歯医者の予約はいつ？",
            "歯医者の予約は金曜日です",
            'contains "歯医者", "予約" (2 of 2 words)',
        ),
    ],
)
async def test_words_without_spaces_are_shown_as_runs_and_not_by_character(
    question: str, text: str, reason: str
) -> None:
    ann = MemoryMetadata(user_id="ann")
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add(MemoryItem(content=text, metadata=ann))
        found = await recall(store, question, scope=ann, mode="words")

    assert reason in [part.text for part in found[0].why]
