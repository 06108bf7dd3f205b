"""What went wrong, in one line, and the exit code that says which kind it was."""

import os
import re
import sys
import traceback

from orbiter.memory.cli._text import clean

__all__ = ["CONFLICT", "ERROR", "INTERRUPTED", "NOT_FOUND", "PIPE", "USAGE", "UsageError", "report"]

ERROR, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4
INTERRUPTED, PIPE = 130, 141
"""What a shell reports for a process that Ctrl-C, or a reader who left, has ended."""

_ADDRESS = re.compile(r"\b([a-z][a-z0-9+]*://)([^\s/@]*):[^\s@]*@", re.IGNORECASE)
_SECRET = re.compile(r"(?i)\b((?:ssl)?password|passwd|pwd)=[^\s&'\"`]+")


class UsageError(Exception):
    """The command was called in a way that means nothing, or would do too much."""


def without_passwords(text: str) -> str:
    """Return *text* with the passwords of addresses in it left out."""
    return _SECRET.sub(r"\1=***", _ADDRESS.sub(r"\1\2:***@", text))


def say(text: str, *, kind: str = "error") -> None:
    """Write one line about what happened to stderr."""
    try:
        sys.stderr.write(f"{kind}: {clean(without_passwords(text))}\n")
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):  # whoever read it has gone, and nobody else can be told
        pass


def is_debugging() -> bool:
    """Tell whether tracebacks are wanted."""
    return os.environ.get("ORBITER_DEBUG", "") not in ("", "0")


def report(error: BaseException) -> int:
    """Tell what went wrong and return the exit code for it."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError) and not _is_ours(error):
        _leave_stdout()
        return PIPE
    if is_debugging():
        lines = "".join(traceback.format_exception(error))
        sys.stderr.write(clean(without_passwords(lines)))
    else:
        say(_told(error))
    return _code(error)


def _is_ours(error: BaseException) -> bool:
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415 - only when it went wrong

    return isinstance(error, MemoryError)


def _code(error: BaseException) -> int:
    from orbiter.memory.errors import (  # noqa: PLC0415 - only when something went wrong
        ItemNotFoundError,
        QueryError,
        VersionConflict,
    )

    if isinstance(error, ItemNotFoundError):
        return NOT_FOUND
    if isinstance(error, VersionConflict):
        return CONFLICT
    return USAGE if isinstance(error, UsageError | QueryError) else ERROR


def _told(error: BaseException) -> str:
    if type(error).__module__.startswith("pydantic"):
        faults = error.errors()  # type: ignore[attr-defined]  # pydantic is not imported for this
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in faults)
    text = str(error) or type(error).__name__
    if type(error).__name__ == "EmbeddingsMismatchError":
        text = (
            f"{text.partition(';')[0]}; `orbiter-memory reindex` embeds everything anew, "
            "`--model none` goes by words"
        )
    is_expected = _is_ours(error) or isinstance(
        error, UsageError | OSError | ValueError | ModuleNotFoundError
    )
    return text if is_expected else f"{type(error).__name__}: {text} (ORBITER_DEBUG=1 shows where)"


def _leave_stdout() -> None:
    """Give up stdout, so that its end is not flushed into a closed pipe."""
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, sys.stdout.fileno())
        os.close(quiet)
    except (OSError, ValueError):  # stdout is no file: there is nothing to flush
        pass
