"""Importer protocol: how a file of a foreign format is recognised, and how it is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.transfer.io.source_file import SourceFile
from orbiter.memory.transfer.report import ReportProblem

__all__ = ["Columns", "Importer", "ReportProblem", "SourceFile", "SourceMemory"]


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """One memory that a file holds."""

    item: MemoryItem
    """It may name a session or an agent; its id and its user do not count."""
    key: str
    """What it is called in the file: the same however often the file is read."""
    owners: tuple[str, ...] = ()
    """Names in the file of whoever it may belong to; none if the file is one person's."""
    place: str = ""
    """Where it stands in the file, such as `line 5`; by default, what it is called counts."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a caller says of the columns of a table; what is left open goes by their names."""

    text: str | None = None
    """The column that is the memory."""
    at: str | None = None
    """The column that says when."""
    user_column: str | None = None
    """The column that says whose each row is; empty if none does."""
    day_first: bool | None = None
    """Whether `3/4/2026` is in April."""

    @property
    def is_any_named(self) -> bool:
        """Whether the file must be a table."""
        return self != Columns()


class Importer(Protocol):
    """A format that can be imported.

    It may have more: `label` says what its files are, `companions` names those that hold nothing to
    remember, and with `names_owners` its files may say whose each memory is. With
    `owners_are_sessions` they do not, but a caller may choose a session as the owner. One of tables
    has `prepared`, which looks at the columns of a file and returns the importer for it.
    """

    @property
    def name(self) -> str:
        """How a caller names it: `chatgpt`."""
        ...

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell whether a file that begins with *head*, 64 KiB at most, looks like one."""
        ...

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield what the file holds, in order."""
        ...
