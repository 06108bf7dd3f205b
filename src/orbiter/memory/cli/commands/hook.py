"""What Claude Code calls at the start of a session and when it stops: `hook`.

A hook must never be in the agent's way: it waits for nothing that takes long, and whatever goes
wrong, its exit code is 0 (2 would block the agent).
"""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._error_messages import error_text, say
from orbiter.memory.cli._launch import settings_of
from orbiter.memory.cli._options import command, memory_options

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.context.prompt_fence import Entry
    from orbiter.memory.model.items import MemoryItem

__all__ = ["hook"]

_START = "SessionStart"
_ENDS = ("Stop", "SessionEnd", "PreCompact")
_FIELDS = ("hook_event_name", "transcript_path")
_FORMAT = "claude-code"
_MAX_FACTS = 50
_MAX_NOTES = 20
_MAX_LOOKED = 50
"""Questions that are looked at for one of another session."""
_ROUNDS = 3
_LONGEST = 600
"""Characters of one text that a session begins with."""
_WITHIN = 10.0
"""Seconds that the start of a session may take: a server may be slow, or gone."""
_PREFACE = "From earlier sessions: facts, then notes and the end of the last session, newest first."


@command("hook")
@click.option(
    "--budget", type=click.IntRange(min=1), default=1_500, help="At most this many tokens."
)
@click.option("--wait", is_flag=True, help="Remember the transcript before returning.")
@memory_options(everyone=False, writes=True)
async def hook(run: CommandContext, *, budget: int, wait: bool) -> None:
    """Answer a hook of Claude Code, which is read from stdin."""
    event: dict[str, Any] = {}
    answer: dict[str, object] | None = None
    try:
        event = _read_event()
        if event.get("hook_event_name") == _START:
            answer = await _context(run, event, budget)
        elif event.get("hook_event_name") in _ENDS and _transcript(event) is not None:
            await (_remember(run, event) if wait else _remember_later(run, event))
    except Exception as exc:  # noqa: BLE001 - the agent goes on, whatever becomes of its memory
        reason = error_text(exc)
        say(reason, kind="note")
        if event.get("hook_event_name") == _START:  # once a session, so that it is not unseen
            answer = {"systemMessage": f"orbiter-memory: {reason}"}
    if answer:
        sys.stdout.write(f"{json.dumps(answer)}\n")


def _read_event() -> dict[str, Any]:
    if sys.stdin.isatty():
        raise UsageError("this command is called by Claude Code; `install claude-code --hooks`")
    try:
        event = json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError):
        raise UsageError("stdin holds no event of a hook: it is not valid JSON") from None
    if not isinstance(event, dict):
        raise UsageError("stdin holds no event of a hook: it is not a JSON object")
    return event


def _transcript(event: dict[str, Any]) -> Path | None:
    """Return the file of the session, if there is one by now."""
    named = event.get("transcript_path")
    path = Path(named).expanduser() if isinstance(named, str) and named else None
    return path if path is not None and path.is_file() else None


async def _remember(run: CommandContext, event: dict[str, Any]) -> None:
    """Store what is new in the transcript; vectors are for a process that has more time."""
    from orbiter.memory.transfer import import_file  # noqa: PLC0415 - `--help` needs it not

    path = _transcript(event)
    if path is None:
        return
    async with run.scoped(meaning=False, creates=True) as handle:
        done = await import_file(handle, path, format=_FORMAT)
    say(f"{done.stored} messages remembered", kind="note")


async def _remember_later(run: CommandContext, event: dict[str, Any]) -> None:
    """Start a process of its own for it: the agent may end before it does."""
    options, env = settings_of(run.target)
    child = subprocess.Popen(  # noqa: S603, ASYNC220 - it starts this program, and is not waited for
        [sys.executable, "-m", "orbiter.memory.cli", "hook", "--wait", *options],
        stdin=subprocess.PIPE,
        # Whoever called this waits until nobody holds its pipes.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **env},
        start_new_session=True,
    )
    child.returncode = 0  # it outlives this process; else Python warns that it still runs
    if child.stdin is not None:
        child.stdin.write(json.dumps({name: event.get(name) for name in _FIELDS}).encode())
        child.stdin.close()


async def _context(
    run: CommandContext, event: dict[str, Any], budget: int
) -> dict[str, object] | None:
    """Return the answer that adds to the context, `None` if nothing is remembered yet."""
    try:
        async with asyncio.timeout(_WITHIN), run.scoped(meaning=False) as handle:
            text = _fenced(await _entries(handle, event), budget)
    except FileNotFoundError:  # the first session of all
        return None
    except TimeoutError:
        raise TimeoutError(f"the memory did not answer in {_WITHIN:.0f} seconds") from None
    output = {"hookEventName": _START, "additionalContext": text}
    return {"hookSpecificOutput": output} if text else None


async def _entries(handle: "ScopedMemory", event: dict[str, Any]) -> "list[Entry]":
    from orbiter.memory.context.entries import (  # noqa: PLC0415
        default_trust,
        memory_entry,
        message_entries,
    )
    from orbiter.memory.model.items import MemoryStatus  # noqa: PLC0415

    facts = list((await handle.facts.all()).values())[:_MAX_FACTS]
    notes = await handle.list(memory_type="item", status=MemoryStatus.ACCEPTED, limit=_MAX_NOTES)
    entries = [memory_entry(each, default_trust) for each in (*facts, *notes)]
    for item in await _last_session(handle, event):
        entries += message_entries(item, default_trust, precision="minute")
    return [
        replace(each, content=f"{each.content[: _LONGEST - 1]}…")
        if len(each.content) > _LONGEST
        else each
        for each in entries
    ]


async def _last_session(handle: "ScopedMemory", event: dict[str, Any]) -> "list[MemoryItem]":
    """Return what was said at the end of the session before this one, newest first."""
    if handle.scope.session_id is not None:  # the memory of one session has no other
        return []
    # A memory of several projects knows the folder of each message.
    is_shared = handle.scope.task_id is None and handle.scope.agent_id is None
    where = {"folder": str(event.get("cwd"))} if is_shared else None
    own = f"{_FORMAT}:{event.get('session_id')}"
    for question in await handle.list(memory_type="human", where=where, limit=_MAX_LOOKED):
        session = question.metadata.session_id
        if session and session != own and "/" not in session:  # which only a subagent's has
            items = await handle.chat(session).items(rounds=_ROUNDS)
            said = [each for each in items if each.memory_type in ("human", "ai") and each.content]
            return said[::-1]
    return []


def _fenced(entries: "list[Entry]", budget: int) -> str:
    """Return the *entries* that fit into *budget* tokens as data for a model, empty if none do."""
    from orbiter.memory.context.prompt_fence import (  # noqa: PLC0415
        common_year,
        enclose,
        entry_line,
        new_mark,
    )
    from orbiter.memory.conversation.tokens import estimate_tokens  # noqa: PLC0415

    mark, year = new_mark(), common_year(entry.time for entry in entries)
    left = budget - estimate_tokens(f"{_PREFACE}\n\n{enclose([], mark=mark, year=year)}")
    lines = []
    for entry in entries:
        line = entry_line(entry, marks=(mark,), year=year)
        cost = estimate_tokens(f"\n{line}")
        if cost <= left:
            left -= cost
            lines.append(line)
    return f"{_PREFACE}\n\n{enclose(lines, mark=mark, year=year)}" if lines else ""
