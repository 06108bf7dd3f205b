"""The audit log: `audit`."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.cli._command import (
    CommandContext,
    command,
    is_missing,
    is_served,
    new_app,
    without_a_name,
)
from orbiter.memory.cli._completion import complete_ids
from orbiter.memory.cli._error_messages import ERROR, UsageError, in_shell_words, say
from orbiter.memory.cli._item_ids import find_id
from orbiter.memory.cli._options import Since, read_when
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import ago, counted, moment, one_line, shortened
from orbiter.memory.cli._views import entry

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory
    from orbiter.memory.errors import UnsupportedError
    from orbiter.memory.model.audit import AuditEntry

__all__ = ["app"]

app = new_app()
audit = new_app()
app.add_typer(
    audit,
    name="audit",
    cls=without_a_name(lambda: "list"),
    help="Show and verify the audit log.\n\nWithout a command, it lists it.",
)


def _has_log(memory: "AgentMemory") -> bool:
    """Tell whether an open store keeps a log; `UnsupportedError` if it never can."""
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


@command(audit, "begin", scope=False)
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


@command(audit, "list", by="Only what this actor did.")
async def list_audit(
    run: CommandContext,
    *,
    action: Annotated[
        str | None, typer.Option(help="Only `added`, `updated`, `deleted`, `read`, `erased`, …")
    ] = None,
    item: Annotated[
        str | None,
        typer.Option(help="Only what was done to this memory.", autocompletion=complete_ids),
    ] = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most this many.")] = 20,
    before: Annotated[
        int | None, typer.Option(min=1, help="Continue before this number, the last of a page.")
    ] = None,
) -> None:
    """List what was done, newest first."""
    from orbiter.memory.errors import UnsupportedError  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.model.audit import ACTIONS  # noqa: PLC0415 - `--help` needs it not

    if action is not None and action not in ACTIONS:
        raise UsageError(f"`--action` is one of {', '.join(ACTIONS)}, not `{action}`")
    by = run.target.by
    # Here it is a filter: neither does the actor look, nor must it be a name to sign with.
    run = replace(run, target=replace(run.target, by=None))
    filters: dict[str, Any] = {
        "action": action,
        "by": by,
        "since": read_when("since", since),
        "before": before,
    }
    run.target.scope()  # a mistake in it is told before anything is opened
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
    elif run.out.is_plain():
        run.out.rows(
            (each.number, moment(each.at), each.action, each.by or "", " ".join(each.item_ids))
            for each in entries
        )
    else:
        for each in entries:
            _show_entry(run, each)
    if not entries:
        done = f" by `{one_line(by)}`" if by else ""
        way = run.target.or_all("shows")
        run.out.note(f"nothing is logged for {run.target.describe()}{done}{way}")


def _show_entry(run: CommandContext, each: "AuditEntry") -> None:
    by = f" by {one_line(each.by)}" if each.by else ""
    call = f" ({one_line(each.call)})" if each.call else ""
    version = f" · v{each.version}" if each.version else ""
    noun = (
        ("key-value entry", "key-value entries") if each.is_of_entries else ("memory", "memories")
    )
    many = f" · {counted(each.count, *noun)}" if each.count != len(each.item_ids) else ""
    ids = shortened(one_line(" ".join(each.item_ids)), 2 * run.out.console.width)
    head = styled((each.action, "bold"), f"{call}{by}", (f"  {ago(each.at)}{version}{many}", "dim"))
    lines = [head, styled((ids, "dim"))] if ids else [head]
    run.out.show(entry(styled((f"{each.number:>4}", "cyan")), lines))


@command(audit, "verify", scope=False)
async def verify_audit(
    run: CommandContext,
    *,
    head: Annotated[
        str | None, typer.Option(help="A head you noted: detects a log that was rewritten.")
    ] = None,
) -> int:
    """Check that nobody changed the log or a memory from outside."""
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
    checked = f"{counted(report.entries, 'entry', 'entries')}, {counted(report.items)} compared"
    mark = ("✓ ", "green") if report else ("✗ ", "bold red")
    run.out.show(styled(mark, f"{checked}: {'sound' if report else 'not as it was written'}"))
    run.out.show(styled(("head", "dim")))
    run.out.text(report.head)  # whole, however narrow the terminal is: it is there to be copied
    for problem in problems:
        say(one_line(problem), kind="problem")
    return 0 if report else ERROR


@command(audit, "head", scope=False)
async def audit_head(run: CommandContext) -> None:
    """Print the hash of the last entry, to be noted elsewhere."""
    async with run.memory(meaning=False) as memory:
        if not _has_log(memory):
            raise _no_log(memory)
        head = await memory.audit.head()
    if run.out.is_json:
        run.out.data({"head": head})
    else:
        run.out.text(head)
