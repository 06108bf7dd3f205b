"""What has to go: `evict`, `erase`."""

import shlex
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TextIO

import click
from click import UsageError

from orbiter.memory.cli._command_context import SCOPES, CommandContext, is_served
from orbiter.memory.cli._error_messages import ERROR, in_shell_words, say
from orbiter.memory.cli._lookup import near_user
from orbiter.memory.cli._options import (
    command,
    dry_run_option,
    memory_options,
    output_options,
    yes_option,
)
from orbiter.memory.cli._output import ask, can_ask, is_agreed, styled
from orbiter.memory.cli._text import counted, dumps, one_line, shortened, size, stored
from orbiter.memory.cli.commands.keys import commands_to_revoke

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbiter.memory.agent import AgentMemory
    from orbiter.memory.agent.eviction import Eviction, EvictionResult
    from orbiter.memory.model.reports import Erasure

__all__ = ["erase", "evict", "print_erasure"]

_WIDE = 79
"""Letters of a text: one less than there are of a text that is longer."""


@command("evict")
@click.option("--max-items", type=click.IntRange(min=0), help="Keep at most this many memories.")
@click.option("--max-bytes", type=click.IntRange(min=0), help="Keep at most this many bytes.")
@click.option("--duplicates", is_flag=True, help="Keep the first of each group of duplicates.")
@click.option(
    "--half-life",
    type=click.FloatRange(min=0.01),
    default=90.0,
    show_default=True,
    help="Days after which a memory is worth half.",
)
@dry_run_option
@yes_option
@memory_options(everyone=False, writes=True)
@output_options
async def evict(
    run: CommandContext,
    *,
    max_items: int | None,
    max_bytes: int | None,
    duplicates: bool,
    half_life: float,
    dry_run: bool,
    yes: bool,
) -> int:
    """Limit size: forget the least valuable memories first."""
    if max_items is None and max_bytes is None and not duplicates:
        raise UsageError("set a budget: `--max-items`, `--max-bytes` or `--duplicates`")
    options: dict[str, Any] = {
        "max_items": max_items,
        "max_bytes": max_bytes,
        "duplicates": duplicates,
        "half_life_hours": 24 * half_life,
    }
    async with run.scoped(meaning=False) as memory:
        is_kept = (await memory.stats()).forgotten is not None  # not by a Redis
        with run.out.progress("weighing", unit="") as advance:
            evicted = await memory.evict(**options, dry_run=dry_run or not yes, progress=advance)
        if len(evicted) and not dry_run and not yes:
            way = "" if is_kept else " for good"
            what = f"{counted(len(evicted))} of {run.target.describe()}{way}"
            lines = [f"{each.worth:.3f}  {_text(each)}" for each in evicted]
            if not is_agreed(run.out, f"forget {what}", lines):
                run.out.note("nothing was forgotten")
                return ERROR
            with run.out.progress("forgetting", unit="") as advance:
                evicted = await memory.evict(**options, progress=advance)
    _print_evicted(run, evicted, dry_run=dry_run)
    left = f"{evicted.kept:,} ({size(evicted.kept_bytes)})"
    if dry_run:
        run.out.note(f"{len(evicted):,} would be forgotten, {left} would stay")
    else:
        undo = "; `restore ID` undoes it" if is_kept else ""
        run.out.note(f"{len(evicted):,} forgotten, {left} stay{undo}")
    if not evicted.is_met:
        say(
            "still over the budget: pinned memories, current facts and instructions are never "
            "forgotten"
        )
        return ERROR
    return 0


def _text(each: "Eviction") -> str:
    return shortened(one_line(each.text), _WIDE)


def _print_evicted(run: CommandContext, evicted: "EvictionResult", *, dry_run: bool) -> None:
    if run.out.is_json:
        run.out.data({**asdict(evicted), "dry_run": dry_run})
    else:
        rows = [(each.id, f"{each.worth:.3f}", each.reason, _text(each)) for each in evicted]
        run.out.table(rows, ("id", "worth", "reason", "text"))


@command("erase")
@click.option(
    "--report", type=click.File("x", lazy=False), help="Write the report to this new file, as JSON."
)
@dry_run_option
@yes_option
@memory_options(everyone=False, writes=True)
@output_options
async def erase(run: CommandContext, *, report: TextIO | None, dry_run: bool, yes: bool) -> int:
    """Erase everything in a scope permanently, and verify it."""
    scope: dict[str, Any] = run.target.scope() or {}
    if not any(run.target.is_given(name) for name in SCOPES):
        user = one_line(scope.get("user_id") or "NAME")
        raise UsageError(f"give a scope, such as `--user {user}`; nothing is erased by default")
    async with run.memory(meaning=False) as memory:
        there = await _with_keys(run, memory, await memory.erase(**scope, dry_run=True))
        counts = stored(there.items, there.entries, there.forgotten)
        what = f"{counts} of {run.target.describe()}"
        if dry_run:
            counted_only = {"dry_run": True, **there.to_dict()}
            if report is not None:
                report.write(f"{dumps(counted_only)}\n")
            if run.out.is_json:
                run.out.data(counted_only)
            else:
                run.out.show(styled(f"would erase {what}"))
            if not there.total:
                await _say_nothing(run, memory, scope)
            _say_keys(run, there)
            return 0
        if not yes and not _is_meant(run, what, scope):
            run.out.note("nothing was erased")
            return ERROR
        by = run.target.actor()
        with run.out.progress("erasing", unit="") as advance:
            done = await memory.erase(**scope, by=by, progress=advance)
        done = await _with_keys(run, memory, done)
        code = print_erasure(run, done)
        if report is not None:
            report.write(f"{dumps(done.to_dict())}\n")
        for place in done.not_searched:
            say(f"not searched: {place}", kind="note")
        if not done.found:
            await _say_nothing(run, memory, scope)
        elif "user_id" in scope:
            _say_elsewhere(scope["user_id"])
        _say_keys(run, done)
    return code


def print_erasure(run: CommandContext, done: "Erasure", ids: "Sequence[str] | None" = None) -> int:
    """Print what was erased and checked, as JSON with *ids*; return the code to end with."""
    problems = [in_shell_words(each) for each in done.problems]
    if run.out.is_json:
        memories = {} if ids is None else {"ids": list(ids)}
        run.out.data({**memories, **done.to_dict(), "problems": problems})
        return 0 if done else ERROR
    head = str(done).partition("\n  - ")[0].splitlines()
    run.out.show(*(styled(line) for line in head[:-1]))
    if done.total or not done:  # nothing to erase proves nothing: the name may be misspelt
        run.out.show(styled(("✓ " if done else "✗ ", "green" if done else "bold red"), head[-1]))
    for problem in problems:
        say(problem, kind="problem")
    return 0 if done else ERROR


async def _with_keys(run: CommandContext, memory: "AgentMemory", done: "Erasure") -> "Erasure":
    """Return the report with the keys that are left; that of a server has them."""
    if is_served(memory):
        return done
    return replace(done, api_keys=await commands_to_revoke(run.target, done.erased))


def _say_keys(run: CommandContext, done: "Erasure") -> None:
    """Say which keys of a server are left: who has one may store something again."""
    for key, way in done.api_keys.items():
        say(f"the API key `{key}` is still for {run.target.describe()}: `{way}`", kind="note")


async def _say_nothing(run: CommandContext, memory: "AgentMemory", scope: dict[str, Any]) -> None:
    near = await near_user(memory, scope.get("user_id"))
    say(f"nothing is stored here of {run.target.describe()}{near}", kind="note")


def _say_elsewhere(user: str) -> None:
    way = shlex.join(["orbiter-memory", "list", "--all", "--query", one_line(user)])
    say(f"texts of others may still name them: `{way}`", kind="note")
    say("backups and exports were not searched", kind="note")


def _is_meant(run: CommandContext, what: str, scope: dict[str, str]) -> bool:
    """Have the name typed of whoever is erased: a `y` comes too easily."""
    name = scope.get("user_id") or list(scope.values())[-1]
    if not can_ask(run.out):
        raise UsageError(f"this would erase {what} for good; give `--yes`, or try `--dry-run`")
    run.out.draw(styled(("!", "bold red"), f" This erases {what} for good."))
    return ask(f"Type `{one_line(name)}` to continue:") == name
