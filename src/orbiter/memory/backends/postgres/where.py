"""`WhereCompiler` of Postgres: every filter in SQL, with bound values.

jsonb compares numbers as decimals, text by its bytes under `COLLATE "C"`, and knows that `true` is
not 1: as Python does. Beyond 2**53 what the item was written with decides: see `EXACT`.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbiter.memory.backends.sql.rows import END_WIDTH, ENDS, EXACT
from orbiter.memory.backends.sql.where import Test, WhereCompiler
from orbiter.memory.model.filters import TIMES, Among, Contains, Exists, Ordered, Prefix, Scalar
from orbiter.memory.model.query import SCOPE_FIELDS

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.dialect import Args

__all__ = [
    "NOW",
    "PostgresWhereCompiler",
    "end",
    "extra_value",
    "has_end",
    "is_expired",
    "like_pattern",
    "not_expired",
    "rarest_trigrams",
]


class PostgresWhereCompiler(WhereCompiler):
    """How Postgres says a condition."""

    def column(self, name: str) -> str:
        """Return a column, or a scope field of `metadata`, which may have been made text."""
        return f"(metadata::jsonb->>'{name}')" if name in SCOPE_FIELDS else name

    def ordered(self, column: str, name: str) -> str:
        """Return a field as it is ordered."""
        return column if name == "version" or name in TIMES else f'{column} COLLATE "C"'

    def bound(self, name: str, value: object) -> str:
        """Bind a value as what the field is."""
        if name == "version":
            return f"{self.args.bind(json.dumps(value))}::text::numeric"
        return f"{self.args.bind(value)}::{'timestamptz' if name in TIMES else 'text'}"

    def one_of(self, column: str, name: str, values: Sequence[object]) -> str:
        """Return that a field is one of a list, which is bound in one piece."""
        kind = "timestamptz" if name in TIMES else "bigint" if name == "version" else "text"
        return f"{column} = ANY ({self.args.bind(list(values))}::{kind}[])"

    def position(self, column: str, text: str) -> str:
        """Return where a text stands."""
        return f'strpos({column} COLLATE "C", {text})'

    # Keys of `metadata.extra`

    def of_extra(self, test: Test) -> str:
        """Return the test of a key."""
        key = self.args.bind(test.place.name)
        # Cast, as it may come from a subquery that has made text of it.
        value = f"(metadata::jsonb->'extra'->{key}::text)"
        match test:
            case Among():
                return self._one_of_extra(test, value, key)
            case Exists():
                return f"{value} IS NOT NULL"
            case Ordered():
                return self._ordered_extra(test, value)
            case Contains():
                return self._contains_extra(test, value, key)
            case Prefix():
                return self._prefix_extra(test, value)

    def _one_of_extra(self, test: Among, value: str, key: str) -> str:
        said = [f"{value} IS NULL"] if None in test.values else []
        small = [each for each in test.values if _is_small(each)]
        # A scalar holds itself, and a list the scalars that are its elements.
        if len(small) == 1:
            said.append(f"{value} @> {self._json(small[0])}")
        elif small:
            # Of a subquery, as that is asked once and not for every row.
            bound = self.args.bind([json.dumps(each, ensure_ascii=False) for each in small])
            said.append(f"{value} @> ANY ((SELECT {bound}::text[]::jsonb[])::jsonb[])")
        huge = [each for each in test.values if not _is_small(each)]
        if huge:
            literals = self._literals(huge)
            written = (
                f"coalesce(extra_json::json->'{EXACT}'->>{key}::text,"
                f" metadata::jsonb->'extra'->>{key}::text)"
            )
            said.append(
                f"CASE jsonb_typeof({value}) WHEN 'number' THEN {written} = ANY ({literals})"
                f" WHEN 'array' THEN {self._lists_huge(literals, value, key)} ELSE false END"
            )
        return f"({' OR '.join(said)})" if said else "false"

    @staticmethod
    def _lists_huge(literals: str, value: str, key: str) -> str:
        """Return that a list has one of some huge numbers, as it was written."""
        elements = f"extra_json::json->'{EXACT}'->{key}::text"
        return (
            "EXISTS (SELECT 1 FROM json_array_elements(CASE WHEN"
            f" json_typeof({elements}) = 'array' THEN {elements} ELSE {value}::json END)"
            " AS e (value) WHERE json_typeof(e.value) = 'number'"
            f" AND e.value #>> '{{}}' = ANY ({literals}))"
        )

    def _ordered_extra(self, test: Ordered, value: str) -> str:
        kind, operand = "string", f"{value} #>> '{{}}'"
        if isinstance(test.value, str):
            operand, bound = f'({operand}) COLLATE "C"', f"{self.args.bind(test.value)}::text"
        else:
            kind, operand = "number", f"({operand})::numeric"
            bound = f"{self.args.bind(json.dumps(test.value))}::text::numeric"
        # CASE, as only it keeps to an order: what is no number cannot be made one.
        return (
            f"CASE WHEN jsonb_typeof({value}) = '{kind}' THEN {operand} {test.sign} {bound}"
            " ELSE false END"
        )

    def _contains_extra(self, test: Contains, value: str, key: str) -> str:
        if _is_small(test.value):
            listed = f"{value} @> {self._json([test.value])}"
        else:
            listed = self._lists_huge(self._literals([test.value]), value, key)
        texts = "false"
        if isinstance(test.value, str):
            text = f"{self.args.bind(test.value)}::text"
            texts = f"strpos(({value} #>> '{{}}') COLLATE \"C\", {text}) > 0"
        return (
            f"CASE jsonb_typeof({value}) WHEN 'array' THEN {listed} WHEN 'string' THEN {texts}"
            " ELSE false END"
        )

    def _prefix_extra(self, test: Prefix, value: str) -> str:
        text = f"{self.args.bind(test.value)}::text"
        return (
            f"CASE jsonb_typeof({value}) WHEN 'string' THEN starts_with({value} #>> '{{}}', {text})"
            f" WHEN 'array' THEN EXISTS (SELECT 1 FROM jsonb_array_elements({value}) AS e (value)"
            f" WHERE jsonb_typeof(e.value) = 'string' AND starts_with(e.value #>> '{{}}', {text}))"
            " ELSE false END"
        )

    def _json(self, value: Scalar | Sequence[Scalar]) -> str:
        return f"{self.args.bind(json.dumps(value, ensure_ascii=False))}::text::jsonb"

    def _literals(self, values: Sequence[Scalar]) -> str:
        written = [text for value in values for text in _written(value)]
        return f"{self.args.bind(written)}::text[]"


def extra_value(key: str, args: "Args") -> str:
    """Return how a key is read as JSON: a list of its value, a number as it was written."""
    bound = f"{args.bind(key)}::text"
    value = f"extra_json::json->'{EXACT}'->{bound}, (metadata->'extra'->{bound})::json"
    return f"json_build_array(coalesce({value}))::text"


def _is_small(value: object) -> bool:
    return not isinstance(value, int | float) or abs(value) < 2**53


def _written(value: Scalar) -> list[str]:
    """Return how numbers are written that Python takes for equal to a huge one."""
    assert isinstance(value, int | float)  # noqa: S101 - nothing else is huge
    try:
        exact = float(value)
    except OverflowError:  # beyond every float
        return [f"{value}"]
    return [f"{int(value)}", *([json.dumps(exact)] if exact == value else [])]


NOW = "to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"')"
"""The present instant as `extra_json` has it; one for all rows of a statement."""


def has_end(row: str = "") -> str:
    """Return the condition that an item has an end; *row* is its row's name and a dot, or none.

    Of a long text only the beginning is read.
    """
    return f"substr({row}extra_json, 1, {len(ENDS)}) = '{ENDS}'"


def end(row: str = "") -> str:
    """Return how the instant is read when it expires; only of an item that has an end."""
    return f'substr({row}extra_json, {len(ENDS) + 1}, {END_WIDTH}) COLLATE "C"'


def is_expired(row: str = "memory_items.") -> str:
    """Return the condition that an item is expired, which an index serves."""
    return f"{has_end(row)} AND {end(row)} <= {NOW}"


def not_expired(row: str = "memory_items.") -> str:
    """Return the condition that an item is not expired.

    As a CASE: of what it is made of, the planner would ask for each index whether it follows.
    """
    return f"CASE WHEN {has_end(row)} THEN {end(row)} > {NOW} ELSE true END"


_COMMON = "etaoinshrdlu "
"""What English texts are made of, most frequent first."""


def rarest_trigrams(needle: str, count: int = 3) -> list[str]:
    """Return a few parts of *needle* that an index of trigrams can look up, in their order.

    Each costs a walk through all rows that have it; three rare ones tell nearly as much as all.
    """
    needle = needle[:200]

    def weight(start: int) -> int:
        return sum(
            13 - _COMMON.find(letter) for letter in needle[start : start + 3] if letter in _COMMON
        )

    starts = [n for n in range(len(needle) - 2) if needle[n : n + 3].isalnum()]
    chosen: list[int] = []
    for start in sorted({needle[n : n + 3]: n for n in reversed(starts)}.values(), key=weight):
        if len(chosen) < count and all(abs(start - other) >= 3 for other in chosen):
            chosen.append(start)
    return [needle[start : start + 3] for start in sorted(chosen)]


def like_pattern(needle: str) -> str:
    """Return the LIKE pattern of texts that hold *needle* literally."""
    escaped = needle.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
