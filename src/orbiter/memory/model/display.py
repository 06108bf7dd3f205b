"""Display in notebooks and at a prompt: short texts, HTML tables and bars, rows for pandas.

All HTML is escaped, has no script and no address, and takes its colours from the page around it,
so that it can be read in light and in dark.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self, SupportsIndex, TypeVar, overload

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Sheet",
    "Table",
    "TableList",
    "bar",
    "html_table",
    "not_a_dict",
    "printable",
    "shortened",
]

_RowT = TypeVar("_RowT")

_JOINERS = "\u200c\u200d"
_LONGEST = 240
_SHORT = 20
_FEW = 3
"""Rows that the `repr` of a list has."""
_OTHER_KEYS = {"document": "content", "memory": "content", "text": "content"}
"""What other libraries call a field."""
_LINE = "border-bottom:1px solid rgba(128,128,128,.35)"
_CELL = f"text-align:left;vertical-align:top;padding:.3em .8em .3em 0;{_LINE}"
_SHADES = ("#4c78a8", "#f2a541", "#59a14f", "#c65d7b", "#7b6fb0", "#3aa6a0", "#a07855", "#8c8c8c")
"""Colours of the parts of a bar, which can be told apart on white and on black."""


def printable(text: str) -> str:
    """Return *text* without what would move a terminal's cursor or turn letters around."""
    return "".join(ch if ch.isprintable() or ch in _JOINERS else "�" for ch in text)


def shortened(text: str, limit: int = 60) -> str:
    """Return *text* on one line of at most *limit* characters."""
    line = printable(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit and len(text) <= 4 * limit else line[: limit - 1] + "…"


def _escape(value: object, limit: int = _LONGEST) -> str:
    """Return *value* as HTML that shows its text, shortened, and does nothing else."""
    from html import escape as escaped  # noqa: PLC0415 - only notebooks need it

    return escaped(shortened("" if value is None else str(value), limit))


def not_a_dict(value: object, key: object) -> TypeError:
    """Return the error for a value that somebody reads as a dict, as those of other libraries."""
    name = _OTHER_KEYS.get(str(key), str(key))
    places = {".": value, ".metadata.": getattr(value, "metadata", None)}
    own = next((place for place, each in places.items() if name in dir(each)), None)
    way = "it has attributes, such as `.content`" if own is None else f"write `{own}{name}`"
    return TypeError(
        f"`{type(value).__name__}` is not a dict, and has no [{key!r}]: {way}; `to_dicts()` of the "
        "list has dicts"
    )


class Sheet(NamedTuple):
    """What a table shows: its columns, its rows, and whose each row is."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str
    users: Sequence[str | None] = ()

    def with_users(self) -> "Sheet":
        """Return it with its users: one is named in the title, several have their own column."""
        columns, rows, title, users = self
        if len({*users}) > 1:
            columns = ("user", *columns)
            rows = [(user or "nobody", *row) for user, row in zip(users, rows, strict=True)]
        elif users and users[0]:
            title += f", user {users[0]}"
        return Sheet(columns, rows, title)

    def to_text(self) -> str:
        """Return it for a terminal: its title, and the rows in columns."""
        columns, rows, title, _ = self.with_users()
        cells = [[shortened(_plain(value)) for value in row] for row in rows]
        used = [index for index in range(len(columns)) if any(row[index] for row in cells)]
        table = [[row[index] for index in used] for row in [list(columns), *cells]]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        return "\n".join([printable(title), *(f"  {line}" for line in lines if cells)])


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return "" if value is None else str(value)


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    users: Sequence[str | None] = (),
) -> str:
    """Return a table as HTML; what is in a cell is escaped.

    *users* says whose each row is: one is named in the title, several have a column of their own.
    """
    columns, rows, title, _ = Sheet(columns, rows, title, users).with_users()
    head = "".join(f'<th style="{_CELL};opacity:.7">{_escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    above = f'<div style="padding:.2em 0;opacity:.8">{_escape(title)}</div>' if title else ""
    return (
        f'<div style="color:inherit;overflow-x:auto">{above}'
        '<table style="border-collapse:collapse;background:transparent;color:inherit">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: object) -> str:
    text = _plain(value)
    is_short = len(text) <= _SHORT  # a date or a number, which is not to be broken
    return f'<td style="{_CELL}{";white-space:nowrap" if is_short else ""}">{_escape(text)}</td>'


def bar(parts: Mapping[str, int], *, total: int | None = None) -> str:
    """Return named amounts as one bar, its whole width being *total*, with a legend below."""
    whole = max(total or 0, sum(parts.values()), 1)
    pieces, legend = [], []
    for index, (name, amount) in enumerate(parts.items()):
        shade = _SHADES[index % len(_SHADES)]
        width = f"{100 * amount / whole:.2f}%"
        label = f"{_escape(name)} {amount:,}"
        pieces.append(f'<span title="{label}" style="background:{shade};width:{width}"></span>')
        legend.append(
            f'<span style="margin-right:1em;white-space:nowrap"><span style="background:{shade};'
            f'display:inline-block;width:.7em;height:.7em"></span> {label}</span>'
        )
    return (
        '<div style="display:flex;height:.9em;max-width:48em;margin:.4em 0;border-radius:3px;'
        f'overflow:hidden;background:rgba(128,128,128,.25)">{"".join(pieces)}</div>'
        f"<div>{''.join(legend)}</div>"
    )


class Table:
    """What notebooks and `print` show as a table, and what can be had as plain rows."""

    @abstractmethod
    def _sheet(self) -> Sheet:
        """Return what is shown."""

    def _repr_html_(self) -> str:
        sheet = self._sheet()
        return html_table(sheet.columns, sheet.rows, title=sheet.title, users=sheet.users)

    def __str__(self) -> str:
        """Return the table for a terminal."""
        return self._sheet().to_text()

    @abstractmethod
    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict of plain values for each row."""

    def to_pandas(self) -> "DataFrame":
        """Return the rows of `to_dicts` as a DataFrame; needs pandas."""
        try:
            import pandas as pd  # noqa: PLC0415 - whoever calls this has it
        except ModuleNotFoundError as exc:
            raise ModuleNotFoundError(
                "`to_pandas` needs pandas: pip install pandas; `to_dicts` needs nothing"
            ) from exc
        rows = self.to_dicts()
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=self._columns())

    def _columns(self) -> list[str]:
        """Return what each row has: also a table without rows is asked for its columns."""
        return []


class TableList(Table, list[_RowT]):
    """A list of rows, and so is a slice of it."""

    def __repr__(self) -> str:
        if len(self) <= _FEW:
            return list.__repr__(self)
        first = ", ".join(map(repr, self[:_FEW]))
        return f"[{first}, … {len(self) - _FEW:,} more; `print` shows all]"

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> _RowT: ...

    @overload
    def __getitem__(self, index: slice, /) -> Self: ...

    def __getitem__(self, index: SupportsIndex | slice, /) -> _RowT | Self:
        if isinstance(index, str):
            raise TypeError(
                f"`{type(self).__name__}` is a list, and has no {index!r}: iterate over it, or "
                "take `[0]`"
            )
        if not isinstance(index, slice):
            return super().__getitem__(index)
        part = type(self).__new__(type(self))  # whose arguments each class has in its own order
        part.extend(super().__getitem__(index))
        vars(part).update(vars(self))
        return part
