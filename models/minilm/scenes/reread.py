"""Compare the labels of every tenth scene with those of a second reader.

    python models/minilm/scenes/reread.py                 print how far both agree
    python models/minilm/scenes/reread.py --blind FILE…   print those scenes without their labels

The second reader sees what `--blind` prints and writes `reread/FILE.jsonl`, a line a scene:
`{"scene": "talk/10", "questions": [{"answers": [3], "related": []}, …], "updates": ["replaces"]}`,
all in the order in which they were printed.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from pairs import HERE, scenes

EVERY = 10


def chosen(only: list[str]) -> dict[str, dict[str, Any]]:
    """Return every tenth scene of each writer."""
    return {
        name: scene
        for name, scene in scenes()
        if int(name.split("/")[1]) % EVERY == 0 and (not only or name.split("/")[0] in only)
    }


def show(name: str, scene: dict[str, Any]) -> None:
    """Print a scene without its labels."""
    user = f", user {scene['user']}" if "user" in scene else ""
    print(f"\n== {name} ({scene.get('language', 'en')}{user})")
    for index, note in enumerate(scene["notes"]):
        said = note if isinstance(note, str) else f"{note['speaker']}: {note['text']}"
        print(f"  {index:2} {said}")
    for number, question in enumerate(scene["questions"], 1):
        print(f"  Q{number} {question['q']}")
    # Their order in the file may tell which replace.
    for number, (old, new, _) in enumerate(sorted(scene.get("updates", [])), 1):
        print(f"  U{number} older {old}, newer {new}")


def grades(question: dict[str, Any], notes: int) -> list[int]:
    """Return 2 for each note that answers, 1 for what is related, else 0."""
    found = [0] * notes
    for grade, key in ((1, "related"), (2, "answers")):
        for index in question.get(key, []):
            found[index] = grade
    return found


def kappa(pairs: Counter[tuple[Any, Any]]) -> float:
    """Return how far two readers agree beyond chance (Cohen)."""
    total = sum(pairs.values())
    first, second = Counter[Any](), Counter[Any]()
    for (a, b), n in pairs.items():
        first[a] += n
        second[b] += n
    same = sum(n for (a, b), n in pairs.items() if a == b) / total
    chance = sum(first[a] * second[a] for a in first) / total**2
    return (same - chance) / (1 - chance)


def main() -> None:
    """Print scenes to read, or how far both readers agree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--blind", nargs="+", metavar="FILE")
    given = parser.parse_args()
    if given.blind:
        for name, scene in chosen([Path(file).stem for file in given.blind]).items():
            show(name, scene)
        return
    first, answers = chosen([]), Counter[tuple[bool, bool]]()
    three, updates = Counter[tuple[int, int]](), Counter[tuple[str, str]]()
    questions, same = 0, 0
    for file in sorted((HERE / "reread").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            again = json.loads(line)
            scene = first[again["scene"]]
            for one, two in zip(scene["questions"], again["questions"], strict=True):
                size = len(scene["notes"])
                both = list(zip(grades(one, size), grades(two, size), strict=True))
                three.update(both)
                answers.update((a == 2, b == 2) for a, b in both)
                questions += 1
                same += all((a == 2) == (b == 2) for a, b in both)
            hows = [how for _, _, how in sorted(scene.get("updates", []))]
            updates.update(zip(hows, again["updates"], strict=True))
    print(
        f"{questions:,} questions read twice: the same answers for {100 * same / questions:.0f} %; "
        f"kappa of answers {kappa(answers):.2f}, of three grades {kappa(three):.2f}, "
        f"of {sum(updates.values()):,} updates {kappa(updates):.2f}"
    )


if __name__ == "__main__":
    main()
