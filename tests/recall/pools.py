"""Hand-made candidates: a stretch of talk is written down in a few words."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.recall._candidate_pool import Pool
from orbiter.memory.recall._features import FeatureTable
from orbiter.memory.recall._query_analysis import Question, read
from orbiter.memory.recall._signals import measure

NOW = datetime(2024, 6, 15, 12, tzinfo=UTC)
START = datetime(2024, 6, 1, tzinfo=UTC)


def turn(
    item_id: str,
    content: str,
    *,
    speaker: str | None = None,
    session: str | None = "s",
    at: datetime | None = None,
    assistant: bool = False,
    **extra: Any,
) -> MemoryItem:
    """Return one turn of a conversation of Ann's."""
    kind = AIMemory if assistant else HumanMemory
    if speaker is not None:
        extra["speaker"] = speaker
    return kind(
        id=item_id,
        content=content,
        metadata=MemoryMetadata(user_id="ann", session_id=session, extra=extra),
        created_at=START if at is None else at,
    )


def talk(*contents: str, session: str = "s", first: int = 0) -> list[MemoryItem]:
    """Return turns with the ids `0`, `1` and so on, a minute apart."""
    return [
        turn(str(first + n), text, session=session, at=START + timedelta(minutes=first + n))
        for n, text in enumerate(contents)
    ]


def pool(
    *windows: Sequence[MemoryItem],
    similarity: Mapping[str, float] | None = None,
    frequency: Mapping[str, int] | None = None,
    passages: int = 100,
) -> Pool:
    """Return a pool in which everything may be chosen."""
    return Pool(
        windows,
        frozenset(item.id for window in windows for item in window),
        frequency or {},
        passages,
        similarity,
    )


def ask(text: str, *speakers: str) -> Question:
    """Return a question asked now."""
    return read(text, speakers=speakers, now=NOW)


def column(name: str, question: Question, candidates: Pool) -> dict[str, float]:
    """Return what one column says, by item."""
    table: FeatureTable = measure(question, candidates)
    return {item.id: value for item, value in zip(table.items, table.columns[name], strict=True)}
