"""The recall lab: one question, answered by words, by meaning and by both, side by side."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.trust import SOURCE_KINDS, read_trust
from orbiter.memory.recall.time_bounds import read_bound
from orbiter.memory.server.dashboard.page import Answer, Ask, Data, Pages, as_float, as_number
from orbiter.memory.text.ranking import MIN_RELEVANCE, is_answered

if TYPE_CHECKING:
    from orbiter.memory.recall import Explanation, RecallMode

__all__ = ["pages"]

pages = Pages()

_USUAL = {
    "type": "",
    "since": "",
    "where": "",
    "min_trust": "",
    "k": "8",
    "min_relevance": str(MIN_RELEVANCE),
    "recency": "0",
    "importance": "0",
}
"""The filters and weights of the form, unless the address says otherwise."""
_MAX_HITS = 50
_TYPES = ("item", "fact", "human", "ai", "tool", "system")
_LANES: "tuple[tuple[RecallMode, str, str], ...]" = (
    ("words", "Words", "By the words of the question; rare words count more."),
    ("meaning", "Meaning", "By embedding similarity."),
    ("hybrid", "Hybrid", "Both, plus time, speaker and a model that reads the best of them."),
)


@pages.page("/recall", "recall.html", title="Recall lab")
async def lab(ask: Ask) -> Data | Answer:
    """Show what each way to recall finds."""
    asked = ask.texts(q="", user_id="", agent_id="", **_USUAL)
    chosen = asked["type"].strip()
    data: Data = {
        "asked": asked,
        "types": (*_TYPES, chosen) if chosen and chosen not in _TYPES else _TYPES,
        "is_usual": {**asked, **_USUAL} == asked,
        "trusts": SOURCE_KINDS,
        "held": ask.principal.scope,
        "error": None,
        "lanes": None,
        "ranks": {},
    }
    try:
        arguments = _arguments(asked)
        if query := asked["q"].strip():
            lanes = [await _lane(ask.handle, query, arguments, *lane) for lane in _LANES]
            data |= {"lanes": lanes, "ranks": _ranks(lanes)}
    except QueryError as exc:
        # What was typed is still there, with what to do about it.
        return Answer({**data, "error": str(exc)}, 422)
    return data


def _arguments(asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `recall` that the form names."""
    if asked["min_trust"]:
        read_trust(asked["min_trust"])
    return {
        "k": as_number("k", asked["k"], 0, least=1, most=_MAX_HITS),
        "memory_type": asked["type"].strip() or None,
        "since": read_bound("since", asked["since"].strip() or None),
        "where": _where(asked["where"].strip()),
        "min_trust": asked["min_trust"] or None,
        "min_relevance": as_float("min_relevance", asked["min_relevance"], most=1),
        "recency_weight": as_float("recency", asked["recency"], most=10),
        "importance_weight": as_float("importance", asked["importance"], most=10),
    }


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


async def _lane(
    handle: ScopedMemory,
    query: str,
    arguments: Mapping[str, Any],
    mode: "RecallMode",
    title: str,
    about: str,
) -> Data:
    """Return what one way finds, or why there is no such way here."""
    lane: Data = {"mode": mode, "title": title, "about": about, "missing": None, "hits": []}
    try:
        result = await handle.recall(query, mode=mode, explain=True, **arguments)
    except UnsupportedError as exc:
        return {**lane, "missing": str(exc), "question": ""}
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
