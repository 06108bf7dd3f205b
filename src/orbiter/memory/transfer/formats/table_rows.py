"""Tables of notes, a memory to a row: CSV as spreadsheets write it, and JSON objects.

A table is read twice: whose rows it has, in which order its dates are written, and whether it is
whole is known before the first row is stored. A row that does not say whose it is, in a table that
does so elsewhere, is nobody's.
"""

import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.foreign_items import Say, note, read_each
from orbiter.memory.transfer.formats.foreign_values import Record, as_object, compact, name_in
from orbiter.memory.transfer.formats.importer import (
    Columns,
    ReportProblem,
    SourceFile,
    SourceMemory,
)
from orbiter.memory.transfer.formats.spreadsheet_times import day_comes_first, spreadsheet_time

__all__ = ["TABLE_ENDINGS", "CsvRows", "JsonRows"]

TABLE_ENDINGS = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
"""The format of a table by the ending of its name."""

_TEXTS = ("text", "content", "memory", "note")
_TIMES = ("created_at", "timestamp", "date", "when")
_USERS = ("user_id", "user")
_ID = "id"
_OUR_EXPORT = {"id", "memory_type", "status", "content", "valid_from", "valid_to", "extra"}
"""Columns that only the table of `export_file` has together."""

_DELIMITERS = (",", ";", "\t", "|")
_MAX_NAMES = 12
_MAX_COLUMNS = 1_000

ReadRows = Callable[[], Iterator[tuple[str, Record | str]]]
"""Yields where a row stands in the file, such as `line 5`, and its cells, or why it has none."""


class _Rows(ABC):
    """What tables have in common, however their rows are written."""

    name = ""
    names_owners = True

    def prepared(
        self, source: SourceFile, columns: Columns, *, has_owner: bool = False
    ) -> "_Table":
        """Return what reads *source*; `TransferError` if it is unclear what its columns are.

        With *has_owner*, somebody has chosen whose rows to take, so the table must tell.
        """
        names, rows = self._opened(source, columns)
        if set(names) >= _OUR_EXPORT and columns.text is None:
            raise TransferError(
                f"`{source.name}` is a table for spreadsheets, which does not hold everything that "
                "is stored; to import memories again, write them with "
                '`export_file(handle, "FILE.jsonl")`. To store the rows of this table as new '
                'memories, give `text="content"`'
            )
        text = _column(source.name, names, "text", columns.text, _TEXTS)
        at = _column(source.name, names, "at", columns.at, _TIMES)
        user = _column(source.name, names, "user_column", columns.user_column, _USERS)
        row_id = _column(source.name, names, _ID, None, (_ID,))
        if not text:
            raise TransferError(
                f"`{source.name}` has the columns {_listed(names)}, and none of them is called "
                f"{_listed(_TEXTS)}; say which one is the memory with `text=…`. The first line of "
                "a CSV file names its columns"
            )
        if has_owner and not user:
            raise TransferError(
                f"`{source.name}` has no column that says whose each row is, so no owner can be "
                "chosen; leave out `owner=…`, or name that column with `user_column=…`"
            )
        # All of it is read, so that a file that is not whole is refused before a row is stored.
        dates = (row.get(at) if at and not isinstance(row, str) else None for _, row in rows())
        day_first = day_comes_first(source.name, at, dates, wanted=columns.day_first)
        return _Table(self.name, rows, text, at, user, row_id, day_first)

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield a memory for each row, by the names of the columns."""
        yield from self.prepared(source, Columns()).read(source, complain)

    @abstractmethod
    def _opened(self, source: SourceFile, columns: Columns) -> tuple[Sequence[str], ReadRows]:
        """Return the names of the columns, and what reads the rows below them."""


class CsvRows(_Rows):
    """Rows of cells, separated by commas, semicolons, tabs or bars; the first names the columns."""

    name = "csv"
    label = "A table of notes, .csv or .tsv"

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the name, or by a first line that names a column of notes beside others."""
        if not head or b"\0" in head:
            return False
        if source.name.lower().endswith((".csv", ".tsv")):
            return True
        if source.name.lower().endswith((".md", ".markdown")) or head.lstrip()[:1] in b"{[":
            return False
        lines = head.decode(errors="replace").splitlines()
        names = _cells(lines[0], _delimiter(lines[0], None)) if lines else []
        return len(names) > 1 and len(lines) > 1 and _nearest_of(names, _TEXTS) is not None

    def _opened(self, source: SourceFile, columns: Columns) -> tuple[Sequence[str], ReadRows]:
        header, mark = _header(source)
        delimiter = _delimiter(header, columns.text) if mark is None else mark
        above = 0 if mark is None else 1
        named = next(islice(_csv_rows(source, delimiter), above, None), (0, []))[1]
        names = _names(source.name, named)
        return names, partial(self._rows, source, names, delimiter, above + 1)

    def _rows(
        self, source: SourceFile, names: Sequence[str], delimiter: str, skipped: int
    ) -> Iterator[tuple[str, Record | str]]:
        is_ours = set(names) >= _OUR_EXPORT
        for line, cells in islice(_csv_rows(source, delimiter), skipped, None):
            place = f"line {line}"
            if len(cells) > len(names):  # even if the last are empty: a text may be cut in two
                yield (
                    place,
                    (
                        f"it has {len(cells)} cells, but the table {len(names)} columns, so it is "
                        "not stored; put text that contains the separator in quotes"
                    ),
                )
                continue
            if is_ours:  # no cell of it is a formula, see `safe_cell`
                cells = [cell.removeprefix("'") for cell in cells]  # noqa: PLW2901
            row: dict[str, object] = dict(zip(names, cells, strict=False))
            if "importance" in row:
                row["importance"] = _number(row["importance"])
            yield place, row


class JsonRows(_Rows):
    """Objects, one to a line or in a list; their fields are the columns."""

    name = "json"
    label = "Notes as JSON objects, in lines or in a list"

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by a first object that has a text of notes, and only plain values."""
        if head.lstrip()[:1] not in (b"{", b"["):
            return False
        _, first = next(_objects(source), ("", None))
        row = as_object(first)
        name = _nearest_of(list(row), _TEXTS)
        is_flat = not any(isinstance(value, Mapping) for value in row.values())
        # What a program keeps beside its conversations is not a note.
        is_note = not row.keys() & {"conversation_id", "role", "type"}
        return name is not None and isinstance(row[name], str) and is_flat and is_note

    def _opened(self, source: SourceFile, columns: Columns) -> tuple[Sequence[str], ReadRows]:  # noqa: ARG002
        names: dict[str, None] = {}
        for _, value in _objects(source):
            names |= dict.fromkeys(as_object(value))
            if len(names) > _MAX_COLUMNS:
                raise TransferError(f"`{source.name}` has more than {_MAX_COLUMNS:,} fields")
        return list(names), partial(self._rows, source)

    def _rows(self, source: SourceFile) -> Iterator[tuple[str, Record | str]]:
        for place, value in _objects(source):
            yield place, value if isinstance(value, Mapping) else "it is not a JSON object"


def _objects(source: SourceFile) -> Iterator[tuple[str, object]]:
    if source.head().lstrip()[:1] == b"[":
        yield from ((f"row {number}", value) for number, value in enumerate(source.elements(), 1))
    else:
        yield from ((f"line {line}", value) for line, value in source.values())


@dataclass(frozen=True)
class _Table:
    """Importer of one file whose columns are known; each but the text may be empty."""

    name: str
    rows: ReadRows
    text: str
    at: str
    user: str
    row_id: str
    day_first: bool | None
    names_owners = True

    def recognises(self, source: SourceFile, head: bytes) -> bool:  # noqa: ARG002
        """Tell nothing: it is known."""
        return True

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:  # noqa: ARG002
        """Yield a memory for each row that has a text."""
        used: set[str] = set()
        rows = ((place, (place, row)) for place, row in self.rows())
        yield from read_each(rows, partial(self._memory, used), complain)

    def _memory(
        self, used: set[str], placed: tuple[str, Record | str], say: Say
    ) -> Iterator[SourceMemory]:
        place, row = placed
        if isinstance(row, str):
            raise ValueError(row)  # noqa: TRY004 - it says why there is no row
        text = row.get(self.text)
        if text is None or (isinstance(text, str) and not text.strip()):
            raise ValueError(f"it has no text in `{self.text}`, so it is not stored")
        if not isinstance(text, str):
            raise ValueError(f"`{self.text}` must be a text, not {str(text)[:40]!r}")  # noqa: TRY004
        owner = name_in(row, self.user) if self.user else None
        if self.user and owner is None:
            raise ValueError(f"it does not say whose it is in `{self.user}`, so it is not stored")
        taken = {self.text, self.at, self.user, self.row_id}
        extra: dict[str, object] = {
            f"{self.name}_created_at" if name == "created_at" else name: cell
            for name, cell in row.items()
            if name not in taken and cell not in (None, "")
        }
        when = row.get(self.at) if self.at else None
        at = None
        if when not in (None, ""):
            at = spreadsheet_time(when, day_first=self.day_first)
            if at is None:  # what cannot be read stays beside the text
                why = f"its `{self.at}` is not a valid time: {str(when)[:40]!r}"
                say(f"{why}; it is stored, and dated now")
                extra[f"{self.name}_{self.at}"] = when
        key = compact([*row.items()])
        if self.row_id and (own_id := name_in(row, self.row_id)) is not None:
            extra["original_id"] = own_id
            if own_id not in used:  # two rows of one id are two memories
                used.add(own_id)
                key = own_id
        item = note(say, text, at=at, extra=extra)
        yield SourceMemory(item, key, () if owner is None else (owner,), place)


def _number(cell: object) -> object:
    try:
        return float(str(cell).replace(",", "."))
    except ValueError:
        return cell


def _names(file: str, header: Sequence[str]) -> list[str]:
    """Return the names of the columns; `TransferError` if they are none."""
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(header, 1)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if len(names) > _MAX_COLUMNS:
        raise TransferError(f"`{file}` has more than {_MAX_COLUMNS:,} columns")
    if twice is not None:
        raise TransferError(f"`{file}` has two columns `{twice[:40]}`; give each its own name")
    return names


def _column(
    file: str, names: Sequence[str], kind: str, wanted: str | None, usual: Sequence[str]
) -> str:
    """Return the column that somebody named, or that has a usual name; empty if there is none."""
    if wanted is None:
        return _nearest_of(names, usual) or ""
    if not wanted or wanted in names:
        return wanted
    name = _nearest_of(names, [wanted])
    if name is None:
        near = get_close_matches(wanted, names, n=1)
        way = f"did you mean `{near[0]}`? It has" if near else "it has"
        raise TransferError(
            f"`{file}` has no column `{wanted}`, as `{kind}=…` names it; {way} {_listed(names)}"
        )
    return name


def _nearest_of(names: Sequence[str], usual: Sequence[str]) -> str | None:
    """Return the first of the usual names that is among *names*, however it is capitalized."""
    by_name = {name.strip().lower().replace(" ", "_"): name for name in reversed(names)}
    return next((by_name[each] for each in map(str.lower, usual) if each in by_name), None)


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = ", …" if len(every) > _MAX_NAMES else ""
    return ", ".join(f"`{name[:40]}`" for name in every[:_MAX_NAMES]) + more


# CSV


def _header(source: SourceFile) -> tuple[str, str | None]:
    """Return the line that names the columns; and what separates cells, if the file says so."""
    first, _, rest = source.head().lstrip().decode(errors="replace").partition("\n")
    if "\r" in first.rstrip("\r"):
        raise TransferError(
            f"the lines of `{source.name}` end as those of old Macs do; save it as CSV in UTF-8"
        )
    marked = re.fullmatch(r'"?sep=(.)"?', first.rstrip("\r"))  # Excel's own word for it
    return (rest.partition("\n")[0], marked[1]) if marked else (first, None)


def _delimiter(header: str, text: str | None) -> str:
    """Return the separator that makes the most of the first line, or of the columns wanted."""
    wanted = _TEXTS if text is None else (text,)
    ranked = {}
    for mark in _DELIMITERS:
        cells = _cells(header, mark)
        ranked[mark] = (_nearest_of(cells, wanted) is not None, len(cells))
    return max(_DELIMITERS, key=lambda mark: ranked[mark])


def _cells(line: str, delimiter: str) -> list[str]:
    rows = csv.reader([line.rstrip("\r")], delimiter=delimiter, skipinitialspace=True)
    return [cell.strip() for cell in next(rows, [line])]


class _OpenQuoteError(ValueError):
    """A quote was opened, and not closed within the limit."""


class _Lines:
    """The lines of a table for the module `csv`; one that is missing would join cells."""

    def __init__(self, source: SourceFile, delimiter: str) -> None:
        self._source = source
        self._delimiter = delimiter
        self._lines = source.lines()
        self.number = 0
        self.size = 0
        """Characters of the row that is read."""

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            if number != self.number + 1:
                raise TransferError(
                    f"`{self._source.name}`, line {self.number + 1}: it is not UTF-8 text, or too "
                    "long; in a spreadsheet, save it as `CSV UTF-8`"
                )
            self.number = number
            limits = self._source.limits
            if self.size > limits.value:
                raise _OpenQuoteError
            self.size += len(line)
            if line.count(self._delimiter) > limits.nodes:
                raise TransferError(
                    f"`{self._source.name}`, line {number}: it has more than {limits.nodes:,} cells"
                )
            yield f"{line}\n"


def _csv_rows(source: SourceFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows with their lines, from the header on; `TransferError` for one without end."""
    lines = _Lines(source, delimiter)
    # The limit is the process's, and is only ever raised: `_Lines` has ours.
    csv.field_size_limit(max(csv.field_size_limit(), source.limits.value))
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        begin, lines.size = lines.number + 1, 0
        try:
            cells = next(rows, None)
        except (csv.Error, _OpenQuoteError) as exc:
            why = str(exc)
            if isinstance(exc, _OpenQuoteError) or "end of data" in why:
                why = (
                    "a cell begins with a quote that never ends; close it, or write "
                    '`""` for a quote that belongs to the text'
                )
            raise TransferError(f"`{source.name}`, line {begin}: {why}") from None
        if cells is None:
            return
        if any(map(str.strip, cells)):
            yield begin, cells
