"""Print the scenes as pairs of a question and a note, a line of JSON each.

    python models/minilm/scenes/pairs.py > pairs.jsonl        every graded pair
    python models/minilm/scenes/pairs.py --updates            older and newer notes instead

`grade` is `answers`, `related` or `irrelevant`; of updates, `replaces` or `both hold`. What is not
known of a note, such as who said it, is left out.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
UNSEEN = HERE / "unseen"
"""Scenes that no model was trained on."""


def scenes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every scene with its name: its writer and its place among theirs."""
    for file in sorted((*HERE.glob("*.jsonl"), *UNSEEN.glob("*.jsonl"))):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{file.stem}/{number}", json.loads(line)


def _note(note: str | dict[str, str], name: str) -> dict[str, str]:
    if isinstance(note, str):
        return {name: note}
    return {name: note["text"], f"{name}_speaker": note["speaker"]}


def graded(name: str, scene: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every question beside every note."""
    about = {"scene": name, "language": scene.get("language", "en")}
    about |= {"user": scene["user"]} if "user" in scene else {}
    for question in scene["questions"]:
        grades = dict.fromkeys(question.get("related", []), "related")
        grades |= dict.fromkeys(question.get("answers", []), "answers")
        for index, note in enumerate(scene["notes"]):
            grade = grades.get(index, "irrelevant")
            asked = {"question": question["q"], "kind": question["kind"]}
            yield about | asked | _note(note, "note") | {"place": index, "grade": grade}


def updates(name: str, scene: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the labelled pairs of notes."""
    notes = scene["notes"]
    for old, new, how in scene.get("updates", []):
        pair = _note(notes[old], "older") | _note(notes[new], "newer")
        yield {"scene": name, "language": scene.get("language", "en")} | pair | {"grade": how}


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--updates", action="store_true", help="pairs of notes instead")
    make = updates if parser.parse_args().updates else graded
    for name, scene in scenes():
        for pair in make(name, scene):
            sys.stdout.write(json.dumps(pair, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
