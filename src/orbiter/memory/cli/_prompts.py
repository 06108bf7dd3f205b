"""Questions to a person, on stderr, and only where someone can answer them."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbiter.memory.cli._error_messages import UsageError
from orbiter.memory.cli._text import clean

if TYPE_CHECKING:
    from orbiter.memory.cli._output import Output

__all__ = ["ask", "can_ask", "is_agreed"]

_SHOWN = 5
"""Memories that are shown before someone is asked whether they may go."""


def can_ask(out: "Output") -> bool:
    """Tell whether someone sees a question and can answer it."""
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
    from orbiter.memory.cli._output import styled  # noqa: PLC0415 - only when it asks

    if not can_ask(out):
        raise UsageError(f"this would {what}; give `--yes`, or try `--dry-run`")
    for line in lines[:_SHOWN]:
        out.draw(styled(f"  {line}"))
    shown = f" {_SHOWN} shown." if len(lines) > _SHOWN else ""
    question = f"{what[:1].upper()}{what[1:]}?{shown} [y/N]"
    return (ask(question) or "").lower() in ("y", "yes")
