"""Facts and when they were true: `facts`."""

import json
from typing import TYPE_CHECKING

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._error_messages import NotThereError
from orbiter.memory.cli._lookup import find_id, note_nothing
from orbiter.memory.cli._options import (
    Group,
    as_of_option,
    memory_options,
    output_options,
    read_stdin,
    read_when,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import dumps, one_line
from orbiter.memory.cli._views import (
    as_json,
    conflict_json,
    conflict_lines,
    entry,
    entry_json,
    held,
    print_facts,
    source_of,
    value_of,
    when,
)

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.agent.facts import Facts
    from orbiter.memory.model.facts import FactMemory

__all__ = [
    "end_fact",
    "fact_history",
    "facts",
    "list_facts",
    "put_fact",
    "retract_fact",
    "source_option",
]

source_option = click.option("--source", help="Source: `user`, `web:example.com`, …")


@click.group("facts", cls=Group)
def facts() -> None:
    """Show and change facts, and when they were true."""


def _print(run: CommandContext, fact: "FactMemory | None", note: str = "") -> None:
    """Print one fact, or that there is none."""
    if run.out.is_json:
        run.out.data(None if fact is None else as_json(fact))
    elif fact is not None:
        print_facts(run.out, [fact], [note or when(fact)])


@facts.command("list")
@click.argument("key", required=False)
@as_of_option
@click.option("--known-at", help="As it was known at this time.")
@click.option("--conflicts", is_flag=True, help="Only facts that contradict each other.")
@memory_options(everyone=False)
@output_options
async def list_facts(
    run: CommandContext,
    key: str | None,
    *,
    as_of: str | None,
    known_at: str | None,
    conflicts: bool,
) -> None:
    """List facts that are valid now, or were at a time; of a KEY, print the value alone."""
    moment, known = read_when("as-of", as_of), read_when("known-at", known_at)
    if conflicts and (key or moment or known):
        raise UsageError("`--conflicts` is about all facts of now; leave the rest out")
    async with run.both(meaning=False) as (store, memory):
        if conflicts:
            await _list_conflicts(run, memory)
            return
        if key is not None:
            fact = await memory.facts.get(key, as_of=moment, known_at=known)
            if fact is None:
                raise await _unknown(run, memory.facts, key, is_past=bool(moment or known))
            _print_value(run, fact)
            return
        all_facts = list((await memory.facts.all(as_of=moment, known_at=known)).values())
        if not all_facts:
            way = "`orbiter-memory facts put KEY VALUE` records one"
            await note_nothing(run, store, f"no facts of {run.target.describe()}; {way}")
    if run.out.is_json:
        run.out.data([as_json(fact) for fact in all_facts])
    else:
        print_facts(run.out, all_facts, [when(fact) for fact in all_facts])


def _print_value(run: CommandContext, fact: "FactMemory") -> None:
    if run.out.is_json:
        run.out.data(as_json(fact))
        return
    run.out.text(fact.value if isinstance(fact.value, str) else dumps(fact.value, indent=None))
    if when(fact):
        run.out.note(when(fact))


async def _list_conflicts(run: CommandContext, memory: "ScopedMemory") -> None:
    conflicts = await memory.facts.conflicts()
    if run.out.is_json:
        run.out.data([conflict_json(each) for each in conflicts])
    elif run.out.is_plain():
        pairs = ((one, one.earlier, one.later) for one in conflicts)
        run.out.table(
            (each.key, each.reason, *_side(old), *_side(new), source_of(old), source_of(new))
            for each, old, new in pairs
        )
    else:
        for each in conflicts:
            run.out.show(entry(styled(("≠", "yellow")), conflict_lines(each)))
        way = "`orbiter-memory facts retract ID` takes back what is wrong"
        run.out.note(way if conflicts else "there are no conflicts")


def _side(fact: "FactMemory") -> tuple[str, str]:
    return fact.id, value_of(fact)


async def _unknown(
    run: CommandContext, known: "Facts", key: str, *, is_past: bool = False
) -> NotThereError:
    """Return the error for a fact that is not there, or not at the moment that was asked for."""
    keys = await known.keys()
    if key in keys:
        none = "had no value then" if is_past else "has no current value"
        return NotThereError(
            f"`{key}` {none} for {run.target.describe()}; `orbiter-memory facts history {key}` "
            "shows its history"
        )
    names = ", ".join(f"`{one_line(each)}`" for each in keys[:10])
    there = f"; there is {names}" if names else "; `orbiter-memory facts put` records something"
    return NotThereError(f"there is no fact `{key}` for {run.target.describe()}{there}")


@facts.command("put")
@click.argument("key")
@click.argument("value")
@click.option("--valid-from", help="Valid from; by default now.")
@click.option("--valid-to", help="Valid until.")
@click.option("--parse", is_flag=True, help="VALUE is JSON: `41` is a number then, not a text.")
@source_option
@memory_options(everyone=False, writes=True)
@output_options
async def put_fact(
    run: CommandContext,
    key: str,
    value: str,
    *,
    valid_from: str | None,
    valid_to: str | None,
    parse: bool,
    source: str | None,
) -> None:
    """Record a fact; what held before is kept with its time.

    VALUE is a text; `-` reads it from stdin.
    """
    from orbiter.memory.agent.inputs import check_not_private  # noqa: PLC0415 - as below
    from orbiter.memory.model.facts import FactMemory  # noqa: PLC0415 - `--help` needs it not

    text = read_stdin().strip() if value == "-" else value
    try:
        parsed = json.loads(text) if parse else text
    except ValueError as exc:
        raise UsageError(
            f"VALUE is not valid JSON: {exc}; leave `--parse` out for a text"
        ) from None
    begin, end = read_when("valid-from", valid_from), read_when("valid-to", valid_to)
    # Before the store is opened: what cannot be kept must not make a file.
    FactMemory(key=key, value=parsed, valid_to=end, **({"valid_from": begin} if begin else {}))
    check_not_private(parsed)
    async with run.scoped(meaning=False, creates=True) as memory:
        fact = await memory.facts.put(key, parsed, valid_from=begin, valid_to=end, source=source)
    _print(run, fact)


@facts.command("end")
@click.argument("key")
@click.option("--at", help="When it ended; by default now.")
@source_option
@memory_options(everyone=False, writes=True)
@output_options
async def end_fact(run: CommandContext, key: str, *, at: str | None, source: str | None) -> None:
    """Record that a fact no longer holds."""
    moment = read_when("at", at)
    async with run.scoped(meaning=False) as memory:
        if key not in await memory.facts.keys():
            raise await _unknown(run, memory.facts, key)
        fact = await memory.facts.end(key, at=moment, source=source)
    _print(run, fact)
    if fact is None:
        run.out.note(f"`{key}` has no value then, so nothing ended")


@facts.command("history")
@click.argument("key")
@memory_options(everyone=False)
@output_options
async def fact_history(run: CommandContext, key: str) -> None:
    """Show everything that was ever said of a fact."""
    async with run.scoped(meaning=False) as memory:
        past = await memory.facts.history(key)
        if not past:
            raise await _unknown(run, memory.facts, key)
    if run.out.is_json:
        run.out.data([entry_json(each) for each in past])
    else:
        print_facts(run.out, [each.fact for each in past], [held(each) for each in past])


@facts.command("retract")
@click.argument("item_id", metavar="ID")
@memory_options(everyone=False, writes=True)
@output_options
async def retract_fact(run: CommandContext, item_id: str) -> None:
    """Take back one value by its id, as `facts history` shows it: it was wrong."""
    async with run.scoped(meaning=False) as memory:
        fact = await memory.facts.retract(await find_id(memory, item_id))
    _print(run, fact, "retracted")
