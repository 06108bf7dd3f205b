"""How a SQLite file is named so that it is opened, and never created."""

import os
from pathlib import Path
from urllib.parse import quote

__all__ = ["real_path", "uri"]


def uri(path: str, mode: str) -> str:
    """Return the address of an absolute *path*, to open it and never to create it."""
    return f"file:///{quote(Path(path).as_posix().lstrip('/'), safe='/:')}?mode={mode}"


def real_path(path: str) -> str:
    """Return where a file is, from the root on: SQLite keeps the log of a link where that leads."""
    # Of any other file the name stays as it was given, whatever the folders above it are.
    return os.path.realpath(path) if Path(path).is_symlink() else os.path.abspath(path)  # noqa: PTH100
