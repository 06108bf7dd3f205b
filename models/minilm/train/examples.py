"""What training reads: scenes and pairs as questions with graded notes, and pairs of notes."""

import argparse
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from network import Pieces

REPEATS = {"lme": 4, "beam": 2, "qmsum": 1, "friends": 1, "molweni": 0.7, "pair": 0.25}
"""How often an epoch has a pair, by its source; a question of a scene it has `--scene` times."""


class Data:
    """What `data.py` wrote."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as arrays:
            tokens, starts = arrays["tokens"], arrays["starts"]
            structure = json.loads(arrays["structure"].tobytes())
        self.scenes: list[dict[str, Any]] = structure["scenes"]
        self.pairs: list[dict[str, Any]] = structure["pairs"]
        self.bench: list[dict[str, Any]] = structure["bench"]
        self.pieces = Pieces(tokens, starts)


@dataclass
class Group:
    """A question with notes and their grades: 2 answers, 1 is related, 0 is neither."""

    questions: list[int]
    notes: list[tuple[int, int, int]]  # text, speaker, text before
    grades: list[int]
    asker: int = -1
    kind: str = ""
    source: str = "scene"
    writer: str = ""
    language: str = "en"


def groups_of(scene: dict[str, Any]) -> list[Group]:
    """Return a group for each question of a scene."""
    texts = scene["notes"]
    before = [-1, *texts[:-1]] if scene["talk"] else [-1] * len(texts)
    notes = list(zip(texts, scene["speakers"], before, strict=True))
    return [
        Group([q], notes, grades, scene["user"], kind, "scene", scene["writer"], scene["language"])
        for q, kind, grades in scene["questions"]
    ]


Update = tuple[int, int, int, int, int]  # old, new, the speakers of both, whether it replaces


def updates_of(scene: dict[str, Any], dice: random.Random) -> list[Update]:
    """Return the labelled pairs of a scene, and as many random ones, which replace nothing."""
    notes, speakers = scene["notes"], scene["speakers"]
    labelled = {(a, b): how for a, b, how in scene["updates"]}
    for _ in range(len(labelled)):
        a, b = sorted(dice.sample(range(len(notes)), 2))
        labelled.setdefault((a, b), 0)
    return [(notes[a], notes[b], speakers[a], speakers[b], y) for (a, b), y in labelled.items()]


def sample(group: Group, most: int, dice: random.Random) -> tuple[int, list[int]]:
    """Return a wording of the question, and the notes to show with it: what matters first."""
    matter = [i for i, grade in enumerate(group.grades) if grade]
    rest = [i for i, grade in enumerate(group.grades) if not grade]
    dice.shuffle(rest)
    if group.source != "scene":
        dice.shuffle(matter)
        matter = matter[:1]
        rest = rest[: most // 2]
    return dice.choice(group.questions), (matter + rest)[:most]


def epoch(groups: list[Group], scene: float, dice: random.Random) -> list[Group]:
    """Return the groups in random order, each as often as its source says."""
    chosen = []
    for group in groups:
        often = scene if group.source == "scene" else REPEATS.get(group.source, 0.25)
        chosen += [group] * (int(often) + (dice.random() < often % 1))
    dice.shuffle(chosen)
    return chosen


def split(data: Data, given: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    """Return the scenes to train on, and those to measure on."""
    held, kept, seen = [], [], dict[str, int]()
    for scene in data.scenes:
        index = seen[scene["writer"]] = seen.get(scene["writer"], -1) + 1
        is_held = scene["writer"] in given.hold or (
            given.hold_every and index % given.hold_every == given.hold_every // 2
        )
        (held if is_held else kept).append(scene)
    random.Random(5).shuffle(kept)
    return kept[: math.ceil(given.share * len(kept))], held


def pair_groups(data: Data) -> Iterator[Group]:
    """Yield the pairs as groups."""
    for row in data.pairs:
        notes = [(text, -1, -1) for text in (*row["pos"], *row["neg"])]
        grades = [2] * len(row["pos"]) + [0] * len(row["neg"])
        yield Group(row["q"], notes, grades, source=row["source"])
