"""What a file may say in `metadata.extra`: nothing that only we may say, and nothing we misread.

A key that has a meaning here is kept under the format's name where its value does not have that
meaning: `importance` of mem0 as `mem0_importance`.
"""

from collections.abc import Mapping
from math import isfinite

from orbiter.memory.transfer.formats.protocol import Complain

__all__ = ["IMPORTED", "checked"]

IMPORTED = "imported"
"""The key with the digest of what the file said: an import changes an item only when the file has
changed, and leaves alone what its owner made of it since."""

_OURS = ("source", "trust", "fact", IMPORTED)
"""Keys that tell where a memory comes from, and what it is; a file does not decide that."""


def checked(
    extra: Mapping[str, object], format: str, complain: Complain, place: str
) -> dict[str, object]:
    """Return *extra* so that every key of ours means what it does elsewhere."""
    found = dict(extra)
    for name in _OURS:
        if name in found:
            found.setdefault(_own(format, name), found.pop(name))
    if "importance" in found and not _is_share(found["importance"]):
        found.setdefault(_own(format, "importance"), found.pop("importance"))
        why = f"its `importance` is no number from 0 to 1; kept as `{_own(format, 'importance')}`"
        complain(place, why)
    if "tags" in found:
        tags = _tags(found["tags"])
        if tags is None:
            found.setdefault(_own(format, "tags"), found.pop("tags"))
            complain(place, f"its `tags` are no list of texts; kept as `{_own(format, 'tags')}`")
        else:
            found["tags"] = tags
    return found


def _own(format: str, name: str) -> str:
    return f"{format.replace('-', '_')}_{name}"


def _is_share(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and isfinite(value) and 0 <= value <= 1  # type: ignore[arg-type, operator]  # it is a number


def _tags(value: object) -> list[str] | None:
    if isinstance(value, str):
        value = [tag.strip().lstrip("#") for tag in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        return None
    return list(dict.fromkeys(tag for tag in value if tag.strip()))
