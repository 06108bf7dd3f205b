"""Python blocks of a documentation page: run in order, and compared with what the page prints."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

__all__ = ["agrees", "blocks", "run_page"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FIGURE = re.compile(r"\d+\.\d+")
_APART = 0.03
"""How far figures may differ: processors with and without VNNI round the model's int8 products
differently."""


def run_page(path: Path) -> None:
    """Run every Python block of a page as one program; assert what the page says it prints."""
    namespace = {"__name__": "documentation"}
    for code, expected in blocks(path.read_text()):
        printed = io.StringIO()
        # A page may set a variable, which commands of other tests would read.
        with contextlib.redirect_stdout(printed), patch.dict(os.environ):
            exec(compile(code, str(path), "exec"), namespace)
        if expected is not None:
            is_right = agrees(printed.getvalue(), expected)
            assert is_right, f"printed:\n{printed.getvalue()}\nthe page says:\n{expected}"


def agrees(printed: str, expected: str) -> bool:
    """Tell whether a program printed what its page says, up to the last digits of figures."""
    if _FIGURE.sub("", printed) != _FIGURE.sub("", expected):
        return False
    figures = zip(_FIGURE.findall(printed), _FIGURE.findall(expected), strict=True)
    return all(abs(float(one) - float(other)) <= _APART for one, other in figures)


def blocks(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each Python block with the text block that follows it, if there is one."""
    found = _FENCE.findall(text)
    for index, (language, code) in enumerate(found):
        if language == "python":
            following = found[index + 1] if index + 1 < len(found) else ("", "")
            yield code, following[1] if following[0] == "text" else None
