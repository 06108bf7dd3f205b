"""The tokens of a context as a bar: what each section takes, what is free, what was left out."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import one_line

if TYPE_CHECKING:
    from rich.text import Text

    from orbiter.memory.context import Context, Dropped

__all__ = ["token_bar"]

_COLORS = {
    "persona": "magenta",
    "notice": "bright_black",
    "summary": "blue",
    "conversation": "cyan",
    "recent": "yellow",
    "memories": "green",
    "task": "red",
}
_WHY = {
    "budget": "no room",
    "shortened": "only its beginning fits",
    "status": "not accepted",
    "scope": "another scope",
    "duplicate": "shown already",
    "kind": "no message",
    "incomplete": "its tool group is not whole",
}
_MOST_DROPPED = 6


def token_bar(context: "Context", *, width: int) -> "list[Text]":
    """Return lines of at most *width* columns: a bar, a legend, and what was left out."""
    inner = max(width - 2, 20)
    whole = max(context.budget or 0, context.tokens, 1)
    parts = [(each.name, each.tokens) for each in context.sections if each.tokens]
    bar = styled(" ")
    used = 0
    for name, tokens in parts:
        # A part that is there is seen, however small; together they never exceed the bar.
        cells = min(max(round(tokens * inner / whole), 1), inner - used)
        bar.append_text(styled(("█" * cells, _COLORS.get(name, "white"))))
        used += cells
    bar.append_text(styled(("░" * (inner - used), "bright_black")))
    return [_head(context), bar, *_legend(parts, width), *_left_out(context.dropped)]


def _head(context: "Context") -> "Text":
    of = "" if context.budget is None else f" of {context.budget:,}"
    cached = f", the first {context.prefix_tokens:,} cacheable" if context.prefix_tokens else ""
    return styled((f" {context.tokens:,}{of} tokens", "bold"), (cached, "dim"))


def _legend(parts: Sequence[tuple[str, int]], width: int) -> "list[Text]":
    lines, line, used = [], styled(" "), 1
    for name, tokens in parts:
        told = f" {name} {tokens:,}  "
        if used + len(told) + 1 > width and used > 1:
            lines.append(line)
            line, used = styled(" "), 1
        line.append_text(styled(("■", _COLORS.get(name, "white")), told))
        used += len(told) + 1
    return [*lines, line]


def _left_out(dropped: Sequence["Dropped"]) -> "list[Text]":
    """Return a line for each kind of thing that was left out, the costliest first."""
    tokens: Counter[tuple[str, str, str]] = Counter()
    count: Counter[tuple[str, str, str]] = Counter()
    for each in dropped:
        key = (each.section, each.source, each.reason)
        tokens[key] += each.tokens
        count[key] += 1
    lines = [
        styled(
            (" left out  ", "dim"),
            f"{count[key]} × {key[0]}, {one_line(key[1])}: {cost:,} tokens",
            (f"  {_WHY.get(key[2], key[2])}", "yellow"),
        )
        for key, cost in tokens.most_common(_MOST_DROPPED)
    ]
    if len(tokens) > _MOST_DROPPED:
        lines.append(styled((f"           and {len(tokens) - _MOST_DROPPED} other kinds", "dim")))
    return lines
