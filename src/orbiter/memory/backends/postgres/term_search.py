"""Term search in Postgres: how a question is answered from the terms of the items.

A term in some thousands of a user's passages tells little and stands everywhere. Such terms find
only the newest items; the others find everything that holds them.
"""

import math
from collections.abc import Collection, Container, Sequence
from typing import Literal, NamedTuple

from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.term_index import LONGEST, is_pending, mark
from orbiter.memory.backends.postgres.where import is_expired
from orbiter.memory.backends.sql.dialect import Args, Filter, Rows, Statement, Steps
from orbiter.memory.backends.sql.operations import MAX_LIMIT, Operations
from orbiter.memory.backends.sql.rows import READ
from orbiter.memory.model.query import Query

__all__ = ["COMMON", "NEWEST", "Look", "Unfinished", "match"]

COMMON = 4096
"""How many passages the rarer terms of a question may stand in together: these are looked up."""

NEWEST = 2048
"""How many of the newest items are read for the terms that are not."""


Unfinished = Literal["indexing", "sweeping"]
"""What an index may be behind with: items that wait for it, or are over and still counted."""


class _WeighedTerms(NamedTuple):
    """A question with the weights of its terms, rarest first."""

    terms: list[str]
    rarities: list[float]
    few: int
    """How many of the terms are looked up; the others are looked for."""
    frequency: dict[str, int]
    passages: int
    unfinished: Unfinished | None
    """What must be done before these counts are right."""


def match(
    operations: Operations,
    terms: Sequence[str],
    query: Query,
    owner: str | None,
    *,
    held: bool,
    done: Container[Unfinished] = (),
    look: "Look | None" = None,
) -> Steps[tuple[Rows, dict[str, int], int] | Unfinished]:
    """Return rows, best first, the frequency of each term, and how many passages there are.

    Or what must be done first; what was *done* is not asked for again. *look* is answered by the
    way.
    """
    # A policy keeps the server from the index of what is over: all rows would be read for it.
    awaited = [each for each in _AWAITED if each not in done and not (held and each == "sweeping")]
    weighed = yield from _weigh(operations, terms, owner, awaited, look)
    if weighed.unfinished is not None:
        return weighed.unfinished
    rows: Rows = []
    if query.limit and weighed.terms:
        compiled = yield from operations.compile(query)
        find = _Finder(operations, compiled, weighed, query, owner)
        if held:
            # No index of an operator that might tell what it saw comes before a policy.
            rows = yield find.among_all()
        else:
            rows = (yield find.by_index()) if weighed.few else []
            if find.is_open(rows):
                newest = yield find.among_newest()
                rows = find.best(rows, newest)
    return [row[: len(READ)] for row in rows], weighed.frequency, weighed.passages


_AWAITED: tuple[Unfinished, ...] = ("indexing", "sweeping")
_MARKS: dict[str, Unfinished] = {"  indexing": "indexing", "  sweeping": "sweeping"}
"""What stands among the terms for it: no term begins with two spaces."""


_LOOK = "  look"


class Look:
    """What else a statement looks up: how many wait for something, as *sql* selects it."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.waiting: int | None = None


def _dialect(operations: Operations) -> PostgresDialect:
    dialect = operations.dialect
    assert isinstance(dialect, PostgresDialect)  # noqa: S101 - there is no other here
    return dialect


def _weigh(
    operations: Operations,
    terms: Sequence[str],
    owner: str | None,
    awaited: Collection[Unfinished],
    look: "Look | None",
) -> Steps[_WeighedTerms]:
    kept = [term[:LONGEST] for term in terms]
    dialect = _dialect(operations)
    args = Args(dialect, [[*kept, *([] if owner is None else [mark(owner)])]])
    own = cut = marks = more = ""
    if owner is None:
        marks = " OR term >= ' ' AND term < '!'"
    else:
        args.append(owner)
        own = " AND user_key = $2"
    if "indexing" in awaited:
        waiting = is_pending(None if owner is None else "$2")
        more = f" UNION ALL SELECT '  indexing', 1 WHERE {waiting}"
    if "sweeping" in awaited:
        if owner is not None:
            cut = dialect.cut("memory_items", args, owner)  # only theirs are among these counts
        more += (
            " UNION ALL SELECT '  sweeping', 1 WHERE NOT pg_is_in_recovery()"
            f" AND EXISTS (SELECT 1 FROM memory_items WHERE {is_expired()}{cut})"
        )
    if look is not None:
        more += f" UNION ALL SELECT '{_LOOK}', waiting FROM ({look.sql}) AS look (waiting)"
    rows = yield Statement(
        "SELECT CASE WHEN term < '!' THEN ' ' ELSE term END, sum(passages)::bigint"
        f" FROM memory_terms WHERE (term = ANY($1::text[]){marks}){own} GROUP BY 1{more}",
        args,
    )
    counts = {term: int(count) for term, count in rows}
    if look is not None:
        look.waiting = counts.pop(_LOOK, None)
    unfinished = [what for name, what in _MARKS.items() if counts.pop(name, None)]
    passages = counts.get(" ", 0)
    frequency = {term: counts.get(cut, 0) for term, cut in zip(terms, kept, strict=True)}
    known_terms = sorted(
        {cut for cut in kept if cut in counts}, key=lambda term: (counts[term], term)
    )
    few = total = 0
    for term in known_terms:
        total += counts[term]
        few += total <= COMMON
    rarities = [_rarity(passages, counts[term]) for term in known_terms]
    first = unfinished[0] if unfinished else None
    return _WeighedTerms(known_terms, rarities, few, frequency, passages, first)


def _rarity(passages: int, frequency: int) -> float:
    """Return the weight of a term, rounded so that a sum is the same in any order."""
    exact = math.log(1 + (passages - frequency + 0.5) / (frequency + 0.5))
    return round(exact * 2**32) / 2**32


class _Finder:
    """Statements that find items by terms; rows have their score and their place at the end."""

    def __init__(
        self,
        operations: Operations,
        compiled: Filter,
        weighed: _WeighedTerms,
        query: Query,
        owner: str | None,
    ) -> None:
        self._dialect, self._compiled, self._weighed = _dialect(operations), compiled, weighed
        self._query, self._owner = query, owner
        self._limit = min(query.limit, MAX_LIMIT)
        self._where = " AND ".join([*compiled.scope, *compiled.rest])

    @property
    def _is_plain(self) -> bool:
        """Whether nothing is asked for but a user's items, or anyone's: these alone have terms."""
        query = self._query
        others = (query.since, query.until, query.memory_type, query.status, query.where or None)
        return all(each is None for each in others) and query.wanted.keys() <= {"user_id"}

    def by_index(self) -> Statement:
        """Return what has one of the rarer terms."""
        args, few = Args(self._dialect, self._compiled.args), self._weighed.few
        terms, rarities = self._weighed.terms[:few], self._weighed.rarities[:few]
        weighted = f"unnest({args.bind(terms)}::text[], {args.bind(rarities)}::float8[])"
        term = "ARRAY[a.term]"
        if self._owner is not None:
            term = f"ARRAY[{args.bind(mark(self._owner))}, a.term]"
        own = self._cut(args)
        hits = (
            "SELECT p.user_key, p.id, p.passage, sum(a.rarity) AS score"
            f" FROM {weighted} AS a (term, rarity)"
            f" JOIN memory_passages AS p ON p.terms @> {term}{own}"
            " GROUP BY p.user_key, p.id, p.passage"
        )
        if few < len(self._weighed.terms):  # the common terms of what was found count, too
            more = self._score(args, slice(few, None))
            hits = (
                f"SELECT p.user_key, p.id, h.score + {more} AS score FROM ({hits}) AS h"
                f" JOIN memory_passages AS p USING (user_key, id, passage) WHERE true{own}"
            )
        return self._ranked(hits, args, is_filtered=self._is_plain)

    def among_newest(self) -> Statement:
        """Return what has any of the terms among the newest items."""
        args = Args(self._dialect, self._compiled.args)
        # OFFSET fences it off: else the plan that reads everybody's passages looks cheapest.
        hits = (
            f"SELECT p.user_key, p.id, {self._score(args, slice(None))} AS score FROM (SELECT id,"
            f" {self._dialect.owner} AS user_key FROM memory_items WHERE {self._where}"
            f" ORDER BY created_at DESC, seq DESC LIMIT {NEWEST}) AS n,"
            " LATERAL (SELECT * FROM memory_passages AS p WHERE p.user_key = n.user_key"
            f" AND p.id = n.id{self._cut(args)} OFFSET 0) AS p"
            f" WHERE p.terms && {args.bind(self._weighed.terms)}::text[]"
        )
        return self._ranked(hits, args, is_filtered=True)

    def among_all(self) -> Statement:
        """Return what has any of the terms, without an index of terms."""
        args = Args(self._dialect, self._compiled.args)
        own = "" if self._owner is None else f" AND p.user_key = {args.bind(self._owner)}"
        hits = (
            f"SELECT p.user_key, p.id, {self._score(args, slice(None))} AS score"
            " FROM memory_passages AS p"
            f" WHERE p.terms && {args.bind(self._weighed.terms)}::text[]{own}"
        )
        return self._ranked(hits, args, is_filtered=self._is_plain)

    def _cut(self, args: Args) -> str:
        return "" if self._owner is None else self._dialect.cut("p", args, self._owner)

    def _score(self, args: Args, part: slice) -> str:
        """Return the sum of the rarities of the terms that a passage has."""
        weights = zip(self._weighed.terms[part], self._weighed.rarities[part], strict=True)
        return " + ".join(
            f"CASE WHEN {args.bind(term)} = ANY (p.terms) THEN {args.bind(rarity)}::float8"
            " ELSE 0 END"
            for term, rarity in weights
        )

    def _ranked(self, hits: str, args: Args, *, is_filtered: bool) -> Statement:
        """Return the best of *hits*; where no filter is left, only these are read."""
        rows = self._dialect.rows_of("b", args, self._owner)
        cut = f" ORDER BY 3 DESC FETCH FIRST {self._limit} ROWS WITH TIES" if is_filtered else ""
        return Statement(
            f"WITH hits AS MATERIALIZED ({hits}), best AS MATERIALIZED (SELECT user_key, id,"
            f" max(score) AS score FROM hits GROUP BY user_key, id{cut})"
            f" SELECT {self._dialect.columns}, score, seq FROM (SELECT m.*, score FROM best AS b,"
            f" {rows} AS m) AS memory_items"
            f" WHERE {self._where} ORDER BY score DESC, created_at DESC, seq DESC"
            f" LIMIT {self._limit}",
            args,
        )

    def is_open(self, rows: Rows) -> bool:
        """Tell whether items that have only common terms could be among the best."""
        bound = sum(self._weighed.rarities[self._weighed.few :])
        sure = sum(row[-2] > bound for row in rows)
        return self._weighed.few < len(self._weighed.terms) and sure < self._limit

    def best(self, some: Rows, others: Rows) -> Rows:
        """Return the best of both."""
        created = READ.index("created_at")
        rows = {row[0]: row for row in (*some, *others)}
        ranked = sorted(
            rows.values(), key=lambda row: (row[-2], row[created], row[-1]), reverse=True
        )
        return ranked[: self._limit]
