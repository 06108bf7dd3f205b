"""Term index of Postgres: how terms are written beside the items, and counted."""

import json
from typing import Any, NamedTuple

from orbiter.memory.backends.postgres.derived_tables import LOCKED, columns
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.model.items import INDEXED_BY, index_texts
from orbiter.memory.text import words

__all__ = [
    "CHUNK",
    "LONGEST",
    "MAX_PASSAGES",
    "Seen",
    "derive",
    "expected",
    "indexing",
    "is_pending",
    "mark",
    "pending",
    "read_indexed_by",
    "settle",
]

CHUNK = 1024
"""Items whose terms are made at a time: counting what they have in common pays."""

MAX_PASSAGES = 64
"""Passages of an item; the last takes the rest."""

LONGEST = 64
"""Characters of a term that count: an index holds no key of more than 2,700 bytes."""


class Seen(NamedTuple):
    """Items that wait, as they were read, and the passages they have now."""

    places: list[tuple[str, int, str]]
    """Owner, place, and the id of the item there."""
    items: list[tuple[str, str, int | None, int | None]]
    passages: list[tuple[str, str, int, str]]
    """Owner, id, number, and the terms with a space between them."""


def indexing(item: str) -> str:
    """Return the expression for what an item says it is indexed by, NULL of most."""
    return f"({item}.metadata->'extra'->'{INDEXED_BY}')::text"


def read_indexed_by(value: str | None) -> object:
    """Return what `metadata.extra` has under `indexed_by`, from what `indexing` selects."""
    return None if value is None else json.loads(value)


def mark(owner: str) -> str:
    """Return the term that every passage of an owner has; no other begins with a space."""
    return f" {owner}"


def _terms(text: str) -> list[str]:
    return list(dict.fromkeys(term[:LONGEST] for term in words.terms(text)))


def _passages(content: str, indexed_by: object) -> list[str]:
    texts = index_texts(content, indexed_by)
    passages = [passage for text in texts for passage in words.passages(text)]
    if len(passages) > MAX_PASSAGES:
        passages[MAX_PASSAGES - 1 :] = ["\n".join(passages[MAX_PASSAGES - 1 :])]
    return passages


def expected(owner: str, content: str, indexed_by: object) -> list[str]:
    """Return what the passages of an item are kept as, terms with a space between them."""
    cut = _passages(content, indexed_by)
    return [" ".join([mark(owner), *_terms(passage)]) for passage in cut]


def is_pending(owner: str | None) -> str:
    """Return the condition that something waits, of all or of the *owner* that is bound so."""
    own = "" if owner is None else f" AND user_key = {owner}"
    return f"EXISTS (SELECT 1 FROM memory_pending WHERE NOT pg_is_in_recovery(){own})"


def pending(dialect: PostgresDialect, owner: str | None) -> Steps[Rows]:
    """Return what waits, of one owner or of all whom we see; a replica leaves it to the primary."""
    own = "" if owner is None else " AND user_key = $1"
    return (
        yield Statement(
            "SELECT p.user_key, p.place, p.id, i.version, i.seq, i.content,"
            f" {indexing('i')} FROM (SELECT *"
            f" FROM memory_pending WHERE NOT pg_is_in_recovery(){own}"
            f" ORDER BY user_key, place LIMIT {CHUNK}) AS p"
            f" LEFT JOIN memory_items AS i ON {dialect.beside('p', 'i')} AND i.deleted = 0",
            [] if owner is None else [owner],
        )
    )


def derive(rows: Rows) -> Seen:
    """Make the terms of what `pending` returned. Pure, and slow enough for a thread."""
    items: dict[tuple[str, str], Any] = {(row[0], row[2]): row for row in rows}
    made = []
    for (owner, item_id), row in items.items():
        if row[5] is not None:
            for number, passage in enumerate(_passages(row[5], read_indexed_by(row[6]))):
                made.append((owner, item_id, number, " ".join(_terms(passage))))
    return Seen(
        [(row[0], row[1], row[2]) for row in rows],
        [(*key, row[3], row[4]) for key, row in items.items()],
        made,
    )


_LESS = (
    "less AS (SELECT user_key, term, count(*) AS n FROM old, unnest(terms) AS term"
    " GROUP BY user_key, term),"
    " gone AS (DELETE FROM memory_terms AS t USING less AS l WHERE t.term = l.term"
    " AND t.user_key = l.user_key AND t.passages <= l.n),"
    " fewer AS (UPDATE memory_terms AS t SET passages = t.passages - l.n FROM less AS l"
    " WHERE t.term = l.term AND t.user_key = l.user_key AND t.passages > l.n)"
)


def settle(dialect: PostgresDialect, seen: Seen) -> Steps[bool]:
    """Write the terms of each item that is as it was read; return whether that is all of them.

    An item that is not waits on: whoever changed it need not have changed its text, and then has
    not put it among those that wait. One that waits no longer has its terms from another process.
    One that waits for its terms alone, at a place below 0, keeps its vectors.
    """
    owners = sorted({owner for owner, _, _ in seen.places})
    yield Statement(LOCKED, [owners])
    fresh = yield Statement(
        "WITH seen AS (SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[])"
        " AS s (user_key, id, version, seq)), same AS MATERIALIZED (SELECT s.user_key, s.id"
        f" FROM seen AS s LEFT JOIN memory_items AS i ON {dialect.beside('s', 'i')}"
        " AND i.deleted = 0 WHERE i.version IS NOT DISTINCT FROM s.version"
        " AND i.seq IS NOT DISTINCT FROM s.seq), settled AS MATERIALIZED (SELECT d.user_key,"
        " d.place FROM unnest($5::text[], $6::bigint[], $7::text[]) AS d (user_key, place, id)"
        " JOIN same AS s ON s.user_key = d.user_key AND s.id = d.id), done AS (DELETE"
        " FROM memory_pending AS p USING settled AS d WHERE p.user_key = d.user_key"
        " AND p.place = d.place RETURNING p.user_key, p.id, p.place), fresh AS MATERIALIZED"
        " (SELECT user_key, id, bool_or(place > 0) AS is_new FROM done GROUP BY user_key, id),"
        " old AS (DELETE FROM memory_passages AS p"
        " USING fresh AS f WHERE p.user_key = f.user_key AND p.id = f.id"
        " RETURNING p.user_key, p.terms), unembedded AS (DELETE FROM memory_vectors AS v"
        " USING fresh AS f WHERE f.is_new AND v.user_key = f.user_key AND v.id = f.id),"
        " undetailed AS (DELETE"
        " FROM memory_details AS d USING fresh AS f WHERE f.is_new AND d.user_key = f.user_key"
        " AND d.id = f.id), unqueued AS (DELETE"
        " FROM memory_unembedded AS u USING fresh AS f WHERE f.is_new"
        " AND u.user_key = f.user_key AND u.id = f.id"
        " AND u.model IN (SELECT number FROM memory_models)),"
        f" {_LESS} SELECT user_key, id, is_new FROM fresh",
        [*columns(seen.items, 4), *columns(seen.places, 3)],
    )
    good = {(owner, item_id): is_new for owner, item_id, is_new in fresh}
    made = [(*each, good[each[:2]]) for each in seen.passages if each[:2] in good]
    is_all = len(good) == len(seen.items)
    if not made:
        return is_all
    yield Statement(
        "WITH given AS (SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::text[],"
        " $5::bool[]) AS m (user_key, id, passage, terms, is_new)), made AS (INSERT"
        " INTO memory_passages (user_key, id, passage, terms) SELECT user_key, id, passage,"
        " ' ' || user_key || CASE WHEN terms = '' THEN '{}' ELSE string_to_array(terms, ' ') END"
        " FROM given RETURNING user_key, id, passage, terms), queued AS (INSERT"
        " INTO memory_unembedded (model, user_key, id) SELECT number, user_key, id"
        " FROM given, memory_models WHERE passage = 0 AND is_new ON CONFLICT DO NOTHING)"
        " INSERT INTO memory_terms AS t (term, user_key, passages) SELECT term, user_key, count(*)"
        " FROM made, unnest(terms) AS term GROUP BY term, user_key ORDER BY term, user_key"
        " ON CONFLICT (term, user_key) DO UPDATE SET passages = t.passages + excluded.passages",
        columns(made, 5),
    )
    return is_all
