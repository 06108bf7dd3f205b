"""How a SQLite file is named so that it is opened, and never created."""

from pathlib import Path
from urllib.parse import quote


def uri(path: str, mode: str) -> str:
    """Return the address of an absolute *path*, to open it and never to create it."""
    return f"file:///{quote(Path(path).as_posix().lstrip('/'), safe='/:')}?mode={mode}"
