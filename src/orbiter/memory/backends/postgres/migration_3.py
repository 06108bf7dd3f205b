"""Version 3 of the tables: when items end, when they came, and what was done to them."""

from orbiter.memory.backends.postgres.audit_tables import audit
from orbiter.memory.backends.postgres.migration_2 import FAMILY, OWNER
from orbiter.memory.backends.postgres.not_expired import end, has_end, over

__all__ = ["EXPIRY", "FACTS", "GOING", "RECORDED", "third"]

EXPIRY = f"""
CREATE INDEX memory_items_expiry ON memory_items (({end()})) WHERE {has_end()};
-- An item that is over is gone: whoever writes its id before it is removed writes a new one, which
-- came now. By its name this runs after the trigger that keeps versions.
CREATE FUNCTION memory_items_renew() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM memory_versions WHERE id = OLD.id;
    INSERT INTO memory_versions (id, version, metadata, ended_at) VALUES (NEW.id, 0,
        jsonb_strip_nulls(jsonb_build_object('user_id', NEW.metadata->>'user_id')),
        clock_timestamp());
    NEW.version := 1;
    RETURN NEW;
END
$$;
CREATE TRIGGER memory_items_renew BEFORE UPDATE ON memory_items
    FOR EACH ROW WHEN ({over("OLD.")}
        AND current_setting('orbiter.moving', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION memory_items_renew();
"""
"""The index of items that have an end, and what happens to one that is over."""

FACTS = """
CREATE INDEX memory_items_facts ON memory_items ((metadata->>'user_id'), created_at, seq)
    WHERE deleted = 0 AND (metadata->>'user_id') IS NOT NULL AND memory_type = 'fact';
"""
"""The index of facts by their owner."""

RECORDED = """
-- For those who read the items one after the other, as they came.
CREATE INDEX memory_items_place ON memory_items (seq);
-- When an item came that says it was created at another time than about now. A move between stores
-- brings the instant along, and keeps this quiet. The owner is what row-level security asks for.
CREATE FUNCTION memory_items_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO memory_versions (id, version, metadata, ended_at) VALUES (NEW.id, 0,
        jsonb_strip_nulls(jsonb_build_object('user_id', NEW.metadata->>'user_id')),
        clock_timestamp())
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER memory_items_record AFTER INSERT ON memory_items FOR EACH ROW
    WHEN (NEW.version = 1 AND NEW.created_at
        NOT BETWEEN clock_timestamp() - interval '1 second' AND clock_timestamp()
        AND current_setting('orbiter.moving', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION memory_items_record();
"""
"""When an item came that is dated otherwise."""


GOING = f"""
-- Whoever is making something of an item holds the lock of its owner. What they have made is seen
-- by whoever asks after them, and never by whoever asks before.
CREATE OR REPLACE FUNCTION memory_items_forget() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner CONSTANT TEXT := {OWNER.format("OLD.")};
BEGIN
    PERFORM pg_advisory_xact_lock({FAMILY}, hashtext(owner));
    DELETE FROM memory_unembedded WHERE user_key = owner AND id = OLD.id
        AND model IN (SELECT number FROM memory_models);
    DELETE FROM memory_vectors WHERE user_key = owner AND id = OLD.id;
    DELETE FROM memory_details WHERE user_key = owner AND id = OLD.id;
    WITH old AS (
        DELETE FROM memory_passages WHERE user_key = owner AND id = OLD.id RETURNING terms
    ), less AS (SELECT term, count(*) AS n FROM old, unnest(terms) AS term GROUP BY term
    ), gone AS (
        DELETE FROM memory_terms AS t USING less
            WHERE t.user_key = owner AND t.term = less.term AND t.passages <= less.n
    ) UPDATE memory_terms AS t SET passages = t.passages - less.n FROM less
        WHERE t.user_key = owner AND t.term = less.term AND t.passages > less.n;
    RETURN OLD;
END
$$;
-- What the next version has too is left NULL, unless that is another user's: it may be erased by
-- somebody who does not see this one.
CREATE OR REPLACE FUNCTION memory_items_keep_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_whole CONSTANT BOOLEAN := {OWNER.format("OLD.")} <> {OWNER.format("NEW.")};
BEGIN
    IF NEW.version = OLD.version THEN
        NEW.version := OLD.version + 1;
    END IF;
    INSERT INTO memory_versions VALUES (
        OLD.id, OLD.version,
        CASE WHEN is_whole OR NEW.content <> OLD.content THEN OLD.content END,
        OLD.memory_type, OLD.status, OLD.metadata,
        CASE WHEN is_whole OR NEW.extra_json <> OLD.extra_json THEN OLD.extra_json END,
        OLD.created_at, OLD.updated_at, OLD.deleted, clock_timestamp(), NULL)
    ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;
"""
"""How items go, and change hands."""

_HUSKS = """
-- Of a version that is erased by its user it stays when it ended; whose item it is sees it.
ALTER POLICY memory_versions_own ON memory_versions
    WITH CHECK (metadata->>'user_id' = current_setting('orbiter.user_id', true)
        OR metadata IS NULL);
"""


def third(partitions: int, *, row_security: bool) -> str:
    """Return the script that makes version 3 of version 2."""
    script = EXPIRY + FACTS + RECORDED + GOING + (_HUSKS if row_security else "")
    return script + audit(partitions, row_security=row_security)
