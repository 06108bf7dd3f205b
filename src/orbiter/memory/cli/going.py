"""What has to go, and the record of it: `evict`, `erase`, `audit`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.cli._asking import ask, can_ask
from orbiter.memory.cli._errors import ERROR, UsageError, in_shell_words, say
from orbiter.memory.cli._frame import SCOPES, Run, command, new_app
from orbiter.memory.cli._groups import without_a_name
from orbiter.memory.cli._options import Since, read_when
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import ago, counted, moment, one_line, shortened, size
from orbiter.memory.cli._views import entry

if TYPE_CHECKING:
    from orbiter.memory.agent._evicting import Evicted, Eviction
    from orbiter.memory.audit import AuditEntry

__all__ = ["app"]

app = new_app()
audit = new_app()
app.add_typer(
    audit,
    name="audit",
    cls=without_a_name(lambda: "list"),
    help="Show and check the record of what was done.\n\nWithout a command, it lists it.",
)

_BEGIN = 'a program begins one with `AgentMemory(…, audit="writes")`'
_SHOWN = 5
"""Memories that are shown before someone is asked whether they may go."""
_WIDE = 79
"""Letters of a text: one less than there are of a text that is longer."""
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@command(app, "evict", everyone=False)
async def evict(
    run: Run,
    *,
    max_items: Annotated[
        int | None, typer.Option("--max-items", min=0, help="Keep at most so many memories.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=0, help="Keep at most so many bytes, as JSON.")
    ] = None,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Keep the first of those that say the same.")
    ] = False,
    half_life: Annotated[
        float, typer.Option("--half-life", min=0.01, help="Days in which worth is halved.")
    ] = 90.0,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Forget what is worth least until a budget is kept."""
    if max_items is None and max_bytes is None and not duplicates:
        raise UsageError("say how much may stay: `--max-items`, `--max-bytes` or `--duplicates`")
    asked: dict[str, Any] = {
        "max_items": max_items,
        "max_bytes": max_bytes,
        "duplicates": duplicates,
        "half_life_hours": 24 * half_life,
    }
    async with run.scoped(meaning=False) as memory:
        is_kept = (await memory.stats()).forgotten is not None  # not by a Redis
        found = await memory.evict(**asked, dry_run=dry_run or not yes)
        if len(found) and not dry_run and not yes:
            if not _is_agreed(run, found, "" if is_kept else " for good"):
                run.out.note("nothing was forgotten")
                return ERROR
            found = await memory.evict(**asked)
    _print_evicted(run, found, dry_run=dry_run)
    left = f"{found.kept:,} ({size(found.kept_bytes)})"
    if dry_run:
        run.out.note(f"{len(found):,} would be forgotten, {left} would stay")
    else:
        undo = "; `restore ID` undoes it" if is_kept else ""
        run.out.note(f"{len(found):,} forgotten, {left} stay{undo}")
    if not found.is_met:
        say("the budget is not kept: what is pinned, holds or instructs the model stays")
        return ERROR
    return 0


def _is_agreed(run: Run, found: "Evicted", how: str) -> bool:
    what = f"{counted(len(found))} of {run.place.told()}{how}"
    if not can_ask(run.out):
        raise UsageError(f"this would forget {what}; give `--yes`, or try `--dry-run`")
    for each in found.items[:_SHOWN]:
        run.out.draw(styled(f"  {_said(each)}"))
    more = f" ({len(found) - _SHOWN:,} more)" if len(found) > _SHOWN else ""
    return (ask(f"Forget {what}{more}? [y/N]") or "").lower() in ("y", "yes")


def _said(each: "Eviction") -> str:
    """Return the beginning of what a memory says; it is cut off where it is longer."""
    return shortened(one_line(each.text), _WIDE)


def _print_evicted(run: Run, found: "Evicted", *, dry_run: bool) -> None:
    if run.out.is_json:
        run.out.data({**asdict(found), "dry_run": dry_run})
    elif run.out.is_plain():
        run.out.rows((each.id, f"{each.worth:.3f}", each.reason, each.text) for each in found)
    else:
        for each in found:
            why = "says what another says" if each.reason == "duplicate" else size(each.bytes)
            lines = [styled(_said(each)), styled((f"{each.id} · {why}", "dim"))]
            run.out.show(entry(styled((f"{each.worth:.3f}", "yellow")), lines))


@command(app, "erase", everyone=False)
async def erase(run: Run, *, dry_run: DryRun = False, yes: Yes = False) -> int:
    """Erase everything of a scope for good, and check."""
    scope = run.place.scope() or {}
    if not any(getattr(run.place, name) for name in SCOPES):
        raise UsageError("say whose, with `--user` or another; nothing is erased by default")
    async with run.memory(meaning=False) as memory:
        there = await memory.scope(**scope).stats()
        forgotten = f" and {there.forgotten:,} forgotten" if there.forgotten else ""
        what = f"{counted(there.items)}{forgotten} of {run.place.told()}"
        if dry_run:
            if run.out.is_json:
                run.out.data({"dry_run": True, "scope": scope, **asdict(there)})
            else:
                run.out.show(styled(f"would erase {what}"))
            return 0
        if not yes and not _is_meant(run, what, scope):
            run.out.note("nothing was erased")
            return ERROR
        done = await memory.erase(**scope)
    problems = [in_shell_words(each) for each in done.problems]
    if run.out.is_json:
        run.out.data(
            {"dry_run": False, "scope": scope, **asdict(done)}
            | {"problems": problems, "verified": bool(done)}
        )
        return 0 if done else ERROR
    head = str(done).partition("\n  - ")[0].splitlines()
    run.out.show(*(styled(line) for line in head[:-1]))
    run.out.show(styled(("✓ " if done else "✗ ", "green" if done else "bold red"), head[-1]))
    for problem in problems:
        say(problem, kind="problem")
    return 0 if done else ERROR


def _is_meant(run: Run, what: str, scope: dict[str, str]) -> bool:
    """Have the name typed of whoever is erased: a `y` comes too easily."""
    name = scope.get("user_id") or list(scope.values())[-1]
    if not can_ask(run.out):
        raise UsageError(f"this would erase {what} for good; give `--yes`, or try `--dry-run`")
    run.out.draw(styled(("!", "bold red"), f" This erases {what} for good."))
    return ask(f"Type `{one_line(name)}` to go on:") == name


@command(audit, "list")
async def list_audit(
    run: Run,
    *,
    action: Annotated[
        str | None, typer.Option(help="Only `added`, `updated`, `deleted`, `read`, `erased`, …")
    ] = None,
    item: Annotated[str | None, typer.Option(help="Only what was done to this memory.")] = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many.")] = 20,
    before: Annotated[
        int | None, typer.Option(min=1, help="Go on before this number, the last of a page.")
    ] = None,
) -> None:
    """List what was done, newest first."""
    from orbiter.memory.audit import ACTIONS  # noqa: PLC0415 - `--help` needs it not

    if action is not None and action not in ACTIONS:
        raise UsageError(f"`--action` is one of {', '.join(ACTIONS)}, not `{action}`")
    asked: dict[str, Any] = {
        **(run.place.scope() or {}),
        "action": action,
        "item_id": item,
        "since": read_when("since", since),
        "before": before,
    }
    async with run.memory(meaning=False) as memory:
        found = await memory.audit.entries(**asked, limit=limit)
    if run.out.is_json:
        run.out.data([asdict(each) for each in found])
    elif run.out.is_plain():
        run.out.rows(
            (each.number, moment(each.at), each.action, each.by or "", " ".join(each.item_ids))
            for each in found
        )
    else:
        for each in found:
            _show_entry(run, each)
    if not found:
        told = run.place.told()
        run.out.note(f"nothing is logged of {told}; `--all` looks at everyone's, and {_BEGIN}")


def _show_entry(run: Run, each: "AuditEntry") -> None:
    by = f" by {one_line(each.by)}" if each.by else ""
    call = f" ({one_line(each.call)})" if each.call else ""
    version = f" · v{each.version}" if each.version else ""
    many = f" · {counted(each.count)}" if each.count != len(each.item_ids) else ""
    ids = shortened(one_line(" ".join(each.item_ids)), 2 * run.out.console.width)
    head = styled((each.action, "bold"), f"{call}{by}", (f"  {ago(each.at)}{version}{many}", "dim"))
    lines = [head, styled((ids, "dim"))] if ids else [head]
    run.out.show(entry(styled((f"{each.number:>4}", "cyan")), lines))


@command(audit, "verify", scope=False)
async def verify_audit(
    run: Run,
    *,
    head: Annotated[
        str | None, typer.Option(help="A head you noted: finds a log that was written anew.")
    ] = None,
) -> int:
    """Check that nobody changed the record, or a memory behind its back."""
    async with run.memory(meaning=False) as memory:
        found = await memory.audit.verify(head=head)
    problems = [in_shell_words(str(each)) for each in found.problems]
    if run.out.is_json:
        told = [
            asdict(each) | {"what": text}
            for each, text in zip(found.problems, problems, strict=True)
        ]
        run.out.data({**asdict(found), "problems": told, "sound": bool(found)})
        return 0 if found else ERROR
    checked = f"{counted(found.entries, 'entry', 'entries')}, {counted(found.items)} compared"
    mark = ("✓ ", "green") if found else ("✗ ", "bold red")
    run.out.show(styled(mark, f"{checked}: {'sound' if found else 'not as it was written'}"))
    run.out.show(styled((f"head {found.head}", "dim")))
    for problem in problems:
        say(one_line(problem), kind="problem")
    return 0 if found else ERROR


@command(audit, "head", scope=False)
async def audit_head(run: Run) -> None:
    """Print the hash of the last entry, to be noted elsewhere."""
    from orbiter.memory.audit import START  # noqa: PLC0415
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415

    async with run.memory(meaning=False) as memory:
        head = await memory.audit.head()
        url = memory.url
    if head == START:
        raise UnsupportedError(f"there is no audit log at `{url}`; {_BEGIN}")
    if run.out.is_json:
        run.out.data({"head": head})
    else:
        run.out.text(head)
