"""Does the reader know which note replaces an older one? The labelled pairs of scenes decide.

    python -m benchmarks.recall_newer [--scenes WRITER…] [--model PATH] [--thresholds N…] [--misses]

Recall compares what one person said about one matter. So all pairs of an older and a newer note of
one speaker are read whose cosine is at least 0.3. For each threshold in log-odds: how many of the
pairs labelled "replaces" are found, and how many others are marked, which "both hold" or nobody
labelled; of the latter, some do replace. `--model` is a folder with a model that was not trained on
these writers. `--misses` prints what is marked by mistake at the threshold that recall uses.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks._scenes import scenes, use_model

from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.reading import Beside, WordReader
from orbiter.memory.recall._newer import _MAY_REPLACE, _REPLACES

LEAST_NEAR = 0.3
REPLACES, BOTH_HOLD, UNLABELLED = "replaces", "both hold", "unlabelled"


class Pair(NamedTuple):
    """An older and a newer note of one speaker."""

    label: str
    log_odds: float
    """What the reader says of the newer one."""
    older: str
    newer: str


def pairs(scene: dict[str, Any], reader: WordReader) -> Iterator[Pair]:
    """Yield the pairs of a scene that are near to each other."""
    user = scene.get("user", "")
    notes = [
        (note, user) if isinstance(note, str) else (note["text"], note["speaker"])
        for note in scene["notes"]
    ]
    labels = {(older, newer): how for older, newer, how in scene.get("updates", [])}
    read = [reader.words(text) for text, _ in notes]
    whole = np.array([vector for vector, _ in read])
    near = whole @ whole.T
    for older, (text, speaker) in enumerate(notes):
        later = [
            newer
            for newer in range(older + 1, len(notes))
            if notes[newer][1] == speaker and near[older, newer] >= LEAST_NEAR
        ]
        name = reader.words(speaker)[1] if speaker else b""
        beside = [
            Beside(read[newer][1], b"", name, name, float(near[older, newer])) for newer in later
        ]
        said = reader.compare(read[older][1], beside) if beside else []
        for newer, verdict in zip(later, said, strict=True):
            label = labels.get((older, newer), UNLABELLED)
            yield Pair(label, verdict.replaces, text, notes[newer][0])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", nargs="+", default=[], metavar="WRITER")
    parser.add_argument("--model", type=Path, help="a folder with the files of another model")
    parser.add_argument(
        "--thresholds", type=float, nargs="+", default=[_MAY_REPLACE, 1.0, _REPLACES, 2.0]
    )
    parser.add_argument("--misses", action="store_true", help="show what is marked by mistake")
    given = parser.parse_args()
    use_model(given.model)
    reader = LocalEmbeddings().reader
    found = [pair for _, scene in scenes(given.scenes) for pair in pairs(scene, reader)]
    wanted = sum(pair.label == REPLACES for pair in found)
    print(f"{len(found):,} pairs of one speaker from a cosine of {LEAST_NEAR}, {wanted} replace")
    print(f"{'from':>6}{'found':>12}{BOTH_HOLD:>12}{UNLABELLED:>12}{'of labelled, right':>22}")
    for threshold in given.thresholds:
        marked = [pair.label for pair in found if pair.log_odds >= threshold]
        right, both, others = (marked.count(x) for x in (REPLACES, BOTH_HOLD, UNLABELLED))
        share = f"{100 * right / (right + both):.0f} %" if right + both else "–"
        print(
            f"{threshold:6.1f}{right:6} {100 * right / max(wanted, 1):3.0f} %"
            f"{both:12}{others:12}{share:>22}"
        )
    for pair in found if given.misses else ():
        if pair.label != REPLACES and pair.log_odds >= _REPLACES:
            print(f"  {pair.label}, {pair.log_odds:.1f}: {pair.older} | {pair.newer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
