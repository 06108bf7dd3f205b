"""The reader on ONNX Runtime: judges a question beside notes from the vectors of their words.

One run reads one question beside a batch of notes; the vectors are those that a store keeps, 64
numbers of a byte each. Nothing here knows of event loops; every method blocks and may be called
from several threads at once.
"""

from collections.abc import Sequence

import numpy as np
import orbiter_memory_minilm
from numpy.typing import NDArray

from orbiter.memory.embeddings.onnx_runtime import onnx_session
from orbiter.memory.errors import EmbeddingError
from orbiter.memory.model.reading import Beside, Verdict

__all__ = ["Reader", "nearness", "unpacked"]

_SIZE = 64
_QUESTION, _NOTE, _BEFORE, _SPEAKER, _ASKER, _NEWER = 0, 1, 2, 3, 4, 6
_MOST = {_QUESTION: 40, _NOTE: 96, _BEFORE: 32, _SPEAKER: 8, _ASKER: 8, _NEWER: 96}
_MOST_OF_OLDER = 64
"""Words of each part that it was trained to look at."""
_TOGETHER = 12
"""Notes of one run: short ones beside short ones, so that little is read that is not there."""

Bytes = NDArray[np.int8]


class Reader:
    """The loaded reader."""

    def __init__(self) -> None:
        try:
            self._session = onnx_session(orbiter_memory_minilm.READER)
        except Exception as exc:  # the runtime has a dozen errors of its own, all without a cure
            raise EmbeddingError(
                f"the reader of LocalEmbeddings cannot be loaded: {exc}; install it again: "
                "pip install --force-reinstall --no-deps orbiter-memory-minilm"
            ) from exc

    def read(self, question: bytes, notes: Sequence[Beside]) -> list[Verdict]:
        """Return how well each note answers the question whose words are given."""
        parts = [
            (
                (_NOTE, each.note),
                (_BEFORE, each.before),
                (_SPEAKER, each.speaker),
                (_ASKER, each.asker),
            )
            for each in notes
        ]
        return self._judge(unpacked(question, _MOST[_QUESTION]), notes, parts, task=0)

    def compare(self, older: bytes, newer: Sequence[Beside]) -> list[Verdict]:
        """Return whether each newer note replaces the older one; its speaker is the asker."""
        parts = [
            ((_NEWER, each.note), (_SPEAKER, each.speaker), (_ASKER, each.asker)) for each in newer
        ]
        return self._judge(unpacked(older, _MOST_OF_OLDER), newer, parts, task=1)

    def _judge(
        self,
        asked: Bytes,
        notes: Sequence[Beside],
        parts: Sequence[Sequence[tuple[int, bytes]]],
        *,
        task: int,
    ) -> list[Verdict]:
        if not len(asked):
            return [Verdict(-9.0, -9.0, -9.0)] * len(notes)
        cut = [[(kind, unpacked(rows, _MOST[kind])) for kind, rows in each] for each in parts]
        sizes = [sum(len(rows) for _, rows in each) for each in cut]
        order = sorted(range(len(notes)), key=sizes.__getitem__)
        found: dict[int, Verdict] = {}
        for start in range(0, len(order), _TOGETHER):
            some = order[start : start + _TOGETHER]
            logits = self._run(
                asked, [cut[at] for at in some], [notes[at].cosine for at in some], task
            )
            found.update(zip(some, (Verdict(*row) for row in logits.tolist()), strict=True))
        return [found[at] for at in range(len(notes))]

    def _run(
        self,
        asked: Bytes,
        parts: Sequence[Sequence[tuple[int, Bytes]]],
        cosines: Sequence[float],
        task: int,
    ) -> NDArray[np.float32]:
        shape = len(parts), max(sum(len(rows) for _, rows in each) for each in parts)
        words = np.zeros((*shape, _SIZE), np.int8)
        kinds, places = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        present = np.zeros(shape, np.float32)
        for at, each in enumerate(parts):
            start = 0
            for kind, rows in each:
                end = start + len(rows)
                words[at, start:end] = rows
                kinds[at, start:end] = kind
                places[at, start:end] = np.arange(len(rows))
                start = end
            present[at, :start] = 1
        inputs = {
            "question": asked,
            "words": words,
            "parts": kinds,
            "places": places,
            "present": present,
            "cosine": np.array(cosines, np.float32),
            "task": np.array([task], np.int64),
        }
        try:
            [logits] = self._session.run(["logits"], inputs)
        except Exception as exc:  # of another version: the runtime has a dozen errors of its own
            raise EmbeddingError(
                f"the reader of LocalEmbeddings does not fit: {exc}; install it again: pip install "
                "--force-reinstall --no-deps orbiter-memory-minilm"
            ) from exc
        found: NDArray[np.float32] = logits
        return found


def unpacked(words: bytes, most: int = _MOST[_NOTE]) -> Bytes:
    """Return the first *most* rows of signed bytes."""
    return np.frombuffer(words, np.int8).reshape(-1, _SIZE)[:most]


def nearness(asked: Bytes, note: Bytes) -> float:
    """Return the late interaction: how near the nearest word is to each word asked, on average."""
    if not len(note):
        return 0.0
    near = note.astype(np.float32) @ asked.astype(np.float32).T
    return float(near.max(0).mean()) / 127**2
