"""Facts and when they were true: `facts`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._command import CommandContext, command, new_app, without_a_name
from orbiter.memory.cli._error_messages import NotThereError, UsageError
from orbiter.memory.cli._item_ids import find_id, note_nothing
from orbiter.memory.cli._options import Id, read_stdin, read_when
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
    from orbiter.memory.agent.facts import Facts
    from orbiter.memory.model.facts import FactMemory

__all__ = ["app"]

app = new_app()
facts = new_app()
app.add_typer(
    facts,
    name="facts",
    cls=without_a_name(lambda: "list"),
    help="Show and change facts, and when they were true.\n\nWithout a command, it lists them.",
)

Key = Annotated[str, typer.Argument(help="Key of the fact, such as `home_city`.")]
AsOf = Annotated[
    str | None, typer.Option("--as-of", help="What was valid at this time: `2026-11-01`, `3d`, …")
]
KnownAt = Annotated[str | None, typer.Option("--known-at", help="As it was known at this time.")]
Origin = Annotated[
    str | None, typer.Option("--source", help="Source: `user`, `web:example.com`, …")
]


_MAKERS = ("facts put",)


def _print(run: CommandContext, fact: "FactMemory | None", note: str = "") -> None:
    """Print one fact, or that there is none."""
    if run.out.is_json:
        run.out.data(None if fact is None else as_json(fact))
    elif fact is not None:
        print_facts(run.out, [fact], [note or when(fact)])


@command(facts, "list", everyone=False, makers=_MAKERS, reads=True)
async def list_facts(run: CommandContext, *, as_of: AsOf = None, known_at: KnownAt = None) -> None:
    """List facts that are valid now, or were at a time."""
    moment, known = read_when("as-of", as_of), read_when("known-at", known_at)
    async with run.both(meaning=False) as (store, memory):
        all_facts = list((await memory.facts.all(as_of=moment, known_at=known)).values())
        if not all_facts:
            way = "`orbiter-memory facts put KEY VALUE` records one"
            await note_nothing(run, store, f"no facts of {run.target.describe()}; {way}")
    if run.out.is_json:
        run.out.data([as_json(fact) for fact in all_facts])
    else:
        print_facts(run.out, all_facts, [when(fact) for fact in all_facts], numbered=True)


@command(facts, "get", everyone=False, makers=_MAKERS, reads=True)
async def get_fact(
    run: CommandContext, key: Key, *, as_of: AsOf = None, known_at: KnownAt = None
) -> None:
    """Print the value of a fact, as it is or was."""
    moment, known = read_when("as-of", as_of), read_when("known-at", known_at)
    async with run.scoped(meaning=False) as memory:
        fact = await memory.facts.get(key, as_of=moment, known_at=known)
        if fact is None:
            is_past = moment is not None or known is not None
            raise await _unknown(run, memory.facts, key, is_past=is_past)
    if run.out.is_json:
        run.out.data(as_json(fact))
        return
    run.out.text(fact.value if isinstance(fact.value, str) else dumps(fact.value, indent=None))
    if when(fact):
        run.out.note(when(fact))


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


async def _must_know(run: CommandContext, known: "Facts", key: str) -> None:
    if key not in await known.keys():
        raise await _unknown(run, known, key)


@command(facts, "put", everyone=False, makers=_MAKERS)
async def put_fact(
    run: CommandContext,
    key: Key,
    value: Annotated[str, typer.Argument(help="The value, a text; `-` reads stdin.")],
    *,
    valid_from: Annotated[
        str | None, typer.Option("--valid-from", help="Valid from; by default now.")
    ] = None,
    valid_to: Annotated[str | None, typer.Option("--valid-to", help="Valid until.")] = None,
    parse: Annotated[
        bool, typer.Option("--parse", help="Read VALUE as JSON: `41` is a number then, not a text.")
    ] = False,
    source: Origin = None,
) -> None:
    """Record a fact; what held before is kept with its time."""
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


@command(facts, "end", everyone=False, makers=_MAKERS)
async def end_fact(
    run: CommandContext,
    key: Key,
    *,
    at: Annotated[str | None, typer.Option(help="When it ended; by default now.")] = None,
    source: Origin = None,
) -> None:
    """Record that a fact no longer holds."""
    moment = read_when("at", at)
    async with run.scoped(meaning=False) as memory:
        await _must_know(run, memory.facts, key)
        fact = await memory.facts.end(key, at=moment, source=source)
    _print(run, fact)
    if fact is None:
        run.out.note(f"`{key}` has no value then, so nothing ended")


@command(facts, "history", everyone=False, makers=_MAKERS, reads=True)
async def fact_history(run: CommandContext, key: Key) -> None:
    """Show everything that was ever said of a fact."""
    async with run.scoped(meaning=False) as memory:
        past = await memory.facts.history(key)
        if not past:
            raise await _unknown(run, memory.facts, key)
    stated = [each.fact for each in past]
    if run.out.is_json:
        run.out.data([entry_json(each) for each in past])
    else:
        print_facts(run.out, stated, [held(each) for each in past], numbered=True)


@command(facts, "revert", everyone=False, makers=_MAKERS)
async def revert_fact(run: CommandContext, key: Key) -> None:
    """Undo the last assertion about a fact."""
    async with run.scoped(meaning=False) as memory:
        await _must_know(run, memory.facts, key)
        fact = await memory.facts.revert(key)
    _print(run, fact)
    if fact is None:
        run.out.note(f"`{key}` has no value now")


@command(facts, "retract", everyone=False, makers=_MAKERS)
async def retract_fact(run: CommandContext, item_id: Id) -> None:
    """Take back one assertion by its id: it was wrong."""
    async with run.scoped(meaning=False) as memory:
        fact = await memory.facts.retract(await find_id(memory, item_id))
    _print(run, fact, "retracted")


@command(facts, "conflicts", everyone=False, makers=_MAKERS, reads=True)
async def fact_conflicts(run: CommandContext) -> None:
    """List contradicting facts."""
    async with run.scoped(meaning=False) as memory:
        conflicts = await memory.facts.conflicts()
    if run.out.is_json:
        run.out.data([conflict_json(each) for each in conflicts])
        return
    if run.out.is_plain():
        pairs = ((one, one.earlier, one.later) for one in conflicts)
        run.out.rows(
            (each.key, each.reason, *_side(old), *_side(new), source_of(old), source_of(new))
            for each, old, new in pairs
        )
        return
    for each in conflicts:
        run.out.show(entry(styled(("≠", "yellow")), conflict_lines(each)))
    if conflicts:
        run.out.note("`orbiter-memory facts retract ID` takes back what is wrong")
    else:
        run.out.note("there are no conflicts")


def _side(fact: "FactMemory") -> tuple[str, str]:
    return fact.id, value_of(fact)
