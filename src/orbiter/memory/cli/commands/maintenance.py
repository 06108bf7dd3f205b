"""Looking after a store: `stats`, `reindex`, `sweep`, `backup`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.cli._command import CommandContext, command, is_served, new_app
from orbiter.memory.cli._error_messages import ERROR, UsageError, without_passwords
from orbiter.memory.cli._item_ids import counts_of_user, note_nothing
from orbiter.memory.cli._options import DryRun, Yes, read_when
from orbiter.memory.cli._output import can_ask, is_agreed, styled
from orbiter.memory.cli._text import counted, one_line, size

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory

__all__ = ["app"]

app = new_app()


@command(app, "stats", reads=True)
async def stats(run: CommandContext) -> None:
    """Count memories in a scope and in the whole store."""
    from orbiter.memory.errors import (  # noqa: PLC0415 - `--help` needs it not
        AccessError,
        UnsupportedError,
    )

    async with run.both() as (memory, handle):
        scope = run.target.scope()
        own = await handle.stats()
        entries = await _entries(memory, scope)
        if not own.items and not own.forgotten and not entries:
            await note_nothing(run, memory, f"no memories here{run.target.or_all('counts')}")
        try:
            whole = asdict(await memory.stats())
        except (UnsupportedError, AccessError):  # a Redis counts a scope, and so does a user's key
            whole = None
        url = memory.url
    if run.out.is_json:
        run.out.data(
            {"url": url, "scope": scope, **asdict(own), "entries": entries, "store": whole}
        )
        return
    named = "everyone" if scope is None else ", ".join(scope.values())
    rows: list[tuple[str, object]] = [
        (f"memories of {named}", f"{own.items:,}"),
        ("  forgotten, can be restored", "unknown" if own.forgotten is None else own.forgotten),
    ]
    if entries:
        rows += [("  key-value entries, which `kv` lists", f"{entries:,}")]
    if whole is not None:
        rows += [
            ("the whole store", one_line(url)),
            ("  memories", f"{whole['items']:,}"),
            ("  forgotten", f"{whole['deleted']:,}"),
            ("  earlier versions", f"{whole['versions']:,}"),
            *_waiting(whole["unembedded"]),
            ("  size", size(whole["bytes"])),
        ]
    _table(run, rows)


def _waiting(unembedded: int) -> list[tuple[str, object]]:
    """Return the row of what recall finds by its words alone, if there is such a thing.

    What waits for the index of words is no row: a search reads it directly.
    """
    if not unembedded:
        return []
    way = "by words only; the next `recall` embeds them"
    return [("  not found by meaning yet", f"{unembedded:,} ({way})")]


async def _entries(memory: "AgentMemory", scope: dict[str, str] | None) -> int | None:
    """Return how many key-value entries a user has; `None` for any other scope."""
    if scope is None or list(scope) != ["user_id"]:
        return None
    return (await counts_of_user(memory, scope["user_id"]))[1]


def _table(run: CommandContext, rows: list[tuple[str, object]]) -> None:
    wide = max(len(one_line(name)) for name, _ in rows) + 4
    for name, value in rows:
        indent = len(name) - len(name.lstrip())
        label = " " * indent + one_line(name)
        run.out.show(styled((f"{label:<{wide}}", "" if indent else "bold"), (value, "cyan")))


@command(app, "reindex", scope=False)
async def reindex(run: CommandContext) -> None:
    """Rebuild the search indexes."""
    # Not opened first: a store whose vectors are of another model is what this is for.
    memory = run.unopened()
    run.check_there(memory)
    embedded = 0
    try:
        if is_served(memory) or getattr(memory.store, "embeddings", None) is not None:
            with run.out.progress("embedding", unit="memories") as advance:
                embedded = await memory.reindex(progress=advance)
        with run.out.progress("reading the store", unit="rows") as advance:
            report = await memory.verify(repair=True, progress=advance)
    finally:
        await memory.close()
    if run.out.is_json:
        run.out.data({"checked": report.checked, "embedded": embedded})
    else:
        run.out.show(styled(f"{report.checked:,} rows indexed, {embedded:,} embedded"))


@command(app, "sweep", scope=False)
async def sweep(
    run: CommandContext,
    *,
    forgotten: Annotated[
        str | None,
        typer.Option(
            "--forgotten",
            metavar="WHEN",
            help="Also what was forgotten before this time: `30d`, or a date.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Remove for good what has expired, and on request what was forgotten."""
    before = read_when("forgotten", forgotten)
    if is_served(run.unopened(meaning=False)):
        raise UsageError("a server sweeps its own store; run this where the store is")
    async with run.memory(meaning=False) as memory:
        store: Any = memory.store  # which of these it has is asked below
        if not hasattr(store, "sweep"):
            raise UsageError(f"the store `{memory.url}` removes what has expired by itself")
        expired, purged = await store.count_removable(deleted_before=before)
        if not dry_run:
            what = f"remove {_forgotten(purged)} of all users for good"
            # Without a terminal also if nothing would go: a job must not fail only now and then.
            is_asked = before is not None and not yes and (purged or not can_ask(run.out))
            if is_asked and not is_agreed(run.out, what, []):
                run.out.note("nothing was removed")
                return ERROR
            with run.out.progress("removing", unit=""):
                expired = await store.sweep()
                purged = 0 if before is None else await store.purge(deleted_before=before)
        place = without_passwords(memory.url)
    if run.out.is_json:
        done = {"expired": expired, "forgotten": purged, "dry_run": dry_run, "store": place}
        run.out.data(done)
    else:
        word = "would be removed" if dry_run else "removed"
        counts = f"{expired:,} expired and {_forgotten(purged)}"
        run.out.show(styled(f"{counts} {word} from {one_line(place)}"))
    return 0


def _forgotten(count: int) -> str:
    return counted(count, "forgotten memory", "forgotten memories")


@command(app, "backup", scope=False)
async def backup(
    run: CommandContext,
    path: Annotated[Path, typer.Argument(help="The new file; it must not exist.")],
) -> None:
    """Copy the store to a new file, also while it is in use."""
    from orbiter.memory.errors import StorageError  # noqa: PLC0415 - `--help` needs it not

    if path.exists():
        raise StorageError(f"`{path}` exists already; choose another name for the backup")
    async with run.memory(meaning=False) as memory:
        with run.out.progress("copying", unit="pages") as advance:
            await memory.backup(path, progress=advance)
    bytes_ = path.stat().st_size
    if run.out.is_json:
        run.out.data({"path": str(path), "bytes": bytes_})
    else:
        run.out.show(styled(f"{path}  {size(bytes_)}"))
