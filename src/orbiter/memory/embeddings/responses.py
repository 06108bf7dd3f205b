"""Responses of embedding services, read and checked: pure functions, no I/O.

Nothing a service says is believed unchecked: a wrong vector in an index is worse than an error.
"""

import math
import sys
from array import array
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast

from orbiter.memory.errors import EmbeddingError

__all__ = [
    "MAX_BATCH_BYTES",
    "batches",
    "is_finite",
    "pack",
    "points_somewhere",
    "retry_after",
    "sendable",
    "unpack",
    "vectors",
]

MAX_BATCH_BYTES = 250_000
"""The hosted API takes 300,000 tokens a request. A token is a byte or more."""


def batches(texts: Sequence[str], *, size: int) -> Iterator[list[str]]:
    """Yield *texts* in order, at most *size* of them at a time and not too much text at once."""
    batch: list[str] = []
    room = MAX_BATCH_BYTES
    for text in texts:
        weight = len(text.encode())
        if batch and (len(batch) == size or weight > room):
            yield batch
            batch, room = [], MAX_BATCH_BYTES
        batch.append(text)
        room -= weight
    if batch:
        yield batch


def is_finite(vector: Sequence[float]) -> bool:
    """Tell whether *vector* holds numbers only; zeros are near nothing, and allowed."""
    return all(map(math.isfinite, vector))


def points_somewhere(vector: Sequence[float]) -> bool:
    """Tell whether *vector* has a direction: it is finite, and not all zeros."""
    return any(vector) and all(map(math.isfinite, vector))


def sendable(text: str) -> str:
    """Return *text* as the API takes it: it refuses the empty text, and half a character."""
    return text.encode(errors="replace").decode() or " "


def vectors(answer: object, *, count: int, dimension: int, model: str) -> list[list[float]]:
    """Return the vectors of an answer in the order of the texts, each number a float32's.

    Raise `EmbeddingError` if they are not *count* sound vectors of *dimension*.
    """
    entries = getattr(answer, "data", None)
    if not isinstance(entries, list) or len(entries) != count:
        what = f"{len(entries)} vectors" if isinstance(entries, list) else "no list of vectors"
        raise EmbeddingError(
            f"`{model}` answered {count} texts with {what}; check that `base_url` names an "
            "OpenAI-compatible API, or lower `batch_size`"
        )
    by_index: dict[int, list[float]] = {}
    for entry in entries:
        vector = _vector(getattr(entry, "embedding", None), dimension, model)
        number = getattr(entry, "index", None)
        if isinstance(number, int):  # what is none will be missed
            by_index[number] = vector
    try:
        return [by_index[number] for number in range(count)]
    except KeyError as exc:
        raise EmbeddingError(
            f"`{model}` does not say which text each vector belongs to (no `index` {exc}); "
            "set `batch_size=1` if the server cannot"
        ) from None


def _vector(value: object, dimension: int, model: str) -> list[float]:
    numbers: list[float]
    try:
        if isinstance(value, str):
            numbers = unpack(b64decode(value, validate=True))
        else:
            numbers = array("f", cast("list[float]", value)).tolist()
    except (TypeError, ValueError, OverflowError):
        raise EmbeddingError(f"`{model}` answered with something that is not a vector") from None
    if len(numbers) != dimension:
        raise EmbeddingError(
            f"`{model}` gives vectors of {len(numbers)} numbers, not {dimension}; "
            f"pass `dimension={len(numbers)}`"
        )
    if not is_finite(numbers):
        raise EmbeddingError(
            f"`{model}` answered with a vector that has no direction: a number in it is not "
            "finite; ask the server's operator"
        )
    return numbers


def pack(vector: Sequence[float]) -> bytes:
    """Return *vector* as float32 numbers, the lowest byte first."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def unpack(data: bytes) -> list[float]:
    """Return the vector that `pack` made *data* of; a `ValueError` if it is cut off."""
    numbers = array("f")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return how many seconds the server asks to wait, or `None` if it does not say."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < math.inf else None
    try:
        then = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (then - (now or datetime.now(UTC))).total_seconds())
