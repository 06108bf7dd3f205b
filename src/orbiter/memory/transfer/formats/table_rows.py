"""Tables of notes, a memory to a row: CSV as spreadsheets write it, and JSON objects.

A table is read twice: whose rows it has, in which order its dates are written, and whether it is
whole is known before the first row is stored. A row that does not say whose it is, in a table that
does so elsewhere, is nobody's.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import islice

from orbiter.memory.agent.keywords import row_as_item
from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.importer import (
    Columns,
    ReportProblem,
    SourceFile,
    SourceMemory,
)
from orbiter.memory.transfer.formats.json_helpers import (
    NUMERIC_DATE,
    as_object,
    compact,
    safely,
    spreadsheet_time,
)
from orbiter.memory.transfer.formats.threads import cut

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

ReadRows = Callable[[], Iterator[tuple[str, Mapping[str, object] | str]]]
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
        if names.keys() >= _OUR_EXPORT and columns.text is None:
            raise TransferError(
                f"`{source.name}` is a table for spreadsheets, which does not hold everything that "
                "is stored; to import memories again, write them with "
                '`export_file(handle, "FILE.jsonl")`. To store the rows of this table as new '
                'memories, give `text="content"`'
            )
        table = _Table(
            self.name,
            rows,
            text=_column(source.name, names, "text", columns.text, _TEXTS),
            at=_column(source.name, names, "at", columns.at, _TIMES),
            user=_column(source.name, names, "user_column", columns.user_column, _USERS),
            row_id=_column(source.name, names, _ID, None, (_ID,)),
        )
        if not table.text:
            raise TransferError(
                f"`{source.name}` has the columns {_listed(names)}, and none of them is called "
                f"{_listed(_TEXTS)}; say which one is the memory with `text=…`. The first line of "
                "a CSV file names its columns"
            )
        if has_owner and not table.user:
            raise TransferError(
                f"`{source.name}` has no column that says whose each row is, so no owner can be "
                "chosen; leave out `owner=…`, or name that column with `user_column=…`"
            )
        table.day_first = _day_first(source.name, table, wanted=columns.day_first)
        return table

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield a memory for each row, by the names of the columns."""
        yield from self.prepared(source, Columns()).read(source, complain)

    @abstractmethod
    def _opened(self, source: SourceFile, columns: Columns) -> tuple[Mapping[str, int], ReadRows]:
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
        names = _split(lines[0], _delimiter(lines[0], None)) if lines else []
        return len(names) > 1 and len(lines) > 1 and _nearest_of(names, _TEXTS) is not None

    def _opened(self, source: SourceFile, columns: Columns) -> tuple[Mapping[str, int], ReadRows]:
        header, mark = _header(source)
        delimiter = _delimiter(header, columns.text) if mark is None else mark
        rows = partial(_csv_rows, source, delimiter, 1 if mark is None else 2)
        names = self._names(source, next(rows(), (0, []))[1])
        return names, partial(self._rows, rows, names)

    def _names(self, source: SourceFile, header: Sequence[str]) -> dict[str, int]:
        names: dict[str, int] = {}
        for place, cell in enumerate(header):
            name = cell.strip() or f"column {place + 1}"
            if "\r" in name:
                raise TransferError(
                    f"the lines of `{source.name}` end as those of old Macs do; save it as CSV in "
                    "UTF-8"
                )
            if name in names:
                raise TransferError(
                    f"`{source.name}` has two columns `{name[:40]}`; give each its own name"
                )
            names[name] = place
        if len(names) > _MAX_COLUMNS:
            raise TransferError(f"`{source.name}` has more than {_MAX_COLUMNS:,} columns")
        return names

    def _rows(
        self, rows: Callable[[], Iterator[tuple[int, list[str]]]], names: Mapping[str, int]
    ) -> Iterator[tuple[str, Mapping[str, object] | str]]:
        is_ours = names.keys() >= _OUR_EXPORT
        for line, cells in islice(rows(), 1, None):
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

    def _opened(self, source: SourceFile, columns: Columns) -> tuple[Mapping[str, int], ReadRows]:  # noqa: ARG002
        names: dict[str, int] = {}
        for _, value in _objects(source):
            for name in as_object(value):
                names.setdefault(name, len(names))
            if len(names) > _MAX_COLUMNS:
                raise TransferError(f"`{source.name}` has more than {_MAX_COLUMNS:,} fields")
        return names, partial(self._rows, source)

    def _rows(self, source: SourceFile) -> Iterator[tuple[str, Mapping[str, object] | str]]:
        for place, value in _objects(source):
            yield place, value if isinstance(value, Mapping) else "it is not a JSON object"


def _objects(source: SourceFile) -> Iterator[tuple[str, object]]:
    if source.head().lstrip()[:1] == b"[":
        yield from ((f"row {number}", value) for number, value in enumerate(source.elements(), 1))
    else:
        yield from ((f"line {line}", value) for line, value in source.values())


# One table


@dataclass
class _Table:
    """One file whose columns are known."""

    name: str
    rows: ReadRows
    text: str
    at: str
    user: str
    row_id: str
    day_first: bool | None = None
    names_owners: bool = field(default=True, init=False)

    def recognises(self, source: SourceFile, head: bytes) -> bool:  # noqa: ARG002
        """Tell nothing: it is known."""
        return True

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:  # noqa: ARG002
        """Yield a memory for each row that has a text."""
        used: set[str] = set()
        for place, row in self.rows():
            if isinstance(row, str):
                complain(place, row)
                continue
            memory = safely(partial(self._memory, row, place, used, complain), complain, place)
            if memory is not None:
                yield memory

    def _memory(
        self, row: Mapping[str, object], place: str, used: set[str], complain: ReportProblem
    ) -> SourceMemory | None:
        content = row.get(self.text)
        if content is None or (isinstance(content, str) and not content.strip()):
            complain(place, f"it has no text in `{self.text}`, so it is not stored")
            return None
        owner = _name(row.get(self.user)) if self.user else None
        if self.user and owner is None:
            complain(place, f"it does not say whose it is in `{self.user}`, so it is not stored")
            return None
        if isinstance(content, str):
            content = cut(content, complain, place)
        taken = {self.text, self.at, self.user, self.row_id}
        cells: dict[str, object] = {
            f"{self.name}_created_at" if name == "created_at" else name: cell
            for name, cell in row.items()
            if name not in taken and cell not in (None, "")
        }
        when = row.get(self.at) if self.at else None
        if when not in (None, ""):
            at = spreadsheet_time(when, day_first=self.day_first)
            if at is None:
                why = f"its `{self.at}` is not a valid time: {str(when)[:40]!r}"
                complain(place, f"{why}; it is stored, and dated now")
            # What cannot be read stays beside the text.
            cells["created_at" if at else f"{self.name}_{self.at}"] = at or when
        own_id = _name(row.get(self.row_id)) if self.row_id else None
        if own_id is not None:
            cells["original_id"] = own_id
        item = row_as_item("it", {self.text: content, **cells}, self.text)
        key = compact([*row.items()])
        if own_id is not None and own_id not in used:  # two rows of one id are two memories
            used.add(own_id)
            key = own_id
        return SourceMemory(item, key, () if owner is None else (owner,), place)


def _name(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def _number(cell: object) -> object:
    try:
        return float(str(cell).replace(",", "."))
    except ValueError:
        return cell


def _column(
    file: str, names: Mapping[str, int], kind: str, wanted: str | None, usual: Sequence[str]
) -> str:
    """Return the column that somebody named, or that has a usual name; empty if there is none."""
    if wanted is None:
        return _nearest_of(list(names), usual) or ""
    if not wanted or wanted in names:
        return wanted
    name = _nearest_of(list(names), [wanted])
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
    marked = re.fullmatch(r'"?sep=(.)"?', first.rstrip("\r"))  # Excel's own word for it
    return (rest.partition("\n")[0], marked[1]) if marked else (first, None)


def _delimiter(header: str, text: str | None) -> str:
    """Return the separator that makes the most of the first line, or of the columns wanted."""
    wanted = _TEXTS if text is None else (text,)
    ranked = {}
    for mark in _DELIMITERS:
        cells = _split(header, mark)
        ranked[mark] = (_nearest_of(cells, wanted) is not None, len(cells))
    return max(_DELIMITERS, key=lambda mark: ranked[mark])


def _split(line: str, delimiter: str) -> list[str]:
    _, cells = next(_parsed(iter([(1, line)]), delimiter), (1, [line]))
    return [cell.strip() for cell in cells]


def _csv_rows(source: SourceFile, delimiter: str, start: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows with their lines; `TransferError` if the file is not whole."""
    rows = _parsed(_whole_lines(source, start), delimiter, most=source.limits.value)
    try:
        yield from ((line, cells) for line, cells in rows if any(map(str.strip, cells)))
    except _OpenQuoteError as exc:
        raise TransferError(
            f"`{source.name}`, line {exc}: a cell begins with a quote that never ends; close it, "
            'or write `""` for a quote that belongs to the text'
        ) from None


def _whole_lines(source: SourceFile, start: int) -> Iterator[tuple[int, str]]:
    """Yield the lines; one that is missing would join the cells around it."""
    last = 0
    for number, line in source.lines():
        if number != last + 1:
            raise TransferError(
                f"`{source.name}`, line {last + 1}: it is not UTF-8 text, or too long; in a "
                "spreadsheet, save it as `CSV UTF-8`"
            )
        last = number
        if number >= start:
            yield number, line


class _OpenQuoteError(ValueError):
    """A quote was opened in this line, and never closed."""


_OPENED = re.compile(' *"')


class _RowParser:
    """Takes the lines of one row after the other.

    The module `csv` refuses cells of more than 128 KiB, unless a whole process agrees on more, and
    takes the rest of a file for one cell if a quote is not closed.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self._quoted: list[str] | None = None
        self.cells: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether a row goes on in the next line."""
        return self._quoted is not None

    def ends_with(self, line: str) -> bool:
        """Take one more line; tell whether the row ends with it."""
        at = 0
        if self._quoted is not None:
            self._quoted.append("\n")
        elif '"' not in line:
            self.cells = line.split(self._delimiter, _MAX_COLUMNS + 1)
            return True
        else:
            self.cells = []
        while at >= 0:
            opened = _OPENED.match(line, at) if self._quoted is None else None
            text = ""
            if opened is not None:
                self._quoted, at = [], opened.end()
            if self._quoted is not None:
                at = self._quote(self._quoted, line, at)
                if at < 0:
                    return False
                text, self._quoted = "".join(self._quoted), None
            stop = -1 if len(self.cells) > _MAX_COLUMNS else line.find(self._delimiter, at)
            self.cells.append(text + (line[at:] if stop < 0 else line[at:stop]))
            at = stop + len(self._delimiter) if stop >= 0 else -1
        return True

    @staticmethod
    def _quote(quoted: list[str], line: str, at: int) -> int:
        """Take what is in quotes; return where they end, or -1 if that is in a later line."""
        while (end := line.find('"', at)) >= 0:
            quoted.append(line[at:end])
            if line[end + 1 : end + 2] != '"':
                return end + 1
            quoted.append('"')
            at = end + 2
        quoted.append(line[at:])
        return -1


def _parsed(
    lines: Iterator[tuple[int, str]], delimiter: str, most: int = 2**25
) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row, with the line that it begins in."""
    row = _RowParser(delimiter)
    begin = size = 0
    for number, line in lines:
        if not row.is_open:
            begin, size = number, 0
        size += len(line)
        if row.ends_with(line):
            yield begin, row.cells
        elif size > most:
            raise _OpenQuoteError(begin)
    if row.is_open:
        raise _OpenQuoteError(begin)


def _day_first(file: str, table: _Table, *, wanted: bool | None) -> bool | None:
    """Return whether a date begins with the day; `TransferError` if the file leaves it open.

    This reads all of it, so that a file that is not whole is refused before anything is stored.
    """
    first = {True: "", False: ""}
    unclear = ""
    for _, row in table.rows():
        when = row.get(table.at) if table.at and not isinstance(row, str) else None
        match = NUMERIC_DATE.match(when.strip()) if isinstance(when, str) else None
        if match is None or match[2] == ".":
            continue
        one, two = int(match[1]), int(match[3])
        if one > 12 or two > 12:
            first[one > 12] = first[one > 12] or match[0]
        elif one != two:
            unclear = unclear or match[0]
    if wanted is not None:
        return wanted
    if first[True] and first[False]:
        raise TransferError(
            f"`{file}` has dates such as `{first[True]}` and `{first[False]}` in `{table.at}`: the "
            "day comes first in one, the month in the other; say what counts with `day_first=…`"
        )
    if unclear and not first[True] and not first[False]:
        raise TransferError(
            f"`{file}` has dates such as `{unclear}` in `{table.at}`, where the day or the month "
            "may come first; say which with `day_first=…`"
        )
    return bool(first[True]) if first[True] or first[False] else None
