"""The audit log in Postgres: entries, where the chain ends, and the salts of the items' digests.

The log is one table in every layout: a chain has one end. Under row-level security whoever acts
for a user can add to it and read nothing of it; where the chain ends is all they must know.
"""

__all__ = ["audit"]

_AUDIT = """
-- What was done, one entry after the other; each hash is of its entry and the hash before it.
CREATE TABLE memory_audit (
    number BIGINT PRIMARY KEY,
    at TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C",
    whose TEXT COLLATE "C" NOT NULL,
    call TEXT COLLATE "C",
    item_id TEXT COLLATE "C",
    version INTEGER,
    items TEXT COLLATE "C",
    total BIGINT NOT NULL,
    digest TEXT COLLATE "C",
    ends_at TEXT COLLATE "C",
    hash TEXT COLLATE "C" NOT NULL
);
CREATE INDEX memory_audit_item ON memory_audit (item_id, number) WHERE item_id IS NOT NULL;
CREATE INDEX memory_audit_whose ON memory_audit (whose, number);
-- An honest mistake is stopped here; a dishonest one is found by `verify_audit`.
CREATE FUNCTION memory_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only ever added to';
END
$$;
CREATE TRIGGER memory_audit_unchanged BEFORE UPDATE OR DELETE ON memory_audit
    FOR EACH ROW EXECUTE FUNCTION memory_audit_refuse();
CREATE TRIGGER memory_audit_kept BEFORE TRUNCATE ON memory_audit
    FOR EACH STATEMENT EXECUTE FUNCTION memory_audit_refuse();
-- Where the chain ends, and the key of the digests of scopes. Whoever writes locks this row first.
CREATE TABLE memory_audit_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number BIGINT NOT NULL,
    hash TEXT NOT NULL,
    key TEXT,
    begun INTEGER NOT NULL
);
INSERT INTO memory_audit_head VALUES (1, 0, '', NULL, 0);
-- Without its salt a digest tells nothing, so a salt goes with its item.
CREATE TABLE memory_audit_salts (id TEXT COLLATE "C" PRIMARY KEY, salt TEXT NOT NULL);
CREATE FUNCTION memory_items_unsalt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
{moved}    DELETE FROM memory_audit_salts WHERE id = OLD.id;
    RETURN OLD;
END
$$;
-- Before: once the row is gone, row-level security shows nobody what belonged to it. By its name it
-- comes after `memory_items_remove`, which takes the id of what is removed for good.
CREATE TRIGGER memory_items_unsalt BEFORE DELETE ON memory_items
    FOR EACH ROW EXECUTE FUNCTION memory_items_unsalt();
"""

_MOVED = """\
    -- A row that moves to another user's partition is deleted here and lives on there.
    IF EXISTS (SELECT 1 FROM memory_ids WHERE id = OLD.id AND user_key <> OLD.user_key) THEN
        RETURN OLD;
    END IF;
"""

_RLS = """
ALTER TABLE memory_audit ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_audit_add ON memory_audit FOR INSERT WITH CHECK (true);
CREATE POLICY memory_audit_read ON memory_audit FOR SELECT
    USING (coalesce(current_setting('orbiter.user_id', true), '') = '');
ALTER TABLE memory_audit_salts ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_audit_salts_own ON memory_audit_salts
    USING (id IN (SELECT id FROM memory_items))
    WITH CHECK (true);
"""


def audit(partitions: int, *, row_security: bool) -> str:
    """Return the script that makes the tables of the log."""
    script = _AUDIT.replace("{moved}", _MOVED if partitions else "")
    return script + (_RLS if row_security else "")
