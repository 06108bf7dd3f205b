"""The recall lab: one question, answered by words, by meaning and by both, side by side."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.trust import SOURCE_KINDS, read_trust
from orbiter.memory.recall.time_bounds import read_bound
from orbiter.memory.server.dashboard.page import Answer, Ask, Data, Pages, as_number
from orbiter.memory.text.ranking import MIN_RELEVANCE, is_answered

if TYPE_CHECKING:
    from orbiter.memory.recall import Explanation, RecallMode, RecallResult

__all__ = ["pages"]

pages = Pages()

_DEFAULT_HITS = 8
_MAX_HITS = 50
_TYPES = ("item", "fact", "human", "ai", "tool", "system")
_LANES: "tuple[tuple[RecallMode, str, str], ...]" = (
    ("words", "Words", "By the words of the question; rare words count more."),
    ("meaning", "Meaning", "By embedding similarity."),
    ("hybrid", "Hybrid", "Both, plus time, speaker and a model that reads the best of them."),
)


@dataclass(frozen=True)
class Question:
    """What is asked of the lab."""

    query: str
    k: int
    memory_type: str | None
    since: datetime | None
    where: Where | None
    min_trust: str | None
    min_relevance: float
    recency_weight: float
    importance_weight: float


@pages.page("/recall", "recall.html", title="Recall lab")
async def lab(ask: Ask) -> Data | Answer:
    """Show what each way to recall finds."""
    data: Data = {
        "asked": _written(ask),
        "types": _types(ask.text("type").strip()),
        "usual_relevance": str(MIN_RELEVANCE),
        "trusts": SOURCE_KINDS,
        "held": ask.principal.scope,
        "error": None,
        "lanes": None,
        "ranks": {},
    }
    try:
        question = _question(ask)
        if question.query:
            lanes = [await _lane(ask.handle, question, *lane) for lane in _LANES]
            data |= {"lanes": lanes, "ranks": _ranks(lanes)}
    except QueryError as exc:
        # What was typed is still there, with what to do about it.
        return Answer({**data, "error": str(exc)}, 422)
    return data


def _types(chosen: str) -> tuple[str, ...]:
    """Return the types to choose from, with the one that is asked for, whatever it is."""
    return (*_TYPES, chosen) if chosen and chosen not in _TYPES else _TYPES


def _written(ask: Ask) -> dict[str, str]:
    """Return the form as it was filled in, also where that cannot be used."""
    names = ("q", "type", "since", "where", "min_trust", "user_id", "agent_id")
    return {
        **{name: ask.text(name) for name in names},
        "k": ask.text("k") or str(_DEFAULT_HITS),
        "min_relevance": ask.text("min_relevance") or str(MIN_RELEVANCE),
        "recency": ask.text("recency") or "0",
        "importance": ask.text("importance") or "0",
    }


def _question(ask: Ask) -> Question:
    trust = ask.text("min_trust")
    if trust:
        read_trust(trust)
    return Question(
        query=ask.text("q").strip(),
        k=as_number("k", ask.text("k"), _DEFAULT_HITS, least=1, most=_MAX_HITS),
        memory_type=ask.text("type").strip() or None,
        since=read_bound("since", ask.text("since").strip() or None),
        where=_where(ask.text("where").strip()),
        min_trust=trust or None,
        min_relevance=_weight(
            "min_relevance", ask.text("min_relevance") or str(MIN_RELEVANCE), most=1
        ),
        recency_weight=_weight("recency", ask.text("recency")),
        importance_weight=_weight("importance", ask.text("importance")),
    )


def _where(text: str) -> Where | None:
    if not text:
        return None
    try:
        where = json.loads(text)
    except (ValueError, RecursionError):
        where = None
    if not isinstance(where, dict):
        raise QueryError(
            '`where` must be a JSON object, such as `{"tags": {"$contains": "money"}}`'
        )
    return where


def _weight(name: str, text: str, *, most: int = 10) -> float:
    try:
        weight = float(text or 0)
    except ValueError:
        weight = -1.0
    if not 0 <= weight <= most:
        raise QueryError(f"`{name}` must be a number from 0 to {most}, not `{text[:40]}`")
    return weight


async def _lane(
    handle: ScopedMemory, question: Question, mode: "RecallMode", title: str, about: str
) -> Data:
    """Return what one way finds, or why there is no such way here."""
    lane: Data = {"mode": mode, "title": title, "about": about, "missing": None, "hits": []}
    try:
        result = await _recalled(handle, question, mode)
    except UnsupportedError as exc:
        missing = {"missing": str(exc), "left_out": (), "considered": 0, "largest": 0.0}
        return {**lane, **missing, "question": "", "reranking": None}
    return {
        **lane,
        "largest": max((points_for(hit.why) for hit in result), default=0.0),
        "hits": list(result),
        "is_answered": is_answered(result),
        "left_out": result.left_out,
        "considered": result.considered,
        "question": result.question,
        "reranking": None if result.reranking is None else str(result.reranking),
    }


async def _recalled(handle: ScopedMemory, question: Question, mode: "RecallMode") -> "RecallResult":
    return await handle.recall(
        question.query,
        k=question.k,
        mode=mode,
        memory_type=question.memory_type,
        since=question.since,
        where=question.where,
        min_trust=question.min_trust,
        min_relevance=question.min_relevance,
        recency_weight=question.recency_weight,
        importance_weight=question.importance_weight,
        explain=True,
    )


def points_for(why: "Explanation") -> float:
    """Return what speaks for something, without what speaks against it."""
    return sum(max(reason.points, 0.0) for reason in why)


def _ranks(lanes: list[Data]) -> dict[str, dict[str, int]]:
    """Return at which place each way has each memory that any of them found."""
    ranks: dict[str, dict[str, int]] = {}
    for lane in lanes:
        hits = lane["hits"]
        assert isinstance(hits, list)  # noqa: S101 - made above
        for place, hit in enumerate(hits, start=1):
            ranks.setdefault(hit.item.id, {})[str(lane["mode"])] = place
    return ranks
