"""Text search in SQLite: which trigrams to ask for, and how the index keeps up with the rows.

Rows are indexed after they are acknowledged, in chunks, when there is nothing else to write:
trigrams cost some ten times the row itself. A search asks the index for what is indexed and reads
the rest, so its answer is exact at any moment.
"""

import sqlite3
from contextlib import suppress
from unicodedata import unidata_version

from orbiter.memory.backends.sql import operations
from orbiter.memory.backends.sql.dialect import Filter, Statement, Steps
from orbiter.memory.backends.sqlite import schema, term_index, vectors

__all__ = [
    "CHUNK",
    "LATE",
    "MANY",
    "MERGED",
    "SHARE",
    "candidates",
    "check",
    "chore",
    "index_some",
    "merge_some",
    "rebuild",
    "settle",
    "weigh",
]

CHUNK = 256
"""Rows indexed in one transaction, fewer if they are long: some 15 ms in which no one else can
write."""

LATE = 2 * CHUNK
"""Rows that may wait while others write: a search reads as many in a millisecond or two."""

MERGED = 500
"""Pages of the index merged at a time."""

MANY = 4096
"""Candidates above which reading the filtered rows in order is cheaper."""

SHARE = 100
"""An index of n rows costs about as much to ask as reading n / SHARE rows."""

_HAS_WORDS = "SELECT 1 FROM sqlite_master WHERE name = 'memory_words'"
_MARK = "(SELECT value FROM memory_meta WHERE key = 'indexed_to')"


def weigh(compiled: Filter) -> Steps[tuple[bool, bool]]:
    """Tell whether the newest `PROBE` rows of a scope are all it has, and whether it is small."""
    total = yield Statement("SELECT ifnull(max(rowid), 0) FROM memory_items")
    few = operations.PROBE + total[0][0] // SHARE
    rows = yield Statement(
        "SELECT count(*) FROM (SELECT 1 FROM memory_items"
        f" WHERE {' AND '.join(compiled.scope)} LIMIT {few + 1})",
        compiled.scope_args,
    )
    return rows[0][0] <= operations.PROBE, rows[0][0] <= few


def candidates(needle: str) -> Steps[list[int] | None]:
    """Return the places of rows that may hold *needle*; `None` if they are too many to tell."""
    if len(needle) < 3:
        return None
    if not (yield Statement(_HAS_WORDS)):
        return None
    rows = yield Statement("SELECT value FROM memory_meta WHERE key = 'unicode'")
    if rows[0][0] != unidata_version and not needle.isascii():
        return None
    rows = yield Statement(
        f"SELECT rowid FROM memory_words WHERE memory_words MATCH ?1 LIMIT {MANY + 1}",
        [_match(needle)],
    )
    return [place for (place,) in rows] if len(rows) <= MANY else None


def _match(needle: str) -> str:
    """Return an expression that every text with *needle* matches, and few others.

    Trigrams that do not overlap tell nearly as much as all of them for a third of the work.
    """
    last = len(needle) - 3
    step = 3 if last < 24 else last // 8
    starts = [*range(0, last, step), last]
    parts = dict.fromkeys(needle[start : start + 3] for start in starts)
    return " AND ".join('"' + part.replace('"', '""') + '"' for part in parts)


def settle(limit: int = -1) -> Steps[None]:
    """Bring rows that were changed or removed since they were indexed up to date."""
    some = f"({term_index.waiting('memory_unindexed', 'place', _MARK, limit)})"
    if (yield Statement(_HAS_WORDS)):
        yield Statement(
            "INSERT INTO memory_words (memory_words, rowid, text)"
            " SELECT 'delete', place, orbiter_fold(indexed) FROM memory_unindexed"
            f" WHERE typeof(indexed) = 'text' AND place IN {some}"
        )
        yield Statement(
            "INSERT INTO memory_words (rowid, text)"
            " SELECT rowid, orbiter_fold(content) FROM memory_items"
            f" WHERE typeof(content) = 'text' AND rowid <= {_MARK} AND rowid IN {some}"
        )
    yield Statement(f"DELETE FROM memory_unindexed WHERE place IN {some}")


def chore(connection: sqlite3.Connection, *, is_idle: bool = True) -> bool:
    """Index a chunk if one is full, or others write and much waits; tell whether one is left."""
    least = CHUNK if is_idle else LATE
    waiting = connection.execute(
        f"SELECT (SELECT count(*) FROM (SELECT 1 FROM memory_unindexed LIMIT {least}))"
        f" + ifnull((SELECT max(rowid) FROM memory_items) - {_MARK}, 0)"
    ).fetchone()[0]
    return waiting >= least and index_some(connection)


def index_some(connection: sqlite3.Connection) -> bool:
    """Index at most a chunk, in a transaction; tell whether there was anything."""
    if not schema.has_words(connection):
        return False
    connection.execute("BEGIN IMMEDIATE")
    steps = settle(CHUNK)
    statement = next(steps)
    with suppress(StopIteration):
        while True:
            statement = steps.send(connection.execute(statement.sql).fetchall())
    changed = connection.execute("SELECT changes()").fetchone()[0]
    rows = []
    if changed < CHUNK:
        sizes = connection.execute(
            f"SELECT rowid, length(content) FROM memory_items WHERE rowid > {_MARK} ORDER BY rowid"
            f" LIMIT {CHUNK}"
        ).fetchall()
        rows = connection.execute(
            f"SELECT rowid, content FROM memory_items WHERE rowid > {_MARK} ORDER BY rowid LIMIT ?",
            [len(term_index.chunk(sizes))],
        ).fetchall()
    if rows:
        connection.executemany(
            "INSERT INTO memory_words (rowid, text) VALUES (?, ?)",
            # What was made a BLOB by hand is no text, and found by none.
            [(place, text.casefold()) for place, text in rows if isinstance(text, str)],
        )
        connection.execute(
            "UPDATE memory_meta SET value = ? WHERE key = 'indexed_to'", [rows[-1][0]]
        )
    connection.execute("COMMIT")
    return bool(changed or rows)


def merge_some(
    connection: sqlite3.Connection, *, table: str, restart: bool, pages: int = MERGED
) -> bool:
    """Merge some *pages* of an index; return whether there is more. *restart* begins a merge."""
    if not schema.has_index(connection, table):
        return False
    before = connection.total_changes
    # In pieces: others must be able to write in between.
    connection.execute(
        f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)",
        [-pages if restart else pages],
    )
    return connection.total_changes - before >= 2


def rebuild(connection: sqlite3.Connection) -> None:
    """Throw every search structure away, to be rebuilt from the rows."""
    connection.execute("DROP TABLE IF EXISTS memory_words")
    connection.execute("DELETE FROM memory_unindexed")
    connection.execute("UPDATE memory_meta SET value = 0 WHERE key = 'indexed_to'")
    connection.execute("UPDATE memory_meta SET value = ? WHERE key = 'unicode'", [unidata_version])
    connection.execute("REINDEX")
    schema.make_words(connection)
    schema.make_terms(connection, rebuild=True)


def check(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the file, and where the index and the rows disagree."""
    problems = [
        f"damaged file: {line}"
        for (line,) in connection.execute("PRAGMA integrity_check")
        if line != "ok"
    ]
    if problems:
        return problems
    connection.execute("BEGIN")
    try:
        problems += term_index.check(connection) + vectors.check(connection)
        if not schema.has_words(connection):
            return problems
        connection.execute(
            "CREATE VIRTUAL TABLE temp.memory_terms"
            " USING fts5vocab('main', 'memory_words', 'instance')"
        )
        indexed = {
            place: (count, digest)
            for place, count, digest in connection.execute(
                f"SELECT doc, count(*), sum({_DIGEST}) FROM temp.memory_terms GROUP BY doc"
            )
        }
        settled = connection.execute(
            f"SELECT rowid, CASE typeof(content) WHEN 'text' THEN orbiter_fold(content) ELSE '' END"
            f" FROM memory_items WHERE rowid <= {_MARK}"
            " AND rowid NOT IN (SELECT place FROM memory_unindexed)"
        )
        for place, text in settled:
            if indexed.pop(place, (0, 0)) != _digest(_trigrams(text)):
                problems.append(f"row {place} is indexed under another text")
        known = {place for (place,) in connection.execute("SELECT place FROM memory_unindexed")}
        stray = indexed.keys() - known
        if stray:
            problems.append(f"{len(stray)} rows are indexed that do not exist")
    except sqlite3.DatabaseError as exc:
        problems.append(f"the text index cannot be read: {exc}")
    finally:
        connection.execute("ROLLBACK")
    return problems


# Tells sets of trigrams apart without asking Python about each of millions.
_DIGEST = " + ".join(f"{n} * unicode(substr(term, {n}, 1))" for n in (1, 2, 3))


def _digest(trigrams: set[str]) -> tuple[int, int]:
    each = (sum(n * ord(letter) for n, letter in enumerate(part, 1)) for part in trigrams)
    return len(trigrams), sum(each)


def _trigrams(text: str) -> set[str]:
    # What the tokenizer of SQLite takes these for.
    text = text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
    return {text[start : start + 3] for start in range(len(text) - 2)}
