"""Keys of `metadata.extra` that a file brings: ours keep their meaning, or are renamed."""

from collections.abc import Mapping
from math import isfinite

from orbiter.memory.model.reserved import RESERVED_KEYS
from orbiter.memory.transfer.report import ReportProblem

__all__ = ["checked_labels"]

_OUR_KEYS = ("source", "trust", *RESERVED_KEYS)
"""Keys that tell where a memory comes from, and what it is; a file does not decide that."""


def checked_labels(
    extra: Mapping[str, object], format: str, complain: ReportProblem, place: str
) -> dict[str, object]:
    """Return *extra* with what would be misread under the name of its format: `mem0_importance`."""
    labels = dict(extra)

    def move(name: str, why: str) -> None:
        own = f"{format.replace('-', '_')}_{name}"
        labels.setdefault(own, labels.pop(name))
        if why:
            complain(place, f"its `{name}` {why}; kept as `{own}`")

    for name in _OUR_KEYS:
        if name in labels:
            move(name, "is a key of ours" if name in RESERVED_KEYS else "")
    if "importance" in labels and not _is_share(labels["importance"]):
        move("importance", "is not a number from 0 to 1")
    if "tags" in labels:
        tags = _tags(labels["tags"])
        if tags is None:
            move("tags", "are not a list of strings")
        else:
            labels["tags"] = tags
    return labels


def _is_share(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and isfinite(value) and 0 <= value <= 1  # type: ignore[arg-type, operator]  # it is a number


def _tags(value: object) -> list[str] | None:
    if isinstance(value, str):
        value = [tag.strip().lstrip("#") for tag in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        return None
    return list(dict.fromkeys(tag for tag in value if tag.strip()))
