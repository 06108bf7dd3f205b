"""Newer memories: which of the best hits another one replaces, as the reader says.

Only what the same person said replaces it, and only hits that rather answer are compared. What is
replaced keeps its place behind what replaces it, and nothing is ever left out.
"""

import math
from collections.abc import Sequence

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

_COMPARED, _LIKELY = 4, 0.2
"""How many of the best are compared with each other, and how likely each must answer."""
_REPLACES = 1.75
"""Log-odds from which the reader is believed: of labelled pairs of held-out scenes, 83 % are right
there, and a quarter is found (`python -m benchmarks.recall_newer`)."""


async def prefer_newer(
    store: MemoryStore,
    candidates: Candidates,
    reading: Reading,
    names: frozenset[str] = frozenset(),
) -> Candidates:
    """Return the candidates with what replaces which among the best of them."""
    first = candidates.scored[: 2 * _COMPARED]
    likely = {one.item.id: candidates.relevance(one) for one in first}
    best = [one for one in first if likely[one.item.id] >= _LIKELY and _is_statement(one.item)]
    best.sort(key=lambda one: -likely[one.item.id])
    by_who: dict[tuple[str | None, ...], list[Scored]] = {}
    for one in best[:_COMPARED]:
        by_who.setdefault(_who_states(one.item), []).append(one)
    replaced: dict[str, MemoryItem] = {}
    for same in by_who.values():
        items = sorted((one.item for one in same), key=in_time)
        said = await reading.compare(store, items, names) if items[1:] else {}
        for at, older in enumerate(items[:-1]):
            newer = [(said.get((older.id, item.id), -math.inf), item) for item in items[at + 1 :]]
            likeliest, by = max(newer, key=lambda each: each[0])
            if likeliest >= _REPLACES:
                replaced[older.id] = by
    return _marked(candidates, best, replaced) if replaced else candidates


def _marked(
    candidates: Candidates, best: Sequence[Scored], replaced: dict[str, MemoryItem]
) -> Candidates:
    by_id = {one.item.id: one for one in best}
    texts = {older: (REPLACED, replaced_by(newer)) for older, newer in replaced.items()}
    for older, newer in replaced.items():
        texts.setdefault(newer.id, (REPLACES, f"replaces {quoted(by_id[older].item)}"))
    earlier: dict[str, list[Scored]] = {}
    for older, newer in replaced.items():
        earlier.setdefault(newer.id, []).append(by_id[older])

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
