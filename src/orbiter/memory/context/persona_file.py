"""What is given as a persona: a `Soul`, a text, or a file, which is read again when it changes."""

import asyncio
import errno
import os
import re
import time
from pathlib import Path

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.context.entries import check_sendable
from orbiter.memory.context.persona import Soul
from orbiter.memory.errors import QueryError, SoulNotFoundError, StorageError

__all__ = ["SoulFile", "check_persona", "persona_of"]

_RACY_NS = 2_000_000_000
_MAX_SHOWN = 80  # characters in an error of what was given: it may be a whole persona
_WAY = "give the path of a Markdown file, or a text; one without spaces as `Soul.parse(text)`"
_PATH = lazy_pattern(r"\S+|(?:[a-z]:|~|\.{1,2})?[/\\].*", re.IGNORECASE)
"""A text that is the path of a file: without white space, or one that begins as paths do.

Whether there is such a file does not count: a wrong path must not become what the agent is told.
Any other text, such as "You read README.md", is a path only if there is a file of that name.
"""


class SoulFile:
    """A persona file, read when it is first needed and again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._soul = Soul()

    async def read(self) -> Soul:
        """Return the persona the file describes now."""
        return await asyncio.to_thread(self.read_now)

    def read_now(self) -> Soul:
        """Return the same, and block."""
        try:
            before = self._state()
            if before != self._seen or before is None:
                data = self.path.read_bytes()
                soul = Soul.parse(data, path=str(self.path))
                self._soul, self._seen = soul, before if before == self._state() else None
        except OSError as exc:
            if isinstance(exc, FileNotFoundError) or exc.errno == errno.ENAMETOOLONG:
                shown = _shown(str(self.path))
                raise SoulNotFoundError(f"no persona at `{shown}`; {_WAY}") from None
            raise StorageError(
                f"the persona `{self.path}` cannot be read: {exc.strerror or exc}; {_WAY}"
            ) from exc
        return self._soul

    def _state(self) -> tuple[int, ...] | None:
        """Return what changes with the file; `None` when it is too new for that to be sure."""
        stat = self.path.stat()
        # A file system's clock ticks in milliseconds: two changes in one tick look like one.
        if abs(time.time_ns() - stat.st_mtime_ns) < _RACY_NS:
            return None
        return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


def persona_of(name: str, given: object) -> Soul | SoulFile | None:
    """Return the persona that *given* is, or the file that has it, which is not read here.

    *name* is how an error calls what was given.
    """
    if isinstance(given, str):
        given = Path(given) if _is_path(given) else Soul.parse(given, path=name)
    if isinstance(given, Path):
        check_sendable(name, str(given))
        return SoulFile(_at_home(given))
    if not isinstance(given, Soul | None):
        shown = _shown(repr(given))
        raise QueryError(f"`{name}` must be a persona: {_WAY}; `None` is none, not {shown}")
    if given is not None:
        check_sendable(name, given.render())
    return given


def _is_path(text: str) -> bool:
    # `Path.is_file` raises for what is too long.
    return _PATH.fullmatch(text) is not None or os.path.isfile(text)  # noqa: PTH113


def check_persona(given: object) -> Soul | Path | None:
    """Return the persona of an `AgentMemory`; what is none, or a file without one, is refused."""
    source = persona_of("persona", given)
    if not isinstance(source, SoulFile):
        return source
    source.read_now()
    return source.path


def _at_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # `~nobody`, whose home is not known: a file of that name
        return path


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
