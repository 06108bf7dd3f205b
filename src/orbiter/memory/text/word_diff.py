"""Word diff: what changed from one version of a text to the next. Pure functions.

A text may be as long as a book, and comparing takes the square of what differs. So what is equal at
both ends is set aside first, and a middle that is still long is told as taken out and put in.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

__all__ = ["Piece", "word_diff"]

_WORD = re.compile(r"\s+|\w+(?:[:.’'-]\w+)*|[^\w\s]")
"""Blanks, words, such as `20:30` and `it's`, and what stands between them."""

_MAX_COMPARED = 1_500
"""Words of a middle that are compared one by one."""

_LONGEST = 4_000
"""Letters of one change that are shown."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text that stayed, went or came."""

    kind: Literal["same", "removed", "added"]
    text: str


def word_diff(old: str, new: str, *, context: int | None = 160) -> list[Piece]:
    """Return what *old* and *new* have in common and what not, in reading order.

    Equal texts give one piece that is the same, and two empty ones give none. Of what
    stayed the same, *context* letters are kept on each side of a change, and long changes are cut:
    `…` stands for the rest. With `None`, all is kept.
    """
    before, after = _WORD.findall(old), _WORD.findall(new)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    was, now = before[head : len(before) - tail], after[head : len(after) - tail]
    pieces = [Piece("same", "".join(before[:head]))]
    pieces += _compared(was, now)
    pieces.append(Piece("same", "".join(before[len(before) - tail :])))
    joined = _joined(pieces)
    return joined if context is None else list(_shortened(joined, context))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many words both begin with."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _compared(was: Sequence[str], now: Sequence[str]) -> Iterator[Piece]:
    if max(len(was), len(now)) > _MAX_COMPARED:
        yield Piece("removed", "".join(was))
        yield Piece("added", "".join(now))
        return
    matcher = SequenceMatcher(None, was, now, autojunk=False)
    for what, start, end, from_, to in matcher.get_opcodes():
        if what == "equal":
            yield Piece("same", "".join(was[start:end]))
            continue
        yield Piece("removed", "".join(was[start:end]))
        yield Piece("added", "".join(now[from_:to]))


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces that hold something, with a lone blank between changes made part of them.

    Two words that changed side by side read better as one change than as two.
    """
    full = [piece for piece in pieces if piece.text]
    joined: list[Piece] = []
    removed = added = ""
    for place, piece in enumerate(full):
        is_last = place == len(full) - 1
        if piece.kind == "removed":
            removed += piece.text
        elif piece.kind == "added":
            added += piece.text
        elif piece.text.isspace() and removed and added and not is_last:
            removed, added = removed + piece.text, added + piece.text
        else:
            joined += _changes(removed, added)
            removed = added = ""
            joined.append(piece)
    return joined + _changes(removed, added)


def _changes(removed: str, added: str) -> list[Piece]:
    both = [Piece("removed", removed), Piece("added", added)]
    return [piece for piece in both if piece.text]


def _shortened(pieces: list[Piece], context: int) -> Iterator[Piece]:
    for place, piece in enumerate(pieces):
        text = piece.text
        if piece.kind != "same" or len(pieces) == 1:
            yield Piece(piece.kind, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
        elif len(text) <= 2 * context + 1:
            yield piece
        else:
            head = "" if place == 0 else text[:context]
            tail = "" if place == len(pieces) - 1 else text[-context:]
            yield Piece("same", f"{head}…{tail}")
