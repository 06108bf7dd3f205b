"""What changed between two versions of a memory, word by word."""

import difflib
import re
from typing import TYPE_CHECKING

from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import one_line
from orbiter.memory.cli._views import parts_of

if TYPE_CHECKING:
    from rich.text import Text

    from orbiter.memory.model.items import MemoryItem

__all__ = ["CHANGES", "differences"]

CHANGES = {"added": "green", "updated": "yellow", "deleted": "red", "restored": "cyan"}
"""The colour of each kind of change."""

_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_LONGEST = 20_000
"""Characters that are compared word by word; that takes time by the square."""


def differences(before: "MemoryItem | None", after: "MemoryItem") -> "list[Text]":
    """Return what *after* has that *before* had not: words, then the rest."""
    if before is None:
        return [styled(one_line(after.content))]
    lines = [] if before.content == after.content else [_words(before.content, after.content)]
    had, has = dict(parts_of(before)), dict(parts_of(after))
    for name in [*had, *(name for name in has if name not in had)]:
        if name not in ("version", "changed") and had.get(name) != has.get(name):
            told = f"{had.get(name, 'none')} → {has.get(name, 'none')}"
            lines.append(styled((f"{name}: ", "dim"), told))
    return lines


def _words(before: str, after: str) -> "Text":
    is_long = len(before) + len(after) > _LONGEST
    old, new = (
        text.splitlines(keepends=True) if is_long else _WORD.findall(text)
        for text in (before, after)
    )
    line = styled()
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        gone, come = "".join(old[a:b]), "".join(new[c:d])
        if kind == "equal":
            line.append_text(styled(gone.replace("\n", " ")))
            continue
        if gone:
            line.append_text(styled((f"[-{gone}-]", "red")))
        if come:
            line.append_text(styled((f"{{+{come}+}}", "green")))
    return line
