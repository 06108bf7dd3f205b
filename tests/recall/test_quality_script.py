"""The quality benchmark on a conversation small enough to know the answer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks._conversations import parse_date, read
from benchmarks._recall_scores import judge

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
