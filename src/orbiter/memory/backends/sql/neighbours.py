"""Neighbours in a conversation: what was said before and after an item, overlaps merged."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from orbiter.memory.backends.sql.dialect import Args, Dialect, Rows, Statement, Steps
from orbiter.memory.backends.sql.rows import READ, decode
from orbiter.memory.model.query import ScopeField

__all__ = ["around", "merge"]

_CREATED = READ.index("created_at")
_CONVERSATION: tuple[ScopeField, ...] = ("user_id", "session_id")
"""What the items of one conversation have in common, be it that they have none."""

NEAR = 2048
"""Items before or after one without a session, among which those like it are looked for: no index
tells what something is not."""


def around(dialect: Dialect, item_ids: Sequence[str], span: int) -> Steps[list[Rows]]:
    """Return each item's row with *span* before and after it, overlaps made one, in order.

    What has a session is in the order of insertion, anything else in that of time. The rows have
    their place as a last column.
    """
    stretches: list[Rows] = []
    for item_id in item_ids:
        args = Args(dialect)
        where = [dialect.by_id(args, item_id), "deleted = 0", dialect.not_expired()]
        here = yield _select(dialect, where, args)
        if here:
            before = yield from _side(dialect, here[0], "<", span)
            after = yield from _side(dialect, here[0], ">", span)
            stretches.append([*reversed(before), *here, *after])
    return merge(stretches)


def _side(dialect: Dialect, row: Sequence[Any], sign: str, span: int) -> Steps[Rows]:
    if not span:
        return []
    args, who = Args(dialect), decode(row[: len(READ)]).metadata
    given = {name: getattr(who, name) for name in _CONVERSATION}
    where = ["deleted = 0", dialect.not_expired()]
    where += dialect.scope(
        {name: value for name, value in given.items() if value is not None}, args
    )
    unset = [dialect.unset(name) for name, value in given.items() if value is None]
    way = "DESC" if sign == "<" else "ASC"
    if who.session_id is not None:
        where += [*unset, f"{dialect.place} {sign} {args.bind(row[-1])}"]
        order = f"ORDER BY {dialect.place} {way}"
        return (yield _select(dialect, where, args, f"{order} LIMIT {span}"))
    moment, place = args.bind(row[_CREATED]), args.bind(row[-1])
    # The first condition is what an index can start from.
    where.append(f"created_at {sign}= {moment}")
    where.append(f"(created_at, {dialect.place}) {sign} ({moment}, {place})")
    order = f"ORDER BY created_at {way}, {dialect.place} {way}"
    window = (
        f"(SELECT {dialect.columns}, {dialect.place} AS {dialect.place} FROM memory_items"
        f" WHERE {' AND '.join(where)} {order} LIMIT {max(NEAR, span)}) AS memory_items"
    )
    return (yield _select(dialect, unset, args, f"{order} LIMIT {span}", source=window))


def _select(
    dialect: Dialect, where: list[str], args: Args, tail: str = "", source: str = "memory_items"
) -> Statement:
    return Statement(
        f"SELECT {dialect.columns}, {dialect.place} FROM {source}"
        f" WHERE {' AND '.join(where)} {tail}",
        args,
    )


def merge(stretches: Sequence[Rows]) -> list[Rows]:
    """Return *stretches* with those that share an item made one, where the first of them was.

    Rows are told apart by their first column, and ordered by their last, what has no session by
    its time first.
    """
    merged: list[dict[str, Sequence[Any]]] = []
    for stretch in stretches:
        rows = {row[0]: row for row in stretch}
        touched = [other for other in merged if not other.keys().isdisjoint(rows)]
        if not touched:
            merged.append(rows)
            continue
        for other in touched[1:]:
            merged.remove(other)
            touched[0].update(other)
        touched[0].update(rows)
    return [sorted(rows.values(), key=_order_of(next(iter(rows.values())))) for rows in merged]


def _order_of(one: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Return what the rows of a stretch are ordered by, of which *one* is a row."""
    if decode(one[: len(READ)]).metadata.session_id is not None:
        return itemgetter(-1)
    return itemgetter(_CREATED, -1)
