"""Evaluation: how often recall finds the answer, on a user's own questions."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orbiter.memory.agent.keywords import ItemRef, as_id, question_pairs
from orbiter.memory.agent.results import EvaluatedQuestion, Evaluation
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import require_text

if TYPE_CHECKING:
    from orbiter.memory.agent.scope import ScopedMemory

__all__ = ["evaluate"]


async def evaluate(
    handle: "ScopedMemory",
    questions: Iterable[tuple[str, ItemRef] | Mapping[str, object]] | Mapping[str, ItemRef],
    *,
    k: int,
    **options: Any,
) -> Evaluation:
    """Recall for each question, and return how good that was; see `ScopedMemory.evaluate`."""
    pairs = question_pairs(questions)
    for place, pair in enumerate(pairs):
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], str):
            raise QueryError(
                f"question {place} must be a pair of a question and what answers it, such as "
                f'("Where does Ann live?", "Oslo"), not {pair!r}'
            )
    return Evaluation(
        [await _evaluated(handle, question, answer, k=k, **options) for question, answer in pairs],
        k=k,
    )


async def _evaluated(
    handle: "ScopedMemory", question: str, answer: ItemRef, **options: Any
) -> EvaluatedQuestion:
    expected = require_text("expected", as_id(answer))
    hits = await handle.recall(question, **options)
    text = expected.casefold()

    def answers(item: MemoryItem) -> bool:
        return item.id == expected or text in item.content.casefold()

    places = [
        place for place, hit in enumerate(hits) if any(map(answers, (hit.item, *hit.repeats)))
    ]
    is_stored = bool(places) or await handle.get(expected) is not None
    is_stored = is_stored or bool(await handle.list(query=expected, limit=1))
    return EvaluatedQuestion(
        question,
        expected,
        rank=places[0] + 1 if places else None,
        relevance=hits[places[0]].relevance if places else None,
        first=hits[0].content if hits else "",
        is_stored=is_stored,
    )
