"""Accepting or discarding facts that an extractor proposed: `review`."""

from typing import TYPE_CHECKING, Literal

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._lookup import find_id
from orbiter.memory.cli._options import command, memory_options, output_options
from orbiter.memory.cli._text import counted
from orbiter.memory.cli._views import as_json, print_facts

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.model.facts import FactMemory

__all__ = ["review"]


@command("review")
@click.argument("item_ids", nargs=-1, metavar="[ID]...")
@click.option("--accept", is_flag=True, help="Accept these drafts as facts.")
@click.option("--discard", is_flag=True, help="Reject these drafts; they are not proposed again.")
@memory_options(everyone=False, writes=True)
@output_options
async def review(
    run: CommandContext, item_ids: tuple[str, ...], *, accept: bool, discard: bool
) -> None:
    """Accept or discard facts that were proposed.

    Without ids, it lists the drafts. The dashboard shows what each was taken from.
    """
    if accept + discard != bool(item_ids):
        raise UsageError("give ids with `--accept` or with `--discard`, or none of them")
    async with run.scoped(meaning=False) as memory:
        if item_ids:
            await _decide(run, memory, item_ids, "accept" if accept else "discard")
            return
        drafts = await memory.facts.drafts()
        if not drafts:
            run.out.note(f"no drafts to review for {run.target.describe()}")
        if run.out.is_json:
            run.out.data([as_json(fact) for fact in drafts])
        else:
            sources = [f"from {counted(len(each.source_ids))}" for each in drafts]
            print_facts(run.out, drafts, sources)


async def _decide(
    run: CommandContext,
    memory: "ScopedMemory",
    item_ids: tuple[str, ...],
    what: Literal["accept", "discard"],
) -> None:
    decided: list[FactMemory] = []
    try:
        for item_id in dict.fromkeys([await find_id(memory, each) for each in item_ids]):
            decided += [await getattr(memory.facts, what)(item_id)]
    finally:  # whatever becomes of the rest, these are decided
        if run.out.is_json and decided:
            run.out.data([as_json(fact) for fact in decided])
        elif decided:
            word = {"accept": "accepted", "discard": "discarded"}[what]
            print_facts(run.out, decided, [word] * len(decided))
