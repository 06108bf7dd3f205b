"""The schema of a SQLite file: whose it is, which indexes it has, and which items are expired."""

import json
import logging
import sqlite3

from orbiter.memory.backends.sql.original_rows import has_original_columns
from orbiter.memory.backends.sqlite import migrations
from orbiter.memory.backends.sqlite.migrations import end, has_end
from orbiter.memory.errors import StorageError
from orbiter.memory.model.items import INDEXED_BY
from orbiter.memory.text import words

__all__ = [
    "APPLICATION",
    "CLOCK",
    "EXPIRED",
    "INDEXING",
    "OWN_TERMS",
    "WORDS",
    "check_owner",
    "has_index",
    "has_terms",
    "has_words",
    "is_original",
    "make_terms",
    "make_words",
    "not_expired",
    "read_indexed_by",
]

APPLICATION = 0x4F524249  # "ORBI", in the header of every file that is ours

# SQLite's own clock: to call Python from a thread that reads costs more than all the rest. It
# knows milliseconds, so it is set to the next: an item is gone up to one early, and never late.
CLOCK = "strftime('%Y-%m-%dT%H:%M:%f', 'now', '+0.001 seconds')"

EXPIRED = (
    f"SELECT over.rowid FROM memory_items AS over WHERE {has_end('over.')}"
    f" AND {end('over.')} < {CLOCK}"
)
"""The places of all items that are over, read from their index."""


def not_expired(item: str = "memory_items") -> str:
    """Return the condition that one row is of an item that is not over."""
    return (
        f"({item}.extra_json = '{{}}' OR NOT {has_end(f'{item}.')} OR {end(f'{item}.')} >= {CLOCK})"
    )


OWN_TERMS = "SELECT 1 FROM memory_meta WHERE key = 'terms' AND value = ?1"
"""Read with `words.VERSION`: whether the index holds terms as this version makes them."""

INDEXING = f"CASE WHEN instr(metadata, '\"{INDEXED_BY}\"') THEN metadata END"
"""Of a row that may say by what it is indexed, the metadata; of most rows, NULL."""


def read_indexed_by(indexing: str | None) -> object:
    """Return what `metadata.extra` has under `indexed_by`, from what `INDEXING` reads."""
    read = None if indexing is None else json.loads(indexing)
    extra = read.get("extra") if isinstance(read, dict) else None
    return extra.get(INDEXED_BY) if isinstance(extra, dict) else None


WORDS = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS memory_words USING fts5(text, content='', columnsize=0,"
    " detail=none, tokenize='trigram case_sensitive 1')"
)
"""The trigrams of the case-folded texts. It can be rebuilt at any time, and is where SQLite
has FTS5 with trigrams; without it text search reads rows."""

_TERMS = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS memory_terms USING fts5(terms, content='', columnsize=0,"
    " detail=none, tokenize=\"ascii tokenchars '_'\")"
)
"""The terms of every passage and the token of its owner. Terms are made of letters and digits,
and this tokenizer cuts at whatever else is ASCII and changes nothing."""

_OTHERS = (
    "SELECT count(*) FROM sqlite_master WHERE tbl_name <> 'memory_items'"
    " OR type NOT IN ('table', 'index')"
)


def is_original(connection: sqlite3.Connection) -> bool:
    """Tell whether the original library has made this file, and nobody else anything in it."""
    names = connection.execute("SELECT name FROM pragma_table_info('memory_items')").fetchall()
    if not has_original_columns(name for (name,) in names):
        return False
    return not connection.execute(_OTHERS).fetchone()[0]


def check_owner(connection: sqlite3.Connection, path: str) -> int:
    """Return the schema version of a database that is ours; 0 if it is empty or the original's."""
    # In one statement, so that all is of one moment: another process may be creating the tables.
    owner, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if owner != APPLICATION:
        if owner or ((version or tables) and not is_original(connection)):
            raise StorageError(f"`{path}` belongs to another program; choose another file")
        return 0
    if version > len(migrations.MIGRATIONS):
        raise StorageError(
            f"`{path}` has schema {version}, this version of orbiter-memory knows "
            f"{len(migrations.MIGRATIONS)}; upgrade with: pip install -U orbiter-memory"
        )
    return int(version)


def make_words(connection: sqlite3.Connection) -> None:
    """Make the index of trigrams, where this SQLite can."""
    _make_index(connection, WORDS)


def make_terms(connection: sqlite3.Connection, *, rebuild: bool = False) -> None:
    """Make the index of terms, where this SQLite can; rebuild it if an older version made it.

    That of a newer version stays: its processes use it, and would rebuild it in turn.
    """
    made_by = connection.execute("SELECT value FROM memory_meta WHERE key = 'terms'").fetchone()
    if made_by is not None and made_by[0] > words.VERSION and not rebuild:
        logging.getLogger(__name__).warning(
            "a newer version of orbiter-memory has indexed the words of this file; this one reads "
            "memories one by one. If it stays, rebuild the index with: orbiter-memory reindex"
        )
    elif rebuild or made_by != (words.VERSION,):
        connection.execute("DROP TABLE IF EXISTS memory_terms")
        connection.execute("DELETE FROM memory_unlisted")
        connection.execute("DELETE FROM memory_owners")
        if migrations.COUNTS in migrations.MIGRATIONS:
            connection.execute("DELETE FROM memory_counts")
        connection.execute(
            "INSERT OR REPLACE INTO memory_meta VALUES ('terms', ?), ('listed_to', 0)",
            [words.VERSION],
        )
    _make_index(connection, _TERMS)


def _make_index(connection: sqlite3.Connection, sql: str) -> None:
    try:
        connection.execute(sql)
    except sqlite3.OperationalError as exc:
        # This SQLite has no FTS5, or one without trigrams. Whatever else is wrong is an error.
        if "no such" not in str(exc):
            raise


def has_words(connection: sqlite3.Connection) -> bool:
    """Tell whether texts are indexed and this SQLite can read the index."""
    return has_index(connection, "memory_words")


def has_terms(connection: sqlite3.Connection) -> bool:
    """Tell whether terms are indexed as this version makes them, and this SQLite can read them.

    Another version over the same file makes others, as during an upgrade. Then this one neither
    asks the index nor changes it: words in it can only be taken out by who has put them in.
    """
    is_ours = connection.execute(OWN_TERMS, [words.VERSION]).fetchone() is not None
    return is_ours and has_index(connection, "memory_terms")


def has_index(connection: sqlite3.Connection, name: str) -> bool:
    """Tell whether there is an index of that name and this SQLite can read it."""
    try:
        connection.execute(f"SELECT rowid FROM {name} LIMIT 0").fetchall()
    except sqlite3.OperationalError:
        return False
    return True
