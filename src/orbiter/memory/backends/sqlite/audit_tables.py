"""The audit log in SQLite: entries, where the chain ends, and the salts of the items' digests."""

__all__ = ["AUDIT"]

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
