"""Reading: the best candidates beside the question, as the reader of the local model judges them.

The first look finds candidates and puts them into an order by plain measures; reading a dozen of
them costs as much as embedding the question. The vectors of words come from the store that keeps
them; of any other, they are made here and remembered.
"""

import asyncio
import math
from array import array
from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple

from orbiter.memory.errors import EmbeddingError
from orbiter.memory.model.items import INDEXED_BY, AIMemory, HumanMemory, MemoryItem, ToolMemory
from orbiter.memory.model.protocols import DetailStore, Embeddings, MemoryStore
from orbiter.memory.model.reading import Beside, Verdict, WordReader
from orbiter.memory.recall._candidate_pool import speaker_of
from orbiter.memory.recall._features import best_passage
from orbiter.memory.recall._modes import warn_once
from orbiter.memory.recall._query_analysis import is_question
from orbiter.memory.tasks.offload import apart

__all__ = ["MAX_READ", "QuestionVector", "Reading", "reading_of"]

MAX_READ = 12
"""Candidates that are read. On dialogues R@10 was 86.0 with 8, 86.8 with 12 and 86.5 with 50; on
held-out scenes twelve lose nothing (`python -m benchmarks.recall_relevance`)."""
_DIMENSION = 384
"""How long the vectors of the local model are."""
_OF_ONE_THING = 0.3
"""How near two notes are, at least, that may be about one thing."""
_NEAR, _UNRELATED = 6.26, 3.18
"""The weights of a cosine, as where nothing is read."""
_LONGEST = 2_000
"""Characters of a passage without kept words that are read."""


class Reading:
    """A question as the reader needs it, and the words of what was read beside it."""

    def __init__(
        self,
        reader: WordReader,
        question: tuple[Sequence[float], bytes],
        *,
        user: str,
        terms: frozenset[str],
        are_kept: bool,
    ) -> None:
        self._reader = reader
        self._vector, self._question = question
        self._user = user
        """What the user is called, if that is known."""
        self._terms = terms
        self._are_kept = are_kept
        """Whether the store keeps the words that the reader reads, and cosines of its model."""
        self._words: dict[str, bytes] = {}
        """The words of each item that was read, by its id."""

    async def judge(
        self,
        store: MemoryStore,
        notes: Sequence[tuple[MemoryItem, MemoryItem | None]],
        cosines: Mapping[str, float],
        kept: Mapping[str, Sequence[bytes]],
        names: frozenset[str],
    ) -> list[Verdict]:
        """Return how well each note answers, beside what was said before it; none if it fails.

        *kept* are words that were read of the store already.
        """
        if not self._are_kept:
            kept = {}
        elif isinstance(store, DetailStore):
            ids = dict.fromkeys(item.id for both in notes for item in both if item is not None)
            if unknown := [item_id for item_id in ids if item_id not in kept]:
                kept = {**kept, **await store.details(unknown)}
        try:
            return await apart(bool(notes), self._judge, notes, kept, cosines, names)
        except EmbeddingError as exc:  # its file is damaged: the order is the one without it
            warn_once("not read", f"recall answers without its reader: {exc}")
            return []

    async def compare(
        self, store: MemoryStore, items: Sequence[MemoryItem], names: frozenset[str]
    ) -> dict[tuple[str, str], float]:
        """Return the log-odds that the later one replaces the earlier one, for two near *items*.

        By their ids; *items* are in the order of time. What was not read is compared with nothing.
        """
        items = [item for item in items if item.id in self._words]
        vectors: Mapping[str, bytes] = {}
        if self._are_kept and isinstance(store, DetailStore):
            vectors = await store.vectors([item.id for item in items])
        try:
            return await apart(bool(items), self._compare, items, vectors, names)
        except EmbeddingError as exc:
            warn_once("not read", f"recall answers without its reader: {exc}")
            return {}

    def _compare(
        self, items: Sequence[MemoryItem], vectors: Mapping[str, bytes], names: frozenset[str]
    ) -> dict[tuple[str, str], float]:
        rows = [_unpacked(vectors.get(item.id, b"")) or self._alone(item)[0] for item in items]
        found: dict[tuple[str, str], float] = {}
        for at, older in enumerate(items):
            whose = self._named(older, names)
            near = [_cosine(rows[at], row) for row in rows[at + 1 :]]
            newer = [
                (item, cosine)
                for item, cosine in zip(items[at + 1 :], near, strict=True)
                if cosine >= _OF_ONE_THING
            ]
            beside = [
                Beside(self._words[item.id], b"", self._named(item, names), whose, cosine)
                for item, cosine in newer
            ]
            said = self._reader.compare(self._words[older.id], beside) if beside else []
            for (item, _), each in zip(newer, said, strict=True):
                found[older.id, item.id] = each.replaces
        return found

    def _judge(
        self,
        notes: Sequence[tuple[MemoryItem, MemoryItem | None]],
        kept: Mapping[str, Sequence[bytes]],
        cosines: Mapping[str, float],
        names: frozenset[str],
    ) -> list[Verdict]:
        asker = self._reader.words(self._user)[1] if self._user else b""
        beside, read = [], dict[str, bytes]()
        for item, before in notes:
            words, cosine = self._nearest(kept.get(item.id, ())), cosines.get(item.id)
            if not self._are_kept or item.memory_type == "fact":
                words = b""  # it is read by another model, or as another text
            if not words or cosine is None or not math.isfinite(cosine):
                own, words = self._alone(item)
                cosine = _cosine(self._vector, own)
            read[item.id] = words
            said = b"" if before is None else self._first(kept.get(before.id, ()), before)
            beside.append(Beside(words, said, self._named(item, names), asker, cosine))
        verdicts = self._reader.read(self._question, beside)
        self._words |= read
        every = zip(notes, beside, verdicts, strict=True)
        return [_as_near(item, each.cosine, said) for (item, _), each, said in every]

    def _nearest(self, passages: Sequence[bytes]) -> bytes:
        """Return the words of the passage that is nearest to the question."""
        some = [each for each in passages if each]
        if len(some) < 2:
            return some[0] if some else b""
        return max(some, key=lambda each: self._reader.nearness(self._question, each))

    def _first(self, passages: Sequence[bytes], item: MemoryItem) -> bytes:
        return next(filter(None, passages), b"") or self._alone(item)[1]

    def _alone(self, item: MemoryItem) -> tuple[Sequence[float], bytes]:
        return self._reader.words(_text_of(item, self._terms))

    def _named(self, item: MemoryItem, names: frozenset[str]) -> bytes:
        """Return the words of who said something, as the scenes name them."""
        name = speaker_of(item, names)
        if name is None and isinstance(item, AIMemory | ToolMemory):
            name = "assistant" if isinstance(item, AIMemory) else "tool"
        if name is None:
            name = self._user or ("user" if isinstance(item, HumanMemory) else "")
        return self._reader.words(name)[1] if name else b""


class QuestionVector(NamedTuple):
    """What a model makes of a question."""

    whole: Sequence[float]
    words: bytes
    coverage: float = 1.0
    """How well the model knows the language of the question, from 0 to 1."""
    waiting: int = 0
    """How many memories of the store are not embedded yet."""
    reading: Reading | None = None
    """The question for the reader, if there is one."""


def _as_near(item: MemoryItem, cosine: float, said: Verdict) -> Verdict:
    """Return what is said of an item; if it is indexed by questions, at least how near these are.

    A question answers nothing, and so the reader says. Nearness counts as where nothing is read.
    """
    texts = item.metadata.extra.get(INDEXED_BY)
    if not isinstance(texts, list) or not any(map(is_question, texts)):
        return said
    near = _NEAR * cosine - _UNRELATED
    return said if said.answers >= near else said._replace(answers=near, related=near)


def _text_of(item: MemoryItem, terms: frozenset[str]) -> str:
    """Return the passage of an item that is read; a fact as a person would say it."""
    text = best_passage(item.content, terms)[:_LONGEST]
    key, found, value = text.partition(": ") if item.memory_type == "fact" else (text, "", "")
    return f"My {key} is {value}" if found else text


async def reading_of(
    embeddings: Embeddings,
    text: str,
    made: tuple[Sequence[float], bytes],
    *,
    user: str,
    terms: frozenset[str],
) -> Reading | None:
    """Return a reading of the question *text*; `None` where there is no reader.

    *made* is what *embeddings* made of the question.
    """
    from orbiter.memory.embeddings.local import local_reader  # noqa: PLC0415 - only with a model

    reader = embeddings.reader or local_reader()
    if reader is None:
        return None
    are_kept = reader.name == embeddings.name
    try:
        question = made if are_kept else await asyncio.to_thread(reader.words, text)
    except EmbeddingError as exc:  # the model's files are damaged: nothing is read
        warn_once("not read", f"recall answers without its reader: {exc}")
        return None
    return Reading(reader, question, user=user, terms=terms, are_kept=are_kept)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    total: float = sum(map(mul, one, other))
    return total


def _unpacked(vectors: bytes) -> Sequence[float]:
    """Return the first of vectors that a store keeps, or none."""
    return array("f", vectors[: 4 * _DIMENSION])
