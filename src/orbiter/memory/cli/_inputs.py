"""What `remember` was given: each text, where it was, whether it can be kept, and keeping it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orbiter.memory.cli._error_messages import UsageError, told_of
from orbiter.memory.cli._options import read_stdin
from orbiter.memory.cli._output import Output
from orbiter.memory.cli._views import as_json

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.model.items import MemoryItem

__all__ = ["Thing", "check_all", "print_ids", "remember_many", "things_of"]

_BATCH = 500
"""Memories stored in one step; between steps the bar moves."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A text to remember, and where it was given: empty if there is no other."""

    text: str
    origin: str = ""


def things_of(texts: Sequence[str], *, by_line: bool) -> list[Thing]:
    """Return what the arguments name: themselves, or stdin for `-`, whole or *by_line*."""
    if by_line and "-" not in texts:
        raise UsageError("`--lines` splits stdin; give `-` as the text")
    things: list[Thing] = []
    for number, text in enumerate(texts, 1):
        origin = f"text {number}" if len(texts) > 1 else ""
        if text != "-":
            things.append(Thing(text, origin))
        elif not by_line:
            things.append(Thing(read_stdin().strip(), origin))
        else:
            # Only what an editor counts as a line: other marks may stand within a memory.
            lines = enumerate(read_stdin().replace("\r\n", "\n").split("\n"), 1)
            things += [Thing(one, f"line {place} of stdin") for place, one in lines if one.strip()]
    return things


def check_all(things: Sequence[Thing], scope: Mapping[str, str], labels: Mapping[str, Any]) -> None:
    """Raise an error for labels, or for the first of *things*, that no store takes.

    It says which of them it is.
    """
    from orbiter.memory.agent import inputs  # noqa: PLC0415
    from orbiter.memory.model.items import MemoryItem, MemoryMetadata  # noqa: PLC0415

    names = ("tags", "importance", "source", "extra")
    MemoryMetadata(**scope, extra=inputs.labels(*(labels[name] for name in names)))
    for thing in things:
        try:
            inputs.check_text(thing.text)
            MemoryItem(content=thing.text)
        except ValueError as exc:  # both pydantic's and ours are
            place = f"{thing.origin}: " if thing.origin else ""
            none = "; nothing was stored" if len(things) > 1 else ""
            raise UsageError(f"{place}{told_of(exc)}{none}") from None


async def remember_many(
    out: Output, memory: "ScopedMemory", things: Sequence[str], labels: dict[str, Any]
) -> "list[MemoryItem]":
    """Store *things* in steps; what is durable is printed, whatever becomes of the rest."""
    stored: list[MemoryItem] = []
    try:
        with out.progress("remembering", unit="memories") as advance:
            for start in range(0, len(things), _BATCH):
                some = await memory.remember_many(things[start : start + _BATCH], **labels)
                stored += some
                if not out.is_json:
                    print_ids(out, some)
                advance(len(stored), len(things))
    finally:
        if out.is_json and (stored or not things):
            print_ids(out, stored)
    return stored


def print_ids(out: Output, stored: "Sequence[MemoryItem]") -> None:
    """Print the ids of what is stored, or all of it as JSON, at once."""
    if out.is_json:
        out.data([as_json(item) for item in stored])
    else:
        out.rows((item.id,) for item in stored)
    out.flush()  # they are durable: whoever stops what follows has their ids
