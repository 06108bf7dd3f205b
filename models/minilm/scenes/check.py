"""Check the scenes, and count them.

    python models/minilm/scenes/check.py            every file here
    python models/minilm/scenes/check.py FILE…      these
    python models/minilm/scenes/check.py --counts   also by kind, language and writer

Prints what is wrong, a line each, and ends with 1 if anything is. README.md beside it says what the
fields mean.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KINDS = {
    *("plain", "paraphrase", "keywords", "typo", "task", "list", "when", "how much", "yes/no"),
    *("now", "before", "why", "who", "multi", "missing", "other person", "unrelated"),
    *("rambling", "pronoun"),
}
HOWS = ("replaces", "both hold")


def faults(scene: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a scene."""
    notes, questions = scene["notes"], scene["questions"]
    texts = [note if isinstance(note, str) else note["text"] for note in notes]
    if not 10 <= len(notes) <= 30:
        yield f"{len(notes)} notes; 10 to 30 are read"
    if len(questions) < 8:
        yield f"{len(questions)} questions; at least 8"
    if len(set(texts)) != len(texts) or not all(text.strip() for text in texts):
        yield "two notes are equal, or one is empty"
    if unknown := set(scene) - {
        *("domain", "language", "user", "notes", "questions", "updates", "standing"),
    }:
        yield f"unknown fields {sorted(unknown)}"
    if any(not isinstance(note, str) and set(note) != {"speaker", "text"} for note in notes):
        yield "a note is a text, or a speaker and a text"
    places = range(len(notes))
    if any(index not in places for index in scene.get("standing", [])):
        yield f"standing {scene['standing']}"
    for question in questions:
        yield from _question_faults(question, places)
    for update in scene.get("updates", []):
        old, new, how = update
        if old not in places or new not in places or old == new or how not in HOWS:
            yield f"update {update}"


def _question_faults(question: dict[str, Any], places: range) -> Iterator[str]:
    asked = question["q"]
    answers, related = question.get("answers", []), question.get("related", [])
    if not asked.strip() or set(question) - {"q", "answers", "related", "kind"}:
        yield f"question {question}"
    if any(index not in places for index in (*answers, *related)):
        yield f"{asked!r}: no such note"
    if set(answers) & set(related):
        yield f"{asked!r}: a note answers and is only related"
    if question.get("kind") not in KINDS:
        yield f"{asked!r}: kind {question.get('kind')!r}; use one of {', '.join(sorted(KINDS))}"


def check(file: Path, counts: Counter[str]) -> Iterator[str]:
    """Yield what is wrong with a file, and count what it has."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            scene = json.loads(line)
            wrong = list(faults(scene))
        except (ValueError, KeyError, TypeError) as exc:
            yield f"{file.name}:{number}: {exc!r}"
            continue
        yield from (f"{file.name}:{number}: {each}" for each in wrong)
        count(scene, file.stem, counts)


def count(scene: dict[str, Any], writer: str, counts: Counter[str]) -> None:
    """Count what a scene has."""
    notes, questions = scene["notes"], scene["questions"]
    counts["scenes"] += 1
    counts["conversations"] += any(not isinstance(note, str) for note in notes)
    counts["with a user's name"] += "user" in scene
    counts["with standing preferences"] += "standing" in scene
    counts["notes"] += len(notes)
    counts["questions"] += len(questions)
    counts["questions without an answer"] += sum(not q.get("answers") for q in questions)
    counts["graded pairs"] += len(notes) * len(questions)
    counts[f"writer {writer}"] += 1
    counts[f"language {scene.get('language', 'en')}"] += 1
    for question in questions:
        counts[f"kind {question['kind']}"] += 1
    for _, _, how in scene.get("updates", []):
        counts[f"updates: {how}"] += 1


def main() -> int:
    """Check the files that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--counts", action="store_true")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    files = given.files or sorted((*HERE.glob("*.jsonl"), *HERE.glob("unseen/*.jsonl")))
    wrong = [fault for file in files for fault in check(file, counts)]
    sys.stdout.writelines(f"{fault}\n" for fault in wrong)
    plain = {
        name: n
        for name, n in counts.items()
        if not name.startswith(("writer ", "language ", "kind "))
    }
    print(", ".join(f"{n:,} {name}" for name, n in plain.items()))
    if given.counts:
        for name, n in sorted(counts.items(), key=lambda each: (each[0].split()[0], -each[1])):
            print(f"{n:8,} {name}")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
