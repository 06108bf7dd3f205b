"""Values of `metadata.extra`, compared as Python compares them: see `Query.has_extra`."""

import json
from collections.abc import Mapping

from orbiter.memory.backends._rows import EXACT
from orbiter.memory.backends._sql import Args


def has_extra(where: Mapping[str, str | int | float | bool], args: Args) -> str:
    """Return the condition that `metadata.extra` holds every value of *where*.

    jsonb compares numbers as decimals. Beyond 2**53 these are not what Python compares, and what
    the item was written with decides: see `EXACT`.
    """
    plain = {key: value for key, value in where.items() if not _is_huge(value)}
    given = json.dumps({"extra": plain} if plain else {}, ensure_ascii=False)
    # Cast, as it may come from a subquery that has made text of it.
    conditions = [f"metadata::jsonb @> {args.bind(given)}::text::jsonb"]
    for key, value in where.items():
        if not isinstance(value, str) and _is_huge(value):
            name = args.bind(key)
            written = args.bind(_literals(value))
            conditions.append(
                f"jsonb_typeof(metadata::jsonb->'extra'->{name}::text) = 'number' AND"
                f" coalesce(extra_json::json->'{EXACT}'->>{name}::text,"
                f" metadata::jsonb->'extra'->>{name}::text) = ANY ({written}::text[])"
            )
    return " AND ".join(conditions)


def _is_huge(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) >= 2**53


def _literals(value: float) -> list[str]:
    """Return how numbers are written that Python takes for equal to a huge one."""
    try:
        exact = float(value)
    except OverflowError:  # beyond every float
        return [f"{value}"]
    return [f"{int(value)}", *([json.dumps(exact)] if exact == value else [])]
