"""A summarizer with no model: the sentences that say most, in their own words and order.

Deterministic, and without word lists, so it treats every language alike. A sentence scores by
its rare words, names and numbers above all; one that repeats what is already chosen scores less.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from orbiter.memory.model.query import check_size
from orbiter.memory.tasks.offload import SLICE, cut_at_spaces

__all__ = ["ExtractiveSummarizer"]

_LINE = re.compile(r"^\[([^\]\n]{1,64})\]: (.*)$", re.MULTILINE)
# Ends after a mark and a space, but not after "1. ", "Dr. " or "p.m. ", nor inside "node.js".
_SENTENCE_END = re.compile(
    r"(?<=[.!?…])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.)(?<!\.[a-z]\.)\s+"
    r"|(?<=[。！？])\s*|\n"
)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W_]+(?:['’-][^\W_]+)*")
_SHORT = 20_000
"""Characters that are summed up at once: a few milliseconds. More are left to a thread."""

_SPECIFIC = re.compile(r"\d|(?<=[a-z,;] )[A-Z]|[@#/_]|[A-Z]{2,}")


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int
    text: str
    words: frozenset[str]
    weight: float


class ExtractiveSummarizer:
    """Picks the most telling sentences of a conversation; needs no model, key or network.

    It reads the `[HUMAN]: …` lines of the prompt and ignores the instructions around them, so
    every template gets the same summary. A `[SUMMARY]: …` line, the summary so far, counts for
    more than new lines do, which lets facts live through many rounds of summarising.
    """

    def __init__(self, *, max_sentences: int = 12, max_chars: int = 1_600) -> None:
        self.max_sentences = check_size("max_sentences", max_sentences)
        self.max_chars = check_size("max_chars", max_chars)

    async def summarize(self, prompt: str) -> str:
        """Return the chosen sentences, one per line, in the order they were said."""
        if len(prompt) <= _SHORT:
            return self._summarized(prompt)
        return await asyncio.to_thread(self._summarized, prompt)

    def _summarized(self, prompt: str) -> str:
        sentences = list(_sentences(prompt))
        chosen = self._choose([each for each in sentences if each.weight] or sentences)
        return "\n".join(s.text for s in sorted(chosen, key=lambda s: s.place))

    def _choose(self, sentences: list[_Sentence]) -> list[_Sentence]:
        spread = Counter(chain.from_iterable(sentence.words for sentence in sentences))
        rare = {n: math.log(1 + len(sentences) / n) for n in set(spread.values())}
        rarity = {word: rare[count] for word, count in spread.items()}
        scores = {s.place: _score(s, rarity) for s in sentences}
        left = sentences[:]
        chosen: list[_Sentence] = []
        room = self.max_chars
        while left and len(chosen) < self.max_sentences:
            best = max(left, key=lambda s: (scores[s.place], -s.place))
            left.remove(best)
            if len(best.text) > room:
                continue
            room -= len(best.text) + 1
            chosen.append(best)
            for other in left:
                scores[other.place] *= 1 - 0.8 * _overlap(best.words, other.words)
        return chosen or [_clipped(s, self.max_chars) for s in sentences[:1]]


def _sentences(prompt: str) -> Iterable[_Sentence]:
    lines = [(match[1], match[2]) for match in _LINE.finditer(prompt)] or [("", prompt)]
    place = 0
    for speaker, line in lines:
        for found in _split(line):
            text = found.strip()
            words = frozenset(map(str.casefold, _WORD.findall(text) or [text]))
            if text:
                yield _Sentence(place, _ended(text), words, _weight(speaker, text))
                place += 1


def _split(line: str) -> Iterable[str]:
    """Yield the sentences of a line; one that is very long is cut into several."""
    for piece in cut_at_spaces(line):
        for start in range(0, len(piece), 2 * SLICE):
            yield from _SENTENCE_END.split(piece[start : start + 2 * SLICE])


def _weight(speaker: str, text: str) -> float:
    weight = {"SUMMARY": 2.5, "HUMAN": 1.2, "SYSTEM": 0.4, "TOOL": 0.8}.get(speaker, 1.0)
    if text.endswith(("?", "？")):
        weight *= 0.5  # what was asked matters less than what was answered
    if text.startswith("→"):
        weight *= 0.3  # a tool call; what it returned says more
    if text.startswith(("{", "[{", '["')):
        weight = 0.0  # data of a tool, which would fill the summary
    return weight


def _score(sentence: _Sentence, rarity: dict[str, float]) -> float:
    said = sum(map(rarity.__getitem__, sentence.words))
    specific = len(_SPECIFIC.findall(sentence.text))
    # The root keeps long sentences from winning by length alone.
    return sentence.weight * (said + 3 * min(specific, 4)) / math.sqrt(len(sentence.words) + 4)


def _overlap(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / min(len(left), len(right))


def _ended(text: str) -> str:
    return text if text[-1] in ".!?。！？…" else text + "."


def _clipped(sentence: _Sentence, max_chars: int) -> _Sentence:
    text = sentence.text
    short = text if len(text) <= max_chars else text[: max(0, max_chars - 1)] + "…"
    return _Sentence(sentence.place, short, sentence.words, sentence.weight)
