"""Looking after a store: `stats`, `reindex`, `sweep`, `backup`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext, is_served
from orbiter.memory.cli._error_messages import ERROR, without_passwords
from orbiter.memory.cli._lookup import note_nothing
from orbiter.memory.cli._options import (
    Filters,
    command,
    dry_run_option,
    filter_options,
    limit_option,
    memory_options,
    output_options,
    read_when,
    store_options,
    yes_option,
)
from orbiter.memory.cli._output import can_ask, is_agreed, styled
from orbiter.memory.cli._text import counted, dumps, one_line, size

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory

__all__ = ["backup", "reindex", "stats", "sweep"]


@command("stats")
@click.option("--group-by", metavar="FIELD", help="Count by the values of this field.")
@filter_options
@limit_option(50, "At most this many values.")
@memory_options()
@output_options
async def stats(
    run: CommandContext,
    *,
    group_by: str | None,
    filters: Filters,
    limit: int,
) -> None:
    """Count memories, or those with each value of a field.

    FIELD is `tags`, `memory_type`, `status`, `session_id`, `agent_id`, or a key of `--extra`.
    """
    from orbiter.memory.errors import (  # noqa: PLC0415 - `--help` needs it not
        AccessError,
        UnsupportedError,
    )

    if group_by is not None:
        await _count_by(run, group_by, filters, limit)
        return
    if any(value is not None for value in filters.arguments().values()):
        raise UsageError("filters go with `--group-by FIELD`, which counts by its values")
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
        ("forgotten, can be restored", "unknown" if own.forgotten is None else own.forgotten),
    ]
    if entries:
        rows.append(("key-value entries", f"{entries:,}"))
    if whole is not None:
        rows += [
            ("the whole store", url),
            ("memories", f"{whole['items']:,}"),
            ("forgotten", f"{whole['deleted']:,}"),
            ("earlier versions", f"{whole['versions']:,}"),
            *_waiting(whole["unembedded"]),
            ("size", size(whole["bytes"])),
        ]
    run.out.table(rows)


def _waiting(unembedded: int) -> list[tuple[str, object]]:
    """Return the row of what recall finds by its words alone, if there is such a thing."""
    way = "by words only; the next `recall` embeds them"
    return [("not found by meaning yet", f"{unembedded:,} ({way})")] if unembedded else []


async def _entries(memory: "AgentMemory", scope: dict[str, str] | None) -> int | None:
    """Return how many key-value entries a user has; `None` for any other scope."""
    if scope is None or list(scope) != ["user_id"]:
        return None
    from orbiter.memory.errors import AccessError  # noqa: PLC0415 - `--help` needs it not

    try:
        users = await memory.users(
            starts_with=scope["user_id"], limit=1
        )  # the shortest comes first
    except AccessError:  # a server tells it to administrators only
        return None
    return next((each.entries for each in users if each.user_id == scope["user_id"]), 0)


async def _count_by(
    run: CommandContext,
    field: str,
    filters: Filters,
    limit: int,
) -> None:
    async with run.both(meaning=False) as (store, memory):
        counts = await memory.count_by(field, **filters.arguments(), limit=limit)
        if not counts:
            nothing = f"no memory has a value of `{one_line(field)}`"
            await note_nothing(run, store, nothing, kind=filters.kind)
    if run.out.is_json:
        run.out.data([{"value": each.value, "items": each.items} for each in counts])
        return
    run.out.table(
        (each.items, each.value if isinstance(each.value, str) else dumps(each.value, indent=None))
        for each in counts
    )


@command("reindex")
@store_options
@output_options
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


@command("sweep")
@click.option("--forgotten", metavar="WHEN", help="Also what was forgotten before: `30d`, a date.")
@dry_run_option
@yes_option
@store_options
@output_options
async def sweep(run: CommandContext, *, forgotten: str | None, dry_run: bool, yes: bool) -> int:
    """Remove for good what has expired or was forgotten.

    What is older than 90 days: `orbiter-memory forget --all --until 90d --permanently`.
    """
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


@command("backup")
@click.argument("path", type=click.Path(path_type=Path))
@store_options
@output_options
async def backup(run: CommandContext, path: Path) -> None:
    """Copy the store to a new file, also while it is in use."""
    from orbiter.memory.errors import StorageError  # noqa: PLC0415 - `--help` needs it not

    if path.exists():  # noqa: ASYNC240 - nothing else runs
        raise StorageError(f"`{path}` exists already; choose another name for the backup")
    async with run.memory(meaning=False) as memory:
        with run.out.progress("copying", unit="pages") as advance:
            await memory.backup(path, progress=advance)
    bytes_ = path.stat().st_size  # noqa: ASYNC240 - as above
    if run.out.is_json:
        run.out.data({"path": str(path), "bytes": bytes_})
    else:
        run.out.show(styled(f"{path}  {size(bytes_)}"))
