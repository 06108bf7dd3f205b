"""Version 3 of the tables: when items end, when they came, and what was done to them."""

from orbiter.memory.backends._postgres.audit_tables import audit
from orbiter.memory.backends._postgres.living import end, has_end, over

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


def third(partitions: int, *, row_security: bool) -> str:
    """Return the script that makes version 3 of version 2."""
    return EXPIRY + FACTS + RECORDED + audit(partitions, row_security=row_security)
