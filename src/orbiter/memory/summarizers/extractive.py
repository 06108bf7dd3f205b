"""A summarizer with no model: the sentences that say most, with who said them, in their order.

Deterministic. A sentence scores by its rare words, names and numbers above all; one that repeats
what is already chosen scores less, one that is newer a little more. What is only polite is left
out, in the languages that `is_filler` knows.
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
from orbiter.memory.text.words import is_filler

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

_MAX_QUOTED = 160
"""Characters that are quoted of what a tool returned: data, of which a summary keeps an idea."""

_SUMMARY = "SUMMARY"
_TOOL = "Tool"
_SPEAKERS = {"HUMAN": "User", "AI": "Assistant", "ITEM": "Note"}
"""What kinds of messages are called; any other is called as its line calls it."""
_SAID_BEFORE = re.compile(r"([A-Z][\w.-]*(?: [\w.-]+){0,2}): (.*)")
_NEWEST = 0.1
"""How much more the last sentence counts than the first."""

_SPECIFIC = re.compile(r"\d|(?<=[a-z,;] )[A-Z]|[@#/_]|[A-Z]{2,}")


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int
    text: str
    words: frozenset[str]
    weight: float
    is_old: bool = False
    """Whether it is of the summary so far."""


class ExtractiveSummarizer:
    """Picks the most telling sentences of a conversation; needs no model, key or network.

    It reads the `[HUMAN]: …` lines of the prompt and ignores the instructions around them, so
    every template gets the same summary. A `[SUMMARY]: …` line, the summary so far, counts for
    more than new lines do, which lets facts live through many rounds of summarising; newer ones
    have their place beside them.
    """

    def __init__(self, *, max_sentences: int = 12, max_chars: int = 1_600) -> None:
        self.max_sentences = check_size("max_sentences", max_sentences)
        self.max_chars = check_size("max_chars", max_chars)

    async def summarize(self, prompt: str) -> str:
        """Return the chosen sentences in the order they were said: `User: …`, one per line."""
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
        last = max((s.place for s in sentences), default=0) or 1
        scores = {s.place: _score(s, rarity) * (1 + _NEWEST * s.place / last) for s in sentences}
        left = sentences[:]
        chosen: list[_Sentence] = []
        later: list[_Sentence] = []
        room = self.max_chars
        # What was summed up before leaves a quarter of the room to what is new.
        is_rolled = len({s.is_old for s in sentences}) > 1
        old_places = self.max_sentences - self.max_sentences // 4 if is_rolled else math.inf
        while (left or later) and len(chosen) < self.max_sentences:
            if not left:
                left, later, old_places = later, [], math.inf
            best = max(left, key=lambda s: (scores[s.place], s.place))
            left.remove(best)
            if best.is_old and old_places <= 0:
                later.append(best)
                continue
            if len(best.text) > room:
                continue
            old_places -= best.is_old
            room -= len(best.text) + 1
            chosen.append(best)
            for other in left:
                scores[other.place] *= 1 - 0.8 * _overlap(best.words, other.words)
        return chosen or [_clipped(s, self.max_chars) for s in sentences[:1]]


def _sentences(prompt: str) -> Iterable[_Sentence]:
    lines = [(match[1], match[2]) for match in _LINE.finditer(prompt)] or [("", prompt)]
    place, seen = 0, set()
    for kind, line in lines:
        before = _SAID_BEFORE.fullmatch(line) if kind == _SUMMARY else None
        name = _speaker(kind) if before is None else before[1]
        for piece in _split(before[2] if before else line):
            text = _quoted(piece.strip(), name)
            key = text.casefold().rstrip(".")  # a summary ends each of its lines with one
            if key in seen:
                continue
            seen.add(key)
            words = frozenset(map(str.casefold, _WORD.findall(text) or [text]))
            if text:
                said = f"{name}: {_ended(text)}" if name else _ended(text)
                yield _Sentence(place, said, words, _weight(kind, text), kind == _SUMMARY)
                place += 1


def _quoted(text: str, name: str) -> str:
    """Return a sentence as it is, but of a long one of a tool the beginning."""
    if name != _TOOL or len(text) <= _MAX_QUOTED:
        return text
    return text[:_MAX_QUOTED].rsplit(maxsplit=1)[0].rstrip("…") + "…"


def _speaker(kind: str) -> str:
    """Return who speaks in a line; a line of a summary that names nobody has none."""
    if kind == _SUMMARY:
        return ""
    return _SPEAKERS.get(kind, kind.capitalize() if kind.isupper() else kind)


def _split(line: str) -> Iterable[str]:
    """Yield the sentences of a line; one that is very long is cut into several."""
    for piece in cut_at_spaces(line):
        for start in range(0, len(piece), 2 * SLICE):
            yield from _SENTENCE_END.split(piece[start : start + 2 * SLICE])


def _weight(speaker: str, text: str) -> float:
    if is_filler(text):
        return 0.0
    weight = {_SUMMARY: 1.5, "HUMAN": 1.2, "SYSTEM": 0.4, "TOOL": 0.8}.get(speaker, 1.0)
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
