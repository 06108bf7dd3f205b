"""Reading: a question beside notes, or a note beside newer ones, judged by a trained model."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["Beside", "Verdict", "WordReader"]


class Beside(NamedTuple):
    """A note as the reader sees it: the vectors of the words of each part; empty for none."""

    note: bytes
    before: bytes = b""
    """What was said just before."""
    speaker: bytes = b""
    """The name of who said it,"""
    asker: bytes = b""
    """and of who asks; beside an older note, of who said that."""
    cosine: float = 0.0
    """How near both texts are."""


class Verdict(NamedTuple):
    """What the reader says of a note, as log-odds."""

    answers: float
    related: float
    replaces: float


class WordReader(Protocol):
    """Judges by the vectors of words. Its methods block for a few milliseconds."""

    @property
    def name(self) -> str:
        """The model whose vectors of words it reads."""
        ...

    def words(self, text: str) -> tuple[Sequence[float], bytes]:
        """Return the vector of *text* and those of its words; remembered for the next time."""
        ...

    def nearness(self, question: bytes, words: bytes) -> float:
        """Return how near the nearest of *words* is to each word of a question, on average."""
        ...

    def read(self, question: bytes, notes: Sequence[Beside]) -> list[Verdict]:
        """Return how well each note answers the question whose words are given."""
        ...

    def compare(self, older: bytes, newer: Sequence[Beside]) -> list[Verdict]:
        """Return whether each newer note replaces the older one."""
        ...
