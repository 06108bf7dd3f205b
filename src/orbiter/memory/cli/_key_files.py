"""Which file of keys a command means."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._frame import Place

if TYPE_CHECKING:
    from orbiter.memory.keys import KeyFile

__all__ = ["Keys", "key_file", "keys_of"]

Keys = Annotated[
    Path | None,
    typer.Option("--keys", help="The file of keys; by default the one beside the store."),
]


def keys_of(place: Place, given: Path | None) -> "KeyFile | None":
    """Return the keys of the store that *place* names; a store in memory has none unless given."""
    from orbiter.memory.keys import KeyFile  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.stores import default_url  # noqa: PLC0415

    url = place.setting("url")[0] or default_url()
    if given is None and url in ("memory://", ":memory:"):
        return None
    return key_file(place, given) if given is None else KeyFile(given)


def key_file(place: Place, given: Path | None) -> "KeyFile":
    """Return the keys of the store that *place* names, or those in the *given* file."""
    from orbiter.memory.keys import KeyFile, key_file_for  # noqa: PLC0415
    from orbiter.memory.stores import default_url  # noqa: PLC0415

    if given is not None:
        return KeyFile(given)
    return KeyFile(key_file_for(place.setting("url")[0] or default_url()))
