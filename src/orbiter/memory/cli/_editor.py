"""Changing a text in the editor of the user's choice."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from orbiter.memory.cli._error_messages import UsageError

__all__ = ["in_editor"]


def in_editor(text: str) -> str:
    """Return *text* as `$VISUAL` or `$EDITOR` left it, without line ends behind it.

    The file is readable by this user only, and gone when the editor has ended.
    """
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal for an editor; give the text, or `-` and pipe it in")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        words = shlex.split(editor) or ["vi"]
    except ValueError as exc:
        raise UsageError(f"EDITOR is `{editor}`, which no shell can read: {exc}") from None
    with TemporaryDirectory(prefix="orbiter-memory-") as folder:
        path = Path(folder) / "memory.txt"
        path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*words, str(path)], check=False)  # noqa: S603 - the user's own choice
        except FileNotFoundError:
            raise UsageError(f"there is no editor `{editor}`; set EDITOR, or give a text") from None
        except OSError as exc:
            raise UsageError(
                f"the editor `{editor}` cannot be run: {exc.strerror}; set EDITOR, or give a text"
            ) from None
        if done.returncode:
            raise UsageError(f"`{editor}` ended with {done.returncode}; nothing was changed")
        try:
            return path.read_text(encoding="utf-8").rstrip("\n")
        except FileNotFoundError:
            raise UsageError(f"`{editor}` left no text; nothing was changed") from None
        except UnicodeDecodeError:
            raise UsageError(f"`{editor}` left no UTF-8 text; nothing was changed") from None
