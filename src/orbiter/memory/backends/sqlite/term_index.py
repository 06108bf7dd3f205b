"""The index of terms in SQLite: one document per passage, and how it keeps up with the rows.

It lists what is not deleted, each passage with its terms, and with each term once more behind
the token of its owner: asking for one user's terms meets no one else's rows. Like trigrams, terms
are indexed after a row is acknowledged; unlike them, all that waits is indexed before one asks.
"""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.backends.sqlite import schema
from orbiter.memory.backends.sqlite.migrations import field
from orbiter.memory.backends.sqlite.run import run
from orbiter.memory.backends.sqlite.schema import INDEXING, read_indexed_by
from orbiter.memory.model.items import index_texts
from orbiter.memory.text import words

__all__ = [
    "ALL",
    "CHUNK",
    "LONGEST",
    "MARK",
    "NOBODY",
    "PASSAGES",
    "ROOM",
    "change",
    "check",
    "chunk",
    "counting",
    "documents",
    "everyone",
    "list_some",
    "owner",
    "passages",
    "relist_some",
    "token",
    "tokens",
    "waiting",
    "waits",
]

PASSAGES = 64
"""Passages of an item that have documents of their own; the last takes the rest."""

CHUNK, ROOM = 256, 40_000
"""Rows listed in one transaction, and the characters of their texts: some 30 ms in which no one
else can write."""

NOBODY, ALL = 0, 1
"""Stand for those without a user, and for all, in the count of items: no user is a number."""

LONGEST = 64
"""Characters of a term above which the index holds a digest of it."""

MARK = "(SELECT value FROM memory_meta WHERE key = 'listed_to')"
_BY_OTHERS = (
    "SELECT 1 FROM memory_owners WHERE token = '_'"
    " OR (token > '_all' AND token < '_alm' AND token <> ?1)"
)
"""Read with `everyone()`: whether a process of another version has listed rows in this index.

Whoever lists rows counts their passages under its own name of all owners; versions before the
eighth under `_`.
"""
_HAS_TERMS = "SELECT 1 FROM sqlite_master WHERE name = 'memory_terms'"
_HAS_COUNTS = "SELECT 1 FROM sqlite_master WHERE name = 'memory_counts'"
_USER = field("user_id")
# a-z, 0-9 and all beyond ASCII; written as what it is not, which takes 4 ms less to compile.
_TERM = re.compile(r"[^\x00-/:-\x60{-\x7f]+")


def everyone() -> str:
    """Return what stands for all owners in the count of passages that this version has listed."""
    return f"_all{words.VERSION}"


@lru_cache(maxsize=1024)
def owner(user_id: str | None) -> str:
    """Return the token of a user, or of those items that have none."""
    if user_id is None:
        return "_none"
    return f"_{blake2b(user_id.encode(), digest_size=8).hexdigest()}"


def token(term: str) -> str | None:
    """Return a term as the index holds it; `None` for what no text can hold."""
    return _short(term) if len(term) <= LONGEST else _long(term)


@lru_cache(maxsize=65_536)
def _short(term: str) -> str | None:
    return term if _TERM.fullmatch(term) else None


def _long(term: str) -> str | None:
    """Return the digest of a term; it is not remembered, as it may be as long as a memory."""
    if not _TERM.fullmatch(term):
        return None
    return f"__{blake2b(term.encode(), digest_size=16).hexdigest()}"


def tokens(text: str) -> list[str]:
    """Return the terms of a passage as the index holds them, each once."""
    return [listed for term in set(words.terms(text)) if (listed := token(term))]


def passages(content: str, indexing: str | None = None) -> list[str]:
    """Return the passages of an item that have documents; *indexing* is what `INDEXING` reads."""
    texts = index_texts(content, read_indexed_by(indexing))
    cut = [passage for text in texts for passage in words.passages(text)]
    if len(cut) > PASSAGES:
        cut[PASSAGES - 1 :] = ["\n".join(cut[PASSAGES - 1 :])]
    return cut


def documents(content: str, user_id: str | None, indexing: str | None = None) -> list[str]:
    """Return what is indexed of an item, one text per passage."""
    who, made = owner(user_id), []
    for part in passages(content, indexing):
        terms = tokens(part)
        made.append(" ".join([who, *terms, *[who + each for each in terms]]))
    return made


def relist_some() -> Steps[None]:
    """Bring at most a chunk of the rows that were changed since they were listed up to date.

    An index of another version is emptied, for that one to list all rows again. So is one in which
    another version has listed rows, as words can only be taken out by who has put them in.
    """
    is_own = bool((yield Statement(schema.OWN_TERMS, [words.VERSION])))
    if not is_own or (yield Statement(_BY_OTHERS, [everyone()])):
        yield from _empty()
        return
    has_terms = bool((yield Statement(_HAS_TERMS)))
    columns = f"place, ifnull(length(content), 0), place <= {MARK}"
    sizes = yield Statement(waiting("memory_unlisted", columns, MARK, CHUNK))
    some = chunk(sizes)
    if has_terms:
        listed = yield Statement(  # three columns in a file that another process made
            "SELECT * FROM memory_unlisted WHERE content IS NOT NULL"
            " AND place IN (SELECT value FROM json_each(?1))",
            [json.dumps([place for place, *_ in some])],
        )
        yield from _unlist(listed)
        here = [place for place, _, is_listed in some if is_listed]
        where = "rowid IN (SELECT value FROM json_each(?1))"
        yield from _list((yield Statement(_select(where), [json.dumps(here)])))
    places = [(row[0],) for row in some]
    yield Statement("DELETE FROM memory_unlisted WHERE place = ?1", places, many=True)


def _empty() -> Steps[None]:
    """Take everything out of the index, without knowing what was put in."""
    if (yield Statement(_HAS_TERMS)):
        yield Statement("INSERT INTO memory_terms (memory_terms) VALUES ('delete-all')")
    if (yield Statement(_HAS_COUNTS)):
        yield Statement("DELETE FROM memory_counts")
    yield Statement("DELETE FROM memory_owners")
    yield Statement("DELETE FROM memory_unlisted")
    yield Statement("UPDATE memory_meta SET value = 0 WHERE key = 'listed_to'")


def waiting(table: str, columns: str, mark: str, limit: int) -> str:
    """Return how the first of the rows are read that wait in a table, by place.

    Places beyond the mark come first: they were given up, and may have been given out again. Each
    part is read from the key, so that the others, which may be many, are not looked at.
    """
    parts = (
        f"SELECT * FROM (SELECT {columns} FROM {table}"
        f" WHERE place {sign} {mark} ORDER BY place LIMIT {limit})"
        for sign in (">", "<=")
    )
    return f"{' UNION ALL '.join(parts)} LIMIT {limit}"


def chunk(sizes: Rows) -> Rows:
    """Return the first of *sizes*, as many as can be listed in a moment, but one."""
    total = 0
    for number, row in enumerate(sizes):
        total += row[1]
        if number and total > ROOM:
            return sizes[:number]
    return sizes


def _select(where: str) -> str:
    return (
        f"SELECT rowid, content, {_USER}, {INDEXING} FROM memory_items"
        f" WHERE {where} AND deleted = 0 AND typeof(content) = 'text'"
    )


def _list(rows: Iterable[Sequence[Any]]) -> Steps[None]:
    yield from _change("INSERT INTO memory_terms (rowid, terms) VALUES (?1, ?2)", rows, 1)


def _unlist(rows: Iterable[Sequence[Any]]) -> Steps[None]:
    sql = "INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', ?1, ?2)"
    yield from _change(sql, rows, -1)


def _change(sql: str, rows: Iterable[Sequence[Any]], sign: int) -> Steps[None]:
    made: list[tuple[int, str]] = []
    counts: Counter[str] = Counter()
    items: Counter[str | int] = Counter()
    for place, content, user_id, *indexing in rows:
        items.update((user_id if isinstance(user_id, str) else NOBODY, ALL))
        texts = documents(content, user_id, *indexing)
        counts[owner(user_id)] += len(texts)
        counts[everyone()] += len(texts)
        made += [(place * PASSAGES + number, text) for number, text in enumerate(texts)]
    if items and (yield Statement(_HAS_COUNTS)):
        yield Statement(
            "INSERT INTO memory_counts VALUES (?1, ?2)"
            " ON CONFLICT (owner) DO UPDATE SET items = items + excluded.items",
            [(who, sign * count) for who, count in items.items()],
            many=True,
        )
    if not made:
        return
    yield Statement(sql, made, many=True)
    yield Statement(
        "INSERT INTO memory_owners VALUES (?1, ?2)"
        " ON CONFLICT (token) DO UPDATE SET passages = passages + excluded.passages",
        [(who, sign * count) for who, count in counts.items()],
        many=True,
    )


def counting(user_id: str | None, parameter: str) -> str:
    """Return how the items that are not deleted are counted, of a user or of all.

    That is what is counted as listed, less what is listed no longer as it is, and what is not
    listed yet or otherwise, without those that are over. *parameter* is the user's name, or `ALL`.
    """
    theirs = "" if user_id is None else f" AND {_USER} = {parameter}"
    listed = "" if user_id is None else f" AND user_id = {parameter}"
    lives = f"deleted = 0 AND typeof(content) = 'text'{theirs}"
    return (
        f"(SELECT ifnull((SELECT items FROM memory_counts WHERE owner = {parameter}), 0)"
        f" - (SELECT count(*) FROM memory_unlisted WHERE content IS NOT NULL{listed})"
        f" + (SELECT count(*) FROM memory_items NOT INDEXED WHERE rowid > {MARK} AND {lives})"
        " + (SELECT count(*) FROM (SELECT place FROM memory_unlisted"
        f" WHERE place <= {MARK}) AS w CROSS JOIN memory_items NOT INDEXED"
        f" ON memory_items.rowid = w.place WHERE {lives})"
        f" - (SELECT count(*) FROM ({schema.EXPIRED}) AS o CROSS JOIN memory_items NOT INDEXED"
        f" ON memory_items.rowid = o.rowid WHERE {lives}))"
    )


def waits(connection: sqlite3.Connection) -> int:
    """Return about how many rows are not listed, at most a chunk of those that were changed."""
    row = connection.execute(
        f"SELECT (SELECT count(*) FROM (SELECT 1 FROM memory_unlisted LIMIT {CHUNK}))"
        f" + max(0, ifnull((SELECT max(rowid) FROM memory_items) "
        f" - CASE WHEN EXISTS ({_BY_OTHERS}) THEN 0 ELSE {MARK} END, 0))",
        [everyone()],
    ).fetchone()
    return int(row[0])


def list_some(connection: sqlite3.Connection) -> bool:
    """List at most a chunk, in a transaction; tell whether there was anything."""
    if not waits(connection) or not schema.has_terms(connection):
        return False
    change(connection, _list_next())
    return True


def change(connection: sqlite3.Connection, steps: Steps[None]) -> None:
    """Bring an index up to date by *steps*, in a transaction."""
    # Losing this to a power cut only means to do it again, so it need not wait for the disk.
    level = connection.execute("PRAGMA synchronous").fetchone()[0]
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        connection.execute("BEGIN IMMEDIATE")
        run(connection, steps)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"PRAGMA synchronous = {level}")


def _list_next() -> Steps[None]:
    if not (yield Statement(schema.OWN_TERMS, [words.VERSION])):  # since a moment ago
        return
    yield from relist_some()
    if (yield Statement("SELECT 1 FROM memory_unlisted LIMIT 1")):
        return
    sizes = yield Statement(
        f"SELECT rowid, length(content) + ifnull(length({INDEXING}), 0) FROM memory_items"
        f" WHERE rowid > {MARK}"
        f" ORDER BY rowid LIMIT {CHUNK}"
    )
    if sizes:
        last = chunk(sizes)[-1][0]
        where = f"rowid > {MARK} AND rowid <= ?1"
        yield from _list((yield Statement(f"{_select(where)} ORDER BY rowid", [last])))
        yield Statement("UPDATE memory_meta SET value = ?1 WHERE key = 'listed_to'", [last])


def check(connection: sqlite3.Connection) -> list[str]:
    """Return where the terms and the rows disagree; in a transaction that is rolled back.

    Where another version has listed rows, all of them wait to be listed again.
    """
    if not schema.has_terms(connection) or connection.execute(_BY_OTHERS, [everyone()]).fetchone():
        return []
    problems: list[str] = []
    try:
        connection.execute(
            "CREATE VIRTUAL TABLE temp.memory_listed"
            " USING fts5vocab('main', 'memory_terms', 'instance')"
        )
        listed = {
            place: (count, digest)
            for place, count, digest in connection.execute(
                f"SELECT doc, count(*), sum({_DIGEST}) FROM temp.memory_listed GROUP BY doc"
            )
        }
        counts: Counter[str] = Counter()
        items: Counter[str | int] = Counter()
        known = {place for (place,) in connection.execute("SELECT place FROM memory_unlisted")}
        for place, content, user_id, indexing in connection.execute(_select(f"rowid <= {MARK}")):
            if place in known:
                continue
            items.update((user_id if isinstance(user_id, str) else NOBODY, ALL))
            texts = documents(content, user_id, indexing)
            for number, text in enumerate(texts):
                if listed.pop(place * PASSAGES + number, None) != _digest(text.split(" ")):
                    problems.append(f"row {place} is indexed under other terms")
                    break
            counts[owner(user_id)] += len(texts)
        stray = {document // PASSAGES for document in listed} - known
        if stray:
            problems.append(f"{len(stray)} rows are indexed under terms that they do not have")
        if not known and not problems:
            counts[everyone()] = counts.total()
            have = dict(connection.execute("SELECT * FROM memory_owners WHERE passages <> 0"))
            if have != dict(+counts):
                problems.append("the counts of passages do not match the rows")
            have = dict(connection.execute("SELECT * FROM memory_counts WHERE items <> 0"))
            if have != dict(+items):
                problems.append("the counts of items do not match the rows")
    except sqlite3.DatabaseError as exc:
        problems.append(f"the index of terms cannot be read: {exc}")
    return problems


# Tells sets of terms apart without asking Python about each of millions.
_DIGEST = (
    "131 * length(term) + 7 * unicode(term) + 31 * ifnull(unicode(substr(term, 2, 1)), 0)"
    " + 61 * ifnull(unicode(substr(term, 3, 1)), 0) + 13 * unicode(substr(term, -1, 1))"
)


def _digest(terms: Sequence[str]) -> tuple[int, int]:
    total = 0
    for term in terms:
        second, third = (ord(term[n]) if len(term) > n else 0 for n in (1, 2))
        total += 131 * len(term) + 7 * ord(term[0]) + 31 * second + 61 * third + 13 * ord(term[-1])
    return len(terms), total
