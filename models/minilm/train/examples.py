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
"""How often a pair is drawn, beside others, by its source."""


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


@dataclass
class Batch:
    """Questions beside notes as one table, and pairs of notes of which one may replace the other.

    Texts are numbered within the batch: `texts[i]` is the number of text *i* in the data, and -1
    stands for none.
    """

    texts: np.ndarray
    asked: np.ndarray
    """The text of each question."""
    pairs: np.ndarray
    """Question, note, turn before, speaker, asker."""
    number: np.ndarray
    """Which question a pair is of."""
    grades: np.ndarray
    updates: np.ndarray
    """Older note, newer note, speaker of each."""
    replaces: np.ndarray


class Batches:
    """All questions of a few scenes at a time, each beside all notes of its scene.

    A text is encoded once for all the pairs that it stands in: per pair read, this costs an eighth
    of what questions drawn from everywhere do.
    """

    def __init__(
        self, scenes: list[dict[str, Any]], pairs: list[Group], given: argparse.Namespace
    ) -> None:
        self.scenes = [[_table(group, group.grades) for group in groups_of(s)] for s in scenes]
        self.updates = [np.array(_updates_of(s), dtype=np.int64).reshape(-1, 5) for s in scenes]
        self.notes = [len(s["notes"]) for s in scenes]
        self.pairs, self.given = pairs, given
        self.dice = random.Random(given.seed)

    def __len__(self) -> int:
        return len(self.scenes) // self.given.scenes

    def epoch(self) -> Iterator[Batch]:
        """Yield every scene once, in random company."""
        order = self.dice.sample(range(len(self.scenes)), len(self.scenes))
        often = [REPEATS.get(group.source, 0.25) for group in self.pairs]
        size, others = self.given.scenes, self.given.pairs
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            groups = [table for index in chosen for table in self._beside(index, chosen)]
            drawn = self.dice.choices(self.pairs, often, k=others) if self.pairs else []
            groups += [_sample(group, self.given.notes, self.dice) for group in drawn]
            yield self._batch(groups, [self._changes(index) for index in chosen])

    def _beside(self, scene: int, batch: list[int]) -> Iterator[np.ndarray]:
        """Yield the questions of a scene, each beside some notes of the batch's other scenes, too.

        Only where names tell whose a note is: "my dog" of another scene would answer, else.
        """
        most = self.given.across
        others = [self.scenes[other][0] for other in batch if other != scene]
        others = [table for table in others if most and (table[:, 3] >= 0).all()]
        for table in self.scenes[scene]:
            if not others:
                yield table
                continue
            drawn = np.concatenate([table, *self.dice.sample(others, min(2, len(others)))])
            extra = self.dice.sample(
                range(len(table), len(drawn)), min(most, len(drawn) - len(table))
            )
            more = drawn[extra]
            more[:, 0], more[:, 4], more[:, 5] = table[0, 0], table[0, 4], 0
            yield np.concatenate([table, more])

    def _changes(self, scene: int) -> np.ndarray:
        """Return the labelled pairs, and random ones, which replace nothing."""
        labelled = self.updates[scene]
        known = {(int(a), int(b)) for a, b in labelled[:, :2]}
        table = self.scenes[scene][0]
        rows = [labelled]
        for _ in range(len(labelled)):
            a, b = sorted(self.dice.sample(range(self.notes[scene]), 2))
            if (int(table[a, 1]), int(table[b, 1])) not in known:
                rows.append(np.array([[table[a, 1], table[b, 1], table[a, 3], table[b, 3], 0]]))
        return np.concatenate(rows)

    def _batch(self, groups: list[np.ndarray], changes: list[np.ndarray]) -> Batch:
        number = np.repeat(np.arange(len(groups)), [len(table) for table in groups])
        whole, changed = np.concatenate(groups), np.concatenate(changes)
        hides = np.array([self.dice.random() < self.given.hide for _ in groups])[number]
        named = np.where(hides[:, None], -1, whole[:, 3:5])
        pairs = np.concatenate([whole[:, :3], named], 1)
        asked = np.array([table[0, 0] for table in groups])
        every = np.concatenate([pairs.ravel(), changed[:, :4].ravel()])
        texts, rows = np.unique(every, return_inverse=True)
        none = int(texts[0] == -1)
        rows = rows - none
        return Batch(
            texts[none:],
            np.searchsorted(texts, asked) - none,
            rows[: pairs.size].reshape(pairs.shape),
            number,
            whole[:, 5],
            rows[pairs.size :].reshape(-1, 4),
            changed[:, 4],
        )


def _table(group: Group, grades: list[int], question: int | None = None) -> np.ndarray:
    asked = group.questions[0] if question is None else question
    return np.array(
        [
            (asked, text, before, speaker, group.asker, grade)
            for (text, speaker, before), grade in zip(group.notes, grades, strict=True)
        ],
        dtype=np.int64,
    )


def _sample(group: Group, most: int, dice: random.Random) -> np.ndarray:
    """Return one wording of a question beside one passage that answers and some that do not."""
    matter = [i for i, grade in enumerate(group.grades) if grade]
    rest = [i for i, grade in enumerate(group.grades) if not grade]
    shown = [dice.choice(matter), *dice.sample(rest, min(len(rest), most))]
    some = Group(group.questions, [group.notes[i] for i in shown], [])
    return _table(some, [group.grades[i] for i in shown], dice.choice(group.questions))


def _updates_of(scene: dict[str, Any]) -> list[tuple[int, ...]]:
    notes, speakers = scene["notes"], scene["speakers"]
    return [(notes[a], notes[b], speakers[a], speakers[b], y) for a, b, y in scene["updates"]]


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
