"""Which file of keys a command means."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._command import Place
from orbiter.memory.cli._error_messages import UsageError, without_passwords

if TYPE_CHECKING:
    from orbiter.memory.auth import KeyFile

__all__ = ["Keys", "key_file", "keys_command", "keys_of", "missing_store"]

Keys = Annotated[
    Path | None,
    typer.Option("--keys", help="The file of keys; by default the one beside the store."),
]


def keys_of(place: Place, given: Path | None) -> "KeyFile | None":
    """Return the keys of the store that *place* names; a store in memory has none unless given.

    A *given* file must be there: a name that was mistyped must not serve without keys.
    """
    from orbiter.memory.auth import KeyFile  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415

    url = place.setting("url")[0] or default_url()
    if given is None and url in ("memory://", ":memory:"):
        return None
    if given is None:
        return key_file(place, given)
    if not given.exists():
        raise UsageError(
            f"there is no file of keys at `{given}`; make it with "
            f"`{keys_command(place, given, 'create', '--user', 'NAME')}`, or leave `--keys` out"
        )
    return KeyFile(given)


def key_file(place: Place, given: Path | None) -> "KeyFile":
    """Return the keys of the store that *place* names, or those in the *given* file."""
    from orbiter.memory.auth import KeyFile, key_file_for  # noqa: PLC0415
    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415

    if given is not None:
        return KeyFile(given)
    return KeyFile(key_file_for(place.setting("url")[0] or default_url()))


def keys_command(place: Place, given: Path | None, *words: str) -> str:
    """Return the command `keys` with *words* that means the same keys, for whoever is to run it."""
    url = place.setting("url")[0]
    named = [] if url is None else ["--url", without_passwords(url)]
    named += [] if given is None else ["--keys", str(given)]
    return shlex.join(["orbiter-memory", "keys", *words, *named])


def missing_store(place: Place) -> str | None:
    """Return the file of the store that *place* names if it is not there: it may be mistyped."""
    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415

    url = place.setting("url")[0] or default_url()
    scheme, mark, rest = url.partition("://")
    if mark and scheme.lower() != "sqlite":
        return None
    path = Path(rest[1:] if mark else url).expanduser()
    return None if path.exists() else str(path)
