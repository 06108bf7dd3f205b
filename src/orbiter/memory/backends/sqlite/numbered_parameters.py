"""Numbered parameters (`?1`) on Python 3.12.0 to 3.12.3, which warn of them by mistake.

Those versions take `?1` for a named parameter if its value comes in a sequence, and say so for
every statement: https://github.com/python/cpython/issues/117995. Bound by name, as `1`, there is
no warning.
"""

import re
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from orbiter.memory.backends.sqlite.file_checks import Connection

__all__ = ["FACTORY", "NumberedConnection", "number_all"]

_PARAMETER = re.compile(r"""'[^']*'|"[^"]*"|\?(\d*)""")


@lru_cache(maxsize=512)
def number_all(sql: str) -> str | None:
    """Return *sql* with a number for every parameter, as SQLite counts; `None` if none has one."""
    if not any(match[1] for match in _PARAMETER.finditer(sql)):
        return None
    highest = 0

    def number(match: re.Match[str]) -> str:
        nonlocal highest
        if match[1] is None:  # a literal
            return match[0]
        this = int(match[1] or highest + 1)
        highest = max(highest, this)
        return f"?{this}"

    return _PARAMETER.sub(number, sql)


class NumberedConnection(Connection):
    """A connection that binds numbered parameters by name."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute one statement."""
        numbered = None if isinstance(parameters, Mapping) else number_all(sql)
        if numbered is None:
            return super().execute(sql, parameters)
        return super().execute(numbered, _by_name(parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute one statement with many sequences of values."""
        numbered = number_all(sql)
        if numbered is None:
            return super().executemany(sql, parameters)
        return super().executemany(numbered, map(_by_name, parameters))


def _by_name(values: Iterable[Any]) -> dict[str, Any]:
    return {str(number): value for number, value in enumerate(values, 1)}


FACTORY: type[Connection] = (
    NumberedConnection if (3, 12) <= sys.version_info < (3, 12, 4) else Connection
)
"""What connections are made of."""
