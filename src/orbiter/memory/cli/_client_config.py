"""Writing a server into a client's file: with a backup, in one step, and only if it must be."""

import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from orbiter.memory.cli import _json_edit, _toml_edit
from orbiter.memory.cli._clients import Client
from orbiter.memory.errors import StorageError

__all__ = ["Change", "plan", "write"]

_BOM = "\ufeff"
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Change:
    """What a file is, and what it is to be."""

    path: Path
    before: str | None
    """`None` if there is no file yet."""
    after: str
    there: object
    """The entry of that name that is there, `None` if there is none."""

    @property
    def is_needed(self) -> bool:
        """Tell whether anything is to be written."""
        return self.before != self.after

    def diff(self) -> str:
        """Return the change, line by line."""
        old, new = (self.before or "").splitlines(), self.after.splitlines()
        name = str(self.path)
        return "\n".join(unified_diff(old, new, name, name, lineterm=""))


def plan(client: Client, path: Path, name: str, entry: Mapping[str, object]) -> Change:
    """Return what is to change so that the file has *entry*; keys of others in it stay.

    `StorageError` if the file cannot be read as what it should be: it is left alone then.
    """
    edit = _toml_edit if client.is_toml else _json_edit
    place = (client.holder, name)
    _check_place(path)
    try:
        raw = path.read_bytes() if path.exists() else None
        text = "" if raw is None else raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise StorageError(f"`{path}` cannot be read: {exc}; nothing was changed") from exc
    mark = _BOM if text.startswith(_BOM) else ""
    body = text.removeprefix(_BOM)
    try:
        there = edit.find(body, place)
        has_all = isinstance(there, dict) and all(
            there.get(key) == value for key, value in entry.items()
        )
        if has_all:
            return Change(path, text, text, there)
        kept = {} if client.is_toml or not isinstance(there, dict) else there
        wanted = {**{k: v for k, v in kept.items() if k not in ("env", "url")}, **entry}
        made = edit.put(body, place, wanted)
    except _json_edit.BrokenError as exc:
        kind = "TOML" if client.is_toml else "JSON"
        raise StorageError(
            f"`{path}` cannot be read as {kind}: {exc}; nothing was changed. Mend the file, or add "
            "the server by hand: `--dry-run` on a new file shows how"
        ) from exc
    return Change(path, None if raw is None else text, mark + made, there)


def _check_place(path: Path) -> None:
    """Raise `StorageError` where there can be no such file."""
    try:
        real = path.resolve()
        is_loop = any(each.is_symlink() for each in (real, *real.parents))
    except (OSError, RuntimeError):  # a loop of links; Python 3.13 leaves it in the path
        is_loop = True
    if is_loop:
        raise StorageError(f"`{path}` leads nowhere: its links form a loop; nothing was changed")
    folder = next(each for each in real.parents if each.exists())
    if not folder.is_dir():
        raise StorageError(f"`{folder}` is no folder, so `{path}` cannot be; nothing was changed")
    if real.is_dir():
        raise StorageError(f"`{path}` is a folder, and no file; nothing was changed")


def write(change: Change) -> Path | None:
    """Write the file in one step; return the backup of what it was, if it was there."""
    try:
        return _write(change)
    except OSError as exc:
        raise StorageError(
            f"`{change.path}` cannot be written: {exc}; nothing was changed"
        ) from exc


def _write(change: Change) -> Path | None:
    path = change.path.resolve()  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    mode = _PRIVATE
    if change.before is not None:
        mode = stat.S_IMODE(path.stat().st_mode)
        backup = _free(path)
        _put(backup, change.before, mode)
    now = path.read_bytes().decode("utf-8", "replace") if path.exists() else None
    if now != change.before:
        raise StorageError(f"`{path}` was changed by somebody else just now; run this again")
    _put(path, change.after, mode)
    return backup


def _free(path: Path) -> Path:
    number = 1
    while (found := path.with_name(f"{path.name}.bak{number if number > 1 else ''}")).exists():
        number += 1
    return found


def _put(path: Path, text: str, mode: int) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:  # Ctrl-C, too: nothing half-written is left behind
        with suppress(OSError):
            Path(name).unlink()
        raise
