"""Term search in SQLite: bounded work, however much a user or the others have."""

import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from orbiter.memory.backends.sql.dialect import Args, Filter, Rows
from orbiter.memory.backends.sql.operations import Operations
from orbiter.memory.backends.sql.rows import READ
from orbiter.memory.backends.sqlite import schema
from orbiter.memory.backends.sqlite.idle_tasks import is_due
from orbiter.memory.backends.sqlite.migrations import field
from orbiter.memory.backends.sqlite.run import run
from orbiter.memory.backends.sqlite.schema import INDEXING, not_expired
from orbiter.memory.backends.sqlite.term_index import (
    ALL,
    PASSAGES,
    everyone,
    owner,
    token,
    tokens,
    waits,
)
from orbiter.memory.backends.sqlite.term_index import passages as passages_of
from orbiter.memory.backends.sqlite.vector_cache import has_many_facts, rows_at, surplus_values
from orbiter.memory.model.items import MemoryStatus
from orbiter.memory.model.query import Query

__all__ = [
    "BUDGET",
    "MOST",
    "PROBED",
    "REBUILD",
    "SCANNED",
    "SEEN",
    "TRIED",
    "Matches",
    "match",
    "rarity",
]

PROBED, MOST = 256, 4096
"""Passages in which a term is first looked for, and at most, the newest: in more than that it
tells nothing."""

BUDGET = 4096
"""Passages that are looked at of all terms together that stand in more than `PROBED`."""

SEEN = 2**20
"""Passages of a term that are looked at for those of items that a filter lets through."""

TRIED = 65_536
"""Items that are tried against a filter, the best."""

SCANNED = 2048
"""Rows that are read where SQLite has no FTS5, the newest that match."""

REBUILD = 4096
"""Rows that wait to be listed from which on a user with few does not wait for those of others, as
after an upgrade: listing them takes longer than reading a sixteenth of them several times."""

Matches = tuple[Rows, dict[str, int], int]

_BITS = 40
_PLACE = 2**_BITS - 1
_USER = field("user_id")
_CREATED = READ.index("created_at")


def match(
    connection: sqlite3.Connection,
    operations: Operations,
    terms: Sequence[str],
    query: Query,
    *,
    is_hurried: bool = False,
) -> Matches | None:
    """Return rows, best first, frequencies, and how many passages there are.

    `None` if rows must be listed or removed first; *is_hurried* does without.
    """
    connection.execute("BEGIN")
    try:
        compiled = run(connection, operations.compile(query))
        waiting = 0 if is_hurried else waits(connection)
        if not schema.has_terms(connection) or (
            waiting >= REBUILD and _has_few(connection, query.wanted.get("user_id"), waiting // 16)
        ):
            return _scan(connection, terms, query, compiled)
        # What is over must go first, too: terms are counted by what is listed.
        if waiting or (not is_hurried and is_due(connection)):
            return None
        return _ask(connection, terms, query, compiled, is_listed=not is_hurried)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def _has_few(connection: sqlite3.Connection, user_id: str | None, most: int) -> bool:
    """Tell whether a user has so few items that all of them can be read."""
    rows = f"SELECT 1 FROM memory_items WHERE deleted = 0 AND {_USER} = ?1 LIMIT ?2"
    most = min(most, SCANNED)
    return (
        user_id is not None
        and len(connection.execute(rows, [user_id, most + 1]).fetchall()) <= most
    )


def rarity(frequency: int, passages: int) -> float:
    """Return how much a term tells."""
    return math.log(1 + max(0.0, passages - frequency + 0.5) / (frequency + 0.5))


class _Lists:
    """The passages in which terms stand, of one owner or of everyone, the newest first."""

    def __init__(self, connection: sqlite3.Connection, query: Query, compiled: Filter) -> None:
        user_id = query.wanted.get("user_id")
        self._connection = connection
        self._compiled = compiled
        self._prefix = "" if user_id is None else owner(user_id)
        row = connection.execute(
            "SELECT passages FROM memory_owners WHERE token = ?", [self._prefix or everyone()]
        ).fetchone()
        self.passages = int(row[0]) if row else 0
        self._owner = ALL if user_id is None else user_id

    @property
    def items(self) -> int:
        """How many items are listed."""
        row = self._connection.execute(
            "SELECT items FROM memory_counts WHERE owner = ?", [self._owner]
        ).fetchone()
        return int(row[0]) if row else 0

    def newest(self, term: str, most: int) -> list[int]:
        """Return at most *most* passages that hold *term*."""
        return self._ask(
            "SELECT rowid AS passage FROM memory_terms WHERE memory_terms MATCH ?1"
            " ORDER BY rowid DESC LIMIT ?2",
            term,
            [most],
        )

    def newest_without(self, term: str, most: int, others: frozenset[int]) -> list[int]:
        """Return at most *most* passages that hold *term*, none of the items at *others*."""
        seen = most
        while True:
            newest = self.newest(term, seen)
            kept = [each for each in newest if each // PASSAGES not in others] if others else newest
            if len(kept) >= most or len(newest) < seen or seen >= SEEN:
                return kept[:most]
            seen = min(SEEN, 4 * seen)

    def newest_that_match(self, term: str, most: int) -> list[int]:
        """Return at most *most* passages that hold *term*, of items that the filter lets through.

        They are cut after the filter, so that what it excludes takes no room.
        """
        args = Args(self._compiled.args.dialect, self._compiled.args)
        where = " AND ".join([*self._compiled.scope, *self._compiled.rest])
        pattern, seen, limit = args.bind(None), args.bind(SEEN), args.bind(most)
        # Crossed, so that the planner reads the newest passages first, and only until it has all.
        return self._ask(
            "SELECT passage FROM (SELECT rowid AS passage FROM memory_terms"
            f" WHERE memory_terms MATCH {pattern} ORDER BY rowid DESC LIMIT {seen})"
            " CROSS JOIN memory_items NOT INDEXED"
            f" ON memory_items.rowid = passage / {PASSAGES}"
            f" WHERE {where} LIMIT {limit}",
            term,
            args[len(self._compiled.args) + 1 :],
            before=self._compiled.args,
        )

    def inside(self, term: str, places: str) -> list[int]:
        """Return all passages that hold *term* of the items at *places*, a JSON array."""
        return self._ask(
            "SELECT passage FROM (SELECT rowid AS passage FROM memory_terms"
            " WHERE memory_terms MATCH ?1 AND rowid BETWEEN"
            f" (SELECT min(value) FROM json_each(?2)) * {PASSAGES} AND"
            f" (SELECT max(value) FROM json_each(?2)) * {PASSAGES} + {PASSAGES - 1}"
            f" ORDER BY rowid DESC LIMIT {SEEN})"
            f" WHERE passage / {PASSAGES} IN (SELECT value FROM json_each(?2))",
            term,
            [places],
        )

    def _ask(
        self, sql: str, term: str, args: Sequence[Any], before: Sequence[Any] = ()
    ) -> list[int]:
        listed = token(term)
        if listed is None or not self.passages:
            return []
        # As one value: twice as fast as so many rows.
        row = self._connection.execute(
            f"SELECT json_group_array(passage) FROM ({sql})",
            [*before, f'"{self._prefix}{listed}"', *args],
        ).fetchone()
        found: list[int] = json.loads(row[0])
        return found

    def estimate(self, newest: Sequence[int]) -> int:
        """Return in about how many passages a term stands, by how dense the newest are."""
        first, last = self._span
        share = (last - first + 1) / max(1, last - newest[-1] + 1)
        return max(len(newest), min(self.passages, round(len(newest) * share)))

    @cached_property
    def _span(self) -> tuple[int, int]:
        if not self._prefix:
            first, last = self._connection.execute(
                "SELECT (SELECT min(rowid) FROM memory_items),"
                " (SELECT max(rowid) FROM memory_items)"
            ).fetchone()
            return first * PASSAGES, last * PASSAGES
        first, last = (
            self._connection.execute(
                "SELECT rowid FROM memory_terms WHERE memory_terms MATCH ?1"
                f" ORDER BY rowid {way} LIMIT 1",
                [f'"{self._prefix}"'],
            ).fetchone()[0]
            for way in ("ASC", "DESC")
        )
        return first, last


def _ask(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    query: Query,
    compiled: Filter,
    *,
    is_listed: bool,
) -> Matches:
    """Answer from the index; if all that is there *is_listed*, and nothing else, more is known."""
    lists = _Lists(connection, query, compiled)
    postings = {term: lists.newest(term, PROBED + 1) for term in terms}
    frequency = {
        term: len(each) if len(each) <= PROBED else lists.estimate(each)
        for term, each in postings.items()
    }
    if not query.limit:
        return [], frequency, lists.passages
    is_filtered = _is_filtered(query, compiled)
    others = _others(connection, query, is_filtered=is_filtered) if is_listed else None
    is_cut = any(len(each) > PROBED for each in postings.values())
    if is_cut and not is_filtered:
        _widen(lists, postings, frequency)
    elif is_cut and others is not None:
        _narrow(lists, postings, frequency, others, is_few=lists.items - len(others) <= MOST)
    elif is_cut:
        _search(lists, postings, frequency, _few_places(connection, compiled))
    scores: dict[int, int] = {}
    for term, each in postings.items():
        tells = _worth(frequency[term], lists.passages)
        if not scores:  # several times as fast
            scores = dict.fromkeys(each, tells)
            continue
        for passage in each:
            scores[passage] = scores.get(passage, 0) + tells
    scores = _limit_values(connection, scores, compiled, query)
    rows = None
    if others is not None:
        rows = _known_rows(connection, scores, compiled, query.limit, others)
    if rows is None:
        rows = _best_rows(connection, scores, compiled, query.limit)
    return rows, frequency, lists.passages


def _widen(lists: _Lists, postings: dict[str, list[int]], frequency: dict[str, int]) -> None:
    """Look for terms that stand in many passages in more of them, the most telling first."""
    left = BUDGET
    for term in _common(postings, frequency):
        most = min(MOST, left)
        if most > PROBED:
            postings[term] = lists.newest(term, most + 1)
            is_all = len(postings[term]) <= most
            frequency[term] = len(postings[term]) if is_all else lists.estimate(postings[term])
        left -= len(postings[term])


def _common(postings: Mapping[str, list[int]], frequency: Mapping[str, int]) -> list[str]:
    """Return the terms that stand in many passages, the most telling first."""
    ranked = sorted(postings, key=frequency.__getitem__)
    return [term for term in ranked if len(postings[term]) > PROBED]


def _others(
    connection: sqlite3.Connection, query: Query, *, is_filtered: bool
) -> frozenset[int] | None:
    """Return the places of what is listed and not asked for; `None` if only its rows tell.

    Most questions are for all that a user has accepted, and little else is there: so no row need
    be read to know whether it matches.
    """
    if not is_filtered:
        return frozenset()
    if not query.wanted.keys() <= {"user_id"} or query.status is not MemoryStatus.ACCEPTED:
        return None
    if any(each is not None for each in (query.since, query.until, query.memory_type)):
        return None
    if query.condition is not None:
        return None
    user_id = query.wanted.get("user_id")
    mine = "" if user_id is None else f" AND {_USER} = ?1"
    rows = connection.execute(
        "SELECT rowid FROM memory_items WHERE deleted = 0 AND status <> 'accepted'"
        f"{mine} LIMIT {MOST + 1}",
        [] if user_id is None else [user_id],
    ).fetchall()
    return frozenset(place for (place,) in rows) if len(rows) <= MOST else None


def _narrow(
    lists: _Lists,
    postings: dict[str, list[int]],
    frequency: Mapping[str, int],
    others: frozenset[int],
    *,
    is_few: bool,
) -> None:
    """Look for terms that stand in many passages in those of all but *others*.

    In all of them, if what is left *is_few*.
    """
    left = BUDGET
    for term in _common(postings, frequency):
        most = SEEN if is_few else max(PROBED, min(MOST, left)) + 1
        postings[term] = lists.newest_without(term, most, others)
        left -= len(postings[term])


def _is_filtered(query: Query, compiled: Filter) -> bool:
    """Tell whether anything but the user narrows down what is asked for."""
    is_scoped = not query.wanted.keys() <= {"user_id"}
    return bool(is_scoped or query.since or query.until or compiled.rest)


def _few_places(connection: sqlite3.Connection, compiled: Filter) -> list[int] | None:
    """Return the places of what the filter lets through, if they are not too many."""
    where = " AND ".join([*compiled.scope, *compiled.rest])
    rows = connection.execute(
        f"SELECT rowid FROM memory_items WHERE {where} LIMIT {MOST + 1}", compiled.args
    )
    places = [place for (place,) in rows]
    return places if len(places) <= MOST else None


def _search(
    lists: _Lists,
    postings: dict[str, list[int]],
    frequency: Mapping[str, int],
    places: list[int] | None,
) -> None:
    """Look for terms that stand in many passages in those that the filter lets through.

    *places* are where these are, if they are few.
    """
    few = None if places is None else json.dumps(places)
    left = BUDGET
    for term in _common(postings, frequency):
        if few is not None:
            postings[term] = lists.inside(term, few)
            continue
        postings[term] = lists.newest_that_match(term, max(PROBED, min(MOST, left)) + 1)
        left -= len(postings[term])


def _worth(frequency: int, passages: int) -> int:
    """Return how much a term tells as a whole number: sums of these are equal or are not."""
    return round(rarity(frequency, passages) * 2**24)


def _limit_values(
    connection: sqlite3.Connection, scores: dict[int, int], compiled: Filter, query: Query
) -> dict[int, int]:
    """Return *scores* without the values of facts that have too many; of equals the newest stay."""
    while has_many_facts(connection, query):
        ranked = sorted(sorted(scores, reverse=True), key=scores.__getitem__, reverse=True)
        places = list(dict.fromkeys(passage // PASSAGES for passage in ranked[: query.limit]))
        surplus = surplus_values(connection, places, compiled, query)
        if not surplus:
            break
        scores = {at: score for at, score in scores.items() if at // PASSAGES not in surplus}
    return scores


def _best_rows(
    connection: sqlite3.Connection, scores: Mapping[int, int], compiled: Filter, limit: int
) -> Rows:
    """Return the rows of the best items that match, of equals the newest."""
    best: dict[int, int] = {}
    for passage, score in scores.items():
        place = passage // PASSAGES
        if score > best.get(place, 0):
            best[place] = score
    # One number per item is sorted several times faster than two.
    ranked = [score << _BITS | place for place, score in best.items()]
    ranked.sort(reverse=True)
    matching: list[tuple[int, Any, int]] = []
    start, size = 0, limit + 16
    while start < min(len(ranked), TRIED) and len(matching) < limit:
        # All equals of the last one, too: which of them are the newest, the rows tell.
        end = min(start + size, len(ranked))
        while end < len(ranked) and ranked[end] >> _BITS == ranked[end - 1] >> _BITS:
            end += 1
        places = [number & _PLACE for number in ranked[start:end]]
        # Equals may be thousands: of most, nothing but their time is read.
        times = rows_at(connection, places, compiled, "created_at")
        matching += [(best[at], created, at) for at, (created,) in times.items()]
        start, size = end, size * 4
    matching.sort(reverse=True)
    chosen = [at for *_, at in matching[:limit]]
    rows = rows_at(connection, chosen, compiled)
    return [rows[at] for at in chosen if at in rows]  # one may be over by now


def _known_rows(
    connection: sqlite3.Connection,
    scores: Mapping[int, int],
    compiled: Filter,
    limit: int,
    others: frozenset[int],
) -> Rows | None:
    """Return the rows of the best items, where all but *others* are known to match.

    They are those that `_best_rows` returns; `None` if one does not match after all.
    """
    equals: defaultdict[int, list[int]] = defaultdict(list)
    for passage, score in scores.items():
        equals[score].append(passage // PASSAGES)
    best: dict[int, int] = {}
    for score in sorted(equals, reverse=True):
        some = {at for at in equals[score] if at not in best and at not in others}
        if len(some) > limit - len(best):
            newest = connection.execute(
                "SELECT rowid FROM memory_items NOT INDEXED"
                " WHERE rowid IN (SELECT value FROM json_each(?1))"
                " ORDER BY created_at DESC, rowid DESC LIMIT ?2",
                [json.dumps(list(some)), limit - len(best)],
            )
            some = {at for (at,) in newest}
        best |= dict.fromkeys(some, score)
        if len(best) >= limit:
            break
    rows = rows_at(connection, list(best), compiled)
    if len(rows) < len(best):
        return None
    order = sorted(rows, key=lambda at: (best[at], rows[at][_CREATED], at), reverse=True)
    return [rows[at] for at in order]


def _scan(
    connection: sqlite3.Connection, terms: Sequence[str], query: Query, compiled: Filter
) -> Matches:
    """Do without an index, by reading the newest rows of the user's."""
    wanted = {term: listed for term in terms if (listed := token(term))}
    user_id = query.wanted.get("user_id")
    mine = f"deleted = 0 AND {not_expired()}"
    if user_id is not None:
        mine += f" AND {_USER} = ?1"
    held = _held(connection, wanted, mine, [] if user_id is None else [user_id])
    passages = len(held)
    counts = Counter(term for found in held.values() for term in found)
    frequency = {term: counts[term] for term in terms}
    if _is_filtered(query, compiled):
        where = " AND ".join([*compiled.scope, *compiled.rest])
        held = _held(connection, wanted, where, compiled.args)
    scores = {
        passage: sum(_worth(frequency[term], passages) for term in found)
        for passage, found in held.items()
        if found
    }
    return _best_rows(connection, scores, compiled, query.limit), frequency, passages


def _held(
    connection: sqlite3.Connection, wanted: Mapping[str, str], where: str, args: Sequence[Any]
) -> dict[int, list[str]]:
    """Return which terms the passages of the newest rows hold."""
    rows = connection.execute(
        f"SELECT rowid, content, {INDEXING} FROM memory_items WHERE {where}"
        f" AND typeof(content) = 'text' ORDER BY created_at DESC, rowid DESC LIMIT {SCANNED}",
        args,
    )
    held: dict[int, list[str]] = {}
    for place, content, indexing in rows:
        for number, part in enumerate(passages_of(content, indexing)):
            inside = set(tokens(part))
            held[place * PASSAGES + number] = [t for t, at in wanted.items() if at in inside]
    return held
