"""What has to go: `evict`, `erase`."""

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from orbiter.memory.cli._command import SCOPES, CommandContext, command, is_served, new_app
from orbiter.memory.cli._error_messages import ERROR, UsageError, in_shell_words, say
from orbiter.memory.cli._item_ids import near_user
from orbiter.memory.cli._options import DryRun, Yes
from orbiter.memory.cli._output import ask, can_ask, is_agreed, styled
from orbiter.memory.cli._text import counted, one_line, shortened, size, stored
from orbiter.memory.cli._views import entry, said
from orbiter.memory.cli.commands.keys import commands_to_revoke

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbiter.memory.agent import AgentMemory, ScopedMemory
    from orbiter.memory.agent.eviction import Eviction, EvictionResult
    from orbiter.memory.model.reports import Erasure

__all__ = ["app", "print_erasure"]

app = new_app()

_WIDE = 79
"""Letters of a text: one less than there are of a text that is longer."""
_PAGE = 500
"""Memories that are read at once."""


@command(app, "evict", everyone=False)
async def evict(
    run: CommandContext,
    *,
    max_items: Annotated[
        int | None, typer.Option("--max-items", min=0, help="Keep at most this many memories.")
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", min=0, help="Keep at most this many bytes, as JSON."),
    ] = None,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Keep the first of each group of duplicates.")
    ] = False,
    half_life: Annotated[
        float, typer.Option("--half-life", min=0.01, help="Half-life of a memory's value, in days.")
    ] = 90.0,
    dry_run: DryRun = False,
    yes: Yes = False,
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
        texts = await _texts(memory, evicted, are_gone=yes and not dry_run and is_kept)
        if len(evicted) and not dry_run and not yes:
            way = "" if is_kept else " for good"
            what = f"{counted(len(evicted))} of {run.target.describe()}{way}"
            lines = [f"{each.worth:.3f}  {texts[each.id]}" for each in evicted]
            if not is_agreed(run.out, f"forget {what}", lines):
                run.out.note("nothing was forgotten")
                return ERROR
            with run.out.progress("forgetting", unit="") as advance:
                evicted = await memory.evict(**options, progress=advance)
    _print_evicted(run, evicted, texts, dry_run=dry_run)
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


async def _texts(
    memory: "ScopedMemory", evicted: "EvictionResult", *, are_gone: bool
) -> "Mapping[str, str]":
    """Return what each memory says, cut off where it is longer; of a call, which tools."""
    texts = {each.id: shortened(one_line(each.text), _WIDE) for each in evicted}
    silent = [item_id for item_id, text in texts.items() if not text]
    for start in range(0, len(silent), _PAGE):
        some = silent[start : start + _PAGE]
        page = await memory.list(where={"id": {"$in": some}}, limit=_PAGE, forgotten=are_gone)
        texts |= {item.id: said(item) for item in page}
    return texts


def _print_evicted(
    run: CommandContext, evicted: "EvictionResult", texts: "Mapping[str, str]", *, dry_run: bool
) -> None:
    def text(each: "Eviction") -> str:  # one that came after the question is told as it is
        return texts.get(each.id) or shortened(one_line(each.text), _WIDE)

    if run.out.is_json:
        run.out.data({**asdict(evicted), "dry_run": dry_run})
    elif run.out.is_plain():
        run.out.rows((each.id, f"{each.worth:.3f}", each.reason, text(each)) for each in evicted)
    else:
        for each in evicted:
            why = "duplicate" if each.reason == "duplicate" else size(each.bytes)
            lines = [styled(text(each)), styled((f"{each.id} · {why}", "dim"))]
            run.out.show(entry(styled((f"{each.worth:.3f}", "yellow")), lines))


@command(app, "erase", everyone=False)
async def erase(
    run: CommandContext,
    *,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the report to this new file, as JSON.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Erase everything in a scope permanently, and verify it."""
    scope: dict[str, Any] = run.target.scope() or {}
    if not any(getattr(run.target, name) for name in SCOPES):
        user = one_line(scope.get("user_id") or "NAME")
        raise UsageError(f"give a scope, such as `--user {user}`; nothing is erased by default")
    if report is not None:
        _check_new(report)
    async with run.memory(meaning=False) as memory:
        there = await _with_keys(run, memory, await memory.erase(**scope, dry_run=True))
        counts = stored(there.items, there.entries, there.forgotten)
        what = f"{counts} of {run.target.describe()}"
        if dry_run:
            with _new_file(report) as file:
                _write_report(file, there, dry_run=True)
            if run.out.is_json:
                run.out.data(there.to_dict())
            else:
                run.out.show(styled(f"would erase {what}"))
            if not there.total:
                await _say_nothing(run, memory, scope)
            _say_keys(run, there)
            if report is not None:
                run.out.note(f"the report of this dry run is in `{report}`")
            return 0
        if not yes and not _is_meant(run, what, scope):
            run.out.note("nothing was erased")
            return ERROR
        by = run.target.setting("by")[0]
        with _new_file(report) as file:
            with run.out.progress("erasing", unit="") as advance:
                done = await memory.erase(**scope, by=by, progress=advance)
            done = await _with_keys(run, memory, done)
            # Before the file is written: on a full disk, this is the only report.
            code = print_erasure(run, done)
            _write_report(file, done)
        for place in done.not_searched:
            say(f"not searched: {place}", kind="note")
        if not done.found:
            await _say_nothing(run, memory, scope)
        elif "user_id" in scope:
            _say_elsewhere(scope["user_id"])
        _say_keys(run, done)
    if report is not None:
        run.out.note(f"the report is in `{report}`")
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


def _check_new(path: Path) -> None:
    """Refuse a file that is there, or has no place, before anybody is asked."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"`{path}` exists; give `--report` a new file")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder `{path.absolute().parent}` for `--report`")


@contextmanager
def _new_file(path: Path | None) -> Iterator[TextIO | None]:
    """Open the file of a report, as after the erasure there is nothing to report from.

    It is removed again if nothing was written.
    """
    if path is None:
        yield None
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as exc:
        raise UsageError(
            f"`{path}` cannot be written: {exc.strerror}; nothing was erased, "
            "give `--report` another file"
        ) from exc
    try:
        with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123 - of a file that is open
            yield file
    finally:
        if not path.stat().st_size:
            path.unlink()


def _write_report(file: TextIO | None, erasure: "Erasure", *, dry_run: bool = False) -> None:
    """Write a report; one of a dry run says so first, as nothing was erased or searched."""
    if file is not None:
        mark = {"dry_run": True} if dry_run else {}
        report = {**mark, **erasure.to_dict()}
        file.write(f"{json.dumps(report, indent=2, ensure_ascii=False)}\n")


def _is_meant(run: CommandContext, what: str, scope: dict[str, str]) -> bool:
    """Have the name typed of whoever is erased: a `y` comes too easily."""
    name = scope.get("user_id") or list(scope.values())[-1]
    if not can_ask(run.out):
        raise UsageError(f"this would erase {what} for good; give `--yes`, or try `--dry-run`")
    run.out.draw(styled(("!", "bold red"), f" This erases {what} for good."))
    return ask(f"Type `{one_line(name)}` to continue:") == name
