"""The tour: `demo` shows in a minute what this library does, on data that is thrown away."""

import asyncio
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import TYPE_CHECKING, Literal

import click

from orbiter.memory._lazy import install_command
from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._options import command
from orbiter.memory.cli._output import ask, can_ask, console_for, styled
from orbiter.memory.cli._sample_data import CHAT, FACTS, SECRET, SOUL, TASK
from orbiter.memory.cli._views import CHANGES, differences, entry, hit_lines
from orbiter.memory.cli.commands.chat import spoken, token_bar
from orbiter.memory.diagnostics import is_installed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from orbiter.memory.agent import AgentMemory, ScopedMemory

__all__ = ["NAME", "Stage", "demo", "script"]

NAME = "orbiter-memory"
_WIDTH = 80


class Stage:
    """Where the tour is shown: 80 columns at most, and time to read if someone is there."""

    def __init__(self, console: "Console", *, paces: float) -> None:
        self.console = console
        self.width = console.width
        self._paces = paces
        self._number = 0

    def pause(self, seconds: float) -> None:
        """Let people read."""
        if self._paces:
            sleep(seconds * self._paces)

    def scene(self, title: str, code: str) -> None:
        """Begin a part: what is shown, and the call that does it."""
        self.pause(1.2 if self._number else 0.4)
        self._number += 1
        head = f" {self._number}  {title} "
        line = "─" * (self.width - len(head) - 3)
        self.console.print()
        self.console.print(styled(("──", "blue"), (head, "bold"), (f"{line}", "blue")))
        self.show(styled((code, "dim cyan")), seconds=0)
        self.console.print()
        self.pause(0.5)

    def show(self, thing: "RenderableType", *, seconds: float = 0.35) -> None:
        """Print one thing, a little indented, and wait a moment."""
        from rich.padding import Padding  # noqa: PLC0415 - for people only

        self.console.print(Padding(thing, (0, 0, 0, 3), expand=False))
        self.pause(seconds)

    def say(self, text: str) -> None:
        """Tell what was seen."""
        self.show(styled((text, "italic")), seconds=0.8)


@command("demo")
@click.option("--dashboard", is_flag=True, help="Only the dashboard, on sample data.")
async def demo(run: CommandContext, *, dashboard: bool) -> None:
    """Take a tour with sample data; your data is not touched."""
    from orbiter.memory.agent import AgentMemory  # noqa: PLC0415 - `--help` needs none of it

    warnings.simplefilter("ignore")  # the tour itself tells what is missing
    if dashboard:
        await _show_dashboard(run)
        return
    stage = Stage(_console(), paces=1.0 if sys.stdout.isatty() else 0.0)
    with TemporaryDirectory(prefix="orbiter-memory-") as folder:
        path = Path(folder) / "agent.db"
        soul = Path(folder) / "SOUL.md"
        soul.write_text(SOUL, encoding="utf-8")
        _open(stage)
        async with AgentMemory(path, persona=soul) as memory:
            alice = memory.scope(user_id="alice")
            await _converse(stage, alice)
            await _recall(stage, alice)
            await _assemble(stage, alice)
            await _undo(stage, alice)
            await _isolate(stage, memory)
        await _elsewhere(stage, path)
    _close(stage)
    if can_ask(run.out) and is_installed("server"):
        answer = ask("\n   Open the dashboard on sample data? [Y/n]")
        if answer is not None and answer.lower() in ("", "y", "yes"):
            await _show_dashboard(run)


async def _show_dashboard(run: CommandContext) -> None:
    """Serve a sample until Ctrl-C, from a folder that is thrown away."""
    from orbiter.memory.agent import AgentMemory  # noqa: PLC0415
    from orbiter.memory.cli._sample_data import fill  # noqa: PLC0415
    from orbiter.memory.cli.commands.serve import until_stopped  # noqa: PLC0415 - an extra
    from orbiter.memory.server import Settings  # noqa: PLC0415

    with TemporaryDirectory(prefix="orbiter-memory-") as folder:
        soul = Path(folder) / "SOUL.md"
        soul.write_text(SOUL, encoding="utf-8")
        has_model = os.environ.get("ORBITER_MEMORY_MODEL") != "none"
        model: Literal["auto"] | None = "auto" if has_model else None
        path = Path(folder) / "sample.db"
        async with AgentMemory(path, embeddings=model, persona=soul) as memory:
            await fill(memory)
            settings = Settings(port=0)
            await until_stopped(run, memory, settings=settings, keys=None, open_page=True)


def _console() -> "Console":
    console = console_for(sys.stdout)
    console.width = min(_WIDTH, console.width)
    return console


def _open(stage: Stage) -> None:
    from rich import box  # noqa: PLC0415
    from rich.panel import Panel  # noqa: PLC0415

    title = styled(
        ("orbiter-memory", "bold"),
        "   memory for LLM agents: one file, no key, no server\n",
        ("A tour on sample data in a temporary folder. Nothing of yours is touched.", "dim"),
    )
    stage.console.print(Panel(title, box=box.ROUNDED, border_style="blue", width=stage.width))


async def _converse(stage: Stage, alice: "ScopedMemory") -> None:
    stage.scene("A conversation is kept, tool calls and all", 'alice.chat("lisbon").add(message)')
    chat = alice.chat("lisbon")
    tools: dict[str, str] = {}
    for message in CHAT:
        for item in await chat.add(message):
            stage.show(entry(*spoken(item, tools)), seconds=0.4)


async def _recall(stage: Stage, alice: "ScopedMemory") -> None:
    for text, tags in FACTS:
        await alice.remember(text, tags=list(tags), source="chat with alice")
    question = "What should Mia not be given to eat?"
    stage.scene("Recall finds what answers, and says why", f'alice.recall("{question}")')
    for rank, hit in enumerate(await alice.recall(question, k=2), 1):
        mark = styled((f"{rank}", "bold green"))
        lines = hit_lines(hit, stage.width, full=True)
        stage.show(entry(mark, lines[:1] + lines[2:5]), seconds=0.9)
    if is_installed("local"):
        stage.say("Words, meaning and time are weighed together, without a network.")
    else:
        stage.say(f"By words alone; `{install_command('local')}` adds meaning.")


async def _assemble(stage: Stage, alice: "ScopedMemory") -> None:
    from orbiter.memory.messages import FORMATS, validate  # noqa: PLC0415

    budget = 480
    stage.scene(
        "What the model is shown, never over its budget",
        f'chat.context("{TASK}", budget={budget})',
    )
    chat = alice.chat("lisbon")
    await chat.summarize()
    context = await chat.context(TASK, budget=budget, memory_limit=3)
    for line in token_bar(context, width=stage.width - 4):
        stage.show(line, seconds=0.3)
    stage.console.print()
    legal = styled("")
    for format in FORMATS:
        faults = validate(context.messages(format).messages, format)
        legal.append_text(styled((" ✗ " if faults else " ✓ ", "bold green"), f"{format}  "))
    stage.show(legal)
    stage.say(" Valid for each of them: no tool call is ever cut from its result.")


async def _undo(stage: Stage, alice: "ScopedMemory") -> None:
    stage.scene("Every change can be undone", "alice.update(…)  alice.forget(…)  alice.restore(…)")
    (item,) = await alice.list(query="120 euros", limit=1)
    await alice.update(item.id, "The budget for hotels is 150 euros a night", source="a phone call")
    await alice.forget(item.id)
    await alice.restore(item.id, version=1)
    before = None
    for version in await alice.history(item.id):
        change = (f"{version.change:<9}", CHANGES[version.change])
        lines = differences(before, version.item) or [styled("")]
        stage.show(entry(styled((f"v{version.item.version} ", "bold"), change), lines), seconds=0.7)
        before = version.item
    stage.say("Every version is kept, with who made it and when.")


async def _isolate(stage: Stage, memory: "AgentMemory") -> None:
    stage.scene("Users are kept apart", 'memory.scope(user_id="bob").recall("door code")')
    await memory.scope(user_id="alice").remember(SECRET)
    for name in ("alice", "bob"):
        hits = await memory.scope(user_id=name).recall("door code", k=1)
        answer = (hits[0].item.content, "green") if hits else ("nothing", "red")
        stage.show(styled((f"{name:<6} finds  ", "bold"), answer), seconds=0.8)
    stage.say("The scope is bound to the handle; no question can leave it.")


async def _elsewhere(stage: Stage, path: Path) -> None:
    question = "who gets sick on a bus?"
    stage.scene(
        "Another process reads the same file",
        f'$ orbiter-memory recall "{question}" --url agent.db --user alice',
    )
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orbiter.memory.cli", "recall", question),
        *("--user", "alice", "--limit", "2", "--url", str(path), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={k: v for k, v in os.environ.items() if not k.startswith("ORBITER_MEMORY_")},
    )
    printed, _ = await child.communicate()
    for rank, hit in enumerate(json.loads(printed)["hits"], 1):
        content = hit["item"]["content"], "bold"
        relevance = f"  {hit['relevance']:.2f}", "green"
        stage.show(styled((f"{rank} ", "bold green"), content, relevance), seconds=0.5)
    stage.say(f"Found by process {child.pid}; this one is {os.getpid()}.")


def script() -> str:
    """Return how a shell calls this program: by its path, if it is in a folder nobody looks in."""
    beside = Path(sys.executable).with_name(NAME)
    if shutil.which(NAME) or not beside.exists():
        return NAME
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def _close(stage: Stage) -> None:
    stage.pause(1.2)
    stage.console.print()
    stage.console.print(styled(("── Try next ", "bold"), ("─" * (stage.width - 13), "blue")))
    program = script()
    steps = {
        f'{program} remember "I love hiking"': "keep something",
        f'{program} recall "outdoor activities"': "find it, with reasons",
        f"{program} doctor": "check the setup",
        f"{program} demo --dashboard": "look at it in a browser",
    }
    width = max(map(len, steps)) if stage.width >= _WIDTH else 0
    for text, why in steps.items():
        stage.show(styled((f"{text:<{width}}", "bold cyan"), (f"  {why}", "dim")), seconds=0)
