"""Output and questions of a command: data to stdout, everything else to a terminal on stderr."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from click import UsageError

from orbiter.memory.cli._error_messages import in_shell_words, say
from orbiter.memory.cli._text import clean, dumps, one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

__all__ = [
    "Output",
    "ask",
    "can_ask",
    "console_for",
    "is_agreed",
    "styled",
]

_UNBOUNDED = 100_000
"""Columns of a pipe: nothing is wrapped for a program."""


def console_for(stream: IO[str], *, width: int | None = None) -> "Console":
    """Return a console on *stream*, in colour if it is a terminal and `NO_COLOR` is not set.

    `FORCE_COLOR` makes a terminal of anything, unless `NO_COLOR` is set, too.
    """
    from rich.console import Console  # noqa: PLC0415 - for people only

    if width is None and not stream.isatty():
        width = _UNBOUNDED
    is_plain = bool(os.environ.get("NO_COLOR")) and not stream.isatty()
    return Console(
        file=stream,
        force_terminal=False if is_plain else None,
        width=width,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )


def styled(*parts: str | tuple[object, str]) -> "Text":
    """Return parts of text, each plain or with its style, safe to show."""
    from rich.text import Text  # noqa: PLC0415

    text = Text(overflow="fold")
    for part in parts:
        content, style = part if isinstance(part, tuple) else (part, "")
        text.append(clean(content), style=style or None)
    return text


class Output:
    """The output of one command."""

    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json
        self.is_terminal = sys.stdout.isatty()
        self.is_watched = sys.stderr.isatty()
        """Whether someone sees notes and progress."""
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        """The console on stdout."""
        if self._console is None:
            self._console = console_for(sys.stdout)
        return self._console

    def data(self, value: object) -> None:
        """Print one JSON document."""
        sys.stdout.write(f"{dumps(value)}\n")

    def line(self, value: object) -> None:
        """Print one JSON document on one line, at once."""
        sys.stdout.write(f"{dumps(value, indent=None)}\n")
        sys.stdout.flush()

    def fields(self, *cells: object) -> None:
        """Print one line for a program: cells with tabs between."""
        sys.stdout.write("\t".join(one_line(cell) for cell in cells) + "\n")

    def show(self, *things: "RenderableType") -> None:
        """Print for people."""
        for thing in things:
            if not self.is_plain():
                self.console.print(thing)
                continue
            with self.console.capture() as made:
                self.console.print(thing)
            # A grid fills its columns with blanks, which are nothing to a program.
            sys.stdout.writelines(f"{line.rstrip()}\n" for line in made.get().splitlines())

    def text(self, text: str) -> None:
        """Print a text, cleaned, as it is."""
        sys.stdout.write(f"{clean(text)}\n")

    def note(self, text: str) -> None:
        """Tell something that is no data, if someone is watching."""
        if self.is_watched:
            say(in_shell_words(text), kind="note")

    def draw(self, *things: "RenderableType") -> None:
        """Draw on stderr, if someone is watching."""
        if self.is_watched:
            console = console_for(sys.stderr)
            for thing in things:
                console.print(thing)

    def flush(self) -> None:
        """Bring everything out, so that a closed pipe is noticed here."""
        sys.stdout.flush()

    @contextmanager
    def progress(self, what: str, *, unit: str) -> Iterator[Callable[[int, int], None]]:
        """Show a bar with rate and time left while the block runs; call with done and total.

        Without a *unit*, only how far it is: where one call counts bytes, and another memories.
        """
        if not self.is_watched:
            yield lambda _done, _total: None
            return
        from rich import progress as bars  # noqa: PLC0415

        columns: Sequence[bars.ProgressColumn] = (
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=None),
            bars.MofNCompleteColumn() if unit else bars.TaskProgressColumn(),
            bars.TextColumn("{task.fields[rate]}", markup=False),
            bars.TimeRemainingColumn(compact=True),
        )
        console = console_for(sys.stderr)
        # In the same terminal, data goes above the bar; in a pipe it must stay on stdout.
        with bars.Progress(
            *columns, console=console, transient=True, redirect_stdout=self.is_terminal
        ) as progress_bar:
            task = progress_bar.add_task(what, total=None, rate="")

            def advance(done: int, total: int) -> None:
                speed = progress_bar.tasks[0].speed
                rate = f"{speed:,.0f} {unit}/s" if speed and unit else ""
                progress_bar.update(task, completed=done, total=total or None, rate=rate)

            yield advance

    def is_plain(self) -> bool:
        """Return whether a program reads stdout, and gets one line for each thing."""
        is_forced = os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR")
        return not self.is_terminal and not is_forced

    def table(self, rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> None:
        """Print lines of cells: in columns for people, with tabs between for a program."""
        if self.is_plain():
            for row in rows:
                self.fields(*row)
            return
        from rich.table import Table  # noqa: PLC0415 - for people only

        grid = Table(
            *header, box=None, show_header=bool(header), header_style="dim", padding=(0, 2, 0, 0)
        )
        for row in rows:
            first, *others = (styled(one_line(cell)) for cell in row)
            first.stylize("bold")
            grid.add_row(first, *others)
        if grid.row_count:
            self.show(grid)


_MAX_LINES = 5
"""Memories that are shown before someone is asked whether they may go."""


def can_ask(out: "Output") -> bool:
    """Return whether someone sees a question and can answer it."""
    return sys.stdin.isatty() and out.is_watched


def ask(question: str) -> str | None:
    """Return the answer, without blanks around it; `None` if the input has ended."""
    sys.stderr.write(f"{clean(question)} ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
        return None
    return answer.strip()


def is_agreed(out: "Output", what: str, lines: Sequence[str]) -> bool:
    """Ask whether to do *what*, such as `forget 9 memories`; some of *lines* are shown before.

    `UsageError` where nobody can answer.
    """
    if not can_ask(out):
        raise UsageError(f"this would {what}; give `--yes`, or try `--dry-run`")
    for line in lines[:_MAX_LINES]:
        out.draw(styled(f"  {line}"))
    note = f" {_MAX_LINES} shown." if len(lines) > _MAX_LINES else ""
    question = f"{what[:1].upper()}{what[1:]}?{note} [y/N]"
    return (ask(question) or "").lower() in ("y", "yes")
