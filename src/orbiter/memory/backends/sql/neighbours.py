"""Conversations: what was said last, and what before and after an item, overlaps merged."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from orbiter.memory.backends.sql.dialect import Args, Dialect, Rows, Statement, Steps
from orbiter.memory.backends.sql.rows import READ, decode, usual_metadata
from orbiter.memory.model.items import MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import SCOPE_FIELDS, Query, ScopeField

__all__ = ["around", "merge", "newest"]

_KIND = READ.index("memory_type")
_CREATED, _METADATA = READ.index("created_at"), READ.index("metadata")
_CONVERSATION: tuple[ScopeField, ...] = ("user_id", "session_id")
"""What the items of one conversation have in common, be it that they have none."""

NEAR = 2048
"""Items before or after one without a session, among which those like it are looked for: no index
tells what something is not."""


def newest(
    dialect: Dialect, scope: MemoryMetadata, limit: int, rounds: int | None
) -> Steps[tuple[Rows, Rows, bool]]:
    """Return the rows added last to just this conversation, and the system's before these.

    The last come first: at most *limit*, and no more than *rounds* take. Then it is told
    whether these are all there are. The rows are such as `Dialect.message_columns` reads.
    """
    ids = (scope.user_id, scope.session_id, scope.task_id, scope.agent_id)
    messages, systems, values = _newest_sql(dialect, ids)
    page = yield Statement(messages, [*values, limit])
    rows = _of_rounds(page, rounds)
    before: Rows = ()
    is_all = len(page) < limit and len(rows) == len(page)
    if not is_all:
        before = yield Statement(systems, [*values, rows[-1][-1]])
    return [row[:-1] for row in rows], before, is_all


@lru_cache(maxsize=1024)
def _newest_sql(dialect: Dialect, ids: tuple[str | None, ...]) -> tuple[str, str, list[Any]]:
    """Return what reads a conversation, what reads its system messages, and what both bind.

    Behind that they bind a limit, or the place of a row.
    """
    args, scope = Args(dialect), dict(zip(SCOPE_FIELDS, ids, strict=True))
    wanted = {name: value for name, value in scope.items() if value is not None}
    unset: dict[str, object] = {name: None for name in SCOPE_FIELDS if name not in wanted}
    where = ["deleted = 0", *dialect.scope(wanted, args), *map(dialect.unset, unset)]
    where += [f"status = '{MemoryStatus.ACCEPTED.value}'", dialect.none_expired()]
    query = Query(metadata=MemoryMetadata(**scope), where=unset)
    order = dialect.order("insertion", query, "DESC")
    columns, values = dialect.message_columns(args, usual_metadata(*ids)), [*args]
    place, last, kept = dialect.place, args.bind(0), " AND ".join(where)
    systems = f"memory_type = 'system' AND {kept} AND {place} < {last}"
    return (
        f"SELECT {columns}, {place} FROM memory_items WHERE {kept} {order} LIMIT {last}",
        f"SELECT {columns} FROM memory_items WHERE {systems} {order}",
        values,
    )


def _of_rounds(rows: Rows, rounds: int | None) -> Rows:
    """Return those of *rows*, the last first, that so many rounds take; all, if it is not told."""
    starts = [place for place, row in enumerate(rows, start=1) if row[_KIND] == "human"]
    return rows[: starts[rounds - 1]] if rounds and len(starts) >= rounds else rows


def around(dialect: Dialect, item_ids: Sequence[str], span: int) -> Steps[list[Rows]]:
    """Return each item's row with *span* before and after it, overlaps made one, in order.

    What has a session is in the order of insertion, anything else in that of time. The rows have
    their place as a last column. It is SQLite's; Postgres has a statement of its own.
    """
    placed = {each[0]: each[1:] for each in (yield _places(dialect, item_ids, span))}
    # As one text: two hundred short ones take three times as long.
    sides = json.loads(f"[{','.join(f'{each[2]},{each[3]}' for each in placed.values())}]")
    args = Args(dialect)
    beside = {place for side in sides for place in side}
    every = args.bind(json.dumps(sorted(beside.union(each[0] for each in placed.values()))))
    where = [f"{dialect.place} IN (SELECT value FROM json_each({every}))"]
    rows = {row[-1]: row for row in (yield _select(dialect, where, args))}
    near = dict(zip(placed, zip(sides[::2], sides[1::2], strict=True), strict=True))
    stretches: list[Rows] = []
    for item_id in item_ids:
        if item_id not in placed:
            continue
        here, is_known, *_ = placed[item_id]
        if is_known:
            earlier, later = near[item_id]
            stretches.append([rows[place] for place in (*reversed(earlier), here, *later)])
            continue
        before = yield from _side(dialect, rows[here], "<", span)
        after = yield from _side(dialect, rows[here], ">", span)
        stretches.append([*reversed(before), rows[here], *after])
    return merge(stretches)


def _places(dialect: Dialect, item_ids: Sequence[str], span: int) -> Statement:
    """Ask for the place of each item, and for what stands beside it in its session.

    What has none is beside its user's others without one; what has no user either is not known.
    """
    args = Args(dialect)
    ids, most = args.bind(json.dumps(item_ids)), args.bind(span)
    user, session = (f"json_extract({{}}.metadata, '$.{name}')" for name in _CONVERSATION)
    in_session = [
        "(SELECT json_group_array(place) FROM"
        f" (SELECT near.{dialect.place} AS place FROM memory_items AS near"
        f" WHERE {session.format('near')} = {session.format('here')}"
        f" AND {user.format('near')} IS {user.format('here')}"
        f" AND near.deleted = 0 AND {dialect.not_expired('near')}"
        f" AND near.{dialect.place} {sign} here.{dialect.place}"
        f" ORDER BY near.{dialect.place} {way} LIMIT {most}))"
        for sign, way in (("<", "DESC"), (">", "ASC"))
    ]
    # The condition on the time alone is what an index can start from.
    without = [
        "(SELECT json_group_array(place) FROM (SELECT place FROM"
        f" (SELECT near.{dialect.place} AS place, {session.format('near')} AS session"
        f" FROM memory_items AS near WHERE {user.format('near')} = {user.format('here')}"
        f" AND near.deleted = 0 AND {dialect.not_expired('near')}"
        f" AND near.created_at {sign}= here.created_at"
        f" AND (near.created_at, near.{dialect.place})"
        f" {sign} (here.created_at, here.{dialect.place})"
        f" ORDER BY near.created_at {way}, near.{dialect.place} {way} LIMIT {max(NEAR, span)})"
        f" WHERE session IS NULL LIMIT {most}))"
        for sign, way in (("<", "DESC"), (">", "ASC"))
    ]
    has_session = f"{session.format('here')} IS NOT NULL"
    known = f"{has_session} OR {user.format('here')} IS NOT NULL"
    sides = [
        f"CASE WHEN {has_session} THEN {one} WHEN {known} THEN {other} ELSE '[]' END"
        for one, other in zip(in_session, without, strict=True)
    ]
    return Statement(
        f"SELECT id, {dialect.place}, {known}, {', '.join(sides)}"
        f" FROM memory_items AS here WHERE id IN (SELECT value FROM json_each({ids}))"
        f" AND deleted = 0 AND {dialect.not_expired('here')}",
        args,
    )


def _side(dialect: Dialect, row: Sequence[Any], sign: str, span: int) -> Steps[Rows]:
    """Return what stands on one side of an item without a session."""
    if not span:
        return []
    args, user_id = Args(dialect), decode(row[: len(READ)]).metadata.user_id
    where = ["deleted = 0", dialect.not_expired()]
    where += dialect.scope({} if user_id is None else {"user_id": user_id}, args)
    unset = [dialect.unset("session_id"), *([dialect.unset("user_id")] if user_id is None else [])]
    way = "DESC" if sign == "<" else "ASC"
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

    Rows are placed apart by their first column, and ordered by their last, what has no session by
    its time first.
    """
    merged: dict[int, list[Sequence[Any]]] = {}
    numbers: dict[str, int] = {}
    for number, stretch in enumerate(stretches):
        new = [row for row in stretch if row[0] not in numbers]
        first = number
        if len(new) < len(stretch):
            first, *others = sorted({numbers[row[0]] for row in stretch if row[0] in numbers})
            for other in others:
                new += merged.pop(other)
        merged[first] = merged[first] + new if first in merged else new
        for row in new:
            numbers[row[0]] = first
    return [sorted(rows, key=_order_of(rows[0])) for rows in merged.values()]


def _order_of(one: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Return what the rows of a stretch are ordered by, of which *one* is a row."""
    metadata = one[_METADATA]
    names_session = _names_session if len(metadata) < _SHORT else _names_session.__wrapped__
    return itemgetter(-1) if names_session(metadata) else itemgetter(_CREATED, -1)


_SHORT = 512
"""Characters of metadata that are remembered: longer ones are seldom the same twice."""


@lru_cache(maxsize=1024)
def _names_session(metadata: str) -> bool:
    return json.loads(metadata).get("session_id") is not None
