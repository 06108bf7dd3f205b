"""The migrations of a SQLite file: append-only scripts, and the expressions they are made of.

Rows are only ever noted in tables beside them by triggers, so that a change made by hand, or by a
process that knows no model, counts like any other. Adding a row notes nothing: it is beyond a mark.
"""

from unicodedata import unidata_version

from orbiter.memory.backends.sql.rows import END_WIDTH, ENDS
from orbiter.memory.model.items import INDEXED_BY

__all__ = [
    "AUDIT",
    "CONVERSATIONS",
    "COUNTS",
    "ENTRIES",
    "EPISODES",
    "EXPIRY",
    "FACTS",
    "FACT_FIELDS",
    "FACT_KEY",
    "FACT_TIMES",
    "FIRST",
    "INDEXED",
    "LASTING",
    "MIGRATIONS",
    "NOW",
    "ORDER",
    "RECALL",
    "SYSTEM",
    "UNACCEPTED",
    "VERSION_TIMES",
    "end",
    "field",
    "has_end",
]


def field(name: str) -> str:
    """Return the expression that the scope indexes are made of."""
    return f"json_extract(metadata, '$.{name}')"


def _index(name: str, *fields: str) -> str:
    columns = ", ".join((*(field(each) for each in fields), "created_at"))
    conditions = "".join(f" AND {field(each)} IS NOT NULL" for each in fields)
    return f"CREATE INDEX {name} ON memory_items ({columns}) WHERE deleted = 0{conditions};"


_SAME = "CASE WHEN NEW.{0} IS OLD.{0} THEN NULL ELSE OLD.{0} END"

NOW = "strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')"
"""The present instant in the width that `created_at` has."""


def has_end(row: str = "") -> str:
    """Return the condition that an item has an end; *row* is its row's name and a dot, or none."""
    return f"substr({row}extra_json, 1, {len(ENDS)}) = '{ENDS}'"


def end(row: str = "") -> str:
    """Return how the instant is read when it is over; only of an item that has an end."""
    return f"substr({row}extra_json, {len(ENDS) + 1}, {END_WIDTH})"


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

# Schema 3: terms, vectors, and what waits for either.


def _user(row: str) -> str:
    return f"json_extract({row}.metadata, '$.user_id')"


_LISTED_TO = "(SELECT value FROM memory_meta WHERE key = 'listed_to')"
_LAST = "(SELECT ifnull(max(rowid), 0) FROM memory_items)"
_HAS_MODEL = "EXISTS (SELECT 1 FROM memory_models)"
_OTHER_USER = (
    "(OLD.metadata IS NOT NEW.metadata AND " + _user("OLD") + " IS NOT " + _user("NEW") + ")"
)
_REWORDED = "(OLD.content IS NOT NEW.content OR OLD.rowid <> NEW.rowid)"
_MOVED = f"OLD.deleted <> NEW.deleted OR {_OTHER_USER}"


def _list_again(reworded: str, *columns: str) -> str:
    """Return the triggers that note what the index of terms must forget, in so many *columns*."""
    note = f"""
    INSERT INTO memory_unlisted
        SELECT OLD.rowid,
            CASE WHEN OLD.deleted = 0 AND typeof(OLD.content) = 'text' THEN OLD.content END,
            {", ".join((_user("OLD"), *columns))}
        WHERE OLD.rowid <= {_LISTED_TO}
        AND NOT EXISTS (SELECT 1 FROM memory_unlisted WHERE place = OLD.rowid);"""
    return f"""
CREATE TRIGGER memory_items_relist AFTER UPDATE ON memory_items WHEN {reworded} OR {_MOVED} BEGIN
    {note}
END;
CREATE TRIGGER memory_items_unlist AFTER DELETE ON memory_items BEGIN
    {note}
    UPDATE memory_meta SET value = {_LAST} WHERE key = 'listed_to' AND value > {_LAST};
END;"""


def _embed_again(reworded: str) -> str:
    return f"""
CREATE TRIGGER memory_items_reembed AFTER UPDATE ON memory_items
WHEN {_HAS_MODEL} AND ({reworded} OR {_MOVED}) BEGIN
    DELETE FROM memory_vectors WHERE {reworded} AND place = OLD.rowid
        AND model IN (SELECT id FROM memory_models);
    DELETE FROM memory_unembedded WHERE {reworded} AND place = OLD.rowid
        AND model IN (SELECT id FROM memory_models);
    INSERT INTO memory_unembedded (model, place)
        SELECT id, NEW.rowid FROM memory_models AS m
        WHERE NEW.deleted = 0 AND NEW.rowid <= embedded_to AND NOT EXISTS (
            SELECT 1 FROM memory_vectors WHERE model = m.id AND place = NEW.rowid
        ) AND NOT EXISTS (
            SELECT 1 FROM memory_unembedded WHERE model = m.id AND place = NEW.rowid);
    INSERT INTO memory_changes (place, user_id) VALUES (OLD.rowid, {_user("OLD")});
    INSERT INTO memory_changes (place, user_id) SELECT NEW.rowid, {_user("NEW")}
        WHERE OLD.rowid <> NEW.rowid OR {_OTHER_USER};
END;"""


def _log(event: str, row: str) -> str:
    return f"""
CREATE TRIGGER memory_vectors_{event.lower()} AFTER {event} ON memory_vectors
WHEN EXISTS (SELECT 1 FROM memory_models WHERE id = {row}.model AND state <> 'gone') BEGIN
    INSERT INTO memory_changes (place, user_id) VALUES ({row}.place,
        (SELECT {_user("i")} FROM memory_items AS i WHERE i.rowid = {row}.place));
END;"""


RECALL = f"""
-- Rows beyond `listed_to`, and these, are not listed under their present terms. `content` and
-- `user_id` are those under which a row is listed now; without content it is not listed at all.
INSERT INTO memory_meta VALUES ('listed_to', 0), ('terms', 0);
CREATE TABLE memory_unlisted (place INTEGER PRIMARY KEY, content TEXT, user_id TEXT);
-- How many passages are listed of each owner.
CREATE TABLE memory_owners (token TEXT PRIMARY KEY, passages INTEGER NOT NULL) WITHOUT ROWID;
{_list_again(_REWORDED)}

-- `state` is `current`, `coming` while everything is embedded anew, or `gone` when only the
-- vectors are still to be removed. Items beyond `embedded_to` wait for theirs.
CREATE TABLE memory_models (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    state TEXT NOT NULL,
    embedded_to INTEGER NOT NULL DEFAULT 0
);
-- The vectors of an item's passages, one after the other; `digest` is that of its content.
CREATE TABLE memory_vectors (
    id INTEGER PRIMARY KEY,
    model INTEGER NOT NULL,
    place INTEGER NOT NULL,
    digest BLOB NOT NULL,
    vectors BLOB NOT NULL,
    UNIQUE (model, place)
);
-- The details of passages, apart so that reading vectors reads none of them. `id` is that of the
-- vectors, `sizes` the bytes of each passage, `details` all of them one after the other.
CREATE TABLE memory_details (
    id INTEGER PRIMARY KEY, sizes TEXT NOT NULL, details BLOB NOT NULL
);
CREATE TRIGGER memory_vectors_drop_details AFTER DELETE ON memory_vectors BEGIN
    DELETE FROM memory_details WHERE id = OLD.id;
END;
CREATE TABLE memory_unembedded (
    model INTEGER NOT NULL,
    place INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (model, place)
) WITHOUT ROWID;
-- The newest changes to what a user's vectors are, for those who hold them in memory.
CREATE TABLE memory_changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, place INTEGER NOT NULL, user_id TEXT
);
CREATE INDEX memory_changes_user ON memory_changes (user_id, id);
{_log("INSERT", "NEW")}
{_log("UPDATE", "NEW")}
{_log("DELETE", "OLD")}
{_embed_again(_REWORDED)}
CREATE TRIGGER memory_items_unembed AFTER DELETE ON memory_items WHEN {_HAS_MODEL} BEGIN
    DELETE FROM memory_vectors WHERE place = OLD.rowid
        AND model IN (SELECT id FROM memory_models);
    DELETE FROM memory_unembedded WHERE place = OLD.rowid
        AND model IN (SELECT id FROM memory_models);
    INSERT INTO memory_changes (place, user_id) VALUES (OLD.rowid, {_user("OLD")});
    -- The place of the last row may be given out again.
    UPDATE memory_models SET embedded_to = {_LAST} WHERE embedded_to > {_LAST};
END;
"""

# Schema 4: when items expire, when they came, and what was done to them.

AUDIT = """
-- What was done, one entry after the other; each hash is of its entry and the hash before it.
CREATE TABLE memory_audit (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    action TEXT NOT NULL,
    actor TEXT,
    whose TEXT NOT NULL,
    call TEXT,
    item_id TEXT,
    version INTEGER,
    items TEXT,
    total INTEGER NOT NULL,
    digest TEXT,
    ends_at TEXT,
    hash TEXT NOT NULL
);
CREATE INDEX memory_audit_item ON memory_audit (item_id, number) WHERE item_id IS NOT NULL;
CREATE INDEX memory_audit_whose ON memory_audit (whose, number);
-- An honest mistake is stopped here; a dishonest one is found by `verify_audit`.
CREATE TRIGGER memory_audit_unchanged BEFORE UPDATE ON memory_audit BEGIN
    SELECT RAISE(ABORT, 'the audit log is only ever added to');
END;
CREATE TRIGGER memory_audit_kept BEFORE DELETE ON memory_audit BEGIN
    SELECT RAISE(ABORT, 'the audit log is only ever added to');
END;
-- Where the chain ends, and the key of the digests of scopes.
CREATE TABLE memory_audit_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    key TEXT,
    begun INTEGER NOT NULL
);
INSERT INTO memory_audit_head VALUES (1, 0, '', NULL, 0);
-- Without its salt a digest tells nothing, so a salt goes with its item.
CREATE TABLE memory_audit_salts (id TEXT PRIMARY KEY, salt TEXT NOT NULL) WITHOUT ROWID;
CREATE TRIGGER memory_items_unsalt AFTER DELETE ON memory_items BEGIN
    DELETE FROM memory_audit_salts WHERE id = OLD.id;
END;
"""

EXPIRY = f"""
CREATE INDEX memory_items_expiry ON memory_items ({end()}) WHERE {has_end()};
"""
"""The index of items that have an end."""

FACTS = """
CREATE INDEX memory_items_facts ON memory_items (json_extract(metadata, '$.user_id'), created_at)
    WHERE deleted = 0 AND memory_type = 'fact';
"""
"""The index of facts by their owner."""

# When an item came that is dated otherwise is version 0 in `memory_versions`. `record_writer.note`
# writes it: a trigger, even one that does nothing, makes every insert half as slow again.

LASTING = EXPIRY + FACTS + AUDIT

# Schema 5: the order of conversations and of versions. An index ends with the rowid, which counts
# insertions, so the newest messages of a conversation are read from its end on.

_USER, _SESSION, _TASK = (
    f"json_extract(metadata, '$.{name}')" for name in ("user_id", "session_id", "task_id")
)

CONVERSATIONS = f"""
CREATE INDEX memory_items_talk ON memory_items ({_SESSION}, {_USER})
    WHERE deleted = 0 AND {_SESSION} IS NOT NULL;
CREATE INDEX memory_items_task_talk ON memory_items ({_TASK}, {_SESSION}, {_USER})
    WHERE deleted = 0 AND {_TASK} IS NOT NULL;
"""
"""The indexes of conversations: by session, and by task."""

# SQLite counts milliseconds; a microsecond is added to the digits. The last second of all has none
# after it.
_NEXT = """CASE WHEN substr(last, 21, 6) < '999999'
            THEN substr(last, 1, 20) || printf('%06d', substr(last, 21, 6) + 1) || '+00:00'
            ELSE coalesce(strftime('%Y-%m-%dT%H:%M:%S.000000+00:00', substr(last, 1, 19),
                '+1 second'), last) END"""

VERSION_TIMES = f"""
DROP TRIGGER memory_items_keep_version;
-- As a trigger, so that a change made by hand is a version too. A version ends after it began, also
-- where the clock was set back meanwhile.
CREATE TRIGGER memory_items_keep_version AFTER UPDATE ON memory_items BEGIN
    INSERT INTO memory_versions
        SELECT OLD.id, OLD.version, {_SAME.format("content")}, OLD.memory_type, OLD.status,
            OLD.metadata, {_SAME.format("extra_json")}, OLD.created_at, OLD.updated_at,
            OLD.deleted, max({NOW}, {_NEXT}), NULL
        FROM (SELECT coalesce((SELECT max(ended_at) FROM memory_versions WHERE id = OLD.id),
            CASE WHEN OLD.version > 1 THEN OLD.updated_at ELSE OLD.created_at END) AS last)
        WHERE NOT EXISTS (
            SELECT 1 FROM memory_versions WHERE id = OLD.id AND version = OLD.version);
    UPDATE memory_items SET version = OLD.version + 1
        WHERE rowid = NEW.rowid AND version = OLD.version;
END;
"""
"""How a version is kept, with a time that never goes back."""

ORDER = CONVERSATIONS + VERSION_TIMES

# Schema 6: the system messages of a conversation, which every window of it has.

SYSTEM = f"""
CREATE INDEX memory_items_system ON memory_items (memory_type, {_SESSION}, {_USER})
    WHERE deleted = 0 AND memory_type = 'system' AND {_SESSION} IS NOT NULL;
CREATE INDEX memory_items_task_system ON memory_items (memory_type, {_TASK}, {_SESSION}, {_USER})
    WHERE deleted = 0 AND memory_type = 'system' AND {_TASK} IS NOT NULL;
"""
"""The indexes of system messages. The kind is a column, too, so that they are preferred to those
of all messages."""

# Schema 7: facts by their keys and times.


def _fact(name: str) -> str:
    return f"json_extract(extra_json, '$.{name}')"


_FACT_TIMES = ("valid_from", "recorded_at", "valid_to", "retracted_at")
_IS_INSTANT = "GLOB '????-??-??T??:??:??.??????+00:00'"
_NAMED = "json_extract(metadata, '$.extra.fact')"
_PLAIN_FACT = " AND ".join(
    [
        f"{_NAMED} IS {_fact('key')}",
        *(f"{_fact(name)} {_IS_INSTANT}" for name in _FACT_TIMES[:2]),
        *(f"ifnull({_fact(name)} {_IS_INSTANT}, 1)" for name in _FACT_TIMES[2:]),
    ]
)
FACT_KEY = f"CASE WHEN {_PLAIN_FACT} THEN {_NAMED} END"
"""The key of a fact whose times are written as we write them, so that text order is time order;
of a fact that somebody wrote otherwise, NULL."""

FACT_FIELDS = {name: _fact(name) for name in _FACT_TIMES} | {
    "key": FACT_KEY,
    "latest": f"max({_fact('recorded_at')}, ifnull({_fact('retracted_at')}, ''))",
}
"""How the fields of a fact are read, and the last instant at which anything became known of it."""

_WHOSE_FACT = ", ".join(map(field, ("user_id", "session_id", "task_id", "agent_id")))
_IS_FACT = "deleted = 0 AND memory_type = 'fact'"

FACT_TIMES = f"""
CREATE INDEX memory_items_fact_times ON memory_items ({_WHOSE_FACT}, {FACT_KEY},
    {FACT_FIELDS["valid_from"]}, {FACT_FIELDS["recorded_at"]}, id) WHERE {_IS_FACT};
CREATE INDEX memory_items_fact_news ON memory_items ({_WHOSE_FACT}, {FACT_KEY},
    {FACT_FIELDS["latest"]}) WHERE {_IS_FACT};
"""
"""The indexes of facts by their scope and key: when they begin, and when they became known."""

# Schema 8: how many items there are.

_OWNER = "CASE typeof(owner) WHEN 'text' THEN owner ELSE 0 END"

COUNTS = f"""
-- How many items are listed of each user; of those without one under 0, and of all under 1. Whoever
-- lists a row, or takes it out, counts it, so that adding one costs nothing more.
CREATE TABLE memory_counts (owner PRIMARY KEY, items INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO memory_counts SELECT {_OWNER}, count(*) FROM (
        SELECT {_USER} AS owner FROM memory_items
        WHERE rowid <= {_LISTED_TO} AND deleted = 0 AND typeof(content) = 'text'
            AND rowid NOT IN (SELECT place FROM memory_unlisted)
        UNION ALL SELECT user_id FROM memory_unlisted WHERE content IS NOT NULL
    ) GROUP BY 1;
INSERT INTO memory_counts SELECT 1, ifnull(sum(items), 0) FROM memory_counts;
-- What `stats` leaves out.
CREATE INDEX memory_items_jobs ON memory_items (memory_type, {_USER}, created_at)
    WHERE memory_type = 'extraction';
"""
"""The counts of what is listed, and the index of what is no memory."""

# Schema 9: what is not accepted, so that all else is known to be.

UNACCEPTED = f"""
CREATE INDEX memory_items_unaccepted ON memory_items ({_USER})
    WHERE deleted = 0 AND status <> 'accepted';
"""
"""The index of drafts and of what was discarded. Most users have few, and adding anything else
costs nothing for it."""

# Schema 10: entries of key and value. Times are microseconds since 1970.

ENTRIES = f"""
CREATE TABLE memory_entries (
    scope TEXT NOT NULL,
    path TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    metadata TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ttl REAL,
    expires_at INTEGER,
    PRIMARY KEY (scope, path, key)
);
CREATE INDEX memory_entries_user ON memory_entries ({_USER});
CREATE INDEX memory_entries_expiry ON memory_entries (expires_at) WHERE expires_at IS NOT NULL;
"""
"""The table of entries, with the digest of their scope first, as each question names it."""

_OLD, _NEW = (f"({row}.metadata, '$.extra.{INDEXED_BY}')" for row in ("OLD", "NEW"))
_INDEXED_OTHERWISE = (
    f"({_REWORDED} OR (OLD.metadata IS NOT NEW.metadata AND (json_type{_OLD} IS NOT json_type{_NEW}"
    f" OR json_extract{_OLD} IS NOT json_extract{_NEW})))"
)
_ITS_INDEXING = f"CASE WHEN instr(OLD.metadata, '\"{INDEXED_BY}\"') THEN OLD.metadata END"

INDEXED = f"""
-- By what a row is listed now, if that is not its content alone.
ALTER TABLE memory_unlisted ADD COLUMN metadata TEXT;
DROP TRIGGER memory_items_relist; DROP TRIGGER memory_items_unlist;
DROP TRIGGER memory_items_reembed;
{_list_again(_INDEXED_OTHERWISE, _ITS_INDEXING)}
{_embed_again(_INDEXED_OTHERWISE)}
"""
"""Schema 11: how a change of what a row is indexed by is noted."""

MIGRATIONS = (
    FIRST, EPISODES, RECALL, LASTING, ORDER, SYSTEM, FACT_TIMES, COUNTS, UNACCEPTED, ENTRIES,
    INDEXED,
)  # fmt: skip
"""Numbered from 1. Only ever add to the end: files of every past version are out there."""
