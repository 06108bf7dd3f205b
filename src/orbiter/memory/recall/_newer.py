"""Newer memories: which of the best hits another one replaces, as the reader says.

Only what the same person said replaces it, and only hits that rather answer are compared. What is
replaced keeps its place behind what replaces it, and nothing is ever left out.
"""

import math
from collections.abc import Mapping

from orbiter.memory.model.items import AIMemory, MemoryItem, ToolMemory
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.recall._candidate_pool import name_before_colon, speaker_of
from orbiter.memory.recall._explanation import (
    REPLACED,
    REPLACES,
    Explanation,
    Reason,
    quoted,
    replaced_by,
)
from orbiter.memory.recall._reading import Reading
from orbiter.memory.recall._scoring import Scored, in_time
from orbiter.memory.recall._select import Candidates

__all__ = ["prefer_newer"]

_COMPARED, _LIKELY = 4, 0.1
"""How many of the best are compared with each other, and how likely each must answer."""
_REPLACES, _MAY_REPLACE = 1.5, 0.5
"""Log-odds from which the older one is marked, and from which the newer one is as relevant as it.

Of labelled pairs of unseen scenes 91 and 78 % are right there, and 30 and 71 % of those that
replace are found (`python -m benchmarks.recall_newer`). The second brings 1.5 more of a hundred
first hits of unseen scenes, and costs nothing of LoCoMo's R@1.
"""
_SURE_SHARE, _SHARE = 0.3, 0.6
"""What the newer one needs of the older one's relevance: to mark that, and to be as relevant."""


async def prefer_newer(store: MemoryStore, candidates: Candidates, reading: Reading) -> Candidates:
    """Return the candidates with what replaces which among the best of them.

    Of several that replace each other in turn, the last one replaces all.
    """
    first = candidates.scored[: 2 * _COMPARED]
    likely = {one.item.id: candidates.relevance(one) for one in first}
    best = [one for one in first if likely[one.item.id] >= _LIKELY and _is_statement(one.item)]
    best.sort(key=lambda one: -likely[one.item.id])
    of_text = {one.item.content: one for one in reversed(best)}  # of copies the first
    best = [one for one in best if of_text[one.item.content] is one]
    by_id = {one.item.id: one for one in best}
    by_who: dict[tuple[str | None, ...], list[Scored]] = {}
    for one in best[:_COMPARED]:
        by_who.setdefault(_who_states(one.item), []).append(one)
    replaced: dict[str, MemoryItem] = {}
    ahead: dict[str, MemoryItem] = {}
    for same in by_who.values():
        items = sorted((one.item for one in same), key=in_time)
        said = await reading.compare(store, items, candidates.names) if items[1:] else {}
        for at in reversed(range(len(items) - 1)):  # the newest first: what replaces it is known
            older = items[at]
            newer = [(said.get((older.id, item.id), -math.inf), item) for item in items[at + 1 :]]
            likeliest, by = max(newer, key=lambda each: each[0])
            share = _SURE_SHARE if likeliest >= _REPLACES else _SHARE
            if likeliest < _MAY_REPLACE or likely[by.id] < share * likely[older.id]:
                continue
            ahead[older.id] = ahead.get(by.id, by)
            if likeliest >= _REPLACES:
                replaced[older.id] = replaced.get(by.id, by)
    return _marked(candidates, by_id, replaced, ahead) if ahead else candidates


def _marked(
    candidates: Candidates,
    by_id: Mapping[str, Scored],
    replaced: Mapping[str, MemoryItem],
    ahead: Mapping[str, MemoryItem],
) -> Candidates:
    """Return the candidates with their marks, and what is *ahead* of another as relevant as it."""
    earlier: dict[str, list[Scored]] = {}
    for older, newer in ahead.items():
        earlier.setdefault(newer.id, []).append(by_id[older])
    texts = {older: (REPLACED, replaced_by(newer)) for older, newer in replaced.items()}
    for older, newer in replaced.items():
        texts.setdefault(newer.id, (REPLACES, f"replaces {quoted(by_id[older].item)}"))
    for older, newer in ahead.items():
        texts.setdefault(newer.id, (REPLACES, f"may replace {quoted(by_id[older].item)}"))

    def why(one: Scored) -> Explanation:
        if one.item.id not in texts:
            return candidates.why(one)
        return Explanation(
            (*candidates.why(one), Reason(texts[one.item.id][0], 0.0, texts[one.item.id][1]))
        )

    def likely(one: Scored) -> float:
        # What replaces another answers at least as well.
        assert candidates.likely is not None  # noqa: S101 - it was asked above
        return max(map(candidates.likely, (one, *earlier.get(one.item.id, ()))))

    return candidates._replace(why=why, likely=likely, replaced={**candidates.replaced, **replaced})


def _is_statement(item: MemoryItem) -> bool:
    """Tell whether a person stated it; facts are judged by their keys."""
    is_assistants = isinstance(item, AIMemory) and speaker_of(item) is None
    return not (item.memory_type == "fact" or isinstance(item, ToolMemory) or is_assistants)


def _who_states(item: MemoryItem) -> tuple[str | None, ...]:
    return item.metadata.user_id, speaker_of(item), name_before_colon(item.content)
