"""Which format the name of a new file asks for."""

import os
from pathlib import Path

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.registry import NATIVE

__all__ = ["AUTO", "format_for"]

AUTO = "auto"
"""The format that the name says."""

_ENDINGS = {
    ".jsonl": (NATIVE, "mcp", "openai"),
    ".csv": ("csv",),
    ".md": ("markdown",),
    ".markdown": ("markdown",),
}
"""The formats whose files may end so; without another word, it is the first."""


def format_for(
    target: str | os.PathLike[str] | object, format: str, *, known: tuple[str, ...]
) -> str:
    """Return the format to write, or raise `TransferError` where name and format disagree.

    `auto` is what the ending says, and `jsonl` without one or for a stream.
    """
    if format != AUTO and format not in known:
        names = "`, `".join((AUTO, *known))
        raise TransferError(f"there is no format `{format}` to write; use one of `{names}`")
    if not isinstance(target, str | os.PathLike):
        if format not in (AUTO, NATIVE):
            raise TransferError(
                f"`{format}` needs the name of a file; only `{NATIVE}` takes a stream"
            )
        return NATIVE
    name = os.fspath(target)
    path = Path(name)
    is_packed = path.suffix.lower() == ".gz"
    ending = (path.with_suffix("") if is_packed else path).suffix.lower()
    if format == AUTO:
        return _named(name, ending, is_packed=is_packed, known=known)
    if format == "markdown" and is_packed:
        raise TransferError(f"`{name}` ends in `.gz`, and `markdown` is a folder, which is not")
    fitting = _ENDINGS.get(ending)
    if fitting is not None and format not in fitting:
        raise TransferError(
            f"`{name}` ends in `{ending}`, which is not `{format}` but `{'` or `'.join(fitting)}`; "
            "choose another name, or another format"
        )
    return format


def _named(name: str, ending: str, *, is_packed: bool, known: tuple[str, ...]) -> str:
    if name.endswith(("/", os.sep)) and not is_packed:
        return "markdown"
    if not ending:
        return NATIVE
    found = _ENDINGS.get(ending, ("",))[0]
    if found == "markdown":
        raise TransferError(
            f"`{name}` ends in `{ending}`, and notes are written as a folder; "
            "name a folder, and the format `markdown`"
        )
    if not found:
        raise TransferError(
            f"`{name}` ends in `{ending}`, which names no format; "
            f"choose it as well, one of `{'`, `'.join(known)}`"
        )
    return found
