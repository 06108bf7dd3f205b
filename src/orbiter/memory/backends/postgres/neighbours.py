"""Stretches of conversation in one round trip; `sql/neighbours.py` says what they are."""

from collections.abc import Sequence

from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.backends.sql.neighbours import merge
from orbiter.memory.backends.sql.rows import READ

__all__ = ["around"]


def around(dialect: PostgresDialect, item_ids: Sequence[str], span: int) -> Steps[list[Rows]]:
    """Return each item's row with *span* before and after it, overlaps made one, in order."""
    if not item_ids:
        yield Statement("SELECT 1 WHERE false")  # a closed store says so
        return []
    columns = f"{dialect.columns}, {dialect.place}"
    sides = [f"SELECT {columns} FROM memory_items AS m WHERE {dialect.beside('h', 'm')}"]
    for sign, way in (("<", "DESC"), (">", "ASC")):
        # Four ways to be one conversation: with and without a user, with and without a session.
        # Each is an index of its own, and only one of them is read.
        sides += [
            f"(SELECT {columns} FROM memory_items AS m WHERE {condition} AND m.deleted = 0"
            f" AND {dialect.not_expired('m')} AND {_beyond(sign, is_talk)}"
            f" ORDER BY {_order(way, is_talk)} LIMIT $2)"
            for condition, is_talk in _ways(dialect)
        ]
    rows = yield Statement(
        f"SELECT h.n, around.* FROM (SELECT n, id, {dialect.owner} AS user_key,"
        " metadata->>'user_id' AS user_id, metadata->>'session_id' AS session_id, created_at, seq"
        f" FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, n)"
        f" JOIN {dialect.everything} USING (id)"
        f" WHERE deleted = 0 AND {dialect.not_expired()}) AS h,"
        f" LATERAL ({' UNION ALL '.join(sides)}) AS around ORDER BY h.n",
        [list(item_ids), span],
    )
    stretches: dict[int, list[Sequence[object]]] = {}
    for row in rows:
        stretches.setdefault(row[0], []).append(tuple(row)[1 : len(READ) + 2])
    return merge(list(stretches.values()))


def _beyond(sign: str, is_talk: bool) -> str:  # noqa: FBT001
    if is_talk:
        return f"m.seq {sign} h.seq"
    return (
        f"m.created_at {sign}= h.created_at AND (m.created_at, m.seq) {sign} (h.created_at, h.seq)"
    )


def _order(way: str, is_talk: bool) -> str:  # noqa: FBT001
    # By the user first, as the index is: that there is none does not tell it to the planner.
    first = "m.metadata->>'user_id'" if is_talk else "m.created_at"
    return f"{first} {way}, m.seq {way}"


def _ways(dialect: PostgresDialect) -> list[tuple[str, bool]]:
    """Return the ways in which `h` and `m` can be of one conversation, of which one applies.

    Each is a condition, and whether there is a session.
    """
    cut = "m.user_key = h.user_key AND " if dialect.owner == "user_key" else ""
    ways: list[tuple[str, bool]] = []
    for user in (True, False):
        for session in (True, False):
            same = [
                f"m.metadata->>'{name}' = h.{name}"
                if is_set
                else f"h.{name} IS NULL AND m.metadata->>'{name}' IS NULL"
                for name, is_set in (("user_id", user), ("session_id", session))
            ]
            ways.append((cut + " AND ".join(same), session))
    return ways
