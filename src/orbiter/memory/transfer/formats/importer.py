"""Importer protocol: how a file of a foreign format is recognised, and how it is read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.transfer.io.archives import Limits

__all__ = ["Columns", "Importer", "ReportProblem", "SourceFile", "SourceMemory"]

ReportProblem = Callable[[str, str], None]
"""Told where (`line 17`, `conversation 3`) something is that cannot be read, and why."""


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


class SourceFile(Protocol):
    """A file, or a member of an archive, read piece by piece and never beyond the limits."""

    @property
    def name(self) -> str:
        """The file's name, or the member's path in its archive."""
        ...

    @property
    def path(self) -> Path:
        """A file on disk with its bytes, for what a database must open itself."""
        ...

    @property
    def limits(self) -> Limits:
        """How much of it may be read at a time."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether nobody waits for it any more."""
        ...

    def head(self) -> bytes:
        """Return how it begins: 64 KiB at most, as UTF-8 where it is text."""
        ...

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines with their numbers, from 1; one that is no text is complained of."""
        ...

    def values(self) -> Iterator[tuple[int, object]]:
        """Yield the JSON values that stand one after the other, with their lines."""
        ...

    def elements(self, *keys: str) -> Iterator[object]:
        """Yield the elements of the first array: the document, or what stands under *keys* in it.

        Without such an array it yields the document, or what stands there, itself.
        """
        ...

    def listed(self, key: str) -> Iterator[object]:
        """Yield the elements of the array under *key* in the document; none if there is none."""
        ...

    def document(self) -> object:
        """Return the one JSON value that the file is."""
        ...

    def text(self) -> str:
        """Return all of it as text."""
        ...

    def members(self) -> "Iterator[SourceFile]":
        """Yield the files of a folder or an archive, by name; a plain file yields itself."""
        ...


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
