"""The tables of a SQLite store, and how a file becomes one. Migrations are append-only."""

import sqlite3
import time
from unicodedata import unidata_version

from orbiter.memory.backends.sqlite import originals
from orbiter.memory.backends.sqlite.migration_2 import RECALL, TERMS
from orbiter.memory.backends.sqlite.migration_3 import LASTING
from orbiter.memory.backends.sqlite.migration_5 import ORDER
from orbiter.memory.errors import StorageError
from orbiter.memory.text import words

__all__ = [
    "APPLICATION",
    "EPISODES",
    "FIRST",
    "MIGRATIONS",
    "NOW",
    "WORDS",
    "check_owner",
    "field",
    "has_index",
    "has_terms",
    "has_words",
    "make_terms",
    "make_words",
    "set_up",
    "split",
]

APPLICATION = 0x4F524249  # "ORBI", in the header of every file that is ours


def field(name: str) -> str:
    """Return the expression that the scope indexes are made of."""
    return f"json_extract(metadata, '$.{name}')"


def _index(name: str, *fields: str) -> str:
    columns = ", ".join((*(field(each) for each in fields), "created_at"))
    given = "".join(f" AND {field(each)} IS NOT NULL" for each in fields)
    return f"CREATE INDEX {name} ON memory_items ({columns}) WHERE deleted = 0{given};"


_SAME = "CASE WHEN NEW.{0} IS OLD.{0} THEN NULL ELSE OLD.{0} END"

NOW = "strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')"
"""The present instant in the width that `created_at` has."""

FIRST = f"""
CREATE TABLE memory_items (
    id TEXT PRIMARY KEY,
    content TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    status TEXT NOT NULL,
    metadata TEXT NOT NULL,
    extra_json TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX memory_items_created ON memory_items (created_at) WHERE deleted = 0;
{_index("memory_items_user", "user_id")}
{_index("memory_items_session", "session_id")}
{_index("memory_items_task", "task_id")}
{_index("memory_items_agent", "agent_id")}
{_index("memory_items_user_session", "user_id", "session_id")}
CREATE INDEX memory_items_deleted ON memory_items (id) WHERE deleted = 1;

-- Earlier versions. What the next version has too is left NULL.
CREATE TABLE memory_versions (
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    content TEXT,
    memory_type TEXT,
    status TEXT,
    metadata TEXT,
    extra_json TEXT,
    created_at TEXT,
    updated_at TEXT,
    deleted INTEGER,
    ended_at TEXT NOT NULL,
    ended_by TEXT,
    PRIMARY KEY (id, version)
);
-- As a trigger, so that a change made by hand is a version too.
CREATE TRIGGER memory_items_keep_version AFTER UPDATE ON memory_items BEGIN
    INSERT INTO memory_versions
        SELECT OLD.id, OLD.version, {_SAME.format("content")}, OLD.memory_type, OLD.status,
            OLD.metadata, {_SAME.format("extra_json")}, OLD.created_at, OLD.updated_at,
            OLD.deleted, {NOW}, NULL
        WHERE NOT EXISTS (
            SELECT 1 FROM memory_versions WHERE id = OLD.id AND version = OLD.version);
    UPDATE memory_items SET version = OLD.version + 1
        WHERE rowid = NEW.rowid AND version = OLD.version;
END;

CREATE TABLE memory_meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO memory_meta VALUES ('indexed_to', 0), ('unicode', '{unidata_version}');
-- What text search must still read itself: rows beyond `indexed_to`, and these. `indexed` is the
-- text under which a row is indexed now.
CREATE TABLE memory_unindexed (place INTEGER PRIMARY KEY, indexed TEXT);
CREATE TRIGGER memory_items_reword AFTER UPDATE ON memory_items
WHEN OLD.content IS NOT NEW.content OR OLD.rowid <> NEW.rowid BEGIN
    INSERT INTO memory_unindexed SELECT OLD.rowid, OLD.content
        WHERE OLD.rowid <= (SELECT value FROM memory_meta WHERE key = 'indexed_to')
        AND NOT EXISTS (SELECT 1 FROM memory_unindexed WHERE place = OLD.rowid);
END;
CREATE TRIGGER memory_items_remove AFTER DELETE ON memory_items BEGIN
    INSERT INTO memory_unindexed SELECT OLD.rowid, OLD.content
        WHERE OLD.rowid <= (SELECT value FROM memory_meta WHERE key = 'indexed_to')
        AND NOT EXISTS (SELECT 1 FROM memory_unindexed WHERE place = OLD.rowid);
    -- The place of the last row may be given out again.
    UPDATE memory_meta SET value = (SELECT ifnull(max(rowid), 0) FROM memory_items)
        WHERE key = 'indexed_to' AND value > (SELECT ifnull(max(rowid), 0) FROM memory_items);
    DELETE FROM memory_versions WHERE id = OLD.id;
END;
"""

# `id` begins with its time. `place` is never given out twice, so that a reader can go on from one.
EPISODES = """
CREATE TABLE episodic_memories (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    expires_at REAL NOT NULL,
    UNIQUE (agent_id, id)
);
CREATE INDEX episodic_memories_expiry ON episodic_memories (expires_at);
"""

MIGRATIONS = (FIRST, EPISODES, RECALL, LASTING, ORDER)
"""Numbered from 1. Only ever add to the end: files of every past version are out there."""

WORDS = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS memory_words USING fts5(text, content='', columnsize=0,"
    " detail=none, tokenize='trigram case_sensitive 1')"
)
"""The trigrams of the case-folded texts. It can be built anew at any time, and is where SQLite
has FTS5 with trigrams; without it text search reads rows."""


def set_up(connection: sqlite3.Connection, path: str, *, patience: float) -> None:
    """Bring the tables up to date, under a lock; refuse what is not ours, and what is too new."""
    check_owner(connection, path)
    if path != ":memory:":
        _use_wal(connection, patience)
    connection.execute("BEGIN IMMEDIATE")
    try:
        have = check_owner(connection, path)
        adopts = not have and originals.is_original(connection)
        if adopts:
            originals.set_aside(connection, path)
        if have < len(MIGRATIONS):
            for number, script in enumerate(MIGRATIONS[have:], start=have + 1):
                for statement in split(script):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        if adopts:
            originals.move_rows(connection)
        # The index holds texts as this Unicode version folds them; of what another one folds
        # differently, a search must look itself. See `SQLiteDialect.find`.
        connection.execute(
            "UPDATE memory_meta SET value = 'several' WHERE key = 'unicode' AND value <> ?",
            [unidata_version],
        )
        make_words(connection)
        if RECALL in MIGRATIONS:
            make_terms(connection)
        connection.execute("COMMIT")
    except BaseException:  # whatever it was, no transaction stays open
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_owner(connection: sqlite3.Connection, path: str) -> int:
    """Return the schema version of a database that is ours; 0 if it is empty or the original's."""
    # In one statement, so that all is of one moment: another process may be creating the tables.
    owner, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if owner != APPLICATION:
        if owner or ((version or tables) and not originals.is_original(connection)):
            raise StorageError(f"`{path}` belongs to another program; choose another file")
        return 0
    if version > len(MIGRATIONS):
        raise StorageError(
            f"`{path}` has schema {version}, this version of orbiter-memory knows "
            f"{len(MIGRATIONS)}; upgrade with: pip install -U orbiter-memory"
        )
    return int(version)


def split(script: str) -> list[str]:
    """Return the statements of a script; a trigger is one of them."""
    statements, rest = [], ""
    for part in script.split(";"):
        rest += part + ";"
        if sqlite3.complete_statement(rest):
            statements.append(rest.strip())
            rest = ""
    return [statement for statement in statements if statement != ";"]


def _use_wal(connection: sqlite3.Connection, patience: float) -> None:
    # Changing the journal needs the file alone and does not wait for it, so we do.
    deadline = time.monotonic() + patience
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as exc:
            is_busy = exc.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise StorageError(
                f"the file system keeps the journal in mode `{mode}`; several processes and "
                "safe commits need WAL: use a local disk"
            )
        return


def make_words(connection: sqlite3.Connection) -> None:
    """Make the index of trigrams, where this SQLite can."""
    _make_index(connection, WORDS)


def make_terms(connection: sqlite3.Connection, *, anew: bool = False) -> None:
    """Make the index of terms, where this SQLite can; anew if terms are now made differently."""
    made_by = connection.execute("SELECT value FROM memory_meta WHERE key = 'terms'").fetchone()
    if anew or made_by != (words.VERSION,):
        connection.execute("DROP TABLE IF EXISTS memory_terms")
        connection.execute("DELETE FROM memory_unlisted")
        connection.execute("DELETE FROM memory_owners")
        connection.execute(
            "INSERT OR REPLACE INTO memory_meta VALUES ('terms', ?), ('listed_to', 0)",
            [words.VERSION],
        )
    _make_index(connection, TERMS)


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
    """Tell whether terms are indexed and this SQLite can read the index."""
    return has_index(connection, "memory_terms")


def has_index(connection: sqlite3.Connection, name: str) -> bool:
    """Tell whether there is an index of that name and this SQLite can read it."""
    try:
        connection.execute(f"SELECT rowid FROM {name} LIMIT 0").fetchall()
    except sqlite3.OperationalError:
        return False
    return True
