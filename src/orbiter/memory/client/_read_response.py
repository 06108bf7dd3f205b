"""What a server sends, read with suspicion: never more of it than there may be, and no tricks."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError

__all__ = ["MOST_BYTES", "UNREADABLE", "Answer", "lines_of", "loaded", "read_whole"]

MOST_BYTES = 256 * 2**20
"""Most bytes of an answer, or of a line of one, unpacked: what is in memory at a time."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What goes wrong in reading something that is not what it should be."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is here as a whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether what was asked is done."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return what it says; `ValueError` if that is no JSON."""
        return loaded(self.body)


def loaded(text: str | bytes) -> Any:
    """Return what JSON says; `ValueError` for what is none, or nested beyond all measure."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


async def read_whole(
    answer: httpx.Response, *, most: int = MOST_BYTES, until: float = math.inf
) -> Answer:
    """Return an answer once all of it is here; `MemoryConnectionError` if it is too long.

    `MemoryTimeoutError` if it still comes after *until*, by the clock of the loop.
    """
    now = asyncio.get_running_loop().time
    pieces: list[bytes] = []
    size = 0
    async for piece in answer.aiter_bytes():
        size += len(piece)
        if size > most:
            raise _too_long(answer, most)
        if now() > until:
            raise MemoryTimeoutError("the answer is not complete")
        pieces.append(piece)
    return Answer(answer.status_code, answer.headers, b"".join(pieces))


async def lines_of(answer: httpx.Response, *, most: int = MOST_BYTES) -> AsyncIterator[bytes]:
    """Yield the lines of an answer as they come, without their ends; the last may have none."""
    rest = bytearray()
    async for piece in answer.aiter_bytes():
        if b"\n" in piece:
            *lines, last = piece.split(b"\n")
            lines[0], rest = bytes(rest) + lines[0], bytearray(last)
            for line in lines:
                yield line.removesuffix(b"\r")
        else:
            rest += piece
        if len(rest) > most:
            raise _too_long(answer, most)
    if rest:
        yield bytes(rest).removesuffix(b"\r")


def _too_long(answer: httpx.Response, most: int) -> MemoryConnectionError:
    return MemoryConnectionError(
        f"the answer to `{answer.request.method}` has more than {most:,} bytes, as no server of "
        "memories sends; ask for less at a time"
    )
