"""The audit log: `audit`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext, is_missing, is_served
from orbiter.memory.cli._error_messages import ERROR, in_shell_words, say
from orbiter.memory.cli._lookup import find_id
from orbiter.memory.cli._options import (
    Group,
    limit_option,
    memory_options,
    output_options,
    read_when,
    store_options,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import counted, moment, one_line

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory
    from orbiter.memory.errors import UnsupportedError

__all__ = ["audit", "begin_audit", "list_audit", "verify_audit"]


@click.group("audit", cls=Group)
def audit() -> None:
    """Show and verify the audit log."""


def _has_log(memory: "AgentMemory") -> bool:
    """Return whether an open store keeps a log; `UnsupportedError` if it never can."""
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415 - `--help` needs it not

    if is_served(memory):  # and says so itself if it keeps none
        return True
    if not hasattr(memory.store, "verify_audit"):
        raise UnsupportedError(f"`{memory.url}` cannot keep an audit log; SQLite and Postgres can")
    return getattr(memory.store, "audit", None) is not None


def _no_log(memory: "AgentMemory") -> "UnsupportedError":
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415

    return UnsupportedError(
        f"there is no audit log at `{memory.url}`; `orbiter-memory audit begin` starts one"
    )


@audit.command("begin")
@store_options
@output_options
async def begin_audit(run: CommandContext) -> None:
    """Start the log, with what the store holds already."""
    is_new = is_missing(run.unopened(meaning=False))
    async with run.memory(meaning=False, creates=True) as memory:
        if is_served(memory):
            raise UsageError(
                f"`{memory.url}` is a server; run `orbiter-memory audit begin` there, on its store"
            )
        is_begun = _has_log(memory)
        there = await memory.unscoped().stats()
    taken = 0 if is_begun else there.items + (there.forgotten or 0)
    if not is_begun:
        _check_alone(memory)
        async with run.unopened(meaning=False, audit="writes"):
            pass  # opening begins it
    if run.out.is_json:
        run.out.data({"began": not is_begun, "items": taken})
    elif is_begun:
        run.out.show(styled("the log has been started already"))
    else:
        there_is = f"new store `{memory.url}`" if is_new else f"{counted(taken)} recorded"
        message = f"{there_is}; every write from now on is logged"
        run.out.show(styled(("✓ ", "green"), message))


def _check_alone(memory: "AgentMemory") -> None:
    """Raise `StorageError` if another process has the file open: it would go on without the log.

    Of a database nobody knows that: a note has to do.
    """
    from orbiter.memory.backends.sqlite.file_checks import alone  # noqa: PLC0415
    from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore  # noqa: PLC0415

    if isinstance(memory.store, SQLiteMemoryStore):
        with alone(memory.store.db_path):
            return
    say(
        "programs that have the store open now write without the log until they open it again: "
        "restart them, such as `orbiter-memory serve`",
        kind="note",
    )


@audit.command("list")
@click.option("--action", help="Only `added`, `updated`, `deleted`, `read`, `erased`, …")
@click.option("--by", "actor", help="Only what this actor did.")
@click.option("--item", help="Only what was done to this memory.")
@click.option("--since", help="Only from this time on.")
@limit_option(20)
@click.option("--cursor", type=click.IntRange(min=1), help="Continue after this number.")
@memory_options()
@output_options
async def list_audit(
    run: CommandContext,
    *,
    action: str | None,
    actor: str | None,
    item: str | None,
    since: str | None,
    limit: int,
    cursor: int | None,
) -> None:
    """List what was done, newest first."""
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.model.audit import ACTIONS  # noqa: PLC0415 - `--help` needs it not

    if action is not None and action not in ACTIONS:
        raise UsageError(f"`--action` is one of {', '.join(ACTIONS)}, not `{action}`")
    filters: dict[str, Any] = {
        "action": action,
        "by": actor,
        "since": read_when("since", since),
        "before": cursor,
    }
    async with run.memory(meaning=False) as memory:
        filters |= run.target.scope() or {}
        _has_log(memory)  # a store that cannot keep one says so
        if item is not None:
            scope = run.target.scope()
            handle = memory.unscoped() if scope is None else memory.scope(**scope)
            item = await find_id(handle, item)
        try:
            entries = await memory.audit.entries(**filters, item_id=item, limit=limit)
        except UnsupportedError:
            raise _no_log(memory) from None
    if run.out.is_json:
        run.out.data([asdict(each) for each in entries])
    else:
        rows = [
            (each.number, moment(each.at), each.action, each.by or "", " ".join(each.item_ids))
            for each in entries
        ]
        run.out.table(rows, ("number", "time", "action", "by", "ids"))
    if not entries:
        done = f" by `{one_line(actor)}`" if actor else ""
        way = run.target.or_all("shows")
        run.out.note(f"nothing is logged for {run.target.describe()}{done}{way}")


@audit.command("verify")
@click.option("--head", help="A head you noted: detects a log that was rewritten.")
@store_options
@output_options
async def verify_audit(run: CommandContext, *, head: str | None) -> int:
    """Check that nobody changed the log or a memory from outside.

    It prints the head, the hash of the last entry, and in a pipe nothing else: keep it where those
    who can write to the store cannot change it.
    """
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415

    async with run.memory(meaning=False) as memory:
        has_log = _has_log(memory)
        try:
            with run.out.progress("checking", unit="") as advance:
                report = await memory.audit.verify(head=head, progress=advance)
        except UnsupportedError:
            if has_log:
                raise
            raise _no_log(memory) from None
    problems = [in_shell_words(str(each)) for each in report.problems]
    if run.out.is_json:
        listed = [
            asdict(each) | {"what": text}
            for each, text in zip(report.problems, problems, strict=True)
        ]
        run.out.data({**asdict(report), "problems": listed, "sound": bool(report)})
        return 0 if report else ERROR
    for problem in problems:
        say(one_line(problem), kind="problem")
    if run.out.is_plain():  # to be noted elsewhere, if it can be trusted
        if report:
            run.out.text(report.head)
        return 0 if report else ERROR
    checked = f"{counted(report.entries, 'entry', 'entries')}, {counted(report.items)} compared"
    mark = ("✓ ", "green") if report else ("✗ ", "bold red")
    run.out.show(styled(mark, f"{checked}: {'sound' if report else 'not as it was written'}"))
    run.out.show(styled(("head", "dim")))
    run.out.text(report.head)  # whole, however narrow the terminal is: it is there to be copied
    return 0 if report else ERROR
