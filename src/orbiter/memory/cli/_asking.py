"""Questions to a person, on stderr, and only where someone can answer them."""

import sys
from typing import TYPE_CHECKING

from orbiter.memory.cli._text import clean

if TYPE_CHECKING:
    from orbiter.memory.cli._output import Output

__all__ = ["ask", "can_ask"]


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
