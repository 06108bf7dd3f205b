"""Accept or discard proposed facts: `review` with `list`, `accept`, `discard`."""

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app, without_a_name
from orbiter.memory.cli._completion import complete_ids
from orbiter.memory.cli._error_messages import UsageError
from orbiter.memory.cli._item_ids import find_ids
from orbiter.memory.cli._output import ask, can_ask, styled
from orbiter.memory.cli._text import counted, one_line, shortened
from orbiter.memory.cli._views import as_json, entry, print_facts, value_of, when

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.model.facts import FactMemory

__all__ = ["app"]

app = new_app()


def _usual() -> str:
    """Return what `review` alone does: it asks those who can answer, and lists for others."""
    return "all" if sys.stdin.isatty() and sys.stderr.isatty() else "list"


review = new_app()
app.add_typer(
    review,
    name="review",
    cls=without_a_name(_usual),
    help="Accept or discard facts that were proposed.\n\n"
    "Without a command, it asks about each; in a pipe, it lists them.",
)

Ids = Annotated[
    list[str], typer.Argument(metavar="ID", help="Ids of drafts.", autocompletion=complete_ids)
]
_ANSWERS = {"a": "accept", "d": "discard", "s": "skip", "q": "quit"}
_QUOTED = 3
"""Memories that are shown of those a proposal was taken from."""


@command(review, "all", everyone=False, makers=("facts put",))
async def review_all(run: CommandContext) -> None:
    """Review all drafts, one question each."""
    if not can_ask(run.out):
        raise UsageError("this asks questions; use `review list`, `accept` and `discard`")
    done: Counter[str] = Counter()
    async with run.scoped(meaning=False) as memory:
        drafts = await memory.facts.drafts()
        for index, fact in enumerate(drafts, 1):
            await _show(run, memory, fact, f"{index} of {len(drafts)}")
            answer = _answer()
            if answer == "quit":
                break
            if answer == "accept":
                await memory.facts.accept(fact.id)
            elif answer == "discard":
                await memory.facts.discard(fact.id)
            done[answer] += 1
    accepted, discarded = done["accept"], done["discard"]
    left = len(drafts) - accepted - discarded
    if run.out.is_json:
        run.out.data({"accepted": accepted, "discarded": discarded, "left": left})
    elif drafts:
        run.out.note(f"{accepted} accepted, {discarded} discarded, {left} left")
    else:
        run.out.note(f"no drafts to review for {run.target.describe()}")


async def _show(
    run: CommandContext, memory: "ScopedMemory", fact: "FactMemory", position: str
) -> None:
    """Show a proposal with what holds now, and what it was taken from."""
    width = 2 * run.out.console.width
    head = styled(
        (one_line(fact.key), "bold"),
        f"  {shortened(value_of(fact), width)}",
        (f"  {when(fact)}".rstrip(), "cyan"),
        (f"  {position}", "dim"),
    )
    lines = [head]
    now = await memory.facts.get(fact.key)
    if now is not None:
        current = f"now {shortened(value_of(now), width)}  {when(now)}".rstrip()
        lines.append(styled((current, "yellow")))
    for item_id in fact.source_ids[:_QUOTED]:
        item = await memory.get(item_id)
        if item is not None:
            lines.append(styled((f"“{shortened(one_line(item.content), width)}”", "dim")))
    run.out.draw(entry(styled(("?", "bold yellow")), lines))


def _answer() -> Literal["accept", "discard", "skip", "quit"]:
    while True:
        typed = ask("[a]ccept, [d]iscard, [s]kip, [q]uit?")
        if typed is None:
            return "quit"
        answer = _ANSWERS.get(typed[:1].lower())
        if answer is not None:
            return answer  # type: ignore[return-value]  # one of them


@command(review, "list", everyone=False, makers=("facts put",), reads=True)
async def list_drafts(run: CommandContext) -> None:
    """List the drafts to review."""
    async with run.scoped(meaning=False) as memory:
        drafts = await memory.facts.drafts()
    if run.out.is_json:
        run.out.data([as_json(fact) for fact in drafts])
    else:
        print_facts(run.out, drafts, [f"from {counted(len(each.source_ids))}" for each in drafts])
    if not drafts:
        run.out.note(f"no drafts to review for {run.target.describe()}")


@command(review, "accept", everyone=False, makers=("facts put",))
async def accept(run: CommandContext, item_ids: Ids) -> None:
    """Accept drafts as facts."""
    await _decide(run, item_ids, "accept")


@command(review, "discard", everyone=False, makers=("facts put",))
async def discard(run: CommandContext, item_ids: Ids) -> None:
    """Reject drafts; the same messages do not propose them again."""
    await _decide(run, item_ids, "discard")


async def _decide(
    run: CommandContext, item_ids: list[str], what: Literal["accept", "discard"]
) -> None:
    decided: list[FactMemory] = []
    try:
        async with run.scoped(meaning=False) as memory:
            for item_id in dict.fromkeys(await find_ids(memory, item_ids)):
                decided += [await getattr(memory.facts, what)(item_id)]
    finally:  # whatever becomes of the rest, these are decided
        if run.out.is_json and decided:
            run.out.data([as_json(fact) for fact in decided])
        elif decided:
            print_facts(run.out, decided, [f"{what}ed".replace("ee", "e")] * len(decided))
