"""What an import found, and what it could not read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from orbiter.memory.errors import MemoryError

__all__ = ["ImportResult", "Problem", "Report", "ReportProblem", "note_stored"]

ReportProblem = Callable[[str, str], None]
"""Told where (`line 17`, `conversation 3`) something is that cannot be read, and why."""

_MAX_PROBLEMS = 100
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that could not be read, or not as it stood."""

    place: str
    """Such as `line 17`, or `conversation 3, message 4`."""
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What became of a file: `found` is all that follows it, together."""

    format: str
    found: int
    """Memories in the file."""
    stored: int
    """Those that are new."""
    updated: int = 0
    """Those that have changed since they were last imported."""
    unchanged: int
    """Those that were here already."""
    skipped: int
    """Those that are somebody else's, were forgotten here, are over, or that no store can hold."""
    forgotten: int = 0
    """How many of those skipped were forgotten here; `restore` brings one back."""
    problems: tuple[Problem, ...] = ()
    """The first hundred."""
    problem_count: int = 0
    """How many there were in all."""
    notes: tuple[str, ...] = ()
    """What is worth a look, though nothing is wrong."""

    def __str__(self) -> str:
        parts = [f"{self.stored:,} stored"]
        parts += [f"{self.updated:,} updated"] if self.updated else []
        parts += [f"{self.unchanged:,} unchanged"] if self.unchanged else []
        parts += [f"{self.skipped:,} skipped"] if self.skipped else []
        lines = [f"{self.format}: {self.found:,} found, {', '.join(parts)}"]
        if self.forgotten:
            ways = "`list(forgotten=True)` shows them, `restore` brings one back"
            lines.append(f"  {self.forgotten:,} were forgotten here and stay forgotten; {ways}")
        lines += [f"  {problem}" for problem in self.problems[:_MAX_LISTED]]
        lines += [f"  note: {note}" for note in self.notes]
        more = self.problem_count - min(len(self.problems), _MAX_LISTED)
        return "\n".join(lines + ([f"  and {more:,} more problems"] if more else []))


@contextmanager
def note_stored(stored: int) -> Iterator[None]:
    """Have an error say how much of a file was stored before it, as that stays."""
    try:
        yield
    except MemoryError as exc:
        if stored:
            exc.add_note(
                f"{stored:,} from this file were stored before this, and stay; import it again to "
                "continue: nothing is stored twice"
            )
        raise


@dataclass(slots=True)
class Report:
    """An `ImportResult` in the making; the reader complains from a thread of its own."""

    found: int = 0
    stored: int = 0
    updated: int = 0
    unchanged: int = 0
    skipped: int = 0
    forgotten: int = 0
    is_muted: bool = False
    """Set while a file is only looked at: what is wrong with it is told when it is read."""
    formats: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _problems: list[Problem] = field(default_factory=list)
    _count: int = 0

    def complain(self, place: str, why: str) -> None:
        """Note a problem."""
        problem = Problem(place, why)
        if self.is_muted or problem in self._problems:  # a folder is looked through twice
            return
        self._count += 1
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)

    def finished(self) -> ImportResult:
        """Return what was counted."""
        return ImportResult(
            format=", ".join(dict.fromkeys(self.formats)),
            found=self.found,
            stored=self.stored,
            updated=self.updated,
            unchanged=self.unchanged,
            skipped=self.skipped,
            forgotten=self.forgotten,
            problems=tuple(self._problems),
            problem_count=self._count,
            notes=tuple(self.notes),
        )
