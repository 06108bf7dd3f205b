"""An importer of another distribution: a diary has a date and a text on every line."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from orbiter.memory.model import MemoryItem
from orbiter.memory.transfer import ReportProblem, SourceFile, SourceMemory

_LINE = re.compile(r"(\d{4}-\d\d-\d\d): (.+)")


class Diary:
    """Every line is a memory of its day."""

    name = "diary"
    label = "A diary, a line for each day"

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the first line."""
        return source.name.endswith(".diary") and bool(_LINE.match(head.decode(errors="replace")))

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the days in the order of the file."""
        for number, line in source.lines():
            match = _LINE.fullmatch(line.strip())
            if match is None:
                complain(f"line {number}", "it has no date")
                continue
            day = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
            yield SourceMemory(MemoryItem(content=match[2], created_at=day), key=match[1])
