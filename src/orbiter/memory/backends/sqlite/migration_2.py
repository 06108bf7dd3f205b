"""What SQLite keeps beside the rows for recall: terms, vectors, and what waits for either.

Rows are only ever noted here by triggers, so that a change made by hand, or by a process that
knows no model, counts like any other. Adding a row notes nothing: it is beyond a mark.
"""

__all__ = ["RECALL", "TERMS"]


def _user(row: str) -> str:
    return f"json_extract({row}.metadata, '$.user_id')"


_LISTED_TO = "(SELECT value FROM memory_meta WHERE key = 'listed_to')"
_LAST = "(SELECT ifnull(max(rowid), 0) FROM memory_items)"
_HAS_MODEL = "EXISTS (SELECT 1 FROM memory_models)"
_OTHER_USER = (
    "(OLD.metadata IS NOT NEW.metadata AND " + _user("OLD") + " IS NOT " + _user("NEW") + ")"
)
_REWORDED = "(OLD.content IS NOT NEW.content OR OLD.rowid <> NEW.rowid)"
_CHANGED = f"({_REWORDED} OR OLD.deleted <> NEW.deleted OR {_OTHER_USER})"
_NOTE_LISTED = f"""
    INSERT INTO memory_unlisted
        SELECT OLD.rowid,
            CASE WHEN OLD.deleted = 0 AND typeof(OLD.content) = 'text' THEN OLD.content END,
            {_user("OLD")}
        WHERE OLD.rowid <= {_LISTED_TO}
        AND NOT EXISTS (SELECT 1 FROM memory_unlisted WHERE place = OLD.rowid);"""


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
CREATE TRIGGER memory_items_relist AFTER UPDATE ON memory_items WHEN {_CHANGED} BEGIN
    {_NOTE_LISTED}
END;
CREATE TRIGGER memory_items_unlist AFTER DELETE ON memory_items BEGIN
    {_NOTE_LISTED}
    UPDATE memory_meta SET value = {_LAST} WHERE key = 'listed_to' AND value > {_LAST};
END;

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
CREATE TRIGGER memory_items_reembed AFTER UPDATE ON memory_items
WHEN {_HAS_MODEL} AND {_CHANGED} BEGIN
    DELETE FROM memory_vectors WHERE {_REWORDED} AND place = OLD.rowid
        AND model IN (SELECT id FROM memory_models);
    DELETE FROM memory_unembedded WHERE {_REWORDED} AND place = OLD.rowid
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
END;
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

TERMS = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS memory_terms USING fts5(terms, content='', columnsize=0,"
    " detail=none, tokenize=\"ascii tokenchars '_'\")"
)
"""The terms of every passage and the token of its owner. Terms are made of letters and digits,
and this tokenizer cuts at whatever else is ASCII and changes nothing."""
