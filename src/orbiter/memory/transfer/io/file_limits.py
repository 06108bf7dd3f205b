"""How much of a file is read before it counts as hostile."""

from dataclasses import dataclass, fields

from orbiter.memory.errors import QueryError

__all__ = ["Limits"]

_MB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a file may ask of this process; each may be raised for a file that one trusts."""

    depth: int = 64
    """How deep JSON may nest."""
    value: int = 32 * _MB
    """Most bytes of one JSON value, one line, or one text: what is in memory at a time."""
    nodes: int = 500_000
    """How many values one JSON value may hold; each takes far more memory than its bytes."""
    digits: int = 400
    """Most digits of a number."""
    total: int = 4 * 2**30
    """Most bytes that an archive may unpack to."""
    ratio: int = 100
    """How many times its size anything packed may have unpacked, once that is over 8 MB."""
    members: int = 10_000
    """Most files in an archive or a folder."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise QueryError(f"`{each.name}` must be a whole number above 0, not {value!r}")
