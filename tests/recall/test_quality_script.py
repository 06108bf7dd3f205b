"""The quality benchmark on a conversation small enough to know the answer."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks._conversations import TELLINGS, parse_date, read
from benchmarks._recall_scores import judge
from benchmarks.recall_fit import Example, ablate, by_folds, fit

ROOT = Path(__file__).resolve().parents[2]
TURNS = [
    ("D1:1", "Ann", "1", "Did you get a pet?"),
    ("D1:2", "Ben", "1", "Yes, a tortoise called Speedy."),
    ("D2:1", "Ann", "2", "I moved to Oslo last week."),
    ("D2:2", "Ben", "2", "How is the weather there?"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    items = [
        {"id": number, "text": text, "speaker": speaker, "role": "user", "session": session,
         "date": "1:56 pm on 8 May, 2023"}
        for number, speaker, session, text in TURNS
    ]  # fmt: skip
    questions = [
        {"id": "q1", "question": "What is the name of Ben's tortoise?", "category": "single-hop",
         "evidence": ["D1:2"], "answer": "Speedy"},
        {"id": "q2", "question": "Where does Ann live?", "category": "adversarial",
         "evidence": ["D2:1", "gone"], "answer": "Oslo"},
    ]  # fmt: skip
    path = tmp_path / "tiny.json"
    conversation = {"id": "c", "items": items, "questions": questions}
    path.write_text(json.dumps({"name": "tiny", "conversations": [conversation]}))
    return path


@pytest.mark.slow
def test_every_question_is_asked_and_judged(data: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.recall_quality",
            "--data",
            data,
            "--words-only",
            "--json",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    (report,) = json.loads(done.stdout)
    rows = report["results"]["recall without a model"]
    assert [row["id"] for row in rows] == ["q1", "q2"]
    assert rows[0]["R@1"] == 1.0
    assert set(report["results"]) == {"recall without a model", "BM25"}


@pytest.mark.slow
def test_the_share_of_evidence_among_the_candidates_is_told(data: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.recall_quality", "--data", str(data)]
    done = subprocess.run(
        [*command, "--words-only", "--pool"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert "100.0 % of 1 evidence turns are candidates" in done.stdout
    assert "1 questions with 4 candidates each" in done.stdout


@pytest.mark.slow
def test_the_ways_to_say_who_speaks_are_compared(data: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.recall_quality", "--data", str(data)]
    done = subprocess.run(
        [*command, "--words-only", "--telling", "all"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip

    lines = [line.split() for line in done.stdout.splitlines()]
    rows = {line[0]: line[1:] for line in lines if line and line[0] in TELLINGS}
    assert rows == {telling: ["100.0", "100.0", "0.0"] for telling in TELLINGS}


@pytest.mark.parametrize("telling", TELLINGS)
def test_a_conversation_says_who_speaks_in_one_of_five_ways(data: Path, telling: str) -> None:
    _, (conversation,) = read(data, telling=telling)

    item = conversation.items[1]
    assert item.content.startswith("Ben: ") == (telling in ("text", "note", "roles"))
    assert (item.metadata.extra.get("speaker") == "Ben") == (telling in ("speaker", "name"))
    assert (item.metadata.session_id is None) == (telling == "note")
    assert item.memory_type == {"note": "item", "roles": "ai"}.get(telling, "human")


def test_evidence_that_is_not_in_the_conversation_does_not_count(data: Path) -> None:
    _, (conversation,) = read(data)

    assert conversation.questions[1].evidence == {"D2:1"}
    assert conversation.items[1].metadata.extra == {"speaker": "Ben"}
    assert conversation.items[0].created_at < conversation.items[1].created_at


def test_a_ranking_is_judged_by_its_evidence() -> None:
    figures = judge(["x", "a", "y", "b"], frozenset("abc"))

    assert figures["R@1"] == 0.0
    assert figures["R@5"] == pytest.approx(2 / 3)
    assert (figures["hit@5"], figures["all@5"], figures["MRR"]) == (1.0, 0.0, 0.5)
    assert figures["nDCG@10"] == pytest.approx((0.63093 + 0.43068) / (1 + 0.63093 + 0.5), abs=1e-4)


def test_dates_are_read_in_the_ways_the_files_write_them() -> None:
    for text in ("1:56 pm on 8 May, 2023", "2023/05/08 (Mon) 13:56", "2023-05-08T13:56:00"):
        found = parse_date(text)
        assert found is not None
        assert (found.year, found.month, found.day, found.hour) == (2023, 5, 8, 13)
    assert parse_date("some day") is None


def _example(number: int, *, size: int = 20) -> Example:
    """Return a question whose evidence has most of `telling`; `blind` says nothing."""
    dice = random.Random(number)
    is_evidence = np.arange(size) == number % size
    telling = np.where(is_evidence, 1.0, 0.0) + [dice.uniform(0, 0.6) for _ in range(size)]
    columns = {"telling": telling, "blind": np.array([dice.uniform(-1, 1) for _ in range(size)])}
    return Example(columns, is_evidence, np.ones(size, dtype=bool), 1)


def test_a_fit_weighs_the_column_that_tells_evidence_from_the_rest() -> None:
    made = [_example(number) for number in range(40)]

    telling, blind = fit(made, ["telling", "blind"])

    assert telling > 3 * abs(blind)
    assert by_folds([made[:20], made[20:]], ["telling", "blind"], {})[:2] == (100.0, 100.0)


def test_a_weight_that_is_held_takes_the_place_of_a_fitted_one() -> None:
    made = [_example(number) for number in range(40)]
    [free] = fit(made, ["telling"])

    [beside] = fit(made, ["telling"], {"telling": float(free)})

    assert abs(beside) < free / 2


def test_what_each_column_is_worth_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    made = [_example(number) for number in range(40)]

    ablate([made[:20], made[20:]], ["telling", "blind"], {})

    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert list(rows) == ["without", "nothing", "telling", "blind"]
    assert float(rows["telling"][0]) < float(rows["blind"][0]) == 100.0
