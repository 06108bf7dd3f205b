"""Storing memories: `remember`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._embed_progress import FEW, embed_waiting, note_waiting
from orbiter.memory.cli._error_messages import error_text, say
from orbiter.memory.cli._options import (
    Labels,
    command,
    label_options,
    memory_options,
    output_options,
    read_stdin,
    read_when,
    read_words,
)
from orbiter.memory.cli._output import Output
from orbiter.memory.cli._views import as_json

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.model.items import MemoryItem

__all__ = ["Thing", "check_all", "print_ids", "remember", "remember_many", "things_of"]
_BATCH = 500
"""Memories stored in one step; between steps the bar moves."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A text to remember, and where it was given: empty if there is no other."""

    text: str
    origin: str = ""


def things_of(texts: Sequence[str], *, by_line: bool) -> list[Thing]:
    """Return what is to be stored: the words as one text, or stdin for `-`, whole or *by_line*.

    If each has several words, somebody has put quotes around each: these are texts of their own.
    """
    if by_line and list(texts) != ["-"]:
        raise UsageError("`--lines` splits stdin; give `-` as the text")
    if len(texts) > 1 and all(len(each.split()) > 1 for each in texts):
        return [Thing(each, f"text {number}") for number, each in enumerate(texts, 1)]
    if not by_line:
        return [Thing(read_words(texts), "")]
    # Only what an editor counts as a line: other marks may stand within a memory.
    lines = enumerate(read_stdin().replace("\r\n", "\n").split("\n"), 1)
    return [Thing(one, f"line {number} of stdin") for number, one in lines if one.strip()]


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
            inputs.check_not_private(thing.text)
            MemoryItem(content=thing.text)
        except ValueError as exc:  # both pydantic's and ours are
            where = f"{thing.origin}: " if thing.origin else ""
            none = "; nothing was stored" if len(things) > 1 else ""
            raise UsageError(f"{where}{error_text(exc)}{none}") from None


async def remember_many(
    out: Output, memory: "ScopedMemory", things: Sequence[Thing], labels: dict[str, Any]
) -> "list[MemoryItem]":
    """Store *things* in steps; what is durable is printed, whatever becomes of the rest."""
    texts = [each.text for each in things]
    stored: list[MemoryItem] = []
    try:
        with out.progress("remembering", unit="memories") as advance:
            for start in range(0, len(things), _BATCH):
                some = await memory.remember_many(texts[start : start + _BATCH], **labels)
                stored += some
                if not out.is_json:
                    print_ids(out, some)
                advance(len(stored), len(things))
    except BaseException:  # Ctrl-C, too: it is told, and goes on
        if 0 < len(stored) < len(things):
            rest = things[len(stored)].origin
            begin = f", which begins at {rest}" if rest else ""
            say(
                f"{len(stored):,} of {len(things):,} are stored, and their ids are printed; run it "
                f"again with the rest{begin}",
                kind="note",
            )
        raise
    finally:
        if out.is_json and (stored or not things):
            print_ids(out, stored)
    return stored


def print_ids(out: Output, stored: "Sequence[MemoryItem]") -> None:
    """Print the ids of what is stored, or all of it as JSON, at once."""
    if out.is_json:
        out.data([as_json(item) for item in stored])
    else:
        out.table((item.id,) for item in stored)
    out.flush()  # they are durable: whoever stops what follows has their ids


@command("remember")
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@label_options
@click.option("--at", help="When it was: `2026-11-01`, `3d`; else now.")
@click.option("--no-index", is_flag=True, help="Keep it, but let no recall return it.")
@click.option("--key", help="Idempotency key: the same key stores nothing again.")
@click.option("--lines", is_flag=True, help="Each non-empty line of stdin is a memory.")
@memory_options(everyone=False, writes=True)
@output_options
async def remember(
    run: CommandContext,
    texts: tuple[str, ...],
    *,
    labels: Labels,
    at: str | None,
    no_index: bool,
    key: str | None,
    lines: bool,
) -> None:
    """Store memories; print their ids.

    TEXT is the memory, with or without quotes; `-` reads stdin.
    """
    things = things_of(texts, by_line=lines)
    if key is not None and len(things) != 1:
        raise UsageError(f"`--key` is for one memory, not for {len(things)}")
    kept = labels.arguments() | {"created_at": read_when("at", at), "index": not no_index}
    if kept["expires"] == "never":  # which is how it is kept without
        kept["expires"] = None
    # Before the store is opened: one bad line must neither make a file nor leave half of them.
    check_all(things, run.target.scope() or {}, kept)
    async with run.both(creates=True) as (store, memory):
        if len(things) == 1:
            stored = [await memory.remember(things[0].text, **kept, idempotency_key=key)]
            print_ids(run.out, stored)
        else:
            stored = await remember_many(run.out, memory, things, kept)
        if len(stored) > FEW:
            note_waiting(await embed_waiting(run.out, store))
