"""Python blocks of a documentation page: run in order, and compared with what the page prints."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

__all__ = ["blocks", "run_page"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(path: Path) -> None:
    """Run every Python block of a page as one program; assert what the page says it prints."""
    namespace = {"__name__": "documentation"}
    for code, expected in blocks(path.read_text()):
        printed = io.StringIO()
        # A page may set a variable, which commands of other tests would read.
        with contextlib.redirect_stdout(printed), patch.dict(os.environ):
            exec(compile(code, str(path), "exec"), namespace)
        if expected is not None:
            assert printed.getvalue() == expected


def blocks(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each Python block with the text block that follows it, if there is one."""
    found = _FENCE.findall(text)
    for index, (language, code) in enumerate(found):
        if language == "python":
            following = found[index + 1] if index + 1 < len(found) else ("", "")
            yield code, following[1] if following[0] == "text" else None
