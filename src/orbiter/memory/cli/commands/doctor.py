"""Checks of this computer and of the store: `doctor`."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orbiter.memory.cli._command_context import CommandContext, is_missing
from orbiter.memory.cli._embed_progress import embed_waiting
from orbiter.memory.cli._error_messages import ERROR, in_shell_words, without_passwords
from orbiter.memory.cli._options import command, output_options, store_options
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._views import entry
from orbiter.memory.diagnostics import (
    Check,
    check_contents,
    check_environment,
    check_extras,
    check_index,
    check_local_model,
    check_store,
    check_waiting,
)

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory

__all__ = ["doctor", "examine"]

_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "wrong": ("✗", "bold red")}


@command("doctor")
@click.option("--repair", is_flag=True, help="Rebuild what is damaged, embed what is pending.")
@store_options
@output_options
async def doctor(run: CommandContext, *, repair: bool) -> int:
    """Check the settings, this computer and the store; suggest fixes."""
    checks: list[Check] = []
    async for check in examine(run, repair=repair):
        checks.append(check)
        if not run.out.is_json:
            lines = [styled(check.found)]
            lines += [styled((f"→ {check.cure}", "yellow"))] if check.cure else []
            run.out.show(entry(styled(_MARKS[check.state], f" {check.name:<9}"), lines))
    is_well = all(check.state != "wrong" for check in checks)
    if run.out.is_json:
        run.out.data({"ok": is_well, "checks": [asdict(check) for check in checks]})
    return 0 if is_well else ERROR


async def examine(run: CommandContext, *, repair: bool) -> AsyncIterator[Check]:
    """Look at everything; what is wrong with the store ends the walk."""
    for check in (_settings(run), *check_environment(), _model(run), check_extras()):
        yield check
    try:
        memory = run.unopened()
    except (ValueError, ImportError) as exc:
        yield Check("store", "wrong", without_passwords(str(exc)), "give another `--url`")
        return
    if is_missing(memory):
        cure = "orbiter-memory remember creates it"
        yield Check("store", "note", f"{memory.url} does not exist yet", cure)
        return
    try:
        try:
            await memory.init()
        except Exception as exc:  # noqa: BLE001 - whatever keeps it closed is the finding
            yield Check("store", "wrong", f"{memory.url} does not open", _way(exc))
            return
        yield check_store(memory.url)
        async for check in _inside(run, memory, repair=repair):
            yield check
    finally:
        await memory.close()


def _way(error: Exception) -> str:
    return without_passwords(in_shell_words(str(error))) or type(error).__name__


def _settings(run: CommandContext) -> Check:
    """Return what is set, and by what; what is not set is as it is by default."""
    listed = []
    for name, origin in run.target.origins.items():
        value = "is set" if name == "token" else without_passwords(getattr(run.target, name))
        listed.append(f"{name} {value} ({origin})")
    return Check("settings", "ok", ", ".join(listed) or "none: all as by default", "")


_RESTORE = (
    "a table is missing, as after a restore without the extension `vector`: restore the dump into "
    "a new database that has its extensions, as docs/backup.md says"
)


def _cure(*, repair: bool) -> str:
    return "restore a backup" if repair else "orbiter-memory doctor --repair"


def _model(run: CommandContext) -> Check:
    if run.target.model == "none":
        return Check("model", "note", "none, as `--model` says", "")
    return check_local_model(_way)


async def _inside(
    run: CommandContext, memory: "AgentMemory", *, repair: bool
) -> AsyncIterator[Check]:
    from orbiter.memory.errors import (  # noqa: PLC0415
        AccessError,
        StorageError,
        UnsupportedError,
    )

    try:
        with run.out.progress("reading the store", unit="rows") as advance:
            verified = await memory.verify(repair=repair, progress=advance)
    except UnsupportedError:
        yield check_contents(None, cure="")
        return
    except AccessError:
        yield Check("contents", "note", "not checked: this needs the key of an administrator")
        return
    except StorageError as exc:  # so damaged that it cannot even be looked at
        text = _way(exc).partition(";")[0]
        is_incomplete = "relation" in text and "does not exist" in text
        yield Check("contents", "wrong", text, _RESTORE if is_incomplete else _cure(repair=repair))
        return
    yield check_contents(verified, cure=_cure(repair=repair))
    if repair:
        await embed_waiting(run.out, memory)
    try:
        stats = await memory.stats()
        yield check_waiting(stats)
        for check in check_index(stats):
            yield check
    except StorageError:
        if not verified.problems:  # else `contents` has said what is wrong
            raise
