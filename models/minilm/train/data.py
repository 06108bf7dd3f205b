"""Training data as arrays: scenes, pairs and a benchmark, read once and split into pieces once.

    python data.py --out data.npz --scenes ../scenes --pairs FILE --bench FILE

Training itself needs only this file and the base weights, so the machine that trains needs neither
this project nor a tokenizer. Texts are numbered; `tokens[starts[i]:starts[i + 1]]` are the pieces
of text *i*, as the project's own tokenizer splits them.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
MAX_PIECES = 160
"""Pieces of a text that training looks at; few notes are longer."""


class Texts:
    """Numbers texts in the order in which they are met; the empty text is -1."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        text = text.strip()
        return self.numbers.setdefault(text, len(self.numbers)) if text else -1


def scenes(folder: Path, texts: Texts) -> Iterator[dict[str, Any]]:
    """Yield every scene, with numbers for texts and a grade for each note and question.

    A note that names no speaker is its user's, where the scene names the user.
    """
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.strip():
                yield _scene(json.loads(line), file.stem, texts)


def _scene(scene: dict[str, Any], writer: str, texts: Texts) -> dict[str, Any]:
    user = texts(scene.get("user", ""))
    notes, speakers = [], []
    for note in scene["notes"]:
        is_plain = isinstance(note, str)
        notes.append(texts(note if is_plain else note["text"]))
        speakers.append(user if is_plain else texts(note["speaker"]))
    questions = []
    for question in scene["questions"]:
        grades = [0] * len(notes)
        for grade, key in ((1, "related"), (2, "answers")):
            for index in question.get(key, []):
                grades[index] = grade
        questions.append([texts(question["q"]), question.get("kind", ""), grades])
    return {
        "writer": writer,
        "language": scene.get("language", "en"),
        "talk": any(not isinstance(note, str) for note in scene["notes"]),
        "user": user,
        "notes": notes,
        "speakers": speakers,
        "questions": questions,
        "updates": [[a, b, int(how == "replaces")] for a, b, how in scene.get("updates", [])],
        "standing": scene.get("standing"),
    }


def pairs(file: Path, texts: Texts) -> Iterator[dict[str, Any]]:
    """Yield questions with passages that answer and passages that do not."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        data = json.load(lines)
    passages = data["passages"]
    for row in data["rows"]:
        if row["pos"] and len(row["neg"]) >= 4:
            yield {
                "q": [texts(each[:400]) for each in (row["q"], *row["alts"])],
                "pos": [texts(passages[index]) for index in row["pos"]],
                "neg": [texts(passages[index]) for index in row["neg"]],
                "source": row["src"],
            }


def bench(file: Path, texts: Texts) -> Iterator[dict[str, Any]]:
    """Yield the conversations of a benchmark, to measure with and never to train on."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        data = json.load(lines)
    for conversation in data["conversations"]:
        at = {item["id"]: index for index, item in enumerate(conversation["items"])}
        yield {
            "notes": [
                texts(f"{i['text']} [photo: {i['caption']}]" if i.get("caption") else i["text"])
                for i in conversation["items"]
            ],
            "speakers": [texts(item["speaker"]) for item in conversation["items"]],
            "sessions": [item["session"] for item in conversation["items"]],
            "questions": [
                [texts(q["question"]), q["category"], [at[e] for e in q["evidence"] if e in at]]
                for q in conversation["questions"]
                if q["category"] != "adversarial" and any(e in at for e in q["evidence"])
            ],
        }


def main() -> None:
    """Write the file that training reads."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--scenes", type=Path, default=HERE.parent / "scenes")
    arguments.add_argument("--pairs", type=Path, help="question and passage pairs, JSON, gzipped")
    arguments.add_argument("--bench", type=Path, help="conversations to measure with")
    given = arguments.parse_args()

    from orbiter.memory.text.word_piece import WordPiece, read_vocabulary  # noqa: PLC0415

    texts = Texts()
    made = {
        "scenes": list(scenes(given.scenes, texts)),
        "pairs": list(pairs(given.pairs, texts)) if given.pairs else [],
        "bench": list(bench(given.bench, texts)) if given.bench else [],
    }
    vocabulary = HERE.parent / "src" / "orbiter_memory_minilm" / "vocab.txt"
    splitter = WordPiece(read_vocabulary(vocabulary))
    rows = [
        [piece for word in splitter.words(text) for piece in word][:MAX_PIECES]
        for text in texts.numbers
    ]
    np.savez_compressed(
        given.out,
        tokens=np.array([piece for row in rows for piece in row], dtype=np.int16),
        starts=np.cumsum([0, *map(len, rows)]).astype(np.int32),
        structure=np.frombuffer(json.dumps(made).encode(), dtype=np.uint8),
    )
    counts = {name: len(value) for name, value in made.items()}
    print(f"{given.out}: {len(rows):,} texts, {counts}", file=sys.stderr)


if __name__ == "__main__":
    main()
